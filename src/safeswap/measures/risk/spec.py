"""The parameters of the risk of a file: its keys, and what is measured by them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidationError

from safeswap.arrays.names import Names
from safeswap.model.combination import Missing
from safeswap.model.spec import Strict, spec_error
from safeswap.model.text import RiskModel


class RiskSpec(Strict):
    """How easily records can be singled out: the parameters of ``file_risk`` and ``write_record_risks``.

    >>> RiskSpec(keys=("Age", "Sex"), k=5).k
    5
    """

    keys: Annotated[Names, Field(description="attributes that an intruder may know")]
    sensitive: Annotated[str | None, Field(description="sensitive attribute to protect (l-diversity)")] = None
    weight: Annotated[str | None, Field(description="survey weight; if omitted, the file is the population")] = None
    model: Annotated[
        RiskModel, Field(description="with a weight: expected 1/F given the sample, or 1 / sum of weights")
    ] = "franconi-polettini"
    k: Annotated[int, Field(ge=2, description="smallest number of records that must share their keys")] = 3
    l: Annotated[float, Field(description="smallest acceptable diversity of the sensitive attribute")] = 2  # noqa: E741
    max_size: Annotated[
        int, Field(ge=1, le=62, description="search for records that are unique on up to this many keys")
    ] = 3
    sampling_fraction: Annotated[float, Field(description="sampling fraction of the file, for the DIS scores")] = 0.01
    missing: Annotated[
        Missing | None,
        Field(
            description="missing keys: count a record by the keys that it has (none, any), treat missing as a value "
            "(own), or let it match everything both ways (vouching)"
        ),
    ] = None

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise spec_error("risk", error) from None

    def only(self, *names: str) -> dict[str, Any]:
        """Return some parameters, as keyword arguments; without those that are not set."""
        return {name: value for name in names if (value := getattr(self, name)) is not None}
