"""Latency, start-up and memory of fxc beside ONNX Runtime, OpenVINO, eager torch and torch.compile: README's tables.

    pip install torch torchvision transformers onnx onnxscript onnxruntime openvino
    cargo build --release
    python benches/peers.py --readme            # every case, 1 and 2 threads; about an hour; README.md is rewritten
    python benches/peers.py resnet softmax.     # cases by the beginning of their name; prints the tables

    [--threads 1,2] [--rounds 3] [--peers fxc,ort,ov,eager,compile] [--work DIR] [--fxc PATH] [--json FILE] [--markdown FILE]

Every model is f32, in eval mode, with seeded random weights; batch 1 unless its name says so. A measurement of a model is a process of
its own; a peer's kernels share one. Rounds interleave the peers, so that a slow phase of the machine hits all of them; of a peer's
rounds the best median counts. `ratio` is fxc over the best peer: below 1 fxc is faster. `error` is the largest difference
from eager torch over the largest magnitude of the result. ONNX Runtime and OpenVINO write to memory given beforehand, torch.compile runs
with freezing. Peers that cannot be imported are left out.
"""
import argparse
import datetime
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
import warnings

warnings.filterwarnings('ignore')
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
LABELS = dict(fxc='fxc', ort='ONNX Runtime', ov='OpenVINO', eager='torch', compile='torch.compile')
PACKAGES = ['torch', 'torchvision', 'transformers', 'onnxruntime', 'openvino']
MARKERS = ['<!-- written by benches/peers.py -->', '<!-- end of what benches/peers.py writes -->']

VISION = ['resnet18', 'resnet50', 'mobilenet_v2', 'convnext_tiny', 'efficientnet_b0', 'densenet121', 'regnet_y_400mf',
          'vit_b_16', 'swin_t']
MODELS = ['mlp_b1', 'lstm_b1', 'bert_base_b1', 'gpt2_small_b1'] + [f'{v}_b1' for v in VISION] + ['resnet50_b8', 'unet_b1']
KERNELS = ['gelu_tanh_chain', 'gelu_erf', 'silu', 'bias_relu_add', 'softmax', 'layernorm', 'rmsnorm', 'mean_var_last',
           'mean_var_first', 'cumsum_last']
SIZES = [(4, 256), (64, 1024), (1024, 1024), (16384, 1024)]
CASES = MODELS + [f'{k}.{r}x{c}' for k in KERNELS for r, c in SIZES]


# The cases.

