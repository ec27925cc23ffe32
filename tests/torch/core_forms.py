"""Composites and what run_decompositions() makes of them: python tests/torch/core_forms.py [NAMES] --fxc BIN [--time]

Layers that are faster whole: each is exported, compared with PyTorch at both levels, compiled and interpreted. With `--time`, also
the time of the core level relative to the export level.

Needs: torch, numpy, safetensors. Without torch it says so and checks nothing.
"""
import json
import os
import subprocess
import sys
import tempfile

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)
import cases

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"


class Call(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


def x(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


CASES = []


def case(name, model, *args):
    def build():
        torch.manual_seed(0)
        m = model() if isinstance(model, type) or getattr(model, "__name__", "") == "layer" else Call(model)
        for p in m.parameters():
            p.requires_grad_(False)
            if p.numel() > 1 and float(p.max() - p.min()) == 0:
                p.add_(x(*p.shape) * 0.1)
        return m, args, {}

    CASES.append((name, build))


def layer(make):
    def layer():
        return make()

    return layer


for cell in [nn.LSTM, nn.GRU, nn.RNN]:
    for options in [{}, {"num_layers": 2}, {"bidirectional": True}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}]:
        label = cell.__name__.lower() + "".join(f" {k}={v}" for k, v in options.items())
        case(label, layer(lambda cell=cell, options=options: cell(16, 24, **options)), x(32, 2, 16))
case("rnn relu", layer(lambda: nn.RNN(16, 24, nonlinearity="relu", num_layers=2)), x(32, 2, 16))
case("lstm with states", layer(lambda: nn.LSTM(16, 24)), x(32, 2, 16), (x(1, 2, 24), x(1, 2, 24)))
case("gru with state", layer(lambda: nn.GRU(16, 24)), x(32, 2, 16), x(1, 2, 24))
case("lstm of 256 steps", layer(lambda: nn.LSTM(16, 24)), x(256, 2, 16))
case("gru of 256 steps", layer(lambda: nn.GRU(16, 24)), x(256, 2, 16))
case("lstm with projection", layer(lambda: nn.LSTM(16, 24, proj_size=8)), x(16, 2, 16))
case("lstm unbatched", layer(lambda: nn.LSTM(16, 24)), x(16, 16))


def last_state(r):
    return r[1]


case("lstm's last state", layer(lambda: nn.Sequential(nn.LSTM(16, 24), Call(last_state))), x(32, 2, 16))
case("gru's last output", layer(lambda: nn.Sequential(nn.GRU(16, 24, batch_first=True), Call(lambda r: r[0][:, -1]))), x(2, 32, 16))

case("layer_norm", layer(lambda: nn.LayerNorm(64)), x(32, 64))
case("layer_norm of two dims", layer(lambda: nn.LayerNorm((8, 64))), x(4, 8, 64))
case("layer_norm by hand", lambda v: (v - v.mean(-1, keepdim=True)) / torch.sqrt(v.var(-1, correction=0, keepdim=True) + 1e-5), x(32, 64))
case("rms_norm", layer(lambda: nn.RMSNorm(64)), x(32, 64))
case("group_norm", layer(lambda: nn.GroupNorm(4, 16)), x(2, 16, 8, 8))
case("instance_norm", layer(lambda: nn.InstanceNorm2d(16, affine=True)), x(2, 16, 8, 8))
case("batch_norm", layer(lambda: nn.BatchNorm2d(16)), x(2, 16, 8, 8))
case("gelu", F.gelu, x(32, 64))
case("gelu tanh", lambda v: F.gelu(v, approximate="tanh"), x(32, 64))
for f in [F.silu, F.hardswish, F.hardsigmoid, F.mish, F.softplus, F.elu, F.selu, F.celu, F.relu6, F.logsigmoid, F.softsign, F.tanhshrink, F.glu,
          F.leaky_relu, F.hardshrink, F.softshrink]:
    case(f.__name__, f, x(32, 64))
case("softmax", lambda v: v.softmax(-1), x(32, 64))
case("log_softmax", lambda v: v.log_softmax(1), x(4, 16, 8))
case("roll", lambda v: torch.roll(v, (2, -3), (1, 2)), x(2, 8, 8, 4))
case("roll flat", lambda v: torch.roll(v, 5), x(4, 8))
case("embedding", layer(lambda: nn.Embedding(50, 16)), torch.arange(20) % 7)
for mode in ["sum", "mean", "max"]:
    case(f"embedding_bag {mode}", layer(lambda mode=mode: nn.EmbeddingBag(50, 16, mode=mode)), torch.arange(24) % 7, torch.tensor([0, 5, 5, 11]))
case("embedding_bag of rows", layer(lambda: nn.EmbeddingBag(50, 16)), torch.arange(24).reshape(4, 6) % 7)
q, k, v = x(2, 4, 24, 16), x(2, 4, 32, 16) * 0.5, x(2, 4, 32, 16) - 0.1
sdpa = F.scaled_dot_product_attention
case("attention", sdpa, q, k, v)
case("attention causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), k, k * 0.7, v)
case("attention masked", lambda q, k, v, m: sdpa(q, k, v, m), q, k, v, x(2, 1, 24, 32))
case("attention with a bool mask", lambda q, k, v, m: sdpa(q, k, v, m), q, k, v, x(24, 32) > 0)
case("attention scaled", lambda q, k, v: sdpa(q, k, v, scale=0.3), q, k, v)
case("attention grouped", lambda q, k, v: sdpa(q, k, v, enable_gqa=True), q, k[:, :2].clone(), v[:, :2].clone())
case("attention of rank 3", sdpa, q[0], k[0], v[0])
case("attention by hand", lambda q, k, v: ((q @ k.transpose(-2, -1)) / 4.0).softmax(-1) @ v, q, k, v)
case("attention by hand, masked", lambda q, k, v, m: ((q * 0.25) @ k.transpose(-2, -1)).masked_fill(m, -1e9).softmax(-1) @ v, q, k, v, x(24, 32) > 1)
case("multihead_attention", layer(lambda: nn.Sequential(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True))), x(2, 16, 32))
case("multihead_attention with weights", layer(lambda: Heads()), x(2, 16, 32))


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, v):
        return self.a(v, v, v)


