#!/usr/bin/env python3
"""Every module class that fxc's table has, against PyTorch: python tests/torch/modules.py --fxc BIN

Each module is traced as one node, written by tools/torch2fxir.py and run compiled and interpreted; results must be PyTorch's
within 1e-5 of their greatest magnitude. Classes that torch2fxir writes as graphs (those of transformers) are also written
as modules by hand. Batch normalisation is also run in training, batch after batch. A class of the table (`fxc ops`) without a case is a finding. Exit code 1 if there is one. Needs torch,
torchvision, timm, numpy, safetensors; without them nothing is checked.
"""
import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
try:
    import timm.layers
    import torch
    import torchvision
    from safetensors.torch import load_file, save_file
    from torch import nn
    from torch.utils import _pytree as pytree
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was checked")
    sys.exit(0)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
import torch2fxir  # noqa: E402

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"


def losses():
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


def regions():
    ops = torchvision.ops
    x = torch.randn(2, 8, 9, 9)
    boxes = torch.tensor([[0, 1.0, 1, 6, 5], [1, 0, 2, 8, 8], [0, 3, 3, 4, 4]])
    yield ops.RoIAlign((2, 2), 0.5, 2), (x, boxes)
    yield ops.RoIAlign((3, 2), 1.0, -1, aligned=True), (x, boxes)
    yield ops.RoIPool((2, 3), 1.0), (x, boxes)
    yield ops.PSRoIAlign((2, 2), 1.0, 2), (x, boxes)
    yield ops.PSRoIPool((2, 2), 1.0), (x, boxes)
    yield ops.DeformConv2d(8, 4, 3, padding=1, groups=2), (x, torch.randn(2, 18, 9, 9))
    yield ops.DeformConv2d(8, 4, 3, padding=1, bias=False), (x, torch.randn(2, 18, 9, 9), torch.rand(2, 9, 9, 9))
    yield ops.DropBlock2d(0.2, 3), (x,)
    yield ops.DropBlock3d(0.2, 3), (torch.randn(1, 4, 5, 5, 5),)


def activations():
    x = torch.randn(3, 4, 5, 6) * 3
    for c in ("CELU ELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh Identity LeakyReLU LogSigmoid Mish ReLU ReLU6 RReLU SELU SiLU "
              "Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink Dropout Dropout1d Dropout2d Dropout3d AlphaDropout "
              "FeatureAlphaDropout").split():
        yield getattr(nn, c)(), (x[0] if c == "Dropout1d" else x,)
    yield nn.GELU(approximate="tanh"), (x,)
    yield nn.GLU(dim=1), (x,)
    yield nn.Hardtanh(-0.5, 2.0), (x,)
    yield nn.Softplus(beta=2.0, threshold=3.0), (x,)
    yield nn.Threshold(0.3, -1.5), (x,)
    yield nn.PReLU(), (x,)
    yield nn.PReLU(4), (x,)
    for c in (nn.Softmax, nn.Softmin, nn.LogSoftmax):
        yield c(dim=1), (x,)
    yield nn.Softmax2d(), (x,)
    yield timm.layers.DropPath(0.2), (x,)
    yield torchvision.ops.StochasticDepth(0.2, "row"), (x,)
    yield from regions()


