"""Operators whose results do not depend on the size of the file, and what the system gives to the program."""

from common import attack, graph, one_input, write

RUN = ("run m.fxir x=ones", "run m.fxir x=ones --interpret", "compile m.fxir", "check m.fxir")
BIG = (1 << 63) - 1
LARGE = 1 << 33
CALLS = {
    "repeat_interleave": [f"torch.repeat_interleave(%x, {LARGE})"],
    "repeat_interleave_tensor": [f"torch.full([2], {LARGE})", "torch.repeat_interleave(%a0)"],
    "pad": [f"torch.nn.functional.pad(%x, [1, {BIG}])"],
    "pad_large": [f"torch.nn.functional.pad(%x, [1, {LARGE}])"],
    "arange": [f"torch.arange({LARGE})"],
    "arange_max": [f"torch.arange({BIG})"],
    "full": [f"torch.full([{LARGE}], 1.0)"],
    "full_max": [f"torch.full([{BIG}, {BIG}], 1.0)"],
    "full_folded": [f"torch.full([{1 << 28}], 1.0)", "torch.cumsum(%a0, 0)"],
    "expand_sum": ["torch.unsqueeze(%x, 1)", f"torch.ops.aten.expand(%a0, [2, {1 << 40}])", "torch.sum(%a1)"],
    "expand_cumsum": ["torch.unsqueeze(%x, 1)", f"torch.ops.aten.expand(%a0, [2, {LARGE}])", "torch.cumsum(%a1, 1)"],
    "expand_sort": ["torch.unsqueeze(%x, 1)", f"torch.ops.aten.expand(%a0, [2, {LARGE}])", "torch.ops.aten.sort(%a1)"],
    "one_hot": ["torch.arange(2)", f"torch.nn.functional.one_hot(%a0, {LARGE})"],
    "one_hot_value": [f"torch.full([1], {LARGE})", "torch.nn.functional.one_hot(%a0)"],
    "unfold": [f"torch.ops.aten.expand(%x, [{1 << 20}, 2])", f"torch.ops.aten.unfold(%a0, 0, {1 << 19}, 1)", "torch.exp(%a1)"],
    "as_strided": [f"torch.as_strided(%x, [{1 << 20}, {1 << 20}], [0, 0])", "torch.exp(%a0)"],
    "as_strided_sum": [f"torch.as_strided(%x, [{1 << 20}, {1 << 20}], [0, 0])", "torch.sum(%a0)"],
    "cartesian_prod": [f"torch.arange({1 << 17})", "torch.cartesian_prod(%a0, %a0)"],
    "combinations": [f"torch.arange({1 << 17})", "torch.combinations(%a0, 3)"],
    "meshgrid": [f"torch.arange({1 << 17})", "torch.meshgrid(%a0, %a0)"],
    "tril_indices": [f"torch.tril_indices({1 << 20}, {1 << 20})"],
    "eye": [f"torch.eye({1 << 20})"],
    "outer": [f"torch.arange({1 << 18})", "torch.outer(%a0, %a0)"],
    "kron": [f"torch.arange({1 << 18})", "torch.kron(%a0, %a0)"],
    "repeat": [f"torch.ops.aten.repeat(%x, [{1 << 20}, {1 << 20}])"],
    "tile": [f"torch.tile(%x, [{LARGE}])"],
    "cdist": [f"torch.ones([{1 << 18}, 1])", "torch.cdist(%a0, %a0)"],
    "bincount": [f"torch.full([1], {LARGE})", "torch.bincount(%a0)"],
    "linspace": [f"torch.linspace(0, 1, {LARGE})"],
    "randn": [f"torch.randn([{LARGE}])"],
    "vander": [f"torch.vander(%x, {LARGE})"],
    "interpolate": ["torch.ones([1, 1, 2])", f"torch.nn.functional.interpolate(%a0, {LARGE})"],
    "matmul": [f"torch.ones([{1 << 18}, 1])", "torch.t(%a0)", "torch.matmul(%a0, %a1)"],
    "split": [f"torch.ops.aten.expand(torch.ones([1]), [{1 << 30}])"],
}


def define_calls():
    for name, calls in CALLS.items():
        def write_calls(calls=calls):
            lines = [f"%a{i} = call_function {c}" for i, c in enumerate(calls)]
            write("m.fxir", graph([*lines, f"output %a{len(calls) - 1}"]))
        write_calls.__name__ = "call_" + name
        attack(*RUN)(write_calls)


define_calls()


@attack("run m.fxir x=ones --dim N=3 --threads 100000", "bench m.fxir x=ones --dim N=3 --seconds 0.01 --threads 100000")
def threads():
    one_input()


@attack("run m.fxir x=ones --dim N=3", "check m.fxir", "explain E0101")
def little_memory():
    """Little more address space than the program itself: it says that it has too little memory."""
    one_input()
