//! How far the results of a graph may differ from the interpreter's.
//!
//! Compiled code rounds differently: it fuses, contracts multiply-adds, sums in another order and has functions of its own. What
//! that changes depends on the graph, so the graph itself is asked: the interpreter runs it again with the operands and
//! results of every op that rounds moved by a rounding, up, down and at random. Results may differ by some times what this
//! changes. A result for which nothing rounds must be equal, bit for bit.

use crate::outcome::{Outcome, interpreted};
use fxc::graph::{Arg, GraphModule, NodeId};
use fxc::internals::op::random::{self, Generator};
use fxc::internals::op::{self, Effect, ExprText, Meaning, Op};
use fxc::internals::tensor::{Scalar, SplitMix, Tensor};
use fxc::interp::{Hooked, Hooks, RunningNode, RuntimeValue};
use fxc::types::{DType, Val};
use std::collections::HashSet;
use std::sync::Arc;

/// Functions of scalar expressions that round at most as IEEE says.
const EXACT_FUNCTIONS: [&str; 26] = [
    "neg",
    "abs",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sqrt",
    "isnan",
    "isinf",
    "signbit",
    "truncdiv",
    "fmod",
    "max",
    "min",
    "fmax",
    "fmin",
    "copysign",
    "nextafter",
    "gcd",
    "where",
    "cast",
    "f32",
    "f64",
    "i64",
    "b8",
];

/// How much is moved, and how much of it is allowed.
#[derive(Clone, Copy)]
pub struct Level {
    /// The number of runs.
    pub runs: u64,
    /// Whether ops that seem to be exact are moved too.
    pub all: bool,
    /// The roundings that f32 operands are moved by.
    pub units: f64,
    /// The multiple of the change that is allowed.
    pub factor: f64,
}

/// The usual level.
pub const USUAL: Level = Level {
    runs: 5,
    all: false,
    units: 1.0,
    factor: 12.0,
};
/// A second opinion on a difference.
pub const WIDE: Level = Level {
    runs: 30,
    all: true,
    units: 2.0,
    factor: 25.0,
};
/// For products of operands that are rounded to bf16.
pub const ROUGH: Level = Level {
    runs: 12,
    all: true,
    units: 65536.0,
    factor: 12.0,
};

/// How far each element of an outcome may differ.
pub struct Spread {
    base: Outcome,
    /// For each result, the allowed difference of each element; infinite if it is undetermined.
    allowed: Vec<Vec<f64>>,
    /// Whether each result is computed without rounding.
    strict: Vec<bool>,
}

impl Spread {
    /// Runs a canonical module at a level.
    pub fn measure(module: &GraphModule, inputs: &[Tensor], level: Level) -> Result<Spread, String> {
        let mut plain = Jitter::new(0, level, true);
        let base = interpreted(module, inputs, &mut plain)?;
        let mut s = Spread {
            allowed: base.iter().map(|(_, t)| vec![0.0; t.numel()]).collect(),
            strict: vec![],
            base,
        };
        for seed in 0..level.runs {
            // A result that was moved can leave what a later op accepts. Then other runs tell.
            if let Ok(moved) = interpreted(module, inputs, &mut Jitter::new(seed, level, false)) {
                s.widen(&moved, level.factor);
            }
        }
        s.strict = strict_results(module, &s.base, &plain.soft);
        Ok(s)
    }

    fn widen(&mut self, moved: &Outcome, factor: f64) {
        for ((base, allowed), moved) in self.base.iter().zip(&mut self.allowed).zip(moved) {
            if base.1.ty() != moved.1.ty() {
                allowed.fill(f64::INFINITY);
                continue;
            }
            for (i, a) in allowed.iter_mut().enumerate() {
                let (x, y) = (base.1.get(i).to_f64(), moved.1.get(i).to_f64());
                let equal = x == y || (x.is_nan() && y.is_nan());
                let change = if equal { 0.0 } else { (x - y).abs() * factor };
                *a = a.max(if change.is_nan() || !base.1.dtype().is_float() && !equal {
                    f64::INFINITY
                } else {
                    change
                });
            }
        }
    }

