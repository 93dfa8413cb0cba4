"""Who needs the models of a few features does not load the library behind all of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from safeswap.service import routes

CLIENT = "import safeswap.service.client"
COMMAND = "import safeswap.service.people.accounts, safeswap.service.keeping.vault"
FEATURE = "from safeswap.service import routes; routes.maskings.PlanAnswer"


@pytest.mark.parametrize(("program", "loads"), [(CLIENT, False), (COMMAND, False), (FEATURE, True)])
def test_the_library_is_loaded_by_the_features_that_run_it(program, loads):
    asked = f"{program}; import sys; print('safeswap.workflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(loads)


def test_every_feature_is_found_by_its_name_and_nothing_else_is():
    assert all(getattr(routes, name).__name__ == f"{routes.__name__}.{name}" for name in routes.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'knitting'"):
        _ = routes.knitting
