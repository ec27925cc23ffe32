"""Checks the forms of whole models: python tests/torch/forms.py DIR [NAME …] [--fxc target/release/fxc]

DIR holds one folder a model (see models.py). Three things must hold:
  text     print(graph) of torch (graph.txt, export.txt, core.txt) comes back byte for byte from `fxc print --format torch`;
  code     gm.code of torch (code.py) comes from graph.txt by `fxc emit-code --stage graph`, byte for byte;
  convert  an archive written by `fxc print ARCHIVE -o model.fxir --weights model.safetensors` gives the results of the
           archive, bit for bit.

Needs: pip install numpy safetensors. Without them it says so and checks nothing.
"""
import argparse
import os
import subprocess
import sys
import tempfile

try:
    from safetensors.numpy import load_file
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)


def call(*cmd):
    p = subprocess.run(cmd, capture_output=True, text=True)
    lines = p.stderr.strip().splitlines()
    error = next((l for l in lines if l.startswith("error")), (lines or ["no message"])[0])
    return p.stdout, error[:150] if p.returncode else None


def first_difference(got, want):
    for i, (a, b) in enumerate(zip(got.splitlines(), want.splitlines()), 1):
        if a != b:
            return f"line {i}: {a[:100]!r} instead of {b[:100]!r}"
    return f"{len(got.splitlines())} lines instead of {len(want.splitlines())}"


def printed(fxc, text, wanted, *cmd):
    """What `fxc` makes of the file `text` must be the file `wanted`."""
    got, error = call(fxc, *cmd, text)
    with open(wanted) as f:
        want = f.read()
    if error or got.strip("\n") == want.strip("\n"):
        return error
    return first_difference(got.strip("\n"), want.strip("\n"))


def results(fxc, model, inputs, out):
    error = call(fxc, "run", model, "--inputs", inputs, "--outputs", out)[1]
    return (None, error) if error else ({k: (str(v.dtype), v.shape, v.tobytes()) for k, v in load_file(out).items()}, None)


def converted(fxc, folder, archive):
    with tempfile.TemporaryDirectory() as tmp:
        model = f"{tmp}/model.fxir"
        error = call(fxc, "print", f"{folder}/{archive}", "-o", model, "--weights", f"{tmp}/model.safetensors")[1]
        if error:
            return error
        want, error = results(fxc, f"{folder}/{archive}", f"{folder}/inputs.safetensors", f"{tmp}/want.safetensors")
        if error:
            return f"the archive itself: {error}"
        got, error = results(fxc, model, f"{folder}/inputs.safetensors", f"{tmp}/got.safetensors")
        return error or (None if got == want else "other results")


def checks(fxc, folder):
    """Pairs of what is checked and what is wrong with it."""
    for text in ["graph.txt", "export.txt", "core.txt"]:
        path = f"{folder}/{text}"
        if os.path.exists(path):
            yield f"text {text}", printed(fxc, path, path, "print", "--format", "torch")
    if os.path.exists(f"{folder}/code.py"):
        yield "code", printed(fxc, f"{folder}/graph.txt", f"{folder}/code.py", "emit-code", "--stage", "graph")
    for archive in ["export.pt2", "core.pt2"]:
        if os.path.exists(f"{folder}/{archive}"):
            yield f"convert {archive}", converted(fxc, folder, archive)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("dir")
    ap.add_argument("names", nargs="*")
    ap.add_argument("--fxc", default="target/release/fxc")
    a = ap.parse_args()
    passed = failed = 0
    for name in sorted(a.names or os.listdir(a.dir)):
        for what, error in checks(a.fxc, os.path.join(a.dir, name)):
            passed, failed = passed + (not error), failed + bool(error)
            print(f"{name:32} {what:20} {error or 'ok'}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
