"""Look for risk: unsafe combinations, identifying attributes, and the confidentiality plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack

from safeswap.errors import SpecError
from safeswap.measures.spec import choose_linkage
from safeswap.model.checked import Default, check_types
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Resolved, Scenario, as_scenario, describe_numbers, fill_in, resolve_files
from safeswap.workflow.masking import find_frame_type, read

if TYPE_CHECKING:
    from safeswap.measures.plot.values import ConfidentialityPlot
    from safeswap.measures.risk.risky import Risky
    from safeswap.measures.risk.suggest_keys import KeySuggestions


@check_types
def risky(
    data: Any, combinations: Any = None, *, scenario: Scenario | Mapping[str, Any] | None = None, **parameters: Any
) -> Risky:
    """Find every combination of keys that too few records share.

    ``combinations`` is a list of lists of names, a :class:`~safeswap.model.combination.Combinations`, or its values as
    a mapping. The ``parameters`` are those of Combinations: ``keys`` for every combination of up to all of them, or of
    at most ``up_to``, ``levels`` for ARGUS's identification levels; ``tolerance`` (unsafe: fewer) or ``threshold``
    (unsafe: that many or fewer); the meaning of a ``missing`` value ("none": matches nothing, "own": is a value,
    "any": could be any value of its record, "vouching": matches all and counts for others); ``weight`` to sum an
    attribute instead of counting records. Of a masking, the masked file is examined. A ``scenario`` states all this
    once; parameters given besides win over it.

    The result shows totals; ``to_frame`` returns them as dataframes of the caller's type, and for internal use also
    the unsafe values and the records behind them.

    >>> from safeswap import datasets
    >>> found = risky(datasets.cps8d(), keys=["Age", "Edu", "Race", "MS"])
    >>> found.by_dimension, found.to_frame("keys").column_names
    ({1: 0, 2: 0, 3: 0, 4: 2}, ['key', 'records', 'safe_without'])
    >>> risky(datasets.cps8d(), [("Age", "Sex"), ("Race",)], threshold=2).unsafe
    0
    """
    from safeswap.measures.risk.risky import find_under
    from safeswap.measures.risk.risky import risky as find
    from safeswap.model.combination import Combinations, as_combinations

    if scenario is not None:
        combinations, parameters = restate_scenario(as_scenario(scenario), combinations, parameters), {}
    if combinations is None:
        asked = Combinations(**parameters)
    elif not parameters:
        asked = as_combinations(combinations)
    elif isinstance(combinations, list | tuple):
        asked = Combinations(combinations=tuple(combinations), **parameters)
    else:
        kind = "mapping" if isinstance(combinations, Mapping) else "Combinations"
        raise SpecError(
            f"give a {kind} or parameters, not both",
            code="bad-spec",
            hint="a list of combinations may go with parameters",
        )
    source = read(data.data if isinstance(data, Masked) else data)
    if isinstance(asked, Scenario):
        resolved = resolve_files(asked, data.original if isinstance(data, Masked) else source, source)
        return replace(find_under(source, resolved), frame_type=find_frame_type(source))
    return replace(find(source, asked), frame_type=find_frame_type(source))


def restate_scenario(scenario: Scenario, combinations: Any, parameters: Mapping[str, Any]) -> Scenario:
    """Return the scenario with the parameters stated explicitly, and a name that says so."""
    stated = {**({} if combinations is None else {"combinations": combinations}), **parameters}
    if not stated:
        return scenario
    values = fill_in({**stated, "scenario": scenario})
    return Scenario(name=values.pop("scenario"), **values)


@check_types
def suggest_keys(data: Any, *, among: Sequence[str] | None = None, most: int = 10) -> KeySuggestions:
    """Rank attributes by how identifying they are, most identifying first: a start for a scenario. People decide.

    Each is ranked by what it adds to those before it. ``among`` names the attributes to look at, by default all except
    identifiers, weights, constants and text; at most ``most`` are ranked. Numbers are ranked in groups of about as many
    records each. Counts cannot say what an intruder may know: remove what nobody outside can know.

    >>> from safeswap import datasets
    >>> found = suggest_keys(datasets.cps8d(), most=2)
    >>> found[0].name, found[0].levels, found[1].added >= 0
    ('Edu', 5, True)
    """
    from safeswap.measures.risk.suggest_keys import rank_keys

    return rank_keys(read(data.data if isinstance(data, Masked) else data), among=among, most=most)


class PlotOptions(TypedDict, total=False):
    """Options for linking records in a confidentiality plot; each linkage refuses those that mean nothing to it."""

    linkage: Annotated[Literal["auto", "distance", "fellegi_sunter", "frequency"], Default("auto")]
    archive: Annotated[Any, Default(None)]
    population: Annotated[Any, Default(None)]
    alpha: Any
    scale: Any
    distance: Any
    policy: Any
    largest_units: Any
    exact_up_to: Any
    densities: Any
    training: Any
    levels: Any
    weight: Any
    sampling_fraction: Any
    importance: Any
    k: Any
    numbers_as_levels: Any


@check_types
def confidentiality(
    original: Any,
    released: Any = None,
    keys: str | Sequence[str] = (),
    *,
    key: Key | None = None,
    only: Mapping[str, str] | None = None,
    scenario: Scenario | Mapping[str, Any] | None = None,
    **options: Unpack[PlotOptions],
) -> ConfidentialityPlot:
    """Compare each record's perturbation with its neighbours: which records are unsafe, and which are linked.

    ``confidentiality(masked, keys=[…])`` or ``confidentiality(original, released, keys)``; files of different order or
    length are matched by identifier. Numeric keys are compared by distance (``alpha``, ``scale``, ``distance``,
    ``archive``, ``policy``), categorical ones counted (``population``, ``weight``, ``sampling_fraction``,
    ``importance``, ``k``); ``linkage="fellegi_sunter"`` takes both. ``key`` draws the pairs from which δ of a large
    file is estimated. A ``scenario`` states the keys and, for keys that are counted, weight, population and ``k``; what
    is stated besides wins over it. Numbers among categories are then counted, each value a level.

    >>> from safeswap import datasets, mask
    >>> data = datasets.synthetic_enterprises()
    >>> masked = mask(data, {"method": "rank_swap", "attributes": ["turnover", "employees"]}, insecure_seed=1)
    >>> plot = confidentiality(masked, keys=["turnover", "employees"], only={"division": "18"})
    >>> len(plot), int(plot.unsafe.sum()) > 0
    (157, True)
    """
    from safeswap.arrays import keyed
    from safeswap.measures.plot.plots import make_plot

    before, after = two_files(original, released)
    linkage = options["linkage"]
    stated: dict[str, Any] = {name: value for name, value in options.items() if value is not None and name != "linkage"}
    stated |= {name: read(stated[name]) for name in ("archive", "population") if name in stated}
    if key is not None:
        stated["secret"] = keyed.derive(key.secret, "confidentiality")
    if scenario is None:
        return make_plot(before, after, keys, linkage=linkage, only=only, **stated)
    as_scenario(scenario).require_persons("a confidentiality plot")
    resolved = resolve_files(as_scenario(scenario), before, after)
    own, how = _read_scenario(resolved, before, linkage, {"keys": keys, **stated})
    plot = make_plot(before, after, **{"only": only, **how})
    notes = [resolved.note if "keys" not in own else ""]
    notes += [describe_numbers(after, resolved.numeric)] if plot.kind == "categorical" and "keys" not in own else []
    notes += [f"Set for this plot instead of by the scenario: {', '.join(own)}."] if own else []
    told = {**plot.settings, "scenario": resolved.scenario.name}
    return replace(plot, settings=told, notes=(*plot.notes, *(note for note in notes if note)))


def _read_scenario(
    resolved: Resolved, before: Microdata, linkage: str, stated: Mapping[str, Any]
) -> tuple[list[str], dict[str, Any]]:
    """Return which parameters of the scenario were stated otherwise, and all parameters of the plot."""
    scenario = resolved.scenario
    given = {name: value for name, value in stated.items() if value is not None and not (name == "keys" and not value)}
    if not resolved.keys and "keys" not in given:
        raise SpecError(resolved.note.rstrip("."), code="no-keys", hint="there is nothing to plot: the risk is 0")
    supplied: dict[str, Any] = {"keys": resolved.keys}
    if linkage == "auto" and "keys" not in given:
        linkage = choose_linkage(resolved)
    if linkage == "frequency":
        frequency: dict[str, Any] = {"weight": scenario.weight} if scenario.weight else {}
        if not frequency and scenario.population is not None:
            frequency = {"sampling_fraction": scenario.sampling_fraction(before)}
        sources = ("population", "weight", "sampling_fraction")
        supplied |= frequency if not any(name in given for name in sources) else {}
        supplied |= {"k": float(scenario.default_tolerance), "numbers_as_levels": True}
    own = [name for name, value in supplied.items() if name in given and given[name] != value]
    return own, {**supplied, **given, "linkage": linkage}


def two_files(original: Any, released: Any) -> tuple[Microdata, Microdata]:
    """Return the original and the released file, from a masking or from both."""
    if isinstance(original, Masked):
        return original.original, original.data
    if released is None:
        raise SpecError(
            "there is nothing to compare with",
            code="nothing-to-compare",
            hint="give a masked result, or the original and the released file",
        )
    return read(original), released.data if isinstance(released, Masked) else read(released)
