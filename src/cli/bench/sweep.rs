//! `fxc bench --sweep N=1,3,8`: calls one function at several sizes.

use super::Args;
use crate::cli::inputs::bind_provided;
use crate::cli::model::{SizeList, given_dims};
use crate::cli::{App, Outcome, output};
use crate::driver::{BoundInputs, Function, Request};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Calls the model at each size. Measures the time until it is ready for the size, the first call (whose memory is
/// new), and further calls.
pub(super) fn run(app: &mut App, args: &Args, sweep: &SizeList) -> Outcome {
    let mut model = args.load_model(app)?;
    args.inputs.declare_types(app, &mut model.module)?;
    let provided = args.inputs.take_inputs(app, &mut model.module, None)?.provided;
    let module = model.module.clone();
    let request = Request {
        threads: args.threads,
        passes: args.model.pass_options(),
        ..Request::default()
    };
    let mut function = Function::new(model, request);
    let mut rows = vec![];
    for &size in &sweep.sizes {
        let swept = sweep.names.iter().map(|n| (n.clone(), size));
        let all_dims: Vec<_> = args.model.dims.iter().cloned().chain(swept).collect();
        let dims = given_dims(app, &module, &all_dims)?;
        let bound = bind_provided(app, &module, provided.clone(), dims)?;
        rows.push((size, measure_size(app, &mut function, &bound, args.seconds)?));
    }
    app.show_findings();
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let name = sweep.names.join(",");
    let mut text = format!(
        "{name:>8} {:>12} {:>12} {:>12} {:>12}\n",
        "prepare ms", "first ms", "median ms", "min ms"
    );
    for (size, t) in &rows {
        let (prepared, first) = (ms(t.prepared), ms(t.first));
        let (median, min) = (ms(t.calls[t.calls.len() / 2]), ms(t.calls[0]));
        let _ = writeln!(
            text,
            "{size:>8} {prepared:>12.3} {first:>12.4} {median:>12.4} {min:>12.4}"
        );
    }
    output::write_stdout(text.as_bytes())
}

/// The times of one size.
struct SizeTimes {
    /// The time until the function was ready for the size.
    prepared: Duration,
    /// The time of the first call.
    first: Duration,
    /// The times of further calls, sorted.
    calls: Vec<Duration>,
}

fn measure_size(
    app: &mut App,
    function: &mut Function,
    bound: &BoundInputs,
    seconds: f64,
) -> Result<SizeTimes, super::Stop> {
    let start = Instant::now();
    function.prepare(&mut app.session, bound)?;
    let prepared = start.elapsed();
    let mut call = || {
        let start = Instant::now();
        function.call(&mut app.session, bound)?;
        Ok::<Duration, super::Stop>(start.elapsed())
    };
    let first = call()?;
    let mut calls = vec![call()?];
    let measuring = Instant::now();
    while calls.len() < 5 || (measuring.elapsed().as_secs_f64() < seconds && calls.len() < 20_000) {
        calls.push(call()?);
    }
    calls.sort();
    Ok(SizeTimes { prepared, first, calls })
}