def autocast(name, f, *args, dtype=torch.bfloat16, core=True):
    """A region with autocast on, which the export level has as a graph of its own. Without `core`: ops of which
    run_decompositions() forgets what autocast does within them."""

    def region(*args):
        with torch.autocast("cpu", dtype):
            return f(*args)

    case(f"autocast {name}", region, *args)
    CASES[-1][1].core = core


a, b, square = x(6, 6), x(6, 6) * 0.5, x(1, 3, 8, 8)
for f in [torch.mm, torch.matmul, F.mse_loss, F.linear, torch.cdist, F.l1_loss, torch.mul]:
    autocast(f.__name__, f, a, b)
autocast("matmul of f16", torch.matmul, a, b, dtype=torch.float16)
autocast("bmm", torch.bmm, x(2, 3, 4), x(2, 4, 5))
autocast("addmm", torch.addmm, x(6), a, b)
autocast("baddbmm", torch.baddbmm, x(2, 3, 5), x(2, 3, 4), x(2, 4, 5))
autocast("conv2d", F.conv2d, square, x(4, 3, 3, 3), x(4))
autocast("conv_transpose2d", F.conv_transpose2d, square, x(3, 4, 3, 3))
autocast("layer_norm", lambda a: F.layer_norm(a @ a, (6,)), a)
autocast("softmax", lambda a: (a @ a).softmax(-1), a)
autocast("cat of two dtypes", lambda a: torch.cat([a @ a, a]), a)
autocast("stack", lambda a: torch.stack([a @ a, a]), a)
autocast("cross_entropy", lambda a: F.cross_entropy(a @ a, torch.arange(6)), a)
autocast("binary_cross_entropy_with_logits", lambda a, b: F.binary_cross_entropy_with_logits(a @ a, b.sigmoid()), a, b)
autocast("prod", lambda a: (a @ a).prod(-1), a)
autocast("prelu", F.prelu, a, x(6).abs())
autocast("f64", lambda a: a.double() @ a.double(), a)
for equation, *sizes in [("ij,jk->ik", (3, 4), (4, 5)), ("ijk,jl->il", (2, 4, 3), (4, 5)), ("i,j->ij", (3,), (4,)),
                         ("bi,bi->bi", (2, 3), (2, 3)), ("ij,kl->il", (3, 4), (2, 5)), ("...i,ij->...j", (2, 3, 4), (4, 5)),
                         ("ii,ij->j", (4, 4), (4, 5)), ("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4)), ("ij->i", (3, 4))]:
    autocast(f"einsum {equation}", lambda *v, e=equation: torch.einsum(e, *v), *[x(*s) for s in sizes], core=False)
autocast("einsum of three", lambda *v: torch.ops.aten.einsum("ij,jk,kl->il", v), x(3, 4), x(4, 5), x(5, 2), core=False)
autocast("tensordot", lambda a, b: (torch.tensordot(a, b, 1), torch.tensordot(a, b, 0), torch.tensordot(a, b, 2),
                                    torch.tensordot(a, b, ([0], [1]))), a, b, core=False)
autocast("inner", lambda a, b: (torch.inner(a, b), torch.inner(a[0], b[0]), torch.inner(a, b[0]), torch.inner(a, b[0, 0])), a, b, core=False)
for power in [-3, -1, 0, 1, 2, 3, 5]:
    autocast(f"matrix_power {power}", lambda a, n=power: torch.linalg.matrix_power(a, n), torch.eye(4) + x(4, 4) / 8, core=False)
for cell in [nn.LSTMCell, nn.GRUCell, nn.RNNCell]:
    for bias in [True, False]:
        autocast(f"{cell.__name__} bias={bias}", cell(6, 4, bias), x(3, 6), core=False)
for recurrent in [nn.LSTM, nn.RNN]:
    for options in [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}]:
        autocast(f"{recurrent.__name__} {options}", recurrent(6, 4, **options), x(3, 5, 6), core=False)
        CASES[-1][1].limit = 1e-2  # a unit or two of bf16, which oneDNN rounds to at other places
autocast("writes", lambda a, b: (a @ b).add_(1).mul_(2), a, b)


class Nested(nn.Module):
    """Autocast on, off within it, on again; what a region gives is used outside."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, v):
        with torch.autocast("cpu", torch.bfloat16):
            h = self.first(v)
            with torch.autocast("cpu", enabled=False):
                exact = self.first(h.float())
                with torch.autocast("cpu", torch.float16):
                    half = self.first(exact)
            mixed = self.norm(h) + self.first(half)
        return self.first(mixed.float()), h, half


case("autocast nested", layer(Nested), x(4, 8))
case("hash_tensor", lambda v: (torch.hash_tensor(v), torch.hash_tensor(v, (1,), keepdim=True).view(torch.int64)), x(4, 8))
case("wide unsigned integers", lambda v: (v.to(torch.uint16).view(2, -1), torch.hash_tensor(v, 1).to(torch.int64)), x(4, 8) * 100)


def times(fxc, names):
    """The core level's time relative to the export level's."""
    for name, build in CASES:
        if names and name not in names:
            continue
        with tempfile.TemporaryDirectory() as tmp:
            torch.manual_seed(0)
            model, args, kwargs = build()
            try:
                cases.write(model.eval(), args, kwargs, tmp)
            except Exception as e:
                print(f"{name:40} torch: {type(e).__name__}")
                continue
            least = {}
            for archive in ["export", "core"] * 2:
                cmd = [fxc, "bench", f"{tmp}/{archive}.pt2", "--inputs", f"{tmp}/inputs.safetensors", "--threads", "1", "--seconds", "0.2", "--json"]
                p = subprocess.run(cmd, capture_output=True, text=True)
                ms = json.loads(p.stdout)["min_ms"] if p.returncode == 0 else float("nan")
                least[archive] = min(ms, least.get(archive, ms))
            ratio = least["core"] / least["export"]
            print(f"{name:40} {least['export']:9.4f} ms {least['core']:9.4f} ms {ratio:6.2f}{'  <<<' if not ratio <= 1.2 else ''}", flush=True)


if __name__ == "__main__":
    if "--time" in sys.argv:
        args = [a for a in sys.argv[1:] if a != "--time"]
        fxc = args[args.index("--fxc") + 1] if "--fxc" in args else "target/release/fxc"
        times(fxc, [a for i, a in enumerate(args) if not a.startswith("--") and (i == 0 or args[i - 1] != "--fxc")])
    else:
        sys.exit(1 if cases.table(CASES, doc=__doc__) else 0)
