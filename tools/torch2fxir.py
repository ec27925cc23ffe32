"""Writes a torch.fx.GraphModule as FXIR text with its weights: what fxc reads, without Python.

    import torch, torch2fxir
    gm = torch2fxir.trace(model)                    # torch.fx.symbolic_trace that also keeps source positions
    torch2fxir.write(gm, "model.fxir", inputs=(x,)) # model.fxir and model.safetensors

or from a shell, for any callable that gives a module:

    python torch2fxir.py torchvision.models:resnet18 model.fxir --input 'f32[1, 3, 224, 224]' --call 'weights=None'
    python torch2fxir.py mymodels:Net model.fxir --concrete-args 'flag=False, k=3' --leaf mymodels.Block --training

Written are: the graph with its nested arguments; the classes of the modules it calls with their hyper-parameters
(classes of torch.nn stand as such; other modules that the graph calls, and graphs that it calls or names, become
graphs of the file); parameters, buffers and constants that the graph uses, also unregistered ones; leaf functions by
their qualified names; source positions where the tracer recorded them; types where the nodes hold them, or where
`inputs` lets them be computed. A module in training mode is written as what it computes in training mode.

Needs torch and safetensors, nothing else.
"""
import argparse
import contextlib
import copy
import importlib
import inspect
import io
import json
import math
import operator
import os
import re
import sys
import types

import torch
import torch.fx
from torch import nn
from torch.fx.node import _get_qualified_name

DTYPES = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "b8",
    torch.complex64: "c64", torch.complex128: "c128", torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64",
}
# Packages whose functions fxc knows by name.
KNOWN = {"torch", "torchvision", "operator", "_operator", "math", "builtins", "einops"}
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*\Z")
# Operators of the language: the only words that are not names.
RESERVED = {"and", "or", "not", "in", "True", "False", "None", "Ellipsis", "inf", "nan"}


class Unsupported(Exception):
    """What FXIR has no form for."""


# ------------------------------------------------------------------------------------------------ tracing
class Tracer(torch.fx.Tracer):
    """torch.fx's tracer, with source positions. Modules of the classes in `leaves` are not looked into, nor are those at the paths
    in it."""

    record_stack_traces = True

    def __init__(self, leaves=()):
        super().__init__()
        self.leaves = set(leaves)

    def is_leaf_module(self, m, path):
        cls = type(m)
        names = {path, cls.__name__, f"{cls.__module__}.{cls.__qualname__}"}
        return bool(self.leaves & names) or super().is_leaf_module(m, path)


def trace(model, concrete_args=None, leaves=()):
    """`torch.fx.symbolic_trace` with source positions. `leaves`: names of classes, or paths of modules, that stay calls of modules
    (fxc then gets their forward as a graph of its own, or knows the class)."""
    tracer = Tracer(leaves)
    graph = tracer.trace(model, concrete_args)
    for n in graph.nodes:
        # fx asserts that a parameter has the value that tracing fixed: that is its default then.
        fixed = re.sub(r"_\d+\Z", "", str(n.target)) if n.op == "placeholder" else None
        if fixed in (concrete_args or {}) and isinstance(concrete_args[fixed], (bool, int, float, str, type(None))):
            n.args = (concrete_args[fixed],)
    name = type(model).__name__ if isinstance(model, nn.Module) else model.__name__
    return torch.fx.GraphModule(tracer.root, graph, name)


def _encoder_layer(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
    def attend(x):
        y = self.self_attn(x, x, x, attn_mask=src_mask, key_padding_mask=src_key_padding_mask, need_weights=False)
        return self.dropout1(y[0])

    def feed(x):
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    if self.norm_first:
        src = src + attend(self.norm1(src))
        return src + feed(self.norm2(src))
    src = self.norm1(src + attend(src))
    return self.norm2(src + feed(src))


def _encoder(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
    for layer in self.layers:
        src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
    return src if self.norm is None else self.norm(src)


def _decoder_layer(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                   memory_key_padding_mask=None, tgt_is_causal=False, memory_is_causal=False):
    def attend(x):
        y = self.self_attn(x, x, x, attn_mask=tgt_mask, key_padding_mask=tgt_key_padding_mask, need_weights=False)
        return self.dropout1(y[0])

    def look(x):
        y = self.multihead_attn(x, memory, memory, attn_mask=memory_mask, key_padding_mask=memory_key_padding_mask,
                                need_weights=False)
        return self.dropout2(y[0])

    def feed(x):
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    if self.norm_first:
        tgt = tgt + attend(self.norm1(tgt))
        tgt = tgt + look(self.norm2(tgt))
        return tgt + feed(self.norm3(tgt))
    tgt = self.norm1(tgt + attend(tgt))
    tgt = self.norm2(tgt + look(tgt))
    return self.norm3(tgt + feed(tgt))


def _decoder(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
             memory_key_padding_mask=None, tgt_is_causal=None, memory_is_causal=False):
    for layer in self.layers:
        tgt = layer(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                    memory_key_padding_mask=memory_key_padding_mask)
    return tgt if self.norm is None else self.norm(tgt)


def _transformer(self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None,
                 tgt_key_padding_mask=None, memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None,
                 memory_is_causal=False):
    memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask)
    return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                        tgt_key_padding_mask=tgt_key_padding_mask, memory_key_padding_mask=memory_key_padding_mask)


