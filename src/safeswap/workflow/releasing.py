"""Attack a masked file before anyone else does, release it, and verify what was released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack

from safeswap.errors import InputError, SpecError, UnsafeRelease
from safeswap.model.checked import Default, check_types
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata, PastStep
from safeswap.model.scenario import Scenario, as_scenario, resolve_files
from safeswap.model.schema import household_attributes
from safeswap.model.score import Comparison
from safeswap.model.text import plural
from safeswap.workflow.assessing import compare
from safeswap.workflow.masking import read, reading_alike, returning_memory

if TYPE_CHECKING:
    from safeswap.attacks.base import Attacked
    from safeswap.model.ledger import Ledger
    from safeswap.releases.publish import Evidence, Published, Terms
    from safeswap.releases.scan import Verification
    from safeswap.workflow.households import MaskedHouseholds


class IntruderKnowledge(TypedDict, total=False):
    """Files and rules that an intruder, or the judge of the attack, has besides the masked file."""

    control: Annotated[Any, Default(None)]
    rules: Annotated[Sequence[Mapping[str, Any]], Default(())]
    tables: Annotated[Sequence[Any], Default(())]
    tolerance: Annotated[int, Default(3)]
    earlier: Annotated[Sequence[Any] | None, Default(None)]


@check_types
def attack(
    masked: Any,
    original: Any = None,
    *,
    scenario: Scenario | Mapping[str, Any] | None = None,
    attacks: Sequence[str] | None = None,
    full: bool = True,
    audit: str | PathLike[str] | None = None,
    **knowledge: Unpack[IntruderKnowledge],
) -> Attacked:
    """Attack a masking, or a bundle with its ``original`` and ``audit`` record, as an intruder would.

    Every attack returns its success, a baseline (control records or blind guessing), the advantage over it with an
    interval, and the number of guesses. Attacks that lack something, such as a ``scenario`` with keys, are listed with
    the reason; a bundle alone has new identifiers and a random order, so only those that need no truth are tried.
    ``control`` has records that were held out before masking; ``rules`` are combinations that cannot be; ``tables``
    are published with their margins, counts below ``tolerance`` withheld; ``earlier`` are masked files of the same
    records, in the same order, by default the earlier releases that the agency's ledger knows. ``full=False`` runs the
    quick attacks only, those of every release.

    >>> import safeswap as ss
    >>> masked = ss.swap(ss.datasets.cps8d(), swap=["Race"], rate=0.05, insecure_seed=1)
    >>> found = attack(masked, scenario={"keys": ["Age", "Sex", "Race", "Edu"], "sensitive": ["AnnSal"]}, full=False)
    >>> [outcome.attack for outcome in found]
    ['linkage', 'attribute_inference', 'unusual_combinations', 'swapped_records']
    """
    from safeswap.attacks.base import Setting
    from safeswap.attacks.run import check_names, run_attacks

    check_names(attacks or ())
    bundle = _as_bundle(masked)
    traces = _find_traces(bundle) if bundle is not None else ()
    comparison, has_original = _make_comparison(masked, bundle, original, audit)
    asked = None if scenario is None else as_scenario(scenario)
    control, earlier = knowledge["control"], knowledge["earlier"]
    held = None if control is None else prepare_control(control, masked, comparison.before)
    setting = Setting(
        comparison=comparison,
        has_original=has_original,
        scenario=None if asked is None else resolve_files(asked, comparison.before, comparison.after),
        control=held,
        masked=masked if isinstance(masked, Masked) else None,
        rules=tuple(knowledge["rules"]),
        tables=_check_tables(knowledge["tables"]),
        tolerance=knowledge["tolerance"],
        earlier=_find_earlier(masked) if earlier is None else read_earlier(earlier, comparison.before),
        bundle=bundle,
        traces=traces,
        order=_row_order(audit) if has_original else None,
    )
    return run_attacks(setting, attacks, full=full)


def _check_tables(tables: Sequence[Any]) -> tuple[tuple[str, ...], ...]:
    """Return the tables as tuples of names; one list of names is one table."""
    from safeswap.projects.tables import table_names

    stated = list(tables)
    plain = [[part] if isinstance(part, str) else part for part in stated]
    if not all(isinstance(part, (list, tuple)) and all(isinstance(name, str) for name in part) for part in plain):
        raise SpecError(
            "a table must be a list of attributes",
            code="bad-argument",
            hint='tables=[["Region", "Sex"]]',
            argument="tables",
        )
    return tuple(table_names(stated)) if stated else ()


def _as_bundle(value: Any) -> Path | None:
    """Return the directory of a bundle, if that is what is attacked."""
    from safeswap.releases.manifest import MANIFEST

    if not isinstance(value, (str, PathLike)):
        return None
    path = Path(value)
    return path if (path / MANIFEST).is_file() else None


def _find_traces(bundle: Path) -> tuple[str, ...]:
    """Return what the scan of a bundle finds, in words."""

    try:
        verify(bundle)
    except UnsafeRelease as error:
        return (error.message,)
    return ()


def _make_comparison(
    masked: Any, bundle: Path | None, original: Any, audit: str | PathLike[str] | None
) -> tuple[Comparison, bool]:
    """Return both files record by record, and whether the original is known."""
    if isinstance(masked, Masked):
        if original is not None:
            raise SpecError(
                "a masking holds its original", code="nothing-to-compare", hint="attack(masked), without an original"
            )
        return compare(masked), True
    with reading_alike():
        known = None if original is None else read(original)
        released = _read_bundle(bundle) if bundle is not None else read(masked)
    if known is None:
        return Comparison(before=released, after=released, attributes=released.schema.categorical), False
    if bundle is not None:
        _refuse_half(bundle, released, known)
    if bundle is not None and audit is None:
        raise InputError(
            "a bundle has new identifiers and another order: its records cannot be matched with the original",
            code="no-audit",
            hint="give the audit record of the release (audit), or omit the original",
        )
    return compare(known, released, audit=audit, some_gone=True), True


def _refuse_half(bundle: Path, released: Microdata, original: Microdata) -> None:
    """Refuse an original without what a bundle has of households: the attacks would not look at it."""
    from safeswap.releases.manifest import read_manifest

    absent = [name for name in household_attributes(released.schema) if name not in original.schema]
    if absent and len(read_manifest(bundle).stems) > 1:
        raise InputError(
            f"the bundle has a file of households, and the original lacks {plural(len(absent), 'column')} of it",
            code="two-files",
            hint="give the original with its file of households: merge_households(homes, people), or --households",
            columns=absent,
        )


def _read_bundle(bundle: Path) -> Microdata:
    """Read the data of a bundle, described by its own dictionary."""
    from safeswap.model.two_files import merge_files
    from safeswap.releases.manifest import read_manifest
    from safeswap.releases.scan import divide_dictionary, read_dictionary

    found = []
    for stem, dictionary in divide_dictionary(read_dictionary(bundle)).items():
        kinds = {each["name"]: each["kind"] for each in dictionary["columns"]}
        own = next((name for name, kind in kinds.items() if kind == "identifier"), None)
        stated = {name: kind for name, kind in kinds.items() if kind != "identifier"}
        path = bundle / f"{stem}.{read_manifest(bundle).data_format}"
        found.append(read(path, kinds=stated, **({"identifier": own} if own else {})))
    return merge_files(found[0], found[1]) if len(found) > 1 else found[0]


def _row_order(audit: str | PathLike[str] | None) -> Any:
    from safeswap.on_disk.audit_record import read_audit_record

    return None if audit is None else read_audit_record(Path(audit)).row_order


def read_earlier(earlier: Sequence[Any], original: Microdata) -> tuple[Microdata, ...]:
    """Read earlier releases; refuse one of other records, which could not be compared row by row."""
    found = tuple(read(each.data if isinstance(each, Masked) else each) for each in earlier)
    for number, data in enumerate(found, start=1):
        if len(data) != len(original):
            raise InputError(
                f"earlier release {number} has {plural(len(data), 'record')}, and this one {len(original):,}",
                code="files-differ",
                hint="give masked files of the same records, in the same order",
                records=len(data),
            )
    return found


def _find_earlier(masked: Any) -> tuple[Microdata, ...]:
    """Return what the agency's ledger knows to have been released of the records of a masking."""
    from safeswap.releases.ledger import configured_ledger, replay_known

    ledger = configured_ledger()
    if not isinstance(masked, Masked) or not ledger.path.exists():
        return ()
    with ledger.open() as book:
        return replay_known(masked.original, book.entries(), secret=ledger.secret)


