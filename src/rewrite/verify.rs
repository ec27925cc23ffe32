//! Tries rules out: on random graphs that they match and random values, the results before and after must agree.
//!
//! The interpreter runs both graphs. That finds wrong rules, and proves none right.

mod random;

#[cfg(test)]
pub(crate) use random::{SPECIAL_FLOATS, SPECIAL_INTS};

use self::random::Random;
use super::{Hole, RewriteOptions, Rule, rewrite};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule, NodeId, print};
use crate::infer::{InferOptions, infer};
use crate::interp;
use crate::syntax::ast::RewriteMark;
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, TensorType, Type, Val};
use std::collections::HashMap;

pub use self::random::Samples;

/// The most graphs that are made for one rule.
const MAX_GRAPHS: usize = 10_000;

/// The most elements of a tensor in a message.
const SHOWN: usize = 12;

/// How a rule fared.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// It fired in this many graphs, and no result changed.
    Held(usize),
    /// It fired in no graph: the reason is unknown.
    Untried,
    /// It changed a result.
    Failed(Box<Counterexample>),
}

/// A graph whose result a rule changes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Counterexample {
    /// The graph before the rule.
    pub before: GraphModule,
    /// The graph after it.
    pub after: GraphModule,
    /// The inputs, by name.
    pub inputs: Vec<(String, Tensor)>,
    /// What is different.
    pub difference: String,
}

impl Counterexample {
    /// The diagnostic for a rule that fails (E0808).
    pub fn to_diagnostic(&self, rule: &Rule) -> Diagnostic {
        let title = format!("the rule `{}` changes a result", rule.name);
        let mut d = Diagnostic::new(Code::E0808, title).at_opt(rule.span, self.difference.clone());
        for (name, value) in &self.inputs {
            d = d.note(format!("with `{name}` = {}", show_tensor(value)));
        }
        let graph = |m: &GraphModule| print::print(m).trim().to_string();
        let d = d.note(format!("before:\n{}", graph(&self.before)));
        let d = d.note(format!("after:\n{}", graph(&self.after)));
        d.help(match rule.mark {
            Some(RewriteMark::Exact) => {
                "correct it, restrict it with `where`, or mark it `fast` if only rounding differs"
            }
            _ => "correct it, or restrict it with `where`",
        })
    }
}

/// The number of graphs that a user's rule is tried on.
pub const TRIALS: usize = 100;

/// Tries a rule on random graphs until it has fired in `trials` of them. `samples` are types and literals to try besides the
/// usual ones, for rules that match no others. A rule marked `exact` must keep every bit; others may round differently and are tried on
/// ordinary numbers.
pub fn verify(rule: &Rule, trials: usize, samples: &Samples) -> Verdict {
    let mut random = Random::new(samples);
    let exact = rule.mark == Some(RewriteMark::Exact);
    let mut fired = 0;
    for _ in 0..MAX_GRAPHS {
        if fired >= trials {
            break;
        }
        let Some((before, types)) = instance(rule, &mut random) else {
            continue;
        };
        let Some(after) = rewritten(rule, &before) else {
            continue;
        };
        let inputs: Vec<(String, Tensor)> = types
            .into_iter()
            .map(|(name, ty)| (name, random.tensor(&ty, rule.mark)))
            .collect();
        match compare_runs(&before, &after, &inputs, exact) {
            None => {}
            Some(Ok(())) => fired += 1,
            Some(Err(difference)) => {
                return Verdict::Failed(Box::new(Counterexample {
                    before,
                    after,
                    inputs,
                    difference,
                }));
            }
        }
    }
    match fired {
        0 => Verdict::Untried,
        n => Verdict::Held(n),
    }
}

/// The module after the rule; `None` if it does not fire.
fn rewritten(rule: &Rule, before: &GraphModule) -> Option<GraphModule> {
    let options = RewriteOptions {
        fast: true,
        once: true,
        ..RewriteOptions::default()
    };
    let mut after = before.clone();
    // What cannot be applied is refused where the rule is used, too.
    let report = rewrite(&mut after, std::slice::from_ref(rule), &options).ok()?;
    (report.total() > 0).then_some(after)
}