# Containers of torch.nn that fx does not look into: what they compute, without their tests of shapes and fast paths.
FORWARDS = {
    nn.TransformerEncoderLayer: _encoder_layer, nn.TransformerEncoder: _encoder,
    nn.TransformerDecoderLayer: _decoder_layer, nn.TransformerDecoder: _decoder, nn.Transformer: _transformer,
}


def trace_call(module, given):
    """The graph of a called module that FXIR has no class for. `given` maps the parameters that the call gives."""
    if isinstance(module, torch.fx.GraphModule):
        return module
    inner = next((f for c, f in FORWARDS.items() if isinstance(module, c)), type(module).forward)
    # Only what the call gives as values is a parameter; the rest is fixed.
    names = [name for name, v in given.items() if has_node(v)]
    scope = {"inner": inner, "fixed": {k: v for k, v in given.items() if k not in names}}
    exec(f"def forward(self, {', '.join(names)}):\n    return inner(self, "
         f"{', '.join(f'{n}={n}' for n in names)}, **fixed)", scope)
    root = copy.copy(module)
    root.__class__ = type(type(module).__name__, (type(module),), {"forward": scope["forward"]})

    class Inside(Tracer):
        def is_leaf_module(self, m, path):
            return m is not root and super().is_leaf_module(m, path)

    return torch.fx.GraphModule(root, inside(Inside(), root, f"`{type(module).__name__}`"))


def inside(tracer, root, what):
    """The graph of a part of the model; what torch.fx cannot trace is said in a message."""
    try:
        return tracer.trace(root)
    except torch.fx.proxy.TraceError as e:
        raise Unsupported(f"{what}, which torch.fx does not trace: {e}") from e


def trace_function(f, given):
    """The graph of a leaf function of the user's own (`torch.fx.wrap`); what the call gives as values is fixed."""
    names = [name for name, v in given.items() if has_node(v)]
    scope = {"inner": f, "fixed": {k: v for k, v in given.items() if k not in names}}
    exec(f"def {f.__name__}({', '.join(names)}):\n    return inner({', '.join(f'{n}={n}' for n in names)}, **fixed)", scope)
    tracer = Tracer()
    graph = inside(tracer, scope[f.__name__], f"the function `{f.__name__}`")
    return torch.fx.GraphModule(tracer.root, graph)


def has_node(v):
    found = []
    torch.fx.node.map_arg(v, found.append)
    return bool(found)


# ------------------------------------------------------------------------------------------------ text
def string(s):
    return json.dumps(s, ensure_ascii=False)


def path(p):
    """A dotted path, quoted where it would not lex as one."""
    return p if PATH.match(p) and p not in RESERVED else string(p)


def parameter(p):
    """A placeholder's target, which may begin with stars."""
    name = p.lstrip("*")
    return p if NAME.match(name) and name not in RESERVED and len(p) - len(name) <= 2 else string(p)


def number(x):
    if isinstance(x, float):
        return "nan" if math.isnan(x) else repr(x)
    return repr(x)


def tensor_type(t):
    if t.dtype not in DTYPES:
        return None
    return f"{DTYPES[t.dtype]}[{', '.join(size(d) for d in t.shape)}]"


# Signs of sympy's comparisons.
SIGNS = {"Eq": "==", "Ne": "!=", "Gt": ">", "Ge": ">=", "Lt": "<", "Le": "<=", "Equality": "==", "Unequality": "!=",
         "StrictGreaterThan": ">", "GreaterThan": ">=", "StrictLessThan": "<", "LessThan": "<="}
# Functions of sizes that FXIR reads, besides those of torch.utils._sympy.functions.
SIZE_FUNCTIONS = re.compile(r"FloorDiv|CleanDiv|CeilDiv|Mod|PythonMod|ModularIndexing|Identity|Min|Max|Abs|Where|(Int|Float)TrueDiv|"
                            r"(Trunc|Floor|Ceil|Round)ToInt|ToFloat|TruncToFloat|RoundDecimal|PowByNatural|FloatPow|[LR]Shift|"
                            r"BitwiseFn_bitwise_(and|or|xor)|OpaqueUnaryFn_\w+|floor|ceiling|sqrt|exp|log")


def size(d):
    """A size as FXIR writes it; `?` where it has a function that FXIR does not know."""
    if isinstance(d, int) or not hasattr(d, "node"):
        return str(d)
    try:
        return expression(d.node.expr)
    except Unsupported:
        return "?"