def kernel(name):
    """The module of a kernel, and its inputs: x, r, w, b by their names."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    functions = dict(
        gelu_tanh_chain=(lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))), 'x'),
        gelu_erf=(lambda x: F.gelu(x), 'x'),
        silu=(lambda x: torch.sigmoid(x) * x, 'x'),
        bias_relu_add=(lambda x, r, b: torch.relu(x + b) + r, 'xrb'),
        softmax=(lambda x: torch.softmax(x, -1), 'x'),
        layernorm=(lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b), 'xwb'),
        rmsnorm=(lambda x, w: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w, 'xw'),
        mean_var_last=(lambda x: (x.mean(-1), x.var(-1, unbiased=False)), 'x'),
        mean_var_first=(lambda x: (x.mean(0), x.var(0, unbiased=False)), 'x'),
        cumsum_last=(lambda x: torch.cumsum(x, -1), 'x'),
    )
    name, size = name.split('.')
    rows, cols = map(int, size.split('x'))
    f, wanted = functions[name]

    class One(nn.Module):
        def forward(self, x):
            return f(x)

    class Two(nn.Module):
        def forward(self, x, y):
            return f(x, y)

    class Three(nn.Module):
        def forward(self, x, y, z):
            return f(x, y, z)

    g = torch.Generator().manual_seed(7)
    made = dict(x=torch.randn(rows, cols, generator=g), r=torch.randn(rows, cols, generator=g),
                w=torch.rand(cols, generator=g) + 0.5, b=torch.randn(cols, generator=g))
    return (One, Two, Three)[len(wanted) - 1](), tuple(made[k] for k in wanted)


def language(base, generator):
    """The models of sequences."""
    import torch
    import torch.nn as nn

    class Field(nn.Module):
        def __init__(self, model, field, **kwargs):
            super().__init__()
            self.model, self.field, self.kwargs = model, field, kwargs

        def forward(self, input_ids):
            return getattr(self.model(input_ids=input_ids, **self.kwargs), self.field)

    class CharLSTM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.rnn, self.fc = nn.Embedding(128, 128), nn.LSTM(128, 512, 2, batch_first=True), nn.Linear(512, 128)

        def forward(self, x):
            return self.fc(self.rnn(self.emb(x))[0])

    if base == 'lstm':
        return CharLSTM(), (torch.randint(1, 128, (1, 64), generator=generator),)
    import transformers as T
    if base == 'bert_base':
        m = Field(T.BertModel(T.BertConfig(attn_implementation='sdpa'), add_pooling_layer=False), 'last_hidden_state')
        return m, (torch.randint(1, 30000, (1, 128), generator=generator),)
    m = Field(T.GPT2LMHeadModel(T.GPT2Config(attn_implementation='sdpa')), 'logits', use_cache=False)
    return m, (torch.randint(1, 50000, (1, 64), generator=generator),)


def unet():
    """Four levels of two convolutions, as in the paper, beginning with 32 channels."""
    import torch
    import torch.nn as nn

    def double(i, o):
        layers = [[nn.Conv2d(a, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()] for a in (i, o)]
        return nn.Sequential(*layers[0], *layers[1])

    class UNet(nn.Module):
        def __init__(self, ch=32):
            super().__init__()
            self.first = double(3, ch)
            self.down = nn.ModuleList([double(ch << i, ch << (i + 1)) for i in range(4)])
            self.pool = nn.MaxPool2d(2)
            self.up = nn.ModuleList([nn.ConvTranspose2d(ch << (i + 1), ch << i, 2, 2) for i in reversed(range(4))])
            self.after = nn.ModuleList([double(ch << (i + 1), ch << i) for i in reversed(range(4))])
            self.last = nn.Conv2d(ch, 2, 1)

        def forward(self, x):
            seen = [self.first(x)]
            for d in self.down:
                seen.append(d(self.pool(seen[-1])))
            y = seen.pop()
            for up, after in zip(self.up, self.after):
                y = after(torch.cat([seen.pop(), up(y)], dim=1))
            return self.last(y)

    return UNet()


def build(name):
    """The module and its inputs."""
    import torch
    import torch.nn as nn
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(7)
    base, batch = (name.rsplit('_b', 1) + ['1'])[:2]
    if '.' in name:
        m, args = kernel(name)
    elif base == 'mlp':
        layers = [nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)]
        m, args = nn.Sequential(*layers), (torch.randn(1, 1, 28, 28, generator=g),)
    elif base in ('lstm', 'bert_base', 'gpt2_small'):
        m, args = language(base, g)
    elif base == 'unet':
        m, args = unet(), (torch.randn(int(batch), 3, 256, 256, generator=g),)
    else:
        import torchvision.models as M
        m, args = M.get_model(base, weights=None), (torch.randn(int(batch), 3, 224, 224, generator=g),)
    m = m.eval().requires_grad_(False)
    # Statistics other than 0 and 1, so that folding them does something.
    s = torch.Generator().manual_seed(3)
    for n in m.modules():
        if isinstance(n, nn.modules.batchnorm._BatchNorm):
            n.running_mean.copy_(torch.randn(n.running_mean.shape, generator=s) * 0.1)
            n.running_var.copy_(torch.rand(n.running_var.shape, generator=s) + 0.5)
    return m, args


def prepare(name, d):
    """The case's files, once: export.pt2, inputs.npz, expected.npz, model.onnx, model.xml."""
    if os.path.exists(f'{d}/done'):
        return
    os.makedirs(d, exist_ok=True)
    import numpy as np
    import openvino as ov
    import torch
    m, args = build(name)
    with torch.no_grad():
        out = m(*args)
        ep = torch.export.export(m, args, strict=False)
        torch.onnx.export(m, args, f'{d}/model.onnx', dynamo=True, verbose=False)
    torch.export.save(ep, f'{d}/export.pt2')
    np.savez(f'{d}/inputs.npz', **{n: a.numpy() for n, a in zip(ep.graph_signature.user_inputs, args)})
    outs = out if isinstance(out, tuple) else (out,)
    np.savez(f'{d}/expected.npz', **{f'output.{i}': o.numpy() for i, o in enumerate(outs)})
    ov.save_model(ov.convert_model(f'{d}/model.onnx'), f'{d}/model.xml', compress_to_fp16=False)
    open(f'{d}/done', 'w').close()


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


