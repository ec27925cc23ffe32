//! Compiled models as files.
//!
//! ```text
//!                     ┌ manifest      what is in the file (JSON)
//!                     │ signature     the inputs (FXIR)
//!   portable part ────┤ graph         the graphs (FXIR)
//!                     └ weights       each at a multiple of 64 bytes, with an index (JSON)
//!                     ┌ key           the types of the inputs
//!   native parts  ────┤ program       steps over buffers
//!   (any number)      │ code          final machine code, with the constants that it reads
//!                     └ data          packed weights and folded constants, mapped
//! ```
//!
//! The portable part is the model as it was given. Any version of fxc that knows the format can read it and compile
//! it again. A native part is a [`Program`](crate::program::Program) for one combination of input types, with
//! everything that an [`Executable`](crate::runtime::Executable) prepares before it runs. It requires the version of
//! fxc that compiled it and the processor features that it names. It does not depend on the number of threads.
//!
//! Loading a native part reads no graph and runs no pass. Weights are mapped: only the pages that a run uses are
//! read, and processes share them. Everything in a file except its machine code is checked before use:
//! docs/security.md.

mod check;
mod container;
mod crc;
mod decode;
mod encode;
mod json;
mod load;
mod manifest;
mod record;
#[cfg(feature = "compiler")]
mod write;

pub(crate) use container::{Container, ContainerWriter, Section, SectionKind};
pub(crate) use load::{check_native, load_native, mapped_tensor, read_key};
pub(crate) use manifest::{CallRecord, CodeOptions, Manifest, NativeEntry, WeightRecord};
#[cfg(feature = "compiler")]
pub(crate) use write::{NativeWriter, PartSource, WriteError};

use crate::diag::{Code, Diagnostic};
use std::path::Path;

/// The build of fxc that native parts record: its version, and a digest of the sources that determine the content of
/// a part.
pub(crate) const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("FXC_DIGEST"));

/// The extension of compiled models. A file with this extension must be a compiled model, and a compiled model must
/// have this extension: machine code must not be loaded by accident.
const COMPILED_ENDING: &str = "fxc";

/// Whether a path has the extension of compiled models.
pub(crate) fn has_compiled_ending(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == COMPILED_ENDING)
}

/// The bytes that represent the input types in keys.
#[cfg(feature = "compiler")]
pub(crate) fn key_bytes(types: &[crate::types::Type]) -> Option<Vec<u8>> {
    encode::to_bytes(types).ok()
}

#[cfg(feature = "compiler")]
/// Whether two programs do the same: they differ at most in names.
pub(crate) fn same_code(a: &crate::program::Program, b: &crate::program::Program) -> bool {
    let bytes = |p: &crate::program::Program| encode::to_bytes(&p.without_names()).ok();
    let (tensors, others) = (a.tensors(), b.tensors());
    let mut pairs = tensors.iter().zip(&others);
    tensors.len() == others.len()
        && pairs.all(|(x, y)| same_tensor(x, y))
        && bytes(a).is_some_and(|x| bytes(b) == Some(x))
}

#[cfg(feature = "compiler")]
/// Whether two tensors are equal bit for bit. Weights are in one memory.
fn same_tensor(a: &crate::tensor::Tensor, b: &crate::tensor::Tensor) -> bool {
    a.ty() == b.ty() && (a.life().bytes_id() == b.life().bytes_id() || a.bytes() == b.bytes())
}

/// Opens a compiled model and reads its manifest.
pub(crate) fn open_compiled(path: &Path) -> Result<(Container, Manifest), Diagnostic> {
    let container = Container::open(path)?;
    check_ending(path)?;
    let text = container.read_text(SectionKind::Manifest)?;
    let manifest = Manifest::from_json(text);
    let manifest =
        manifest.map_err(|e| damaged(container.name(), format!("the manifest section is malformed: {e}")))?;
    Ok((container, manifest))
}

/// Checks the extension: a compiled model contains code, so its name must say so.
fn check_ending(path: &Path) -> Result<(), Diagnostic> {
    if has_compiled_ending(path) {
        return Ok(());
    }
    let title = format!(
        "`{}` is a compiled model, but its name does not end in .{COMPILED_ENDING}",
        path.display()
    );
    let d = Diagnostic::new(Code::E0409, title)
        .note("a compiled model contains code; the extension prevents loading it by accident");
    Err(d.help("if you trust the file as you would a program, rename it to have this extension"))
}

/// The error for a file that violates its format.
pub(crate) fn damaged(name: &str, problem: impl std::fmt::Display) -> Diagnostic {
    let title = format!("`{name}` is damaged: {problem}");
    Diagnostic::new(Code::E0409, title).help("recompile the model: `fxc compile MODEL -o FILE.fxc`")
}
