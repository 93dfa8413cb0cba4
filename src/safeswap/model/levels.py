"""The text by which a value is known in a schema, whatever its type in the file."""

from __future__ import annotations

import pyarrow as pa


def level_texts(levels: pa.Array) -> list[str]:
    """Each value as the text that stands for it in ``Attribute.levels``, ``labels`` and ``missing``.

    Text is itself. A whole number has no decimal point, also where the file holds it as a float, as SPSS does.

    >>> level_texts(pa.array([1.0, -2.5, float("nan")])), level_texts(pa.array(["1.0", "x"]))
    (['1', '-2.5', 'nan'], ['1.0', 'x'])
    >>> level_texts(pa.array([True, False])), level_texts(pa.array([7], type=pa.uint64()))
    (['true', 'false'], ['7'])
    """
    kind = levels.type
    if pa.types.is_dictionary(kind):
        return level_texts(levels.dictionary_decode())
    if pa.types.is_floating(kind):
        return [_number_text(value) for value in levels.to_pylist()]
    if pa.types.is_boolean(kind):
        return ["true" if value else "false" for value in levels.to_pylist()]
    return [_plain_text(value) for value in levels.to_pylist()]


def _number_text(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _plain_text(value: object) -> str:
    # Bytes have no text of their own; hexadecimal digits are one that cannot fail.
    return value.hex() if isinstance(value, bytes) else str(value)
