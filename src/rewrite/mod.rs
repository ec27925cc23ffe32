//! Rewrite rules: patterns that are searched in graphs, and their replacements.
//!
//! ```text
//!   rewrite f(%x, $a) { pattern } => { replacement } where condition
//!       │ compile          checks the rule as a graph of its own
//!       ▼
//!     Rule ── Pattern, Pattern, condition
//!       │ Matcher          a graph's nodes seen as rows of the op table
//!       ▼
//!     Match ── apply ──▶ new nodes, with place and provenance of the old ones
//! ```
//!
//! A [`Rule`] comes from FXIR text ([`compile`]) or from two graphs ([`Rule::from_graphs`]). [`rewrite`] applies rules to
//! every graph of a module until none matches. [`torch`] has torch.fx's own functions, with its semantics.
//!
//! Matching treats a node as a call of an op in the op table, with one argument per parameter. Therefore the spelling
//! (`operator.add`, `torch.add`, `aten.add.Tensor`, `x.add(y)`, a module), the use of keywords, and explicit defaults
//! make no difference, and commutative ops match in both orders. Literals match bit for bit: 1, 1.0 and True differ,
//! and NaN equals NaN. A parameter in place of a list argument matches the whole list. Different parameters may match
//! the same value; a parameter that occurs several times must match the same value everywhere.
//!
//! A match is rejected, with a reason in the remarks of the [`RewriteReport`], if a value inside it is used outside and
//! is not a result of the rule, if its condition is false or unknown, or if the replacement would move a computation
//! across a write.

mod apply;
mod compile;
mod condition;
mod matcher;
mod own;
mod pattern;
pub mod torch;
mod verify;
mod view;

#[cfg(test)]
pub(crate) use verify::{SPECIAL_FLOATS, SPECIAL_INTS, compare_tensors, complete_graph, tolerance};

#[cfg(test)]
mod tests;

pub use compile::compile;
pub use matcher::{Match, Matcher};
pub use pattern::{Hole, Pattern, PatternError};
pub use verify::{Counterexample, Samples, TRIALS, Verdict, verify};
pub(crate) use view::is_same_value;

use crate::budget;
use crate::diag::limits::{check_time, too_many_nodes};
use crate::diag::{Code, Diagnostic};
use crate::graph::{Graph, GraphModule, Loc, NodeId};
use crate::source::Span;
use crate::syntax::ast::{RewriteMark, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// A pattern, its replacement, and a condition.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rule {
    /// The rule's name.
    pub name: Arc<str>,
    /// Which changes of the result it may make; `None` if not declared.
    pub mark: Option<RewriteMark>,
    /// The pattern to search for.
    pub pattern: Pattern,
    /// The replacement. Its holes have the names of the pattern's holes and nodes.
    pub replacement: Pattern,
    /// The condition after `where`.
    pub condition: Option<Value>,
    /// The span of its definition.
    pub span: Option<Span>,
}

impl Rule {
    /// Creates a rule from two graphs with the same placeholders, which match any value. Their results correspond in
    /// order.
    pub fn from_graphs(name: &str, pattern: &Graph, replacement: &Graph) -> Result<Rule, PatternError> {
        let pattern = Pattern::from_graph(pattern)?;
        let replacement = Pattern::from_graph(replacement)?;
        let (a, b) = (pattern.holes().count(), replacement.holes().count());
        if a != b {
            return Err(PatternError(format!("Placeholder count mismatch: {a} vs {b}")));
        }
        if pattern.outputs.len() != replacement.outputs.len() {
            return Err(PatternError(format!(
                "the pattern has {}, but the replacement has {}",
                crate::diag::words::count(pattern.outputs.len(), "result"),
                replacement.outputs.len()
            )));
        }
        let mut rule = Rule {
            name: name.into(),
            mark: None,
            pattern,
            replacement,
            condition: None,
            span: None,
        };
        rule.replacement.rename_holes(&rule.pattern);
        Ok(rule)
    }
}

/// Options for applying rules.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RewriteOptions {
    /// Whether rules marked `fast` run.
    pub fast: bool,
    /// Whether to report why near matches failed.
    pub remarks: bool,
    /// The maximum number of times that one rule may fire in one graph. At this limit the rule stops, and the report
    /// names it. By default the limit depends on the graph's size, and exceeding it is an error (E0804).
    pub budget: Option<usize>,
    /// Whether rules match only the original nodes of the graph and no nodes that rules have created.
    pub once: bool,
    /// Whether a replacement must have the type of the value it replaces.
    pub keep_types: bool,
}

