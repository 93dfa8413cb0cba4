from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeswap.service.http import logs

CANARY = "Miller 1954-03-02"
WARNS = """
import sys, warnings
from pathlib import Path
from safeswap.service.http import logs
from safeswap.service.settings import Settings

folder = Path(sys.argv[1])
logs.configure(Settings(store=folder / "store", master_key_file=folder / "master.key"))
warnings.warn(sys.argv[2])
"""


@pytest.fixture
def lines(monkeypatch, tmp_path):
    """Everything that this process logs, by whomever, while the test runs."""
    from tests.service.installed import settings_in

    names = ("", "uvicorn", "uvicorn.error", "uvicorn.access", "safeswap.service")
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger, logger.handlers[:], logger.level, logger.propagate) for logger in loggers]

    class Stream:
        text = ""

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure(settings_in(tmp_path))
    yield lambda: [json.loads(line) for line in stream.text.splitlines()]
    logging.captureWarnings(capture=False)
    for logger, handlers, level, propagate in before:
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_an_event_is_one_line_of_json(lines):
    logs.event("request", route="/api/v1/projects/{project_id}", method="GET", status=200, ms=1.5, user_id="0a" * 16)
    (line,) = lines()
    assert line.pop("at").endswith("+00:00")
    assert line == {
        "level": "info",
        "event": "request",
        "route": "/api/v1/projects/{project_id}",
        "method": "GET",
        "status": 200,
        "ms": 1.5,
        "user_id": "0a" * 16,
    }


@given(value=st.text(min_size=1))
def test_a_text_gets_in_under_no_other_name(value):
    assert logs.filter_fields({"name": value, "message": value, "path": value}) == {"left_out": 3}


@pytest.mark.parametrize("name", sorted(logs.FIELDS))
@pytest.mark.parametrize("value", [CANARY, f"/api/v1/{CANARY}", "Ω", "a b", {"a": CANARY}, [CANARY], b"x", True])
def test_what_does_not_look_like_its_field_stays_out(name, value):
    assert logs.filter_fields({name: value}) == {"left_out": 1}


@pytest.mark.parametrize(
    "path", ["/api/v1/projects/0a1b2c", "/api/v1/projects/Miller", "/files/survey2024.csv", "/a?name=Miller", "//a"]
)
def test_a_path_that_somebody_asked_for_is_no_route(path):
    assert logs.filter_fields({"route": path}) == {"left_out": 1}


def test_words_of_libraries_do_not_get_in(lines):
    logging.getLogger("pyarrow.csv").error("cannot convert %s", CANARY)
    logging.getLogger("uvicorn.error").error(CANARY)
    logging.getLogger("uvicorn.access").warning(CANARY)
    logging.getLogger("sqlalchemy.engine").warning("INSERT %s", CANARY, extra={"safeswap": {"event": CANARY}})
    logging.getLogger("safeswap.service").warning(CANARY)
    try:
        raise ValueError(CANARY)
    except ValueError:
        logging.getLogger(CANARY).exception(CANARY)
    found = lines()
    assert [line["event"] for line in found] == ["library"] * 5
    assert CANARY not in json.dumps(found)
    assert found[-1]["exception"] == "ValueError"


def test_a_warning_is_noted_without_its_words(tmp_path):
    # in a process of its own: pytest records the warnings of this one, and whoever came first is the one who hears them
    said = subprocess.run(
        [sys.executable, "-W", "always", "-c", WARNS, str(tmp_path), CANARY], capture_output=True, text=True, check=True
    )
    assert [json.loads(line)["logger"] for line in said.stderr.splitlines()] == ["py.warnings"]
    assert CANARY not in said.stderr


def test_the_text_style_shows_the_same_fields():
    record = logging.LogRecord("safeswap.service", logging.INFO, "", 0, CANARY, None, None)
    record.safeswap = {"event": "job-start", "kind": "mask", "payload": CANARY}
    line = logs.Lines("text").format(record)
    assert line.endswith("level=info event=job-start kind=mask left_out=1")
