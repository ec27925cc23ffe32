"""The calls that `ops.py --shapes` measures: ops on operands of unusual shapes, which the squares of ops_cases.py do not cover.

Rows that are short, long, few or many; images with few channels or few pixels; kernels of convolutions and pools that are large for their
images; batches of tiny matrices and single large ones; products with a thin operand. A call is written as in ops_cases.py.
"""
import itertools

import torch

F = 'torch.nn.functional.'
ROWS = [(8, 128, 1023), (32, 64, 33, 17), (1, 1 << 20), (1 << 17, 7), (7, 1 << 17), (1024, 3, 341), (1 << 20,), (3, 5, 65537)]
IMAGES = [(1, 3, 224, 224), (8, 64, 28, 28), (2, 256, 14, 14), (1, 16, 512, 512), (16, 512, 7, 7), (4, 1, 301, 299)]
LINES = [(4, 64, 1000), (1, 1, 48000), (16, 32, 257), (2, 512, 99)]
VOLUMES = [(1, 16, 16, 56, 56), (2, 64, 8, 14, 14), (1, 3, 16, 112, 112)]
MATRICES = [(1, 256), (64, 16), (1000, 4), (8, 64), (1, 500), (4096, 3)]
PRODUCTS = [(1, 1024, 1024), (3, 768, 3072), (17, 333, 1001), (1024, 16, 1024), (1024, 1024, 1), (2048, 2048, 8), (5, 5, 5), (64, 4096, 64),
            (500, 500, 500), (1, 64, 50000), (10000, 3, 3), (4096, 64, 2)]
BATCHES = [(4096, 3, 3, 3), (1000, 4, 4, 1), (256, 16, 16, 16), (12, 128, 64, 128), (2000, 1, 64, 64), (8, 200, 7, 200), (512, 8, 32, 8),
           (64, 64, 64, 64), (3, 1000, 10, 1000)]
EINSUMS = [('bhid,bhjd->bhij', [(2, 8, 128, 64), (2, 8, 128, 64)]), ('bij,bjk,bkl->bil', [(16, 32, 32)] * 3), ('ij,ij->i', [(1024, 1024)] * 2),
           ('ijk,k->ij', [(64, 64, 256), (256,)]), ('bchw,co->bohw', [(4, 64, 28, 28), (64, 32)]), ('nhwc,nhwc->nc', [(4, 28, 28, 64)] * 2),
           ('i,j,k->ijk', [(100,)] * 3), ('bik,bjk->ij', [(16, 64, 128)] * 2)]
ATTENTIONS = [(1, 12, 128, 128, 64), (4, 8, 1, 512, 64), (1, 16, 1000, 1000, 32), (2, 4, 49, 49, 32), (64, 3, 49, 49, 32), (1, 8, 77, 77, 80)]
CLASSES = [(64, 1000), (8192, 10), (16, 50000), (1, 1000)]
# Output channels (0 for one per input channel, each with its own kernel), kernel, stride, padding, dilation.
CONVOLUTIONS = [(32, 3, 1, 1, 1), (64, 1, 1, 0, 1), (0, 3, 1, 1, 1), (0, 9, 1, 4, 1), (32, 5, 2, 2, 1), (16, 3, 1, 2, 2), (48, 7, 4, 3, 1)]
LINE_CONVOLUTIONS = [(64, 3, 1, 1, 1), (32, 10, 5, 0, 1), (0, 7, 1, 3, 1), (24, 3, 1, 4, 4), (16, 1, 1, 0, 1), (0, 31, 1, 15, 1)]


def text(shape):
    return 'x'.join(map(str, shape))


def reductions(s, d):
    yield from ((name, lambda g, name=name: (f'torch.{name}', g.tensor(*s), [d]))
                for name in ['sum', 'mean', 'amax', 'any', 'var', 'std', 'logsumexp', 'flip'])
    yield from ((name, lambda g, name=name: (f'torch.{name}', g.tensor(*s), d))
                for name in ['prod', 'argmax', 'max', 'softmax', 'log_softmax', 'cumsum', 'cumprod', 'cummax', 'logcumsumexp', 'sort', 'median'])
    yield 'norm', lambda g: ('torch.linalg.vector_norm', g.tensor(*s), 2, d)


