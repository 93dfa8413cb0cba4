"""The reports for their readers: analyst, chair and members of a review board, five safes, public.

Each begins with the decision and the picture. The chair's, the analyst's and the five-safes report take all facts; the
members' report takes :class:`~safeswap.reports.facts.MembersFacts`, which lacks what they may not know; the public one
is rendered from its own value alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from safeswap.charts.points import Points
from safeswap.model.text import plural
from safeswap.reports.facts import (
    Audience,
    DecisionFacts,
    Facts,
    Figure,
    MapFacts,
    MembersFacts,
    ScenarioFacts,
    show,
)
from safeswap.reports.paper import (
    Bar,
    Blank,
    Block,
    Code,
    Decision,
    Document,
    Items,
    Picture,
    Section,
    Table,
    Text,
    Tone,
    bars_picture,
    columns_picture,
    render,
)

CHAIR = "Confidential: contains the shares changed. For the chair only."
MEMBERS = "For members of the board. Not for publication."
ANALYST = "Confidential: contains rates and parameters. For internal use only."
AUDIT = "Confidential audit template: fill in the marked spaces."

_INSECURE = "Not for release: the draws were made from an insecure seed, which anyone can try."
_STATES: dict[str, tuple[str, Tone]] = {
    "open": ("No decision yet", "open"),
    "ready": ("Ready for release; not decided yet", "open"),
    "not ready": ("Not ready for release", "bad"),
    "requested": ("Release requested; awaits a decision", "open"),
    "approved": ("Approved for release", "good"),
    "rejected": ("Rejected", "bad"),
    "released": ("Released", "good"),
}
_OUTCOMES = {True: "within what is allowed", False: "above what is allowed", None: "no limit was stated"}
_OVERRIDDEN = "It is above the policy, and an officer has decided to release it anyway; the chair has the reason."
_MARKS = {True: "✓", False: "✗ not met", None: "–"}


def render_page(facts: Facts, audience: Audience) -> bytes:
    """Render the report for an audience."""
    if audience == "public":
        return facts.public_page().render()
    if audience == "members":
        return render(members_document(facts.for_members()))
    documents = {"analyst": analyst_document, "chair": chair_document, "five-safes": five_safes_document}
    return render(documents[audience](facts))


def chair_document(facts: Facts) -> Document:
    """Lay out the chair's version: the members' sections, with all figures and the shares changed."""
    return Document(
        title=facts.title or f"Release of {facts.name or 'a file'}",
        about=_describe_file(facts, "Report to the review board, chair's version"),
        stamp=CHAIR,
        warning="" if facts.for_release else _INSECURE,
        decision=_decision(facts.decision),
        pictures=_pictures(facts),
        sections=(
            _scenario_section(facts.scenarios),
            Section(title="Risk", blocks=_figures(facts, "risk")),
            Section(title="Utility", blocks=_utility(facts)),
            _tried_section(facts),
            Section(title="Attacks", blocks=_attack_blocks(facts) or (Text("No attack was run."),)),
            _flag_section(facts),
            Section(title="Shares changed", blocks=_shares(facts)),
            Section(title="What was done to the columns", blocks=(*_past_steps(facts.earlier), _columns_table(facts))),
        ),
        made=_name_version(facts.version),
    )


def analyst_document(facts: Facts) -> Document:
    """Lay out the analyst's report: everything."""
    chair = chair_document(facts)
    parameters = "\n".join(json.dumps(each.parameters, ensure_ascii=False) for each in facts.steps)
    more = (
        Section(title="Steps and parameters", blocks=(_steps_table(facts), Code(parameters)), new_page=True),
        Section(title="What holds for the result", blocks=_items(facts.statements, "Nothing is claimed.")),
        Section(title="Verified on the files", blocks=_checks(facts)),
        Section(title="Figures in words", blocks=(_meaning_table(facts), *_items(facts.left_out, ""))),
        Section(title="Limits", blocks=(Items(_LIMITS),)),
    )
    return Document(
        title=chair.title,
        about=_describe_file(facts, "Analyst's report"),
        stamp=ANALYST,
        warning=chair.warning,
        decision=chair.decision,
        pictures=chair.pictures,
        sections=(*chair.sections, *more),
        made=chair.made,
    )


