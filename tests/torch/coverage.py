#!/usr/bin/env python3
"""Lists the calls of tests/data/used_ops.txt that do not resolve in fxc's op table: python tests/torch/coverage.py

The file names, one a line under a heading, what real models call: ATen overloads, torch functions, `method f`, `module C`.
With --torch also the overloads of torch's schema that the table lacks for the ATen ops it has, and the modules of
torch.nn; losses, sparse, quantised, complex and backward forms are left out. Exit code 1 if a call of the file is missing.
"""
import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Not calls of ops: the graph's own.
OPCODES = {"get_attr", "placeholder", "output"}
# Overloads that no graph of tensors holds: lists of names, Python-only dispatch, storage in another layout.
OTHER_FORMS = ("out", "dimname", "Dimname", "names", "Tensor_int", "_str", "t_int", "generator", "padded")


def table(fxc):
    rows = json.loads(subprocess.run([fxc, "ops", "--format", "json"], capture_output=True, check=True).stdout)
    paths = {r["name"] for r in rows} | {p for r in rows for s in r["spellings"] for p in s["paths"]}
    modules = {m.split("(")[0].split(" ")[0] for r in rows for m in r.get("modules", [])}
    return paths, modules


def resolves(name, paths, modules):
    kind, _, rest = name.partition(" ")
    if kind == "module":
        return rest in modules
    if kind == "method":
        return f"Tensor.{rest}" in paths
    return name in OPCODES or name in paths


def used():
    heading, out = "", {}
    for line in open(os.path.join(HERE, "..", "data", "used_ops.txt")):
        line = line.strip()
        if line.startswith("["):
            heading = line[1:-1]
        elif line and not line.startswith("#"):
            out.setdefault(heading, []).append(line)
    return out


def overloads(paths):
    """Overloads of the table's ATen ops that torch has and the table lacks."""
    import torch

    missing = []
    for packet in sorted({p.split(".")[1] for p in paths if p.startswith("aten.")}):
        for o in getattr(torch.ops.aten, packet).overloads() if hasattr(torch.ops.aten, packet) else ():
            schema = str(getattr(getattr(torch.ops.aten, packet), o)._schema)
            inner = schema[schema.index("("):schema.index(" -> ")]
            if f"aten.{packet}.{o}" not in paths and "Tensor" in inner and not any(w in o for w in OTHER_FORMS):
                missing.append(f"aten.{packet}.{o}{inner}")
    return missing


def nn_modules(modules):
    import torch

    out = []
    for name in sorted(dir(torch.nn)):
        cls = getattr(torch.nn, name)
        if isinstance(cls, type) and issubclass(cls, torch.nn.Module) and "Loss" not in name and "Lazy" not in name:
            if name not in modules:
                out.append(name)
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--fxc", default="target/debug/fxc")
    ap.add_argument("--torch", action="store_true")
    a = ap.parse_args()
    paths, modules = table(a.fxc)
    lacking = 0
    for heading, names in used().items():
        missing = [n for n in names if not resolves(n, paths, modules)]
        lacking += len(missing)
        print(f"{heading}: {len(names) - len(missing)} of {len(names)}" + "".join(f"\n    {n}" for n in missing))
    if a.torch:
        print("overloads: " + "".join(f"\n    {m}" for m in overloads(paths)))
        print("modules of torch.nn: " + " ".join(nn_modules(modules)))
    sys.exit(1 if lacking else 0)


if __name__ == "__main__":
    main()
