//! torch.fx's graph, with its editing API.
//!
//! A [`Graph`] is an ordered list of [`Node`]s of six opcodes whose arguments nest lists, tuples, dicts and slices
//! around other nodes. Nodes live in an arena and keep their id for good; the order is a linked list, so inserting
//! before or after a node is O(1). Every edit goes through the graph, which keeps these invariants:
//!
//! * `b` is in `users(a)` exactly when `a` occurs in the arguments of `b`, and neither is erased;
//! * names are unique and follow torch's rules ([`namer`]);
//! * arguments only name nodes of the same graph.
//!
//! Constraints that torch.fx leaves to convention are checked by `lint`: exactly one output, at the end; placeholders
//! first; definitions before uses. One graph type represents every level: torch functions and modules, ATen, core ATen,
//! and canonical ops.

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
pub use lint::lint;
pub(crate) use lint::{lint_around, place_note};
pub use module::{
    Attribute, AttributeKind, CallSpec, DeclPlaces, DimRange, GraphModule, ModuleDecl, OpDecl, SizeGuard,
};
pub use namer::Namer;
pub use node::{Arg, Frame, Meta, ModuleFrame, Node, NodeId, Opcode, TorchForm};
pub use purity::is_impure;
pub use signature::{InputSpec, OutputSpec, Signature, lift, unlift};
pub(crate) use signature::{MAX_PART_DEPTH, traced_minimum, type_output};
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
    /// The source text that the graph was read from.
    texts: GraphTexts,
    /// The attribute of the parent module that holds this graph, if it differs from the graph's name here. torch names
    /// graphs within their parent.
    pub attribute: Option<Arc<str>>,
    /// The meaning of the inputs and results of an exported program, while they are still lifted.
    pub signature: Option<Signature>,
    /// Leading results that are the new values of buffers or inputs, not results that the user sees.
    pub mutations: Vec<Mutation>,
    /// The calling convention of the function around the graph, if its parameters and result are nested.
    pub called: Option<PyTreeParams>,
    /// The edits made since [`Graph::start_journal`].
    journal: Option<Vec<Edit>>,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// Returns the node, erased or not. Panics if `id` is out of range, as an id of another graph may be.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// A node's metadata, mutable.
    pub fn meta_mut(&mut self, id: NodeId) -> &mut Meta {
        &mut self.nodes[id].meta
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the graph has no nodes.
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

    /// The ids of the nodes in order, collected so that the graph can be edited during iteration.
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

    /// Whether the graph assigns a new value to the buffer `path` (see [`Graph::mutations`]). The next call then sees
    /// that value, so the buffer is not a constant.
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

    /// The nodes that call `target` (function, method or module), in order.
    pub fn find_calls(&self, target: &str) -> Vec<NodeId> {
        self.iter()
            .filter(|&n| self[n].op().is_call() && self[n].target() == target)
            .collect()
    }

    /// The node named `name`.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.iter().find(|&n| self[n].name == name)
    }

    /// An exclusive upper bound of the node ids, for side tables.
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

/// An iterator over the nodes of a graph in order, from either end.
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
