"""Both levels of exported models beside each other: python benches/levels.py DIR [names] [--fxc target/release/fxc]

DIR holds one folder a model with export.pt2 and core.pt2 (torch.export.save before and after run_decompositions()) and
inputs.safetensors, as tests/torch/models.py reads them. For each model `fxc bench core.pt2 --against export.pt2` calls both in turn;
printed are the shortest times in ms and how many times as long the core level takes. What core ATen takes apart fxc puts together
again: a ratio above --limit is a form that it does not recognise. Exits with 1 if there is one.

Needs nothing but Python.
"""
import argparse
import json
import os
import subprocess
import sys

# What is in the user's cache was not compiled now.
os.environ['FXC_CACHE'] = 'off'


def measure(fxc, folder, seconds):
    """The shortest times of export.pt2 and core.pt2 in ms, or what went wrong."""
    cmd = [fxc, "bench", f"{folder}/core.pt2", "--against", f"{folder}/export.pt2", "--inputs", f"{folder}/inputs.safetensors"]
    p = subprocess.run([*cmd, "--seconds", str(seconds), "--json"], capture_output=True, text=True)
    if p.returncode:
        return None, (p.stderr.strip().splitlines() or ["no message"])[0]
    core, export = json.loads(p.stdout)["models"]
    return (export["min_ms"], core["min_ms"]), None


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("dir")
    ap.add_argument("names", nargs="*")
    ap.add_argument("--fxc", default="target/release/fxc")
    ap.add_argument("--seconds", type=float, default=1.5)
    ap.add_argument("--limit", type=float, default=1.2)
    a = ap.parse_args()
    above = []
    print(f'{"model":34} {"export ms":>10} {"core ms":>10} {"ratio":>6}')
    for name in a.names or sorted(os.listdir(a.dir)):
        folder = os.path.join(a.dir, name)
        if not all(os.path.exists(f"{folder}/{f}.pt2") for f in ("core", "export")):
            continue
        times, error = measure(a.fxc, folder, a.seconds)
        ratio = times[1] / times[0] if times else float("inf")
        above += [name] if ratio > a.limit else []
        print(f"{name:34} {times[0]:10.4f} {times[1]:10.4f} {ratio:6.2f}" if times else f"{name:34} {error}", flush=True)
    print(f"above {a.limit}: {', '.join(above) or 'none'}")
    sys.exit(1 if above else 0)


if __name__ == "__main__":
    main()
