"""Compares fxc with PyTorch's answers on whole models: python tests/torch/models.py DIR [--fxc target/release/fxc]

DIR holds one folder a model, each with export.pt2 and core.pt2 (torch.export.save before and after
run_decompositions()), inputs.safetensors (named after the placeholders) and expected.safetensors (output.0, output.1, …
of the eager module). For each archive the model runs compiled and interpreted; printed is the greatest difference
relative to the greatest magnitude of each float result (integers must be equal). Of results that depend on random numbers
only type, shape and finiteness are compared.

Needs: pip install numpy safetensors. Without them it says so and checks nothing.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile

try:
    import numpy as np
    import torch  # noqa: F401  safetensors reads with it
    from safetensors import safe_open
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)

from cases import table_of_archives

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"


def difference(got, want):
    """Greatest difference relative to the greatest magnitude; inf where types or shapes differ or integers do."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if want.dtype.kind != "f":
        return 0.0 if np.array_equal(got, want) else float("inf")
    if want.size == 0:
        return 0.0
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    if same.all():
        return 0.0
    with np.errstate(invalid="ignore"):
        diff = np.where(same, 0, np.abs(got.astype(np.float64) - want))
    return float(np.max(np.nan_to_num(diff, nan=np.inf)) / max(np.abs(want[np.isfinite(want)]).max(initial=0), 1e-30))


def load_file(path):
    """The tensors of a file by name. numpy has no bfloat16: those are f32 here."""
    with safe_open(path, "pt") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}
    return {k: (t.float() if str(t.dtype) == "torch.bfloat16" else t).numpy() for k, t in tensors.items()}


def dtypes(path):
    with safe_open(path, "pt") as f:
        return {k: f.get_slice(k).get_dtype() for k in f.keys()}


def drawn(path):
    """Which results of an archive depend on random numbers (`output.N`): those that only type and shape are compared of."""
    with zipfile.ZipFile(path) as z:
        entry = next(n for n in z.namelist() if n.endswith("models/model.json"))
        program = json.loads(z.read(entry))["graph_module"]
    def names(v):
        return re.findall(r'"name": "([^"]+)"', json.dumps(v))
    tainted = set()
    for n in program["graph"]["nodes"]:
        random = re.search(r"\.(rand|bernoulli|normal|uniform|dropout|multinomial|exponential)", n["target"])
        # Dropout that does not train gives its operand.
        random = random and ("dropout" not in n["target"] or '"as_bool": true' in json.dumps(n["inputs"]))
        if random or tainted & set(names(n["inputs"])):
            tainted |= set(names(n["outputs"]))
    results = [s["user_output"]["arg"] for s in program["signature"]["output_specs"] if "user_output" in s]
    return {f"output.{i}" for i, r in enumerate(results) if tainted & set(names(r))}


def run(fxc, folder, archive, extra):
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, "out.safetensors")
        cmd = [fxc, "run", f"{folder}/{archive}", "--inputs", f"{folder}/inputs.safetensors", "--outputs", out, *extra]
        p = subprocess.run(cmd, capture_output=True, text=True)
        if p.returncode != 0:
            return None, (p.stderr.strip().splitlines() or ["no message"])[0][:150]
        got, want = load_file(out), load_file(f"{folder}/expected.safetensors")
        if set(got) != set(want):
            return None, f"results {sorted(got)} instead of {sorted(want)}"
        if dtypes(out) != dtypes(f"{folder}/expected.safetensors"):
            return None, f"dtypes {dtypes(out)} instead of {dtypes(f'{folder}/expected.safetensors')}"
        random = drawn(f"{folder}/{archive}")
        for k in random:
            if got[k].shape != want[k].shape or got[k].dtype != want[k].dtype or not np.isfinite(got[k]).all():
                return None, f"{k} is {got[k].dtype}{list(got[k].shape)} or not finite"
        return max((difference(got[k], want[k]) for k in want if k not in random), default=0.0), None


if __name__ == "__main__":
    modes = {"compiled": [], "interpreted": ["--interpret"]}
    table_of_archives(list(modes), lambda fxc, folder, archive, mode: run(fxc, folder, archive, modes[mode]))
