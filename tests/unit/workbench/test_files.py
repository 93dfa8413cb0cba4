"""The assets of the pages: bundled, compressed, and the same program as before."""

import asyncio
import gzip
import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import pyarrow as pa
import pytest
from fastapi import FastAPI

from safeswap.workbench import add_workbench
from safeswap.workbench.assets import asset, assets, build, bundle
from safeswap.workbench.pages import HELP, STEPS


def get(path, **headers):
    """The answer of an application that has the workbench and no service."""
    app = FastAPI()
    add_workbench(app)

    async def asked():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return await client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    # In a thread of its own: where a browser has been driven, this one has an event loop that runs.
    with ThreadPoolExecutor(1) as other:
        return other.submit(lambda: asyncio.run(asked())).result()


def test_a_module_comes_once_and_after_all_that_it_needs():
    modules = {
        "page": 'import { two } from "./two.js";\nimport { one } from "./one-more.js";\nshow(one, two);\n',
        "two": 'import { one as first } from "./one-more.js";\nexport const two = first + 1;\n',
        "one-more": "export async function one() {}\nexport class Other {}\nfunction own() {}\nexport { own };\n",
    }
    text = bundle("page", modules)
    places = [text.index(part) for part in ("const $one_more =", "const $two =", "show(one, two)")]
    assert places == sorted(places)
    assert text.count("async function one()") == 1
    assert "return { one, Other, own };" in text
    assert "const { one: first } = $one_more;" in text
    assert "import" not in text
    assert "export" not in text


def test_modules_that_need_each_other_are_refused():
    modules = {
        "a": 'import { b } from "./b.js";\nexport const a = 1;',
        "b": 'import { a } from "./a.js";\nexport const b = 1;',
    }
    with pytest.raises(ValueError, match="a, b, a"):
        bundle("a", modules)


def test_a_name_that_a_module_does_not_give_is_refused():
    modules = {"a": 'import { b, c } from "./b.js";\nshow(b, c);', "b": "export const b = 1, c = 2;"}
    with pytest.raises(ValueError, match=r"a\.js imports c, which b\.js does not export"):
        bundle("a", modules)


@pytest.mark.parametrize(
    "line", ["export default 1;", 'import "./b.js";', 'import * as b from "./b.js";', "export let a = 1;"]
)
def test_what_cannot_be_bundled_is_refused(line):
    with pytest.raises(ValueError, match="cannot be bundled"):
        bundle("a", {"a": line, "b": ""})


def test_a_page_has_one_script_and_one_style():
    for name, *_ in STEPS:
        page = get(f"/projects/p1/{name}").text
        scripts = re.findall(r'<script [^>]*src="([^"]+)"', page)
        ours = [each for each in scripts if not each.endswith(("plotly.js", "early.js"))]
        assert ours == [f"/assets/{build()}/js/{name}.js"]
        assert page.count('rel="stylesheet"') == 1
        assert get(ours[0]).headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("name", ["js/plotly.js", "js/map.js", "css/map.css"])
def test_what_is_compressed_is_what_is_not(name):
    address = f"/assets/{build()}/{name}"
    plain = asset(name).plain
    assert get(address, accept_encoding="identity").content == plain
    for encoding in ("gzip", "zstd"):
        assert get(address, accept_encoding=encoding).headers["content-encoding"] == encoding
    assert get(address, accept_encoding="gzip, deflate, br, zstd").headers["content-encoding"] == "zstd"
    kept = asset(name).compressed
    assert gzip.decompress(kept["gzip"]) == plain
    assert pa.Codec("zstd").decompress(kept["zstd"], len(plain), asbytes=True) == plain


def test_the_chosen_colours_are_in_the_page_and_nothing_else_that_a_cookie_says():
    for said, expected in [("dark", ' data-theme="dark"'), ("light", ' data-theme="light"'), ('"><script>', "")]:
        start = get("/projects/p1/map", cookie=f"safeswap-theme={said}").text.split("<head>")[0]
        assert ("data-theme" in start, expected in start) == (bool(expected), True)
        assert "<script" not in start


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("map", "studies/latest/map"),
        ("map?study=s1", "studies/s1/map"),
        ('map?study="><script>', "studies/%22%3E%3Cscript%3E/map"),
        ("records", "confidentiality/latest/plot"),
        ("records?plot=c1", "confidentiality/c1/plot"),
        ("records?masking=m1", None),
    ],
)
def test_a_page_with_a_chart_asks_at_once_for_what_the_chart_shows(path, asked):
    early = re.findall(r'<link rel="preload" as="fetch" [^>]*href="([^"]+)"', get(f"/projects/p1/{path}").text)
    shown = [address for address in early if address.endswith(("/map", "/plot"))]
    assert shown == ([f"/api/v1/projects/p1/{asked}"] if asked else [])


def test_every_file_has_a_type():
    assert all(asset(name).media_type for name in assets())


def test_every_screen_has_help_and_every_link_in_it_leads_somewhere():
    topics = {topic: get(f"/help/{topic}") for topic in HELP}
    for topic, page in topics.items():
        assert page.status_code == 200
        assert page.text.count("<h1>") == 1, topic
        assert set(re.findall(r'href="/help/(\w+)"', page.text)) == set(HELP)
    assert get("/help/nothing").status_code == 422
    for screen in ("data", "risk", "method", "map", "records", "release", "tables", "log"):
        assert f'href="/help/{screen}"' in get(f"/projects/p1/{screen}").text
    assert 'href="/help/projects"' in get("/").text
