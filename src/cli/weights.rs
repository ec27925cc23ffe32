//! Weights on the command line: the file to read them from, and the file to write beside a graph.

use super::{App, Outcome};
use crate::diag::words;
use crate::graph::{self, Attribute, GraphModule};
use crate::import;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where weights are read from, for commands that write none.
#[derive(clap::Args)]
pub struct WeightsFile {
    /// Read parameters, buffers and constants from this file, not from the one that the model names
    #[arg(long = "weights", visible_alias = "weights-from", value_name = "FILE.safetensors")]
    path: Option<PathBuf>,
}

impl WeightsFile {
    /// Makes models loaded from now on have these weights.
    pub fn apply(&self, app: &mut App) {
        app.session.weights = self.path.clone();
    }
}

/// Where weights are read from, for commands whose `--weights` writes them.
#[derive(clap::Args)]
pub struct WeightsSource {
    /// Read parameters, buffers and constants from this file, not from the one that the model names
    #[arg(long = "weights-from", value_name = "FILE.safetensors")]
    path: Option<PathBuf>,
}

impl WeightsSource {
    /// Makes models loaded from now on have these weights.
    pub fn apply(&self, app: &mut App) {
        app.session.weights = self.path.clone();
    }
}

/// The values that the weights file of a model's text holds.
pub struct Held(HashSet<Arc<str>>);

impl Held {
    /// Of a model as it was loaded: an archive's values are in no file that FXIR could name.
    pub fn of(m: &GraphModule) -> Held {
        let values = m.attributes.iter().filter(|(_, a)| has_to_be_stored(a));
        let names = values.map(|(n, _)| n.clone());
        Held(m.weights.as_ref().map(|_| names.collect()).unwrap_or_default())
    }
}

fn has_to_be_stored(a: &Attribute) -> bool {
    a.value.is_some() && !graph::print::is_inline(a)
}

/// Where FXIR and its weights go.
pub struct Target<'a> {
    /// The model's path.
    pub source: &'a str,
    /// The FXIR file; `None` or `-` for standard output.
    pub output: Option<&'a str>,
    /// The weights file that was asked for.
    pub weights: Option<&'a str>,
    /// Whether the text on standard output is to be looked at rather than run.
    pub shown: bool,
}

/// Makes a module that is going to be written as FXIR name a file with its weights. That is the file it was read with, if that
/// has all of them; else the one asked for, or one beside the FXIR file, which is written now.
pub fn keep_values(app: &App, m: &mut GraphModule, held: &Held, to: &Target) -> Outcome {
    let file = to.output.filter(|o| *o != "-");
    let stored: Vec<&str> = m
        .attributes
        .iter()
        .filter(|(_, a)| has_to_be_stored(a))
        .map(|(n, _)| &**n)
        .collect();
    let lost = stored.iter().filter(|n| !held.0.contains(**n)).count();
    let beside = file.filter(|f| lost > 0 && (!Path::new(f).exists() || Path::new(f).is_file()));
    let beside = beside.map(|f| Path::new(f).with_extension("safetensors").display().to_string());
    if let Some(path) = to.weights.map(str::to_string).or(beside) {
        if to.weights.is_none() {
            app.progress(&format!("{path} holds {}", words::count(stored.len(), "weight")));
        }
        import::write_weights(m, Path::new(&path), |_, a| !graph::print::is_inline(a))?;
        m.weights = Some((relative(&path, to.output), None));
        return Ok(());
    }
    if lost > 0 && !to.shown {
        app.progress(&format!(
            "note: the text does not hold the values of {lost} of {} weights: write them with `-o FILE`, or with `--weights FILE`",
            stored.len()
        ));
    }
    carry_weights(m, to.source, to.output);
    Ok(())
}

/// The path of the weights file as the FXIR names it: relative to the FXIR file if both are in one directory.
fn relative(path: &str, output: Option<&str>) -> String {
    let dir = |p: &str| Path::new(p).parent().map(Path::to_path_buf).unwrap_or_default();
    match output.filter(|o| *o != "-") {
        Some(o) if dir(o) == dir(path) => Path::new(path)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        Some(_) => std::path::absolute(path).map_or(path.to_string(), |p| p.display().to_string()),
        None => path.to_string(),
    }
}

/// A path that is relative to the source must be found from where the text is written, too.
fn carry_weights(m: &mut GraphModule, source: &str, output: Option<&str>) {
    let Some((path, span)) = m.weights.take() else { return };
    let dir = Path::new(source).parent().unwrap_or(Path::new(""));
    let same = output.is_none_or(|o| o == "-" || Path::new(o).parent().unwrap_or(Path::new("")) == dir);
    let path = if same || Path::new(&path).is_absolute() {
        path
    } else {
        std::path::absolute(dir.join(&path)).map_or(path, |p| p.display().to_string())
    };
    m.weights = Some((path, span));
}
