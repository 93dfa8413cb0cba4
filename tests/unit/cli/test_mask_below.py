"""``safeswap mask-below``: from a threshold of risk to a masked file."""

from collections import Counter


def test_no_record_above_the_threshold_keeps_its_keys(safeswap, place):
    keys = ["Race", "Sex", "Town"]
    run = ["mask-below", place.survey, "--identifier", "id", "--keys", ",".join(keys), "--threshold", "0.05"]
    run += ["--key", place.key, "--output", place.masked, "--audit", place.audit, "--json"]
    for by in (["--by", "suppress"], ["--by", "swap", "--swap", "Race,Town"]):
        done = safeswap(*run, *by, "--force")
        assert done.code == 0, done.said
        lines = [path.read_text().splitlines() for path in (place.survey, place.masked)]
        header = lines[0][0].split(",")
        before, after = (
            [tuple(line.split(",")[header.index(key)] for key in keys) for line in part[1:]] for part in lines
        )
        counts = Counter(after)
        assert before != after
        if by[1] == "swap":
            assert not any(1 / counts[now] > 0.05 for was, now in zip(before, after, strict=True) if was == now)
    refused = safeswap(*run, "--by", "swap", "--swap", "id", "--force")
    assert refused.document["code"] == "bad-spec"
    assert safeswap(*run, "--by", "hiding", "--force").document["code"] == "usage"
