"""Models with int8 weights and activations by fxc beside ONNX Runtime and OpenVINO.

    pip install torch torchvision torchao transformers onnx onnxruntime openvino    # what is missing is left out
    cargo build --release
    python benches/quantized.py --prepare      # once: random weights, calibration, exports; some minutes and 3 GB
    python benches/quantized.py                # prints the table

    [--models resnet50,bert] [--peers fxc,OpenVINO] [--threads 1,2] [--rounds 3] [--seconds 2] [--work DIR] [--fxc PATH] [--markdown FILE]

fxc runs what PyTorch's PT2E quantization for x86 makes of the model, ONNX Runtime and OpenVINO what ONNX Runtime's static quantization in the
QDQ form does: u8 activations, i8 weights with a scale for each output channel, calibrated with the same input. `bert dynamic` quantizes
activations when it runs. A measurement is a process of its own; rounds interleave the peers, and the best round counts. In brackets: the
largest difference from eager PyTorch in f32 over the largest magnitude, which is what quantization costs, not how exact a peer is.
"""
import json
import os
import re
import subprocess
import sys
import time

from arguments import parser

MODELS = ['resnet50', 'resnet18', 'mobilenet_v2', 'efficientnet_b0', 'bert', 'bert_dynamic']


def build(name):
    """A model with random weights, and an input."""
    import torch
    torch.manual_seed(0)
    if name.startswith('bert'):
        import transformers
        model = transformers.BertModel(transformers.BertConfig(attn_implementation='sdpa'))

        class LastHiddenState(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, ids):
                return self.model(input_ids=ids).last_hidden_state
        return LastHiddenState().eval(), torch.randint(0, 30000, (1, 128))
    import torchvision
    model = getattr(torchvision.models, name)(weights=None).train()
    # Statistics for the batch norms.
    with torch.no_grad():
        for _ in range(2):
            model(torch.randn(4, 3, 224, 224))
    return model.eval(), torch.randn(1, 3, 224, 224)


def write_pt2e(file, model, x, dynamic):
    """What PT2E quantization makes of a model."""
    import torch
    import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as x86
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    exported = torch.export.export(model, (x,), strict=True)
    torch.export.save(exported, f'{file}.f32.pt2')
    # This step fails for linears without a function after them.
    x86.X86InductorQuantizer._annotate_linear_unary = lambda *args, **kwargs: None
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_dynamic=dynamic))
    prepared = prepare_pt2e(exported.module(), quantizer)
    with torch.no_grad():
        prepared(x)
        torch.export.save(torch.export.export(convert_pt2e(prepared), (x,)), f'{file}.int8.pt2')


def write_onnx(file, model, x, dynamic):
    """What ONNX Runtime's quantization makes of a model."""
    import torch
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Calibration(quantization.CalibrationDataReader):
        def __init__(self):
            self.inputs = iter([{'x': x.numpy()}])

        def get_next(self):
            return next(self.inputs, None)
    torch.onnx.export(model, (x,), f'{file}.onnx', input_names=['x'], dynamo=False, opset_version=17)
    quant_pre_process(f'{file}.onnx', f'{file}.onnx', skip_symbolic_shape=True)
    if dynamic:
        return quantization.quantize_dynamic(f'{file}.onnx', f'{file}.int8.onnx')
    return quantization.quantize_static(
        f'{file}.onnx', f'{file}.int8.onnx', Calibration(), quant_format=quantization.QuantFormat.QDQ, per_channel=True,
        activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8)


def prepare(a):
    import numpy as np
    import torch
    os.makedirs(a.work, exist_ok=True)
    for name in a.models:
        file = os.path.join(a.work, name)
        model, x = build(name)
        with torch.no_grad():
            np.savez(f'{file}.npz', x=x.numpy())
            np.save(f'{file}.npy', model(x).numpy())
        for write in (write_pt2e, write_onnx):
            try:
                write(file, model, x, name.endswith('dynamic'))
            except ImportError as e:
                print(f'{name}: {e}', file=sys.stderr)


# The peers. Each returns milliseconds and the result.

