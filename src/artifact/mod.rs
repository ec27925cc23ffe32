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
mod load;
mod manifest;
mod record;
mod write;

pub(crate) use container::{Container, ContainerWriter, Section, SectionKind};
pub(crate) use load::{check_native, load_native, mapped_tensor, read_key};
pub(crate) use manifest::{CodeOptions, Manifest, NativeEntry, WeightRecord};
pub(crate) use write::{NativeWriter, WriteError};

use crate::diag::{Code, Diagnostic};

/// This version of fxc as native parts name it: its number, and a digest of the sources that decide what is in such a part.
pub(crate) const BUILD: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("FXC_DIGEST"));

/// The finding that a file is not what its format prescribes.
pub(crate) fn damaged(name: &str, why: impl std::fmt::Display) -> Diagnostic {
    let title = format!("`{name}` is damaged: {why}");
    Diagnostic::new(Code::E0409, title).help("recompile the model: `fxc compile MODEL -o FILE.fxc`")
}
