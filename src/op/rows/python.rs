//! Python's own functions on tensors, sizes and sequences: attributes, `len`, `getitem` on lists and dicts.

use crate::op::{
    Build, Call, Meaning, MemoryUse, Op, OpBuilder, OpError, OpId, OpResult, RowDeclaration, Sizes, Traced, TypeRule,
    wrap_dim,
};
use crate::types::{Category, DType, Dim, ScalarKind, TensorType, Type, Val, write_str};

pub(super) fn rows() -> Vec<Op> {
    let mut v: Vec<Op> = [
        size_rows(),
        kind_rows(),
        comparison_rows(),
        sequence_rows(),
        memory_rows(),
        extremum_rows(),
        conversion_rows(),
        math_rows(),
        aggregate_rows(),
    ]
    .into_iter()
    .flatten()
    .collect();
    v.push(
        Op::composite("getattr(Any self, str name) -> Any", getattr)
            .doc("an attribute: shape, ndim, dtype, device, T, mT, …")
            .spelled("builtins.@")
            .aliasing(),
    );
    v.push(
        Op::composite("item_of(Any self, Any index) -> Any", item_of)
            .same_elements()
            .doc("an item of a list, tuple or dict")
            .spelled("operator.getitem"),
    );
    v
}

fn size_rows() -> Vec<Op> {
    vec![
        host("size(Tensor self, int? dim=None) -> Any", size_type)
            .doc("the shape, or the size of a dim")
            .spelled("Tensor.@ aten.sym_size.default aten.sym_size.int aten.@ aten.@.int"),
        host("numel(Tensor self) -> int", |c, _| {
            Ok(Val::Int(c.leaf("self")?.numel()))
        })
        .doc("the number of elements")
        .spelled("Tensor.@ Tensor.nelement torch.@ aten.sym_numel.default aten.@"),
        host("stride(Tensor self, int? dim=None) -> Any", stride_type)
            .memory(MemoryUse::Asks)
            .doc("the strides of the contiguous tensor, or the stride of a dim")
            .spelled("Tensor.@ aten.sym_stride.default aten.sym_stride.int"),
        host("dim(Tensor self) -> int", |c, _| {
            Ok(Val::int(c.shaped("self")?.1.len() as i64))
        })
        .doc("the number of dims")
        .spelled("Tensor.@ Tensor.ndimension aten.@"),
        host("len(Any self) -> int", len_type)
            .doc("the number of items")
            .spelled("builtins.@ Tensor.__len__"),
    ]
}

fn kind_rows() -> Vec<Op> {
    vec![
        host("is_floating_point(Tensor self) -> bool", |c, _| {
            Ok(Val::Bool(c.leaf("self")?.dtype.is_float()))
        })
        .doc("whether the dtype is floating-point")
        .spelled("torch.@ Tensor.@ aten.@"),
        host("is_complex(Tensor self) -> bool", |c, _| {
            Ok(Val::Bool(c.leaf("self")?.dtype.category() == Category::Complex))
        })
        .doc("whether the dtype is complex")
        .spelled("torch.@ Tensor.@"),
        host("is_signed(Tensor self) -> bool", |c, _| {
            Ok(Val::Bool(!matches!(
                c.leaf("self")?.dtype,
                DType::U8 | DType::B8 | DType::U16 | DType::U32 | DType::U64
            )))
        })
        .doc("whether the dtype is signed")
        .spelled("torch.@ Tensor.@ aten.@"),
        host("element_size(Tensor self) -> int", |c, _| {
            Ok(Val::int(c.leaf("self")?.dtype.size() as i64))
        })
        .doc("the size of an element in bytes")
        .spelled("Tensor.@"),
        host(
            "is_contiguous(Tensor self, MemoryFormat memory_format=contiguous_format) -> bool",
            |_, _| Ok(Val::Bool(true)),
        )
        .memory(MemoryUse::Asks)
        .doc("True, since all fxc tensors are contiguous")
        .spelled("Tensor.@ aten.@ aten.@.memory_format aten.sym_is_contiguous.default"),
    ]
}