    /// The first difference from the expected outcome.
    pub fn difference(&self, got: &Outcome, special: SpecialValues) -> Option<String> {
        if got.len() != self.base.len() {
            return Some(format!("{} results instead of {}", got.len(), self.base.len()));
        }
        let mut all = self.base.iter().zip(got).enumerate();
        all.find_map(|(k, ((name, want), (_, got)))| {
            if got.dtype() != want.dtype() || got.shape() != want.shape() {
                // Sizes that depend on values may change.
                let open = self.allowed[k].first() == Some(&f64::INFINITY);
                return (!open).then(|| format!("{name}: {} instead of {}", got.ty(), want.ty()));
            }
            let strict = self.strict[k] && special != SpecialValues::Ignored;
            let differs = |&i: &usize| !agrees(got.get(i), want.get(i), self.allowed[k][i], strict, special);
            let i = (0..want.numel()).find(differs)?;
            let count = (0..want.numel()).filter(differs).count();
            Some(format!(
                "{name}: element {i} is {:?} instead of {:?}, at most {:.1e} apart; {count} of {} elements differ",
                got.get(i),
                want.get(i),
                self.allowed[k][i],
                want.numel()
            ))
        })
    }
}

/// How results that are NaN or infinite are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SpecialValues {
    Compared,
    /// NaN may stand for infinity: products of bf16 take denormal factors for zeros, and zero times infinity is NaN.
    NanForInfinity,
    /// Neither these nor signs of zeros are compared.
    Ignored,
}

fn agrees(got: Scalar, want: Scalar, allowed: f64, strict: bool, special: SpecialValues) -> bool {
    if got.bits() == want.bits() || allowed.is_infinite() {
        return true;
    }
    if !want.dtype().is_float() {
        return got == want;
    }
    let (g, w) = (got.to_f64(), want.to_f64());
    if g.is_nan() && w.is_nan() {
        return true;
    }
    if strict {
        return false;
    }
    let is_ignored = match special {
        SpecialValues::Compared => false,
        SpecialValues::NanForInfinity => g.is_nan() && w.is_infinite(),
        SpecialValues::Ignored => !g.is_finite() || !w.is_finite(),
    };
    if is_ignored {
        return true;
    }
    // Results that are denormal may be zero: products of bf16 treat them so.
    g == w || (g - w).abs() <= allowed + 8.0 * unit(want.dtype()) * w.abs() + smallest(want.dtype())
}

/// The distance from 1 to the next number.
fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F16 => 1.0 / 1024.0,
        DType::BF16 => 1.0 / 128.0,
        DType::F32 => f32::EPSILON as f64,
        _ => 0.25,
    }
}

fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-300,
        DType::F16 => 1.2e-7,
        _ => 3e-38,
    }
}

/// Results that no op that rounds has a part in.
fn strict_results(module: &GraphModule, base: &Outcome, soft: &HashSet<NodeId>) -> Vec<bool> {
    let Some(graph) = module.entry() else { return vec![] };
    let mut soft = soft.clone();
    for n in graph.iter() {
        if graph[n].inputs().iter().any(|i| soft.contains(i)) {
            soft.insert(n);
        }
    }
    let any = graph.output().is_some_and(|o| soft.contains(&o));
    let results = graph
        .output()
        .and_then(|o| graph[o].args().first()?.items().map(<[_]>::to_vec))
        .unwrap_or_default();
    let results = &results[graph.mutations.len().min(results.len())..];
    // A result that is a tuple counts as several.
    let is_tensor = |r: &Arg| {
        r.as_leaf()
            .is_some_and(|&n| matches!(graph[n].meta.ty, Some(Val::Leaf(_))))
    };
    let simple = results.iter().all(is_tensor) && results.len() <= base.len();
    let of_result = |i: usize| match results.get(i).and_then(|r| r.as_leaf()) {
        Some(n) if simple => !soft.contains(n),
        _ => !any,
    };
    (0..base.len()).map(of_result).collect()
}

/// The run of many in which products overflow.
const OVERFLOWING_RUN: u64 = 2;

/// The largest number whose square does not overflow where products of this dtype are computed.
fn largest_factor(dtype: DType) -> Option<f64> {
    match dtype {
        DType::F32 | DType::BF16 => Some((f32::MAX as f64).sqrt()),
        DType::F64 => Some(f64::MAX.sqrt()),
        _ => None,
    }
}

/// Ops that take roots of differences of squares: a rounding moves the distance of equal points by its root.
const FROM_SQUARES: [&str; 1] = ["_euclidean_dist"];

type Keywords = Vec<(Arc<str>, RuntimeValue)>;