impl Default for RewriteOptions {
    fn default() -> RewriteOptions {
        RewriteOptions {
            fast: false,
            remarks: false,
            budget: None,
            once: false,
            keep_types: true,
        }
    }
}

/// A rule that fired, or nearly fired.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remark {
    /// The rule.
    pub rule: Arc<str>,
    /// The graph.
    pub graph: Arc<str>,
    /// The node that matched the pattern's first result.
    pub node: String,
    /// The location of that node in the user's Python.
    pub loc: Option<Loc>,
    /// The span of that node.
    pub span: Option<Span>,
    /// The reason why it did not fire; `None` if it did.
    pub failed: Option<String>,
}

impl std::fmt::Display for Remark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = match &self.loc {
            Some(l) => format!(" ({}:{})", l.file, l.line),
            None => String::new(),
        };
        match &self.failed {
            None => write!(f, "{}: fired at `%{}`{place}", self.rule, self.node),
            Some(reason) => write!(f, "{}: near match at `%{}`{place}: {reason}", self.rule, self.node),
        }
    }
}

/// The result of rewriting.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RewriteReport {
    /// The number of times that each rule fired, in the order of the rules.
    pub fired: Vec<(Arc<str>, usize)>,
    /// Where rules fired and, if requested, nearly fired.
    pub remarks: Vec<Remark>,
    /// Rules stopped by [`RewriteOptions::budget`] while they still matched, each with the graph.
    pub stopped: Vec<(Arc<str>, Arc<str>)>,
}

impl RewriteReport {
    /// The total number of times that rules fired.
    pub fn total(&self) -> usize {
        self.fired.iter().map(|(_, n)| n).sum()
    }
}

/// Applies the rules to every graph of the module until none matches. Nodes with types keep having types. A rule does
/// not match what it has just written itself: "a relu after every add" fires once for every add.
///
/// # Errors
/// A rule without a budget does not terminate (E0804), or its replacement has another type or does not fit where it is
/// inserted (E0805). The module then has the changes made by earlier rules.
pub fn rewrite(
    module: &mut GraphModule,
    rules: &[Rule],
    options: &RewriteOptions,
) -> Result<RewriteReport, Diagnostic> {
    let mut report = RewriteReport {
        fired: rules.iter().map(|r| (r.name.clone(), 0)).collect(),
        ..RewriteReport::default()
    };
    let names: Vec<Arc<str>> = module.graphs.keys().cloned().collect();
    for name in names {
        let Some(slot) = module.graphs.get_mut(&name) else {
            continue;
        };
        let mut graph = std::mem::take(slot);
        let done = rewrite_graph(module, &name, &mut graph, rules, options, &mut report);
        if let Some(slot) = module.graphs.get_mut(&name) {
            *slot = graph;
        }
        done?;
    }
    Ok(report)
}

fn rewrite_graph(
    module: &GraphModule,
    name: &Arc<str>,
    graph: &mut Graph,
    rules: &[Rule],
    options: &RewriteOptions,
    report: &mut RewriteReport,
) -> Result<(), Diagnostic> {
    let mut run = GraphRewriter {
        module,
        name,
        rules,
        options,
        index: index_rules(rules, options),
        views: view::Views::default(),
        fired: vec![0; rules.len()],
        written: own::Written::default(),
        budget: options.budget.unwrap_or(1000 + 4 * graph.len()),
        report,
    };
    while run.sweep(graph)? {}
    if options.remarks {
        run.near_misses(graph);
    }
    Ok(())
}

/// For each callee, the rules whose first result calls it.
fn index_rules(rules: &[Rule], options: &RewriteOptions) -> HashMap<Arc<str>, Vec<usize>> {
    let mut out: HashMap<Arc<str>, Vec<usize>> = HashMap::new();
    for (i, r) in rules.iter().enumerate() {
        if r.mark == Some(RewriteMark::Fast) && !options.fast {
            continue;
        }
        for key in r.pattern.root_keys() {
            let list = out.entry(key).or_default();
            if !list.contains(&i) {
                list.push(i);
            }
        }
    }
    out
}

