//! `fxc bench export.pt2 --against core.pt2`: calls two models alternately on the same inputs.

use super::{Args, Subject};
use crate::cli::{App, Outcome, Stop, output};
use crate::driver::LoadedModel;
use serde_json::json;
use std::time::{Duration, Instant};

/// Calls both models alternately, so that a slow phase of the machine affects both, and compares the shortest times: of
/// repetitions of the same work, these were delayed least by other processes.
pub(super) fn run(app: &mut App, args: &Args, model: LoadedModel, other: &str) -> Outcome {
    let mut subjects = [Subject::new(app, args, model)?, other_subject(app, args, other)?];
    let mut times: [Vec<Duration>; 2] = Default::default();
    for s in &mut subjects {
        s.run()?;
    }
    let start = Instant::now();
    while times[0].len() < 5 || (start.elapsed().as_secs_f64() < args.seconds && times[0].len() < 20_000) {
        for (s, times) in subjects.iter_mut().zip(&mut times) {
            let one = Instant::now();
            s.run()?;
            times.push(one.elapsed());
        }
    }
    app.show_findings();
    times.iter_mut().for_each(|t| t.sort());
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let [least, median] =
        [|t: &Vec<Duration>| t[0], |t: &Vec<Duration>| t[t.len() / 2]].map(|f| times.each_ref().map(|t| ms(f(t))));
    let ratio = least[0] / least[1];
    let names = [args.model.model.as_str(), other];
    let text = if args.json {
        let rows: Vec<_> = (0..2)
            .map(|i| json!({"model": names[i], "min_ms": least[i], "median_ms": median[i]}))
            .collect();
        format!("{}\n", json!({"runs": times[0].len(), "models": rows, "ratio": ratio}))
    } else {
        let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
        let rows = (0..2).map(|i| {
            format!(
                "{:width$}  median {:.4} ms, min {:.4} ms\n",
                names[i], median[i], least[i]
            )
        });
        format!(
            "{}the first takes {ratio:.2} times as long (minimum of {} runs each)\n",
            rows.collect::<String>(),
            times[0].len()
        )
    };
    output::write_stdout(text.as_bytes())
}

fn other_subject(app: &mut App, args: &Args, path: &str) -> Result<Subject, Stop> {
    app.set_subject(path);
    // The given weights are those of the first model.
    app.session.weights = None;
    let model = app.session.load(path)?;
    Subject::new(app, args, model)
}
