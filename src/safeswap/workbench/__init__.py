"""The workbench: the whole workflow in the browser, on top of the service's public API and nothing else.

Pages are empty shells; their scripts request everything they show from the API, with the session of the user. So a page
can show no more than its user may see, and whatever the workbench does, a program can do too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI


def add_workbench(app: FastAPI) -> None:
    """Add the pages and their assets to the application of a service."""
    from safeswap.workbench import assets, pages

    app.include_router(assets.router, include_in_schema=False)
    app.include_router(pages.router, include_in_schema=False)
