//! Options that all commands which compile have in common.

use super::weights::Dump;
use super::{App, Stop, output};
use crate::diag::nearest;
pub(super) use crate::driver::sizes::SizeList;
use crate::driver::{Dims, LoadedModel, Observer, Stage, StageProduct, diff, sizes};
use crate::graph::{self, GraphModule};
use crate::math::contract::Precision;
use crate::pass::{self, PassRun};
use crate::target;
use std::path::PathBuf;
use std::time::Duration;

/// The model and how to compile it.
#[derive(clap::Args)]
pub(super) struct ModelArgs {
    /// The model: FXIR, a graph printed by torch, a .pt2 archive, or `-` for standard input
    pub model: String,
    /// Set a symbolic size, by its symbol (N=8) or by an input's dimension (x[0]=8)
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = parse_dim)]
    pub dims: Vec<(String, i64)>,
    /// The processor to compile for: x86-64-v2 (SSE4.2), x86-64-v3 (AVX2), x86-64-v4 (AVX-512) or native; `+NAME` adds a feature
    /// (+avx512bf16), `-NAME` removes one (native-avx512f). `fxc compile -o` accepts several, separated by commas
    #[arg(long, value_name = "TARGET", value_parser = parse_target, value_delimiter = ',')]
    pub target: Vec<TargetArg>,
    /// Report an error instead of recompiling if a compiled model (.fxc) has no usable code
    #[arg(long)]
    pub no_fallback: bool,
    /// Allow rewrites that change rounding, NaN or signed zeros
    #[arg(long, help_heading = "Passes")]
    pub fast_math: bool,
    /// Compute every convolution as a sum of products; do not use faster algorithms that round differently (Winograd)
    #[arg(long)]
    pub exact: bool,
    /// What f32 products and convolutions multiply: f32, or operands that are rounded to bf16, with f32 sums. `fxc run --check`
    /// shows the error
    #[arg(long, value_name = "PRECISION", value_parser = Precision::parse, default_value = "f32", hide_default_value = true)]
    pub precision: Precision,
    /// Check the graph after every pass
    #[arg(long, help_heading = "Passes")]
    pub verify_each: bool,
    /// Skip a pass (`fxc passes` lists them)
    #[arg(long, value_name = "PASS", value_parser = parse_pass, help_heading = "Passes")]
    pub skip_pass: Vec<String>,
    /// Show the graph after a pass, or after `all`
    #[arg(long, value_name = "PASS", value_parser = parse_pass_or_all, help_heading = "Passes")]
    pub print_after: Vec<String>,
    /// Show the graph, or a diff of it, after every pass that changed it
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "graph",
          help_heading = "Passes")]
    pub print_changed: Option<ChangedGraph>,
    /// Write the graph after every pass that changed it to a file in this directory
    #[arg(long, value_name = "DIR", help_heading = "Passes")]
    pub dump_dir: Option<PathBuf>,
    /// Show the time that each pass took
    #[arg(long, help_heading = "Passes")]
    pub time_passes: bool,
    /// Show why passes did not apply
    #[arg(long, help_heading = "Passes")]
    pub remarks: bool,
}

/// A processor's features; `None` for the machine's.
#[derive(Clone, Copy)]
pub(super) struct TargetArg(Option<target::Target>);

fn parse_target(name: &str) -> Result<TargetArg, String> {
    match name {
        "native" => Ok(TargetArg(None)),
        _ => target::Target::parse(name).map(|t| TargetArg(Some(t))),
    }
}

/// What is shown of a graph that a pass changed.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
pub(super) enum ChangedGraph {
    /// The whole graph.
    Graph,
    /// The removed and added lines.
    Diff,
}

/// An observer that shows what passes do, on standard error.
struct PassPrinter {
    after: Vec<String>,
    changed: Option<ChangedGraph>,
    dump: Option<Dump>,
    time: bool,
    remarks: bool,
    /// The number of passes that have run.
    count: usize,
    /// The graph before the next pass, if differences are shown.
    last: String,
}

impl PassPrinter {
    fn dump(&mut self, run: &PassRun, module: &GraphModule) {
        let name = format!("{:02}-{}", self.count, run.name);
        let Some(dump) = &mut self.dump else { return };
        if let Err(d) = dump.write(module, &name) {
            output::write_progress(&format!("cannot write {name}: {}", d.title));
        }
    }
}

impl Observer for PassPrinter {
    fn after_stage(&mut self, stage: Stage, product: StageProduct, _time: Duration) {
        match (stage, product) {
            (Stage::Load, StageProduct::Module(m)) => self.dump.iter_mut().for_each(|d| d.note_loaded(m)),
            (Stage::Check, StageProduct::Module(m)) if self.changed == Some(ChangedGraph::Diff) => {
                self.last = graph::print(m)
            }
            _ => {}
        }
    }

