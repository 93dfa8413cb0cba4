"""Households and areas as they are shown: true where they are counted, silent where a count is too small."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from tests.service.at_work import do_jobs, project_with_data
from tests.service.serving import Running

from safeswap.service.routes.households import merge_sizes

TOLERANCE = 3
API = "/api/v1/projects"


def people(seed: int) -> list[dict[str, str]]:
    """Persons in households in areas, some of them with very few."""
    draw, found = random.Random(seed), []
    for home in range(120):
        region = draw.choice("AAABBC")
        town = f"{region}{draw.choice([1, 1, 1, 1, 2, 2, 2, 3, 3, draw.randint(4, 12)])}"
        for _ in range(draw.choice([1, 1, 2, 2, 3, 4, draw.randint(1, 11)])):
            found.append({"id": str(len(found)), "home": f"h{home}", "region": region, "town": town})
    return found


def written(rows: list[dict[str, str]]) -> bytes:
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


@pytest.mark.parametrize("seed", range(3))
def test_what_is_shown_is_true_and_tells_no_small_count(town: Running, seed: int) -> None:
    rows = people(seed)
    project = project_with_data(town, "ana", "vera", content=written(rows))
    with town.client("ana") as ana, town.client("vera") as vera:
        ana.patch(
            f"{API}/{project}/description",
            json={
                "attributes": [
                    {"name": "home", "kind": "household"},
                    {"name": "region", "kind": "geography"},
                    {"name": "town", "kind": "geography"},
                ]
            },
            headers={"If-Match": ana.get(f"{API}/{project}/description").headers["etag"]},
        )
        do_jobs(town.service)
        homes = vera.get(f"{API}/{project}/households").json()
        places = vera.get(f"{API}/{project}/geography").json()
        described = {each["name"]: each for each in vera.get(f"{API}/{project}/description").json()["attributes"]}
        assert vera.get(f"{API}/{project}/geography", params={"level": 1}).json()["code"] == "no-geography"
    members = Counter(row["home"] for row in rows)
    sizes = Counter(members.values())
    assert homes["households"] == len(members)
    assert homes["outside"] == 0
    at = 1
    for each in homes["sizes"]:
        last = max(sizes) if each["most"] is None else each["most"]
        assert each["least"] == at
        assert each["households"] == sum(sizes[size] for size in range(at, last + 1)) >= TOLERANCE
        at = last + 1
    assert homes["sizes"][-1]["most"] is None

    regions, towns = Counter(row["region"] for row in rows), Counter(row["town"] for row in rows)
    for region in places["areas"]:
        inside = {name: number for name, number in towns.items() if name[0] == region["name"]}
        assert region["records"] in (None, regions[region["name"]])
        assert len(region["areas"]) + region["rare"] == len(inside)
        shown = {area["name"]: area["records"] for area in region["areas"]}
        assert all(number is None or number == inside[name] >= TOLERANCE for name, number in shown.items())
        assert all(inside[name] >= TOLERANCE for name in shown)
        if region["rare"]:  # their sum is not what is left when the others are subtracted
            assert None in shown.values()
        if region["records"] is None:
            assert set(shown.values()) <= {None}
    # Nor does the description tell it: of a region that is counted, no single town is missing from the sum.
    counted = {each["level"]: each["count"] for each in described["town"]["levels"] if each["count"] is not None}
    assert set(counted) < set(towns)
    for each in described["region"]["levels"]:
        inside = {name for name in towns if name[0] == each["level"]}
        assert each["count"] in (None, regions[each["level"]])
        assert each["count"] is None or len(inside - set(counted)) != 1


def test_few_households_are_not_told_by_size() -> None:
    assert merge_sizes(np.array([0, 1, 1]), 3) == ()
