"""Check a masked file and write its public bundle and confidential record, both or neither."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from safeswap.arrays.sketch import ALARM_SHARE, has_content
from safeswap.arrays.types import Integers
from safeswap.attacks.run import Judged
from safeswap.errors import InputError, OutputError, SpecError, UnsafeRelease
from safeswap.files.atomic import PRIVATE_DIRECTORY, atomic_directory
from safeswap.files.formats import sum_file
from safeswap.model.invariant import Finding
from safeswap.model.key import Key
from safeswap.model.ledger import NOT_SEEN, Book, Entry, Ledger, Likeness, compare, make_entry
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata, PastStep
from safeswap.model.release import (
    Identifiers,
    PublicFacts,
    Release,
    find_shared,
    prepare_release,
    preview_release,
    refuse_insecure,
    released_names,
)
from safeswap.model.schema import Kind
from safeswap.model.score import Comparison
from safeswap.on_disk.audit_record import AUDIT, write_audit
from safeswap.pipelines.account import Account
from safeswap.releases.bundle import Bundle, fill_bundle, public_directory
from safeswap.releases.gate import Gate, Written
from safeswap.releases.ledger import Differencing, compare_releases, configured_ledger, replay_known
from safeswap.releases.linkage import Linkage
from safeswap.releases.manifest import MANIFEST
from safeswap.releases.public_data import check_format
from safeswap.releases.register import enter_table, registers_of
from safeswap.releases.scan_data import Remark, name_remarks, refuse_if_any, warning
from safeswap.reports.public import PublicPage

_RECORD = "release-"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The form of a release, and what is published about it.

    The share of records that took part is published only with ``publish_rate``, and the factors by which masking
    enlarges the standard errors of some indicators only with ``publish_errors``, the text of these: both are the
    officer's decision.
    ``two_files`` asks for one file of households and one of persons.
    ``second_release`` is the reason for releasing the same records again; ``unmasked`` is required if no released value
    was changed. ``earlier`` has the titles of the methods applied to the file before it was masked, ``past`` the steps
    themselves, which are told column by column. Without ``tell_kept`` no property is published as preserved; the
    attributes in ``recoded`` are never mentioned as preserved.
    """

    method: str
    data_format: str = "csv"
    identifiers: Identifiers = "new"
    drop: tuple[str, ...] = ()
    title: str = ""
    date: str = ""
    tolerance: int = 3
    publish_rate: bool = False
    publish_errors: str = ""
    second_release: str = ""
    unmasked: bool = False
    attack: Literal["quick", "full"] = "quick"
    override: str = ""
    policy: Mapping[str, Any] | None = None
    scenario: Mapping[str, Any] | None = None
    earlier: tuple[str, ...] = ()
    past: tuple[PastStep, ...] = ()
    tell_kept: bool = True
    recoded: tuple[str, ...] = ()
    two_files: bool = False
    force: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """Files that a release is judged by, besides original and result.

    ``before`` is the file before any recipe, ``control`` has records held out before masking, and ``earlier`` are
    releases of the same records that the ledger does not hand out itself.
    """

    before: Microdata | None = None
    control: Microdata | None = None
    earlier: tuple[Microdata, ...] = ()


NOTHING = Evidence()


