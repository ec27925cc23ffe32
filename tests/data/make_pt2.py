"""Writes the .pt2 archives beside this file, and what PyTorch makes of them: python make_pt2.py

Each case NAME gives NAME.pt2, NAME.txt (print(graph) of the exported program), NAME.program and NAME.code (print and
graph_module.code of the archive read back; not of core ATen) and NAME.safetensors (inputs by placeholder
name, outputs as output.0, output.1 … in pytree order).
"""
import os
import re
import warnings

import torch
import torch.utils._pytree as pytree
from safetensors.torch import save_file
from torch import nn
from torch._higher_order_ops.map import map as control_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))


class Mlp(nn.Module):
    """Results in nested dicts, a batch of any size."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 4))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        h = self.net[1](self.net[0](x))
        logits = self.net[2](h)
        return {"logits": logits, "aux": {"prob": logits.softmax(-1), "parts": [self.head(h), x.shape[0]]}}


class Buffers(nn.Module):
    """A buffer that changes, one that is not saved, a lifted constant, tied weights, an input that changes."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("table", torch.arange(12.0).reshape(3, 4).t(), persistent=False)

    def forward(self, x, y):
        self.count.add_(1)
        y.mul_(2)
        h = self.a(x) + self.b(y)
        first, rest = h.split([1, 3], dim=1)
        values, _ = torch.max(rest, dim=1)
        return (first + torch.tensor([1.0, 2.0, 3.0]).sum(), [values, h @ self.table], None, self.count + 0)


