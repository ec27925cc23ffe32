"""Latency, start-up, memory and accuracy of fxc beside ONNX Runtime, OpenVINO, eager torch and torch.compile: README's tables.

    pip install torch torchvision transformers onnx onnxscript onnxruntime openvino
    cargo build --release
    python benches/peers.py --prepare           # once: exports, conversions, torch.compile's cache; about half an hour
    python benches/peers.py --readme            # every case, 1 and 2 threads; about 25 minutes; README.md is rewritten
    python benches/peers.py resnet softmax.     # cases by the beginning of their name; prints the tables
    python benches/peers.py timm:levit_128 transformers:wav2vec2 torchvision:mnasnet1_0:8   # any other models

    [--threads 1,2] [--rounds 3] [--slow-rounds 1] [--peers fxc,ort,ov,eager,compile] [--work DIR] [--fxc PATH] [--day YYYY-MM-DD]
    [--again] [--json FILE] [--markdown FILE] [--precision f32|bf16]

Every model is f32, in eval mode, with seeded random weights; batch 1 unless its name says so. A measurement of a model is a process of
its own; a peer's kernels share one. Rounds interleave the peers, so that a slow phase of the machine hits all of them; torch's own, which
take long to begin and are rarely the best, run in `--slow-rounds` of them. Of a peer's rounds the best median counts. `ratio` is fxc over
the best peer: below 1 fxc is faster. ONNX Runtime and OpenVINO write to memory given beforehand, torch.compile runs with freezing. What
cannot be measured (a package that is not installed, no C++ compiler for torch.compile) is said on standard error and in the tables.

With `--precision bf16`, the weights and the values between nodes are bf16, for fxc, eager torch and torch.compile alike. OpenVINO computes
the f32 model with the hint bf16; ONNX Runtime has no bf16 kernels and is left out. Inputs and results stay f32, and errors are those
beside eager torch in f32.

What was measured is kept in the work folder by day, case and threads: a run that was stopped goes on where it was, and another binary or
another day is measured anew (`--again` measures in any case).
"""
import datetime
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
import warnings

from arguments import ROOT, parser
from peers_cases import CASES, build, export_bf16, prepare
from peers_tables import LABELS, ratio, tables

warnings.filterwarnings('ignore')
HERE = os.path.dirname(os.path.abspath(__file__))
MARKERS = dict(f32=['<!-- written by benches/peers.py -->', '<!-- end of what benches/peers.py writes -->'],
               bf16=['<!-- written by benches/peers.py --precision bf16 -->', '<!-- end of what benches/peers.py writes in bf16 -->'])
# The models that are measured in bf16 unless cases are named.
BF16 = ['bert', 'gpt2', 'vit', 'resnet50_b1', 'mobilenet', 'convnext', 'swin', 'unet', 'efficientnet']
SLOW = ['eager', 'compile']
MODULES = dict(ort='onnxruntime', ov='openvino', eager='torch', compile='torch')


# The peers: each gives a function that runs the model once, and its first results.

def onnxruntime(d, threads, arrays):
    import numpy as np
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    s = ort.InferenceSession(f'{d}/model.onnx', options, providers=['CPUExecutionProvider'])
    io = s.io_binding()
    for i, a in zip(s.get_inputs(), arrays):
        io.bind_ortvalue_input(i.name, ort.OrtValue.ortvalue_from_numpy(a))
    outs = s.run(None, dict(zip([i.name for i in s.get_inputs()], arrays)))
    for o, a in zip(s.get_outputs(), outs):
        io.bind_ortvalue_output(o.name, ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a)))
    return lambda: s.run_with_iobinding(io), outs


def openvino(d, threads, arrays, precision):
    import numpy as np
    import openvino as ov
    config = {'PERFORMANCE_HINT': 'LATENCY', 'INFERENCE_PRECISION_HINT': precision, 'INFERENCE_NUM_THREADS': threads, 'NUM_STREAMS': 1}
    model = ov.Core().compile_model(f'{d}/model.xml', 'CPU', config)
    request = model.create_infer_request()
    for i, a in enumerate(arrays):
        request.set_input_tensor(i, ov.Tensor(a, shared_memory=True))
    request.infer()
    # The inputs are shared, so they must live as long as the request.
    return lambda kept=arrays: request.infer(), [np.array(request.get_output_tensor(i).data) for i in range(len(model.outputs))]


