"""`torch.compile` by fxc beside Inductor, each in a process of its own: python benches/backend.py [NAME …] [--threads N] [--against inductor]

Printed are, for each model: the seconds of the first call with a compiler that returns at once, which Dynamo and AOTAutograd take for
themselves (floor), the seconds of the first call, the same beyond the floor, the best milliseconds of a call, and the most memory that
the process had; of several rounds, the medians. `unpacked` is fxc with the weights as inputs (`pack_weights: False`), which needs no
second copy of them. Needs torch, torchvision, transformers and the package fxc, built for release.
"""
import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings

# What is in the user's cache was not compiled now.
os.environ['FXC_CACHE'] = 'off'

warnings.filterwarnings("ignore")
MODELS = ["resnet50", "bert", "gpt2"]


def build(name):
    import torch

    if name == "resnet50":
        import torchvision

        return torchvision.models.resnet50(), (torch.randn(1, 3, 224, 224),)
    import transformers

    if name == "bert":
        return transformers.BertModel(transformers.BertConfig()), (torch.randint(1000, (1, 128)),)
    return transformers.GPT2Model(transformers.GPT2Config(use_cache=False)), (torch.randint(1000, (1, 64)),)


def floor():
    """A backend whose compiler returns at once, and whose code computes nothing."""
    import torch
    from torch._dynamo.backends.common import aot_autograd

    def compiler(gm, inputs):
        types = [(n.meta["val"].shape, n.meta["val"].dtype) for n in gm.graph.output_node().args[0]]

        def run(args):
            return [torch.zeros(shape, dtype=dtype) for shape, dtype in types]

        run._boxed_call = True
        return run

    return aot_autograd(fw_compiler=compiler)


def measure(name, which, threads, calls):
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(threads)
    model, args = build(name)
    model.eval()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))  # what Dynamo does once in a process
    backend = floor() if which == "floor" else which
    options = None
    if which == "unpacked":
        backend, options = "fxc", {"pack_weights": False}
    call = model if which == "eager" else torch.compile(model, backend=backend, options=options)
    with torch.no_grad():
        start = time.perf_counter()
        call(*args)
        first = time.perf_counter() - start
        best = float("inf")
        for _ in range(0 if which == "floor" else calls):
            begin = time.perf_counter()
            call(*args)
            best = min(best, time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    print(first, best * 1e3, peak)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("names", nargs="*")
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--calls", type=int, default=20)
    ap.add_argument("--rounds", type=int, default=3, help="processes for each row")
    ap.add_argument("--against", default="inductor", help="another backend, by name")
    ap.add_argument("--one", help="measures one backend in this process")
    a = ap.parse_intermixed_args()
    if a.one:
        measure(a.names[0], a.one, a.threads, a.calls)
        return
    print(f"{'model':10} {'backend':10} {'first s':>8} {'beyond':>8} {'ms':>8} {'MB':>8}", flush=True)
    for name in a.names or MODELS:
        compare(name, ["eager", "floor", "fxc", "unpacked", a.against], a)


def compare(name, backends, a):
    """Measures the backends in turn, and prints the medians."""
    found = {which: [] for which in backends}
    command = [sys.executable, __file__, name, "--threads", str(a.threads), "--calls", str(a.calls), "--one"]
    for _ in range(a.rounds):
        for which in backends:
            out = subprocess.run([*command, which], check=True, stdout=subprocess.PIPE, text=True).stdout
            found[which].append([float(x) for x in out.split()[-3:]])
    medians = {which: [statistics.median(column) for column in zip(*rows)] for which, rows in found.items()}
    for which, (first, call, peak) in medians.items():
        beyond = "" if which in ("eager", "floor") else f"{first - medians['floor'][0]:.2f}"
        call_ms = "" if which == "floor" else f"{call:.2f}"
        print(f"{name:10} {which:10} {first:8.2f} {beyond:>8} {call_ms:>8} {peak:8.0f}", flush=True)


if __name__ == "__main__":
    main()
