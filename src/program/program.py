

# The program: buffers are flat arrays, operands are strided views of them.
inf, nan = math.inf, math.nan


def flat(x, dtype):
    return np.ascontiguousarray(x).reshape(-1).astype(dtype, copy=False)


def view(b, offset, shape, strides):
    if 0 in shape:
        return np.zeros(shape, b.dtype)
    return np.lib.stride_tricks.as_strided(b[offset:], shape, [s * b.itemsize for s in strides])


def wide(x, bf16):
    # What a product is summed in: halves in f32, as the compiled code does.
    if bf16:
        return from_bf16(x)
    return x.astype(np.float32) if x.dtype == np.float16 else x


def narrow(x, out, bf16):
    out[...] = to_bf16(x) if bf16 else x.astype(out.dtype)


def activated(x, lo, hi):
    x = x if lo is None else np.where(np.isnan(x), x, np.maximum(x, x.dtype.type(lo)))
    return x if hi is None else np.where(np.isnan(x), x, np.minimum(x, x.dtype.type(hi)))


def wide_bytes(x, out):
    # Products of bytes have sums of 32 bits.
    return x.astype(np.int32) if x.dtype.itemsize == 1 and out.dtype == np.int32 else x


def matmul(out, a, b, addend=None, alpha=1.0, beta=1.0, lo=None, hi=None, bf16=False):
    a, b = wide_bytes(wide(a, bf16), out), wide_bytes(wide(b, bf16), out)
    c = np.matmul(a, b)
    if alpha != 1.0:
        c = c * c.dtype.type(alpha)
    if addend is not None:
        d = wide(addend, bf16)
        c = c + (d if beta == 1.0 else d * d.dtype.type(beta))
    narrow(activated(c, lo, hi), out, bf16)


