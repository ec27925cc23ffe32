"""Latency of fxc beside ONNX Runtime, OpenVINO, eager torch and torch.compile: the performance table of README.md.

    pip install torch torchvision transformers onnx onnxscript onnxruntime openvino
    cargo build --release
    python benches/peers.py [--threads 1,2] [--rounds 3] [--peers fxc,ort,ov,compile] [--work DIR] [--markdown FILE] [CASE ...]

CASE is a name or the beginning of one (`resnet`, `gelu_erf.`); without any, all run. Every model is f32, in eval mode, with seeded
random weights. Every measurement is a process of its own; rounds interleave the peers, so that a slow phase of the machine
hits all of them; of a peer's rounds the best median counts. `ratio` is fxc over the best peer: below 1 fxc is faster.
`error` is the largest difference from eager torch over the largest magnitude, fxc's and the best peer's.
"""
import argparse
import datetime
import json
import math
import os
import platform
import subprocess
import sys
import time
import warnings

warnings.filterwarnings('ignore')
HERE = os.path.dirname(os.path.abspath(__file__))
LABELS = dict(fxc='fxc', ort='ONNX Runtime', ov='OpenVINO', eager='torch', compile='torch.compile')
PACKAGES = ['torch', 'torchvision', 'transformers', 'onnxruntime', 'openvino']

VISION = ['resnet18', 'resnet50', 'mobilenet_v2', 'convnext_tiny', 'efficientnet_b0', 'densenet121', 'regnet_y_400mf',
          'vit_b_16', 'swin_t']
SIZES = [(4, 256), (64, 1024), (1024, 1024), (16384, 1024)]


def kernels():
    """Name -> function of the inputs, and how many there are: x, w and b of a row."""
    import torch
    import torch.nn.functional as F
    return dict(
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


def names():
    """Every case."""
    models = ['mlp_b1', 'lstm_b1', 'bert_base_b1', 'gpt2_small_b1'] + [f'{v}_b1' for v in VISION] + ['resnet50_b8']
    rows = [f'{k}.{r}x{c}' for k in kernels() for r, c in SIZES]
    return models + rows


def perturb(module):
    """Statistics and affine parameters other than 0 and 1, so that folding them does something."""
    import torch
    g = torch.Generator().manual_seed(3)
    for m in module.modules():
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm):
            m.running_mean.copy_(torch.randn(m.running_mean.shape, generator=g) * 0.1)
            m.running_var.copy_(torch.rand(m.running_var.shape, generator=g) + 0.5)


def build(name):
    """The module and its inputs."""
    import torch
    import torch.nn as nn
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(7)

    class Field(nn.Module):
        def __init__(self, model, field, **kwargs):
            super().__init__()
            self.model, self.field, self.kwargs = model, field, kwargs

        def forward(self, ids):
            return getattr(self.model(input_ids=ids, **self.kwargs), self.field)

    class CharLSTM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.rnn, self.fc = nn.Embedding(128, 128), nn.LSTM(128, 512, 2, batch_first=True), nn.Linear(512, 128)

        def forward(self, x):
            return self.fc(self.rnn(self.emb(x))[0])

    base, batch = (name.rsplit('_b', 1) + ['1'])[:2]
    if '.' in name:
        kernel, size = name.split('.')
        rows, cols = map(int, size.split('x'))
        f, wanted = kernels()[kernel]
        made = dict(x=torch.randn(rows, cols, generator=g), r=torch.randn(rows, cols, generator=g),
                    w=torch.rand(cols, generator=g) + 0.5, b=torch.randn(cols, generator=g))
        forward = dict(
            x=lambda self, x: f(x), xw=lambda self, x, y: f(x, y), xwb=lambda self, x, y, z: f(x, y, z),
            xrb=lambda self, x, y, z: f(x, y, z))[wanted]
        m, args = type('Kernel', (nn.Module,), dict(forward=forward))(), tuple(made[k] for k in wanted)
    elif base == 'mlp':
        layers = [nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)]
        m, args = nn.Sequential(*layers), (torch.randn(1, 1, 28, 28, generator=g),)
    elif base == 'lstm':
        m, args = CharLSTM(), (torch.randint(1, 128, (1, 64), generator=g),)
    elif base == 'bert_base':
        import transformers as T
        m = Field(T.BertModel(T.BertConfig(attn_implementation='sdpa'), add_pooling_layer=False), 'last_hidden_state')
        args = (torch.randint(1, 30000, (1, 128), generator=g),)
    elif base == 'gpt2_small':
        import transformers as T
        m = Field(T.GPT2LMHeadModel(T.GPT2Config(attn_implementation='sdpa')), 'logits', use_cache=False)
        args = (torch.randint(1, 50000, (1, 64), generator=g),)
    else:
        import torchvision.models as M
        m, args = M.get_model(base, weights=None), (torch.randn(int(batch), 3, 224, 224, generator=g),)
    m = m.eval().requires_grad_(False)
    perturb(m)
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


