#!/usr/bin/env python3
"""Chooses an example of each op from the recorded cases: python tests/data/make_examples.py --fxc target/debug/fxc

Writes `src/op/examples.txt`, which docs/ops.md and `fxc ops NAME` show: for each op the shortest recorded call, by a function of
torch if one is recorded, else by a method, an overload, a module. `tests/ops/examples.rs` checks and runs every one. Needs no torch.
"""
import argparse
import collections
import json
import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ORDER = ("torch.nn.functional.", "torch.", "operator.", "Tensor.", "aten.", "")


def call_target(line):
    """The spelling that a line of a graph calls."""
    m = re.match(r"\s*%\w+ (?::.*)?= call_(function|method|module) ([\w.]+)\(", line)
    if not m:
        return None
    return ("Tensor." if m[1] == "method" else "") + m[2].removeprefix("torch.ops.")


def graphs():
    """The graphs of one call: its target, and the lines."""
    for name in ("opinfo", "more"):
        for case in json.load(open(os.path.join(HERE, f"{name}.json")))["cases"]:
            lines = [line.strip() for line in case["text"].splitlines()]
            calls = [line for line in lines if "= call_" in line]
            targets = [call_target(line) for line in calls if "operator.getitem" not in line]
            if len(targets) == 1 and targets[0] and lines[0] == "graph main {" and " module " not in case["text"]:
                yield targets[0], lines[1:-1]


class Unwritten(Exception):
    """An argument that the recorded calls have and no short graph does."""


def literal(v, inputs, shared):
    if isinstance(v, dict):
        t = shared[v["in"]] if "in" in v else v
        if "t" not in t:
            raise Unwritten
        inputs.append(f"{t['t']}{list(t['s'])}")
        return f"%x{len(inputs)}"
    if isinstance(v, list):
        return f"[{', '.join(literal(x, inputs, shared) for x in v)}]"
    return json.dumps(v) if isinstance(v, str) else repr(v)


def calls():
    """The recorded single calls as graphs."""
    for name in ("pointwise", "reductions", "views", "index", "nn"):
        data = json.load(open(os.path.join(HERE, f"{name}.json")))
        for case in data["cases"]:
            inputs = []
            if not case.get("out"):
                continue
            try:
                given = [literal(v, inputs, data["inputs"]) for v in case["args"]]
                given += [f"{k}={literal(v, inputs, data['inputs'])}" for k, v in case.get("kwargs", {}).items()]
            except (Unwritten, KeyError):
                continue
            path = case["path"]
            target = f"call_method {path[7:]}" if path.startswith("Tensor.") else f"call_function {path}"
            lines = [f"%x{i} : {t} = placeholder x{i}" for i, t in enumerate(inputs, 1)]
            yield path, [*lines, f"%y = {target}({', '.join(given)})", "output %y"]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--fxc", default="target/debug/fxc")
    a = ap.parse_args()
    table = json.loads(subprocess.run([a.fxc, "ops", "--format", "json"], capture_output=True, check=True).stdout)
    rows = collections.defaultdict(set)
    for row in table:
        rows[row["name"]].add(row["name"])
        for form in row["spellings"]:
            for path in form["paths"]:
                rows[path].add(row["name"])
    best = {}
    for path, lines in [*graphs(), *calls()]:
        if len(rows[path]) != 1:
            continue
        (name,) = rows[path]
        rank = next(i for i, head in enumerate(ORDER) if path.startswith(head))
        others = sum(" : " in line and " : f32" not in line for line in lines if "placeholder" in line)
        key = (rank, others, len("".join(lines)), lines)
        best[name] = min(best.get(name, key), key)
    with open(os.path.join(HERE, "..", "..", "src", "op", "examples.txt"), "w") as f:
        for row in table:
            if row["name"] in best:
                f.write(f"# {row['name']}\n" + "".join(f"{line}\n" for line in best[row["name"]][3]))
    lacking = [row["name"] for row in table if row["name"] not in best]
    print(f"{len(best)} examples; none of {len(lacking)}: {' '.join(lacking)}")


if __name__ == "__main__":
    main()
