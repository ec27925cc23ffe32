//! `fxc run`: runs a model on inputs.

use super::cache::CacheArgs;
use super::inputs::{InputArgs, ToleranceArgs, bind_provided};
use super::limits::parse_threads;
use super::model::ModelArgs;
use super::weights::WeightsFile;
use super::{App, Outcome, Stop, output};
use crate::diag::{Code, Diagnostic};
use crate::driver::compare::{Difference, Tolerance, compare as differ, unravel_index};
use crate::driver::run::{as_f64, labels_met, named_results, result_overview, tensor_summary, user_result};
use crate::driver::{
    BoundInputs, CallResult, CallSequence, Dims, Function, LoadedModel, Request, files, stack_results, state,
};
use crate::graph::{GraphModule, Mutation};
use crate::interp::Interpreter;
use crate::op::random;
use crate::tensor::Tensor;
use crate::types::Val;
use std::path::{Path, PathBuf};

/// Compile a model and run it on inputs
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    weights: WeightsFile,
    #[command(flatten)]
    inputs: InputArgs,
    /// Write the results (output.0, output.1, … in flattened order) to an .npz, .npy or .safetensors file
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// Compare the results with those in a file; exit with 1 if they differ
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    #[command(flatten)]
    tolerance: ToleranceArgs,
    /// Measure accuracy: compare the class with the largest score in each row of the first result with this integer array of the inputs file
    #[arg(long, value_name = "NAME")]
    labels: Option<String>,
    /// Number of threads to run on [default: all of the machine's]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = parse_threads)]
    threads: usize,
    /// Call the model this many times: buffers and inputs that it modifies keep their values between calls. The results are
    /// those of the last call. If this many --inputs files contain an input, the first call uses the first file, the second
    /// call the second file, and so on
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Calls in a row")]
    repeat: Option<u32>,
    /// Divide this input among the calls along its leading dimension, whose size is the number of calls
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Calls in a row")]
    each: Vec<String>,
    /// Return the results of all calls, stacked along a new leading dimension, instead of those of the last call
    #[arg(long, help_heading = "Calls in a row")]
    stack: bool,
    /// Write the final values of buffers (buffer.NAME) and of modified inputs (input.NAME) for --state: .npz or .safetensors
    #[arg(long, value_name = "FILE", help_heading = "Calls in a row")]
    save_state: Option<PathBuf>,
    /// Seed for the graph's random numbers, as with torch.manual_seed
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Run in the interpreter, node by node, instead of compiling
    #[arg(long, conflicts_with = "check")]
    interpret: bool,
    /// Also run the interpreter, and exit with 1 if the results differ
    #[arg(long)]
    check: bool,
}

/// `fxc run`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    args.weights.apply(app);
    args.cache.apply(app, &args.model);
    let whole = args.interpret || args.check || args.inputs.change_model();
    let mut model = match whole {
        true => args.model.load(app)?,
        false => args.model.load_to_run(app)?,
    };
    args.inputs.declare_types(app, &mut model.module)?;
    let inputs = args
        .inputs
        .take_inputs(app, &mut model.module, args.labels.as_deref())?;
    check_labels(args, inputs.aside.as_ref())?;
    let dims = args.model.resolve_dims(app, &model.module)?;
    let sequence = CallSequence::new(inputs.provided, &args.each, args.repeat.map(|n| n as usize))?;
    let calls = Calls { sequence, dims };
    let original = model.module.clone();
    random::seed(args.seed);
    let called = if args.interpret {
        run_interpreted(app, args, original.clone(), &calls)?
    } else {
        run_compiled(app, args, model, &calls)?
    };
    app.show_findings();
    let tensors = named_results(&called.result);
    // The files come first: standard output may be full or closed.
    if let Some(path) = &args.outputs {
        files::write_tensors(path, &[&tensors[..], &written_tensors(&called)].concat())?;
    }
    if let Some(path) = &args.save_state {
        save_state(app, path, inputs.restored, written_tensors(&called))?;
    }
    show_results(&called, &tensors, inputs.aside.as_ref())?;
    if check_results(app, args, original, &calls, &tensors)? {
        Ok(())
    } else {
        Err(Stop::Reported)
    }
}

