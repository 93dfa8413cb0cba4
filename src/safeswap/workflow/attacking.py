"""Attack a release before anyone else does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safeswap.errors import InputError, SpecError, UnsafeRelease
from safeswap.model.checked import check_types
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario, as_scenario, resolve_files
from safeswap.model.score import Comparison
from safeswap.model.text import plural
from safeswap.workflow.assessing import compare
from safeswap.workflow.reading import read

if TYPE_CHECKING:
    from safeswap.attacks.base import Attacked


@check_types
def attack(
    masked: Any,
    original: Any = None,
    *,
    scenario: Scenario | Mapping[str, Any] | None = None,
    attacks: Sequence[str] | None = None,
    full: bool = True,
    control: Any = None,
    rules: Sequence[Mapping[str, Any]] = (),
    tables: Sequence[Any] = (),
    tolerance: int = 3,
    earlier: Sequence[Any] | None = None,
    audit: str | PathLike[str] | None = None,
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
    held = None if control is None else prepare_control(control, masked, comparison.before)
    setting = Setting(
        comparison=comparison,
        has_original=has_original,
        scenario=None if asked is None else resolve_files(asked, comparison.before, comparison.after),
        control=held,
        masked=masked if isinstance(masked, Masked) else None,
        rules=tuple(rules),
        tables=_check_tables(tables),
        tolerance=tolerance,
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
            "a table is a list of attributes", code="bad-argument", hint='tables=[["Region", "Sex"]]', argument="tables"
        )
    return tuple(table_names(stated)) if stated else ()


def _as_bundle(value: Any) -> Path | None:
    """Return the directory of a bundle, if that is what is attacked."""
    from safeswap.files.manifest import MANIFEST

    if not isinstance(value, (str, PathLike)):
        return None
    path = Path(value)
    return path if (path / MANIFEST).is_file() else None


def _find_traces(bundle: Path) -> tuple[str, ...]:
    """Return what the scan of a bundle finds, in words."""
    from safeswap.workflow.releasing import verify

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
    known = None if original is None else read(original)
    released = _read_bundle(bundle) if bundle is not None else read(masked)
    if known is None:
        return Comparison(before=released, after=released, attributes=released.schema.categorical), False
    if bundle is not None and audit is None:
        raise InputError(
            "a bundle has new identifiers and another order: its records cannot be matched with the original",
            code="no-audit",
            hint="give the audit record of the release (audit), or leave the original out",
        )
    return compare(known, released, audit=audit, some_gone=True), True


def _read_bundle(bundle: Path) -> Microdata:
    """Read the data of a bundle, described by its own dictionary."""
    from safeswap.files.manifest import read_manifest
    from safeswap.model.two_files import merge_files
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
    stated = {"identifier": own} if own in plain.schema else {}
    return read(source, kinds=kinds, **stated, **reading)


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
    from safeswap.model.schema import Kind

    numbered = (Kind.IDENTIFIER, Kind.HOUSEHOLD)
    names = [n for n in original.attributes if n in control.schema and original.schema[n].kind not in numbered]
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