def expression(e):
    """A sympy expression of sizes as FXIR writes it."""
    name = type(e).__name__
    if name == "Symbol":
        if not NAME.match(e.name) or e.name in RESERVED:
            raise Unsupported(f"the size `{e.name}`")
        return e.name
    if e.is_Integer:
        return str(int(e))
    if e.is_Float:
        return repr(float(e))
    if name.startswith("Boolean"):
        return str(bool(e))
    if name == "Rational" or e.is_Rational:
        return f"{e.p}/{e.q}" if e.p > 0 else f"(-{-e.p}/{e.q})"
    parts = [expression(a) for a in e.args]
    inner = [p if re.fullmatch(r"\w+(\(.*\))?", p) and balanced(p) else f"({p})" for p in parts]
    # FXIR takes a number in parentheses for a tuple.
    inner = [p[1:-1] if re.fullmatch(r"\(-?[\d.]+(e[+-]?\d+)?\)", p) else p for p in inner]
    if name in ("Add", "Mul", "And", "Or"):
        return {"Add": " + ", "Mul": "*", "And": " and ", "Or": " or "}[name].join(inner)
    if name == "Pow":
        return f"Pow({', '.join(parts)})"
    if name == "Not":
        return f"not {inner[0]}"
    if name in SIGNS:
        return f"{inner[0]} {SIGNS[name]} {inner[1]}"
    if name == "ExprCondPair":
        return f"({', '.join(parts)})"
    if name == "Piecewise" or SIZE_FUNCTIONS.fullmatch(name):
        return f"{name}({', '.join(parts)})"
    raise Unsupported(f"the function `{name}` of sizes")


def balanced(text):
    """Whether the first parenthesis of `text` closes at its end."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == ")" and depth == 0 and i < len(text) - 1:
            return False
    return True


def value_type(v):
    """The FXIR type of an example value; None where there is none."""
    if isinstance(v, torch.Tensor) or type(v).__name__ == "TensorMetadata":
        return tensor_type(v)
    if isinstance(v, bool):
        return "bool"
    if isinstance(v, (int, float, str)) or v is None:
        return "None" if v is None else type(v).__name__
    if isinstance(v, (tuple, list)) and not hasattr(v, "_fields"):
        parts = [value_type(x) for x in v]
        if any(p is None for p in parts) or (isinstance(v, list) and len(set(parts)) != 1):
            return None
        if isinstance(v, list):
            return f"[{parts[0]}]"
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    return None


def literal(v, node=None):
    """A value as FXIR writes it. `node` writes graph nodes."""
    if isinstance(v, torch.fx.Node):
        if node is None:
            raise Unsupported("a node where only constants are allowed")
        return node(v)
    if v is None or v is Ellipsis or isinstance(v, bool):
        return "Ellipsis" if v is Ellipsis else repr(v)
    if isinstance(v, str):
        return string(v)
    if isinstance(v, (int, float)):
        return number(v)
    if isinstance(v, complex):
        return repr(v)
    if isinstance(v, torch.SymInt):
        return expression(v.node.expr)
    if isinstance(v, (torch.dtype, torch.memory_format, torch.layout)):
        return str(v)
    if isinstance(v, torch.device):
        return f"device({string(str(v))})"
    if isinstance(v, (slice, range)):
        name = type(v).__name__
        return f"{name}({', '.join(literal(x, node) for x in (v.start, v.stop, v.step))})"
    if isinstance(v, tuple):
        parts = [literal(x, node) for x in v]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if isinstance(v, list):
        return f"[{', '.join(literal(x, node) for x in v)}]"
    if isinstance(v, dict):
        return "{" + ", ".join(f"{literal(k)}: {literal(x, node)}" for k, x in v.items()) + "}"
    if isinstance(v, torch._ops.OpOverload):
        return f"opaque({string(str(v))})"
    if isinstance(v, type):
        return f"opaque({string(repr(v))})"
    if hasattr(v, "item") and hasattr(v, "dtype") and getattr(v, "size", 1) and (
            not isinstance(v, torch.Tensor) or v.numel() == 1):
        return literal(v.item())
    raise Unsupported(f"a value of type {type(v).__name__}: {v!r}"[:200] + custom_object(v))


def called(gm):
    """` called (x, pair) (scale)`: the parameters of a function that flattens its arguments; else nothing."""
    info = getattr(gm.graph._codegen, "pytree_info", None)
    if info is None or info.out_spec is None or not all(NAME.match(a) for a in info.orig_args):
        return ""
    spec, names = info.in_spec, [path(a) for a in info.orig_args]
    parts = [spec.child(i) for i in range(spec.num_children)]
    if len(parts) != 2 or spec.type is not tuple or [p.type for p in parts] != [tuple, dict]:
        return f" called ({', '.join(names)})"
    count = parts[0].num_children
    return f" called ({', '.join(names[:count])}) ({', '.join(names[count:])})"


def constant(t):
    """A small tensor as nested lists."""
    return literal(t.tolist())


# ------------------------------------------------------------------------------------------------ modules
RNN = ["input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional"]
SIGNATURES = {nn.LSTM: RNN + ["proj_size"], nn.GRU: RNN, nn.RNN: RNN[:3] + ["nonlinearity"] + RNN[3:]}
# Arguments that other attributes hold the meaning of.
DEPRECATED = {"size_average", "reduce", "min_value", "max_value"}
SKIPPED = {"device", "dtype", "_weight", "_freeze", "init", "process_group"}


# Classes of torchvision.ops and timm that FXIR knows.
VISION = {"StochasticDepth", "FrozenBatchNorm2d", "DropPath", "DeformConv2d", "DropBlock2d", "DropBlock3d", "PSRoIAlign", "PSRoIPool",
          "RoIAlign", "RoIPool"}


def is_plain(module):
    """Whether FXIR names the module's class rather than holding its graph."""
    if isinstance(module, (torch.fx.GraphModule, nn.Sequential, *FORWARDS)):
        return False
    return any(c.__module__.startswith("torch.nn.") for c in type(module).__mro__[:1]) or is_parametrized(module) or (
        type(module).__name__ in VISION)


