//! `fxc run`: a model on inputs.

use super::inputs::{InputArgs, ToleranceArgs, bound};
use super::model::ModelArgs;
use super::{App, Outcome, Stop, output};
use crate::diag::{Code, Diagnostic};
use crate::driver::compare::{Difference, Tolerance, compare as differ, position};
use crate::driver::run::{as_f64, labels_met, named, overview, summary, user_result};
use crate::driver::{Bound, Called, Function, Model, Request, files};
use crate::graph::{GraphModule, Mutation};
use crate::interp::Interpreter;
use crate::op::random;
use crate::tensor::Tensor;
use crate::types::Val;
use std::path::PathBuf;

/// Compile a model and run it on inputs
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    inputs: InputArgs,
    /// Write the results (output.0, output.1, … in flattened order): .npz, .npy or .safetensors
    #[arg(long, value_name = "FILE")]
    outputs: Option<PathBuf>,
    /// Compare the results with those in a file; exit with 1 if they differ
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    #[command(flatten)]
    tolerance: ToleranceArgs,
    /// Compare the largest score of each row of the first result with this array of integers of the inputs file
    #[arg(long, value_name = "NAME")]
    labels: Option<String>,
    /// Threads to run on; as many as the machine has by default
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Call the model this many times in a row: buffers and inputs that it changes keep their values from call to call. The
    /// results are those of the last call
    #[arg(long, value_name = "TIMES", default_value_t = 1, hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Seed of the random numbers that the graph draws, as torch.manual_seed
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Run node by node in the interpreter instead of compiling
    #[arg(long, conflicts_with = "check")]
    interpret: bool,
    /// Also run in the interpreter, and exit with 1 if the results differ
    #[arg(long)]
    check: bool,
}

/// `fxc run`.
pub fn main(app: &mut App, args: &Args) -> Outcome {
    let model = args.model.load(app)?;
    let (provided, labels) = args.inputs.read(args.labels.as_deref())?;
    if let (Some(name), None) = (&args.labels, &labels) {
        return Err(Diagnostic::new(
            Code::E0501,
            format!("the inputs file has no array `{name}` for --labels"),
        )
        .into());
    }
    let bound = bound(app, &model.module, provided, args.model.dims())?;
    let original = model.module.clone();
    random::seed(args.seed);
    let called = if args.interpret {
        interpreted(app, args, original.clone(), &bound)?
    } else {
        compiled(app, args, model, &bound)?
    };
    app.show();

    let tensors = named(&called.result);
    let written: Vec<(String, Tensor)> = called.written.iter().map(|(m, t)| (label(m), t.clone())).collect();
    let mut text = overview(&called.result);
    for (name, t) in &written {
        text.push_str(&format!("{name:10} {:20} {}\n", t.ty().to_string(), summary(t)));
    }
    if let Some(labels) = &labels {
        text.push_str(&accuracy(&tensors, labels)?);
    }
    output::stdout(text.as_bytes())?;
    if let Some(path) = &args.outputs {
        files::write_tensors(path, &[tensors.clone(), written].concat())?;
    }
    let tolerance = args.tolerance.get();
    let mut agree = true;
    if let Some(path) = &args.expect {
        agree &= expected(
            app,
            &tensors,
            files::read_tensors(path)?,
            &path.display().to_string(),
            tolerance,
        );
    }
    if args.check {
        random::seed(args.seed);
        let oracle = named(&interpreted(app, args, original, &bound)?.result);
        agree &= expected(app, &tensors, oracle, "the interpreter", tolerance);
    }
    if agree { Ok(()) } else { Err(Stop::Reported) }
}

fn compiled(app: &mut App, args: &Args, model: Model, bound: &Bound) -> Result<Called, Stop> {
    let request = Request {
        threads: args.threads,
        passes: args.model.pass_options(),
        ..Request::default()
    };
    let module = model.module.clone();
    let mut function = Function::new(model, request);
    let mut bound = bound.clone();
    repeated(args.repeat, &module, &mut bound, |bound| {
        Ok(function.call(&mut app.session, bound)?)
    })
}