    fn after_pass(&mut self, run: &PassRun, module: &GraphModule) {
        self.count += 1;
        let named = self.after.iter().any(|p| p == run.name || p == "all");
        let changed = run.changed > 0 && (self.changed.is_some() || self.dump.is_some());
        if named || changed {
            let text = graph::print(module);
            let head = format!("# after {}: {} changed", run.name, run.changed);
            if changed {
                self.dump(run, module);
            }
            if named || (changed && self.changed == Some(ChangedGraph::Graph)) {
                output::write_progress(&format!("{head}\n{text}"));
            } else if changed && self.changed == Some(ChangedGraph::Diff) {
                output::write_progress(&format!("{head}\n{}", diff::unified_diff(&self.last, &text, 2)));
            }
            self.last = text;
        }
        if self.time {
            let ms = run.time.as_secs_f64() * 1e3;
            output::write_progress(&format!(
                "{ms:9.3} ms  {:14} {} -> {} nodes",
                run.name, run.before, run.after
            ));
        }
        if self.remarks {
            run.remarks
                .iter()
                .for_each(|r| output::write_progress(&format!("{}: {r}", run.name)));
        }
    }
}

fn parse_pass(name: &str) -> Result<String, String> {
    let names = pass::all_passes().map(|p| p.name);
    match pass::by_name(name) {
        Some(_) => Ok(name.to_string()),
        None => Err(match nearest(name, names.clone()) {
            Some(n) => format!("unknown pass; there is one with a similar name: `{n}`"),
            None => format!("the passes are {}", names.collect::<Vec<_>>().join(", ")),
        }),
    }
}

fn parse_pass_or_all(name: &str) -> Result<String, String> {
    if name == "all" {
        Ok(name.to_string())
    } else {
        parse_pass(name)
    }
}

/// Parses `N=1,3,8`, or `N,M=1,3,8` for two names of one size (torch gives each input's batch a name of its own).
pub(super) fn parse_sizes(text: &str) -> Result<SizeList, String> {
    let wrong = || format!("`{text}` does not have the form NAME=SIZE,SIZE,…");
    let (names, sizes) = text.split_once('=').ok_or_else(wrong)?;
    let sizes = sizes.split(',').map(|s| s.trim().parse().map_err(|_| wrong()));
    Ok(SizeList {
        names: names.split(',').map(|n| n.trim().to_string()).collect(),
        sizes: sizes.collect::<Result<_, _>>()?,
    })
}

/// Parses `NAME=SIZE`.
pub(super) fn parse_dim(text: &str) -> Result<(String, i64), String> {
    let (name, size) = text.split_once('=').ok_or("expected NAME=SIZE, such as N=8")?;
    let size = size.parse().map_err(|_| format!("`{size}` is not a valid size"))?;
    Ok((name.to_string(), size))
}

impl ModelArgs {
    /// The given sizes, by symbol.
    pub(super) fn resolve_dims(&self, app: &mut App, module: &GraphModule) -> Result<Dims, Stop> {
        given_dims(app, module, &self.dims)
    }

    /// The options of the passes.
    pub(super) fn pass_options(&self) -> pass::PassOptions {
        pass::PassOptions {
            verify_each: self.verify_each,
            fast_math: self.fast_math,
            remarks: self.remarks,
            skip: self.skip_pass.clone(),
            ..pass::PassOptions::default()
        }
    }

    /// The processors to compile for, as given.
    pub(super) fn targets(&self) -> Vec<target::Target> {
        let native = target::Target::native;
        self.target.iter().map(|t| t.0.unwrap_or_else(native)).collect()
    }

    /// Loads the model.
    pub(super) fn load(&self, app: &mut App) -> Result<LoadedModel, Stop> {
        self.prepare(app);
        Ok(app.session.load(&self.model)?)
    }

    /// [`ModelArgs::load`] for a model that runs unchanged: only the inputs of a compiled model are read.
    pub(super) fn load_to_run(&self, app: &mut App) -> Result<LoadedModel, Stop> {
        self.prepare(app);
        Ok(app.session.load_to_run(&self.model)?)
    }

    /// Whether options show what passes do.
    pub(super) fn shows_passes(&self) -> bool {
        let shows = self.print_changed.is_some() || self.dump_dir.is_some() || !self.print_after.is_empty();
        shows || self.time_passes || self.remarks
    }

    fn prepare(&self, app: &mut App) {
        app.set_subject(&self.model);
        app.session.exact = self.exact;
        app.session.precision = self.precision;
        app.session.no_fallback = self.no_fallback;
        // Only `fxc compile -o` compiles for several.
        app.session.target = self.target.last().and_then(|t| t.0);
        if self.shows_passes() {
            app.session.observe(PassPrinter {
                after: self.print_after.clone(),
                changed: self.print_changed,
                dump: self.dump_dir.as_deref().map(|dir| Dump::new(dir, &self.model)),
                count: 0,
                last: String::new(),
                time: self.time_passes,
                remarks: self.remarks,
            });
        }
    }

    /// [`sizes::assumed_dims`] with the given sizes.
    pub(super) fn assumed_dims(&self, app: &mut App, module: &GraphModule) -> Result<(Dims, Vec<String>), Stop> {
        Ok(sizes::assumed_dims(module, self.resolve_dims(app, module)?)?)
    }
}

/// The sizes given by `--dim`, by symbol.
pub(super) fn given_dims(app: &mut App, module: &GraphModule, requested: &[(String, i64)]) -> Result<Dims, Stop> {
    let (dims, findings) = sizes::resolve_dims(module, requested);
    let failed = findings.has_errors();
    app.session.diagnostics.extend(findings);
    if failed { Err(Stop::Reported) } else { Ok(dims) }
}
