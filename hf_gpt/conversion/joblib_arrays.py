"""
Arrays of numbers in a file of joblib, such as the release's `best_params.jl`, read without unpickling anything.

Such a file is a pickle in which each array is an object that says its type and shape, followed by the array's bytes.
The reader here walks the pickle with stand-ins for the four names that such a file needs; no other name is looked up,
so no code of the file or of the machine is ever called.
"""

import math
import os
import pickle
import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

_COMPRESSED = (b"\x78", b"\x1f\x8b", b"BZ", b"\xfd\x37\x7a", b"\x5d\x00", b"\x04\x22\x4d\x18")


class _NotArrays(ValueError):
    """The file holds something that is not read."""


class _ArrayClass:
    """Stand-in for `numpy.ndarray`; it is only named, never made."""


class _ArrayType:
    """Stand-in for `numpy.dtype`: a kind of number and its byte order."""

    def __init__(self, code: Any = None, align: Any = False, copy: Any = False):
        self.code, self.order = code, "<"

    def __setstate__(self, state: Any) -> None:
        self.order = state[1] if isinstance(state, tuple) and len(state) > 1 else None

    def number_type(self) -> np.dtype:
        """The type of number (`numpy.dtype`); a `_NotArrays` for anything else."""
        if not isinstance(self.code, str) or not re.fullmatch(r"[fiu][1248]", self.code):
            raise _NotArrays(f"it holds values of the type {self.code!r}, which are no numbers")
        if self.order not in ("<", ">", "|", "="):
            raise _NotArrays(f"it holds numbers of the byte order {self.order!r}")
        return np.dtype(self.order + self.code)


class _Array:
    """Stand-in for joblib's `NumpyArrayWrapper`: what is said of an array before its bytes."""

    subclass: Any = None
    shape: Any = None
    order: Any = None
    dtype: Any = None
    allow_mmap: Any = None
    numpy_array_alignment_bytes: Any = None

    def read(self, file: BinaryIO) -> np.ndarray:
        """The array, whose bytes are next in the file."""
        shape = self.shape
        if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
            raise _NotArrays(f"it holds an array of the shape {shape!r}")
        if self.subclass is not _ArrayClass or self.order not in ("C", "F") or not isinstance(self.dtype, _ArrayType):
            raise _NotArrays("it holds an array that is not plain")
        dtype = self.dtype.number_type()
        if self.numpy_array_alignment_bytes is not None:
            padding = file.read(1)
            file.read(padding[0] if padding else 0)
        size = math.prod(shape) * dtype.itemsize
        if size > os.fstat(file.fileno()).st_size - file.tell():
            raise _NotArrays(f"it ends within an array of the shape {shape}: the file is truncated")
        array = np.frombuffer(file.read(size), dtype)
        array = array.reshape(shape) if self.order == "C" else array.reshape(shape[::-1]).T
        return np.array(array, dtype.newbyteorder("="), order="C")


_STAND_INS = {
    ("joblib.numpy_pickle", "NumpyArrayWrapper"): _Array,
    ("sklearn.externals.joblib.numpy_pickle", "NumpyArrayWrapper"): _Array,
    ("numpy", "ndarray"): _ArrayClass,
    ("numpy", "dtype"): _ArrayType,
}


# The unpickler written in Python, whose steps can be replaced, as joblib's own is.
class _Reader(pickle._Unpickler):
    dispatch = dict(pickle._Unpickler.dispatch)

    def __init__(self, file: BinaryIO):
        super().__init__(file)
        self.arrays_file = file

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in _STAND_INS:
            raise _NotArrays(f"it names {module}.{name}, and only arrays of numbers are read")
        return _STAND_INS[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise _NotArrays("it refers to another file")

    def load_build(self) -> None:
        state, target = self.stack[-1], self.stack[-2]
        if isinstance(target, _Array):
            if not isinstance(state, dict) or not all(hasattr(_Array, name) for name in state):
                raise _NotArrays("it holds an array of an unknown kind")
            self.stack.pop()
            vars(target).update(state)
            self.stack[-1] = target.read(self.arrays_file)
        elif isinstance(target, _ArrayType):
            target.__setstate__(self.stack.pop())
        else:
            raise _NotArrays("it holds objects other than arrays")

    dispatch[pickle.BUILD[0]] = load_build

    def load_bytearray8(self) -> None:
        # The only step that makes room for a length before it reads so much.
        raise _NotArrays("it holds bytes that can be written to, which arrays are not made of")

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8


def read_arrays(path: str | os.PathLike) -> list[np.ndarray]:
    """
    The arrays in an uncompressed file that `joblib.dump` wrote of a list of arrays of numbers.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds anything else, or is truncated; nothing in it is executed.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file.")
    with path.open("rb") as file:
        start = file.read(4)
        if start.startswith(_COMPRESSED):
            raise ValueError(f"{path} is compressed: write it again with joblib.dump(arrays, path, compress=0).")
        file.seek(0)
        try:
            arrays = _Reader(file).load()
        except _NotArrays as error:
            raise ValueError(f"{path} is refused: {error}.") from error
        except Exception as error:  # Whatever a damaged pickle leads to.
            raise ValueError(f"{path} is truncated, damaged, or not a file of arrays that joblib wrote.") from error
    if not isinstance(arrays, (list, tuple)) or not all(isinstance(array, np.ndarray) for array in arrays):
        raise ValueError(f"{path} holds something else than a list of arrays.")
    return list(arrays)
