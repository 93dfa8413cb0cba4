"""Ledger of sealed content sketches, instead of fingerprints of the identifiers.

Releases approved before keep their positions, without a sketch: they are still recognised within their project, but not
elsewhere.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_OLD = """
SELECT ledger.release_id, ledger.manifest_hash, ledger.approved_by, ledger.approved_at, ledger.override_reason,
       COALESCE(releases.project_id, '') AS project_id, COALESCE(results.data_version, 0) AS data_version
FROM ledger LEFT JOIN releases ON releases.id = ledger.release_id LEFT JOIN results ON results.id = releases.masking_id
ORDER BY ledger.approved_at, ledger.lineage, ledger.number
"""


def upgrade() -> None:
    """Create the new ledger, copy its positions, and drop the fingerprints."""
    found = op.get_bind().execute(sa.text(_OLD)).mappings().all()
    op.drop_table("ledger")
    table = _ledger()
    rows = [{**row, "number": number, "content": None} for number, row in enumerate(found, 1)]
    if rows:
        op.bulk_insert(table, rows)
    op.execute(sa.text("UPDATE releases SET differencing = NULL"))
    op.drop_column("releases", "lineage")
    op.drop_column("projects", "fingerprint")


def _ledger() -> sa.Table:
    return op.create_table(
        "ledger",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("release_id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("data_version", sa.Integer(), nullable=False),
        sa.Column("manifest_hash", sa.String(length=64), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=True),
        sa.Column("approved_by", sa.String(length=36), nullable=False),
        sa.Column("approved_at", sa.Float(), nullable=False),
        sa.Column("override_reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_ledger")),
        sa.UniqueConstraint("release_id", name=op.f("uq_ledger_release_id")),
    )
