"""What the reports say is counted again from the files, by code that shares nothing with theirs; and what they keep."""

from __future__ import annotations

import html
import itertools
import json
import re
import stat
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

import safeswap as ss
from safeswap.charts.theme import LIGHT
from safeswap.errors import InputError, SpecError
from safeswap.reports.facts import AUDIENCES, Facts, band, list_audiences, tell_raised
from safeswap.reports.public import PublicPage

BREAKS = [15, 30, 45, 60, 75]
KEYS = ["sex", "age", "marital_status", "education"]
STEPS = [
    {"step": "ranges", "attribute": "age", "breaks": BREAKS},
    {"method": "suppress", "keys": KEYS, "up_to": 3, "solver": "greedy"},
    {"method": "pram", "attributes": ["marital_status"], "keep": 0.9},
    {"method": "microaggregation", "attributes": ["income"], "k": 5},
]
TITLES = ("Recoding", "Local suppression", "Post-randomisation", "Microaggregation")
DROP = ["household", "weight", "stratum", "psu", "region", "district", "municipality", "settlement", "birth_date"]
DROP += ["expenditure"]
SCENARIO = {"name": "prosecutor", "keys": KEYS, "up_to": 3}
ALLOWED = {"attack": "linkage", "success": 0.0412, "baseline": 0.0393, "advantage": 0.0019, "allowed": 0.0125}


def columns(table) -> dict[str, list]:
    return {name: table[name].to_pylist() for name in table.column_names}


@pytest.fixture(scope="module")
def survey():
    return ss.datasets.household_survey()


@pytest.fixture(scope="module")
def key():
    return ss.Key.generate()


@pytest.fixture(scope="module")
def masked(survey, key):
    return ss.mask(survey, ss.Pipeline(STEPS), key=key)


@pytest.fixture(scope="module")
def facts(masked):
    return ss.report(
        masked,
        scenarios=[SCENARIO],
        require={"prosecutor": ["risky <= 0"]},
        title="Household survey",
        drop=DROP,
        attacks=[ALLOWED],
        decision={"state": "approved", "asked_by": "Ana", "decided_by": "Olga", "reason": "Needed by users."},
    )


@pytest.fixture(scope="module")
def both(survey, masked):
    return columns(survey.table), columns(masked.data.table)


def grouped(age: int | None) -> int | None:
    """The number of the range that an age is in."""
    return None if age is None else sum(age >= each for each in BREAKS)


def count_unsafe(data: dict[str, list], schema) -> int:
    """Combinations of values of 1 to 3 keys that fewer than 3 records share; a missing value matches nothing."""
    values = {name: [None if str(v) in schema[name].missing else v for v in data[name]] for name in KEYS}
    found = 0
    for size in (1, 2, 3):
        for names in itertools.combinations(KEYS, size):
            rows = Counter(row for row in zip(*(values[n] for n in names), strict=True) if None not in row)
            found += sum(number < 3 for number in rows.values())
    return found


def count_changed(before: list, after: list) -> int:
    """Values that are not missing and differ from what they were."""
    return sum(b is not None and a != b for a, b in zip(before, after, strict=True))


