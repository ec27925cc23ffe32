"""Archives under names of every length, and files of other formats: python tests/torch/archives.py [--fxc BIN]

`torch.export.save` writes a model under stems of 1 to 120 characters, with 1 to 300 weights, to a path and through a BytesIO; `fxc
check` must read each. Then torch and other libraries write files that are not models, and fxc must say so in one message, within
the time and the memory that the table shows.

Needs: torch, numpy, safetensors; onnx, h5py and Pillow where they are installed. Without torch it says so and checks nothing.
"""
import argparse
import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import warnings

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

try:
    import numpy
    import torch
    from safetensors.torch import save_file
    from torch import nn
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was checked")
    sys.exit(0)

warnings.filterwarnings("ignore")


class Weights(nn.Module):
    """A model of so many weights."""

    def __init__(self, count):
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.full((3,), float(i))) for i in range(count)])

    def forward(self, x):
        for p in self.parts:
            x = x + p
        return x


# A process's most memory counts from its parent on, so that the parent has to be a small one.
MEASURE = """
import os, subprocess, sys, time
start = time.perf_counter()
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(os.waitstatus_to_exitcode(status), time.perf_counter() - start, usage.ru_maxrss / 1024)
"""


def run(fxc, *args):
    """The exit code, the findings, seconds and the most memory in MB."""
    command = [sys.executable, "-S", "-c", MEASURE, fxc, *args, "--message-format", "json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    code, seconds, memory = ran.stdout.split()
    return int(code), [json.loads(line) for line in ran.stderr.splitlines()], float(seconds), float(memory)


def stems(fxc, folder):
    """Saves under many names; how many were tried, and those that fail."""
    tried, failed = 0, []
    names = ["n" * n for n in range(1, 121)]
    names += ["resnet18", "a.b.c", "with space", "modell-größe", "模型", "x.pt2.old"]
    plan = [(1, names, "both"), (7, names, "path"), (62, names[:40], "path"), (300, ["resnet18", "n", "n" * 120], "both")]
    for count, stems, how in plan:
        program = torch.export.export(Weights(count), (torch.ones(3),))
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        for stem in stems:
            for way in ["path", "BytesIO"] if how == "both" else [how]:
                path = os.path.join(folder, f"{stem}.pt2")
                if way == "path":
                    torch.export.save(program, path)
                else:
                    with open(path, "wb") as f:
                        f.write(buffer.getvalue())
                code, found, _, _ = run(fxc, "check", path)
                tried += 1
                if code != 0:
                    failed.append((stem, count, way, found))
                os.remove(path)
    return tried, failed


def foreign(folder):
    """Files of other formats, by name."""
    model = nn.Sequential(nn.Linear(1000, 3000), nn.ReLU(), nn.Linear(3000, 3000)).eval()
    x = torch.randn(1, 1000)
    made = {}

    def path(name):
        made[name] = os.path.join(folder, name)
        return made[name]

    torch.save(model.state_dict(), path("state.pth"))
    torch.save({"epoch": 3, "model": model.state_dict()}, path("checkpoint.ckpt"))
    torch.save(model, path("whole.pt"))
    torch.save(model.state_dict(), path("legacy.pth"), _use_new_zipfile_serialization=False)
    torch.save(x, path("tensor.pt"))
    torch.jit.trace(model, x).save(path("traced.pt"))
    save_file(model.state_dict(), path("model.safetensors"))
    numpy.save(path("x.npy"), x.numpy())
    numpy.savez(path("x.npz"), x=x.numpy())
    with open(path("plain.pkl"), "wb") as f:
        pickle.dump({"a": [1, 2]}, f)
    with open(path("model.pt2.gz"), "wb") as f:
        f.write(gzip.compress(b"x" * 1000))
    with open(path("graph.txt"), "w", encoding="utf-16") as f:
        f.write(str(torch.fx.symbolic_trace(model).graph))
    open(path("empty.pt2"), "w").close()
    with open(path("noise.bin"), "wb") as f:
        f.write(os.urandom(50 << 20))
    with open(path("zeros.bin"), "wb") as f:
        f.truncate(50 << 20)
    with open(path("model.gguf"), "wb") as f:
        f.write(b"GGUF\x03\0\0\0" + bytes(50 << 20))
    optional(path, model, x)
    return made


def optional(path, model, x):
    """Files of libraries that may not be installed."""
    try:
        torch.onnx.export(model, (x,), path("model.onnx"), dynamo=False)
    except Exception as e:  # whatever it lacks
        print(f"  no ONNX file: {type(e).__name__}")
    try:
        import h5py

        with h5py.File(path("weights.h5"), "w") as f:
            f["x"] = x.numpy()
    except ImportError as e:
        print(f"  no HDF5 file: {e}")
    try:
        from PIL import Image

        image = Image.fromarray(numpy.zeros((64, 64, 3), numpy.uint8))
        for kind in ["png", "jpg", "bmp", "gif", "webp", "tiff"]:
            image.save(path(f"image.{kind}"))
    except ImportError as e:
        print(f"  no images: {e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fxc", default="target/release/fxc")
    args = parser.parse_args()
    bad = kinds = 0
    with tempfile.TemporaryDirectory() as folder:
        tried, failed = stems(args.fxc, folder)
        print(f"archives: {tried - len(failed)} of {tried} are read")
        for f in failed:
            print("  ", *f)
        bad += len(failed)
        print(f"{'file':16} {'code':6} {'ms':>6} {'MB':>6}  message")
        for name, path in foreign(folder).items():
            if not os.path.exists(path):
                continue
            code, found, seconds, memory = run(args.fxc, "check", path)
            ok = code != 0 and len(found) == 1 and found[0]["code"] in ("E0703", "E0113")
            bad += not ok
            said = found[0]["message"].replace(path, name) if found else "no message"
            codes = ",".join(sorted({f["code"] for f in found})) or "-"
            kinds += 1
            print(f"{name:16} {codes:6} {seconds * 1e3:6.1f} {memory:6.1f}  {'' if ok else 'WRONG: '}{said}")
        print(f"{tried - len(failed)} of {tried} archives are read; of {tried + kinds} files {bad} are not told as they should be")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
