//! Inputs on the command line: files of tensors, and `NAME=VALUE`.

mod arrays;

use self::arrays::{array_of_type, find_array};
use super::model::ModelArgs;
use super::{App, Stop};
use crate::diag::{Code, Diagnostic};
use crate::driver::COMMAND_LINE;
use crate::driver::compare::Tolerance;
use crate::driver::{
    BoundInputs, Dims, Fill, Given, LoadedModel, Provided, bind, declared_types, files, input_types, limits, literal,
    state, types,
};
use crate::graph::GraphModule;
use crate::op::modules;
use crate::source::FileId;
use crate::syntax;
use crate::tensor::Tensor;
use crate::types::{ScalarKind, Type, Val};
use std::path::{Path, PathBuf};

/// How far results may differ.
#[derive(clap::Args)]
pub(super) struct ToleranceArgs {
    /// Relative tolerance, with respect to each expected element [default: 0.0001, 0.001 for f16 and 0.016 for bf16; for these two, half of it
    /// times the largest magnitude is allowed in addition]
    #[arg(long)]
    rtol: Option<f64>,
    /// Absolute tolerance
    #[arg(long, default_value_t = 1e-5)]
    atol: f64,
}

impl ToleranceArgs {
    /// The tolerance.
    pub(super) fn get(&self) -> Tolerance {
        Tolerance {
            rtol: self.rtol,
            atol: self.atol,
        }
    }
}

/// What a graph runs on, or the types of that.
#[derive(clap::Args, Default)]
pub(super) struct InputArgs {
    /// Individual inputs: FILE.npy, zeros, ones, arange, rand:SEED (uniform in 0..1), randn:SEED (normal), or a Python
    /// value (3, 0.5, [1,2]). Add a type (x:f32[2,3]=rand:0, x:i64[1]=2) if the graph declares none. A type alone
    /// (x:f32[2,3]) acts as a declaration in the graph. Items of a nested input have names such as cache.keys.0
    #[arg(value_name = "NAME[:TYPE][=VALUE]")]
    pub values: Vec<String>,
    /// A file of tensors named after the graph's inputs: .npz, .npy or .safetensors
    #[arg(long = "inputs", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Put modules in training mode: batch normalisation uses the batch's statistics, and dropout draws random numbers.
    /// Graphs printed by torch do not record the mode, so the default is evaluation mode
    #[arg(long)]
    pub training: bool,
    /// A file with values of buffers and of inputs that calls modify, as written by --save-state or --outputs of `fxc run`
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
}

/// The inputs that were read for a run.
#[derive(Default)]
pub(super) struct Inputs {
    /// The values provided for inputs.
    pub provided: Vec<Provided>,
    /// The buffers that were assigned values. The module has these values now.
    pub restored: Vec<(String, Tensor)>,
    /// The array of the inputs file with the labels, which is not an input of the graph.
    pub aside: Option<Tensor>,
}

impl InputArgs {
    /// Whether these arguments change the model, so that its graphs must be read.
    pub(super) fn change_model(&self) -> bool {
        let of_text = |v: &String| state::is_buffer_label(v);
        let of_file = |p: &PathBuf| files::open_arrays(p).is_ok_and(|a| a.iter().any(|(name, _)| of_text(name)));
        self.training || self.state.is_some() || self.values.iter().any(of_text) || self.files.iter().any(of_file)
    }

    /// Makes the graph declare the types of all provided values, for commands that do not run it. Returns the Python
    /// numbers among them, by placeholder; [`Val::Unknown`] for all others.
    pub(super) fn declare_inputs(&self, app: &mut App, module: &mut GraphModule) -> Result<Vec<Type>, Stop> {
        self.set_mode(app, module);
        let provided = self.take_inputs(app, module, None)?.provided;
        declare_provided(app, module, &provided)
    }

    /// Puts the modules that compute differently in training into that mode. Otherwise warns that they are in
    /// evaluation mode if the text cannot tell.
    fn set_mode(&self, app: &mut App, module: &mut GraphModule) {
        let printed = module.printed;
        let mut modes = module
            .modules
            .iter_mut()
            .filter(|(_, d)| modules::depends_on_training(&d.class));
        if self.training {
            let mut modes = modes.peekable();
            if modes.peek().is_none() {
                app.say_once("note: no module in this model behaves differently in training mode");
            }
            for (_, decl) in modes {
                decl.kwargs.retain(|(k, _)| &**k != modules::TRAINING);
                decl.kwargs.push((modules::TRAINING.into(), Val::Bool(true)));
            }
        } else if printed && let Some((path, decl)) = modes.next() {
            let others = match modes.count() {
                0 => "computes",
                1 => "and 1 other module compute",
                n => &format!("and {n} other modules compute"),
            };
            let class = &decl.class;
            app.say_once(&format!(
                "note: the text does not record the mode, so `{path}` ({class}) {others} in evaluation mode; use --training for training mode"
            ));
        }
    }

