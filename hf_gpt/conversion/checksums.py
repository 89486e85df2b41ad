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


def _apply(operator: np.ndarray, states: np.ndarray) -> np.ndarray:
    """A linear map, given by its values at the 32 bits, of some states."""
    bits = states[..., None] >> np.arange(32, dtype=np.uint32) & 1
    return np.bitwise_xor.reduce(np.where(bits, operator, np.uint32(0)), axis=-1)


def masked_checksum(content: np.ndarray) -> int:
    """
    CRC-32C of bytes `(size,)` as LevelDB masks it. That of many stretches is computed at once; then these are joined,
    as it is linear in its bits.
    """
    count = min(_LANES, math.isqrt(len(content)) + 1)
    length = len(content) // count // 2 * 2
    lanes = content[: length * count].reshape(count, length).view("<u2")
    states = np.zeros(count, np.uint32)
    for column in np.ascontiguousarray(lanes.T):
        states = _advance(states, column)
    # What `length` zeros make of a state, by squaring.
    ones = np.uint32(1) << np.arange(32, dtype=np.uint32)
    operator, power = ones, _advance(ones, np.zeros(32, np.uint8))
    for bit in bin(length)[:1:-1]:
        operator = _apply(power, operator) if bit == "1" else operator
        power = _apply(power, power)
    total = np.array([0xFFFFFFFF], np.uint32)
    for state in states if length else ():
        total = _apply(operator, total) ^ state
    for index in range(length * count, len(content)):
        total = _advance(total, content[index : index + 1])
    value = int(total[0]) ^ 0xFFFFFFFF
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF
