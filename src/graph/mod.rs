//! torch.fx's graph, with its editing API.
//!
//! A [`Graph`] is an ordered list of [`Node`]s of six opcodes whose arguments nest lists, tuples, dicts and slices
//! around other nodes. Nodes live in an arena and keep their id for good; the order is a linked list, so inserting
//! before or after a node is O(1). Every edit goes through the graph, which keeps `users` true at all times:
//!
//! * `b` is in `users(a)` exactly when `a` occurs in the arguments of `b`, and neither is erased;
//! * names are unique and follow torch's rules ([`namer`]);
//! * arguments only name nodes of the same graph.
//!
//! What torch.fx leaves to convention (one output, at the end; placeholders first; definitions before uses) is checked
//! by `lint`. One graph type serves every tensor level: torch functions and modules, ATen, core ATen, canonical ops.

pub mod arbitrary;
mod draw;
mod edit;
mod fxir;
mod gaps;
pub mod lint;
mod module;
pub mod namer;
mod node;
pub mod purity;
mod signature;
mod text;
mod torch;
pub mod trace;

pub use crate::source::Loc;
pub use crate::syntax::ast::TorchPrint;
pub use crate::types::Mutation;
pub use draw::{dot, layout, svg};
pub use edit::{Edit, EditResult, GraphError, InsertPoint, transform};
pub use fxir::build::build;
pub use fxir::print;
pub use fxir::print::print;
pub use gaps::Gaps;
pub use lint::{lint, lint_around, place_note};
pub use module::{
    Attribute, AttributeKind, CallSpec, DeclPlaces, DimRange, GraphModule, ModuleDecl, OpDecl, SizeGuard,
};
pub use namer::Namer;
pub use node::{Arg, Frame, Meta, ModuleFrame, Node, NodeId, Opcode, TorchForm};
pub use purity::is_impure;
pub use signature::{InputSpec, OutputSpec, Signature, lift, traced_minimum, type_output, unlift};
pub use text::{NodeText, TorchLine};
pub use torch::codegen::PyTreeParams;
pub use torch::print as torch_print;
pub use torch::{codegen, pyrepr, python, readable, tabular};

use cranelift_entity::PrimaryMap;
use std::ops::Index;
use std::sync::Arc;
use text::GraphTexts;

/// An ordered list of nodes.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    nodes: PrimaryMap<NodeId, Node>,
    first: Option<NodeId>,
    last: Option<NodeId>,
    len: usize,
    insert: InsertPoint,
    namer: Namer,
    /// How it was written.
    texts: GraphTexts,
    /// What the module around it calls the graph, where that is not its name here: torch names graphs within their parent.
    pub attribute: Option<Arc<str>>,
    /// What the inputs and results of an exported program stand for, as long as they are lifted.
    pub signature: Option<Signature>,
    /// Leading results that are new values of buffers or inputs rather than results the user sees.
    pub mutations: Vec<Mutation>,
    /// How the function around the graph is called, where its parameters and result nest.
    pub called: Option<PyTreeParams>,
    /// What was edited since [`Graph::start_journal`].
    journal: Option<Vec<Edit>>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// The node, erased or not. Panics for an id of another graph that is out of range here.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// A node's metadata for writing.
    pub fn meta_mut(&mut self, id: NodeId) -> &mut Meta {
        &mut self.nodes[id].meta
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The nodes in order.
    pub fn iter(&self) -> Nodes<'_> {
        Nodes {
            graph: self,
            next: self.first,
            back: self.last,
            left: self.len,
        }
    }

    /// The nodes' ids in order, collected, so that the graph may be edited while going over them.
    pub fn ids(&self) -> Vec<NodeId> {
        self.iter().collect()
    }

    /// The first node.
    pub fn first(&self) -> Option<NodeId> {
        self.first
    }

    /// The last node.
    pub fn last(&self) -> Option<NodeId> {
        self.last
    }

    /// The node after `id` in order.
    pub fn next(&self, id: NodeId) -> Option<NodeId> {
        self.nodes[id].next
    }

    /// The node before `id` in order.
    pub fn prev(&self, id: NodeId) -> Option<NodeId> {
        self.nodes[id].prev
    }

    /// Whether the graph gives the buffer `path` a new value ([`Graph::mutations`]): the next call sees that value, so that
    /// the buffer is not a constant.
    pub fn writes_buffer(&self, path: &str) -> bool {
        let writes = |m: &Mutation| matches!(m, Mutation::Buffer(b) if **b == *path);
        self.mutations.iter().any(writes)
    }

    /// The output node: the last one with that opcode.
    pub fn output(&self) -> Option<NodeId> {
        self.iter().rev().find(|&n| self[n].op == Opcode::Output)
    }

    /// The placeholders, in order.
    pub fn placeholders(&self) -> Vec<NodeId> {
        self.find_nodes(Opcode::Placeholder, None)
    }

    /// The nodes with this opcode and, if given, this target, in order (torch's `find_nodes`).
    pub fn find_nodes(&self, op: Opcode, target: Option<&str>) -> Vec<NodeId> {
        self.iter()
            .filter(|&n| self[n].op == op && target.is_none_or(|t| &*self[n].target == t))
            .collect()
    }

    /// The nodes that are calls of `target` in any of the three ways, in order.
    pub fn find_calls(&self, target: &str) -> Vec<NodeId> {
        self.iter()
            .filter(|&n| self[n].op().is_call() && self[n].target() == target)
            .collect()
    }

    /// The node named `name`.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.iter().find(|&n| self[n].name == name)
    }

    /// An upper bound of ids, for side tables.
    pub fn id_bound(&self) -> usize {
        self.nodes.len()
    }
}

impl Index<NodeId> for Graph {
    type Output = Node;
    fn index(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }
}

/// The nodes of a graph in order, from either end.
#[derive(Clone)]
pub struct Nodes<'a> {
    graph: &'a Graph,
    next: Option<NodeId>,
    back: Option<NodeId>,
    left: usize,
}

impl Iterator for Nodes<'_> {
    type Item = NodeId;
    fn next(&mut self) -> Option<NodeId> {
        if self.left == 0 {
            return None;
        }
        let id = self.next?;
        self.left -= 1;
        self.next = self.graph.nodes[id].next;
        Some(id)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Nodes<'_> {
    fn next_back(&mut self) -> Option<NodeId> {
        if self.left == 0 {
            return None;
        }
        let id = self.back?;
        self.left -= 1;
        self.back = self.graph.nodes[id].prev;
        Some(id)
    }
}

impl ExactSizeIterator for Nodes<'_> {}
