"""CRC-32C, the checksum of TensorFlow's files, at numpy's speed."""

import math
from functools import cache

import numpy as np

# As many stretches of the data are read side by side at most.
_LANES = 4096


@cache
def _table(bits: int) -> np.ndarray:
    """What each number of 8 or 16 bits makes of a checksum that is 0."""
    values = np.arange(1 << bits, dtype=np.uint32)
    for _ in range(bits):
        values = np.where(values & 1, values >> 1 ^ np.uint32(0x82F63B78), values >> 1)
    return values


def _advance(states: np.ndarray, content: np.ndarray) -> np.ndarray:
    """Checksums `(lanes,)` after one more number of 8 or 16 bits each."""
    bits = 8 * content.itemsize
    return _table(bits)[(states ^ content) & (1 << bits) - 1] ^ states >> bits


def masked_checksum(content: np.ndarray) -> int:
    """
    CRC-32C of bytes `(size,)` as LevelDB masks it. That of many stretches is computed at once; then these are joined,
    as it is linear in its bits.
    """
    count = min(_LANES, math.isqrt(len(content)) + 1)
    length = len(content) // count // 2 * 2
    # Beside the stretches zeros behind each bit of a state: what they make of it.
    lanes, places = np.zeros((length // 2, count + 32), "<u2"), np.arange(32, dtype=np.uint32)
    lanes[:, :count] = content[: length * count].reshape(count, length).view("<u2").T
    states = np.concatenate([np.zeros(count, np.uint32), np.uint32(1) << places])
    for column in lanes:
        states = _advance(states, column)
    total = np.array([0xFFFFFFFF], np.uint32)
    for state in states[:count] if length else ():
        total = np.bitwise_xor.reduce((total >> places & 1) * states[count:], keepdims=True) ^ state
    for index in range(length * count, len(content)):
        total = _advance(total, content[index : index + 1])
    value = int(total[0]) ^ 0xFFFFFFFF
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF
