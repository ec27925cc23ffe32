//! The user's cache of compiled models: code that one run compiled, for later runs of the same model.
//!
//! An entry is a compiled file ([`artifact`](crate::artifact)) with one native part. It does not contain the graphs
//! and weights, because the model's file does. Its name consists of the model's hash and the hash of everything else
//! that affects the code: options, processor features and input types. So no entry is ever invalid: a changed model
//! has another name.
//!
//! Entries contain code. They are read only from a folder to which only the user can write. Each entry is complete
//! when it appears, under a new name. If anything is wrong with the cache, the model is compiled without it.

mod digest;
mod folder;
mod known;
mod load;
mod model;
mod store;

pub(crate) use folder::CacheFile;
pub use folder::parse_size;
pub(super) use model::CachedModel;
pub use store::finish_cache_writes;
pub(crate) use store::{PendingEntry, write_in_background};

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The default size limit in bytes.
const DEFAULT_LIMIT: u64 = 4 << 30;

/// A folder with compiled models.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
}

/// The reason why the cache is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCache {
    /// The user disabled it.
    Off,
    /// It is unusable, for this reason.
    Unusable(String),
}

impl Cache {
    /// Opens the user's cache, as configured by `FXC_CACHE`, `FXC_CACHE_DIR` and `FXC_CACHE_SIZE`.
    pub fn of_user() -> Result<Arc<Cache>, NoCache> {
        let var = |name: &str| std::env::var(name).unwrap_or_default();
        let is_off = ["off", "0", "no", "false"].contains(&var("FXC_CACHE").to_ascii_lowercase().as_str());
        let limit = match var("FXC_CACHE_SIZE") {
            size if size.is_empty() => DEFAULT_LIMIT,
            size => folder::parse_size(&size).ok_or_else(|| {
                NoCache::Unusable(format!("FXC_CACHE_SIZE is `{size}`, which is not a size such as 2GiB"))
            })?,
        };
        if is_off || limit == 0 {
            return Err(NoCache::Off);
        }
        let unknown = || NoCache::Unusable("the user's home folder is unknown; set FXC_CACHE_DIR".into());
        Cache::open(folder::default_path().ok_or_else(unknown)?, limit)
    }

    /// Opens a cache of at most `limit` bytes in a folder, which need not exist.
    pub fn open(folder: PathBuf, limit: u64) -> Result<Arc<Cache>, NoCache> {
        match folder::why_unsafe(&folder) {
            Some(reason) => Err(NoCache::Unusable(format!("{}: {reason}", folder.display()))),
            None => Ok(Arc::new(Cache { folder, limit })),
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The size limit of all entries together, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The entries, least recently used first.
    pub fn entries(&self) -> Vec<CacheFile> {
        folder::entries(&self.folder)
    }

    /// Returns an error if entries must not be run. Somebody else may have created the folder since the cache was
    /// opened.
    fn is_safe(&self) -> bool {
        folder::why_unsafe(&self.folder).is_none()
    }

    fn safe_entries(&self) -> Vec<CacheFile> {
        match self.is_safe() {
            true => self.entries(),
            false => vec![],
        }
    }

    /// Removes all entries. Returns their size in bytes.
    pub fn clear(&self) -> io::Result<u64> {
        self.forget_hashes();
        folder::clear(&self.folder)
    }
}
