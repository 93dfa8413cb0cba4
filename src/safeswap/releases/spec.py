"""The settings of a release."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from safeswap.model.spec import Strict


class ReleaseSpec(Strict):
    """Settings of a release: its files, and what is published about it.

    >>> ReleaseSpec(title="Survey 2026").identifiers
    'new'
    """

    data_format: Annotated[Literal["csv", "parquet", "dta", "sav"], Field(description="file format of the data")] = (
        "csv"
    )
    identifiers: Annotated[Literal["new", "none"], Field(description="assign new record numbers, or none")] = "new"
    drop: Annotated[tuple[str, ...], Field(description="columns to omit")] = ()
    two_files: Annotated[bool, Field(description="publish a file of households and a file of persons")] = False
    title: Annotated[str, Field(description="title of the data set")] = ""
    date: Annotated[str, Field(description="date of the release")] = ""
    publish_rate: Annotated[bool, Field(description="publish the share of records that took part")] = False
    publish_errors: Annotated[
        str,
        Field(description="publish the factor by which masking enlarges the standard errors of these key indicators"),
    ] = ""
    second_release: Annotated[str, Field(description="reason for releasing records that were released before")] = ""
    attack: Annotated[
        Literal["quick", "full"], Field(description="attacks to try before the release: the quick ones, or all")
    ] = "quick"
    override: Annotated[str, Field(description="reason for releasing although an attack exceeds the policy")] = ""
    unmasked: Annotated[bool, Field(description="release the data although nothing was masked; the report says so")] = (
        False
    )
