"""A model in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from . import _fxc

if TYPE_CHECKING:
    from ._model import Model

#: The maximum number of nodes in a cell's drawing.
MOST_NODES = 400


def _table(title: str, rows: list[tuple[str, str | None]]) -> str:
    cells = "".join(f"<tr><td><code>{escape(n)}</code></td><td><code>{escape(t or '?')}</code></td></tr>" for n, t in rows)
    return f"<tr><th colspan=2 style='text-align:left'>{title}</th></tr>{cells}"


def model(m: Model) -> str:
    """A summary, the inputs and results, and the drawing."""
    inputs, outputs = _fxc.describe(m)
    count = len(m.graph)
    summary = f"<b>fxc.Model</b> <code>{escape(m.name)}({escape(m.signature_text)})</code>, {count} nodes"
    tables = f"<table>{_table('inputs', inputs)}{_table('results', outputs)}</table>"
    if count > MOST_NODES:
        drawing = f'<p>{count} nodes are too many to draw here; <code>model.to_svg("model.svg")</code> writes the drawing to a file.</p>'
    else:
        drawing = f"<details open><summary>graph</summary>{m.to_svg()}</details>"
    found = "".join(f"<pre>{escape(str(d))}</pre>" for d in m.warnings)
    return f"<div>{summary}{tables}{found}{drawing}</div>"
