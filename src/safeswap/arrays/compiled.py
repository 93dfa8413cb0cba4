"""Compile kernels with Numba when they are first called, and only for work that is worth it.

Importing Numba and loading a kernel from its cache takes half a second, compiling one up to a second. So a kernel
is compiled on its first call, and functions on the path of a small file have a second form in plain NumPy, with the
same result, for as long as :func:`is_worth_compiling` says no.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import TYPE_CHECKING, Any

SMALL = 1 << 21
"""Work on fewer elements than this is done in NumPy, until there has been a lot of it."""

SMALL_FOR_NUMBA = 1 << 19
"""The same once a kernel has run: Numba need not be imported any more, only another kernel loaded."""

_making = RLock()


class Budget:
    """How many elements may still be processed in NumPy: a loop over small arrays is worth compiling too."""

    left = 1 << 26  # takes NumPy about as long as loading Numba


def is_worth_compiling(elements: int) -> bool:
    """Return whether work on so many elements should run compiled; one element is a few nanoseconds in NumPy.

    >>> is_worth_compiling(SMALL)
    True
    """
    if elements >= (SMALL_FOR_NUMBA if Kernel.is_numba_loaded else SMALL) or Budget.left < elements:
        return True
    Budget.left -= elements
    return False


def _njit(**options: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Do as ``numba.njit`` does, but import Numba on the first call, and run uncached where no cache can be kept.

    >>> @njit(nogil=True)
    ... def double(x):
    ...     return 2 * x
    >>> double(21)
    42
    """
    return lambda function: Kernel(function, options)


if TYPE_CHECKING:
    from numba import njit as njit  # noqa: PLC0414  (exported)
else:
    njit = _njit


class Kernel:
    """A function that is compiled on its first call.

    Other kernels call it as they call Numba's dispatchers, which are recognised by these three attributes: ``py_func``,
    the function itself, ``targetoptions`` and ``_numba_type_``.
    """

    is_numba_loaded = False

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.py_func = function
        self.targetoptions = options
        self._dispatcher: Any = None
        update_wrapper(self, function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run compiled."""
        return (self._dispatcher or self._make_dispatcher())(*arguments, **named)

    def __reduce__(self) -> str:
        return self.py_func.__qualname__  # a worker process finds it in its module

    @property
    def _numba_type_(self) -> Any:
        return (self._dispatcher or self._make_dispatcher())._numba_type_

    def _make_dispatcher(self) -> Any:
        with _making:
            if self._dispatcher is None:
                Kernel.is_numba_loaded = True
                self._dispatcher = _compile(self.py_func, self.targetoptions)
        return self._dispatcher


def _compile(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    import numba

    try:
        return numba.njit(**options)(function)
    except RuntimeError:  # Numba found no directory that it may write its cache to
        if not options.get("cache"):
            raise
    _warn_of_no_cache()
    return numba.njit(**{**options, "cache": False})(function)


def _warn_of_no_cache() -> None:
    # One message, whatever the number of kernels; the filters of the program decide whether it is shown.
    if not _Told.of_no_cache:
        _Told.of_no_cache = True
        message = "compiled code cannot be cached, so every start is slow: set NUMBA_CACHE_DIR to a writable directory"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


class _Told:
    of_no_cache = False
