//! The ways to run a graph, all of which must agree.

use crate::grow::Case;
use crate::outcome::{Outcome, compiled, describe, interpreted, load, panic_text};
use crate::spread::SpecialValues::{self, Compared, Ignored, NanForInfinity};
use crate::spread::{Level, ROUGH, Spread, USUAL, WIDE};
use fxc::Target;
use fxc::graph::{GraphModule, print};
use fxc::internals::driver::{Failing, Request, Session, reduce};
use fxc::internals::tensor::{SplitMix, Tensor};
use fxc::interp::Hooks;
use fxc::pass::{self, PIPELINE, Pass, PassOptions};
use fxc::types::{Dim, Val};
use std::cell::OnceCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A way to run a graph.
#[derive(Clone, Debug, Default)]
pub enum Way {
    /// Interpreted after it was printed and read.
    #[default]
    Read,
    /// Interpreted after each pass of the pipeline.
    EachPass,
    /// Interpreted after an extra pass.
    Extra(&'static str),
    /// Compiled with the options of the command line.
    Plain,
    /// Compiled, on this many threads: the same bits as on one.
    Threads(usize),
    /// Compiled for another processor.
    For(&'static str),
    /// Compiled without these passes.
    Without(Vec<String>),
    /// Compiled with `--exact`.
    Exact,
    /// Compiled with `--fast-math`.
    Fast,
    /// Compiled with `--precision bf16`.
    Bf16,
    /// Compiled for any value of one of its sizes.
    AnySize(usize),
}

/// A way in which a graph fails, and how.
pub struct Failure {
    pub way: Way,
    pub what: String,
}

/// The passes that compiled code needs.
const NEEDED: [&str; 3] = ["inline", "functionalize", "normalize"];

/// Runs a graph in some ways, which the seed chooses.
pub fn check(case: &Case, seed: u64) -> Result<(), Failure> {
    let ways = chosen_ways(case, seed);
    let cell = std::cell::Cell::new(Way::Read);
    let run = AssertUnwindSafe(|| {
        let fail = |way: Way| move |what: String| Failure { way, what };
        let module = load(&case.text).map_err(fail(Way::Read))?;
        let check = Check::new(&module, &case.inputs).map_err(fail(Way::Read))?;
        ways.iter().try_for_each(|way| {
            cell.set(way.clone());
            check.run(way).map_err(fail(way.clone()))
        })
    });
    catch_unwind(run).unwrap_or_else(|e| {
        Err(Failure {
            way: cell.take(),
            what: format!("panic: {}", panic_text(&*e)),
        })
    })
}

fn chosen_ways(case: &Case, seed: u64) -> Vec<Way> {
    let mut r = SplitMix::new(seed ^ 0x5eed);
    let mut skipped: Vec<String> = PIPELINE.iter().map(|p| p.name.to_string()).collect();
    skipped.retain(|p| !NEEDED.contains(&p.as_str()) && r.one_in(2));
    // `dead-inputs` changes the interface.
    let extra = pass::EXTRA.iter().map(|p| p.name).filter(|n| *n != "dead-inputs");
    let extra: Vec<&'static str> = extra.collect();
    let sizes: Vec<usize> = case
        .inputs
        .iter()
        .flat_map(|t| t.shape().iter().copied())
        .filter(|&n| n > 1)
        .collect();
    let mut ways = vec![
        Way::EachPass,
        Way::Extra(r.pick(&extra)),
        Way::Threads(2 + r.next_below(2)),
        Way::For("x86-64-v2"),
        Way::For("x86-64-v3"),
        Way::For("x86-64-v4"),
        Way::Without(skipped),
        Way::Exact,
        Way::Fast,
        Way::Bf16,
    ];
    if !sizes.is_empty() {
        ways.push(Way::AnySize(r.pick(&sizes)));
    }
    // The first ways of a seed are the same for every number of ways.
    for i in (1..ways.len()).rev() {
        ways.swap(i, r.next_below(i + 1));
    }
    ways.truncate(number_of_ways());
    ways.insert(0, Way::Plain);
    ways
}

/// The ways of a longer run.
pub const USUAL_WAYS: usize = 3;

/// How many ways a graph is compiled in, besides the plain one.
fn number_of_ways() -> usize {
    match std::env::var("FXC_GRAPH_WAYS") {
        Ok(text) if text == "all" => usize::MAX,
        Ok(text) => text.parse().expect("FXC_GRAPH_WAYS is a number or `all`"),
        Err(_) => USUAL_WAYS,
    }
}

/// A graph with what it computes.
struct Check<'a> {
    module: &'a GraphModule,
    inputs: &'a [Tensor],
    canonical: GraphModule,
    /// What the interpreter computes.
    want: Outcome,
    /// How far results may differ, measured when one differs.
    spread: OnceCell<Spread>,
}

struct NoHooks;
impl Hooks for NoHooks {}

fn interpret(module: &GraphModule, inputs: &[Tensor]) -> Result<Outcome, String> {
    interpreted(module, inputs, &mut NoHooks)
}

impl<'a> Check<'a> {
    fn new(module: &'a GraphModule, inputs: &'a [Tensor]) -> Result<Check<'a>, String> {
        let want = interpret(module, inputs)?;
        let mut canonical = module.clone();
        for p in PIPELINE.iter().filter(|p| NEEDED.contains(&p.name)) {
            run_pass(p, &mut canonical)?;
        }
        // The canonical graph computes the same bits.
        match bit_difference(&interpret(&canonical, inputs)?, &want) {
            None => Ok(Check {
                module,
                inputs,
                canonical,
                want,
                spread: OnceCell::new(),
            }),
            Some(what) => Err(format!("the canonical graph computes something else: {what}")),
        }
    }