def session(peer, name, d, threads, arrays):
    """A function that runs the peer once, and its first result."""
    import numpy as np
    if peer == 'ort':
        import onnxruntime as ort
        so = ort.SessionOptions()
        so.intra_op_num_threads, so.inter_op_num_threads = threads, 1
        s = ort.InferenceSession(f'{d}/model.onnx', so, providers=['CPUExecutionProvider'])
        io = s.io_binding()
        for i, a in zip(s.get_inputs(), arrays):
            io.bind_ortvalue_input(i.name, ort.OrtValue.ortvalue_from_numpy(a))
        outs = s.run(None, dict(zip([i.name for i in s.get_inputs()], arrays)))
        for o, a in zip(s.get_outputs(), outs):
            io.bind_ortvalue_output(o.name, ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a)))
        return lambda: s.run_with_iobinding(io), outs[0]
    if peer == 'ov':
        import openvino as ov
        config = {'PERFORMANCE_HINT': 'LATENCY', 'INFERENCE_PRECISION_HINT': 'f32', 'INFERENCE_NUM_THREADS': threads, 'NUM_STREAMS': 1}
        request = ov.Core().compile_model(f'{d}/model.xml', 'CPU', config).create_infer_request()
        for i, a in enumerate(arrays):
            request.set_input_tensor(i, ov.Tensor(a, shared_memory=True))
        request.infer()
        # The inputs are shared, so they must live as long as the request.
        return lambda kept=arrays: request.infer(), np.array(request.get_output_tensor(0).data)
    os.environ['OMP_NUM_THREADS'] = str(threads)
    import torch
    torch.set_num_threads(threads)
    m, args = build(name)
    if peer == 'compile':
        import torch._inductor.config as inductor
        inductor.freezing = True
        m = torch.compile(m)
    torch.no_grad().__enter__()
    out = m(*args)
    return lambda: m(*args), (out[0] if isinstance(out, tuple) else out).numpy()


