"""What other programs and other people's results rely on stays as it is until somebody means to change it."""

from __future__ import annotations

import json

from tests.pins.pinned import HERE, collect_interface, collect_results


def test_every_method_gives_the_pinned_result() -> None:
    assert collect_results() == json.loads((HERE / "results.json").read_text(encoding="utf-8"))


def test_names_options_codes_and_contract_are_the_pinned_ones() -> None:
    found, pinned = collect_interface(), json.loads((HERE / "interface.json").read_text(encoding="utf-8"))
    for part, values in pinned.items():
        assert found[part] == values, f"{part} changed; if that is meant: python -m tests.pins.pinned"
