#!/usr/bin/env python3
"""Writes views.json, index.json and nn.json: what PyTorch gives for views, indexing, joining, conversions, products and
the ops of torch.nn. Run it in this folder; tests/ops/nn.rs compares every row with it."""
import math

import torch
import torch.nn.functional as F
from samples import Cases

torch.manual_seed(7)
nan, inf = math.nan, math.inf


def rand(*shape, dtype=torch.float32):
    """Normal numbers with two decimals, so that the file stays small."""
    return (torch.randn(shape) * 2).round(decimals=2).to(dtype)


def ints(low, high, *shape, dtype=torch.int64):
    return torch.randint(low, high, shape).to(dtype)


I = dict(
    s=torch.tensor(3.5), v=rand(6), m=rand(2, 3), t=rand(2, 3, 4), q=rand(2, 3, 4, 5), e=torch.zeros(0, 3),
    z=torch.zeros(2, 0, 3), u=rand(1, 3, 1, 2), i=torch.arange(24).reshape(2, 3, 4), h=rand(2, 4, dtype=torch.float16),
    b=torch.tensor([[True, False, True], [False, False, True]]), u8=ints(0, 255, 2, 6, dtype=torch.uint8),
    d=rand(3, 3, dtype=torch.float64), sq=rand(4, 4), c6=rand(1, 8, 2, 3),
)


def views():
    c = Cases(I)
    t, m, v, s, q, e, z, u, i, h, b = (I[k] for k in "t m v s q e z u i h b".split())
    for path in ("aten.view.default", "Tensor.view", "aten.reshape.default", "torch.reshape", "Tensor.reshape",
                 "aten._unsafe_view.default"):
        for x, size in [(t, [6, 4]), (t, [-1]), (t, [2, -1, 2]), (s, [1, 1]), (s, []), (e, [3, 0]), (e, [0, -1]), (z, [0]),
                        (t, [5, 5]), (t, [-1, -1]), (t, [-2, 3]), (t, [-1, 7]), (i, [4, 6]), (v, [6])]:
            c.add(path, x, size)
    c.add("Tensor.view", t, 6, 4)
    c.add("Tensor.view", t, -1)
    c.add("Tensor.reshape", t, 4, -1)
    c.add("Tensor.view_as", t, i)
    c.add("Tensor.reshape_as", t, i)
    for path in ("aten.flatten.using_ints", "torch.flatten", "Tensor.flatten"):
        for a in [(), (1,), (1, 2), (0, 1), (-2, -1), (2, 1), (0, 5)]:
            c.add(path, t, *a)
        c.add(path, s)
        c.add(path, e, 0)
    c.add("torch.ravel", t)
    for a in [(1, [3, 1]), (2, [2, -1]), (-1, [4]), (2, [3, 2]), (0, [])]:
        c.add("aten.unflatten.int", t, *a)
        c.add("Tensor.unflatten", t, *a)
    for x in (u, t, s, z):
        c.add("torch.squeeze", x)
        c.add("Tensor.squeeze", x, 0)
        c.add("aten.squeeze.dim", x, -1)
        c.add("aten.squeeze.dims", x, [0, 2])
        for d in (0, -1, 1, 9):
            c.add("torch.unsqueeze", x, d)
    for n in ("atleast_1d", "atleast_2d", "atleast_3d"):
        for x in (s, v, m, t):
            c.add(f"torch.{n}", x)
    for dims in ([2, 0, 1], [-1, 0, 1], [0, 1], [0, 0, 1], [0, 1, 3]):
        c.add("aten.permute.default", t, dims)
        c.add("torch.permute", t, dims)
    c.add("Tensor.permute", t, 1, 2, 0)
    for a in [(0, 1), (-1, 0), (1, 1), (0, 3)]:
        c.add("aten.transpose.int", t, *a)
        c.add("torch.swapaxes", t, *a)
        c.add("Tensor.swapdims", i, *a)
    for x in (s, v, m, t):
        c.add("torch.t", x)
        c.add("aten.numpy_T.default", x)
        c.add("aten.mT.default", x)
    for a in [(0, 2), (2, 0), ([0, 1], [2, 0]), ([0, 1], [1, 1]), (-1, 0), ([0], [1, 2])]:
        c.add("torch.movedim", q, *a)
    for dims in ([0], [0, 2], [-1], [], [0, 0], [3]):
        c.add("torch.flip", t, dims)
        c.add("aten.flip.default", i, dims)
    c.add("Tensor.flip", t, 0, 1)
    c.add("torch.fliplr", m)
    c.add("torch.flipud", v)
    big = 9223372036854775807
    for a in [(0, 1), (1, 1, 3), (2, -2), (2, 0, -1), (2, 0, big, 2), (2, 1, 4, 3), (1, 5, 9), (1, 2, 1), (2, -9, 9), (0, 0, 2, 0),
              (3, 0, 1), (-1, None, 3), (2, 3, None, 2), (2, 0, -9)]:
        c.add("aten.slice.Tensor", t, *a)
    c.add("aten.slice.Tensor", s, 0)
    for a in [(0, 1), (1, -1), (2, 4), (-1, 0), (0, -3), (3, 0)]:
        c.add("aten.select.int", t, *a)
        c.add("torch.select", i, *a)
    c.add("torch.select", s, 0, 0)
    for a in [(1, 1, 2), (2, -2, 1), (1, 2, 2), (0, 0, 0), (0, 0, -1)]:
        c.add("torch.narrow", t, *a)
    for a in [(), (1,), (-1,), (5,), (0, 1, 2), (1, -1, 0), (0, 1, 1)]:
        c.add("torch.diagonal", t, *a)
        c.add("aten.diagonal.default", q, *a)
    for a in [(2, 2, 1), (2, 3, 2), (1, 3, 1), (0, 5, 1), (0, 1, 0), (-1, 4, 4)]:
        c.add("Tensor.unfold", t, *a)
    c.add("aten.unfold.default", s, 0, 1, 1)
    for a in [([2, 2], [1, 2]), ([3], [0], 2), ([2, 3], [3, 1], 1), ([], [], 4), ([9], [9]), ([2], [1, 1])]:
        c.add("torch.as_strided", t, *a)
    for x, size in [(u, [4, 3, 5, 2]), (u, [-1, 3, -1, 2]), (m, [4, 2, 3]), (m, [4, 2, -1]), (m, [-1, 2, 3]), (m, [3]), (m, [2, 4]),
                    (s, [2, 2]), (u, [1, 3, 0, 2]), (e, [2, 0, 3])]:
        c.add("aten.expand.default", x, size)
        c.add("torch.broadcast_to", x, size)
    c.add("Tensor.expand", u, 4, 3, 5, 2)
    c.add("Tensor.expand_as", s, t)
    for n in ("alias", "detach", "contiguous", "clone", "lift_fresh_copy"):
        c.add(f"aten.{n}.default", t)
    more_views(c)
    c.write("views.json")


