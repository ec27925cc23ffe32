//! `fxc bench --sweep N=1,3,8`: calls one function at several sizes.

use super::Args;
use crate::cli::inputs::bind_provided;
use crate::cli::model::{SizeList, given_dims};
use crate::cli::{App, Outcome, output};
use crate::driver::{Function, Request};
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
        let given: Vec<_> = args.model.dims.iter().cloned().chain(swept).collect();
        let dims = given_dims(app, &module, &given)?;
        let bound = bind_provided(app, &module, provided.clone(), dims)?;
        let start = Instant::now();
        function.prepare(&mut app.session, &bound)?;
        let prepared = start.elapsed();
        let mut call = || {
            let start = Instant::now();
            function.call(&mut app.session, &bound)?;
            Ok::<Duration, super::Stop>(start.elapsed())
        };
        let first = call()?;
        let mut times = vec![call()?];
        let measuring = Instant::now();
        while times.len() < 5 || (measuring.elapsed().as_secs_f64() < args.seconds && times.len() < 20_000) {
            times.push(call()?);
        }
        times.sort();
        rows.push((size, prepared, first, times));
    }
    app.show_findings();
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let name = sweep.names.join(",");
    let mut text = format!(
        "{name:>8} {:>12} {:>12} {:>12} {:>12}\n",
        "prepare ms", "first ms", "median ms", "min ms"
    );
    for (size, prepared, first, times) in &rows {
        let _ = writeln!(
            text,
            "{size:>8} {:>12.3} {:>12.4} {:>12.4} {:>12.4}",
            ms(*prepared),
            ms(*first),
            ms(times[times.len() / 2]),
            ms(times[0])
        );
    }
    output::write_stdout(text.as_bytes())
}
