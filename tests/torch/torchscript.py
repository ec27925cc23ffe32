"""Runs what TorchScript prints: python tests/torch/torchscript.py [NAME …] [--fxc target/release/fxc] [--keep DIR]

Modules with branches, loops, lists, dicts and sub-modules, and real models, are given to torch.jit.script and torch.jit.trace.
The texts of `.graph` and `.inlined_graph`, each with the module's state dict beside it, are run by fxc and compared with torch:
`inlined` and `traced` as they are; `graph`, which calls sub-modules, with what `print(model)` says of these before it; real
models as torch.jit.freeze gives them, which makes constants of their attributes.

Needs: pip install torch safetensors (and torchvision for its models). Without them it says so and checks nothing.
"""
import argparse
import inspect
import os
import subprocess
import sys
import tempfile
import warnings

from tally import Tally

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

try:
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file, save_file
    from torch import Tensor, nn
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was run")
    sys.exit(0)

MODELS = {}


def model(*inputs):
    """Registers a class (or a function that makes a module) with the inputs to try it on."""

    def register(make):
        MODELS[make.__name__] = (make, inputs)
        return make

    return register


def r(*shape):
    return lambda g: torch.randn(*shape, generator=g)


@model(r(3, 4), True)
class Flag(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x: Tensor, flag: bool):
        if flag:
            y = self.a(x)
        else:
            y = self.b(x) * 2
        return y


@model(r(3, 4))
class OnValues(nn.Module):
    def forward(self, x: Tensor):
        y = x
        if bool(x.sum() > 0):
            y = x + 1
        else:
            y = x * 2
        if float(y.mean()) > 100:
            y = y - y.mean()
        return y


@model(r(3, 4))
class Early(nn.Module):
    def forward(self, x: Tensor):
        if bool(x.sum() > 100):
            return x + 1
        if bool(x.max() > 0):
            return x - 1
        return x.relu()


@model(r(5, 2, 4))
class Cell(nn.Module):
    """A recurrent cell along the rows of its input, whose turns only the input's size counts."""

    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.zeros(2, 4)
        outs: list[Tensor] = []
        for i in range(x.size(0)):
            h = torch.tanh(self.cell(torch.cat([x[i], h], 1)))
            outs.append(h)
        return torch.stack(outs), h


@model(r(5, 2, 4))
class GruCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.GRUCell(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.zeros(x.size(1), 4)
        outs: list[Tensor] = []
        for i in range(x.size(0)):
            h = self.c(x[i], h)
            outs.append(h)
        return torch.stack(outs), h


@model(lambda g: torch.full((2, 2), 0.5), 9)
class While(nn.Module):
    def forward(self, x: Tensor, n: int):
        i = 0
        while i < n and bool(x.sum() < 100):
            x = x * 2
            i += 1
        return x, torch.tensor(i)


@model(lambda g: torch.full((2, 2), 0.5))
class Until(nn.Module):
    def forward(self, x: Tensor):
        while bool(x.sum() < 100):
            x = x * 3
        return x


@model(r(3, 4), 3)
class Repeat(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor, n: int):
        for _ in range(n):
            x = torch.tanh(self.l(x))
        return x


@model(r(3, 4), 3)
class Turns(nn.Module):
    def forward(self, x: Tensor, n: int):
        for i in range(n):
            x = x * i + 1
        return x


@model(r(3, 4))
class Counted(nn.Module):
    def forward(self, x: Tensor):
        y = x
        for i in range(6):
            if i == 1:
                continue
            if i == 4:
                break
            y = y + i
        return y


@model(r(3, 4))
class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.ls = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor):
        for l in self.ls:
            x = F.relu(l(x)) + x
        return self.norm(x)


@model(r(3, 4), r(3, 4))
class Optionals(nn.Module):
    def forward(self, x: Tensor, m: Tensor | None = None):
        if m is not None:
            x = x * m
        a, b = torch.chunk(x, 2, -1)
        return {"a": a, "b": b}


