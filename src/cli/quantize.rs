//! `fxc quantize`: stores the weights of matrix products as small integers.

use super::inputs::{InputArgs, bind_provided};
use super::print::PrintForm;
use super::weights::{FxirDestination, WeightsFiles, WeightsSource, write_changed_module};
use super::{App, Outcome, Stop};
use crate::diag::{Code, Diagnostic, words};
use crate::driver::Dims;
use crate::graph::GraphModule;
use crate::interp::{self, RuntimeValue};
use crate::op::random;
use crate::pass::PassManager;
use crate::pass::PassOptions;
use crate::pass::quantize::{
    ActivationFormat, Quantization, QuantizeOptions, QuantizedLayer, WeightFormat, result_errors,
};
use crate::tensor::shown_bytes;
use std::path::{Path, PathBuf};

/// Store the weights of matrix products as 8-bit or 4-bit integers with scales
///
/// The written graph computes with the rounded weights, and runs as any other graph. Products read the integers, a quarter or an
/// eighth of the bytes of f32. Weights of convolutions, embeddings and recurrent layers stay as they are.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The model
    model: String,
    /// The format: int8 (a scale for each output feature), or int4-gN (a scale and a zero point for each group of N elements);
    /// int4 is int4-g32
    #[arg(long = "weights", value_name = "FORMAT", value_parser = WeightFormat::parse, default_value = "int8")]
    format: WeightFormat,
    /// Also store the inputs of f32 products with int8 weights as integers: int8-dynamic (each call finds the scale and the zero
    /// point of an input from its values)
    #[arg(long, value_name = "FORMAT", value_parser = ActivationFormat::parse)]
    activations: Option<ActivationFormat>,
    /// Keep this weight, or the weights of this module, as they are
    #[arg(long, value_name = "NAME")]
    skip: Vec<String>,
    /// Measure the error of every product and of the results on these inputs: .npz, .npy or .safetensors
    #[arg(long, value_name = "FILE")]
    calibrate: Vec<PathBuf>,
    /// Inputs to measure on, as for `fxc run`
    #[arg(value_name = "NAME[:TYPE]=VALUE")]
    values: Vec<String>,
    /// The largest relative error. Weights with a larger error stay as they are; the error is that of a product's result if there are
    /// inputs to measure on, otherwise that of the weight. With inputs, the error of the model's results is limited too
    #[arg(long, value_name = "ERROR")]
    max_error: Option<f64>,
    /// The graph to write. The weights are written next to it
    #[arg(short, long, value_name = "FILE.fxir")]
    output: String,
    #[command(flatten)]
    source: WeightsSource,
}

/// The passes after which products can be recognised.
const CANONICAL: [&str; 3] = ["inline", "functionalize", "normalize"];

/// `fxc quantize`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    app.set_subject(&args.model);
    refuse_other_formats(&args.output)?;
    args.source.apply(app);
    let mut model = app.session.load(&args.model)?;
    let held = WeightsFiles::from_module(&model.module);
    app.session.check(&mut model.module, &[])?;
    let mut manager = PassManager::from_names(&CANONICAL)?;
    app.session
        .run_passes(&mut model.module, &mut manager, &PassOptions::default())?;
    app.show_findings();
    let mut options = QuantizeOptions::new(args.format);
    options.activations = args.activations;
    options.skip = args.skip.clone();
    options.max_error = args.max_error;
    let mut quantization = Quantization::of_module(&model.module, &options);
    note_unknown_names(app, &quantization, &args.skip);
    let samples = measure(app, args, &mut quantization, &model.module)?;
    let mut errors = vec![];
    if !samples.is_empty() {
        errors = limit_result_errors(&mut quantization, &model.module, &samples, args.max_error)?;
    }
    quantization.apply(&mut model.module)?;
    app.session.check(&mut model.module, &[])?;
    show_report(app, &quantization, &errors);
    let to = FxirDestination {
        source: &args.model,
        output: Some(&args.output),
        weights: None,
        how: None,
    };
    write_changed_module(app, &mut model.module, PrintForm::Fxir, &held, &to)
}

/// Text in a file that is named like an archive would not be read again.
fn refuse_other_formats(output: &str) -> Outcome {
    let ending = Path::new(output)
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    if !["pt2", "fxc", "safetensors", "npz", "npy", "zip"].contains(&&*ending) {
        return Ok(());
    }
    let title = format!("`{output}` is not the name of a graph: `fxc quantize` writes FXIR");
    let d = Diagnostic::new(Code::E0703, title);
    Err(d
        .help("write q.fxir; `fxc compile q.fxir -o q.fxc` makes a compiled model of it")
        .into())
}