def more_views(c):
    t, m, v, s, q, e, z, u, i, h, b = (I[k] for k in "t m v s q e z u i h b".split())
    for path in ("torch.split", "Tensor.split"):
        for a in [(2, 2), (3, 2), (9,), (0,), ([1, 2], 1), ([1, 1], 1), ([4], -1), (-1,), ([5, -1], 2)]:
            c.add(path, t, *a)
        c.add(path, e, 0)
        c.add(path, s, 1)
    c.add("aten.split_with_sizes.default", t, [1, 3], 2)
    for a in [(2, 2), (3, 2), (9, 1), (0,), (2, 1)]:
        c.add("torch.chunk", t, *a)
        c.add("torch.tensor_split", t, *a)
    c.add("torch.chunk", e, 3)
    c.add("torch.tensor_split", t, [1, 2], 2)
    c.add("torch.tensor_split", t, [0, 9, 2], 2)
    for d in (0, 1, -1, 5):
        c.add("torch.unbind", t, d)
    c.add("torch.unbind", s)
    for n in ("hsplit", "vsplit", "dsplit"):
        for a in (2, 3, [1], [1, 2]):
            for x in (v, m, t, s):
                c.add(f"torch.{n}", x, a)
    for a in [(1,), (-2,), (7, 0), (1, 2), ([1, 2], [0, 2]), ([1, 2], 0), (-1, [1])]:
        c.add("torch.roll", t, *a)
    c.add("torch.roll", s, 1)
    c.add("torch.roll", e, 1, 0)
    for k in (-1, 0, 1, 2, 3, 6):
        c.add("torch.rot90", m, k)
        c.add("torch.rot90", t, k, [1, 2])
    for r in ([2, 1, 1], [1, 2, 1, 3], [0, 1, 1], [2, 2], [1, 1, -1]):
        c.add("Tensor.repeat", t, r)
        c.add("torch.tile", t, r)
    c.add("torch.tile", t, [2])
    c.add("Tensor.repeat", s, 3)
    for a in [(2,), (2, 1), (0, 0), (3, -1), (-1,)]:
        c.add("torch.repeat_interleave", t, *a)
    for r in (torch.tensor([1, 0, 2]), torch.tensor([2]), torch.tensor(3), torch.tensor([1, 2]), torch.tensor([1, -1, 0])):
        c.add("torch.repeat_interleave", t, r, 1)
    c.add("torch.repeat_interleave", torch.tensor([1, 0, 3]))
    c.add("torch.pixel_shuffle", I["c6"], 2)
    c.add("torch.pixel_shuffle", t, 2)
    c.add("torch.pixel_unshuffle", rand(1, 2, 4, 6), 2)
    c.add("torch.pixel_unshuffle", q, 3)
    c.add("torch.channel_shuffle", I["c6"], 4)
    c.add("torch.channel_shuffle", I["c6"], 3)
    for a in [(), (1,), (-2,)]:
        c.add("torch.diag", v, *a)
        c.add("torch.diag", m, *a)
        c.add("torch.diag_embed", m, *a)
        c.add("torch.diagflat", m, *a)
    c.add("torch.diag_embed", m, 1, 0, 2)
    c.add("torch.trace", I["sq"])
    c.add("torch.trace", i[0])
    for a in [(0, 1, 2), (1, 0, 9, 2), (2, -1), (2, 0, 0)]:
        part = torch.ops.aten.slice.Tensor(t, *a)
        c.add("aten.slice_scatter.default", t, rand(*part.shape), *a)
    c.add("aten.slice_scatter.default", t, rand(1, 3, 4), 0, 0, 2)
    c.add("aten.select_scatter.default", t, rand(2, 4), 1, -1)
    c.add("aten.select_scatter.default", t, rand(2, 3), 1, -1)
    c.add("aten.diagonal_scatter.default", t, rand(2, 2), 1, 1, 2)
    c.add("aten.diagonal_scatter.default", t, rand(4, 2), 0, 0, 1)
    c.add("aten.as_strided_scatter.default", t, rand(2, 2), [2, 2], [12, 3], 1)
    for k in ("xy", "ij"):
        c.add("torch.meshgrid", [v, rand(3)], indexing=k)
        c.add("torch.meshgrid", [v, rand(3), rand(2)], indexing=k)
    c.add("torch.broadcast_tensors", m, s, rand(2, 1, 3))
    c.add("torch.cartesian_prod", rand(2), rand(3))
    # Names of what tensors are.
    for x in (t, s, e, i):
        for n in ("shape", "ndim", "dtype", "device", "T", "mT", "is_cuda", "itemsize"):
            c.add("builtins.getattr", x, n)
        c.add("Tensor.size", x)
        c.add("Tensor.size", x, 0)
        c.add("Tensor.size", x, -1)
        c.add("Tensor.dim", x)
        c.add("Tensor.numel", x)
        c.add("builtins.len", x)
        c.add("torch.is_floating_point", x)
    c.add("operator.getitem", (1, 2, 3), -1)
    c.add("operator.getitem", [1, 2, 3], slice(None, None, -1))
    c.add("operator.getitem", [1, 2, 3], slice(-2, 9))
    for d in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool):
        for x in (rand(2, 2) * 40, i, b, h):
            c.add("Tensor.to", x, d)
        c.add("aten._to_copy.default", t, dtype=d)
        c.add("aten.to.dtype_layout", m, dtype=d, layout=torch.strided, device=torch.device("cpu"))
        c.add("prims.convert_element_type.default", m, d)
    for n in "double float half bfloat16 long int short char byte bool".split():
        c.add(f"Tensor.{n}", rand(4) * 100)
    c.add("Tensor.to", m, i)
    c.add("Tensor.to", m, "cpu")
    c.add("Tensor.to", m, "cpu", torch.int64)
    c.add("Tensor.type_as", m, i)
    for x, d in [(m, torch.int32), (h, torch.float32), (i, torch.int32), (I["u8"], torch.int16), (rand(3, dtype=torch.float16), torch.float32)]:
        c.add("aten.view.dtype", x, d)
    c.add("Tensor.item", s)
    c.add("Tensor.item", torch.tensor([[7]]))
    c.add("Tensor.item", torch.tensor(True))
    c.add("Tensor.item", m)
    for data in ([1, 2], [[1, 2.5], [True, 4]], [True, False], [], [[], []], (1, 2)):
        c.add("torch.tensor", data)
    c.add("torch.tensor", [1, 2], dtype=torch.float64)
    c.add("torch.as_tensor", [[1.5], [2]], torch.int32)
    c.add("torch.as_tensor", m, torch.float64)
    c.add("aten._assert_tensor_metadata.default", i, None, None, torch.int64)


