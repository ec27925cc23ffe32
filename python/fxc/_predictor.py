"""Runs models on the batches of a data set, with Ray Data, Dask or Spark."""

from __future__ import annotations

import dataclasses
import difflib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _fxc
from ._errors import InputError
from ._model import Model, load
from ._types import TensorType

Array = npt.NDArray[Any]
#: The rows of a trial run. Not 1, which exports and broadcasting treat specially.
TRIAL_ROWS = 3
#: The maximum number of unpickled predictors that a process keeps.
MOST_LOADED = 4
_LOADED: dict[tuple[object, ...], Predictor] = {}
_LOCK = threading.Lock()


@dataclasses.dataclass(frozen=True)
class _Input:
    """An input of the model and the column that it is read from."""

    name: str
    column: str
    type: TensorType | None
    optional: bool

    def reshaped(self, array: Array, rows: int, batch_dim: int) -> Array:
        """Rows that are flat lists, as Parquet and Spark have them, get the shape of the model's rows."""
        shape = self.type.row_shape(batch_dim) if self.type else None
        if shape is None or array.ndim != 2 or len(shape) < 2 or array.shape[1] != np.prod(shape):
            return array
        return array.reshape(rows, *shape)


class Predictor:
    """A model that maps batches of rows to results, for Ray Data, Dask and Spark.

        ds.map_batches(fxc.Predictor, fn_constructor_kwargs={"path": "model.pt2"}, batch_size=256, ...)

    A call takes a dict of columns (numpy arrays with one entry for each row) and returns a dict of columns. A call with arrays, one
    for each input, returns the result's array, or a dict if there are several; Spark's `predict_batch_udf` and Dask's `map_blocks`
    call it this way. Batches are never written to and may have any number of rows. The constructor loads and compiles the model, and
    runs it once if its sizes are known, so that errors appear there. A predictor is pickled as its arguments: a process that
    receives one loads the file once.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        batch_dim: int = 0,
        inputs: Mapping[str, str] | None = None,
        outputs: str | Sequence[str] | None = None,
        keep: Sequence[str] | bool = (),
        threads: int | None = None,
        exact: bool = False,
        precision: str = "f32",
        fast_math: bool = False,
        dims: Mapping[str, int] | None = None,
        max_memory: int | str | None = None,
        max_time: float | None = None,
        trial: bool = True,
    ) -> None:
        """
        path: the model, as for `fxc.load`.
        batch_dim: the dimension of rows in the model's inputs and results; in columns it is always the first.
        inputs: the column for each input, `{"x": "image"}`; by default the column with the input's name.
        outputs: the names of the results' columns, in order; by default a dict's keys, `output`, or `output_0`, `output_1`, ….
        keep: columns of a batch to copy to the result, or True for all.
        threads: the number of threads for a call; by default `OMP_NUM_THREADS`, else the number of processors available to the process.
        exact, precision, fast_math, dims: as for `fxc.load`. `dims` does not fix the number of rows.
        max_memory, max_time: as for `fxc.load`; a batch beyond them is a `CompileError`.
        trial: whether the constructor runs the model once if its sizes are known.
        """
        if batch_dim < 0:
            raise ValueError(f"batch_dim={batch_dim} must be 0 or more")
        self._path = os.path.abspath(os.fspath(path))
        self._batch_dim = batch_dim
        self._outputs = [outputs] if isinstance(outputs, str) else list(outputs) if outputs is not None else None
        self._keep = keep if isinstance(keep, bool) else [keep] if isinstance(keep, str) else list(keep)
        self._mapping = dict(inputs or {})
        self._options: dict[str, Any] = {"threads": threads, "exact": exact, "precision": precision, "fast_math": fast_math}
        self._options |= {"dims": dict(dims or {}) or None, "max_memory": max_memory, "max_time": max_time}
        self._model = load(self._path, **self._options)
        self._inputs = _inputs(self._model, self._mapping)
        for given in self._inputs:
            self._check_batched(given)
        for name, text in _fxc.describe(self._model)[1]:
            self._check_answers_rows(name, TensorType.parse(text))
        self._trial = trial
        if trial:
            self._run_trial()

    @property
    def model(self) -> Model:
        """The model."""
        return self._model

    def __repr__(self) -> str:
        columns = ", ".join(i.name if i.name == i.column else f"{i.name}={i.column}" for i in self._inputs)
        return f"<fxc.Predictor {self._model.name}({columns})>"

    def __call__(self, *batch: Any) -> Any:
        """Returns a dict of columns for a dict of columns, and an array or a dict of arrays for arrays, one for each input."""
        if len(batch) == 1 and isinstance(batch[0], Mapping):
            return self._columns(batch[0])
        if not batch or not all(isinstance(a, np.ndarray) for a in batch):
            kinds = ", ".join(type(a).__name__ for a in batch) or "nothing"
            raise TypeError(
                f"a predictor expects a dict of numpy arrays, or one array for each input, not {kinds}; "
                'Ray Data passes dicts with batch_format="numpy"'
            )
        if len(batch) > len(self._inputs):
            raise TypeError(f"the model `{self._model.name}` has {len(self._inputs)} inputs, but the call has {len(batch)} arrays")
        results = self._run(list(zip(self._inputs, batch)))
        return next(iter(results.values())) if len(results) == 1 else results

    def __reduce__(self) -> tuple[object, ...]:
        own = {"batch_dim": self._batch_dim, "inputs": self._mapping, "outputs": self._outputs, "keep": self._keep}
        return (_again, (type(self), self._path, {**own, **self._options, "trial": self._trial}))

    def _columns(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        given = []
        for i in self._inputs:
            if i.column in batch:
                given.append((i, np.asarray(batch[i.column])))
            elif not i.optional or i.name in self._mapping:
                raise InputError(_missing_column(i, batch))
        results = self._run(given)
        kept = list(batch) if self._keep is True else self._keep or []
        for column in kept:
            if column not in batch:
                raise InputError(f"`keep` names the column `{column}`; {_has(batch)}")
            if column in results:
                raise ValueError(f"a result and a kept column are both named `{column}`; rename results with outputs=[…]")
        return {**{c: batch[c] for c in kept}, **results}

    def _run(self, given: list[tuple[_Input, Array]]) -> dict[str, Array]:
        """The results of arrays whose first dimension counts rows."""
        given = [(i, _stacked(i, a)) for i, a in given]
        rows = _row_count(given)
        arrays = {i.name: np.moveaxis(i.reshaped(a, rows, self._batch_dim), 0, self._batch_dim) for i, a in given}
        for array in arrays.values():
            array.flags.writeable = False  # views of the batch, which a model that writes its inputs must not change
        results = dict(_leaves(self._model(**arrays)))
        if self._outputs is not None:
            if len(self._outputs) != len(results):
                names = ", ".join(results)
                raise ValueError(f"outputs={self._outputs} must name the model's {len(results)} results ({names})")
            results = dict(zip(self._outputs, results.values()))
        return {name: self._rows_first(name, r, rows) for name, r in results.items()}

    def _rows_first(self, name: str, result: Any, rows: int) -> Array:
        shape = np.shape(result)
        if len(shape) <= self._batch_dim or shape[self._batch_dim] != rows:
            raise ValueError(_not_of_rows(f"the result `{name}` of {rows} rows has the shape {list(shape)}", self._batch_dim))
        return np.moveaxis(result, self._batch_dim, 0)

    def _check_batched(self, given: _Input) -> None:
        """Checks that an input has a symbolic dimension for rows, because the last batch of a data set is smaller."""
        if given.type is None:
            return
        shape, d = given.type.dims, self._batch_dim
        what = f"the input `{given.name}` of `{self._model.name}` is {given.type}"
        if len(shape) <= d:
            raise ValueError(f"{what}: it has no dimension {d} for rows")
        if shape[d].isdecimal() or shape[d] in (self._options["dims"] or {}):
            raise ValueError(
                f"{what}: its dimension {d} has a fixed size instead of the number of rows; "
                f'export with dynamic_shapes={{"{given.name}": {{{d}: torch.export.Dim("batch")}}}}, or use a symbolic size in FXIR'
            )

    def _check_answers_rows(self, name: str, type: TensorType | None) -> None:
        """Checks that a result has a dimension for rows too. Its size is known only after a run."""
        if type and (len(type.dims) <= self._batch_dim or type.dims[self._batch_dim].isdecimal()):
            raise ValueError(_not_of_rows(f"the result `{name}` of `{self._model.name}` is {type}", self._batch_dim))

    def _run_trial(self) -> None:
        given = []
        for i in self._inputs:
            if i.optional and i.name not in self._mapping:
                continue
            zeros = i.type.zeros(TRIAL_ROWS, self._batch_dim, self._options["dims"] or {}) if i.type else None
            if zeros is None:
                return
            given.append((i, zeros))
        self._run(given)


def _again(cls: type[Predictor], path: str, arguments: dict[str, Any]) -> Predictor:
    """Schedulers such as Dask's pickle a function with every task, so a process caches what it loaded until the file changes."""
    state = os.stat(path) if os.path.exists(path) else None
    key = (cls, path, repr(arguments), (state.st_mtime_ns, state.st_size, state.st_ino) if state else None)
    with _LOCK:
        if key not in _LOADED:
            _LOADED[key] = cls(path, **arguments)
            if len(_LOADED) > MOST_LOADED:
                del _LOADED[next(iter(_LOADED))]
        return _LOADED[key]


