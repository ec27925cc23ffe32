//! `fxc ops`: the op table, as a list for people and as the page docs/ops.md.

use super::{Outcome, output};
use crate::diag::{Code, Diagnostic};
use crate::driver::describe::{self, effect_name, kind_name};
use crate::op::{self, Form, Op, ParamList};
use clap::ValueEnum;
use std::fmt::Write;

/// List the op table: schemas, spellings and descriptions
#[derive(clap::Args)]
pub(super) struct Args {
    /// Show only this op, given by its canonical name or any spelling
    name: Option<String>,
    /// The output format
    #[arg(long, default_value = "text")]
    format: OpsFormat,
}

#[derive(Clone, Copy, ValueEnum)]
enum OpsFormat {
    /// One line per op
    Text,
    /// The page docs/ops.md
    Markdown,
    /// One JSON array
    Json,
}

/// `fxc ops`.
pub(super) fn main(args: &Args) -> Outcome {
    let ops: Vec<&Op> = match &args.name {
        Some(name) => find_ops(name)?,
        None => op::all().iter().collect(),
    };
    let text = match args.format {
        OpsFormat::Text if args.name.is_some() => ops.iter().map(|o| describe_op(o)).collect::<Vec<_>>().join("\n"),
        OpsFormat::Text => ops.iter().map(|o| format!("{:28} {}\n", o.name, o.doc)).collect(),
        OpsFormat::Markdown => markdown_page(&ops),
        OpsFormat::Json => format!(
            "{:#}\n",
            serde_json::Value::Array(ops.iter().map(|o| describe::describe_op(o)).collect())
        ),
    };
    output::write_stdout(text.as_bytes())
}

/// The rows for a name: a canonical name, a spelling, `aten.add` for all its overloads, a class of `torch.nn`.
fn find_ops(name: &str) -> Result<Vec<&'static Op>, Diagnostic> {
    let ops = op::lookup::find(name);
    if !ops.is_empty() {
        return Ok(ops);
    }
    let d = Diagnostic::new(Code::E0201, format!("unknown op `{name}`"));
    let path = op::canonical_path(&name.replace("::", "."), false);
    let is_class = path.rsplit('.').next().unwrap_or(&path).starts_with(char::is_uppercase);
    let class = op::meant::class_meant(name).filter(|_| is_class).map(str::to_string);
    let (spellings, _) = op::meant::meant_spellings(&path, false);
    let nearest = spellings.first().map(|n| n.to_string());
    let similar = || op::lookup::similar_name(name).map(|n| n.to_string());
    Err(
        match (op::meant::why_outside(&path), class.or(nearest).or_else(similar)) {
            (Some(reason), _) => d.note(format!("fxc does not support it: {reason}")),
            (None, Some(n)) => d.help(format!("there is an op with a similar name: `{n}`")),
            (None, None) => d.help("run `fxc ops` to list all ops"),
        },
    )
}

/// The full description of a row.
fn describe_op(o: &Op) -> String {
    let mut out = format!(
        "{}\n    {}\n    {} · {}\n",
        o.schema,
        o.doc,
        kind_name(o),
        effect_name(o)
    );
    for form in &o.forms {
        let schema = own_schema(form).map(|p| format!("   {p}")).unwrap_or_default();
        let inplace = if form.inplace { "   in place" } else { "" };
        let _ = writeln!(
            out,
            "    {}{schema}{inplace}",
            form.paths().collect::<Vec<_>>().join(" ")
        );
    }
    for m in &o.modules {
        let _ = writeln!(out, "    module {}", m.text);
    }
    if let Some(example) = op::examples::example_of(o.name) {
        let lines = example.lines().map(|l| format!("    {l}\n"));
        let _ = write!(out, "\n{}", lines.collect::<String>());
    }
    out
}

/// The parameters of a form's spellings, if they differ from the row's.
fn own_schema(form: &Form) -> Option<ParamList<'_>> {
    form.schema.as_ref().map(|s| ParamList(&s.params))
}

/// The page docs/ops.md.
pub(super) fn markdown_page(ops: &[&Op]) -> String {
    let mut out = String::from(
        "# Ops\n\nAll ops in fxc's op table (`src/op/rows/`). `fxc ops --format markdown` generates this page, and a test keeps it\ncurrent. \
         An op can be written by its canonical name or by any of its spellings; `Tensor.f` is the method `f`.\n",
    );
    let _ = writeln!(out, "\n{} ops, by kind:\n", ops.len());
    for (k, w) in KINDS {
        let n = ops.iter().filter(|o| kind_name(o) == k).count();
        let _ = writeln!(out, "* {k} ({n}): {w}");
    }
    for (k, _) in KINDS {
        let _ = writeln!(out, "\n## {}{}\n", k[..1].to_uppercase(), &k[1..]);
        for o in ops.iter().filter(|o| kind_name(o) == k) {
            write_op(&mut out, o);
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out.push_str(&left_out_section());
    out
}

/// The kinds of meanings, as [`kind_name`] returns them, and what they mean.
const KINDS: [(&str, &str); 8] = [
    ("pointwise", "an elementwise scalar expression"),
    ("reduction", "combines elements along dimensions"),
    ("view", "rearranges or selects elements"),
    ("contraction", "a matrix product, convolution or attention"),
    ("routine", "an algorithm on whole tensors"),
    ("decomposition", "defined in terms of other ops"),
    ("control flow", "calls graphs"),
    ("host", "computes sizes, dtypes or Python values, but no tensors"),
];

/// One op's section of the page.
fn write_op(out: &mut String, o: &Op) {
    let doc = o.doc.trim_end_matches('.');
    let _ = writeln!(out, "### {}\n\n`{}`\n\n{doc}.", o.name, o.schema);
    for form in &o.forms {
        let paths: Vec<String> = form.paths().map(|p| format!("`{p}`")).collect();
        let schema = own_schema(form).map(|p| format!(" with `{p}`")).unwrap_or_default();
        let inplace = if form.inplace { ", in place" } else { "" };
        let _ = writeln!(out, "\nSpelled {}{schema}{inplace}.", paths.join(", "));
    }
    if let Some(example) = op::examples::example_of(o.name) {
        let _ = writeln!(out, "\n```fxir\n{example}```");
    }
    for m in &o.modules {
        let _ = writeln!(out, "\nModule `{}`.", m.text);
    }
    out.push('\n');
}

/// The section on what the table leaves out, which `tests/torch/opinfo.py` reads.
fn left_out_section() -> String {
    let mut out = String::from("\n## Unsupported ops\n\nTorch ops that fxc does not support, by reason:\n\n");
    for (reason, names) in op::outside::OUTSIDE {
        let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        let _ = writeln!(out, "* {reason}: {}", names.join(", "));
    }
    out
}
