"""An intruder holds a public bundle and reads every byte of it, in every way he can think of.

Two hundred canaries are planted wherever confidential things lie around a file: identifiers, categories that nobody
has, columns that are dropped, a dataframe's index, notes of files, schemas and fields, labels, the audit, the key.
None may be found in what is published. That the search can find is shown by canaries in a column that is published.
"""

import base64
import random
import string
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyreadstat
import pytest
from pyarrow import parquet
from tests.hand_made import KEY, account_of, masked_by, true_pairs

from safeswap.model.audit import Exchange
from safeswap.model.invariant import KeptMargin, ReplaysFromAudit, SameRows
from safeswap.model.microdata import Microdata
from safeswap.model.schema import Attribute, Kind, Schema
from safeswap.releases.manifest import DATA_FORMATS
from safeswap.releases.publish import Terms, check_and_write

RECORDS = 60
CANARIES = 200


def words(seed: int, number: int) -> list[str]:
    rng = random.Random(seed)
    return ["Qz" + "".join(rng.choices(string.ascii_letters + string.digits, k=14)) for _ in range(number)]


def numbers(seed: int, number: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(2**41, 2**52) for _ in range(number)]


def encodings(canary: str | int) -> set[bytes]:
    """The canary as it might stand in a file: raw, hexadecimal, base64 at any alignment, UTF-16, binary numbers."""
    raw = [str(canary).encode()]
    if isinstance(canary, int):
        raw += [struct.pack(form, canary) for form in ("<q", ">q", "<d", ">d")]
    forms = set(raw) | {str(canary).encode("utf-16-le"), str(canary).encode("utf-16-be")}
    for each in raw:
        forms |= {each.hex().encode(), each.hex().upper().encode()}
        for shift in range(3):
            for encode in (base64.standard_b64encode, base64.urlsafe_b64encode):
                text = encode(b"\0" * shift + each)
                # Only the letters that do not depend on what stands before and behind.
                forms.add(text[(0, 2, 3)[shift] : (shift + len(each)) * 8 // 6])
    return forms


def everything(directory: Path) -> bytes:
    """All bytes of a bundle, and once more what its data file holds when it is unpacked and decoded."""
    parts = [path.read_bytes() + path.name.encode() for path in sorted(directory.rglob("*"))]
    for path in directory.glob("data.*"):
        if path.suffix == ".parquet":
            parts += _parquet_content(path)
        elif path.suffix in (".dta", ".sav"):
            reader = pyreadstat.read_dta if path.suffix == ".dta" else pyreadstat.read_sav
            values, facts = reader(str(path), output_format="dict")
            parts += [str({name: list(v) for name, v in values.items()}).encode(), str(vars(facts)).encode()]
    return b"\n".join(parts)


def _parquet_content(path: Path) -> list[bytes]:
    texts = [f.name for f in parquet.read_schema(path) if pa.types.is_string(f.type)]
    with parquet.ParquetFile(path, read_dictionary=texts) as file:
        table = file.read()
        notes = str(file.metadata.metadata) + str(file.schema_arrow.metadata) + str(file.metadata.to_dict())
    plain = [np.asarray(c).tobytes() for c in table.columns if pa.types.is_primitive(c.type)]
    pages = [str(c.unify_dictionaries().chunk(0).dictionary) for c in table.columns if pa.types.is_dictionary(c.type)]
    return [str(table.to_pydict()).encode(), notes.encode(), *plain, *(page.encode() for page in pages)]


def found(directory: Path, canaries: list[str | int]) -> list[str | int]:
    content = everything(directory)
    return [canary for canary in canaries if any(form in content for form in encodings(canary))]


def planted() -> tuple[Microdata, list[str | int], dict]:
    """A file with canaries all around it, and how it is to be released."""
    supply = iter(words(1, 400))
    counts = iter(numbers(2, 400))
    used: list[str | int] = []

    def take(number: int, source=supply) -> list:
        taken = [next(source) for _ in range(number)]
        used.extend(taken)
        return taken

    rng = np.random.default_rng(3)
    spare = take(20)
    hidden = pa.DictionaryArray.from_arrays(
        pa.array(rng.integers(20, 23, RECORDS).astype(np.int8)), pa.array([*spare, "north", "south", "west"])
    )
    table = pa.table(
        {
            "__index_level_0__": pa.array(take(RECORDS)),
            "Unnamed: 0": pa.array([*take(20, counts), *range(RECORDS - 20)]),
            "person": pa.array(take(RECORDS)),
            "home": pa.array(np.repeat(take(RECORDS // 3), 3).tolist()),
            "Race": pa.array(rng.choice(["a", "b", "c"], RECORDS)),
            "Region": hidden,
            "Sex": pa.array(rng.integers(1, 3, RECORDS)),
            "Surname": pa.array(take(RECORDS)),
            "Account": pa.array([*take(20, counts), *range(RECORDS - 20)]),
            "Income": pa.array(np.round(rng.lognormal(9, 1, RECORDS), 2)),
        }
    )
    fields = [field.with_metadata({take(1)[0]: take(1)[0]}) for field in table.schema]
    table = table.cast(pa.schema(fields, metadata={"pandas": take(1)[0], "file": take(1)[0]}))
    labels = {"1": "female", "2": "male", **{str(n): w for n, w in zip(take(3, counts), take(3), strict=True)}}
    schema = Schema(
        name=take(1)[0],
        attributes=(
            Attribute(name="__index_level_0__"),
            Attribute(name="Unnamed: 0"),
            Attribute(name="person", kind=Kind.IDENTIFIER, levels=tuple(take(2)), labels={take(1)[0]: take(1)[0]}),
            Attribute(name="home", kind=Kind.HOUSEHOLD, label="home", missing=tuple(take(2))),
            Attribute(name="Race", kind=Kind.ORDINAL, levels=("c", *take(3), "b", "a")),
            Attribute(
                name="Region",
                kind=Kind.GEOGRAPHY,
                levels=(*spare, "north", "south", "west"),
                labels={spare[0]: take(1)[0], "north": "the North"},
                hierarchy=({spare[1]: take(1)[0], "north": "all"}, {take(1)[0]: take(1)[0], "all": "country"}),
            ),
            Attribute(name="Sex", labels=labels, missing=tuple(take(2))),
            Attribute(name="Surname", label=take(1)[0]),
            Attribute(name="Account", kind=Kind.NUMERIC, label=take(1)[0]),
            Attribute(name="Income", kind=Kind.NUMERIC, labels={take(1)[0]: take(1)[0]}, missing=tuple(take(1))),
        ),
    )
    noted = {"spec": {"method": "swap", "note": take(1)[0]}, "key_id": take(1)[0], "data_name": take(1)[0]}
    noted |= {"algorithm": take(1)[0], "facts": {"note": take(1)[0]}}
    return Microdata(table, schema), used, noted


PROMISES = (SameRows(), KeptMargin(("Race",)), KeptMargin(("Surname",)), ReplaysFromAudit())


def release(folder: Path, data_format: str, *, drop: tuple[str, ...], identifiers: str = "new"):
    data, canaries, noted = planted()
    exchange = Exchange(attributes=("Race",), pairs=true_pairs(data, "Race"))
    terms = Terms(method="Swapped.", data_format=data_format, drop=drop, identifiers=identifiers)
    masked = masked_by(data, exchange, **noted)
    done = check_and_write(
        masked,
        public=folder / "public",
        audit=folder / "audit",
        key=KEY,
        account=account_of(masked, PROMISES),
        terms=terms,
    )
    return done, canaries


@pytest.mark.parametrize("data_format", DATA_FORMATS)
@pytest.mark.parametrize("identifiers", ["new", "none"])
def test_no_canary_is_in_what_is_published(tmp_path, data_format, identifiers):
    done, canaries = release(tmp_path, data_format, drop=("Surname", "Account"), identifiers=identifiers)
    assert len(canaries) >= CANARIES
    assert found(done.public, canaries) == []


@pytest.mark.parametrize("data_format", DATA_FORMATS)
def test_neither_key_nor_record_are_in_what_is_published(tmp_path, data_format):
    done, _ = release(tmp_path, data_format, drop=("Surname", "Account"))
    content = everything(done.public)
    for secret in (KEY.secret, KEY.id.encode(), done.audit.name.encode()):
        assert secret not in content
        assert secret.hex().encode() not in content
        assert base64.b64encode(secret) not in content
    assert b"Surname" not in content.replace(b"Names", b"")
    assert b"Account" not in content


@pytest.mark.parametrize("data_format", DATA_FORMATS)
def test_the_search_finds_what_is_published(tmp_path, data_format):
    """The control: the same canaries in columns that are not dropped are all found."""
    done, canaries = release(tmp_path, data_format, drop=())
    data, _, _ = planted()
    published = [*data.table["Surname"].to_pylist(), *data.table["Account"].to_pylist()[:20]]
    caught = found(done.public, canaries)
    assert set(published) <= set(caught)
    labels = {data.schema["Surname"].label, data.schema["Account"].label}
    assert set(caught) == set(published) | labels


@pytest.mark.parametrize("hide", [
    lambda text: text.encode().hex().encode(),
    lambda text: base64.b64encode(b"x" + text.encode() + b"yz"),
    lambda text: base64.b64encode(b"xy" + text.encode() + b"z"),
    lambda text: base64.b64encode(text.encode()),
    lambda text: text.encode("utf-16-le"),
    lambda text: text.encode("utf-16-be"),
])  # fmt: skip
def test_the_search_sees_through_encodings(tmp_path, hide):
    canary = words(9, 1)[0]
    (tmp_path / "report.html").write_bytes(b"<p>" + hide(canary) + b"</p>")
    assert found(tmp_path, [canary]) == [canary]


@pytest.mark.parametrize("compression", ["snappy", "zstd", "gzip"])
def test_the_search_sees_through_compression(tmp_path, compression):
    canary, number = words(9, 1)[0], numbers(9, 1)[0]
    table = pa.table({"x": [canary] * 3, "n": [number] * 3})
    parquet.write_table(table, tmp_path / "data.parquet", compression=compression)
    assert found(tmp_path, [canary, number]) == [canary, number]


def test_first_appearance_and_file_order_leave_no_trace(tmp_path):
    """Categories and rows of the release do not follow the order in which the original had them."""
    done, _ = release(tmp_path, "parquet", drop=("Surname", "Account"))
    data, _, _ = planted()
    inside = data.table["Income"].to_pylist()
    outside = parquet.read_table(done.public / "data.parquet")["Income"].to_pylist()
    assert sorted(inside) == sorted(outside)
    places = [inside.index(value) for value in outside]
    assert abs(np.corrcoef(places, range(RECORDS))[0, 1]) < 0.5
    assert places != sorted(places)
