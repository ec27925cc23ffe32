//! Writes artifacts: to standard output, or to a file that is replaced as a whole.

use super::Stop;
use crate::diag::{Code, Diagnostic};
use crate::driver::files;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Writes to standard output. It is not an error if the reader has closed the pipe (`fxc ops | head`): the remaining
/// output is dropped, and the command goes on, because it may have files to write and findings to report.
pub(super) fn write_stdout(bytes: &[u8]) -> Result<(), Stop> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(e) => {
            let title = format!("cannot write to standard output: {}", files::plain_io_error(&e));
            Err(Stop::Error(Box::new(Diagnostic::new(Code::E0702, title))))
        }
    }
}

/// Writes an artifact to `path`, or to standard output if that is `None` or `-`.
pub(super) fn write_artifact(path: Option<&str>, bytes: &[u8]) -> Result<(), Stop> {
    match path {
        None | Some("-" | "/dev/stdout") => write_stdout(bytes),
        Some(p) => files::write(Path::new(p), bytes).map_err(|d| Stop::Error(Box::new(d))),
    }
}

/// Writes a line of progress to standard error. It is not an error if that is closed.
pub(super) fn write_progress(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
