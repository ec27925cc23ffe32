"""Predictors: columns in, columns out, over batches of any size."""

from __future__ import annotations

import os
import pathlib
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import fxc

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
DIGITS = EXAMPLES / "digits" / "digits.fxir"
SCORE = """graph main {
    %x : f32[N, 3] = placeholder x
    %w : f32[N, 3] = placeholder weight
    %y = call_function torch.mul(%x, %w)
    %s = call_method sum(%y, dim=1)
    output {"product": %y, "sum": %s}
}"""
X = np.arange(15, dtype=np.float32).reshape(5, 3)


def written(folder: pathlib.Path, text: str) -> pathlib.Path:
    path = folder / "model.fxir"
    path.write_text(text)
    return path


def digits() -> tuple[np.ndarray, np.ndarray]:
    held_out = np.load(EXAMPLES / "digits" / "images.npz")
    return held_out["x"], held_out["labels"]


def test_columns_are_inputs_and_results_are_columns(tmp_path: pathlib.Path) -> None:
    predict = fxc.Predictor(written(tmp_path, SCORE))
    done = predict({"x": X, "weight": X, "id": np.arange(5)})
    assert list(done) == ["product", "sum"]
    np.testing.assert_array_equal(done["product"], X * X)
    np.testing.assert_array_equal(done["sum"], (X * X).sum(1))
    assert repr(predict) == "<fxc.Predictor model(x, weight)>"


def test_columns_are_renamed_and_kept(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, SCORE)
    predict = fxc.Predictor(path, inputs={"weight": "w"}, outputs=["p", "s"], keep=["id"])
    batch = {"x": X, "w": X + 1, "id": np.arange(5)}
    done = predict(batch)
    assert list(done) == ["id", "p", "s"] and done["id"] is batch["id"]
    np.testing.assert_array_equal(done["s"], (X * (X + 1)).sum(1))
    assert list(fxc.Predictor(path, keep=True)({"x": X, "weight": X, "y": X})) == ["x", "weight", "y", "product", "sum"]
    with pytest.raises(ValueError, match="result and a kept column are both named `x`"):
        fxc.Predictor(path, outputs=["x", "s"], keep=True)({"x": X, "weight": X})
    with pytest.raises(fxc.InputError, match="`keep` names the column `key`; the batch has `x`, `weight`"):
        fxc.Predictor(path, keep=["key"])({"x": X, "weight": X})


def test_every_batch_size_gives_each_row_its_answer() -> None:
    x, labels = digits()
    predict = fxc.Predictor(DIGITS, outputs="scores")
    whole = predict({"x": x})["scores"]
    assert (whole.argmax(1) == labels).mean() > 0.95
    for size in [1, 7, 100, 359]:
        parts = [predict({"x": x[i : i + size]})["scores"] for i in range(0, len(x), size)]
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4, atol=1e-4)
    assert predict({"x": x[:0]})["scores"].shape == (0, 10)


def test_shared_memory_is_read_at_any_address_and_never_written(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, "graph main { %x : f32[N, 3] = placeholder x  %y = call_method add_(%x, 1)  output %y }")
    memory = b"?" + X.tobytes()
    column = np.frombuffer(memory, np.uint8)[1:].view(np.float32).reshape(5, 3)
    assert not column.flags.writeable and column.ctypes.data % 4 != 0 or column.ctypes.data % 64 != 0
    done = fxc.Predictor(path)({"x": column})
    np.testing.assert_array_equal(done["output"], X + 1)
    assert memory[1:] == X.tobytes() and done["output"].flags.writeable


def test_rows_that_are_flat_or_objects_get_the_models_shape() -> None:
    x, _ = digits()
    predict = fxc.Predictor(DIGITS)
    whole = predict(x)
    np.testing.assert_array_equal(predict(x.reshape(-1, 64)), whole)
    objects = np.empty(len(x), object)
    objects[:] = list(x)
    np.testing.assert_array_equal(predict({"x": objects})["output"], whole)
    objects[3] = x[3, :, :4]
    with pytest.raises(fxc.InputError, match=r"rows of the column `x` have different shapes \(\[1, 4, 8\], \[1, 8, 8\]\)|\(\[1, 8, 8\]"):
        predict({"x": objects})


