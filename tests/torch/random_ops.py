"""Random ops against PyTorch's CPU stream, bit for bit: python tests/torch/random_ops.py [--fxc target/release/fxc]

Each row is one call, drawn three times in a row after torch.manual_seed(SEED) and by `fxc run --seed SEED`, compiled and
interpreted. Values, dtypes and shapes must be equal bit for bit. Modules that drop elements within, also as exported in
training, must drop the same. See docs/language.md, section 9, for what is known to
differ (on Intel processors PyTorch draws Bernoulli and exponential numbers through MKL).

Needs torch and safetensors. Without them it says so and checks nothing.
"""
import argparse
import os
import subprocess
import sys
import tempfile

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)

FLOATS = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
INTS = {"i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8}
SIZES = [(1,), (5,), (15,), (16,), (17,), (4, 9), (3, 5, 7), (1000,), (0,)]


def p_values(dtype):
    return torch.linspace(0.05, 0.95, 12).reshape(3, 4).to(dtype)


def cases():
    """(name, FXIR of one draw from %p, the same in PyTorch, dtype of p)."""
    for d, dtype in FLOATS.items():
        for size in SIZES:
            s = list(size)
            yield f"rand {d} {s}", f"call_function torch.rand({s}, dtype={d})", lambda p, s=s, t=dtype: torch.rand(s, dtype=t), d
            yield f"randn {d} {s}", f"call_function torch.randn({s}, dtype={d})", lambda p, s=s, t=dtype: torch.randn(s, dtype=t), d
        like = {
            "rand_like": ("torch.rand_like(%p)", torch.rand_like),
            "randn_like": ("torch.randn_like(%p)", torch.randn_like),
            "bernoulli(p)": ("torch.bernoulli(%p)", torch.bernoulli),
            "bernoulli(x, 0.3)": ("torch.bernoulli(%p, 0.3)", lambda p: torch.bernoulli(p, 0.3)),
            "dropout": ("torch.nn.functional.dropout(%p, 0.4, True)", lambda p: torch.dropout(p, 0.4, True)),
            "feature_dropout": ("torch.feature_dropout(%p, 0.4, True)", lambda p: torch.feature_dropout(p, 0.4, True)),
            "uniform": ("aten.uniform.default(%p, -2.0, 5.0)", lambda p: p.clone().uniform_(-2, 5)),
            "exponential": ("aten.exponential.default(%p, 0.7)", lambda p: p.clone().exponential_(0.7)),
            "normal_": ("aten.normal_functional.default(%p, 1.5, 0.25)", lambda p: p.clone().normal_(1.5, 0.25)),
            "normal_ 0.3": ("aten.normal_functional.default(%p, 1.5, 0.3)", lambda p: p.clone().normal_(1.5, 0.3)),
            "geometric": ("aten.geometric.default(%p, 0.3)", lambda p: p.clone().geometric_(0.3)),
            "cauchy": ("aten.cauchy.default(%p, 0.5, 2.0)", lambda p: p.clone().cauchy_(0.5, 2)),
            "log_normal": ("aten.log_normal.default(%p, 0.5, 0.3)", lambda p: p.clone().log_normal_(0.5, 0.3)),
            "random_": ("aten.random.default(%p)", lambda p: p.clone().random_()),
            "poisson": ("torch.poisson(%p)", torch.poisson),
            "multinomial 1": ("torch.multinomial(%p, 1)", lambda p: torch.multinomial(p, 1)),
            "multinomial 3": ("torch.multinomial(%p, 3)", lambda p: torch.multinomial(p, 3)),
            "multinomial 9 replacement": ("torch.multinomial(%p, 9, True)", lambda p: torch.multinomial(p, 9, True)),
        }
        for name, (text, f) in like.items():
            yield f"{name} {d}", f"call_function {text}", f, d
    yield "alpha_dropout f32", "call_function torch.alpha_dropout(%p, 0.4, True)", lambda p: torch.alpha_dropout(p, 0.4, True), "f32"
    yield "native_dropout f32", "call_function torch.native_dropout(%p, 0.4, True)", lambda p: torch.native_dropout(p, 0.4, True)[0], "f32"
    yield "normal(mean, std) f32", "call_function torch.normal(%p, %p)", lambda p: torch.normal(p, p), "f32"
    yield "normal(2, std) f32", "call_function torch.normal(2.0, %p)", lambda p: torch.normal(2.0, p), "f32"
    yield "normal(mean, 3) f32", "call_function torch.normal(%p, 3.0)", lambda p: torch.normal(p, 3.0), "f32"
    yield from permuted()
    for d, dtype in INTS.items():
        low = 0 if d == "u8" else -7
        yield f"randint {d}", f"call_function torch.randint({low}, 100, [40], dtype={d})", lambda p, t=dtype, l=low: torch.randint(l, 100, (40,), dtype=t), "f32"
    for high in [2**27, 2**28, 2**31, 2**32, 2**40, 2**62]:
        yield f"randint to {high}", f"call_function torch.randint({high}, [40])", lambda p, h=high: torch.randint(h, (40,)), "f32"
    for n in [0, 1, 2, 100, 70000]:
        yield f"randperm {n}", f"call_function torch.randperm({n})", lambda p, n=n: torch.randperm(n), "f32"


def permuted():
    """Draws into memory that does not lie in row-major order: `%q` is a transpose, `%c` a copy of it."""
    for name, f in {
        "torch.dropout(%q, 0.4, True)": lambda q: torch.dropout(q, 0.4, True),
        "torch.alpha_dropout(%q, 0.4, True)": lambda q: torch.alpha_dropout(q, 0.4, True),
        "torch.native_dropout(%q, 0.4, True)": lambda q: torch.native_dropout(q, 0.4, True)[0],
        "torch.feature_dropout(%q, 0.4, True)": lambda q: torch.feature_dropout(q, 0.4, True),
        "torch.rand_like(%q)": torch.rand_like,
        "torch.randint_like(%q, 9)": lambda q: torch.randint_like(q, 9),
        "torch.bernoulli(%q)": torch.bernoulli,
        "torch.bernoulli(%q, 0.3)": lambda q: torch.bernoulli(q, 0.3),
    }.items():
        yield f"{name} f32", f"call_function {name}", lambda p, f=f: f(p.t()), "f32"
    for name, arguments in {"uniform_": (-2.0, 5.0), "bernoulli_": (0.3,), "exponential_": (0.7,), "geometric_": (0.3,), "random_": (9,),
                            "cauchy_": (0.5, 2.0), "log_normal_": (0.5, 0.3)}.items():
        text = ", ".join(["%c", *map(str, arguments)])
        yield (f"{name} of a transpose f32", f"call_method {name}({text})",
               lambda p, n=name, v=arguments: getattr(p.t().clone(), n)(*v), "f32")


def fxir(text, d):
    values = p_values(FLOATS[d])
    rows = [[float(x) for x in r] for r in values.tolist()]
    lines = [f"const p : {d}[3, 4] = {rows}", "graph main {", "    %p = get_attr p"]
    lines += ["    %q = call_method t(%p)"] if "%q" in text or "%c" in text else []
    for i in range(3):
        lines += [f"    %c{i} = call_method clone(%q)"] if "%c" in text else []
        lines.append(f"    %r{i} = {text.replace('%c', f'%c{i}')}")
    if "native_dropout" in text:
        lines += [f"    %s{i} = call_function operator.getitem(%r{i}, 0)" for i in range(3)]
        return "\n".join(lines + ["    output (%s0, %s1, %s2)", "}"]) + "\n"
    return "\n".join(lines + ["    output (%r0, %r1, %r2)", "}"]) + "\n"


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.contiguous().view(torch.uint8).equal(b.contiguous().view(torch.uint8)) \
        if a.dim() else a.dtype == b.dtype and a.item() == b.item()


def networks():
    """Modules of torch.nn that drop elements within, with what their constructor takes and how many inputs their forward."""
    for cls in ("LSTM", "GRU", "RNN"):
        for more in ({}, {"bidirectional": True}, {"batch_first": True}):
            yield cls, {"input_size": 8, "hidden_size": 4, "num_layers": 3, "dropout": 0.4, **more}, 1
    for first in (False, True):
        yield "MultiheadAttention", {"embed_dim": 8, "num_heads": 2, "dropout": 0.4, "batch_first": first}, 3
        size = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "dropout": 0.3, "batch_first": first}
        for norm_first in (False, True):
            yield "TransformerEncoderLayer", {**size, "norm_first": norm_first}, 1
            yield "TransformerDecoderLayer", {**size, "norm_first": norm_first}, 2
        yield "Transformer", {**size, "num_encoder_layers": 2, "num_decoder_layers": 2}, 2


