"""``safeswap attack``: a masked file with its original, and what is said of attacks that lack something."""

import json


def test_a_masked_file_is_attacked_with_its_original_and_its_record(safeswap, place, tmp_path):
    assert safeswap(*place.swap).code == 0
    known = ("--identifier", "id", "--json")
    run = safeswap("attack", place.masked, place.survey, "--attack", "swapped_records", "--attack", "linkage", *known)
    assert run.code == 0, run.said
    assert [each["attack"] for each in run.document["attacks"]] == ["swapped_records"]
    assert {each["attack"] for each in run.document["skipped"]} == {"linkage"}
    alone = safeswap("attack", place.masked, "--quick", *known)
    assert alone.code == 0, alone.said
    assert alone.document["attacks"] == []


def test_what_cannot_be_tried_is_refused_in_words(safeswap, place, tmp_path):
    assert safeswap(*place.swap).code == 0
    run = safeswap("attack", place.masked, place.survey, "--identifier", "id", "--attack", "linkege", "--json")
    assert run.document["code"] == "unknown-attack"
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"age": "1"}))
    run = safeswap("attack", place.masked, place.survey, "--identifier", "id", "--rules", rules, "--json")
    assert run.document["code"] == "bad-rule"


def test_a_policy_judges_and_a_bad_one_is_refused(safeswap, place, tmp_path):
    assert safeswap(*place.swap).code == 0
    policy, run = tmp_path / "policy.toml", ("attack", place.masked, place.survey, "--identifier", "id", "--json")
    policy.write_text("[limits]\nswapped_records = 1.0\n")
    assert safeswap(*run, "--policy", policy).code == 0
    for text, code in (("[limits]\nlinkages = 0.1\n", "unknown-attack"), ("[limits", "bad-policy")):
        policy.write_text(text)
        assert safeswap(*run, "--policy", policy).document["code"] == code
    assert safeswap(*run, "--policy", tmp_path / "none.toml").document["code"] == "bad-policy"
    policy.write_text("[limits]\ndistinct_numbers = 0.0\nunusual_combinations = 0.0\n")
    scenario = tmp_path / "scenario.toml"
    scenario.write_text('[[scenario]]\nname = "x"\nkeys = ["Race"]\n')
    above = safeswap(*run, "--policy", policy, "--scenario", scenario)
    assert above.document["code"] == "attack-above-policy", above.said


def test_control_records_are_checked_on_the_command_line_too(safeswap, place, tmp_path):
    assert safeswap(*place.swap).code == 0
    run = ("attack", place.masked, place.survey, "--identifier", "id", "--quick", "--json")
    assert safeswap(*run, "--control", place.survey).document["code"] == "control-overlaps"
    held = tmp_path / "held.csv"
    held.write_text("id,region\n900001,N\n")
    assert safeswap(*run, "--control", held).document["code"] == "files-differ"
    refused = safeswap(*place.release, "--control", place.survey, "--json")
    assert refused.document["code"] == "control-overlaps"
    assert not place.bundle.exists()


def test_a_release_names_strong_attacks_that_no_policy_limits(safeswap, place):
    header, *lines = place.survey.read_text().splitlines()
    place.survey.write_text("\n".join([f"{header},income", *(f"{line},{n * 7.5}" for n, line in enumerate(lines))]))
    assert safeswap(*place.swap).code == 0
    run = safeswap(*place.release)
    assert run.code == 0, run.said
    assert "by income alone" in run.said
    assert "The policy has no limit for this attack (distinct_numbers)." in run.said