_LIMITS = (
    "A risk figure holds under its scenario: for an intruder who knows the keys named there and nothing else.",
    "Counts that are kept are numbers of records, not of weights, unless the weight is exchanged too or held fixed.",
    "Publish one release of a file only: two different ones can be compared, which reveals which records took part.",
)


def members_document(facts: MembersFacts) -> Document:
    """Lay out the members' version, from what they may know."""
    risk = Table(
        caption="Risk before and after masking, by scenario.",
        columns=("scenario", "figure", "before", "after", "limit", ""),
        rows=tuple(
            (f.scenario or "–", f.title, f.before, f.after, f.limit or "–", _MARKS[f.ok] if f.limit else "")
            for f in facts.risk
        ),
        numeric=(2, 3, 4),
        note="Figures that would reveal the share of changed records are given as bands of a factor of ten.",
    )
    withheld = f"In the chair's version only: {', '.join(facts.withheld)}." if facts.withheld else ""
    tried = (facts.tried, f"Chosen: {facts.chosen}." if facts.chosen else "") if facts.tried else ()
    attacks = tuple((each.name, _OUTCOMES[each.ok]) for each in facts.attacks)
    before = "These records, or most of them, were released before: the chair has the comparison."
    holds = f"{plural(facts.checks, 'promise')} verified on the files; " + (
        "all of them hold." if not facts.broken else f"{facts.broken:,} do not hold."
    )
    return Document(
        title=facts.title or "Release of a file",
        about=_describe_file(facts, "Report to the review board, members' version"),
        stamp=MEMBERS,
        warning="" if facts.for_release else _INSECURE,
        decision=_decision(facts.decision),
        pictures=(columns_picture(facts.states, caption="What happened to the released columns."),),
        sections=(
            _scenario_section(facts.scenarios),
            Section(title="Risk", blocks=(risk,) if facts.risk else (Text("No risk figure was requested."),)),
            Section(
                title="Utility",
                blocks=(
                    *_items(
                        [
                            f"{facts.utility} (0 is no change)." if facts.utility else "",
                            f"Largest relative change of a weighted count: {facts.weighted}." if facts.weighted else "",
                            withheld,
                        ],
                        "Nothing was measured.",
                    ),
                    *((multiplier_table(facts.multipliers),) if facts.multipliers else ()),
                ),
            ),
            Section(title="What was tried", blocks=_items(tried, "No study is attached.")),
            Section(
                title="Attacks",
                blocks=(
                    Table(caption="Attacks that were run.", columns=("attack", "outcome"), rows=attacks),
                    *((Text(_OVERRIDDEN),) if facts.overridden else ()),
                )
                if attacks
                else (Text("No attack was run."),),
            ),
            Section(
                title="Red flags", blocks=_items([*facts.flags, before if facts.released_before else ""], "None open.")
            ),
            Section(
                title="What was done to the columns",
                blocks=(
                    Text(f"Steps, in order: {_join_titles((*facts.earlier, *facts.steps))}."),
                    *_items(facts.sentences, "No release is possible, so there is nothing to report per column."),
                ),
            ),
            Section(
                title="What holds for the release",
                blocks=(*_items(facts.statements, "Nothing is claimed."), *([Text(holds)] if facts.checks else [])),
            ),
        ),
        made=_name_version(facts.version),
    )


def five_safes_document(facts: Facts) -> Document:
    """Lay out the audit template: the five safes, then the steps of the practice guide, filled in as far as known."""
    return Document(
        title=facts.title or f"Release of {facts.name or 'a file'}",
        about=_describe_file(facts, "Five safes and the steps of the practice guide"),
        stamp=AUDIT,
        warning="" if facts.for_release else _INSECURE,
        decision=_decision(facts.decision),
        pictures=_pictures(facts),
        sections=(*_five_safes(facts), *_guide_steps(facts)),
        made=_name_version(facts.version),
    )


