"""Batch inference with Dask: the held-out digits, over and over, through two processes.

    python examples/dask_batch.py --rows 50000 --processes 2

Needs fxc (`pip install ./python`) and `pip install "dask[array]"`. Dask pickles the predictor with every block; that is the file's name,
and a process loads the file once. docs/scale.md says what to choose.
"""

import argparse
import pathlib
import time

import dask
import dask.array as da
import fxc
import numpy as np

DIGITS = pathlib.Path(__file__).parent / "digits"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256)
    o = parser.parse_args()

    held_out = np.load(DIGITS / "images.npz")
    ids = np.arange(o.rows) % 360
    x = da.from_array(held_out["x"][ids], chunks=(o.batch_size, 1, 8, 8))
    answers = x.map_blocks(
        fxc.Predictor(DIGITS / "digits.fxir", threads=1),
        dtype=np.float32,
        drop_axis=[2, 3],
        chunks=(x.chunks[0], (10,)),
        meta=np.empty((0, 0), np.float32),  # else Dask calls the model with no rows to see what it gives
    )
    with dask.config.set(scheduler="processes", num_workers=o.processes):
        answers[: o.batch_size * o.processes].compute()
        begin = time.perf_counter()
        found = answers.compute()
        seconds = time.perf_counter() - begin
    print(f"{o.rows} rows, {(found.argmax(1) == held_out['labels'][ids]).mean():.2%} right")
    print(f"{o.rows / seconds:.0f} rows per second with {o.processes} processes, starting them included")
    expected = fxc.load(DIGITS / "digits.fxir")(held_out["x"])
    worst = float(np.abs(found - expected[ids]).max())
    print(f"largest difference from one call with all rows: {worst:.2g}")
    assert found.shape == (o.rows, 10) and worst < 1e-4


if __name__ == "__main__":
    main()
