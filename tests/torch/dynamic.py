"""Symbolic batches of whole models: python tests/torch/dynamic.py ZOO OUT [names] [--fxc target/release/fxc]

ZOO is a Python file with `ORDER` (names) and `build(name) -> (model, args, kwargs)`. Each model is exported once with
torch.export, `Dim.AUTO` for the first dimension of every tensor input, from inputs of batch 2, into OUT/NAME/batch.pt2.
That one archive then runs at batch 1, 3 and 8 and is compared with the eager module at the same batch. Printed is the greatest difference relative to the greatest magnitude.
A model that torch specialises to its batch is said to be so and not counted.

`--make` only writes the cases; `--keep` runs those already written. Needs: torch, safetensors.
"""
import argparse
import importlib.util
import os
import sys
import warnings

from models import run

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

warnings.filterwarnings("ignore")
BATCHES = [1, 3, 8]


def load_zoo(path):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("zoo", path)
    zoo = importlib.util.module_from_spec(spec)
    sys.modules["zoo"] = zoo
    spec.loader.exec_module(zoo)
    return zoo


def at_batch(torch, tensors, n, seed):
    """Inputs like `tensors`, with `n` rows along the first dimension: rows of the original, permuted within each row."""
    g = torch.Generator().manual_seed(seed)
    out = []
    for t in tensors:
        if not isinstance(t, torch.Tensor):
            out.append(t)
            continue
        rows = []
        for i in range(n):
            row = t[i % t.shape[0]]
            order = torch.randperm(row.shape[-1] if row.dim() else 1, generator=g)
            rows.append(row[..., order] if row.dim() else row)
        out.append(torch.stack(rows))
    return out


def make(torch, zoo, name, folder):
    """Writes the archive and the cases of one model; gives why it cannot, if it cannot."""
    import torch.utils._pytree as pytree
    from safetensors.torch import save_file

    model, args, kwargs = zoo.build(name)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    if not all(t.dim() > 0 for t in leaves if isinstance(t, torch.Tensor)):
        return "an input has no batch"
    two = pytree.tree_unflatten(at_batch(torch, leaves, 2, 0), spec)
    shapes = pytree.tree_map(lambda t: {0: torch.export.Dim.AUTO} if isinstance(t, torch.Tensor) else None, two)
    names = None
    with torch.no_grad():
        try:
            one = pytree.tree_unflatten(at_batch(torch, leaves, 1, 0), spec)
            model(*one[0], **one[1])
        except (IndexError, RuntimeError) as e:
            return f"its first dimension is not a batch: {str(e).strip().splitlines()[0][:90]}"
        dynamic = (shapes[0], shapes[1])
        # Positional and keyword inputs are given by their names to `dynamic_shapes`.
        import inspect
        params = list(inspect.signature(model.forward).parameters.values())
        given = {}
        rest = list(dynamic[0])
        for p in params:
            if not rest:
                break
            if p.kind == p.VAR_POSITIONAL:
                given[p.name], rest = tuple(rest), []
            else:
                given[p.name] = rest.pop(0)
        given.update(dynamic[1])
        try:
            ep = torch.export.export(model, two[0], two[1], dynamic_shapes=given, strict=False)
        except Exception as e:
            return "torch.export: " + str(e).strip().splitlines()[0][:90]
        names = list(ep.graph_signature.user_inputs)
        if not ep.range_constraints:
            return "torch specialises the batch"
        os.makedirs(folder, exist_ok=True)
        torch.export.save(ep, f"{folder}/batch.pt2")
        try:
            torch.export.save(ep.run_decompositions(), f"{folder}/batch_core.pt2")
        except Exception as e:
            print(f"{name:32} torch: run_decompositions: {str(e).strip().splitlines()[0][:70]}", flush=True)
        for n in BATCHES:
            inputs = at_batch(torch, leaves, n, n)
            args, kwargs = pytree.tree_unflatten(inputs, spec)
            want = [v for v in pytree.tree_leaves(model(*args, **kwargs)) if isinstance(v, torch.Tensor)]
            def plain(d):
                return {k: v.detach().clone().contiguous() for k, v in d.items() if isinstance(v, torch.Tensor)}
            at = f"{folder}/at_{n}"
            os.makedirs(at, exist_ok=True)
            save_file(plain(dict(zip(names, inputs))), f"{at}/inputs.safetensors")
            save_file(plain({f"output.{i}": v for i, v in enumerate(want)}), f"{at}/expected.safetensors")
    return None


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("zoo")
    ap.add_argument("out")
    ap.add_argument("names", nargs="*")
    ap.add_argument("--fxc", default="target/release/fxc")
    ap.add_argument("--limit", type=float, default=1e-4)
    ap.add_argument("--make", action="store_true")
    ap.add_argument("--keep", action="store_true")
    a = ap.parse_intermixed_args()
    failed = passed = 0
    zoo = None
    if not a.keep:
        import torch
        zoo = load_zoo(a.zoo)
    names = a.names or (sorted(os.listdir(a.out)) if a.keep else zoo.ORDER)
    for name in names:
        folder = os.path.join(a.out, name)
        if not a.keep:
            why = make(torch, zoo, name, folder)
            print(f"{name:32} {'not counted: ' + why if why else 'made'}", flush=True)
            if why or a.make:
                continue
        if not os.path.exists(f"{folder}/batch.pt2"):
            continue
        for archive in ["batch.pt2", "batch_core.pt2"]:
            if not os.path.exists(f"{folder}/{archive}"):
                continue
            cells, errors = [], []
            for n in BATCHES:
                diff, error = run(a.fxc, f"{folder}/at_{n}", f"../{archive}", [])
                cells.append("-" if diff is None else f"{diff:.1e}")
                errors += [f"batch {n}: {error}"] if error else []
                ok = diff is not None and diff <= a.limit
                passed, failed = passed + ok, failed + (not ok)
            print(f"{name:32} {archive[:-4]:11}", *[f"{c:>9}" for c in cells], "", "; ".join(errors), flush=True)
    if not a.make:
        print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