/// An error if the inputs file has no labels, although they are to be compared.
fn check_labels(args: &Args, labels: Option<&Tensor>) -> Result<(), Stop> {
    match (&args.labels, labels) {
        (Some(name), None) => {
            let title = format!("the inputs file contains no array `{name}` for --labels");
            Err(Diagnostic::new(Code::E0501, title).into())
        }
        _ => Ok(()),
    }
}

/// Prints an overview of the results.
fn show_results(called: &CallResult, tensors: &[(String, Tensor)], labels: Option<&Tensor>) -> Result<(), Stop> {
    let written = written_tensors(called);
    let mut text = result_overview(&called.result);
    for (name, t) in &written {
        text.push_str(&format!("{name:10} {:20} {}\n", t.ty().to_string(), tensor_summary(t)));
    }
    if let Some(labels) = labels {
        text.push_str(&accuracy_line(tensors, labels)?);
    }
    output::write_stdout(text.as_bytes())
}

/// The values that the calls left in buffers and inputs, with their labels.
fn written_tensors(called: &CallResult) -> Vec<(String, Tensor)> {
    let written = called.written.iter();
    written.map(|(m, t)| (state::mutation_label(m), t.clone())).collect()
}

/// Compares the results with those that `--expect` names and, with `--check`, with the interpreter's.
fn check_results(
    app: &mut App,
    args: &Args,
    original: GraphModule,
    calls: &Calls,
    tensors: &[(String, Tensor)],
) -> Result<bool, Stop> {
    let tolerance = args.tolerance.get();
    let mut agree = true;
    if let Some(path) = &args.expect {
        let expected = files::read_tensors(path)?;
        agree &= check_expected(app, tensors, expected, &path.display().to_string(), tolerance);
    }
    if args.check {
        random::seed(args.seed);
        let oracle = named_results(&run_interpreted(app, args, original, calls)?.result);
        agree &= check_expected(app, tensors, oracle, "the interpreter", tolerance);
    }
    Ok(agree)
}

/// The inputs of the calls of a run.
struct Calls {
    sequence: CallSequence,
    dims: Dims,
}

/// Writes the values of all buffers that were restored or changed, and of the inputs that were changed.
fn save_state(
    app: &mut App,
    path: &Path,
    restored: Vec<(String, Tensor)>,
    written: Vec<(String, Tensor)>,
) -> Result<(), Stop> {
    let unwritten = restored
        .into_iter()
        .filter(|(name, _)| !written.iter().any(|(n, _)| n == name));
    let all: Vec<_> = unwritten.chain(written.iter().cloned()).collect();
    if all.is_empty() {
        app.show_progress(&format!("{}: the model changes no buffer and no input", path.display()));
    }
    Ok(files::write_tensors(path, &all)?)
}

fn run_compiled(app: &mut App, args: &Args, model: LoadedModel, calls: &Calls) -> Result<CallResult, Stop> {
    let request = Request {
        threads: args.threads,
        passes: args.model.pass_options(),
        ..Request::default()
    };
    let module = model.module.clone();
    let mut function = Function::new(model, request);
    run_calls(app, args, &module, calls, |app, bound| {
        Ok(function.call(&mut app.session, bound)?)
    })
}

fn run_interpreted(app: &mut App, args: &Args, module: GraphModule, calls: &Calls) -> Result<CallResult, Stop> {
    let first = bind_provided(app, &module, calls.sequence.at(0), calls.dims.clone())?;
    let mut checked = module.clone();
    app.session.check(&mut checked, &first.types)?;
    let mut interpreter = Interpreter::new(&checked);
    interpreter.watch_inputs();
    run_calls(app, args, &module, calls, |_, bound| {
        let result = interpreter.run(bound.values.clone())?;
        Ok(CallResult {
            result: checked.entry().map_or(result.clone(), |g| user_result(g, result)),
            written: interpreter.written_values(),
        })
    })
}