class Branches(nn.Module):
    """Graphs as arguments, sizes computed from sizes, arguments of many kinds."""

    def forward(self, x, scale=2.0, *, extra):
        n = x.shape[0]
        chosen = torch.cond(x.sum() > 0, lambda t: (t + 1, t * 2), lambda t: (t - 1, t * 3), (x,))
        full = torch.full((2 * n + 1,), float("inf"), dtype=torch.float64)
        half = x[: n // 2].to(torch.float16, memory_format=torch.contiguous_format)
        scaled = torch.nn.functional.gelu(x * scale, approximate="tanh")
        return chosen, full, half, (scaled, extra["bias"] * 1.5)


class Control(nn.Module):
    """A choice, a loop, a scan over two tensors, a map; weights used inside the graphs."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)

    def forward(self, flag, n, x, rows):
        def step(carry, row):
            h, count = carry
            h = torch.tanh(self.a(h) + row[0])
            return [h, count + 1], [h * row[1], count * 2]

        chosen = torch.cond(flag, lambda t: (self.a(t), t.sum()), lambda t: (t * 2, t.mean()), (x,))
        inner = torch.cond(n > 3, lambda t: torch.cond(t.sum() > 0, torch.sin, torch.cos, (t,)), lambda t: t - 1, (x,))
        looped = while_loop(lambda i, t: i < n, lambda i, t: (i + 1, self.a(t) + i), (torch.tensor(0), x))
        scanned = scan(step, [x, x.sum()], [rows, rows + 1], dim=1, reverse=True)
        mapped = control_map(lambda r, t: (r @ t, r.max()), rows, self.a.weight)
        return chosen, inner, looped, scanned, mapped


class Wrapped(nn.Module):
    """Regions without gradients and without autocast, which export wraps in graphs of their own."""

    def forward(self, x):
        with torch.no_grad():
            y, z = x * 2, x + 1
        with torch.autocast("cpu", enabled=False):
            w = y @ z.T
        return w + 1, y


class Autocast(nn.Module):
    """Regions with autocast on, off within one and on again with another dtype."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 4)
        self.norm, self.conv = nn.LayerNorm(6), nn.Conv1d(3, 2, 2)

    def forward(self, x, target):
        with torch.autocast("cpu", torch.bfloat16):
            h = self.first(x)
            with torch.autocast("cpu", enabled=False):
                exact = self.second(h.float())
                with torch.autocast("cpu", torch.float16):
                    half = self.second(h)
            normed = self.norm(h)
            joined = torch.cat([h, normed])
            mixed = torch.einsum("bi,bi->b", normed, normed), torch.einsum("i,j->ij", h[0], normed[0])
            loss = nn.functional.cross_entropy(h, target), nn.functional.mse_loss(half.bfloat16(), exact)
            seen = self.conv(h[None]), nn.functional.pad(h[None], (1, 2), mode="reflect"), h.prod(0)
        with torch.autocast("cpu"):
            h = (h @ h.T).add_(1)
        return h, exact, half, normed, joined, mixed, loss, seen, h.float() @ h.float()


@torch.library.custom_op("mylib::accum", mutates_args={"out"})
def accum(x: torch.Tensor, out: torch.Tensor, scale: float = 2.0) -> None:
    out.add_(x * scale)


@accum.register_fake
def _(x, out, scale=2.0):
    return None


@torch.library.custom_op("mylib::swap_sum", mutates_args={"a", "b"})
def swap_sum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    kept = a.clone()
    a.copy_(b)
    b.copy_(kept)
    return a + b


@swap_sum.register_fake
def _(a, b):
    return torch.empty_like(a)


class Mutating(nn.Module):
    """Custom ops that write to their arguments: to whole tensors, to parts of one, to one twice."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x, y):
        sums, moved = torch.zeros_like(y), y + 1
        accum(x, sums, 3.0)
        both = swap_sum(moved, sums)
        accum(x[0], moved[1])
        accum(x[:, 1:], moved[:, 1:], -1.0)
        accum(x.T, moved.T)
        accum(x[1], self.total)
        swap_sum(sums[0], sums[1])
        return sums * 2, moved, both, self.total + 1


class Unsigned(nn.Module):
    """Wide unsigned integers: constants, hashes, conversions, views, and what moves elements."""

    def __init__(self):
        super().__init__()
        self.register_buffer("u16", torch.tensor([1, 65535, 7], dtype=torch.uint16))
        self.register_buffer("u32", torch.tensor([1, 2**32 - 1, 7], dtype=torch.uint32))
        self.register_buffer("u64", torch.tensor([1, 2**63 + 5, 7], dtype=torch.uint64))

    def forward(self, x):
        whole, rows = torch.hash_tensor(x), torch.hash_tensor(x, 1, keepdim=True)
        converted = self.u16.to(torch.int32), self.u32.float(), self.u64.double(), x.to(torch.uint16), x.to(torch.uint64)
        moved = torch.cat([self.u64, rows[:, 0]]), torch.stack([self.u16, self.u16.flip(0)]), self.u32[1:], self.u64.clone()
        seen = rows.view(torch.int64), self.u16.view(torch.int16), torch.tensor([-1, 2]).view(torch.uint64)
        return whole, rows, converted, moved, seen, self.u64.to(torch.int64), rows.reshape(-1)[0], self.u64


class Random(nn.Module):
    """Random numbers of every kind, in an order that matters."""

    def forward(self, x, p):
        few, many = torch.randn(5), torch.randn(3, 13)
        kept = nn.functional.dropout(x, 0.4, training=True)
        again = nn.functional.dropout(x, 0.4, training=True)
        whole = torch.randint(-3, 10, (7,)), torch.randint(0, 2**40, (4,)), torch.randperm(9)
        odd = torch.randn(3, dtype=torch.float64), torch.rand(4, dtype=torch.bfloat16), torch.randn(17, dtype=torch.float16)
        drawn = torch.bernoulli(p), torch.multinomial(p, 6, replacement=True), torch.multinomial(p, 3), torch.poisson(p * 30)
        filled = torch.empty(6).uniform_(-2, 5), torch.empty(20).normal_(1.5, 0.3), torch.empty(6).exponential_(0.7)
        return few, many, kept, again, whole, odd, drawn, filled, torch.rand_like(x), torch.normal(p, 2.0)


class Dropping(nn.Module):
    """Modules that drop elements within, in training mode."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 3, num_layers=3, dropout=0.4, bidirectional=True)
        self.gru = nn.GRU(4, 3, num_layers=2, dropout=0.4, batch_first=True)
        self.rnn = nn.RNN(4, 3, num_layers=2, dropout=1.0)
        self.alone = nn.RNN(4, 3, dropout=0.0)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.4)

    def forward(self, x):
        return self.lstm(x), self.gru(x), self.rnn(x), self.alone(x), self.attention(x, x, x), torch.rand(3)


class Scaled(torch.Tensor):
    """A tensor that computes its elements from others, as torchao's quantized weights do: elements times scales for each row."""

    @staticmethod
    def __new__(cls, elements, scale):
        return torch.Tensor._make_wrapper_subclass(cls, elements.shape, dtype=scale.dtype)

    def __init__(self, elements, scale):
        self.elements, self.scale = elements, scale

    def __tensor_flatten__(self):
        return ["elements", "scale"], None

    @staticmethod
    def __tensor_unflatten__(tensors, _context, _size, _stride):
        return Scaled(tensors["elements"], tensors["scale"])

    def dequantize(self):
        elements = self.elements
        elements = elements.dequantize() if isinstance(elements, Scaled) else elements.to(self.scale.dtype)
        return elements * self.scale

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is nn.functional.linear:
            x, w, *bias = args
            return func(x, w.dequantize(), *bias)
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return Scaled(*[func(t) for t in (args[0].elements, args[0].scale)])
        raise NotImplementedError(func)