def test_arrays_are_answered_by_arrays(tmp_path: pathlib.Path) -> None:
    x, _ = digits()
    assert fxc.Predictor(DIGITS)(x).shape == (360, 10)
    done = fxc.Predictor(written(tmp_path, SCORE))(X, X)
    np.testing.assert_array_equal(done["product"], X * X)
    with pytest.raises(TypeError, match="has 1 inputs, but the call has 2 arrays"):
        fxc.Predictor(DIGITS)(x, x)
    with pytest.raises(TypeError, match='not list; Ray Data passes dicts with batch_format="numpy"'):
        fxc.Predictor(DIGITS)([1, 2])


def test_another_dimension_may_count_rows(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, "graph main { %x : f32[3, N] = placeholder x  %y = call_method cumsum(%x, 0)  output (%y, %x) }")
    done = fxc.Predictor(path, batch_dim=1)({"x": X})
    np.testing.assert_array_equal(done["output_0"], X.cumsum(1))
    np.testing.assert_array_equal(done["output_1"], X)
    with pytest.raises(ValueError, match=r"`x` of `model` is f32\[3, N\]: its dimension 0 has a fixed size instead of the number of rows"):
        fxc.Predictor(path)


def test_models_that_are_not_batched_are_refused(tmp_path: pathlib.Path) -> None:
    def refused(text: str, why: str, **options: object) -> None:
        path = written(tmp_path, text)
        with pytest.raises(ValueError, match=why):
            fxc.Predictor(path, **options)  # type: ignore[arg-type]

    refused("graph main { %x : f32[8, 3] = placeholder x  output %x }", r"dimension 0 has a fixed size.*torch.export.Dim")
    refused("graph main { %x : f32[] = placeholder x  output %x }", "has no dimension 0 for rows")
    # Three features are as many as the rows of the trial.
    refused("graph main { %x : f32[N, 3] = placeholder x  %y = call_method sum(%x, dim=0)  output %y }", "`output.0` of `model` is f32.3.:")
    refused("graph main { %x : f32[N, 3] = placeholder x  %y = call_method sum(%x)  output %y }", "one result for a whole batch")
    refused("graph main { %x : f32[N, 3] = placeholder x  %y = call_method reshape(%x, [-1])  output %y }", "of 3 rows has the shape .9.")
    refused(SCORE, "has a fixed size instead of the number of rows", dims={"N": 8})
    refused(SCORE, "must name the model's 2 results", outputs=["only"])
    refused(SCORE, "names `weights`, but the model's parameters are .*did you mean `weight`", inputs={"weights": "w"})
    refused(SCORE, "batch_dim=-1", batch_dim=-1)


def test_batches_that_do_not_fit_are_refused(tmp_path: pathlib.Path) -> None:
    predict = fxc.Predictor(written(tmp_path, SCORE))
    with pytest.raises(fxc.InputError, match="`weight` reads the column `weight`; the batch has `x`, `weigth`; did you mean `weigth`"):
        predict({"x": X, "weigth": X})
    with pytest.raises(fxc.InputError, match="different numbers of rows"):
        predict({"x": X, "weight": X[:2]})
    with pytest.raises(fxc.InputError, match="must be f32.*provides f64"):
        predict({"x": X, "weight": X.astype(np.float64)})
    with pytest.raises(fxc.InputError, match="a single value"):
        predict({"x": X, "weight": np.float32(1)})


def test_what_is_wrong_with_a_file_shows_at_construction(tmp_path: pathlib.Path) -> None:
    with pytest.raises(fxc.FileError):
        fxc.Predictor(tmp_path / "none.pt2")
    with pytest.raises(fxc.CompileError, match="rellu"):
        fxc.Predictor(written(tmp_path, "graph main { %x : f32[N] = placeholder x  %y = call_function torch.rellu(%x)  output %y }"))
    gather = """const table : f32[2] = [1, 2]
graph main {
    %x : i64[N] = placeholder x
    %t = get_attr table
    %i = call_function torch.add(%x, 2)
    %y = call_function torch.index_select(%t, 0, %i)
    output %y
}"""
    path = written(tmp_path, gather)
    with pytest.raises(fxc.Error):
        fxc.Predictor(path)
    late = fxc.Predictor(path, trial=False)
    np.testing.assert_array_equal(late(np.array([-1, -2])), [2, 1])


