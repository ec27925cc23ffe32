//! The syntax tree of the Python that torch prints, before it is a graph, and what the grammar's actions do.

use crate::diag::Diagnostic;
use crate::source::{FileId, Span};
use crate::syntax::delimiters::{MAX_DEPTH, too_deep};
use crate::syntax::token::{too_large, unescape};
use std::sync::Arc;

/// What stands at the outermost level of a text, or in a class.
#[derive(Debug)]
pub enum Top {
    /// `class GraphModule(torch.nn.Module):`
    Class(Class),
    /// `def forward(self, x):`
    Def(Def),
    /// A line that defines nothing: `torch.fx._symbolic_trace.wrap("f")`, a docstring.
    Other,
}

/// A class with its functions and the classes of its sub-modules.
#[derive(Debug)]
pub struct Class {
    /// Its name.
    pub name: Ident,
    /// What stands in it.
    pub members: Vec<Top>,
    /// All of it.
    pub span: Span,
}

/// What `print(exported_program)` prints.
#[derive(Debug)]
pub struct Program {
    /// The class.
    pub members: Vec<Top>,
    /// The lines of the signature.
    pub signature: Vec<Spec>,
    /// `{s0: VR[2, 8]}`
    pub ranges: Option<Expr>,
    /// All of it.
    pub span: Span,
}

/// A line of the signature: `p_weight: PARAMETER target='weight'`.
#[derive(Debug)]
pub struct Spec {
    /// The value; a constant result has no name.
    pub name: Option<Ident>,
    /// What it is.
    pub kind: Ident,
    /// `target` and `persistent`.
    pub fields: Vec<(Ident, Expr)>,
}

/// A function.
#[derive(Debug)]
pub struct Def {
    /// Its name.
    pub name: Ident,
    /// Its parameters, `self` among them.
    pub params: Vec<Param>,
    /// The annotation of its result.
    pub returns: Option<Expr>,
    /// The statements of its body in order, one for each part between semicolons.
    pub body: Vec<Simple>,
    /// All of it.
    pub span: Span,
}

/// A name at a place.
#[derive(Clone, Debug)]
pub struct Ident {
    /// The name.
    pub text: Arc<str>,
    /// Where it stands.
    pub span: Span,
}

/// A parameter: `x : torch.Tensor = None`, `*args`.
#[derive(Debug)]
pub struct Param {
    /// `*` or `**` or nothing.
    pub stars: &'static str,
    /// Its name.
    pub name: Ident,
    /// The annotation.
    pub ty: Option<Expr>,
    /// The default.
    pub default: Option<Expr>,
}

/// A simple statement.
#[derive(Debug)]
pub struct Simple {
    /// What it does.
    pub kind: SimpleKind,
    /// All of it.
    pub span: Span,
}

/// The forms of simple statements.
#[derive(Debug)]
pub enum SimpleKind {
    /// `a = b = value`: the targets, the annotation of a single one, the value.
    Assign(Vec<Expr>, Option<Expr>, Expr),
    /// `a: T`
    Annotate(Expr, Expr),
    /// `a += b`
    InPlace(Arc<str>, Expr, Expr),
    /// `return value`
    Return(Option<Expr>),
    /// A call for its effect.
    Expr(Expr),
    /// `pass`, `del a`: nothing that a graph holds.
    Nothing,
    /// What could not be read, which was reported. Its targets are defined, if not known.
    Broken,
}

/// An expression.
#[derive(Debug)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Where it stands.
    pub span: Span,
    depth: usize,
}

/// The forms of expressions.
#[derive(Debug)]
pub enum ExprKind {
    /// A name.
    Name(Arc<str>),
    /// An integer of 64 bits.
    Int(i64),
    /// A float.
    Float(f64),
    /// `2j`
    Imag(f64),
    /// A string.
    Str(Arc<str>),
    /// `<InputKind.PARAMETER: 1>`
    Object(Arc<str>),
    /// `None`
    None,
    /// `True`, `False`
    Bool(bool),
    /// `...`
    Ellipsis,
    /// `a.b`
    Attr(Box<Expr>, Ident),
    /// `f(a, k = b)`
    Call(Box<Expr>, Vec<Arg>),
    /// `a[i]`
    Index(Box<Expr>, Box<Expr>),
    /// `a:b:c` between the brackets of an index.
    Slice(Vec<Option<Expr>>),
    /// `-a`, by the name of `operator`'s function.
    Unary(&'static str, Box<Expr>),
    /// `a + b`, by the name of `operator`'s function.
    Binary(&'static str, Box<Expr>, Box<Expr>),
    /// `(a, b)`
    Tuple(Vec<Expr>),
    /// `[a, b]`
    List(Vec<Expr>),
    /// `{k: v}`
    Dict(Vec<(Expr, Expr)>),
}

/// An argument of a call.
#[derive(Debug)]
pub enum Arg {
    /// By position.
    Positional(Expr),
    /// `k = v`
    Keyword(Ident, Expr),
    /// `**{"k": v}`
    Keywords(Expr),
}

/// What the parser carries along.
pub struct Cx {
    /// The file being parsed.
    pub file: FileId,
    /// Findings, in the order they were made.
    pub errors: Vec<Diagnostic>,
    /// Whether too deep a nesting was reported.
    pub deep: bool,
}

impl Cx {
    /// The span between two places.
    pub fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.file, start, end.max(start))
    }

