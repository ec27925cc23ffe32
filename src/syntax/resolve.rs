//! Converts types, sizes and values of the syntax tree to those of [`crate::types`].

use super::ast::{self, BinaryOp, TypeKind, UnaryOp, ValueKind};
use crate::diag::{Code, Diagnostic, Diagnostics, nearest};
use crate::source::Span;
use crate::types::{DType, Dim, ScalarKind, SizeExpr, SizeFn, TensorType, Type, Val};

/// Names of the torch module that are values and not dtypes.
const TORCH_NAMES: [&str; 21] = [
    "torch.strided",
    "torch.sparse_coo",
    "torch.sparse_csr",
    "torch.sparse_csc",
    "torch.sparse_bsr",
    "torch.sparse_bsc",
    "torch.jagged",
    "torch._mkldnn",
    "torch.contiguous_format",
    "torch.preserve_format",
    "torch.channels_last",
    "torch.channels_last_3d",
    "torch.per_tensor_affine",
    "torch.per_channel_affine",
    "torch.per_tensor_symmetric",
    "torch.per_channel_symmetric",
    "torch.per_channel_affine_float_qparams",
    "torch.quint8",
    "torch.qint8",
    "torch.qint32",
    "torch.float8_e4m3fnuz",
];

/// Whether `name` is a dtype, layout, memory format or similar constant, as torch prints it.
pub(crate) fn is_torch_name(name: &str) -> bool {
    name.starts_with("torch.") && (DType::from_torch(name).is_some() || TORCH_NAMES.contains(&name))
}

/// Whether `name` has the form of torch's symbolic sizes: `s77`, `u0`. Such names need no declaration.
pub(crate) fn is_torch_symbol(name: &str) -> bool {
    let digits = name.strip_prefix(['s', 'u', 'z']);
    digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
}

/// The type that `t` denotes. Unknown parts are [`Val::Unknown`]; an invalid type name is reported.
pub(crate) fn ty(t: &ast::Type, d: &mut Diagnostics) -> Type {
    match &t.kind {
        TypeKind::Tensor { dtype, shape } => {
            let shape = shape.as_ref().map(|s| s.iter().map(|v| size(v, d)).collect());
            match tensor_dtype(&dtype.text) {
                Some(dtype) => Val::Leaf(TensorType { dtype, shape }),
                None => {
                    d.push(unknown_dtype(&dtype.text, dtype.span));
                    Val::Unknown
                }
            }
        }
        TypeKind::Word(w) => type_from_word(w, t.span, d),
        TypeKind::Python(_) | TypeKind::OptionalTensor | TypeKind::Unknown => Val::Unknown,
        TypeKind::Size(v) => Val::Int(size(v, d)),
        TypeKind::Tuple(v) => Val::Tuple(v.iter().map(|t| ty(t, d)).collect()),
        TypeKind::List(v) => Val::List(v.iter().map(|t| ty(t, d)).collect()),
        TypeKind::Dict(v) => {
            let mut no_nodes = |_: &str, _| None;
            Val::Dict(v.iter().map(|(k, t)| (value(k, &mut no_nodes, d), ty(t, d))).collect())
        }
    }
}

fn tensor_dtype(name: &str) -> Option<DType> {
    DType::from_short(name).or_else(|| name.starts_with("torch.").then(|| DType::from_torch(name)).flatten())
}

fn unknown_dtype(name: &str, span: Span) -> Diagnostic {
    let d = Diagnostic::new(Code::E0015, format!("unknown element type `{name}`")).at(span, "not a dtype");
    let shorts = || DType::all().map(DType::short_name);
    let torch = || DType::all().map(DType::torch_name);
    let similar = DType::from_torch(name)
        .map(DType::short_name)
        .or_else(|| nearest(name, shorts()))
        .or_else(|| {
            nearest(name, torch())
                .and_then(DType::from_torch)
                .map(DType::short_name)
        })
        .or_else(|| matches!(name, "Tensor" | "tensor" | "torch.Tensor").then_some("f32"));
    match similar {
        Some(n) => d.suggest(span, n, "use torch's abbreviation"),
        None => d.help(format!("the dtypes are {}", shorts().collect::<Vec<_>>().join(" "))),
    }
}

