"""How many of our files a job passes through: no times, so that a slow machine fails nothing."""

from __future__ import annotations

import sys
import threading
from types import FrameType

from tests.service.at_work import do_jobs, project_with_data
from tests.service.serving import Running

MOST_FILES = 58
"""The number of today. With more files a job has become harder to follow."""


class Walk:
    """The files of ours that are called into within a block, leaving out what merely importing runs."""

    def __enter__(self) -> set[str]:
        self._files: set[str] = set()
        self._importing = 0
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self._files

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_name == "<module>":
            self._importing += (event == "call") - (event == "return")
        elif event == "call" and not self._importing and "/safeswap/" in frame.f_code.co_filename:
            self._files.add(frame.f_code.co_filename.rpartition("/safeswap/")[2])


def test_the_job_of_a_study_passes_through_few_files(town: Running) -> None:
    project = project_with_data(town, "ana")
    asked = {"up_to": 1, "rates": [0.1, 0.2], "attributes": ["tenure", "age"]}
    answer = town.client("ana").post(f"/api/v1/projects/{project}/studies", json={"spec": asked})
    assert answer.status_code == 202, answer.text
    with Walk() as files:
        assert do_jobs(town.service) == 1
    assert "service/routes/studies.py" in files
    assert len(files) <= MOST_FILES, sorted(files)
