"""Single contractions of fxc beside PyTorch's oneDNN: GFLOP/s of both, and fxc's over oneDNN's.

    pip install torch
    cargo build --release
    python benches/layers.py [SUBSTRING ...]    # shapes whose name holds one of these; about ten minutes for all

    [--threads 1,2] [--rounds 2] [--seconds 0.2] [--work DIR] [--fxc PATH] [--markdown FILE]

Weights are constant, f32, activations of convolutions channels last at both ends. Of PyTorch the fastest of these ways counts: eager on
contiguous and on channels-last memory, and its oneDNN modules (`torch.utils.mkldnn.to_mkldnn`) with packed weights on oneDNN's own
tensors, whose conversion is not measured. The shortest run of several rounds counts; both run in turns.
"""
import functools
import json
import math
import os
import subprocess
import sys
import time
import warnings

from arguments import parser

warnings.filterwarnings('ignore')

# (batch, m, k, n); the second operand is a constant.
LINEAR = [(1, 1, 768, 768), (1, 4, 768, 768), (1, 1, 4096, 4096), (1, 4, 4096, 4096), (1, 16, 768, 3072), (1, 64, 768, 768),
          (1, 128, 768, 768), (1, 128, 768, 3072), (1, 128, 3072, 768), (1, 197, 768, 3072), (1, 512, 512, 512),
          (1, 1024, 1024, 1024), (1, 2048, 2048, 2048), (1, 3136, 96, 384), (1, 3136, 384, 96)]
# (batch, m, k, n); neither is constant.
BATCHED = [(12, 128, 64, 128), (12, 128, 128, 64), (1, 512, 512, 512)]
# (in, out, size, kernel, stride, groups); one image, padding kernel // 2.
CONV = [(3, 64, 224, 7, 2, 1), (3, 32, 224, 3, 2, 1), (3, 96, 224, 4, 4, 1), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 1),
        (64, 128, 56, 3, 2, 1), (256, 512, 56, 1, 2, 1), (128, 128, 28, 3, 1, 1), (256, 256, 14, 3, 1, 1), (512, 512, 7, 3, 1, 1),
        (1024, 256, 14, 1, 1, 1), (512, 2048, 7, 1, 1, 1), (16, 96, 112, 1, 1, 1), (24, 144, 56, 1, 1, 1), (96, 24, 56, 1, 1, 1),
        (144, 24, 56, 1, 1, 1), (240, 40, 28, 1, 1, 1), (320, 1280, 7, 1, 1, 1), (128, 32, 28, 3, 1, 1),
        (48, 48, 56, 3, 1, 6), (104, 104, 56, 3, 2, 13), (104, 104, 28, 3, 1, 13), (208, 208, 14, 3, 1, 26), (440, 440, 7, 3, 1, 55),
        (128, 128, 56, 3, 1, 32), (256, 256, 28, 3, 1, 16), (256, 256, 28, 3, 1, 4)]