fn type_from_word(w: &str, span: Span, d: &mut Diagnostics) -> Type {
    const WORDS: [&str; 6] = ["int", "float", "bool", "str", "complex", "None"];
    match w {
        "int" => Val::Any(ScalarKind::Int),
        "float" => Val::Any(ScalarKind::Float),
        "bool" => Val::Any(ScalarKind::Bool),
        "str" => Val::Any(ScalarKind::Str),
        "None" => Val::None,
        "Ellipsis" => Val::Ellipsis,
        // Values of these types carry no further type information.
        "complex" | "dtype" | "device" | "slice" | "range" | "graph" | "object" | "Tensor" => Val::Unknown,
        _ => {
            let e = Diagnostic::new(Code::E0015, format!("unknown type `{w}`")).at(span, "not a type");
            d.push(match (tensor_dtype(w), nearest(w, WORDS)) {
                (Some(_), _) => e.help(format!("a tensor type includes a shape: `{w}[]`, `{w}[2, 3]`, `{w}[*]`")),
                (_, Some(n)) => e.suggest(span, n, "there is a type with a similar name"),
                _ => e.help(
                    "a type is a tensor type such as `f32[2, 3]`, or int, float, bool, str, None, `(T, U)`, `[T]`, `{\"k\": T}`",
                ),
            });
            Val::Unknown
        }
    }
}

/// The size that `v` denotes. Reports a value that is not a size or does not fit in 64 bits.
pub(crate) fn size(v: &ast::Value, d: &mut Diagnostics) -> Dim {
    let (size, whole) = eval_dim(v, d);
    match size {
        Some(Dim::Unknown) if whole => {
            let e = Diagnostic::new(Code::E0016, "size cannot be computed")
                .at(v.span, "it overflows 64 bits, divides by zero, or has too many terms");
            d.push(e);
            Dim::Unknown
        }
        Some(Dim::Const(c)) if c < 0 => {
            let e =
                Diagnostic::new(Code::E0016, format!("negative size {c}")).at(v.span, "a size must not be negative");
            d.push(e.help("write `?` for an unknown size"));
            Dim::Unknown
        }
        Some(s) => s,
        None => Dim::Unknown,
    }
}

/// The comparison of two sizes that `v` denotes. Reports any other value.
pub(crate) fn condition(v: &ast::Value, d: &mut Diagnostics) -> Option<(Dim, BinaryOp, Dim)> {
    use BinaryOp::{Eq, Ge, Gt, Le, Lt, Ne};
    if let ValueKind::Binary(op @ (Eq | Ne | Lt | Le | Gt | Ge), a, b) = &v.kind {
        let (a, b) = (eval_dim(a, d).0?, eval_dim(b, d).0?);
        return Some((a, *op, b));
    }
    let e = Diagnostic::new(Code::E0016, "a condition on sizes must compare two sizes");
    d.push(e.at(v.span, "not a comparison").help("write `dim where N % 8 == 0`"));
    None
}

/// The size, if `v` is one, and whether it contains no `?`.
fn eval_dim(v: &ast::Value, d: &mut Diagnostics) -> (Option<Dim>, bool) {
    let (number, written) = eval_size_expr(v, d);
    let Some(number) = number else { return (None, written) };
    match number.into_dim() {
        Some(size) => (Some(size), written),
        None => {
            let e = Diagnostic::new(Code::E0016, "this is not a size").at(v.span, "this evaluates to a float");
            d.push(e.help("round it to an integer with `TruncToInt(…)`, `FloorToInt`, `CeilToInt` or `RoundToInt`"));
            (None, written)
        }
    }
}

type Numbers = Option<Vec<SizeExpr>>;

