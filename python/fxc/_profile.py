"""Profiles of calls."""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import dataclass
from html import escape

from . import _fxc


@dataclass(frozen=True)
class Step:
    """A step of the compiled program."""

    #: The name of the kernel, or the product or convolution with its method.
    name: str
    #: The nodes of the graph that it computes.
    nodes: list[str]
    #: Bytes of the buffers that it reads and writes, each counted once.
    bytes: int
    #: Multiply-adds; 0 for kernels.
    macs: float
    #: The seconds of each run.
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Profile:
    """The times of every step of a call, over several runs."""

    model: str
    steps: list[Step]
    #: The seconds of each run.
    runs: list[float]
    #: The number of interpreted operations. Their time is part of the runs, but they are not among the steps.
    interpreted: int

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        total = sum(s.median for s in self.steps) or 1.0
        rows = []
        for s in sorted(self.steps, key=lambda s: -s.median):
            rate = f"{s.bytes / s.median / 1e9:.1f}" if s.median > 0 else ""
            flops = f"{2 * s.macs / s.median / 1e9:.1f}" if s.median > 0 and s.macs else ""
            rows.append((f"{s.median * 1e6:.1f}", f"{100 * s.median / total:.1f}", rate, flops, s.name))
        return rows

    def _summary(self) -> str:
        text = f"{self.model}: {statistics.median(self.runs) * 1e3:.4g} ms, median of {len(self.runs)} runs"
        return text + (f"; {self.interpreted} operations are interpreted" if self.interpreted else "")

    def __str__(self) -> str:
        lines = [self._summary(), f"{'µs':>10} {'%':>6} {'GB/s':>7} {'GFLOP/s':>8}  step"]
        lines += [f"{us:>10} {part:>6} {rate:>7} {flops:>8}  {name}" for us, part, rate, flops, name in self._rows()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{h}</th>" for h in ("µs", "%", "GB/s", "GFLOP/s", "step"))
        rows = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in self._rows())
        return f"<p>{escape(self._summary())}</p><table><tr>{head}</tr>{rows}</table>"

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the runs as a trace that chrome://tracing and ui.perfetto.dev open: the steps of each run in sequence."""
        events: list[dict[str, object]] = []
        at = 0.0
        for i, run in enumerate(self.runs):
            events.append(_event(f"run {i}", at, run, {}))
            inner = at
            for s in self.steps:
                events.append(_event(s.name, inner, s.seconds[i], {"nodes": s.nodes, "bytes": s.bytes, "macs": s.macs}))
                inner += s.seconds[i]
            at += max(run, inner - at)
        _fxc.write_file(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}).encode())


def _event(name: str, start: float, seconds: float, args: dict[str, object]) -> dict[str, object]:
    return {"name": name, "ph": "X", "ts": start * 1e6, "dur": seconds * 1e6, "pid": 0, "tid": 0, "args": args}
