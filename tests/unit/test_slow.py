"""The list of slow tests names tests that exist: one that was renamed would be run by ``make quick`` again."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_slow_test_exists() -> None:
    sources: dict[str, str] = defaultdict(str)
    for path in TESTS.rglob("test_*.py"):
        sources[path.name] += path.read_text(encoding="utf-8")
    lines = (TESTS / "slow.txt").read_text(encoding="utf-8").splitlines()
    assert lines == sorted(set(lines))
    for line in lines:
        file, _, name = line.partition("::")
        assert f"def {name.split('[')[0].split('::')[-1]}(" in sources[file], f"there is no test {line}"
