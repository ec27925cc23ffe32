#!/usr/bin/env python3
"""Single ops of fxc beside eager PyTorch, in one run: milliseconds of both, and fxc's over eager's.

    pip install torch==2.15.0
    python/build.sh VENV --release            # the Python package; see docs/python.md
    python benches/ops.py [--size small|l2|medium|large] [--only REGEX] [--dtypes f32,i64] [--threads 1] [--rounds 5]
                          [--seconds 0.004] [--markdown FILE] [--json FILE] [--shapes] [--check]

A row of the table is a call of one op (benches/ops_cases.py) on operands of SIDE x SIDE elements: 64 (in the first cache), 256
(in the second), 1024 and 4096 (64 MB of f32). Both sides get the same tensors, return new memory and take turns; medians of the rounds
count. The calls' overhead counts on both sides, which matters for small operands. Before a call is measured, its results are compared;
those that differ are listed as skipped. With --check, nothing is measured. With --shapes, rows are calls on unusual shapes instead
(benches/ops_shapes.py), and --size does not count.
"""
import argparse
import collections
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
import warnings

import fxc
import ops_shapes
import torch
from ops_cases import EVERY_DTYPE, FAMILIES, Operands, pointwise
from ops_results import difference

sys.path.insert(0, __file__.rsplit('/', 1)[0] + '/../tests/data')
from samples import DTYPES, SHORT, target

# What is in the user's cache was not compiled now.
os.environ['FXC_CACHE'] = 'off'

warnings.filterwarnings('ignore')
SIDES = dict(small=64, l2=256, medium=1024, large=4096)
COPY = 'aten.clone.default'
# PyTorch's idle threads spin for about 20 ms after a parallel loop, and would take a processor from fxc's.
SETTLE = 0.03
# A case that takes longer than this is measured once a round, in two rounds.
SLOW = 0.5
# Results that differ are not measured.
WRONG = 'results differ: '


def literal(v, inputs):
    """An argument as FXIR; tensors become inputs."""
    if isinstance(v, torch.Tensor):
        inputs.append(v)
        return f'%x{len(inputs) - 1}'
    if isinstance(v, (list, tuple)):
        return '[' + ', '.join(literal(x, inputs) for x in v) + ']'
    if isinstance(v, str):
        return json.dumps(v)
    return repr(v) if not isinstance(v, torch.dtype) else SHORT[v]


def graph(path, args, kwargs, copies):
    """The call as FXIR with its inputs."""
    inputs = []
    given = [literal(v, inputs) for v in args] + [f'{k}={literal(v, inputs)}' for k, v in kwargs.items()]
    head = [f'%x{i} : {SHORT[t.dtype]}{list(t.shape)} = placeholder x{i}' for i, t in enumerate(inputs)]
    call = f'call_method {path[7:]}' if path.startswith('Tensor.') else f'call_function {path}'
    body = [f'%y = {call}({", ".join(given)})']
    if copies:
        body.append(f'%z = call_function {COPY}(%y, memory_format=torch.contiguous_format)')
    lines = '\n'.join(head + body)
    return f'graph main {{\n{lines}\noutput %{"z" if copies else "y"}\n}}\n', inputs


def seconds_of(call, times):
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times


