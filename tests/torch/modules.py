#!/usr/bin/env python3
"""Losses, layers of transformers and unpooling of torch.nn as modules of FXIR: python tests/torch/modules.py --fxc BIN

Each module is traced, written by tools/torch2fxir.py and run compiled and interpreted; results must be PyTorch's within
1e-5 of their greatest magnitude. Exit code 1 if one differs. Needs torch, numpy, safetensors; without them nothing is checked.
"""
import argparse
import os
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors.torch import load_file, save_file
    from torch import nn
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was checked")
    sys.exit(0)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
import torch2fxir  # noqa: E402


def cases():
    torch.manual_seed(0)
    x, y, z = (torch.randn(4, 6) for _ in range(3))
    unit, signs, classes = torch.rand(4, 6), torch.tensor([1.0, -1, 1, -1]), torch.tensor([0, 2, 5, 1])
    for reduction in ("none", "mean", "sum"):
        r = {"reduction": reduction}
        for c in (nn.L1Loss, nn.MSELoss, nn.SmoothL1Loss, nn.HuberLoss, nn.SoftMarginLoss, nn.PoissonNLLLoss, nn.KLDivLoss,
                  nn.MultiLabelSoftMarginLoss, nn.BCEWithLogitsLoss):
            yield c(**r), (x, unit)
        yield nn.BCELoss(**r), (unit, unit.flip(0))
        yield nn.HingeEmbeddingLoss(**r), (x, signs[:, None].expand(4, 6).contiguous())
        yield nn.NLLLoss(weight=torch.rand(6), **r), (x, classes)
        yield nn.CrossEntropyLoss(label_smoothing=0.1, **r), (x, classes)
        yield nn.MultiMarginLoss(p=2, **r), (x, classes)
        yield nn.MultiLabelMarginLoss(**r), (x, torch.tensor([[0, 2, -1, 0, 0, 0]] * 4))
        yield nn.CosineEmbeddingLoss(margin=0.2, **r), (x, y, signs)
        yield nn.MarginRankingLoss(margin=0.2, **r), (x, y, torch.sign(z))
        yield nn.TripletMarginLoss(swap=True, **r), (x, y, z)
        yield nn.TripletMarginWithDistanceLoss(**r), (x, y, z)
        yield nn.GaussianNLLLoss(full=True, **r), (x, y, unit)
        lengths = torch.tensor([8, 7, 6]), torch.tensor([3, 2, 1])
        yield nn.CTCLoss(**r), (torch.randn(8, 3, 5).log_softmax(2), torch.randint(1, 5, (3, 4)), *lengths)
    yield nn.KLDivLoss(reduction="batchmean"), (x, unit)
    pooled, at = nn.functional.max_pool2d(torch.randn(2, 3, 8, 8), 2, return_indices=True)
    yield nn.MaxUnpool2d(2), (pooled, at)
    yield nn.FractionalMaxPool2d(2, output_size=3, _random_samples=torch.rand(2, 3, 2)), (torch.randn(2, 3, 8, 8),)
    tokens, memory = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    for first in (False, True):
        more = {"dim_feedforward": 16, "batch_first": True, "norm_first": first, "activation": "gelu" if first else "relu"}
        yield nn.TransformerEncoderLayer(8, 2, **more), (tokens,)
        yield nn.TransformerDecoderLayer(8, 2, **more), (tokens, memory)


class Calls(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *args):
        return self.inner(*args)


def traced(module, n):
    """The graph `inner(x0, …)`: the module stays one node."""
    root, graph = Calls(module), torch.fx.Graph()
    graph.output(graph.call_module("inner", tuple(graph.placeholder(f"x{i}") for i in range(n))))
    return torch.fx.GraphModule(root, graph)


def differs(fxc, module, inputs, tmp, flags):
    out = os.path.join(tmp, "out.safetensors")
    cmd = [fxc, "run", os.path.join(tmp, "model.fxir"), "--inputs", os.path.join(tmp, "in.safetensors"), "--outputs", out, *flags]
    p = subprocess.run(cmd, capture_output=True, text=True)
    if p.returncode:
        return " | ".join(p.stderr.strip().splitlines()[:4])[:300]
    got, want = next(iter(load_file(out).values())), module(*inputs)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    far = float((got - want).abs().max() / want.abs().max().clamp_min(1e-6))
    return f"differs by {far}" if not far < 1e-5 else None


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--fxc", default="target/debug/fxc")
    a = ap.parse_args()
    checked, findings = 0, []
    for module, inputs in cases():
        module = module.eval()
        with tempfile.TemporaryDirectory() as tmp, torch.no_grad():
            gm = traced(module, len(inputs))
            torch2fxir.write(gm, os.path.join(tmp, "model.fxir"), list(inputs))
            save_file({f"x{i}": t.contiguous() for i, t in enumerate(inputs)}, os.path.join(tmp, "in.safetensors"))
            for flags in ([], ["--interpret"]):
                checked += 1
                what = differs(a.fxc, module, inputs, tmp, flags)
                if what:
                    findings.append(f"{module} {' '.join(flags)}: {what}")
    print(f"{checked - len(findings)} of {checked} results are PyTorch's")
    print("".join(f"  {f}\n" for f in findings), end="")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