def is_parametrized(module):
    return hasattr(module, "parametrizations") and type(module).__name__.startswith("Parametrized")


def module_class(module):
    return type(module).__mro__[1] if is_parametrized(module) else type(module)


def hyper_parameter(module, name):
    """The constructor argument `name` of a module, from its attributes."""
    if isinstance(module, nn.MultiheadAttention):
        if name in ("bias", "add_bias_kv"):
            return (module.in_proj_bias if name == "bias" else module.bias_k) is not None
    if isinstance(module, nn.PReLU) and name == "num_parameters":
        return module.weight.numel()
    if isinstance(module, nn.PairwiseDistance) and name == "p":
        return module.norm
    if type(module).__name__ == "FrozenBatchNorm2d" and name == "num_features":
        return module.weight.numel()
    if isinstance(module, nn.AdaptiveLogSoftmaxWithLoss) and name == "cutoffs":
        return module.cutoffs[:-1]  # the class appends `n_classes`
    v = getattr(module, name)
    if name == "bias" and not isinstance(v, bool):
        return v is not None
    if isinstance(v, torch.Size):
        return tuple(v)
    return v


# Classes that drop elements within, which their call in FXIR does too.
DROPPING = (nn.RNNBase, nn.MultiheadAttention)


def drops(module):
    return getattr(module, "dropout", 0.0) not in (0.0, 0)


def averages(module):
    """Whether it keeps the means of its statistics over all batches."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats and module.momentum is None


def constructor(module):
    """`Linear(in_features=3, out_features=4)`: arguments that are torch's defaults are left out."""
    cls = module_class(module)
    if cls in SIGNATURES:
        names = {n: inspect.Parameter.empty for n in SIGNATURES[cls]}
        names.update(num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False)
        names = {n: d for n, d in names.items() if n in SIGNATURES[cls]}
    else:
        params = list(inspect.signature(cls.__init__).parameters.values())[1:]
        names = {p.name: p.default for p in params if p.kind in NAMED}
    out = []
    for name, default in names.items():
        if name in SKIPPED:
            continue
        try:
            v = hyper_parameter(module, name)
        except AttributeError:
            if name not in DEPRECATED:
                raise Unsupported(f"`{cls.__name__}` does not store its argument `{name}`") from None
            continue
        if isinstance(v, torch.Tensor) and v is getattr(module, name, None):
            continue  # weights of classes, samples: written with the buffers
        if name == "distance_function" and isinstance(v, nn.PairwiseDistance):
            continue
        if name == "kdim" and v == getattr(module, "embed_dim", None) or name == "vdim" and v == module.embed_dim:
            continue
        if default is inspect.Parameter.empty or type(v) is not type(default) or v != default:
            out.append(f"{name}={literal(v)}")
    if module.training and (drops(module) or averages(module)):
        out.append("training=True")
    return f"{cls.__name__}({', '.join(out)})"


