//! The syntax tree of TorchScript's text.

use crate::diag::Diagnostic;
use crate::source::{FileId, Span};
use std::sync::Arc;

/// A graph.
#[derive(Debug)]
pub struct Script {
    /// Its parameters, the module first.
    pub inputs: Vec<Typed>,
    /// Its nodes in order.
    pub nodes: Vec<Node>,
    /// Its results.
    pub results: Vec<Typed>,
    /// All of it.
    pub span: Span,
}

/// `%a : Tensor, %b : Tensor = aten::max(%x, %1, %2) # model.py:9:0`
#[derive(Debug)]
pub struct Node {
    /// Its results.
    pub outputs: Vec<Typed>,
    /// `aten::max`
    pub op: Arc<str>,
    /// `[name="weight"]`
    pub attrs: Vec<Attr>,
    /// Its operands.
    pub args: Vec<Typed>,
    /// The comment behind it.
    pub place: Option<Arc<str>>,
    /// The blocks of `prim::If` and `prim::Loop`.
    pub blocks: Vec<Block>,
    /// All of it but blocks and comment.
    pub span: Span,
}

/// A block of `prim::If` or `prim::Loop`.
#[derive(Debug)]
pub struct Block {
    /// Its parameters.
    pub inputs: Vec<Typed>,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// Its results.
    pub results: Vec<Typed>,
}

/// A value, with its type where it is defined.
#[derive(Debug)]
pub struct Typed {
    /// The name without `%`.
    pub name: Arc<str>,
    /// The name's place.
    pub span: Span,
    /// The type.
    pub ty: Ty,
}

/// `name="weight"`
#[derive(Debug)]
pub struct Attr {
    /// The name.
    pub name: Arc<str>,
    /// The value as written.
    pub text: Arc<str>,
    /// Where it stands.
    pub span: Span,
}

/// A type, as far as it matters: its name, and the sizes of a tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ty {
    /// `Float`, `Tensor`, `int`, `__torch__.M`; empty for a tuple.
    pub name: Arc<str>,
    /// The sizes of `Float(2, 4, …)`; `None` for one that is not known.
    pub sizes: Vec<Option<i64>>,
    /// Whether the type says the shape.
    pub shaped: bool,
    /// Whether the value may be None: `Tensor?`.
    pub optional: bool,
}

impl Ty {
    /// A type of this name.
    pub fn named(name: &str) -> Ty {
        Ty {
            name: name.into(),
            ..Ty::default()
        }
    }

    /// A size among a type's arguments.
    pub fn size(text: &str) -> Ty {
        Ty {
            sizes: vec![text.parse().ok()],
            ..Ty::named("size")
        }
    }

    /// `device=cpu` among a type's arguments.
    pub fn setting() -> Ty {
        Ty::named("setting")
    }

    /// torch's abbreviation of a tensor type's dtype.
    pub fn dtype(&self) -> Option<&'static str> {
        Some(match &*self.name {
            "Float" => "f32",
            "Double" => "f64",
            "Half" => "f16",
            "BFloat16" => "bf16",
            "Long" => "i64",
            "Int" => "i32",
            "Short" => "i16",
            "Char" => "i8",
            "Byte" => "u8",
            "Bool" => "b8",
            "ComplexFloat" => "c64",
            "ComplexDouble" => "c128",
            _ => return None,
        })
    }

    /// Whether a value of the type is a number of Python's.
    pub fn is_number(&self) -> bool {
        matches!(&*self.name, "int" | "float" | "bool" | "number" | "Scalar" | "complex")
    }

    /// Whether a value of the type may be None.
    pub fn may_be_none(&self) -> bool {
        self.optional || &*self.name == "Optional"
    }

    /// Whether a value of the type is a module.
    pub fn is_module(&self) -> bool {
        self.name.starts_with("__torch__")
    }
}

/// What the parser carries along.
pub struct Cx {
    /// The file being parsed.
    pub file: FileId,
    /// Findings, in the order they were made.
    pub errors: Vec<Diagnostic>,
}

impl Cx {
    /// The span between two places.
    pub fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.file, start, end.max(start))
    }

    /// A type with arguments.
    pub fn ty(&self, name: &str, args: Vec<Ty>) -> Ty {
        let sizes: Vec<Option<i64>> = args.iter().filter(|a| &*a.name == "size").map(|a| a.sizes[0]).collect();
        // `Float(device=cpu)` is of a known rank, zero, only if it says something of its memory.
        let shaped = !sizes.is_empty() || args.iter().any(|a| *a == Ty::setting());
        Ty {
            name: name.into(),
            sizes,
            shaped,
            optional: false,
        }
    }
}