    /// Makes the graph declare the types that are given without a value. Returns the names of these inputs.
    pub(super) fn declare_types(&self, app: &mut App, module: &mut GraphModule) -> Result<Vec<String>, Stop> {
        self.set_mode(app, module);
        let mut provided = self.on_command_line()?;
        provided.retain(|p| matches!(p.given, Given::Type(_)));
        declare_provided(app, module, &provided)?;
        Ok(provided.into_iter().map(|p| p.name).collect())
    }

    /// Takes all provided values. Values for buffers are assigned to the module, and the array named `set_aside` of the
    /// files is kept separately.
    pub(super) fn take_inputs(
        &self,
        app: &mut App,
        module: &mut GraphModule,
        set_aside: Option<&str>,
    ) -> Result<Inputs, Stop> {
        let (mut provided, aside) = self.of_files(set_aside)?;
        provided.extend(self.on_command_line()?);
        if let Some(path) = &self.state {
            let of_state = |p: Provided| {
                let name = state::name_in_state(&p.name)?;
                let must_match = true;
                Some(Provided { name, must_match, ..p })
            };
            provided.extend(of_file(path)?.into_iter().filter_map(of_state));
        }
        let (restored, findings) = state::restore_buffers(module, &mut provided);
        let wrong = findings.has_errors();
        app.session.diagnostics.extend(findings);
        match wrong {
            true => Err(Stop::Reported),
            false => Ok(Inputs {
                provided,
                restored,
                aside,
            }),
        }
    }

    /// The arrays of the files. An input that several files contain is provided once, with a value from each.
    fn of_files(&self, set_aside: Option<&str>) -> Result<(Vec<Provided>, Option<Tensor>), Stop> {
        let mut provided: Vec<Provided> = vec![];
        let mut aside = None;
        for path in &self.files {
            for p in of_file(path)? {
                if set_aside == Some(&p.name)
                    && let Given::File(array) = &p.given
                {
                    aside = Some(array.read()?);
                    continue;
                }
                match provided.iter_mut().find(|q| q.name == p.name) {
                    None => provided.push(p),
                    Some(Provided {
                        given: Given::Each(all),
                        ..
                    }) => all.push(p),
                    Some(first) => {
                        let values = Given::Each(vec![first.clone(), p]);
                        *first = Provided {
                            given: values,
                            ..first.clone()
                        };
                    }
                }
            }
        }
        Ok((provided, aside))
    }

    fn on_command_line(&self) -> Result<Vec<Provided>, Diagnostic> {
        self.values.iter().map(|text| parse_input(text)).collect()
    }
}

/// The arrays of a file.
fn of_file(path: &Path) -> Result<Vec<Provided>, Diagnostic> {
    let origin = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let to_provided = |(name, array): files::Opened| Provided {
        name,
        given: match array {
            Ok(array) => Given::File(array),
            Err(ty) => Given::Unsupported(ty),
        },
        origin: origin.clone(),
        must_match: false,
    };
    Ok(files::open_arrays(path)?.into_iter().map(to_provided).collect())
}

fn declare_provided(app: &mut App, module: &mut GraphModule, provided: &[Provided]) -> Result<Vec<Type>, Stop> {
    let (numbers, findings) = types::declare_types(module, provided);
    let wrong = findings.has_errors();
    app.session.diagnostics.extend(findings);
    if wrong { Err(Stop::Reported) } else { Ok(numbers) }
}

/// The types to compile for: the declared types of the graph with `dims` replaced, and the given numbers.
pub(super) fn compiled_types(module: &GraphModule, dims: &Dims, numbers: Vec<Type>) -> Vec<Type> {
    with_numbers(input_types(module, dims), numbers)
}

/// The types of a graph for every call: the declared ones with the sizes in `dims` replaced, and the given numbers.
pub(super) fn general_types(module: &GraphModule, dims: &Dims, numbers: Vec<Type>) -> Vec<Type> {
    with_numbers(declared_types(module, dims), numbers)
}

fn with_numbers(declared: Vec<Type>, numbers: Vec<Type>) -> Vec<Type> {
    let known = |(t, number)| if number == Val::Unknown { t } else { number };
    declared.into_iter().zip(numbers).map(known).collect()
}

/// Whether an argument is an input rather than the path of a model.
pub(super) fn is_input(text: &str) -> bool {
    let name = text.split([':', '=']).next().unwrap_or_default();
    let letter = |c: char| c.is_ascii_alphanumeric() || "_.*[]\"'".contains(c);
    name.len() < text.len() && !name.is_empty() && name.chars().all(letter) && !Path::new(text).exists()
}

/// Matches the provided values to the graph's inputs.
pub(super) fn bind_provided(
    app: &mut App,
    module: &GraphModule,
    provided: Vec<Provided>,
    dims: Dims,
) -> Result<BoundInputs, Stop> {
    let (bound, findings) = bind::bind_inputs(module, provided, dims);
    app.session.diagnostics.extend(findings);
    bound.ok_or(Stop::Reported)
}

