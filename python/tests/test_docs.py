"""The blocks of docs/python.md run."""

from __future__ import annotations

import pathlib
import re

import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "python.md"


@pytest.mark.torch
def test_the_page_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert len(blocks) > 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
