import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.hand_made import KEY, account_of, apply_by_hand, masked_by, masked_survey, survey, true_pairs

from safeswap.errors import InputError
from safeswap.files.write import write_parquet
from safeswap.model.audit import Exchange, Replacement, undo
from safeswap.model.columns import aligned_columns, flag_changes
from safeswap.model.invariant import ReplaysFromAudit
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.on_disk.audit_record import read_audit, read_audit_record, write_audit
from safeswap.releases.publish import Terms, check_and_write


def stored(masked: Masked, directory: Path, **notes) -> Path:
    directory.mkdir()
    order = np.random.default_rng(1).permutation(len(masked.data))
    write_audit(masked, directory, row_order=order, notes=notes)
    return directory


def assert_same(one: Microdata, other: Microdata) -> None:
    for name in one.attributes:
        assert not flag_changes(*aligned_columns(one.table[name], other.table[name])).any()


def test_an_audit_comes_back_as_it_was(tmp_path):
    data = survey()
    stages = [Exchange(attributes=(n,), pairs=true_pairs(data, n, seed=s)) for s, n in enumerate(("Race", "Town"))]
    masked = masked_by(data, *stages, facts={"seconds": np.float64(1.5)}, compensating=3, replicate=2)
    found = read_audit(stored(masked, tmp_path / "audit"))
    for name in ("method", "spec", "records", "made", "key_id", "algorithm", "compensating", "replicate", "releasable"):
        assert getattr(found, name) == getattr(masked.audit, name)
    assert found.facts == {"seconds": 1.5}
    assert [e.attributes for e in found.exchanges] == [("Race",), ("Town",)]
    for one, other in zip(found.exchanges, stages, strict=True):
        assert np.array_equal(one.pairs, other.pairs)
    assert_same(undo(masked.data, found), data)


def test_masked_file_and_audit_give_the_original_back_in_another_process(tmp_path):
    data = survey()
    masked = masked_survey(data)
    write_parquet(masked.data, tmp_path / "masked.parquet")
    write_parquet(data, tmp_path / "original.parquet")
    stored(masked, tmp_path / "audit")
    program = (
        "import sys; from pathlib import Path\n"
        "from safeswap.on_disk.audit_record import read_audit\n"
        "from safeswap.files.read import read\n"
        "from safeswap.files.write import write_parquet\n"
        "from safeswap.model.audit import undo\n"
        "folder = Path(sys.argv[1])\n"
        "masked = read(folder / 'masked.parquet', identifier='id')\n"
        "write_parquet(undo(masked, read_audit(folder / 'audit')), folder / 'undone.parquet')\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, capture_output=True)
    original, undone = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("original", "undone"))
    assert original.column_names == undone.column_names
    for name in original.column_names:
        assert not flag_changes(*aligned_columns(original[name], undone[name])).any()
    changed = flag_changes(*aligned_columns(data.table["Race"], masked.data.table["Race"]))
    assert changed.sum() == 2 * masked.audit.made


def test_a_released_record_can_be_traced_by_who_holds_the_audit(tmp_path):
    masked = masked_survey()
    terms = Terms(method="swapping", data_format="parquet")
    done = check_and_write(
        masked,
        public=tmp_path / "public",
        audit=tmp_path / "audit",
        key=KEY,
        account=account_of(masked),
        terms=terms,
    )
    record = read_audit_record(done.audit)
    released = parquet.read_table(done.public / "data.parquet")
    back = released.take(pa.array(np.argsort(record.row_order)))
    names = ["Race", "Sex", "Age", "Town", "Income"]
    inside = Microdata(masked.data.table, masked.data.schema)
    for name in names:
        assert not flag_changes(*aligned_columns(inside.table[name], back[name])).any()
    rebuilt = inside.table
    for name in names:
        rebuilt = rebuilt.set_column(rebuilt.column_names.index(name), name, back[name])
    assert_same(undo(Microdata(rebuilt, inside.schema), record.audit), masked.original)


