"""The gate of a release: it is attacked before it is written, and refused above the agency's policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from safeswap.arrays.names import Names
from safeswap.arrays.types import Integers
from safeswap.attacks.base import Setting
from safeswap.attacks.run import Judged, ReleasePolicy, as_policy, configured_policy, refuse_above, run_attacks
from safeswap.model.masked import Masked
from safeswap.model.microdata import Microdata
from safeswap.model.scenario import Scenario, as_scenario, resolve_files
from safeswap.model.score import Comparison


@dataclass(frozen=True, eq=False, kw_only=True)
class Written:
    """A release about to be made: its columns, the rows in their released order, and the files as written."""

    masked: Masked
    names: Names
    order: Integers
    bundle: Path | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Gate:
    """The policy of an agency, the scenario under which it attacks, and further files for the judgement.

    ``control`` has records that were held out before masking, ``earlier`` what was released of the same records before.
    """

    policy: ReleasePolicy = field(default_factory=configured_policy)
    scenario: Scenario | None = None
    control: Microdata | None = None
    earlier: tuple[Microdata, ...] = ()

    @classmethod
    def of(cls, policy: Mapping[str, Any] | None, scenario: Mapping[str, Any] | None, **more: Any) -> Gate:
        """Make a gate from plain values; without a policy, by the configured one."""
        return cls(policy=as_policy(policy), scenario=None if scenario is None else as_scenario(scenario), **more)

    def attack(self, written: Written, *, full: bool, override: str) -> tuple[Judged, ...]:
        """Attack the release as written; refuse above the policy without a reason."""
        masked = written.masked
        comparison = Comparison(
            before=masked.original,
            after=masked.data,
            attributes=(),
            recoded=masked.account.reference if masked.parts else None,
        )
        resolved = None if self.scenario is None else resolve_files(self.scenario, masked.original, masked.data)
        setting = Setting(
            comparison=comparison,
            scenario=resolved,
            control=self.control,
            masked=masked,
            earlier=self.earlier,
            bundle=written.bundle,
            order=np.asarray(written.order, dtype=np.int64),
            only=written.names,
        )
        judged = self.policy.judge(run_attacks(setting, full=full))
        refuse_above(judged, override=override)
        return judged