def read_control(source: Any, like: Microdata, **reading: Any) -> Microdata:
    """Read control records as the ``like`` file is described: the same kinds of attributes, and its identifier.

    >>> import pyarrow as pa
    >>> data = read(pa.table({"id": [1, 2], "age": [30, 40]}), identifier="id", kinds={"age": "numeric"})
    >>> read_control(pa.table({"id": [3], "age": [50]}), data).schema["age"].kind.value
    'numeric'
    """
    own = reading.pop("identifier", None) or (like.schema.identifier.name if like.schema.identifier else None)
    plain = read(source, **reading)
    names = [name for name in like.attributes if name in plain.schema]
    kinds = {name: like.schema[name].kind.value for name in names if name != own}
    identifier = own if own in plain.schema else None
    return read(source, kinds=kinds, identifier=identifier, **reading)


def prepare_control(control: Any, masked: Any, original: Microdata) -> Microdata:
    """Return control records, checked against the original, in the categories of the release."""
    held = control if isinstance(control, Microdata) else read_control(control, original)
    check_control(held, original)
    return masked.account.coarsen(held) if isinstance(masked, Masked) and masked.parts else held


def check_control(control: Microdata, original: Microdata) -> None:
    """Refuse control records that were masked: their outcome would be no baseline.

    Equal identifiers show it. Without any, the contents do: if far more control records have a twin among the masked
    ones than these have among themselves, they are the same records.
    """
    for name in original.schema.categorical:
        if name not in control.schema:
            raise InputError(
                f"the control records lack the column {name!r}",
                code="files-differ",
                hint="give records with the columns of the original, held out before masking",
                column=name,
            )
    own, other = original.schema.identifier, control.schema.identifier
    if own is not None and other is not None:
        shared = _count_shared(original.table.column(own.name), control.table.column(other.name))
    else:
        shared = _count_twins(original, control)
    if shared:
        raise InputError(
            f"{plural(shared, 'control record was', 'control records were')} masked too",
            code="control-overlaps",
            hint="hold records out before masking, and mask only the others",
            records=shared,
        )