fn interpreted(app: &mut App, args: &Args, mut module: GraphModule, bound: &Bound) -> Result<Called, Stop> {
    app.session.check(&mut module, &bound.types)?;
    let mut interpreter = Interpreter::new(&module);
    interpreter.watch_inputs();
    let mut bound = bound.clone();
    repeated(args.repeat, &module, &mut bound, |bound| {
        let result = interpreter.run(bound.values.clone())?;
        Ok(Called {
            result: module.entry().map_or(result.clone(), |g| user_result(g, result)),
            written: interpreter.written(),
        })
    })
}

/// Calls a model `times` times, with the inputs as the calls leave them. What the last call gives, with all that any call
/// has changed.
fn repeated(
    times: u32,
    module: &GraphModule,
    bound: &mut Bound,
    mut call: impl FnMut(&Bound) -> Result<Called, Stop>,
) -> Result<Called, Stop> {
    let mut called = call(bound)?;
    for _ in 1..times {
        let graph = module.entry().ok_or(Stop::Reported)?;
        for (m, t) in &called.written {
            let Mutation::Input(name) = m else { continue };
            let at = graph.placeholders().iter().position(|&p| graph[p].name() == &**name);
            if let Some(value) = at.and_then(|i| bound.values.get_mut(i)) {
                *value = Val::Leaf(t.clone());
            }
        }
        called = call(bound)?;
    }
    Ok(called)
}

/// What a changed buffer or input is called among the results: `buffer.running_mean`.
fn label(m: &Mutation) -> String {
    match m {
        Mutation::Buffer(path) => format!("buffer.{path}"),
        Mutation::Input(name) => format!("input.{name}"),
    }
}

fn accuracy(tensors: &[(String, Tensor)], labels: &Tensor) -> Result<String, Diagnostic> {
    let Some((_, scores)) = tensors.first() else {
        return Err(Diagnostic::new(
            Code::E0504,
            "the graph has no result to compare labels with",
        ));
    };
    let (met, all) = labels_met(scores, labels)?;
    Ok(format!(
        "labels     {met} of {all} met ({:.2} %)\n",
        100.0 * met as f64 / all.max(1) as f64
    ))
}

/// Compares results with those wanted, says how far they are apart, and reports those that differ.
fn expected(
    app: &mut App,
    got: &[(String, Tensor)],
    want: Vec<(String, Tensor)>,
    origin: &str,
    tolerance: Tolerance,
) -> bool {
    let mut agree = true;
    let mut worst = 0f64;
    for (name, w) in &want {
        let Some((_, g)) = got.iter().find(|(n, _)| n == name) else {
            app.session.report(Diagnostic::new(
                Code::E0506,
                format!("{origin} has `{name}`, which is no result"),
            ));
            agree = false;
            continue;
        };
        let d = differ(g, w, tolerance);
        worst = worst.max(d.relative);
        if !d.agrees() {
            app.session.report(difference(name, g, w, &d, origin));
            agree = false;
        }
    }
    if got.len() > want.len() {
        let title = format!("there are {} results, but {origin} has {}", got.len(), want.len());
        app.session.report(Diagnostic::new(Code::E0506, title));
        agree = false;
    }
    if agree {
        app.progress(&format!(
            "agrees with {origin}: largest difference {worst:.1e} of the largest magnitude"
        ));
    }
    agree
}

fn difference(name: &str, got: &Tensor, want: &Tensor, d: &Difference, origin: &str) -> Diagnostic {
    if let Some(why) = &d.mismatch {
        return Diagnostic::new(Code::E0506, format!("`{name}` is {why}")).note(format!("compared with {origin}"));
    }
    let title = format!(
        "`{name}` differs from {origin} in {} of {} elements",
        d.outside, d.count
    );
    let (g, w) = (as_f64(got.get(d.worst)), as_f64(want.get(d.worst)));
    Diagnostic::new(Code::E0506, title)
        .note(format!(
            "most at {:?}: {g} instead of {w}, {:.1e} of the largest magnitude",
            position(d.worst, want.shape()),
            d.relative
        ))
        .help("--rtol and --atol set how much is allowed")
}
