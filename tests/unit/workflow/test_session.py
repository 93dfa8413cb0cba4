"""A session shows the risk after every step, and works out only what has changed."""

from __future__ import annotations

import pytest

from safeswap import Key, datasets, workflow
from safeswap.errors import SpecError
from safeswap.workflow.session import ArgusSession

KEYS = {"keys": ["Age", "Edu", "EmpTyp", "MS", "Race"], "up_to": 5}
MERGE = {"step": "recode", "attribute": "Edu", "groups": {"B": ["Bach", "Bach+"]}, "otherwise": "keep"}
DROP = {"step": "drop", "attributes": ["Race"]}


def session() -> ArgusSession:
    return ArgusSession.start(datasets.cps8d(), KEYS).do(MERGE).do(DROP)


def test_every_step_shows_what_became_of_the_list() -> None:
    found = session()
    unsafe = [stage.unsafe for stage in found.stages]
    assert unsafe == sorted(unsafe, reverse=True)
    assert unsafe[0] == workflow.risky(datasets.cps8d(), KEYS).unsafe
    losses = [stage.information_loss for stage in found.stages]
    assert losses[0] == 0
    assert losses == sorted(losses)


def test_undo_and_redo_lead_back_and_forth() -> None:
    found = session()
    assert found.undo().recipe == found.recipe.undo()
    assert found.undo().redo().recipe == found.recipe
    assert found.undo().undo().undo().now.unsafe == found.stages[0].unsafe


def test_what_comes_before_an_edit_is_not_worked_out_again() -> None:
    found = session()
    edited = found.replace(1, {"step": "drop", "attributes": ["MS"]})
    assert edited.stages[:2] == found.stages[:2]
    assert edited.stages[2] is not found.stages[2]
    assert found.insert(0, {"step": "drop", "attributes": ["Sex"]}).recipe[1] == found.recipe[0]
    assert found.remove(0).stages[0] is found.stages[0]


def test_replaying_a_recipe_gives_what_the_session_gave() -> None:
    found = session()
    again = workflow.recode(datasets.cps8d(), found.recipe)
    assert again.table.equals(found.now.data.table)
    told = ArgusSession.start(datasets.cps8d(), KEYS, recipe=found.recipe).as_dict()["stages"]
    assert [each["unsafe_combinations"] for each in told] == [stage.unsafe for stage in found.stages]


def test_a_number_is_no_key_until_it_is_recoded() -> None:
    data = datasets.synthetic_enterprises()
    found = ArgusSession.start(data, [("employees", "division")])
    assert found.now.unsafe is None
    recoded = found.do({"step": "ranges", "attribute": "employees", "equal_count": 4})
    assert recoded.now.unsafe is not None


def test_no_key_left_is_no_risk_left() -> None:
    found = ArgusSession.start(datasets.cps8d(), [("Race",)]).do(DROP)
    assert (found.now.unsafe, found.now.risky, found.now.information_loss) == (0, None, pytest.approx(1.0))


def test_a_masking_is_a_step_and_needs_a_key() -> None:
    swap = {"method": "swap", "swap": ["Race"], "rate": 0.05}
    with pytest.raises(SpecError, match="step 1 masks by 'swap' and needs a key"):
        workflow.recode(datasets.cps8d(), [swap])
    swapped = workflow.recode(datasets.cps8d(), [swap, DROP], key=Key.generate())
    assert "Race" not in swapped.schema


def test_a_key_that_is_not_in_the_file_is_refused_at_once() -> None:
    with pytest.raises(SpecError, match="no attribute"):
        ArgusSession.start(datasets.cps8d(), [("Nowhere",)])


def test_a_masking_is_a_step_by_its_method() -> None:
    data = datasets.cps8d()
    key = Key.insecure(seed=1)
    session = ArgusSession.start(data, {"keys": ["Age", "Race"]}, key=key)
    pram = {"method": "pram", "attributes": ["Race"], "keep": 0.9}
    drop = {"step": "drop", "attributes": ["Sex"]}
    assert [step.as_dict()["method"] for step in session.do(pram).recipe] == ["pram"]
    assert len(session.do(drop).insert(0, pram).recipe) == 2
    assert session.do(drop).replace(0, pram).recipe == session.do(pram).recipe
    with pytest.raises(SpecError):
        session.do({"method": "no such method"})
