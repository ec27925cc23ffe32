"""The exceptions: each carries the findings of the compiler, and prints as the command line does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._fxc import Diagnostic


class Error(Exception):
    """Why a model could not be read, compiled or run. `str()` is the whole report."""

    def __init__(self, report: str, code: str | None = None, diagnostics: list[Diagnostic] | None = None) -> None:
        super().__init__(report)
        self.report = report
        #: The code of the first error; `fxc.explain(code)` tells more of it.
        self.code = code
        #: All that was found, errors and warnings.
        self.diagnostics: list[Diagnostic] = diagnostics or []

    def __str__(self) -> str:
        return self.report

    def __reduce__(self) -> tuple[object, ...]:
        # Findings refer to texts of this process; the report has what they say.
        return (type(self), (self.report, self.code))


class CompileError(Error):
    """The model is wrong, or fxc cannot compile it."""


class InputError(Error, ValueError):
    """The inputs of a call do not fit the model."""


class FileError(Error, OSError):
    """A file cannot be read or written."""


class ExportError(Error):
    """torch.export could not follow the module."""


class CompileWarning(UserWarning):
    """What compiling warns of, such as operations that run in the interpreter."""


def make(code: str | None, report: str, diagnostics: list[Diagnostic]) -> Error:
    """The exception for a code."""
    kind = (code or "")[:3]
    classes: dict[str, type[Error]] = {"E05": InputError, "E07": FileError}
    return classes.get(kind, CompileError)(report, code, diagnostics)
