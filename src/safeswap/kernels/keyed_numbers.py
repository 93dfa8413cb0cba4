"""Random numbers of records by a secret key: two uniform words each, and normal deviates from them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from safeswap.kernels.keyed import encrypt, integer_blocks
from safeswap.kernels.types import Floats, Words


def record_words(identity: npt.NDArray[np.int64] | Words, key: bytes) -> Words:
    """Two uniform 64-bit words per record, a function of the key and of the record's identity alone.

    >>> words = record_words(np.array([3, 1, 2]), bytes(32))
    >>> words.shape, words[1].tolist() == record_words(np.array([1]), bytes(32))[0].tolist()
    ((3, 2), True)
    """
    return encrypt(integer_blocks(identity.view(np.int64)) if identity.ndim == 1 else identity.view(np.uint64), key)


def uniforms(words: Words) -> Floats:
    """Numbers strictly between 0 and 1, in steps of 2⁻⁵².

    >>> bool(uniforms(np.array([0], np.uint64))[0] > 0), bool(uniforms(np.array([2**64 - 1], np.uint64))[0] < 1)
    (True, True)
    """
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def normals(words: Words) -> Floats:
    """Standard normal deviates, by the inverse of the distribution function.

    >>> normals(np.array([2**63], np.uint64)).round(9).tolist()
    [0.0]
    """
    from scipy.special import ndtri

    return np.asarray(ndtri(uniforms(words)), dtype=np.float64)
