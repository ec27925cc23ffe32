//! The user's cache of compiled models: code that a run compiled, for later runs of the same model.
//!
//! An entry is a compiled file ([`artifact`](crate::artifact)) with one native part and without the graphs and their weights, which
//! are where the model is. Its name is the hash of the model, and the hash of what else decides about code: options, the
//! processor's features and the types of the inputs. So nothing needs to be invalidated: another model has another name.
//!
//! Entries are code. They are read only from a folder that nobody but the user can write to, and each appears whole, under a name that
//! nothing had before. Whatever is wrong with the cache, the model is compiled as if there were none.

mod digest;
mod folder;
mod known;
mod load;
mod model;
mod store;

pub use folder::CacheFile;
pub(super) use model::CachedModel;
pub use store::{PendingEntry, finish_cache_writes, write_in_background};

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The size that the folder has by default.
const DEFAULT_LIMIT: u64 = 4 << 30;

/// A folder with compiled models.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
}

/// The reason why there is no cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoCache {
    /// The user does not want one.
    Off,
    /// It cannot be used, for this reason.
    Unusable(String),
}

impl Cache {
    /// The user's cache, as `FXC_CACHE`, `FXC_CACHE_DIR` and `FXC_CACHE_SIZE` say.
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

    /// A cache in a folder, which need not exist, of at most `limit` bytes.
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

    /// The size in bytes that the entries may take together.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The entries, those first that were not used for longest.
    pub fn entries(&self) -> Vec<CacheFile> {
        folder::entries(&self.folder)
    }

    /// Whether entries may be run. Somebody else may have made the folder since the cache was opened.
    fn is_safe(&self) -> bool {
        folder::why_unsafe(&self.folder).is_none()
    }

    fn safe_entries(&self) -> Vec<CacheFile> {
        match self.is_safe() {
            true => self.entries(),
            false => vec![],
        }
    }

    /// Removes all entries. Gives how many bytes they took.
    pub fn clear(&self) -> io::Result<u64> {
        self.forget_hashes();
        folder::clear(&self.folder)
    }
}