def measure(calls, a):
    """Medians of the calls, which take turns."""
    once = [min(seconds_of(c, 1) for _ in range(2)) for c in calls]
    times = [max(1, int(a.seconds / max(s, 1e-7))) for s in once]
    rounds = a.rounds if max(once) < SLOW else 2
    settle = SETTLE if a.threads > 1 else 0

    def turn(call, n):
        if settle:
            time.sleep(settle)
            # Threads that slept wake up.
            seconds_of(call, n // 4 + 1)
        return seconds_of(call, n)
    found = [[turn(c, n) for c, n in zip(calls, times)] for _ in range(rounds)]
    return [statistics.median(f) for f in zip(*found)]


def cases(a):
    """(family, name, what makes the call, whether integers are measured too) of all rows that are measured."""
    if a.shapes:
        for family, rows in ops_shapes.FAMILIES.items():
            yield from ((family, name, make, family in ('reductions', 'moves', 'tensors')) for name, make in rows.items())
        return
    rows = json.load(open(a.table)) if a.table else fxc_table(a)
    for row in rows:
        if row['meaning'] == 'pointwise' and not row['name'].startswith('empty') and (make := pointwise(row)):
            yield 'pointwise', row['name'], make, True
    for family, rows in FAMILIES.items():
        for name, make in rows.items():
            yield family, name, make, family in EVERY_DTYPE


def fxc_table(a):
    return json.loads(subprocess.run([a.fxc, 'ops', '--format', 'json'], capture_output=True, check=True).stdout)


def shares_memory(y, args):
    address = y.untyped_storage().data_ptr() if isinstance(y, torch.Tensor) else None
    return any(isinstance(v, torch.Tensor) and v.untyped_storage().data_ptr() == address for v in args)


def run(family, name, make, dtype, a):
    """A row of the results, or the reason why the case is skipped."""
    torch.manual_seed(0)
    path, *args = make(Operands(SIDES[a.size], dtype))
    kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
    function, copies = target(path), family == 'views'

    def eager():
        y = function(*args, **kwargs)
        return y.clone(memory_format=torch.contiguous_format) if copies else y
    try:
        # What PyTorch returns without copying is copied on both sides.
        copies |= shares_memory(eager(), args)
    except (RuntimeError, TypeError, NotImplementedError, ValueError, IndexError) as e:
        return 'PyTorch: ' + str(e).split('\n')[0][:80]
    text, inputs = graph(path, args, kwargs, copies)
    try:
        model = fxc.loads(text, threads=a.threads)
        # Results that stayed alive would take the memory that measured calls reuse.
        other = difference(name, model(*inputs), eager())
    except fxc.Error as e:
        return 'fxc: ' + str(e).split('\n')[0][:100]
    if other:
        return WRONG + other
    if a.check:
        return dict(family=family, name=name, dtype=SHORT[dtype])
    ours, theirs = measure([lambda: model(*inputs), eager], a)
    return dict(family=family, name=name, dtype=SHORT[dtype], fxc=1e3 * ours, eager=1e3 * theirs, ratio=ours / theirs)


def mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def summary(found):
    ratios = [r['ratio'] for r in found]
    above = [sum(r > limit for r in ratios) for limit in (1, 2)]
    return f'{len(ratios)} rows, geometric mean {mean(ratios):.2f}, above 1: {above[0]}, above 2: {above[1]}'


def table(found):
    lines = ['| op | dtype | fxc ms | eager ms | fxc / eager |', '|---|---|---:|---:|---:|']
    return lines + [f'| {r["name"]} | {r["dtype"]} | {r["fxc"]:.3f} | {r["eager"]:.3f} | {r["ratio"]:.2f} |' for r in found]


def report(found, skipped, a):
    operands = 'Unusual shapes' if a.shapes else f'Side {SIDES[a.size]}'
    out = [f'{operands}, threads {a.threads}, PyTorch {torch.__version__}: {summary(found)}.', '', 'The worst:', '']
    out += table(sorted(found, key=lambda r: -r['ratio'])[:20])
    families = collections.defaultdict(list)
    for r in found:
        families[r['family']].append(r)
    for family, rows in families.items():
        out += ['', f'## {family}: {summary(rows)}', '', *table(rows)]
    reasons = collections.defaultdict(list)
    for name, dtype, why in skipped:
        reasons[why].append(f'{name} {dtype}')
    out += ['', '## Skipped', '', *(f'* {why}: {", ".join(names)}' for why, names in reasons.items())]
    return '\n'.join(out) + '\n'


def check_report(found, skipped):
    wrong = [(name, short, why) for name, short, why in skipped if why.startswith(WRONG)]
    for name, short, why in wrong:
        print(f'{name} {short}: {why}')
    print(f'{len(found)} calls have the results of PyTorch, {len(wrong)} do not')
    return bool(wrong)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--size', choices=SIDES, default='medium')
    ap.add_argument('--shapes', action='store_true', help='calls on operands of unusual shapes')
    ap.add_argument('--check', action='store_true', help='compare the results, and measure nothing')
    ap.add_argument('--only', default='', help='ops whose names match')
    ap.add_argument('--dtypes', default='f32')
    ap.add_argument('--threads', type=int, default=1)
    ap.add_argument('--rounds', type=int, default=5)
    ap.add_argument('--seconds', type=float, default=0.004, help='to measure one side in one round for')
    ap.add_argument('--fxc', default='target/release/fxc', help='the program, which lists the op table')
    ap.add_argument('--table', help='the output of `fxc ops --format json` instead')
    ap.add_argument('--markdown', metavar='FILE')
    ap.add_argument('--json', metavar='FILE')
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    torch.set_grad_enabled(False)
    found, skipped = [], []
    for family, name, make, every in cases(a):
        if not re.search(a.only, name):
            continue
        for short in a.dtypes.split(','):
            dtype = DTYPES[short]
            if not every and not dtype.is_floating_point:
                continue
            got = run(family, name, make, dtype, a)
            if isinstance(got, str):
                skipped.append((name, short, got))
                continue
            found.append(got)
            if a.check:
                continue
            print(f'{got["ratio"]:8.2f} {got["fxc"]:10.3f} {got["eager"]:10.3f}  {name} {short}', file=sys.stderr, flush=True)
    if a.check:
        return check_report(found, skipped)
    text = report(found, skipped, a)
    print(text)
    if a.markdown:
        open(a.markdown, 'w').write(text)
    if a.json:
        json.dump(found, open(a.json, 'w'), indent=1)


if __name__ == '__main__':
    sys.exit(main())