def windows():
    """Convolutions, pools, padding and resampling over one, two and three dims."""
    for n in (1, 2, 3):
        x = torch.randn(2, 4, *(9, 8, 7)[:n])
        of = lambda name, n=n: getattr(nn, f"{name}{n}d")  # noqa: E731
        yield of("Conv")(4, 6, 3, stride=2, padding=1, dilation=1, groups=2), (x,)
        yield of("Conv")(4, 6, 3, padding="same", padding_mode="zeros", bias=False), (x,)
        for mode in ("reflect", "replicate", "circular"):
            yield of("Conv")(4, 2, 3, padding=1, padding_mode=mode), (x,)
        yield of("ConvTranspose")(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (x,)
        yield of("AvgPool")(3, stride=2, padding=1), (x,)
        yield of("MaxPool")(3, stride=2, padding=1, ceil_mode=True), (x,)
        yield of("MaxPool")(2, return_indices=True), (x,)
        yield of("AdaptiveAvgPool")(3), (x,)
        yield of("AdaptiveMaxPool")(3), (x,)
        yield of("AdaptiveMaxPool")(3, return_indices=True), (x,)
        yield of("LPPool")(2.0, 3, stride=2), (x.abs(),)
        pooled, at = getattr(nn.functional, f"max_pool{n}d")(torch.randn(2, 4, *[6] * n), 2, return_indices=True)
        yield of("MaxUnpool")(2), (pooled, at)
        pads = tuple(range(1, 2 * n + 1))
        yield of("ConstantPad")(pads, 1.5), (x,)
        yield of("ZeroPad")(pads), (x,)
        for name in ("ReflectionPad", "ReplicationPad", "CircularPad"):
            yield of(name)(pads), (x,)
        for mode in (("nearest", "linear"), ("nearest", "bilinear", "bicubic"), ("nearest", "trilinear"))[n - 1]:
            yield nn.Upsample(scale_factor=2.0, mode=mode), (x,)
        yield nn.Upsample(size=(5, 6, 7)[:n]), (x,)
    x = torch.randn(2, 4, 8, 8)
    yield nn.UpsamplingBilinear2d(scale_factor=2), (x,)
    yield nn.UpsamplingNearest2d(size=(5, 7)), (x,)
    yield nn.FractionalMaxPool2d(2, output_size=3, _random_samples=torch.rand(2, 4, 2)), (x,)
    yield nn.FractionalMaxPool3d(2, output_size=3, _random_samples=torch.rand(2, 4, 3)), (torch.randn(2, 4, 6, 6, 6),)
    yield nn.Fold((6, 6), 3), (torch.randn(2, 18, 16),)
    yield nn.Unfold(3, padding=1, stride=2), (x,)
    yield nn.PixelShuffle(2), (x,)
    yield nn.PixelUnshuffle(2), (x,)
    yield nn.ChannelShuffle(2), (x,)


def statistics(norm):
    """The norm with running statistics and weights that are not those of its making."""
    for name, t in [*norm.named_buffers(), *norm.named_parameters()]:
        if t.is_floating_point():
            t.data = torch.rand_like(t) + (0.5 if "var" in name else 0.0)
    return norm


def norms():
    for n in (1, 2, 3):
        x = torch.randn(2, 4, *(5, 6, 3)[:n])
        yield statistics(getattr(nn, f"BatchNorm{n}d")(4)), (x,)
        yield getattr(nn, f"BatchNorm{n}d")(4, affine=False), (x,)
        yield getattr(nn, f"BatchNorm{n}d")(4, track_running_stats=False), (x,)
        yield statistics(getattr(nn, f"InstanceNorm{n}d")(4, affine=True)), (x,)
        yield statistics(getattr(nn, f"InstanceNorm{n}d")(4, track_running_stats=True)), (x,)
    x = torch.randn(2, 4, 5, 6)
    yield statistics(nn.SyncBatchNorm(4)), (x,)
    yield statistics(torchvision.ops.FrozenBatchNorm2d(4)), (x,)
    yield statistics(nn.GroupNorm(2, 4)), (x,)
    yield statistics(nn.LayerNorm([5, 6])), (x,)
    yield nn.LayerNorm(6, elementwise_affine=False), (x,)
    yield statistics(nn.LayerNorm(6, bias=False)), (x,)
    yield statistics(nn.RMSNorm(6)), (x,)
    yield nn.RMSNorm([5, 6], eps=0.1, elementwise_affine=False), (x,)
    for size in (1, 2, 3, 4, 5):
        yield nn.LocalResponseNorm(size, alpha=2.0), (x,)
        yield nn.CrossMapLRN2d(size, alpha=2.0, k=2), (x,)


def layers():
    x, y = torch.randn(3, 8), torch.randn(3, 6)
    yield nn.Linear(8, 5), (x,)
    yield nn.Linear(8, 5, bias=False), (x,)
    yield nn.modules.linear.NonDynamicallyQuantizableLinear(8, 5), (x,)
    yield nn.Bilinear(8, 6, 5), (x, y)
    yield nn.Flatten(), (torch.randn(2, 3, 4),)
    yield nn.Flatten(0, 1), (torch.randn(2, 3, 4),)
    yield nn.Unflatten(1, (2, 4)), (x,)
    yield nn.CosineSimilarity(dim=1), (x, x.flip(0))
    yield nn.PairwiseDistance(p=3.0, keepdim=True), (x, x.flip(0))
    yield nn.Embedding(7, 4), (torch.tensor([[0, 6, 3]]),)
    for mode in ("sum", "mean", "max"):
        yield nn.EmbeddingBag(7, 4, mode=mode), (torch.tensor([0, 6, 3, 3]), torch.tensor([0, 1]))
    yield nn.EmbeddingBag(7, 4, padding_idx=3), (torch.tensor([[0, 6], [3, 3]]),)
    for c in (nn.LSTM, nn.GRU, nn.RNN):
        for more in ({}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True}):
            yield c(8, 5, **more), (torch.randn(4, 3, 8),)
    yield nn.RNN(8, 5, nonlinearity="relu"), (torch.randn(4, 3, 8),)
    yield nn.LSTM(8, 5, proj_size=3), (torch.randn(4, 3, 8),)
    for c in (nn.LSTMCell, nn.GRUCell, nn.RNNCell):
        yield c(8, 5), (x,)
    yield nn.GRUCell(8, 5, bias=False), (x, torch.randn(3, 5))
    for bias in (False, True):
        m = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 9], div_value=2.0, head_bias=bias)
        yield m, (torch.randn(6, 8), torch.tensor([0, 3, 4, 8, 9, 19]))
    yield nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4]), (torch.randn(8), torch.tensor(11))


