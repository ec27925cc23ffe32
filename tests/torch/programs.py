"""Random ATen programs: what random_programs.py compares. `make(seed)` gives a Program, which PyTorch has run while it was made."""
import math
import random

import torch
import torch.utils._pytree as pytree
from torch.fx.experimental.proxy_tensor import make_fx

aten = torch.ops.aten

SHORT = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
         torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "b8"}
FLOATS = [torch.float32] * 6 + [torch.float64] * 2 + [torch.bfloat16, torch.float16]
INTS = [torch.int64] * 4 + [torch.int32] * 2 + [torch.int16, torch.int8, torch.uint8]
SIZES = [0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 11, 16, 17, 33]
# Elements of the largest value.
LARGEST = 3000
# Writes that leave the same where elements share a place in memory, in whatever order they are made.
REPEATABLE = "zero_ fill_ masked_fill_ index_fill_ fill_diagonal_ relu_ abs_ clamp_ floor_ tril_ triu_ threshold_".split()


class Ref:
    """The value of an input or a call, in the arguments of another."""

    def __init__(self, i):
        self.i = i

    def __repr__(self):
        return f"%v{self.i}"


def refs(a):
    return [x.i for x in pytree.tree_leaves(a, is_leaf=lambda v: isinstance(v, Ref)) if isinstance(x, Ref)]


def fill(a, env):
    return pytree.tree_map(lambda v: env[v.i] if isinstance(v, Ref) else v, a, is_leaf=lambda v: isinstance(v, Ref))


def is_sharp(t):
    """Whether sums and products of such elements are exact in any order."""
    if not t.dtype.is_floating_point:
        return True
    x = t.double()
    x = x[x.isfinite()]
    return bool(((x * 16).frac() == 0).all() and (x.abs() <= 1024).all())


class Program:
    """Inputs, calls and which values are the results."""

    def __init__(self, inputs, calls, results, soft=frozenset()):
        self.inputs, self.calls, self.results, self.soft = inputs, calls, results, soft

    def run(self, inputs, noise=None):
        """The values of all inputs and calls. `noise` moves the results of soft calls by a rounding."""
        env = dict(enumerate(inputs))
        for i, target, args, kwargs, soft in self.calls:
            env[i] = target(*fill(args, env), **fill(kwargs, env))
            if noise and soft and isinstance(env[i], torch.Tensor) and env[i].is_floating_point():
                t = env[i]
                # A write moves what it wrote; a value of its own is simply moved.
                moved = t * (1 + torch.finfo(t.dtype).eps * (2 * torch.rand(t.shape, generator=noise) - 1)).to(t.dtype)
                if target._schema.is_mutable:
                    if not overlaps(t):
                        t.copy_(moved)
                elif t._base is None:
                    env[i] = moved
        return env

    def __call__(self, *inputs):
        env = self.run(inputs)
        return tuple(env[i] for i in self.results)

    def fxir(self):
        lines = [f"    %v{i} : {SHORT[t.dtype]}[{', '.join(map(str, t.shape))}] = placeholder v{i}" for i, t in enumerate(self.inputs)]
        for i, target, args, kwargs, _ in self.calls:
            parts = [literal(a) for a in args] + [f"{k}={literal(v)}" for k, v in kwargs.items()]
            name = "operator.getitem" if target is getitem else f"torch.ops.{target}"
            lines.append(f"    %v{i} = call_function {name}({', '.join(parts)})")
        return "\n".join(["graph main {", *lines, f"    output ({', '.join(f'%v{i}' for i in self.results)},)", "}"]) + "\n"

    def graph(self):
        g = torch.fx.Graph()
        env = {i: g.placeholder(f"v{i}") for i in range(len(self.inputs))}
        for i, target, args, kwargs, _ in self.calls:
            env[i] = g.create_node("call_function", target, tuple(fill(args, env)), fill(kwargs, env), name=f"v{i}")
        g.output(tuple(env[i] for i in self.results))
        return g

    def write(self, form, folder):
        """The file of a form, and the names of its inputs."""
        plain = [f"v{i}" for i in range(len(self.inputs))]
        if form == "export":
            ep = torch.export.export(torch.fx.GraphModule({}, self.graph()), tuple(t.clone() for t in self.inputs), strict=False)
            torch.export.save(ep, f"{folder}/p.pt2")
            return "p.pt2", list(ep.graph_signature.user_inputs)
        if form == "makefx":
            gm = make_fx(self)(*[t.clone() for t in self.inputs])
            if any(n.op == "get_attr" for n in gm.graph.nodes):
                form = "fxir"  # The text has no values of constants.
            else:
                text, plain = str(gm.graph), [n.name for n in gm.graph.nodes if n.op == "placeholder"]
        if form == "fxir":
            text = self.fxir()
        elif form == "graph":
            text = str(self.graph())
        with open(f"{folder}/p.fxir", "w") as f:
            f.write(text)
        return "p.fxir", plain


def getitem(a, i):
    return a[i]


getitem.__module__, getitem.__qualname__, getitem.__name__ = "_operator", "getitem", "getitem"
getitem._schema = torch.ops.aten.relu.default._schema


def literal(v):
    if isinstance(v, torch.dtype):
        return SHORT[v]
    if isinstance(v, (list, tuple)):
        return "[" + ", ".join(map(literal, v)) + "]"
    return repr(v)


