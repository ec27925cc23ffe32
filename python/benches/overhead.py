"""What a call from Python costs beyond the compiled call, beside ONNX Runtime: python benches/overhead.py

The model adds two small arrays, so that nearly all of a call is overhead. Each line is the best of several rounds, which take turns;
`native` is the same call in a loop without Python, and `overhead` the difference. Needs a release build of the package
(`maturin develop --release`); torch, and onnxruntime with onnx, are measured where they are installed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fxc
from fxc import _fxc

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

TEXT = """graph main {
    %x : f32[4, 4] = placeholder x
    %y : f32[4, 4] = placeholder y
    %z = call_function torch.add(%x, %y)
    output %z
}"""
CALLS, ROUNDS = 20_000, 7


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS


def onnxruntime_call(x: Any, y: Any) -> Callable[[], Any] | None:
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return None
    value = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4, 4]) for n in "xyz"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "y"], ["z"])], "add", value[:2], value[2:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x, "y": y})


def main() -> None:
    model = fxc.loads(TEXT, threads=1)
    x, y = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
    calls: dict[str, Callable[[], Any]] = {
        "fxc, 2 numpy arrays": lambda: model(x, y),
        "fxc, by name": lambda: model(x=x, y=y),
    }
    try:
        import torch

        t, u = torch.ones(4, 4), torch.ones(4, 4)
        calls["fxc, 2 torch tensors"] = lambda: model(t, u)
        calls["torch.add itself"] = lambda: torch.add(t, u)
    except ImportError:
        pass
    ort = onnxruntime_call(x, y)
    if ort is not None:
        calls["onnxruntime, 2 numpy arrays"] = ort
    calls["(an empty Python function)"] = lambda: None
    best = dict.fromkeys(calls, float("inf"))
    native = float("inf")
    for _ in range(ROUNDS):
        native = min(native, _fxc.native_seconds(model, CALLS, (x, y), {}))
        for name, call in calls.items():
            best[name] = min(best[name], seconds(call))
    print(f"{'':30} {'call':>9} {'overhead':>9}")
    print(f"{'fxc, native':30} {native * 1e6:6.2f} µs")
    for name, spent in best.items():
        overhead = f"{(spent - native) * 1e6:6.2f} µs" if name.startswith("fxc") else ""
        print(f"{name:30} {spent * 1e6:6.2f} µs {overhead:>9}")


if __name__ == "__main__":
    main()