/// Calls a model as often as `sequence` says. Each call gets its own inputs; the other inputs keep the values that
/// earlier calls left. Returns the result of the last call, or of all, and everything that any call changed.
fn run_calls(
    app: &mut App,
    args: &Args,
    module: &GraphModule,
    calls: &Calls,
    mut call: impl FnMut(&mut App, &BoundInputs) -> Result<CallResult, Stop>,
) -> Result<CallResult, Stop> {
    let Calls { sequence, dims } = calls;
    let mut bound = bind_provided(app, module, sequence.at(0), dims.clone())?;
    let mut called = call(app, &bound)?;
    let mut results = vec![called.result.clone()];
    for i in 1..sequence.calls() {
        if sequence.varies() {
            bound = bind_provided(app, module, sequence.at(i), dims.clone())?;
        }
        let graph = module.entry().ok_or(Stop::Reported)?;
        for (m, t) in &called.written {
            let Mutation::Input(name) = m else { continue };
            let placeholders = graph.placeholders();
            let Some(i) = placeholders.iter().position(|&p| graph[p].name() == &**name) else {
                continue;
            };
            if !sequence.is_new_in_each_call(graph[placeholders[i]].target())
                && let Some(value) = bound.values.get_mut(i)
            {
                *value = Val::Leaf(t.clone());
            }
        }
        called = call(app, &bound)?;
        if args.stack {
            results.push(called.result.clone());
        }
    }
    if args.stack {
        called.result = stack_results(&results)?;
    }
    Ok(called)
}

fn accuracy_line(tensors: &[(String, Tensor)], labels: &Tensor) -> Result<String, Diagnostic> {
    let Some((_, scores)) = tensors.first() else {
        return Err(Diagnostic::new(
            Code::E0504,
            "the graph has no result to compare with the labels",
        ));
    };
    let (met, all) = labels_met(scores, labels)?;
    Ok(format!(
        "labels     {met} of {all} correct ({:.2} %)\n",
        100.0 * met as f64 / all.max(1) as f64
    ))
}

/// Compares results with the expected ones, prints how far apart they are, and reports those that differ.
fn check_expected(
    app: &mut App,
    actual: &[(String, Tensor)],
    want: Vec<(String, Tensor)>,
    origin: &str,
    tolerance: Tolerance,
) -> bool {
    let mut agree = true;
    let mut worst = 0f64;
    for (name, w) in &want {
        let Some((_, g)) = actual.iter().find(|(n, _)| n == name) else {
            app.session.report(Diagnostic::new(
                Code::E0506,
                format!("{origin} has `{name}`, which is not a result"),
            ));
            agree = false;
            continue;
        };
        let d = differ(g, w, tolerance);
        worst = worst.max(d.relative);
        if !d.agrees() {
            app.session.report(results_differ(name, g, w, &d, origin));
            agree = false;
        }
    }
    if actual.len() > want.len() {
        let title = format!("there are {} results, but {origin} has {}", actual.len(), want.len());
        app.session.report(Diagnostic::new(Code::E0506, title));
        agree = false;
    }
    if agree {
        app.show_progress(&format!(
            "agrees with {origin}: maximum difference {worst:.1e}, relative to the largest magnitude"
        ));
    }
    agree
}

fn results_differ(name: &str, actual: &Tensor, expected: &Tensor, d: &Difference, origin: &str) -> Diagnostic {
    if let Some(reason) = &d.mismatch {
        return Diagnostic::new(Code::E0506, format!("`{name}` is {reason}"))
            .note(format!("in comparison with {origin}"));
    }
    let title = format!(
        "`{name}` differs from {origin} in {} of {} elements",
        d.outside, d.count
    );
    let (g, w) = (as_f64(actual.get(d.worst)), as_f64(expected.get(d.worst)));
    Diagnostic::new(Code::E0506, title)
        .note(format!(
            "maximum difference at {:?}: {g} instead of {w}, {:.1e} relative to the largest magnitude",
            unravel_index(d.worst, expected.shape()),
            d.relative
        ))
        .help("set the tolerance with --rtol and --atol")
}
