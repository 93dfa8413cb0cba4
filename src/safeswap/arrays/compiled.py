"""Compile kernels with Numba when they are first called, and only for work that is worth it.

Importing Numba and loading a kernel from its cache takes half a second, compiling one up to a second. So a kernel
is compiled on its first call, and functions on the path of a small file have a second form in plain NumPy, with the
same result, for as long as :func:`is_worth_compiling` says no. Families of kernels that take longer to compile run as
the Python they are written in where there is little to do: :func:`python_if_little`.

:func:`run_all` runs kernels on several cores, with results that do not depend on their number.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import update_wrapper
from itertools import pairwise
from threading import RLock, local
from typing import TYPE_CHECKING, Any, TypeVar

SMALL = 1 << 21
"""Work on fewer elements than this is done in NumPy, until there has been a lot of it."""

SMALL_FOR_NUMBA = 1 << 19
"""The same once a kernel has run: Numba need not be imported any more, only another kernel loaded."""

FEW_STEPS = 1 << 22
"""Steps of a kernel, most of them quick, that may run in Python: about a second."""

_LONGEST_WAIT = 60.0  # seconds; a kernel is compiled in a few, on a busy machine in more

_making = RLock()


class _Here(local):
    is_plain = False


_here = _Here()


class Budget:
    """The number of elements that may still be processed in NumPy: a loop over small arrays is worth compiling too."""

    left = 1 << 26  # takes NumPy about as long as loading Numba
    steps = 1 << 25  # of kernels in Python: a few seconds, as many as compiling them takes


def is_worth_compiling(elements: int) -> bool:
    """Return whether work on this many elements should run compiled; one element is a few nanoseconds in NumPy.

    >>> is_worth_compiling(SMALL)
    True
    """
    if _here.is_plain:
        return False
    if elements >= (SMALL_FOR_NUMBA if Kernel.is_numba_loaded else SMALL) or Budget.left < elements:
        return True
    Budget.left -= elements
    return False


def is_plain_python() -> bool:
    """Return whether kernels run as plain Python here."""
    return _here.is_plain


@contextmanager
def plain_python(is_plain: bool = True) -> Iterator[None]:
    """Run the kernels that are called inside, in this thread, as the Python they are written in, or compiled.

    Integers are then NumPy's: a kernel that may run so must not rely on Numba to widen narrow ones.

    >>> @njit(nogil=True)
    ... def double(x):
    ...     return 2 * x
    >>> with plain_python():
    ...     double(21), double.is_loaded
    (42, False)
    """
    before, _here.is_plain = _here.is_plain, is_plain
    try:
        yield
    finally:
        _here.is_plain = before


@contextmanager
def python_if_little(steps: int, kernel: Any) -> Iterator[None]:
    """Run kernels as plain Python if they need few steps and ``kernel``, one that they all go with, is not loaded.

    For families of kernels that take long to compile, on small files: the same code, so the same result.
    """
    is_little = not kernel.is_loaded and steps <= min(FEW_STEPS, Budget.steps)
    if is_little:
        Budget.steps -= steps
    with plain_python(is_little or is_plain_python()):
        yield


def _njit(**options: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Work like ``numba.njit``, but import Numba on the first call, and run uncached where no cache can be kept.

    >>> @njit(nogil=True)
    ... def double(x):
    ...     return 2 * x
    >>> double(21)
    42
    """
    return lambda function: Kernel(function, options)


if TYPE_CHECKING:
    from numba import njit as njit  # noqa: PLC0414  (exported)

    inner = njit(cache=True, nogil=True)
