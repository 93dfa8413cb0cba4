"""What in a file gives reason to look twice, in plain words and without a value of it."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

from safeswap.io.description import AttributeSummary, shown
from safeswap.io.infer import MISSING_MARKS
from safeswap.model.levels import level_texts
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind

_FEW_RECORDS = 20
_MANY_LEVELS = 10_000  # above that, spelling is not looked into
_INDEX = re.compile(r"__index_level_\d+__|Unnamed: \d+")


def cautions(data: Microdata, summaries: Sequence[AttributeSummary]) -> tuple[str, ...]:
    """The warnings for a file, those about the whole of it first.

    >>> import pyarrow as pa
    >>> from safeswap.io.describe import describe
    >>> from safeswap.io.read import read
    >>> data = read(pa.table({"id": ["1", "2"], "Sex": ["M", "m"], "Year": ["x", "x"]}), kinds={"Sex": "nominal"})
    >>> for warning in describe(data, tolerance=1).warnings:
    ...     print(warning)
    The kinds of 2 attributes are guesses (id, Year): check them.
    Sex: 1 group of levels differs in case, spaces or accents only; they may be meant to be the same.
    Year: every record has the same value; swapping it changes nothing.
    """
    found = [*_of_the_file(data)]
    for attribute, summary in zip(data.schema.attributes, summaries, strict=True):
        found += [f"{shown(attribute.name)}: {text}" for text in _of_attribute(data, attribute, summary)]
    return tuple(found)


def _of_the_file(data: Microdata) -> Iterator[str]:
    guessed = [shown(a.name) for a in data.schema.attributes if a.inferred]
    if guessed:
        names = ", ".join(guessed[:10]) + (", …" if len(guessed) > 10 else "")
        if len(guessed) == 1:
            yield f"The kind of one attribute is a guess ({names}): check it."
        else:
            yield f"The kinds of {len(guessed):,} attributes are guesses ({names}): check them."
    if data.schema.identifier is None:
        yield "There is no identifier: records are known by their position, so keep the row order of the file."
    if not data.schema.categorical:
        yield "No attribute is categorical."


def _of_attribute(data: Microdata, attribute: Attribute, summary: AttributeSummary) -> Iterator[str]:
    if _INDEX.fullmatch(attribute.name):
        yield "this looks like the index of a dataframe, written along with it."
    if summary.distinct == 0:
        yield "every value is missing."
    elif summary.distinct == 1 and not summary.missing and len(data) > 1:
        yield "every record has the same value; swapping it changes nothing."
    if attribute.kind.is_categorical:
        yield from _of_levels(data, attribute, summary)


def _of_levels(data: Microdata, attribute: Attribute, summary: AttributeSummary) -> Iterator[str]:
    if len(data) >= _FEW_RECORDS and 2 * summary.distinct > len(data):
        yield "most values occur once or twice; this is hardly a category (an identifier, a number, free text?)."
    if attribute.kind is Kind.ORDINAL and not attribute.levels:
        yield "it is ordinal, but the order of its levels is not stated."
    if summary.distinct > _MANY_LEVELS:
        return
    texts = level_texts(data.coded(attribute.name).levels)
    alike = Counter(_folded(text) for text in texts)
    if groups := sum(number > 1 for number in alike.values()):
        verb = "group of levels differs" if groups == 1 else "groups of levels differ"
        yield f"{groups:,} {verb} in case, spaces or accents only; they may be meant to be the same."
    if "" in texts and summary.missing:
        yield "some values are missing and some are empty texts."
    if marks := sum(text in MISSING_MARKS and text not in ("", *attribute.missing) for text in texts):
        yield f"{marks:,} level{'s look' if marks > 1 else ' looks'} like a mark for missing values; declare it if so."
    if unused := len(set(attribute.levels) - set(texts)):
        yield f"{unused:,} of the levels stated in the schema never occur{'s' if unused == 1 else ''}."


def _folded(text: str) -> str:
    """A text without what people take for the same: case, spaces around, accents and forms of letters."""
    bare = unicodedata.normalize("NFKD", text)
    return "".join(c for c in bare if not unicodedata.combining(c)).casefold().strip()