def test_replaced_values_are_put_back(tmp_path):
    data = survey()
    rows = np.array([5, 3, 390])
    recoded = pa.array(["old" if a == ">55" else "young" for a in data.table["Age"].to_pylist()])
    blanked = [None if i in rows else v for i, v in enumerate(data.table["Town"].to_pylist())]
    table = data.table.set_column(4, "Age", recoded).set_column(5, "Town", pa.array(blanked))
    replacements = (
        Replacement(attribute="Town", rows=rows, before=data.table["Town"].combine_chunks().take(pa.array(rows))),
        Replacement(attribute="Age", rows=np.arange(400), before=data.table["Age"].combine_chunks()),
    )
    masked = masked_by(data, replacements=replacements)
    masked = Masked(
        original=data, data=Microdata(table, data.schema), spec=masked.spec, plan=masked.plan, audit=masked.audit
    )
    found = read_audit(stored(masked, tmp_path / "audit"))
    assert ReplaysFromAudit().check(data, masked.data, found).ok
    assert_same(undo(masked.data, found), data)
    short = masked_by(data, replacements=replacements[1:]).audit
    assert not ReplaysFromAudit().check(data, masked.data, short).ok


def test_values_replaced_after_an_exchange_are_undone_in_turn(tmp_path):
    data = survey()
    exchange = Exchange(attributes=("Town",), pairs=true_pairs(data, "Town"))
    middle = apply_by_hand(data, exchange)
    rows = exchange.pairs[:3, 0]
    replacement = Replacement(
        attribute="Town", rows=rows, before=middle.table["Town"].combine_chunks().take(pa.array(rows))
    )
    blanked = [None if i in rows else v for i, v in enumerate(middle.table["Town"].to_pylist())]
    after = Microdata(middle.table.set_column(5, "Town", pa.array(blanked)), data.schema)
    audit = masked_by(data, exchange, replacements=(replacement,)).audit
    assert ReplaysFromAudit().check(data, after, audit).ok
    assert_same(undo(after, audit), data)


def test_the_record_is_for_its_owner_alone_and_says_what_it_is(tmp_path):
    masked = masked_survey()
    done = check_and_write(
        masked, public=tmp_path / "public", audit=tmp_path / "audit", key=KEY, account=account_of(masked),
        terms=Terms(method="swapping"),
    )  # fmt: skip
    assert {path.stat().st_mode & 0o777 for path in done.audit.iterdir()} == {0o600}
    assert done.audit.stat().st_mode & 0o777 == 0o700
    assert done.audit.parent.stat().st_mode & 0o777 == 0o700
    content = json.loads((done.audit / "audit.json").read_bytes())
    assert content["audit"]["key_id"] == masked.audit.key_id
    assert content["notes"]["public_manifest_sha256"] == done.manifest_sha256
    assert {"python", "numpy", "pyarrow", "safeswap"} <= content["software"].keys()
    assert all(finding["ok"] for finding in content["notes"]["verified"])
    assert content["schema"]["name"] == "survey"
    assert KEY.secret.hex() not in (done.audit / "audit.json").read_text()


@pytest.mark.parametrize("name", ["pairs.parquet", "row_order.parquet"])
@pytest.mark.parametrize("damage", ["flip", "remove", "empty"])
def test_a_damaged_record_is_refused(tmp_path, name, damage):
    directory = stored(masked_survey(), tmp_path / "audit")
    path = directory / name
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    path.unlink() if damage == "remove" else path.write_bytes(b"" if damage == "empty" else data)
    with pytest.raises(InputError) as caught:
        read_audit(directory)
    assert caught.value.code == "audit-damaged"


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"format": "safeswap-audit-1"}', b"[" * 100_000])
def test_a_record_that_is_none_is_refused(tmp_path, content):
    directory = stored(masked_survey(), tmp_path / "audit")
    (directory / "audit.json").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_audit(directory)
    assert caught.value.code == "audit-damaged"


def test_a_directory_without_a_record_is_refused(tmp_path):
    with pytest.raises(InputError) as caught:
        read_audit(tmp_path)
    assert caught.value.code == "no-audit"


def test_an_audit_of_another_file_is_refused():
    with pytest.raises(InputError) as caught:
        undo(survey(399), masked_survey().audit)
    assert caught.value.code == "audit-mismatch"