def attention():
    tokens, memory = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    for more in ({}, {"batch_first": True}, {"bias": False}, {"add_bias_kv": True, "add_zero_attn": True}):
        yield nn.MultiheadAttention(8, 2, **more), (tokens, tokens, tokens)
    yield nn.MultiheadAttention(8, 2, kdim=6, vdim=3), (tokens, torch.randn(7, 5, 6), torch.randn(7, 5, 3))
    for first in (False, True):
        more = {"dim_feedforward": 16, "batch_first": True, "norm_first": first, "activation": "gelu" if first else "relu"}
        yield nn.TransformerEncoderLayer(8, 2, **more), (tokens,)
        yield nn.TransformerDecoderLayer(8, 2, **more), (tokens, memory)
        yield nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, **more), 2, nn.LayerNorm(8) if first else None), (tokens,)
        yield nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, **more), 2, nn.LayerNorm(8) if first else None), (tokens, memory)
        yield nn.Transformer(8, 2, 2, 1, **more), (memory, tokens)
    yield nn.Transformer(8, 2, 1, 2, 16, bias=False), (memory.mT.contiguous().mT, memory)


def cases():
    torch.manual_seed(0)
    for group in (losses, activations, windows, norms, layers, attention):
        yield from group()


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


def layer_text(layer):
    kind = type(layer).__name__
    names = {"d_model": layer.linear1.in_features, "nhead": layer.self_attn.num_heads, "dim_feedforward": layer.linear1.out_features,
             "activation": layer.activation.__name__, "batch_first": layer.self_attn.batch_first, "norm_first": layer.norm_first,
             "bias": layer.linear1.bias is not None}
    return f"{kind}({', '.join(f'{k}={torch2fxir.literal(v)}' for k, v in names.items())})"


def by_hand(module, inputs):
    """A module of transformers as FXIR that declares it as such, with its layers where they say more than it; None for others."""
    lines = []
    if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        lines.append(f"module inner = {layer_text(module)}")
    elif isinstance(module, (nn.TransformerEncoder, nn.TransformerDecoder)):
        lines.append(f"module inner = {type(module).__name__}(num_layers={len(module.layers)})")
        lines += [f"module inner.layers.{i} = {layer_text(m)}" for i, m in enumerate(module.layers)]
        if module.norm is not None:
            lines.append("module inner.norm = LayerNorm(8)")
    elif isinstance(module, nn.Transformer):
        layer = re.sub(r"^TransformerEncoderLayer\(", "", layer_text(module.encoder.layers[0]))
        counts = f"num_encoder_layers={len(module.encoder.layers)}, num_decoder_layers={len(module.decoder.layers)}"
        lines.append(f"module inner = Transformer({counts}, {layer}")
    else:
        return None
    for name, t in module.state_dict().items():
        lines.append(f"param inner.{name} : f32{list(t.shape)}")
    body = [f"    %x{i} : f32{list(t.shape)} = placeholder x{i}" for i, t in enumerate(inputs)]
    args = ", ".join(f"%x{i}" for i in range(len(inputs)))
    body += [f"    %y = call_module inner({args})", "    output %y"]
    return 'weights "model.safetensors"\n' + "\n".join(lines) + "\ngraph main {\n" + "\n".join(body) + "\n}\n"


def order(name):
    return [int(p) if p.isdigit() else p for p in name.split(".")]


def differs(fxc, want, tmp, flags):
    out = os.path.join(tmp, "out.safetensors")
    cmd = [fxc, "run", os.path.join(tmp, "model.fxir"), "--inputs", os.path.join(tmp, "in.safetensors"), "--outputs", out, *flags]
    p = subprocess.run(cmd, capture_output=True, text=True)
    if p.returncode:
        return " | ".join(p.stderr.strip().splitlines()[:4])[:300]
    found = load_file(out)
    all_got = [found[k] for k in sorted(found, key=order)]
    if len(all_got) != len(want):
        return f"{len(all_got)} results instead of {len(want)}"
    for got, want in zip(all_got, want):  # noqa: B020
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
        if got.numel():
            got, want = got.double(), want.double()
            far = float((got - want).abs().max() / want.abs().max().clamp_min(1e-6))
            if not far < 1e-5:
                return f"differs by {far}"
    return None


