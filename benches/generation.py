"""Text generation by fxc beside llama.cpp, OpenVINO and eager transformers.

    pip install torch transformers gguf llama-cpp-python openvino optimum-intel nncf    # what is missing is left out
    cargo build --release
    python benches/generation.py --prepare      # once: random weights, exports, conversions; some minutes and 10 GB
    python benches/generation.py                # prints the tables

    [--models small,medium] [--kinds f32,bf16,int8,int4] [--peers fxc,llama.cpp,OpenVINO,eager] [--threads 1,2] [--rounds 3]
    [--prompt 128] [--tokens 64] [--work DIR] [--fxc PATH] [--markdown FILE]

The models have the shapes of Qwen2 with random weights, a cache of 1024 positions, and tied embeddings. All peers get the same prompt
and generate the same number of tokens, the most probable each time. A measurement is a process of its own; rounds interleave the
peers, and medians count. `prefill` is the time of the prompt when code for its length exists, and `decode` the tokens per second after
the first: of fxc both are `fxc bench` on the same inputs, because the prompt's only call in `fxc generate` is to memory that is new. `read` is the share of a plain read's speed at which the peer reads its weights: their bytes times decode over a read of
memory in huge pages by as many threads, measured in each round.

int8 has a scale for each output feature (Q8_0 in llama.cpp: for each 32 weights), int4 a scale and a zero point for each 32 weights
(Q4_1 in llama.cpp). llama.cpp and OpenVINO round activations to int8 or bf16 where they have kernels for these; fxc computes in f32.
"""
import json
import os
import re
import statistics
import subprocess
import sys
import time

from arguments import ROOT, parser

SIZES = {
    # 187 and 494 million parameters; the second has the shapes of Qwen2-0.5B.
    'small': dict(hidden_size=768, num_hidden_layers=16, intermediate_size=3072, num_attention_heads=12, num_key_value_heads=4,
                  vocab_size=64000),
    'medium': dict(hidden_size=896, num_hidden_layers=24, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2,
                   vocab_size=151936),
}
CACHE = 1024
GGUF = dict(f32='F32', bf16='BF16', int8='Q8_0', int4='Q4_1')
NAMES = {'input_layernorm': 'attn_norm', 'post_attention_layernorm': 'ffn_norm', 'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k',
         'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output', 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up',
         'mlp.down_proj': 'ffn_down'}


def tokens(count):
    return [(i * 7919 + 13) % 60000 for i in range(count)]


# Files.

def folder(a, model):
    return os.path.join(a.work, model)


def config(d, model):
    from transformers import Qwen2Config
    Qwen2Config(**SIZES[model], max_position_embeddings=4096, rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=0,
                eos_token_id=0, architectures=['Qwen2ForCausalLM']).save_pretrained(d)


def weights(d, dtype):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(d), dtype=getattr(torch, dtype)).eval()


def write_gguf(d, kind):
    """A Qwen2 model as llama.cpp reads it."""
    import gguf
    import numpy as np
    m = weights(d, 'float32')
    c = m.config
    w = gguf.GGUFWriter(f'{d}/{kind}.gguf', 'qwen2')
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(10000.0)
    w.add_tokenizer_model('gpt2')
    w.add_tokenizer_pre('qwen2')
    w.add_token_list([f't{i}' for i in range(c.vocab_size)])
    w.add_token_types([1] * c.vocab_size)
    w.add_token_merges(['t 1'])
    w.add_eos_token_id(0)
    stored = gguf.GGMLQuantizationType[GGUF[kind]]
    for name, t in m.state_dict().items():
        values = t.numpy()
        if name == 'lm_head.weight':
            continue
        if name.startswith('model.layers.'):
            _, _, i, *rest = name.split('.')
            to = f'blk.{i}.{NAMES[".".join(rest[:-1])]}.{rest[-1]}'
        else:
            to = {'model.embed_tokens.weight': 'token_embd.weight', 'model.norm.weight': 'output_norm.weight'}[name]
        if values.ndim == 1 or kind == 'f32':
            w.add_tensor(to, values.astype(np.float32))
        else:
            w.add_tensor(to, gguf.quants.quantize(values, stored), raw_dtype=stored)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_openvino(d, kind):
    from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig
    source = f'{d}/transformers'
    if not os.path.exists(source):
        weights(d, 'float32').save_pretrained(source)
    options = dict(load_in_8bit=False)
    if kind == 'int8':
        options = dict(quantization_config=OVWeightQuantizationConfig(bits=8, sym=True))
    if kind == 'int4':
        options = dict(quantization_config=OVWeightQuantizationConfig(bits=4, sym=False, group_size=32, ratio=1.0, all_layers=True))
    OVModelForCausalLM.from_pretrained(source, export=True, compile=False, **options).save_pretrained(f'{d}/openvino-{kind}')


