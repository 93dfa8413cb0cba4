"""Find combinations of keys that too few records share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safeswap.errors import SpecError
from safeswap.model.checked import check_types
from safeswap.model.masked import Masked
from safeswap.model.scenario import Scenario, as_scenario, fill_in, resolve_files
from safeswap.workflow.reading import _frame_type, read

if TYPE_CHECKING:
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
        return replace(find_under(source, resolved), frame_type=_frame_type(source))
    return replace(find(source, asked), frame_type=_frame_type(source))


def restate_scenario(scenario: Scenario, combinations: Any, parameters: Mapping[str, Any]) -> Scenario:
    """Return the scenario with what was stated besides, and a name that says so."""
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
    records each. What an intruder may know is no matter of counts: strike out what nobody outside knows.

    >>> from safeswap import datasets
    >>> found = suggest_keys(datasets.cps8d(), most=2)
    >>> found[0].name, found[0].levels, found[1].added >= 0
    ('Edu', 5, True)
    """
    from safeswap.measures.risk.suggest_keys import rank_keys

    return rank_keys(read(data.data if isinstance(data, Masked) else data), among=among, most=most)