/// The state of applying rules to one graph.
struct GraphRewriter<'a> {
    module: &'a GraphModule,
    name: &'a Arc<str>,
    rules: &'a [Rule],
    options: &'a RewriteOptions,
    index: HashMap<Arc<str>, Vec<usize>>,
    views: view::Views,
    fired: Vec<usize>,
    written: own::Written,
    budget: usize,
    report: &'a mut RewriteReport,
}

impl GraphRewriter<'_> {
    /// Tries every rule at every node once. Returns whether any fired.
    fn sweep(&mut self, graph: &mut Graph) -> Result<bool, Diagnostic> {
        let before: usize = self.fired.iter().sum();
        for n in graph.ids() {
            check_time()?;
            while graph.is_live(n) && self.apply_at(graph, n)? {}
            if graph.len() > budget::max_nodes() {
                return Err(too_many_nodes(&format!("rewriting `{}` creates", self.name)));
            }
        }
        Ok(self.fired.iter().sum::<usize>() > before)
    }

    fn candidate_rules(&mut self, graph: &Graph, n: NodeId) -> Vec<usize> {
        let Some(view) = self.views.get(self.module, self.name, graph, n) else {
            return vec![];
        };
        self.index.get(&view.callee.key()).cloned().unwrap_or_default()
    }

    /// Applies the first rule that matches at `n`. Returns whether one did.
    fn apply_at(&mut self, graph: &mut Graph, n: NodeId) -> Result<bool, Diagnostic> {
        for i in self.candidate_rules(graph, n) {
            let rule = &self.rules[i];
            let mut matcher = Matcher::new(self.module, self.name, graph, rule, &mut self.views);
            let Some(found) = matcher.match_at(n) else { continue };
            let again = match self.options.once {
                true => self.written.has_part_in(rule, &found),
                false => self.written.finds_itself(i, rule, &found),
            };
            if again {
                continue;
            }
            let Ok(plan) = apply::plan_replacement(self.module, graph, rule, &found, &mut self.views, self.name) else {
                continue;
            };
            if self.fired[i] >= self.budget {
                self.stop(i)?;
                continue;
            }
            let remark = self.remark(graph, n, i, None);
            let applied = apply::apply_plan(self.module, graph, rule, plan, self.options.keep_types)?;
            applied.changed.iter().for_each(|&c| self.views.forget(c));
            self.written.note(i, found, &applied.made);
            self.report.fired[i].1 += 1;
            self.report.remarks.push(remark);
            self.fired[i] += 1;
            return Ok(true);
        }
        Ok(false)
    }

    /// Stops a rule that has used up its budget. This is an error unless the user set a budget.
    fn stop(&mut self, rule: usize) -> Result<(), Diagnostic> {
        if self.options.budget.is_none() {
            return Err(endless_rule_error(&self.rules[rule], self.budget));
        }
        let stopped = (self.rules[rule].name.clone(), self.name.clone());
        if !self.report.stopped.contains(&stopped) {
            self.report.stopped.push(stopped);
        }
        Ok(())
    }

    fn remark(&self, graph: &Graph, n: NodeId, rule: usize, failed: Option<String>) -> Remark {
        let node = &graph[n];
        Remark {
            rule: self.rules[rule].name.clone(),
            graph: self.name.clone(),
            node: node.name().to_string(),
            loc: node.meta.loc.clone(),
            span: node.meta.span,
            failed,
        }
    }

    /// For each node that may match a rule's first op, reports why the rule does not match there.
    fn near_misses(&mut self, graph: &Graph) {
        for n in graph.ids() {
            for i in self.candidate_rules(graph, n) {
                let rule = &self.rules[i];
                let mut matcher = Matcher::new(self.module, self.name, graph, rule, &mut self.views);
                let reason = match matcher.match_at(n) {
                    Some(found) => {
                        apply::plan_replacement(self.module, graph, rule, &found, &mut self.views, self.name).err()
                    }
                    None => matcher.failure_reason(),
                };
                if let Some(reason) = reason {
                    let remark = self.remark(graph, n, i, Some(reason));
                    self.report.remarks.push(remark);
                }
            }
        }
    }
}

fn endless_rule_error(rule: &Rule, budget: usize) -> Diagnostic {
    let title = format!("the rule `{}` does not terminate", rule.name);
    Diagnostic::new(Code::E0804, title)
        .at_opt(rule.span, format!("it fired {budget} times in one graph"))
        .help("add a condition that stops it, or pass `--once` or `--budget N`")
}
