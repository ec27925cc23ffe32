//! The folder of the cache: whose it is, what is in it, and how it stays within its size.

use crate::artifact::has_compiled_ending;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Files that are being written are this old only if their process ended before it finished.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Uses closer together than this are one: a use that is recorded changes the file's identity.
const TOUCH_INTERVAL: Duration = Duration::from_secs(60);

/// A compiled model in the cache.
#[derive(Clone, Debug)]
pub struct CacheFile {
    /// Its file.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was used last.
    pub used: SystemTime,
}

/// The folder `FXC_CACHE_DIR`, or the user's folder for caches.
pub(super) fn default_path() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(folder) = var("FXC_CACHE_DIR") {
        return Some(folder);
    }
    let base = if cfg!(windows) {
        var("LOCALAPPDATA")
    } else {
        // The specification of base directories says that relative paths are to be ignored.
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

/// Makes the folder, for its owner alone, if it is not there.
pub(super) fn create(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Why files of the folder must not be run; `None` if only this user can have written them, or if there is no folder.
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

/// Elsewhere the folder is in the user's profile, which the system protects.
#[cfg(not(unix))]
fn why_foreign(_: &Metadata) -> Option<String> {
    None
}

/// The user whom files of this process belong to. The standard library only tells whom files belong to.
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

/// The entries, those first that were not used for longest.
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

/// Records that an entry is used now.
pub(super) fn touch(path: &Path) {
    let now = SystemTime::now();
    let recent = |t: SystemTime| now.duration_since(t).is_ok_and(|age| age < TOUCH_INTERVAL);
    let Ok(file) = fs::File::open(path) else { return };
    if !file.metadata().and_then(|m| m.modified()).is_ok_and(recent) {
        // In a folder that may not be written, entries keep their age.
        let _ = file.set_modified(now);
    }
}

/// Removes entries until the others take at most `limit` bytes; `newest` goes last. Also removes what interrupted processes left.
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

/// Removes all entries, and files that were being written. Gives how many bytes the entries took.
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
        let is_ours = path
            .file_name()
            .and_then(|n| n.to_str())
            .is_some_and(|n| n.starts_with('.') && n.contains(".fxc.") && n.ends_with(".tmp"));
        if is_ours && fs::metadata(&path).and_then(|m| m.modified()).is_ok_and(old) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// A size as people write it: `512MiB`, `2G`, `1000000`.
pub(super) fn parse_size(text: &str) -> Option<u64> {
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