# ------------------------------------------------------------------------------------------------ the file
class Writer:
    """Collects a file's declarations and graphs."""

    def __init__(self):
        self.tensors = {}    # name -> tensor
        self.kinds = {}      # name -> param | buffer | const
        self.modules = {}    # path -> class text
        self.graphs = {}     # name -> lines
        self.called = {}     # name of a graph -> how its function is called, where arguments nest
        self.taken = {"main"}
        self.frames = {}     # (frame around, file, line, function, code) -> name
        self.scopes = {}     # (module around, path, class) -> name

    def fresh(self, wish):
        wish = re.sub(r"[^A-Za-z0-9_]", "_", wish) or "graph"
        wish = wish if NAME.match(wish) and wish not in RESERVED else "g_" + wish
        name, i = wish, 1
        while name in self.taken:
            name, i = f"{wish}_{i}", i + 1
        self.taken.add(name)
        return name

    def origin(self, node):
        """What is known of where a node came from beyond the user's line."""
        parts = []
        frame = None
        lines = (node.meta.get("stack_trace") or node.stack_trace or "").strip().splitlines()
        for line, below in zip(lines, [*lines[1:], ""]):
            if found := LOCATION.match(line.strip()):
                code = None if LOCATION.match(below.strip()) else below.strip()
                key = (frame, *found.groups(), code)
                frame = self.frames.setdefault(key, f"f{len(self.frames) + 1}")
        scope = None
        for module, cls in (node.meta.get("nn_module_stack") or {}).values():
            cls = cls if isinstance(cls, str) else f"{cls.__module__}.{cls.__qualname__}"
            scope = self.scopes.setdefault((scope, module, cls), f"s{len(self.scopes) + 1}")
        if frame:
            parts.append(f"frame={frame}")
        if scope:
            parts.append(f"scope={scope}")
        if node.meta.get("torch_fn"):
            parts.append("call=({}, {})".format(*map(string, node.meta["torch_fn"])))
        if custom := node.meta.get("custom"):
            text = {k: v if isinstance(v, str) else json.dumps(v) for k, v in custom.items()}
            parts.append("custom={" + ", ".join(f"{string(k)}: {string(v)}" for k, v in text.items()) + "}")
        return parts

    def origins(self):
        """The declarations of frames and modules."""
        for (around, file, line, function, code), name in self.frames.items():
            around = f"{around} > " if around else ""
            code = f" {string(code)}" if code is not None else ""
            yield f"frame {name} = {around}{string(file)}:{line} in {path(function.strip())}{code}"
        for (around, module, cls), name in self.scopes.items():
            around = f"{around} > " if around else ""
            yield f"scope {name} = {around}{path(module)} : {path(cls)}"

    def tensor(self, name, t, kind):
        self.tensors[name] = t.detach()
        self.kinds[name] = kind

    def module(self, name, module):
        if name in self.modules:
            return
        self.modules[name] = constructor(module)
        for n, p in module.named_parameters(remove_duplicate=False):
            if not n.startswith("parametrizations."):
                self.tensor(f"{name}.{n}", p, "param")
        for n, b in module.named_buffers(remove_duplicate=False):
            if not n.startswith("parametrizations."):
                self.tensor(f"{name}.{n}", b, "buffer")
        if is_parametrized(module):
            for n in module.parametrizations:
                self.tensor(f"{name}.{n}", getattr(module, n), "param")

    def graph(self, gm, name, prefix=""):
        """Adds a graph module's graph under `name`; its attributes are found below `prefix`."""
        GraphWriter(self, gm, name, prefix).write()
        return name


def attribute(root, target):
    at = root
    for part in target.split("."):
        if not hasattr(at, part):
            raise Unsupported(f"the attribute `{target}`, which the module does not have")
        at = getattr(at, part)
    return at


def custom_object(v):
    """What to say of a TorchScript object, such as the packed weight of a quantized layer; "" for other values."""
    if not isinstance(v, (torch.ScriptObject, torch.ScriptFunction, torch.jit.ScriptModule)):
        return ""
    return ": a TorchScript object, whose contents only PyTorch's own ops can read; trace the model without it"


TORCH = os.path.dirname(torch.__file__) + os.sep
LOCATION = re.compile(r'File "(.+)", line (\d+), in (.+)')


def location(node, file):
    """Where the user's Python made the node: its innermost frame outside of torch, and what else `file` keeps of that."""
    found = LOCATION.findall(node.meta.get("stack_trace") or node.stack_trace or "")
    outside = [f for f in found if not f[0].startswith(TORCH)] or [f for f in found if "/torch/fx/" not in f[0]]
    parts = file.origin(node)
    if outside:
        name, line, function = outside[-1]
        parts.insert(0, f"{string(name)}:{line} in {path(function.strip())}")
    return f"  loc({', '.join(parts)})" if parts else ""


def example(node):
    for key in ("val", "example_value", "tensor_meta"):
        if key in node.meta:
            return node.meta[key]
    raise KeyError


