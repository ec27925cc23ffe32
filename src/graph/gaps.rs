//! What of a module is known to be wrong, so that later checks say nothing of what follows from it.

use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::source::Span;
use crate::syntax::ast::{self, Dialect, Item};
use std::collections::HashSet;
use std::sync::Arc;

/// Statements and names that were reported already.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// The first bytes of findings that leave a statement without meaning, in order.
    places: Vec<(u32, u32)>,
    /// Modules, attributes and graphs whose declarations could not be read.
    names: HashSet<Arc<str>>,
    /// Graphs of which statements could not be read.
    graphs: HashSet<Arc<str>>,
}

/// Whether a finding leaves the statement that it is in without meaning. What is wrong with one argument does not: its
/// value alone is unknown.
fn spoils_statement(code: Code) -> bool {
    use Code::*;
    matches!(code, E0002 | E0003 | E0004 | E0005 | E0006 | E0007 | E0008)
        || matches!(code, E0106 | E0108 | E0110 | E0111)
}

impl Gaps {
    /// What `found` leaves of the file. `None` if so little is known of it that nothing more can be said.
    pub fn from_findings(tree: &ast::File, found: &Diagnostics) -> Option<Gaps> {
        let mut gaps = Gaps {
            names: tree.lost.iter().cloned().collect(),
            ..Gaps::default()
        };
        gaps.add_findings(found);
        let errors: Vec<Span> = found.iter().filter(|d| d.is_error()).filter_map(primary_span).collect();
        for item in &tree.items {
            let Item::Graph(g) = item else { continue };
            // What torch printed is read as a whole or not at all.
            if g.dialect != Dialect::Fxir {
                return None;
            }
            let inside = |s: &Span| g.span.start <= s.start && s.start <= g.span.end;
            if !g.body.broken.is_empty() || errors.iter().any(inside) {
                gaps.graphs.extend(g.name.as_ref().map(|n| n.text.clone()));
            }
        }
        let unreadable = found.iter().any(|d| matches!(d.code, Code::E0008 | Code::E0013));
        (!unreadable).then_some(gaps)
    }

    /// Adds what `found` says.
    pub fn add_findings(&mut self, found: &Diagnostics) {
        let errors = found.iter().filter(|d| d.is_error() && spoils_statement(d.code));
        self.places
            .extend(errors.filter_map(primary_span).map(|s| (s.file.0, s.start)));
        self.places.sort_unstable();
    }

    /// Whether something was reported that leaves the statement at `span` without meaning.
    pub fn covers(&self, span: Option<Span>) -> bool {
        let Some(s) = span.filter(|_| !self.places.is_empty()) else {
            return false;
        };
        let first = self.places.partition_point(|&p| p < (s.file.0, s.start));
        self.places
            .get(first)
            .is_some_and(|&(file, start)| file == s.file.0 && start < s.end)
    }

    /// Whether a declaration of that name could not be read.
    pub fn may_declare(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether statements of the graph could not be read.
    pub fn in_graph(&self, graph: &str) -> bool {
        self.graphs.contains(graph)
    }
}

fn primary_span(d: &Diagnostic) -> Option<Span> {
    let primary = d.labels.iter().find(|l| l.primary);
    primary.or(d.labels.first()).map(|l| l.span)
}