/// The number that `v` computes from sizes, and whether it contains no `?`.
fn eval_size_expr(v: &ast::Value, d: &mut Diagnostics) -> (Option<SizeExpr>, bool) {
    let mut all = |args: &[&ast::Value]| eval_size_exprs(args, d);
    let size = match &v.kind {
        ValueKind::Int(i) => return (Some(SizeExpr::int(*i)), true),
        ValueKind::Float(x) => return (Some(SizeExpr::float(*x)), true),
        ValueKind::Bool(b) => return (Some(SizeExpr::int(*b as i64)), true),
        ValueKind::Name(n) if !n.contains('.') => return (Some(SizeExpr::Int(Dim::var(n))), true),
        ValueKind::Unknown => return (Some(SizeExpr::Int(Dim::Unknown)), false),
        ValueKind::Unary(op, a) => {
            let (a, w) = all(&[a]);
            (a.and_then(|a| apply_unary(*op, &a[0])), w)
        }
        ValueKind::Binary(op, a, b) => match all(&[a, b]) {
            (Some(ab), w) => (apply_binary(*op, &ab[0], &ab[1]), w),
            (None, w) => return (None, w),
        },
        ValueKind::Call(f, args) if &*f.text == "Piecewise" => {
            let pairs: Option<Vec<_>> = args.positional.iter().map(as_pair).collect();
            let Some(pairs) = pairs else {
                return (not_a_size(v, d), true);
            };
            let (flat, w) = all(&pairs.concat());
            let Some(flat) = flat else { return (None, w) };
            (piecewise_size(&flat), w)
        }
        ValueKind::Call(f, args) if is_size_function(&f.text) => {
            match all(&args.positional.iter().collect::<Vec<_>>()) {
                (Some(args), w) => (SizeExpr::from_function(&f.text, args), w),
                (None, w) => return (None, w),
            }
        }
        _ => (None, true),
    };
    match size {
        (None, w) => (not_a_size(v, d), w),
        found => found,
    }
}

/// The numbers that `args` compute from sizes, and whether they contain no `?`.
fn eval_size_exprs(args: &[&ast::Value], d: &mut Diagnostics) -> (Numbers, bool) {
    let parts: Vec<_> = args.iter().map(|a| eval_size_expr(a, d)).collect();
    let written = parts.iter().all(|(_, w)| *w);
    (parts.into_iter().map(|(n, _)| n).collect(), written)
}

/// The size `Piecewise((value, condition), …)`. `flat` has the values and conditions in turn.
fn piecewise_size(flat: &[SizeExpr]) -> Option<SizeExpr> {
    let parts = flat.chunks_exact(2).map(|p| (p[0].clone(), p[1].clone()));
    SizeExpr::piecewise(parts.collect())
}

fn not_a_size(v: &ast::Value, d: &mut Diagnostics) -> Option<SizeExpr> {
    let e = Diagnostic::new(Code::E0016, "this is not a size").at(
        v.span,
        "expected an integer, a name, `?`, or arithmetic (+ - * // %, max, min) on them",
    );
    d.push(e);
    None
}

/// The parts of `(value, condition)`.
fn as_pair(v: &ast::Value) -> Option<Vec<&ast::Value>> {
    match &v.kind {
        ValueKind::Tuple(p) if p.len() == 2 => Some(p.iter().collect()),
        _ => None,
    }
}

/// Whether calls of this name are sizes: torch's size functions, `max` and `min`.
pub(crate) fn is_size_function(name: &str) -> bool {
    SizeFn::from_name(name).is_some()
        || matches!(
            name,
            "Piecewise"
                | "FloorDiv"
                | "CleanDiv"
                | "CeilDiv"
                | "Mod"
                | "PythonMod"
                | "ModularIndexing"
                | "Identity"
                | "Pow"
        )
}

fn apply_unary(op: UnaryOp, a: &SizeExpr) -> Option<SizeExpr> {
    match op {
        UnaryOp::Neg => Some(a.neg()),
        UnaryOp::Not => Some(a.apply_function(SizeFn::Not)),
    }
}

