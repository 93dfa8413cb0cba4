"""Convert a caller's arguments to values: a specification, a key."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from safeswap.errors import EngineError, SpecError
from safeswap.model.checked import check_types
from safeswap.model.key import Key
from safeswap.model.spec import MaskSpec
from safeswap.model.study import StudySpec


@check_types
def as_spec(spec: MaskSpec | Mapping[str, Any]) -> MaskSpec:
    """Make a specification from plain values; return a specification unchanged."""
    from safeswap import registry

    return spec if isinstance(spec, MaskSpec) else registry.make_spec(spec)


@check_types
def as_key(key: Key | None, insecure_seed: int | None) -> Key:
    """Return the only source of randomness that was given."""
    if key is not None and insecure_seed is not None:
        raise SpecError(
            "give a key or an insecure seed, not both",
            code="two-keys",
            hint="leave out insecure_seed= for a release; it is for teaching and tests only",
        )
    if key is None and insecure_seed is None:
        raise SpecError(
            "give a key",
            code="no-key",
            hint="key=Key.generate(), or read_key(path) of a file made by `safeswap keygen`; "
            "insecure_seed= is for teaching and tests only",
        )
    return key if key is not None else Key.insecure(seed=insecure_seed or 0)


@check_types
def check_in_memory(name: str) -> None:
    """Refuse an engine that does not work on data in memory."""
    if name == "memory":
        return
    from safeswap.on_disk.engines import ENGINES

    if name not in ENGINES:
        raise SpecError(
            f"there is no engine {name!r}", code="unknown-engine", hint="the engines are: " + ", ".join(ENGINES)
        )
    raise EngineError(
        f"the engine {name!r} works on Parquet files, not on data in memory",
        code="not-supported",
        hint=f'leave out engine=, or mask the file: safeswap.workflow.mask_file(…, engine="{name}")',
        engine=name,
        engines=["memory"],
    )


@check_types
def as_study_spec(
    spec: StudySpec | Mapping[str, Any] | str | PathLike[str] | None = None, **parameters: Any
) -> StudySpec:
    """Make the question of a study from plain values or a TOML file; return a StudySpec unchanged."""
    if spec is not None and parameters:
        raise SpecError("give a study specification or parameters, not both", code="bad-spec", hint="use one of them")
    if isinstance(spec, StudySpec):
        return spec
    if isinstance(spec, (str, PathLike)):
        from safeswap.projects.toml import read_study_spec

        return read_study_spec(spec)
    return StudySpec(**(parameters if spec is None else spec))


def as_replicate(replicate: Any) -> int:
    """Validate the number of a draw."""
    if isinstance(replicate, bool) or not isinstance(replicate, int) or replicate < 0:
        raise SpecError(
            "replicate is not a whole number from 0 on",
            code="bad-replicate",
            hint="give replicate=0, 1, 2, …: each is another draw by the same key",
        )
    return replicate
