//! Inputs on the command line: files of tensors, and `NAME=VALUE`.

use super::model::ModelArgs;
use super::{App, Stop};
use crate::diag::{Code, Diagnostic};
use crate::driver::compare::Tolerance;
use crate::driver::files::FileArray;
use crate::driver::{Bound, Dims, Fill, Given, Model, Provided, bind, files, limits};
use crate::graph::GraphModule;
use crate::source::FileId;
use crate::syntax;
use crate::tensor::Tensor;
use crate::types::{TensorType, Val};
use std::path::{Path, PathBuf};

/// How far results may differ.
#[derive(clap::Args)]
pub struct ToleranceArgs {
    /// Tolerance relative to each element wanted
    #[arg(long, default_value_t = 1e-4)]
    rtol: f64,
    /// Absolute tolerance
    #[arg(long, default_value_t = 1e-5)]
    atol: f64,
}

impl ToleranceArgs {
    /// The tolerance.
    pub fn get(&self) -> Tolerance {
        Tolerance {
            rtol: self.rtol,
            atol: self.atol,
        }
    }
}

/// What a graph runs on.
#[derive(clap::Args)]
pub struct InputArgs {
    /// Single inputs: FILE.npy, zeros, ones, arange, rand:SEED (uniform in 0..1), randn:SEED (normal), or a Python
    /// number; with a type (x:f32[2,3]=rand:0) where the graph declares none
    #[arg(value_name = "NAME=VALUE")]
    values: Vec<String>,
    /// A file of tensors named after the graph's inputs: .npz, .npy or .safetensors
    #[arg(long = "inputs", value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl InputArgs {
    /// Everything given, files first, and the array named `set_aside` of the files on its own.
    pub fn read(&self, set_aside: Option<&str>) -> Result<(Vec<Provided>, Option<Tensor>), Stop> {
        let mut provided = vec![];
        let mut aside = None;
        for path in &self.files {
            let origin = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            for (name, array) in files::open_arrays(path)? {
                if set_aside == Some(&name) {
                    aside = Some(array.read()?);
                    continue;
                }
                let given = Given::File(array);
                provided.push(Provided {
                    name,
                    given,
                    origin: origin.clone(),
                    must_match: false,
                });
            }
        }
        for text in &self.values {
            provided.push(one(text)?);
        }
        Ok((provided, aside))
    }
}

/// Matches what was read to the graph's inputs.
pub fn bound(app: &mut App, module: &GraphModule, provided: Vec<Provided>, dims: Dims) -> Result<Bound, Stop> {
    let (bound, found) = bind::bind(module, provided, dims);
    app.session.diagnostics.extend(found);
    bound.ok_or(Stop::Reported)
}

fn one(text: &str) -> Result<Provided, Diagnostic> {
    let bad = |why: &str| {
        Diagnostic::new(Code::E0508, format!("`{text}` is no input: {why}")).help(
            "write NAME=FILE.npy, NAME=zeros, NAME=ones, NAME=arange, NAME=rand:SEED, NAME=randn:SEED or NAME=NUMBER",
        )
    };
    let (left, value) = text.split_once('=').ok_or_else(|| bad("it has no `=`"))?;
    let (name, ty) = match left.split_once(':') {
        Some((n, t)) => (
            n,
            Some(tensor_type(t).ok_or_else(|| bad(&format!("`{t}` is not the type of a tensor")))?),
        ),
        None => (left, None),
    };
    let given = match fill(value).map_err(|e| bad(&e))? {
        Some(f) => Given::Fill(f, ty),
        None => match number(value) {
            Some(v) => Given::Value(v),
            None => {
                let wrong = || bad("it is neither a file of tensors nor a value");
                Given::File(array(value).map_err(|e| e.unwrap_or_else(wrong))?)
            }
        },
    };
    Ok(Provided {
        name: name.to_string(),
        given,
        origin: "the command line".to_string(),
        must_match: true,
    })
}

