"""TOML files that people wrote: what is wrong is told by its place, and never by quoting the file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safeswap.errors import InputError
from safeswap.io.sources import unreadable

_AT_LINE = re.compile(r"\(at line (\d+), column (\d+)\)")


def parsed_toml(file: Path, *, what: str, largest: int, bad: Callable[..., InputError]) -> dict[str, Any]:
    """The content of a file of at most ``largest`` bytes that holds a ``what``; ``bad`` makes the error.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "study.toml"
    ...     _ = path.write_text("rates = [0.1]")
    ...     parsed_toml(path, what="study", largest=100, bad=InputError)
    {'rates': [0.1]}
    """
    try:
        if file.stat().st_size > largest:
            raise bad(file, f"the file is too large for a {what}")
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise bad(file, "the file is not UTF-8 text") from None
    except OSError as error:
        raise unreadable(file, error) from None
    except tomllib.TOMLDecodeError as error:
        # Only the position is taken over: the parser's own words may quote the file.
        if (place := _AT_LINE.search(str(error))) is None:
            raise bad(file, "the file ends in the middle of something") from None
        line, column = int(place[1]), int(place[2])
        raise bad(file, f"line {line}, column {column} is not valid TOML", line=line, column=column) from None
    except RecursionError:
        raise bad(file, "the file is nested too deeply") from None
