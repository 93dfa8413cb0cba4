"""The person who requested a release cannot have approved it, and the queue finds a person's jobs quickly."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the constraints, with a mark on what was approved where there was one person only."""
    op.create_index(op.f("ix_jobs_created_by_state"), "jobs", ["created_by", "state"])
    op.create_index(op.f("ix_jobs_created_by_started_at"), "jobs", ["created_by", "started_at"])
    op.add_column("releases", sa.Column("single_user", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute(
        "UPDATE releases SET single_user = (1 = 1) "
        "WHERE requested_by IN (SELECT id FROM users WHERE name = 'local') AND decided_by = requested_by"
    )
    with op.batch_alter_table("releases") as releases:
        releases.create_check_constraint(op.f("ck_releases_decided"), "state <> 'approved' OR decided_by IS NOT NULL")
        releases.create_check_constraint(
            op.f("ck_releases_four_eyes"), "state <> 'approved' OR decided_by <> requested_by OR single_user"
        )