def _inputs(model: Model, mapping: dict[str, str]) -> list[_Input]:
    """The inputs by their names, with their columns."""
    names = [n for n in model.signature_text.split(", ") if n and n != "*"]
    described = _fxc.describe(model)[0]
    if len(names) != len(described):
        raise ValueError(
            f"the model `{model.name}` with the parameters ({model.signature_text}) has nested arguments "
            f"({', '.join(n for n, _ in described)}); export a module that takes each tensor as an argument"
        )
    for name in mapping:
        if name not in names:
            raise ValueError(f"inputs={mapping} names `{name}`, but the model's parameters are ({model.signature_text}){_close(name, names)}")
    optional = [bool(n.args) or t == "None" for n, (_, t) in zip(model.graph.find_nodes(op="placeholder"), described)]
    return [
        _Input(name, mapping.get(name, name), TensorType.parse(type), is_optional)
        for name, (_, type), is_optional in zip(names, described, optional)
    ]


def _stacked(given: _Input, array: Array) -> Array:
    """Joins a column of arrays of one shape to one array. Ray Data sometimes represents such columns as objects."""
    if array.dtype != object or not len(array):
        return array
    shapes = {np.shape(row) for row in array}
    if len(shapes) > 1:
        some = ", ".join(str(list(s)) for s in sorted(shapes, key=len)[:3])
        raise InputError(f"the rows of the column `{given.column}` have different shapes ({some}); convert them to one shape first")
    return np.stack(list(array))