    /// Runs the graph in a way.
    fn run(&self, way: &Way) -> Result<(), String> {
        match way {
            Way::Read | Way::Plain => self.agrees(&self.compiled(Session::new(), one_thread())?, None, Compared),
            Way::EachPass => self.check_passes(&PIPELINE.iter().collect::<Vec<_>>()),
            Way::Extra(name) => {
                let extra = pass::EXTRA.iter().filter(|p| p.name == *name);
                self.check_passes(&PIPELINE.iter().chain(extra).collect::<Vec<_>>())
            }
            Way::Threads(n) => {
                let one = self.compiled(Session::new(), one_thread())?;
                let many = self.compiled(
                    Session::new(),
                    Request {
                        threads: *n,
                        ..Request::default()
                    },
                )?;
                bit_difference(&many, &one).map_or(Ok(()), |d| Err(format!("{n} threads against one: {d}")))
            }
            Way::For(name) => {
                let Ok(target) = Target::parse(name) else { return Ok(()) };
                let session = session(|s| s.target = Some(target));
                self.agrees(&self.compiled(session, one_thread())?, None, Compared)
            }
            Way::Without(skip) => {
                let passes = options(|o| o.skip = skip.clone());
                self.agrees(
                    &self.compiled(Session::new(), Request { passes, ..one_thread() })?,
                    None,
                    Compared,
                )
            }
            Way::Exact => self.agrees(
                &self.compiled(session(|s| s.exact = true), one_thread())?,
                None,
                Compared,
            ),
            Way::Fast => {
                let passes = options(|o| o.fast_math = true);
                self.agrees(
                    &self.compiled(Session::new(), Request { passes, ..one_thread() })?,
                    Some(WIDE),
                    Ignored,
                )
            }
            Way::Bf16 => {
                let session = session(|s| s.precision = fxc::Precision::Bf16);
                self.agrees(&self.compiled(session, one_thread())?, Some(ROUGH), NanForInfinity)
            }
            Way::AnySize(n) => self.check_any_size(*n),
        }
    }

    fn compiled(&self, mut session: Session, request: Request) -> Result<Outcome, String> {
        compiled(&mut session, self.module.clone(), self.inputs, request)
    }

    fn usual_spread(&self) -> Result<&Spread, String> {
        if self.spread.get().is_none() {
            let _ = self.spread.set(Spread::measure(&self.canonical, self.inputs, USUAL)?);
        }
        Ok(self.spread.get().expect("it was set"))
    }

    /// Compares with what the interpreter computes. A difference is looked at again with more runs, unless a level is given.
    fn agrees(&self, got: &Outcome, level: Option<Level>, special: SpecialValues) -> Result<(), String> {
        if bit_difference(got, &self.want).is_none() {
            return Ok(());
        }
        let measured = |level| Spread::measure(&self.canonical, self.inputs, level);
        let first = match level {
            Some(level) => measured(level)?.difference(got, special),
            None => self.usual_spread()?.difference(got, special),
        };
        let Some(first) = first else { return Ok(()) };
        let wide = Level {
            units: level.map_or(WIDE.units, |l| l.units.max(WIDE.units)),
            ..WIDE
        };
        match measured(wide)?.difference(got, special) {
            Some(_) => Err(first),
            None => Ok(()),
        }
    }

    /// Interprets the graph after each pass.
    fn check_passes(&self, passes: &[&Pass]) -> Result<(), String> {
        let mut module = self.module.clone();
        for p in passes {
            run_pass(p, &mut module)?;
            let got = interpret(&module, self.inputs).map_err(|e| format!("after {}: {e}", p.name))?;
            self.agrees(&got, None, Compared)
                .map_err(|e| format!("after {}: {e}", p.name))?;
        }
        // What is printed means the same. Constants that passes made are not in a text.
        if module.attributes.values().any(print::is_stored) {
            return Ok(());
        }
        let text = print::print(&module);
        let again = load(&text).map_err(|e| format!("the printed graph: {e}"))?;
        let got = interpret(&again, self.inputs).map_err(|e| format!("the printed graph: {e}"))?;
        self.agrees(&got, None, Compared)
            .map_err(|e| format!("the printed graph: {e}"))
    }

