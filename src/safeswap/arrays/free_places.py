"""Take the n-th free place of a line, in logarithmic time.

Free places are bits of words. Which word holds the n-th is found by a tree whose nodes hold the number of free places
before each of 32 branches: few levels, and all branches of a node are compared by a few vector instructions. Neither
these nor the instructions that find a bit are made of Numba's loops, so they are stated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from safeswap.arrays.compiled import Intrinsic, njit
from safeswap.arrays.types import Int32s, Words

_BRANCHES = 32
_BYTES = np.uint64(0x0101010101010101)
_TOP_BITS = np.uint64(0x8080808080808080)
_NTH_BIT = np.array([([j for j in range(8) if byte >> j & 1] + [0] * 8)[:8] for byte in range(256)], dtype=np.uint64)
_SLOW_DEPOSIT = ("bdver4", "znver1", "znver2")  # processors that deposit one bit after the other


class FreePlaces(NamedTuple):
    """A bit for every place, set while it is free; and by node and branch, the free places before the branch."""

    bits: Words
    tree: Int32s
    levels: int

    @classmethod
    def all_of(cls, places: int) -> FreePlaces:
        """Return a line of free places."""
        bits = np.full((places + 63) // 64, ~np.uint64(0))
        if places & 63:
            bits[-1] >>= np.uint64(64 - (places & 63))
        span, levels, nodes = 1, 0, 0
        while span < len(bits):
            span, levels, nodes = span * _BRANCHES, levels + 1, nodes * _BRANCHES + 1
        tree = np.empty((nodes, _BRANCHES), dtype=np.int32)
        first, count = 0, 1
        while first < nodes:
            span //= _BRANCHES
            tree[first : first + count] = np.minimum(64 * span * np.arange(_BRANCHES), 2**31 - 1)
            first, count = first + count, _BRANCHES * count
        return cls(bits, tree, levels)


def _step_down(tree: Int32s, node: int, left: int) -> tuple[int, int]:
    """Take a free place from the branch that holds the one with ``left`` before it: the branch, and those left in it.

    >>> tree = np.arange(0, 320, 10, dtype=np.int32).reshape(1, 32)
    >>> _step_down(tree, 0, 25), tree[0, :5].tolist()
    ((2, 5), [0, 10, 20, 29, 39])
    """
    branch = int(np.searchsorted(tree[node], left, side="right")) - 1
    tree[node, branch + 1 :] -= 1
    return branch, int(left - tree[node, branch])


def _define_step_down(_context: Any, tree: Any, _node: Any, _left: Any) -> Any:
    """Define it for compiled code: compare all branches, count, look one up, subtract."""
    from llvmlite import ir
    from numba.core import types

    word, lane = ir.IntType(64), ir.IntType(32)
    lanes = ir.VectorType(lane, _BRANCHES)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, node, left = arguments
        data = context.make_array(signature.args[0])(context, builder, array).data
        first = builder.mul(node, word(_BRANCHES))
        place = builder.bitcast(builder.gep(data, [first]), lanes.as_pointer())
        before = builder.load(place, align=4)
        one = builder.insert_element(lanes(ir.Undefined), builder.trunc(left, lane), lane(0))
        everywhere = builder.shuffle_vector(one, lanes(ir.Undefined), lanes([0] * _BRANCHES))
        is_behind = builder.icmp_signed(">", before, everywhere)
        behind = builder.ctpop(builder.bitcast(is_behind, ir.IntType(_BRANCHES)))
        branch = builder.sub(word(_BRANCHES - 1), builder.zext(behind, word))
        # Before the subtraction, which leaves it as it is: loading what has just been stored takes longer.
        passed = builder.load(builder.gep(data, [builder.add(first, branch)]))
        builder.store(builder.add(before, builder.sext(is_behind, lanes)), place, align=4)
        left = builder.sub(left, builder.zext(passed, word))
        return context.make_tuple(builder, signature.return_type, (branch, left))

    pair = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call]
    return pair(tree, types.uint64, types.uint64), generate


_descend = Intrinsic(_step_down, _define_step_down)


def _nth_bit(word: int, n: int) -> int:
    """Return the place of the set bit with n set bits below it.

    >>> _nth_bit(0b10110, 2)
    4
    """
    for _ in range(n):
        word = int(word) & int(word) - 1
    return _lowest_bit(word)


def _define_nth_bit(_context: Any, _word: Any, _n: Any) -> Any:
    """Define it for compiled code: deposit a single bit in the places of those that are set, where that is quick."""
    from llvmlite import binding, ir
    from numba.core import config, types
    from numba.core.codegen import get_host_cpu_features

    features = get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES  # type: ignore[attr-defined,no-untyped-call]
    is_quick = "+bmi2" in features.split(",") and binding.get_host_cpu_name() not in _SLOW_DEPOSIT

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if not is_quick:
            return context.compile_internal(builder, _nth_bit_in_bytes, signature, arguments)
        word = ir.IntType(64)
        deposit = builder.module.declare_intrinsic("llvm.x86.bmi.pdep.64", (), ir.FunctionType(word, [word, word]))
        return builder.cttz(builder.call(deposit, [builder.shl(word(1), arguments[1]), arguments[0]]), ir.IntType(1)(1))

    return types.uint64(types.uint64, types.uint64), generate


def _nth_bit_in_bytes(word: np.uint64, n: np.uint64) -> np.uint64:
    """Do the same on any processor (Vigna 2008, Broadword rank/select queries)."""
    counts = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    counts = (counts & np.uint64(0x3333333333333333)) + ((counts >> np.uint64(2)) & np.uint64(0x3333333333333333))
    up_to = ((counts + (counts >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)) * _BYTES  # in the bytes up to each
    byte = (((((n * _BYTES) | _TOP_BITS) - up_to) & _TOP_BITS) >> np.uint64(7)) * _BYTES >> np.uint64(56)
    shift = np.uint64(8) * byte
    n -= ((up_to << np.uint64(8)) >> shift) & np.uint64(255)
    return np.uint64(shift + _NTH_BIT[(word >> shift) & np.uint64(255), n])


def _lowest_bit(word: int) -> int:
    """Return the place of the lowest set bit.

    >>> _lowest_bit(0b10110)
    1
    """
    return (int(word) & -int(word)).bit_length() - 1


def _define_lowest_bit(_context: Any, _word: Any) -> Any:
    from llvmlite import ir
    from numba.core import types

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), generate


_find_nth_bit = Intrinsic(_nth_bit, _define_nth_bit)
find_lowest_bit = Intrinsic(_lowest_bit, _define_lowest_bit)


@njit(cache=True, nogil=True)
def take_nth(free: FreePlaces, n: int) -> int:
    """Take the free place with n free places before it, and return it."""
    one, branches = np.uint64(1), np.uint64(_BRANCHES)  # unsigned places need no check for counting backwards
    node, word, left = np.uint64(0), np.uint64(0), np.uint64(n)
    for _ in range(free.levels):
        branch, left = _descend(free.tree, node, left)
        node, word = node * branches + one + branch, word * branches + branch
    bit = _find_nth_bit(free.bits[word], left)
    free.bits[word] &= ~(one << bit)
    return int(word << np.uint64(6) | bit)


@njit(cache=True, nogil=True, inline="always")
def is_free(free: FreePlaces, place: int) -> int:
    """Return 1 for a free place, 0 for one that has been taken."""
    return int((free.bits[place >> 6] >> np.uint64(place & 63)) & np.uint64(1))
