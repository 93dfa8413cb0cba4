"""Facts of a masking, of which some are found out only when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Facts(Mapping[str, Any]):
    """Facts by name. Those given as functions are computed once, when they are first looked at.

    >>> facts = Facts({"unmatched": 3}, diagnosis=lambda: ["drop Age"])
    >>> list(facts), facts["diagnosis"], dict(facts)
    (['unmatched', 'diagnosis'], ['drop Age'], {'unmatched': 3, 'diagnosis': ['drop Age']})
    """

    def __init__(self, known: Mapping[str, Any], **later: Callable[[], Any]) -> None:
        self._known = dict(known)
        self._later = later

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = self._later[name]()
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._known, **self._later})

    def __len__(self) -> int:
        return len({**self._known, **self._later})

    def __repr__(self) -> str:
        return f"<Facts: {', '.join(self)}>"
