"""Keywords that several verbs take: how columns are described, which engine counts, and the source of randomness.

A verb declares them as ``**options: Unpack[…]``; :func:`~safeswap.model.checked.check_types` fills in the defaults and
refuses a keyword that is not declared.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from safeswap.model.checked import Default
from safeswap.model.key import Key
from safeswap.model.schema import Kind, Schema


class ColumnOptions(TypedDict, total=False):
    """Options that describe the columns: a ``schema``, or corrections of single guesses."""

    schema: Annotated[Schema | str | os.PathLike[str] | None, Default(None)]
    identifier: Annotated[str | None, Default(None)]
    kinds: Annotated[Mapping[str, Kind | str] | None, Default(None)]
    missing: Annotated[Sequence[str], Default(())]
    name: Annotated[str | None, Default(None)]


class EngineOptions(TypedDict, total=False):
    """The engine that reads files larger than memory, and what it may use: ``spark`` is a session."""

    engine: Annotated[str, Default("memory")]
    memory_limit: Annotated[str, Default("1GB")]
    threads: Annotated[int | None, Default(None)]
    spark: Annotated[Any, Default(None)]


class Randomness(TypedDict, total=False):
    """A key, or an insecure seed for teaching and tests; and the number of the draw by it."""

    key: Annotated[Key | None, Default(None)]
    insecure_seed: Annotated[int | None, Default(None)]
    replicate: Annotated[int, Default(0)]
