//! Nodes: the six opcodes of torch.fx.

use crate::op::OpId;
use crate::source::{Loc, Span};
pub use crate::syntax::ast::TorchForm;
use crate::types::{Type, Val};
use cranelift_entity::entity_impl;
use indexmap::IndexSet;
use std::fmt;
use std::sync::Arc;

/// Identifies a node of one graph. Ids are stable under edits and never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);
entity_impl!(NodeId, "n");

/// An argument: a literal, a node, or a container of them.
pub type Arg = Val<NodeId>;

/// torch.fx's six opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Opcode {
    /// A parameter of the graph. `args[0]` is the default, if there is one.
    Placeholder,
    /// A parameter, buffer or constant of the module.
    GetAttr,
    /// A free function, or a graph of the same file.
    CallFunction,
    /// A method of the first argument.
    CallMethod,
    /// A submodule's forward.
    CallModule,
    /// The result: `args[0]`.
    Output,
}

impl Opcode {
    /// All opcodes.
    pub const ALL: [Opcode; 6] = [
        Opcode::Placeholder,
        Opcode::GetAttr,
        Opcode::CallFunction,
        Opcode::CallMethod,
        Opcode::CallModule,
        Opcode::Output,
    ];

    /// torch's name for it: `call_function`.
    pub fn name(self) -> &'static str {
        match self {
            Opcode::Placeholder => "placeholder",
            Opcode::GetAttr => "get_attr",
            Opcode::CallFunction => "call_function",
            Opcode::CallMethod => "call_method",
            Opcode::CallModule => "call_module",
            Opcode::Output => "output",
        }
    }

    /// The opcode with this torch name.
    pub fn from_name(name: &str) -> Option<Opcode> {
        Self::ALL.into_iter().find(|o| o.name() == name)
    }

    /// Whether it is `call_function`, `call_method` or `call_module`.
    pub fn is_call(self) -> bool {
        matches!(self, Opcode::CallFunction | Opcode::CallMethod | Opcode::CallModule)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A module that encloses a node, as the tracer entered it (an entry of torch's `nn_module_stack`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModuleFrame {
    /// Its path in the model: `layer1.0.conv1`; empty for the model itself.
    pub path: Arc<str>,
    /// Its class with the Python module: `torch.nn.modules.conv.Conv2d`.
    pub class: Arc<str>,
}

impl ModuleFrame {
    /// The class without the Python module: `Conv2d`.
    pub fn class_name(&self) -> &str {
        self.class.rsplit('.').next().unwrap_or(&self.class)
    }
}

/// A frame of a stack trace, linked to its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The source line.
    pub loc: Loc,
    /// The code on that line, if known.
    pub code: Option<Arc<str>>,
    /// The frame that called this one.
    pub caller: Option<Arc<Frame>>,
    depth: usize,
}

impl Frame {
    /// The maximum depth of a trace: Python's default limit on nested calls.
    pub const MAX_DEPTH: usize = 1000;

    /// A frame called by `caller`; `None` if the trace would be deeper than [`Frame::MAX_DEPTH`].
    pub fn new(loc: Loc, code: Option<Arc<str>>, caller: Option<Arc<Frame>>) -> Option<Arc<Frame>> {
        let depth = caller.as_ref().map_or(1, |c| c.depth + 1);
        (depth <= Self::MAX_DEPTH).then(|| {
            Arc::new(Frame {
                loc,
                code,
                caller,
                depth,
            })
        })
    }

    /// This frame and its callers, innermost first.
    pub fn chain(&self) -> impl Iterator<Item = &Frame> {
        std::iter::successors(Some(self), |f| f.caller.as_deref())
    }
}

