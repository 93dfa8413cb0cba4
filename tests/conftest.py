"""What all tests share: Hypothesis does not look at the clock, so that a slow machine fails no test.

The everyday profile tries enough examples to catch a mistake and stays quick; before a release, and when hunting one,
``make test PYTEST_ARGS=--hypothesis-profile=thorough`` tries ten times as many.
"""

from hypothesis import HealthCheck, settings

_SHARED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}

settings.register_profile("safeswap", max_examples=30, **_SHARED)
settings.register_profile("thorough", max_examples=300, **_SHARED)
settings.load_profile("safeswap")
