"""Training through `torch.compile(model, backend="fxc")`: python tests/torch/training.py [NAME …] [--steps 20] [--batches 1]

Trains resnet18 and a small GPT by SGD with momentum in eager PyTorch, compiled by fxc, and in eager PyTorch from weights that differ in
the last place. Printed is the greatest difference of the losses in both cases, relative to losses above 1. A model passes if fxc's is at most --limit,
or at most what the last place alone makes of it: with a new batch in each step (--batches 20) and random labels, batch normalisation
over few values amplifies any rounding to some per cent within 20 steps.

Needs torch, torchvision, transformers and the package fxc. Without them it says so and checks nothing. Exit code 1 if a model fails.
"""
import argparse
import copy
import os
import sys
import warnings

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

warnings.filterwarnings("ignore")
try:
    import fxc
    import torch
    import torchvision
    import transformers
    from fxc.torch_backend import backend
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=200, n_positions=64)
        self.model = transformers.GPT2LMHeadModel(config)

    def forward(self, ids):
        return self.model(ids).logits.flatten(0, 1)


def resnet18(batches):
    data = [(torch.randn(4, 3, 64, 64), torch.randint(10, (4,))) for _ in range(batches)]
    return torchvision.models.resnet18(num_classes=10), data, 0.01


def gpt(batches):
    data = [(torch.randint(200, (2, 32)), torch.randint(200, (64,))) for _ in range(batches)]
    return Gpt(), data, 0.05


MODELS = {"resnet18": resnet18, "gpt": gpt}


def train(model, function, data, rate, steps):
    """The loss of every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    losses = []
    for step in range(steps):
        torch.manual_seed(step)  # dropout
        x, y = data[step % len(data)]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(function(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def perturbed(model):
    """A copy whose weights differ by about one unit in the last place."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(1 + 6e-8 * torch.randn_like(p))
    return other


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("names", nargs="*")
    ap.add_argument("--steps", type=int, default=20)
    ap.add_argument("--batches", type=int, default=1)
    ap.add_argument("--limit", type=float, default=1e-4)
    ap.add_argument("--fxc", help="not used: the package has a compiler of its own")
    a = ap.parse_intermixed_args()
    wrong = []
    print(f'{"model":10} {"first loss":>10} {"last loss":>10} {"fxc":>9} {"last place":>10}  compiled nodes, left to torch')
    for name in a.names or MODELS:
        torch.manual_seed(0)
        torch._dynamo.reset()
        model, data, rate = MODELS[name](a.batches)
        model.train()
        other, same = perturbed(model), copy.deepcopy(model)
        want = train(same, same, data, rate, a.steps)
        near = train(other, other, data, rate, a.steps)
        got = train(model, torch.compile(model, backend=backend), data, rate, a.steps)
        far, noise = (max(abs(g - w) / max(abs(w), 1.0) for g, w in zip(losses, want, strict=True)) for losses in (got, near))
        stats = fxc.stats()
        left = sum(v["nodes"] for v in stats["left to torch"].values())
        if far > max(a.limit, noise) or stats["failed parts"] or not stats["training graphs"]:
            wrong.append(name)
        print(f"{name:10} {want[0]:10.5f} {want[-1]:10.5f} {far:9.1e} {noise:10.1e}  {stats['nodes']}, {left}", flush=True)
    print(f"{len(a.names or MODELS) - len(wrong)} as in eager PyTorch, {len(wrong)} not: {' '.join(wrong)}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
