//! Internal errors: what the user is told when fxc itself fails, and the file that repeats the failure.

use crate::fs;
use std::backtrace::Backtrace;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::{PanicHookInfo, UnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs the program. The exit code of an internal error is 2.
pub(super) fn guard(run: impl FnOnce() -> ExitCode + UnwindSafe) -> ExitCode {
    std::panic::set_hook(Box::new(report));
    std::panic::catch_unwind(run).unwrap_or(ExitCode::from(2))
}

/// Fails if the tests ask for it.
#[cfg(debug_assertions)]
pub(super) fn fail_if_asked() {
    assert!(std::env::var_os("FXC_FAIL").is_none(), "FXC_FAIL is set");
}

/// Says what happened, how to report it, and how to make the report useful.
fn report(panic: &PanicHookInfo<'_>) {
    // Several threads may fail for the same reason.
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if REPORTED.swap(true, Ordering::SeqCst) {
        return;
    }
    let place = panic.location().map_or(String::new(), |l| format!(" at {l}"));
    let what = panic.payload_as_str().unwrap_or("no message");
    let message = format!("panicked{place}: {what}");
    let mut text = format!("error: internal error: {message}\n");
    text += " = note: this is a bug in fxc, not in the model\n";
    match write_replay(&message) {
        Ok(path) => {
            let path = path.display();
            let _ = writeln!(text, " = note: `sh {path}` runs the command again");
            text += " = help: use `fxc reduce` with the model, its inputs and options to reduce the model to the nodes that fail\n";
            let _ = writeln!(text, " = help: report it with {path} and the files that it lists");
        }
        Err(e) => {
            let _ = writeln!(text, " = note: the command could not be written to a file: {e}");
            text += " = help: report it with the command and its files\n";
        }
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn write_replay(message: &str) -> std::io::Result<PathBuf> {
    let trace = Backtrace::force_capture().to_string();
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let args: Vec<&OsStr> = args.iter().map(|a| &**a).collect();
    fs::write_new("fxc-error", "sh", replay_script(message, &trace, &args).as_bytes())
}

/// A shell script that runs a command again. It says which files the command names.
fn replay_script(message: &str, trace: &str, args: &[&OsStr]) -> String {
    let (version, arch, os) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
    let mut text = format!("#!/bin/sh\n# An internal error of fxc {version} on {arch} {os}; this file repeats it.\n");
    comment(&mut text, message);
    for path in args.iter().flat_map(|a| named_files(a)) {
        let bytes = std::fs::metadata(&path).map_or(0, |m| m.len());
        comment(&mut text, &format!("file {}, {bytes} bytes", path.display()));
    }
    if args.iter().any(|a| fs::is_stream(Path::new(a))) {
        comment(
            &mut text,
            "the model came from standard input, whose text is needed too",
        );
    }
    comment(&mut text, trace);
    if let Ok(folder) = std::env::current_dir() {
        let _ = writeln!(text, "cd {} || exit", quote(folder.as_os_str()));
    }
    for (name, value) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FXC_") {
            let _ = writeln!(text, "export {}={}", name.to_string_lossy(), quote(&value));
        }
    }
    let program = std::env::current_exe().unwrap_or_else(|_| "fxc".into());
    let words = std::iter::once(program.as_os_str()).chain(args.iter().copied());
    let words: Vec<String> = words.map(quote).collect();
    let _ = writeln!(text, "exec {}", words.join(" "));
    text
}

fn comment(text: &mut String, lines: &str) {
    for line in lines.lines() {
        let _ = writeln!(text, "# {line}");
    }
}

/// The files that an argument names: `FILE`, or `x=FILE`.
fn named_files(arg: &OsStr) -> Option<PathBuf> {
    let text = arg.to_string_lossy();
    let value = text.split_once('=').map(|(_, v)| v.to_string());
    let mut paths = std::iter::once(PathBuf::from(arg)).chain(value.map(PathBuf::from));
    paths.find(|p| p.is_file())
}

fn quote(word: &OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_runs_the_command_as_it_was_given() {
        let args = ["run", "it's $HOME.fxir", "x=[1, 2]"].map(OsStr::new);
        let text = replay_script("panicked at a.rs:1:2: two\nlines", "0: main", &args);
        assert!(text.ends_with(" 'run' 'it'\\''s $HOME.fxir' 'x=[1, 2]'\n"), "{text}");
        assert!(text.contains("\n# panicked at a.rs:1:2: two\n# lines\n"), "{text}");
    }
}