def _count_shared(masked: Any, held: Any) -> int:
    import pyarrow.compute as pc

    known = masked.cast("string").combine_chunks()
    return int(pc.sum(pc.is_in(held.cast("string"), value_set=known)).as_py() or 0)


def _count_twins(original: Microdata, control: Microdata) -> int:
    """Return how many control records have a twin in the original, if that is too many for chance; otherwise 0."""
    import numpy as np

    from safeswap.attacks.base import wilson
    from safeswap.measures.aligned import align
    from safeswap.model.columns import number_cells

    names = [n for n in original.attributes if n in control.schema and not original.schema[n].kind.is_unit_number]
    if not names or not len(control) or not len(original):
        return 0
    both = Comparison(before=original, after=control, attributes=())
    columns = [align(both, name) for name in names]
    cells = number_cells([np.concatenate([c.before, c.after]).astype(np.int64) for c in columns])
    counts = np.bincount(cells[: len(original)], minlength=int(cells.max()) + 1)
    found = int(np.count_nonzero(counts[cells[len(original) :]]))
    among = float((counts[cells[: len(original)]] > 1).mean())
    least, most = wilson(found / len(control), len(control))[0], wilson(among, len(original))[1]
    return found if least > most else 0


class PublishedForm(TypedDict, total=False):
    """The form of a release, what is published about it, and the consents of the person who releases it."""

    data_format: Annotated[str, Default("csv")]
    identifiers: Annotated[Literal["new", "none"], Default("new")]
    drop: Annotated[Sequence[str], Default(())]
    title: Annotated[str, Default("")]
    date: Annotated[str, Default("")]
    tolerance: Annotated[int, Default(3)]
    publish_rate: Annotated[bool, Default(value=False)]
    second_release: Annotated[str, Default("")]
    unmasked: Annotated[bool, Default(value=False)]
    recipe: Annotated[Any, Default(None)]
    attack: Annotated[Literal["quick", "full"], Default("quick")]
    override: Annotated[str, Default("")]
    force: Annotated[bool, Default(value=False)]