/// A graph that the rule may match: its pattern with the holes filled at random. Also the types of its inputs.
fn instance(rule: &Rule, random: &mut Random) -> Option<(GraphModule, Vec<(String, TensorType)>)> {
    let mut graph = Graph::new();
    let mut filled: HashMap<_, Arg> = HashMap::new();
    let mut types = vec![];
    random.begin_graph();
    let mut holes: Vec<_> = rule.pattern.holes().collect();
    // Alternatives refer to other holes.
    holes.sort_by_key(|(n, hole)| (matches!(hole, Hole::Either(_)), *n));
    for (n, hole) in holes {
        // A placeholder `*xs` would be a function's variable arguments.
        let name = rule.pattern.name(n).trim_start_matches('*');
        let like = types.last().map(|(_, ty): &(String, TensorType)| ty.clone());
        let mut input = |ty: TensorType| {
            let p = graph.placeholder(name, None);
            graph.meta_mut(p).ty = Some(Val::Leaf(ty.clone()));
            types.push((graph[p].name().to_string(), ty));
            Val::Leaf(p)
        };
        let arg = match hole {
            Hole::Value(declared) => input(random.type_of_input(declared)?),
            Hole::Literal => random.literal(),
            // One item: a tensor or a number.
            Hole::Rest => match random.number() {
                Some(number) => number,
                None => input(random.type_like(like)?),
            },
            Hole::Either(choices) => {
                let choice = random.pick(choices);
                choice.try_map(&mut |l| filled.get(l).cloned().ok_or(())).ok()?
            }
            // A value of the replacement.
            Hole::Computed(_) => return None,
        };
        filled.insert(n, arg);
    }
    complete_graph(rule, graph, filled).map(|module| (module, types))
}

/// The module of a rule's pattern, if it has types. `graph` has the inputs, `filled` the values of the pattern's holes.
pub(crate) fn complete_graph(rule: &Rule, mut graph: Graph, mut filled: HashMap<NodeId, Arg>) -> Option<GraphModule> {
    let result = graph.graph_copy(&rule.pattern.graph, &mut filled).ok()??;
    graph.set_output(result);
    // The places in the rule's file say nothing about this graph.
    for n in graph.ids() {
        graph.meta_mut(n).span = None;
        graph.text_mut(n).target_span = None;
    }
    let mut module = GraphModule::new("main", graph);
    let found = infer(&mut module, &InferOptions::default());
    (!found.has_errors()).then_some(module)
}

/// Whether both graphs give the same results; `None` if the first gives none.
fn compare_runs(
    before: &GraphModule,
    after: &GraphModule,
    inputs: &[(String, Tensor)],
    exact: bool,
) -> Option<Result<(), String>> {
    let values = || inputs.iter().map(|(_, t)| Val::Leaf(t.clone())).collect();
    let wanted = interp::run(before, values()).ok()?;
    let found = match interp::run(after, values()) {
        Ok(found) => found,
        Err(d) => return Some(Err(format!("after the rule, the graph fails: {}", d.title))),
    };
    let pairs = wanted.flatten().into_iter().zip(found.flatten());
    let given = || inputs.iter().map(|(_, t)| t.dtype());
    let mut agree = pairs.map(|(w, f)| match (w.as_leaf(), f.as_leaf()) {
        (Some(w), Some(f)) => compare_tensors(w, f, exact, tolerance(given().chain([w.dtype()]))),
        // Numbers, whose text has all digits.
        _ if format!("{w:?}") == format!("{f:?}") => Ok(()),
        _ => Err(format!("{f:?} instead of {w:?}")),
    });
    Some(agree.try_for_each(|r| r))
}

/// Whether two results agree: every bit, or within a tolerance relative to values around 1.
pub(crate) fn compare_tensors(want: &Tensor, found: &Tensor, exact: bool, tolerance: f64) -> Result<(), String> {
    if want.ty() != found.ty() {
        return Err(format!("{} instead of {}", found.ty(), want.ty()));
    }
    let differs = (0..want.numel()).find(|&i| {
        let (w, f) = (want.get(i), found.get(i));
        match exact || !want.dtype().is_float() {
            true => bits(&w) != bits(&f),
            false => !is_near(w.to_f64(), f.to_f64(), tolerance),
        }
    });
    match differs {
        None => Ok(()),
        Some(i) => Err(format!(
            "element {i} is {} instead of {}",
            show(&found.get(i)),
            show(&want.get(i))
        )),
    }
}

/// How far results may be apart that round differently, on values around 1: the least precise type counts, because a rule may round to
/// it where the graph does not.
pub(crate) fn tolerance(types: impl Iterator<Item = DType>) -> f64 {
    let of_dtype = |dtype| match dtype {
        DType::BF16 => 5e-2,
        DType::F16 => 5e-3,
        _ => 1e-5,
    };
    types.map(of_dtype).fold(1e-5, f64::max)
}

fn is_near(want: f64, found: f64, tolerance: f64) -> bool {
    (want - found).abs() <= tolerance * (1.0 + want.abs()) || want == found || (want.is_nan() && found.is_nan())
}

/// The bits of an element. All NaNs are one.
fn bits(a: &Scalar) -> (u8, u64) {
    let float = |x: f64| if x.is_nan() { (1, 0) } else { (0, x.to_bits()) };
    match a {
        Scalar::F64(x) => float(*x),
        Scalar::F32(x) | Scalar::Half(_, x) => float(*x as f64),
        Scalar::Int(_, i) => (0, *i as u64),
        Scalar::Bool(b) => (0, *b as u64),
    }
}