def write_fxc(a, d, kind):
    def run(*args):
        return subprocess.run(args, check=True, stdout=subprocess.DEVNULL)
    if kind in ('f32', 'bf16'):
        run(sys.executable, os.path.join(ROOT, 'tools', 'export_llm.py'), d, '-o', f'{d}/{kind}.pt2', '--cache', str(CACHE),
            '--dtype', kind, '--random')
    else:
        run(a.fxc, 'quantize', f'{d}/f32.pt2', '--weights', kind, '-o', f'{d}/{kind}.fxir')


def fxc_file(d, kind):
    return f'{d}/{kind}.' + ('pt2' if kind in ('f32', 'bf16') else 'fxir')


def prepare(a):
    for model in a.models:
        d = folder(a, model)
        os.makedirs(d, exist_ok=True)
        config(d, model)
        # int8 and int4 are made of f32.
        for kind in a.kinds:
            write_missing(fxc_file(d, kind), write_fxc, a, d, kind)
            write_missing(f'{d}/{kind}.gguf', write_gguf, d, kind)
            # OpenVINO computes in bf16 with the weights of f32.
            if kind != 'bf16':
                write_missing(f'{d}/openvino-{kind}', write_openvino, d, kind)


def write_missing(file, write, *args):
    """Writes a file, unless it exists or a package for it is missing."""
    try:
        if not os.path.exists(file):
            write(*args)
    except (ImportError, subprocess.CalledProcessError) as e:
        print(f'{file}: {e}', file=sys.stderr)


# The peers. Each returns a dict: seconds until the first token of a new process, prefill and decode in seconds, bytes of weights.

def greedy(step, prompt, count):
    """Calls `step` with tokens and the position of the first; it returns the next one."""
    import numpy as np
    step(np.array([prompt]), 0)
    begin = time.perf_counter()
    token = step(np.array([prompt]), 0)
    prefill = time.perf_counter() - begin
    begin = time.perf_counter()
    for i in range(count - 1):
        token = step(np.array([[token]]), len(prompt) + i)
    return dict(prefill=prefill, decode=(time.perf_counter() - begin) / (count - 1))


def by_llama(d, kind, threads, prompt, count):
    import llama_cpp
    import numpy as np
    m = llama_cpp.Llama(f'{d}/{kind}.gguf', n_ctx=CACHE, n_threads=threads, n_threads_batch=threads, n_batch=512, verbose=False)

    def step(ids, position):
        m.n_tokens = position
        m.eval(ids[0].tolist())
        scores = llama_cpp.llama_get_logits_ith(m.ctx, -1)
        return int(np.argmax(np.ctypeslib.as_array(scores, shape=(m.n_vocab(),))))
    return dict(greedy(step, prompt, count), weights=os.path.getsize(f'{d}/{kind}.gguf'))