class ReleaseOptions(PublishedForm, total=False):
    """The form of a release, and what it is judged by. ``ledger`` may be any value of that shape."""

    two_files: Annotated[bool | None, Default(None)]
    publish_errors: Annotated[str | PathLike[str], Default("")]
    ledger: Annotated[Any, Default(None)]
    before: Annotated[Microdata | None, Default(None)]
    scenario: Annotated[Scenario | Mapping[str, Any] | None, Default(None)]
    policy: Annotated[Any, Default(None)]
    control: Annotated[Any, Default(None)]
    earlier: Annotated[Sequence[Any], Default(())]


@returning_memory()
@check_types
def release(
    masked: Masked | MaskedHouseholds,
    public: str | PathLike[str],
    *,
    audit: str | PathLike[str],
    key: Key,
    **options: Unpack[ReleaseOptions],
) -> Published:
    """Verify every promise on the result, then write the public bundle and, separately, the confidential record.

    ``public`` gets the bundle: data in a keyed random order with new identifiers or none, a dictionary rebuilt from the
    released values, a report, and a manifest that is written last. ``audit`` gets the confidential record. Both are
    written atomically; if any check fails nothing is written. What ``mask_households`` made of two files is released as
    two files, of households and of persons with the same new numbers, and so is a person file with ``two_files=True``.
    A file is released once: if at least half of the records
    were released before, by the agency's ledger, the release is refused unless ``second_release`` gives a reason.
    ``ledger`` replaces the configured ledger; ``before`` is the file as it was before any recipe.

    Before anything is written the release is attacked: by the quick attacks, or by all of them with ``attack="full"``;
    a ``scenario`` states the keys that intruders have. If the advantage of one exceeds the agency's ``policy`` (a
    ``ReleasePolicy``, its values, or the path of its TOML; by default the configured one) the release is refused unless
    ``override`` gives an officer's reason. ``control`` has records held out before masking. Earlier releases of the
    same records come from the ledger, and from ``earlier``. The outcomes are kept in the audit record.

    ``publish_errors`` names a TOML file of key indicators (or gives their text, ``indicators:{…}``): the officer
    consents that the report states, per kind of estimate, the median factor by which masking enlarges their standard
    errors. ``publish_rate`` is the consent to state the share of records that took part.

    A release in which no value was changed is refused unless ``unmasked`` says that this is intended; the report says
    so too.

    The report also states what was done to the file before it was masked: the recodes and maskings recorded with the
    data or known to the register in the agency's ledger, or ``recipe`` if there are none. Recoded attributes are not
    claimed to be as collected; after an earlier masking no attribute is, since promises are about the file as it was
    read.

    >>> import tempfile, pathlib
    >>> from safeswap import datasets, swap
    >>> key, folder = Key.generate(), pathlib.Path(tempfile.mkdtemp())
    >>> masked = swap(datasets.cps8d(), swap=["Race"], rate=0.05, key=key)
    >>> published = release(masked, folder / "public", audit=folder / "confidential", key=key)
    >>> sorted(path.name for path in published.public.iterdir())
    ['data.csv', 'dictionary.csv', 'dictionary.json', 'manifest.json', 'report.html']
    """
    from safeswap.releases.ledger import LedgerFile
    from safeswap.releases.publish import check_and_write
    from safeswap.releases.register import FileRegister, with_known_past

    ledger = _as_ledger(options["ledger"])
    if not isinstance(masked, Masked):
        masked, options["two_files"] = masked.masked, options["two_files"] is not False
    masked = with_known_past(masked, FileRegister(ledger) if isinstance(ledger, LedgerFile) else None)
    return check_and_write(
        masked,
        public=public,
        audit=audit,
        key=key,
        account=masked.account,
        terms=_terms_of(masked, options),
        ledger=ledger,
        evidence=_evidence_of(masked, options),
    )


