//! Models in memory.

use super::files::not_a_model;
use super::load::LoadedModel;
use super::session::{Reported, Session, Staged};
use super::stage::{Stage, StageProduct};
use crate::budget;
use crate::diag::{Code, Diagnostic};
use crate::graph::GraphModule;
use crate::import;
use crate::tensor::Tensor;
use crate::tensor::files::{FileKind, HEAD};
use crate::types::DType;
use memmap2::{Mmap, MmapMut};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

impl Session {
    /// [`Session::load`] for the content of a file: an archive, or a text that names no weights file. Diagnostics refer to it as `name`.
    pub fn load_bytes(&mut self, name: &str, bytes: &[u8]) -> Staged<LoadedModel> {
        let kind = FileKind::of_head(&bytes[..bytes.len().min(HEAD)]);
        let refusal = match kind {
            FileKind::Zip => return self.load_archive_bytes(name, bytes),
            // Some binary formats start with a line of text.
            FileKind::Text if !bytes.contains(&0) => return self.load_text(name, &String::from_utf8_lossy(bytes)),
            FileKind::Text => not_a_model(name, &FileKind::Binary),
            FileKind::Compiled => Diagnostic::new(Code::E0409, "a compiled model cannot be read from memory")
                .note("it contains machine code, which is only loaded from files that say so by their name")
                .help("write it to a file whose name ends in `.fxc`, and open that"),
            kind => not_a_model(name, &kind),
        };
        self.report(refusal);
        Err(Reported)
    }

    fn load_archive_bytes(&mut self, name: &str, bytes: &[u8]) -> Staged<LoadedModel> {
        let start = Instant::now();
        let map = match copy_to_pages(bytes) {
            Ok(map) => map,
            Err(e) => {
                let title = format!("no memory for an archive of {} bytes: {e}", bytes.len());
                self.report(Diagnostic::new(Code::E0509, title));
                return Err(Reported);
            }
        };
        match import::read_mapped_pt2(Path::new(name), Arc::new(map)) {
            Ok((mut module, findings)) => {
                self.take_findings(findings)?;
                own_weights(&mut module);
                self.took_since(Stage::Load, StageProduct::Module(&module), start);
                Ok(LoadedModel::new(name, module))
            }
            Err(findings) => {
                self.diagnostics.extend(findings);
                Err(Reported)
            }
        }
    }
}

/// Moves weights from the mapping to memory of their own: mapped weights are dropped and read again as needed, which only a file allows.
/// Weights that share elements still do.
fn own_weights(module: &mut GraphModule) {
    let mut copies: HashMap<(*const u8, DType, Vec<usize>), Tensor> = HashMap::new();
    for weight in module.attributes.values_mut().filter_map(|a| a.value.as_mut()) {
        let place = (weight.bytes().as_ptr(), weight.dtype(), weight.shape().to_vec());
        *weight = copies.entry(place).or_insert_with(|| weight.deep_copy()).clone();
    }
}

/// A copy in pages, as the reader of archives takes it.
fn copy_to_pages(bytes: &[u8]) -> std::io::Result<Mmap> {
    if !budget::allows_bytes(bytes.len()) {
        return Err(ErrorKind::OutOfMemory.into());
    }
    let mut pages = MmapMut::map_anon(bytes.len())?;
    pages.copy_from_slice(bytes);
    pages.make_read_only()
}
