#!/usr/bin/env python3
"""Writes reductions.json: what PyTorch gives for reductions, scans and places of extrema. Run it in this folder;
tests/ops/pointwise.rs compares every row with it."""
import math

import torch
from samples import Cases

DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
          "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8, "b8": torch.bool}
torch.manual_seed(1)
BASE = (torch.randn(3, 4, 5) * 3).round(decimals=2)
ALL = {k: (BASE.abs() if k == "u8" else BASE).to(d) for k, d in DTYPES.items()}
ALL["b8"] = BASE > 2
nan, inf = math.nan, math.inf
ALL |= {
    "nan": torch.tensor([[1.0, nan, 3.0], [nan, nan, nan], [2.0, -1.0, 2.0], [inf, -inf, 1.0], [inf, 1.0, inf]]),
    "low": torch.full((2, 3), -inf),
    "scalar": torch.tensor(3.0),
    "empty": torch.zeros(0, 3),
    "none": torch.zeros(2, 0, 3),
    "one": torch.tensor([[5.0]]),
    "ties": torch.tensor([[3, 1, 3, 1], [2, 2, 2, 2], [0, -1, -1, 0]]),
    "long": torch.full((3000,), 0.1),
    "half": torch.full((100,), 60000.0, dtype=torch.float16),
    "i8_full": torch.full((20,), 100, dtype=torch.int8),
}
c = Cases(ALL)
SPECIAL = ["nan", "low", "scalar", "empty", "none", "one", "ties", "long", "half", "i8_full"]
ANY = list(DTYPES) + SPECIAL

# Over nothing named, one dim, and with the dim kept.
for n in "sum mean prod any all amax amin max min argmax argmin median nanmedian var std nansum nanmean count_nonzero".split():
    for k in ANY:
        if n == "prod" and k == "bf16":
            # torch rounds every product to bf16; fxc rounds the last.
            continue
        c.add(f"torch.{n}", ALL[k])
        c.add(f"torch.{n}", ALL[k], 0)
        if n != "count_nonzero":
            # The place of a median among ties is not specified.
            if not ("median" in n and k in ("low", "ties", "b8", "half", "i8_full", "long", "u8", "i8", "i32", "i64")):
                c.add(f"torch.{n}", ALL[k], -1, True)
for n in "sum mean amax amin any all var std nansum nanmean count_nonzero logsumexp".split():
    for k in ("f32", "f16", "i32", "b8", "nan", "none", "scalar"):
        if k == "f16" and n in ("nansum", "logsumexp"):
            # torch rounds intermediate results to f16; fxc computes in f32.
            continue
        for dim in ((0, 2), [-1, 0], [0, 0], [5]):
            c.add(f"torch.{n}", ALL[k], dim=dim)
    if n != "logsumexp":
        c.add(f"torch.{n}", ALL["f32"], dim=[])
for k in ANY:
    if k in ("f16", "bf16"):
        continue
    c.add("torch.logsumexp", ALL[k], 0)
    c.add("torch.logsumexp", ALL[k], -1, True)
for n in "sum prod mean nansum".split():
    for k in ("f32", "i32", "b8", "f16", "i8_full"):
        for d in (torch.float32, torch.float64, torch.int32, torch.uint8, torch.float16):
            c.add(f"torch.{n}", ALL[k], dtype=d)
            if (n, d) != ("mean", torch.float16):
                # torch rounds the sum to f16 before it divides.
                c.add(f"torch.{n}", ALL[k], 0, dtype=d)
for n in "var std".split():
    for k in ("f32", "f64", "f16", "bf16", "one", "nan", "i32", "scalar"):
        for correction in (0, 1, 2, 50, 0.5):
            c.add(f"torch.{n}", ALL[k], correction=correction)
            c.add(f"torch.{n}", ALL[k], dim=1 if ALL[k].ndim > 1 else None, correction=correction, keepdim=True)
        c.add(f"torch.{n}", ALL[k], False)
        c.add(f"torch.{n}", ALL[k], 0, False)
        c.add(f"torch.{n}", ALL[k], 0, True, True)
        c.add(f"torch.{n}_mean", ALL[k], 0)
        c.add(f"aten.{n}.dim", ALL[k], [0], False, True)
for p in (2, 1, 0, 3, 0.5, -1, inf, -inf, 2.5):
    for k in ("f32", "f64", "f16", "nan", "i32", "empty", "none", "scalar"):
        c.add("torch.linalg.vector_norm", ALL[k], p)
        c.add("torch.linalg.vector_norm", ALL[k], p, -1, True)
c.add("torch.linalg.vector_norm", ALL["f16"], dtype=torch.float32)
c.add("torch.linalg.vector_norm", ALL["f32"], dtype=torch.float16)
c.add("torch.norm", ALL["f32"])
c.add("torch.norm", ALL["f32"], "fro", 1)
c.add("torch.norm", ALL["f32"], 1, 1, True)
c.add("torch.norm", ALL["f32"], p=2, dim=(0, 1))
c.add("torch.dist", ALL["f32"], ALL["f64"].float() + 1, 3)
for n in "cumsum cumprod cummax cummin logcumsumexp".split():
    for k in ANY:
        if k == "long" and n in ("cumprod", "cummax", "cummin"):
            continue
        if k != "long":
            c.add(f"torch.{n}", ALL[k], 0)
        c.add(f"torch.{n}", ALL[k][:100] if k == "long" else ALL[k], -1)
    c.add(f"torch.{n}", ALL["f32"], 3)
for n in ("cumsum", "cumprod"):
    for d in (torch.float64, torch.int8, torch.float16):
        c.add(f"torch.{n}", ALL["i32"], 1, dtype=d)
for k in ("f32", "i32", "u8", "b8", "scalar", "one"):
    c.add("torch.diff", ALL[k])
    c.add("torch.diff", ALL[k], 2, 0)
    c.add("torch.diff", ALL[k], 9)
c.add("torch.diff", ALL["ties"], prepend=torch.tensor([[1], [2], [3]]))
for k in ("f32", "i32", "nan", "b8", "scalar"):
    c.add("torch.aminmax", ALL[k])
    c.add("torch.aminmax", ALL[k], dim=0, keepdim=True)
c.write("reductions.json")
