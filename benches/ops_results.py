"""Whether two results of one call are the same, up to rounding and up to what PyTorch leaves open."""
import re

import torch

# The largest error, relative to the greatest element.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 1e-2}
# Ops that may return any of the indices of equal elements.
ANY_OF_EQUAL = re.compile(r'sort|topk|kth|median|mode|quantile')
# Draws, and memory that nothing was written to.
ARBITRARY = re.compile(r'rand|multinomial|bernoulli|normal|dropout|exponential|poisson|geometric|cauchy|empty')
# Vectors with either sign, and with errors that grow as values come close to each other.
VECTORS = re.compile(r'eig|svd')
VECTOR_TOLERANCE = 2e-2


def tensors(v):
    if isinstance(v, torch.Tensor):
        return [v]
    if isinstance(v, (list, tuple)):
        return [t for x in v for t in tensors(x)]
    return [torch.tensor(v)]


def pairs_differ(name, got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        return f'{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}'
    if want.numel() == 0:
        return None
    if not want.dtype.is_floating_point:
        others = 0 if ANY_OF_EQUAL.search(name) else (got != want).sum().item()
        return f'{others} of {want.numel()} integers differ' if others else None
    x, y = got.double(), want.double()
    limit = TOLERANCE[want.dtype]
    if VECTORS.search(name):
        x, y, limit = x.abs(), y.abs(), max(limit, VECTOR_TOLERANCE)
    finite = torch.isfinite(y)
    if not torch.equal(x[~finite].nan_to_num(7e77), y[~finite].nan_to_num(7e77)):
        return 'infinities or NaN differ'
    x, y = x[finite], y[finite]
    if y.numel() == 0:
        return None
    error = ((x - y).abs().max() / y.abs().max().clamp_min(1e-30)).item()
    return None if error <= limit else f'elements differ by {error:.1e} of the greatest'


def difference(name, got, want):
    """What differs between the results `got` and `want` of a call, or None."""
    if ARBITRARY.search(name):
        return None
    got, want = tensors(got), tensors(want)
    if len(got) != len(want):
        return f'{len(got)} instead of {len(want)} results'
    return next((d for g, w in zip(got, want) if (d := pairs_differ(name, g, w))), None)
