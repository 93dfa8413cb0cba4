"""Find methods and measures by name, both built-in ones and those of plug-ins.

A plug-in is any installed package that declares an entry point in the group ``safeswap.methods`` or
``safeswap.measures``: the name of the method or measure, and its class. Built-ins are declared here in the same form
and loaded by the same code, on first use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

from safeswap.errors import EngineError, SpecError

if TYPE_CHECKING:
    from safeswap.measures.base import Measure, Situation
    from safeswap.methods.base import Method
    from safeswap.model.spec import MaskSpec

METHODS = "safeswap.methods"
MEASURES = "safeswap.measures"

_PIPELINE = "pipeline"
"""Several methods one after the other: found by name like a method, but not one of them."""

_BUILT_IN = {
    METHODS: {
        "swap": "safeswap.methods.swap:Swap",
        "swap_permutation": "safeswap.methods.swap_permutation:SwapPermutation",
        "edit_1990": "safeswap.methods.edit_1990.method:Edit1990",
        "edit_targeted": "safeswap.methods.edit_targeted.method:EditTargeted",
        "household_swap": "safeswap.methods.household_swap.method:HouseholdSwap",
        "rank_swap": "safeswap.methods.numeric.rank_swap:RankSwap",
        "noise": "safeswap.methods.numeric.noise:Noise",
        "microaggregation": "safeswap.methods.numeric.microaggregation:Microaggregation",
        "top_bottom": "safeswap.methods.numeric.top_bottom:TopBottom",
        "pram": "safeswap.methods.numeric.pram:Pram",
        "recode": "safeswap.methods.recode.method:RecodeMethod",
        "suppress": "safeswap.methods.suppress.method:Suppress",
        "safe": "safeswap.methods.safe.records.method:Safe",
    },
    MEASURES: {
        "hellinger": "safeswap.measures.utility.categories:Hellinger",
        "total_variation": "safeswap.measures.utility.categories:TotalVariation",
        "entropy_change": "safeswap.measures.utility.categories:EntropyChange",
        "adV": "safeswap.measures.utility.categories:CramersVChange",
        "adC": "safeswap.measures.utility.categories:ContingencyCChange",
        "D": "safeswap.measures.utility.categories:Dissimilarity",
        "ordinal": "safeswap.measures.utility.information:OrdinalDisplacement",
        "share_changed": "safeswap.measures.utility.categories:ShareChanged",
        "information_loss": "safeswap.measures.utility.information:InformationLoss",
        "percentage_bias": "safeswap.measures.utility.bias:PercentageBias",
        "mean_change": "safeswap.measures.utility.numbers:MeanChange",
        "deviation_change": "safeswap.measures.utility.numbers:DeviationChange",
        "correlation_change": "safeswap.measures.utility.numbers:CorrelationChange",
        "pmse": "safeswap.measures.utility.pmse:Pmse",
        "ci_overlap": "safeswap.measures.utility.models:CiOverlap",
        "coefficients": "safeswap.measures.utility.models:Coefficients",
        "il1s": "safeswap.measures.utility.numbers:Il1s",
        "eigen": "safeswap.measures.utility.numbers:Eigen",
        "correlations": "safeswap.measures.utility.numbers:Correlations",
        "indicators": "safeswap.measures.utility.indicators:Indicators",
        "weighted_margins": "safeswap.measures.utility.weighted_tables:WeightedMargins",
        "restricted_hellinger": "safeswap.measures.utility.weighted_tables:RestrictedHellinger",
        "n_rule": "safeswap.measures.risk.n_rule:NRule",
        "replay": "safeswap.attacks.replay:Replay",
        "best_attack": "safeswap.attacks.run:BestAttack",
        "unsafe_share": "safeswap.measures.risk.plot_shares:UnsafeShare",
        "correct_links": "safeswap.measures.risk.plot_shares:CorrectLinks",
        "k_anonymity": "safeswap.measures.risk.key_measures:KAnonymity",
        "l_diversity": "safeswap.measures.risk.key_measures:LDiversity",
        "t_closeness": "safeswap.measures.risk.key_measures:TCloseness",
        "population_risk": "safeswap.measures.risk.population_risk:PopulationRisk",
        "individual_risk": "safeswap.measures.risk.individual_risk:IndividualRisk",
        "suda2": "safeswap.measures.risk.suda2:Suda2",
    },
}


class Usual(NamedTuple):
    """The properties that make a measure a default: its axis, its situations, and whether cell counts suffice."""

    axis: str
    situations: frozenset[str]
    by_counts: bool


# What the built-in defaults declare of themselves, so that asking for them loads no measure. A test compares.
_CATEGORIES = frozenset({"categories"})
_STUDIED = frozenset({"categories", "study"})
_NUMBERS = frozenset({"numbers"})
_USUAL = {
    "hellinger": Usual("distortion", _STUDIED, by_counts=True),
    "total_variation": Usual("distortion", _STUDIED, by_counts=True),
    "entropy_change": Usual("distortion", _STUDIED, by_counts=True),
    "adV": Usual("distortion", _CATEGORIES, by_counts=False),
    "adC": Usual("distortion", _CATEGORIES, by_counts=False),
    "share_changed": Usual("distortion", _CATEGORIES | _NUMBERS, by_counts=False),
    "information_loss": Usual("distortion", frozenset({"recoding"}), by_counts=False),
    "mean_change": Usual("distortion", _NUMBERS, by_counts=False),
    "deviation_change": Usual("distortion", _NUMBERS, by_counts=False),
    "correlation_change": Usual("distortion", _NUMBERS, by_counts=False),
    "n_rule": Usual("risk", _STUDIED, by_counts=True),
    "correct_links": Usual("risk", _NUMBERS, by_counts=False),
}
_LONG_NAMES = {"cramers_v": "adV", "contingency_c": "adC", "dissimilarity": "D"}


def method_names() -> tuple[str, ...]:
    """Return the names of all methods without loading any.

    >>> "swap" in method_names()
    True
    """
    return tuple(_list_entry_points(METHODS))


def measure_names() -> tuple[str, ...]:
    """Return the names of all measures without loading any.

    >>> measure_names()[:2]
    ('hellinger', 'total_variation')
    """
    return tuple(_list_entry_points(MEASURES))


def has_plug_ins() -> bool:
    """Return whether another package brings a method or a measure.

    >>> has_plug_ins()
    False
    """
    return any(_find_installed(group) for group in _BUILT_IN)


def methods() -> dict[str, Method]:
    """Load all methods, by name.

    >>> methods()["swap"].name
    'swap'
    """
    return {name: method(name) for name in method_names()}


def measures() -> dict[str, Measure]:
    """Load all measures with their default parameters, by name.

    >>> measures()["n_rule"].parameters["n"]
    3
    """
    return {name: measure(name) for name in measure_names()}


def method(name: str) -> Method:
    """Load the method of that name.

    >>> method("swap").spec_type.__name__
    'SwapSpec'
    """
    entry = EntryPoint(name, "safeswap.pipelines.method:PipelineMethod", METHODS) if name == _PIPELINE else None
    from safeswap.methods.by_household import treat_households

    found: Method = treat_households(_load(entry or _find(METHODS, name, "method"), {}))
    return found


def measure(text: str | Measure, **parameters: Any) -> Measure:
    """Load the measure of that name, with parameters given here or in the text.

    >>> measure("n_rule:n=5,keys=Age+Sex") == measure("n_rule", n=5, keys=("Age", "Sex"))
    True
    >>> measure("cramers_v").name
    'adV'
    """
    if not isinstance(text, str):
        return text
    name, colon, rest = text.strip().partition(":")
    stated = _parse_parameters(name, rest) if colon else {}
    found: Measure = _load(_find(MEASURES, _LONG_NAMES.get(name, name), "measure"), {**stated, **parameters})
    return found


def default_measures(*situations: Situation, axis: str | None = None, by_counts: bool = False) -> tuple[str, ...]:
    """Return the names of the default measures, risk first, for all surfaces.

    ``axis`` keeps those of one axis; ``by_counts`` keeps those that need only cell counts, as for large files.

    >>> default_measures("study")
    ('n_rule', 'hellinger', 'total_variation', 'entropy_change')
    >>> default_measures("numbers", axis="risk")
    ('correct_links',)
    """
    usual = {name: _find_usual(name) for name in measure_names()}
    kept = [
        name
        for name, each in usual.items()
        if each.situations.intersection(situations) and axis in (None, each.axis) and (each.by_counts or not by_counts)
    ]
    return tuple(sorted(kept, key=lambda name: usual[name].axis != "risk"))


def _find_usual(name: str) -> Usual:
    """Return what a measure declares; only a plug-in is loaded for it."""
    if name in _BUILT_IN[MEASURES]:
        return _USUAL.get(name, Usual("", frozenset(), by_counts=False))
    from safeswap.measures.base import default_situations, largest_small

    found = measure(name)
    return Usual(found.axis.value, default_situations(found), largest_small([found]) is not None)


def make_spec(values: Mapping[str, Any]) -> MaskSpec:
    """Make a specification from plain values, as ``MaskSpec.as_dict`` returns them.

    >>> make_spec({"method": "swap", "swap": ["Race"], "rate": 0.05}).rate
    0.05
    """
    name = values.get("method")
    if not isinstance(name, str):
        raise SpecError(
            "a specification must name its method",
            code="bad-spec",
            hint="add method = one of: " + ", ".join(method_names()),
        )
    return method(name).spec_type(**{str(key): value for key, value in values.items() if key != "method"})


def _list_entry_points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points by name: built-ins, then plug-ins. A name can be declared only once."""
    found = {name: EntryPoint(name, value, group) for name, value in _BUILT_IN[group].items()}
    for entry in _find_installed(group):
        if found.get(entry.name, entry).value != entry.value:
            raise EngineError(
                f"two packages provide {entry.name!r} ({found[entry.name].value} and {entry.value})",
                code="name-taken-twice",
                hint="remove one of them, or ask its author for another name",
                group=group,
                name=entry.name,
            )
        found[entry.name] = entry
    return found


