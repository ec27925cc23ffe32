//! Runs a smaller model in a process of its own, which may crash or hang, and tells how it fails.

use super::{has_weights, input_arguments, input_tensors, text_with_weights};
use crate::cli::Stop;
use crate::diag::Diagnostic;
use crate::driver::{Failing, files};
use crate::graph::{self, GraphModule};
use crate::import;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How a model fails. Two failures are the same if they are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It does not.
    None,
    /// The command of the user succeeded.
    Command,
    /// A diagnostic, by its code.
    Error(String),
    /// An internal error, by its place in fxc's source.
    Internal(String),
    /// A signal.
    Crash(i32),
    /// It takes too long.
    Hang,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::None => f.write_str("none"),
            Failure::Command => f.write_str("the command succeeds"),
            Failure::Error(code) => write!(f, "error {code}"),
            Failure::Internal(place) => write!(f, "an internal error at {place}"),
            Failure::Crash(signal) => write!(f, "signal {signal}"),
            Failure::Hang => f.write_str("it does not end"),
        }
    }
}

/// A folder for the smaller models, and how they are run.
pub(super) struct Trial {
    folder: PathBuf,
    options: Vec<String>,
    command: Option<String>,
    timeout: Duration,
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Trial {
    pub(super) fn new(options: Vec<String>, command: Option<String>, timeout: Duration) -> Result<Trial, Diagnostic> {
        let folder = std::env::temp_dir().join(format!("fxc-reduce-{}", std::process::id()));
        let made = std::fs::create_dir(&folder);
        made.map_err(|e| files::unwritable_file(&folder, &files::plain_io_error(&e)))?;
        Ok(Trial {
            folder,
            options,
            command,
            timeout,
        })
    }

    /// Runs a model and returns how it fails.
    pub(super) fn observe(&mut self, f: &Failing) -> Result<Failure, Stop> {
        let (model, inputs) = (self.folder.join("model.fxir"), self.folder.join("inputs.safetensors"));
        let weights = write_weights(&f.module, &model)?;
        files::write(&model, text_with_weights(&f.module, weights.as_deref()).as_bytes())?;
        files::write_tensors(&inputs, &input_tensors(f))?;
        let mut command = match &self.command {
            Some(text) => shell_command(text, &model, &inputs),
            None => self.run_command(&model, &inputs, f),
        };
        let errors = self.folder.join("errors.txt");
        let stderr = File::create(&errors).map_err(|e| files::unwritable_file(&errors, &files::plain_io_error(&e)))?;
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn();
        let mut process = process.map_err(|e| files::unreadable_file(Path::new("sh"), &files::plain_io_error(&e)))?;
        let start = Instant::now();
        let status = loop {
            match process.try_wait() {
                Ok(Some(status)) => break status,
                _ if start.elapsed() > self.timeout => {
                    let _ = process.kill();
                    let _ = process.wait();
                    return Ok(if self.command.is_some() {
                        Failure::None
                    } else {
                        Failure::Hang
                    });
                }
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        Ok(match self.command {
            Some(_) if status.success() => Failure::Command,
            Some(_) => Failure::None,
            None => classify(status, &std::fs::read_to_string(&errors).unwrap_or_default()),
        })
    }

    /// `fxc run` in the folder, where an internal error leaves its file.
    fn run_command(&self, model: &Path, inputs: &Path, f: &Failing) -> Command {
        let program = std::env::current_exe().unwrap_or_else(|_| "fxc".into());
        let mut command = Command::new(program);
        command.arg("run").arg(model).arg("--inputs").arg(inputs);
        command
            .args(input_arguments(f))
            .args(&self.options)
            .current_dir(&self.folder)
            .env("TMPDIR", &self.folder);
        command
    }
}

fn shell_command(text: &str, model: &Path, inputs: &Path) -> Command {
    let quoted = |p: &Path| format!("'{}'", p.display().to_string().replace('\'', r"'\''"));
    let text = text.replace("{inputs}", &quoted(inputs)).replace("{}", &quoted(model));
    let mut command = Command::new("sh");
    command.arg("-c").arg(text);
    command
}

fn classify(status: ExitStatus, errors: &str) -> Failure {
    if status.success() {
        return Failure::None;
    }
    if let Some((_, rest)) = errors.split_once("internal error: panicked at ") {
        return Failure::Internal(rest.split(": ").next().unwrap_or_default().to_string());
    }
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Failure::Crash(signal);
    }
    let code = errors.split_once("error[").and_then(|(_, rest)| rest.split(']').next());
    Failure::Error(code.unwrap_or("without a code").to_string())
}

/// Writes the weights of a text next to it. Returns their file's name, if there are any.
pub(super) fn write_weights(m: &GraphModule, text: &Path) -> Result<Option<String>, Diagnostic> {
    if !has_weights(m) {
        return Ok(None);
    }
    let path = text.with_extension("safetensors");
    import::write_weights(m, &path, |_, a| graph::print::is_stored(a))?;
    Ok(path.file_name().map(|n| n.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_apart_by_code_and_place() {
        let status = Command::new("false").status().unwrap();
        let of = |text: &str| classify(status, text);
        assert_eq!(of("error[E0506]: `output.0` differs\n"), Failure::Error("E0506".into()));
        let panic = "error: internal error: panicked at src/a.rs:1:2: index out of range\n";
        assert_eq!(of(panic), Failure::Internal("src/a.rs:1:2".into()));
        assert_eq!(classify(Command::new("true").status().unwrap(), panic), Failure::None);
    }
}
