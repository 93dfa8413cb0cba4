"""Release a masked file, and verify what was released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from safeswap.errors import SpecError
from safeswap.model.checked import check_types
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import PastStep
from safeswap.model.scenario import Scenario, as_scenario
from safeswap.workflow.recoding import as_recipe

if TYPE_CHECKING:
    from safeswap.model.ledger import Ledger
    from safeswap.model.microdata import Microdata
    from safeswap.releases.publish import Published, Terms
    from safeswap.releases.scan import Verification


@check_types
def release(
    masked: Masked,
    public: str | PathLike[str],
    *,
    audit: str | PathLike[str],
    key: Key,
    data_format: str = "csv",
    identifiers: Literal["new", "none"] = "new",
    drop: Sequence[str] = (),
    title: str = "",
    date: str = "",
    tolerance: int = 3,
    publish_rate: bool = False,
    publish_errors: str | PathLike[str] = "",
    second_release: str = "",
    unmasked: bool = False,
    ledger: Ledger | Any = None,  # any value of that shape: the service brings its own
    before: Microdata | None = None,
    recipe: Any = None,
    attack: Literal["quick", "full"] = "quick",
    scenario: Scenario | Mapping[str, Any] | None = None,
    policy: Any = None,
    control: Any = None,
    earlier: Sequence[Any] = (),
    override: str = "",
    force: bool = False,
) -> Published:
    """Verify every promise on the result, then write the public bundle and, separately, the confidential record.

    ``public`` gets the bundle: data in a keyed random order with new identifiers or none, a dictionary rebuilt from the
    released values, a report, and a manifest that is written last. ``audit`` gets the confidential record. Both are
    written atomically; if any check fails nothing is written. A file is released once: if at least half of the records
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
    from safeswap.attacks.run import as_policy
    from safeswap.releases.ledger import LedgerFile, configured_ledger
    from safeswap.releases.publish import Evidence, check_and_write
    from safeswap.releases.register import FileRegister, with_known_past
    from safeswap.workflow.attacking import prepare_control, read_earlier

    if ledger is not None and not hasattr(ledger, "alarm_share"):
        raise SpecError("release: 'ledger' takes a Ledger or None", code="bad-argument", hint="leave ledger out")
    ledger = configured_ledger() if ledger is None else ledger
    masked = with_known_past(masked, FileRegister(ledger) if isinstance(ledger, LedgerFile) else None)
    terms = make_terms(
        masked,
        recipe=recipe,
        data_format=data_format,
        identifiers=identifiers,
        drop=tuple(drop),
        title=title,
        date=date,
        tolerance=tolerance,
        publish_rate=publish_rate,
        publish_errors=as_indicators(publish_errors),
        second_release=second_release,
        unmasked=unmasked,
        attack=attack,
        override=override,
        policy=as_policy(policy).model_dump(mode="json"),
        scenario=None if scenario is None else as_scenario(scenario).as_dict(),
        force=force,
    )
    return check_and_write(
        masked,
        public=public,
        audit=audit,
        key=key,
        account=masked.account,
        terms=terms,
        ledger=ledger,
        evidence=Evidence(
            before=before,
            control=None if control is None else prepare_control(control, masked, masked.original),
            earlier=read_earlier(earlier, masked.original),
        ),
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

    past = masked.original.past or as_recipe(() if recipe is None else recipe).past
    return Terms(
        method=_describe_method(masked),
        earlier=_titles(past),
        past=past,
        tell_kept=all(step.method == "recode" for step in past),
        recoded=tuple(dict.fromkeys(name for step in past for name in step.attributes)),
        drop=tuple(dict.fromkeys((*drop, *getattr(masked.spec, "dropped", ())))),
        **terms,
    )


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