class Page(HTMLParser):
    """The text of a page by element, and every attribute."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.items: list[str] = []
        self._open = False
        self.feed(content.decode())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "li":
            self.items.append("")
        self._open = tag == "li"

    def handle_endtag(self, tag):
        self._open = self._open and tag != "li"

    def handle_data(self, data):
        if self._open:
            self.items[-1] += data


def text_of(content: bytes) -> str:
    plain = re.sub(r"<style>.*?</style>|<svg.*?</svg>", " ", content.decode(), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", plain)).split())


def test_the_figures_of_risk_are_those_of_the_files(facts, both, survey):
    before, after = both
    risky = next(each for each in facts.figures if each.measure == "risky")
    assert (risky.before, risky.after) == (count_unsafe(before, survey.schema), count_unsafe(after, survey.schema))
    assert (risky.limit, risky.ok) == ("≤ 0", risky.after == 0)
    assert f"unsafe combinations of keys {risky.before:,.0f} {risky.after:,.0f} ≤ 0" in text_of(facts.page("chair"))


def share_below(data: dict[str, list], names: tuple[str, ...], least: int, untouched: list[bool]) -> float:
    """The share of the untouched records whose values fewer than ``least`` records have."""
    rows = list(zip(*(data[name] for name in names), strict=True))
    number = Counter(rows)
    return sum(number[row] < least for row, own in zip(rows, untouched, strict=True) if own) / sum(untouched)


def test_without_a_scenario_risk_before_is_that_of_the_original(key):
    rows = [(f"{i % 7}{'ab'[i % 2]}", "xyz"[i * i % 3], 100 + i * i % 83, i % 60) for i in range(400)]
    data = dict(zip(("town", "job", "pay", "age"), map(list, zip(*rows, strict=True)), strict=True))
    steps = [
        {"step": "ranges", "attribute": "age", "breaks": [20, 40]},
        {"method": "swap", "swap": ["job"], "rate": 0.2},
    ]
    masked = ss.mask(ss.read(pa.table(data), kinds={"pay": "numeric", "age": "numeric"}), ss.Pipeline(steps), key=key)
    names = ["n_rule", "n_rule:n=9,keys=town+job", "k_anonymity:keys=town+age,k=4", "correct_links:keys=pay", "replay"]
    found = {f.measure: f for f in ss.report(masked, measures=names).figures}
    after, untouched = columns(masked.data.table), [not each for each in masked.audit.perturbed()]
    everybody = [True] * len(rows)
    for text, least, keys in (
        (names[0], 3, ("town", "job", "age")),
        (names[1], 9, ("town", "job")),
        (names[2], 4, ("town", "age")),
    ):
        own = everybody if text.startswith("k_") else untouched
        assert found[text].before == pytest.approx(share_below(data, keys, least, everybody)), text
        assert found[text].after == pytest.approx(share_below(after, keys, least, own)), text
    # Who has a value that others have is found by a guess among them.
    assert found[names[3]].before == pytest.approx(len(set(data["pay"])) / len(rows))
    # Nothing of an original can be restored: the figure is not 0, there is none.
    assert (found["replay"].before, found["replay"].after is not None) == (None, True)


def test_what_is_told_of_each_column_is_counted_again(facts, both, survey):
    before, after = both
    for told in facts.changes:
        name = told.column
        blanked = sum(x is not None and y is None for x, y in zip(before[name], after[name], strict=True))
        if name == "age":
            # Every value that stands is the range of the age: one text per range.
            seen = {(grouped(x), y) for x, y in zip(before[name], after[name], strict=True) if y is not None}
            assert len(seen) == len({number for number, _ in seen}) == len({text for _, text in seen})
            changed = 0
        else:
            changed = count_changed(before[name], after[name])
        assert (told.untrue, told.blanked) == (changed, blanked), name
        assert told.share == pytest.approx(changed / len(survey))
        expected = {"age": "blanked", "sex": "blanked", "education": "blanked", "marital_status": "perturbed"}
        assert told.status == {**expected, "income": "perturbed"}.get(name, "unchanged")
        assert told.released is (name not in DROP)
    untrue = sum(
        any(after[n][i] is not None and before[n][i] != after[n][i] for n in ("marital_status", "income"))
        or any(after[n][i] is None and before[n][i] is not None for n in KEYS)
        for i in range(len(survey))
    )
    assert facts.touched == untrue
    assert f"{facts.touched:,} of {len(survey):,} records ({untrue / len(survey):.2%})" in text_of(facts.page("chair"))
    assert facts.removed == sum(each.blanked for each in facts.changes)


def test_every_sentence_of_the_public_report_is_true_of_the_files(facts, both, survey):
    before, after = both
    content = facts.page("public")
    text = text_of(content)
    assert all(title in text for title in TITLES)
    assert f"{len(survey):,} records" in text
    told = Page(content).items
    sentences = dict(item.split(": ", 1) for item in told if ": " in item)
    released = [name for name in survey.attributes if name not in (*DROP, "person_id")]
    assert list(sentences) == released
    truths = {
        "as collected, in every record.": lambda x, y: x == y,
        "some values were removed; those that stand are true.": lambda x, y: y is None or x == y,
        "some values were redrawn; some values were removed.": lambda x, y: True,
        "values were replaced.": lambda x, y: (x is None) == (y is None),
    }
    for name, sentence in sentences.items():
        if name == "age":
            assert sentence.startswith("values were grouped; each is true; some values were removed; those")
            continue
        assert all(truths[sentence](x, y) for x, y in zip(before[name], after[name], strict=True)), name
    rest = [item for item in told if ": " not in item]
    incomes = [x for x in after["income"] if x is not None]
    mean = sum(x for x in before["income"] if x is not None) / len(incomes)
    untouched = [name for name in released if before[name] == after[name]]
    stated = {
        f"{', '.join(untouched[:-1])} and {untouched[-1]} are unchanged in every record.": True,
        "Values of sex, education were blanked; none was changed in any other way.": True,
        "Missing values of income are where they were.": True,
        "The mean of income is unchanged, except for rounding.": abs(sum(incomes) / len(incomes) - mean) < 0.5,
        "Every value of income that occurs in the file occurs in at least 5 records.": min(Counter(incomes).values())
        >= 5,
    }
    assert set(rest) == set(stated)
    assert all(stated.values())
    for name, values in (("sex", after["sex"]), ("tenure", after["tenure"])):
        counts = Counter(value for value in values if value is not None)
        label = survey.schema[name].label or name
        for number in counts.values():
            assert f"{number:,}" in text[text.index(f". {label}.") :]


def test_the_public_report_before_a_release_is_the_one_in_its_bundle(facts, masked, key, tmp_path):
    done = ss.release(
        masked, tmp_path / "public", audit=tmp_path / "audit", key=key, drop=DROP, title="Household survey"
    )
    assert (done.public / "report.html").read_bytes() == facts.page("public")
    told = ss.report(masked, measures=["hellinger"], published=done, drop=DROP)
    assert told.decision.state == "released"
    assert len(told.checks) == len(done.findings)


def test_a_chain_of_runs_is_told_as_a_pipeline_is(survey, key, facts, tmp_path):
    """The same steps, each a masking of its own: the last release tells all of them, column by column."""
    data = survey
    for step in STEPS:
        last = ss.mask(data, ss.Pipeline([step]), key=key)
        data = last.data
    told = ss.report(last, measures=["hellinger"], drop=DROP).public
    one = facts.public
    assert set(told.facts.states) == set(one.facts.states)
    words = [set(s.rstrip(".").split(": ", 1)[1].split("; ")) for s in told.facts.columns]
    assert words == [set(s.rstrip(".").split(": ", 1)[1].split("; ")) for s in one.facts.columns]
    assert all(title in text_of(told.render()) for title in TITLES)


def test_a_renamed_column_of_an_earlier_step_takes_back_that_others_are_as_collected(key):
    data = ss.datasets.cps8d()
    first = ss.swap(data, swap=["Race"], rate=0.05, key=key).data
    renamed = ss.read(first.table.rename_columns([n if n != "Race" else "Origin" for n in first.attributes]))
    from dataclasses import replace

    last = ss.swap(replace(renamed, past=first.past), swap=["MS"], rate=0.05, key=key)
    told = ss.report(last, measures=["hellinger"]).public.facts
    assert "Sex: not changed by any step known under this name." in told.columns
    assert told.columns[-1] == "An earlier step changed a column that is not released, or that has since been renamed."
    assert not any("as collected" in sentence for sentence in told.columns)


@pytest.fixture(scope="module")
def swapped():
    """A swap at a rate whose figures occur nowhere by chance, with a study and its map."""
    data = ss.datasets.cps8d()
    masked = ss.swap(data, swap=["Race"], rate=0.04373, insecure_seed=1)
    found = ss.study(data, attributes=["Race", "Sex"], rates=[0.01117, 0.04373], insecure_seed=1)
    scenario = {"name": "journalist", "keys": ["Age", "Race", "Sex"]}
    told = ss.report(masked, scenarios=[scenario], study=found, choice=found.choose(), attacks=[ALLOWED])
    return masked, told


def secrets_of(masked, facts: Facts) -> set[str]:
    """Every spelling of the rate, of pairs and records that took part, and of figures that follow from them."""
    pairs = masked.audit.made
    shares = [0.04373, 0.01117, facts.share, *(c.share for c in facts.changes if c.share)]
    found = {f"{pairs}", f"{pairs:,}", f"{2 * pairs}", f"{2 * pairs:,}"}
    for share in shares:
        found |= {f"{share:g}", f"{share:.4g}", f"{share:.2%}", f"{100 * share:g}", f"{share:.6f}", f"{share:.3f}"}
    told = [f for f in facts.figures if f.tells_the_rate]
    found |= {f"{value:.4g}" for f in told for value in (f.before, f.after) if value}
    found |= {str(value) for f in told for value in (f.before, f.after) if value}
    found |= {f"{ALLOWED[name]:g}" for name in ("success", "baseline", "advantage")}
    return found | {f"{c.untrue:,}" for c in facts.changes if c.untrue} | {masked.audit.key_id}


@pytest.mark.parametrize("audience", ["members", "public"])
def test_neither_members_nor_the_public_learn_rate_shares_or_pairs(swapped, audience):
    masked, facts = swapped
    for content in (facts.page(audience), facts.dump(audience)):
        text = content.decode()
        known = [s for s in secrets_of(masked, facts) if re.search(rf"(?<![\w.,]){re.escape(s)}(?![\w%]|[.,]\d)", text)]
        assert known == []
        assert not re.search(r"\bseed=|\breplicate\b|\bkey_id\b|\brate=", text)
    chair = text_of(facts.page("chair"))
    assert f"{2 * masked.audit.made:,} of" in chair
    assert "0.04373" in chair


def test_members_see_bands_and_verdicts(swapped, facts):
    members = json.loads(facts.dump("members"))
    risky = next(each for each in members["risk"] if each["title"] == "unsafe combinations of keys")
    exact = next(each for each in facts.figures if each.measure == "risky")
    assert (risky["before"], risky["after"]) == (band(exact.before, is_count=True), f"{exact.after:,.0f}")
    assert (risky["ok"], members["attacks"]) == (exact.ok, [{"name": "linkage", "ok": True}])
    assert set(members["utility"].split(": ")[1]) <= set("0123456789.below to,")
    text = text_of(swapped[1].page("members"))
    assert "Chosen: exchange of" in text
    assert "Rule of the choice: smallest weighted sum of risk and distortion." in text


def test_obstacles_with_figures_stay_with_the_chair(masked):
    told = ss.report(masked, measures=["hellinger"], decision={"state": "not ready", "obstacles": ("found 0.0777",)})
    assert "found 0.0777" in text_of(told.page("chair"))
    members = text_of(told.page("members"))
    assert "0.0777" not in members
    assert "1 issue prevents a release" in members


@pytest.mark.parametrize("audience", AUDIENCES)
def test_each_report_leads_with_decision_and_picture_and_runs_nothing(swapped, facts, audience):
    for told in (facts, swapped[1]):
        content = told.page(audience)
        head = content.decode().partition("<h2>")[0]
        assert 'class="decision' in head
        assert "<svg" in head or 'class="tiles"' in head
        assert not {"script", "iframe", "img", "link", "object", "form"} & set(Page(content).tags)
        assert re.search(r"(src|href)=", content.decode().partition("</style>")[2].replace("xlink:href=", "")) is None
        numbers = [int(n) for n in re.findall(r"Table (\d+)\.", text_of(content))]
        assert numbers == list(range(1, len(numbers) + 1))
    if audience not in ("members", "public"):
        assert "Risk: n-rule" in swapped[1].page(audience).decode().partition("<h2>")[0]  # the map


def test_the_audit_template_has_five_safes_twelve_steps_and_marked_blanks(facts):
    content = facts.page("five-safes").decode()
    titles = re.findall(r"<h2>(.*?)</h2>", content)
    assert titles[:5] == ["Safe projects", "Safe people", "Safe settings", "Safe data", "Safe outputs"]
    assert [title.partition(":")[0] for title in titles[5:]] == [f"Step {n}" for n in range(1, 13)]
    assert content.count("To be filled in:") >= 6
    assert "Approved for release. Requested by Ana. Decided by Olga. Reason: Needed by users." in text_of(
        content.encode()
    )


def test_facts_survive_their_file_and_say_everything_again(facts, tmp_path):
    written = facts.write(tmp_path / "reports")
    assert {path.name for path in written} == {f"{each}.html" for each in AUDIENCES} | {
        *("facts.json", "members.json", "public.json")
    }
    again = Facts.read(tmp_path / "reports" / "facts.json")
    assert again == facts
    for audience in AUDIENCES:
        assert again.page(audience) == (tmp_path / "reports" / f"{audience}.html").read_bytes()
    assert PublicPage.model_validate_json((tmp_path / "reports" / "public.json").read_bytes()) == facts.public
    for path in written:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o644 if path.name.startswith("public.") else 0o600)


def test_reports_for_members_bring_no_confidential_facts_along(facts, tmp_path):
    facts.write(tmp_path / "out", ["members", "public"])
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"members.html", "members.json", "public.html", "public.json"}


def test_what_is_wrong_is_said(facts, masked, tmp_path):
    with pytest.raises(SpecError, match="no report for 'nobody'"):
        facts.page("nobody")
    with pytest.raises(SpecError, match="scenario 'journalist'"):
        ss.report(masked, require={"journalist": "risky <= 0"})
    broken = tmp_path / "facts.json"
    broken.write_text('{"records": "secret value"}')
    with pytest.raises(InputError) as error:
        Facts.read(broken)
    assert (error.value.code, "secret" in str(error.value)) == ("not-facts", False)
    everything = [name for name in masked.data.attributes if name != "person_id"]
    none = ss.report(masked, measures=["hellinger"], drop=everything)
    assert none.public is None
    assert "no column is left to release" in text_of(none.page("chair"))
    with pytest.raises(SpecError, match="a release of this masking would be refused"):
        none.page("public")
    assert list_audiences("board") == ("chair", "members")


@pytest.mark.parametrize("records", [1, 2])
def test_a_tiny_file_has_reports_too(records):
    import pyarrow as pa

    data = ss.read(pa.table({"A": ["<b>x</b>", "y"][:records], "n": [1.0, None][:records]}))
    masked = ss.mask(data, ss.Pipeline([{"step": "drop", "attributes": ["n"]}]), insecure_seed=1)
    told = ss.report(masked, scenarios=[{"keys": ["A"]}])
    for audience in AUDIENCES:
        assert b"<b>x</b>" not in told.page(audience)
    assert "Not for release" in text_of(told.page("members"))


def test_paper_has_the_colours_of_the_charts():
    css = Path(ss.__file__).parent.joinpath("reports", "templates", "paper.css").read_text()
    for name in ("ground", "panel", "ink", "muted", "line", "accent", "gain"):
        assert f"--{name}: {getattr(LIGHT, name)};" in css


def test_requirements_are_compared_with_what_was_measured():
    from safeswap.projects.settings import Requirement
    from safeswap.reports.facts import Figure
    from safeswap.workflow.reporting import compare_with_limits

    figures = [
        Figure(measure=measure, title=measure, axis="risk", scenario=scenario, before=0.3, after=after, sentence="")
        for measure, scenario, after in (("n_rule", "a", 0.2), ("n_rule", "b", 0.05), ("entropy_change", "", -0.4))
    ]
    texts = [("a", "n_rule <= 0.1"), ("b", "n_rule < 0.1"), ("b", "entropy_change <= 0.3"), ("a", "k_anonymity <= 0")]
    found, unmet = compare_with_limits(figures, [Requirement.parse(*each) for each in texts])
    assert [(each.limit, each.ok) for each in found] == [("≤ 0.1", False), ("< 0.1", True), ("≤ 0.3", False)]
    assert unmet == [
        "Required: a: n_rule <= 0.1; found 0.2.",
        "Required: b: entropy_change <= 0.3; found -0.4.",
        "Required: a: k_anonymity <= 0, which was not measured.",
    ]
    # Limits of the day on which it was measured are no obstacle: those of today count.
    assert compare_with_limits(found, [Requirement.parse(*each) for each in texts]) == (found, unmet)
    assert compare_with_limits(found, []) == (figures, [])


def test_a_release_with_more_unsafe_combinations_than_the_original_is_flagged(survey, key) -> None:
    keys = {"name": "neighbour", "keys": ["sex", "marital_status"], "tolerance": 3}
    rare = {"method": "pram", "attributes": ["marital_status"], "keep": 0.5}
    masked = ss.mask(survey, rare, key=key)
    facts = ss.report(masked, scenarios=[keys], drop=DROP)
    (figure,) = (each for each in facts.figures if each.is_count)
    made = figure.model_copy(update={"before": 44.0, "after": 48.0})
    assert tell_raised([made.model_copy(update={"after": 44.0}), made.model_copy(update={"before": None})]) == ()
    (told,) = tell_raised([made])
    assert told.startswith(
        "Under the scenario neighbour, the release is riskier than the original: unsafe combinations of keys rose from "
        "44 to 48. "
    )
    assert facts.raised == tell_raised(facts.figures)
    raised = facts.replace(raised=(told,))
    assert told in html.unescape(raised.page("chair").decode())
    assert "44 to 48" not in html.unescape(raised.page("members").decode())
    assert Facts.parse(raised.dump("chair")).raised == (told,)
