"""Runs the scripts of this folder and prints a table: python tests/torch/all.py [NAME …] [--fxc target/release/fxc] [--zoo DIR] [--models FILE]

A script's row has its verdict, its time and the last line that it printed. Without names it runs all but those that take more than
a few minutes or files from elsewhere; with `--zoo DIR`, a folder of cases as models.py reads them, also those that compare whole
models, and with `--models FILE`, a `zoo.py` that builds models (see dynamic.py), those that export or trace them. `--log DIR` keeps what each printed. Without torch it says so and checks nothing. Exit code 1 if a script failed.
"""
import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# Script and its arguments, in order; ZOO stands for the folder of cases, MODELS for the file that builds models, MODELS_DIR for its
# folder, TMP for a folder of its own.
SCRIPTS = [
    ("archives.py",),
    ("check_ops.py",),
    ("control_flow.py",),
    ("core_forms.py",),
    ("departures.py",),
    ("generation.py",),
    ("half_precision.py",),
    ("modules.py",),
    ("opinfo.py", "--errors", "--dtypes", "f32"),
    ("random_ops.py",),
    ("random_programs.py", "--count", "200"),
    ("readme.py",),
    ("scalars.py",),
    ("schemas.py",),
    ("torchscript.py",),
    ("writes.py",),
    ("models.py", "ZOO"),
    ("forms.py", "ZOO"),
    ("emit_code.py", "ZOO"),
    ("numpy_code.py", "ZOO"),
    ("dynamic.py", "MODELS", "TMP"),
    ("traced.py", "MODELS_DIR"),
    ("training.py",),
    ("backend_ops.py",),
    ("backend_ops.py", "--grad"),
    ("backend.py", "--models", "MODELS"),
    ("viewers.py", "ZOO"),
]
# What takes an hour, or a file of PyTorch's repository: run by name alone.
LONG = [("accuracy.py",), ("opinfo.py", "--dtypes", "f32"), ("strictness.py",), ("more_models.py",)]


def missing_folder(row, folders):
    """The option that a script needs and that is not given, if there is one."""
    needed = {"ZOO": "--zoo", "MODELS": "--models", "MODELS_DIR": "--models"}
    return next((needed[w] for w in row if w in needed and not folders[w]), None)


def chosen(names, folders):
    """The rows to run."""
    if names:
        wanted = {n.removesuffix(".py") + ".py" for n in names}
        rows = [r for r in SCRIPTS + LONG if r[0] in wanted]
        missing = wanted - {r[0] for r in rows}
        if missing:
            raise SystemExit(f"no such script: {', '.join(sorted(missing))}")
        return rows
    return [r for r in SCRIPTS if not missing_folder(r, folders)]


def run(row, fxc, folders, log):
    """Runs a script and gives its verdict, its seconds and the last line that it printed."""
    with tempfile.TemporaryDirectory() as folder:
        words = [{**folders, "TMP": folder}.get(w, w) for w in row[1:]]
        start = time.monotonic()
        with open(os.path.join(log, row[0].replace(".py", ".log")), "w+", encoding="utf-8") as out:
            done = subprocess.run([sys.executable, os.path.join(HERE, row[0]), *words, "--fxc", fxc], stdout=out, stderr=subprocess.STDOUT, check=False)
            out.seek(0)
            lines = [line.strip() for line in out if line.strip()]
    last = lines[-1] if lines else ""
    skipped = any(line.startswith("SKIPPED") for line in lines)
    verdict = "skipped" if skipped else "passed" if done.returncode == 0 else "FAILED"
    return verdict, time.monotonic() - start, last


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("names", nargs="*", help="scripts to run")
    p.add_argument("--fxc", default=os.path.join(ROOT, "target", "release", "fxc"))
    p.add_argument("--zoo", help="a folder of whole models' cases")
    p.add_argument("--models", help="a Python file that builds models")
    p.add_argument("--log", help="a folder for what the scripts print")
    a = p.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("SKIPPED: torch is not installed; nothing was compared")
        return 0
    models = a.models and os.path.abspath(a.models)
    folders = {"ZOO": a.zoo and os.path.abspath(a.zoo), "MODELS": models, "MODELS_DIR": models and os.path.dirname(models)}
    rows = chosen(a.names, folders)
    for row in rows:
        option = missing_folder(row, folders)
        if option:
            raise SystemExit(f"{row[0]} compares whole models: {option} names where they are")
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        log = os.path.abspath(a.log) if a.log else scratch
        os.makedirs(log, exist_ok=True)
        print(f"{'script':20} {'verdict':8} {'seconds':>7}  last line", flush=True)
        for row in rows:
            verdict, seconds, last = run(row, os.path.abspath(a.fxc), folders, log)
            failed += verdict == "FAILED"
            print(f"{row[0]:20} {verdict:8} {seconds:7.1f}  {last[:150]}", flush=True)
    print(f"{len(rows) - failed} of {len(rows)} scripts did not fail")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