/// Hooks that move operands and results.
struct Jitter {
    seed: u64,
    r: SplitMix,
    level: Level,
    /// Whether to move nothing and only record which nodes round.
    plain: bool,
    soft: HashSet<NodeId>,
    /// The least unit of floats: graphs that a call runs may round to fewer digits than its operands and results have.
    least_unit: f64,
}

/// What a call does to the numbers.
#[derive(PartialEq)]
enum Rounding {
    /// Nothing.
    None,
    /// It rounds its result once.
    Once,
    /// It rounds its results in its own way.
    Result,
    /// It also rounds within, which depends on the operands.
    Inside,
}

impl Jitter {
    fn new(seed: u64, level: Level, plain: bool) -> Jitter {
        Jitter {
            seed,
            r: SplitMix::new(seed),
            level,
            plain,
            soft: HashSet::new(),
            least_unit: 0.0,
        }
    }

    /// The value with each float moved. Sharp elements stay unless `all`.
    fn moved(&mut self, v: &RuntimeValue, all: bool) -> RuntimeValue {
        v.map(|t| match t.dtype().is_float() && t.dtype().size() > 1 {
            true => Tensor::from_fn(t.dtype(), t.shape(), |i| self.moved_element(t.get(i), all)),
            false => t.clone(),
        })
    }

    /// An operand whose products are rounded within a call. In one of many runs, numbers whose products overflow are
    /// infinite: a fused multiply-add does not round the product, so `a * b - inf` may be NaN or not.
    fn moved_operand(&mut self, v: &RuntimeValue) -> RuntimeValue {
        let overflows = self.level.all && self.seed == OVERFLOWING_RUN;
        if !overflows {
            return self.moved(v, true);
        }
        v.map(|t| match largest_factor(t.dtype()) {
            Some(largest) => Tensor::from_fn(t.dtype(), t.shape(), |i| {
                let x = t.get(i).to_f64();
                let beyond = x.is_finite() && x.abs() > largest;
                Scalar::F64(if beyond { f64::INFINITY.copysign(x) } else { x })
            }),
            None => t.clone(),
        })
    }

    /// The operands of a call that rounds within.
    fn moved_operands(&mut self, row: Option<&Op>, at: &RunningNode<'_>) -> (Vec<RuntimeValue>, Keywords) {
        let usual = self.level.units;
        if row.is_some_and(|op| FROM_SQUARES.contains(&op.name)) {
            self.level.units /= unit(DType::F32).sqrt();
        }
        let args = at.args.iter().map(|v| self.moved_operand(v)).collect();
        let kwargs = at.kwargs.iter().map(|(k, v)| (k.clone(), self.moved_operand(v)));
        let kwargs = kwargs.collect();
        self.level.units = usual;
        (args, kwargs)
    }

    fn moved_element(&mut self, s: Scalar, all: bool) -> Scalar {
        let x = s.to_f64();
        // The sign of a computed NaN depends on the code that computes it.
        if x.is_nan() {
            let sign = if self.r.one_in(2) { 1.0 } else { -1.0 };
            return Scalar::F64(f64::NAN.copysign(sign)).cast(s.dtype());
        }
        // What is 0 stays 0 at first: masks, and values that are padded.
        if !x.is_finite() || (x == 0.0 && !self.level.all) || (is_sharp(x) && !all) {
            return s;
        }
        let direction = match self.seed {
            0 => 1.0,
            1 => -1.0,
            _ => self.r.next_below(3) as f64 - 1.0,
        };
        let units = if s.dtype() == DType::F32 { self.level.units } else { 1.0 };
        // A sum within an expression, as 1 + erf(x), rounds to what 1 has.
        let within = if self.level.all { 1.0 } else { 0.0 };
        let unit = unit(s.dtype()).max(self.least_unit);
        Scalar::F64(x + (x.abs() + within) * direction * units * unit).cast(s.dtype())
    }
}

