"""The types of inputs in the compiler's notation: `f32[N, 3, 224, 224]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

#: The dtypes that numpy supports.
_DTYPES = {
    "bool": np.bool_,
    "u8": np.uint8,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
}


@dataclass(frozen=True)
class TensorType:
    """A dtype, and sizes that are numbers, names or expressions of names."""

    dtype: str
    dims: tuple[str, ...]

    @staticmethod
    def parse(text: str | None) -> TensorType | None:
        """None if the text does not describe a tensor."""
        found = re.fullmatch(r"(\w+)\[(.*)\]", text or "")
        if not found:
            return None
        dims = found[2].split(",") if found[2].strip() else []
        return TensorType(found[1], tuple(d.strip() for d in dims))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(self.dims)}]"

    def row_shape(self, batch_dim: int) -> tuple[int, ...] | None:
        """The sizes of one row; None unless all are numbers."""
        rest = self.dims[:batch_dim] + self.dims[batch_dim + 1 :]
        return tuple(int(d) for d in rest) if all(d.isdecimal() for d in rest) else None

    def zeros(self, rows: int, batch_dim: int, sizes: Mapping[str, int]) -> npt.NDArray[Any] | None:
        """Zeros with `rows` as the first dimension; None if a size is unknown or numpy lacks the dtype."""
        known = TensorType(self.dtype, tuple(str(sizes.get(d, d)) for d in self.dims))
        shape = known.row_shape(batch_dim)
        if shape is None or self.dtype not in _DTYPES:
            return None
        return np.zeros((rows, *shape), _DTYPES[self.dtype])
