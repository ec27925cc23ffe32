//! The command line: one file per command.
//!
//! Artifacts go to standard output or to the file after `-o`; diagnostics, reports and progress go to standard error.
//! Exit codes: 0 fine; 1 findings in the input (an error in a graph, results that differ, a file that is not formatted);
//! 2 the work could not be done (wrong usage, a file that cannot be read or written, an internal fault).

mod bench;
mod bisect;
mod cache;
mod check;
mod compile;
mod completions;
mod crash;
mod emit_code;
mod explain;
mod fmt;
mod generate;
mod info;
mod inputs;
mod limits;
mod man;
mod model;
mod ops;
mod opt;
mod output;
mod passes;
mod print;
mod quantize;
mod reduce;
mod rewrite;
mod run;
#[cfg(unix)]
mod signals;
mod weights;

use crate::budget;
use crate::diag::render::{self, DiagnosticFormat};
use crate::diag::{self, Code, Diagnostic, Diagnostics};
use crate::driver::Session;
use crate::fs::abandon_outputs;
use crate::tensor::explain_lost_files;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// An optimizing compiler for torch.fx graphs: reads a graph, checks it, compiles it to native code and runs it.
///
/// A MODEL is an FXIR file, a graph printed by torch, a .pt2 archive from torch.export.save, a compiled model (.fxc),
/// or `-` for standard input.
#[derive(Parser)]
#[command(name = "fxc", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    /// The format of diagnostics.
    #[arg(
        long,
        global = true,
        help_heading = "Diagnostics",
        value_name = "FORMAT",
        default_value = "human"
    )]
    message_format: MessageFormat,
    /// When to colour diagnostics.
    #[arg(
        long,
        global = true,
        help_heading = "Diagnostics",
        value_name = "WHEN",
        default_value = "auto"
    )]
    color: ColorChoice,
    #[command(flatten)]
    limits: limits::LimitArgs,
    /// Accept weights files in this folder that a model's text names. Otherwise they must be in the folder of the text, or
    /// be passed with --weights
    #[arg(long, global = true, help_heading = "Files", value_name = "DIR")]
    allow_path: Vec<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum MessageFormat {
    /// Source excerpts with labels, notes and help.
    Human,
    /// One line per diagnostic.
    Short,
    /// One JSON object per line.
    Json,
    /// One SARIF 2.1.0 document.
    Sarif,
}

#[derive(Clone, Copy, ValueEnum)]
enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Subcommand)]
enum Command {
    Compile(compile::Args),
    EmitCode(emit_code::Args),
    Run(run::Args),
    Generate(generate::Args),
    Check(check::Args),
    Fmt(fmt::Args),
    Print(print::Args),
    Opt(opt::Args),
    Rewrite(rewrite::Args),
    Quantize(quantize::Args),
    Bench(bench::Args),
    Bisect(bisect::Args),
    Reduce(reduce::Args),
    Info(info::Args),
    Cache(cache::Args),
    Explain(explain::Args),
    Ops(ops::Args),
    Passes(passes::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// Why a command ends early.
pub(crate) enum Stop {
    /// The problem has been reported to the session's diagnostics.
    Reported,
    /// The problem.
    Error(Box<Diagnostic>),
    /// There are findings, and the command has printed them itself: exit code 1.
    Findings,
}

impl From<crate::driver::Reported> for Stop {
    fn from(_: crate::driver::Reported) -> Stop {
        Stop::Reported
    }
}

impl From<Diagnostic> for Stop {
    fn from(d: Diagnostic) -> Stop {
        Stop::Error(Box::new(d))
    }
}

/// The result of a command.
pub(crate) type Outcome = Result<(), Stop>;

/// The context of a command: the session, and how to show findings.
pub(crate) struct App {
    /// Sources and findings.
    pub session: Session,
    format: DiagnosticFormat,
    color: bool,
    /// The number of the session's findings that have been shown.
    shown: usize,
    /// The number of findings that have been counted in a summary.
    summed: usize,
    /// The name of the model, for the summary.
    subject: String,
    /// Lines of progress that have been shown and are not repeated.
    said: Vec<String>,
}

impl App {
    fn new(cli: &Cli) -> App {
        let format = match cli.message_format {
            MessageFormat::Human => DiagnosticFormat::Human,
            MessageFormat::Short => DiagnosticFormat::Short,
            MessageFormat::Json => DiagnosticFormat::Json,
            MessageFormat::Sarif => DiagnosticFormat::Sarif,
        };
        let color = match cli.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            }
        };
        let mut session = Session::new();
        session.allowed = cli.allow_path.clone();
        App {
            session,
            format,
            color,
            shown: 0,
            summed: 0,
            subject: String::new(),
            said: vec![],
        }
    }

    /// Sets the name of the current model, for the summary.
    pub(crate) fn set_subject(&mut self, name: &str) {
        self.subject = name.to_string();
    }

    /// Shows a line of progress on standard error, only in the human format.
    pub(crate) fn show_progress(&self, line: &str) {
        if self.format == DiagnosticFormat::Human {
            output::write_progress(line);
        }
    }

    /// [`progress`](App::show_progress) for a line that holds for the whole command and is shown once.
    pub(crate) fn say_once(&mut self, line: &str) {
        if !self.said.iter().any(|s| s == line) {
            self.show_progress(line);
            self.said.push(line.to_string());
        }
    }