fn apply_binary(op: BinaryOp, a: &SizeExpr, b: &SizeExpr) -> Option<SizeExpr> {
    use BinaryOp::*;
    let name = match op {
        Add => return Some(a.add(b)),
        Sub => return Some(a.sub(b)),
        Mul => return Some(a.mul(b)),
        Div => return Some(a.div(b)),
        Pow => return Some(a.pow(b)),
        FloorDiv => return a.on_dims(b, Dim::floordiv),
        Mod => return a.on_dims(b, Dim::modulo),
        And => "And",
        Or => "Or",
        Eq => "Eq",
        Ne => "Ne",
        Lt => "Lt",
        Le => "Le",
        Gt => "Gt",
        Ge => "Ge",
        In | NotIn => return None,
    };
    SizeExpr::from_function(name, vec![a.clone(), b.clone()])
}

/// The value that `v` denotes. `node` returns the leaf for `%name`, or reports an undefined name and returns `None`;
/// the value is then [`Val::Unknown`]. For a `$literal`, `node` is called with the `$`.
pub(crate) fn value<T>(
    v: &ast::Value,
    node: &mut dyn FnMut(&str, Span) -> Option<Val<T>>,
    d: &mut Diagnostics,
) -> Val<T> {
    let mut seq = |v: &[ast::Value], d: &mut Diagnostics| v.iter().map(|x| value(x, node, d)).collect::<Vec<_>>();
    let three = |mut v: Vec<Val<T>>| {
        let c = v.pop().unwrap_or(Val::None);
        let b = v.pop().unwrap_or(Val::None);
        Box::new([v.pop().unwrap_or(Val::None), b, c])
    };
    match &v.kind {
        ValueKind::Node(n) => node(n, v.span).unwrap_or(Val::Unknown),
        ValueKind::Literal(n) => node(&format!("${n}"), v.span).unwrap_or(Val::Unknown),
        ValueKind::Rest(n) => node(&format!("*{n}"), v.span).unwrap_or(Val::Unknown),
        ValueKind::Graph(n) => Val::Graph(n.clone()),
        ValueKind::None => Val::None,
        ValueKind::Bool(b) => Val::Bool(*b),
        ValueKind::Ellipsis => Val::Ellipsis,
        ValueKind::Int(i) => Val::int(*i),
        ValueKind::Float(x) => Val::Float(*x),
        ValueKind::Complex(a, b) => Val::Complex(*a, *b),
        ValueKind::Str(s) => Val::Str(s.clone()),
        ValueKind::Name(n) => resolve_name(n),
        ValueKind::Device(s) => Val::Device(s.clone()),
        ValueKind::Opaque(s) => Val::Opaque(s.clone()),
        ValueKind::List(x) => Val::List(seq(x, d)),
        ValueKind::Tuple(x) => Val::Tuple(seq(x, d)),
        ValueKind::Dict(x) => Val::Dict(x.iter().map(|(k, x)| (value(k, node, d), value(x, node, d))).collect()),
        ValueKind::Slice(x) => Val::Slice(three(seq(&x[..], d))),
        ValueKind::Range(x) => Val::Range(three(seq(&x[..], d))),
        _ => computed_size(v, d),
    }
}

/// The size that an expression computes.
fn computed_size<T>(v: &ast::Value, d: &mut Diagnostics) -> Val<T> {
    // A value that is not a size has been reported by the checks of the text.
    match eval_dim(v, &mut Diagnostics::new()) {
        (Some(Dim::Unknown), true) => {
            let e = Diagnostic::new(Code::E0016, "size cannot be computed")
                .at(v.span, "it overflows 64 bits, divides by zero, or has too many terms");
            d.push(e);
            Val::Unknown
        }
        (Some(Dim::Unknown) | None, _) => Val::Unknown,
        (Some(s), _) => Val::Int(s),
    }
}

/// A bare name: a dtype, a name of the torch module, or else a symbolic size.
fn resolve_name<T>(n: &str) -> Val<T> {
    match tensor_dtype(n) {
        Some(d) => Val::DType(d),
        None if n.contains('.') => Val::TorchName(n.strip_prefix("torch.").unwrap_or(n).into()),
        None => Val::Int(Dim::var(n)),
    }
}