def _as_ledger(ledger: Any) -> Ledger:
    from safeswap.releases.ledger import configured_ledger

    if ledger is not None and not hasattr(ledger, "alarm_share"):
        raise SpecError("release: 'ledger' takes a Ledger or None", code="bad-argument", hint="omit ledger")
    return configured_ledger() if ledger is None else ledger


def _terms_of(masked: Masked, options: ReleaseOptions) -> Terms:
    from safeswap.attacks.run import as_policy

    scenario = options["scenario"]
    form: dict[str, Any] = {name: value for name, value in options.items() if name in PublishedForm.__annotations__}
    return make_terms(
        masked,
        **form,
        two_files=bool(options["two_files"]),
        publish_errors=as_indicators(options["publish_errors"]),
        policy=as_policy(options["policy"]).model_dump(mode="json"),
        scenario=None if scenario is None else as_scenario(scenario).as_dict(),
    )


def _evidence_of(masked: Masked, options: ReleaseOptions) -> Evidence:
    from safeswap.releases.publish import Evidence

    control = options["control"]
    return Evidence(
        before=options["before"],
        control=None if control is None else prepare_control(control, masked, masked.original),
        earlier=read_earlier(options["earlier"], masked.original),
    )


def as_indicators(given: str | PathLike[str]) -> str:
    """Return the text of the key indicators: that given, or that of a TOML file."""
    if not given or str(given).startswith("indicators:"):
        return str(given)
    from safeswap.measures.utility.indicators import read_indicators

    return read_indicators(given).text


def make_terms(masked: Masked, *, recipe: Any = None, drop: Sequence[str] = (), **terms: Any) -> Terms:
    """Return the terms of a release, with what was done to the file before and during the masking."""
    from safeswap.releases.publish import Terms

    past = masked.original.past or _past_of(recipe)
    return Terms(
        method=_describe_method(masked),
        earlier=_titles(past),
        past=past,
        tell_kept=all(step.method == "recode" for step in past),
        recoded=tuple(dict.fromkeys(name for step in past for name in step.attributes)),
        drop=tuple(dict.fromkeys((*drop, *getattr(masked.spec, "dropped", ())))),
        **terms,
    )


def _past_of(recipe: Any) -> tuple[PastStep, ...]:
    if recipe is None:
        return ()
    from safeswap.workflow.session import as_recipe

    return as_recipe(recipe).past


def _describe_method(masked: Masked) -> str:
    """Return the title of the method, or those of the steps that changed something, in order."""
    from safeswap import registry

    titles = (registry.method(stage.spec.method).title for stage in masked.stages if _changes_anything(stage))
    return "; then ".join(title for title, _ in groupby(titles)) or registry.method(masked.spec.method).title


def _changes_anything(stage: Masked) -> bool:
    """Return whether a step changed a value, or what is known of a column."""
    return bool(stage.audit.touched().any()) or stage.data.schema != stage.original.schema


def _titles(past: Sequence[PastStep]) -> tuple[str, ...]:
    """Return the titles of the methods applied, in order, with consecutive recodes as one.

    >>> _titles([PastStep(method=name, attributes=("NACE",)) for name in ("recode", "recode", "pram")])
    ('Recoding', 'Post-randomisation of categorical attributes')
    """
    from safeswap import registry

    titles = ("Recoding" if step.method == "recode" else registry.method(step.method).title for step in past)
    return tuple(title for title, _ in groupby(titles))


@check_types
def verify(bundle: str | PathLike[str]) -> Verification:
    """Check a public bundle without using anything confidential."""
    from safeswap.releases.scan import verify_bundle

    return verify_bundle(bundle)