    /// Shows the findings so far, before output that depends on them. SARIF is a single document, so it waits until the
    /// end.
    pub(crate) fn show_findings(&mut self) {
        if self.format != DiagnosticFormat::Sarif {
            self.write_new();
        }
    }

    /// Prepares the last words of the program for the case that a mapped file loses its bytes.
    fn explain_lost_files(&self) {
        let d = Diagnostic::new(Code::E0701, "a file that is in use was shortened, or its disk failed")
            .note("models, weights and inputs are mapped, not copied: they must not change while fxc runs");
        let text = render::render(&self.session.sources, &[&d], self.format, self.color);
        explain_lost_files(text.into_bytes(), abandon_outputs);
    }

    fn write_new(&mut self) {
        let new: Vec<&Diagnostic> = self.session.diagnostics.iter().skip(self.shown).collect();
        let text = render::render(&self.session.sources, &new, self.format, self.color);
        // Standard error may be closed. Then there is nowhere left to report that.
        let _ = std::io::stderr().write_all(text.as_bytes());
        self.shown = self.session.diagnostics.len();
    }

    /// Shows the remaining findings and the summary. Returns the exit code.
    fn finish(mut self, outcome: Outcome) -> ExitCode {
        let findings = matches!(outcome, Err(Stop::Findings));
        if let Err(Stop::Error(d)) = outcome {
            self.session.diagnostics.push(*d);
        }
        self.write_new();
        self.sum_up();
        self.write_cache();
        match exit_code(&self.session.diagnostics) {
            0 if findings => ExitCode::from(1),
            n => ExitCode::from(n),
        }
    }

    /// Keeps what was compiled, after the results have been shown. What cannot be kept is compiled again.
    fn write_cache(&mut self) {
        for entry in std::mem::take(&mut self.session.pending) {
            let _ = entry.write();
        }
    }

    /// Shows and summarizes the findings since the last call, for commands that take several models.
    pub(crate) fn sum_up(&mut self) {
        self.show_findings();
        let new: Vec<&Diagnostic> = self.session.diagnostics.iter().skip(self.summed).collect();
        // If a file could not be read, there is nothing to summarize.
        let about_model = !self.subject.is_empty() && new.iter().any(|d| !is_failure(d.code));
        if matches!(self.format, DiagnosticFormat::Human | DiagnosticFormat::Short)
            && about_model
            && let Some(line) = render::summary_line(&self.subject, &new)
        {
            output::write_progress(&line);
        }
        self.summed = self.session.diagnostics.len();
    }
}

/// Whether a finding means that the work could not be done rather than that the input is wrong.
fn is_failure(code: Code) -> bool {
    matches!(code, Code::E0408 | Code::E0701 | Code::E0702 | Code::E0703)
}

fn exit_code(list: &Diagnostics) -> u8 {
    let worst = list
        .iter()
        .filter(|d| d.is_error())
        .map(|d| if is_failure(d.code) { 2 } else { 1 });
    worst.max().unwrap_or(0)
}

/// Runs the program: parses the arguments and runs the command. Returns the exit code.
pub fn main() -> ExitCode {
    limits::report_exhaustion_of_memory();
    crash::guard(run_program)
}

fn run_program() -> ExitCode {
    let cli = Cli::parse();
    let mut app = App::new(&cli);
    cli.limits.enforce(app.format, app.color);
    #[cfg(unix)]
    signals::watch();
    #[cfg(debug_assertions)]
    crash::fail_if_asked();
    app.explain_lost_files();
    let outcome = budget::catch_refusal(|| run_command(&mut app, &cli.command));
    let outcome = outcome.unwrap_or_else(|refused| Err(diag::limits::out_of_memory(refused).into()));
    app.finish(outcome)
}

fn run_command(app: &mut App, command: &Command) -> Outcome {
    match command {
        Command::Compile(a) => compile::main(app, a),
        Command::EmitCode(a) => emit_code::main(app, a),
        Command::Run(a) => run::main(app, a),
        Command::Generate(a) => generate::main(app, a),
        Command::Check(a) => check::main(app, a),
        Command::Fmt(a) => fmt::main(app, a),
        Command::Print(a) => print::main(app, a),
        Command::Rewrite(a) => rewrite::main(app, a),
        Command::Quantize(a) => quantize::main(app, a),
        Command::Bench(a) => bench::main(app, a),
        Command::Bisect(a) => bisect::main(app, a),
        Command::Reduce(a) => reduce::main(app, a),
        Command::Opt(a) => opt::main(app, a),
        Command::Info(a) => info::main(app, a),
        Command::Cache(a) => cache::main(app, a),
        Command::Explain(a) => explain::main(a),
        Command::Ops(a) => ops::main(a),
        Command::Passes(a) => passes::main(a),
        Command::Completions(a) => completions::main(a, &mut Cli::command()),
        Command::Man(a) => man::main(a, Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn exit_codes_tell_findings_from_failures() {
        let list = |codes: &[Code]| {
            let mut out = Diagnostics::new();
            out.extend(codes.iter().map(|&c| Diagnostic::new(c, c.title())));
            out
        };
        assert_eq!(exit_code(&list(&[])), 0);
        assert_eq!(exit_code(&list(&[Code::L0001])), 0);
        assert_eq!(exit_code(&list(&[Code::L0001, Code::E0201])), 1);
        assert_eq!(exit_code(&list(&[Code::E0201, Code::E0701])), 2);
    }
}
