"""The exceptions. Each contains the compiler's diagnostics and prints them like the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._fxc import Diagnostic


class Error(Exception):
    """A model could not be read, compiled or run. `str()` is the whole report."""

    def __init__(self, report: str, code: str | None = None, diagnostics: list[Diagnostic] | None = None) -> None:
        super().__init__(report)
        self.report = report
        #: The code of the first error; `fxc.explain(code)` explains it.
        self.code = code
        #: All diagnostics, errors and warnings.
        self.diagnostics: list[Diagnostic] = diagnostics or []

    def __str__(self) -> str:
        return self.report

    def __reduce__(self) -> tuple[object, ...]:
        # Diagnostics refer to sources in this process; the report contains their texts.
        return (type(self), (self.report, self.code))


#: The codes of work that exceeds a limit of memory, nodes or time.
LIMITS = ("E0509", "E0114", "E0513")


class CompileError(Error):
    """The model is invalid, fxc cannot compile it, or reading, compiling or running it exceeds its limits."""


class InputError(Error, ValueError):
    """The inputs of a call do not match the model."""


class FileError(Error, OSError):
    """A file cannot be read or written."""


class ExportError(Error):
    """torch.export could not export the module."""


class CompileWarning(UserWarning):
    """A warning of the compiler, for example about operations that run in the interpreter."""


def make(code: str | None, report: str, diagnostics: list[Diagnostic]) -> Error:
    """The exception for a code."""
    classes: dict[str, type[Error]] = {"E05": InputError, "E07": FileError}
    kind = CompileError if code in LIMITS else classes.get((code or "")[:3], CompileError)
    return kind(report, code, diagnostics)