    /// Compiles the graph for all values of size `n`, if it is one for all of them.
    fn check_any_size(&self, n: usize) -> Result<(), String> {
        let mut module = self.module.clone();
        let graph = module.entry_mut().ok_or("no graph")?;
        for p in graph.placeholders() {
            let Some(Val::Leaf(ty)) = &mut graph.meta_mut(p).ty else {
                continue;
            };
            for d in ty.shape.iter_mut().flatten().filter(|d| d.as_const() == Some(n as i64)) {
                *d = Dim::var("N");
            }
        }
        // A graph with this size in its arguments may hold for it alone.
        if Session::new().check(&mut module.clone(), &[]).is_err() {
            return Ok(());
        }
        let dims = [("N".to_string(), n as i64)].into_iter().collect();
        let request = Request { dims, ..one_thread() };
        self.agrees(
            &compiled(&mut Session::new(), module, self.inputs, request)?,
            None,
            Compared,
        )
    }
}

fn one_thread() -> Request {
    Request {
        threads: 1,
        ..Request::default()
    }
}

fn session(set: impl FnOnce(&mut Session)) -> Session {
    let mut session = Session::new();
    set(&mut session);
    session
}

fn options(set: impl FnOnce(&mut PassOptions)) -> PassOptions {
    let mut options = PassOptions::default();
    set(&mut options);
    options
}

fn run_pass(p: &Pass, module: &mut GraphModule) -> Result<(), String> {
    let done = pass::run_pass(p, module, &options(|o| o.verify_each = true));
    done.map(|_| ()).map_err(|e| {
        format!(
            "the pass {}: {}",
            p.name,
            e.iter().map(describe).collect::<Vec<_>>().join("; ")
        )
    })
}

fn bit_difference(got: &Outcome, want: &Outcome) -> Option<String> {
    if got.len() != want.len() {
        return Some(format!("{} results instead of {}", got.len(), want.len()));
    }
    let different = got.iter().zip(want).find(|((_, g), (_, w))| !same_bits(g, w))?;
    let ((name, g), (_, w)) = different;
    let at = (0..w.numel().min(g.numel()))
        .find(|&i| g.get(i).bits() != w.get(i).bits())
        .unwrap_or(0);
    match g.ty() == w.ty() {
        true => Some(format!(
            "{name}: element {at} is {:?} instead of {:?}",
            g.get(at),
            w.get(at)
        )),
        false => Some(format!("{name}: {} instead of {}", g.ty(), w.ty())),
    }
}

/// Whether two tensors have equal bits, except for those of NaN.
fn same_bits(a: &Tensor, b: &Tensor) -> bool {
    let same =
        |i: usize| a.get(i).bits() == b.get(i).bits() || a.get(i).to_f64().is_nan() && b.get(i).to_f64().is_nan();
    a.ty() == b.ty() && (0..a.numel()).all(same)
}

/// The most graphs that are tried to reduce one.
const MOST_ATTEMPTS: usize = 400;

/// What kind of failure a text tells of: other elements may differ in a smaller graph.
fn kind(what: &str) -> String {
    let code = what
        .split(' ')
        .find(|w| w.len() == 5 && w.starts_with('E') && w[1..].parse::<u32>().is_ok());
    match code {
        _ if what.starts_with("panic") => "panic".to_string(),
        _ if what.contains(" instead of ") => "difference".to_string(),
        Some(code) => code.to_string(),
        None => what.to_string(),
    }
}

/// How a graph fails in a way.
fn failure_of(module: &GraphModule, inputs: &[Tensor], way: &Way) -> Result<(), String> {
    let run = AssertUnwindSafe(|| {
        let module = load(&print::print(module))?;
        Check::new(&module, inputs)?.run(way)
    });
    catch_unwind(run).unwrap_or_else(|e| Err(format!("panic: {}", panic_text(&*e))))
}

/// The report of a failure, with the graph reduced.
pub fn reduced_report(case: &Case, failure: &Failure) -> String {
    let mut text = format!("{:?}: {}\n", failure.way, failure.what);
    let Ok(module) = load(&case.text) else {
        return text + &case.text;
    };
    let inputs = case.inputs.iter().cloned().map(Val::Leaf).collect();
    let tensors = |f: &Failing| f.inputs.iter().filter_map(|v| v.as_leaf().cloned()).collect::<Vec<_>>();
    let reduced = reduce(Failing { module, inputs }, MOST_ATTEMPTS, &mut |f| {
        failure_of(&f.module, &tensors(f), &failure.way).is_err_and(|what| kind(&what) == kind(&failure.what))
    });
    let small = tensors(&reduced.failing);
    if let Err(what) = failure_of(&reduced.failing.module, &small, &failure.way) {
        text.push_str(&format!("reduced: {what}\n"));
    }
    text.push_str(&print::print(&reduced.failing.module));
    for t in small {
        let elements: Vec<String> = (0..t.numel().min(40)).map(|i| format!("{:?}", t.get(i))).collect();
        text.push_str(&format!("# {} {}\n", t.ty(), elements.join(" ")));
    }
    text
}
