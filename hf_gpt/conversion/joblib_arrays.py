"""Arrays of numbers in a file of joblib, such as the release's `best_params.jl`; nothing in the file is run."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from joblib.numpy_pickle import NumpyArrayWrapper, NumpyUnpickler

from ..files import reading


class _PlainArray(NumpyArrayWrapper):
    """What joblib says of an array before its bytes; arrays of objects, which would be unpickled, are refused."""

    def read(self, unpickler: NumpyUnpickler, *args: Any) -> np.ndarray:
        """The array, whose bytes are next in the file."""
        if self.subclass is not np.ndarray or self.dtype.kind not in "fiu":
            raise ValueError(f"it holds values of the type {self.dtype}, which are no numbers")
        file = unpickler.file_handle
        if math.prod(self.shape) * self.dtype.itemsize > os.fstat(file.fileno()).st_size - file.tell():
            raise ValueError(f"it ends within an array of the shape {self.shape}")
        return np.array(super().read(unpickler, *args), order="C")


_KNOWN = {
    ("joblib.numpy_pickle", "NumpyArrayWrapper"): _PlainArray,
    ("sklearn.externals.joblib.numpy_pickle", "NumpyArrayWrapper"): _PlainArray,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArraysOnly(NumpyUnpickler):
    """joblib's own unpickler, for which there are no names but those that arrays need."""

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in _KNOWN:
            raise ValueError(f"it names {module}.{name}, and only arrays of numbers are read")
        return _KNOWN[module, name]


def read_arrays(path: str | os.PathLike) -> list[np.ndarray]:
    """
    The arrays in an uncompressed file that `joblib.dump` wrote of a list of arrays of numbers; a `ValueError` if it
    holds anything else, is compressed or truncated, of which nothing is executed.
    """
    path = Path(path)
    with path.open("rb") as file, reading(path, "read as arrays that joblib wrote without compression"):
        arrays = _ArraysOnly(str(path), file, ensure_native_byte_order=True).load()
        if not isinstance(arrays, (list, tuple)) or not all(isinstance(array, np.ndarray) for array in arrays):
            raise ValueError("it holds something else than a list of arrays")
    return list(arrays)