@model(r(3, 4))
class Dicts(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        names = ["one", "two"]
        for i, name in enumerate(names):
            out[name] = x + i
        if "two" in out:
            out["two"] = out["two"] * 2
        return out


@model(r(3, 4))
class Checks(nn.Module):
    def forward(self, x: Tensor):
        if x.dim() != 2:
            raise ValueError(f"two dimensions are wanted, not {x.dim()}")
        assert x.size(0) > 0, "no rows"
        if x.size(1) > 2 and x.size(0) < 10:
            return x.narrow(1, 0, 2)
        return x


@model(r(2, 3, 16, 16))
class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(8 * 8 * 8, 10)

    def forward(self, x: Tensor):
        x = self.net(x)
        x = torch.flatten(x, 1)
        return F.log_softmax(self.fc(self.drop(x)), dim=1)


@model(r(7, 2, 6))
class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(6, 5, 2)

    def forward(self, x: Tensor):
        y, (h, c) = self.rnn(x)
        return y, h, c


@model(r(2, 5, 8))
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(8, 8)
        self.k = nn.Linear(8, 8)
        self.v = nn.Linear(8, 8)

    def forward(self, x: Tensor):
        b, t, c = x.shape
        q, k, v = [f(x).view(b, t, 2, c // 2).transpose(1, 2) for f in (self.q, self.k, self.v)]
        w = torch.softmax(q @ k.transpose(-2, -1) / float(c // 2) ** 0.5, -1)
        return (w @ v).transpose(1, 2).reshape(b, t, c)


@model(r(2, 5, 8))
def Encoder():
    # An optional input is there in the text; here there is none.
    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, x: Tensor):
            return self.layer(x)

    return Alone()


@model(r(2, 5, 8))
def MultiheadAttention():
    class Self(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor):
            return self.a(x, x, x)[0]

    return Self()


@model(lambda g: torch.randint(0, 20, (2, 7), generator=g))
class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(20, 6)
        self.g = nn.GRU(6, 5, batch_first=True)

    def forward(self, ids: Tensor):
        y, h = self.g(self.e(ids))
        return y[:, -1], h


def vision(name, size=64):
    @model(r(1, 3, size, size))
    def make():
        import torchvision

        return getattr(torchvision.models, name)(weights=None)

    MODELS[name] = MODELS.pop("make")


for name in ["resnet18", "mobilenet_v2", "squeezenet1_1", "shufflenet_v2_x0_5", "mnasnet0_5", "densenet121", "vgg11", "alexnet",
             "efficientnet_b0", "regnet_y_400mf", "convnext_tiny", "mobilenet_v3_small"]:
    vision(name)
vision("vit_b_16", 224)
vision("swin_t", 64)
vision("googlenet", 96)
vision("inception_v3", 96)


@model(lambda g: torch.randn(2, 5, 16, generator=g), None, None, None)
def encoder2():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)


@model(lambda g: torch.randn(5, 2, 16, generator=g), None, None, None)
def encoder_norm_first():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, norm_first=True), 2)


def of_timm(name, size):
    def make():
        import timm

        return timm.create_model(name, pretrained=False)

    MODELS[name] = (make, (r(1, 3, size, size),))


of_timm("poolformer_s12", 64)
of_timm("levit_128s", 224)


@model(r(2, 6, 5, 5))
class Groups(nn.Module):
    """A loop over sizes whose number only the inputs say."""

    def forward(self, x: Tensor):
        return F.group_norm(F.relu(x), 2) + F.instance_norm(x)


@model(r(3, 4))
class Memo(nn.Module):
    cache: dict[str, Tensor]

    def __init__(self):
        super().__init__()
        self.cache = {}
        self.l = nn.Linear(4, 4)

    def forward(self, x: Tensor):
        key = str(x.device)
        if key not in self.cache:
            self.cache[key] = self.l.weight.sum(0)
        return self.l(x) + self.cache[key]


def flatten(v):
    if isinstance(v, Tensor):
        return [v]
    if isinstance(v, dict):
        v = v.values()
    return [t for x in v for t in flatten(x)] if isinstance(v, (list, tuple)) or hasattr(v, "__iter__") else []


def unnamed(graph):
    """The tensors that freezing made: the text does not hold them, and names them by numbers."""
    constants = graph.findAllNodes("prim::Constant", recurse=True)
    outputs = [(n.output(), n.output().toIValue()) for n in constants]
    found = {}
    for o, v in outputs:
        path = f"constant_{o.debugName()}" if o.debugName().isdigit() else o.debugName().removeprefix("self.")
        for i, item in enumerate(v if isinstance(v, list) else [v]):
            if isinstance(item, Tensor):
                found[f"{path}.{i}" if isinstance(v, list) else path] = item.clone().contiguous()
    return found


def defaults(module, given):
    """The defaults of the inputs that are not given."""
    return [p.default for p in list(inspect.signature(module.forward).parameters.values())[given:]]


def texts(module, inputs, own):
    """The texts to read: kind, text, tensors beside those of the state dict."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            scripted = torch.jit.script(module)
        except Exception as e:
            print(f"{type(module).__name__:20} torch.jit.script: {str(e).strip().splitlines()[0][:120]}")
        else:
            if not own:
                # Numbers that are attributes stand in no text; freezing makes constants of them.
                graph = torch.jit.freeze(scripted, optimize_numerics=False).graph
                yield "frozen", str(graph), unnamed(graph)
            else:
                yield "inlined", str(scripted.inlined_graph), {}
                yield "graph", f"{module}\n{scripted.graph}", {}
        if all(isinstance(i, Tensor) for i in inputs) and type(module).__name__ not in ("OnValues", "Early", "While", "Until"):
            graph = torch.jit.trace(module, inputs, strict=False, check_trace=False).inlined_graph
            yield "traced", str(graph), unnamed(graph)


def difference(fxc, text, state, inputs, want, folder):
    save_file(state, f"{folder}/w.safetensors")
    with open(f"{folder}/m.txt", "w") as f:
        f.write('weights "w.safetensors"\n' + text)
    names = subprocess.run([fxc, "print", "--format", "json", f"{folder}/m.txt"], capture_output=True, text=True)
    cmd = [fxc, "run", f"{folder}/m.txt", "--outputs", f"{folder}/out.safetensors", "--inputs", f"{folder}/in.safetensors"]
    tensors = {}
    for name, v in zip(placeholders(text), inputs):
        if isinstance(v, Tensor):
            tensors[name] = v.contiguous()
        else:
            cmd.append(f"{name}={v}")
    save_file(tensors, f"{folder}/in.safetensors")
    p = subprocess.run(cmd, capture_output=True, text=True)
    if p.returncode:
        lines = (names.stderr if names.returncode else p.stderr).strip().splitlines()
        lines = [line for line in lines if line.startswith("error")] or lines
        return " / ".join(lines[:2])[:220]
    got = load_file(f"{folder}/out.safetensors")
    got = [got[k] for k in sorted(got, key=lambda k: int(k.split(".")[1]))]
    want = flatten(want)
    if len(got) != len(want):
        return f"{len(got)} results instead of {len(want)}"
    for i, (a, b) in enumerate(zip(got, want)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {i}: {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
        # Relative to the greatest magnitude: inception_v3's results, with weights that nothing trained, are as large as 1e9.
        scale = max(1.0, b.abs().max().item()) if b.numel() and b.is_floating_point() else 1.0
        if not torch.allclose(a / scale, b / scale, rtol=0, atol=1e-4, equal_nan=True):
            return f"result {i} differs by {(a - b).abs().max():.3g} of {scale:.3g}"
    return None


def placeholders(text):
    """The inputs of the first graph as fxc names them."""
    if "graph(" not in text:
        return []
    head = text[text.index("graph("):].split("):\n")[0][len("graph("):]
    found = []
    for part in head.split("%")[1:]:
        name, kind = part.split(" : ", 1)
        if not kind.startswith("__torch__"):
            found.append("input" if name.isdigit() else name.replace(".", "_"))
    return found


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("names", nargs="*")
    ap.add_argument("--fxc", default="target/release/fxc")
    ap.add_argument("--keep", help="write the texts here")
    a = ap.parse_args()
    tally = Tally()
    for name in a.names or MODELS:
        make, inputs = MODELS[name]
        torch.manual_seed(0)
        try:
            module = make().eval()
        except ImportError as e:
            print(f"{name:20} SKIPPED: {e}")
            continue
        g = torch.Generator().manual_seed(1)
        inputs = [i(g) if callable(i) else i for i in inputs]
        state = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        state = {k: v.detach().clone().contiguous() for k, v in state}
        state = state or {"unused": torch.zeros(1)}
        with torch.no_grad():
            want = module(*[i.clone() if isinstance(i, Tensor) else i for i in inputs])
        for kind, text, more in texts(module, inputs, isinstance(make, type)):
            if a.keep:
                os.makedirs(a.keep, exist_ok=True)
                with open(f"{a.keep}/{name}.{kind}.txt", "w") as f:
                    f.write(text)
            with tempfile.TemporaryDirectory() as tmp:
                wrong = difference(a.fxc, text, state | more, inputs, want, tmp)
            tally.add(kind, wrong)
            if wrong:
                print(f"{name:20} {kind:8} {wrong}", flush=True)
    tally.finish()


if __name__ == "__main__":
    main()