fn note_unknown_names(app: &App, quantization: &Quantization, skip: &[String]) {
    for name in skip {
        let matches = |l: &QuantizedLayer| l.path.strip_prefix(name.as_str()).is_some();
        if !quantization.layers().any(matches) {
            app.show_progress(&format!("note: no product reads a weight `{name}` (--skip)"));
        }
    }
}

/// One set of inputs, and the results of the original model.
struct ReferenceCall {
    inputs: Vec<RuntimeValue>,
    results: RuntimeValue,
}

/// Runs the original model on all given inputs, and measures each product.
fn measure(
    app: &mut App,
    args: &Args,
    quantization: &mut Quantization,
    module: &GraphModule,
) -> Result<Vec<ReferenceCall>, Stop> {
    let mut files: Vec<Vec<PathBuf>> = args.calibrate.iter().map(|f| vec![f.clone()]).collect();
    if files.is_empty() && !args.values.is_empty() {
        files.push(vec![]);
    }
    let mut samples = vec![];
    for files in files {
        let given = InputArgs {
            values: args.values.clone(),
            files,
            ..InputArgs::default()
        };
        let mut module = module.clone();
        let provided = given.take_inputs(app, &mut module, None)?.provided;
        let bound = bind_provided(app, &module, provided, Dims::default())?;
        random::seed(0);
        let results = quantization.measure(&module, bound.values.clone())?;
        samples.push(ReferenceCall {
            inputs: bound.values,
            results,
        });
    }
    Ok(samples)
}

/// Finds the errors of the model's results. With a limit, keeps as few of the worst weights as results need to be within it.
fn limit_result_errors(
    quantization: &mut Quantization,
    module: &GraphModule,
    samples: &[ReferenceCall],
    limit: Option<f64>,
) -> Result<Vec<f64>, Stop> {
    let errors = errors_of_results(quantization, module, samples)?;
    let within = |errors: &[f64]| limit.is_none_or(|limit| errors.iter().all(|&e| e <= limit));
    if within(&errors) {
        return Ok(errors);
    }
    // Without any rounded weight, the results are exact.
    let (mut too_few, mut enough) = (0, quantization.layers().filter(|l| l.kept.is_none()).count());
    while enough - too_few > 1 {
        let middle = too_few.midpoint(enough);
        let mut fewer = quantization.clone();
        fewer.keep_worst(middle);
        match within(&errors_of_results(&fewer, module, samples)?) {
            true => enough = middle,
            false => too_few = middle,
        }
    }
    quantization.keep_worst(enough);
    errors_of_results(quantization, module, samples)
}

/// The largest error of each result over all samples.
fn errors_of_results(
    quantization: &Quantization,
    module: &GraphModule,
    samples: &[ReferenceCall],
) -> Result<Vec<f64>, Stop> {
    let mut module = module.clone();
    quantization.apply(&mut module)?;
    let mut largest: Vec<f64> = vec![];
    for sample in samples {
        random::seed(0);
        let got = interp::run(&module, sample.inputs.clone())?;
        let errors = result_errors(&got, &sample.results);
        largest.resize(errors.len(), 0.0);
        for (known, error) in largest.iter_mut().zip(errors) {
            // Not `max`, which ignores NaN.
            *known = if error <= *known { *known } else { error };
        }
    }
    Ok(largest)
}

/// Prints a line for each weight and the sums.
fn show_report(app: &App, quantization: &Quantization, errors: &[f64]) {
    let width = quantization.layers().map(|l| l.path.len()).max().unwrap_or(0);
    for layer in quantization.layers() {
        app.show_progress(&layer_line(layer, width));
    }
    let (mut before, mut after) = (0, 0);
    for layer in quantization.layers() {
        before += layer.bytes_before;
        after += layer.bytes_after;
    }
    let rounded = quantization.layers().filter(|l| l.kept.is_none()).count();
    let all = words::count(quantization.layers().count(), "weight");
    app.show_progress(&format!(
        "quantized: {rounded} of {all}, {} -> {}",
        shown_bytes(before),
        shown_bytes(after)
    ));
    for (i, error) in errors.iter().enumerate() {
        app.show_progress(&format!("error of output.{i}: {error:.2e}"));
    }
}

fn layer_line(layer: &QuantizedLayer, width: usize) -> String {
    let [features, inputs] = layer.shape;
    let head = format!("{:width$}  {:>13}", layer.path, format!("{features} x {inputs}"));
    if let Some(reason) = &layer.kept {
        return format!("{head}  kept: {reason}");
    }
    let output = match layer.output_error {
        Some(e) => format!("{e:.2e}"),
        None => "-".to_string(),
    };
    format!(
        "{head}  {:>10} -> {:>10}  error of the weight {:.2e}, of the product {output}",
        shown_bytes(layer.bytes_before),
        shown_bytes(layer.bytes_after),
        layer.weight_error
    )
}
