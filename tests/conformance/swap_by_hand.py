"""Swapping told a second time, on plain Python values and single records, to check the first telling against.

Nothing here uses codes, counts of classes or compiled code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import networkx as nx
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from tests.conformance.strategies import values_of

from safeswap.arrays.keyed import derive
from safeswap.methods.swap import stage_key
from safeswap.model.key import Key
from safeswap.model.microdata import Microdata
from safeswap.model.spec import SwapSpec

Pair = tuple[int, int]
Names = Sequence[str]


class Rules:
    """Who may be paired with whom when these attributes are exchanged."""

    def __init__(self, data: Microdata, spec: SwapSpec, names: Names) -> None:
        self.records = len(data)
        self.spec = spec
        self.values = {name: values_of(data, name) for name in (*names, *spec.fixed, *spec.differ)}
        self.names = names

    def stratum(self, row: int) -> tuple[str, ...]:
        return tuple(self.values[name][row] for name in self.spec.fixed)

    def allow(self, a: int, b: int) -> bool:
        def differ(name: str) -> bool:
            one, other = (self.values[name][row] for row in (a, b))
            return one != other and {one, other} != {"0.0", "-0.0"}  # different bits, the same number

        enough = any if self.spec.true_swap == "any" else all
        return (
            self.stratum(a) == self.stratum(b)
            and all(differ(name) for name in self.spec.differ)
            and enough(differ(name) for name in self.names)
        )

    def most_pairs(self, without: Sequence[int] = ()) -> int:
        """Edmonds' blossom algorithm on the graph of the records that are left."""
        rows = [row for row in range(self.records) if row not in without]
        graph = nx.Graph((a, b) for i, a in enumerate(rows) for b in rows[:i] if self.allow(a, b))
        return len(nx.max_weight_matching(graph, maxcardinality=True))


def most_pairs(data: Microdata, spec: SwapSpec) -> int:
    """The pairs that every stage can have."""
    return min(Rules(data, spec, names).most_pairs() for names in spec.stages)


def block(identifier: object, identity_key: bytes) -> bytes:
    """The 16 bytes by which a record is known."""
    if isinstance(identifier, int) and -(2**63) <= identifier < 2**63:
        return identifier.to_bytes(8, "little", signed=True) + bytes(7) + b"\x01"
    data = identifier if isinstance(identifier, bytes) else str(identifier).encode()
    text = data.decode("utf-8", "replace")
    if text.isascii() and text.removeprefix("-").isdigit() and str(int(text)) == text and -(2**63) <= int(text) < 2**63:
        return block(int(text), identity_key)
    if len(data) <= 14:
        return data + bytes(14 - len(data)) + bytes([len(data), 2])
    message = len(data).to_bytes(16, "little") + data + bytes(-len(data) % 16)
    return Cipher(algorithms.AES(identity_key), modes.CBC(bytes(16))).encryptor().update(message)[-16:]


def keyed_order(data: Microdata, key: Key, *, stage: int = 0, replicate: int = 0) -> list[int]:
    """The rows in the order of AES of their identifiers."""
    identifier = data.schema.identifier
    known_by = data.table.column(identifier.name).to_pylist() if identifier else range(len(data))
    identity_key = derive(key.secret, "identity")
    cipher = Cipher(algorithms.AES(stage_key(data, key, stage=stage, replicate=replicate)), modes.ECB()).encryptor()
    drawn = [cipher.update(block(value, identity_key)) for value in known_by]
    return sorted(range(len(data)), key=lambda row: int.from_bytes(drawn[row][:8], "little"))


def uniform_pairs(rules: Rules, order: Sequence[int]) -> list[Pair]:
    """Consecutive records of the order, kept where they may be paired."""
    return [(a, b) for a, b in zip(order[::2], order[1::2], strict=False) if rules.allow(a, b)]


def stratified_pairs(rules: Rules, order: Sequence[int]) -> list[Pair]:
    """Consecutive records of each stratum along the order, kept where they are true swaps."""
    waiting: dict[tuple[str, ...], int] = {}
    pairs = []
    for row in order:
        stratum = rules.stratum(row)
        if stratum not in waiting:
            waiting[stratum] = row
        elif rules.allow(other := waiting.pop(stratum), row):
            pairs.append((other, row))
    return pairs


def margin(data: Microdata, names: Names) -> Counter[tuple[str, ...]]:
    """The counts by these attributes together."""
    return Counter(zip(*(values_of(data, name) for name in names), strict=True))
