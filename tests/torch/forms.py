"""Checks the forms of whole models: python tests/torch/forms.py DIR [NAME …] [--fxc target/release/fxc]

DIR holds one folder a model (see models.py) with the texts that torch printed: graph.txt and code.py (print(graph) and gm.code
of torch.fx.symbolic_trace), export.txt and core.txt (print(graph) of both archives), export_readable.txt (print of the
exported program). These must come back byte for byte:
  from text     each text as itself; code from graph and graph from code; print(graph) and gm.code from the exported program
                (without its archive, by way of its text);
  from archive  print(graph) and print(exported_program) of export.pt2, print(graph) of core.pt2; with --code, which needs
                torch, also gm.code and print_readable() of the export.pt2 that torch loads;
  by FXIR       the same from `fxc print ARCHIVE -o model.fxir`, and print_readable() as of the archive; so of the exported
                program's text;
and an archive written by `fxc print ARCHIVE -o model.fxir --weights model.safetensors` gives the results of the archive, bit for
bit.

Needs: pip install numpy safetensors. Without them it says so and checks nothing.
"""
import argparse
import contextlib
import importlib
import os
import re
import subprocess
import sys
import tempfile
import warnings

from tally import Tally

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

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
    if text.endswith("graph.txt") and wanted.endswith("code.py"):
        # print(graph) does not show the annotation of the result.
        want = re.sub(r"^(def forward\(.*\)) -> .*:$", r"\1:", want, flags=re.MULTILINE)
        got = re.sub(r"^(def forward\(.*\)) -> .*:$", r"\1:", got, flags=re.MULTILINE)
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


# The forms of `fxc print` that must come from a file, and the file with torch's own text.
FORMS = [
    ("graph.txt", "torch", "graph.txt"),
    ("export.txt", "torch", "export.txt"),
    ("core.txt", "torch", "core.txt"),
    ("graph.txt", "code", "code.py"),
    ("code.py", "code", "code.py"),
    ("code.py", "torch", "graph.txt"),
    ("export_readable.txt", "program", "export_readable.txt"),
    ("export_readable.txt", "torch", "export.txt"),
    ("export.pt2", "torch", "export.txt"),
    ("core.pt2", "torch", "core.txt"),
    ("export.pt2", "program", "export_readable.txt"),
]


# The forms that must come from FXIR, what that was made of, and the file with torch's own text; of print_readable() none is
# there, but what comes of the archive.
BY_FXIR = [
    ("export.pt2", "torch", "export.txt"),
    ("export.pt2", "program", "export_readable.txt"),
    ("export.pt2", "readable", None),
    ("core.pt2", "torch", "core.txt"),
    ("core.pt2", "readable", None),
    ("export_readable.txt", "program", "export_readable.txt"),
]


def by_fxir(fxc, folder):
    """Each form of BY_FXIR, with what is wrong with it."""
    with tempfile.TemporaryDirectory() as tmp:
        made = {}
        for source, form, wanted in BY_FXIR:
            if not os.path.exists(f"{folder}/{source}") or wanted and not os.path.exists(f"{folder}/{wanted}"):
                continue
            if source not in made:
                made[source] = call(fxc, "print", f"{folder}/{source}", "-o", f"{tmp}/{source}.fxir")[1]
            error = made[source]
            if not error and wanted:
                error = printed(fxc, f"{tmp}/{source}.fxir", f"{folder}/{wanted}", "print", "--format", form)
            elif not error:
                want, error = call(fxc, "print", "--format", form, f"{folder}/{source}")
                with open(f"{tmp}/want", "w") as f:
                    f.write(want)
                error = error or printed(fxc, f"{tmp}/{source}.fxir", f"{tmp}/want", "print", "--format", form)
            yield f"{form} from {source} by FXIR", error


def torchs_code(fxc, folder, archive):
    """gm.code and print_readable() of the graph module that torch loads from the archive."""
    import torch

    for package in ["torchvision", "transformers.modeling_outputs", "transformers.cache_utils", "transformers.models.mamba.modeling_mamba"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(package)  # the types of results register themselves
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = torch.export.load(f"{folder}/{archive}").graph_module
        except RuntimeError as e:
            return f"torch cannot load it: {e}"[:100]
    for form, want in [("code", module.code), ("readable", module.print_readable(print_output=False))]:
        got, error = call(fxc, "print", "--format", form, f"{folder}/{archive}")
        if error or got.strip("\n") != want.strip("\n"):
            return error or f"{form}: {first_difference(got.strip(chr(10)), want.strip(chr(10)))}"
    return None


def checks(fxc, folder, code, run):
    """Pairs of what is checked and what is wrong with it."""
    for source, form, wanted in FORMS:
        if os.path.exists(f"{folder}/{source}") and os.path.exists(f"{folder}/{wanted}"):
            error = printed(fxc, f"{folder}/{source}", f"{folder}/{wanted}", "print", "--format", form)
            yield f"{form} from {source}", error
    yield from by_fxir(fxc, folder)
    # Of a core program torch names results that nothing uses when it loads it; the program that was written has none.
    if code:
        yield "code and readable of export.pt2", torchs_code(fxc, folder, "export.pt2")
    for archive in ["export.pt2", "core.pt2"]:
        if run and os.path.exists(f"{folder}/{archive}"):
            yield f"convert {archive}", converted(fxc, folder, archive)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("dir")
    ap.add_argument("names", nargs="*")
    ap.add_argument("--fxc", default="target/release/fxc")
    ap.add_argument("--code", action="store_true", help="also compare with what torch writes of the archives")
    ap.add_argument("--texts", action="store_true", help="texts only: run nothing")
    a = ap.parse_args()
    tally = Tally()
    for name in sorted(a.names or os.listdir(a.dir)):
        for what, error in checks(a.fxc, os.path.join(a.dir, name), a.code, not a.texts):
            tally.add(what, error)
            if error:
                print(f"{name:32} {what:32} {error}", flush=True)
    tally.finish()


if __name__ == "__main__":
    main()
