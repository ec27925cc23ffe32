"""Runs what `fxc emit-code` writes under PyTorch: python tests/torch/emit_code.py DIR [NAMES] [--fxc target/release/fxc]

DIR is as for models.py: one folder a model, with export.pt2 and core.pt2, inputs.safetensors and expected.safetensors. For
each archive the Python of the stages `graph` and `optimized` is executed with the weights that fxc writes beside it, and its
results are compared with those of the eager module: the greatest difference relative to the greatest magnitude of each
float result (integers must be equal). A model that draws random numbers is compared with the program that
torch.export.load reads, both after torch.manual_seed(0).

Needs: pip install torch safetensors. Without them it says so and checks nothing.
"""
import os
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors.torch import load_file
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was run")
    sys.exit(0)

from cases import table_of_archives

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"


class Attributes:
    """What `self` is to the code: attributes of attributes, whatever their names."""

    def put(self, path, value):
        *heads, last = path.split(".")
        at = self
        for h in heads:
            if not hasattr(at, h):
                setattr(at, h, Attributes())
            at = getattr(at, h)
        setattr(at, last, value)


def flatten(v):
    if isinstance(v, torch.Tensor):
        return [v]
    if isinstance(v, dict):
        return [t for x in v.values() for t in flatten(x)]
    if isinstance(v, (list, tuple)):
        return [t for x in v for t in flatten(x)]
    return []


def namespace():
    import math
    import operator

    from torch.fx import _pytree as fx_pytree
    from torch.utils import _pytree as pytree

    try:
        import torchvision  # noqa: F401  (its operators register themselves)
    except ImportError:
        pass
    names = {"torch": torch, "device": torch.device, "inf": math.inf, "nan": math.nan, "NoneType": type(None)}
    names.update(fx_pytree=fx_pytree, pytree=pytree, math=math)
    # torch writes other functions as globals, with underscores for dots.
    for module, prefix in [(operator, "_operator"), (math, "math")]:
        names.update({f"{prefix}_{k}": getattr(module, k) for k in dir(module) if not k.startswith("__")})
    return names


def difference(got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if not want.dtype.is_floating_point:
        return 0.0 if torch.equal(got, want) else float("inf")
    same = (got == want) | (got.isnan() & want.isnan())
    if bool(same.all()):
        return 0.0
    diff = torch.where(same, 0.0, (got.double() - want.double()).abs())
    top = want[want.isfinite()].abs().max().item() if bool(want.isfinite().any()) else 0.0
    return float(diff.nan_to_num(nan=float("inf")).max()) / max(top, 1e-30)


def drawn(folder, archive, inputs):
    """What the archive's program gives after a seed; None if it draws no random numbers."""
    program = torch.export.load(f"{folder}/{archive}")
    if not any(str(n.target).split(".")[1:2] in [["randn_like"], ["rand_like"], ["bernoulli"], ["randn"], ["rand"]]
               for n in program.graph.nodes):
        return None
    torch.manual_seed(0)
    with torch.no_grad():
        result = program.module()(*[inputs[n] for n in program.graph_signature.user_inputs if n in inputs])
    return {f"output.{i}": v for i, v in enumerate(flatten(result))}


def flattening(forward, self, path, inputs):
    """A call of `forward`, which flattens its arguments, on these inputs."""
    program = torch.export.load(path)
    module = program.module()
    self._in_spec, self._out_spec = module._in_spec, module._out_spec
    flat = [inputs[n] if isinstance(n, str) else n for n in program.graph_signature.user_inputs]
    args, kwargs = torch.utils._pytree.tree_unflatten(flat, self._in_spec)
    return lambda self: forward(self, *args, **kwargs)


def run(fxc, folder, archive, stage):
    with tempfile.TemporaryDirectory() as tmp:
        code, weights = os.path.join(tmp, "code.py"), os.path.join(tmp, "weights.safetensors")
        cmd = [fxc, "emit-code", f"{folder}/{archive}", "--stage", stage, "-o", code, "--weights", weights]
        p = subprocess.run(cmd, capture_output=True, text=True)
        if p.returncode != 0:
            return None, (p.stderr.strip().splitlines() or ["no message"])[0][:150]
        self = Attributes()
        for name, value in (load_file(weights) if os.path.getsize(weights) > 16 else {}).items():
            self.put(name, value)
        inputs, want = load_file(f"{folder}/inputs.safetensors"), load_file(f"{folder}/expected.safetensors")
        names = namespace()
        try:
            exec(compile(open(code).read(), code, "exec"), names)
            forward = names["forward"]
            if "tree_flatten_spec" in forward.__code__.co_names:
                forward, inputs = flattening(forward, self, f"{folder}/{archive}", inputs), {}
            parameters = forward.__code__.co_varnames[1 : forward.__code__.co_argcount]
            defaults = len(forward.__defaults__ or ())
            needed = parameters[: len(parameters) - defaults]
            missing = [n for n in needed if n not in inputs]
            if missing:
                return None, f"no input for {missing}"
            torch.manual_seed(0)
            with torch.no_grad():
                result = forward(self, **{n: inputs[n] for n in parameters if n in inputs})
        except Exception as e:
            return None, f"{type(e).__name__}: {e}".splitlines()[0][:150]
        # Leading results may be new values of buffers and inputs.
        got = flatten(result)[-len(want) :]
        if len(got) < len(want):
            return None, f"{len(got)} results instead of {len(want)}"
        worst = max((difference(g, want[f"output.{i}"]) for i, g in enumerate(got)), default=0.0)
        if worst > 1e-3 and (want := drawn(folder, archive, inputs)):
            worst = max(difference(g, want[f"output.{i}"]) for i, g in enumerate(got))
        return worst, None


if __name__ == "__main__":
    table_of_archives(["graph", "optimized"], run)
