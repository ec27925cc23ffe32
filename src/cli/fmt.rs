//! `fxc fmt`: formats FXIR canonically.

use super::{App, Outcome, Stop, output};
use crate::diag::{Code, Diagnostic};
use crate::driver::files::{self, Content};
use crate::driver::load;
use crate::syntax;
use std::path::Path;

/// Format FXIR files, preserving comments
#[derive(clap::Args)]
pub(super) struct Args {
    /// The files; `-` formats standard input to standard output
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Print the changes as a diff without writing them, and exit with 1 if there are any
    #[arg(long)]
    check: bool,
}

/// `fxc fmt`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    let (mut failed, mut changed) = (false, false);
    for path in &args.files {
        app.set_subject(path);
        match format_file(app, path, args.check) {
            Ok(c) => changed |= c,
            Err(Stop::Error(d)) => {
                app.session.report(*d);
                failed = true;
            }
            Err(_) => failed = true,
        }
    }
    match (failed, args.check && changed) {
        (true, _) => Err(Stop::Reported),
        (_, true) => Err(Stop::Findings),
        _ => Ok(()),
    }
}

/// Formats one file. Returns whether that changed it.
fn format_file(app: &mut App, path: &str, check: bool) -> Result<bool, Stop> {
    let text = read_text(path)?;
    let (tree, _, findings) = load::parse_text(&mut app.session.sources, path, &text);
    let broken = findings.has_errors();
    app.session.diagnostics.extend(findings);
    if broken {
        return Err(Stop::Reported);
    }
    let formatted = syntax::format(&tree, &text);
    let changed = formatted != text;
    if check {
        if changed {
            output::write_stdout(diff_lines(path, &text, &formatted).as_bytes())?;
        }
    } else if files::is_stream(path) {
        output::write_stdout(formatted.as_bytes())?;
    } else if changed {
        files::write(Path::new(path), formatted.as_bytes())?;
    }
    Ok(changed)
}

fn read_text(path: &str) -> Result<String, Stop> {
    let Content::Text(bytes) = files::read_model(path)? else {
        let title = format!("`{path}` is an archive, not text");
        return Err(Diagnostic::new(Code::E0703, title)
            .help(format!("run `fxc print {path}` to write its graph as FXIR"))
            .into());
    };
    String::from_utf8(bytes).map_err(|_| {
        // Bytes that are not UTF-8 would be lost in the rewritten file.
        Diagnostic::new(Code::E0701, format!("`{path}` is not UTF-8 text")).into()
    })
}

/// The lines that differ, in the format of `diff`, between the common start and end.
fn diff_lines(path: &str, old: &str, new: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let head = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let rest = a.len().min(b.len()) - head;
    let tail = a
        .iter()
        .rev()
        .zip(b.iter().rev())
        .take_while(|(x, y)| x == y)
        .count()
        .min(rest);
    let mut out = format!("--- {path}\n+++ {path} (formatted)\n@@ line {} @@\n", head + 1);
    for line in &a[head..a.len() - tail] {
        out.push_str(&format!("-{line}\n"));
    }
    for line in &b[head..b.len() - tail] {
        out.push_str(&format!("+{line}\n"));
    }
    out
}
