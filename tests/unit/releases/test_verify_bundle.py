import shutil

import pytest
from tests.hand_made import release_of

from safeswap.errors import InputError, UnsafeRelease
from safeswap.releases.bundle import write_bundle
from safeswap.releases.manifest import DATA_FORMATS, MANIFEST, Manifest
from safeswap.releases.scan import verify_bundle


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    root = tmp_path_factory.mktemp("bundles")
    return {f: write_bundle(release_of(), root / f, data_format=f).directory for f in DATA_FORMATS}


@pytest.mark.parametrize("data_format", DATA_FORMATS)
def test_a_bundle_can_be_verified_by_anybody(bundles, data_format):
    report = verify_bundle(bundles[data_format])
    assert (report.records, report.columns, report.data_format, report.remarks) == (400, 7, data_format, ())
    assert report.facts["method"] == "Values were swapped."
    assert report.as_dict()["records"] == 400


@pytest.mark.parametrize("name", ["data.csv", "dictionary.json", "dictionary.csv", "report.html"])
@pytest.mark.parametrize("place", [0.0, 0.5, 0.999])
def test_one_flipped_bit_in_any_file_is_found(bundles, tmp_path, name, place):
    directory = shutil.copytree(bundles["csv"], tmp_path / "copy")
    data = bytearray((directory / name).read_bytes())
    data[int(place * len(data))] ^= 1
    (directory / name).write_bytes(data)
    with pytest.raises(UnsafeRelease) as caught:
        verify_bundle(directory)
    assert (caught.value.code, caught.value.fields["file"]) == ("bundle-changed", name)


def test_one_flipped_bit_anywhere_in_the_manifest_is_found(bundles):
    data = (bundles["csv"] / MANIFEST).read_bytes()
    Manifest.from_bytes(data)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        with pytest.raises(UnsafeRelease) as caught:
            Manifest.from_bytes(bytes(changed))
        assert caught.value.code == "bundle-changed"


@pytest.mark.parametrize("data_format", ["parquet", "dta", "sav"])
def test_a_flipped_bit_in_the_data_is_found_in_every_format(bundles, tmp_path, data_format):
    directory = shutil.copytree(bundles[data_format], tmp_path / "copy")
    path = directory / f"data.{data_format}"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UnsafeRelease) as caught:
        verify_bundle(directory)
    assert caught.value.code == "bundle-changed"


@pytest.mark.parametrize("name", ["audit.json", "pairs.parquet", ".hidden", "data.parquet", "folder"])
def test_a_file_too_many_is_found(bundles, tmp_path, name):
    directory = shutil.copytree(bundles["csv"], tmp_path / "copy")
    (directory / name).mkdir() if name == "folder" else (directory / name).write_text("x")
    with pytest.raises(UnsafeRelease) as caught:
        verify_bundle(directory)
    assert (caught.value.code, caught.value.fields["file"]) == ("foreign-file", name)


@pytest.mark.parametrize("name", ["data.csv", "dictionary.json", "dictionary.csv", "report.html"])
def test_a_file_too_few_is_found(bundles, tmp_path, name):
    directory = shutil.copytree(bundles["csv"], tmp_path / "copy")
    (directory / name).unlink()
    with pytest.raises(UnsafeRelease) as caught:
        verify_bundle(directory)
    assert (caught.value.code, caught.value.fields["file"]) == ("bundle-changed", name)


def test_a_link_in_place_of_a_file_is_found(bundles, tmp_path):
    directory = shutil.copytree(bundles["csv"], tmp_path / "copy")
    (directory / "data.csv").rename(tmp_path / "elsewhere.csv")
    (directory / "data.csv").symlink_to(tmp_path / "elsewhere.csv")
    with pytest.raises(UnsafeRelease):
        verify_bundle(directory)


def test_what_is_no_bundle_is_said_to_be_none(bundles, tmp_path):
    with pytest.raises(InputError) as caught:
        verify_bundle(tmp_path / "nowhere")
    assert caught.value.code == "no-bundle"
    directory = shutil.copytree(bundles["csv"], tmp_path / "copy")
    (directory / MANIFEST).unlink()
    with pytest.raises(InputError) as caught:
        verify_bundle(directory)
    assert caught.value.code == "no-manifest"


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b"0" * 2_000_000])
def test_a_manifest_that_is_none_is_refused(bundles, tmp_path, content):
    directory = shutil.copytree(bundles["csv"], tmp_path / "copy")
    (directory / MANIFEST).write_bytes(content)
    with pytest.raises(UnsafeRelease) as caught:
        verify_bundle(directory)
    assert caught.value.code == "bundle-changed"


def test_a_manifest_cannot_lead_out_of_the_bundle(bundles, tmp_path):
    directory = shutil.copytree(bundles["csv"], tmp_path / "copy")
    manifest = Manifest.from_bytes((directory / MANIFEST).read_bytes())
    escaping = Manifest(data_format="csv", facts=manifest.facts, files={**manifest.files, "../secret": (1, "00")})
    (directory / MANIFEST).write_bytes(escaping.to_bytes())
    with pytest.raises(UnsafeRelease):
        verify_bundle(directory)
