//! `fxc bench`: measures the duration of calls and their memory.

mod against;
mod memory;
mod sweep;

use self::memory::MemoryReport;
use crate::cli::cache::CacheArgs;
use crate::cli::inputs::{InputArgs, bind_provided, with_random};
use crate::cli::limits::parse_threads;
use crate::cli::model::{ModelArgs, SizeList, parse_sizes};
use crate::cli::weights::WeightsFile;
use crate::cli::{App, Outcome, Stop, output};
use crate::driver::{BoundInputs, LoadedModel, Ready, Request, Stage, Timer, compile, lock_observer, thread_count};
use crate::graph::GraphModule;
use crate::runtime::{Executable, Profile};
use serde_json::json;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// Measure the speed and memory use of a compiled model
///
/// Reports this process's memory: the weights that the program uses, each counted once; the weights packed for matrix products and
/// convolutions, whose originals are released; the arena of intermediate values; the kernels' code; and the peak resident memory
/// since the start, which includes inputs, results, the compiler and everything else.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    weights: WeightsFile,
    #[command(flatten)]
    pub(super) inputs: InputArgs,
    /// Number of threads to run on [default: all of the machine's]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = parse_threads)]
    pub(super) threads: usize,
    /// Measuring time in seconds, after 0.3 s of warm-up; there are at least five runs
    #[arg(long, default_value_t = 1.0)]
    pub(super) seconds: f64,
    /// Also measure each step
    #[arg(long)]
    profile: bool,
    /// Print a JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// Call the model at each of these sizes in turn and report the cost of a new size
    #[arg(long, value_name = "NAME[,NAME]=SIZE,…", value_parser = parse_sizes, conflicts_with_all = ["profile", "json"])]
    sweep: Option<SizeList>,
    /// Also measure this model on the same inputs, alternating with the first, and report the ratio of their times
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["profile", "sweep"])]
    against: Option<String>,
}

impl Args {
    /// Loads the model. Of a compiled model, only reads what calls need.
    pub(super) fn load_model(&self, app: &mut App) -> Result<LoadedModel, Stop> {
        match self.inputs.change_model() {
            true => self.model.load(app),
            false => self.model.load_to_run(app),
        }
    }
}

/// A model that is ready to be measured.
pub(super) struct Subject {
    pub(super) module: GraphModule,
    pub(super) ready: Ready,
    pub(super) bound: BoundInputs,
}

impl Subject {
    /// Compiles a model for the given inputs.
    pub(super) fn new(app: &mut App, args: &Args, mut model: LoadedModel) -> Result<Subject, Stop> {
        let typed = args.inputs.declare_types(app, &mut model.module)?;
        let provided = args.inputs.take_inputs(app, &mut model.module, None)?.provided;
        let provided = with_random(&model.module, provided, &typed);
        let dims = args.model.resolve_dims(app, &model.module)?;
        let bound = bind_provided(app, &model.module, provided, dims)?;
        let request = Request {
            inputs: Some(bound.types.clone()),
            dims: bound.dims.clone(),
            threads: args.threads,
            passes: args.model.pass_options(),
            until: Some(Stage::Compile),
            ..Request::default()
        };
        let compilation = compile(&mut app.session, model, &request)?;
        let ready = compilation.ready.ok_or(Stop::Reported)?;
        Ok(Subject {
            module: compilation.module,
            ready,
            bound,
        })
    }

    pub(super) fn run(&mut self) -> Result<(), Stop> {
        self.ready.run_alone(&self.module, &self.bound)?;
        Ok(())
    }
}

/// The measurements.
struct Measured {
    first: Duration,
    sorted: Vec<Duration>,
    profile: Option<Profile>,
}

impl Measured {
    fn quantile_ms(&self, quantile: f64) -> f64 {
        let i = (self.sorted.len() as f64 * quantile) as usize;
        self.sorted[i.min(self.sorted.len() - 1)].as_secs_f64() * 1e3
    }
}

/// `fxc bench`.
pub(super) fn main(app: &mut App, args: &Args) -> Outcome {
    args.weights.apply(app);
    args.cache.apply(app, &args.model);
    if let Some(sweep) = &args.sweep {
        return sweep::run(app, args, sweep);
    }
    let start = Instant::now();
    let timer = Arc::new(Mutex::new(Timer::default()));
    app.session.observe(timer.clone());
    let model = args.load_model(app)?;
    if let Some(other) = &args.against {
        return against::run(app, args, model, other);
    }
    let mut subject = Subject::new(app, args, model)?;
    let measured = measure_calls(&mut subject, start, args)?;
    let ready = subject.ready;
    app.show_findings();
    let threads = thread_count(args.threads);
    let text = if args.json {
        format!("{}\n", as_json(&measured, &ready, &lock_observer(&timer), threads))
    } else {
        as_text(&measured, &ready, &lock_observer(&timer), threads)
    };
    output::write_stdout(text.as_bytes())
}