def by_openvino(d, kind, threads, prompt, count):
    import numpy as np
    import openvino as ov
    path = f'{d}/openvino-{"f32" if kind == "bf16" else kind}/openvino_model'
    hint = 'bf16' if kind == 'bf16' else 'f32'
    model = ov.Core().compile_model(f'{path}.xml', 'CPU', {
        'PERFORMANCE_HINT': 'LATENCY', 'INFERENCE_PRECISION_HINT': hint, 'INFERENCE_NUM_THREADS': threads, 'NUM_STREAMS': 1})
    request = model.create_infer_request()

    def step(ids, position):
        if position == 0:
            request.reset_state()
        n = ids.shape[1]
        out = request.infer(dict(input_ids=ids, attention_mask=np.ones((1, position + n), np.int64),
                                 position_ids=np.arange(position, position + n)[None], beam_idx=np.zeros(1, np.int32)), share_outputs=True)
        return int(np.argmax(out['logits'][0, -1]))
    return dict(greedy(step, prompt, count), weights=os.path.getsize(f'{path}.bin') // (2 if kind == 'bf16' else 1))


def by_eager(d, kind, threads, prompt, count):
    import torch
    from transformers import StaticCache
    torch.set_num_threads(threads)
    m = weights(d, 'bfloat16' if kind == 'bf16' else 'float32')
    state = {}

    @torch.no_grad()
    def step(ids, position):
        if position == 0:
            state['cache'] = StaticCache(config=m.config, max_cache_len=CACHE)
        out = m(input_ids=torch.from_numpy(ids), past_key_values=state['cache'], use_cache=True, logits_to_keep=1,
                cache_position=torch.arange(position, position + ids.shape[1]))
        return int(out.logits[0, -1].argmax())
    return dict(greedy(step, prompt, count), weights=sum(p.numel() * p.element_size() for p in m.parameters()))


def by_fxc(a, d, kind, threads):
    """`fxc generate` twice: the second process finds the code of the first in the cache."""
    env = dict(os.environ, FXC_CACHE='on', FXC_CACHE_DIR=os.path.join(a.work, 'cache'))
    prompt = ','.join(map(str, tokens(a.prompt)))
    command = [a.fxc, 'generate', fxc_file(d, kind), '--prompt-tokens', prompt, '--threads', str(threads), '--max-new-tokens']
    def run(count):
        return subprocess.run([*command, str(count)], env=env, check=True, capture_output=True, text=True).stderr
    run(2)
    begin = time.perf_counter()
    run(1)
    first = time.perf_counter() - begin
    def number(pattern, text):
        return float(re.search(pattern, text)[1])
    text = run(a.tokens)
    # Their quotient is the number of bytes.
    reported, rate = number(r'generation: .*?\(([\d.]+) tokens/s\)', text), number(r'([\d.]+) GB/s of weights', text)

    def step(ids, first):
        import numpy as np
        inputs = f'{d}/inputs.npz'
        np.savez(inputs, input_ids=np.array([ids]), cache_position=np.arange(first, first + len(ids)))
        command = [a.fxc, 'bench', fxc_file(d, kind), '--inputs', inputs, '--threads', str(threads), '--seconds', str(a.seconds)]
        text = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
        return number(r'median ([\d.]+) ms', text.stdout + text.stderr) / 1e3
    # A step in the middle of the generated tokens.
    return dict(first=first, prefill=step(tokens(a.prompt), 0), decode=step(tokens(1), a.prompt + a.tokens // 2), weights=rate * 1e9 / reported)


WORKERS = {'llama.cpp': by_llama, 'OpenVINO': by_openvino, 'eager': by_eager}


def measure(a, peer, d, kind, threads):
    """One measurement, in a process of its own. `None` if the peer does not have the kind."""
    if peer == 'eager' and kind not in ('f32', 'bf16'):
        return None
    try:
        if peer == 'fxc':
            return by_fxc(a, d, kind, threads)
        args = [sys.executable, os.path.abspath(__file__), '--worker', json.dumps([peer, d, kind, threads, a.prompt, a.tokens])]
        env = dict(os.environ, OMP_NUM_THREADS=str(threads))
        out = subprocess.run(args, env=env, check=True, capture_output=True, text=True).stdout
        return json.loads(out.splitlines()[-1])
    except (subprocess.CalledProcessError, OSError, TypeError) as e:
        print(f'{peer} {kind}: {(getattr(e, "stderr", "") or str(e)).strip()[-300:]}', file=sys.stderr)
        return None


def plain_read(threads):
    """The bytes per second of a plain read of memory in huge pages, the best of a few."""
    import torch
    torch.set_num_threads(threads)
    import mmap

    import numpy as np
    size = 1 << 30
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, 'MADV_HUGEPAGE'):
        pages.madvise(mmap.MADV_HUGEPAGE)
    words = np.frombuffer(pages, np.int64)
    words[:] = 1
    t = torch.from_numpy(words)
    best = float('inf')
    for _ in range(5):
        begin = time.perf_counter()
        t.sum()
        best = min(best, time.perf_counter() - begin)
    return size / best


def table(a, model, threads):
    """Measures all peers and kinds of a model."""
    d, found, reads = folder(a, model), {}, []
    for _ in range(a.rounds):
        reads.append(plain_read(threads))
        for kind in a.kinds:
            for peer in a.peers:
                r = measure(a, peer, d, kind, threads)
                if r:
                    found.setdefault((kind, peer), []).append(r)
    read = max(reads)
    lines = [f'{model}, {threads} thread{"s" * (threads > 1)}, plain read {read / 1e9:.1f} GB/s', '',
             '| weights | peer | prefill ms | decode tokens/s | read | first token s |', '|---|---|---|---|---|---|']
    for (kind, peer), rounds in found.items():
        prefill, decode, weights = (statistics.median(r[key] for r in rounds) for key in ('prefill', 'decode', 'weights'))
        first = f'{statistics.median(r["first"] for r in rounds):.2f}' if peer == 'fxc' else ''
        share = 100 * weights / decode / read
        lines.append(f'| {kind} | {peer} | {prefill * 1e3:.0f} | {1 / decode:.1f} | {share:.0f} % | {first} |')
    return '\n'.join(lines) + '\n'


def main():
    ap = parser(__doc__, 'generation', rounds=3, seconds=2)
    def words(text):
        return text.split(',')
    ap.add_argument('--models', type=words, default=list(SIZES))
    ap.add_argument('--kinds', type=words, default=list(GGUF))
    ap.add_argument('--peers', type=words, default=['fxc', *WORKERS])
    ap.add_argument('--prompt', type=int, default=128, help='tokens of the prompt')
    ap.add_argument('--tokens', type=int, default=64, help='tokens to generate')
    ap.add_argument('--prepare', action='store_true')
    ap.add_argument('--worker', type=json.loads, help='for measurements: peer, folder, kind, threads, tokens')
    a = ap.parse_args()
    if a.worker:
        peer, d, kind, threads, prompt, count = a.worker
        print(json.dumps(WORKERS[peer](d, kind, threads, tokens(prompt), count)))
    elif a.prepare:
        prepare(a)
    else:
        tables = '\n'.join(table(a, model, threads) for model in a.models for threads in a.threads)
        print(tables)
        if a.markdown:
            with open(a.markdown, 'w') as f:
                f.write(tables)


if __name__ == '__main__':
    main()