def _five_safes(facts: Facts) -> tuple[Section, ...]:
    failed = [each for each in facts.figures if each.ok is False]
    met = [each for each in facts.figures if each.ok]
    limits = f"Limits met: {len(met)} of {len(met) + len(failed)}." if failed or met else "No limit was stated."
    return (
        Section(
            title="Safe projects",
            blocks=(
                Text(f"File: {facts.name or 'without a name'}, {plural(facts.records, 'record')}."),
                Blank("purpose of the release, legal basis, and who is responsible"),
            ),
        ),
        Section(
            title="Safe people",
            blocks=(
                _decision_block(facts.decision),
                Blank("who gets the data, how they are trained, and what they sign"),
            ),
        ),
        Section(
            title="Safe settings",
            blocks=(Blank("type of release: public-use file, scientific-use file, or a secure room; its conditions"),),
        ),
        Section(
            title="Safe data",
            blocks=(
                Text(limits),
                *_items((*facts.flags, *facts.raised), "No red flag is open."),
                Text(f"Steps: {_join_titles((*facts.earlier, *(each.title for each in facts.steps))) or 'none'}."),
            ),
        ),
        Section(
            title="Safe outputs",
            blocks=(
                Text("The release is the microdata file: its users' own tables are not checked by it."),
                Blank("who checks results before they leave, and by which rules"),
            ),
        ),
    )


def _guide_steps(facts: Facts) -> tuple[Section, ...]:
    """Return the twelve steps of the practice guide of the IHSN and the World Bank."""
    released = [each for each in facts.changes if each.released]
    steps: tuple[tuple[str, tuple[Block, ...]], ...] = (
        ("Need for confidentiality protection", (Blank("units of the file, and how sensitive it is"),)),
        (
            "Data preparation and exploration",
            (
                Text(f"{plural(facts.records, 'record')}, {plural(facts.columns, 'column')}."),
                *_past_steps(facts.earlier),
            ),
        ),
        ("Type of release", (Blank("public-use, licensed, or in a secure room"),)),
        ("Intruder scenarios and key variables", _scenarios(facts.scenarios)),
        ("Key uses, and measures of utility", (Blank("the main uses of the data"), *_names_of(facts, "utility"))),
        ("Risk of the original", _figures(facts, "risk", before_only=True)),
        ("Utility to be kept", (Text("All utility figures are 0 for the original: nothing has been changed."),)),
        ("Choice and application of methods", (*_tried_blocks(facts), _steps_table(facts), *_shares(facts))),
        ("Risk after masking", (*_figures(facts, "risk"), *_attack_blocks(facts))),
        ("Utility after masking", _utility(facts)),
        (
            "Audit and reporting",
            (*_items(facts.statements, "Nothing is claimed."), *_checks(facts), *_items(facts.remarks, "")),
        ),
        (
            "Release",
            (
                Text(f"{plural(len(released), 'column is', 'columns are')} released."),
                *_items(facts.ledger, "The ledger shows no earlier release of these records, or was not consulted."),
                _decision_block(facts.decision),
                Blank("date of publication, place, and conditions of use"),
            ),
        ),
    )  # fmt: skip
    return tuple(
        Section(title=f"Step {number}: {title}", blocks=blocks, new_page=number == 1)
        for number, (title, blocks) in enumerate(steps, start=1)
    )


def _describe_file(facts: Facts | MembersFacts, what: str) -> str:
    size = f"{plural(facts.records, 'record')}, {plural(facts.columns, 'column')}"
    return f"{what}. {size}{', ' + facts.date if facts.date else ''}."


def _name_version(version: str) -> str:
    return f"Made with safeswap {version} from the facts of the release."


def _decision(decision: DecisionFacts) -> Decision:
    state, tone = _STATES[decision.state]
    asked = f"Requested by {decision.asked_by}{_date_text(decision.asked_at)}." if decision.asked_by else ""
    decided = f"Decided by {decision.decided_by}{_date_text(decision.decided_at)}." if decision.decided_by else ""
    reason = f"Reason: {decision.reason}" if decision.reason else ""
    lines = (asked, decided, reason, *decision.obstacles)
    return Decision(state=state, tone=tone, lines=tuple(line for line in lines if line))