class GraphWriter:
    """One graph."""

    def __init__(self, file, gm, name, prefix):
        self.file, self.gm, self.name, self.prefix = file, gm, name, prefix
        self.subgraphs = {}   # get_attr nodes that are graphs -> their names
        self.lines = []
        self.names = {n.name for n in gm.graph.nodes}

    def ref(self, node):
        if node in self.subgraphs:
            return "@" + self.subgraphs[node]
        return "%" + node.name

    def args(self, args, kwargs):
        for k in kwargs:
            if not NAME.match(k):
                raise Unsupported(f"a keyword argument `{k}`")
        parts = [literal(a, self.ref) for a in args] + [f"{k}={literal(v, self.ref)}" for k, v in kwargs.items()]
        return ", ".join(parts)

    def write(self):
        # The tracer puts parameters after its checks of `concrete_args`; FXIR has them first.
        nodes = sorted(self.gm.graph.nodes, key=lambda n: n.op != "placeholder")
        for n in nodes:
            try:
                self.node(n)
            except Unsupported as e:
                raise Unsupported(f"node `{n.name}` ({n.op} {n.target}): {e}") from None
        self.file.graphs[self.name] = self.lines
        self.file.called[self.name] = called(self.gm)

    def emit(self, node, text, typed=True):
        kind = ""
        if typed:
            try:
                kind = value_type(example(node)) or ""
            except KeyError:
                pass
        # Without a type, Python's own annotation stands, which is kept.
        kind = kind or (string(torch.fx.node._type_repr(node.type)) if node.type is not None else "")
        kind = f" : {kind}" if kind else ""
        self.lines.append(f"%{node.name}{kind} = {text}{location(node, self.file)}")

    def extra(self, wish, text):
        """A statement that stands for no node; gives its name."""
        name, i = wish, 1
        while name in self.names:
            name, i = f"{wish}_{i}", i + 1
        self.names.add(name)
        self.lines.append(f"%{name} = {text}")
        return f"%{name}"

    def node(self, n):
        if n.op == "placeholder":
            default = f" = {literal(n.args[0])}" if n.args else ""
            self.emit(n, f"placeholder {parameter(n.target)}{default}")
        elif n.op == "get_attr":
            self.get_attr(n)
        elif n.op == "call_function" and (text := self.own_function(n)):
            self.emit(n, text)
        elif n.op == "call_function":
            self.emit(n, f"call_function {path(function_name(n.target))}({self.args(n.args, n.kwargs)})")
        elif n.op == "call_method":
            self.emit(n, f"call_method {path(n.target)}({self.args(n.args, n.kwargs)})")
        elif n.op == "call_module":
            self.call_module(n)
        else:
            kind = f"%{n.name} : {string(torch.fx.node._type_repr(n.type))} = " if n.type is not None else ""
            self.lines.append(f"{kind}output {literal(n.args[0], self.ref)}")

    def own_function(self, n):
        """A leaf function that fxc cannot know, as a graph of the file; None if it is another or cannot be traced."""
        f = n.target
        if not isinstance(f, types.FunctionType) or f.__module__.split(".")[0] in KNOWN:
            return None
        try:
            signature = inspect.signature(f)
            bound = signature.bind(*n.args, **n.kwargs).arguments
            if any(p.kind not in NAMED for p in signature.parameters.values()):
                return None
            gm = trace_function(f, bound)
        except Exception:  # whatever the function does with proxies; fxc then names it as unknown
            return None
        name = self.file.fresh(f.__name__)
        self.file.graph(gm, name, name + ".")
        return f"call_function {name}({self.args([], {k: v for k, v in bound.items() if has_node(v)})})"

    def get_attr(self, n):
        v = attribute(self.gm, n.target)
        name = self.prefix + n.target
        if isinstance(v, nn.Module):
            if not isinstance(v, torch.fx.GraphModule):
                raise Unsupported("a module as a value")
            self.subgraphs[n] = self.file.graph(v, self.file.fresh(n.target), name + ".")
            return
        if not isinstance(v, torch.Tensor):
            raise Unsupported(f"an attribute of type {type(v).__name__}" + custom_object(v))
        kind = "param" if isinstance(v, nn.Parameter) else "buffer"
        self.file.tensor(name, v, kind)
        self.emit(n, f"get_attr {path(name)}")

    def call_module(self, n):
        module = self.gm.get_submodule(n.target)
        name = self.prefix + n.target
        if type(module).__name__ == "GuardsFn":
            return  # what ExportedProgram.module() checks of its inputs; fxc checks their types
        args = self.args(n.args, n.kwargs)
        if not is_plain(module):
            self.call_graph(n, module, name)
            return
        if module.training and (text := self.training(n, module, name, args)):
            self.emit(n, text)
            return
        self.file.module(name, module)
        self.emit(n, f"call_module {path(name)}({args})")

    def call_graph(self, n, module, name):
        """A module whose graph the file holds."""
        forward = next((f for c, f in FORWARDS.items() if isinstance(module, c)), type(module).forward)
        if isinstance(module, torch.fx.GraphModule):
            gm, args = module, self.args(n.args, n.kwargs)
        else:
            signature = inspect.signature(forward)
            variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            if any(p.kind in variable for p in signature.parameters.values()):
                raise Unsupported(f"`{type(module).__name__}`, whose forward takes variable arguments")
            bound = signature.bind(module, *n.args, **n.kwargs).arguments
            given = {k: v for k, v in list(bound.items())[1:]}
            gm = trace_call(module, given)
            # By position as they were given, unless some are fixed in the graph.
            positional = not n.kwargs and all(has_node(a) for a in n.args)
            args = self.args(n.args, {}) if positional else self.args([], {k: v for k, v in given.items() if has_node(v)})
        graph = self.file.graph(gm, self.file.fresh(name), name + ".")
        self.emit(n, f"call_function {graph}({args})")

    def training(self, n, module, name, args):
        """What a module of torch.nn computes in training mode, where that differs."""
        cls = module_class(module).__name__
        functional = {"Dropout": "dropout", "Dropout1d": "dropout1d", "Dropout2d": "dropout2d", "Dropout3d": "dropout3d",
                      "AlphaDropout": "alpha_dropout", "FeatureAlphaDropout": "feature_alpha_dropout"}
        if cls in functional:
            return (f"call_function torch.nn.functional.{functional[cls]}({args}, p={literal(module.p)}, training=True, "
                    f"inplace={module.inplace})")
        if cls == "StochasticDepth":
            p, mode = literal(module.p), literal(module.mode)
            return f"call_function torchvision.ops.stochastic_depth({args}, p={p}, mode={mode}, training=True)"
        if cls == "RReLU":
            lower, upper = literal(module.lower), literal(module.upper)
            return f"call_function torch.nn.functional.rrelu({args}, {lower}, {upper}, training=True)"
        if drops(module) and not isinstance(module, DROPPING):
            raise Unsupported(f"`{cls}` with dropout in training mode")
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            return self.batch_norm(module, name, args)
        if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.track_running_stats:
            raise Unsupported("instance normalisation that updates its statistics")
        return None

    def batch_norm(self, module, name, args):
        """Batch normalisation by the statistics of the batch, which also updates the running ones."""
        def attr(a):
            t = getattr(module, a)
            if t is None:
                return "None"
            self.file.tensor(f"{name}.{a}", t, "param" if isinstance(t, nn.Parameter) else "buffer")
            return self.extra(re.sub(r"[^A-Za-z0-9_]", "_", f"p_{name}_{a}"), f"get_attr {path(f'{name}.{a}')}")

        if averages(module):
            return None  # the module's own call counts the batches
        weight, bias = attr("weight"), attr("bias")
        if not module.track_running_stats or module.running_mean is None:
            return (f"call_function torch.nn.functional.batch_norm({args}, None, None, {weight}, {bias}, True, 0.1, "
                    f"{literal(module.eps)})")
        mean, var, count = attr("running_mean"), attr("running_var"), attr("num_batches_tracked")
        self.extra("count", f"call_method add_({count}, 1)")
        return (f"call_function torch.nn.functional.batch_norm({args}, {mean}, {var}, {weight}, {bias}, True, "
                f"{literal(module.momentum)}, {literal(module.eps)})")


