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
            let run_start = Instant::now();
            s.run()?;
            times.push(run_start.elapsed());
        }
    }
    app.show_findings();
    times.iter_mut().for_each(|t| t.sort());
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let [least, median] =
        [|t: &Vec<Duration>| t[0], |t: &Vec<Duration>| t[t.len() / 2]].map(|f| times.each_ref().map(|t| ms(f(t))));
    let comparison = Comparison {
        names: [args.model.model.as_str(), other],
        least,
        median,
        runs: times[0].len(),
    };
    let text = if args.json {
        comparison.to_json()
    } else {
        comparison.to_text()
    };
    output::write_stdout(text.as_bytes())
}

/// The times of two models, in milliseconds.
struct Comparison<'a> {
    names: [&'a str; 2],
    least: [f64; 2],
    median: [f64; 2],
    /// The number of calls of each.
    runs: usize,
}

impl Comparison<'_> {
    fn ratio(&self) -> f64 {
        self.least[0] / self.least[1]
    }

    fn to_json(&self) -> String {
        let row = |i: usize| json!({"model": self.names[i], "min_ms": self.least[i], "median_ms": self.median[i]});
        let rows = [0, 1].map(row);
        format!(
            "{}\n",
            json!({"runs": self.runs, "models": rows, "ratio": self.ratio()})
        )
    }

    fn to_text(&self) -> String {
        let width = self.names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
        let row = |i: usize| {
            let (name, median, least) = (self.names[i], self.median[i], self.least[i]);
            format!("{name:width$}  median {median:.4} ms, min {least:.4} ms\n")
        };
        let (ratio, runs) = (self.ratio(), self.runs);
        format!(
            "{}{}the first takes {ratio:.2} times as long (minimum of {runs} runs each)\n",
            row(0),
            row(1)
        )
    }
}

fn other_subject(app: &mut App, args: &Args, path: &str) -> Result<Subject, Stop> {
    app.set_subject(path);
    // The given weights are those of the first model.
    app.session.weights = None;
    let model = app.session.load(path)?;
    Subject::new(app, args, model)
}
