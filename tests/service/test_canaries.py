"""Two hundred values that nobody else has go through everything; none comes out where it does not belong."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from tests.service.serving import running

API = "/api/v1"
SPEC = {"method": "swap", "swap": ["tenure"], "fixed": ["region"], "rate": 0.1}
KEYS = {"keys": ["region", "tenure", "town"], "up_to": 3}


def canaries() -> list[str]:
    """Names of two hundred places that hold one record each."""
    draw = random.Random(7)
    return ["Zq" + "".join(draw.choices("bcdfghjklmnp", k=9)) for _ in range(200)]


def survey(birds: list[str]) -> bytes:
    """A survey in which each canary is the town of one person, and part of her identifier."""
    draw = random.Random(8)
    lines = ["id,region,tenure,town,age"]
    for number in range(1200):
        bird = birds[number] if number < len(birds) else ""
        town = bird or draw.choice(["Aford", "Beham", "Coston"])
        person = f"{bird or 'P'}-{number}"
        lines.append(
            f"{person},{draw.choice('NS')},{draw.choice(['own', 'rent', 'free'])},{town},{draw.randint(18, 90)}"
        )
    return ("\n".join(lines) + "\n").encode()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Everything that was said while a project went its whole way: answers, logs, metrics, and the files left over."""
    folder = tmp_path_factory.mktemp("canaries")
    birds, answers, log = canaries(), [], folder / "worker.log"
    with running(folder) as here:
        settings = here.service.settings
        with log.open("wb") as errors:
            worker = subprocess.Popen(
                [sys.executable, "-m", "safeswap.service.work.worker"],
                stderr=errors,
                stdout=errors,
                env=_environment(settings),
            )
            try:
                client = here.client("ana", event_hooks={"response": [lambda r: answers.append(_text(r))]})
                _whole_way(client, survey(birds))
            finally:
                worker.terminate()
                worker.wait(120)
        metrics = here.client().get("/metrics").text
        store = Path(settings.store)
        left = [path.relative_to(store) for path in store.rglob("*") if path.is_file()]
        yield {"birds": birds, "answers": answers, "log": log.read_text(), "metrics": metrics, "files": left}


def _environment(settings) -> dict[str, str]:

    return {
        **os.environ,
        "SAFESWAP_STORE": str(settings.store),
        "SAFESWAP_MASTER_KEY_FILE": str(settings.master_key_file),
    }


def _text(response: httpx.Response) -> str:
    response.read()
    return f"{response.url.path} {response.headers} {response.text}"


def _whole_way(client: httpx.Client, content: bytes) -> None:
    project = client.post(f"{API}/projects", json={"name": "birds"}).json()["id"]
    at = f"{API}/projects/{project}"

    def done(answer: httpx.Response) -> dict:
        job = answer.json()
        until = time.monotonic() + 600
        while job.get("state") in {"queued", "running"} and time.monotonic() < until:
            time.sleep(0.1)
            job = client.get(f"{API}/jobs/{job['id']}").json()
        assert job.get("state") in {"succeeded", "failed"}, job
        return job

    assert (
        done(client.put(f"{at}/data", params={"name": "birds.csv", "identifier": "id"}, content=content))["state"]
        == "succeeded"
    )
    for path in ("", "/description", "/recipe", "/jobs", "/log", "/log.txt"):
        client.get(at + path)
    client.post(f"{at}/plan", json={"spec": SPEC})
    client.post(f"{at}/risky", json={"combinations": KEYS})
    client.post(f"{at}/advice", json={"combinations": KEYS, "most": 100})
    client.post(f"{at}/table-checks", json={"tables": [["town", "tenure"]]})
    client.post(f"{at}/script", json={"spec": SPEC, "release": True})
    assert (
        done(client.post(f"{at}/safe-tables", json={"tables": [["town", "tenure"]], "keep": [["tenure"]]}))["state"]
        == "succeeded"
    )
    masked = done(client.post(f"{at}/maskings", json={"spec": SPEC}))
    client.get(f"{at}/maskings/{masked['result']['id']}")
    client.get(f"{at}/maskings/{masked['result']['id']}/report.html")
    client.get(f"{at}/maskings/{masked['result']['id']}/table", params={"attributes": ["town", "tenure"]})
    done(client.post(f"{at}/maskings", json={"spec": {"method": "swap", "swap": ["town"], "rate": 0.99}}))
    study = done(client.post(f"{at}/studies", json={"spec": {"attributes": ["tenure"], "rates": [0.05]}}))
    for path in ("", "/map", "/candidates", "/candidates/0", "/candidates/0/table?attributes=town", "/report.html"):
        client.get(f"{at}/studies/{study['result']['id']}{path}")
    plot = done(
        client.post(f"{at}/confidentiality", json={"masking": masked["result"]["id"], "keys": ["town", "tenure"]})
    )
    for path in ("", "/plot", "/plot.html"):
        client.get(f"{at}/confidentiality/{plot['result']['id']}{path}")
    far = {"masking": masked["result"]["id"], "keys": ["age"], "linkage": "distance"}
    near = done(client.post(f"{at}/confidentiality", json=far))
    client.get(f"{at}/confidentiality/{near['result']['id']}/plot")
    done(client.put(f"{at}/data", params={"name": "broken.csv"}, content=content[:2000] + b'"' + content[2000:4000]))
    done(client.put(f"{at}/data", params={"name": "wrong.csv", "identifier": "tenure"}, content=content))
    release = client.post(f"{at}/releases", json={"masking": masked["result"]["id"]}).json()
    done(client.get(f"{API}/jobs/{release['job_id']}"))
    client.get(f"{at}/releases/{release['id']}")


def test_no_answer_log_or_metric_holds_a_value_of_a_record(told):
    for where in ("log", "metrics"):
        assert not [bird for bird in told["birds"] if bird in told[where]], where
    leaking = [answer[:200] for answer in told["answers"] if any(bird in answer for bird in told["birds"])]
    assert leaking == []
    assert len(told["answers"]) > 40


def test_no_temporary_file_is_left(told):
    left = [path for path in told["files"] if {"scratch", "uploads", "jobs", "tmp"} & set(path.parts)]
    assert left == []