def openvino(d, threads, arrays):
    import numpy as np
    import openvino as ov
    config = {'PERFORMANCE_HINT': 'LATENCY', 'INFERENCE_PRECISION_HINT': 'f32', 'INFERENCE_NUM_THREADS': threads, 'NUM_STREAMS': 1}
    model = ov.Core().compile_model(f'{d}/model.xml', 'CPU', config)
    request = model.create_infer_request()
    for i, a in enumerate(arrays):
        request.set_input_tensor(i, ov.Tensor(a, shared_memory=True))
    request.infer()
    # The inputs are shared, so they must live as long as the request.
    return lambda kept=arrays: request.infer(), [np.array(request.get_output_tensor(i).data) for i in range(len(model.outputs))]


def torches(name, threads, compiled):
    import torch
    torch.set_num_threads(threads)
    m, args = build(name)
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


def worker(peer, threads, work, seconds, names):
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
                run, first = openvino(d, threads, arrays)
            else:
                run, first = torches(name, threads, peer == 'compile')
            first_ms = (time.time() - begun) * 1e3
            rss = peak_mb()
            times = measured(run, seconds)
            r = dict(median_ms=times[len(times) // 2] * 1e3, min_ms=times[0] * 1e3, first_ms=first_ms, peak_rss_mb=rss,
                     error=errors(first, d))
        except Exception as e:
            r = dict(failed=f'{type(e).__name__}: {e}'[:200])
        print('JSON ' + json.dumps(dict(r, case=name)), flush=True)


# The measurements.

def environment(threads):
    return dict(os.environ, T0=str(time.time()), OMP_NUM_THREADS=str(threads))


def by_fxc(a, name, threads):
    """fxc's own measurement of a case."""
    d = os.path.join(a.work, name)
    seconds = a.kernel_seconds if '.' in name else a.seconds
    command = [a.fxc, 'bench', f'{d}/export.pt2', '--inputs', f'{d}/inputs.npz', '--threads', str(threads), '--seconds', str(seconds),
               '--json']
    p = subprocess.run(command, env=environment(threads), capture_output=True, text=True, timeout=900)
    try:
        return json.loads(p.stdout)
    except ValueError:
        return dict(failed=(p.stderr.strip().splitlines() or [f'exit {p.returncode}'])[-1][:200])


def fxc_error(a, name):
    """fxc's largest difference from eager torch over the largest magnitude."""
    import numpy as np
    d, out = os.path.join(a.work, name), os.path.join(a.work, 'fxc.npz')
    p = subprocess.run([a.fxc, 'run', f'{d}/export.pt2', '--inputs', f'{d}/inputs.npz', '--outputs', out], capture_output=True)
    if p.returncode:
        return float('nan')
    got = np.load(out)
    return errors([got[f'output.{i}'] for i in range(len(got.files))], d)


def by_peer(a, peer, names, threads):
    """A peer's measurements of cases, in a process of their own: case -> result."""
    seconds = a.kernel_seconds if '.' in names[0] else a.seconds
    command = [sys.executable, os.path.abspath(__file__), '--worker', peer, str(threads), a.work, str(seconds), *names]
    try:
        p = subprocess.run(command, env=environment(threads), capture_output=True, text=True, timeout=3600)
    except subprocess.TimeoutExpired:
        return {n: dict(failed='took more than an hour') for n in names}
    lines = [json.loads(l[5:]) for l in p.stdout.splitlines() if l.startswith('JSON ')]
    found = {r.pop('case'): r for r in lines}
    last = (p.stderr.strip().splitlines() or [f'exit {p.returncode}'])[-1][:200]
    return {n: found.get(n, dict(failed=last)) for n in names}


def available(peers):
    """The peers that can be imported."""
    modules = dict(ort='onnxruntime', ov='openvino', eager='torch', compile='torch')
    from importlib.util import find_spec
    return [p for p in peers if p == 'fxc' or find_spec(modules[p])]


def measure(a, names):
    """All rounds: (case, threads) -> peer -> the best round's result."""
    models = [n for n in names if '.' not in n]
    kernels = [n for n in names if '.' in n]
    groups = [[n] for n in models] + ([kernels] if kernels else [])
    best = {}

    def keep(name, threads, peer, r):
        if 'failed' in r:
            print(f'{name}, {threads} threads, {peer}: {r["failed"]}', file=sys.stderr)
            return
        at = best.setdefault((name, threads), {})
        before = at.get(peer)
        if before is None or r['median_ms'] < before['median_ms']:
            if before:
                r['first_ms'] = min(r['first_ms'], before['first_ms'])
            at[peer] = r
        else:
            before['first_ms'] = min(r['first_ms'], before['first_ms'])

    for threads in a.threads:
        for group in groups:
            for _ in range(a.rounds):
                for peer in a.peers:
                    found = {n: by_fxc(a, n, threads) for n in group} if peer == 'fxc' else by_peer(a, peer, group, threads)
                    for n, r in found.items():
                        keep(n, threads, peer, r)
            for n in group:
                seen = best.get((n, threads), {})
                print(n, threads, {p: round(r['median_ms'], 4) for p, r in seen.items()}, file=sys.stderr, flush=True)
    for (name, _), at in best.items():
        if 'fxc' in at and 'error' not in at['fxc']:
            error = fxc_error(a, name)
            for t in a.threads:
                if 'fxc' in best.get((name, t), {}):
                    best[(name, t)]['fxc']['error'] = error
    return best


# The tables.

def machine():
    """The processor's name and what tells it apart."""
    name, flags = platform.processor() or platform.machine(), ''
    try:
        with open('/proc/cpuinfo') as f:
            lines = dict(l.split(':', 1) for l in f if ':' in l)
        values = {k.strip(): v.strip() for k, v in lines.items()}
        name = values.get('model name', name)
        if 'cpu family' in values:
            name += f' (family {values["cpu family"]}, model {values["model"]})'
        found = values.get('flags', '').split()
        flags = ', AVX-512' if 'avx512f' in found else ', AVX2' if 'avx2' in found else ''
    except OSError:
        pass
    return f'{name}, {os.cpu_count()} cores{flags}'


def heading(a):
    """What was measured, where and when."""
    from importlib.metadata import PackageNotFoundError, version
    found = [subprocess.run([a.fxc, '--version'], capture_output=True, text=True).stdout.strip()]
    for p in PACKAGES:
        try:
            found.append(f'{p} {version(p)}')
        except PackageNotFoundError:
            pass
    return f'{machine()}; {", ".join(found)}; {datetime.date.today()}.'


def ratio(at):
    """fxc over the best peer, and that peer."""
    others = [p for p in at if p != 'fxc']
    if 'fxc' not in at or not others:
        return None, None
    top = min(others, key=lambda p: at[p]['median_ms'])
    return at['fxc']['median_ms'] / at[top]['median_ms'], top


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def row(cells):
    return '| ' + ' | '.join(cells) + ' |'


def latencies(a, best, names, unit, scale):
    """One row for each case and number of threads."""
    out = [row(['case', 'threads', *(LABELS[p] for p in a.peers), 'ratio', 'error: fxc, best peer']),
           '|---' * (len(a.peers) + 4) + '|']
    ratios = []
    for n in names:
        for t in a.threads:
            at = best.get((n, t), {})
            value, top = ratio(at)
            cells = [f'{at[p]["median_ms"] * scale:.4g}' if p in at else '–' for p in a.peers]
            error = '–'
            if value:
                ratios.append(value)
                error = f'{at["fxc"]["error"]:.1e}, {at[top]["error"]:.1e}'
            out.append(row([n, str(t), *cells, f'{value:.2f}' if value else '–', error]))
    text = [f'Medians of the best of {a.rounds} rounds, in {unit}.', '', *out]
    if ratios:
        text += ['', f'Geometric mean of the ratios over {len(ratios)} rows: {mean(ratios):.2f}; largest {max(ratios):.2f}.']
    return text


def beginnings(a, best, names):
    """Compilation, first results and memory, with the most threads measured."""
    t = a.threads[-1]
    stages = ['load', 'optimize', 'lower', 'compile']
    out = [row(['case', 'fxc: load, optimise, lower, generate code and pack',
                *(f'{LABELS[p]}: first result' for p in a.peers), *(f'{LABELS[p]}: MB' for p in a.peers)]),
           '|---' * (2 * len(a.peers) + 2) + '|']
    for n in names:
        at = best.get((n, t), {})
        times = at.get('fxc', {}).get('stages_ms', {})
        split = ', '.join(f'{times[s]:.0f}' for s in stages if s in times) or '–'
        first = [f'{at[p]["first_ms"]:.0f}' if p in at else '–' for p in a.peers]
        memory = [str(at[p].get('peak_rss_mb') or '–') if p in at else '–' for p in a.peers]
        out.append(row([n, split, *first, *memory]))
    return [f'From the start of the process to the first result, in milliseconds, the best of {a.rounds}, {t} threads (torch.compile '
            'with its cache filled), and the most memory that was resident.', '', *out]


def tables(a, best, names):
    """The Markdown."""
    models, kernels = [n for n in names if '.' not in n], [n for n in names if '.' in n]
    text = [heading(a), '']
    if models:
        text += ['Models:', '', *latencies(a, best, models, 'milliseconds', 1.0), '', *beginnings(a, best, models), '']
    if kernels:
        table = latencies(a, best, kernels, 'microseconds', 1e3)
        summary = table.pop() if table[-1].startswith('Geometric') else ''
        text += [f'Kernels, rows x columns. {summary}'.rstrip(), '', '<details><summary>All of them</summary>', '',
                 '\n'.join(table).rstrip(), '', '</details>', '']
    return '\n'.join(text)


def put_into(path, text):
    """Replaces what stands between the markers of a file."""
    with open(path) as f:
        whole = f.read()
    begin, end = whole.find(MARKERS[0]), whole.find(MARKERS[1])
    if begin < 0 or end < begin:
        sys.exit(f'{path} has no lines "{MARKERS[0]}" and "{MARKERS[1]}"')
    with open(path, 'w') as f:
        f.write(whole[:begin + len(MARKERS[0])] + '\n\n' + text + '\n' + whole[end:])


def main():
    if sys.argv[1:2] == ['--worker']:
        peer, threads, work, seconds, *names = sys.argv[2:]
        return worker(peer, int(threads), work, float(seconds), names)
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('cases', nargs='*', metavar='CASE')
    ap.add_argument('--fxc', default=os.path.join(ROOT, 'target', 'release', 'fxc'))
    ap.add_argument('--threads', default='1,2')
    ap.add_argument('--rounds', type=int, default=3)
    ap.add_argument('--seconds', type=float, default=1.0, help='to measure a model for, at least five runs')
    ap.add_argument('--kernel-seconds', type=float, default=0.3, help='to measure a kernel for')
    ap.add_argument('--peers', default='fxc,ort,ov,eager,compile')
    ap.add_argument('--work', default=os.path.join(os.environ.get('TMPDIR', '/tmp'), 'fxc-peers'))
    ap.add_argument('--json', help='write everything measured to this file')
    ap.add_argument('--markdown', help='write the tables to this file')
    ap.add_argument('--readme', action='store_true', help='write the tables to README.md')
    a = ap.parse_args()
    a.fxc, a.work = os.path.abspath(a.fxc), os.path.abspath(a.work)
    a.threads, a.peers = [int(t) for t in a.threads.split(',')], available(a.peers.split(','))
    names = [n for n in CASES if not a.cases or any(n.startswith(c) for c in a.cases)]
    for name in names:
        prepare(name, os.path.join(a.work, name))
    best = measure(a, names)
    if a.json:
        with open(a.json, 'w') as f:
            json.dump([dict(case=n, threads=t, ratio=ratio(at)[0], best=at) for (n, t), at in best.items()], f, indent=1)
    text = tables(a, best, names)
    print(text)
    if a.markdown:
        with open(a.markdown, 'w') as f:
            f.write(text)
    if a.readme:
        put_into(os.path.join(ROOT, 'README.md'), text)


if __name__ == '__main__':
    main()