fn tensor_type(text: &str) -> Option<TensorType> {
    let (tree, found) = syntax::parse_type(FileId(0), text);
    let tree = tree.filter(|_| !found.has_errors())?;
    let mut found = crate::diag::Diagnostics::new();
    let ty = syntax::resolve::ty(&tree, &mut found);
    ty.as_leaf().cloned().filter(|_| !found.has_errors())
}

fn fill(value: &str) -> Result<Option<Fill>, String> {
    let (kind, seed) = match value.split_once(':') {
        Some((k, s)) => (k, Some(s)),
        None => (value, None),
    };
    let number = || {
        seed.unwrap_or("0")
            .parse::<u64>()
            .map_err(|_| format!("`{}` is not a seed", seed.unwrap_or_default()))
    };
    Ok(match (kind, seed) {
        ("zeros", None) => Some(Fill::Zeros),
        ("ones", None) => Some(Fill::Ones),
        ("arange", None) => Some(Fill::Arange),
        ("rand", _) => Some(Fill::Uniform(number()?)),
        ("randn", _) => Some(Fill::Normal(number()?)),
        _ => None,
    })
}

fn number(value: &str) -> Option<Val<Tensor>> {
    match value {
        "None" => Some(Val::None),
        "True" | "true" => Some(Val::Bool(true)),
        "False" | "false" => Some(Val::Bool(false)),
        v => v
            .parse::<i64>()
            .map(Val::int)
            .ok()
            .or_else(|| v.parse().map(Val::Float).ok()),
    }
}

/// The only array of a file, or the one named behind the last colon (`in.npz:x`). `Err(None)` if there is no such file
/// and the text does not look like one.
fn array(value: &str) -> Result<FileArray, Option<Diagnostic>> {
    let (path, name) = match value.rsplit_once(':') {
        Some((p, n)) if !Path::new(value).exists() => (p, Some(n)),
        _ => (value, None),
    };
    let kind = Path::new(path)
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_ascii_lowercase();
    if !Path::new(path).exists() && !matches!(kind.as_str(), "npy" | "npz" | "safetensors") {
        return Err(None);
    }
    let mut list = files::open_arrays(Path::new(path)).map_err(Some)?;
    let names = list
        .iter()
        .map(|(n, _)| format!("`{n}`"))
        .collect::<Vec<_>>()
        .join(", ");
    let found = match name {
        Some(n) => list.iter().position(|(k, _)| k == n),
        None => (list.len() == 1).then_some(0),
    };
    found.map(|i| list.swap_remove(i).1).ok_or_else(|| {
        let title = match name {
            Some(n) => format!("`{path}` has no array `{n}`"),
            None => format!("`{path}` holds {} arrays", list.len()),
        };
        Some(
            Diagnostic::new(Code::E0507, title)
                .note(format!("it holds {names}"))
                .help(format!("write `{path}:NAME`")),
        )
    })
}

/// Random numbers for every input that needs a value; integers that stand for places are places that there are.
fn random(model: &Model) -> Vec<Provided> {
    let Some(graph) = model.module.entry() else {
        return vec![];
    };
    let limits = limits::index_fills(&model.module, 0);
    let tensors = graph.placeholders().into_iter().filter(|&p| graph[p].args().is_empty());
    tensors
        .enumerate()
        .map(|(i, p)| Provided {
            name: graph[p].target().to_string(),
            given: Given::Fill(
                limits.get(graph[p].target()).copied().unwrap_or(Fill::Normal(i as u64)),
                None,
            ),
            origin: "random numbers".into(),
            must_match: true,
        })
        .collect()
}

/// A model checked for the inputs it is to run on; those that are not given are random.
pub fn on_inputs(
    app: &mut App,
    args: &ModelArgs,
    model: Model,
    inputs: &InputArgs,
) -> Result<(GraphModule, Bound), Stop> {
    let (mut provided, _) = inputs.read(None)?;
    if provided.is_empty() {
        provided = random(&model);
    }
    let (dims, _) = args.assumed_dims(&model.module)?;
    let bound = bound(app, &model.module, provided, dims)?;
    let mut module = model.module;
    app.session.check(&mut module, &bound.types)?;
    Ok((module, bound))
}
