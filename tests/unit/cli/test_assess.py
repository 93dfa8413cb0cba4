"""``safeswap assess``: which record is which, which measures apply, and what is said of those that do not."""

from pathlib import Path

import pytest


@pytest.fixture
def one_attribute(tmp_path) -> Path:
    path = tmp_path / "one.csv"
    path.write_text("x\n" + "\n".join("aabbc" * 20) + "\n")
    return path


def test_a_file_of_one_categorical_attribute_is_swapped_and_assessed(safeswap, one_attribute, tmp_path):
    masked = tmp_path / "masked.csv"
    outputs = ("--output", masked, "--audit", tmp_path / "audit", "--insecure-seed", 1)
    run = safeswap("swap", one_attribute, "--swap", "x", "--rate", 0.2, *outputs)
    assert run.code == 0, run.said
    assert "Left out: adV, adC (it needs 2 categorical attributes)." in run.stdout
    run = safeswap("assess", one_attribute, masked, "--json")
    assert run.code == 0, run.said
    assert [each["measure"] for each in run.document["left_out"]] == ["adV", "adC"]
    assert "hellinger" in [score["measure"] for score in run.document["scores"]]


def test_the_order_of_the_records_makes_no_difference_where_there_are_identifiers(safeswap, place, tmp_path):
    assert safeswap(*place.swap).code == 0
    header, *lines = place.masked.read_text().splitlines()
    turned = tmp_path / "turned.csv"
    turned.write_text("\n".join([header, *reversed(lines)]) + "\n")
    one, other = (
        safeswap("assess", place.survey, path, "--identifier", "id", "--json").document["scores"]
        for path in (place.masked, turned)
    )
    assert one == other


def test_records_that_cannot_be_told_apart_are_refused_with_the_way_that_works(safeswap, place, tmp_path):
    assert safeswap(*place.swap).code == 0
    header, *lines = place.masked.read_text().splitlines()
    renamed = tmp_path / "renamed.csv"
    renamed.write_text("\n".join([header, *(f"9{line}" for line in reversed(lines))]) + "\n")
    run = safeswap("assess", place.survey, renamed, "--identifier", "id")
    assert run.code != 0
    assert "--record DIR" in " ".join(run.stderr.split())
    assert safeswap("assess", place.survey, renamed, "--identifier", "id", "--match", "position").code == 0


def test_after_noise_the_measures_of_categories_are_left_out_and_named(safeswap, tmp_path):
    path, masked = tmp_path / "incomes.csv", tmp_path / "masked.csv"
    rows = [f"{'mf'[i % 2]},{'nsw'[i % 3]},{1000 + i * 37 % 911}" for i in range(200)]
    path.write_text("\n".join(["sex,area,income", *rows]) + "\n")
    outputs = ("--output", masked, "--audit", tmp_path / "audit", "--insecure-seed", 1)
    run = safeswap("mask", "noise", path, "--attributes", "income", "--size", 0.2, *outputs)
    assert run.code == 0, run.said
    said = " ".join(run.stdout.split())
    assert "Left out: n_rule, hellinger, total_variation, entropy_change, adV, adC" in said
    assert "correct_links" in said


def test_what_is_true_of_several_figures_is_said_once(safeswap, tmp_path):
    before, after = tmp_path / "before.csv", tmp_path / "after.csv"
    rows = [f"{number},{'xy'[number % 2]},{'uvw'[number % 3]},{number * 7 % 101}.5" for number in range(60)]
    before.write_text("\n".join(["id,A,B,income", *rows]) + "\n")
    after.write_text("\n".join(["id,A,B,income", *rows[:-2], rows[-2].replace("x", "y"), rows[-1]]) + "\n")
    run = safeswap("assess", before, after, "--identifier", "id")
    assert run.code == 0, run.said
    assert run.stdout.count("Not compared, since numeric: income.") == 1
    scores = safeswap("assess", before, after, "--identifier", "id", "--json").document["scores"]
    assert sum("Not compared, since numeric: income." in score["sentence"] for score in scores) > 1