def _decision_block(decision: DecisionFacts) -> Block:
    found = _decision(decision)
    return (
        Text(" ".join((f"{found.state}.", *found.lines)))
        if decision.asked_by
        else Blank("who requested it, who decided, and when")
    )


def _date_text(moment: str) -> str:
    return f" on {moment}" if moment else ""


def _pictures(facts: Facts) -> tuple[Picture, ...]:
    """Return the map if there is a study, else the risk before and after; then the columns."""
    shown: list[Picture] = []
    if facts.tried is not None and facts.tried.map is not None:
        shown.append(map_picture(facts.tried.map))
    elif bars := [_bar(each) for each in facts.figures if each.axis == "risk" and each.before]:
        shown.append(bars_picture(bars, caption="Risk after masking (dark) as a share of the risk before (light)."))
    columns = [(each.column, each.status if each.released else "dropped") for each in facts.changes]
    return (*shown, columns_picture(columns, caption="What happened to the columns."))


def _bar(figure: Figure) -> Bar:
    share = abs(figure.after or 0.0) / abs(figure.before or 1.0)
    texts = [show(value, is_count=figure.is_count) for value in (figure.before, figure.after)]
    name = f"{figure.scenario}: {figure.title}" if figure.scenario else figure.title
    return Bar(
        name=name, after=share, text=" → ".join(texts) + (f" {_MARKS[figure.ok]}" if figure.limit else ""), ok=figure.ok
    )


def map_picture(points: MapFacts) -> Picture:
    """Draw the map of a study: candidates, frontier, the chosen one and the untouched original."""
    from safeswap.charts.map import map_svg

    rates = np.array([np.nan if rate is None else rate for rate in points.rates])
    drawn = Points(
        labels=points.labels,
        constraints=points.constraints,
        rates=rates,
        risk=np.array(points.risk),
        distortion=np.array(points.distortion),
        risk_title=points.risk_title,
        distortion_title=points.distortion_title,
        chosen=points.chosen,
        original=points.original,
    )
    svg = map_svg(drawn, text_as_paths=False, size=(8.0, 4.4))
    caption = (
        "What was tried: lower means less risk, further left means closer to the original. "
        "The cross is the untouched original, the ring the choice."
    )
    best = f"{plural(len(drawn.frontier()), 'candidate is', 'candidates are')} on the frontier"
    return Picture(
        caption=caption, svg=svg[svg.index("<svg") :], text=f"{plural(len(points.labels), 'candidate')}; {best}."
    )


def _scenario_section(scenarios: Sequence[ScenarioFacts]) -> Section:
    return Section(title="Scenarios", blocks=_scenarios(scenarios))


def _scenarios(scenarios: Sequence[ScenarioFacts]) -> tuple[Block, ...]:
    if not scenarios:
        return (
            Text("No scenario was stated: risk is measured over the attributes that each measure takes by default."),
        )
    rows = tuple(
        (each.name, each.sentence.partition(": ")[2] or each.sentence, ", ".join(each.gone) or "–")
        for each in scenarios
    )
    return (
        Table(
            caption="Who might attack, and what they know.", columns=("scenario", "assumed", "not released"), rows=rows
        ),
    )


def _utility(facts: Facts) -> tuple[Block, ...]:
    """Return the figures of distortion, the largest weighted change, and the errors of estimates."""
    weights = facts.weights
    told = (Text(weights.sentence),) if weights is not None else ()
    return (*_figures(facts, "utility"), *told, *_error_blocks(facts))


_MOST_ESTIMATES = 200


