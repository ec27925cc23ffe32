//! A model with a key in the cache.

use super::digest::{Digest, Hasher};
use super::known::FileState;
use super::store::{ModelRecord, PendingEntry};
use super::{Cache, folder};
use crate::artifact::{BUILD, CodeOptions, PartSource, key_bytes};
use crate::diag::Diagnostics;
use crate::driver::compiled_file::{CompiledFile, code_options};
use crate::driver::ready::Ready;
use crate::driver::save::signature_module;
use crate::driver::session::{Reported, Session, Staged};
use crate::graph::GraphModule;
use crate::import;
use crate::op;
use crate::pass::PassOptions;
use crate::runtime::Executable;
use crate::source::Sources;
use crate::target::Target;
use crate::tensor::{Tensor, map_file, mapped_bytes};
use crate::types::Type;
use memmap2::Mmap;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A process stores the code for the first inputs that a model is called with, and for the second: a language model has code for its
/// prompt and for single tokens. It stores code for other inputs only if an entry is at most [`SMALL`]: a process that calls a large
/// model with a hundred sizes must not write its weights a hundred times.
const LARGE_ENTRIES: usize = 2;
const SMALL: usize = 32 << 20;

/// A model whose code may be in the cache.
pub struct CachedModel {
    cache: Arc<Cache>,
    /// The hash of the model.
    key: Digest,
    /// The archive, from which the graphs are read if they are needed.
    archive: Option<(PathBuf, Arc<Mmap>)>,
    /// The description of the model for its entries.
    record: ModelRecord,
    /// The entries that this process has opened. `None` for code that it compiled itself, which callers share
    /// already.
    opened: Mutex<HashMap<PathBuf, Option<Arc<CompiledFile>>>>,
}

impl CachedModel {
    /// A model in an archive. Only its bytes are read, and only if its hash is not known.
    pub(in crate::driver) fn of_archive(cache: &Arc<Cache>, path: &Path) -> Option<CachedModel> {
        let mut h = new_key("archive")?;
        let state = FileState::of_path(path);
        let map = map_file(path).ok()?;
        // If another file replaces the archive, it must not be used with this hash.
        let state = state.filter(|s| FileState::of_path(path).as_ref() == Some(s));
        let known = state.as_ref().and_then(|s| cache.known_hash(s));
        let key = known.unwrap_or_else(|| {
            let whole = mapped_bytes(&map);
            h.add_with(&map, &|read| whole.release_part(read));
            let key = h.finish();
            if let Some(state) = &state {
                cache.keep_hash(state, key);
            }
            key
        });
        Some(CachedModel::new(cache, key, Some((path.to_path_buf(), map))))
    }

    /// A model that was read from a text, with its weights.
    pub(in crate::driver) fn of_text(cache: &Arc<Cache>, text: &str, module: &GraphModule) -> Option<CachedModel> {
        let mut h = new_key("text")?;
        h.add(text.as_bytes());
        for (name, attribute) in &module.attributes {
            let Some(value) = &attribute.value else { continue };
            h.add(name.as_bytes());
            h.add(format!("{:?} {:?} {:?}", attribute.kind, value.dtype(), value.shape()).as_bytes());
            hash_tensor(&mut h, value);
        }
        Some(CachedModel::new(cache, h.finish(), None))
    }

    fn new(cache: &Arc<Cache>, key: Digest, archive: Option<(PathBuf, Arc<Mmap>)>) -> CachedModel {
        CachedModel {
            cache: cache.clone(),
            key,
            archive,
            record: ModelRecord::default(),
            opened: Mutex::default(),
        }
    }

    /// The model, or only its inputs, as it was read.
    pub(in crate::driver) fn described_by(self, module: &GraphModule) -> CachedModel {
        CachedModel {
            record: ModelRecord::of_module(module),
            ..self
        }
    }

    /// Reads the model's inputs from one of its entries, if there is any.
    pub(in crate::driver) fn read_inputs(&self, sources: &mut Sources) -> Option<GraphModule> {
        let prefix = format!("{}-", self.key);
        let is_own = |p: &Path| {
            p.file_name()
                .and_then(|n| n.to_str())
                .is_some_and(|n| n.starts_with(&prefix))
        };
        let entries = self.cache.safe_entries().into_iter().rev().filter(|e| is_own(&e.path));
        entries.into_iter().find_map(|e| {
            let read = CompiledFile::open(&e.path).map_err(Diagnostics::from);
            match read.and_then(|file| file.read_inputs(sources)) {
                Ok(module) => Some(module),
                Err(_) => {
                    drop_entry(&e.path);
                    None
                }
            }
        })
    }

