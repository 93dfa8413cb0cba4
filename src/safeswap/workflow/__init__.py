"""The public verbs: read → describe → plan → mask → assess → release, one function each.

The command line and all other surfaces call these and nothing below them.
"""

from __future__ import annotations

from safeswap.workflow.arguments import as_key, as_spec, as_study_spec, find_engine
from safeswap.workflow.argus import risky, write_risky
from safeswap.workflow.assessing import assess, assess_file, compare
from safeswap.workflow.masking import keep, mask, mask_file, plan, recall, swap, undo
from safeswap.workflow.plotting import confidentiality, confidentiality_by_keys, write_confidentiality
from safeswap.workflow.reading import describe, read, to_frame, write
from safeswap.workflow.recoding import (
    advice,
    argus_session,
    as_recipe,
    read_grc,
    read_hierarchy,
    read_recipe,
    recode,
    risky_after,
    write_recipe,
)
from safeswap.workflow.record_risks import file_risk, record_risk, special_uniques, suda, write_record_risks
from safeswap.workflow.releasing import keygen, read_key, release, report, verify
from safeswap.workflow.safe import (
    check_tables,
    safe_records,
    safe_table,
    safe_table_report,
    write_checked,
    write_safe_tables,
)
from safeswap.workflow.studying import load_study, number_of_candidates, save_study, search, study

__all__ = [
    "advice",
    "argus_session",
    "as_key",
    "as_recipe",
    "as_spec",
    "as_study_spec",
    "assess",
    "assess_file",
    "check_tables",
    "compare",
    "confidentiality",
    "confidentiality_by_keys",
    "describe",
    "file_risk",
    "find_engine",
    "keep",
    "keygen",
    "load_study",
    "mask",
    "mask_file",
    "number_of_candidates",
    "plan",
    "read",
    "read_grc",
    "read_hierarchy",
    "read_key",
    "read_recipe",
    "recall",
    "recode",
    "record_risk",
    "release",
    "report",
    "risky",
    "risky_after",
    "safe_records",
    "safe_table",
    "safe_table_report",
    "save_study",
    "search",
    "special_uniques",
    "study",
    "suda",
    "swap",
    "to_frame",
    "undo",
    "verify",
    "write",
    "write_checked",
    "write_confidentiality",
    "write_recipe",
    "write_record_risks",
    "write_risky",
    "write_safe_tables",
]