def test_open_sizes_put_the_trial_off(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, "graph main { %x : f32[N, K] = placeholder x  %y = call_method reshape(%x, [-1])  output %y }")
    late = fxc.Predictor(path)
    with pytest.raises(ValueError, match="is not the number of rows"):
        late(X)
    np.testing.assert_array_equal(late(X[:, :1]), X[:, 0])
    with pytest.raises(ValueError, match="is not the number of rows"):
        fxc.Predictor(path, dims={"K": 4})


def test_a_predictor_is_pickled_as_its_arguments(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, SCORE)
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(fxc.Predictor("model.fxir", inputs={"weight": "x"}, outputs=["p", "s"], keep=["x"], threads=1, exact=True))
    assert len(data) < 1000
    code = "import pickle, sys; print(list(pickle.load(sys.stdin.buffer)({'x': __import__('numpy').ones((2, 3), 'float32')})))"
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, cwd="/", timeout=300)
    assert done.stdout == b"['x', 'p', 's']\n" or done.stdout == b"['x', 'p', 's']\r\n", done.stderr.decode()


def test_a_process_loads_a_pickled_predictor_once_while_its_file_is_the_same(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, SCORE)
    data = pickle.dumps(fxc.Predictor(path))
    first = pickle.loads(data)
    assert pickle.loads(data) is first
    assert pickle.loads(pickle.dumps(fxc.Predictor(path, keep=True))) is not first
    written(tmp_path, SCORE.replace("torch.mul", "operator.add"))
    np.testing.assert_array_equal(pickle.loads(data)(X, X)["product"], 2 * X)


def test_threads_come_from_the_environment() -> None:
    code = f"import fxc; p = fxc.Predictor({str(DIGITS)!r}); print(fxc.get_num_threads())"
    env = {**os.environ, "OMP_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=300)
    assert done.stdout == "3\n", done.stderr


@pytest.mark.torch
def test_exported_modules(tmp_path: pathlib.Path) -> None:
    import torch

    class Net(torch.nn.Module):
        def forward(self, x, y, mask=None):  # type: ignore[no-untyped-def]
            z = x + y if mask is None else x * mask
            return {"sum": z, "both": (z, -z)}

    class Nested(torch.nn.Module):
        def forward(self, pair):  # type: ignore[no-untyped-def]
            return pair[0] + pair[1]

    batch, x = torch.export.Dim("batch"), torch.ones(2, 3)
    shapes = {"x": {0: batch}, "y": {0: batch}, "mask": None}
    fxc.export(Net(), x, x, mask=None, path=tmp_path / "net.pt2", dynamic_shapes=shapes)
    done = fxc.Predictor(tmp_path / "net.pt2")({"x": X, "y": X})
    assert list(done) == ["sum", "both_0", "both_1"]
    np.testing.assert_array_equal(done["both_1"], -2 * X)
    fxc.export(Nested(), (x, x), path=tmp_path / "nested.pt2", dynamic_shapes={"pair": ({0: batch}, {0: batch})})
    with pytest.raises(ValueError, match=r"with the parameters \(pair\) has nested arguments"):
        fxc.Predictor(tmp_path / "nested.pt2")


def test_the_page_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = EXAMPLES.parent / "docs" / "scale.md"
    blocks = re.findall(r"^```py\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, page.name, "exec"), {})


def run_example(*arguments: str) -> str:
    script, *options = arguments
    command = [sys.executable, str(EXAMPLES / script), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the example ends a worker with a signal")
def test_a_ray_cluster_answers_every_row_once_when_a_worker_dies() -> None:
    pytest.importorskip("ray.data", reason="Ray Data is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    said = run_example("ray_batch.py", "--rows", "2100", "--batch-size", "64", "--kill")
    assert "2100 rows, each answered once" in said and "a worker died: True" in said


def test_dask_answers_every_row() -> None:
    pytest.importorskip("dask.array", reason="Dask is not installed")
    assert "700 rows, 99." in run_example("dask_batch.py", "--rows", "700", "--batch-size", "64")
