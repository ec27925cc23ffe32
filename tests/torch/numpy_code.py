"""Runs whole models as numpy programs: python tests/torch/numpy_code.py DIR [NAMES] [--fxc target/release/fxc]

DIR is as for models.py. `fxc emit-code MODEL --stage kernels --weights FILE` writes the program that fxc compiles as
Python: kernels, products, library calls and the order in which they run, with its constants beside it. For each archive it
is executed with numpy alone, and its results are compared with those of the eager module: the greatest difference relative
to the greatest magnitude of each float result (integers must be equal). Loops run in Python: small models take seconds,
large ones minutes. By default the models of NAMES below.

Needs: pip install numpy safetensors. Without them it says so and checks nothing.
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from safetensors.numpy import load_file
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was run")
    sys.exit(0)

from cases import table_of_archives
from models import difference

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

NAMES = [
    "nn.mlp", "nn.mnist", "nn.char_gru", "nn.char_lstm", "nn.dlrm", "nn.gcn", "nn.nanogpt", "nn.textcnn",
    "nn.topk_sampler", "nn.transformer_encoder", "hf.bert", "hf.distilbert", "hf.gpt2", "hf.llama", "hf.mistral", "hf.opt",
]


def flatten(v):
    if isinstance(v, np.ndarray):
        return [v]
    if isinstance(v, dict):
        return [t for x in v.values() for t in flatten(x)]
    return [t for x in v for t in flatten(x)] if isinstance(v, (list, tuple)) else []


def run(fxc, folder, archive):
    with tempfile.TemporaryDirectory() as tmp:
        code, weights = f"{tmp}/code.py", f"{tmp}/weights.safetensors"
        cmd = [fxc, "emit-code", f"{folder}/{archive}", "--stage", "kernels", "-o", code, "--weights", weights]
        p = subprocess.run(cmd, capture_output=True, text=True)
        if p.returncode != 0:
            return None, (p.stderr.strip().splitlines() or ["no message"])[0][:150]
        constants = load_file(weights)
        inputs, want = load_file(f"{folder}/inputs.safetensors"), load_file(f"{folder}/expected.safetensors")
        source = open(code).read()
        names = {}
        try:
            exec(compile(source, code, "exec"), names)
            order = source.split("def run(")[1].split("# inputs: ")[1].splitlines()[0].split(", ")
            result = names["run"]([inputs.get(n) for n in order], constants)
        except Exception as e:
            return None, f"{type(e).__name__}: {e}".splitlines()[0][:150]
        got = flatten(result)[-len(want):]
        if len(got) < len(want):
            return None, f"{len(got)} results instead of {len(want)}"
        return max((difference(g, want[f"output.{i}"]) for i, g in enumerate(got)), default=0.0), None


if __name__ == "__main__":
    table_of_archives(["numpy"], lambda fxc, folder, archive, _: run(fxc, folder, archive), NAMES)