def function_name(f):
    if isinstance(f, torch._ops.OpOverload):
        return "torch.ops." + str(f)
    if isinstance(f, torch._ops.HigherOrderOperator):
        return f"torch.ops.higher_order.{f.__name__}"
    name = _get_qualified_name(f)
    if name.startswith("_operator."):
        return name[1:]
    return f"builtins.{name}" if getattr(f, "__module__", None) == "builtins" and "." not in name else name


def write(gm, out, inputs=None):
    """Writes `gm` as `out` (a path that ends in .fxir) with its tensors beside it in a .safetensors file.

    `inputs`: example inputs, by which every node's type is computed and written; without them, types stand where the
    graph's nodes have them. A plain module is traced first. Raises `Unsupported` for what FXIR has no form for."""
    from safetensors.torch import save_file

    if not isinstance(gm, torch.fx.GraphModule):
        gm = trace(gm)
    if inputs is not None:
        annotate(gm, inputs)
    gm = without_tokens(gm)
    file = Writer()
    file.graph(gm, "main")
    stem = os.path.splitext(out)[0]
    weights = {k: t.contiguous().clone() for k, t in file.tensors.items()}
    if weights:
        save_file(weights, stem + ".safetensors")
    with open(out, "w", encoding="utf-8") as f:
        f.write(text(file, os.path.basename(stem) + ".safetensors" if weights else None))


def without_tokens(gm):
    """The graph with the ops themselves in place of `with_effects(token, op, …)`, which gives the next token and the op's results:
    nodes of FXIR are in order."""
    wrappers = [n for n in gm.graph.nodes if n.op == "call_function" and str(n.target) == "with_effects"]
    if not wrappers:
        return gm
    copied = {}
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, copied))
    for old in wrappers:
        n = copied[old]
        token, op, *args = n.args
        with graph.inserting_before(n):
            call = graph.call_function(op, tuple(args), dict(n.kwargs))
        call.meta = {k: v for k, v in n.meta.items() if k != "val"}
        values = n.meta.get("val", ())[1:]
        single = len(values) <= 1
        if values:
            call.meta["val"] = values[0] if single else values
        for user in list(n.users):
            i = user.args[1]
            if i == 0:
                user.replace_all_uses_with(token)
            elif single:
                user.replace_all_uses_with(call)
            else:
                user.args = (call, i - 1)
                continue
            graph.erase_node(user)
        graph.erase_node(n)
    return torch.fx.GraphModule(gm, graph)