/// `is_conj`, `is_same_size` and `is_tensor`.
fn comparison_rows() -> Vec<Op> {
    vec![
        host("is_conj(Tensor self) -> bool", |_, _| Ok(Val::Bool(false)))
            .doc("False: fxc has no lazy conjugation or negation and no inference mode")
            .spelled(
                "torch.is_conj Tensor.is_conj aten.is_conj.default torch.is_neg Tensor.is_neg aten.is_neg.default torch.is_inference \
                 Tensor.is_inference aten.is_inference.default",
            ),
        host("is_same_size(Tensor self, Tensor other) -> bool", |c, _| {
            let (a, b) = (c.shaped("self")?.1, c.shaped("other")?.1);
            let apart = |(a, b): (&Dim, &Dim)| a.sub(b).as_const();
            let known: Option<Vec<i64>> = a.iter().zip(b).map(apart).collect();
            Ok(match (a.len() == b.len(), known) {
                (false, _) => Val::Bool(false),
                (true, Some(apart)) => Val::Bool(apart.iter().all(|&d| d == 0)),
                (true, None) => Val::Any(ScalarKind::Bool),
            })
        })
        .doc("whether the shapes are the same")
        .spelled("torch.@ Tensor.@ aten.@"),
        host("is_tensor(Any obj) -> bool", |c, _| {
            Ok(Val::Bool(c.get("obj").as_leaf().is_some()))
        })
        .doc("whether the value is a tensor")
        .spelled("torch.@"),
    ]
}

fn sequence_rows() -> Vec<Op> {
    vec![
        // The items may be tensors, so the row rebuilds the list; it is not a host value.
        Op::composite("torch_size(Any sizes) -> Any", |_, c| {
            let items = c.get("sizes").items();
            let items = items.ok_or_else(|| OpError::arg("sizes", "torch.Size() expects a sequence of ints"))?;
            Ok(Val::Tuple(items.to_vec()))
        })
        .doc("a tuple of sizes")
        .spelled("torch.Size builtins.tuple"),
        Op::composite("list(Any items) -> Any", |_, c| match c.get("items").items() {
            Some(v) => Ok(Val::List(v.to_vec())),
            None => Err(OpError::arg(
                "items",
                format!(
                    "cannot make a list of {}",
                    crate::diag::words::with_article(c.get("items").kind_name())
                ),
            )),
        })
        .doc("a list of the items")
        .spelled("builtins.@"),
    ]
}

fn memory_rows() -> Vec<Op> {
    vec![
        host("storage_offset(Tensor self) -> int", |_, _| Ok(Val::int(0)))
            .memory(MemoryUse::Asks)
            .doc("0, since all fxc tensors start at the beginning of their memory")
            .spelled("Tensor.@ aten.sym_storage_offset.default"),
        host("tensor_get_device(Tensor self) -> int", |_, _| Ok(Val::int(-1)))
            .doc("-1, for the CPU")
            .spelled("Tensor.get_device"),
    ]
}

fn all_sizes(c: &Call<TensorType>, v: Vec<Dim>) -> OpResult<Type> {
    match c.opt_int("dim")? {
        None => Ok(Val::Tuple(v.into_iter().map(Val::Int).collect())),
        Some(d) if v.is_empty() => Err(OpError::shape(format!(
            "Dimension specified as {d} but tensor has no dimensions"
        ))),
        Some(d) => Ok(Val::Int(v[wrap_dim(d, v.len())?].clone())),
    }
}

fn size_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    all_sizes(c, c.shaped("self")?.1.to_vec())
}

fn dense_strides(shape: &[Dim]) -> Vec<Dim> {
    let mut out = vec![Dim::Const(1); shape.len()];
    for i in (1..shape.len()).rev() {
        let n = if shape[i] == Dim::Const(0) {
            Dim::Const(1)
        } else {
            shape[i].clone()
        };
        out[i - 1] = out[i].mul(&n);
    }
    out
}

fn stride_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    all_sizes(c, dense_strides(c.shaped("self")?.1))
}

fn len_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    Ok(match c.get("self") {
        Val::Leaf(t) => match t.shape.as_deref() {
            Some([]) => return Err(OpError::shape("len() of a 0-d tensor")),
            Some([n, ..]) => Val::Int(n.clone()),
            None => Val::Int(Dim::Unknown),
        },
        Val::List(v) | Val::Tuple(v) => Val::int(v.len() as i64),
        Val::Dict(v) => Val::int(v.len() as i64),
        Val::Str(s) => Val::int(s.chars().count() as i64),
        Val::Unknown => Val::Unknown,
        v => {
            return Err(OpError::arg(
                "self",
                format!("object of type '{}' has no len()", v.kind_name()),
            ));
        }
    })
}

