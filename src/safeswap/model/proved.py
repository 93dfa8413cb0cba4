"""A bound that is printed beside a result: never above it."""

from __future__ import annotations

from safeswap.errors import InternalError

_ROUNDING = 1e-6


def proved_bound(bound: float, value: float) -> float:
    """The bound as it may be printed beside a value that was reached; what is above it by rounding only is the value.

    A bound says that nothing less is possible. One above a value that was reached is false, and so would be everything
    that is said of the result: that is an error of the program, never a figure.

    >>> proved_bound(3.0, 4.0), proved_bound(4.0000001, 4.0)
    (3.0, 4.0)
    >>> proved_bound(5.0, 4.0)
    Traceback (most recent call last):
    safeswap.errors.InternalError: a lower bound came out above a value that was reached
    """
    if bound > value + _ROUNDING * max(1.0, abs(value)):
        raise InternalError("a lower bound came out above a value that was reached", code="false-bound")
    return min(bound, value)
