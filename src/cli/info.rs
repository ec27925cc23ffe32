//! `fxc info`: describes a compiled model.

use super::{App, Outcome, output};
use crate::driver::describe::describe_file;
use crate::driver::{CompiledFile, PartInfo, build_name};
use crate::tensor::shown_bytes;
use std::fmt::Write;
use std::path::PathBuf;

/// Describe a compiled model and which of its code this machine can run
#[derive(clap::Args)]
pub(super) struct Args {
    /// The compiled model
    #[arg(value_name = "FILE.fxc")]
    file: PathBuf,
    /// Verify the checksums of all sections, which reads the whole file
    #[arg(long)]
    verify: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// `fxc info`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    let file = CompiledFile::open(&args.file)?;
    if args.verify {
        file.verify()?;
        app.show_progress(&format!("{}: all checksums match", args.file.display()));
    }
    let text = if args.json {
        format!("{}\n", describe_file(&file))
    } else {
        as_text(&file)
    };
    output::write_stdout(text.as_bytes())
}

fn as_text(file: &CompiledFile) -> String {
    let mut out = format!("{}, compiled by fxc {}", file.name(), file.build());
    let suffix = if file.build() == build_name() {
        ""
    } else {
        ", a different version from this one"
    };
    let _ = writeln!(out, "{suffix}");
    for (i, p) in file.parts().into_iter().enumerate() {
        let _ = writeln!(out, "\nnative part {i}: {}", p.inputs.join(", "));
        out.push_str(&part_text(&p));
    }
    let _ = writeln!(out, "\nsections");
    for s in file.sections() {
        let part = if s.of_part {
            format!(" {}", s.part)
        } else {
            String::new()
        };
        let _ = writeln!(out, "  {:16} {:>12}", format!("{}{part}", s.name), shown_bytes(s.bytes));
    }
    out
}

fn part_text(p: &PartInfo) -> String {
    let fits = match &p.unfit {
        None => "yes".to_string(),
        Some(reason) => format!("no: {reason}"),
    };
    let sizes: Vec<String> = p.sizes.iter().map(|(n, s)| format!("{n} = {s}")).collect();
    let mut out = format!("  runs here    {fits}\n  platform     {}\n", p.platform);
    let _ = writeln!(out, "  features     {}", p.features.join(" "));
    if !sizes.is_empty() {
        let _ = writeln!(out, "  sizes        {}", sizes.join(", "));
    }
    let _ = writeln!(
        out,
        "  steps        {} kernels, {} contractions",
        p.kernels, p.contractions
    );
    let _ = writeln!(out, "  memory       arena {}", shown_bytes(p.arena));
    out
}
