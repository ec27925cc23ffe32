//! `fxc check`: reports everything that is wrong with models, without compiling them.

use super::inputs::{InputArgs, is_input};
use super::weights::WeightsFile;
use super::{App, Outcome, Stop, output};
use crate::diag::words::{clip_text, count};
use crate::diag::{Code, Diagnostic};
use crate::driver::{diff, files, mend_text};
use crate::graph::{GraphModule, Node, NodeId, Opcode};
use crate::infer::untyped::{self, OpenPart};
use crate::types::Val;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Check models without compiling them: syntax, graph, ops, types and shapes
#[derive(clap::Args)]
pub(super) struct Args {
    /// The models, followed by inputs, of which only the types matter: NAME:TYPE (x:f32[2,3]), or NAME=VALUE as for `fxc run`
    #[arg(required = true, value_name = "MODEL|NAME:TYPE")]
    models: Vec<String>,
    /// A file of tensors named after the models' inputs, of which only the types matter: .npz, .npy or .safetensors
    #[arg(long = "inputs", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Check with modules in training mode, as for `fxc run`
    #[arg(long)]
    training: bool,
    /// Also report unused nodes in archives and in graphs printed by torch, where only the model's author can remove them
    #[arg(long)]
    lints: bool,
    #[command(flatten)]
    weights: WeightsFile,
    /// Apply the suggestions that are marked safe, write the corrected text back, and report the remaining problems
    #[arg(long)]
    fix: bool,
    /// Print the changes that --fix would make as a unified diff, without writing the files
    #[arg(long)]
    diff: bool,
}

/// `fxc check`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    args.weights.apply(app);
    let mut failed = false;
    let (values, models): (Vec<_>, Vec<_>) = args.models.iter().cloned().partition(|a| is_input(a));
    let files = args.files.clone();
    let inputs = InputArgs {
        values,
        files,
        training: args.training,
        state: None,
    };
    if models.is_empty() {
        return Err(Diagnostic::new(Code::E0703, "no model was given to check").into());
    }
    app.session.lints = args.lints;
    for path in &models {
        app.set_subject(path);
        if args.fix || args.diff {
            mend_file(app, path, args.diff)?;
        }
        match check_file(app, path, &inputs) {
            Err(Stop::Error(d)) => {
                app.session.report(*d);
                failed = true;
            }
            checked => failed |= checked.is_err(),
        }
        app.sum_up();
    }
    if failed { Err(Stop::Reported) } else { Ok(()) }
}

fn check_file(app: &mut App, path: &str, inputs: &InputArgs) -> Outcome {
    let mut model = app.session.load_any(path)?;
    let rules = match &model.tree {
        Some(tree) => app.session.check_rules(tree).map(|r| r.len()),
        None => Ok(0),
    };
    let numbers = inputs.declare_inputs(app, &mut model.module)?;
    app.session.check(&mut model.module, &numbers)?;
    let rules = rules?;
    app.show_findings();
    if rules > 0 {
        app.show_progress(&format!("{path}: {}", count(rules, "rule")));
    }
    if model.module.graphs.is_empty() {
        return Ok(());
    }
    app.show_progress(&clip_text(format!("{path}: {}", describe_types(&model.module))));
    if let Some(missing) = without_values(&model.module) {
        app.show_progress(&clip_text(format!("{path}: {missing}")));
    }
    Ok(())
}

/// Describes how many nodes of a checked module have types, and why the others do not.
fn describe_types(m: &GraphModule) -> String {
    let (graphs, all) = (m.graphs.len(), m.graphs.values().map(|g| g.len()).sum::<usize>());
    let typed = |n: &Node| !matches!(n.meta.ty, None | Some(Val::Unknown));
    // An output has a type if all its inputs have.
    let known = m.graphs.values().flat_map(|g| {
        let known = |n: &NodeId| match g[*n].op() {
            Opcode::Output => g[*n].inputs().into_iter().all(|i| typed(&g[i])),
            _ => typed(&g[*n]),
        };
        g.iter().filter(known)
    });
    let (known, head) = (
        known.count(),
        format!("{}, {}", count(graphs, "graph"), count(all, "node")),
    );
    if known == all {
        return format!("{head}: all types inferred");
    }
    let missing = m.entry().into_iter().find_map(|g| {
        let all = untyped::find_untyped(g);
        let missing: Vec<_> = all.into_iter().filter(|u| u.open == OpenPart::Type).collect();
        let first = *missing.first()?;
        let problem = untyped::what_is_missing(g, &missing);
        Some(format!("{problem}: {}", untyped::how_to_give(g, first)))
    });
    let reason = missing.unwrap_or_else(|| "the others are data-dependent".to_string());
    format!("{head}: {known} of {all} have types; {reason}")
}

/// The weights that `fxc run` needs and that have no values.
fn without_values(m: &GraphModule) -> Option<String> {
    let declared = m.attributes.iter().filter(|(_, a)| a.value.is_none()).map(|(k, _)| k);
    let read = m.graphs.values().flat_map(|g| g.iter().map(move |n| &g[n]));
    let read = read.filter(|n| n.op() == Opcode::GetAttr && !m.graphs.contains_key(n.target()));
    let others = m.implied.keys().map(|k| &**k).chain(read.map(Node::target));
    let mut names: Vec<&str> = declared.map(|k| &**k).collect();
    names.extend(others.filter(|k| !m.attributes.contains_key(*k) && !m.modules.contains_key(*k)));
    let mut seen = HashSet::new();
    names.retain(|n| seen.insert(*n));
    let first = names.first()?;
    let others = match names.len() - 1 {
        0 => " has no value".to_string(),
        1 => " and 1 other weight have no values".to_string(),
        n => format!(" and {n} other weights have no values"),
    };
    let help = "`fxc run` needs a weights file: add `weights \"FILE.safetensors\"` to the text";
    Some(format!("`{first}`{others}: {help}"))
}

/// Applies the safe suggestions for a text. With `only_show`, prints them as a diff instead of writing.
fn mend_file(app: &mut App, path: &str, only_show: bool) -> Outcome {
    if files::is_stream(path) {
        let d = Diagnostic::new(Code::E0702, "--fix cannot write to standard input");
        return Err(d.help("pass the file's name instead of `-`").into());
    }
    // Archives and other binary files have no text to change.
    let Ok(files::Content::Text(bytes)) = files::read_model(path) else {
        return Ok(());
    };
    let Ok(text) = String::from_utf8(bytes) else {
        return Ok(());
    };
    let mended = mend_text(path, &text, &app.session.allowed);
    if mended == text {
        return Ok(());
    }
    if only_show {
        let changes = diff::patch_text(&text, &mended, 3);
        return output::write_stdout(format!("--- {path}\n+++ {path} (fixed)\n{changes}").as_bytes());
    }
    files::write(Path::new(path), mended.as_bytes())?;
    app.show_progress(&format!("{path}: mended"));
    Ok(())
}
