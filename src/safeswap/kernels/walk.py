"""The classes of a sorted file, and the walk of the targeted Confidentiality Edit over them.

A *class* is a run of equal codes in the sorted file. Moore (1996) walks the classes in order: one that has too few
records exchanges its last record with the first one of the next class, and the next class then counts as treated. The
last class has no next one and exchanges with the record before it. Both exchanges happen between neighbours at an edge
of two classes, so an exchange is told by the class that begins at its edge.
"""

from __future__ import annotations

import numba
import numpy as np

from safeswap.kernels.types import Codes, Flags, Int32s, Int64s, UInt32s, UInt64s


@numba.njit(cache=True, nogil=True)
def class_starts(codes: Codes) -> Int64s:
    """The position at which each class of the sorted codes begins, and the number of records at the end.

    >>> class_starts(np.array([3, 3, 4, 9], np.uint8)).tolist()
    [0, 2, 3, 4]
    """
    classes = 1 if codes.size else 0
    for i in range(1, codes.size):
        classes += codes[i] != codes[i - 1]
    starts = np.zeros(classes + 1, np.int64)
    c = 0
    for i in range(1, codes.size):
        if codes[i] != codes[i - 1]:
            c += 1
            starts[c] = i
    starts[classes] = codes.size
    return starts


@numba.njit(cache=True, nogil=True)
def collect(cells: Codes, cursor: Int32s, number: int) -> UInt32s:
    """The ``number`` rows whose cell has a place in ``cursor`` (below 0: none), each at the next place of its cell.

    Rows of one cell come in file order. The cursors move on.

    >>> collect(np.array([3, 1, 2, 3], np.uint8), np.array([-1, 0, -1, 1], np.int32), 3).tolist()
    [1, 0, 3]
    """
    rows = np.empty(number, np.uint32)
    for i in range(cells.size):
        place = cursor[cells[i]]
        if place >= 0:
            rows[place] = i
            cursor[cells[i]] = place + 1
    return rows


@numba.njit(cache=True, nogil=True)
def take_low(cells: Codes, draws: UInt64s, bounds: UInt32s, rows: UInt32s) -> int:
    """Put down which records have a draw, by its upper half, up to the bound of their cell; how many they are.

    >>> rows = np.empty(2, np.uint32)
    >>> draws = np.array([5 << 32, 6 << 32], np.uint64)
    >>> take_low(np.array([0, 0], np.uint8), draws, np.array([5], np.uint32), rows), int(rows[0])
    (1, 0)
    """
    taken = 0
    for i in range(cells.size):
        if (draws[i] >> np.uint64(32)) <= bounds[cells[i]]:
            rows[taken] = i
            taken += 1
    return taken


@numba.njit(cache=True, nogil=True)
def edges(strata: Int64s, failing: Flags) -> tuple[Int64s, Int64s, int]:
    """Walk the classes: at which edges records are exchanged.

    ``strata`` numbers the part of the file in which each class lies (each is walked on its own), ``failing`` says which
    classes have too few records. The result: the classes at whose first record the class before exchanges; the last
    classes of their strata that exchange backwards; the number of classes that have nobody to exchange with.

    >>> one_file = np.zeros(5, np.int64)
    >>> forward, backward, alone = edges(one_file, np.array([True, True, False, False, True]))
    >>> forward.tolist(), backward.tolist(), alone
    ([1], [4], 0)
    """
    classes = failing.size
    forward, backward = np.empty(classes, np.int64), np.empty(classes, np.int64)
    ahead, behind, alone = 0, 0, 0
    treated = False
    for c in range(classes):
        is_first = c == 0 or strata[c - 1] != strata[c]
        is_last = c + 1 == classes or strata[c + 1] != strata[c]
        wanting = failing[c] and (is_first or not treated)
        treated = wanting and not is_last
        if treated:
            forward[ahead] = c + 1
            ahead += 1
        elif wanting and not is_first:
            backward[behind] = c
            behind += 1
        elif wanting:
            alone += 1
    return forward[:ahead], backward[:behind], alone


@numba.njit(cache=True, nogil=True)
def mixed(starts: Int64s, strata: Int64s, rows: UInt32s, labels: Codes) -> Flags:
    """For each class, whether its stratum has several classes and not the same label everywhere.

    That is exactly when a record of the class can be exchanged with one of another class so that both change.
    ``labels`` go by row, ``rows`` says which row stands where in the sorted file.

    >>> rows = np.array([3, 2, 1, 0], np.uint32)
    >>> mixed(np.array([0, 1, 3, 4]), np.array([0, 0, 1]), rows, np.array([7, 6, 5, 5], np.uint64)).tolist()
    [True, True, False]
    """
    classes = strata.size
    result = np.zeros(classes, np.bool_)
    first = 0
    while first < classes:
        last = first
        while last + 1 < classes and strata[last + 1] == strata[first]:
            last += 1
        if last > first:
            i = starts[first] + 1
            while i < starts[last + 1] and labels[rows[i]] == labels[rows[i - 1]]:
                i += 1
            result[first : last + 1] = i < starts[last + 1]
        first = last + 1
    return result
