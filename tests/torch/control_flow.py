"""Control flow as torch.export gives it, alone and nested, against PyTorch: python tests/torch/control_flow.py --fxc BIN

`cond`, `while_loop`, `scan`, `map` and `associative_scan`, each exported, at both levels, compiled and interpreted.

Needs: torch, numpy, safetensors. Without torch it says so and checks nothing.
"""
import sys

try:
    import torch
    from torch import nn
    from torch._higher_order_ops import associative_scan, scan, while_loop
    from torch._higher_order_ops import map as map_rows
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)
import cases

cond = torch.cond


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.yes, self.no = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return cond(x.sum() > 0, lambda x: self.yes(x).relu(), lambda x: self.no(x).tanh(), (x,))


def larger(x):
    return x * 2


def smaller(x):
    return x - 1


class BranchInBranch(nn.Module):
    def forward(self, x):
        return cond(x.sum() > 0, lambda x: cond(x.max() > 1, larger, smaller, (x,)), lambda x: x.cos(), (x,))


class BranchBySize(nn.Module):
    def forward(self, x):
        return cond(x.shape[0] > 3, lambda x: x.cos(), lambda x: x.sin(), (x,))


class Loop(nn.Module):
    def forward(self, x, n):
        def body(i, x):
            return i + 1, x * 1.5 + i

        return while_loop(lambda i, x: i < n.max(), body, (torch.zeros((), dtype=torch.int64), x))


class LoopInLoop(nn.Module):
    def forward(self, x):
        def inner(x):
            return while_loop(lambda j, x: j < 3, lambda j, x: (j + 1, x * 1.1), (torch.zeros((), dtype=torch.int64), x))[1]

        return while_loop(lambda i, x: x.abs().sum() < 100, lambda i, x: (i + 1, inner(x) + 1), (torch.zeros((), dtype=torch.int64), x))


class LoopWithBranch(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        def body(i, x):
            return i + 1, cond(i % 2 == 0, lambda x: self.layer(x).tanh(), lambda x: x * 0.5 + 1, (x,))

        return while_loop(lambda i, x: i < 6, body, (torch.zeros((), dtype=torch.int64), x))


class Scan(nn.Module):
    def forward(self, x):
        def step(c, x):
            y = torch.tanh(c + x)
            return y, y * 2

        return scan(step, torch.zeros(3), x)


class ScanBackwards(nn.Module):
    def forward(self, x):
        return scan(lambda c, x: (c * 0.5 + x, c.sum()), torch.ones(3), x, reverse=True)


class ScanOfTwo(nn.Module):
    def forward(self, x, y):
        def step(c, xy):
            a, b = c
            x, y = xy
            return (a + x, b * y), (a - b, x * y)

        return scan(step, (torch.zeros(3), torch.ones(3)), (x, y))


class ScanInScan(nn.Module):
    def forward(self, x):
        def inner(c, x):
            return c + x, c * x

        def outer(c, rows):
            last, ys = scan(inner, c, rows)
            return last * 0.5, ys.sum(0)

        return scan(outer, torch.zeros(3), x)


class ScanWithBranch(nn.Module):
    def forward(self, x):
        def step(c, x):
            c = cond(x.sum() > 0, lambda c, x: c + x, lambda c, x: c - 2 * x, (c, x))
            return c, c * 3

        return scan(step, torch.zeros(3), x)


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 5)

    def forward(self, x):
        def step(h, x):
            h = self.cell(x[None], h[None])[0]
            return h, h.clone()

        return scan(step, torch.zeros(5), x)


class Map(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x, s):
        return map_rows(lambda r, s: self.layer(r) * s, x, s)


class MapInMap(nn.Module):
    def forward(self, x):
        return map_rows(lambda rows: map_rows(lambda r: r.exp().sum() + r, rows), x)


class AssociativeScan(nn.Module):
    def forward(self, x):
        return associative_scan(lambda a, b: a * b + a, x, 0, combine_mode="generic")


class AssociativeScanBackwards(nn.Module):
    """Of five elements, which torch halves until a step has none."""

    def forward(self, x):
        return associative_scan(torch.maximum, x, 1, combine_mode="generic", reverse=True)


class AssociativeScanOfPairs(nn.Module):
    """A linear recurrence: the state space models' scan."""

    def forward(self, a, b):
        return associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (a, b), 0, combine_mode="generic")


def x(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def case(model, *args):
    return type(model).__name__, lambda: (model, args, {})


CASES = [
    ("Branch (yes)", lambda: (Branch(), (x(2, 4).abs(),), {})),
    ("Branch (no)", lambda: (Branch(), (-x(2, 4).abs(),), {})),
    case(BranchInBranch(), x(3).abs()),
    case(BranchBySize(), x(4)),
    case(Loop(), x(3), torch.tensor([2, 4])),
    case(LoopInLoop(), x(3)),
    case(LoopWithBranch(), x(2, 4)),
    case(Scan(), x(5, 3)),
    case(ScanBackwards(), x(5, 3)),
    case(ScanOfTwo(), x(4, 3), x(4, 3)),
    case(ScanInScan(), x(4, 2, 3)),
    case(ScanWithBranch(), x(6, 3)),
    case(Cell(), x(6, 3)),
    case(Map(), x(4, 3), x(2)),
    case(MapInMap(), x(4, 2, 3)),
    case(AssociativeScan(), x(7, 3)),
    case(AssociativeScanBackwards(), x(2, 5)),
    case(AssociativeScanOfPairs(), x(7, 3).sigmoid(), x(7, 3)),
]

if __name__ == "__main__":
    sys.exit(1 if cases.table(CASES, doc=__doc__) else 0)