def _error_blocks(facts: Facts) -> tuple[Block, ...]:
    """Return what masking does to the standard errors of users: by kind of estimate, each, and over several draws."""
    blocks: list[Block] = []
    for figure in facts.figures:
        if figure.multipliers:
            blocks.append(multiplier_table(figure.multipliers))
        if figure.estimates:
            # Those that moved most come first: a board reads the top of the table.
            order = sorted(figure.estimates, key=lambda each: -abs(each.in_errors or each.change or 0.0))
            rows = tuple(
                (
                    each.indicator,
                    each.domain or "–",
                    *(show(value) for value in (each.change, each.unweighted, each.in_errors, each.inflation)),
                    each.problem or ("beyond its tolerance" if each.flagged else ""),
                )
                for each in order[:_MOST_ESTIMATES]
            )
            more = len(order) - len(rows)
            blocks.append(
                Table(
                    caption="Key indicators: each estimate before and after.",
                    columns=("indicator", "domain", "change", "unweighted", "in errors", "error ×", ""),
                    rows=rows,
                    numeric=(2, 3, 4, 5),
                    note="Change: relative to the value. Error ×: root of v(after) + change² over root of v(before)."
                    + (f" {more:,} that moved less are in facts.json." if more else ""),
                )
            )
    tried = facts.tried
    if tried is not None and tried.spread:
        blocks.append(
            Table(
                caption=f"Second estimate: {plural(tried.draws, 'draw')} of the chosen specification.",
                columns=("indicator", "domain", "bias", "spread", "error ×"),
                rows=tuple((name, domain or "–", *map(show, each)) for name, domain, *each in tried.spread),
                numeric=(2, 3, 4),
                note="Bias and spread of the draws in standard errors; error ×: root of 1 + spread² + bias².",
            )
        )
    return tuple(blocks)


def multiplier_table(multipliers: Sequence[tuple[str, float]]) -> Table:
    """Return the table of error multipliers, one per kind of estimate."""
    return Table(
        caption="Factor by which masking enlarges standard errors (median).",
        columns=("kind of estimate", "multiply by"),
        rows=tuple((kind, f"{factor:.2f}") for kind, factor in multipliers),
        numeric=(1,),
    )


def _figures(facts: Facts, axis: str, *, before_only: bool = False) -> tuple[Block, ...]:
    found = [each for each in facts.figures if each.axis == axis]
    if not found:
        return (Text(f"No figure of {axis} was requested."),)
    columns = ["figure", "before", *([] if before_only else ["after"])]
    rows = [[f.title, *(show(v, is_count=f.is_count) for v in (f.before, f.after)[: len(columns) - 1])] for f in found]
    if any(each.scenario for each in found):
        columns.insert(0, "scenario")
        rows = [[each.scenario or "–", *row] for each, row in zip(found, rows, strict=True)]
    numeric = tuple(i for i, name in enumerate(columns) if name in ("before", "after"))
    if any(each.limit for each in found) and not before_only:
        columns += ["limit", ""]
        rows = [[*row, f.limit or "–", _MARKS[f.ok] if f.limit else ""] for f, row in zip(found, rows, strict=True)]
        numeric += (len(columns) - 2,)
    caption = {"risk": "Risk", "utility": "Distortion (0 is no change)"}[axis]
    when = "of the original" if before_only else "before and after masking"
    lines = tuple(tuple(row) for row in rows)
    return (Table(caption=f"{caption} {when}.", columns=tuple(columns), rows=lines, numeric=numeric),)


def _names_of(facts: Facts, axis: str) -> tuple[Block, ...]:
    names = dict.fromkeys(each.title for each in facts.figures if each.axis == axis)
    return (Text(f"Measured here: {', '.join(names)}."),) if names else ()


def _tried_section(facts: Facts) -> Section:
    return Section(title="What was tried", blocks=_tried_blocks(facts) or (Text("No study is attached."),))


def _tried_blocks(facts: Facts) -> tuple[Block, ...]:
    tried = facts.tried
    if tried is None:
        return ()
    blocks: list[Block] = [Items(tuple(filter(None, (tried.sentence, *tried.details, tried.chosen))))]
    if tried.map is not None and tried.map.original is not None:
        risk, distortion = (show(value) for value in tried.map.original)
        blocks.append(
            Text(f"The untouched original has risk {risk} and distortion {distortion}; it is not a candidate.")
        )
    if tried.rivals:
        columns = ("swapped", "constraint", "rate", "risk", "distortion")
        blocks.append(Table(caption="The nearest rivals.", columns=columns, rows=tried.rivals, numeric=(2, 3, 4)))
    return tuple(blocks)


