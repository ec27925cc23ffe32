"""What the tests have in common."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

import pytest

# Tests neither read nor fill the user's cache. Those of the cache set a folder of their own.
os.environ["FXC_CACHE"] = "off"

HAS_TORCH = importlib.util.find_spec("torch") is not None
#: Packages without which a test is skipped, and what it then did not run.
OPTIONAL = {
    "ray": ("no Ray cluster was started", "ray[data] pyarrow"),
    "dask": ("the example with Dask did not run", "dask[array]"),
    "nbclient": ("the notebooks did not run", "nbclient nbformat ipykernel"),
}


@pytest.fixture
def fresh() -> Iterator[None]:
    """A test of torch.compile begins without compiled graphs and ends without failed parts."""
    import torch

    import fxc

    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    assert fxc.stats()["failed parts"] == {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if HAS_TORCH:
        return
    skip = pytest.mark.skip(reason="PyTorch is not installed")
    for item in items:
        if "torch" in item.keywords:
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not HAS_TORCH:
        terminalreporter.write_line("SKIPPED: nothing was compared with PyTorch; `pip install torch` brings what that needs")
    for package, (what, install) in OPTIONAL.items():
        if importlib.util.find_spec(package) is None:
            terminalreporter.write_line(f"SKIPPED: {what}; `pip install {install}` brings what that needs")