def _row_count(given: Iterable[tuple[_Input, Array]]) -> int:
    counts = {i.column: len(a) if a.ndim else -1 for i, a in given}
    if not counts:
        raise InputError("the model reads no column, so the number of rows is unknown")
    for column, count in counts.items():
        if count < 0:
            raise InputError(f"the column `{column}` is a single value, not an array with an entry for each row")
    if len(set(counts.values())) != 1:
        raise InputError(f"the columns have different numbers of rows: {counts}")
    return next(iter(counts.values()))


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The arrays of a result, by name. The items of a tuple are numbered even if it is a named tuple, because its class depends on whether torch is loaded."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, f"{name}_{key}" if name else str(key))
    elif isinstance(value, (tuple, list)):
        for i, part in enumerate(value):
            yield from _leaves(part, f"{name or 'output'}_{i}")
    elif value is not None:
        yield name or "output", value


def _not_of_rows(what: str, batch_dim: int) -> str:
    return (
        f"{what}: its dimension {batch_dim} is not the number of rows. "
        "The model returns one result for a whole batch; a predictor needs a result for each row"
    )


def _missing_column(given: _Input, batch: Mapping[str, Any]) -> str:
    hint = _close(given.column, batch) or f'; choose another column with inputs={{"{given.name}": "COLUMN"}}'
    return f"the input `{given.name}` reads the column `{given.column}`; {_has(batch)}{hint}"


def _has(batch: Mapping[str, Any]) -> str:
    return f"the batch has {', '.join(f'`{c}`' for c in batch) or 'no columns'}"


def _close(name: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean `{found[0]}`?" if found else ""
