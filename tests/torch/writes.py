"""Writes in place and sizes that depend on values, against PyTorch: python tests/torch/writes.py [names] [--fxc BIN]

Each case is a small module. It runs three times in a row in PyTorch, so that what it writes to its buffers carries over,
and in fxc, once in a single run (`fxc run --repeat 3`) and once in three that hand their state on (`--save-state`, `--state`), from three forms: the exported program (in-place ops as written), the same after
run_decompositions() (functional, with mutations in its signature), and print(graph) of torch.fx.symbolic_trace where the
module has no state and traces; compiled and interpreted. Compared are the results of the third call, the buffers after it
(`buffer.NAME`) and the inputs it changed (`input.NAME`).

Needs: torch, safetensors. Without them it says so and checks nothing.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import warnings

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

try:
    import torch
    import torch.utils._pytree as pytree
    from safetensors.torch import load_file, save_file
    from torch import nn
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)

warnings.filterwarnings("ignore")
CASES = {}
CALLS = 3


def case(*inputs):
    def deco(what):
        torch.manual_seed(0)  # The batch norms of some weights lose five digits in f32, torch's too.
        model = what() if isinstance(what, type) else Plain(what)
        CASES[what.__name__.lower()] = (model, inputs)
        return what

    return deco


class Plain(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x, y):
        return self.f(x, y)


X, Y = torch.arange(24.0).reshape(4, 6) / 7 - 1, torch.tensor([[3, 1, 2, 0, 1, 5]] * 4)


@case(X, Y)
def view_of_view(x, y):
    z = x.clone()
    a = z.t()[1:4]
    a[::2].mul_(3)
    a.view(3, 4)[0].add_(1)
    return z, a


@case(X, Y)
def setitem(x, y):
    z = x * 2
    z[0] = 5
    z[1:3, ::2] = x[1:3, ::2] - 1
    z[..., -1] = x[:, 0]
    z[x > 1] = -7.0
    z[[0, 3], [1, 2]] = 9.0
    return z


@case(X, Y)
def copies_and_fills(x, y):
    z = torch.zeros(4, 6)
    z.copy_(x[0])
    z[2].fill_(4)
    z.narrow(1, 2, 2).zero_()
    z.diagonal().fill_(8)
    w = torch.empty(4, 6, dtype=torch.int32)
    w.copy_(x * 3)
    return z, w


@case(X, Y)
def index_puts(x, y):
    z = x.clone()
    i = y[0, :3]
    z.index_put_((i,), x[:3] * 10, accumulate=False)
    z.index_put_((torch.tensor([0, 0, 1]), torch.tensor([1, 1, 2])), torch.tensor([1.0, 2.0, 3.0]), accumulate=True)
    z.scatter_(1, y[:, :2], -1.0)
    z.scatter_add_(1, y[:, :3], x[:, :3])
    z.masked_fill_(x < 0, 0.5)
    z.index_fill_(1, torch.tensor([4]), 2.0)
    z.index_add_(0, torch.tensor([1, 1]), x[:2])
    return z


@case(X, Y)
def outs(x, y):
    z = torch.empty(4, 6)
    torch.add(x, x, out=z)
    w = torch.zeros(2, 4, 6)
    torch.mul(x, 3, out=w[1])
    torch.cumsum(x, 0, out=w[0])
    return z, w


@case(X, Y)
def pieces(x, y):
    z = x.clone()
    a, b = z.split(3, dim=1)
    c, d = z.chunk(2)
    a.add_(100)
    c.mul_(2)
    b[0, 0] = d[0, 0]
    e = z.unbind(1)[2]
    e.neg_()
    return a, b, c, d, z


@case(X, Y)
def shapes_in_place(x, y):
    z = x.clone()
    v = z.unsqueeze(0)
    z.t_()
    z.unsqueeze_(-1)
    z.add_(1)
    z.squeeze_()
    z.transpose_(0, 1)
    return z, v


@case(X, Y)
def expanded_and_strided(x, y):
    z = x.clone()
    s = torch.as_strided(z, (3, 2), (6, 2), 1)
    s.sub_(50)
    w = z.unfold(1, 2, 2)
    w[:, 1].zero_()
    f = z.flatten()
    f[3:5] = 77
    return z, s, f, z.reshape(3, 8)


@case(X, Y)
def dtypes(x, y):
    z = y.clone()
    z.add_(1).mul_(2)
    z //= 3
    z -= 1
    h = x.half()
    h.mul_(1.1)
    b = x > 0
    b.logical_not_()
    b |= y > 2
    z.clamp_(-1, 1)
    return z, h, b


@case(X.clone(), Y.clone())
def input_written(x, y):
    x[1].mul_(2)
    y.t()[0] += 5
    return x.sum(0), y * 1


@case(X.clone(), Y)
def input_result(x, y):
    x.relu_()
    return x


@case(X)
class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        self.count += 1
        self.mean.lerp_(x.mean(0), 0.25)
        return x - self.mean, self.count + 0


@case(X)
class BatchNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 5)
        self.bn = nn.BatchNorm1d(5)
        self.bn2 = nn.BatchNorm1d(5, momentum=0.3, affine=False)

    def forward(self, x):
        return self.bn2(torch.relu(self.bn(self.fc(x))))


@case(X.reshape(2, 3, 2, 2))
class BatchNormOfImages(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.bn = nn.BatchNorm2d(4)
        self.norm = nn.InstanceNorm2d(4, track_running_stats=True)

    def forward(self, x):
        return self.bn(self.conv(x)).relu_(), self.norm(self.conv(x))


@case(torch.randn(1, 2, 4, generator=torch.Generator().manual_seed(1)), torch.tensor([2]))
class KvCache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.zeros(1, 2, 8, 4))
        self.register_buffer("at", torch.zeros(1, dtype=torch.int64), persistent=False)

    def forward(self, q, step):
        self.k.index_copy_(2, self.at, q.unsqueeze(2))
        self.at.add_(step)
        scores = q.unsqueeze(2) @ self.k.transpose(2, 3)
        return scores.softmax(-1) @ self.k


@case(X)
class Ring(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(3, 6))

    def forward(self, x):
        self.last[1:] = self.last[:-1].clone()
        self.last[0] = x.mean(0) + self.last.sum()
        return self.last * 2


@case(X, Y)
def nonzeros(x, y):
    i = torch.nonzero(x > 0.5)
    return i, i.float().sum(0), x[x > 0.5] * 2


@case(X, Y)
def selected(x, y):
    v = torch.masked_select(x, y > 1)
    return v.exp(), v.sum(), v.reshape(-1, 1) @ torch.ones(1, 3)


@case(X, Y)
def uniques(x, y):
    v, inverse, counts = torch.unique(y, return_inverse=True, return_counts=True)
    return v, inverse, counts, v.float().softmax(0)


@case(X, Y)
def item_sized(x, y):
    n = y[0, 0].item()
    torch._check(n >= 0)
    torch._check(n <= 4)
    return torch.zeros(n, 3) + 1, x[:n].sum()


def forms(name, model, inputs, folder):
    """Writes the forms of a case; gives (file, names of its inputs)."""
    out = []
    args = tuple(t.clone() for t in inputs)
    # Tracing runs what the model does to its buffers.
    before = {k: v.clone() for k, v in model.named_buffers()}
    try:
        ep = torch.export.export(model, args, strict=False)
        for file, p in [("export.pt2", ep), ("core.pt2", ep.run_decompositions())]:
            torch.export.save(p, f"{folder}/{file}")
            out.append((file, list(p.graph_signature.user_inputs)))
    except Exception as e:
        print(f"{name:22} export    torch: {str(e).strip().splitlines()[0][:90]}")
    try:
        gm = torch.fx.symbolic_trace(model)
        assert not list(gm.parameters()) and not list(gm.buffers())
        assert not any(n.op == "get_attr" for n in gm.graph.nodes)
        with open(f"{folder}/graph.txt", "w") as f:
            f.write(str(gm.graph))
        out.append(("graph.txt", [n.name for n in gm.graph.nodes if n.op == "placeholder"]))
    except Exception:
        pass
    for k, v in model.named_buffers():
        v.data.copy_(before[k])
    return out


def wanted(model, inputs, names):
    """What PyTorch gives in the last of the calls, and leaves behind."""
    args = [t.clone() for t in inputs]
    before = {k: v.clone() for k, v in model.named_buffers()}
    with torch.no_grad():
        for _ in range(CALLS):
            result = model(*args)
    def plain(t):
        return t.detach().clone().contiguous()
    out = {f"output.{i}": plain(t) for i, t in enumerate(pytree.tree_leaves(result)) if isinstance(t, torch.Tensor)}
    for k, v in model.named_buffers():
        if not torch.equal(v, before[k]):
            out[f"buffer.{k}"] = plain(v)
    for n, now, was in zip(names, args, inputs):
        if not torch.equal(now, was):
            out[f"input.{n}"] = plain(now)
    for k, v in model.named_buffers():
        v.data.copy_(before[k])
    return out


def compare(got, want):
    """What differs first, or nothing."""
    if set(got) != set(want):
        return f"results {sorted(got)} instead of {sorted(want)}"
    for k, w in want.items():
        g = got[k]
        if g.dtype != w.dtype or g.shape != w.shape:
            return f"{k}: {g.dtype}{list(g.shape)} instead of {w.dtype}{list(w.shape)}"
        if not torch.allclose(g.double(), w.double(), rtol=1e-3 if w.dtype == torch.half else 1e-5, atol=1e-5, equal_nan=True):
            return f"{k} differs by {(g.double() - w.double()).abs().max():.1e}"
    return ""


def repeated(command, given, tmp):
    """All calls in one run; what it said, and where its results are."""
    save_file(given, f"{tmp}/in.safetensors")
    out = f"{tmp}/out.safetensors"
    command = [*command, "--inputs", f"{tmp}/in.safetensors", "--outputs", out, "--repeat", str(CALLS)]
    return subprocess.run(command, capture_output=True, text=True), out


def carried(command, given, tmp):
    """A run for each call, which finds the state that the one before has saved."""
    out, state = f"{tmp}/out.safetensors", f"{tmp}/state.safetensors"
    left = {}
    for i in range(CALLS):
        save_file({n: t for n, t in given.items() if f"input.{n}" not in left}, f"{tmp}/in.safetensors")
        args = ["--inputs", f"{tmp}/in.safetensors", "--outputs", out, "--save-state", state]
        p = subprocess.run([*command, *args, *(["--state", state] if i else [])], capture_output=True, text=True)
        if p.returncode:
            break
        left = load_file(state)
    return p, out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("names", nargs="*")
    ap.add_argument("--fxc", default="target/release/fxc")
    a = ap.parse_args()
    failed = passed = 0
    for name, (model, inputs) in CASES.items():
        if a.names and name not in a.names:
            continue
        with tempfile.TemporaryDirectory() as tmp:
            for file, names in forms(name, model, inputs, tmp):
                want = wanted(model, inputs, names)
                given = {n: t.contiguous() for n, t in zip(names, inputs)}
                for extra in [[], ["--interpret"]]:
                    for run, how in [(repeated, "repeat"), (carried, "state")]:
                        p, out = run([a.fxc, "run", f"{tmp}/{file}", *extra], given, tmp)
                        if p.returncode:
                            lines = [l for l in p.stderr.splitlines() if l.startswith("error")] or p.stderr.splitlines()
                            why = (lines or ["no message"])[0][:110]
                        else:
                            why = compare(load_file(out), want)
                        passed, failed = passed + (not why), failed + bool(why)
                        mode = "interpreted" if extra else "compiled"
                        print(f"{name:22} {file:10} {mode:12} {how:7} {why or 'agrees'}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