def index():
    c = Cases(I)
    t, m, v, s, q, e, z, u, i, h, b = (I[k] for k in "t m v s q e z u i h b".split())
    ix = torch.tensor
    E = Ellipsis
    basic = [0, -1, 2, slice(None), slice(1, 2), slice(None, None, 2), None, E, (0, 1), (E, 1), (0, E, 2), (slice(None), None, 1),
             (slice(0, 0),), (None, None), (0, 1, 2), (0, 1, 2, 3), True, False, (E, slice(-2, None)), (E, None), slice(0, 9, 3),
             (slice(None), slice(5, 9)), slice(None, None, -1), (0, 5)]
    tensors = [ix([1, 0, 1]), ix([[0, 1], [1, 0]]), (ix([0, 1]), ix([2, 0])), (slice(None), ix([2, 0, 0])), (ix([0, 1]), slice(None), ix([3, 1])),
               (slice(None), ix([0]), ix([1, 2])), (E, ix([3, -1])), [0, 1], [1, 1, 0], (0, [1, 2]), ([0, 1], [2, 2]), ix(1), (slice(None), ix(2)), ix([5]),
               (ix([0, 1, 0]), ix([0, 1])), ix([], dtype=torch.int64), (None, ix([0])), (ix([[0], [1]]), ix([0, 2])), ix([0, 1], dtype=torch.int32),
               (slice(1, None), ix([1]), None)]
    masks = [ix([True, False]), ix([[True, False, True], [False, True, False]]), t > 0, (0, ix([True, False, True])),
             (slice(None), ix([True, True, False])), (ix([True, True]), ix([0, 1])), ix([True, False, True]), [True, False], t > 99]
    for n in basic + tensors + masks:
        c.add("operator.getitem", t, n)
    for n in (E, None, 0, (), True):
        c.add("operator.getitem", s, n)
    c.add("operator.getitem", e, 0)
    c.add("operator.getitem", e, slice(None))
    for n in [0, slice(1, 2), (slice(None), 1), (E, slice(None, None, 2)), ix([0, 1]), (slice(None), ix([2, 0])), t > 0, ix([True, False]),
              (0, 1, 2), E, None, (slice(None), None, 1), [1, 0]]:
        for value in (5, 2.5, s, rand(4), rand(3, 4), rand(1, 1, 4)):
            c.setitem(t, n, value)
    c.setitem(i, 0, 7.9)
    c.setitem(t, (0, 1), rand(1, 1, 4))
    for idx in ([ix([1, 0])], [None, ix([1, 2, 0])], [ix([0, 1]), None, ix([1, 3])], [ix([[0], [1]]), ix([0, 1])], [None, None, ix([0])],
                [ix([3])], [ix([0.5])], [b[0:2, 0:1].squeeze(1)], [t > 0]):
        c.add("aten.index.Tensor", t, idx)
    for idx, val in [([ix([1, 0])], rand(2, 3, 4)), ([ix([1, 1])], rand(1)), ([None, ix([0, 0])], rand(2, 4)), ([ix([0, 1]), ix([0, 0])], rand(4)),
                     ([t > 0], s), ([ix([0])], rand(2, 3, 4)), ([ix([0])], i)]:
        for acc in (False, True):
            c.add("aten.index_put.default", t, idx, val, acc)
    for d, idx in [(0, ix([1, 0, 1])), (1, ix([2])), (-1, ix([0, 3], dtype=torch.int32)), (2, ix(1)), (0, ix([2])), (0, ix([[0]])), (0, ix([0.5])), (1, ix([], dtype=torch.int64))]:
        c.add("torch.index_select", t, d, idx)
    c.add("torch.index_select", s, 0, ix([0]))
    for d, idx in [(2, ints(0, 4, 2, 3, 2)), (0, ints(0, 2, 1, 2, 3)), (1, ints(0, 3, 2, 5, 4)), (1, ints(0, 3, 3, 5, 4)), (0, ix([[[5]]])), (0, ix([0]))]:
        c.add("torch.gather", t, d, idx)
        c.add("torch.scatter", t, d, idx, rand(*idx.shape))
        c.add("torch.scatter", t, d, idx, 9.5)
        c.add("torch.scatter_add", t, d, idx, rand(*idx.shape))
        for r in ("sum", "prod", "mean", "amax", "amin"):
            for inc in (True, False):
                c.add("torch.scatter_reduce", t, d, idx, rand(*idx.shape), r, include_self=inc)
    c.add("torch.gather", s, 0, ix(0))
    c.add("torch.scatter", i, 0, ix([[[1]]]), 5)
    c.add("torch.scatter", t, 0, ix([[[1]]]), rand(2, 3, 4))
    c.add("torch.scatter", t, 0, ix([[[1]]]), i)
    c.add("Tensor.scatter", t, 1, ix([[[1]]]), rand(1, 1, 1), reduce="multiply")
    for d, idx, src in [(0, ix([1, 1]), rand(2, 3, 4)), (1, ix([0, 2]), rand(2, 2, 4)), (2, ix([3]), rand(2, 3, 1)), (0, ix([0]), rand(1, 3, 3)), (0, ix([2]), rand(1, 3, 4))]:
        c.add("torch.index_add", t, d, idx, src)
        c.add("torch.index_add", t, d, idx, src, alpha=2)
        c.add("torch.index_copy", t, d, idx, src)
        c.add("torch.index_fill", t, d, idx, 3)
    c.add("torch.take", t, ix([[0, 23], [-1, 5]]))
    c.add("torch.take", t, ix([24]))
    c.add("torch.take_along_dim", t, ints(0, 4, 2, 1, 2), 2)
    c.add("torch.take_along_dim", t, ix([3, 1]))
    c.add("torch.argwhere", b)
    for x in (b, m, s, e, ix([0, 3, 0, 1])):
        c.add("torch.nonzero", x)
        c.add("torch.nonzero", x, as_tuple=True)
    c.add("torch.nonzero_static", b, size=5)
    c.add("torch.where", b)
    c.add("torch.masked_select", m, b)
    c.add("torch.masked_select", m, b[0])
    c.add("torch.masked_select", m, i[0, 0])
    c.add("torch.masked_scatter", m, b, v)
    c.add("torch.masked_scatter", m, b, rand(1))
    c.add("torch.nn.functional.one_hot", ix([[0, 2], [1, 1]]), 3)
    c.add("torch.nn.functional.one_hot", ix([0, 2]))
    c.add("torch.nn.functional.one_hot", ix([0, 3], dtype=torch.int32), 4)
    for x in (t, i, m, s, e, b, ix([3.0, nan, -1.0, inf, nan, -inf, 0.0, -0.0]), ix([2, 1, 2, 1, 2, 0])):
        for d in (False, True):
            c.add("aten.sort.stable", x, stable=True, dim=-1, descending=d)
            c.add("aten.argsort.stable", x, stable=True, dim=0, descending=d)
        c.add("torch.msort", x)
    for a in [(2,), (3, 1), (1, 0, False), (0,), (5,), (2, -1, False)]:
        c.add("torch.topk", t, *a)
    c.add("torch.topk", ix([1.0, nan, 3.0]), 2)
    c.add("torch.topk", s, 1)
    for a in [(1,), (3, 1), (2, 0, True), (0,), (9,)]:
        c.add("torch.kthvalue", t, *a)
    edges = ix([0.0, 1.0, 1.0, 3.0])
    for right in (False, True):
        c.add("torch.searchsorted", edges, rand(2, 3), right=right)
        c.add("torch.searchsorted", edges, ix([1.0, 0.0, nan, 3.0, 9.0]), right=right)
        c.add("torch.bucketize", rand(2, 3), edges, right=right)
        c.add("torch.searchsorted", ix([[1, 3, 5], [2, 4, 6]]), ix([[3, 6], [0, 4]]), right=right, out_int32=True)
        c.add("torch.searchsorted", edges, 1.0, right=right)
    c.add("torch.searchsorted", ix([[1, 3, 5], [2, 4, 6]]), ix([3, 6, 7]))
    for a in [(5,), (4, -1, 1), (3, 0, 0), (4, 2, -2)]:
        c.add("torch.histc", rand(20), *a)
    c.add("torch.bincount", ix([1, 4, 1, 0]))
    c.add("torch.bincount", ix([1, 4, 1, 0]), rand(4), 7)
    c.add("torch.bincount", ix([-1]))
    c.add("aten._unique2.default", ix([3, 1, 3, 2]), True, True, True)
    c.add("torch.isin", i, ix([3, 5, 77]))
    c.add("torch.isin", i, 4, invert=True)
    joins(c, t, m, v, s, e, i, h, b)
    c.write("index.json")


