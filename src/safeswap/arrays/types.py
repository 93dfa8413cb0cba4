"""The array types, each named once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]
UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]

# Any width.
Integers = npt.NDArray[np.integer[Any]]
Codes = npt.NDArray[np.unsignedinteger[Any]]
SignedCodes = npt.NDArray[np.signedinteger[Any]]

# Aliases by content.
Rows = Int64s
Counts = Int64s
Words = UInt64s
Identity = Int64s | UInt64s