fn show(a: &Scalar) -> String {
    match a {
        Scalar::Int(_, i) => i.to_string(),
        Scalar::Bool(b) => b.to_string(),
        Scalar::F32(x) => format!("{x:?}"),
        other => format!("{:?}", other.to_f64()),
    }
}

/// A tensor's type and first elements, in row-major order.
fn show_tensor(t: &Tensor) -> String {
    let mut elements: Vec<String> = (0..t.numel().min(SHOWN)).map(|i| show(&t.get(i))).collect();
    if t.numel() > SHOWN {
        elements.push("…".into());
    }
    format!("{} [{}]", t.ty(), elements.join(", "))
}

/// A type as a tensor's; `None` for numbers and structures.
fn tensor_type(ty: &Type) -> Option<&TensorType> {
    match ty {
        Val::Leaf(t) => Some(t),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::FileId;

    fn rule(text: &str) -> Rule {
        let (tree, found) = crate::syntax::parse_text(FileId(0), text);
        assert!(!found.has_errors(), "{text}: {found:?}");
        let (mut rules, found) = crate::rewrite::compile(&tree);
        assert!(!found.has_errors(), "{text}: {found:?}");
        rules.remove(0)
    }

    fn verdict(text: &str) -> Verdict {
        verify(&rule(text), 40, &Samples::default())
    }

    #[test]
    fn sound_rules_hold() {
        for text in [
            "exact rewrite r: neg(neg(%x)) => %x",
            "exact rewrite r: torch.remainder(%x, 8) => torch.bitwise_and(%x, 7) where dtype(%x) in [i64, i32, i16, i8]",
            "fast rewrite r: add(%x, 0) => %x",
            "rewrite r: mul(add(%x, %y), %z) => add(mul(%x, %z), mul(%y, %z)) where dtype(%x) in [f32, f64]
             and dtype(%y) == dtype(%x) and dtype(%z) == dtype(%x)",
            "exact rewrite r(%x : f32[N, 4], %y : f32[N, 4]) { %r = call_function add(%x, %y) output %r }
             => { %r = call_function add(%y, %x) output %r }",
            "exact rewrite r: torch.reshape(torch.reshape(%x, $a), $b) => torch.reshape(%x, $b)",
            "rewrite r(%x : f32[M, 8], *%y) { %c = call_function cat([%x, *%y], -1) %r = call_function torch.narrow(%c, 1, 0, 8) output %r }
             => { output %x }",
            "exact rewrite r(%x, *%y) { %r = call_function torch.cat([%x, *%y], 0) output %r }
             => { %n = call_function neg(%x) %m = call_function neg(%n) %r = call_function torch.cat([%m, *%y], 0) output %r }",
        ] {
            assert!(matches!(verdict(text), Verdict::Held(10..)), "{text}: {:?}", verdict(text));
        }
    }

    #[test]
    fn unsound_rules_fail_with_an_example_that_shows_it() {
        for text in [
            "rewrite r: torch.remainder(%x, 6) => torch.bitwise_and(%x, 5)",
            // The sum of -0.0 and 0 is 0.0.
            "exact rewrite r: add(%x, 0) => %x",
            "exact rewrite r: torch.div(mul(%x, %y), %y) => %x",
            "rewrite r: torch.sub(%x, %y) => torch.sub(%y, %x)",
            "rewrite r: torch.clamp_min(%x, 0) => %x",
            "rewrite r: torch.sum(%x, 0) => torch.mean(%x, 0)",
            "rewrite r: torch.sqrt(mul(%x, %x)) => %x",
            // Small integers wrap around before they are converted.
            "rewrite r: mul(add(%x, %y), %z) => add(mul(%x, %z), mul(%y, %z)) where dtype(%x) in [f32, f64]",
        ] {
            let Verdict::Failed(example) = verdict(text) else {
                panic!("{text}: {:?}", verdict(text));
            };
            let again = compare_runs(
                &example.before,
                &example.after,
                &example.inputs,
                text.starts_with("exact"),
            );
            assert_eq!(again, Some(Err(example.difference.clone())), "{text}");
            let d = example.to_diagnostic(&rule(text));
            assert!(d.title.contains("changes a result") && d.notes.len() >= 3, "{d:?}");
        }
    }

    #[test]
    fn a_rule_that_fits_no_random_graph_is_not_verified() {
        let text = "rewrite r(%x : f32[5000, 5000]) { %r = call_function torch.relu(%x) output %r }
            => { %r = call_function torch.abs(%x) output %r }";
        assert!(matches!(verdict(text), Verdict::Untried));
    }
}