def drops_alike(fxc, tmp, cls, params, inputs, how):
    """What differs in the first result of a module in training mode, if something does: the draws decide which elements are zero."""
    m = getattr(torch.nn, cls)(**params).train()
    x = torch.randn(5, 2, 8)
    torch.manual_seed(7)
    want = m(*[x] * inputs)
    weights = {f"m.{k}": v.contiguous() for k, v in m.state_dict().items()}
    save_file(weights, f"{tmp}/w.safetensors")
    save_file({"x": x}, f"{tmp}/in.safetensors")
    lines = ['weights "w.safetensors"', *[f"param {k} : f32{list(v.shape)}" for k, v in weights.items()]]
    lines += [f"module m = {cls}({', '.join(f'{k}={v}' for k, v in params.items())}, training=True)", "graph main {"]
    lines += ["    %x : f32[5, 2, 8] = placeholder x", f"    %y = call_module m({', '.join(['%x'] * inputs)})", "    output %y", "}"]
    open(f"{tmp}/m.fxir", "w").write("\n".join(lines) + "\n")
    out = f"{tmp}/out.safetensors"
    r = subprocess.run([fxc, "run", f"{tmp}/m.fxir", "--inputs", f"{tmp}/in.safetensors", "--seed", "7", "--outputs", out, *how],
                       capture_output=True, text=True)
    if r.returncode:
        return r.stderr.strip().splitlines()[0]
    first = want[0] if isinstance(want, tuple) else want
    difference = (load_file(out)["output.0"] - first).abs().max().item()
    return f"by {difference}" if difference > 1e-5 else None


