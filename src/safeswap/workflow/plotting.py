"""The confidentiality plot: each record's perturbation against its neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from safeswap.errors import SpecError
from safeswap.model.checked import check_types
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.workflow.reading import read

if TYPE_CHECKING:
    from safeswap.measures.plot.values import ConfidentialityPlot


@check_types
def confidentiality(
    original: Any,
    released: Any = None,
    keys: str | Sequence[str] = (),
    *,
    linkage: Literal["auto", "distance", "fellegi_sunter", "frequency"] = "auto",
    archive: Any = None,
    population: Any = None,
    key: Key | None = None,
    only: Mapping[str, str] | None = None,
    **options: Any,
) -> ConfidentialityPlot:
    """Compare each record's perturbation with its neighbours: which records are unsafe, and which are linked.

    ``confidentiality(masked, keys=[…])`` or ``confidentiality(original, released, keys)``; files of different order or
    length are matched by identifier. Numeric keys are compared by distance (``alpha``, ``scale``, ``distance``,
    ``archive``, ``policy``), categorical ones counted (``population``, ``weight``, ``sampling_fraction``,
    ``importance``, ``k``); ``linkage="fellegi_sunter"`` takes both. ``key`` draws the pairs from which δ of a large
    file is estimated.

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
    others = {"archive": archive, "population": population}
    stated: dict[str, Any] = {name: read(source) for name, source in others.items() if source is not None}
    if key is not None:
        stated["secret"] = keyed.derive(key.secret, "confidentiality")
    return make_plot(before, after, keys, linkage=linkage, only=only, **stated, **options)


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
