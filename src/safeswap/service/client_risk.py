"""What a client asks about risk: unsafe combinations, the recipe against them, safe tables, the plot of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from safeswap.service.client_connection import Connection
from safeswap.service.schemas.argus import AdviceAnswer, CheckAnswer, RecipeAnswer, RiskyAnswer
from safeswap.service.schemas.jobs import Job
from safeswap.service.schemas.library import ResultAnswer


class RiskCalls(Connection):
    """Calls of a client about risk. ``combinations`` are those of ``risky`` in Python, as a mapping."""

    def risky(self, project_id: str, **combinations: Any) -> RiskyAnswer:
        """Which combinations of keys too few records share, now and after each step of the recipe."""
        return self._made(RiskyAnswer, f"/projects/{project_id}/risky", {"combinations": combinations})

    def count_risky(self, project_id: str, **combinations: Any) -> Job:
        """The same as a job, for a long list or a large file."""
        return self._made(Job, f"/projects/{project_id}/risky-lists", {"combinations": combinations})

    def risky_list(self, project_id: str, result_id: str) -> RiskyAnswer:
        """What such a job has counted."""
        kept = self._got(ResultAnswer, f"/projects/{project_id}/risky-lists/{result_id}")
        return RiskyAnswer.model_validate(kept.summary)

    def advice(self, project_id: str, *, most: int = 10, **combinations: Any) -> AdviceAnswer:
        """Which single recode removes most unsafe combinations for the information it costs."""
        asked = {"combinations": combinations, "most": most}
        return self._made(AdviceAnswer, f"/projects/{project_id}/advice", asked)

    def recipe(self, project_id: str) -> RecipeAnswer:
        """The steps of the project's recipe."""
        return self._got(RecipeAnswer, f"/projects/{project_id}/recipe")

    def set_recipe(self, project_id: str, steps: Sequence[Mapping[str, Any]], *, version: int) -> RecipeAnswer:
        """Give the project other steps; ``version`` is that of the recipe that was read."""
        body = {"steps": [dict(step) for step in steps]}
        return self._changed(RecipeAnswer, "PUT", f"/projects/{project_id}/recipe", body, version)

    def step_through_recipe(self, project_id: str, way: Literal["undo", "redo"]) -> RecipeAnswer:
        """Take back the last step, or make it again."""
        return self._made(RecipeAnswer, f"/projects/{project_id}/recipe/{way}", {})

    def check_tables(
        self, project_id: str, tables: Sequence[Sequence[str]], *, tolerance: int | None = None
    ) -> CheckAnswer:
        """Which cells of tables are small, and how many of them the published figures give back."""
        body = {"tables": [list(names) for names in tables], "tolerance": tolerance}
        return self._made(CheckAnswer, f"/projects/{project_id}/table-checks", body)

    def make_tables_safe(
        self, project_id: str, tables: Sequence[Sequence[str]], *, tolerance: int | None = None, **options: Any
    ) -> Job:
        """Change tables as little as possible so that no cell is small; ``options`` are keep, objective, soft, …"""
        body = {"tables": [list(names) for names in tables], "tolerance": tolerance, **options}
        return self._made(Job, f"/projects/{project_id}/safe-tables", body)

    def safe_tables(self, project_id: str, result_id: str) -> ResultAnswer:
        """Tables that were made safe."""
        return self._got(ResultAnswer, f"/projects/{project_id}/safe-tables/{result_id}")

    def plot_confidentiality(
        self, project_id: str, masking: str, keys: Sequence[str], *, linkage: str = "auto", **options: Any
    ) -> Job:
        """Place every record of a masking between perturbation and neighbours."""
        body = {"masking": masking, "keys": list(keys), "linkage": linkage, "options": options}
        return self._made(Job, f"/projects/{project_id}/confidentiality", body)

    def confidentiality(self, project_id: str, result_id: str) -> ResultAnswer:
        """One such plot: its totals."""
        return self._got(ResultAnswer, f"/projects/{project_id}/confidentiality/{result_id}")
