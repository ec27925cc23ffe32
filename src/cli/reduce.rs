//! `fxc reduce`: makes a model that fails small, so that the failure can be understood and reported.

mod trial;

use self::trial::{Failure, Trial};
use super::inputs::{InputArgs, ToleranceArgs, on_inputs};
use super::limits::parse_threads;
use super::model::ModelArgs;
use super::weights::WeightsFile;
use super::{App, Outcome, Stop, output};
use crate::diag::words;
use crate::driver::{BoundInputs, Failing, files, reduce};
use crate::graph::{self, GraphModule};
use crate::tensor::Tensor;
use crate::types::Val;
use std::path::Path;
use std::time::Duration;

/// Reduce a model that fails to a few nodes that fail in the same way
///
/// The failure is that of `fxc run --check` with these options in a process of its own: a wrong result, an error, an internal
/// error, a crash or a hang. --check replaces it by a command.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    weights: WeightsFile,
    #[command(flatten)]
    inputs: InputArgs,
    /// A shell command that succeeds if the model fails. `{}` stands for the model's file, `{inputs}` for the file of its inputs
    #[arg(long, value_name = "COMMAND")]
    check: Option<String>,
    #[command(flatten)]
    tolerance: ToleranceArgs,
    /// Number of threads that the model runs on
    #[arg(long, default_value_t = 1, value_parser = parse_threads)]
    threads: usize,
    /// Seconds that a smaller model may take before it counts as one that hangs
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    timeout: u64,
    /// The number of smaller models to try at most
    #[arg(long, default_value_t = 5000, value_name = "NUMBER")]
    attempts: usize,
    /// Output file, with the inputs and weights next to it [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
}

/// `fxc reduce`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    args.weights.apply(app);
    let model = args.model.load(app)?;
    let (module, bound) = on_inputs(app, &args.model, model, &args.inputs)?;
    app.show_findings();
    let failing = load_values(module, bound);
    let mut trial = Trial::new(
        args.run_options(app),
        args.check.clone(),
        Duration::from_secs(args.timeout),
    )?;
    let failure = trial.observe(&failing)?;
    if failure == Failure::None {
        app.show_progress(
            "the model does not fail: pass the options and inputs with which it does, or a command with --check",
        );
        return Err(Stop::Findings);
    }
    app.show_progress(&format!("the failure: {failure}"));
    let before = node_count(&failing.module);
    // The interpreter computes the values of smaller graphs and may panic on them. The trial's own process reports the failure,
    // so the message of this panic would only confuse.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let reduced = reduce(failing, args.attempts, &mut |f| {
        trial.observe(f).is_ok_and(|now| now == failure)
    });
    std::panic::set_hook(hook);
    let after = words::count(node_count(&reduced.failing.module), "node");
    app.show_progress(&format!(
        "{before} nodes reduced to {after}, in {}",
        words::count(reduced.attempts, "attempt")
    ));
    write_reduced(app, args, &reduced.failing)
}

impl Args {
    /// The options of `fxc run` for this failure.
    fn run_options(&self, app: &App) -> Vec<String> {
        let mut out: Vec<String> = vec!["--check".into(), "--no-cache".into()];
        let tolerance = self.tolerance.get();
        let mut add = |name: &str, value: String| out.extend([name.to_string(), value]);
        tolerance.rtol.iter().for_each(|x| add("--rtol", x.to_string()));
        add("--atol", tolerance.atol.to_string());
        add("--threads", self.threads.to_string());
        add("--precision", self.model.precision.name().to_string());
        self.model.skip_pass.iter().for_each(|p| add("--skip-pass", p.clone()));
        if let Some(target) = app.session.target {
            add("--target", target.relative_name());
        }
        let flags = [
            ("--exact", self.model.exact),
            ("--fast-math", self.model.fast_math),
            ("--verify-each", self.model.verify_each),
        ];
        out.extend(flags.iter().filter(|(_, set)| *set).map(|(name, _)| name.to_string()));
        out
    }
}

fn node_count(m: &GraphModule) -> usize {
    m.graphs.values().map(|g| g.len()).sum()
}

/// The model and its inputs in memory: files would be read again in each attempt.
fn load_values(mut module: GraphModule, bound: BoundInputs) -> Failing {
    module.weights = None;
    Failing {
        module,
        inputs: bound.values,
    }
}

/// The inputs that are tensors, by name.
fn input_tensors(f: &Failing) -> Vec<(String, Tensor)> {
    let Some(graph) = f.module.entry() else { return vec![] };
    let named = graph.placeholders().into_iter().zip(&f.inputs);
    let tensors = named.filter_map(|(p, v)| Some((graph[p].target().to_string(), v.as_leaf()?.clone())));
    tensors.collect()
}

/// Other inputs, as arguments of a command.
fn input_arguments(f: &Failing) -> Vec<String> {
    let Some(graph) = f.module.entry() else { return vec![] };
    let named = graph.placeholders().into_iter().zip(&f.inputs);
    let others = named.filter(|(_, v)| !matches!(v, Val::Leaf(_)));
    others
        .map(|(p, v)| format!("{}={}", graph[p].target(), v.map(|t| t.ty())))
        .collect()
}

/// The text of a module whose weights are in a file.
fn text_with_weights(m: &GraphModule, file: Option<&str>) -> String {
    let mut m = m.clone();
    m.weights = file.map(|f| (f.to_string(), None));
    graph::print(&m)
}

fn has_weights(m: &GraphModule) -> bool {
    m.attributes.values().any(graph::print::is_stored)
}

/// An input in a comment: its elements, if they are few.
fn describe_input(name: &str, t: &Tensor) -> String {
    const SHOWN: usize = 64;
    let shown: Vec<String> = (0..t.numel().min(SHOWN))
        .map(|i| crate::driver::run::as_f64(t.get(i)).to_string())
        .collect();
    let rest = if t.numel() > SHOWN { ", …" } else { "" };
    format!("# {name} : {} = [{}{rest}]\n", t.ty(), shown.join(", "))
}

fn write_reduced(app: &App, args: &Args, f: &Failing) -> Outcome {
    let tensors = input_tensors(f);
    let mut text: String = tensors.iter().map(|(name, t)| describe_input(name, t)).collect();
    let Some(path) = args.output.as_deref().filter(|o| !files::is_stream(o)) else {
        if has_weights(&f.module) {
            app.show_progress("note: the text does not contain the values of weights: write them with `-o FILE`");
        }
        text.push_str(&text_with_weights(&f.module, None));
        return output::write_stdout(text.as_bytes());
    };
    let inputs = Path::new(path).with_extension("inputs.safetensors");
    files::write_tensors(&inputs, &tensors)?;
    let weights = trial::write_weights(&f.module, Path::new(path))?;
    text.push_str(&text_with_weights(&f.module, weights.as_deref()));
    output::write_artifact(Some(path), text.as_bytes())?;
    let others: String = input_arguments(f).iter().map(|a| format!(" {a}")).collect();
    app.show_progress(&format!(
        "`fxc run {path} --inputs {}{others} --check` runs it",
        inputs.display()
    ));
    Ok(())
}