fn getattr(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let name = c.str("name")?;
    let x = match c.get("self") {
        Val::Leaf(x) => x,
        Val::Unknown => return Ok(Val::Unknown),
        Val::Device(d) => {
            let (kind, index) = d.split_once(':').unwrap_or((d, ""));
            return match name {
                "type" => Ok(Val::str(kind)),
                "index" => Ok(index.parse().map_or(Val::None, Val::int)),
                _ => Err(no_attribute("torch.device", name)),
            };
        }
        Val::DType(d) => {
            return match name {
                "is_floating_point" => Ok(Val::Bool(d.is_float())),
                "itemsize" => Ok(Val::int(d.size() as i64)),
                _ => Err(no_attribute("torch.dtype", name)),
            };
        }
        // Results with named fields: `torch.max(x, 0).indices`.
        v @ Val::Tuple(items) => {
            return match (name, &items[..]) {
                (
                    "values" | "sign" | "Q" | "mantissa" | "eigenvalues" | "LU" | "LD" | "min" | "hist" | "solution"
                    | "result" | "inverse" | "output",
                    [first, ..],
                ) => Ok(first.clone()),
                (
                    "indices" | "logabsdet" | "R" | "exponent" | "eigenvectors" | "pivots" | "max" | "bin_edges"
                    | "residuals" | "loss",
                    [_, second, ..],
                ) => Ok(second.clone()),
                _ => Err(no_attribute(v.kind_name(), name)),
            };
        }
        v => return Err(no_attribute(v.kind_name(), name)),
    };
    tensor_attribute(b, x, name)
}

fn no_attribute(kind: &str, name: &str) -> OpError {
    OpError::arg("name", format!("'{kind}' object has no attribute '{name}'"))
}

fn tensor_attribute(b: &mut dyn Build, x: &Traced, name: &str) -> OpResult<Val<Traced>> {
    Ok(match name {
        "shape" => Val::Tuple(x.shape()?.iter().map(|d| Val::Int(d.clone())).collect()),
        "ndim" => Val::int(x.rank()? as i64),
        "dtype" => Val::DType(x.dtype()),
        "device" => Val::Device("cpu".into()),
        "layout" => Val::TorchName("strided".into()),
        "itemsize" => Val::int(x.dtype().size() as i64),
        "nbytes" => Val::Int(x.ty.numel().mul(&Dim::Const(x.dtype().size() as i64))),
        "requires_grad" | "is_cuda" | "is_sparse" | "is_quantized" | "is_meta" | "is_mkldnn" | "is_nested" => {
            Val::Bool(false)
        }
        "is_cpu" | "is_leaf" => Val::Bool(true),
        "grad" | "grad_fn" | "names" => Val::None,
        "data" | "real" => x.into(),
        "T" => b.numpy_T(x)?.into(),
        "mT" | "mH" => b.mT(x)?.into(),
        "H" => b.t(x)?.into(),
        _ => return Err(no_attribute("Tensor", name)),
    })
}

fn item_of(_: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let index = c.get("index");
    match c.get("self") {
        Val::List(v) => sequence_item(v, index, Val::List),
        Val::Tuple(v) => sequence_item(v, index, Val::Tuple),
        Val::Dict(v) => {
            let found = v.iter().find(|(k, _)| same_key(k, index));
            let text = || OpError::arg("index", format!("KeyError: the dict has no key {}", key_text(index)));
            found.map(|(_, x)| x.clone()).ok_or_else(text)
        }
        Val::Unknown => Ok(Val::Unknown),
        v => Err(OpError::arg(
            "self",
            format!("'{}' object is not subscriptable", v.kind_name()),
        )),
    }
}

fn same_key<T>(a: &Val<T>, b: &Val<T>) -> bool {
    match (a, b) {
        (Val::Str(a), Val::Str(b)) => a == b,
        _ => a.as_f64().is_some() && a.as_f64() == b.as_f64(),
    }
}

fn key_text<T>(v: &Val<T>) -> String {
    match v {
        Val::Str(s) => format!("'{s}'"),
        v => v.as_int().map_or_else(|| v.kind_name().to_string(), |i| i.to_string()),
    }
}

type Wrap = fn(Vec<Val<Traced>>) -> Val<Traced>;