def moves(s, d):
    lines = [1 if k == d else n for k, n in enumerate(s)]
    only = [n if k == d else 1 for k, n in enumerate(s)]
    yield 'cat', lambda g: ('torch.cat', [g.tensor(*s), g.tensor(*s)], d)
    yield 'stack', lambda g: ('torch.stack', [g.tensor(*s), g.tensor(*s)], d)
    yield 'add a line', lambda g: ('torch.add', g.tensor(*s), g.tensor(*only))
    yield 'mul by lines', lambda g: ('torch.mul', g.tensor(*s), g.tensor(*lines))
    if s[d] < 5:
        return
    yield 'topk', lambda g: ('torch.topk', g.tensor(*s), 5, d)
    yield 'topk half', lambda g: ('torch.topk', g.tensor(*s), s[d] // 2, d)
    yield 'kthvalue', lambda g: ('torch.kthvalue', g.tensor(*s), 3, d)
    yield 'narrow', lambda g: ('torch.narrow', g.tensor(*s), d, 1, s[d] - 2)
    yield 'index_select', lambda g: ('torch.index_select', g.tensor(*s), d, g.below(s[d], s[d] // 2))
    yield 'index_add', lambda g: ('torch.index_add', g.tensor(*s), d, g.below(s[d], s[d]), g.tensor(*s))
    yield 'gather', lambda g: ('torch.gather', g.tensor(*s), d, g.below(s[d], *s))
    yield 'scatter', lambda g: ('torch.scatter', g.tensor(*s), d, g.below(s[d], *s), g.tensor(*s))
    yield 'scatter_add', lambda g: ('torch.scatter_add', g.tensor(*s), d, g.below(s[d], *s), g.tensor(*s))
    yield 'roll', lambda g: ('torch.roll', g.tensor(*s), [2], [d])
    yield 'diff', lambda g: ('torch.diff', g.tensor(*s), 1, d)
    yield 'repeat_interleave', lambda g: ('torch.repeat_interleave', g.tensor(*s), 2, d)


def tensors(s):
    """Ops on a tensor of two dims or more."""
    yield 'sum all', lambda g: ('torch.sum', g.tensor(*s))
    yield 'sum of first and last', lambda g: ('torch.sum', g.tensor(*s), [0, -1])
    yield 'layer_norm', lambda g: (F + 'layer_norm', g.tensor(*s), [s[-1]], g.tensor(s[-1]), g.tensor(s[-1]))
    yield 'cosine_similarity', lambda g: ('torch.cosine_similarity', g.tensor(*s), g.tensor(*s), -1)
    yield 'tril', lambda g: ('torch.tril', g.tensor(*s))
    yield 'glu', lambda g: (F + 'glu', g.tensor(*s[:-1], s[-1] // 2 * 2), -1)
    yield 'pad', lambda g: (F + 'pad', g.tensor(*s), [1, 2])
    for p in itertools.permutations(range(len(s))):
        if list(p) != sorted(p):
            yield f'permute {text(p)}', lambda g, p=p: ('torch.permute', g.tensor(*s), list(p))


def images(s):
    for k, stride, pad in [(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 1, 2), (7, 7, 0)]:
        for name in ['max_pool2d', 'max_pool2d_with_indices', 'avg_pool2d']:
            yield f'{name} {k}/{stride}', lambda g, a=(k, stride, pad), name=name: (F + name, g.tensor(*s), *a)
    for n in [1, 2, 5]:
        yield f'adaptive_avg_pool2d {n}', lambda g, n=n: (F + 'adaptive_avg_pool2d', g.tensor(*s), n)
        yield f'adaptive_max_pool2d {n}', lambda g, n=n: (F + 'adaptive_max_pool2d', g.tensor(*s), n)
    for mode in ['nearest', 'bilinear', 'bicubic', 'area', 'nearest-exact']:
        for by in [2, 0.5, 1.7]:
            yield f'interpolate {mode} {by}', lambda g, a=(by, mode): (F + 'interpolate', g.tensor(*s), None, *a)
    for mode in ['reflect', 'replicate', 'circular', 'constant']:
        yield f'pad {mode}', lambda g, mode=mode: (F + 'pad', g.tensor(*s), [3, 3, 3, 3], mode)
    for mode, outside in itertools.product(['bilinear', 'nearest', 'bicubic'], ['zeros', 'border', 'reflection']):
        yield f'grid_sample {mode} {outside}', lambda g, a=(mode, outside): (F + 'grid_sample', (x := g.tensor(*s)), g.grid(x) * 1.1, *a, False)
    yield 'unfold', lambda g: (F + 'unfold', g.tensor(*s), [3, 3], 1, 1)
    yield 'batch_norm', lambda g: (F + 'batch_norm', g.tensor(*s), g.tensor(s[1]), g.tensor(s[1], kind='positive'))
    yield 'instance_norm', lambda g: (F + 'instance_norm', g.tensor(*s))
    yield 'group_norm', lambda g: (F + 'group_norm', g.tensor(*s), 1)


def convolutions(s, name, cases):
    n = s[1]
    for out, k, stride, pad, dilation in cases:
        groups, channels = (1, out) if out else (n, n)
        if min(s[2:]) < k:
            continue
        kernel = [channels, n // groups, *[k] * (len(s) - 2)]
        label = f'{name} {out or "depthwise"} of {k}, stride {stride}, dilation {dilation}'
        yield label, lambda g, kernel=kernel, a=(stride, pad, dilation, groups): (
            f'torch.{name}', g.tensor(*s), g.tensor(*kernel), g.tensor(kernel[0]), *a)


def image_convolutions(s):
    n = s[1]
    yield from convolutions(s, 'conv2d', CONVOLUTIONS)
    if n % 4 == 0:
        yield 'conv2d in 4 groups', lambda g: ('torch.conv2d', g.tensor(*s), g.tensor(n, n // 4, 3, 3), g.tensor(n), 1, 1, 1, 4)
    yield 'conv_transpose2d 2/2', lambda g: ('torch.conv_transpose2d', g.tensor(*s), g.tensor(n, 16, 2, 2), g.tensor(16), 2)
    yield 'conv_transpose2d 4/2', lambda g: ('torch.conv_transpose2d', g.tensor(*s), g.tensor(n, 8, 4, 4), g.tensor(8), 2, 1)
    yield 'conv_transpose2d depthwise', lambda g: ('torch.conv_transpose2d', g.tensor(*s), g.tensor(n, 1, 4, 4), g.tensor(n), 2, 1, 0, n)


def lines(s):
    yield from convolutions(s, 'conv1d', LINE_CONVOLUTIONS)
    yield 'conv_transpose1d', lambda g: ('torch.conv_transpose1d', g.tensor(*s), g.tensor(s[1], 16, 8), g.tensor(16), 4, 2)
    yield 'max_pool1d', lambda g: (F + 'max_pool1d', g.tensor(*s), 3, 2, 1)
    yield 'avg_pool1d', lambda g: (F + 'avg_pool1d', g.tensor(*s), 4, 4)
    yield 'pad reflect', lambda g: (F + 'pad', g.tensor(*s), [10, 10], 'reflect')
    for mode in ['nearest', 'linear']:
        yield f'interpolate {mode}', lambda g, mode=mode: (F + 'interpolate', g.tensor(*s), None, 1.5, mode)


def volumes(s):
    yield from convolutions(s, 'conv3d', [(32, 3, 1, 1, 1), (16, 1, 1, 0, 1), (0, 3, 1, 1, 1)])
    yield 'conv_transpose3d', lambda g: ('torch.conv_transpose3d', g.tensor(*s), g.tensor(s[1], 8, 2, 2, 2), g.tensor(8), 2)
    yield 'max_pool3d', lambda g: (F + 'max_pool3d', g.tensor(*s), 2, 2)
    yield 'avg_pool3d', lambda g: (F + 'avg_pool3d', g.tensor(*s), 3, 2, 1)
    yield 'pad replicate', lambda g: (F + 'pad', g.tensor(*s), [1] * 6, 'replicate')
    for mode in ['nearest', 'trilinear']:
        yield f'interpolate {mode}', lambda g, mode=mode: (F + 'interpolate', g.tensor(*s), None, 2, mode)


def products(m, k, n):
    yield 'mm', lambda g: ('torch.mm', g.tensor(m, k), g.tensor(k, n))
    yield 'linear', lambda g: (F + 'linear', g.tensor(m, k), g.tensor(n, k), g.tensor(n))
    yield 'addmm', lambda g: ('torch.addmm', g.tensor(n), g.tensor(m, k), g.tensor(k, n))
    yield 'transposed', lambda g: ('torch.einsum', 'km,kn->mn', [g.tensor(k, m), g.tensor(k, n)])


def batches(b, m, k, n):
    yield 'bmm', lambda g: ('torch.bmm', g.tensor(b, m, k), g.tensor(b, k, n))
    yield 'baddbmm', lambda g: ('torch.baddbmm', g.tensor(b, m, n), g.tensor(b, m, k), g.tensor(b, k, n))
    yield 'transposed', lambda g: ('torch.einsum', 'bmk,bnk->bmn', [g.tensor(b, m, k), g.tensor(b, n, k)])


def matrices(b, n):
    def definite(g):
        m = g.tensor(b, n, n)
        return m @ m.mT + n * torch.eye(n).to(m.dtype)
    for name in ['inv', 'det', 'cholesky', 'qr', 'svdvals', 'eigvalsh', 'slogdet', 'lu', 'lu_factor', 'matrix_norm']:
        yield name, lambda g, name=name: ('torch.linalg.' + name, definite(g))
    if n <= 256:
        for name in ['pinv', 'eigh', 'svd', 'matrix_rank']:
            yield name, lambda g, name=name: ('torch.linalg.' + name, definite(g))
    yield 'matrix_exp', lambda g: ('torch.linalg.matrix_exp', definite(g) / 1000)
    yield 'matrix_power', lambda g: ('torch.linalg.matrix_power', definite(g) / 1000, 3)
    yield 'solve', lambda g: ('torch.linalg.solve', definite(g), g.tensor(b, n, 1))
    yield 'solve_triangular', lambda g: ('torch.linalg.solve_triangular', definite(g), g.tensor(b, n, 4), dict(upper=False))
    yield 'cholesky_solve', lambda g: ('torch.cholesky_solve', g.tensor(b, n, 2), definite(g))


def classes(b, n):
    yield 'cross_entropy', lambda g: (F + 'cross_entropy', g.tensor(b, n), g.below(n, b))
    yield 'nll_loss', lambda g: (F + 'nll_loss', g.tensor(b, n), g.below(n, b))
    yield 'one_hot', lambda g: (F + 'one_hot', g.below(n, b), n)
    yield 'embedding', lambda g: (F + 'embedding', g.below(n, b), g.tensor(n, 64))
    yield 'topk 1', lambda g: ('torch.topk', g.tensor(b, n), 1)
    yield 'topk 50', lambda g: ('torch.topk', g.tensor(b, n), min(50, n))
    yield 'sort stable', lambda g: ('torch.sort', g.tensor(b, n), 1, True)


OTHERS = {
    'ctc_loss': lambda g: (F + 'ctc_loss', torch.log_softmax(g.tensor(50, 16, 20), 2), torch.randint(1, 20, (16, 30)), torch.full((16,), 50),
                           torch.full((16,), 30)),
    'unique': lambda g: ('torch.unique', g.below(1000, 100000)),
    'bincount': lambda g: ('torch.bincount', g.below(1000, 1000000)),
    'histc': lambda g: ('torch.histc', g.tensor(1000000), 100, -3, 3),
    'nonzero': lambda g: ('torch.nonzero', g.mask(1000, 1000)),
    'masked_select': lambda g: ('torch.masked_select', g.tensor(1000, 1000), g.mask(1000, 1000)),
    'where': lambda g: ('torch.where', g.mask(1000, 1), g.tensor(1000, 1000), g.tensor(1, 1000)),
    'cartesian_prod': lambda g: ('torch.cartesian_prod', g.tensor(1000), g.tensor(1000)),
    'combinations': lambda g: ('torch.combinations', g.tensor(1000), 2),
    'tensordot': lambda g: ('torch.tensordot', g.tensor(32, 16, 64), g.tensor(64, 16, 32), [[1, 2], [1, 0]]),
    'vander': lambda g: ('torch.vander', g.tensor(1000), 20),
    'block_diag': lambda g: ('torch.block_diag', g.tensor(100, 100), g.tensor(200, 50), g.tensor(30, 300)),
    'corrcoef': lambda g: ('torch.corrcoef', g.tensor(100, 1000)),
    'renorm': lambda g: ('torch.renorm', g.tensor(1000, 1000), 2, 0, 1.0),
    'tril_indices': lambda g: ('torch.tril_indices', 1000, 1000),
    'multinomial': lambda g: ('torch.multinomial', g.tensor(100, 1000, kind='positive'), 5),
    'randperm': lambda g: ('torch.randperm', 100000),
    'quantile of all': lambda g: ('torch.quantile', g.tensor(1000000), 0.9),
    'median of all': lambda g: ('torch.median', g.tensor(1000, 1000)),
    'var_mean of all': lambda g: ('torch.var_mean', g.tensor(1000, 1000)),
    'frexp': lambda g: ('torch.frexp', g.tensor(1000, 1000)),
    'pdist': lambda g: (F + 'pdist', g.tensor(500, 64)),
    'cdist 3': lambda g: ('torch.cdist', g.tensor(1000, 3), g.tensor(1000, 3), 3.0),
    'cdist 1': lambda g: ('torch.cdist', g.tensor(100, 128), g.tensor(5000, 128), 1.0),
    'bilinear': lambda g: (F + 'bilinear', g.tensor(64, 32), g.tensor(64, 48), g.tensor(16, 32, 48), g.tensor(16)),
    'lstm': lambda g: ('torch.lstm', g.tensor(50, 8, 64), [g.tensor(1, 8, 128), g.tensor(1, 8, 128)],
                       [g.tensor(512, 64) / 8, g.tensor(512, 128) / 11, g.tensor(512), g.tensor(512)], True, 1, 0.0, False, False, False),
    **{f'einsum {e}': lambda g, e=e, shapes=shapes: ('torch.einsum', e, [g.tensor(*s) for s in shapes]) for e, shapes in EINSUMS},
    **{f'attention {b}x{h}, {q} of {k}, {n}': lambda g, b=b, h=h, q=q, k=k, n=n: (
        F + 'scaled_dot_product_attention', g.tensor(b, h, q, n), g.tensor(b, h, k, n), g.tensor(b, h, k, n)) for b, h, q, k, n in ATTENTIONS},
}


def labelled(shapes, of):
    """The calls of all shapes, by names with the shape."""
    return {f'{name} {text(s)}': make for s in shapes for name, make in of(s)}


def of_dims(of):
    return {f'{name} {text(s)} dim {d}': make for s in ROWS for d in range(len(s)) for name, make in of(s, d)}


FAMILIES = {
    'reductions': of_dims(reductions),
    'moves': of_dims(moves),
    'tensors': labelled([s for s in ROWS if len(s) > 1], tensors),
    'images': labelled(IMAGES, images),
    'convolutions': labelled(IMAGES, image_convolutions),
    'lines': labelled(LINES, lines),
    'volumes': labelled(VOLUMES, volumes),
    'products': labelled(PRODUCTS, lambda s: products(*s)),
    'batches': labelled(BATCHES, lambda s: batches(*s)),
    'matrices': labelled(MATRICES, lambda s: matrices(*s)),
    'classes': labelled(CLASSES, lambda s: classes(*s)),
    'others': OTHERS,
}
