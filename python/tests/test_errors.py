"""Findings as objects."""

from __future__ import annotations

import pickle

import pytest

import fxc

BAD = """graph main {
    %x : f32[2, 3] = placeholder x
    %y = call_function torch.rellu(%x)
    output %y
}"""


def test_an_error_carries_its_findings() -> None:
    with pytest.raises(fxc.CompileError) as caught:
        fxc.loads(BAD)
    e = caught.value
    assert e.code == "E0201"
    (d,) = [d for d in e.diagnostics if d.severity == "error"]
    assert isinstance(d, fxc.Diagnostic)
    assert (d.code, d.severity, d.title) == ("E0201", "error", "unknown op: `torch.rellu`")
    assert d.span is not None
    assert (d.span.file, d.span.line, d.span.column, d.span.end_column) == ("<text>", 3, 24, 35)
    assert d.span.text == "torch.rellu" and str(d.span) == "<text>:3:24"
    (s,) = d.suggestions
    assert (s.replacement, s.safe) == ("torch.relu", False)
    assert str(d) in str(e)
    assert "\x1b[" in d.render(color=True) and "\x1b[" not in str(d)


def test_an_error_prints_as_the_command_line_does() -> None:
    with pytest.raises(fxc.CompileError) as e:
        fxc.loads(BAD)
    lines = str(e.value).splitlines()
    assert lines[0] == "error[E0201]: unknown op: `torch.rellu`"
    assert any("%y = call_function torch.rellu(%x)" in line for line in lines)


def test_a_missing_file_is_an_os_error() -> None:
    with pytest.raises(OSError, match="E0701") as e:
        fxc.load("no/such/file.pt2")
    assert isinstance(e.value, fxc.FileError)


def test_errors_are_pickled_as_their_report() -> None:
    with pytest.raises(fxc.CompileError) as e:
        fxc.loads(BAD)
    again = pickle.loads(pickle.dumps(e.value))
    assert str(again) == str(e.value) and again.code == "E0201"


def test_codes_are_explained() -> None:
    assert "unknown op" in fxc.explain("E0201").lower()
    with pytest.raises(KeyError, match="E9999"):
        fxc.explain("E9999")
