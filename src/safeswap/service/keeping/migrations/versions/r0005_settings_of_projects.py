"""Settings of a project, the content of its project file: scenarios, steps, study and release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; projects from before have no scenario and no steps but their recipe."""
    op.add_column("projects", sa.Column("settings", sa.JSON(), nullable=True))
