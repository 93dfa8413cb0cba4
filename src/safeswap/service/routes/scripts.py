"""Show me the Python."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from safeswap.service.roles import ProjectAccess, project
from safeswap.service.scripts import ScriptAnswer, ScriptRequest, script_of
from safeswap.service.state import service_of

router = APIRouter(tags=["library"])


@router.post("/projects/{project_id}/script")
def make_script(
    request: Request, access: Annotated[ProjectAccess, Depends(project("read"))], body: ScriptRequest
) -> ScriptAnswer:
    """The script in Python that does what a screen shows. Nothing is changed."""
    from safeswap.service.tasks.context import read_schema

    version = access.row.data_version
    schema = read_schema(service_of(request).store, access.id, version) if version else None
    tolerance = access.row.tolerance
    return ScriptAnswer(script=script_of(body, file_name=access.row.file_name, schema=schema, tolerance=tolerance))