def check(fxc, module, inputs, tmp):
    """What differs for each way to write and run the module."""
    want = [t for t in pytree.tree_leaves(module(*inputs)) if isinstance(t, torch.Tensor)]
    model = os.path.join(tmp, "model.fxir")
    try:
        torch2fxir.write(traced(module, len(inputs)), model, list(inputs))
    except torch2fxir.Unsupported as e:
        yield "", str(e)
        return
    save_file({f"x{i}": t.clone().contiguous() for i, t in enumerate(inputs)}, os.path.join(tmp, "in.safetensors"))
    for flags in ([], ["--interpret"]):
        yield " ".join(flags), differs(fxc, want, tmp, flags)
    text = by_hand(module, inputs)
    if text is None:
        return
    save_file({f"inner.{k}": t.contiguous() for k, t in module.state_dict().items()}, os.path.join(tmp, "model.safetensors"))
    with open(model, "w") as f:
        f.write(text)
    for flags in ([], ["--interpret"]):
        yield " ".join(["by hand", *flags]), differs(fxc, want, tmp, flags)


def in_training(fxc):
    """What differs in three batches in training: the results, and the statistics that a run hands to the next."""
    shapes = {nn.BatchNorm1d: (4, 3), nn.BatchNorm2d: (4, 3, 5, 5), nn.BatchNorm3d: (2, 3, 4, 3, 3)}
    for cls, momentum, form in itertools.product(shapes, (None, 0.3), ("printed", "torch2fxir")):
        model = nn.Sequential(cls(3, momentum=momentum)).train()
        gm = torch.fx.symbolic_trace(model)
        with tempfile.TemporaryDirectory() as tmp:
            inputs, state, out = (os.path.join(tmp, f"{n}.safetensors") for n in ("in", "state", "out"))
            weights = os.path.join(tmp, "m.safetensors")
            if form == "printed":
                save_file({k: t.clone() for k, t in model.state_dict().items()}, weights)
                with open(os.path.join(tmp, "m.txt"), "w") as f:
                    f.write(f"Sequential(\n  (0): {model[0]}\n)\n\n\n{gm.code}")
                run = [fxc, "run", os.path.join(tmp, "m.txt"), "--training", "--weights", weights]
            else:
                torch2fxir.write(gm, os.path.join(tmp, "m.fxir"))
                run = [fxc, "run", os.path.join(tmp, "m.fxir")]
            run += ["--inputs", inputs, "--outputs", out, "--save-state", state]
            for turn in range(3):
                x = torch.randn(shapes[cls]) * (turn + 1)
                save_file({"input_1": x}, inputs)
                want = {"output.0": model(x)} | {f"buffer.0.{k}": t for k, t in model[0].named_buffers()}
                p = subprocess.run([*run, *(["--state", state] if turn else [])], capture_output=True, text=True)
                what = p.stderr[:300] if p.returncode else None
                if not what:
                    got = load_file(out) | load_file(state)
                    what = next((k for k, t in want.items()
                                 if k not in got or got[k].dtype != t.dtype or not torch.allclose(got[k], t, rtol=1e-5, atol=1e-6)), None)
                yield f"{model[0]} {form} in training, batch {turn + 1}", what


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--fxc", default="target/debug/fxc")
    ap.add_argument("--only", default="", help="classes whose names match this pattern")
    a = ap.parse_args()
    checked, findings, classes = 0, [], set()
    for module, inputs in cases():
        if not re.search(a.only, type(module).__name__):
            continue
        classes.add(type(module).__name__)
        with tempfile.TemporaryDirectory() as tmp, torch.no_grad():
            for how, what in check(a.fxc, module.eval(), inputs, tmp):
                checked += 1
                if what:
                    findings.append(f"{module} {how}: {what}")
    if re.search(a.only, "BatchNorm"):
        for case, what in in_training(a.fxc):
            checked += 1
            if what:
                findings.append(f"{case}: {what}")
    print(f"{checked - len(findings)} of {checked} results are PyTorch's")
    table = json.loads(subprocess.run([a.fxc, "ops", "--format", "json"], capture_output=True, check=True).stdout)
    lacking = {m.split("(")[0] for row in table for m in row["modules"]} - classes
    if not a.only:
        print(f"{len(classes)} classes; of the table's without a case: {' '.join(sorted(lacking)) or 'none'}")
        findings += sorted(lacking)
    print("".join(f"  {f}\n" for f in findings), end="")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
