"""fxc compiles PyTorch models to native code and runs them on the CPU.

    import fxc

    model = fxc.load("model.pt2")            # an archive from torch.export.save
    y = model(x, mask=m)                     # called like the module; arrays in, arrays out
    model = fxc.compile(module, example)     # exports the module; needs PyTorch

PyTorch is imported only when needed. See docs/python.md for details.
"""

import atexit as _atexit
import os as _os

from ._bisect import Culprit
from ._errors import CompileError, CompileWarning, Error, ExportError, FileError, InputError
from ._export import compile, export
from ._fxc import (
    Diagnostic,
    Generation,
    Graph,
    Label,
    Literal,
    Node,
    Session,
    Span,
    Suggestion,
    __version__,
    _after_fork_in_child,
    _flush_cache,
    explain,
    fix,
    format,
    get_num_threads,
    manual_seed,
    set_num_threads,
)
from ._graph import Remark, Rewritten, passes, rewrite
from ._model import Model, check, load, loads
from ._predictor import Predictor
from ._profile import Profile, Step
from ._report import stats
from ._tools import cache_info, clear_cache, info, ops

__all__ = [
    "CompileError",
    "CompileWarning",
    "Culprit",
    "Diagnostic",
    "Error",
    "ExportError",
    "FileError",
    "Generation",
    "Graph",
    "InputError",
    "Label",
    "Literal",
    "Model",
    "Node",
    "Predictor",
    "Profile",
    "Remark",
    "Rewritten",
    "Session",
    "Span",
    "Step",
    "Suggestion",
    "__version__",
    "cache_info",
    "check",
    "clear_cache",
    "compile",
    "explain",
    "export",
    "fix",
    "format",
    "get_num_threads",
    "info",
    "load",
    "loads",
    "manual_seed",
    "ops",
    "passes",
    "rewrite",
    "set_num_threads",
    "stats",
]

_atexit.register(_flush_cache)
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_after_fork_in_child)