fn sequence_item(v: &[Val<Traced>], index: &Val<Traced>, wrap: Wrap) -> OpResult<Val<Traced>> {
    let n = v.len() as i64;
    match index {
        Val::Slice(s) => {
            let bound = |x: &Val<Traced>, none: i64| if x.is_none() { Some(none) } else { x.as_int() };
            let step = bound(&s[2], 1).filter(|&s| s != 0);
            let step = step.ok_or_else(|| OpError::arg("index", "slice step must be a constant other than 0"))?;
            let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
            let at = |x: &Val<Traced>, none: i64| {
                let i = bound(x, i64::MAX)?;
                Some(if x.is_none() {
                    none
                } else if i < 0 {
                    i.saturating_add(n).max(low)
                } else {
                    i.min(high)
                })
            };
            let ends = if step > 0 { (0, n) } else { (n - 1, -1) };
            let (Some(start), Some(end)) = (at(&s[0], ends.0), at(&s[1], ends.1)) else {
                return Err(OpError::arg(
                    "index",
                    "the bounds of a slice of a list must be constants",
                ));
            };
            let mut out = vec![];
            let mut i = start;
            while if step > 0 { i < end } else { i > end } {
                out.push(v[i as usize].clone());
                i = i.saturating_add(step);
            }
            Ok(wrap(out))
        }
        _ => {
            let Some(i) = index.as_int() else {
                return Err(OpError::arg("index", "the index of a list item must be a constant"));
            };
            let at = if i < 0 { i.saturating_add(n) } else { i };
            let fail = || OpError::arg("index", format!("index {i} is out of range of {n} items"));
            usize::try_from(at)
                .ok()
                .and_then(|a| v.get(a))
                .cloned()
                .ok_or_else(fail)
        }
    }
}

/// An op without tensors, or on facts known about them: its type rule computes its value.
fn host(declared: impl Into<RowDeclaration>, rule: TypeRule) -> Op {
    Op::new(declared, rule, Meaning::Host)
}

fn extremum_rows() -> Vec<Op> {
    vec![
        host("sym_max(Any a, Any b) -> Any", |c, _| extremum_type(c, true))
            .doc("the larger of two numbers")
            .spelled("torch.@ builtins.max"),
        host("sym_min(Any a, Any b) -> Any", |c, _| extremum_type(c, false))
            .doc("the smaller of two numbers")
            .spelled("torch.@ builtins.min"),
        host("max_of_several(Any a, Any b, Any c) -> Any", |c, _| {
            extremum_of_three(c, true)
        })
        .doc("the largest of three numbers")
        .spelled("builtins.max"),
        host("min_of_several(Any a, Any b, Any c) -> Any", |c, _| {
            extremum_of_three(c, false)
        })
        .doc("the smallest of three numbers")
        .spelled("builtins.min"),
    ]
}

/// Conversions between kinds of numbers, and choices by a condition.
fn conversion_rows() -> Vec<Op> {
    vec![
        host("sym_int(Any a) -> int", |c, _| to_int(c.get("a")))
            .doc("a number truncated to an int")
            .spelled("torch.@ builtins.int math.trunc"),
        host("sym_float(Any a) -> float", |c, _| {
            Ok(match c.get("a") {
                Val::Str(s) => Val::Float(float_of(s)?),
                v => v.as_f64().map_or(Val::Any(crate::types::ScalarKind::Float), Val::Float),
            })
        })
        .doc("a number as a float")
        .spelled("torch.@ builtins.float"),
        host("sym_bool(Any a) -> bool", |c, _| {
            Ok(truth_value(c.get("a")).map_or(Val::Any(crate::types::ScalarKind::Bool), Val::Bool))
        })
        .doc("whether a number is nonzero")
        .spelled("builtins.bool"),
        host("sym_not(Any a) -> bool", |c, _| {
            Ok(truth_value(c.get("a")).map_or(Val::Any(crate::types::ScalarKind::Bool), |t| Val::Bool(!t)))
        })
        .doc("logical not of a number")
        .spelled("torch.@ operator.not_"),
        host("sym_ite(Any b, Any t, Any f) -> Any", |c, _| {
            Ok(match c.get("b").as_int() {
                Some(0) => c.get("f").clone(),
                Some(_) => c.get("t").clone(),
                None => Val::Unknown,
            })
        })
        .doc("one of two numbers, selected by a condition")
        .spelled("torch.@"),
    ]
}

fn math_rows() -> Vec<Op> {
    vec![
        host("math_floor(Any a) -> int", |c, _| round_to_int(c.get("a"), f64::floor))
            .doc("a number rounded down, as an int")
            .spelled("math.floor"),
        host("math_ceil(Any a) -> int", |c, _| round_to_int(c.get("a"), f64::ceil))
            .doc("a number rounded up, as an int")
            .spelled("math.ceil"),
        host("math_round(Any a) -> int", |c, _| {
            round_to_int(c.get("a"), f64::round_ties_even)
        })
        .doc("a number rounded to the nearest int, half to even")
        .spelled("builtins.round"),
    ]
}