def joins(c, t, m, v, s, e, i, h, b):
    for path in ("torch.cat", "aten.cat.default"):
        for xs, d in [([m, m], 0), ([m, rand(2, 1)], 1), ([m, rand(2, 1)], -1), ([m, rand(2, 1)], 0), ([m, i[0, :2, :3]], 0), ([m, b], 0), ([h, rand(2, 4)], 0),
                      ([torch.zeros(0), m], 0), ([torch.zeros(0), m], 1), ([torch.zeros(0)], 0), ([m, t], 0), ([s, s], 0), ([], 0), ([e, m], 0), ([m], 3), ([v, v, v], 0)]:
            c.add(path, xs, d)
    for xs, d in [([m, m], 0), ([m, m], 2), ([m, m], -1), ([s, s, s], 0), ([m, v], 0), ([m, i[0, :2, :3]], 1), ([], 0)]:
        c.add("torch.stack", xs, d)
    for n in ("hstack", "vstack", "dstack", "column_stack"):
        for xs in ([v, v], [m, m], [s, s], [t, t], [v, rand(6, 2)]):
            c.add(f"torch.{n}", xs)
    w = rand(7, 3)
    for idx in (torch.tensor([0, 6, 3]), torch.tensor([[1, 2], [3, 4]]), torch.tensor(5), torch.tensor([7]), torch.tensor([-1]), torch.tensor([0.5]), torch.zeros(0, dtype=torch.int64)):
        c.add("aten.embedding.default", w, idx)
        c.add("torch.nn.functional.embedding", idx, w)
    idx, off = torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 2, 2, 5])
    for mode in ("sum", "mean", "max"):
        c.add("torch.nn.functional.embedding_bag", idx, w, off, mode=mode)
        c.add("torch.nn.functional.embedding_bag", idx.reshape(2, 3), w, mode=mode)
        c.add("torch.nn.functional.embedding_bag", idx, w, off, mode=mode, padding_idx=4)
        c.add("torch.nn.functional.embedding_bag", idx, w, torch.tensor([0, 3, 6]), mode=mode, include_last_offset=True)
    c.add("torch.nn.functional.embedding_bag", idx, w, off, mode="sum", per_sample_weights=rand(6))
    for x in (v, m, t, rand(1, 2, 3, 4), rand(1, 1, 2, 3, 4)):
        for pad in ([1, 2], [1, 1, 2, 0], [-1, 2], [0, 0, -1, 1], [1, 0, 0, 1, 1, 1], [3, 3], [9, 0], [1]):
            c.add("torch.nn.functional.pad", x, pad)
            c.add("torch.nn.functional.pad", x, pad, value=-0.0)
            for mode in ("reflect", "replicate", "circular"):
                if x.dim() == 4 and pad == [-1, 2] or x.dim() == len(pad) // 2 + 1 or x.dim() == len(pad) // 2 + 2:
                    c.add("torch.nn.functional.pad", x, pad, mode)
    c.add("aten.constant_pad_nd.default", i, [1, 1], 7)
    c.add("aten.constant_pad_nd.default", b, [1, 1], 1)