# ------------------------------------------------------------------------------------------------ making programs
class Maker:
    """Adds calls to a program, running them."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.g = torch.Generator().manual_seed(seed)
        self.env, self.calls, self.soft = {}, [], set()
        self.pool = []
        self.inputs = []
        for _ in range(self.r.randint(2, 4)):
            self.inputs.append(self.fresh(self.shape(), self.dtype()))
        for i, t in enumerate(self.inputs):
            self.env[i] = t.clone()
            self.pool.append(i)

    # --- choices
    def pick(self, v):
        return self.r.choice(v)

    def chance(self, p):
        return self.r.random() < p

    def dtype(self):
        return self.pick(FLOATS) if self.chance(0.7) else self.pick(INTS) if self.chance(0.75) else torch.bool

    def shape(self, rank=None):
        while True:
            rank_ = self.r.choice([0, 1, 1, 2, 2, 2, 3, 3, 4]) if rank is None else rank
            s = [self.pick(SIZES) for _ in range(rank_)]
            if math.prod(s) <= LARGEST:
                return s

    def fresh(self, shape, dtype):
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=self.g).bool()
        low = 0 if dtype == torch.uint8 else -9
        t = torch.randint(low, 10, shape, generator=self.g)
        if dtype.is_floating_point:
            t = t / self.pick([1, 2, 4])
            if self.chance(0.15) and t.numel():
                special = [math.nan, math.inf, -math.inf, -0.0]
                for _ in range(3):
                    t.view(-1)[self.r.randrange(t.numel())] = self.pick(special)
        return t.to(dtype)

    def scalar(self, like=None):
        if like is not None and not like.dtype.is_floating_point and self.chance(0.8):
            return self.r.randint(1, 5) if like.dtype == torch.uint8 else self.r.randint(-4, 5)
        return self.pick([self.r.randint(-4, 5), self.pick([0.5, -1.5, 2.0, 0.25, -0.0, 3.0])])

    def value(self, ok=lambda t: True, sharp=False):
        """A value of the pool, later ones more often."""
        for _ in range(12):
            i = self.pool[max(self.r.randrange(len(self.pool)), self.r.randrange(len(self.pool)))]
            if ok(self.env[i]) and not (sharp and self.is_soft(i)):
                return i, self.env[i]
        raise Refused

    def other(self, t, sharp=False):
        """A value that broadcasts with `t`."""
        def fits(u):
            return all(a == b or a == 1 or b == 1 for a, b in zip(reversed(t.shape), reversed(u.shape)))

        return self.value(fits, sharp)

    def is_soft(self, i):
        return self.storage(i) in self.soft

    def storage(self, i):
        t = self.env[i]
        return t.untyped_storage()._cdata if isinstance(t, torch.Tensor) else None

    # --- adding
    def add(self, target, args, kwargs=None, soft=False):
        """Runs a call and adds it; gives its number."""
        kwargs = kwargs or {}
        i = len(self.inputs) + len(self.calls)
        soft = soft or any(self.is_soft(j) for j in refs([args, kwargs]) if isinstance(self.env[j], torch.Tensor))
        saved = [(whole, whole.clone()) for whole in self.written(target, args, kwargs)]
        try:
            v = target(*fill(args, self.env), **fill(kwargs, self.env))
            leaves = [t for t in pytree.tree_leaves(v) if isinstance(t, torch.Tensor)]
            if any(t.numel() > LARGEST or t.is_complex() or t.dtype not in SHORT for t in leaves):
                raise Refused
            blurred = any(not is_sharp(t) for t in leaves)
            if blurred and any(self.too_large(t) for t in leaves):
                raise Refused
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, Refused):
            for whole, old in saved:
                whole.copy_(old)
            raise Refused from None
        self.env[i] = v
        soft = soft or blurred
        self.calls.append((i, target, args, kwargs, soft))
        if soft:
            self.soft.update(t.untyped_storage()._cdata for t in leaves if t.is_floating_point())
        if isinstance(v, torch.Tensor):
            self.pool.append(i)
        return i

    def written(self, target, args, kwargs):
        """The memory that the call writes to."""
        if target is getitem or not target._schema.is_mutable:
            return []
        tensors = [self.env[j] for j in refs([args[:1], kwargs.get("out")])]
        if str(target).split(".")[1] not in REPEATABLE and any(overlaps(t) for t in tensors):
            raise Refused  # What is written depends on the order of torch's loop, and on its vectors and threads.
        return [t.new_empty(0).set_(t.untyped_storage()) for t in tensors]

    def too_large(self, t):
        x = t.double()
        x = x[x.isfinite()]
        return t.is_floating_point() and bool((x.abs() > 5e4).any())

    def part(self, i, k):
        return self.add(getitem, (Ref(i), k))


def overlaps(t):
    """Whether elements share a place in memory."""
    places = torch.zeros((), dtype=torch.int64)
    for n, step in zip(t.shape, t.stride()):
        places = places[..., None] + torch.arange(n) * step
    return places.numel() > places.unique().numel()


class Refused(Exception):
    """The call is none that PyTorch takes, or none that can be compared."""


KINDS = []


def kind(weight):
    def deco(f):
        KINDS.extend([f] * weight)
        return f

    return deco


def is_float(t):
    return t.is_floating_point()


def is_int(t):
    return not t.is_floating_point() and t.dtype != torch.bool


def dim_of(m, t):
    d = m.r.randrange(max(t.dim(), 1))
    return d - max(t.dim(), 1) if m.chance(0.3) else d


@kind(6)
def unary(m):
    name = m.pick("neg abs relu sign square clone logical_not signbit isnan isinf isfinite sgn positive nan_to_num trunc floor ceil round "
                  "frac bitwise_not zeros_like ones_like hardtanh tril triu relu6 sqrt reciprocal".split())
    jumps = name in "sign logical_not signbit isnan isinf isfinite sgn trunc floor ceil round frac nan_to_num".split()
    i, _ = m.value(sharp=jumps)
    return m.add(getattr(aten, name).default, (Ref(i),))


@kind(5)
def smooth(m):
    i, t = m.value(is_float)
    name = m.pick("exp tanh sigmoid sin cos erf gelu silu atan softplus mish elu hardswish hardsigmoid leaky_relu expm1 sinh log1p rsqrt log "
                  "exp2 asinh log_sigmoid selu erfc logit tan log2 celu i0 sinc lgamma digamma".split())
    if name in ("log1p", "rsqrt", "log", "log2", "lgamma", "digamma"):
        i = m.add(aten.abs.default, (Ref(i),))
        i = m.add(aten.add.Tensor, (Ref(i), 1))
    if name == "gelu" and not t.isfinite().all():
        raise Refused  # torch gives NaN or infinity for it, by the place in a vector (docs/language.md, section 11).
    if name == "logit":
        return m.add(aten.logit.default, (Ref(i), 0.125), soft=True)
    return m.add(getattr(aten, name).default, (Ref(i),), soft=True)


def has_least(t):
    """Whether the least integer is among the elements: torch dies of its quotient by -1 (docs/language.md, section 11)."""
    return is_int(t) and bool((t == torch.iinfo(t.dtype).min).any())


def has_both_zeros(t):
    zeros = t[t == 0] if is_float(t) else t[:0] if t.dim() else t.new_empty(0)
    return zeros.signbit().any().item() and not zeros.signbit().all().item()


@kind(9)
def binary(m):
    name = m.pick("add add sub mul mul div maximum minimum fmax fmin remainder fmod floor_divide eq ne lt le gt ge logical_and logical_or "
                  "logical_xor bitwise_and bitwise_or bitwise_xor pow atan2 copysign hypot gcd rsub xlogy heaviside ldexp logaddexp".split())
    jumps = name in ("remainder fmod floor_divide eq ne lt le gt ge logical_and logical_or logical_xor copysign heaviside atan2 ldexp "
                     "pow").split()
    i, t = m.value(sharp=jumps)
    packet = getattr(aten, name)
    extra = {"alpha": m.pick([2, -1, 0])} if name in ("add", "sub", "rsub") and m.chance(0.2) else {}
    soft = name in ("atan2", "hypot", "xlogy", "logaddexp", "pow", "div")
    whole = hasattr(packet, "Scalar") and m.chance(0.35)
    if name == "pow":
        return m.add(packet.Tensor_Scalar, (Ref(i), m.pick([0, 1, 2, 3, 2.0, 0.5])), soft=True)
    if name in ("remainder", "fmod", "floor_divide") and has_least(t):
        raise Refused
    if whole:
        return m.add(packet.Scalar, (Ref(i), m.scalar(t)), extra, soft=soft)
    j, _ = m.other(t, sharp=jumps)
    overload = next(o for o in ("Tensor", "default") if hasattr(packet, o))
    return m.add(getattr(packet, overload), (Ref(i), Ref(j)), extra, soft=soft)


@kind(2)
def rounded_division(m):
    i, t = m.value(lambda t: not has_least(t), sharp=True)
    mode = {"rounding_mode": m.pick(["trunc", "floor"])}
    if m.chance(0.4):
        return m.add(aten.div.Scalar_mode, (Ref(i), m.scalar(t)), mode)
    j, _ = m.other(t, sharp=True)
    return m.add(aten.div.Tensor_mode, (Ref(i), Ref(j)), mode)


@kind(3)
def ternary(m):
    i, t = m.value()
    j, u = m.other(t)
    name = m.pick(["where", "where", "lerp", "addcmul", "addcdiv", "clamp", "clampt", "threshold", "whereself"])
    if name in ("where", "whereself"):
        c, _ = m.value(lambda v: v.dtype == torch.bool)
        return m.add(aten.where.self, (Ref(c), Ref(i), Ref(j)))
    if name == "lerp":
        return m.add(aten.lerp.Scalar, (Ref(i), Ref(j), m.pick([0.25, 0.5, 1.0])))
    if name in ("addcmul", "addcdiv"):
        k, _ = m.other(t)
        return m.add(getattr(aten, name).default, (Ref(i), Ref(j), Ref(k)), {"value": m.pick([1, 2, -1])}, soft=name == "addcdiv")
    if name == "clamp":
        return m.add(aten.clamp.default, (Ref(i), m.pick([None, -2, -0.5]), m.pick([None, 1, 2.5])))
    if name == "clampt":
        return m.add(aten.clamp.Tensor, (Ref(i), Ref(j)))
    return m.add(aten.threshold.default, (Ref(i), m.r.randint(-1, 2), 7))


@kind(2)
def shifts(m):
    i, t = m.value(is_int)
    name = m.pick(["bitwise_left_shift", "bitwise_right_shift"])
    return m.add(getattr(aten, name).Tensor_Scalar, (Ref(i), m.r.randint(0, 6)))


@kind(8)
def reductions(m):
    name = m.pick("sum sum mean amax amin max min argmax argmin any all prod var std cumsum cumprod logsumexp norm softmax log_softmax "
                  "count_nonzero sort topk cummax cummin median kthvalue var_mean aminmax nansum logcumsumexp diff".split())
    jumps = name in "argmax argmin any all count_nonzero max min cummax cummin sort topk median kthvalue".split()
    i, t = m.value(is_float if name in "mean var std logsumexp norm softmax log_softmax var_mean logcumsumexp".split() else lambda _: True, jumps)
    x, d, keep = Ref(i), dim_of(m, t), m.chance(0.5)
    dims = sorted(m.r.sample(range(t.dim()), m.r.randint(1, t.dim()))) if t.dim() else []
    if name in ("sum", "mean", "nansum"):
        extra = {"dtype": m.pick([torch.float64, torch.float32, torch.int64])} if name == "sum" and is_sharp(t) and m.chance(0.2) and t.isfinite().all() else {}
        form = getattr(aten, name)
        return m.add(getattr(form, "default" if name == "nansum" else "dim_IntList" if name == "sum" else "dim"), (x, dims, keep), extra, soft=name == "mean" and False)
    if name in ("amax", "amin", "max", "min", "aminmax") and has_both_zeros(t):
        raise Refused  # The sign of zero depends on the place in a vector (docs/language.md, section 11).
    if name == "median" and 0 in t.stride():
        raise Refused  # torch reads memory that nothing wrote along an expanded dim (the same section).
    if name in ("amax", "amin"):
        return m.add(getattr(aten, name).default, (x, dims, keep))
    if name in ("max", "min", "cummax", "cummin", "kthvalue", "median", "sort", "topk"):
        if name in ("max", "min", "median") and m.chance(0.2):
            return m.add(getattr(aten, name).default, (x,))
        args = {"sort": (x,), "topk": (x, m.r.randint(0, max(t.shape[d], 1)) if t.dim() else 1, d), "kthvalue": (x, 1, d, keep),
                "cummax": (x, d), "cummin": (x, d)}.get(name, (x, d, keep))
        extra = {"stable": True, "dim": d, "descending": m.chance(0.5)} if name == "sort" else {}
        form = {"max": "dim", "min": "dim", "median": "dim", "sort": "stable"}.get(name, "default")
        r = m.add(getattr(getattr(aten, name), form), args, extra)
        # Which of equal elements is named is not defined for the others.
        if name in ("max", "min", "sort", "cummax", "cummin") and m.chance(0.5):
            m.part(r, 1)
        return m.part(r, 0)
    if name in ("argmax", "argmin"):
        return m.add(getattr(aten, name).default, (x, None if m.chance(0.2) else d, keep))
    if name in ("any", "all"):
        return m.add(getattr(aten, name).dims, (x, dims, keep)) if m.chance(0.5) else m.add(getattr(aten, name).default, (x,))
    if name == "prod":
        return m.add(aten.prod.dim_int, (x, d, keep), soft=is_float(t))
    if name in ("var", "std"):
        return m.add(getattr(aten, name).correction, (x, dims), {"correction": m.pick([0, 1]), "keepdim": keep}, soft=True)
    if name == "var_mean":
        if not t.isfinite().all():
            raise Refused  # The mean of infinity is NaN or infinity by its place (docs/language.md, section 11).
        r = m.add(aten.var_mean.correction, (x, dims), {"correction": m.pick([0, 1]), "keepdim": keep}, soft=True)
        return m.part(r, m.pick([0, 1]))
    if name in ("cumsum", "cumprod"):
        return m.add(getattr(aten, name).default, (x, d), soft=name == "cumprod" and is_float(t))
    if name == "logcumsumexp":
        return m.add(aten.logcumsumexp.default, (x, d), soft=True)
    if name == "logsumexp":
        return m.add(aten.logsumexp.default, (x, dims, keep), soft=True)
    if name == "norm":
        return m.add(aten.linalg_vector_norm.default, (x, m.pick([1, 2, math.inf, 3]), dims, keep), soft=True)
    if name in ("softmax", "log_softmax"):
        return m.add(getattr(aten, name).int, (x, d), soft=True)
    if name == "aminmax":
        r = m.add(aten.aminmax.default, (x,), {"dim": d, "keepdim": keep})
        return m.part(r, m.pick([0, 1]))
    if name == "diff":
        return m.add(aten.diff.default, (x, 1, d))
    return m.add(aten.count_nonzero.dim_IntList, (x, dims))


def view_call(m):
    """A view of a value, as target and arguments."""
    i, t = m.value()
    x, d, n = Ref(i), dim_of(m, t), t.dim()
    name = m.pick("view reshape permute t transpose unsqueeze squeeze squeezed expand slice slice slice select select narrow diagonal unfold "
                  "as_strided as_strided view_dtype detach alias flatten unflatten movedim numpy_T expand".split())
    if name in ("view", "reshape"):
        return getattr(aten, name).default, (x, shape_of(m, t.numel()))
    if name in ("permute", "movedim"):
        order = m.r.sample(range(n), n)
        return (aten.permute.default, (x, order)) if name == "permute" else (aten.movedim.intlist, (x, list(range(n)), order))
    if name in ("t", "detach", "alias", "numpy_T"):
        return getattr(aten, name).default, (x,)
    if name == "transpose":
        return aten.transpose.int, (x, d, dim_of(m, t))
    if name == "unsqueeze":
        return aten.unsqueeze.default, (x, m.r.randint(-n - 1, n))
    if name == "squeeze":
        return aten.squeeze.default, (x,)
    if name == "squeezed":
        return aten.squeeze.dim, (x, d)
    if name == "expand":
        lead = [m.pick([1, 2, 3])] if m.chance(0.3) else []
        return aten.expand.default, (x, lead + [(m.pick([1, 2, 5]) if s == 1 and m.chance(0.7) else m.pick([s, -1])) for s in t.shape])
    size = t.shape[d] if n else 1
    if name == "slice":
        a, b = m.r.randint(-size - 1, size + 1), m.pick([m.r.randint(-size, size + 2), 9223372036854775807])
        return aten.slice.Tensor, (x, d, m.pick([a, None, 0]), b, m.pick([1, 1, 1, 2, 3]))
    if name == "select":
        return aten.select.int, (x, d, m.r.randint(-size, max(size - 1, 0)))
    if name == "narrow":
        a = m.r.randint(0, size)
        return aten.narrow.default, (x, d, a, m.r.randint(0, size - a))
    if name == "diagonal":
        return aten.diagonal.default, (x, m.r.randint(-2, 2), d, dim_of(m, t))
    if name == "unfold":
        return aten.unfold.default, (x, d, m.r.randint(0, min(size, 4)), m.r.randint(1, 3))
    if name == "as_strided":
        sizes = [m.pick([0, 1, 2, 3, 4]) if m.chance(0.9) else 1 for _ in range(m.r.randint(0, 3))]
        offset = m.pick([None, m.r.randint(0, 6), t.storage_offset()])
        return aten.as_strided.default, (x, sizes, [m.pick([0, 1, 1, 2, 3, 5]) for _ in sizes], offset)
    if name == "view_dtype":
        same = {1: [torch.int8, torch.uint8], 2: [torch.int16], 4: [torch.int32], 8: [torch.int64]}[t.element_size()]
        if m.is_soft(i) or not is_float(t) or t.isnan().any():
            raise Refused  # The bits of a soft value, or of a NaN, are not comparable.
        return aten.view.dtype, (x, m.pick(same + [torch.int32]))
    if name == "flatten":
        a, b = sorted([m.r.randint(0, max(n - 1, 0)), m.r.randint(0, max(n - 1, 0))])
        return aten.flatten.using_ints, (x, a, b)
    halves = next(([k, size // k] for k in (2, 3, 5, 1) if size and size % k == 0), [1, size])
    return aten.unflatten.int, (x, d, halves)


@kind(14)
def views(m):
    target, args = view_call(m)
    return m.add(target, args)


@kind(3)
def pieces(m):
    i, t = m.value(lambda t: t.dim() > 0)
    d = dim_of(m, t)
    name = m.pick(["split", "unbind", "split_with_sizes", "chunk", "tensor_split"])
    if name == "unbind":
        r = m.add(aten.unbind.int, (Ref(i), d))
    elif name == "split":
        r = m.add(aten.split.Tensor, (Ref(i), m.r.randint(1, 4), d))
    elif name == "chunk":
        r = m.add(aten.chunk.default, (Ref(i), m.r.randint(1, 4), d))
    elif name == "tensor_split":
        r = m.add(aten.tensor_split.sections, (Ref(i), m.r.randint(1, 4), d))
    else:
        a = m.r.randint(0, t.shape[d])
        r = m.add(aten.split_with_sizes.default, (Ref(i), [a, t.shape[d] - a], d))
    n = len(m.env[r])
    return m.part(r, m.r.randrange(n)) if n else r


def shape_of(m, numel):
    """Random sizes with this product, perhaps one of them -1."""
    sizes, left = [], numel
    if numel == 0:
        return [m.pick([0, 1, 3]), 0] if m.chance(0.5) else [0]
    for p in (2, 3, 5, 7, 11, 17):
        while left % p == 0 and m.chance(0.5):
            sizes.append(p)
            left //= p
    sizes.append(left)
    m.r.shuffle(sizes)
    if m.chance(0.3):
        sizes.insert(m.r.randint(0, len(sizes)), 1)
    if m.chance(0.3):
        sizes[m.r.randrange(len(sizes))] = -1
    return sizes


@kind(6)
def copies(m):
    i, t = m.value()
    x, d = Ref(i), dim_of(m, t)
    name = m.pick("flip roll rot90 repeat cat cat stack contiguous clone pad reflect repeat_interleave channels_last tile empty_strided "
                  "permute_copy".split())
    if name == "flip":
        return m.add(aten.flip.default, (x, [d]))
    if name == "roll":
        return m.add(aten.roll.default, (x, [m.r.randint(-3, 3)], [d]))
    if name == "rot90":
        return m.add(aten.rot90.default, (x, m.r.randint(-1, 3), [0, 1]))
    if name in ("repeat", "tile"):
        return m.add(getattr(aten, name).default, (x, [m.pick([1, 2, 0, 3]) if m.chance(0.4) else 1 for _ in range(t.dim() + m.chance(0.3))]))
    if name in ("cat", "stack"):
        others = [Ref(m.value(lambda u: u.shape == t.shape)[0]) for _ in range(m.r.randint(0, 2))]
        parts = [x, *others]
        m.r.shuffle(parts)
        return m.add(getattr(aten, name).default, (parts, d))
    if name == "channels_last":
        return m.add(aten.clone.default, (x,), {"memory_format": m.pick([torch.channels_last, torch.contiguous_format, torch.preserve_format])})
    if name in ("contiguous", "clone"):
        return m.add(getattr(aten, name).default, (x,))
    if name == "pad":
        return m.add(aten.constant_pad_nd.default, (x, [m.r.randint(-1, 2) for _ in range(2 * m.r.randint(1, max(t.dim(), 1)))], m.scalar(t)))
    if name == "reflect":
        return m.add(aten.pad.default, (x, [m.r.randint(0, 2), m.r.randint(0, 2)], m.pick(["reflect", "replicate", "circular"])))
    if name == "repeat_interleave":
        return m.add(aten.repeat_interleave.self_int, (x, m.r.randint(0, 3), d))
    if name == "permute_copy":
        return m.add(aten.permute_copy.default, (x, m.r.sample(range(t.dim()), t.dim())))
    return m.add(aten.slice_copy.Tensor, (x, d, 1, m.r.randint(1, 9), 2))


def index_like(m, shape, size, distinct=None):
    """A new tensor of indices below `size`: an arange, taken modulo."""
    if size == 0:
        raise Refused
    n = math.prod(shape)
    i = m.add(aten.arange.start_step, (m.r.randint(0, 9), m.r.randint(0, 9) + 10 * n, 10), {"dtype": torch.int64})
    i = m.add(aten.slice.Tensor, (Ref(i), 0, 0, n))
    if not distinct:
        i = m.add(aten.mul.Scalar, (Ref(i), m.r.choice([1, 3, 7])))
        i = m.add(aten.remainder.Scalar, (Ref(i), size))
    else:
        i = m.add(aten.floor_divide.Scalar, (Ref(i), 10))
    return m.add(aten.view.default, (Ref(i), list(shape)))


@kind(5)
def indexing(m):
    i, t = m.value(lambda t: t.dim() > 0)
    x, d = Ref(i), m.r.randrange(t.dim())
    size = t.shape[d]
    name = m.pick("index index2 index_select gather take embedding masked_fill index_add scatter_add scatter_value index_fill index_put "
                  "select_scatter slice_scatter index_copy scatter_reduce masked_scatter diagonal_scatter where_scalar bucketize".split())
    if name == "index":
        k = index_like(m, m.shape(m.r.randint(0, 2)), size)
        return m.add(aten.index.Tensor, (x, [None] * d + [Ref(k)]))
    if name == "index2":
        if t.dim() < 2:
            raise Refused
        n = m.r.randint(0, 4)
        a, b = index_like(m, [n], t.shape[0]), index_like(m, [m.pick([n, 1])], t.shape[-1])
        return m.add(aten.index.Tensor, (x, [Ref(a)] + [None] * (t.dim() - 2) + [Ref(b)]))
    if name == "index_select":
        return m.add(aten.index_select.default, (x, d, Ref(index_like(m, [m.r.randint(0, 5)], size))))
    if name == "gather":
        shape = [m.r.randint(0, 3) if j == d else s for j, s in enumerate(t.shape)]
        return m.add(aten.gather.default, (x, d, Ref(index_like(m, shape, size))))
    if name == "take":
        return m.add(aten.take.default, (x, Ref(index_like(m, m.shape(1), t.numel()))))
    if name == "embedding":
        return m.add(aten.embedding.default, (x, Ref(index_like(m, m.shape(m.r.randint(1, 2)), t.shape[0]))))
    if name == "masked_fill":
        k, _ = m.value(lambda v: v.dtype == torch.bool)
        return m.add(aten.masked_fill.Scalar, (x, Ref(k), m.scalar(t)))
    if name in ("index_add", "index_copy"):
        n = m.r.randint(0, min(size, 3))
        k = index_like(m, [n], size, distinct=True)
        s = m.add(aten.narrow.default, (x, d, size - n, n))
        return m.add(getattr(aten, name).default, (x, d, Ref(k), Ref(s)))
    if name == "scatter_add":
        return m.add(aten.scatter_add.default, (x, d, Ref(index_like(m, list(t.shape), size)), x))
    if name == "scatter_value":
        return m.add(aten.scatter.value, (x, d, Ref(index_like(m, [min(s, 2) for s in t.shape], size)), m.scalar(t)))
    if name == "scatter_reduce":
        how = m.pick(["amax", "amin", "sum"])
        return m.add(aten.scatter_reduce.two, (x, d, Ref(index_like(m, list(t.shape), size)), x, how), {"include_self": m.chance(0.5)})
    if name == "index_fill":
        return m.add(aten.index_fill.int_Scalar, (x, d, Ref(index_like(m, [m.r.randint(0, 3)], size)), m.scalar(t)))
    if name == "index_put":
        k = index_like(m, [m.r.randint(0, 3)], t.shape[0])
        v = m.add(aten.index.Tensor, (x, [Ref(k)]))
        return m.add(aten.index_put.default, (x, [Ref(k)], Ref(v), True))
    if name == "select_scatter":
        s = m.add(aten.select.int, (x, d, 0))
        return m.add(aten.select_scatter.default, (x, Ref(s), d, size - 1))
    if name == "slice_scatter":
        s = m.add(aten.slice.Tensor, (x, d, 0, max(size - 1, 0)))
        return m.add(aten.slice_scatter.default, (x, Ref(s), d, min(1, size), size))
    if name == "masked_scatter":
        k, _ = m.value(lambda v: v.dtype == torch.bool)
        return m.add(aten.masked_scatter.default, (x, Ref(k), x))
    if name == "diagonal_scatter":
        s = m.add(aten.diagonal.default, (x,))
        return m.add(aten.diagonal_scatter.default, (x, Ref(s)))
    if name == "bucketize":
        if m.is_soft(i):
            raise Refused
        b = m.add(aten.arange.start_step, (-3, 4, 2))
        return m.add(aten.bucketize.Tensor, (x, Ref(b)), {"right": m.chance(0.5)})
    k, _ = m.value(lambda v: v.dtype == torch.bool)
    return m.add(aten.where.ScalarOther, (Ref(k), x, m.scalar(t)))


@kind(16)
def writes(m):
    """A write in place, mostly through a view that was made just before."""
    if m.chance(0.6):
        i = m.add(*view_call(m))
    else:
        i, _ = m.value()
    t = m.env[i]
    x = Ref(i)
    name = m.pick("add_ add_ sub_ mul_ mul_ copy_ copy_ fill_ zero_ relu_ clamp_ masked_fill_ neg_ div_ fill_tensor index_add_ scatter_ "
                  "index_put_ eq_ logical_not_ bitwise_or_ t_ unsqueeze_ squeeze_ transpose_ as_strided_ out cumsum_ tanh_ floor_ add_out "
                  "maximum_out index_fill_ fill_diagonal_ abs_ pow_ addcmul_ lerp_ resize_view".split())
    if name in ("zero_", "relu_", "neg_", "abs_", "t_", "squeeze_"):
        return m.add(getattr(aten, name).default, (x,))
    if name == "tanh_":
        return m.add(aten.tanh_.default, (x,), soft=True)
    if name in ("logical_not_", "floor_", "eq_") and m.is_soft(i):
        raise Refused
    if name in ("logical_not_", "floor_"):
        return m.add(getattr(aten, name).default, (x,))
    if name == "eq_":
        return m.add(aten.eq_.Scalar, (x, 1))
    if name in ("fill_", "pow_"):
        return m.add(getattr(aten, name).Scalar, (x, m.scalar(t) if name == "fill_" else 2), soft=name == "pow_" and is_float(t))
    if name == "fill_tensor":
        j, _ = m.value(lambda u: u.dim() == 0 and (not is_float(u) or is_float(t)))
        return m.add(aten.fill_.Tensor, (x, Ref(j)))
    if name == "clamp_":
        return m.add(aten.clamp_.default, (x, -2, 2))
    if name == "unsqueeze_":
        return m.add(aten.unsqueeze_.default, (x, m.r.randint(-t.dim() - 1, t.dim())))
    if name == "transpose_":
        return m.add(aten.transpose_.default, (x, dim_of(m, t), dim_of(m, t)))
    if name == "as_strided_":
        return m.add(aten.as_strided_.default, (x, [2, 2], [m.pick([1, 2, 3]), 1], m.pick([None, 0, 1, 2])))
    if name == "cumsum_":
        return m.add(aten.cumsum_.default, (x, dim_of(m, t)))
    if name == "fill_diagonal_":
        return m.add(aten.fill_diagonal_.default, (x, m.scalar(t)))
    if name == "masked_fill_":
        j, _ = m.value(lambda u: u.dtype == torch.bool)
        return m.add(aten.masked_fill_.Scalar, (x, Ref(j), m.scalar(t)))
    if name in ("index_add_", "index_fill_", "index_put_", "scatter_"):
        if t.dim() == 0:
            raise Refused
        d = m.r.randrange(t.dim())
        if name == "index_fill_":
            return m.add(aten.index_fill_.int_Scalar, (x, d, Ref(index_like(m, [2], t.shape[d])), m.scalar(t)))
        if name == "scatter_":
            return m.add(aten.scatter_.value, (x, d, Ref(index_like(m, [min(s, 2) for s in t.shape], t.shape[d])), m.scalar(t)))
        k = index_like(m, [min(2, t.shape[d])], t.shape[d], distinct=True)
        s = m.add(aten.index_select.default, (x, d, Ref(k)))
        if name == "index_add_":
            return m.add(aten.index_add_.default, (x, d, Ref(k), Ref(s)), {"alpha": m.pick([1, 2])})
        s = m.add(aten.neg.default, (Ref(s),))
        return m.add(aten.index_put_.default, (x, [None] * d + [Ref(k)], Ref(s), m.chance(0.5)))

    def fits(u):
        ok = not is_float(u) or is_float(t)
        return ok and u.dim() <= t.dim() and all(a == b or b == 1 for a, b in zip(reversed(t.shape), reversed(u.shape)))

    if name in ("add_", "sub_", "mul_", "div_") and m.chance(0.35):
        return m.add(getattr(aten, name).Scalar, (x, m.scalar(t)), soft=name == "div_")
    j, u = m.value(fits)
    if m.is_soft(j) and not is_float(t):
        raise Refused
    y = Ref(j)
    if name in ("add_out", "maximum_out"):
        target = {"add_out": aten.add.out, "maximum_out": aten.maximum.out}[name]
        if u.shape != t.shape:
            raise Refused
        return m.add(target, (y, y), {"out": x})
    if name == "copy_":
        return m.add(aten.copy_.default, (x, y))
    if name == "addcmul_":
        return m.add(aten.addcmul_.default, (x, y, y), {"value": 2})
    if name == "lerp_":
        return m.add(aten.lerp_.Scalar, (x, y, 0.5))
    if name == "bitwise_or_":
        return m.add(aten.bitwise_or_.Tensor, (x, y))
    packet = getattr(aten, name if name.endswith("_") else "add_")
    if not hasattr(packet, "Tensor"):
        raise Refused
    return m.add(packet.Tensor, (x, y), soft=name == "div_")


@kind(3)
def converted(m):
    i, t = m.value()
    to = m.dtype()
    if is_float(t) and not to.is_floating_point and to != torch.bool:
        low, high = torch.iinfo(to).min, torch.iinfo(to).max
        if m.is_soft(i) or not t.isfinite().all() or (t < low).any() or (t > high).any():
            raise Refused
    if to == torch.bool and m.is_soft(i):
        raise Refused
    target = m.pick([aten._to_copy.default, aten.to.dtype])
    return m.add(target, (Ref(i),), {"dtype": to}) if target == aten._to_copy.default else m.add(target, (Ref(i), to))


@kind(2)
def created(m):
    shape, name = m.shape(), m.pick(["zeros", "ones", "full", "arange", "eye", "full_like", "new_zeros", "scalar_tensor", "linspace", "tri"])
    if name in ("zeros", "ones"):
        return m.add(getattr(aten, name).default, (shape,), {"dtype": m.dtype()})
    if name == "full":
        return m.add(aten.full.default, (shape, m.scalar()), {"dtype": m.pick(FLOATS)})
    if name == "arange":
        return m.add(aten.arange.start_step, (m.r.randint(-3, 3), m.r.randint(4, 40), m.r.randint(1, 4)))
    if name == "eye":
        return m.add(aten.eye.m, (m.r.randint(0, 5), m.r.randint(0, 5)))
    if name == "linspace":
        return m.add(aten.linspace.default, (0, 8, 17))
    if name == "tri":
        return m.add(aten.tril_indices.default, (3, m.r.randint(0, 4)))
    if name == "scalar_tensor":
        return m.add(aten.scalar_tensor.default, (m.scalar(),))
    i, t = m.value()
    if name == "full_like":
        return m.add(aten.full_like.default, (Ref(i), m.scalar(t)))
    return m.add(aten.new_zeros.default, (Ref(i), shape))


def sums_exactly(n, *factors):
    """Whether sums of `n` products of such elements are exact in any order. Half precision is rounded in between."""
    if any(not is_sharp(t) or t.element_size() < 4 for t in factors):
        return False
    largest = math.prod(t[t.isfinite()].double().abs().max().item() if t.isfinite().any() else 0.0 for t in factors)
    return n * largest * 16 ** len(factors) < 2**23


@kind(5)
def products(m):
    made = product(m)
    # Which zero a sum of zeros is depends in torch on the place in the matrix and on its sizes.
    m.pool.remove(made)
    return m.add(aten.add.Scalar, (Ref(made), 0))


def product(m):
    name = m.pick(["mm", "matmul", "matmul", "mul_outer", "bmm", "linear", "mv", "dot", "einsum", "addmm", "layer_norm", "pool", "conv1d"])
    i, t = m.value(is_float)
    x = Ref(i)
    same = lambda ok: m.value(lambda u: u.dtype == t.dtype and ok(u))  # noqa: E731
    rough = lambda j, n: m.is_soft(i) or m.is_soft(j) or not sums_exactly(n + 2, t, m.env[j])  # noqa: E731
    if name in ("mm", "addmm", "linear", "mv", "bmm", "matmul", "dot"):
        if t.dim() == 0:
            raise Refused
        n = t.shape[-1]
        if name == "linear":
            j, _ = same(lambda u: u.dim() == 2 and u.shape[1] == n)
            return m.add(aten.linear.default, (x, Ref(j)), soft=rough(j, n))
        try:
            j, u = same(lambda u: u.dim() == t.dim() and (u.shape[-2] if u.dim() > 1 else u.shape[0]) == n)
        except Refused:
            if t.dim() < 2:
                raise
            j = m.add(aten.transpose.int, (x, -1, -2))
        y = Ref(j)
        if name == "addmm":
            b = m.add(aten.select.int, (y, 0, 0))
            return m.add(aten.addmm.default, (Ref(b), x, y), {"beta": m.pick([1, 2]), "alpha": m.pick([1, -1])}, soft=rough(j, n))
        return m.add(getattr(aten, name).default, (x, y), soft=rough(j, n))
    if name == "mul_outer":
        j, _ = same(lambda u: u.dim() == 1)
        return m.add(aten.outer.default, (x, Ref(j)), soft=rough(j, 1))
    if name == "layer_norm":
        return m.add(aten.layer_norm.default, (x, list(t.shape[-1:])), soft=True)
    if name == "pool":
        return m.add(aten.avg_pool1d.default if m.chance(0.5) else aten.max_pool1d.default, (x, [2], [m.pick([1, 2])]))
    if name == "conv1d":
        j, u = same(lambda u: u.dim() == 3)
        return m.add(aten.conv1d.default, (x, Ref(j)), soft=rough(j, u.shape[1] * u.shape[2]))
    raise Refused


def make(seed):
    """The program of a seed."""
    m = Maker(seed)
    wanted = m.r.randint(20, 60)
    tries = 0
    while len(m.calls) < wanted and tries < 2000:
        tries += 1
        try:
            m.pick(KINDS)(m)
        except (Refused, ZeroDivisionError, OverflowError, AttributeError, StopIteration):
            pass
    tensors_ = [i for i in m.pool if i >= len(m.inputs)]
    results = sorted(set(tensors_[-3:] + m.r.sample(tensors_, min(4, len(tensors_)))))
    return Program(m.inputs, m.calls, results, {i for i in m.env if m.is_soft(i)})