def _attack_blocks(facts: Facts) -> tuple[Block, ...]:
    if not facts.attacks:
        return ()
    rows = tuple(
        (
            each.attack,
            show(each.success),
            show(each.baseline),
            show(each.advantage),
            "–" if each.interval is None else " to ".join(show(end) for end in each.interval),
            show(each.allowed),
            _MARKS[each.ok],
        )
        for each in facts.attacks
    )
    columns = ("attack", "success", "by guessing", "advantage", "interval", "allowed", "")
    told = Text(f"Above the policy, and released anyway by an officer's decision: {facts.override}")
    table = Table(caption="Attacks that were run.", columns=columns, rows=rows, numeric=(1, 2, 3, 4, 5))
    return (table, told) if facts.override else (table,)


def _flag_section(facts: Facts) -> Section:
    told = (*facts.flags, *facts.raised, *facts.ledger, *facts.remarks)
    return Section(title="Red flags", blocks=_items(told, "None open."))


def _shares(facts: Facts) -> tuple[Block, ...]:
    rows = [(each.name, each.title, f"{each.records:,}", f"{each.share:.2%}") for each in facts.steps]
    told = (
        f"{facts.touched:,} of {plural(facts.records, 'record')} ({facts.share:.2%}) have changed or removed values, "
        f"grouping aside; {plural(facts.removed, 'value was', 'values were')} removed."
    )
    columns = ("step", "method", "records touched", "share")
    table = Table(caption="Records that each step touched.", columns=columns, rows=tuple(rows), numeric=(2, 3))
    return (Text(told), *((table,) if rows else ()))


def _columns_table(facts: Facts) -> Block:
    def number(value: int) -> str:
        return f"{value:,}" if value else "–"

    rows = tuple(
        (
            c.column,
            c.status,
            c.details or "–",
            number(c.untrue),
            f"{c.share:.2%}" if c.untrue else "–",
            number(c.blanked),
        )
        for c in facts.changes
    )
    return Table(
        caption="Every column, compared with the original.",
        columns=("column", "status", "what happened", "changed", "share", "removed"),
        rows=rows,
        numeric=(3, 4, 5),
        note="Changed: values that differ from the original in the released categories, and are not removed.",
    )


def _steps_table(facts: Facts) -> Block:
    rows = tuple((each.name, each.title, each.plan, each.done) for each in facts.steps)
    return Table(caption="The steps, in order.", columns=("step", "method", "plan", "done"), rows=rows)


def _meaning_table(facts: Facts) -> Block:
    rows = tuple((each.title, each.sentence) for each in facts.figures if each.sentence)
    return Table(caption="What each figure says.", columns=("figure", "meaning"), rows=rows)


def _checks(facts: Facts) -> tuple[Block, ...]:
    if not facts.checks:
        return (Text("The promises are verified when the release is written."),)
    broken = [f"Does not hold: {each.sentence}" for each in facts.checks if not each.ok]
    held = sum(each.ok for each in facts.checks)
    return (Text(f"{held:,} of {plural(len(facts.checks), 'promise')} hold."), *_items(broken, ""))


def _past_steps(titles: Sequence[str]) -> tuple[Block, ...]:
    return (Text(f"Before this masking the file went through: {'; then '.join(titles)}."),) if titles else ()


def _items(sentences: Iterable[str], otherwise: str) -> tuple[Block, ...]:
    told = tuple(sentence for sentence in sentences if sentence)
    if told:
        return (Items(told),)
    return (Text(otherwise),) if otherwise else ()


def _join_titles(titles: Iterable[str]) -> str:
    """Return the titles of steps in order, repeated ones once."""
    return "; then ".join(title for title, _ in groupby(titles))
