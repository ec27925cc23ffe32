//! `fxc bench --sweep N=1,3,8`: one function called at several sizes.

use super::bench::Args;
use super::inputs::bound;
use super::{App, Outcome, output};
use crate::driver::{Dims, Function, Request};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// A size and the values it takes.
#[derive(Clone, Debug)]
pub struct Sweep {
    name: String,
    sizes: Vec<i64>,
}

/// `N=1,3,8`.
pub fn parse(text: &str) -> Result<Sweep, String> {
    let wrong = || format!("`{text}` is not NAME=SIZE,SIZE,…");
    let (name, sizes) = text.split_once('=').ok_or_else(wrong)?;
    let sizes = sizes.split(',').map(|s| s.trim().parse().map_err(|_| wrong()));
    Ok(Sweep {
        name: name.into(),
        sizes: sizes.collect::<Result<_, _>>()?,
    })
}

/// Calls the model at each size: how long the first call takes, and how much of it is not running; then how long calls take.
pub fn run(app: &mut App, args: &Args, sweep: &Sweep) -> Outcome {
    let model = args.model.load(app)?;
    let module = model.module.clone();
    let request = Request {
        threads: args.threads,
        passes: args.model.pass_options(),
        ..Request::default()
    };
    let mut function = Function::new(model, request);
    let mut rows = vec![];
    for &size in &sweep.sizes {
        let (provided, _) = args.inputs.read(None)?;
        let mut dims: Dims = args.model.dims();
        dims.insert(sweep.name.clone(), size);
        let bound = bound(app, &module, provided, dims)?;
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
        rows.push((size, first, times));
    }
    app.show();
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let mut text = format!(
        "{:>8} {:>12} {:>12} {:>12}\n",
        sweep.name, "prepare ms", "median ms", "min ms"
    );
    for (size, first, times) in &rows {
        let median = times[times.len() / 2];
        let prepare = first.saturating_sub(median);
        let _ = writeln!(
            text,
            "{size:>8} {:>12.3} {:>12.4} {:>12.4}",
            ms(prepare),
            ms(median),
            ms(times[0])
        );
    }
    output::stdout(text.as_bytes())
}
