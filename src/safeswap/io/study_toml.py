"""A study's question as a TOML file that people can read, change and keep under version control."""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from safeswap.errors import InputError, SpecError
from safeswap.io.atomic import PRIVATE_FILE, atomic_write
from safeswap.io.sources import existing_file
from safeswap.io.toml_text import parsed_toml
from safeswap.model.study import StudySpec

FORMAT = "safeswap-study-spec-1"
_LARGEST = 2**20

_HEADER = """\
# A risk-utility study. Every choice of up to `up_to` attributes × rates × constraint sets × replicates is a candidate.
# rates: shares of records that take part in a swap. attributes, keys: left out, all categorical ones.
# [[constraints]]: fixed = must be equal within a pair, differ = must differ; each block is a collection of its own.
# [[others]]: further candidates, each a specification of any method. objective: how one candidate is chosen,
# "linear:a=2" (smallest risk + 2 × distortion), "cap_risk:0.01" or "cap_distortion:0.05".

"""


def write_study_spec(
    spec: StudySpec, path: str | os.PathLike[str], *, force: bool = False, mode: int = PRIVATE_FILE
) -> None:
    """Write the question of a study; ``read_study_spec`` gives the same one back.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "study.toml"
    ...     spec = StudySpec(rates=(0.05,), constraints=({"fixed": ("Sex",)}, {}))
    ...     write_study_spec(spec, path)
    ...     read_study_spec(path) == spec
    True
    """
    import tomli_w

    content = {"format": FORMAT, **_without_nothing(spec.model_dump(mode="json"))}
    with atomic_write(path, force=force, mode=mode) as part:
        part.write_bytes((_HEADER + tomli_w.dumps(content)).encode("utf-8"))


def read_study_spec(path: str | os.PathLike[str], **overrides: Any) -> StudySpec:
    """Read the question of a study; what is stated besides takes the place of what the file says.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "study.toml"
    ...     _ = path.write_text("rats = [0.1]")
    ...     read_study_spec(path)
    Traceback (most recent call last):
    safeswap.errors.InputError: 'study.toml': there is no setting 'rats'
    """
    file = existing_file(path)
    content = parsed_toml(file, what="study", largest=_LARGEST, bad=_bad)
    if content.pop("format", FORMAT) != FORMAT:
        raise _bad(file, f"the format is not {FORMAT!r}")
    for name in content:
        if name not in StudySpec.model_fields:
            close = get_close_matches(name, StudySpec.model_fields, n=1)
            known = ", ".join(StudySpec.model_fields)
            hint = f"did you mean {close[0]}?" if close else f"the settings are: {known}"
            raise _bad(file, f"there is no setting {name!r}", hint=hint)
    try:
        return StudySpec(**{**content, **overrides})
    except SpecError as error:
        raise SpecError(
            f"{file.name!r}: {error.message}", code=error.code, hint=error.hint, file=str(file), **error.fields
        ) from None


def _without_nothing(value: Any) -> Any:
    """Without null and empty values, for which TOML has no word or which say nothing."""
    if isinstance(value, dict):
        return {key: _without_nothing(item) for key, item in value.items() if item is not None and item != []}
    return [_without_nothing(item) for item in value] if isinstance(value, list) else value


def _bad(file: Path, what: str, *, hint: str = "", **fields: Any) -> InputError:
    return InputError(
        f"{file.name!r}: {what}",
        code="bad-study-file",
        hint=hint or "write it as `safeswap study --write-study FILE` does",
        file=str(file),
        **fields,
    )
