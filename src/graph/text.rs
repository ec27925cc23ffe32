//! The source text of nodes: the spans that diagnostics underline, and what torch's printers need to reproduce the
//! text.
//!
//! A graph stores this next to its nodes, as compilers store source locations. The graph's own edits keep the table up
//! to date: copying a node copies its text, erasing a node drops it, and replacing an argument drops that argument's
//! span. Code that edits a graph does not have to handle it.

use super::{Arg, Graph, NodeId, TorchForm};
use crate::source::Span;
use crate::syntax::ast::TorchPrint;
use cranelift_entity::SecondaryMap;
use std::sync::Arc;

/// The source text of one node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeText {
    /// The span of the type within the statement.
    pub type_span: Option<Span>,
    /// The span of the target within the statement.
    pub target_span: Option<Span>,
    /// The spans of the leading positional arguments that are still the ones written.
    pub arg_spans: Vec<Span>,
    /// For each keyword argument, its name, the span of the name and the span of the value.
    pub keyword_spans: Vec<(Arc<str>, Span, Span)>,
    /// torch's own text of the Python type annotation (`torch.Tensor`, `Tensor "f32[4]"`).
    pub annotation: Option<Arc<str>>,
    /// How torch wrote the line, if it was read from torch's `print(graph)`.
    pub torch: Option<Box<TorchLine>>,
}

/// The parts of a node's line in torch's text that the node itself does not determine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TorchLine {
    /// The indentation before `%` or `return`.
    pub indent: Arc<str>,
    /// The word in the users tag: `num_users`, or an older one.
    pub tag: Option<Arc<str>>,
    /// How many more users the tag counts than the text shows: users outside of a fragment or inside of objects.
    pub hidden_users: i64,
    /// The target as it was parsed.
    pub target: Arc<str>,
    /// The target as it is written. It differs from `target` for `<built-in function add>`.
    pub written: Arc<str>,
    /// The form of the rest of the line; `None` for a node that is not in the text but only implied by it.
    pub form: Option<TorchForm>,
}

/// The text of a node that was created and not read.
const UNWRITTEN: &NodeText = &NodeText {
    type_span: None,
    target_span: None,
    arg_spans: vec![],
    keyword_spans: vec![],
    annotation: None,
    torch: None,
};

/// The texts of a graph's nodes, and of what surrounds them.
#[derive(Clone, Debug, Default)]
pub(super) struct GraphTexts {
    frame: Option<TorchPrint>,
    nodes: SecondaryMap<NodeId, Option<Arc<NodeText>>>,
}

impl Graph {
    /// The source text of a node.
    pub fn text(&self, n: NodeId) -> &NodeText {
        self.texts.nodes[n].as_deref().unwrap_or(UNWRITTEN)
    }

    /// The source text of a node, mutable, for readers of graphs.
    pub fn text_mut(&mut self, n: NodeId) -> &mut NodeText {
        let text = self.texts.nodes[n].get_or_insert_with(|| Arc::new(UNWRITTEN.clone()));
        Arc::make_mut(text)
    }

    /// The frame of torch's text, if the graph was read from such text.
    pub fn torch_frame(&self) -> Option<&TorchPrint> {
        self.texts.frame.as_ref()
    }

    /// Sets the frame of torch's text.
    pub(super) fn set_torch_frame(&mut self, frame: Option<TorchPrint>) {
        self.texts.frame = frame;
    }

    /// The span of a node's target; the span of its statement if only that is known.
    pub fn target_span(&self, n: NodeId) -> Option<Span> {
        self.text(n).target_span.or(self[n].meta.span)
    }

    /// A graph without nodes that has this graph's frame and mutations: the start of a rewritten graph.
    pub fn empty_like(&self) -> Graph {
        let mut new = Graph::new();
        new.texts.frame = self.texts.frame.clone();
        new.mutations = self.mutations.clone();
        new
    }

    /// Copies the text of `old` in `from` to its copy `new`.
    pub(super) fn copy_text(&mut self, from: &Graph, old: NodeId, new: NodeId) {
        self.put_text(new, from.texts.nodes[old].clone());
    }

    /// Gives `new`, which replaces `old`, the text of `old`.
    pub(super) fn take_text(&mut self, old: NodeId, new: NodeId) {
        self.put_text(new, self.texts.nodes[old].clone());
    }

    fn put_text(&mut self, n: NodeId, text: Option<Arc<NodeText>>) {
        if text.is_some() {
            self.texts.nodes[n] = text;
        }
    }

    /// Drops the text of an erased node.
    pub(super) fn drop_text(&mut self, n: NodeId) {
        self.texts.nodes.remove(n);
    }

