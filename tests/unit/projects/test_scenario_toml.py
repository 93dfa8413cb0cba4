"""Scenarios as TOML: the same again, and errors that name the line."""

import pytest

from safeswap.errors import InputError, SpecError
from safeswap.model.scenario import Scenario
from safeswap.projects.toml import choose_scenario, read_scenarios, write_scenarios

STATED = (
    Scenario(
        name="prosecutor",
        note="knows that somebody took part",
        combinations=[{"keys": ["age", "town"], "tolerance": 5}, ["sex"]],
        keys=["age", "sex", "town"],
        up_to=2,
        exactly=True,
        levels={"town": 1, "job": 2},
        missing="own",
        sensitive=["income"],
        population=120_000,
    ),
    Scenario(name="nosy neighbour", keys=["town"], threshold=2, unit="household", population="fraction"),
    Scenario(keys=["town"], weight="w", tolerance=30.5),
)


def test_what_is_written_is_read_back(tmp_path):
    write_scenarios(STATED, tmp_path / "scenarios.toml")
    assert read_scenarios(tmp_path / "scenarios.toml") == STATED


def test_other_settings_of_a_project_file_are_left_alone(tmp_path):
    path = tmp_path / "project.toml"
    path.write_text('title = "Survey"\n[data]\nfile = "a.csv"\n[[scenario]]\nname = "journalist"\nkeys = ["age"]\n')
    assert read_scenarios(path) == (Scenario(name="journalist", keys=["age"]),)


ONE = '[[scenario]]\nname = "prosecutor"\nkeys = ["age"]\n\n'
BAD = {
    "syntax": (ONE + "keys = [", InputError, "bad-scenario-file", None, ""),
    "line and column": (ONE + "keys == 1\n", InputError, "bad-scenario-file", 5, "line 5, column 7"),
    "setting": (ONE + '[[scenario]]\nname = "x"\ntolerence = 3\n', InputError, "bad-scenario-file", 5, "'tolerence'"),
    "value": (ONE + '[[scenario]]\nkeys = ["a"]\ntolerance = 0\n', SpecError, "bad-spec", 5, "line 5"),
    "no keys": (ONE + '[[ scenario ]]\nname = "x"\n', SpecError, "bad-spec", 5, "combinations, keys or levels"),
    "twice": (ONE + ONE, InputError, "bad-scenario-file", 5, "two scenarios have the name 'prosecutor'"),
    "misspelt": ('[[scenarios]]\nkeys = ["a"]\n', InputError, "bad-scenario-file", None, "no [[scenario]]"),
    "table": ('[scenario]\nkeys = ["a"]\n', InputError, "bad-scenario-file", None, "no [[scenario]]"),
    "comment": ("# none\n", InputError, "bad-scenario-file", None, "no [[scenario]]"),
    "empty": ("", InputError, "empty-file", None, ""),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_say_where(tmp_path, case):
    text, kind, code, line, part = BAD[case]
    path = tmp_path / "scenarios.toml"
    path.write_text(text)
    with pytest.raises(kind) as caught:
        read_scenarios(path)
    assert (caught.value.code, caught.value.fields.get("line")) == (code, line)
    assert part in caught.value.message
    assert "scenarios.toml" in caught.value.message


def test_one_is_chosen_by_its_name(tmp_path):
    path = tmp_path / "a:b.toml"
    write_scenarios(STATED, path)
    assert choose_scenario(f"{path}:nosy neighbour") == STATED[1]
    for place, part in ((str(path), "3 scenarios"), (f"{path}:journalist", "no scenario 'journalist'")):
        with pytest.raises(SpecError) as caught:
            choose_scenario(place)
        assert caught.value.code == "unknown-scenario"
        assert part in caught.value.message
        assert "nosy neighbour" in caught.value.hint
    write_scenarios(STATED[:1], path, force=True)
    assert choose_scenario(str(path)) == STATED[0]
    with pytest.raises(InputError):
        choose_scenario(str(tmp_path / "none.toml:prosecutor"))