def worker(peer, name, d, threads):
    """Measures one peer in this process and prints JSON."""
    import numpy as np
    run, first = session(peer, name, d, threads, list(np.load(f'{d}/inputs.npz').values()))
    first_ms = (time.time() - float(os.environ['T0'])) * 1e3
    ref = np.load(f'{d}/expected.npz')['output.0']
    warm = time.perf_counter()
    while time.perf_counter() - warm < 0.3:
        run()
    times, start = [], time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - start < 1.0 and len(times) < 20000):
        one = time.perf_counter()
        run()
        times.append(time.perf_counter() - one)
    times.sort()
    error = float(np.abs(first - ref).max() / max(np.abs(ref).max(), 1e-30))
    print('JSON ' + json.dumps(dict(median_ms=times[len(times) // 2] * 1e3, first_ms=first_ms, error=error)))


def measure(peer, name, d, threads, fxc):
    """One measurement in a fresh process."""
    env = dict(os.environ, T0=str(time.time()))
    command = [sys.executable, os.path.abspath(__file__), '--worker', peer, name, d, str(threads)]
    if peer == 'fxc':
        command = [fxc, 'bench', f'{d}/export.pt2', '--inputs', f'{d}/inputs.npz', '--threads', str(threads), '--json']
    p = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
    text = p.stdout if peer == 'fxc' else next((l[5:] for l in p.stdout.splitlines() if l.startswith('JSON ')), '')
    try:
        return json.loads(text)
    except ValueError:
        return dict(failed=(p.stderr.strip().splitlines() or [f'exit {p.returncode}'])[-1][:200])


def fxc_error(d, fxc):
    """fxc's largest difference from eager torch over the largest magnitude."""
    import numpy as np
    out = f'{d}/fxc.npz'
    subprocess.run([fxc, 'run', f'{d}/export.pt2', '--inputs', f'{d}/inputs.npz', '--outputs', out], capture_output=True)
    got, want = np.load(out)['output.0'], np.load(f'{d}/expected.npz')['output.0']
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-30))


def machine():
    """The processor's name."""
    try:
        with open('/proc/cpuinfo') as f:
            return next(l.split(':', 1)[1].strip() for l in f if l.startswith('model name'))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def heading(fxc):
    """What was measured, where and when."""
    from importlib.metadata import PackageNotFoundError, version
    found = [subprocess.run([fxc, '--version'], capture_output=True, text=True).stdout.strip()]
    for p in PACKAGES:
        try:
            found.append(f'{p} {version(p)}')
        except PackageNotFoundError:
            pass
    return f'{machine()}, {os.cpu_count()} cores; {", ".join(found)}; {datetime.date.today()}.'


def table(rows, peers, fxc):
    """The rows in Markdown."""
    out = [f'Milliseconds, medians of the best round, f32. {heading(fxc)}', '',
           '| case | threads | ' + ' | '.join(LABELS[p] for p in peers) + ' | ratio | error: fxc, best peer | first result: fxc, best peer |',
           '|---' * (len(peers) + 5) + '|']
    for r in rows:
        best = r['best']
        others = [p for p in best if p != 'fxc']
        top = min(others, key=lambda p: best[p]['median_ms']) if others else None
        cells = [f'{best[p]["median_ms"]:.4g}' if p in best else '–' for p in peers]
        ratio = f'{r["ratio"]:.2f}' if r['ratio'] else '–'
        error = f'{r["error"]:.1e}, {best[top]["error"]:.1e}' if top else f'{r["error"]:.1e}'
        first = f'{best["fxc"]["first_ms"]:.0f}, {best[top]["first_ms"]:.0f} ms' if top and 'fxc' in best else '–'
        out.append(f'| {r["case"]} | {r["threads"]} | ' + ' | '.join(cells) + f' | {ratio} | {error} | {first} |')
    ratios = [r['ratio'] for r in rows if r['ratio']]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        out += ['', f'Geometric mean of the ratios over {len(ratios)} of {len(rows)} rows: {mean:.3f}; largest {max(ratios):.2f}.']
    return '\n'.join(out) + '\n'


def main():
    if '--worker' in sys.argv:
        i = sys.argv.index('--worker')
        return worker(*sys.argv[i + 1:i + 4], int(sys.argv[i + 4]))
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('cases', nargs='*', metavar='CASE')
    ap.add_argument('--fxc', default=os.path.join(HERE, '..', 'target', 'release', 'fxc'))
    ap.add_argument('--threads', default='1,2')
    ap.add_argument('--rounds', type=int, default=3)
    ap.add_argument('--peers', default='fxc,ort,ov,compile')
    ap.add_argument('--work', default=os.path.join(os.environ.get('TMPDIR', '/tmp'), 'fxc-peers'))
    ap.add_argument('--markdown', help='write the table to this file')
    a = ap.parse_args()
    peers, fxc, rows = a.peers.split(','), os.path.abspath(a.fxc), []
    for name in [n for n in names() if not a.cases or any(n.startswith(c) for c in a.cases)]:
        d = os.path.join(a.work, name)
        prepare(name, d)
        for threads in map(int, a.threads.split(',')):
            best = {}
            for _ in range(a.rounds):
                for p in peers:
                    r = measure(p, name, d, threads, fxc)
                    if 'failed' in r:
                        print(f'{name}, {threads} threads, {p}: {r["failed"]}', file=sys.stderr)
                    elif p not in best or r['median_ms'] < best[p]['median_ms']:
                        best[p] = r
            others = [best[p]['median_ms'] for p in best if p != 'fxc']
            ratio = best['fxc']['median_ms'] / min(others) if 'fxc' in best and others else None
            error = fxc_error(d, fxc) if 'fxc' in best else float('nan')
            rows.append(dict(case=name, threads=threads, ratio=ratio, best=best, error=error))
            print(name, threads, {p: round(b['median_ms'], 4) for p, b in best.items()}, ratio and round(ratio, 2), file=sys.stderr)
    text = table(rows, peers, fxc)
    print(text)
    if a.markdown:
        with open(a.markdown, 'w') as f:
            f.write(text)


if __name__ == '__main__':
    main()