@dataclass(frozen=True, kw_only=True)
class Published:
    """The result of a release: its directories, what was verified, and the remarks of the final scan."""

    public: Path
    audit: Path
    records: int
    manifest_sha256: str
    findings: tuple[Finding, ...]
    remarks: tuple[Remark, ...]
    differencing: tuple[Differencing, ...] = ()
    attacks: tuple[Judged, ...] = ()
    override: str = ""  # the officer's reason, if an attack is above the policy

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for ``--json``."""
        return {
            "public": str(self.public),
            "audit": str(self.audit),
            "records": self.records,
            "manifest_sha256": self.manifest_sha256,
            "verified": [finding.as_dict() for finding in self.findings],
            "remarks": [remark.as_dict() for remark in self.remarks],
            "differencing": [each.as_dict() for each in self.differencing],
            "attacks": [each.as_dict() for each in self.attacks],
            "override": self.override,
        }


def check_and_write(
    masked: Masked,
    *,
    public: str | os.PathLike[str],
    audit: str | os.PathLike[str],
    key: Key,
    account: Account,
    terms: Terms,
    ledger: Ledger | None = None,
    evidence: Evidence = NOTHING,
) -> Published:
    """Verify every promise, write and scan the bundle, write the audit record, and give both their names.

    ``public`` is the directory of the bundle. ``audit`` is a directory with one sub-directory per release; neither may
    be inside the other. The audit record gets its name first, then the ledger its entry, and the bundle its name last:
    whatever happens in between, there is never a bundle without a record and an entry.

    ``ledger`` defaults to the configured one. The release is attacked as it was written, under the policy and the
    scenario of the terms, by default the configured policy, together with what the ledger knows to have been released
    of the same records.

    >>> import tempfile
    >>> import pyarrow as pa
    >>> from safeswap import workflow
    >>> from safeswap.pipelines.account import account_for
    >>> key, data = Key.generate(), pa.table({"id": [1, 2, 3, 4], "Race": ["a", "b", "a", "b"]})
    >>> masked = workflow.swap(workflow.read(data, identifier="id"), swap=["Race"], pairs=1, key=key)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     terms = Terms(method="Values were exchanged between pairs of records.")
    ...     where = {"public": f"{folder}/public", "audit": f"{folder}/audit"}
    ...     done = check_and_write(masked, **where, key=key, account=account_for(masked), terms=terms)
    ...     sorted(path.name for path in Path(folder).iterdir()), done.records
    (['audit', 'public'], 4)
    """
    _refuse_stamped(masked, key)
    check_format(terms.data_format)
    _check_tolerance(terms.tolerance)
    names = released_names(masked.data.schema, identifiers=terms.identifiers, drop=terms.drop)
    if terms.two_files:
        find_shared(masked.data, names)
    refuse_if_any(name_remarks(names))
    target, root = Path(public), Path(audit)
    _refuse_nested(target, root)
    ledger = configured_ledger() if ledger is None else ledger
    with (
        ledger.open() as book,
        _confidential_root(root, public=target),
        public_directory(target, force=terms.force) as part,
    ):
        findings = _verify_promises(account)
        linkage = Linkage(masked, names)
        checks = (*_check_masked(linkage, terms), *refuse_if_any(linkage.remarks()))
        masked.data.share_codes(masked.original, [name for name in names if name not in linkage.changed])
        facts = _public_facts(linkage, account, terms)
        context = (masked.audit.data_name, masked.audit.method, _serialise_spec(masked), masked.audit.replicate)
        release, rows = prepare_release(
            masked.data,
            key=key,
            facts=facts,
            context=context,
            identifiers=terms.identifiers,
            drop=terms.drop,
            as_codes=terms.data_format != "csv",
            two_files=terms.two_files,
        )
        pa.default_memory_pool().release_unused()
        bundle = fill_bundle(release, part, data_format=terms.data_format)
        _enter_released(release, masked.data.past, ledger)
        del release, linkage, facts  # a copy of the data, and codes of them, that the ledger does not need
        pa.default_memory_pool().release_unused()
        record = root / _record_name(bundle.manifest_sha256)
        entry = replace(
            make_entry(masked, ledger.secret, drop=terms.drop, original=evidence.before),
            release=bundle.manifest_sha256,
            record=str(record.resolve()),
            reason=terms.second_release,
        )
        earlier = _read_others(book, entry)
        likenesses = [(compare(entry, each, alarm_share=ledger.alarm_share), each) for each in earlier]
        differencing = _refuse_second(masked, likenesses, ledger, terms)
        known = (*evidence.earlier, *replay_known(masked.original, earlier, secret=ledger.secret))
        gate = Gate.of(terms.policy, terms.scenario, control=evidence.control, earlier=known)
        written = Written(masked=masked, names=names, order=rows, bundle=part)
        attacked = gate.attack(written, full=terms.attack == "full", override=terms.override)
        own = (*_unpublished_label(masked, terms), *_published_rate(terms), *_broken_promises(account))
        remarks = (*checks, *bundle.remarks, *own, *_ledger_remarks(entry, likenesses))
        notes = _notes(bundle, findings=findings, remarks=remarks, differencing=differencing)
        notes |= {"attacks": [each.as_dict() for each in attacked]}
        notes |= {"release_key_id": key.id, "terms": asdict(terms)}
        _write_record(masked, record, rows, notes)
        book.enter(replace(entry, at=datetime.now(UTC).isoformat(timespec="seconds")))
    return Published(
        public=target,
        audit=record,
        records=len(masked.data),
        manifest_sha256=bundle.manifest_sha256,
        findings=findings,
        remarks=remarks,
        differencing=differencing,
        attacks=attacked,
        override=terms.override if any(each.is_above for each in attacked) else "",
    )


def find_obstacle(
    masked: Masked, *, key: Key, account: Account, terms: Terms
) -> SpecError | InputError | UnsafeRelease | None:
    """Return the first reason for which a release would be refused, as far as that is known before it is written."""
    try:
        _refuse_stamped(masked, key)
        names = released_names(masked.data.schema, identifiers=terms.identifiers, drop=terms.drop)
        refuse_if_any(name_remarks(names))
        if terms.two_files:
            find_shared(masked.data, names)
        _verify_promises(account)
        linkage = Linkage(masked, names)
        _check_masked(linkage, terms)
        refuse_if_any(linkage.remarks())
    except (SpecError, InputError, UnsafeRelease) as error:
        return error
    return None


def preview(masked: Masked, *, account: Account, terms: Terms) -> PublicPage:
    """Return what the public report of a release would say, before there is one."""
    _check_tolerance(terms.tolerance)
    names = released_names(masked.data.schema, identifiers=terms.identifiers, drop=terms.drop)
    facts = _public_facts(Linkage(masked, names), account, terms)
    shared = find_shared(masked.data, names) if terms.two_files else ()
    return PublicPage.of(replace(preview_release(masked.data, names, facts=facts), shared=shared))


def _enter_released(release: Release, past: Sequence[PastStep], ledger: Ledger) -> None:
    """Register the released table, so that a report on a later masking can say what it went through."""
    for register in registers_of(ledger):
        enter_table(Microdata(release.table, release.schema, past=tuple(past)), register)


def _refuse_stamped(masked: Masked, key: Key) -> None:
    refuse_insecure(key)
    if not masked.audit.releasable:
        raise UnsafeRelease(
            f"the masking is stamped {masked.audit.stamp}",
            code="not-for-release",
            hint="mask again, for release: with a secret key (`safeswap keygen`) and, for an edit, its keyed variant",
        )
    insecure = [step.method for step in masked.original.past if not step.releasable]
    if insecure:
        raise UnsafeRelease(
            f"before it was masked, the file had been masked by {insecure[0]!r} in a way that anyone can undo",
            code="not-for-release",
            hint="start from the original file, and use a secret key for every masking (`safeswap keygen`)",
        )


def _unpublished_label(masked: Masked, terms: Terms) -> Iterator[Remark]:
    if masked.data.schema.label and masked.data.schema.label != terms.title:
        yield warning("not-kept", "the label of the original file is not published; enter it as the title if it may be")


def _published_rate(terms: Terms) -> Iterator[Remark]:
    consent = "by releasing it, the officer consents to this"
    if terms.publish_rate:
        yield warning("rate-published", f"the report states the share of records that took part; {consent}")
    if terms.publish_errors:
        message = f"the report states by how much masking enlarges standard errors; {consent}"
        yield warning("errors-published", message)


def _broken_promises(account: Account) -> Iterator[Remark]:
    yield from (warning("undone-by-later-step", flag) for flag in account.flags)


def _check_tolerance(tolerance: int) -> None:
    if tolerance < 1:
        raise SpecError(
            "the tolerance must be at least 1", code="bad-tolerance", hint="3 is usual", parameter="tolerance"
        )


def _refuse_nested(public: Path, audit: Path) -> None:
    """Refuse directories inside each other: the confidential record must not be handed out with the bundle."""
    one, other = public.resolve(), audit.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise OutputError(
            "one of the public and audit directories lies inside the other",
            code="nested-directories",
            hint="keep the audit record with the original data, away from what is published",
            public=str(public),
            audit=str(audit),
        )


@contextmanager
def _confidential_root(root: Path, *, public: Path) -> Iterator[None]:
    """Create the audit directory if needed; on an error remove a record whose bundle was not written."""
    made = not root.exists()
    before = set() if made else {path.name for path in root.iterdir()}
    if made:
        _make_private(root)
    try:
        yield
    except BaseException:
        for path in root.iterdir():
            if path.name not in before and path.name.startswith(_RECORD) and not _is_of_bundle(path, public):
                shutil.rmtree(path, ignore_errors=True)
        if made and not any(root.iterdir()):
            root.rmdir()
        raise


def _is_of_bundle(record: Path, public: Path) -> bool:
    """Return whether a record belongs to the bundle that is in the public directory now."""
    manifest = public / MANIFEST
    return manifest.is_file() and record.name == _record_name(sum_file(manifest)[1])


def _record_name(manifest_sha256: str) -> str:
    return _RECORD + manifest_sha256[:16]


def _make_private(root: Path) -> None:
    try:
        root.mkdir(mode=PRIVATE_DIRECTORY)
    except OSError as error:
        raise OutputError(
            f"the audit directory {root.name!r} cannot be made: {os.strerror(error.errno or 0)}",
            code="no-directory",
            hint="create the directory first",
            file=str(root),
        ) from None


def _verify_promises(account: Account) -> tuple[Finding, ...]:
    findings = account.findings
    broken = [finding for finding in findings if not finding.ok]
    if broken:
        raise UnsafeRelease(
            f"a promise does not hold: {broken[0].problem}",
            code="invariant-broken",
            hint="nothing was released; mask the file again, and report it if it happens again",
            findings=[finding.as_dict() for finding in broken],
        )
    return findings


def _check_masked(linkage: Linkage, terms: Terms) -> tuple[Remark, ...]:
    """Refuse a release of unchanged values, unless it is intended; then warn."""
    if linkage.changed or _drops_columns(linkage.masked):
        return ()
    if not terms.unmasked:
        raise UnsafeRelease(
            "nothing was masked: every released value is the same as in the file that was masked",
            code="nothing-masked",
            hint="raise the rate or the number of pairs, or state that the values may be released unchanged (unmasked)",
        )
    return (warning("nothing-masked", "nothing was masked: every released value is unchanged; the report says so"),)


def _drops_columns(masked: Masked) -> bool:
    """Return whether the masking itself left columns out."""
    return bool(getattr(masked.spec, "dropped", ()))


def _describe_protection(linkage: Linkage, terms: Terms) -> str:
    """Describe how the data were protected: everything that was done to them, in order, and nothing else."""
    if linkage.changed:
        return "; then ".join((*terms.earlier, terms.method))
    done = "Columns were dropped" if _drops_columns(linkage.masked) else "Nothing was masked"
    if terms.earlier:
        return f"{'; then '.join(terms.earlier)}. After that: {done.lower()}, and no released value was changed."
    return f"{done}: every released value is as it was in the original file."


def _public_facts(linkage: Linkage, account: Account, terms: Terms) -> PublicFacts:
    masked = linkage.masked
    # Identifiers get new numbers, so nothing about them is preserved.
    renumbered = (Kind.IDENTIFIER, Kind.HOUSEHOLD)
    kept_names = tuple(name for name in linkage.names if masked.data.schema[name].kind not in renumbered)
    unchanged = tuple(name for name in kept_names if name not in terms.recoded)
    promises = (invariant.for_users_of(unchanged) for invariant in account.statements)
    sentences = dict.fromkeys(promise.sentence for promise in promises if promise is not None)
    records = len(masked.data)
    return PublicFacts(
        method=_describe_protection(linkage, terms),
        records=records,
        kept=tuple(sentences) if terms.tell_kept else (),
        columns=_tell_columns(masked, account, kept_names, terms.past),
        states=tuple((name, account.changes[name].state_after(terms.past)) for name in kept_names),
        title=terms.title,
        date=terms.date,
        rate=_share_taking_part(masked) if terms.publish_rate and records else None,
        multipliers=_multipliers(masked, terms.publish_errors) if records else (),
        tolerance=terms.tolerance,
        version=version("safeswap"),
    )


def _multipliers(masked: Masked, indicators: str) -> tuple[tuple[str, float], ...]:
    """Return the median growth of standard errors by kind of estimate, if there is consent to publish it."""
    if not indicators:
        return ()
    from safeswap import registry
    from safeswap.measures.utility.indicators import Indicators, error_multipliers

    measure = registry.measure(indicators)
    if not isinstance(measure, Indicators):
        raise SpecError(
            f"{measure.name!r} has no standard errors to publish",
            code="no-indicator",
            hint="state key indicators: a TOML file of them, or indicators:{…}",
        )
    recoded = masked.account.reference if masked.parts else None
    seen = Comparison(before=masked.original, after=masked.data, attributes=(), recoded=recoded)
    found = error_multipliers(measure.score(seen))
    if not found:
        raise SpecError(
            "no kind of estimate has three estimates, so there is no multiplier to publish",
            code="no-indicator",
            hint="state more indicators, or more domains; or publish none",
        )
    return tuple(found.items())


def _tell_columns(masked: Masked, account: Account, names: Sequence[str], past: Sequence[PastStep]) -> tuple[str, ...]:
    """Describe the whole chain of each released column; a column that is gone is not named."""
    gone = any(name not in masked.original.schema for step in past for name in step.attributes)
    told = [account.changes[name].sentence_after(past, all_named=not gone) for name in names]
    told += ["An earlier step changed a column that is not released, or that has since been renamed."] if gone else []
    return tuple(told)


def _share_taking_part(masked: Masked) -> float:
    """Return the share of the records that took part: two for each pair, or all members of households that did."""
    if "households_changed" in masked.audit.facts:
        took_part = int(np.count_nonzero(masked.audit.touched()))
    else:
        took_part = masked.audit.made * (2 if masked.audit.unit == "pairs" else 1)
    return round(took_part / len(masked.data), 6)


def _serialise_spec(masked: Masked) -> str:
    return json.dumps(dict(masked.audit.spec), sort_keys=True, default=str)


def _read_others(book: Book, entry: Entry) -> list[Entry]:
    """Return the entries of all other releases; releasing the same bundle again is not a second release."""
    return [each for each in book.entries() if each.release != entry.release]


def _refuse_second(
    masked: Masked, likenesses: Sequence[tuple[Likeness, Entry]], ledger: Ledger, terms: Terms
) -> tuple[Differencing, ...]:
    """Refuse a second release of the same records without a reason; return what comparing the releases reveals."""
    alarms = [(likeness, entry) for likeness, entry in likenesses if likeness.alarm]
    compared = (compare_releases(masked, likeness, entry, secret=ledger.secret) for likeness, entry in alarms)
    found = tuple({each.sentence: each for each in compared}.values())  # a bundle may have several entries
    if found and not terms.second_release.strip():
        raise UnsafeRelease(
            "these records have been released before. " + " ".join(each.sentence for each in found),
            code="second-release",
            hint="publish the earlier release, or state why a second one is needed (second_release)",
            differencing=[each.as_dict() for each in found],
        )
    return found


def _ledger_remarks(entry: Entry, likenesses: Sequence[tuple[Likeness, Entry]]) -> list[Remark]:
    """Warn of equal identifiers with different contents, and of a file with too little content to compare."""
    found = []
    names = [each.release for each, _ in likenesses if not each.alarm and each.identifiers >= ALARM_SHARE]
    if names:
        others = f"{names[-1]} and {len(names) - 1:,} more" if len(names) > 1 else names[-1]
        message = f"Most identifiers also occur in {others}; the contents differ, so there is no alarm."
        found.append(warning("equal-identifiers", message))
    if likenesses and not has_content(entry.original):
        found.append(warning("little-content", f"These columns are too few or too coarse to compare. {NOT_SEEN}"))
    return found


def _notes(
    bundle: Bundle, *, findings: Sequence[Finding], remarks: Sequence[Remark], differencing: Sequence[Differencing]
) -> dict[str, Any]:
    return {
        "public_manifest_sha256": bundle.manifest_sha256,
        "verified": [finding.as_dict() for finding in findings],
        "remarks": [remark.as_dict() for remark in remarks],
        "differencing": [each.as_dict() for each in differencing],
    }


def _write_record(masked: Masked, directory: Path, rows: Integers, notes: dict[str, Any]) -> None:
    # A record of this name belongs to the same released bytes and was left by an interrupted run: replace it.
    with atomic_directory(directory, force=directory.exists(), marker=AUDIT, mode=PRIVATE_DIRECTORY) as part:
        write_audit(masked, part, row_order=rows, notes=notes)
