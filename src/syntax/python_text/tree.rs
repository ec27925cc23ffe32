//! The syntax tree of the Python that torch prints, and the actions of its grammar.

use crate::diag::Diagnostic;
use crate::source::{FileId, Span};
use crate::syntax::delimiters::{MAX_DEPTH, too_deep};
use crate::syntax::token::{too_large, unescape};
use std::sync::Arc;

/// An item at the top level of a text, or in a class.
#[derive(Debug)]
pub(crate) enum Top {
    /// `class GraphModule(torch.nn.Module):`
    Class(Class),
    /// `def forward(self, x):`
    Def(Def),
    /// A line without a definition: `torch.fx._symbolic_trace.wrap("f")`, a docstring.
    Other,
}

/// A class with its functions and the classes of its submodules.
#[derive(Debug)]
pub(crate) struct Class {
    /// Its name.
    pub name: Ident,
    /// Its items.
    pub members: Vec<Top>,
    /// Its span.
    pub span: Span,
}

/// The output of `print(exported_program)`.
#[derive(Debug)]
pub(crate) struct Program {
    /// The class.
    pub members: Vec<Top>,
    /// The lines of the signature.
    pub signature: Vec<Spec>,
    /// `{s0: VR[2, 8]}`
    pub ranges: Option<Expr>,
    /// Its span.
    pub span: Span,
}

/// A line of the signature: `p_weight: PARAMETER target='weight'`.
#[derive(Debug)]
pub(crate) struct Spec {
    /// The value; `None` for a constant result.
    pub name: Option<Ident>,
    /// Its kind.
    pub kind: Ident,
    /// `target` and `persistent`.
    pub fields: Vec<(Ident, Expr)>,
}

/// A function.
#[derive(Debug)]
pub(crate) struct Def {
    /// Its name.
    pub name: Ident,
    /// Its parameters, including `self`.
    pub params: Vec<Param>,
    /// The annotation of its result.
    pub returns: Option<Expr>,
    /// The statements of its body in order, one for each part between semicolons.
    pub body: Vec<Simple>,
    /// Its span.
    pub span: Span,
}

/// A name with its span.
#[derive(Clone, Debug)]
pub(crate) struct Ident {
    /// The name.
    pub text: Arc<str>,
    /// Its span.
    pub span: Span,
}

/// A parameter: `x : torch.Tensor = None`, `*args`.
#[derive(Debug)]
pub(crate) struct Param {
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
pub(crate) struct Simple {
    /// Its form.
    pub kind: SimpleKind,
    /// Its span.
    pub span: Span,
}

/// The forms of simple statements.
#[derive(Debug)]
pub(crate) enum SimpleKind {
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
    /// `pass`, `del a`: statements without an effect on the graph.
    Nothing,
    /// A statement that could not be read, which has been reported. Its targets are defined but unknown.
    Broken,
}

/// An expression.
#[derive(Debug)]
pub(crate) struct Expr {
    /// Its form.
    pub kind: ExprKind,
    /// Its span.
    pub span: Span,
    depth: usize,
}

/// The forms of expressions.
#[derive(Debug)]
pub(crate) enum ExprKind {
    /// A name.
    Name(Arc<str>),
    /// A 64-bit integer.
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
    /// `-a`, with the name of the function in `operator`.
    Unary(&'static str, Box<Expr>),
    /// `a + b`, with the name of the function in `operator`.
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
pub(crate) enum Arg {
    /// A positional argument.
    Positional(Expr),
    /// `k = v`
    Keyword(Ident, Expr),
    /// `**{"k": v}`
    Keywords(Expr),
}

/// The state of the parser.
pub(crate) struct PythonContext {
    /// The file being parsed.
    pub file: FileId,
    /// The errors, in the order in which they were found.
    pub errors: Vec<Diagnostic>,
    /// Whether excessive nesting has been reported.
    pub deep: bool,
}

impl PythonContext {
    /// The span between two offsets.
    pub(crate) fn span(&self, start: usize, end: usize) -> Span {
        Span::new(self.file, start, end.max(start))
    }

    /// A name with its span.
    pub(crate) fn ident(&self, text: &str, start: usize, end: usize) -> Ident {
        Ident {
            text: text.into(),
            span: self.span(start, end),
        }
    }

    /// An expression with its span. If expressions nest too deeply, the outer one is reported and dropped.
    pub(crate) fn expr(&mut self, kind: ExprKind, start: usize, end: usize) -> Expr {
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

    /// An integer. Reports one that does not fit in 64 bits.
    pub(crate) fn int(&mut self, text: &str, start: usize, end: usize) -> Expr {
        let value = text.replace('_', "").parse().unwrap_or_else(|_| {
            self.errors.push(too_large(self.span(start, end)));
            0
        });
        self.expr(ExprKind::Int(value), start, end)
    }

    /// The value of a float or of an imaginary number.
    pub(crate) fn number(text: &str) -> f64 {
        text.trim_end_matches(['j', 'J']).parse().unwrap_or(f64::NAN)
    }

    /// The text of a string literal.
    pub(crate) fn string(&mut self, literal: &str, start: usize) -> Arc<str> {
        let body = &literal[1..literal.len() - 1];
        unescape(body, self.file, start + 1, &mut self.errors).into()
    }

    /// `a OP b`.
    pub(crate) fn binary(&mut self, op: &'static str, a: Expr, b: Expr, start: usize, end: usize) -> Expr {
        self.expr(ExprKind::Binary(op, Box::new(a), Box::new(b)), start, end)
    }

    /// `OP a`. The sign of a number is part of the literal.
    pub(crate) fn unary(&mut self, op: &'static str, a: Expr, start: usize, end: usize) -> Expr {
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

/// The function of `operator` for a comparison.
pub(crate) fn comparison(sign: &str) -> &'static str {
    match sign {
        "==" => "eq",
        "!=" => "ne",
        "<" => "lt",
        "<=" => "le",
        ">" => "gt",
        _ => "ge",
    }
}

/// The function of `operator` for a multiplicative or shift operator.
pub(crate) fn product(sign: &str) -> &'static str {
    match sign {
        "/" => "truediv",
        "//" => "floordiv",
        "%" => "mod",
        "@" => "matmul",
        "<<" => "lshift",
        _ => "rshift",
    }
}

/// Makes a tuple of the items, or returns the single item if there is no comma.
pub(crate) fn listed(cx: &mut PythonContext, mut items: Vec<Expr>, comma: bool, start: usize, end: usize) -> Expr {
    match items.len() {
        1 if !comma => items.remove(0),
        _ => cx.expr(ExprKind::Tuple(items), start, end),
    }
}

/// A string with its span.
pub(crate) fn string(text: Arc<str>, span: Span) -> Expr {
    let kind = ExprKind::Str(text);
    Expr { kind, span, depth: 1 }
}
