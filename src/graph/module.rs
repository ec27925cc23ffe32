//! The graphs of a file and what they refer to: modules, parameters, buffers, constants and sizes.

use super::{Graph, Signature};
use crate::op::modules::Constructed;
use crate::op::{Literal, Op};
use crate::scalar::Compare;
use crate::source::Span;
use crate::tensor::Tensor;
use crate::types::{Dim, Type, Val};
use indexmap::IndexMap;
use std::fmt;
use std::sync::Arc;

/// `module fc1 = Linear(784, 512)`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleDecl {
    /// The class: `Linear`.
    pub class: Arc<str>,
    /// Positional constructor arguments.
    pub args: Vec<Literal>,
    /// Keyword constructor arguments.
    pub kwargs: Vec<(Arc<str>, Literal)>,
    /// Where it is declared.
    pub span: Option<Span>,
    /// The source spans of the parts of the declaration.
    pub places: Option<Box<DeclPlaces>>,
}

/// The source spans of the parts of a module declaration.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DeclPlaces {
    /// The class.
    pub class: Span,
    /// Each positional argument.
    pub args: Vec<Span>,
    /// Each keyword argument: its name and its value.
    pub kwargs: Vec<(Span, Span)>,
}

/// The kind of an attribute that a `get_attr` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttributeKind {
    /// A parameter, stored in the weights file.
    Parameter,
    /// A buffer, stored in the weights file.
    Buffer,
    /// A constant, written in the source file or lifted by the exporter.
    Constant,
}

/// A parameter, buffer or constant.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// Its kind.
    pub kind: AttributeKind,
    /// Its declared type, if any.
    pub ty: Option<Type>,
    /// Its value, once it is known. The data is shared, and memory-mapped if it comes from a file.
    pub value: Option<Tensor>,
    /// Where it is declared.
    pub span: Option<Span>,
}

/// `dim N in 1..4096`: the bounds of a size, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DimRange {
    /// The minimum.
    pub min: i64,
    /// The maximum, if bounded.
    pub max: Option<i64>,
    /// Where it is declared.
    pub span: Option<Span>,
}

/// `pointwise "squareplus(Tensor x) -> Tensor" = "(x + sqrt(x * x + 4)) / 2"`: an op that the file defines.
#[derive(Clone, Debug, PartialEq)]
pub struct OpDecl {
    /// Its schema, in torch's notation.
    pub schema: Arc<str>,
    /// The expression that it computes for each element.
    pub expr: Arc<str>,
    /// The registered op.
    pub op: &'static Op,
    /// Where it is declared.
    pub span: Option<Span>,
}

/// A condition on sizes under which a program was traced. The program is valid only for sizes that satisfy it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeGuard {
    /// The left size.
    pub left: Dim,
    /// The comparison.
    pub compare: Compare,
    /// The right size.
    pub right: Dim,
}

impl SizeGuard {
    /// Whether the sizes satisfy the condition; `None` if `size` does not know all of them.
    pub fn holds(&self, size: &dyn Fn(&str) -> Option<i64>) -> Option<bool> {
        let (a, b) = (self.left.eval(size)?, self.right.eval(size)?);
        Some(self.compare.holds(Some(a.cmp(&b))))
    }
}

impl fmt::Display for SizeGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.left, self.compare.sign(), self.right)
    }
}

/// The calling convention of an exported Python function, in torch's format. Callers from Python use it to pass and
/// return the same structures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSpec {
    /// The nesting of `(args, kwargs)`: a `TreeSpec` of `torch.utils._pytree` as JSON.
    pub inputs: Arc<str>,
    /// The nesting of the result.
    pub results: Arc<str>,
    /// The names of the parameters, positional ones first, if the exporter kept them.
    pub names: Option<Vec<String>>,
}

