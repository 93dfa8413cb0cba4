"""The verbs: read → describe → plan → mask → assess → release, one function each.

The command line, and every other surface, calls these and nothing below them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from safeswap.errors import SpecError
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.plan import Plan
from safeswap.model.score import Assessment, Comparison
from safeswap.model.spec import MaskSpec, SwapSpec

if TYPE_CHECKING:
    from safeswap.engines.base import Engine

DEFAULT_MEASURES = ("n_rule", "hellinger", "total_variation", "entropy_change", "adV", "adC", "share_changed")


def read(source: Any, **options: Any) -> Microdata:
    """Read a file or take a dataframe. See :func:`safeswap.io.read.read` for the options.

    >>> import pyarrow as pa
    >>> read(pa.table({"id": [1, 2], "Sex": ["m", "f"]}), identifier="id")
    <Microdata: 2 records × 2 attributes: id, Sex>
    """
    from safeswap.io.read import read as read_source

    return source if isinstance(source, Microdata) and not options else read_source(source, **options)


def describe(data: Any, *, tolerance: int = 3) -> Any:
    """Attributes, levels and small cells of a file; no record.

    >>> from safeswap import datasets
    >>> describe(datasets.cps8d()).records
    48842
    """
    from safeswap.io.describe import describe as describe_data

    return describe_data(read(data), tolerance=tolerance)


def plan(data: Any, spec: MaskSpec | Mapping[str, Any], *, engine: str = "memory") -> Plan:
    """What a specification would do to these data, and whether it can: from counts alone.

    >>> from safeswap import datasets
    >>> plan(datasets.cps8d(), SwapSpec(swap=["Race"], rate=0.5)).sentence
    '12,210 pairs asked for, at most 7,080 feasible; Race binds'
    """
    from safeswap import registry

    spec = as_spec(spec)
    return registry.method(spec.method).plan(read(data), spec, engine=find_engine(engine))


def mask(
    data: Any,
    spec: MaskSpec | Mapping[str, Any],
    *,
    key: Key | None = None,
    insecure_seed: int | None = None,
    replicate: int = 0,
    engine: str = "memory",
) -> Masked:
    """Mask the data by any registered method.

    Randomness comes from ``key``. ``insecure_seed`` is for teaching and tests: its result cannot be released.

    >>> from safeswap import datasets
    >>> mask(datasets.cps8d(), {"method": "swap", "swap": ["Race"], "rate": 0.05}, insecure_seed=1)
    <Masked by swap: 48,842 records, 1,221 pairs exchanged, NOT FOR RELEASE (insecure seed)>
    """
    from safeswap import registry

    spec = as_spec(spec)
    secret = as_key(key, insecure_seed)
    method = registry.method(spec.method)
    return method.apply(read(data), spec, key=secret, engine=find_engine(engine), replicate=replicate)


def swap(
    data: Any,
    spec: SwapSpec | None = None,
    *,
    key: Key | None = None,
    insecure_seed: int | None = None,
    replicate: int = 0,
    engine: str = "memory",
    **parameters: Any,
) -> Masked:
    """Swap: give a :class:`SwapSpec`, or its parameters.

    >>> from safeswap import datasets, Key
    >>> swap(datasets.cps8d(), swap=["Race"], rate=0.05, key=Key.generate())
    <Masked by swap: 48,842 records, 1,221 pairs exchanged>
    """
    if spec is not None and parameters:
        raise SpecError("give a specification or parameters, not both", code="bad-spec", hint="use spec.replace(...)")
    spec = SwapSpec(**parameters) if spec is None else spec
    return mask(data, spec, key=key, insecure_seed=insecure_seed, replicate=replicate, engine=engine)


def assess(
    before: Any,
    after: Any = None,
    *,
    measures: Sequence[str] = DEFAULT_MEASURES,
    attributes: Sequence[str] | None = None,
) -> Assessment:
    """Measure risk and distortion of a masked file: ``assess(masked)``, or ``assess(original, released)``.

    Cells are formed from ``attributes``, by default from all categorical ones. Two files are compared row by row; what
    changed between them counts as touched.

    >>> from safeswap import datasets
    >>> masked = swap(datasets.cps8d(), swap=["Race"], rate=0.05, insecure_seed=1)
    >>> [score.measure for score in assess(masked, measures=["n_rule", "hellinger"])]
    ['n_rule', 'hellinger']
    """
    from safeswap import registry

    comparison = compare(before, after, attributes=attributes)
    chosen = [registry.measure(name) for name in measures]
    return Assessment(scores=tuple(measure.score(comparison) for measure in chosen))


def compare(before: Any, after: Any = None, *, attributes: Sequence[str] | None = None) -> Comparison:
    """Put a file and its masked version side by side, as measures look at them."""
    import numpy as np

    if isinstance(after, Masked):
        before = after
    if isinstance(before, Masked):
        original, data, touched = before.original, before.data, before.audit.touched()
    else:
        if after is None:
            raise SpecError(
                "there is nothing to compare with",
                code="nothing-to-compare",
                hint="assess(masked), or assess(original, released)",
            )
        original, data = read(before), read(after)
        _check_alike(original, data)
        touched = np.zeros(len(original), dtype=np.bool_)
        for name in original.attributes:
            if name in data.schema:
                touched |= changed_rows(original, data, name)
    chosen = tuple(attributes) if attributes is not None else original.schema.categorical
    for name in chosen:
        original.schema[name]
    return Comparison(before=original, after=data, attributes=chosen, touched=touched)


def as_spec(spec: MaskSpec | Mapping[str, Any]) -> MaskSpec:
    """A specification from plain values, or itself."""
    from safeswap import registry

    return spec if isinstance(spec, MaskSpec) else registry.make_spec(spec)


def as_key(key: Key | None, insecure_seed: int | None) -> Key:
    """The one source of randomness that was stated."""
    if (key is None) == (insecure_seed is None):
        raise SpecError(
            "give a key",
            code="no-key",
            hint="key=Key.generate(), or read_key(path) of a file made by `safeswap keygen`; "
            "insecure_seed= is for teaching and tests only",
        )
    return key if key is not None else Key.insecure(seed=insecure_seed or 0)


def find_engine(name: str) -> Engine:
    """The engine of that name."""
    if name != "memory":
        raise SpecError(f"there is no engine {name!r}", code="unknown-engine", hint="the engines are: memory")
    from safeswap.engines.memory import MemoryEngine

    return MemoryEngine()
