"""The blocks of the documentation run."""

from __future__ import annotations

import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"


@pytest.mark.torch
@pytest.mark.parametrize("page", ["python.md", "torch-compile.md"])
def test_the_page_runs(page: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page == "torch-compile.md":
        import torch

        if "fxc" not in torch.compiler.list_backends():
            pytest.skip('the package is not installed, so that torch does not know the name "fxc"; `pip install ./python`')
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```py\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
