"""`torch.compile(…, backend="fxc")`: results, weights that change, training, and what is left to torch."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

import fxc

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("fresh")]

from torch_support import Net, agree, compiled  # noqa: E402

from fxc.torch_backend import backend  # noqa: E402


def test_a_symbolic_batch_is_compiled_once() -> None:
    m = Net().eval()
    c = torch.compile(m, backend=backend, dynamic=True)
    with torch.no_grad():
        for n in [2, 5, 9, 33]:
            x = torch.randn(n, 6)
            agree(c(x), m(x))
    assert fxc.stats()["graphs"] == 1


def test_sizes_that_only_numbers_have() -> None:
    def f(x: Any, n: int, k: int) -> Any:
        return x.softmax(-1).sum(0).expand(n, x.shape[1]) * 2, n * k, x.shape[0] + n

    c = torch.compile(f, backend=backend, dynamic=True)
    for n, k in [(3, 4), (6, 7), (5, 2)]:
        x = torch.randn(n + 2, 5)
        got, want = c(x, n, k), f(x, n, k)
        agree(got[0], want[0])
        assert got[1:] == want[1:]
        assert all(type(v) is int for v in got[1:])


def test_views_as_outputs() -> None:
    def f(x: Any, y: Any) -> Any:
        z = (x @ y).relu()
        return x, x.t(), x[1:], z, z.t(), z[:, :1], z.view(-1), z.unsqueeze(0).expand(3, 3, 3), None, 7

    x, y = torch.randn(3, 4), torch.randn(4, 3)
    got, want = compiled(f)(x, y), f(x, y)
    for g, w in zip(got[:8], want[:8]):
        agree(g, w)
    assert got[0] is x
    assert got[1].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert got[8:] == (None, 7)


def test_outputs_of_another_order_in_memory() -> None:
    m = torch.nn.Conv2d(3, 8, 3).eval().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last)
    with torch.no_grad():
        agree(compiled(m)(x), m(x))


def test_a_graph_break_after_a_transposed_output() -> None:
    def f(x: Any, y: Any) -> Any:
        z = (x @ y).relu().t() + 1
        torch._dynamo.graph_break()
        return z.as_strided((2, 2), (1, 3)) * 2, z.t().contiguous().view(-1)

    x, y = torch.randn(3, 4), torch.randn(4, 5)
    for g, w in zip(compiled(f)(x, y), f(x, y)):
        agree(g, w)
    assert fxc.stats()["graphs"] == 2


def test_a_graph_of_one_op_is_compiled() -> None:
    x = torch.randn(5, 7)
    agree(compiled(lambda x: x.cumsum(1))(x), x.cumsum(1))
    stats = fxc.stats()
    assert stats["parts"] == 1 and not stats["left to torch"]


def test_a_write_counts_as_one_change() -> None:
    class Count(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = torch.nn.Buffer(torch.zeros(1))
            self.norm = torch.nn.BatchNorm1d(4)

        def forward(self, x: Any) -> Any:
            self.calls.add_(1)
            return self.norm(x) + self.calls

    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        torch._dynamo.reset()
        m = Count()
        c = compiled(m)
        before = [b._version for b in m.buffers()]
        with mode():
            c(torch.randn(3, 4))
            c(torch.randn(3, 4))
        assert [b._version - v for b, v in zip(m.buffers(), before)] == [2, 2, 2, 2], mode
        assert m.calls.item() == 2 and m.norm.num_batches_tracked == 2


def test_buffers_that_batch_normalisation_writes() -> None:
    class Conv(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)

        def forward(self, x: Any) -> Any:
            return self.norm(self.conv(x)).relu()

    m = Conv().train()
    other = copy.deepcopy(m)
    c = compiled(m)
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        got, want = c(x), other(x)
        agree(got, want)
        got.square().sum().backward()
        want.square().sum().backward()
    for g, w in zip(m.buffers(), other.buffers()):
        torch.testing.assert_close(g, w)
    for g, w in zip(m.parameters(), other.parameters()):
        torch.testing.assert_close(g.grad, w.grad, rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        agree(c(x), other(x))
    torch.testing.assert_close(m.norm.running_mean, other.norm.running_mean)


def test_results_with_gaps_are_torchs() -> None:
    """The chunks are views with gaps, which `unsafe_chunk` does not declare."""

    def f(x: Any) -> Any:
        a, b = torch.unsafe_chunk((x + 1).relu(), 2, dim=1)
        return a, b * 2 - a

    x = torch.randn(3, 4)
    for got, want in zip(compiled(f)(x), f(x)):
        agree(got, want)


def test_ints_that_turn_negative() -> None:
    f = compiled(lambda x, n: (x * n + n).relu().sum(), dynamic=True)
    x = torch.randn(3, 4)
    for n in [5, 7, -2, 9]:
        agree(f(x, n), (x * n + n).relu().sum())


def test_random_numbers_are_torchs() -> None:
    def f(x: Any, w: Any) -> Any:
        a = torch.nn.functional.dropout((x @ w).relu(), 0.5)
        b = torch.rand_like(a) + torch.nn.functional.dropout(x @ w + 1, 0.3)
        return (a @ w + b) * torch.bernoulli(b.sigmoid())

    x, w = torch.randn(4, 4), torch.randn(4, 4)
    c = compiled(f)
    for seed in range(3):
        torch.manual_seed(seed)
        want = f(x, w)
        torch.manual_seed(seed)
        agree(c(x, w), want)
    stats = fxc.stats()
    assert stats["parts"] >= 2
    assert "draws random numbers" in stats["left to torch"]["aten.rand_like.default"]["why"]


def test_what_torch_runs_is_said_once() -> None:
    def f(x: Any) -> Any:
        return torch.rand_like(x) + (x @ x).relu()

    c = torch.compile(f, backend=backend)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        c(torch.randn(3, 3))
        c(torch.randn(3, 3))
    texts = [str(w.message) for w in found if issubclass(w.category, fxc.CompileWarning)]
    assert len(texts) == 1
    assert "aten.rand_like.default" in texts[0]


def train(model: Any, call: Any, batches: list[Any]) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for x in batches:
        optimizer.zero_grad()
        loss = call(x).log_softmax(-1)[..., 0].mean().neg()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_has_the_losses_of_eager_pytorch() -> None:
    m = Net()
    other = copy.deepcopy(m)
    batches = [torch.randn(8, 6) for _ in range(20)]
    assert train(m, compiled(m), batches) == pytest.approx(train(other, other, batches), rel=1e-4)
    stats = fxc.stats()
    assert (stats["training graphs"], stats["graphs"], stats["packed"]) == (1, 2, 0)


def test_a_long_backward_pass_is_compiled_between_the_convolutions() -> None:
    """Each derivative of a convolution, which is PyTorch's, needs the one after it."""
    layers = [torch.nn.Sequential(torch.nn.Conv2d(2, 2, 3, padding=1), torch.nn.GELU(), torch.nn.Softmax(1)) for _ in range(60)]
    m = torch.nn.Sequential(*layers)
    x = torch.randn(1, 2, 4, 4)
    compiled(m)(x).square().sum().backward()
    got = [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    m(x).square().sum().backward()
    for g, p in zip(got, m.parameters(), strict=True):
        agree(g, p.grad)
    assert set(fxc.stats()["left to torch"]) == {"aten.convolution_backward.default"}


def test_a_size_that_only_a_packed_tensor_has() -> None:
    class Biased(torch.nn.Module):
        """Its tensor is no parameter and no buffer, so that `dynamic` makes its sizes symbols."""

        def __init__(self) -> None:
            super().__init__()
            self.cache = {"bias": torch.randn(4, 9)}

        def forward(self, x: Any) -> Any:
            x = x.softmax(-1).exp().sin().tanh()
            x = x + 0 * torch.rand_like(x)  # divides the graph
            return ((x @ x.mT).softmax(-1).sum(-1)[:, None, None] + self.cache["bias"]).softmax(-1).sum(1)

    m = Biased().eval()
    x = torch.randn(3, 8)
    with torch.no_grad():
        want = m(x)
        agree(compiled(m, dynamic=True)(x), want)


def test_checks_of_values_stay_in_torch() -> None:
    def f(x: Any, n: Any) -> Any:
        k = n.item()
        torch._check(k >= 0)
        torch._check(k <= 4)
        return (x.exp() * 2).sin()[:k].softmax(0)

    x = torch.randn(4, 3)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        call = compiled(f)
        for k in (2, 4):
            agree(call(x, torch.tensor(k)), f(x, torch.tensor(k)))
    assert any("assert" in op for op in fxc.stats()["left to torch"])


def test_errors_of_values_are_torchs() -> None:
    def f(x: Any, i: Any) -> Any:
        return (x.exp() * 2)[i].sin()

    call, x = compiled(f), torch.randn(4, 3)
    agree(call(x, torch.tensor([3])), f(x, torch.tensor([3])))
    with pytest.raises(IndexError, match="index 4 is out of bounds"):
        call(x, torch.tensor([4]))
    agree(call(x, torch.tensor([0])), f(x, torch.tensor([0])))


def test_options() -> None:
    m, x = Net().eval(), torch.randn(3, 6)
    with torch.no_grad():
        agree(compiled(m, threads=1, exact=True, precision="fast")(x), m(x))
    with pytest.raises(Exception, match="has no option 'speed'"):
        compiled(Net(), speed=2)(x)
    with pytest.raises(Exception, match="precision"):
        compiled(Net(), precision="low")(x)


def test_inputs_that_fxc_cannot_read_run_in_eager_pytorch() -> None:
    def f(x: Any) -> Any:
        return x * 2

    with pytest.warns(fxc.CompileWarning, match="on meta"):
        got = torch.compile(f, backend=backend)(torch.ones(3, device="meta"))
    assert got.device.type == "meta"
    assert fxc.stats()["graphs"] == 0


def test_reset_forgets_what_was_compiled() -> None:
    c, x = compiled(Net().eval()), torch.randn(3, 6)
    with torch.no_grad():
        c(x)
        assert fxc.stats()["graphs"] == 1
        torch._dynamo.reset()
        assert fxc.stats()["graphs"] == 0
        c(x)
    assert fxc.stats()["graphs"] == 1


def test_explain_counts_graphs() -> None:
    def f(x: Any) -> Any:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    assert torch._dynamo.explain(f)(torch.randn(3)).graph_count == 2


def test_calls_from_several_threads() -> None:
    import concurrent.futures

    m = Net().eval()
    c = compiled(m)
    with torch.no_grad():
        c(torch.randn(3, 6))

    def call(seed: int) -> float:
        x = torch.randn(3, 6, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            return float((c(x) - m(x)).abs().max())

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert max(pool.map(call, range(40))) < 1e-5


def test_an_error_in_a_run_is_raised() -> None:
    def f(table: Any, i: Any) -> Any:
        return torch.nn.functional.embedding(i, table).relu() @ table.t()

    c, table = compiled(f), torch.randn(5, 4)
    agree(c(table, torch.tensor([1, 2])), f(table, torch.tensor([1, 2])))
    with pytest.raises((fxc.Error, IndexError)):
        c(table, torch.tensor([1, 7]))


needs_name = pytest.mark.skipif(
    "fxc" not in torch.compiler.list_backends(),
    reason='the package is not installed, so that torch does not know the name "fxc"; `pip install ./python`',
)


@needs_name
def test_the_backend_is_known_by_name() -> None:
    m, x = Net().eval(), torch.randn(3, 6)
    with torch.no_grad():
        agree(torch.compile(m, backend="fxc", mode="reduce-overhead")(x), m(x))
    assert fxc.stats()["graphs"] == 1


@needs_name
def test_the_minifier_writes_a_script_for_it(tmp_path: Any) -> None:
    import os
    import subprocess
    import sys

    script = """
import torch, fxc.torch_backend
def fail(*a, **k): raise RuntimeError("made to fail")
fxc.torch_backend.compile_graph = fail
torch.compile(lambda x: x.sin() + 1, backend="fxc")(torch.ones(3))
"""
    env = os.environ | {
        "TORCHDYNAMO_REPRO_AFTER": "dynamo",
        "TORCHDYNAMO_REPRO_LEVEL": "2",
        "TORCH_COMPILE_DEBUG_DIR": str(tmp_path),
    }
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=300)
    assert "made to fail" in run.stderr
    written = list(tmp_path.rglob("*.py"))
    assert any('"fxc"' in p.read_text() or "'fxc'" in p.read_text() for p in written), run.stderr[-2000:]


def test_results_of_a_part_are_the_callers_memory() -> None:
    from fxc._fxc import Part

    text = """graph main {
        %x : f32[1024] = placeholder x
        %a = call_function torch.exp(%x)
        %b = call_function torch.exp(%x)
        output (%a, %b)
    }"""
    part = Part(text, {}, [(0, None)], [None, None])
    x = torch.zeros(1024)
    a, b = part([x])
    a.fill_(5)
    assert torch.equal(b, torch.ones(1024))
    part([x])
    assert torch.equal(a, torch.full((1024,), 5.0))
