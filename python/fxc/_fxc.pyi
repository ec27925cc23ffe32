"""The native half of the package."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any, Literal

__version__: str

class Span:
    """A place in a text: lines and columns count from one, and the end is excluded."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str

class Label:
    """A place and what is to be said of it."""

    span: Span
    text: str
    primary: bool

class Suggestion:
    """A change to the text that would mend it."""

    span: Span
    replacement: str
    text: str
    safe: bool

class Diagnostic:
    """A finding."""

    @property
    def code(self) -> str: ...
    @property
    def severity(self) -> Literal["error", "warning", "note"]: ...
    @property
    def title(self) -> str: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def help(self) -> list[str]: ...
    @property
    def span(self) -> Span | None: ...
    @property
    def labels(self) -> list[Label]: ...
    @property
    def suggestions(self) -> list[Suggestion]: ...
    def render(self, color: bool = False) -> str: ...

class Session:
    """A model that remembers what calls change: each call finds the buffers as the last one left them."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
    def reset(self) -> None: ...

class CompiledModel:
    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        text: bool = False,
        keep_path: bool = True,
        threads: int | None = None,
        exact: bool = False,
        fast_math: bool = False,
        skip_passes: list[str] = ...,
        dims: Mapping[str, int] | None = None,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def compile(self) -> None: ...
    def recompile(self) -> None: ...
    def session(self) -> Session: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...
    @property
    def warnings(self) -> list[Diagnostic]: ...
    @property
    def signature_text(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> pathlib.Path | None: ...
    @property
    def result_spec(self) -> str | None: ...

def explain(code: str) -> str: ...
def get_num_threads() -> int: ...
def set_num_threads(threads: int) -> None: ...
def _after_fork_in_child() -> None: ...
