"""Batch inference with Spark: the held-out digits, over and over, from a Parquet file.

    python examples/spark_batch.py --rows 20000 --workers 2

Needs fxc (`pip install ./python`), `pip install pyspark pyarrow pandas` and a Java that this Spark supports. Each Python worker calls
`make_predict_fn` once and keeps the predictor. Spark forks its workers from a daemon, which never imports fxc. docs/scale.md says more.
"""

import argparse
import pathlib
import tempfile

import fxc
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, FloatType

DIGITS = pathlib.Path(__file__).parent / "digits"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256)
    o = parser.parse_args()

    held_out = np.load(DIGITS / "images.npz")
    ids = np.arange(o.rows)
    path = str((DIGITS / "digits.fxir").resolve())

    def make_predict_fn():
        return fxc.Predictor(path, threads=1)

    scores = predict_batch_udf(make_predict_fn, return_type=ArrayType(FloatType()), batch_size=o.batch_size, input_tensor_shapes=[[1, 8, 8]])
    spark = SparkSession.builder.master(f"local[{o.workers}]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        images = pa.array(list(held_out["x"].reshape(-1, 64)[ids % 360]), pa.list_(pa.float32()))
        pq.write_table(pa.table({"id": ids, "image": images}), f"{folder}/digits.parquet")
        rows = spark.read.parquet(folder).repartition(2 * o.workers).select("id", scores("image").alias("scores")).collect()
    spark.stop()

    rows.sort(key=lambda r: r["id"])
    assert [r["id"] for r in rows] == ids.tolist(), "a row is missing, or was answered twice"
    found = np.array([r["scores"] for r in rows], np.float32)
    print(f"{o.rows} rows, {(found.argmax(1) == held_out['labels'][ids % 360]).mean():.2%} right")
    worst = float(np.abs(found - fxc.load(path)(held_out["x"])[ids % 360]).max())
    print(f"largest difference from one call with all rows: {worst:.2g}")
    assert worst < 1e-4


if __name__ == "__main__":
    main()
