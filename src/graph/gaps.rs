//! Known defects of a module, so that later checks do not report their consequences.

use crate::diag::{Code, Diagnostic, Diagnostics};
use crate::source::Span;
use crate::syntax::ast::{self, Dialect, Item};
use std::collections::HashSet;
use std::sync::Arc;

/// Statements and names that already have an error.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// File and first byte of each error that invalidates its statement, in order.
    places: Vec<(u32, u32)>,
    /// Modules, attributes and graphs whose declarations could not be read.
    names: HashSet<Arc<str>>,
    /// Graphs with statements that could not be read.
    graphs: HashSet<Arc<str>>,
}

/// Whether an error invalidates the whole statement. An error in one argument does not: only the value of that argument
/// is unknown.
fn spoils_statement(code: Code) -> bool {
    use Code::*;
    matches!(code, E0002 | E0003 | E0004 | E0005 | E0006 | E0007 | E0008)
        || matches!(code, E0106 | E0108 | E0110 | E0111)
}

impl Gaps {
    /// The gaps that the diagnostics `diagnostics` leave in the file. `None` if too little is known of the file to check it
    /// any further.
    pub fn from_findings(tree: &ast::File, diagnostics: &Diagnostics) -> Option<Gaps> {
        let mut gaps = Gaps {
            names: tree.lost.iter().cloned().collect(),
            ..Gaps::default()
        };
        gaps.add_findings(diagnostics);
        let errors: Vec<Span> = diagnostics
            .iter()
            .filter(|d| d.is_error())
            .filter_map(primary_span)
            .collect();
        for item in &tree.items {
            let Item::Graph(g) = item else { continue };
            // Text printed by torch is read as a whole or not at all.
            if g.dialect != Dialect::Fxir {
                return None;
            }
            let inside = |s: &Span| g.span.start <= s.start && s.start <= g.span.end;
            if !g.body.broken.is_empty() || errors.iter().any(inside) {
                gaps.graphs.extend(g.name.as_ref().map(|n| n.text.clone()));
            }
        }
        let unreadable = diagnostics.iter().any(|d| matches!(d.code, Code::E0008 | Code::E0013));
        (!unreadable).then_some(gaps)
    }

    /// Adds the gaps that the diagnostics `diagnostics` leave.
    pub fn add_findings(&mut self, diagnostics: &Diagnostics) {
        let errors = diagnostics.iter().filter(|d| d.is_error() && spoils_statement(d.code));
        self.places
            .extend(errors.filter_map(primary_span).map(|s| (s.file.0, s.start)));
        self.places.sort_unstable();
    }

    /// Whether an error that invalidates the statement at `span` was reported.
    pub fn covers(&self, span: Option<Span>) -> bool {
        let Some(s) = span.filter(|_| !self.places.is_empty()) else {
            return false;
        };
        let first = self.places.partition_point(|&p| p < (s.file.0, s.start));
        self.places
            .get(first)
            .is_some_and(|&(file, start)| file == s.file.0 && start < s.end)
    }

    /// Whether a declaration of this name exists that could not be read.
    pub fn may_declare(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether the graph has statements that could not be read.
    pub fn in_graph(&self, graph: &str) -> bool {
        self.graphs.contains(graph)
    }
}

fn primary_span(d: &Diagnostic) -> Option<Span> {
    let primary = d.labels.iter().find(|l| l.primary);
    primary.or(d.labels.first()).map(|l| l.span)
}
