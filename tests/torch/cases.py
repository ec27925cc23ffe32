"""Cases of whole models: a folder with the archives of both levels, inputs and PyTorch's results, as models.py reads them."""
import os
import warnings

warnings.filterwarnings("ignore")


def tensors(torch, named):
    return {k: v.detach().clone().contiguous() for k, v in named.items() if isinstance(v, torch.Tensor)}


def write(model, args, kwargs, folder, core=True, dynamic_shapes=None):
    """Writes export.pt2, core.pt2, inputs.safetensors and expected.safetensors of a module. Errors are torch's."""
    import torch
    import torch.utils._pytree as pytree
    from safetensors.torch import save_file

    os.makedirs(folder, exist_ok=True)
    with torch.no_grad():
        torch.manual_seed(0)
        want = [v for v in pytree.tree_leaves(model(*args, **kwargs)) if isinstance(v, torch.Tensor)]
        ep = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
        names, leaves = list(ep.graph_signature.user_inputs), pytree.tree_leaves((args, kwargs))
        save_file(tensors(torch, dict(zip(names, leaves))), f"{folder}/inputs.safetensors")
        save_file(tensors(torch, {f"output.{i}": v for i, v in enumerate(want)}), f"{folder}/expected.safetensors")
        torch.export.save(ep, f"{folder}/export.pt2")
        if core:
            torch.export.save(ep.run_decompositions(), f"{folder}/core.pt2")


def compare(fxc, folder, modes=((), ("--interpret",)), archives=("export", "core")):
    """The greatest relative difference of each archive in each mode, and what went wrong."""
    from models import run

    cells, errors = [], []
    for archive in archives:
        if not os.path.exists(f"{folder}/{archive}.pt2"):
            cells += [None] * len(modes)
            continue
        for extra in modes:
            diff, error = run(fxc, folder, f"{archive}.pt2", list(extra))
            cells.append(diff)
            errors += [f"{archive}: {error}"] if error else []
    return cells, errors


def table(cases, argv=None, doc=""):
    """Runs cases, pairs of a name and what gives (model, args, kwargs); prints a line each and gives how many failed."""
    import argparse
    import tempfile

    ap = argparse.ArgumentParser(description=doc)
    ap.add_argument("names", nargs="*", help="run only these")
    ap.add_argument("--fxc", default="target/release/fxc")
    ap.add_argument("--limit", type=float, default=1e-4)
    ap.add_argument("--keep", help="write the cases to this folder, and use those that are there")
    ap.add_argument("--compiled-only", action="store_true")
    a = ap.parse_intermixed_args(argv)
    import torch

    modes = ((),) if a.compiled_only else ((), ("--interpret",))
    print(f'{"case":40} {"export":>9} {"interpr.":>9} {"core":>9} {"interpr.":>9}')
    passed = failed = without = 0
    for name, build in cases:
        if a.names and name not in a.names:
            continue
        with tempfile.TemporaryDirectory() as tmp:
            folder = os.path.join(a.keep, name) if a.keep else tmp
            if not os.path.exists(f"{folder}/core.pt2"):
                try:
                    torch.manual_seed(0)
                    model, args, kwargs = build()
                    write(model.eval(), args, kwargs, folder, core=getattr(build, "core", True))
                except Exception as e:
                    # Without an archive there is nothing to run; an archive without a core level is compared as far as it goes.
                    lines = str(e).strip().splitlines() or [""]
                    print(f"{name:40} torch: {type(e).__name__}: {lines[0][:110]}", flush=True)
                    without += 1
                    if not os.path.exists(f"{folder}/export.pt2"):
                        continue
            cells, errors = compare(a.fxc, folder, modes)
            limit = getattr(build, "limit", a.limit)
            good = [c is not None and c <= limit for c in cells]
            passed, failed = passed + sum(good), failed + len(errors) + sum(c is not None and c > limit for c in cells)
            shown = [f"{'-' if c is None else f'{c:.1e}':>9}" for c in cells]
            if a.compiled_only:
                shown = [shown[0], " " * 9, shown[1], " " * 9]
            print(f"{name:40}", *shown, "", "; ".join(errors), flush=True)
    print(f"{passed} passed, {failed} failed, {without} that torch does not export")
    return failed


def table_of_archives(columns, run, names=None):
    """A script's whole work: every archive of every model of a folder through `run(fxc, folder, archive, column)` for each
    column, which gives a difference or None, and what went wrong. Exits with 1 if any is missing or above --limit."""
    import argparse
    import sys

    ap = argparse.ArgumentParser()
    ap.add_argument("dir")
    ap.add_argument("names", nargs="*")
    ap.add_argument("--fxc", default="target/release/fxc")
    ap.add_argument("--limit", type=float, default=1e-5)
    a = ap.parse_args()
    failed = passed = 0
    print(f'{"model":32} {"archive":10} ' + " ".join(f"{c:>12}" for c in columns))
    for name in a.names or names or sorted(os.listdir(a.dir)):
        folder = os.path.join(a.dir, name)
        for archive in ["export.pt2", "core.pt2"]:
            if not os.path.exists(f"{folder}/{archive}"):
                continue
            cells, errors = [], []
            for column in columns:
                diff, error = run(a.fxc, folder, archive, column)
                cells.append("-" if diff is None else f"{diff:.1e}")
                errors += [f"{column}: {error}"] if error else []
                ok = diff is not None and diff <= a.limit
                passed, failed = passed + ok, failed + (not ok)
            print(f"{name:32} {archive[:-4]:10} " + " ".join(f"{c:>12}" for c in cells) + f"  {'; '.join(errors)}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
