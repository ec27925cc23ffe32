"""The calls that ops.py measures: for a row of fxc's op table a path and arguments of realistic sizes.

Pointwise rows need no entry: `pointwise` makes their arguments from the schema. The other rows are listed by family. A call is
(path, arguments...), with a dict at the end for keyword arguments. Views are followed by a copy, because PyTorch returns a view in no time.
"""
import re

import torch

# What operands of a pointwise function are drawn from, if not from a normal distribution.
POSITIVE = set('log log2 log10 log1p sqrt rsqrt pow float_power lgamma digamma polygamma xlogy xlog1py zeta reciprocal special_bessel_y0 '
               'special_bessel_y1 special_modified_bessel_k0 special_modified_bessel_k1 special_scaled_modified_bessel_k0 '
               'special_scaled_modified_bessel_k1 igamma igammac mvlgamma'.split())
UNIT = set('asin acos atanh erfinv ndtri logit entr bernoulli log_normal'.split())
ABOVE_ONE = {'acosh'}
SHIFTS = {'bitwise_left_shift', 'bitwise_right_shift'}
NUMBERS = dict(threshold=[0.1, 0.5], polygamma=[1], clamp=[-0.5, 0.5])


class Operands:
    """Tensors for a size and a dtype."""

    def __init__(self, side, dtype):
        self.n, self.dtype = side, dtype
        self.random = torch.Generator().manual_seed(side)

    def tensor(self, *shape, kind='normal'):
        if self.dtype == torch.bool:
            return torch.rand(shape, generator=self.random) < 0.5
        if not self.dtype.is_floating_point:
            low = 1 if kind != 'normal' or self.dtype == torch.uint8 else -100
            return torch.randint(low, 7 if kind == 'shift' else 100, shape, generator=self.random).to(self.dtype)
        x = torch.randn(shape, generator=self.random) if kind == 'normal' else torch.rand(shape, generator=self.random)
        if kind == 'positive':
            x = 4 * x + 0.1
        elif kind == 'above one':
            x = 4 * x + 1.01
        elif kind == 'unit':
            x = 0.98 * x + 0.01
        return x.to(self.dtype)

    @property
    def x(self):
        return self.tensor(self.n, self.n)

    @property
    def unit(self):
        return self.tensor(self.n, self.n, kind='unit')

    def grid(self, x):
        """Positions for `grid_sample` of images, all within them."""
        return (2 * torch.rand(len(x), *x.shape[2:], 2, generator=self.random) - 1).to(self.dtype)

    def small(self, side=64):
        """A square matrix for linear algebra, well conditioned."""
        side = min(side, self.n)
        return self.tensor(side, side) + side * torch.eye(side, dtype=self.dtype)

    def positive_definite(self, side=64):
        m = self.tensor(min(side, self.n), min(side, self.n))
        return m @ m.t() + len(m) * torch.eye(len(m), dtype=self.dtype)

    def images(self, channels=16):
        """Images [4, channels, h, w] with about n * n elements."""
        side = max(8, int((self.n * self.n / 4 / channels) ** 0.5) // 8 * 8)
        return self.tensor(4, channels, side, side)

    def line(self, channels=16):
        return self.tensor(4, channels, max(16, self.n * self.n // 4 // channels))

    def below(self, limit, *shape):
        """Indices."""
        return torch.randint(0, limit, shape, generator=self.random)

    def some(self, part=8):
        """Different rows, one of `part`."""
        return torch.randperm(self.n, generator=self.random)[:max(1, self.n // part)]

    def mask(self, *shape):
        return torch.rand(shape or (self.n, self.n), generator=self.random) < 0.5


MOVES = {
    'cat': lambda g: ('torch.cat', [g.x, g.x], 1),
    'cat rows': lambda g: ('torch.cat', [g.x, g.x], 0),
    'stack': lambda g: ('torch.stack', [g.x, g.x], 0),
    'constant_pad_nd': lambda g: ('aten.constant_pad_nd.default', g.x, [1, 1, 2, 2], 0.5),
    'reflection_pad': lambda g: ('aten.reflection_pad2d.default', g.images(), [1, 1, 2, 2]),
    'replication_pad': lambda g: ('aten.replication_pad2d.default', g.images(), [1, 1, 2, 2]),
    '_pad_circular': lambda g: ('torch.nn.functional.pad', g.images(), [1, 1, 2, 2], 'circular'),
    'roll': lambda g: ('torch.roll', g.x, [3, 5], [0, 1]),
    'flip': lambda g: ('torch.flip', g.x, [1]),
    'flip rows': lambda g: ('torch.flip', g.x, [0]),
    'rot90': lambda g: ('torch.rot90', g.x, 1, [0, 1]),
    'repeat': lambda g: ('Tensor.repeat', g.x, 2, 2),
    'repeat_interleave': lambda g: ('torch.repeat_interleave', g.x, 2, 1),
    'pixel_shuffle': lambda g: ('torch.pixel_shuffle', g.images(), 2),
    'pixel_unshuffle': lambda g: ('torch.pixel_unshuffle', g.images(), 2),
    'channel_shuffle': lambda g: ('torch.channel_shuffle', g.images(), 4),
    'diag_embed': lambda g: ('torch.diag_embed', g.tensor(16, max(1, g.n // 4))),
    'im2col': lambda g: ('torch.nn.functional.unfold', g.images(4), [3, 3], 1, 1),
    'col2im': lambda g: ('torch.nn.functional.fold', g.tensor(4, 36, g.n * g.n // 256), [g.n // 16, g.n // 16], [3, 3], 1, 1),
    'tril': lambda g: ('torch.tril', g.x),
    'clone': lambda g: ('aten.clone.default', g.x),
    'kron': lambda g: ('torch.kron', g.tensor(8, 8), g.tensor(max(1, g.n // 8), max(1, g.n // 8))),
    'upsample_nearest2d': lambda g: ('torch.nn.functional.interpolate', g.images(), None, 2, 'nearest'),
    'upsample_bilinear2d': lambda g: ('torch.nn.functional.interpolate', g.images(), None, 2, 'bilinear', False),
    'upsample_bicubic2d': lambda g: ('torch.nn.functional.interpolate', g.images(), None, 2, 'bicubic', False),
    'upsample_linear1d': lambda g: ('torch.nn.functional.interpolate', g.line(), None, 2, 'linear', False),
    'grid_sample': lambda g: ('torch.nn.functional.grid_sample', (x := g.images()), g.grid(x), 'bilinear', 'zeros', False),
    'grid_sample nearest': lambda g: ('torch.nn.functional.grid_sample', (x := g.images()), g.grid(x), 'nearest', 'border', False),
}

# Views, each with a copy after it.
VIEWS = {
    't': lambda g: ('torch.t', g.x),
    'permute': lambda g: ('torch.permute', g.images(), [0, 2, 3, 1]),
    'permute back': lambda g: ('torch.permute', g.images().permute(0, 2, 3, 1).contiguous(), [0, 3, 1, 2]),
    'transpose batch': lambda g: ('torch.transpose', g.tensor(4, 8, g.n, max(1, g.n // 32)), 1, 2),
    'expand': lambda g: ('Tensor.expand', g.tensor(g.n, 1), g.n, g.n),
    'narrow': lambda g: ('torch.narrow', g.x, 1, 1, g.n // 2),
    'diagonal': lambda g: ('torch.diagonal', g.x),
    'unfold': lambda g: ('Tensor.unfold', g.x, 1, 8, 4),
}

INDEXING = {
    'gather': lambda g: ('torch.gather', g.x, 1, g.below(g.n, g.n, g.n)),
    'gather rows': lambda g: ('torch.gather', g.x, 0, g.below(g.n, g.n, g.n)),
    'gather one a row': lambda g: ('torch.gather', g.x, 1, g.below(g.n, g.n, 1)),
    'take_along_dim': lambda g: ('torch.take_along_dim', g.x, g.below(g.n, g.n, g.n), 1),
    'take': lambda g: ('torch.take', g.x, g.below(g.n * g.n, g.n, g.n)),
    'index_select': lambda g: ('torch.index_select', g.x, 0, g.some(2)),
    'index_select columns': lambda g: ('torch.index_select', g.x, 1, g.some(2)),
    'index': lambda g: ('aten.index.Tensor', g.x, [g.some(2)]),
    'index two': lambda g: ('aten.index.Tensor', g.x, [g.below(g.n, g.n * g.n // 4), g.below(g.n, g.n * g.n // 4)]),
    'index columns': lambda g: ('aten.index.Tensor', g.x, [None, g.some(2)]),
    'index_put': lambda g: ('torch.index_put', g.x, [(i := g.some())], g.tensor(len(i), g.n)),
    'index_put accumulate': lambda g: ('torch.index_put', g.x, [g.below(g.n, g.n), g.below(g.n, g.n)], g.tensor(g.n), True),
    'embedding': lambda g: ('torch.nn.functional.embedding', g.below(g.n, g.n), g.x),
    'embedding_bag': lambda g: ('torch.nn.functional.embedding_bag', g.below(g.n, g.n, 8), g.x),
    'scatter': lambda g: ('torch.scatter', g.x, 1, g.below(g.n, g.n, g.n), g.x),
    'scatter_value': lambda g: ('torch.scatter', g.x, 1, g.below(g.n, g.n, 1), 1),
    'scatter_add': lambda g: ('torch.scatter_add', g.x, 0, g.below(g.n, g.n, g.n), g.x),
    'scatter_add columns': lambda g: ('torch.scatter_add', g.x, 1, g.below(g.n, g.n, g.n), g.x),
    'scatter_reduce': lambda g: ('torch.scatter_reduce', g.x, 1, g.below(g.n, g.n, g.n), g.x, 'amax'),
    'scatter_reduce mean': lambda g: ('torch.scatter_reduce', g.x, 1, g.below(g.n, g.n, g.n), g.x, 'mean'),
    'index_add': lambda g: ('torch.index_add', g.x, 0, (i := g.some()), g.tensor(len(i), g.n)),
    'index_add all': lambda g: ('torch.index_add', g.x, 0, g.below(g.n, g.n), g.x),
    'index_add columns': lambda g: ('torch.index_add', g.x, 1, (i := g.some()), g.tensor(g.n, len(i))),
    'index_copy': lambda g: ('torch.index_copy', g.x, 0, (i := g.some()), g.tensor(len(i), g.n)),
    'index_fill': lambda g: ('torch.index_fill', g.x, 0, g.some(), 1),
    'index_reduce': lambda g: ('torch.index_reduce', g.x, 0, (i := g.some()), g.tensor(len(i), g.n), 'amax'),
    'slice_scatter': lambda g: ('torch.slice_scatter', g.x, g.tensor(g.n // 8, g.n), 0, 0, g.n // 8),
    'slice_scatter columns': lambda g: ('torch.slice_scatter', g.x, g.tensor(g.n, g.n // 8), 1, 0, g.n // 8),
    'select_scatter': lambda g: ('torch.select_scatter', g.x, g.tensor(g.n), 0, 3),
    'diagonal_scatter': lambda g: ('torch.diagonal_scatter', g.x, g.tensor(g.n)),
    'masked_scatter': lambda g: ('torch.masked_scatter', g.x, g.mask(), g.x),
    'masked_fill': lambda g: ('torch.masked_fill', g.x, g.mask(), 1),
    'searchsorted': lambda g: ('torch.searchsorted', g.tensor(1024).sort().values, g.x),
    'bucketize': lambda g: ('torch.bucketize', g.x, g.tensor(64).sort().values),
    'isin': lambda g: ('torch.isin', g.x, g.tensor(32)),
    'one_hot': lambda g: ('torch.nn.functional.one_hot', g.below(64, g.n * g.n // 64), 64),
    'histc': lambda g: ('torch.histc', g.x, 64, -3, 3),
}

ORDER = {
    'sort': lambda g: ('torch.sort', g.x, 1),
    'sort stable columns': lambda g: ('torch.sort', g.x, 0),
    'argsort': lambda g: ('torch.argsort', g.x, 1, True),
    'topk': lambda g: ('torch.topk', g.x, 8, 1),
    'kthvalue': lambda g: ('torch.kthvalue', g.x, 9, 1),
    'median_dim': lambda g: ('torch.median', g.x, 1),
    'mode': lambda g: ('torch.mode', g.x, 1),
    'cummax': lambda g: ('torch.cummax', g.x, 1),
    'cummin columns': lambda g: ('torch.cummin', g.x, 0),
    'cumsum': lambda g: ('torch.cumsum', g.x, 1),
    'cumsum columns': lambda g: ('torch.cumsum', g.x, 0),
    'cumprod': lambda g: ('torch.cumprod', g.x, 1),
    'logcumsumexp': lambda g: ('torch.logcumsumexp', g.x, 1),
    'argmax': lambda g: ('torch.argmax', g.x, 1),
    'argmax all': lambda g: ('torch.argmax', g.x),
    'argmin columns': lambda g: ('torch.argmin', g.x, 0),
    'max_dim': lambda g: ('torch.max', g.x, 1),
    'min_dim columns': lambda g: ('torch.min', g.x, 0),
    'aminmax': lambda g: ('torch.aminmax', g.x, dict(dim=1)),
    'quantile': lambda g: ('torch.quantile', g.x, 0.3, 1),
}

REDUCTIONS = {
    **{f'{name}{label}': (lambda g, name=name, dim=dim: (f'torch.{name}', g.x, *dim))
       for name in ['sum', 'mean', 'amax', 'amin', 'nansum', 'count_nonzero', 'any', 'all', 'logsumexp', 'var', 'std']
       for label, dim in [('', [1]), (' columns', [0])]},
    'sum all': lambda g: ('torch.sum', g.x),
    'prod': lambda g: ('torch.prod', g.x, 1),
    'sum middle': lambda g: ('torch.sum', g.tensor(8, g.n // 8, g.n), 1),
    'max all': lambda g: ('torch.max', g.x),
    'norm': lambda g: ('torch.linalg.vector_norm', g.x, 2, 1),
    'dist': lambda g: ('torch.dist', g.x, g.x),
    'trace': lambda g: ('torch.trace', g.x),
    'diff': lambda g: ('torch.diff', g.x),
    'trapezoid': lambda g: ('torch.trapezoid', g.x),
    'equal': lambda g: ('torch.isclose', g.x, g.x),
}

NETS = {
    'softmax': lambda g: ('torch.softmax', g.x, 1),
    'softmax columns': lambda g: ('torch.softmax', g.x, 0),
    'log_softmax': lambda g: ('torch.log_softmax', g.x, 1),
    'layer_norm': lambda g: ('torch.nn.functional.layer_norm', g.x, [g.n], g.tensor(g.n), g.tensor(g.n)),
    'rms_norm': lambda g: ('torch.nn.functional.rms_norm', g.x, [g.n], g.tensor(g.n)),
    'group_norm': lambda g: ('torch.nn.functional.group_norm', g.images(), 4),
    'batch_norm': lambda g: ('torch.nn.functional.batch_norm', g.images(), g.tensor(16), g.tensor(16, kind='positive')),
    'instance_norm': lambda g: ('torch.nn.functional.instance_norm', g.images()),
    'local_response_norm': lambda g: ('torch.nn.functional.local_response_norm', g.images(), 5),
    'normalize': lambda g: ('torch.nn.functional.normalize', g.x),
    'cosine_similarity': lambda g: ('torch.cosine_similarity', g.x, g.x),
    'pairwise_distance': lambda g: ('torch.pairwise_distance', g.x, g.x),
    'cdist': lambda g: ('torch.cdist', g.tensor(g.n, 32), g.tensor(g.n, 32)),
    'glu': lambda g: ('torch.nn.functional.glu', g.x, 1),
    'prelu': lambda g: ('torch.nn.functional.prelu', g.x, g.tensor(g.n)),
    'max_pool2d': lambda g: ('torch.nn.functional.max_pool2d', g.images(), 3, 2, 1),
    'max_pool2d indices': lambda g: ('torch.nn.functional.max_pool2d_with_indices', g.images(), 3, 2, 1),
    'avg_pool2d': lambda g: ('torch.nn.functional.avg_pool2d', g.images(), 3, 2, 1),
    'adaptive_avg_pool2d': lambda g: ('torch.nn.functional.adaptive_avg_pool2d', g.images(), 7),
    'adaptive_max_pool2d': lambda g: ('torch.nn.functional.adaptive_max_pool2d', g.images(), 7),
    'lp_pool2d': lambda g: ('torch.nn.functional.lp_pool2d', g.images(), 2, 2),
    'mse_loss': lambda g: ('torch.nn.functional.mse_loss', g.x, g.x),
    'smooth_l1_loss': lambda g: ('torch.nn.functional.smooth_l1_loss', g.x, g.x),
    'huber_loss': lambda g: ('torch.nn.functional.huber_loss', g.x, g.x),
    'kl_div': lambda g: ('torch.nn.functional.kl_div', g.x, g.unit, dict(reduction='batchmean')),
    'binary_cross_entropy': lambda g: ('torch.nn.functional.binary_cross_entropy', g.unit, g.unit),
    'binary_cross_entropy_with_logits': lambda g: ('torch.nn.functional.binary_cross_entropy_with_logits', g.x, g.unit),
    'nll_loss': lambda g: ('torch.nn.functional.nll_loss', g.x, g.below(g.n, g.n)),
    'cross_entropy_loss': lambda g: ('torch.nn.functional.cross_entropy', g.x, g.below(g.n, g.n)),
}

PRODUCTS = {
    'mm': lambda g: ('torch.mm', g.tensor(256, 256), g.tensor(256, 256)),
    'mv': lambda g: ('torch.mv', g.x, g.tensor(g.n)),
    'bmm': lambda g: ('torch.bmm', g.tensor(64, 32, 32), g.tensor(64, 32, 32)),
    'dot': lambda g: ('torch.dot', g.tensor(g.n * g.n), g.tensor(g.n * g.n)),
    'outer': lambda g: ('torch.outer', g.tensor(g.n), g.tensor(g.n)),
    'cross': lambda g: ('torch.linalg.cross', g.tensor(g.n * g.n // 4, 3), g.tensor(g.n * g.n // 4, 3)),
    'linalg_inv': lambda g: ('torch.linalg.inv', g.small()),
    'linalg_solve': lambda g: ('torch.linalg.solve', g.small(), g.tensor(min(64, g.n), 8)),
    'linalg_det': lambda g: ('torch.linalg.det', g.small()),
    'linalg_cholesky': lambda g: ('torch.linalg.cholesky', g.positive_definite()),
    'linalg_qr': lambda g: ('torch.linalg.qr', g.small()),
    'linalg_svdvals': lambda g: ('torch.linalg.svdvals', g.small()),
    'linalg_eigvalsh': lambda g: ('torch.linalg.eigvalsh', g.positive_definite()),
    'linalg_matrix_exp': lambda g: ('torch.linalg.matrix_exp', g.small() / 100),
}

RANDOM = {
    'rand': lambda g: ('torch.rand', [g.n, g.n]),
    'randn': lambda g: ('torch.randn', [g.n, g.n]),
    'randint': lambda g: ('torch.randint', 0, 100, [g.n, g.n]),
    'bernoulli': lambda g: ('torch.bernoulli', g.unit),
    'dropout': lambda g: ('torch.nn.functional.dropout', g.x, 0.5, True),
    'arange': lambda g: ('torch.arange', g.n * g.n),
    'linspace': lambda g: ('torch.linspace', 0, 1, g.n * g.n),
    'eye': lambda g: ('torch.eye', g.n),
}

# Integers by constants.
CONSTANTS = {
    'floor_divide by 7': lambda g: ('torch.floor_divide', g.x, 7),
    'floor_divide by 8': lambda g: ('torch.floor_divide', g.x, 8),
    'remainder by 10': lambda g: ('torch.remainder', g.x, 10),
    'fmod by 10': lambda g: ('torch.fmod', g.x, 10),
    'shift right by 2': lambda g: ('torch.bitwise_right_shift', g.x, 2),
    'shift left by 2': lambda g: ('torch.bitwise_left_shift', g.x, 2),
    'mul by 3': lambda g: ('torch.mul', g.x, 3),
    'pow by 2': lambda g: ('torch.pow', g.x, 2),
    'to f32': lambda g: ('Tensor.to', g.x, torch.float32),
    'to i64': lambda g: ('Tensor.to', g.x, torch.int64),
    'to u8': lambda g: ('Tensor.to', g.x, torch.uint8),
    'to bf16': lambda g: ('Tensor.to', g.x, torch.bfloat16),
}

FAMILIES = {
    'data movement': MOVES, 'views': VIEWS, 'indexing': INDEXING, 'order': ORDER, 'reductions': REDUCTIONS, 'nets': NETS,
    'products': PRODUCTS, 'random': RANDOM, 'constants': CONSTANTS,
}
# Families that measure all dtypes; the others compute in floats.
EVERY_DTYPE = {'data movement', 'views', 'indexing', 'order', 'reductions', 'constants'}


def pointwise(row):
    """A call of a pointwise row, or None if its arguments cannot be told from its schema."""
    path = next((p for s in row['spellings'] if not s['inplace'] for p in s['paths'] if p.startswith(('torch.', 'aten.'))), None)
    name, inner = re.match(r'(\w+)\((.*)\)', row['schema']).groups()
    parameters = [p.strip() for p in inner.split(', ')]
    required = [p for p in parameters if p != '*' and '=' not in p and not p.split()[0].endswith('?')]
    kind = 'positive' if name in POSITIVE else 'unit' if name in UNIT else 'above one' if name in ABOVE_ONE else 'normal'
    if path is None or not any(p.startswith('Tensor ') for p in required):
        return None

    def make(g):
        numbers, args = list(NUMBERS.get(name, [])), []
        for p in required:
            kind_of, _, called = p.partition(' ')
            if called in ('condition', 'mask'):
                args.append(g.mask())
            elif kind_of == 'Tensor':
                args.append(g.tensor(g.n, g.n, kind='shift' if name in SHIFTS and args else kind))
            else:
                args.append(numbers.pop(0) if numbers else 0.5)
        if name == 'polygamma':
            args.sort(key=lambda v: isinstance(v, torch.Tensor))
        return (path, *args, *numbers)
    return make
