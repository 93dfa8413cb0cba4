"""What all tests share: Hypothesis does not look at the clock, so that a slow machine fails no test."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "safeswap", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("safeswap")
