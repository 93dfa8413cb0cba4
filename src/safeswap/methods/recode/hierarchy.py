"""Trees of codes: each code has a coarser parent, up to the coarsest. Levels count from the finest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from pydantic import ConfigDict, Field, model_validator

from safeswap.errors import SpecError
from safeswap.model.spec import Stated
from safeswap.model.text import plural

_Parents = dict[str, str]


class Hierarchy(Stated):
    """A tree of codes as maps from fine to coarse; codes that a map does not name are unchanged.

    >>> tree = Hierarchy.from_parents({"Delft": "South", "Leiden": "South", "South": "Holland", "North": "Holland"})
    >>> tree.depth, tree.at("Delft", level=1), tree.at("Delft", level=2), tree.at("North", level=1)
    (2, 'South', 'Holland', 'North')
    """

    called: ClassVar[str] = "the hierarchy"

    model_config = ConfigDict(coerce_numbers_to_str=True)

    steps: tuple[_Parents, ...] = Field(min_length=1, description="from fine to coarse, the parent of each code")

    @model_validator(mode="after")
    def _check_tree(self) -> Hierarchy:
        # A code may pass through several maps unchanged. A code that changes and then returns is in a cycle.
        for step in self.steps:
            for code, parent in step.items():
                if parent != code and step.get(parent, parent) != parent:
                    raise ValueError("a code and its parent are in the same level of a hierarchy")
        for code in self.steps[0]:
            path = [code]
            for step in self.steps:
                if (above := step.get(path[-1], path[-1])) != path[-1]:
                    if above in path:
                        raise ValueError("a hierarchy has a cycle: a code is above itself")
                    path.append(above)
        return self

    @property
    def depth(self) -> int:
        """Number of steps from the finest codes to the coarsest."""
        return len(self.steps)

    def at(self, code: str, *, level: int) -> str:
        """Return the code ``level`` levels up."""
        for step in self.steps[:level]:
            code = step.get(code, code)
        return code

    @property
    def codes(self) -> tuple[str, ...]:
        """Return every code, finest first, each level in the order stated."""
        found = [code for step in self.steps for code in step]
        return tuple(dict.fromkeys([*found, *self.steps[-1].values()]))

    @classmethod
    def from_parents(cls, parents: Mapping[str, str]) -> Hierarchy:
        """Build a hierarchy from a map of each code to its parent; codes without a parent are the coarsest.

        Branches may differ in depth: above the top of a short branch, its code is unchanged.
        """
        depths: dict[str, int] = {}
        for code in parents:
            path = [code]
            while path[-1] in parents:
                path.append(parents[path[-1]])
                if path[-1] in path[:-1]:
                    raise SpecError(
                        "the hierarchy has a cycle: a code is above itself",
                        code="hierarchy-cycle",
                        hint="give each code a coarser one, and the coarsest none",
                        length=len(path) - 1 - path.index(path[-1]),
                    )
            depths |= {each: len(path) - 1 - i for i, each in enumerate(path)}
        most = max(depths.values(), default=0)
        if not most:
            raise SpecError("the hierarchy is empty", code="hierarchy-empty", hint="give each code its parent")
        return cls(
            steps=tuple(
                {code: parents[code] for code, depth in depths.items() if depth == wanted}
                for wanted in range(most, 0, -1)
            )
        )

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[str]]) -> Hierarchy:
        """Build a hierarchy from rows of codes, each with the finest code first and the coarsest last.

        >>> Hierarchy.from_rows([("Delft", "South", "NL"), ("Haarlem", "North", "NL")]).at("Haarlem", level=2)
        'NL'
        """
        lines = [tuple(row) for row in rows]
        width = len(lines[0]) if lines else 0
        if width < 2:
            raise SpecError(
                "a hierarchy needs at least two levels", code="hierarchy-empty", hint="give codes and their parents"
            )
        steps: list[_Parents] = [{} for _ in range(width - 1)]
        for number, line in enumerate(lines, start=1):
            if len(line) != width:
                raise SpecError(
                    f"line {number} of the hierarchy has {plural(len(line), 'level')}, the first one {width}",
                    code="hierarchy-uneven",
                    hint="repeat the code where a branch has fewer levels",
                    line=number,
                )
            for step, code, parent in zip(steps, line, line[1:], strict=False):
                if step.setdefault(code, parent) != parent:
                    raise SpecError(
                        f"line {number} gives a code a different parent than an earlier line",
                        code="hierarchy-overlap",
                        hint="each code must belong to exactly one coarser code",
                        line=number,
                    )
        return cls(steps=tuple(steps))