def annotate(gm, inputs):
    """Gives every node the type that it has for these inputs."""
    from torch.fx.passes.shape_prop import ShapeProp

    # Running the graph must leave no trace: neither in buffers nor in the inputs nor in the random numbers.
    buffers = [(b, b.clone()) for b in gm.buffers()]
    copies = [v.clone() if isinstance(v, torch.Tensor) else v for v in inputs]
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    if len(inputs) > len(placeholders):
        raise Unsupported(f"{len(inputs)} example inputs for a graph with {len(placeholders)} inputs")
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # ShapeProp prints the traceback itself
                ShapeProp(gm).propagate(*copies)
        except Exception as e:  # whatever the model does with these inputs
            first = [s for s in str(e.__cause__ or e).splitlines() if s.strip()]
            raise Unsupported(f"the example inputs: the graph does not run on them: {first[0] if first else type(e).__name__}") from e
        finally:
            for b, value in buffers:
                b.copy_(value)
    for n, v in zip(placeholders, inputs):
        n.meta.setdefault("val", v)


def text(file, weights):
    lines = []
    if weights:
        lines.append(f"weights {string(weights)}\n")
    lines += [f"module {path(name)} = {cls}" for name, cls in file.modules.items()]
    for name, t in file.tensors.items():
        kind = tensor_type(t)
        if kind is None:
            raise Unsupported(f"`{name}` has the dtype {t.dtype}")
        lines.append(f"{file.kinds[name]} {path(name)} : {kind}")
    # The entry comes first; the graphs it uses follow.
    for name in sorted(file.graphs, key=lambda g: g != "main"):
        body = "\n".join("    " + s for s in file.graphs[name])
        lines.append(f"\ngraph {name}{file.called.get(name, '')} {{\n{body}\n}}")
    origins = list(file.origins())
    if origins:
        lines += ["", *origins]
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------------------------ command line
TORCH_DTYPES = {v: k for k, v in DTYPES.items()}


def random_input(text):
    m = re.match(r"\s*(\w+)\s*\[([\d,\s]*)\]\s*\Z", text)
    if not m or m[1] not in TORCH_DTYPES:
        raise SystemExit(f"`{text}` is not a type such as f32[1, 3]")
    shape = [int(d) for d in m[2].split(",") if d.strip()]
    dtype = TORCH_DTYPES[m[1]]
    return torch.zeros(shape, dtype=dtype)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("source", help="MODULE:CALLABLE that returns a torch.nn.Module")
    p.add_argument("out", help="the .fxir file to write")
    p.add_argument("--call", default="", help="the callable's arguments, in Python syntax")
    p.add_argument("--input", action="append", default=[], help="an input's type, such as f32[1, 3, 224, 224]")
    p.add_argument("--training", action="store_true", help="put the module in training mode")
    p.add_argument("--concrete-args", default="", help="forward's parameters to fix in tracing, such as `flag=False, k=3`")
    p.add_argument("--leaf", action="append", default=[], metavar="NAME",
                   help="a class or module path that is not traced into; may be repeated")
    a = p.parse_args()
    sys.path.insert(0, os.getcwd())
    try:
        convert(a)
    except Unsupported as e:
        raise SystemExit(f"torch2fxir: FXIR cannot express {e}") from None


def convert(a):
    """What the command line asks for."""
    module, _, name = a.source.partition(":")
    if not name:
        raise SystemExit(f"torch2fxir: `{a.source}` does not name a callable; write MODULE:CALLABLE, such as torchvision.models:resnet18")
    try:
        build = operator.attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError) as e:
        raise SystemExit(f"torch2fxir: {e}") from None
    (args, kwargs), fixed = python(a.call), python(a.concrete_args)
    if fixed[0]:
        raise SystemExit("torch2fxir: --concrete-args expects keyword arguments such as `flag=False`")
    model = build(*args, **kwargs).train(a.training)
    try:
        gm = trace(model, fixed[1] or None, a.leaf)
    except Exception as e:  # whatever forward does with proxies
        raise SystemExit(f"torch2fxir: torch.fx cannot trace `{name}`: {str(e).splitlines()[0] if str(e) else type(e).__name__}\n"
                         "use --concrete-args to fix parameters that control branches, and --leaf to skip modules that cannot be traced; "
                         "or write a .pt2, which fxc reads, with torch.export.export(model, args) and torch.export.save") from None
    inputs = tuple(random_input(t) for t in a.input) if a.input else None
    write(gm, a.out, inputs)


def python(arguments):
    """Positional and keyword arguments as Python writes them."""
    try:
        return eval(f"(lambda *a, **k: (a, k))({arguments})", {"torch": torch, "nn": nn})
    except Exception as e:  # whatever is written there
        raise SystemExit(f"torch2fxir: `{arguments}` are not valid arguments: {e}") from None


if __name__ == "__main__":
    main()