def products(c):
    t = rand(2, 3, 4)
    for a, b in [((2, 3), (3, 4)), ((2, 3), (4, 5)), ((0, 3), (3, 4)), ((2, 0), (0, 4)), ((3,), (3, 2)), ((2, 3), (3,))]:
        for d in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
            x, y = rand(*a, dtype=d), rand(*b, dtype=d)
            c.add("torch.mm", x, y)
            c.add("torch.matmul", x, y)
    c.add("torch.mm", rand(2, 3), rand(3, 2, dtype=torch.float64))
    c.add("torch.mm", rand(2, 3) > 0, rand(3, 2) > 0)
    for a, b in [((3,), (3,)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 3)), ((5, 1, 2, 3), (4, 3, 2)), ((2, 3, 4), (3, 4, 5)),
                 ((3,), (4,)), ((2, 3), (4,)), ((), (3,)), ((5, 4, 3), (2, 4)), ((0, 2, 3), (3, 2)), ((4, 2, 3), (1, 3, 5))]:
        c.add("torch.matmul", rand(*a), rand(*b))
        c.add("operator.matmul", rand(*a), rand(*b))
    for a, b in [((2, 3, 4), (2, 4, 2)), ((2, 3, 4), (2, 5, 6)), ((2, 3, 4), (3, 4, 6)), ((2, 3), (3, 4, 6)), ((0, 3, 4), (0, 4, 2))]:
        c.add("torch.bmm", rand(*a), rand(*b))
        c.add("torch.baddbmm", rand(3, 1), rand(*a), rand(*b), beta=0.5, alpha=2)
        c.add("torch.addbmm", rand(3, 1), rand(*a), rand(*b), beta=0.5, alpha=2)
    for bias in (rand(4), rand(2, 4), rand(2, 1), torch.tensor(1.5), rand(3), rand(4, dtype=torch.float64), torch.tensor([nan, 1, 2, 3])):
        c.add("torch.addmm", bias, rand(2, 3), rand(3, 4))
        c.add("torch.addmm", bias, rand(2, 3), rand(3, 4), beta=0, alpha=-1)
        c.add("torch.nn.functional.linear", rand(2, 3), rand(4, 3), bias)
    c.add("torch.addmm", ints(0, 9, 4), ints(0, 9, 2, 3), ints(0, 9, 3, 4), beta=2, alpha=3)
    for a, b in [((2, 3), (3,)), ((2, 3), (4,)), ((2,), (4,))]:
        c.add("torch.mv", rand(*a), rand(*b))
        c.add("torch.addmv", rand(2), rand(*a), rand(*b), beta=2)
    for a, b in [((3,), (3,)), ((3,), (4,)), ((3, 1), (3,))]:
        c.add("torch.dot", rand(*a), rand(*b))
        c.add("torch.inner", rand(*a), rand(*b))
    c.add("torch.dot", rand(3), ints(0, 3, 3))
    for x, w, b in [((2, 3), (5, 4), None), ((2, 3, 4), (5, 4), (5,)), ((3,), (5, 3), (5,)), ((2, 3), (3,), None), ((3,), (3,), ()), ((0, 3), (2, 3), (2,)), ((), (5, 3), None)]:
        c.add("torch.nn.functional.linear", rand(*x), rand(*w), rand(*b) if b is not None else None)
    c.add("torch.outer", rand(2), rand(3))
    c.add("torch.outer", rand(2, 2), rand(3))
    c.add("torch.addr", rand(2, 3), rand(2), rand(3), beta=2, alpha=3)
    for dims in (0, 1, 2, ([0, 1], [1, 0]), ([2], [0]), 4):
        c.add("torch.tensordot", rand(2, 3, 4), rand(4, 3, 2) if dims != 2 else rand(3, 4, 5), dims)
    c.add("torch.kron", rand(2, 3), rand(2, 2))
    c.add("torch.kron", rand(2), rand(3, 2, 2))
    c.add("torch.nn.functional.bilinear", rand(2, 3), rand(2, 4), rand(5, 3, 4), rand(5))
    c.add("torch.linalg.multi_dot", [rand(2, 3), rand(3, 4), rand(4, 2)])
    c.add("torch.linalg.vecdot", rand(2, 3), rand(2, 3))
    c.add("torch.matrix_power", rand(3, 3), 3)
    c.add("torch.matrix_power", rand(3, 3), 0)
    for eq, *shapes in [("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 2)), ("i,j->ij", (2,), (3,)), ("ii->i", (3, 3)),
                        ("ii", (3, 3)), ("ij->ji", (2, 3)), ("ij->", (2, 3)), ("...ij,...jk->...ik", (2, 3, 4), (4, 2)), ("bhid,bhjd->bhij", (1, 2, 3, 4), (1, 2, 2, 4)),
                        ("i,i->i", (3,), (3,)), ("i,i", (3,), (3,)), ("ab,bc,cd->ad", (2, 3), (3, 2), (2, 4)), ("...i->...", (2, 3)), ("b i, i -> b", (2, 3), (3,)),
                        ("ijk,kj->i", (2, 3, 4), (4, 3)), ("aij,ajk->aki", (2, 3, 4), (2, 4, 2)), ("iji->j", (3, 2, 3)), ("ba", (2, 3)), ("ij,ij->ij", (2, 1), (2, 3)),
                        ("ij,jk->il", (2, 3), (3, 4)), ("ij,jk->ik", (2, 3), (4, 5)), ("ij->ii", (3, 3)), ("ijk->ij", (2, 3)), ("i...,...->i", (2, 3), (3,)), ("nhwc,kc->nhwk", (1, 2, 2, 3), (4, 3))]:
        c.add("torch.einsum", eq, *[rand(*s) for s in shapes])


def convolutions(c):
    def one(n, x, w, b=None, path=None, d=torch.float32, **k):
        c.add(path or f"torch.nn.functional.conv{n}d", rand(*x, dtype=d), rand(*w, dtype=d), rand(b, dtype=d) if b else None, **k)

    one(2, (1, 3, 5, 6), (4, 3, 3, 3), 4)
    one(2, (2, 3, 5, 6), (4, 3, 3, 2), 4, stride=2, padding=(1, 0), dilation=(1, 2))
    one(2, (1, 4, 5, 5), (4, 2, 3, 3), 4, groups=2, padding=1)
    one(2, (1, 4, 4, 4), (4, 1, 3, 3), None, groups=4)
    one(2, (3, 5, 5), (2, 3, 3, 3), 2)
    for d in (torch.float64, torch.bfloat16, torch.int64):
        one(2, (1, 2, 4, 4), (3, 2, 3, 3), 3, d=d)
    for p in ("same", "valid"):
        one(2, (1, 2, 5, 5), (3, 2, 3, 4), 3, padding=p)
        one(1, (1, 2, 6), (3, 2, 4), 3, padding=p, dilation=2)
    one(2, (1, 2, 5, 5), (3, 2, 3, 4), 3, padding="same", stride=2)
    one(2, (1, 2, 5, 5), (3, 2, 3, 4), 3, padding="foo")
    one(1, (2, 3, 7), (4, 3, 3), 4, stride=2, padding=1)
    one(3, (1, 2, 4, 3, 4), (2, 2, 2, 2, 3), 2, padding=(0, 1, 1))
    one(2, (0, 2, 4, 4), (3, 2, 3, 3), 3)
    for x, w, b, k in [((1, 3, 8, 8), (4, 2, 3, 3), None, {}), ((1, 3, 2, 2), (4, 3, 3, 3), None, {}), ((1, 3, 8, 8), (4, 3, 3, 3), 5, {}), ((8, 8), (4, 3, 3, 3), None, {}),
                       ((1, 4, 8, 8), (3, 2, 3, 3), None, {"groups": 2}), ((1, 4, 8, 8), (4, 4, 3, 3), None, {"padding": -1}), ((1, 4, 8, 8), (4, 4, 3, 3), None, {"stride": 0}),
                       ((1, 4, 8, 8), (4, 4, 3, 3), None, {"groups": 0})]:
        c.error("torch.nn.functional.conv2d", rand(*x), rand(*w), rand(b) if b else None, **k)
    tr = "torch.nn.functional.conv_transpose%dd"
    one(2, (1, 3, 3, 4), (3, 2, 3, 3), 2, tr % 2)
    one(2, (1, 4, 3, 4), (4, 2, 3, 2), 4, tr % 2, stride=2, padding=1, output_padding=1, groups=2)
    one(2, (3, 3, 4), (3, 2, 3, 3), 2, tr % 2, dilation=2)
    one(1, (1, 3, 4), (3, 2, 3), 2, tr % 1, stride=2)
    one(3, (1, 2, 2, 2, 3), (2, 1, 2, 2, 2), 1, tr % 3, stride=2)
    c.error(tr % 2, rand(1, 3, 8, 8), rand(4, 2, 3, 3))
    c.error(tr % 2, rand(1, 4, 8, 8), rand(4, 2, 3, 3), rand(3))
    c.add("aten.convolution.default", rand(1, 2, 4, 4), rand(3, 2, 3, 3), rand(3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    c.add("aten.convolution.default", rand(1, 2, 4, 4), rand(2, 3, 3, 3), None, [2, 2], [1, 1], [1, 1], True, [1, 1], 1)


def norms(c):
    q, t, m = rand(2, 4, 3, 2), rand(2, 3, 4), rand(3, 4)
    special = torch.tensor([[nan, 1, 2], [inf, 1, 2], [-inf, 1, 2], [-inf, -inf, -inf], [3, 3, 3]])
    for n in ("softmax", "log_softmax"):
        for d in (0, 1, -1, 5):
            c.add(f"torch.{n}", t, d)
        c.add(f"torch.{n}", special, 1)
        c.add(f"torch.{n}", torch.tensor(2.0), 0)
        c.add(f"torch.{n}", torch.zeros(2, 0), 1)
        c.add(f"torch.{n}", torch.zeros(0, 2), 1)
        c.add(f"torch.{n}", rand(2, 4, dtype=torch.float16), -1)
        c.add(f"torch.{n}", rand(2, 4, dtype=torch.bfloat16), -1)
        c.add(f"torch.{n}", ints(0, 9, 2, 3), -1, torch.float32)
        c.error(f"torch.{n}", ints(0, 9, 2, 3), -1)
        c.add(f"torch.nn.functional.{n}", t, dim=1, _stacklevel=3, dtype=torch.float64)
        c.add(f"aten._{n}.default", t, 2, False)
    c.add("torch.nn.functional.softmin", t, dim=1)
    c.add("aten._safe_softmax.default", special, 1)
    w, b = rand(4), rand(4)
    for x in (t, m, rand(2, 4, dtype=torch.float64), torch.zeros(0, 4), torch.full((2, 4), 3.0)):
        ww, bb = w.to(x.dtype), b.to(x.dtype)
        c.add("torch.nn.functional.layer_norm", x, [4])
        c.add("torch.nn.functional.layer_norm", x, [4], ww, bb, 1e-3)
        c.add("aten.native_layer_norm.default", x, [4], ww, bb, 1e-5)
        c.add("torch.nn.functional.rms_norm", x, [4], ww)
        c.add("torch.nn.functional.rms_norm", x, [4], None, 1e-3)
    c.add("torch.nn.functional.layer_norm", t, [3, 4])
    c.add("torch.nn.functional.layer_norm", t, [3, 4], rand(3, 4))
    c.error("torch.nn.functional.layer_norm", t, [3])
    c.add("torch.nn.functional.group_norm", q, 2, w, b)
    c.add("torch.nn.functional.group_norm", q, 4)
    c.add("torch.nn.functional.group_norm", rand(2, 4), 2)
    c.error("torch.nn.functional.group_norm", q, 3)
    c.add("aten.native_group_norm.default", q, w, b, 2, 4, 6, 2, 1e-5)
    mean, var = rand(4), rand(4).abs() + 0.1
    for x in (q, rand(3, 4), rand(2, 4, 5), rand(1, 4, 2, 1, 2), rand(2, 4, 2, dtype=torch.float64)):
        a = [v.to(x.dtype) for v in (mean, var, w, b)]
        c.add("torch.nn.functional.batch_norm", x, *a)
        c.add("torch.nn.functional.batch_norm", x, a[0], a[1], None, None, False, 0.1, 1e-3)
        c.add("torch.nn.functional.batch_norm", x, None, None, a[2], a[3], True)
        c.add("aten._native_batch_norm_legit_no_training.default", x, a[2], a[3], a[0], a[1], 0.1, 1e-5)
        if x.dim() > 2:
            c.add("torch.nn.functional.instance_norm", x, weight=a[2], bias=a[3])
            c.add("torch.nn.functional.instance_norm", x, a[0], a[1], use_input_stats=False)
            c.add("torch.nn.functional.local_response_norm", x, 3)
    c.add("aten._native_batch_norm_legit.no_stats", q, w, b, True, 0.1, 1e-5)
    c.add("torch.nn.functional.normalize", t, dim=-1)
    c.add("torch.nn.functional.normalize", t, p=1.0)
    c.add("torch.nn.functional.normalize", torch.zeros(2, 3))
    qq, k, v = rand(2, 2, 3, 4), rand(2, 2, 5, 4), rand(2, 2, 5, 4)
    sd = "torch.nn.functional.scaled_dot_product_attention"
    c.add(sd, qq, k, v)
    c.add(sd, qq, k, v, is_causal=True)
    c.add(sd, qq, k, v, rand(3, 5))
    c.add(sd, qq, k, v, rand(3, 5) > 0, scale=0.3)
    c.add(sd, qq, k, v, torch.zeros(3, 5, dtype=torch.bool))
    c.add(sd, rand(3, 4), rand(5, 4), rand(5, 2))
    c.add(sd, rand(1, 4, 3, 4), rand(1, 2, 5, 4), rand(1, 2, 5, 4), enable_gqa=True)
    c.add(sd, *[x.to(torch.bfloat16) for x in (qq, k, v)])
    c.add("torch.nn.functional.dropout", t, 0.5, False)
    c.add("aten.dropout.default", t, 0.1, False)
    c.add("aten.native_dropout.default", t, 0.1, False)
    c.add("torch.nn.functional.glu", t, 2)
    c.error("torch.nn.functional.glu", t, 1)
    c.add("torch.nn.functional.cosine_similarity", t, rand(2, 3, 4))
    c.add("torch.nn.functional.cosine_similarity", m, torch.zeros(3, 4), -1)
    c.add("torch.nn.functional.pairwise_distance", m, rand(3, 4))
    c.add("torch.nn.functional.pairwise_distance", m, rand(3, 4), 1.0, keepdim=True)
    for p in (2.0, 1.0, 0.0, inf, 3.0):
        c.add("torch.cdist", m, rand(2, 4), p)
    c.add("torch.cdist", rand(2, 3, 4), rand(2, 2, 4))
    c.add("torch.linalg.cross", rand(2, 3), rand(2, 3))
    c.add("torch.linalg.cross", rand(2, 3), rand(1, 3))
    c.add("torch.cross", rand(3, 2), rand(3, 2), 0)
    c.add("aten._weight_norm.default", rand(3, 2, 2), rand(3, 1, 1), 0)
    c.add("aten._weight_norm.default", rand(3, 2), rand(1, 2), 1)


def pools(c):
    x1, x2, x3 = rand(2, 3, 9), rand(1, 2, 7, 8), rand(1, 1, 5, 4, 6)
    special = torch.tensor([[[[1, nan, 2, -inf], [0, 5, 5, inf], [-inf] * 4, [-inf] * 4]]])
    for n, x in ((1, x1), (2, x2), (3, x3)):
        for k in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 3, "stride": 2, "ceil_mode": True},
                  {"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True}):
            c.add(f"torch.nn.functional.max_pool{n}d", x, **k)
            c.add(f"torch.nn.functional.avg_pool{n}d", x, **k)
            c.add(f"torch.nn.functional.avg_pool{n}d", x, count_include_pad=False, **k)
        c.add(f"torch.nn.functional.max_pool{n}d", x, 2, dilation=2)
        c.add(f"torch.nn.functional.max_pool{n}d", x, 2, return_indices=True)
        c.add(f"torch.nn.functional.max_pool{n}d", x[0], 2)
        c.error(f"torch.nn.functional.max_pool{n}d", x, 2, padding=2)
        for size in (1, 3, 4, 7):
            c.add(f"torch.nn.functional.adaptive_avg_pool{n}d", x, size)
            c.add(f"torch.nn.functional.adaptive_max_pool{n}d", x, size)
    c.add("aten.max_pool2d_with_indices.default", x2, [3, 2], [2, 1], [1, 0], [1, 2], True)
    c.add("aten.max_pool2d_with_indices.default", special, [2, 2])
    c.add("torch.nn.functional.max_pool2d", special, 2)
    c.add("torch.nn.functional.avg_pool2d", special, 2)
    for d in (torch.float64, torch.bfloat16, torch.int64, torch.uint8):
        x = (x2.abs() * 10).to(d)
        c.add("torch.nn.functional.max_pool2d", x, 2)
    c.add("torch.nn.functional.avg_pool2d", ints(0, 100, 1, 1, 4, 4), 2)
    c.add("torch.nn.functional.avg_pool2d", x2, 2, divisor_override=3)
    c.add("torch.nn.functional.adaptive_avg_pool2d", x2, (None, 3))
    c.add("torch.nn.functional.adaptive_avg_pool2d", x2.double(), (2, 5))
    c.add("torch.nn.functional.adaptive_max_pool2d", x2, (2, 3), return_indices=True)
    c.add("torch.nn.functional.max_pool2d", rand(0, 2, 4, 4), 2)
    c.add("torch.nn.functional.lp_pool2d", x2.abs(), 2.0, 2)
    c.add("torch.nn.functional.lp_pool1d", x1.abs(), 3.0, 3, 2)


def resampling(c):
    x1, x2, x3 = rand(1, 2, 5), rand(1, 2, 4, 5), rand(1, 1, 3, 2, 4)
    f = "torch.nn.functional.interpolate"
    for x, mode in ((x1, "linear"), (x2, "bilinear"), (x3, "trilinear"), (x2, "bicubic")):
        for k in ({"scale_factor": 2.0}, {"scale_factor": 0.6}, {"size": [7] * (x.dim() - 2)}, {"size": x.shape[2:]}, {"size": 3}, {"scale_factor": 1.7, "recompute_scale_factor": True}):
            k = {n: list(v) if isinstance(v, torch.Size) else v for n, v in k.items()}
            for align in (False, True):
                c.add(f, x, mode=mode, align_corners=align, **k)
    for x in (x1, x2, x3):
        for mode in ("nearest", "nearest-exact", "area"):
            for k in ({"scale_factor": 2.0}, {"scale_factor": 0.7}, {"size": [3] * (x.dim() - 2)}):
                c.add(f, x, mode=mode, **k)
    for mode in ("bilinear", "bicubic"):
        c.add(f, rand(1, 1, 8, 9), size=(3, 4), mode=mode, antialias=True)
        c.add(f, rand(1, 1, 3, 4), size=(5, 9), mode=mode, antialias=True, align_corners=True)
    c.add(f, x2.double(), size=(6, 3), mode="bilinear")
    c.add(f, (x2.abs() * 20).to(torch.uint8), size=(6, 3), mode="nearest")
    c.add("aten.upsample_bilinear2d.vec", x2, None, False, [2.0, 1.5])
    c.add("aten.upsample_nearest2d.vec", x2, None, [2.0, 1.5])
    c.add("aten.upsample_nearest2d.default", x2, [8, 3])
    c.add("aten.upsample_bilinear2d.default", x2, [8, 3], True)
    grid = (torch.rand(1, 3, 4, 2) * 2.6 - 1.3).round(decimals=2)
    for mode in ("bilinear", "nearest", "bicubic"):
        for pad in ("zeros", "border", "reflection"):
            for align in (False, True):
                c.add("torch.nn.functional.grid_sample", x2, grid, mode, pad, align)
    c.add("torch.nn.functional.grid_sample", x3, (torch.rand(1, 2, 2, 2, 3) * 2 - 1).round(decimals=2), align_corners=False)
    for align in (False, True):
        c.add("torch.nn.functional.affine_grid", rand(2, 2, 3), [2, 1, 3, 4], align)
        c.add("torch.nn.functional.affine_grid", rand(1, 3, 4), [1, 1, 2, 3, 2], align)
    for k in ((2,), (3, 1, 1, 2), ((2, 3), 1, 0, 1)):
        c.add("torch.nn.functional.unfold", x2, *k)
    cols = F.unfold(x2, (2, 2), 1, 1, 2)
    c.add("torch.nn.functional.fold", cols.round(decimals=2), (4, 5), (2, 2), 1, 1, 2)


def recurrent(c):
    for bi in (False, True):
        for layers in (1, 2):
            for name, gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
                hid, ins = 3, 2
                params = []
                for layer in range(layers):
                    for _ in range(1 + bi):
                        width = ins if layer == 0 else hid * (1 + bi)
                        params += [(rand(gates * hid, width) / 4).round(decimals=2), (rand(gates * hid, hid) / 4).round(decimals=2), rand(gates * hid), rand(gates * hid)]
                x, h = rand(4, 2, ins), rand(layers * (1 + bi), 2, hid)
                hx = [h, rand(layers * (1 + bi), 2, hid)] if name == "lstm" else h
                c.add(f"aten.{name}.input", x, hx, params, True, layers, 0.0, False, bi, False)
                c.add(f"aten.{name}.input", x.transpose(0, 1).contiguous(), hx, params, True, layers, 0.0, False, bi, True)
    w = [rand(12, 2), rand(12, 3), rand(12), rand(12)]
    c.add("torch.lstm_cell", rand(2, 2), [rand(2, 3), rand(2, 3)], *w)
    c.add("torch.gru_cell", rand(2, 2), rand(2, 3), *[p[:9].clone() for p in w])
    c.add("torch.rnn_tanh_cell", rand(2, 2), rand(2, 3), *[p[:3].clone() for p in w])
    c.add("torch.rnn_relu_cell", rand(2, 2), rand(2, 3), w[0][:3].clone(), w[1][:3].clone())
    e, n = 4, 2
    q, k = rand(3, 2, e), rand(5, 2, e)
    common = dict(training=False)
    mha = "torch.nn.functional.multi_head_attention_forward"
    wi, bi, wo, bo = rand(12, 4) / 2, rand(12), rand(4, 4) / 2, rand(4)
    c.add(mha, q, k, k, e, n, wi, bi, None, None, False, 0.0, wo, bo, **common)
    c.add(mha, q, k, k, e, n, wi, bi, None, None, False, 0.0, wo, bo, need_weights=False, **common)
    c.add(mha, q, k, k, e, n, wi, bi, rand(1, 1, 4), rand(1, 1, 4), True, 0.0, wo, bo, **common)
    c.add(mha, q, k, k, e, n, wi, bi, None, None, False, 0.0, wo, bo, key_padding_mask=torch.tensor([[False] * 5, [False, True, True, False, True]]), attn_mask=rand(3, 5), average_attn_weights=False, **common)
    c.add(mha, q, k, k, e, n, None, bi, None, None, False, 0.0, wo, bo, use_separate_proj_weight=True, q_proj_weight=rand(4, 4), k_proj_weight=rand(4, 4), v_proj_weight=rand(4, 4), **common)


def vision(c):
    swin = "torchvision.models.swin_transformer."
    c.add(swin + "_patch_merging_pad", rand(1, 3, 4, 2))
    c.add(swin + "_patch_merging_pad", rand(3, 5, 2))
    c.add(swin + "_get_relative_position_bias", rand(9, 2), ints(0, 9, 16), [2, 2])
    for shift in ([0, 0], [1, 1], [0, 1]):
        for h, w in ((4, 4), (3, 5), (2, 4)):
            c.add(swin + "shifted_window_attention", rand(1, h, w, 4), rand(12, 4), rand(4, 4), rand(1, 2, 4, 4), [2, 2], 2, shift, 0.0, 0.0, rand(12), rand(4), training=False)
    c.add(swin + "shifted_window_attention", rand(1, 4, 4, 4), rand(12, 4), rand(4, 4), rand(1, 2, 4, 4), [2, 2], 2, [1, 1], 0.0, 0.0, rand(12), rand(4), rand(2, 1, 1), False)
    c.add("torch.pdist", rand(4, 3))
    c.add("torch.pdist", rand(4, 3), 1.0)


def singular(c):
    """What raises where a factorization fails."""
    zero, nan = torch.zeros(2, 2), torch.full((2, 2), torch.nan)
    batch = torch.stack([torch.eye(2), torch.tensor([[1.0, 2], [2, 1]]), zero])
    for x in (zero, batch):
        for name in ("inv", "cholesky", "lu_factor"):
            c.add(f"torch.linalg.{name}", x)
            c.add(f"torch.linalg.{name}_ex", x, check_errors=True)
        c.add("torch.linalg.solve", x, torch.ones(2, 2))
        c.add("torch.linalg.solve_ex", x, torch.ones(2, 2), check_errors=True)
        c.add("torch.cholesky_inverse", x)
    for name in ("svd", "svdvals", "eigh", "pinv"):
        c.add(f"torch.linalg.{name}", nan)
    c.add("torch.linalg.solve", batch, torch.ones(3, 2), left=False)
    c.add("torch.linalg.tensorinv", zero, 1)
    c.add("torch.linalg.tensorsolve", batch, torch.ones(2))


def refused_dtypes(c):
    """Pools and pads whose kernels do not know integers or bools."""
    for d in (torch.int64, torch.int32, torch.bool):
        x = torch.ones(1, 1, 4, 4, dtype=d)
        for name in ("max_pool2d", "avg_pool2d", "adaptive_max_pool2d"):
            c.add(f"torch.nn.functional.{name}", x, 2)
        c.add("torch.nn.functional.max_pool1d", x[0], 2)
        for mode in ("reflect", "replicate", "circular"):
            c.add("torch.nn.functional.pad", x, (1, 1, 1, 1), mode)


def nn():
    c = Cases({})
    for part in (products, convolutions, norms, pools, resampling, recurrent, vision, singular, refused_dtypes):
        part(c)
    c.write("nn.json")


if __name__ == "__main__":
    views()
    index()
    nn()