    /// A name at a place.
    pub fn ident(&self, text: &str, start: usize, end: usize) -> Ident {
        Ident {
            text: text.into(),
            span: self.span(start, end),
        }
    }

    /// An expression at a place. Where expressions nest too deeply, the outer one is dropped and reported.
    pub fn expr(&mut self, kind: ExprKind, start: usize, end: usize) -> Expr {
        let span = self.span(start, end);
        let depth = 1 + children_depth(&kind);
        if depth <= MAX_DEPTH {
            return Expr { kind, span, depth };
        }
        if !self.deep {
            self.errors.push(too_deep(span));
            self.deep = true;
        }
        let kind = ExprKind::None;
        Expr { kind, span, depth: 1 }
    }

    /// An integer; one that does not fit is reported.
    pub fn int(&mut self, text: &str, start: usize, end: usize) -> Expr {
        let value = text.replace('_', "").parse().unwrap_or_else(|_| {
            self.errors.push(too_large(self.span(start, end)));
            0
        });
        self.expr(ExprKind::Int(value), start, end)
    }

    /// A float or, after a real one, the number of an imaginary one.
    pub fn number(text: &str) -> f64 {
        text.trim_end_matches(['j', 'J']).parse().unwrap_or(f64::NAN)
    }

    /// The text of a string literal.
    pub fn string(&mut self, literal: &str, start: usize) -> Arc<str> {
        let body = &literal[1..literal.len() - 1];
        unescape(body, self.file, start + 1, &mut self.errors).into()
    }

    /// `a OP b`.
    pub fn binary(&mut self, op: &'static str, a: Expr, b: Expr, start: usize, end: usize) -> Expr {
        self.expr(ExprKind::Binary(op, Box::new(a), Box::new(b)), start, end)
    }

    /// `OP a`; a sign before a number is part of it.
    pub fn unary(&mut self, op: &'static str, a: Expr, start: usize, end: usize) -> Expr {
        let kind = match (op, &a.kind) {
            ("neg", ExprKind::Int(i)) => ExprKind::Int(i.wrapping_neg()),
            ("neg", ExprKind::Float(x)) => ExprKind::Float(-x),
            ("neg", ExprKind::Imag(x)) => ExprKind::Imag(-x),
            _ => ExprKind::Unary(op, Box::new(a)),
        };
        self.expr(kind, start, end)
    }
}

fn children_depth(kind: &ExprKind) -> usize {
    let all = |v: &[Expr]| v.iter().map(|e| e.depth).max().unwrap_or(0);
    match kind {
        ExprKind::Attr(a, _) | ExprKind::Unary(_, a) => a.depth,
        ExprKind::Call(f, args) => {
            let arg = |a: &Arg| match a {
                Arg::Positional(e) | Arg::Keyword(_, e) | Arg::Keywords(e) => e.depth,
            };
            args.iter().map(arg).max().unwrap_or(0).max(f.depth)
        }
        ExprKind::Index(a, b) | ExprKind::Binary(_, a, b) => a.depth.max(b.depth),
        ExprKind::Slice(v) => v.iter().flatten().map(|e| e.depth).max().unwrap_or(0),
        ExprKind::Tuple(v) | ExprKind::List(v) => all(v),
        ExprKind::Dict(v) => v.iter().map(|(k, v)| k.depth.max(v.depth)).max().unwrap_or(0),
        _ => 0,
    }
}

/// The name in `operator` of a comparison.
pub fn comparison(sign: &str) -> &'static str {
    match sign {
        "==" => "eq",
        "!=" => "ne",
        "<" => "lt",
        "<=" => "le",
        ">" => "gt",
        _ => "ge",
    }
}

/// The name in `operator` of a product's or shift's sign.
pub fn product(sign: &str) -> &'static str {
    match sign {
        "/" => "truediv",
        "//" => "floordiv",
        "%" => "mod",
        "@" => "matmul",
        "<<" => "lshift",
        _ => "rshift",
    }
}

/// `first` and `rest` as what the commas make of them.
pub fn listed(cx: &mut Cx, mut items: Vec<Expr>, comma: bool, start: usize, end: usize) -> Expr {
    match items.len() {
        1 if !comma => items.remove(0),
        _ => cx.expr(ExprKind::Tuple(items), start, end),
    }
}

/// A string at a place.
pub fn string(text: Arc<str>, span: Span) -> Expr {
    let kind = ExprKind::Str(text);
    Expr { kind, span, depth: 1 }
}