def conv(out, x, w, bias, groups, stride, padding, dilation, transposed, lo=None, hi=None, bf16=False):
    # x is [N, C, D, H, W], w is torch's weight with three spatial sizes, out is [N, C, D, H, W].
    x, w = wide_bytes(wide(x, bf16), out), wide_bytes(wide(w, bf16), out)
    n, channels, size = x.shape[0], x.shape[1], x.shape[2:]
    kernel, result = w.shape[2:], out.shape[2:]
    each = channels // groups
    x = x.reshape(n, groups, each, *size)
    o = out.shape[1] // groups
    w = w.reshape(groups, each, o, *kernel).swapaxes(1, 2) if transposed else w.reshape(groups, o, each, *kernel)
    y = np.zeros((n, groups, o, *result), x.dtype)
    for at in np.ndindex(*kernel):
        # The part of the output, and of the input, that this element of the kernel connects.
        to, of = [], []
        for d in range(3):
            shift = at[d] * dilation[d] - padding[d]
            long, short = (result[d], size[d]) if transposed else (size[d], result[d])
            first = max(0, -(shift // stride[d]))
            last = min(short, (long - 1 - shift) // stride[d] + 1)
            last = max(first, last)
            start = first * stride[d] + shift
            far = slice(start, max(start, (last - 1) * stride[d] + shift + 1), stride[d])
            near = slice(first, last)
            to.append(far if transposed else near)
            of.append(near if transposed else far)
        part = x[(..., *of)]
        if part.size == 0:
            continue
        sums = np.matmul(w[(..., *at)], part.reshape(n, groups, each, -1))
        y[(..., *to)] += sums.reshape(n, groups, o, *part.shape[3:])
    y = y.reshape(out.shape)
    if bias is not None:
        y = y + wide(bias, bf16).reshape(1, -1, 1, 1, 1)
    narrow(activated(y, lo, hi), out, bf16)


def attention(out, q, k, v, bias, mask, scale, causal, safe, bf16=False):
    # q is [batch, heads, L, E], k and v have the heads that the query heads share.
    q, k, v = wide(q, bf16), wide(k, bf16), wide(v, bf16)
    share = q.shape[1] // max(k.shape[1], 1)
    k, v = np.repeat(k, share, 1), np.repeat(v, share, 1)
    s = np.matmul(q, k.swapaxes(-1, -2)) * q.dtype.type(scale)
    for m in (bias, mask):
        if m is not None:
            s = np.where(m, s, -np.inf).astype(s.dtype) if m.dtype == np.bool_ else s + wide(m, bf16)
    if causal:
        s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf).astype(s.dtype)
    top = s.max(-1, keepdims=True) if s.shape[-1] else np.zeros((*s.shape[:-1], 1), s.dtype)
    e = np.exp(s - np.where(np.isneginf(top), 0, top).astype(s.dtype))
    total = e.sum(-1, keepdims=True)
    p = np.where(np.isneginf(top), 0 if safe else np.nan, e / np.where(total == 0, 1, total)).astype(s.dtype)
    narrow(np.matmul(p, v), out, bf16)


def recurrent(out, x, h, c, w, projection, bias, cell, reverse):
    # x is [time, batch, gates * hidden]; out, flat, has the states of all steps and after them the last cell state of an LSTM.
    time, hidden = x.shape[0], w.shape[0] // (4 if cell == "lstm" else 3 if cell == "gru" else 1)
    states = out[:time * h.size].reshape((time,) + h.shape)
    for t in reversed(range(time)) if reverse else range(time):
        u = np.matmul(h, w.T)
        u = u if bias is None else u + bias
        g = [x[t][:, i * hidden:(i + 1) * hidden] for i in range(x.shape[2] // hidden)]
        r = [u[:, i * hidden:(i + 1) * hidden] for i in range(len(g))]
        if cell == "lstm":
            c = sigmoid(g[1] + r[1]) * c + sigmoid(g[0] + r[0]) * np.tanh(g[2] + r[2])
            h = sigmoid(g[3] + r[3]) * np.tanh(c)
            h = h if projection is None else np.matmul(h, projection.T)
        elif cell == "gru":
            z, n = sigmoid(g[1] + r[1]), np.tanh(g[2] + sigmoid(g[0] + r[0]) * r[2])
            h = (h - n) * z + n
        else:
            h = np.tanh(g[0] + r[0]) if cell == "tanh" else maximum(g[0] + r[0], np.float32(0))
        states[t] = h
    if cell == "lstm":
        out[states.size:] = c.reshape(-1)


def grouped(out, x, w, groups, names=False, bf16=False):
    # The rows up to groups[0] are multiplied with w[0], those up to groups[1] with w[1] and so on; or each row with the matrix of its name.
    if names:
        narrow(np.matmul(wide(x, bf16)[:, None], wide(w[groups], bf16))[:, 0], out, bf16)
        return
    out[...], first = 0, 0
    for matrix, end in zip(w, groups.tolist()):
        if not first <= end <= len(x):
            raise ValueError("grouped_mm: offsets must be ascending and within the rows")
        if first < end:
            narrow(np.matmul(wide(x[first:end], bf16), wide(matrix, bf16)), out[first:end], bf16)
        first = end


def store(outs, results):
    # The results of a library call, flat.
    results = results if isinstance(results, tuple) else (results,)
    for b, x in zip(outs, results):
        b[...] = np.asarray(x).astype(b.dtype).reshape(-1)


def op_index(x, indices):
    # Dims that are not indexed stay; index tensors that stand together keep their place.
    masks = [m for i in indices for m in ([None] if i is None else np.nonzero(i) if i.dtype == np.bool_ else [i])]
    return x[tuple(slice(None) if m is None else m for m in masks)]


def op_index_select(x, dim, index):
    return np.take(x, index.reshape(-1), axis=dim)


def op_gather(x, dim, index, *_):
    at = list(np.indices(index.shape, sparse=True))
    at[dim] = index
    return x[tuple(at)] if index.ndim else x


def op_scatter_add(x, dim, index, src):
    out = x.copy()
    at = list(np.indices(index.shape, sparse=True))
    at[dim] = index
    np.add.at(out, tuple(at), src[tuple(slice(0, n) for n in index.shape)])
    return out


def op_scatter(x, dim, index, src, reduce=None):
    if reduce is not None:
        raise NotImplementedError("scatter with a reduction")
    out = x.copy()
    at = list(np.indices(index.shape, sparse=True))
    at[dim] = index
    out[tuple(at)] = src[tuple(slice(0, n) for n in index.shape)]
    return out


def op_index_add(x, dim, index, source, alpha=1):
    out = x.copy()
    np.add.at(np.moveaxis(out, dim, 0), index, np.moveaxis(source, dim, 0) * x.dtype.type(alpha))
    return out


def op_index_put(x, indices, values, accumulate=False):
    out = x.copy()
    masks = [m for i in indices for m in ([None] if i is None else np.nonzero(i) if i.dtype == np.bool_ else [i])]
    at = tuple(slice(None) if m is None else m for m in masks)
    if accumulate:
        np.add.at(out, at, values)
    else:
        out[at] = values
    return out


def op_max_pool2d_with_indices(x, kernel, stride=(), padding=0, dilation=1, ceil=False):
    two = lambda v: [v, v] if isinstance(v, int) else list(v) * (2 // len(v))
    kernel, padding, dilation = two(kernel), two(padding), two(dilation)
    stride = two(stride) if stride != [] and stride != () else kernel
    image = x.reshape(-1, *x.shape[-2:])
    sizes = []
    for d in range(2):
        span = x.shape[d - 2] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1
        n = (-(-span // stride[d]) if ceil else span // stride[d]) + 1
        # A window that begins after the image and its padding in front does not count.
        sizes.append(n - 1 if ceil and (n - 1) * stride[d] >= x.shape[d - 2] + padding[d] else n)
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    values = np.full((len(image), *sizes), least, x.dtype)
    where = np.full(values.shape, -1, np.int64)
    for at in np.ndindex(*kernel):
        rows, cols = (np.arange(sizes[d]) * stride[d] - padding[d] + at[d] * dilation[d] for d in range(2))
        inside = ((rows >= 0) & (rows < x.shape[-2]))[:, None] & ((cols >= 0) & (cols < x.shape[-1]))
        part = image[:, np.clip(rows, 0, x.shape[-2] - 1)[:, None], np.clip(cols, 0, x.shape[-1] - 1)]
        better = inside & ((part > values) | np.isnan(part) | (where < 0))
        values = np.where(better, part, values)
        where = np.where(better, rows[:, None] * x.shape[-1] + cols, where)
    shape = (*x.shape[:-2], *sizes)
    return values.reshape(shape), where.reshape(shape)


def op_argmax(x, dim=None, keepdim=False):
    return np.asarray(np.argmax(x, axis=dim, keepdims=keepdim) if x.ndim else 0, np.int64)


def op_argmin(x, dim=None, keepdim=False):
    return np.asarray(np.argmin(x, axis=dim, keepdims=keepdim) if x.ndim else 0, np.int64)


def op_embedding_bag(w, indices, offsets, scale=False, mode=0, sparse=False, weights=None, last=False, padding=-1):
    ends = list(offsets[1:]) + ([] if last else [len(indices)])
    bags = [indices[a:b] for a, b in zip(offsets, ends)]
    keep = [bag if padding is None or padding < 0 else bag[bag != padding] for bag in bags]
    rows = []
    for k, a in zip(keep, offsets):
        part = w[k] if weights is None else w[k] * weights[a:a + len(k), None]
        f = [np.sum, np.mean, np.max][mode]
        rows.append(f(part, axis=0) if len(k) else np.zeros(w.shape[1], w.dtype))
    out = np.stack(rows) if rows else np.zeros((0, w.shape[1]), w.dtype)
    # What only the backward pass reads stays as it is.
    return (out.astype(w.dtype),)


def op_sort(x, dim=-1, descending=False, stable=True):
    if x.ndim == 0:
        return x, np.zeros((), np.int64)
    key = np.flip(x, dim) if descending else x
    order = np.argsort(key, axis=dim, kind="stable")
    if descending:
        order = np.flip(x.shape[dim] - 1 - order, dim)
    return np.take_along_axis(x, order, dim), order


def op_topk(x, k, dim=-1, largest=True, sorted=True):
    values, order = op_sort(x, dim, largest)
    part = tuple(slice(0, k) if d == dim % x.ndim else slice(None) for d in range(x.ndim))
    return values[part], order[part]
