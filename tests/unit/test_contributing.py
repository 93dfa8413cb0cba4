"""The method that CONTRIBUTING shows is a method: installed as a plug-in it does all that the page says."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance import strategies
from tests.conformance.on_files import check_on_file, is_supported
from tests.plug_in import PAGE, block, install, install_trade

import safeswap as ss
from safeswap import registry
from safeswap.cli.app import run
from safeswap.model.invariant import verify
from safeswap.model.key import Key


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example as pip would leave it: a module, and metadata with its entry point."""
    declared = tomllib.loads(block("toml", "entry-points"))["project"]["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in named.items()) for group, named in declared.items()]
    monkeypatch.chdir(tmp_path)
    with install(tmp_path / "site", "blanks", "class BlankOut:", "\n".join(lines), monkeypatch):
        yield tmp_path


def test_the_example_masks_undoes_and_releases(installed: Path) -> None:
    data, key = ss.datasets.cps8d(), Key.generate()
    masked = ss.mask(data, {"method": "blank_out", "attributes": ["Race", "AnnSal"], "rate": 0.02}, key=key)
    assert masked.data.table.column("Race").null_count > 0
    assert ss.undo(masked).table.equals(data.table)
    ss.release(masked, "public", audit="confidential", key=key)
    assert ss.verify("public")


def test_the_command_that_the_page_shows_works(installed: Path) -> None:
    assert run(["datasets", "write", "cps8d", "survey.csv"]) == 0
    assert run(["keygen", "survey.key"]) == 0
    (command,) = re.findall(r"^\$ safeswap (mask .*)$", PAGE, re.MULTILINE)
    assert run(command.split()) == 0
    assert Path("masked.csv").is_file()


def test_the_example_passes_as_its_case_says(installed: Path) -> None:
    from blanks import BlankOutSpec  # type: ignore[import-not-found]

    cases: dict[str, strategies.Case] = {}
    exec(block("python", "blank_out_inputs"), {**vars(strategies), "BlankOutSpec": BlankOutSpec, "CASES": cases})
    case, method = cases["blank_out"], registry.method("blank_out")

    def masked(tried: Any, key: Key = Key(bytes(32))) -> Any:  # noqa: B008  (a key is a value)
        return method.apply(tried[0], tried[1], key=key)

    @settings(max_examples=30)
    @given(st.data())
    def promises_hold(data: st.DataObject) -> None:
        result = masked(data.draw(case.inputs))
        promises = method.invariants(result.original, result.spec)
        findings = verify(promises, before=result.original, after=result.data, audit=result.audit)
        assert all(finding.ok for finding in findings)

    promises_hold()
    example = case.example()
    assert not masked(example).data.table.equals(masked(example, Key(bytes(31) + b"\1")).data.table)
    assert masked((example[0], case.idle(example[1]))).data.table.equals(example[0].table)


@pytest.mark.parametrize("engine", ["memory", "duckdb"])
def test_the_exchanging_example_masks_files_of_any_size(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = strategies.swap_example()[0]
    with install_trade(tmp_path / "site", monkeypatch):
        method = registry.method("trade")
        spec = method.spec_type(attributes=("Race", "Age"), keys=("Sex", "Town"))
        assert is_supported(method, engine, data.schema)
        assert ss.mask(data, spec, key=Key(bytes(32))).audit.made == method.plan(data, spec).feasible > 100
        (tmp_path / "files").mkdir()
        check_on_file(method, engine, (data, spec), tmp_path / "files")