fn measure_calls(subject: &mut Subject, start: Instant, args: &Args) -> Result<Measured, Stop> {
    subject.run()?;
    let first = since_process_start(start);
    let warm = Instant::now();
    while warm.elapsed() < Duration::from_millis(300) {
        subject.run()?;
    }
    let mut sorted = vec![];
    let measuring = Instant::now();
    while sorted.len() < 5 || (measuring.elapsed().as_secs_f64() < args.seconds && sorted.len() < 20_000) {
        let run_start = Instant::now();
        subject.run()?;
        sorted.push(run_start.elapsed());
    }
    sorted.sort();
    let mut profile = None;
    if args.profile
        && let Some(executable) = subject.ready.executable_mut()
    {
        executable.start_profile();
        for _ in 0..sorted.len().min(100) {
            subject.run()?;
        }
        profile = subject.ready.executable().map(Executable::profile);
    }
    Ok(Measured { first, sorted, profile })
}

/// The time since the process started. A caller that measures processes passes its own clock in the environment (`T0`,
/// seconds since 1970), which includes the start of the process.
fn since_process_start(start: Instant) -> Duration {
    let started = std::env::var("T0").ok().and_then(|t| t.parse::<f64>().ok());
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map(|d| d.as_secs_f64());
    match (started, now) {
        (Some(t0), Ok(now)) if (0.0..1e6).contains(&(now - t0)) => Duration::from_secs_f64(now - t0),
        _ => start.elapsed(),
    }
}

fn as_json(m: &Measured, ready: &Ready, timer: &Timer, threads: usize) -> serde_json::Value {
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    let stages: serde_json::Map<_, _> = timer
        .times
        .iter()
        .map(|(s, t)| (s.name().to_string(), ms(*t).into()))
        .collect();
    let p = ready.executable().map(Executable::program);
    let memory = MemoryReport::from_ready(ready);
    let mut out = json!({
        "median_ms": m.quantile_ms(0.5),
        "min_ms": m.quantile_ms(0.0),
        "p95_ms": m.quantile_ms(0.95),
        "first_ms": ms(m.first),
        "peak_rss_mb": memory.peak_mb(),
        "memory_bytes": memory.to_json(),
        "runs": m.sorted.len(),
        "threads": threads,
        "kernels": p.map_or(0, |p| p.kernels.len()),
        "steps": p.map_or(0, |p| p.steps.len()),
        "interpreted": ready.interpreted_count(),
        "arena_bytes": p.map_or(0, |p| p.arena),
        "stages_ms": stages,
    });
    if let Some(profile) = &m.profile {
        let rows = profile.rows.iter().map(|r| {
            let place = places_of(ready, &r.name);
            json!({"name": r.name, "place": place, "ms": ms(r.time), "least_ms": ms(r.min), "bytes": r.bytes, "macs": r.macs})
        });
        out["profile"] = rows.collect();
    }
    out
}

/// The location of a row's step in the user's Python.
fn places_of(ready: &Ready, row: &str) -> String {
    let program = ready.executable().map(Executable::program);
    program.map_or(String::new(), |p| p.places_of(row))
}

fn as_text(m: &Measured, ready: &Ready, timer: &Timer, threads: usize) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "median {:.4} ms, min {:.4} ms, p95 {:.4} ms over {} runs on {} threads",
        m.quantile_ms(0.5),
        m.quantile_ms(0.0),
        m.quantile_ms(0.95),
        m.sorted.len(),
        threads
    );
    let _ = writeln!(out, "first result after {:.1} ms", m.first.as_secs_f64() * 1e3);
    let _ = writeln!(out, "compile ms: {}", timer.summary_line());
    let _ = writeln!(out, "{}", MemoryReport::from_ready(ready).summary_line());
    let Some(profile) = &m.profile else { return out };
    let runs = m.sorted.len().min(100) as f64;
    let least: f64 = profile.rows.iter().map(|r| r.min.as_secs_f64()).sum();
    let _ = writeln!(out, "sum of the minimum times of all steps: {:.4} ms", least * 1e3);
    let _ = writeln!(
        out,
        "\n{:>10} {:>10} {:>6} {:>8} {:>8}  step",
        "us", "min us", "%", "GB/s", "GFLOP/s"
    );
    let mut rows: Vec<_> = profile.rows.iter().collect();
    rows.sort_by_key(|r| std::cmp::Reverse(r.min));
    for r in rows {
        let (mean, s) = (r.time.as_secs_f64() / runs, r.min.as_secs_f64());
        let share = 100.0 * s / least.max(1e-12);
        let (gb, gflop) = (r.bytes as f64 / s.max(1e-12) / 1e9, 2.0 * r.macs / s.max(1e-12) / 1e9);
        let (us, least_us) = (mean * 1e6, s * 1e6);
        let step = format!("{}  {}", r.name, places_of(ready, &r.name));
        let figures = format!("{us:10.2} {least_us:10.2} {share:6.1} {gb:8.2} {gflop:8.2}");
        let _ = writeln!(out, "{figures}  {}", step.trim_end());
    }
    out
}