@cache
def _find_installed(group: str) -> Iterable[EntryPoint]:
    # Reading the metadata of every installed package takes milliseconds; it does not change while we run.
    return tuple(sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)))


def _find(group: str, name: str, what: str) -> EntryPoint:
    declared = _list_entry_points(group)
    if name in declared:
        return declared[name]
    known = [*declared, *(_LONG_NAMES if group == MEASURES else ())]
    lower = {candidate.lower(): candidate for candidate in known}
    close = [lower[match] for match in get_close_matches(name.lower(), lower, n=3)]
    raise SpecError(
        f"there is no {what} {name!r}",
        code=f"unknown-{what}",
        hint=f"did you mean {' or '.join(close)}?" if close else f"the {what}s are: " + ", ".join(declared),
        name=name,
        close=close,
    )


def _load(entry: EntryPoint, parameters: dict[str, Any]) -> Any:
    try:
        loaded = entry.load()
    except (ImportError, AttributeError) as error:
        raise EngineError(
            f"{entry.name!r} cannot be loaded from {entry.value}",
            code="plug-in-broken",
            hint="reinstall the package that provides it, or remove it",
            reason=type(error).__name__,
        ) from error
    if parameters and not isinstance(loaded, type):
        raise SpecError(f"{entry.name!r} takes no parameters", code="bad-spec", hint="give its name alone")
    made = loaded(**parameters) if isinstance(loaded, type) else loaded
    if getattr(made, "name", None) != entry.name:
        raise EngineError(
            f"{entry.value} was declared as {entry.name!r} but has a different name",
            code="plug-in-broken",
            hint="the name in the entry point and the name in the class must agree",
        )
    return made


def _parse_parameters(name: str, text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            values = json.loads(text)
        except ValueError:
            values = None
        if isinstance(values, dict):
            return values
        raise _bad_text(name)
    pairs = [part.partition("=") for part in text.split(",")]
    keys = [key.strip() for key, _, _ in pairs]
    if not all(equals and key.strip() for key, equals, _ in pairs) or len(set(keys)) != len(keys):
        raise _bad_text(name)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _bad_text(name: str) -> SpecError:
    return SpecError(
        f"the parameters of measure {name!r} cannot be read",
        code="bad-spec",
        hint=f"write them as {name}:parameter=value,other=value, names joined by +, or as JSON after the colon",
    )