/// What is known about a node apart from its operation.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Meta {
    /// Its type, declared by a file or the caller, or inferred.
    pub ty: Option<Type>,
    /// Whether `ty` was written by the user (and is therefore checked) and not inferred.
    pub declared: bool,
    /// Whether the declared type says more than the op implies (sizes that depend on values). It is then checked at run
    /// time, and no pass removes the node.
    pub claimed: bool,
    /// Whether the attribute that the node reads may be missing from the weights. It is then `None`.
    pub optional: bool,
    /// The span of the statement in an FXIR file.
    pub span: Option<Span>,
    /// The innermost frame of its location in the user's Python.
    pub loc: Option<Loc>,
    /// The modules that enclosed it during tracing, outermost first.
    pub modules: Arc<[ModuleFrame]>,
    /// The function it was traced from, numbered within the model, and the qualified name of that function: `conv2d_1`
    /// and `builtin_function_or_method.conv2d` (torch's `torch_fn`).
    pub function: Option<(Arc<str>, Arc<str>)>,
    /// The innermost frame of torch's stack trace, if the source has one.
    pub frame: Option<Arc<Frame>>,
    /// The user's annotations, as pairs of key and value (torch's `fx.traceback.annotate`, `meta["custom"]`).
    pub custom: Vec<(Arc<str>, Arc<str>)>,
    /// Names of the nodes and passes that this node came from.
    pub provenance: Vec<Arc<str>>,
}

impl Meta {
    /// Copies the location of another node in the user's program: statement, Python line, modules, function and
    /// annotations.
    pub fn take_place_of(&mut self, other: &Meta) {
        self.span = other.span;
        self.loc = other.loc.clone();
        self.frame = other.frame.clone();
        self.modules = other.modules.clone();
        self.function = other.function.clone();
        self.custom = other.custom.clone();
    }
}

/// One node. It is edited through its [`Graph`](super::Graph), which keeps the users up to date.
#[derive(Clone, Debug)]
pub struct Node {
    pub(super) name: String,
    pub(super) op: Opcode,
    pub(super) target: Arc<str>,
    pub(super) args: Vec<Arg>,
    pub(super) kwargs: Vec<(Arc<str>, Arg)>,
    pub(super) users: IndexSet<NodeId>,
    pub(super) prev: Option<NodeId>,
    pub(super) next: Option<NodeId>,
    pub(super) erased: bool,
    /// What is known about it.
    pub meta: Meta,
}

impl Node {
    /// Its name, unique in the graph.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its opcode.
    pub fn op(&self) -> Opcode {
        self.op
    }

    /// What it calls or reads, as written: `torch.add`, `layer1.0.conv1`, `view`; the parameter's name for a
    /// placeholder, `output` for the output.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The op that a `call_function` names by its canonical name.
    pub fn op_id(&self) -> Option<OpId> {
        match self.op {
            Opcode::CallFunction => OpId::from_name(&self.target),
            _ => None,
        }
    }

    /// Whether it calls this op by its canonical name.
    pub fn calls(&self, id: OpId) -> bool {
        self.op == Opcode::CallFunction && &*self.target == id.name()
    }

    /// Positional arguments.
    pub fn args(&self) -> &[Arg] {
        &self.args
    }

    /// Keyword arguments, in order.
    pub fn kwargs(&self) -> &[(Arc<str>, Arg)] {
        &self.kwargs
    }

    /// The keyword argument `name`.
    pub fn kwarg(&self, name: &str) -> Option<&Arg> {
        self.kwargs.iter().find(|(k, _)| &**k == name).map(|(_, v)| v)
    }

    /// The nodes that use this one, each once, in the order in which the uses were added.
    pub fn users(&self) -> impl ExactSizeIterator<Item = NodeId> + '_ {
        self.users.iter().copied()
    }

    /// The nodes that this one uses, each once, in the order of its arguments (torch's `all_input_nodes`).
    pub fn inputs(&self) -> Vec<NodeId> {
        let mut seen = IndexSet::new();
        for a in self.args.iter().chain(self.kwargs.iter().map(|(_, v)| v)) {
            a.visit(&mut |&n| {
                seen.insert(n);
            });
        }
        seen.into_iter().collect()
    }

    /// Whether it has been erased from the graph.
    pub fn is_erased(&self) -> bool {
        self.erased
    }
}
