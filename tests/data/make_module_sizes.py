"""What modules without weights give for inputs of which shapes: python make_module_sizes.py > module_sizes.txt

A line is `MODULE | TYPES OF INPUTS | TYPE OF THE RESULT`, the last `error` where torch refuses the inputs. The first line of a
module has inputs that fit; in those after it one size of one input is one more.
"""

import itertools
import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")
SHORT = {torch.float32: "f32", torch.float64: "f64", torch.int64: "i64"}

FLOATS = [
    ("Linear(4, 5)", [(2, 4)]),
    ("Linear(4, 5, bias=False)", [(4,)]),
    ("Bilinear(3, 4, 5)", [(2, 3), (2, 4)]),
    ("Conv1d(4, 6, 3, groups=2)", [(2, 4, 9)]),
    ("Conv2d(4, 6, (3, 2), bias=False, padding_mode='circular', padding=1)", [(2, 4, 9, 9)]),
    ("Conv2d(4, 6, 3, stride=2)", [(4, 9, 9)]),
    ("Conv3d(2, 4, 3)", [(1, 2, 5, 5, 5)]),
    ("ConvTranspose1d(4, 6, 3, groups=2)", [(2, 4, 9)]),
    ("ConvTranspose2d(4, 6, 3, stride=2)", [(2, 4, 9, 9)]),
    ("ConvTranspose3d(4, 6, 3)", [(2, 4, 3, 3, 3)]),
    ("BatchNorm1d(4)", [(2, 4)]),
    ("BatchNorm2d(4)", [(2, 4, 3, 3)]),
    ("BatchNorm2d(4, affine=False)", [(2, 4, 3, 3)]),
    ("BatchNorm3d(4)", [(2, 4, 3, 3, 3)]),
    ("InstanceNorm1d(4, affine=True)", [(2, 4, 3)]),
    ("InstanceNorm2d(4, track_running_stats=True)", [(2, 4, 3, 3)]),
    ("InstanceNorm3d(4)", [(2, 4, 3, 3, 3)]),
    ("LayerNorm(4)", [(2, 4)]),
    ("LayerNorm((3, 4))", [(2, 3, 4)]),
    ("RMSNorm(4)", [(2, 4)]),
    ("GroupNorm(2, 4)", [(2, 4, 3)]),
    ("PReLU()", [(2, 4)]),
    ("PReLU(4)", [(2, 4)]),
    ("LSTM(4, 5, 2, bidirectional=True)", [(3, 2, 4)]),
    ("LSTM(4, 5, 2, proj_size=3, batch_first=True)", [(3, 2, 4)]),
    ("GRU(4, 5, bias=False)", [(3, 2, 4)]),
    ("RNN(4, 5)", [(3, 2, 4)]),
    ("LSTMCell(4, 5)", [(2, 4)]),
    ("GRUCell(4, 5)", [(2, 4)]),
    ("RNNCell(4, 5)", [(2, 4), (2, 5)]),
    ("MultiheadAttention(8, 2)", [(3, 2, 8), (3, 2, 8), (3, 2, 8)]),
    ("MultiheadAttention(8, 2, kdim=4, vdim=6)", [(3, 2, 8), (5, 2, 4), (5, 2, 6)]),
    ("MultiheadAttention(8, 2, bias=False, add_bias_kv=True, batch_first=True)", [(3, 2, 8), (3, 2, 8), (3, 2, 8)]),
    ("TransformerEncoderLayer(8, 2, dim_feedforward=16)", [(3, 2, 8)]),
    ("TransformerDecoderLayer(8, 2, dim_feedforward=16)", [(3, 2, 8), (3, 2, 8)]),
]
INDICES = [("Embedding(10, 4)", [(2, 3)]), ("EmbeddingBag(10, 4)", [(2, 3)])]


def shown(v):
    if v is None:
        return "None"
    if isinstance(v, torch.Tensor):
        return f"{SHORT[v.dtype]}[{', '.join(map(str, v.shape))}]"
    items = ", ".join(shown(x) for x in v)
    return f"({items},)" if len(v) == 1 else f"({items})"


def variants(shapes):
    yield shapes
    for i, shape in enumerate(shapes):
        for d in range(len(shape)):
            more = list(shape)
            more[d] += 1
            yield [*shapes[:i], tuple(more), *shapes[i + 1 :]]


def main():
    cases = itertools.chain(((c, s, torch.randn) for c, s in FLOATS), ((c, s, None) for c, s in INDICES))
    for text, shapes, make in cases:
        module = eval(f"nn.{text}").eval()
        for given in variants(shapes):
            inputs = [make(s) if make else torch.zeros(s, dtype=torch.int64) for s in given]
            try:
                result = shown(module(*inputs))
            except (RuntimeError, ValueError, AssertionError):
                result = "error"
            print(f"{text} | {'; '.join(shown(i) for i in inputs)} | {result}")


if __name__ == "__main__":
    main()
