"""The cases of peers.py: models and kernels of PyTorch with seeded random weights, and their files for every peer."""
import os

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


def outside(name, generator):
    """A model that is not among the cases: `torchvision:NAME`, `timm:NAME`, or `transformers:TYPE` in its default configuration; `:BATCH`
    may follow."""
    import torch
    library, kind, batch = (name.split(':') + ['1'])[:3]
    batch = int(batch)
    if library == 'torchvision':
        import torchvision.models as M
        return M.get_model(kind, weights=None), (torch.randn(batch, 3, 224, 224, generator=generator),)
    if library == 'timm':
        import timm
        m = timm.create_model(kind, pretrained=False)
        return m, (torch.randn(batch, *m.default_cfg['input_size'], generator=generator),)
    import transformers as T
    config = T.AutoConfig.for_model(kind)
    m = T.AutoModel.from_config(config)
    if m.main_input_name == 'input_ids':
        x = torch.randint(1, config.vocab_size, (batch, 128), generator=generator)
    elif m.main_input_name == 'input_values':
        # One second of sound.
        x = torch.randn(batch, 16000, generator=generator)
    else:
        x = torch.randn(batch, config.num_channels, config.image_size, config.image_size, generator=generator)

    class First(torch.nn.Module):
        """The first result alone."""

        def __init__(self):
            super().__init__()
            self.model = m

        def forward(self, x):
            return self.model(**{m.main_input_name: x}).to_tuple()[0]

    return First(), (x,)


def in_bf16(m):
    """The module with weights and values of bf16, between inputs and results of f32."""
    import torch

    def convert(x, dtype):
        return x.to(dtype) if x.is_floating_point() else x

    class Halves(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = m.bfloat16()

        def forward(self, *args):
            out = self.model(*(convert(x, torch.bfloat16) for x in args))
            return tuple(convert(o, torch.float32) for o in out) if isinstance(out, tuple) else convert(out, torch.float32)

    return Halves()


def export_bf16(name, d):
    """The case's archive in bf16, once: export.bf16.pt2."""
    path = f'{d}/export.bf16.pt2'
    if os.path.exists(path):
        return
    import numpy as np
    import torch
    m, args = build(name, 'bf16')
    with torch.no_grad():
        ep = torch.export.export(m, args, strict=False)
    torch.export.save(ep, path + '.new')
    os.replace(path + '.new', path)
    np.savez(f'{d}/inputs.bf16.npz', **{n: a.numpy() for n, a in zip(ep.graph_signature.user_inputs, args)})


def build(name, precision='f32'):
    """The module and its inputs. In bf16 it converts its inputs and results, which are f32."""
    import torch
    import torch.nn as nn
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(7)
    base, batch = (name.rsplit('_b', 1) + ['1'])[:2]
    if ':' in name:
        m, args = outside(name, g)
    elif '.' in name:
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
    # A head of zeros would give zeros, and nothing to compare.
    for n in m.modules():
        if isinstance(n, nn.Linear) and not n.weight.any():
            nn.init.normal_(n.weight, std=0.02, generator=g)
    # Statistics other than 0 and 1, so that folding them does something.
    s = torch.Generator().manual_seed(3)
    for n in m.modules():
        if isinstance(n, nn.modules.batchnorm._BatchNorm):
            n.running_mean.copy_(torch.randn(n.running_mean.shape, generator=s) * 0.1)
            n.running_var.copy_(torch.rand(n.running_var.shape, generator=s) + 0.5)
    return (in_bf16(m) if precision == 'bf16' else m), args


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