def exported():
    """Layers as torch.export writes them in training: what is dropped lies as the layer's transposes leave it."""
    for norm_first in (False, True):
        yield torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True, norm_first=norm_first)
    yield torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.3))


def drops_alike_exported(fxc, tmp, m, how):
    m = m.train()
    x = torch.randn(5, 2, 8)
    program = torch.export.export(m, (x,), strict=False)
    torch.manual_seed(7)
    want = m(x)
    torch.export.save(program, f"{tmp}/m.pt2")
    save_file({next(iter(program.graph_signature.user_inputs)): x}, f"{tmp}/in.safetensors")
    out = f"{tmp}/out.safetensors"
    r = subprocess.run([fxc, "run", f"{tmp}/m.pt2", "--inputs", f"{tmp}/in.safetensors", "--seed", "7", "--outputs", out, *how],
                       capture_output=True, text=True)
    if r.returncode:
        return r.stderr.strip().splitlines()[0]
    difference = (load_file(out)["output.0"] - want).abs().max().item()
    return f"by {difference}" if difference > 1e-5 else None


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fxc", default="target/release/fxc")
    ap.add_argument("--seed", type=int, default=7)
    a = ap.parse_args()
    passed, failed = 0, []
    with tempfile.TemporaryDirectory() as tmp:
        for name, text, f, d in cases():
            open(f"{tmp}/m.fxir", "w").write(fxir(text, d))
            torch.manual_seed(a.seed)
            p = p_values(FLOATS[d])
            want = [f(p) for _ in range(3)]
            for how in [[], ["--interpret"]]:
                out = f"{tmp}/out.safetensors"
                r = subprocess.run([a.fxc, "run", f"{tmp}/m.fxir", "--seed", str(a.seed), "--outputs", out, *how],
                                   capture_output=True, text=True)
                if r.returncode:
                    failed.append(f"{name} {how}: {r.stderr.strip().splitlines()[:1]}")
                    continue
                got = load_file(out)
                bad = [i for i in range(3) if not same(got[f"output.{i}"], want[i])]
                if bad:
                    failed.append(f"{name} {how}: draw {bad} differs")
                else:
                    passed += 1
        alike = 0
        for cls, params, inputs in networks():
            for how in [[], ["--interpret"]]:
                bad = drops_alike(a.fxc, tmp, cls, params, inputs, how)
                if bad:
                    failed.append(f"{cls} {params} {how}: {bad}")
                else:
                    alike += 1
        for m in exported():
            for how in [[], ["--interpret"]]:
                bad = drops_alike_exported(a.fxc, tmp, m, how)
                if bad:
                    failed.append(f"exported {type(m).__name__} {how}: {bad}")
                else:
                    alike += 1
    for line in failed:
        print("DIFFERS", line)
    print(f"{passed} equal bit for bit, {alike} modules in training mode that drop the same elements, {len(failed)} not")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
