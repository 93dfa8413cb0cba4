import errno
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.hand_made import KEY, PROMISES, account_of, masked_by, masked_survey, survey, true_pairs

from safeswap.errors import InputError, OutputError, UnsafeRelease
from safeswap.files import atomic
from safeswap.model.audit import Exchange
from safeswap.model.invariant import KeptMargin
from safeswap.model.key import Key
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Schema
from safeswap.on_disk.audit_record import read_audit, read_audit_json
from safeswap.releases import bundle, publish
from safeswap.releases.publish import Published, Terms, check_and_write
from safeswap.releases.scan import verify_bundle


def released(masked: Masked, folder: Path, *, public: str = "public", key: Key = KEY, **options) -> Published:
    promises = options.pop("invariants", PROMISES)
    where = {"public": folder / public, "audit": folder / options.pop("audit", "audit")}
    return check_and_write(
        masked, **where, key=key, account=account_of(masked, promises), terms=Terms(method="Swapped.", **options)
    )


def facts(done: Published) -> dict:
    return json.loads((done.public / "manifest.json").read_bytes())["facts"]


def test_a_release_is_a_public_bundle_and_a_record_apart(tmp_path):
    done = released(masked_survey(), tmp_path, title="The survey")
    assert verify_bundle(done.public).records == 400
    assert read_audit(done.audit).made == masked_survey().audit.made
    assert done.audit.parent == tmp_path / "audit"
    assert {path.name for path in tmp_path.iterdir()} == {"public", "audit"}
    assert all(finding.ok for finding in done.findings)
    assert done.as_dict()["manifest_sha256"] == done.manifest_sha256


def test_the_public_facts_say_what_is_kept_of_the_released_columns(tmp_path):
    masked = masked_survey()
    done = released(masked, tmp_path, drop=("Income", "Town"))
    told = facts(done)
    assert told["kept_exactly"] == [
        "Sex and Age are unchanged in every record.",
        "The counts by Race are exactly as before.",
        "The counts by Sex are exactly as before.",
        "The counts by Age are exactly as before.",
    ]
    text = "".join((done.public / name).read_text() for name in ("manifest.json", "report.html", "dictionary.json"))
    assert "Income" not in text
    assert "survey" not in text  # the name that the file has inside


def test_the_rate_is_published_only_by_decision(tmp_path):
    masked = masked_survey()
    silent = released(masked, tmp_path)
    assert "rate" not in facts(silent)
    told = released(masked, tmp_path, public="told", audit="other", publish_rate=True, second_release="the rate")
    assert facts(told)["rate"] == pytest.approx(2 * masked.audit.made / 400)
    for done, consents in ((silent, False), (told, True)):
        assert ("rate-published" in {remark.code for remark in done.remarks}) == consents
        record = "".join(path.read_text() for path in done.audit.glob("*.json"))
        assert ("rate-published" in record) == consents


def test_a_broken_promise_stops_the_release(tmp_path):
    masked = masked_survey()
    with pytest.raises(UnsafeRelease) as caught:
        released(masked, tmp_path, invariants=[*PROMISES, KeptMargin(("Race", "Town"))])
    assert caught.value.code == "invariant-broken"
    assert len(caught.value.fields["findings"]) == 1
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_what_its_audit_says_is_not_released(tmp_path):
    masked = masked_survey()
    short = Exchange(attributes=("Race",), pairs=masked.audit.exchanges[0].pairs[1:])
    lying = Masked(
        original=masked.original,
        data=masked.data,
        spec=masked.spec,
        plan=masked.plan,
        audit=masked_by(masked.original, short).audit,
    )
    with pytest.raises(UnsafeRelease):
        released(lying, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_an_insecure_seed_made_is_not_released(tmp_path):
    for masked, key in (
        (masked_survey(releasable=False), KEY),
        (masked_survey(), Key.insecure(seed=1)),
    ):
        with pytest.raises(UnsafeRelease) as caught:
            released(masked, tmp_path, key=key)
        assert caught.value.code == "not-for-release"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("public", "audit"), [("same", "same"), ("out", "out/audit"), ("audit/out", "audit"), ("a/../out", "out/x")]
)
def test_directories_within_each_other_are_refused(tmp_path, public, audit):
    for name in ("out", "audit", "a"):
        (tmp_path / name).mkdir()
    with pytest.raises(OutputError) as caught:
        released(masked_survey(), tmp_path, public=public, audit=audit)
    assert caught.value.code == "nested-directories"


def test_a_link_does_not_hide_that_directories_are_within_each_other(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OutputError) as caught:
        released(masked_survey(), tmp_path, public="real/public", audit="link")
    assert caught.value.code == "nested-directories"