else:
    njit = _njit
    inner = njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    """Make a kernel that only other kernels call: it takes less time to compile."""


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
        self._is_inner = bool(options.get("no_cpython_wrapper"))
        update_wrapper(self, function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run compiled, or as plain Python within :func:`plain_python` and where Python cannot call it compiled."""
        if _here.is_plain or self._is_inner:
            return self.py_func(*arguments, **named)
        return (self._dispatcher or self._make_dispatcher())(*arguments, **named)

    @property
    def is_loaded(self) -> bool:
        """True if it has run compiled in this process."""
        return self._dispatcher is not None

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


class Intrinsic:
    """A function that kernels call as instructions which Numba does not make of the code that it is written in.

    ``define`` tells Numba the type and the instructions, as ``numba.extending.intrinsic`` expects it; it is called when
    such a kernel is compiled.
    """

    def __init__(self, function: Callable[..., Any], define: Callable[..., Any]) -> None:
        self._function, self._define = function, define
        self._type: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Run as the Python that it is written in."""
        return self._function(*arguments)

    @property
    def _numba_type_(self) -> Any:
        if self._type is None:
            from numba.core.types import Function
            from numba.core.typing.templates import make_intrinsic_template

            template = make_intrinsic_template(self, self._define, self._function.__name__)  # type: ignore[no-untyped-call]
            self._type = Function(template)
        return self._type


def _compile(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    import numba

    dispatcher = numba.njit(**{**options, "cache": False})(function)
    if options.get("cache"):
        try:
            dispatcher._cache = _make_cache(function)
            _compile_once(dispatcher)
        except RuntimeError:  # Numba found no directory that it may write its cache to
            _warn_of_no_cache()
    if not hasattr(dispatcher._cache, "is_quick"):
        _load_array_functions()
    return dispatcher


def _make_cache(function: Callable[..., Any]) -> Any:
    """Return a cache that loads a kernel without declaring every function that Numba can compile.

    Numba declares them before it looks into its cache, which takes longer than to load the kernels of a command. Only
    the compiler needs them, and sees to it itself.
    """
    from numba.core.caching import FunctionCache
    from numba.core.runtime.nrt import rtsys

    class QuickCache(FunctionCache):
        is_quick = True

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            rtsys.initialize(target_context)  # what allocates arrays
            # What a kernel refers to is imported with it.
            with _without_linear_algebra(), self._guard_against_spurious_io_errors():
                found = self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
                if found is not None:
                    return found
            _load_array_functions()
            return None

    return QuickCache(function)  # type: ignore[no-untyped-call]


def _compile_once(dispatcher: Any) -> None:
    """Let one process compile a kernel; others that need it at the same time wait for it and load it."""
    from numba.core.compiler_lock import global_compiler_lock

    compile_or_load, cache = dispatcher.compile, dispatcher._cache
    lock = os.path.join(cache.cache_path, f"{cache._impl.filename_base}.lock")  # noqa: PTH118  (pathlib is not loaded)

    def compile_alone(signature: Any) -> Any:
        # The lock of the threads first: a thread that has the lock of the processes then waits for no other thread.
        with global_compiler_lock, _hold(lock):
            return compile_or_load(signature)

    dispatcher.compile = compile_alone


@contextmanager
def _hold(lock: str) -> Iterator[None]:
    """Hold a lock file, or continue without it: compiling twice is harmless, waiting for a hanging process is not."""
    try:
        import fcntl

        file = os.open(lock, os.O_RDONLY | os.O_CREAT, 0o666)
    except (ImportError, OSError):
        yield
        return
    try:
        end = time.monotonic() + _LONGEST_WAIT
        while not _try_lock(fcntl, file) and time.monotonic() < end:
            time.sleep(0.01)
        yield
        fcntl.flock(file, fcntl.LOCK_UN)  # a fork in the meantime has a copy of the file, which does not keep the lock
    finally:
        os.close(file)


def _try_lock(fcntl: Any, file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)  # a file system without locks
    return True


@contextmanager
def _without_linear_algebra() -> Iterator[None]:
    """Let Numba load its array functions without SciPy's linear algebra, which takes as long as all the rest.

    Numba imports it to learn whether matrices can be multiplied. They can: SciPy is installed, and is imported by the
    code that multiplies them.
    """
    if "numba.np.arraymath" in sys.modules:
        yield
        return
    from numba.np import linalg

    check, linalg.ensure_blas = linalg.ensure_blas, lambda: None
    try:
        yield
    finally:
        linalg.ensure_blas = check


def _load_array_functions() -> None:
    with _without_linear_algebra():
        import numba.np.arraymath  # noqa: F401


def _warn_of_no_cache() -> None:
    # One message, whatever the number of kernels; the filters of the program decide whether it is shown.
    if not _Told.of_no_cache:
        _Told.of_no_cache = True
        message = "compiled code cannot be cached, so every start is slow: set NUMBA_CACHE_DIR to a writable directory"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


class _Told:
    of_no_cache = False


T = TypeVar("T")

_WORTH_A_THREAD = 1 << 17


def split_runs(records: int, passes: int = 1) -> list[tuple[int, int]]:
    """Divide the records into runs, one per thread worth starting (``NUMBA_NUM_THREADS`` at most).

    ``passes`` tells how often the work looks at a record: with many, threads are worth starting for fewer records.

    >>> split_runs(10)
    [(0, 10)]
    """
    work = records * passes
    count = max(1, min(_most_threads(), work // _WORTH_A_THREAD, records)) if work >= 2 * _WORTH_A_THREAD else 1
    edges = [records * i // count for i in range(count + 1)]
    return list(pairwise(edges))


_PIECES = 4  # for each thread: one that starts late, or has to wait for a core, takes fewer


def run_pieces(work: Callable[[tuple[int, int]], object], records: int, passes: int = 1) -> None:
    """Call ``work`` on runs of the records, on as many threads as :func:`split_runs` finds worth starting."""
    threads = len(split_runs(records, passes))
    count = 1 if threads == 1 else threads * _PIECES
    run_all(work, list(pairwise(records * i // count for i in range(count + 1))), threads)


def run_all(work: Callable[[T], object], items: Sequence[T], threads: int | None = None) -> None:
    """Call ``work`` on every item: in a thread each if there are several, or in that many threads, in turn.

    Plain threads, not Numba's parallel loops: its default pool breaks when two threads enter it at once, and
    compiling for it takes several times as long. The kernels release the GIL.
    """
    if len(items) <= 1 or threads == 1:
        for item in items:
            work(item)
    else:
        _share_out(work, items, min(threads or len(items), len(items)))


def _share_out(work: Callable[[T], object], items: Sequence[T], threads: int) -> None:
    """Call ``work`` on every item, in the calling thread and in others.

    The calling thread starts at once, and takes what the others have not begun. It never waits for a thread that has
    not come to its turn, so that sharing costs little for short work or on a busy machine, and calls may be nested.
    """
    waiting = iter(items)  # an item is taken by one thread only, under the GIL

    def work_off() -> None:
        for item in waiting:
            work(item)

    futures = [_open_pool().submit(work_off) for _ in range(threads - 1)]
    try:
        work_off()
    finally:
        begun = [future for future in futures if not future.cancel()]
        wait(begun)
    for future in begun:
        future.result()


_MOST_HELPERS = 64  # threads are started as they are needed, one for each core that helps


class _Pool:
    open: ThreadPoolExecutor | None = None


def _open_pool() -> ThreadPoolExecutor:
    """Return the threads that help: kept, since starting one takes as long as a short piece of work."""
    found = _Pool.open = _Pool.open or ThreadPoolExecutor(_MOST_HELPERS, thread_name_prefix="safeswap")
    return found


def _forget_pool() -> None:
    _Pool.open = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)  # a forked process has none of the threads


def _most_threads() -> int:
    """Return the number of threads that Numba would use, without importing it, which takes a third of a second."""
    loaded = sys.modules.get("numba.core.config")
    if loaded is not None and hasattr(loaded, "NUMBA_NUM_THREADS"):
        return int(loaded.NUMBA_NUM_THREADS)
    stated = os.environ.get("NUMBA_NUM_THREADS", "")
    return int(stated) if stated.isdecimal() else _count_cores()


def _count_cores() -> int:
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1
