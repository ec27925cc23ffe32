"""Exports PyTorch modules with torch.export."""

from __future__ import annotations

import inspect
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._errors import ExportError
from ._fxc import Graph
from ._model import Model, _made, from_graph, load

if TYPE_CHECKING:
    import torch

#: Messages of torch's exporter, with a hint for each.
_HINTS = [
    (
        ("data-dependent", "DataDependent", "GuardOnDataDependentSymNode"),
        "the module has control flow or sizes that depend on a tensor's values; use torch.cond for branches, and torch._check "
        "to constrain sizes",
    ),
    (
        ("Constraints violated", "ConstraintViolation", "were specified to be dynamic", "marked as dynamic"),
        "dynamic_shapes declares dynamic sizes that the module fixes; torch's message names them; remove them or follow its suggestion",
    ),
    (
        ("missing a required", "takes ", "unexpected keyword", "got multiple values"),
        "pass fxc.compile the arguments of a call of the module",
    ),
    (
        ("FakeTensor", "data_ptr", "numpy()"),
        "the module uses code outside torch (numpy, data_ptr, an extension); rewrite it with torch functions or torch.library.custom_op",
    ),
]


def _import_torch() -> Any:
    try:
        import torch
        import torch.export
    except ImportError as e:
        raise ImportError(
            'exporting a module requires PyTorch (`pip install torch`); loading an exported model does not: fxc.load("model.pt2")'
        ) from e
    return torch


def _explained(error: Exception, strict: bool) -> ExportError:
    """torch's error with hints."""
    text = str(error).strip()
    said = f"{type(error).__name__}: {text}"
    lines = ["error: torch.export failed to export the module"]
    lines += [" | " + line for line in said.splitlines()[:40]]
    hints = [hint for signs, hint in _HINTS if any(sign in said for sign in signs)]
    unexpected = re.search(r"unexpected keyword argument '(\w+)'", said)
    if unexpected and unexpected[1] in inspect.signature(load).parameters:
        hints.insert(0, f"`{unexpected[1]}` is an option of fxc: pass options={{{unexpected[1]!r}: ...}}")
    other = "strict=False runs forward and records its calls" if strict else "strict=True analyses the bytecode of forward"
    hints.append(f"{other}; some modules can only be exported in this mode")
    lines += [f" = help: {hint}" for hint in hints]
    lines.append(" = note: see the examples in fxc's README.md, section `The model does not export`")
    return ExportError("\n".join(lines))


def _program(
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    strict: bool,
) -> Any:
    """The exported program of a module or function. An exported program is returned unchanged."""
    torch = _import_torch()
    if _is_exported(module):
        if kwargs or dynamic_shapes is not None:
            raise TypeError("an exported program has its own example and sizes: pass neither keyword arguments nor dynamic_shapes")
        return module
    if not isinstance(module, torch.nn.Module):
        if not callable(module):
            raise TypeError(f"fxc.compile expects a module, a function or an exported program, not {type(module).__name__}")
        function, module = module, torch.nn.Module()
        module.forward = function
    try:
        with torch.no_grad():
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)
    except KeyboardInterrupt:
        raise
    except Exception as e:
        raise _explained(e, strict) from e


def compile(
    module: torch.nn.Module | torch.export.ExportedProgram | Graph | Callable[..., Any],
    *args: Any,
    dynamic_shapes: Any = None,
    strict: bool = False,
    options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Model:
    """Exports a module with torch.export and compiles it; or compiles a graph, which needs no example.

    args, kwargs: an example of a call. To allow other sizes, pass `dynamic_shapes` as for torch.export.
    strict: whether torch.export reads the bytecode of `forward` rather than running it.
    options: those of `fxc.load`. An exported program and a graph need no example, so their options may also be keyword arguments.
    """
    options = dict(options or {})
    if isinstance(module, Graph) or _is_exported(module):
        options |= _options_among(kwargs, dynamic_shapes)
        kwargs = {}
    if isinstance(module, Graph):
        return from_graph(module, **options)
    program = _program(module, args, kwargs, dynamic_shapes, strict)
    options.setdefault("cache", True)
    lazy = bool(options.pop("lazy", False))
    return _made(_read(program, options), options, lazy)


def _is_exported(module: Any) -> bool:
    """Whether a module is an exported program. Nobody has one without torch."""
    export = sys.modules.get("torch.export")
    return export is not None and isinstance(module, export.ExportedProgram)


def _options_among(kwargs: dict[str, Any], dynamic_shapes: Any) -> dict[str, Any]:
    """The keyword arguments beside an exported program or a graph, which must be options."""
    if dynamic_shapes is not None:
        raise TypeError("dynamic_shapes are for modules: the sizes of an exported program or a graph are its own")
    known = inspect.signature(load).parameters
    for name in kwargs:
        if name not in known or name == "path":
            raise TypeError(f"fxc.compile got an unexpected keyword argument {name!r}; beside an exported program or a graph, they are options of fxc.load")
    return kwargs


def _read(program: Any, options: dict[str, Any]) -> Model:
    """The model of an exported program, through an archive in a temporary file: the system can drop the pages of weights that were packed,
    which it cannot if the archive is in memory. Without room for a file, it is in memory."""
    try:
        folder = tempfile.mkdtemp(prefix="fxc-")
    except OSError:
        return _read_in_memory(program, options)
    path = os.path.join(folder, "model.pt2")
    try:
        # Asked before: on a full disk, torch's writer of archives ends the process.
        if shutil.disk_usage(folder).free < _archive_size(program):
            return _read_in_memory(program, options)
        _save(program, path)
        return Model(path, keep_path=False, **options)
    finally:
        _discard(folder, path)


def _archive_size(program: Any) -> int:
    """An estimate of an archive's bytes: its tensors, and some space for the graph."""
    torch = _import_torch()
    values = [*program.state_dict.values(), *program.constants.values()]
    tensors: int = sum(t.numel() * t.element_size() for t in values if isinstance(t, torch.Tensor))
    return tensors + (64 << 20)


def _read_in_memory(program: Any, options: dict[str, Any]) -> Model:
    archive = io.BytesIO()
    _save(program, archive)
    return Model(archive.getvalue(), **options)


def _save(program: Any, target: str | io.BytesIO) -> None:
    torch = _import_torch()
    torch.export.save(program, target)


def _discard(folder: str, path: str) -> None:
    """Removes the archive. On most systems a mapped file can be removed, and the weights stay mapped."""
    try:
        if os.path.exists(path):
            os.remove(path)
        os.rmdir(folder)
    except PermissionError:
        import atexit

        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def export(
    module: torch.nn.Module | torch.export.ExportedProgram | Callable[..., Any],
    *args: Any,
    path: str | os.PathLike[str],
    dynamic_shapes: Any = None,
    strict: bool = False,
    **kwargs: Any,
) -> None:
    """Exports a module with torch.export and writes it.

    path: its extension selects the format: torch's archive (`.pt2`), FXIR with the weights beside it (`.fxir`), or a compiled model
    (`.fxc`), which `fxc.load` starts without compiling.
    """
    path = os.fspath(path)
    if path.endswith(".pt2"):
        _save(_program(module, args, kwargs, dynamic_shapes, strict), path)
    elif path.endswith((".fxir", ".fxc")):
        compile(module, *args, dynamic_shapes=dynamic_shapes, strict=strict, options={"lazy": True}, **kwargs).save(path)
    else:
        raise ValueError(f"cannot determine the format of `{path}`: the extension must be .pt2, .fxir or .fxc")
