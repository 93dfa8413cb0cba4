"""Register of maskings: what every table that this service masked or released went through, sealed.

It starts empty: maskings and releases from before are not known to it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the register."""
    op.create_table(
        "maskings",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_maskings")),
        sa.UniqueConstraint("name", name=op.f("uq_maskings_name")),
    )
