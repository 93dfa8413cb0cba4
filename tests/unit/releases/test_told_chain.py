"""The public report tells everything that was done to the values, and nothing that was not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.hand_made import KEY

import safeswap as ss
from safeswap import workflow
from safeswap.errors import InputError, UnsafeRelease
from safeswap.files.write import write
from safeswap.methods.recode.recipe import Recipe
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.on_disk.masking import digest_of
from safeswap.workflow.masking import keep, recall

BANDS = {"step": "ranges", "attribute": "age", "breaks": [30, 60]}
SWAP = {"method": "swap", "swap": ["civil"], "rate": 0.2}
PRAM = {"method": "pram", "attributes": ["civil"]}
SUPPRESS = {"method": "suppress", "combinations": [["civil", "job", "sex"]], "tolerance": 12}
MICRO = {"method": "microaggregation", "attributes": ["income"]}


def survey(records: int = 400) -> pa.Table:
    rng = np.random.default_rng(11)
    return pa.table(
        {
            "id": rng.permutation(records) + 1,
            "age": rng.integers(16, 90, records),
            "sex": rng.choice(["f", "m"], records),
            "civil": rng.choice(["single", "married", "other"], records, p=(0.4, 0.5, 0.1)),
            "job": rng.choice([f"j{n}" for n in range(8)], records),
            "income": np.round(rng.lognormal(9, 0.7, records), -2),
        }
    )


def read() -> Any:
    return ss.read(survey(), identifier="id", name="survey", kinds={"age": "numeric", "income": "numeric"})


def facts(folder: Path, masked: Masked, **terms: Any) -> dict[str, Any]:
    done = ss.release(masked, folder / "public", audit=folder / "releases", key=KEY, **terms)
    told = json.loads((done.public / "manifest.json").read_bytes())["facts"]
    assert told["method"] in (done.public / "report.html").read_text()
    return told


def test_a_step_that_changed_nothing_is_not_told(tmp_path: Path) -> None:
    idle = {"method": "swap", "name": "idle", "swap": ["civil"], "pairs": 0}
    masked = ss.mask(read(), ss.Pipeline([idle, PRAM]), key=KEY)
    assert facts(tmp_path, masked)["method"] == "Post-randomisation of categorical attributes"


def test_a_chain_in_memory_is_told_from_the_first_step_on(tmp_path: Path) -> None:
    data = workflow.recode(read(), BANDS)
    for spec in (SUPPRESS, PRAM):
        data = ss.mask(data, spec, key=KEY).data
    told = facts(tmp_path, ss.mask(data, MICRO, key=KEY))
    assert told["method"] == (
        "Recoding; then Local suppression of unsafe combinations of keys; "
        "then Post-randomisation of categorical attributes; then Microaggregation of numeric attributes"
    )
    assert told["kept_exactly"] == []


@pytest.mark.parametrize("stated", [False, True])
def test_a_banded_age_is_not_called_unchanged(stated: bool, tmp_path: Path) -> None:
    recoded = workflow.recode(read(), BANDS)
    if stated:  # the data do not know: they have been through a dataframe
        schema = recoded.schema
        recoded = ss.read(ss.to_frame(recoded), schema=schema)
    told = facts(tmp_path, ss.mask(recoded, SWAP, key=KEY), recipe=[BANDS] if stated else None)
    assert told["method"].startswith("Recoding; then Data swapping")
    assert told["kept_exactly"] == ["sex, job and income are unchanged in every record.",
                                    "The counts by civil are exactly as before."]  # fmt: skip


def test_a_recode_that_changes_nothing_is_not_told(tmp_path: Path) -> None:
    same = {"step": "recode", "attribute": "sex", "groups": {"f": ["f"], "m": ["m"]}}
    told = facts(tmp_path, ss.mask(workflow.recode(read(), same), SWAP, key=KEY))
    assert told["method"] == "Data swapping between random pairs of records"
    assert "age, sex, job and income are unchanged in every record." in told["kept_exactly"]


def test_what_was_undone_is_not_told(tmp_path: Path) -> None:
    back = ss.undo(ss.mask(read(), PRAM, key=KEY))
    assert back.past == ()
    assert facts(tmp_path, ss.mask(back, SWAP, key=KEY))["method"] == "Data swapping between random pairs of records"


def kept(folder: Path, source: Path, name: str, spec: dict[str, Any], *, key: Key = KEY) -> Path:
    """What the command line does with a file: read, mask, keep."""
    masked = ss.mask(ss.read(source, identifier="id"), spec, key=key)
    target = folder / name
    keep(masked, target, audit=folder / "audit", reading={"identifier": "id"}, source=source)
    return target


def chain(folder: Path, *specs: dict[str, Any], key: Key = KEY) -> list[Path]:
    files = [folder / "survey.parquet"]
    write(read(), files[0])
    for number, spec in enumerate(specs):
        files.append(kept(folder, files[-1], f"masked-{number}.parquet", spec, key=key))
    return files


def test_a_chain_of_files_is_told_by_their_records(tmp_path: Path) -> None:
    recode = {"method": "recode", "steps": [BANDS]}
    files = chain(tmp_path, recode, SUPPRESS, PRAM, MICRO)
    masked = recall(files[-2], files[-1], audit=tmp_path / "audit")
    told = facts(tmp_path, masked)
    words = ("Recoding", "Local suppression", "Post-randomisation", "Microaggregation")
    places = [told["method"].index(word) for word in words]
    assert places == sorted(places)
    assert told["kept_exactly"] == []
    assert [step.method for step in masked.data.past] == ["recode", "suppress", "pram", "microaggregation"]


def test_a_recoded_file_that_was_swapped_claims_nothing_of_what_was_recoded(tmp_path: Path) -> None:
    files = chain(tmp_path, {"method": "recode", "steps": [BANDS]}, SWAP)
    told = facts(tmp_path, recall(files[1], files[2], audit=tmp_path / "audit"))
    assert told["method"].startswith("Recoding; then Data swapping")
    assert told["kept_exactly"]
    assert "age" not in str(told["kept_exactly"])


def test_a_recipe_without_a_record_can_be_stated(tmp_path: Path) -> None:
    files = chain(tmp_path, PRAM, SWAP)
    stated = [BANDS]
    masked = recall(files[1], files[2], audit=tmp_path / "audit", recipe=stated)
    assert [step.method for step in masked.original.past] == ["recode", "pram"]
    assert masked.original.past[:1] == Recipe.of(stated).past


def test_an_insecure_step_anywhere_stops_the_release(tmp_path: Path) -> None:
    insecure = ss.mask(read(), PRAM, insecure_seed=1).data
    with pytest.raises(UnsafeRelease) as caught:
        facts(tmp_path, ss.mask(insecure, SWAP, key=KEY))
    assert caught.value.code == "not-for-release"


NOTHING = {
    "no pairs": {"method": "swap", "swap": ["civil"], "pairs": 0},
    "a rate too small": {"method": "swap", "swap": ["civil"], "rate": 0.0001},
    "no pair feasible": {
        "method": "swap",
        "swap": ["civil"],
        "fixed": ["age", "sex", "job", "income"],
        "rate": 0.5,
        "on_shortfall": "take",
    },
    "an edit at rate 0": {
        "method": "edit_1990",
        "keys": ["sex"],
        "geography": ["civil", "job"],
        "geography_codes": "local",
        "rate": 0.0,
    },
    "an edit of nothing rare": {"method": "edit_targeted", "keys": ["sex"], "geography": ["civil"], "tolerance": 3},
    "no steps": {"method": "recode", "steps": []},
    "nothing unsafe": {"method": "suppress", "combinations": [["sex"]], "tolerance": 3},
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_release_in_which_nothing_was_masked_is_refused_unless_stated(name: str, tmp_path: Path) -> None:
    masked = ss.mask(read(), NOTHING[name], key=KEY)
    with pytest.raises(UnsafeRelease) as caught:
        facts(tmp_path, masked)
    assert caught.value.code == "nothing-masked"
    assert not list(tmp_path.iterdir())
    told = facts(tmp_path, masked, unmasked=True)
    assert told["method"] == "Nothing was masked: every released value is as it was in the original file."


def test_a_pipeline_that_changed_nothing_is_refused(tmp_path: Path) -> None:
    chain = ss.mask(read(), NOTHING["nothing unsafe"], key=KEY)
    chain = ss.mask(chain.data, NOTHING["no pairs"], key=KEY)
    with pytest.raises(UnsafeRelease) as caught:
        facts(tmp_path, chain)
    assert caught.value.code == "nothing-masked"


def test_what_was_masked_and_left_out_is_not_told(tmp_path: Path) -> None:
    masked = ss.mask(read(), SWAP, key=KEY)
    with pytest.raises(UnsafeRelease) as caught:
        facts(tmp_path, masked, drop=["civil"])
    assert caught.value.code == "nothing-masked"
    done = ss.release(masked, tmp_path / "public", audit=tmp_path / "releases", key=KEY, drop=["civil"], unmasked=True)
    assert [remark.code for remark in done.remarks] == ["nothing-masked"]


def test_after_a_recode_a_masking_that_did_nothing_is_told_as_such(tmp_path: Path) -> None:
    masked = ss.mask(workflow.recode(read(), BANDS), NOTHING["no pairs"], key=KEY)
    with pytest.raises(UnsafeRelease):
        facts(tmp_path, masked)
    told = facts(tmp_path, masked, unmasked=True)
    assert told["method"] == "Recoding. After that: nothing was masked, and no released value was changed."


def test_columns_left_out_by_a_recode_are_told(tmp_path: Path) -> None:
    masked = ss.mask(read(), {"method": "recode", "steps": [{"step": "drop", "attributes": ["job"]}]}, key=KEY)
    told = facts(tmp_path, masked)
    assert told["method"] == "Columns were dropped: every released value is as it was in the original file."


def test_records_that_go_in_a_circle_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    files = chain(tmp_path, PRAM, SWAP)
    audit = tmp_path / "audit"
    first = next(audit.glob(f"masking-{digest_of(files[1])[:16]}*")) / "audit.json"
    content = json.loads(first.read_text())
    assert content["notes"]["source_sha256"] == digest_of(files[0])
    content["notes"]["source_sha256"] = digest_of(files[2])  # which was made from it
    first.write_text(json.dumps(content))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError) as caught:
        recall(files[1], files[2], audit=audit)
    assert (caught.value.code, bool(caught.value.hint)) == ("lineage-cycle", True)
    assert sorted(tmp_path.rglob("*")) == before
