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
//! The portable part is the model as it was given: any version of fxc that knows the format reads it and compiles it anew. A native part is
//! a [`Program`](crate::program::Program) for inputs of one combination of types, with all that an
//! [`Executable`](crate::runtime::Executable) makes before it runs. It fits the version of fxc that made it, and processors with
//! the features that it names. Threads are not part of it.
//!
//! Loading a native part reads no graph and runs no pass. Weights are mapped: pages that runs do not read are not read, and
//! processes share them. What a file says is checked before it is believed, but for its machine code: docs/security.md.

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

/// This version of fxc as native parts name it: its number, and a digest of the sources that decide what is in such a part.
pub(crate) const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("FXC_DIGEST"));

/// The extension of compiled files. A file with it that is not a compiled model is refused, and so is a compiled model
/// without it: machine code must not be loaded by accident.
const COMPILED_ENDING: &str = "fxc";

/// Whether a path has the extension of compiled models.
pub fn has_compiled_ending(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == COMPILED_ENDING)
}

/// The bytes that stand for the types of inputs in keys.
#[cfg(feature = "compiler")]
pub(crate) fn key_bytes(types: &[crate::types::Type]) -> Option<Vec<u8>> {
    encode::to_bytes(types).ok()
}

/// Opens a compiled model's file and reads its manifest.
pub(crate) fn open_compiled(path: &Path) -> Result<(Container, Manifest), Diagnostic> {
    let container = Container::open(path)?;
    check_ending(path)?;
    let text = container.read_text(SectionKind::Manifest)?;
    let manifest = Manifest::from_json(text);
    let manifest =
        manifest.map_err(|e| damaged(container.name(), format!("the manifest section is malformed: {e}")))?;
    Ok((container, manifest))
}

/// Checks the extension: a compiled model contains code, so it is only loaded from a file whose name says so.
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

/// The finding that a file is not what its format prescribes.
pub(crate) fn damaged(name: &str, problem: impl std::fmt::Display) -> Diagnostic {
    let title = format!("`{name}` is damaged: {problem}");
    Diagnostic::new(Code::E0409, title).help("recompile the model: `fxc compile MODEL -o FILE.fxc`")
}
