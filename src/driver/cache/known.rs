//! Remembers the hashes of archives, so that a process need not read a file that has not changed since it was hashed.
//!
//! A file counts as unchanged if it is the same inode with the same length and the same modification and status
//! change times, as in git's index. A write changes these times, but not always at once: if a process has mapped a
//! page and already written to it, further writes go unnoticed until the system stores the page, half a minute later.
//! Therefore only hashes of files that have not changed for a while are kept.

use super::digest::Digest;
use super::{Cache, folder};
use crate::artifact::BUILD;
use crate::fs as files;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The file in the cache's folder: one line per archive, the most recently hashed last.
const NAME: &str = "archives.txt";

/// The maximum number of archives that are remembered.
const MOST: usize = 1000;

/// The time without changes after which the hash of a file is kept. It exceeds the time for which the system defers
/// the writing of mapped pages.
const REST: Duration = Duration::from_secs(60);

/// The identity of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    /// The inode, the length and the times; also the build of fxc, because hashes depend on it.
    text: String,
    changed: SystemTime,
}

impl FileState {
    /// The state of a file; `None` on systems that do not provide it.
    pub(super) fn of_path(path: &Path) -> Option<FileState> {
        FileState::of_metadata(&fs::metadata(path).ok()?)
    }

    #[cfg(unix)]
    fn of_metadata(meta: &Metadata) -> Option<FileState> {
        use std::os::unix::fs::MetadataExt;
        let times = [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())];
        let (seconds, nanos) = times.into_iter().max()?;
        let after_epoch = Duration::new(seconds.try_into().ok()?, nanos.try_into().ok()?);
        Some(FileState {
            text: format!("{} {} {} {times:?} {BUILD}", meta.dev(), meta.ino(), meta.len()),
            changed: SystemTime::UNIX_EPOCH.checked_add(after_epoch)?,
        })
    }

    #[cfg(not(unix))]
    fn of_metadata(_: &Metadata) -> Option<FileState> {
        None
    }

    fn has_rested(&self) -> bool {
        SystemTime::now()
            .duration_since(self.changed)
            .is_ok_and(|age| age > REST)
    }
}

impl Cache {
    /// The hash of the file in this state, if it is known.
    pub(super) fn known_hash(&self, state: &FileState) -> Option<Digest> {
        if !self.is_safe() {
            return None;
        }
        let text = fs::read_to_string(self.list_of_archives()).ok()?;
        let mut entries = text.lines().rev().filter_map(|line| line.split_once(' '));
        let known = entries.find(|(_, known)| *known == state.text);
        known.and_then(|(digest, _)| Digest::parse(digest))
    }

    /// Stores the hash of a file. If that fails, each process hashes the file again.
    pub(super) fn keep_hash(&self, state: &FileState, digest: Digest) {
        if state.has_rested() {
            let _ = self.write_hash(state, digest);
        }
    }

    fn write_hash(&self, state: &FileState, digest: Digest) -> io::Result<()> {
        folder::create(&self.folder)?;
        if !self.is_safe() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let path = self.list_of_archives();
        let old = fs::read_to_string(&path).unwrap_or_default();
        let is_same = |line: &str| line.split_once(' ').is_some_and(|(_, known)| known == state.text);
        let lines: Vec<&str> = old.lines().filter(|l| !is_same(l)).collect();
        let recent = &lines[lines.len().saturating_sub(MOST - 1)..];
        let mut text: String = recent.iter().map(|l| format!("{l}\n")).collect();
        text += &format!("{digest} {}\n", state.text);
        // Processes that write at the same time may lose each other's lines, but each reads a complete file.
        files::write(&path, text.as_bytes())
    }

    /// Forgets all archives.
    pub(super) fn forget_hashes(&self) {
        // The file may not exist.
        let _ = fs::remove_file(self.list_of_archives());
    }

    fn list_of_archives(&self) -> PathBuf {
        self.folder.join(NAME)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::super::digest::Hasher;
    use super::*;

    #[test]
    fn only_the_same_state_of_a_file_is_known() {
        let dir = std::env::temp_dir().join(format!("fxc-known-{}", std::process::id()));
        let cache = Cache::open(dir.join("cache"), 1 << 20).unwrap();
        folder::create(&dir).unwrap();
        let file = dir.join("model.pt2");
        fs::write(&file, b"one").unwrap();
        let fresh = FileState::of_path(&file).unwrap();
        let digest = Hasher::default().finish();
        cache.keep_hash(&fresh, digest);
        assert_eq!(
            cache.known_hash(&fresh),
            None,
            "a file that has just changed may change unnoticed"
        );

        let rested = FileState {
            changed: SystemTime::UNIX_EPOCH,
            ..fresh
        };
        cache.keep_hash(&rested, digest);
        assert_eq!(cache.known_hash(&rested), Some(digest));
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        fs::write(&file, b"two").unwrap();
        let other = FileState::of_path(&file).unwrap();
        assert_ne!(other.text, rested.text);
        assert_eq!(cache.known_hash(&other), None);
        for i in 0..MOST {
            let text = format!("{i}");
            cache.keep_hash(&FileState { text, ..rested.clone() }, digest);
        }
        assert_eq!(cache.known_hash(&rested), None, "the list has an end");
        cache.clear().unwrap();
        assert_eq!(
            cache.known_hash(&FileState {
                text: "5".into(),
                ..rested
            }),
            None
        );
        fs::remove_dir_all(dir).unwrap();
    }
}
