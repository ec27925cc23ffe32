//! Outputs: written beside the target, then renamed.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The maximum number of symbolic links that are followed, as in Linux.
const MAX_LINKS: usize = 40;

/// The end of the names of incomplete files.
const ENDING: &str = ".fxc.tmp";

/// The part of the target's name that an incomplete file has in its own, in bytes. File systems allow 255 in all.
const NAME_PART: usize = 150;

/// The incomplete files of this process, for [`abandon_outputs`].
static INCOMPLETE: Mutex<Vec<PathBuf>> = Mutex::new(vec![]);

/// Whether [`abandon_outputs`] has removed the incomplete files.
static ABANDONED: AtomicBool = AtomicBool::new(false);

/// A file that is being written.
///
/// The bytes go to a new file in the target's folder, which [`finish`](OutputFile::finish) renames to the target. A
/// reader sees either the old file or the complete new one, and an error leaves the old one. Mappings of the old file
/// keep their bytes. Symbolic links are followed: the link stays. The file keeps its permissions and, where the system
/// allows that, its owner. Its hard links keep the old bytes.
///
/// Standard output, devices and pipes cannot be renamed to: they get the bytes when these are complete. The same holds
/// for a file in a folder that takes no further files; it is not written at all while this process maps it.
pub(crate) struct OutputFile {
    file: BufWriter<File>,
    incomplete: Incomplete,
    place: OutputPlace,
}

/// Where the bytes go in the end.
#[derive(Debug)]
enum OutputPlace {
    /// A regular file, which may exist.
    File(PathBuf, Option<Metadata>),
    /// Anything else, which is opened and written.
    Direct(PathBuf),
    Stdout,
    Stderr,
}

impl OutputFile {
    /// Begins a file that will be at `path`.
    pub(crate) fn create(path: &Path) -> io::Result<OutputFile> {
        let mut place = find_place(path)?;
        let (file, incomplete) = match &place {
            OutputPlace::File(target, old) => match create_beside(target, 0o666) {
                Err(e) if old.as_ref().is_some_and(|m| refuses_files(&e) && !is_mapped(m)) => {
                    place = OutputPlace::Direct(target.clone());
                    create_scratch()?
                }
                created => created?,
            },
            _ => create_scratch()?,
        };
        Ok(OutputFile {
            file: BufWriter::with_capacity(1 << 20, file),
            incomplete,
            place,
        })
    }

    /// Completes the file: from now on it is at its path.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.finish_after(|_| Ok(()))
    }

    /// [`OutputFile::finish`] for a file whose bytes are used without further checks. It is synced to disk before it is
    /// renamed, so that a power failure cannot leave a file with holes.
    pub(crate) fn finish_on_disk(self) -> io::Result<()> {
        self.finish_after(File::sync_data)
    }

    fn finish_after(mut self, before: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        self.file.flush()?;
        before(self.file.get_ref())?;
        match &self.place {
            OutputPlace::File(target, old) => {
                if let Some(old) = old {
                    keep_attributes(&self.incomplete.path, old)?;
                }
                match self.incomplete.rename(target) {
                    // A single file that is mounted into a container.
                    Err(e) if e.kind() == ErrorKind::ResourceBusy && !old.as_ref().is_some_and(is_mapped) => {
                        copy_to(self.file.get_mut(), open_direct(target)?)
                    }
                    renamed => renamed,
                }
            }
            OutputPlace::Direct(path) => copy_to(self.file.get_mut(), open_direct(path)?),
            OutputPlace::Stdout => copy_to(self.file.get_mut(), io::stdout().lock()),
            OutputPlace::Stderr => copy_to(self.file.get_mut(), io::stderr().lock()),
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for OutputFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Writes a whole file, as [`OutputFile`] describes.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match find_place(path)? {
        OutputPlace::File(..) => {
            let mut file = OutputFile::create(path)?;
            file.write_all(bytes)?;
            file.finish()
        }
        OutputPlace::Direct(path) => open_direct(&path)?.write_all(bytes),
        OutputPlace::Stdout => write_stream(io::stdout().lock(), bytes),
        OutputPlace::Stderr => write_stream(io::stderr().lock(), bytes),
    }
}

/// Writes a file `STEM-NUMBER.ENDING` that does not exist yet to the folder for temporary files, for its user alone.
#[cfg_attr(not(feature = "cli"), allow(dead_code))]
pub(crate) fn write_new(stem: &str, ending: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let numbers = (0..).map(|n| format!("{stem}-{}-{n}.{ending}", std::process::id()));
    for name in numbers.take(1000) {
        let path = std::env::temp_dir().join(name);
        match create_new(&path, 0o600) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            created => return created?.write_all(bytes).map(|()| path),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

fn write_stream(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// Removes the incomplete files, because the process is about to end. Outputs that other threads finish meanwhile are
/// dropped. Also called where a signal may have interrupted a thread that is at work here, so it does not wait for ever.
#[cfg_attr(not(feature = "cli"), allow(dead_code))]
pub(crate) fn abandon_outputs() {
    ABANDONED.store(true, Ordering::SeqCst);
    for _ in 0..1000 {
        let all = match INCOMPLETE.try_lock() {
            Ok(all) => all,
            Err(TryLockError::Poisoned(e)) => e.into_inner(),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                continue;
            }
        };
        for path in all.iter() {
            let _ = std::fs::remove_file(path);
        }
        return;
    }
}

/// Whether this is the name of an incomplete file.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(ENDING)
}

/// A file that is removed unless it is renamed.
struct Incomplete {
    path: PathBuf,
}

impl Incomplete {
    /// Registers the file before it exists, so that it is removed whenever the process ends.
    fn new(path: PathBuf) -> Incomplete {
        incomplete_paths().push(path.clone());
        Incomplete { path }
    }

    /// Leaves the file to its owner.
    fn forget(self) {
        incomplete_paths().retain(|p| *p != self.path);
        std::mem::forget(self);
    }

    fn rename(&self, target: &Path) -> io::Result<()> {
        let renamed = std::fs::rename(&self.path, target);
        // The process is about to end for another reason, which is not to look like a failed write.
        while renamed.is_err() && ABANDONED.load(Ordering::SeqCst) {
            std::thread::park();
        }
        renamed
    }
}

impl Drop for Incomplete {
    fn drop(&mut self) {
        // After a rename there is nothing to remove.
        let _ = std::fs::remove_file(&self.path);
        incomplete_paths().retain(|p| *p != self.path);
    }
}

fn incomplete_paths() -> MutexGuard<'static, Vec<PathBuf>> {
    INCOMPLETE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates an incomplete file in the target's folder.
fn create_beside(target: &Path, mode: u32) -> io::Result<(File, Incomplete)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let name = &name[..name.floor_char_boundary(NAME_PART)];
    loop {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = target.with_file_name(format!(".{name}.{}-{n}{ENDING}", std::process::id()));
        // Somebody else's file must not be removed.
        if path.symlink_metadata().is_ok() {
            continue;
        }
        let incomplete = Incomplete::new(path);
        match create_new(&incomplete.path, mode) {
            // A process with the same number, in another container, was faster.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => incomplete.forget(),
            Err(e) => return Err(e),
            Ok(file) => return Ok((file, incomplete)),
        }
    }
}

fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    options.open(path)
}