    /// Drops the spans of positional arguments, from the first one that `args` changes.
    pub(super) fn keep_arg_spans(&mut self, n: NodeId, args: &[Arg]) {
        let same = self.nodes[n].args.iter().zip(args).take_while(|(a, b)| a == b).count();
        if self.text(n).arg_spans.len() > same {
            self.text_mut(n).arg_spans.truncate(same);
        }
    }

    /// Drops the spans of keyword arguments that `kwargs` changes.
    pub(super) fn keep_keyword_spans(&mut self, n: NodeId, kwargs: &[(Arc<str>, Arg)]) {
        if self.text(n).keyword_spans.is_empty() {
            return;
        }
        let old = std::mem::take(&mut self.text_mut(n).keyword_spans);
        let same = |k: &Arc<str>| {
            let new = kwargs.iter().find(|(name, _)| name == k);
            new.is_some_and(|(_, v)| self.nodes[n].kwarg(k) == Some(v))
        };
        let spans = old.into_iter().filter(|(k, ..)| same(k)).collect();
        self.text_mut(n).keyword_spans = spans;
    }
}

#[cfg(test)]
mod tests {
    use crate::graph::{Graph, NodeId, build};
    use crate::source::{FileId, Span};
    use crate::syntax::parse_text;
    use crate::types::Val;

    const TEXT: &str =
        "graph g {\n  %x : f32[2] = placeholder x\n  %y = call_function torch.add(%x, 1, alpha=2)\n  output %y\n}";

    fn read() -> (Graph, NodeId) {
        let (tree, found) = parse_text(FileId(0), TEXT);
        assert!(found.is_empty(), "{found:?}");
        let (module, found) = build(&tree, "test");
        assert!(found.is_empty(), "{found:?}");
        let g = module.entry().unwrap().clone();
        let y = g.find("y").unwrap();
        (g, y)
    }

    /// The parts of the source text that are recorded for a node: its target, positional and keyword arguments.
    fn written(g: &Graph, n: NodeId) -> String {
        let t = g.text(n);
        let text = |s: &Span| &TEXT[s.start as usize..s.end as usize];
        let spans = t.target_span.iter().chain(&t.arg_spans);
        let keywords = t.keyword_spans.iter().map(|(_, _, v)| v);
        spans.chain(keywords).map(text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn copies_have_the_text_of_their_node() {
        let (g, y) = read();
        assert_eq!(written(&g, y), "torch.add %x 1 2");
        let mut other = Graph::new();
        let x = other.placeholder("x", None);
        let copy = other.node_copy(&g, y, |_| Val::Leaf(x));
        assert_eq!(written(&other, copy), "torch.add %x 1 2");
        let whole = crate::graph::transform::transform(&g, &mut Same).unwrap();
        assert_eq!(written(&whole, whole.find("y").unwrap()), "torch.add %x 1 2");
        let mut replaced = g.clone();
        let new = replaced
            .inserting_before(Some(y), |g| g.call_function("torch.abs", vec![], vec![]))
            .unwrap();
        replaced.replace_with_meta(y, new).unwrap();
        assert_eq!(replaced.text(new), g.text(y));
    }

    struct Same;
    impl crate::graph::transform::Transformer for Same {}

    #[test]
    fn edits_drop_the_places_of_what_they_replace() {
        let (g, y) = read();
        let edited = |edit: &dyn Fn(&mut Graph)| {
            let mut g = g.clone();
            edit(&mut g);
            written(&g, y)
        };
        let (x, kwargs) = (g[y].args()[0].clone(), g[y].kwargs().to_vec());
        assert_eq!(
            edited(&|g| g.set_args(y, vec![x.clone(), Val::int(3)])),
            "torch.add %x 2"
        );
        assert_eq!(edited(&|g| g.set_args(y, vec![Val::int(1), x.clone()])), "torch.add 2");
        assert_eq!(edited(&|g| g.set_args(y, g[y].args().to_vec())), "torch.add %x 1 2");
        assert_eq!(edited(&|g| g.insert_arg(y, 1, Val::None).unwrap()), "torch.add %x 2");
        assert_eq!(edited(&|g| g.update_arg(y, 0, Val::None).unwrap()), "torch.add 2");
        assert_eq!(edited(&|g| g.set_kwargs(y, kwargs.clone())), "torch.add %x 1 2");
        assert_eq!(edited(&|g| g.set_kwargs(y, vec![])), "torch.add %x 1");
        assert_eq!(edited(&|g| g.update_kwarg(y, "alpha", Val::int(5))), "torch.add %x 1");
        // A node that replaces another takes its place in the text.
        assert_eq!(edited(&|g| g.map_args(y, Val::Leaf)), "torch.add %x 1 2");
        let gone = edited(&|g| {
            g.set_args(g.output().unwrap(), vec![]);
            g.erase_node(y).unwrap();
        });
        assert_eq!(gone, "");
    }
}
