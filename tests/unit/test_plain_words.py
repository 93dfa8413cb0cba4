"""Messages that used to be unclear: what is wrong, and what to do about it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import safeswap as ss
from safeswap.cli.app import app
from safeswap.errors import EngineError, InputError, SpecError
from safeswap.files.write import write

ROOT = Path(__file__).parents[2]


def frame() -> pd.DataFrame:
    return pd.DataFrame({"A": list("aabb") * 3, "B": list("xyxz") * 3})


def test_a_key_and_a_seed_together_are_refused_as_such() -> None:
    with pytest.raises(SpecError, match="a key or an insecure seed, not both") as caught:
        ss.swap(frame(), swap=["A"], pairs=1, key=ss.Key.generate(), insecure_seed=1)
    assert caught.value.code == "two-keys"
    with pytest.raises(SpecError) as caught:
        ss.swap(frame(), swap=["A"], pairs=1)
    assert caught.value.code == "no-key"


@pytest.mark.parametrize("seed", [1.5, "1", True, None.__class__, np.float64(2)])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with pytest.raises(SpecError, match="whole number"):
        ss.swap(frame(), swap=["A"], pairs=1, insecure_seed=seed)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="whole number"):
        ss.Key.insecure(seed=seed)  # type: ignore[arg-type]


def test_a_bare_name_where_a_list_is_wanted_says_how_to_write_it() -> None:
    with pytest.raises(SpecError, match=r"swap: give a list, even of one: \['A'\]"):
        ss.SwapSpec(swap="A", pairs=1)  # type: ignore[arg-type]


def test_numbered_columns_are_called_by_their_text() -> None:
    data = ss.read(pd.DataFrame({0: list("abab"), 1: list("xxyy")}))
    with pytest.raises(SpecError, match="write '0'"):
        ss.SwapSpec(swap=[0], pairs=1)  # type: ignore[list-item]
    with pytest.raises(SpecError) as caught:
        data.schema[0]  # type: ignore[index]
    assert "write '0'" in caught.value.hint
    assert ss.to_frame(ss.swap(data, swap=["0"], pairs=1, insecure_seed=1)).columns.tolist() == [0, 1]


def test_half_a_character_is_called_that() -> None:
    with pytest.raises(InputError, match="column 'A' holds text with half of a character") as caught:
        ss.read(pd.DataFrame({"A": pd.Series(["a", "\udc80"], dtype=object)}))
    assert caught.value.code == "wrong-encoding"


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_an_engine_for_files_names_the_call_that_takes_files(engine: str) -> None:
    with pytest.raises(EngineError) as caught:
        ss.swap(frame(), swap=["A"], pairs=1, insecure_seed=1, engine=engine)
    assert "safeswap.workflow.mask_file" in caught.value.hint


def test_one_is_counted_as_one() -> None:
    one = ss.read(pd.DataFrame({"A": ["a"]}))
    assert "1 record × 1 attribute:" in repr(one)
    assert "1 record, 1 attribute" in str(ss.describe(one, tolerance=1))
    assert "1 pair exchanged" in repr(ss.swap(frame(), swap=["A"], pairs=1, insecure_seed=1))


def test_rows_of_one_table_have_names_of_their_own(tmp_path: Path) -> None:
    write(ss.read(frame()), tmp_path / "a.csv")
    shown = CliRunner().invoke(app, ["risk", str(tmp_path / "a.csv"), "--keys", "A", "--sensitive", "B"])
    names = [line.split("  ")[0].strip() for line in shown.output.splitlines() if "share of records below l" in line]
    assert len(names) == len(set(names)) == 2


def test_intervals_of_pandas_are_ordered_categories() -> None:
    ages = pd.Series([3, 17, 25, 40, 66, 80, 33, 12])
    own = pd.DataFrame({"age": pd.cut(ages, [0, 18, 65, 99]), "plain": pd.arrays.IntervalArray.from_breaks(range(9))})
    data = ss.read(own)
    assert data.schema["age"].kind.value == "ordinal"
    assert data.schema["age"].levels == ("(0, 18]", "(18, 65]", "(65, 99]")
    masked = ss.swap(data, swap=["age"], pairs=2, insecure_seed=1)
    back = ss.to_frame(masked)
    assert back["age"].dtype == own["age"].dtype
    pd.testing.assert_series_equal(back["plain"], own["plain"])
    pd.testing.assert_frame_equal(ss.to_frame(ss.undo(masked)), own)


MENTION = re.compile(r"\b(safeswap|ss)\.([A-Za-z_][\w.]*)")
NOT_NAMES = {"toml", "db", "dev", "example", "org", "css", "key", "json", "service", "log", "conf", "sock", "tar"}


def mentions() -> list[tuple[str, str]]:
    """Every ``safeswap.X`` and ``ss.X`` of the documentation and of the hints and docstrings of the source."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    found = {
        (match[0].rstrip("."), str(page.relative_to(ROOT)))
        for page in pages
        if page.name != "CHANGELOG.md"
        for match in MENTION.finditer(page.read_text(encoding="utf-8"))
    }
    return sorted(found)


def test_what_is_mentioned_is_there() -> None:
    gone = [(text, page) for text, page in mentions() if not exists(text)]
    assert not gone


def exists(text: str) -> bool:
    """Whether a dotted name leads to something: modules are imported, attributes looked up."""
    import importlib

    from safeswap.moved import MOVED

    parts = ["safeswap", *text.split(".")[1:]]
    if text == "safeswap.methods.blank_out":  # the example of CONTRIBUTING
        return True
    if ".".join(parts[1:]) in MOVED:  # an old path, which warns when it is imported
        return True
    if parts[1] in NOT_NAMES:
        return True
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return getattr(found, "model_fields", {}).get(part) is not None
            found = getattr(found, part)
        return True
    return False