class Subclasses(nn.Module):
    """Weights of Python classes, whose archives hold pickles."""

    def __init__(self):
        super().__init__()
        self.plain, self.nested, self.rows = nn.Linear(4, 3), nn.Linear(3, 4), nn.Linear(4, 2)
        integers = torch.randint(-8, 8, (3, 4), dtype=torch.int8)
        self.plain.weight = nn.Parameter(Scaled(integers, torch.rand(3, 1)), requires_grad=False)
        floats = torch.randn(4, 3).to(torch.float8_e4m3fn)
        self.nested.weight = nn.Parameter(Scaled(Scaled(floats, torch.rand(4, 1)), torch.rand(1, 3)), requires_grad=False)
        # Views: elements that are not stored in the order of the tensor, and ones that start inside of their storage.
        halves = torch.randn(4, 2).bfloat16().t()
        self.rows.weight = nn.Parameter(Scaled(halves, torch.rand(8, 1)[2:4]), requires_grad=False)

    def forward(self, x):
        return self.rows(self.nested(self.plain(x)))


def short_paths(graph):
    """Stack traces name files by their last two parts, so that the cases hold nothing of the machine they were made on."""
    for n in graph.nodes:
        if n.meta.get("stack_trace"):
            n.meta["stack_trace"] = re.sub(r'File "[^"]*?([^/"]+/[^/"]+)"', r'File "\1"', n.meta["stack_trace"])


def short_graphs(program):
    short_paths(program.graph)
    for m in program.graph_module.modules():
        if isinstance(m, torch.fx.GraphModule):
            short_paths(m.graph)


def write(name, model, args, kwargs=None, shapes=None, core=False, train=False, eager=False):
    kwargs = kwargs or {}
    torch.manual_seed(0)
    program = torch.export.export(model.train(train), args, kwargs, dynamic_shapes=shapes, strict=False)
    if core:
        program = program.run_decompositions()
    short_graphs(program)
    torch.export.save(program, os.path.join(HERE, f"{name}.pt2"))
    with open(os.path.join(HERE, f"{name}.txt"), "w") as f:
        f.write(str(program.graph))
    if not core:
        # A core program read back names results that nothing uses, which the one that was written did not have.
        again = torch.export.load(os.path.join(HERE, f"{name}.pt2"))
        for ending, text in [("program", str(again)), ("code", again.graph_module.code)]:
            with open(os.path.join(HERE, f"{name}.{ending}"), "w") as f:
                f.write(text)
    leaves = [v.clone() if isinstance(v, torch.Tensor) else v for v in pytree.tree_leaves((args, kwargs))]
    named = {n: v for n, v in zip(program.graph_signature.user_inputs, leaves) if isinstance(v, torch.Tensor)}
    torch.manual_seed(7)
    with torch.no_grad():
        results = (model if eager else program.module())(*pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, args), **kwargs)
    for i, v in enumerate(pytree.tree_leaves(results)):
        if isinstance(v, torch.Tensor):
            named[f"output.{i}"] = v.detach().clone().contiguous()
    save_file(named, os.path.join(HERE, f"{name}.safetensors"))


if __name__ == "__main__":
    torch.manual_seed(1)
    auto = Dim.AUTO
    write("mlp", Mlp(), (torch.randn(5, 6),), shapes=({0: auto},))
    torch.manual_seed(2)
    buffers = Buffers()
    pair = (torch.randn(2, 4), torch.randn(2, 4))
    write("buffers", buffers, pair)
    write("buffers_core", buffers, pair, core=True)
    torch.manual_seed(3)
    write("branches", Branches(), (torch.randn(6, 4), 3.0), {"extra": {"bias": torch.randn(4)}},
          shapes={"x": {0: auto}, "scale": None, "extra": {"bias": None}})
    torch.manual_seed(4)
    inputs = (torch.tensor(True), torch.tensor(5), torch.randn(2, 3), torch.randn(2, 4, 3))
    write("control", Control(), inputs)
    write("control_core", Control(), (torch.tensor(False), torch.tensor(2), *inputs[2:]), core=True)
    write("wrapped", Wrapped(), (torch.randn(3, 4),))
    write("random", Random(), (torch.randn(3, 8), torch.rand(6)))
    torch.manual_seed(5)
    write("autocast", Autocast(), (torch.randn(3, 4), torch.tensor([5, 0, 2])))
    mutating = (torch.randn(2, 3), torch.randn(2, 3))
    write("mutating", Mutating(), mutating)
    write("mutating_core", Mutating(), mutating, core=True)
    torch.manual_seed(6)
    write("unsigned", Unsigned(), (torch.randn(3, 4) * 1000,))
    torch.manual_seed(9)
    write("subclasses", Subclasses(), (torch.randn(5, 4),), eager=True)
    torch.manual_seed(8)
    write("dropping", Dropping(), (torch.randn(5, 2, 4),), train=True)