impl Hooks for Jitter {
    fn run_node(&mut self, at: RunningNode<'_>) -> Hooked {
        let row = op::by_name(at.target());
        let still = row.is_some_and(|op| matches!(op.meaning, Meaning::View(_) | Meaning::Host));
        if !at.node().op().is_call() || still {
            return Ok(None);
        }
        let draws = row.is_some_and(|op| op.effect == Effect::Random);
        let stream = draws.then(current_stream);
        let result = at.call(at.args, at.kwargs)?;
        let rounding = rounding(row, &at, &result, self.level.all);
        if rounding != Rounding::None && (rounding != Rounding::Once || !is_all_sharp(&result)) {
            self.soft.insert(at.id);
        }
        if self.plain || rounding == Rounding::None {
            return Ok(Some(result));
        }
        let all = self.level.all || rounding != Rounding::Once;
        if rounding != Rounding::Inside {
            return Ok(Some(self.moved(&result, all)));
        }
        let usual = self.least_unit;
        if row.is_some_and(|op| matches!(op.meaning, Meaning::Control(_))) {
            self.least_unit = coarsest_unit(at.module);
        }
        let (args, kwargs) = self.moved_operands(row, &at);
        // The same numbers are drawn for moved operands, and later calls draw those that they would have drawn.
        let after = stream.map(|before| {
            let after = current_stream();
            random::with_stream(|g| *g = before);
            after
        });
        // Operands that were moved can leave what the op accepts. Then only its result is moved.
        let result = at.call(&args, &kwargs).unwrap_or(result);
        if let Some(after) = after {
            random::with_stream(|g| *g = after);
        }
        let moved = self.moved(&result, all);
        self.least_unit = usual;
        Ok(Some(moved))
    }
}

/// The unit of the floats of a module that have the fewest digits.
fn coarsest_unit(module: &GraphModule) -> f64 {
    let nodes = module.graphs.values().flat_map(|g| g.iter().map(|n| &g[n].meta.ty));
    let types = nodes.flatten().flat_map(|t| t.leaves());
    let floats = types.map(|t| t.dtype).filter(|d| d.is_float());
    floats.map(unit).fold(0.0, f64::max)
}

fn current_stream() -> Generator {
    random::with_stream(|g| g.clone())
}

fn rounding(row: Option<&Op>, at: &RunningNode<'_>, result: &RuntimeValue, all: bool) -> Rounding {
    let Some(row) = row else { return Rounding::Inside };
    match row.meaning {
        Meaning::Pointwise(p) => match p.expr {
            ExprText::Fixed(text) if has_exact_functions(text) => Rounding::Once,
            _ => Rounding::Result,
        },
        _ if all => Rounding::Inside,
        _ if keeps_elements(at, result) => Rounding::None,
        Meaning::Reduce(_) | Meaning::Contract(_) if is_sharp_call(at, result) => Rounding::None,
        _ => Rounding::Inside,
    }
}

fn has_exact_functions(expr: &str) -> bool {
    let starts = expr.match_indices('(').map(|(i, _)| &expr[..i]);
    let word = |before: &str| {
        let start = before
            .rfind(|c: char| !c.is_alphanumeric() && c != '_')
            .map_or(0, |i| i + 1);
        before[start..].to_string()
    };
    !expr.contains("**")
        && starts
            .map(word)
            .all(|w| w.is_empty() || EXACT_FUNCTIONS.contains(&w.as_str()))
}

/// Numbers on which sums and products of moderate length are exact.
fn is_sharp(x: f64) -> bool {
    !x.is_finite() || (x.abs() <= 256.0 && (x * 16.0).fract() == 0.0)
}

fn floats(v: &RuntimeValue) -> Vec<f64> {
    let tensors = v.leaves().into_iter().filter(|t| t.dtype().is_float());
    tensors
        .flat_map(|t| (0..t.numel()).map(|i| t.get(i).to_f64()))
        .collect()
}

fn is_all_sharp(v: &RuntimeValue) -> bool {
    floats(v).into_iter().all(is_sharp)
}

fn is_sharp_call(at: &RunningNode<'_>, result: &RuntimeValue) -> bool {
    at.args
        .iter()
        .chain(at.kwargs.iter().map(|(_, v)| v))
        .chain([result])
        .all(is_all_sharp)
}

/// Whether a call only moves elements: each of its results is one of its operands' elements, or a small whole number.
fn keeps_elements(at: &RunningNode<'_>, result: &RuntimeValue) -> bool {
    let operands = at.args.iter().chain(at.kwargs.iter().map(|(_, v)| v));
    let known: HashSet<u64> = operands.flat_map(floats).map(f64::to_bits).collect();
    let is_kept = |x: f64| known.contains(&x.to_bits()) || !x.is_finite() || x.abs() <= 1.0 && x.fract() == 0.0;
    let only_tensors = matches!(result, Val::Leaf(_) | Val::Tuple(_) | Val::List(_));
    only_tensors && floats(result).into_iter().all(is_kept)
}