/// Products, sums and roots of numbers.
fn aggregate_rows() -> Vec<Op> {
    vec![
        host("math_prod(Any items) -> Any", |c, _| {
            let items = c
                .get("items")
                .items()
                .ok_or_else(|| OpError::arg("items", "math.prod() expects a sequence"))?;
            let numbers: Option<Vec<f64>> = items.iter().map(Val::as_f64).collect();
            if let Some(numbers) = numbers.filter(|_| items.iter().any(|v| matches!(v, Val::Float(_)))) {
                return Ok(Val::Float(numbers.iter().product()));
            }
            Ok(Val::Int(items.iter().fold(Dim::Const(1), |p, v| match v {
                Val::Int(d) => p.mul(d),
                _ => Dim::Unknown,
            })))
        })
        .doc("the product of numbers")
        .spelled("math.prod"),
        host("sym_sum(Any args) -> Any", |c, _| {
            let items = c
                .get("args")
                .items()
                .ok_or_else(|| OpError::arg("args", "sym_sum() expects a sequence of numbers"))?;
            items.iter().try_fold(Val::int(0), |sum, v| {
                let sum = crate::op::number::eval_op(OpId::Add, &[sum, v.clone()]);
                sum.unwrap_or_else(|| Err(OpError::arg("args", "sym_sum() expects numbers")))
            })
        })
        .doc("the sum of numbers")
        .spelled("torch.sym_sum"),
        host("math_sqrt(Any a) -> float", |c, _| match c.get("a").as_f64() {
            Some(x) if x < 0.0 => Err(OpError::value("math domain error")),
            Some(x) => Ok(Val::Float(x.sqrt())),
            None => Ok(Val::Any(crate::types::ScalarKind::Float)),
        })
        .doc("square root of a number")
        .spelled("math.sqrt torch._sym_sqrt torch.sym_sqrt"),
    ]
}

fn extremum_type(c: &Call<TensorType>, max: bool) -> OpResult<Type> {
    Ok(pick_extremum(c.get("a"), c.get("b"), max))
}

fn extremum_of_three(c: &Call<TensorType>, max: bool) -> OpResult<Type> {
    Ok(pick_extremum(
        &pick_extremum(c.get("a"), c.get("b"), max),
        c.get("c"),
        max,
    ))
}

fn pick_extremum(a: &Type, b: &Type, max: bool) -> Type {
    if let (Val::Int(x), Val::Int(y)) = (a, b) {
        return Val::Int(if max { x.max_of(y) } else { x.min_of(y) });
    }
    match (a.as_f64(), b.as_f64()) {
        // Python keeps the first of equal values.
        (Some(x), Some(y)) if (max && y > x) || (!max && y < x) => b.clone(),
        (Some(_), Some(_)) => a.clone(),
        _ => Val::Unknown,
    }
}

/// Parses a string as Python's `float` does.
fn float_of(text: &str) -> OpResult<f64> {
    let plain = text.trim().replace('_', "").to_ascii_lowercase();
    let letters = plain.trim_start_matches(['+', '-']);
    let words =
        !letters.starts_with(|c: char| c.is_ascii_alphabetic()) || ["inf", "infinity", "nan"].contains(&letters);
    let fail = || OpError::value(format!("could not convert string to float: {}", write_str(text)));
    plain.parse().ok().filter(|_| words).ok_or_else(fail)
}

/// A value's truth in Python, if it is known.
pub(in crate::op::rows) fn truth_value(v: &Type) -> Option<bool> {
    Some(match v {
        Val::None => false,
        Val::Str(s) => !s.is_empty(),
        Val::List(v) | Val::Tuple(v) => !v.is_empty(),
        Val::Dict(v) => !v.is_empty(),
        Val::Complex(re, im) => *re != 0.0 || *im != 0.0,
        // Python objects are true by default.
        Val::DType(_) | Val::Device(_) | Val::TorchName(_) | Val::Ellipsis | Val::Graph(_) | Val::Slice(_) => true,
        v => v.as_f64()? != 0.0,
    })
}

fn to_int(v: &Type) -> OpResult<Type> {
    match v {
        Val::Int(d) => Ok(Val::Int(d.clone())),
        Val::Str(s) => {
            let fail = || OpError::value(format!("invalid literal for int() with base 10: {}", write_str(s)));
            s.trim().replace('_', "").parse().map(Val::int).map_err(|_| fail())
        }
        v => round_to_int(v, f64::trunc),
    }
}

fn round_to_int(v: &Type, f: fn(f64) -> f64) -> OpResult<Type> {
    match v {
        Val::Int(d) => Ok(Val::Int(d.clone())),
        v => match v.as_f64().map(f) {
            Some(x) if x.abs() < 9.2e18 => Ok(Val::int(x as i64)),
            Some(x) => Err(OpError::value(format!("cannot convert float {x} to integer"))),
            None => Ok(Val::Int(Dim::Unknown)),
        },
    }
}