/// Creates a file for bytes that go somewhere else.
fn create_scratch() -> io::Result<(File, Incomplete)> {
    create_beside(&std::env::temp_dir().join("output"), 0o600)
}

/// Whether a folder takes no new files.
fn refuses_files(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

/// Finds what is to be written at `path`.
fn find_place(path: &Path) -> io::Result<OutputPlace> {
    let mut target = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        match target.to_str() {
            Some("/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1") => return Ok(OutputPlace::Stdout),
            Some("/dev/stderr" | "/dev/fd/2" | "/proc/self/fd/2") => return Ok(OutputPlace::Stderr),
            // Links to descriptors. The file behind one belongs to whoever opened it.
            Some(name) if name.starts_with("/dev/fd/") || name.starts_with("/proc/") => {
                return Ok(OutputPlace::Direct(target));
            }
            _ => {}
        }
        let Ok(next) = std::fs::read_link(&target) else {
            return place_of(target);
        };
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    Err(io::Error::other("too many symbolic links"))
}

/// The place at a path whose symbolic links were resolved.
fn place_of(target: PathBuf) -> io::Result<OutputPlace> {
    match std::fs::metadata(&target) {
        Ok(m) if m.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(m) if m.is_file() => {
            // A file that its owner has made read-only stays what it is, although its folder would allow a rename.
            OpenOptions::new().write(true).open(&target)?;
            Ok(OutputPlace::File(target, Some(m)))
        }
        Ok(_) => Ok(OutputPlace::Direct(target)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(OutputPlace::File(target, None)),
        Err(e) => Err(e),
    }
}

fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).truncate(true).open(path)
}

fn copy_to(from: &mut File, mut to: impl Write) -> io::Result<()> {
    from.rewind()?;
    let mut buffer = vec![0; 1 << 18];
    loop {
        match from.read(&mut buffer)? {
            0 => return to.flush(),
            n => to.write_all(&buffer[..n])?,
        }
    }
}

/// Gives a new file the permissions and, if possible, the owner of the old one.
#[cfg(unix)]
fn keep_attributes(path: &Path, old: &Metadata) -> io::Result<()> {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let new = std::fs::metadata(path)?;
    let is_other = (new.uid(), new.gid()) != (old.uid(), old.gid());
    let kept = !is_other || chown(path, Some(old.uid()), Some(old.gid())).is_ok();
    // With another owner, the bits that run a program as its owner would mean something else.
    let bits = if kept { 0o7777 } else { 0o777 };
    std::fs::set_permissions(path, Permissions::from_mode(old.mode() & bits))
}

#[cfg(not(unix))]
fn keep_attributes(path: &Path, old: &Metadata) -> io::Result<()> {
    std::fs::set_permissions(path, old.permissions())
}

/// Whether this process may have mapped the file: writing in place would change or end its mappings.
#[cfg(target_os = "linux")]
fn is_mapped(file: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = file.ino().to_string();
    // `address permissions offset device inode path`
    let line = |l: &str| l.split_ascii_whitespace().nth(4) == Some(&inode);
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.lines().any(line))
}

#[cfg(not(target_os = "linux"))]
fn is_mapped(_: &Metadata) -> bool {
    true
}