fn parse_input(text: &str) -> Result<Provided, Diagnostic> {
    let bad = |problem: &str| {
        Diagnostic::new(Code::E0508, format!("`{text}` is not a valid input: {problem}")).help(literal::HELP)
    };
    let (left, value) = match text.split_once('=') {
        Some((l, v)) => (l, Some(v)),
        None => (text, None),
    };
    let (name, ty) = match left.split_once(':') {
        Some((n, t)) => (
            n,
            Some(input_type(t).ok_or_else(|| bad(&format!("`{t}` is not a valid type")))?),
        ),
        None => (left, None),
    };
    let Some(value) = value else {
        let ty = ty.ok_or_else(|| bad("it has neither a type nor a value"))?;
        return Ok(on_command_line(name, Given::Type(ty)));
    };
    let given = match (parse_fill(value).map_err(|e| bad(&e))?, literal::parse(value)) {
        (Some(f), _) => match ty {
            Some(Val::Leaf(t)) => Given::Fill(f, Some(t)),
            Some(t) => return Err(bad(&format!("`{t}` is not a tensor type"))),
            None => Given::Fill(f, None),
        },
        (None, Some(v)) => match ty {
            Some(ty) => Given::Typed(v, ty),
            None => Given::Value(v),
        },
        (None, None) => match (find_array(value)?, ty) {
            (Some(array), None) => Given::File(array),
            (Some(array), Some(ty)) => array_of_type(array, &ty).map_err(|e| bad(&e))?,
            (None, None) => Given::Word(value.to_string()),
            (None, Some(Val::Any(ScalarKind::Str))) => Given::Value(Val::str(value)),
            (None, Some(_)) => return Err(bad("the text is neither a tensor file nor a value")),
        },
    };
    Ok(on_command_line(name, given))
}

fn on_command_line(name: &str, given: Given) -> Provided {
    Provided {
        name: name.to_string(),
        given,
        origin: COMMAND_LINE.to_string(),
        must_match: true,
    }
}

fn input_type(text: &str) -> Option<Type> {
    let (tree, findings) = syntax::parse_type(FileId(0), text);
    let tree = tree.filter(|_| !findings.has_errors())?;
    let mut findings = crate::diag::Diagnostics::new();
    let ty = syntax::resolve::ty(&tree, &mut findings);
    Some(ty).filter(|t| !findings.has_errors() && *t != Val::Unknown)
}

fn parse_fill(value: &str) -> Result<Option<Fill>, String> {
    let (kind, seed) = match value.split_once(':') {
        Some((k, s)) => (k, Some(s)),
        None => (value, None),
    };
    let number = || {
        seed.unwrap_or("0")
            .parse::<u64>()
            .map_err(|_| format!("`{}` is not a valid seed", seed.unwrap_or_default()))
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

/// Random numbers for every input that needs a value. Integers that are indices stay in range.
fn random_inputs(module: &GraphModule) -> Vec<Provided> {
    let Some(graph) = module.entry() else {
        return vec![];
    };
    let limits = limits::index_fills(module, 0);
    let required = graph.placeholders().into_iter().filter(|&p| graph[p].args().is_empty());
    let items = required.flat_map(|p| bind::item_names(graph[p].target(), graph[p].meta.ty.as_ref()));
    items
        .enumerate()
        .map(|(i, name)| Provided {
            given: Given::Fill(limits.get(&name).copied().unwrap_or(Fill::Normal(i as u64)), None),
            name,
            origin: "random numbers".into(),
            must_match: true,
        })
        .collect()
}

/// The values provided for a graph whose inputs declare their types, with random numbers for the inputs that are given
/// by type only (`typed`).
pub(super) fn with_random(module: &GraphModule, mut provided: Vec<Provided>, typed: &[String]) -> Vec<Provided> {
    let is_missing =
        |p: &Provided| typed.contains(&p.name) && !provided.iter().any(|q| q.name == p.name && is_value(q));
    let random: Vec<Provided> = random_inputs(module).into_iter().filter(is_missing).collect();
    provided.extend(random);
    provided
}

fn is_value(p: &Provided) -> bool {
    !matches!(p.given, Given::Type(_))
}

/// A model checked for the inputs it will run on. Inputs without a value are random.
pub(super) fn on_inputs(
    app: &mut App,
    args: &ModelArgs,
    model: LoadedModel,
    inputs: &InputArgs,
) -> Result<(GraphModule, BoundInputs), Stop> {
    let mut module = model.module;
    let typed = inputs.declare_types(app, &mut module)?;
    let mut provided = inputs.take_inputs(app, &mut module, None)?.provided;
    provided = match provided.iter().any(is_value) {
        true => with_random(&module, provided, &typed),
        false => random_inputs(&module),
    };
    let (dims, _) = args.assumed_dims(app, &module)?;
    let bound = bind_provided(app, &module, provided, dims)?;
    app.session.check(&mut module, &bound.types)?;
    Ok((module, bound))
}