/// The graphs of a file and what they refer to.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct GraphModule {
    /// Its name: that of the file, or the model's class.
    pub name: String,
    /// The graphs by name, in order.
    pub graphs: IndexMap<Arc<str>, Graph>,
    /// Module declarations by path, in order.
    pub modules: IndexMap<Arc<str>, ModuleDecl>,
    /// Parameters, buffers and constants by path, in order.
    pub attributes: IndexMap<Arc<str>, Attribute>,
    /// The types of weights that are neither in a file nor declared, by path. Inference derives them from the
    /// declarations of their modules.
    pub implied: IndexMap<Arc<str>, Type>,
    /// Pointwise ops that the file defines, by name.
    pub ops: IndexMap<Arc<str>, OpDecl>,
    /// The declared bounds of sizes.
    pub dims: IndexMap<Arc<str>, DimRange>,
    /// Further conditions on sizes: `dim where N % 8 == 0`.
    pub guards: Vec<SizeGuard>,
    /// The signature that the entry graph was exported with, kept by [`unlift`](super::unlift); [`lift`](super::lift)
    /// applies it again. After passes, the graph may no longer match it.
    pub exported: Option<Signature>,
    /// The weights file as the source names it (relative to the source), and the span of that name.
    pub weights: Option<(String, Option<Span>)>,
    /// Whether the graphs were printed by torch. Such text does not mention parameters and buffers, although they
    /// exist.
    pub printed: bool,
    /// How the entry graph is called from Python, if the archive records it.
    pub call_spec: Option<CallSpec>,
}

impl ModuleDecl {
    /// The spans of the constructor argument for `param`: of its name, if it is a keyword argument, and of its value.
    /// `index` is the position of the parameter in the constructor.
    pub fn argument_place(&self, param: &str, index: Option<usize>) -> Option<(Option<Span>, Span)> {
        let places = self.places.as_ref()?;
        let named = self.kwargs.iter().position(|(k, _)| &**k == param);
        if let Some(&(name, value)) = named.and_then(|i| places.kwargs.get(i)) {
            return Some((Some(name), value));
        }
        Some((None, *places.args.get(index?)?))
    }

    /// The class with its constructor arguments.
    pub fn constructed(&self) -> Constructed<'_> {
        Constructed {
            class: &self.class,
            args: &self.args,
            kwargs: &self.kwargs,
        }
    }
}

impl GraphModule {
    /// The op defined in this file that a path refers to. The path is the declared name, with or without torch's
    /// `.default`, or the canonical name.
    pub fn declared_op(&self, path: &str) -> Option<&'static Op> {
        let name = path.strip_suffix(".default").unwrap_or(path);
        let decl = self
            .ops
            .get(name)
            .or_else(|| self.ops.values().find(|d| d.op.name == name));
        decl.map(|d| d.op)
    }

    /// Whether a tracer or an exporter made the graphs rather than a person. This holds if torch printed them, if they
    /// have the signature of an exported program, or if their nodes record the Python lines they come from.
    pub fn is_traced(&self) -> bool {
        let exported = self.exported.is_some() || self.graphs.values().any(|g| g.signature.is_some());
        let placed = |g: &Graph| g.iter().any(|n| g[n].meta.loc.is_some());
        self.printed || exported || self.graphs.values().any(placed)
    }

    /// Creates a module with one graph.
    pub fn new(name: &str, graph: Graph) -> GraphModule {
        GraphModule {
            name: name.into(),
            graphs: IndexMap::from([(name.into(), graph)]),
            ..GraphModule::default()
        }
    }

    /// The name of the entry graph: `main` if there is one, else the first.
    pub fn entry_name(&self) -> Option<&Arc<str>> {
        self.graphs
            .get_key_value("main")
            .map(|(k, _)| k)
            .or_else(|| self.graphs.keys().next())
    }

    /// The entry graph.
    pub fn entry(&self) -> Option<&Graph> {
        self.graphs.get(self.entry_name()?)
    }

    /// The entry graph, mutable.
    pub fn entry_mut(&mut self) -> Option<&mut Graph> {
        let name = self.entry_name()?.clone();
        self.graphs.get_mut(&name)
    }

    /// Adds a constant under an unused name derived from `hint`, and returns that name.
    pub fn add_constant(&mut self, hint: &str, value: Tensor) -> Arc<str> {
        let mut name: Arc<str> = hint.into();
        let mut n = 0;
        while self.attributes.contains_key(&name) {
            n += 1;
            name = format!("{hint}_{n}").into();
        }
        let ty = Some(Val::Leaf(value.ty()));
        let attribute = Attribute {
            kind: AttributeKind::Constant,
            ty,
            value: Some(value),
            span: None,
        };
        self.attributes.insert(name.clone(), attribute);
        name
    }
}
