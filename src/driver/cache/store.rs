//! Writes entries.

use super::{Cache, folder};
use crate::artifact::{
    CodeOptions, ContainerWriter, Manifest, NativeEntry, NativeWriter, PartSource, SectionKind, WriteError,
};
use crate::driver::save::{describe_part, manifest, signature_text, to_json};
use crate::graph::GraphModule;
use crate::parallel::yield_to_others;
use crate::target::Target;
use crate::types::Type;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The description of a model in its entries.
#[derive(Clone, Default)]
pub(super) struct ModelRecord {
    /// The inputs, as FXIR.
    signature: String,
    manifest: Manifest,
}

impl ModelRecord {
    /// Creates the description of a complete module, or of one that has only inputs.
    pub(super) fn of_module(module: &GraphModule) -> ModelRecord {
        ModelRecord {
            signature: signature_text(module),
            manifest: manifest(module, vec![]),
        }
    }
}

/// Code to be stored in the cache, with everything that is needed to write it on any thread.
pub struct PendingEntry {
    pub(super) cache: Arc<Cache>,
    pub(super) path: PathBuf,
    pub(super) record: ModelRecord,
    pub(super) target: Target,
    pub(super) options: CodeOptions,
    pub(super) part: PartSource,
    pub(super) types: Vec<Type>,
}

impl PendingEntry {
    /// Writes the entry, and removes others if the cache exceeds its limit. The caller ignores errors, because it has
    /// its result already.
    pub fn write(self) -> io::Result<()> {
        let cache = self.cache.clone();
        let folder = cache.folder();
        folder::create(folder)?;
        if folder::why_unsafe(folder).is_some() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let path = self.path.clone();
        // Another process may have written it first.
        if !path.exists() {
            self.write_file()?;
        }
        folder::shrink(folder, cache.limit, &path);
        Ok(())
    }

    fn write_file(self) -> io::Result<()> {
        let mut file = ContainerWriter::create(&self.path)?;
        file.add(SectionKind::Signature, 0, self.record.signature.as_bytes())?;
        let written = NativeWriter::default().write_part(&mut file, &self.part, &self.types);
        written.map_err(|e| match e {
            WriteError::Io(e) => e,
            WriteError::NoForm(part) => io::Error::other(part),
        })?;
        let entry = NativeEntry::new(self.target, self.options);
        let manifest = Manifest {
            native: vec![describe_part(entry, self.part.program(), &self.types)],
            ..self.record.manifest
        };
        file.add(SectionKind::Manifest, 0, &to_json(&manifest)?)?;
        file.finish_on_disk().map(drop)
    }
}

/// The threads that write entries, and the process that started them: threads do not survive a fork.
static WRITERS: Mutex<Vec<(u32, JoinHandle<()>)>> = Mutex::new(vec![]);

/// Writes entries on a background thread of low priority. Entries that cannot be written are dropped.
pub(crate) fn write_in_background(entries: Vec<PendingEntry>) {
    if entries.is_empty() {
        return;
    }
    let write = move || {
        yield_to_others();
        entries.into_iter().for_each(|e| drop(e.write()));
    };
    if let Ok(handle) = std::thread::Builder::new().name("fxc-cache".into()).spawn(write) {
        let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
        writers.retain(|(_, w)| !w.is_finished());
        writers.push((std::process::id(), handle));
    }
}

/// Waits until background threads have written their entries. A process that exits earlier loses them.
pub fn finish_cache_writes() {
    let writers = std::mem::take(&mut *WRITERS.lock().unwrap_or_else(PoisonError::into_inner));
    for (process, writer) in writers {
        match process == std::process::id() {
            true => drop(writer.join()),
            false => std::mem::forget(writer),
        }
    }
}
