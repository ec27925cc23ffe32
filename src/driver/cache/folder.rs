//! The cache's folder: its owner, its entries and its size limit.

use crate::artifact::has_compiled_ending;
use crate::fs::is_temporary;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A temporary file of this age was left by a process that ended before it finished writing.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A use within this time of the last recorded use is not recorded, because recording it changes the file's identity.
const TOUCH_INTERVAL: Duration = Duration::from_secs(60);

/// A compiled model in the cache.
#[derive(Clone, Debug)]
pub struct CacheFile {
    /// The path.
    pub path: PathBuf,
    /// The size in bytes.
    pub bytes: u64,
    /// The time of the last use.
    pub used: SystemTime,
}

/// The folder `FXC_CACHE_DIR`, or the user's cache folder.
pub(super) fn default_path() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(folder) = var("FXC_CACHE_DIR") {
        return Some(folder);
    }
    let base = if cfg!(windows) {
        var("LOCALAPPDATA")
    } else {
        // The XDG base directory specification says to ignore relative paths.
        let configured = var("XDG_CACHE_HOME").filter(|p| p.is_absolute());
        let below = if cfg!(target_os = "macos") {
            "Library/Caches"
        } else {
            ".cache"
        };
        configured.or_else(|| Some(var("HOME")?.join(below)))
    };
    Some(base?.join("fxc"))
}

/// Creates the folder if it does not exist, accessible only to its owner.
pub(super) fn create(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// The reason why files in the folder must not be run; `None` if only this user can have written them, or if there is
/// no folder.
pub(super) fn why_unsafe(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    if !meta.is_dir() {
        return Some("it is not a folder".into());
    }
    why_foreign(&meta)
}

#[cfg(unix)]
fn why_foreign(meta: &Metadata) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    if meta.mode() & 0o022 != 0 {
        return Some("other users may write to it".into());
    }
    match own_user() {
        Some(user) if user == meta.uid() => None,
        Some(_) => Some("it belongs to another user".into()),
        None => Some("its owner cannot be compared with the user".into()),
    }
}

/// On other systems the folder is in the user's profile, which the system protects.
#[cfg(not(unix))]
fn why_foreign(_: &Metadata) -> Option<String> {
    None
}

/// The user id of this process. The standard library only has the owner of files, so this looks at a file.
#[cfg(unix)]
fn own_user() -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    if let Ok(process) = fs::metadata("/proc/self") {
        return Some(process.uid());
    }
    let probe = std::env::temp_dir().join(format!("fxc-{}-owner", std::process::id()));
    let file = fs::File::create_new(&probe).ok()?;
    let owner = file.metadata().ok().map(|m| m.uid());
    let _ = fs::remove_file(&probe);
    owner
}

/// The entries, least recently used first.
pub(super) fn entries(path: &Path) -> Vec<CacheFile> {
    let Ok(files) = fs::read_dir(path) else { return vec![] };
    let entry = |path: PathBuf| {
        let meta = fs::symlink_metadata(&path).ok().filter(Metadata::is_file)?;
        let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let bytes = meta.len();
        Some(CacheFile { path, bytes, used })
    };
    let paths = files.flatten().map(|f| f.path()).filter(|p| has_compiled_ending(p));
    let mut all: Vec<CacheFile> = paths.filter_map(entry).collect();
    all.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
    all
}

/// Records that an entry was used now.
pub(super) fn touch(path: &Path) {
    let now = SystemTime::now();
    let recent = |t: SystemTime| now.duration_since(t).is_ok_and(|age| age < TOUCH_INTERVAL);
    let Ok(file) = fs::File::open(path) else { return };
    if !file.metadata().and_then(|m| m.modified()).is_ok_and(recent) {
        // Ignore errors: in a read-only folder, entries keep their age.
        let _ = file.set_modified(now);
    }
}

/// Removes the least recently used entries until the others need at most `limit` bytes. `newest` is removed last.
/// Also removes temporary files of interrupted processes.
pub(super) fn shrink(path: &Path, limit: u64, newest: &Path) {
    let mut all = entries(path);
    all.sort_by_key(|e| e.path == newest);
    let mut total: u64 = all.iter().map(|e| e.bytes).sum();
    for e in &all {
        if total <= limit {
            break;
        }
        // Another process may have removed it.
        let _ = fs::remove_file(&e.path);
        total -= e.bytes;
    }
    remove_temporary(path, ABANDONED);
}

/// Removes all entries and temporary files. Returns the size of the entries in bytes.
pub(super) fn clear(path: &Path) -> io::Result<u64> {
    let mut freed = 0;
    for e in entries(path) {
        match fs::remove_file(&e.path) {
            Ok(()) => freed += e.bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    remove_temporary(path, Duration::ZERO);
    Ok(freed)
}

fn remove_temporary(path: &Path, age: Duration) {
    let Ok(files) = fs::read_dir(path) else { return };
    for path in files.flatten().map(|f| f.path()) {
        let old = |t: SystemTime| t.elapsed().is_ok_and(|a| a >= age);
        let is_ours = path.file_name().and_then(|n| n.to_str()).is_some_and(is_temporary);
        if is_ours && fs::metadata(&path).and_then(|m| m.modified()).is_ok_and(old) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Parses a size: `512MiB`, `2G`, `1000000`.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim().to_ascii_lowercase();
    let unit = unit
        .strip_suffix('b')
        .map_or(&*unit, |u| u.strip_suffix('i').unwrap_or(u));
    let power = match *unit.as_bytes() {
        [] => 0,
        [letter] => 1 + b"kmgt".iter().position(|&u| u == letter)?,
        _ => return None,
    };
    number.checked_mul(1 << (10 * power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let cases = [
            ("0", 0),
            ("1000", 1000),
            ("512MiB", 512 << 20),
            ("2G", 2 << 30),
            (" 3 kb ", 3072),
        ];
        for (text, size) in cases {
            assert_eq!(parse_size(text), Some(size), "{text}");
        }
        for text in ["", "much", "-1", "1.5G", "9x", "99999999T"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }
}