    /// Reads the graphs from the archive in the state in which it was mapped.
    pub(in crate::driver) fn read_module(&self) -> Result<GraphModule, Diagnostics> {
        let Some((path, map)) = &self.archive else {
            return Err(Diagnostics::new());
        };
        match import::read_mapped_pt2(path, map.clone()) {
            Ok((module, findings)) if !findings.has_errors() => Ok(module),
            Ok((_, findings)) | Err(findings) => Err(findings),
        }
    }

    /// The executable for these input types, if the cache has it.
    pub(in crate::driver) fn load_ready(
        &self,
        session: &mut Session,
        inputs: &GraphModule,
        types: &[Type],
        options: (&PassOptions, usize),
    ) -> Staged<Option<(GraphModule, Ready)>> {
        let Some(path) = self.entry_path(session, types, options.0) else {
            return Ok(None);
        };
        let Some(file) = self.open_entry(&path) else {
            return Ok(None);
        };
        let signature = signature_module(inputs);
        match session.catch_findings(|s| file.load_fitting(s, &signature, types, options)) {
            Ok(Ok(ready)) => Ok(Some(ready)),
            Err(findings) if session.cancel.is_cancelled() => {
                session.diagnostics.extend(findings);
                Err(Reported)
            }
            // If anything is wrong with the entry, the model is compiled again.
            Ok(Err(_)) | Err(_) => {
                self.lock_opened().remove(&path);
                drop_entry(&path);
                Ok(None)
            }
        }
    }

    fn lock_opened(&self) -> MutexGuard<'_, HashMap<PathBuf, Option<Arc<CompiledFile>>>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens an entry once. Later callers share its mapping, even if the file has been removed.
    fn open_entry(&self, path: &Path) -> Option<Arc<CompiledFile>> {
        let mut opened = self.lock_opened();
        if let Some(known) = opened.get(path) {
            return known.clone();
        }
        if !path.exists() || !self.cache.is_safe() {
            return None;
        }
        folder::touch(path);
        match CompiledFile::open(path) {
            Ok(file) => opened.entry(path.into()).or_insert(Some(file)).clone(),
            Err(_) => {
                drop_entry(path);
                None
            }
        }
    }

    /// Creates an entry for code that was just compiled. It is written later: see [`PendingEntry::write`].
    pub(in crate::driver) fn keep(&self, session: &mut Session, executable: &Executable, key: (&[Type], &PassOptions)) {
        let (types, passes) = key;
        let Some((path, options)) = self
            .entry_path(session, types, passes)
            .zip(code_options(passes, session))
        else {
            return;
        };
        let bytes = PartSource::data_bytes(executable);
        {
            let mut opened = self.lock_opened();
            let is_early = opened.values().filter(|e| e.is_none()).count() < LARGE_ENTRIES;
            let known = opened.insert(path.clone(), None).is_some();
            if known || bytes as u64 > self.cache.limit || !(is_early || bytes <= SMALL) {
                return;
            }
        }
        let Ok(part) = PartSource::of_executable(executable) else {
            return;
        };
        session.pending.push(PendingEntry {
            cache: self.cache.clone(),
            path,
            record: self.record.clone(),
            target: session.target.unwrap_or_else(Target::native),
            options,
            part,
            types: types.to_vec(),
        });
    }

    /// The path of the entry for these input types; `None` if such code is not cached.
    fn entry_path(&self, session: &Session, types: &[Type], passes: &PassOptions) -> Option<PathBuf> {
        session.cache.as_ref()?;
        let CodeOptions {
            exact,
            precision,
            fast_math,
            skipped,
        } = code_options(passes, session)?;
        let target = session.target.unwrap_or_else(Target::native);
        let mut h = Hasher::default();
        h.add(&[exact.into(), fast_math.into()]);
        h.add(precision.name().as_bytes());
        h.add(skipped.join(" ").as_bytes());
        target.features().for_each(|f| h.add(f.name().as_bytes()));
        h.add(&key_bytes(types)?);
        Some(self.cache.folder.join(format!("{}-{}.fxc", self.key, h.finish())))
    }
}

/// The part of the key that describes this build. Ops that the program registered are not part of any key, so `None`
/// if there are any.
fn new_key(kind: &str) -> Option<Hasher> {
    let mut h = Hasher::default();
    h.add(BUILD.as_bytes());
    h.add(kind.as_bytes());
    op::custom::registered_ops().is_empty().then_some(h)
}

fn hash_tensor(h: &mut Hasher, t: &Tensor) {
    t.with_bytes(|bytes| h.add_with(bytes, &|read| t.release_part(read)));
}

/// Removes an unusable entry.
fn drop_entry(path: &Path) {
    let _ = std::fs::remove_file(path);
}
