//! Inputs: regular files, and streams of text.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The maximum size of a text that comes from standard input or a pipe, in bytes. Such a text may have no end.
const MAX_STREAM: usize = 64 << 20;

/// Opens a regular file. Everything else is refused before a byte of it is read: devices and pipes may have no end or
/// never begin, and the system makes up the files of `/proc` and `/sys` as they are read.
pub(crate) fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    // Opening a pipe waits for a writer, and opening a device may have effects. So its kind is found out first.
    refuse_other(&std::fs::metadata(path)?)?;
    let mut options = OpenOptions::new();
    options.read(true);
    // The file may have become a pipe since.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    let meta = file.metadata()?;
    refuse_other(&meta)?;
    Ok((file, meta))
}

/// Opens a text: a regular file, or standard input or another descriptor that the caller of the program opened
/// (`<(…)` in a shell). Returns the reader and the maximum number of bytes to read; `limit` for a file.
pub(crate) fn open_text(path: &Path, limit: usize) -> io::Result<(Box<dyn Read>, usize)> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin().lock()), limit.min(MAX_STREAM)));
    }
    match is_stream(path) && !std::fs::metadata(path)?.is_file() {
        true => Ok((Box::new(File::open(path)?), limit.min(MAX_STREAM))),
        false => Ok((Box::new(open_regular(path)?.0), limit)),
    }
}

/// Whether a path is a descriptor of this process: `-`, `/dev/stdin`, `/dev/fd/3`. It is in no folder, and what is read from it is
/// gone.
pub(crate) fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
        || ["/dev/stdin", "/dev/stdout", "/dev/stderr"]
            .iter()
            .any(|d| path == Path::new(d))
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd")
}

/// Whether a file is in one of the folders or below, after all symbolic links are followed. A file that does not exist
/// is nowhere else.
pub(crate) fn in_folders(file: &Path, folders: &[PathBuf]) -> bool {
    let Ok(file) = file.canonicalize() else { return true };
    let contains = |folder: &PathBuf| {
        let folder = match folder.as_os_str().is_empty() {
            true => Path::new("."),
            false => folder,
        };
        folder.canonicalize().is_ok_and(|f| file.starts_with(f))
    };
    folders.iter().any(contains)
}

fn refuse_other(meta: &Metadata) -> io::Result<()> {
    let reason = match meta.file_type() {
        kind if kind.is_file() && is_made_up(meta) => "it is not stored but made up by the system",
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "is a directory",
        kind => kind_of_special(kind),
    };
    Err(io::Error::new(ErrorKind::InvalidInput, reason))
}

#[cfg(unix)]
fn kind_of_special(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match kind {
        k if k.is_fifo() => "it is a pipe, and a regular file is needed",
        k if k.is_socket() => "it is a socket, and a regular file is needed",
        _ => "it is a device, and a regular file is needed",
    }
}

#[cfg(not(unix))]
fn kind_of_special(_: FileType) -> &'static str {
    "a regular file is needed"
}

/// Whether the file is one of `/proc` or `/sys`.
#[cfg(target_os = "linux")]
fn is_made_up(meta: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let on = |root: &str| std::fs::metadata(root).is_ok_and(|m| m.dev() == meta.dev());
    // In a container without them, these are folders of the file system that holds everything.
    let is_root = std::fs::metadata("/").is_ok_and(|m| m.dev() == meta.dev());
    !is_root && (on("/proc") || on("/sys"))
}

#[cfg(not(target_os = "linux"))]
fn is_made_up(_: &Metadata) -> bool {
    false
}
