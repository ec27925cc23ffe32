"""The notebooks of examples/ run."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

NOTEBOOKS = pathlib.Path(__file__).parents[2] / "examples" / "notebooks"


def outputs(cell: Any) -> dict[str, str]:
    """What a cell shows, by its kind."""
    shown: dict[str, str] = {}
    for o in cell.get("outputs", []):
        parts = o.get("data") or {"text/plain": o.get("text", "")}
        shown.update({kind: shown.get(kind, "") + "".join(text) for kind, text in parts.items()})
    return shown


def test_the_first_notebook_runs() -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    notebook = nbformat.read(NOTEBOOKS / "first.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(c.get("outputs") for c in notebook.cells), "the notebook is kept without outputs"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    shown = [outputs(c) for c in notebook.cells if c.cell_type == "code"]
    assert shown[0]["text/plain"] == "(360, 1, 8, 8)"
    assert "fxc.Model" in shown[1]["text/html"] and "<svg" in shown[1]["text/html"]
    assert "357 of 360 digits are right" in shown[2]["text/plain"]
    assert shown[3]["text/plain"].count("image ") == 3
    assert "GFLOP/s" in shown[4]["text/html"] and "conv" in shown[4]["text/html"]
    assert shown[5]["text/plain"].strip()
    assert shown[6]["text/plain"] == "{'label': (100,), 'scores': (100, 10)}"