def by_fxc(a, name, threads, kind):
    import numpy as np
    file, result = os.path.join(a.work, name), os.path.join(a.work, 'result.npz')
    inputs = f'x={file}.npz' if not name.startswith('bert') else f'ids={file}.npz'

    def run(*args):
        return subprocess.run([a.fxc, *args], check=True, capture_output=True, text=True)
    run('run', f'{file}.{kind}.pt2', inputs, '--outputs', result)
    text = run('bench', f'{file}.{kind}.pt2', inputs, '--threads', str(threads), '--seconds', str(a.seconds))
    found = re.search(r'median ([\d.]+) (ms|us|s)', text.stdout + text.stderr)
    assert found
    (y,) = np.load(result).values()
    return float(found[1]) * {'us': 1e-3, 'ms': 1.0, 's': 1e3}[found[2]], y


def repeat(seconds, call):
    """The median of the calls of some seconds, in milliseconds."""
    for _ in range(3):
        call()
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2] * 1e3


def by_onnxruntime(file, threads, seconds):
    import numpy as np
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(f'{file}.int8.onnx', options)
    inputs = {'x': np.load(f'{file}.npz')['x']}
    return repeat(seconds, lambda: session.run(None, inputs)), session.run(None, inputs)[0]


def by_openvino(file, threads, seconds):
    import numpy as np
    import openvino
    model = openvino.Core().compile_model(f'{file}.int8.onnx', 'CPU', {
        'PERFORMANCE_HINT': 'LATENCY', 'INFERENCE_NUM_THREADS': threads, 'NUM_STREAMS': 1})
    request = model.create_infer_request()
    inputs = {0: np.load(f'{file}.npz')['x']}
    return (repeat(seconds, lambda: request.infer(inputs, share_inputs=True, share_outputs=True)),
            np.array(request.infer(inputs)[0]))


WORKERS = {'ONNX Runtime': by_onnxruntime, 'OpenVINO': by_openvino}


def measure(a, peer, name, threads):
    """Milliseconds and the difference from f32, in a process of its own. `None` if the peer cannot run the model."""
    import numpy as np
    file = os.path.join(a.work, name)
    try:
        if peer.startswith('fxc'):
            ms, y = by_fxc(a, name, threads, 'f32' if peer == 'fxc f32' else 'int8')
        else:
            command = [sys.executable, os.path.abspath(__file__), '--work', a.work, '--worker', json.dumps([peer, file, threads, a.seconds])]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            ms, y = float(out.split()[-1]), np.load(os.path.join(a.work, 'result.npy'))
        want = np.load(f'{file}.npy')
        return ms, float(np.abs(y - want).max() / np.abs(want).max())
    except (subprocess.CalledProcessError, OSError) as e:
        print(f'{peer} {name}: {(getattr(e, "stderr", "") or str(e)).strip()[-300:]}', file=sys.stderr)
        return None


def row(a, name, threads):
    best = {}
    for _ in range(a.rounds):
        for peer in a.peers:
            found = measure(a, peer, name, threads)
            if found:
                best[peer] = min(found, best.get(peer, found))
    cells = [f'{best[p][0]:.2f} ({best[p][1]:.0e})' if p in best else '' for p in a.peers]
    others = [best[p][0] for p in WORKERS if p in best]
    ratio = f'{best["fxc int8"][0] / min(others):.2f}' if others and 'fxc int8' in best else ''
    return '| ' + ' | '.join([name.replace('_dynamic', ' dynamic'), str(threads), *cells, ratio]) + ' |'


def main():
    import numpy as np
    ap = parser(__doc__, 'quantized', rounds=2, seconds=2)
    peers = ['fxc f32', 'fxc int8', *WORKERS]
    ap.add_argument('--models', type=lambda text: text.split(','), default=MODELS)
    ap.add_argument('--peers', type=lambda text: text.split(','), default=peers)
    ap.add_argument('--prepare', action='store_true')
    ap.add_argument('--worker', type=json.loads, help='for measurements: peer, file, threads, seconds')
    a = ap.parse_args()
    if a.worker:
        ms, y = WORKERS[a.worker[0]](*a.worker[1:])
        np.save(os.path.join(a.work, 'result.npy'), y)
        print(ms)
    elif a.prepare:
        prepare(a)
    else:
        head = ['model', 'threads', *a.peers, 'ratio']
        lines = ['| ' + ' | '.join(head) + ' |', '|---' * len(head) + '|']
        lines += [row(a, name, threads) for name in a.models for threads in a.threads]
        table = '\n'.join(lines) + '\n'
        print(table)
        if a.markdown:
            with open(a.markdown, 'w') as f:
                f.write(table)


if __name__ == '__main__':
    main()
