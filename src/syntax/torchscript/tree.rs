//! The syntax tree of TorchScript's text.

use crate::diag::Diagnostic;
use crate::source::{FileId, Span};
use std::sync::Arc;

/// A graph.
#[derive(Debug)]
pub(crate) struct Script {
    /// Its parameters, the module first; `None` for statements without a header.
    pub inputs: Option<Vec<Typed>>,
    /// Its nodes in order.
    pub nodes: Vec<Node>,
    /// Its results; `None` if the text has none.
    pub results: Option<Vec<Typed>>,
    /// All of it.
    pub span: Span,
}

/// `%a : Tensor, %b : Tensor = aten::max(%x, %1, %2) # model.py:9:0`
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Its results.
    pub outputs: Vec<Typed>,
    /// `aten::max`
    pub op: Arc<str>,
    /// `[name="weight"]`
    pub attrs: Vec<Attr>,
    /// Its operands.
    pub args: Vec<Typed>,
    /// The comment after it.
    pub place: Option<Arc<str>>,
    /// The blocks of `prim::If` and `prim::Loop`.
    pub blocks: Vec<Block>,
    /// Its span without blocks and comment.
    pub span: Span,
}

/// A block of `prim::If` or `prim::Loop`.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// Its parameters.
    pub inputs: Vec<Typed>,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// Its results.
    pub results: Vec<Typed>,
}

/// A value, with its type at the definition.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    /// The name without `%`.
    pub name: Arc<str>,
    /// The name's place.
    pub span: Span,
    /// The type.
    pub ty: Ty,
}

/// `name="weight"`
#[derive(Clone, Debug)]
pub(crate) struct Attr {
    /// The name.
    pub name: Arc<str>,
    /// The value as written.
    pub text: Arc<str>,
    /// Its span.
    pub span: Span,
}

/// The relevant parts of a type: its name, and the sizes of a tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ty {
    /// `Float`, `Tensor`, `int`, `__torch__.M`; empty for a tuple.
    pub name: Arc<str>,
    /// The sizes of `Float(2, 4, …)`; `None` for an unknown size.
    pub sizes: Vec<Option<i64>>,
    /// Whether the type includes the shape.
    pub shaped: bool,
    /// Whether the value may be None: `Tensor?`.
    pub optional: bool,
}

impl Ty {
    /// A type of this name.
    pub(crate) fn named(name: &str) -> Ty {
        Ty {
            name: name.into(),
            ..Ty::default()
        }
    }

    /// The type of a value without one in the text.
    pub(crate) fn unannotated() -> Ty {
        Ty::named("?")
    }

    /// Whether the text has no type for the value.
    pub(crate) fn is_unannotated(&self) -> bool {
        &*self.name == "?"
    }

    /// A size among a type's arguments.
    pub(crate) fn size(text: &str) -> Ty {
        Ty {
            sizes: vec![text.parse().ok()],
            ..Ty::named("size")
        }
    }

    /// A setting such as `device=cpu` among a type's arguments.
    pub(crate) fn setting() -> Ty {
        Ty::named("setting")
    }

    /// The dtype for torch's name of a tensor type.
    pub(crate) fn dtype(&self) -> Option<&'static str> {
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

    /// Whether values of the type are Python numbers.
    pub(crate) fn is_number(&self) -> bool {
        matches!(&*self.name, "int" | "float" | "bool" | "number" | "Scalar" | "complex")
    }

    /// Whether values of the type may be `None`.
    pub(crate) fn may_be_none(&self) -> bool {
        self.optional || &*self.name == "Optional"
    }

    /// Whether values of the type are modules.
    pub(crate) fn is_module(&self) -> bool {
        self.name.starts_with("__torch__")
    }
}

/// Operators that are accepted in any letter case.
const PRIMS: [&str; 12] = [
    "prim::CallFunction",
    "prim::CallMethod",
    "prim::Constant",
    "prim::DictConstruct",
    "prim::GetAttr",
    "prim::If",
    "prim::ListConstruct",
    "prim::ListUnpack",
    "prim::Loop",
    "prim::NumToTensor",
    "prim::TupleConstruct",
    "prim::TupleUnpack",
];

/// The state of the parser.
pub(crate) struct TorchscriptContext {
    /// The file being parsed.
    pub file: FileId,
    /// The errors, in the order in which they were found.
    pub errors: Vec<Diagnostic>,
    /// Constants among the operands of the current call.
    pub literals: Vec<Node>,
    /// The number of constants found among operands so far.
    pub constants: usize,
}

/// The right-hand side of a node.
pub(crate) struct Call {
    op: Arc<str>,
    attrs: Vec<Attr>,
    args: Vec<Typed>,
    literals: Vec<Node>,
}

impl Call {
    /// The nodes of the constants among the operands, then the node with these results.
    pub(crate) fn with(
        mut self,
        outputs: Vec<Typed>,
        place: Option<&str>,
        blocks: Vec<Block>,
        span: Span,
    ) -> Vec<Node> {
        self.literals.push(Node {
            outputs,
            op: self.op,
            attrs: self.attrs,
            args: self.args,
            place: place.map(Into::into),
            blocks,
            span,
        });
        self.literals
    }
}

impl TorchscriptContext {
    /// The span between two offsets.
    pub(crate) fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.file, start, end.max(start))
    }

    /// A constant as an operand: creates a node for it and returns its name.
    pub(crate) fn literal(&mut self, text: String, l: usize, r: usize) -> Typed {
        let span = self.span(l, r);
        let value = |ty| Typed {
            name: format!("constant {}", self.constants).into(),
            span,
            ty,
        };
        let (out, operand) = (value(Ty::unannotated()), value(Ty::default()));
        self.constants += 1;
        let attr = Attr {
            name: "value".into(),
            text: text.into(),
            span,
        };
        self.literals.push(Node {
            outputs: vec![out],
            op: "prim::Constant".into(),
            attrs: vec![attr],
            args: vec![],
            place: None,
            blocks: vec![],
            span,
        });
        operand
    }

    /// A call, with the constants among its operands. `prim::constant(1)` is `prim::Constant[value=1]()`.
    pub(crate) fn call(&mut self, op: &str, mut attrs: Vec<Attr>, mut args: Vec<Typed>) -> Call {
        let mut literals = std::mem::take(&mut self.literals);
        let known = PRIMS.iter().find(|p| p.eq_ignore_ascii_case(op));
        let op: Arc<str> = known.map_or(op, |p| *p).into();
        if &*op == "prim::Constant" && attrs.is_empty() && args.len() == 1 && literals.len() == 1 {
            attrs = literals.remove(0).attrs;
            args.clear();
        }
        Call {
            op,
            attrs,
            args,
            literals,
        }
    }

    /// `types=[Tensor, int]`: the names of the types, separated by commas.
    pub(crate) fn types(&self, name: &str, types: &[Ty], l: usize, r: usize) -> Attr {
        let names: Vec<&str> = types.iter().map(|t| &*t.name).collect();
        Attr {
            name: name.into(),
            text: names.join(",").into(),
            span: self.span(l, r),
        }
    }

    /// A type with arguments.
    pub(crate) fn ty(&self, name: &str, args: Vec<Ty>) -> Ty {
        let sizes: Vec<Option<i64>> = args.iter().filter(|a| &*a.name == "size").map(|a| a.sizes[0]).collect();
        // The rank of `Float(device=cpu)` is known to be zero only if the type has memory settings.
        let shaped = !sizes.is_empty() || args.iter().any(|a| *a == Ty::setting());
        Ty {
            name: name.into(),
            sizes,
            shaped,
            optional: false,
        }
    }
}
