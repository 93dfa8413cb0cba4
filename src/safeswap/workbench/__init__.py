"""The workbench: the whole job in the browser, over the service's public interface and nothing else.

Pages are empty shells; their scripts ask the interface for everything they show, with the session of the person who
looks. So a page can show no more than its reader may know, and whatever the workbench does, a program can do too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI


def add_workbench(app: FastAPI) -> None:
    """Add the pages and their files to the application of a service."""
    from safeswap.workbench import assets, pages

    app.include_router(assets.router, include_in_schema=False)
    app.include_router(pages.router, include_in_schema=False)
