"""Batch inference on a Ray cluster: digits over Parquet files, or a ResNet over image files.

    python examples/ray_batch.py                                # digits, two workers of one thread each
    python examples/ray_batch.py --model resnet --rows 2000     # resnet18 of torchvision over PNG files
    python examples/ray_batch.py --kill                         # a worker dies half-way, and every row is still answered once

Needs fxc (`pip install ./python`) and `pip install "ray[data]" pyarrow`; images need pillow, the ResNet torch and torchvision. The
cluster is started on this machine and ends with the program. The ResNet's weights are random, because nothing is downloaded; its
answers are compared with those of one process. docs/scale.md says what to choose and what Ray does about faults.
"""

import argparse
import logging
import os
import pathlib
import signal
import tempfile
import time

import fxc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data

HERE = pathlib.Path(__file__).parent
FILES = 8
IMAGE_SIZE = 64


class Worker(fxc.Predictor):
    """A predictor that also tells who answered a row and when, and that may be told to die once."""

    def __init__(self, path, *, die_at=None, log=None, **options):
        super().__init__(path, **options)
        self.die_at, self.log = die_at, log
        pathlib.Path(log, f"started-{os.getpid()}").touch()

    def __call__(self, batch):
        if self.die_at is not None and self.die_at in batch["id"]:
            try:
                pathlib.Path(self.log, "died").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass  # the retry of the batch
        begin = time.time()
        done = super().__call__(batch)
        rows = len(batch["id"])
        return {**done, "pid": np.full(rows, os.getpid()), "begin": np.full(rows, begin), "end": np.full(rows, time.time())}


def digits(folder, rows):
    """The held-out digits, over and over, in Parquet files; gives the model, its column and the data set."""
    held_out = np.load(HERE / "digits" / "images.npz")
    for i, ids in enumerate(np.array_split(np.arange(rows), FILES)):
        image = held_out["x"].reshape(-1, 64)[ids % 360]
        column = pa.FixedSizeListArray.from_arrays(pa.array(image.ravel()), 64)
        pq.write_table(pa.table({"id": ids, "image": column, "label": held_out["labels"][ids % 360]}), folder / f"{i}.parquet")
    return HERE / "digits" / "digits.fxir", "x", ray.data.read_parquet(str(folder))


def resnet(folder, rows):
    """The digits as PNG files; the ResNet is exported for batches of any size."""
    import torch
    import torchvision
    from PIL import Image

    torch.manual_seed(0)
    model = torchvision.models.resnet18(weights=None).eval()
    x, batch = torch.zeros(2, 3, IMAGE_SIZE, IMAGE_SIZE), torch.export.Dim("batch")
    fxc.export(model, x, path=folder / "resnet.pt2", dynamic_shapes={"x": {0: batch}})
    images = np.load(HERE / "digits" / "images.npz")["x"][:, 0]
    (folder / "images").mkdir()
    for i in range(rows):
        picture = Image.fromarray((images[i % 360] * 255).astype(np.uint8)).resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BICUBIC)
        picture.convert("RGB").save(folder / "images" / f"{i}.png")
    ds = ray.data.read_images(str(folder / "images"), include_paths=True)
    return folder / "resnet.pt2", "x", ds.map_batches(prepared, udf_modifying_row_count=False)


def prepared(batch):
    """Rows as the model takes them, made of an image's bytes. The predictor casts nothing."""
    x = np.ascontiguousarray(batch["image"].transpose(0, 3, 1, 2), np.float32) / np.float32(255)
    ids = np.array([int(pathlib.Path(p).stem) for p in batch["path"]])
    return {"id": ids, "image": x, "label": np.zeros(len(ids), np.int64)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["digits", "resnet"], default="digits")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--kill", action="store_true", help="a worker dies when it meets the middle row")
    o = parser.parse_args()

    # One processor more than the workers have: the tasks that read files need one.
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    ray.init(num_cpus=o.workers * o.threads + 1, object_store_memory=2**29, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "data").mkdir()
        (folder / "log").mkdir()
        path, name, ds = {"digits": digits, "resnet": resnet}[o.model](folder / "data", o.rows)
        options = {"inputs": {name: "image"}, "outputs": "scores", "keep": ["id", "label"]}
        # A worker takes one block at a time, and small files are read as one block.
        answers = ds.repartition(target_num_rows_per_block=4 * o.batch_size).map_batches(
            Worker,
            fn_constructor_kwargs={"path": str(path), "die_at": o.rows // 2 if o.kill else None, "log": str(folder / "log"), **options},
            batch_size=o.batch_size,
            compute=ray.data.ActorPoolStrategy(size=o.workers),
            num_cpus=o.threads,  # also the OMP_NUM_THREADS of the worker, which fxc takes
            udf_modifying_row_count=False,
        )
        blocks = list(answers.iter_batches(batch_size=None))
        report({c: np.concatenate([b[c] for b in blocks]) for c in blocks[0]}, o)
        if o.kill:
            died = (folder / "log" / "died").exists()
            print(f"a worker died: {died}; processes that were started: {len(list((folder / 'log').glob('started-*')))}")
            assert died, "no worker met the middle row"
        compare(ds, fxc.Predictor(path, **options), blocks)
    ray.shutdown()


def report(done, o):
    assert np.array_equal(np.sort(done["id"]), np.arange(o.rows)), "a row is missing, or was answered twice"
    print(f"{o.rows} rows, each answered once")
    if o.model == "digits":
        print(f"{(done['scores'].argmax(1) == done['label']).mean():.2%} right")
    seconds = done["end"].max() - done["begin"].min()
    workers = len(np.unique(done["pid"]))
    print(f"{o.rows / seconds:.0f} rows per second with {workers} processes of {o.threads} threads, from the first batch to the last")


def compare(ds, predict, blocks):
    """One process without Ray gives the same answers."""
    expected, rows, seconds = {}, 0, 0.0
    for batch in ds.limit(192).iter_batches(batch_size=64):
        predict(batch)  # the first call with a new size compiles for it
        begin = time.perf_counter()
        scores = predict(batch)["scores"]
        seconds += time.perf_counter() - begin
        rows += len(scores)
        expected.update(zip(batch["id"].tolist(), scores))
    found = {int(i): s for b in blocks for i, s in zip(b["id"], b["scores"]) if int(i) in expected}
    worst = max(float(np.abs(found[i] - s).max()) for i, s in expected.items())
    print(f"{rows} rows in this process: {rows / seconds:.0f} rows per second; largest difference {worst:.2g}")
    assert len(found) == rows and worst < 1e-3


if __name__ == "__main__":
    main()