DEPTHWISE = [(32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (144, 56, 3, 2), (144, 56, 5, 2), (240, 28, 5, 1), (384, 14, 3, 1),
             (576, 14, 3, 1), (960, 7, 3, 1), (96, 56, 7, 1), (384, 14, 7, 1), (768, 7, 7, 1)]
# Spatial sizes, (in, out), kernel, stride.
OTHER = [('transposed', (16, 16), (256, 128), 2, 2), ('transposed', (32, 32), (64, 32), 4, 2), ('line', (1000,), (64, 128), 5, 1),
         ('line', (3000,), (80, 384), 3, 1), ('volume', (16, 28, 28), (16, 32), 3, 1), ('volume', (8, 14, 14), (64, 64), 3, 1)]
# (batch, heads, queries, keys, size)
ATTENTION = [(1, 12, 128, 128, 64), (1, 12, 197, 197, 64), (1, 12, 512, 512, 64), (1, 12, 1024, 1024, 64), (1, 12, 1, 1024, 64),
             (8, 8, 64, 64, 32)]


def last(m):
    """A convolution of channels-last input with channels-last output."""
    import torch

    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.m = m

        def forward(self, x):
            return self.m(x.movedim(-1, 1)).movedim(1, -1)

    return Last()


def product(f):
    import torch

    class Product(torch.nn.Module):
        def forward(self, *args):
            return f(*args)

    return Product()


def convolution(m, shape, taps):
    """What fxc runs, what torch runs, and the multiply-adds."""
    import torch
    channels, *size = shape
    x = torch.randn(1, channels, *size)
    transposed = 'Transpose' in type(m).__name__
    pixels = x.numel() // channels if transposed else m(x).numel() // m.out_channels
    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    ways = [('eager', m, (x,))]
    if form:
        ways.append(('eager, channels last', m.to(memory_format=form), (x.to(memory_format=form),)))
    macs = pixels * taps * m.in_channels * m.out_channels / m.groups
    return last(m), (x.movedim(1, -1).contiguous(),), ways, macs, x


def cases():
    """Name, and a function that gives: fxc's module and inputs, torch's ways, multiply-adds, input of the oneDNN module or None."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    def linear(b, m, k, n):
        layer, x = nn.Linear(k, n), torch.randn(m, k)
        return layer, (x,), [('eager', layer, (x,))], b * m * k * n, x

    def bmm(b, m, k, n):
        args = torch.randn(b, m, k), torch.randn(b, k, n)
        f = product(torch.bmm)
        return f, args, [('eager', f, args)], b * m * k * n, None

    def conv(i, o, s, k, t, g):
        return convolution(nn.Conv2d(i, o, k, t, 0 if k == t else k // 2, groups=g), (i, s, s), k * k)

    def other(kind, size, io, k, t):
        layer = dict(transposed=nn.ConvTranspose2d, line=nn.Conv1d, volume=nn.Conv3d)[kind]
        padding = dict(padding=k // 2) if kind != 'transposed' else dict(padding=(k - t) // 2)
        return convolution(layer(*io, k, t, **padding), (io[0], *size), k ** len(size))

    def attention(b, h, q, k, e):
        args = torch.randn(b, h, q, e), torch.randn(b, h, k, e), torch.randn(b, h, k, e)
        f = product(F.scaled_dot_product_attention)
        return f, args, [('eager', f, args)], 2 * b * h * q * k * e, None

    for s in LINEAR:
        yield f'linear {s[1]}x{s[2]}x{s[3]}', lambda s=s: linear(*s)
    for s in BATCHED:
        yield f'bmm {s[0]}x {s[1]}x{s[2]}x{s[3]}', lambda s=s: bmm(*s)
    for s in CONV:
        yield f'conv {s[0]}->{s[1]} k{s[3]}s{s[4]}g{s[5]} @{s[2]}', lambda s=s: conv(*s)
    for c, s, k, t in DEPTHWISE:
        yield f'depthwise {c} k{k}s{t} @{s}', lambda c=c, s=s, k=k, t=t: conv(c, c, s, k, t, c)
    for s in OTHER:
        yield f'{s[0]} {s[2][0]}->{s[2][1]} k{s[3]}s{s[4]} @{"x".join(map(str, s[1]))}', lambda s=s: other(*s)
    for s in ATTENTION:
        yield f'attention {s[0]}x{s[1]} {s[2]}x{s[3]}x{s[4]}', lambda s=s: attention(*s)


def least(run, seconds):
    """Seconds of the shortest run."""
    import torch
    with torch.no_grad():
        start = time.perf_counter()
        while time.perf_counter() - start < seconds / 2:
            run()
        times, start = [], time.perf_counter()
        while len(times) < 5 or time.perf_counter() - start < seconds:
            one = time.perf_counter()
            run()
            times.append(time.perf_counter() - one)
    return min(times)


def packed(m, x):
    """The oneDNN module with its own tensors, if it has one."""
    import torch
    from torch.utils import mkldnn
    try:
        inner = getattr(m, 'm', m)
        made, given = mkldnn.to_mkldnn(torch.nn.Sequential(inner).eval()), x.to_mkldnn()
        with torch.no_grad():
            made(given)
        return [('oneDNN, packed', made, (given,))]
    except (RuntimeError, TypeError, AttributeError):
        return []


def by_fxc(a, path, threads):
    command = [a.fxc, 'bench', f'{path}.pt2', '--inputs', f'{path}.npz', '--threads', str(threads), '--seconds', str(a.seconds), '--json',
               '--profile']
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode:
        return float('inf'), p.stderr.strip().splitlines()[-1][:60]
    r = json.loads(p.stdout)
    rows = [x['name'].split('[')[-1].rstrip(']') for x in r['profile']]
    return r['min_ms'] / 1e3, '; '.join(rows)


def measure(a, name, make):
    """For each number of threads: fxc's seconds, torch's, which way that was, what fxc did; and multiply-adds."""
    import numpy as np
    import torch
    torch.manual_seed(0)
    module, args, ways, macs, x = make()
    module.eval().requires_grad_(False)
    path = os.path.join(a.work, 'layer')
    with torch.no_grad():
        exported = torch.export.export(module, args, strict=False)
    torch.export.save(exported, f'{path}.pt2')
    np.savez(f'{path}.npz', **{n: t.numpy() for n, t in zip(exported.graph_signature.user_inputs, args)})
    if x is not None:
        ways = ways + packed(module, x)
    out = []
    for t in a.threads:
        torch.set_num_threads(t)
        ours, theirs = (float('inf'), ''), (float('inf'), '')
        for _ in range(a.rounds):
            ours = min(ours, by_fxc(a, path, t))
            for way, m, given in ways:
                theirs = min(theirs, (least(functools.partial(m, *given), a.seconds), way))
        out.append((ours, theirs))
    return out, macs


def main():
    ap = parser(__doc__, 'layers', rounds=2, seconds=0.2)
    ap.add_argument('shapes', nargs='*', metavar='SUBSTRING')
    a = ap.parse_args()
    os.makedirs(a.work, exist_ok=True)
    head = ['layer'] + [f'{t} threads: fxc, oneDNN GFLOP/s | ratio' for t in a.threads] + ['torch ran | fxc ran']
    lines = ['| ' + ' | '.join(head) + ' |', '|---' * (2 * len(a.threads) + 3) + '|']
    print(lines[0], flush=True)
    ratios = {t: [] for t in a.threads}
    for name, make in cases():
        if a.shapes and not any(s in name for s in a.shapes):
            continue
        try:
            found, macs = measure(a, name, make)
        except Exception as e:
            print(f'{name}: {type(e).__name__}: {e}'[:200], file=sys.stderr)
            continue
        cells = [name]
        for t, (ours, theirs) in zip(a.threads, found):
            ratios[t].append(theirs[0] / ours[0])
            cells.append(f'{2e-9 * macs / ours[0]:.1f}, {2e-9 * macs / theirs[0]:.1f} | {ratios[t][-1]:.2f}')
        cells += [found[0][1][1], found[0][0][1]]
        lines.append('| ' + ' | '.join(cells) + ' |')
        print(lines[-1], flush=True)
    for t, r in ratios.items():
        if r:
            mean = math.exp(sum(map(math.log, r)) / len(r))
            lines.append(f'\n{t} threads: geometric mean of fxc / oneDNN over {len(r)} layers {mean:.2f}, least {min(r):.2f}.')
            print(lines[-1])
    if a.markdown:
        with open(a.markdown, 'w') as f:
            f.write('\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()