def test_a_second_release_of_the_same_records_needs_a_decision(tmp_path):
    data = survey()
    first = masked_survey(data, seed=2)
    second = masked_survey(data, seed=3)
    released(first, tmp_path)
    with pytest.raises(UnsafeRelease) as caught:
        released(second, tmp_path, public="second")
    assert caught.value.code == "second-release"
    assert not (tmp_path / "second").exists()
    assert len(list((tmp_path / "audit").iterdir())) == 1
    told = caught.value.fields["differencing"][0]
    races = [m.data.table["Race"].to_pylist() for m in (first, second)]
    assert told["differ"] == sum(a != b for a, b in zip(*races, strict=True)) > 0
    assert told["touched_now"] == 2 * second.audit.made
    with pytest.raises(UnsafeRelease):
        released(second, tmp_path, public="second", second_release="   ")
    done = released(second, tmp_path, public="second", second_release="a better rate")
    assert done.differencing[0].differ == told["differ"]
    notes = read_audit_json(done.audit)["notes"]
    assert notes["differencing"][0]["differ"] == told["differ"]
    assert notes["terms"]["second_release"] == "a better rate"
    assert verify_bundle(tmp_path / "second").records == 400


def test_the_same_records_are_known_in_another_order_and_under_another_key(tmp_path):
    data = survey()
    released(masked_survey(data), tmp_path)
    order = pa.array(np.random.default_rng(4).permutation(400))
    renamed = Schema(name="renamed", attributes=data.schema.attributes)
    shuffled = masked_survey(Microdata(data.table.take(order), renamed))
    with pytest.raises(UnsafeRelease) as caught:
        released(shuffled, tmp_path, public="second", key=Key.generate())
    assert caught.value.code == "second-release"
    assert caught.value.fields["differencing"][0]["differ"] is None


def test_other_records_are_other_records(tmp_path):
    released(masked_survey(survey(400)), tmp_path)
    assert released(masked_survey(survey(401)), tmp_path, public="second").differencing == ()


def test_the_same_release_once_more_is_no_second_one(tmp_path):
    masked = masked_survey()
    first = released(masked, tmp_path)
    again = released(masked, tmp_path, force=True)
    assert again.manifest_sha256 == first.manifest_sha256
    assert again.differencing == ()
    with pytest.raises(OutputError) as caught:
        released(masked, tmp_path)
    assert caught.value.code == "exists"


def test_a_damaged_earlier_record_stops_the_release(tmp_path):
    done = released(masked_survey(), tmp_path)
    (done.audit / "audit.json").write_text("{}")
    with pytest.raises(InputError) as caught:
        released(masked_survey(seed=5), tmp_path, public="second")
    assert caught.value.code == "audit-damaged"
    assert not (tmp_path / "second").exists()


STEPS = [
    (publish, "_verify_promises"),
    (publish, "prepare_release"),
    (publish, "fill_bundle"),
    (publish, "make_entry"),
    (publish, "_read_others"),
    (publish, "write_audit"),
    (bundle, "write_data"),
    (bundle, "public_report"),
    (bundle, "scan_bundle"),
]


@pytest.mark.parametrize(("module", "step"), STEPS, ids=[step for _, step in STEPS])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")])
def test_a_release_that_is_cut_short_leaves_nothing_behind(tmp_path, monkeypatch, module, step, stop):
    def interrupted(*arguments, **options):
        raise stop

    monkeypatch.setattr(module, step, interrupted)
    with pytest.raises((KeyboardInterrupt, OutputError)) as caught:
        released(masked_survey(), tmp_path)
    if isinstance(caught.value, OutputError):
        assert caught.value.code == "disk-full"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", range(40))
def test_an_interrupt_between_any_two_calls_to_the_disk_leaves_both_or_neither(tmp_path, monkeypatch, number):
    """Whichever call to the disk is the last: there is never a bundle without a record, nor half of anything."""
    calls = iter(range(1000))
    for name in ("_sync", "_sync_directory", "_take_directory_name", "_sync_tree"):
        _interrupted_at(monkeypatch, name, calls, number)
    try:
        released(masked_survey(), tmp_path)
    except KeyboardInterrupt:
        pass
    else:
        assert next(calls) <= number
    names = {path.name for path in tmp_path.iterdir()}
    assert names in (set(), {"audit"}, {"audit", "public"})
    for directory in (tmp_path / "audit").glob("*"):
        assert read_audit(directory).records == 400
    if "public" in names:
        assert verify_bundle(tmp_path / "public").records == 400
        assert len(list((tmp_path / "audit").iterdir())) == 1


def _interrupted_at(monkeypatch, name, calls, number):
    original = getattr(atomic, name)

    def counted(*arguments, **options):
        if next(calls) == number:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(atomic, name, counted)


def test_sequential_stages_are_released_too(tmp_path):
    data = survey()
    stages = [Exchange(attributes=(n,), pairs=true_pairs(data, n, seed=s)) for s, n in enumerate(("Race", "Town"))]
    promises = [p for p in PROMISES if "Town" not in getattr(p, "attributes", ())]
    assert released(masked_by(data, *stages), tmp_path, invariants=promises).records == 400


def test_a_release_leaves_the_memory_pool_of_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from safeswap.workflow.masking import returning_memory

    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    before = pa.default_memory_pool().backend_name
    with pytest.raises(ValueError, match="within"), returning_memory():
        assert pa.default_memory_pool().backend_name == "system"
        raise ValueError("within")
    assert pa.default_memory_pool().backend_name == before
    first, second = returning_memory(), returning_memory()  # in two threads, the first to begin may be the first to end
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert pa.default_memory_pool().backend_name == "system"
    second.__exit__(None, None, None)
    assert pa.default_memory_pool().backend_name == before
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", before)
    with returning_memory():
        assert pa.default_memory_pool().backend_name == before
