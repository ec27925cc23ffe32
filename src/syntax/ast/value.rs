//! Types and values as written.

use super::{Args, Name};
use crate::source::Span;
use std::sync::Arc;

/// A type as written.
#[derive(Clone, Debug)]
pub struct Type {
    /// Its form.
    pub kind: TypeKind,
    /// Its span.
    pub span: Span,
}

/// The forms of types.
#[derive(Clone, Debug)]
pub enum TypeKind {
    /// `f32[N, 3]`; the shape is `None` for `f32[*]`. Sizes are values: integers, names, `?` and arithmetic.
    Tensor {
        /// The element type's name.
        dtype: Name,
        /// The sizes.
        shape: Option<Vec<Value>>,
    },
    /// `int`, `float`, `bool`, `str`, `None` and other words.
    Word(Arc<str>),
    /// `"typing.Optional[int]"`: a Python annotation, which is kept without being interpreted.
    Python(Arc<str>),
    /// `"Optional[Tensor]"`, for an attribute that is `None` if the weights lack it.
    OptionalTensor,
    /// torch's `Sym(s77)`: an integer with this size as its value.
    Size(Box<Value>),
    /// `?`
    Unknown,
    /// `(T, U)`
    Tuple(Vec<Type>),
    /// `[T]`
    List(Vec<Type>),
    /// `{"k": T}`
    Dict(Vec<(Value, Type)>),
}

impl TypeKind {
    /// The annotation that means [`TypeKind::OptionalTensor`].
    const OPTIONAL_TENSOR: &str = "Optional[Tensor]";

    /// The type for a Python annotation.
    pub fn python(text: Arc<str>) -> TypeKind {
        match &*text {
            TypeKind::OPTIONAL_TENSOR => TypeKind::OptionalTensor,
            _ => TypeKind::Python(text),
        }
    }

    /// The Python annotation for this type, if it is one.
    pub fn annotation(&self) -> Option<Arc<str>> {
        match self {
            TypeKind::Python(text) => Some(text.clone()),
            TypeKind::OptionalTensor => Some(TypeKind::OPTIONAL_TENSOR.into()),
            _ => None,
        }
    }
}

/// An argument as written. It may contain arithmetic and comparisons: on sizes anywhere, on literals in rewrite rules.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its form.
    pub kind: ValueKind,
    /// Its span.
    pub span: Span,
}

/// The forms of values.
#[derive(Clone, Debug)]
pub enum ValueKind {
    /// `%x`
    Node(Arc<str>),
    /// `@then_graph`
    Graph(Arc<str>),
    /// `$a`, in rewrite rules
    Literal(Arc<str>),
    /// `*%xs` in a list, in rewrite rules
    Rest(Arc<str>),
    /// `None`
    None,
    /// `True`, `False`
    Bool(bool),
    /// `Ellipsis`
    Ellipsis,
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// `(1+2j)`: real and imaginary part.
    Complex(f64, f64),
    /// A string.
    Str(Arc<str>),
    /// A bare name or path: a dtype, a name of the torch module, or a symbolic size.
    Name(Arc<str>),
    /// `device("cpu")`
    Device(Arc<str>),
    /// `opaque("<built-in function add>")`: torch's text of an object without a literal form.
    Opaque(Arc<str>),
    /// `?`, an unknown size; only in types.
    Unknown,
    /// `[a, b]`
    List(Vec<Value>),
    /// `(a, b)`, `(a,)`, `()`
    Tuple(Vec<Value>),
    /// `{key: value}` in order
    Dict(Vec<(Value, Value)>),
    /// `slice(start, stop, step)`
    Slice(Box<[Value; 3]>),
    /// `range(start, stop, step)`
    Range(Box<[Value; 3]>),
    /// `-a`, `not a`
    Unary(UnaryOp, Box<Value>),
    /// `a + b` and other binary operators
    Binary(BinaryOp, Box<Value>, Box<Value>),
    /// `max(a, b)` of sizes; `dtype(%x)` and so on in a rule's condition; an op in a one-line rule.
    Call(Name, Args),
    /// `%n = relu(%x)` and `%x : f32[N]`, in one-line rules
    Bound(Box<Binding>),
}

/// A name in a one-line rule, bound to a value or annotated with a type.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The name.
    pub name: Name,
    /// The type, if given.
    pub ty: Option<Type>,
    /// The value that the name is bound to; `None` for a parameter, which matches any value.
    pub value: Option<Value>,
}

/// Unary operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum UnaryOp {
    Neg,
    Not,
}

/// Binary operators, in order of increasing precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum BinaryOp {
    Or,
    And,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

impl BinaryOp {
    /// The operator as written.
    pub fn symbol(self) -> &'static str {
        use BinaryOp::*;
        match self {
            Or => "or",
            And => "and",
            Eq => "==",
            Ne => "!=",
            Lt => "<",
            Le => "<=",
            Gt => ">",
            Ge => ">=",
            In => "in",
            NotIn => "not in",
            Add => "+",
            Sub => "-",
            Mul => "*",
            Div => "/",
            FloorDiv => "//",
            Mod => "%",
            Pow => "**",
        }
    }
}

impl Value {
    /// Makes a value with its span.
    pub fn new(kind: ValueKind, span: Span) -> Value {
        Value { kind, span }
    }

    /// Calls `f` with this value and all values inside it, in source order.
    pub fn visit<'a>(&'a self, f: &mut dyn FnMut(&'a Value)) {
        f(self);
        match &self.kind {
            ValueKind::List(v) | ValueKind::Tuple(v) => v.iter().for_each(|v| v.visit(f)),
            ValueKind::Dict(v) => v.iter().flat_map(|(k, v)| [k, v]).for_each(|v| v.visit(f)),
            ValueKind::Slice(v) | ValueKind::Range(v) => v.iter().for_each(|v| v.visit(f)),
            ValueKind::Unary(_, v) => v.visit(f),
            ValueKind::Binary(_, a, b) => [a, b].into_iter().for_each(|v| v.visit(f)),
            ValueKind::Call(_, args) => {
                let named = args.keyword.iter().map(|(_, v)| v);
                args.positional.iter().chain(named).for_each(|v| v.visit(f));
            }
            ValueKind::Bound(b) => b.value.iter().for_each(|v| v.visit(f)),
            _ => {}
        }
    }
}
