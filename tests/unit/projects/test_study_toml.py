"""The question of a study as TOML: the same again, and errors that name the place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.errors import InputError, SpecError
from safeswap.model.study import ConstraintSet, StudySpec
from safeswap.projects.toml import read_study_spec, write_study_spec

NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), unique=True, max_size=3)
SETS = st.builds(
    lambda fixed, differ: ConstraintSet(fixed=tuple(fixed), differ=tuple(n for n in differ if n not in fixed)),
    NAMES,
    NAMES,
)


@given(
    attributes=NAMES,
    rates=st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=4),
    constraints=st.lists(SETS, min_size=1, max_size=3),
    true_swap=st.sampled_from(["any", "all"]),
    replicates=st.integers(1, 1000),
    objective=st.sampled_from(["linear:a=2", "cap_risk:0.01"]),
)
def test_what_is_written_is_read_back(tmp_path_factory, **parameters):
    spec = StudySpec(**parameters)
    path = tmp_path_factory.mktemp("toml") / "study.toml"
    write_study_spec(spec, path)
    assert read_study_spec(path) == spec


def test_further_candidates_survive(tmp_path):
    others = ({"method": "swap", "swap": ["A"], "rate": 0.1, "targeting": {"keys": ["B"], "weight": 5.0}},)
    spec = StudySpec(others=others, keys=("A",), risk=("n_rule:n=5",))
    write_study_spec(spec, tmp_path / "study.toml")
    assert read_study_spec(tmp_path / "study.toml") == spec


def test_a_few_lines_by_hand_suffice(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(
        'attributes = ["Race", "Sex"]\nrates = [0.1, 0.01]\n\n[[constraints]]\n\n[[constraints]]\nfixed = ["Age"]\n'
    )
    spec = read_study_spec(path)
    assert spec.attributes == ("Race", "Sex")
    assert spec.rates == (0.01, 0.1)
    assert [c.label for c in spec.constraints] == ["", "Age equal"]


def test_what_is_stated_besides_takes_the_place_of_the_file(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text("rates = [0.1]\nreplicates = 7\n")
    spec = read_study_spec(path, rates=(0.2,))
    assert (spec.rates, spec.replicates) == ((0.2,), 7)


BAD = {
    "syntax": ("rates = [0.1\nup_to = 2", InputError, "line 2, column 1"),
    "ends early": ("rates = [", InputError, "bad.toml"),
    "unknown setting": ("rats = [0.1]", InputError, "'rats'"),
    "other format": ('format = "safeswap-schema-1"', InputError, "format"),
    "not text": (b"\xff\xfe\x00", InputError, "UTF-8"),
    "rate too large": ("rates = [1.5]", SpecError, "rates.0"),
    "wrong type": ('up_to = "two"', SpecError, "up_to"),
    "contradiction": ('[[constraints]]\nfixed = ["A"]\ndiffer = ["A"]', SpecError, "'A'"),
    "unknown in a set": ('[[constraints]]\nequal = ["A"]', SpecError, "equal"),
    "deep": ("rates = " + "[" * 5000 + "]" * 5000, (InputError, SpecError), "bad.toml"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused_with_their_name_and_place(tmp_path, case):
    content, kind, word = BAD[case]
    path = tmp_path / "bad.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(kind) as refusal:
        read_study_spec(path)
    assert "bad.toml" in refusal.value.message
    assert word in refusal.value.message
    assert refusal.value.hint


def test_a_close_word_is_proposed(tmp_path):
    (tmp_path / "study.toml").write_text("replicate = 3")
    with pytest.raises(InputError) as refusal:
        read_study_spec(tmp_path / "study.toml")
    assert refusal.value.hint == "did you mean replicates?"


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError):
        read_study_spec(tmp_path / "none.toml")