def torches(name, threads, compiled, precision):
    import torch
    torch.set_num_threads(threads)
    m, args = build(name, precision)
    if compiled:
        import torch._inductor.config as inductor
        inductor.freezing = True
        torch._dynamo.reset()
        m = torch.compile(m)
    torch.no_grad().__enter__()
    out = m(*args)
    return lambda: m(*args), [o.numpy() for o in (out if isinstance(out, tuple) else (out,))]


def errors(got, d):
    """The largest difference from eager torch over the largest magnitude, over all results."""
    import numpy as np
    want = np.load(f'{d}/expected.npz')
    worst = 0.0
    for i, g in enumerate(got):
        w = want[f'output.{i}']
        worst = max(worst, float(np.abs(g - w).max() / max(np.abs(w).max(), 1e-30)))
    return worst


def measured(run, seconds):
    """Sorted times of single runs, in seconds, after a warm-up."""
    start = time.perf_counter()
    while time.perf_counter() - start < seconds / 3:
        run()
    times, start = [], time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - start < seconds and len(times) < 20000):
        one = time.perf_counter()
        run()
        times.append(time.perf_counter() - one)
    return sorted(times)


def peak_mb():
    """The most memory of this process that was resident. (The `maxrss` of getrusage begins with the parent's.)"""
    try:
        with open('/proc/self/status') as f:
            return next(int(l.split()[1]) // 1024 for l in f if l.startswith('VmHWM'))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def worker(peer, threads, work, seconds, precision, names):
    """Measures one peer on cases in this process: a line of JSON each."""
    import numpy as np
    begun = float(os.environ['T0'])
    for name in names:
        d = os.path.join(work, name)
        try:
            arrays = list(np.load(f'{d}/inputs.npz').values())
            if peer == 'ort':
                run, first = onnxruntime(d, threads, arrays)
            elif peer == 'ov':
                run, first = openvino(d, threads, arrays, precision)
            else:
                run, first = torches(name, threads, peer == 'compile', precision)
            first_ms = (time.time() - begun) * 1e3
            rss = peak_mb()
            times = measured(run, seconds)
            r = dict(median_ms=times[len(times) // 2] * 1e3, min_ms=times[0] * 1e3, first_ms=first_ms, peak_rss_mb=rss,
                     error=errors(first, d))
        except Exception as e:
            r = dict(failed=f'{type(e).__name__}: {e}'[:200])
        print('JSON ' + json.dumps(dict(r, case=name)), flush=True)


# The measurements.

def environment(a, threads):
    return dict(os.environ, T0=str(time.time()), OMP_NUM_THREADS=str(threads), TORCHINDUCTOR_CACHE_DIR=os.path.join(a.work, 'inductor'))


def files(a, d):
    """The archive of a case in the precision that is measured, and its inputs, as arguments of fxc."""
    suffix = '' if a.precision == 'f32' else f'.{a.precision}'
    return [f'{d}/export{suffix}.pt2', '--inputs', f'{d}/inputs{suffix}.npz']


def by_fxc(a, name, threads):
    """fxc's own measurement of a case."""
    d = os.path.join(a.work, name)
    seconds = a.kernel_seconds if '.' in name else a.seconds
    command = [a.fxc, 'bench', *files(a, d), '--threads', str(threads), '--seconds', str(seconds), '--json']
    try:
        p = subprocess.run(command, env=environment(a, threads), capture_output=True, text=True, timeout=900)
        return dict(json.loads(p.stdout), error=fxc_error(a, name))
    except ValueError:
        return dict(failed=(p.stderr.strip().splitlines() or [f'exit {p.returncode}'])[-1][:200])
    except (OSError, subprocess.TimeoutExpired) as e:
        return dict(failed=str(e)[:200])


def fxc_error(a, name):
    """fxc's largest difference from eager torch over the largest magnitude; computed once."""
    import numpy as np
    if name not in a.errors:
        d, out = os.path.join(a.work, name), os.path.join(a.work, 'fxc.npz')
        p = subprocess.run([a.fxc, 'run', *files(a, d), '--outputs', out], capture_output=True)
        a.errors[name] = float('nan')
        if p.returncode == 0:
            got = np.load(out)
            a.errors[name] = errors([got[f'output.{i}'] for i in range(len(got.files))], d)
    return a.errors[name]


def by_peer(a, peer, names, threads, seconds=None):
    """A peer's measurements of cases, in a process of their own: case -> result."""
    if seconds is None:
        seconds = a.kernel_seconds if '.' in names[0] else a.seconds
    command = [sys.executable, os.path.abspath(__file__), '--worker', peer, str(threads), a.work, str(seconds), a.precision, *names]
    limit, out, said = 900 if '.' not in names[0] else 2400, '', ''
    try:
        p = subprocess.run(command, env=environment(a, threads), capture_output=True, text=True, timeout=limit)
        out, said = p.stdout, (p.stderr.strip().splitlines() or [f'exit {p.returncode}'])[-1][:200]
    except subprocess.TimeoutExpired as e:
        out = e.stdout.decode() if isinstance(e.stdout, bytes) else e.stdout or ''
        said = f'took more than {limit} s'
    lines = [json.loads(l[5:]) for l in out.splitlines() if l.startswith('JSON ')]
    found = {r.pop('case'): r for r in lines}
    return {n: found.get(n, dict(failed=said)) for n in names}


def available(peers):
    """The peers that can be measured, and what is said of the others."""
    from importlib.util import find_spec
    found, missing = [], []
    compilers = [os.environ.get('CXX'), 'c++', 'g++', 'clang++']
    for p in peers:
        if p != 'fxc' and not find_spec(MODULES[p]):
            missing.append(f'{LABELS[p]} is not installed and was left out.')
        elif p == 'compile' and not any(c and shutil.which(c) for c in compilers):
            missing.append('torch.compile finds no C++ compiler and was left out.')
        else:
            found.append(p)
    for m in missing:
        print(f'warning: {m}', file=sys.stderr)
    return found, missing


def busy():
    """The share of the machine that other processes take just now."""
    def read():
        with open('/proc/stat') as f:
            times = [int(x) for x in f.readline().split()[1:9]]
        return sum(times), times[3] + times[4]
    try:
        total, idle = read()
        time.sleep(0.3)
        total2, idle2 = read()
        return 1 - (idle2 - idle) / max(total2 - total, 1)
    except (OSError, IndexError, ValueError):
        return 0.0


def kept_path(a, name, threads):
    suffix = '' if a.precision == 'f32' else f'.{a.precision}'
    return os.path.join(a.work, 'results', a.day, f'{name}{suffix}.{threads}.json')


def kept(a, name, threads):
    """What was measured of a case this day with this binary, if that has all the peers."""
    try:
        with open(kept_path(a, name, threads)) as f:
            r = json.load(f)
    except (OSError, ValueError):
        return None
    whole = r.get('binary') == a.binary and set(a.peers) <= {*r['best'], *r['failed']}
    return r if whole and not a.again else None


def keep(a, name, threads, r):
    path = kept_path(a, name, threads)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + '.new', 'w') as f:
        json.dump(r, f, indent=1)
    os.replace(path + '.new', path)


def better(at, peer, r):
    """Keeps the best round, with the earliest first result of all."""
    before = at.get(peer)
    if before:
        first = min(r['first_ms'], before['first_ms'])
        r = r if r['median_ms'] < before['median_ms'] else before
        r['first_ms'] = first
    at[peer] = r


def measure_group(a, group, threads):
    """All rounds of cases that are measured together: case -> what is kept."""
    share = busy()
    if share > 0.1:
        print(f'warning: other processes take {100 * share:.0f} % of the machine', file=sys.stderr)
    results = {n: dict(binary=a.binary, busy=share, best={}, failed={}) for n in group}
    for i in range(a.rounds):
        for peer in a.peers:
            wanted = [n for n in group if peer not in results[n]['failed']]
            if not wanted or (peer in SLOW and i >= a.slow_rounds):
                continue
            found = {n: by_fxc(a, n, threads) for n in wanted} if peer == 'fxc' else by_peer(a, peer, wanted, threads)
            for n, r in found.items():
                if 'failed' in r:
                    print(f'{n}, {threads} threads, {peer}: {r["failed"]}', file=sys.stderr)
                    results[n]['failed'][peer] = r['failed']
                else:
                    better(results[n]['best'], peer, r)
    return results


def measure(a, names):
    """What is kept of every case: (case, threads) -> best results by peer."""
    results, begun = {}, time.time()
    for threads in a.threads:
        missing = []
        for n in names:
            r = kept(a, n, threads)
            if r:
                results[(n, threads)] = r
            else:
                missing.append(n)
        if missing and a.day != str(datetime.date.today()):
            print(f'warning: nothing of {a.day} is kept of {", ".join(missing)}', file=sys.stderr)
            missing = []
        kernels = [n for n in missing if '.' in n]
        for group in [[n] for n in missing if '.' not in n] + ([kernels] if kernels else []):
            for n, r in measure_group(a, group, threads).items():
                results[(n, threads)] = r
                if 'fxc' in r['best']:
                    keep(a, n, threads, r)
                times = {p: round(x['median_ms'], 4) for p, x in r['best'].items()}
                print(f'{time.time() - begun:5.0f} s', n, threads, times, file=sys.stderr, flush=True)
    return results


def prepare_all(a, names):
    """The files of all cases, and torch.compile's cache."""
    failed = []
    for name in names:
        try:
            prepare(name, os.path.join(a.work, name))
            if a.precision == 'bf16':
                export_bf16(name, os.path.join(a.work, name))
        except Exception as e:
            print(f'{name} cannot be prepared: {type(e).__name__}: {e}', file=sys.stderr)
            failed.append(name)
    names = [n for n in names if n not in failed]
    if a.prepare and 'compile' in a.peers:
        models, kernels = [n for n in names if '.' not in n], [n for n in names if '.' in n]
        for threads in a.threads:
            for group in [[n] for n in models] + ([kernels] if kernels else []):
                found = by_peer(a, 'compile', group, threads, seconds=0)
                for n, r in found.items():
                    print(n, threads, 'torch.compile', r.get('failed') or f'{r["first_ms"] / 1e3:.1f} s', file=sys.stderr, flush=True)
    return names


def put_into(path, markers, text):
    """Replaces what stands between two markers of a file."""
    with open(path) as f:
        whole = f.read()
    begin, end = whole.find(markers[0]), whole.find(markers[1])
    if begin < 0 or end < begin:
        sys.exit(f'{path} has no lines "{markers[0]}" and "{markers[1]}"')
    with open(path, 'w') as f:
        f.write(whole[:begin + len(markers[0])] + '\n\n' + text + '\n' + whole[end:])


def digest(binary):
    try:
        with open(binary, 'rb') as f:
            return hashlib.sha256(f.read()).hexdigest()[:16]
    except OSError as e:
        sys.exit(f'{e}; build it with `cargo build --release`')


def arguments():
    ap = parser(__doc__, 'peers', rounds=3, seconds=0.8)
    ap.add_argument('cases', nargs='*', metavar='CASE')
    ap.add_argument('--slow-rounds', type=int, default=1, help="rounds in which torch's own run")
    ap.add_argument('--kernel-seconds', type=float, default=0.2, help='to measure a kernel for')
    ap.add_argument('--peers', help='default: fxc,ort,ov,eager,compile, without ort in bf16')
    ap.add_argument('--precision', choices=['f32', 'bf16'], default='f32')
    ap.add_argument('--day', default=str(datetime.date.today()), help='of what was measured before')
    ap.add_argument('--again', action='store_true', help='measure what was measured before')
    ap.add_argument('--prepare', action='store_true', help="make the cases' files and fill torch.compile's cache, and measure nothing")
    ap.add_argument('--json', help='write everything measured to this file')
    ap.add_argument('--readme', action='store_true', help='write the tables to README.md')
    a = ap.parse_args()
    a.errors = {}
    peers = a.peers or ('fxc,ort,ov,eager,compile' if a.precision == 'f32' else 'fxc,ov,eager,compile')
    a.peers, a.missing = available(peers.split(','))
    if not a.cases and a.precision == 'bf16':
        a.cases = BF16
    return a


def main():
    if sys.argv[1:2] == ['--worker']:
        peer, threads, work, seconds, precision, *names = sys.argv[2:]
        return worker(peer, int(threads), work, float(seconds), precision, names)
    a = arguments()
    chosen = [n for n in CASES if not a.cases or any(n.startswith(c) for c in a.cases)]
    names = prepare_all(a, chosen + [c for c in a.cases if ':' in c])
    if a.prepare:
        return
    a.binary = digest(a.fxc)
    results = measure(a, names)
    if a.json:
        with open(a.json, 'w') as f:
            json.dump([dict(case=n, threads=t, ratio=ratio(r['best'])[0], **r) for (n, t), r in results.items()], f, indent=1)
    text = tables(a, results, names)
    print(text)
    if a.markdown:
        with open(a.markdown, 'w') as f:
            f.write(text)
    if a.readme:
        put_into(os.path.join(ROOT, 'README.md'), MARKERS[a.precision], text)


if __name__ == '__main__':
    main()
