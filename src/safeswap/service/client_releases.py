"""What a client asks about people and about what leaves: members, releases, archives, the log."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, Literal

from safeswap.service.client_connection import Connection, chunks
from safeswap.service.schemas.jobs import Job
from safeswap.service.schemas.library import ResultAnswer
from safeswap.service.schemas.people import MemberAnswer
from safeswap.service.schemas.releases import ReleaseAnswer


class ReleaseCalls(Connection):
    """Calls of a client about people and releases."""

    def members(self, project_id: str) -> list[MemberAnswer]:
        """Who belongs to a project."""
        return list(self._pages(f"/projects/{project_id}/members", MemberAnswer))

    def add_member(self, project_id: str, name: str) -> MemberAnswer:
        """Let somebody see a project; by a person who has logged in, not by a token."""
        return MemberAnswer.model_validate(self._send("PUT", f"/projects/{project_id}/members/{name}").json())

    def remove_member(self, project_id: str, name: str) -> None:
        """From now on the project does not exist for her."""
        self._send("DELETE", f"/projects/{project_id}/members/{name}")

    def request_release(self, project_id: str, masking: str, **terms: Any) -> ReleaseAnswer:
        """Ask for a masking to be released; a job prepares the bundle. ``terms`` are title, data_format, drop, …"""
        body = {"masking": masking, "terms": terms}
        return self._made(ReleaseAnswer, f"/projects/{project_id}/releases", body)

    def releases(self, project_id: str) -> list[ReleaseAnswer]:
        """The releases of a project, newest first."""
        return list(self._pages(f"/projects/{project_id}/releases", ReleaseAnswer))

    def release(self, project_id: str, release_id: str) -> ReleaseAnswer:
        """One release: what would leave, what was verified, what comparing it with earlier ones would tell."""
        return self._got(ReleaseAnswer, f"/projects/{project_id}/releases/{release_id}")

    def approve(
        self, project_id: str, release_id: str, *, manifest_hash: str, override_reason: str = ""
    ) -> ReleaseAnswer:
        """Let exactly the bundle with this manifest leave; by an officer who has not asked for it."""
        body = {"manifest_hash": manifest_hash, "override_reason": override_reason}
        return self._made(ReleaseAnswer, f"/projects/{project_id}/releases/{release_id}/approval", body)

    def reject(self, project_id: str, release_id: str, *, reason: str) -> ReleaseAnswer:
        """Do not let it leave."""
        return self._made(ReleaseAnswer, f"/projects/{project_id}/releases/{release_id}/rejection", {"reason": reason})

    def download(self, project_id: str, release_id: str, path: str | PathLike[str]) -> Path:
        """The approved bundle, as a new zip file."""
        return self._saved(f"/projects/{project_id}/releases/{release_id}/bundle.zip", Path(path))

    def export(self, project_id: str, form: Literal["safeswap", "webswap"] = "safeswap") -> Job:
        """Pack a project into one file, for inside."""
        return self._made(Job, f"/projects/{project_id}/exports", {"form": form})

    def save_export(self, project_id: str, result_id: str, path: str | PathLike[str]) -> Path:
        """Such a file. It holds the confidential data."""
        return self._saved(f"/projects/{project_id}/exports/{result_id}/file", Path(path))

    def import_project(self, path: str | PathLike[str]) -> Job:
        """Make a project of an archive, ours or WebSwap's."""
        file = Path(path)
        answer = self._send("PUT", "/imports", params={"name": file.name}, content=chunks(file))
        return Job.model_validate(answer.json())

    def specifications(self, project_id: str) -> list[ResultAnswer]:
        """What came with the archive of which a project was made."""
        return list(self._pages(f"/projects/{project_id}/specifications", ResultAnswer))

    def note(self, project_id: str, text: str) -> None:
        """Add a line to the session log; no values of records."""
        self._send("POST", f"/projects/{project_id}/log", json={"text": text})

    def log(self, project_id: str) -> str:
        """The session log of a project as text."""
        return self._send("GET", f"/projects/{project_id}/log.txt").text
