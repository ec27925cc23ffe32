//! Creating tensors from numbers: constants, ranges, triangles.

mod nested;
mod windows;

use crate::op::pointwise::{
    call_dtypes, creation_row, not_implemented, number_of, pointwise, pointwise_by, pointwise_row,
};
use crate::op::sharing::{always_shared, of_numbers};
use crate::op::{Call, DtypeRule as D, ExprText, Meaning, MemoryOrder, Op, OpError, OpId, OpResult, ShapeRule};
use crate::scalar::UntypedNumber;
use crate::tensor::Tensor;
use crate::types::{DType, Dim, ScalarKind, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        constant_rows(),
        empty_rows(),
        scalar_rows(),
        like_rows(),
        fill_rows(),
        new_tensor_rows(),
        new_empty_rows(),
        arange_rows(),
        spaced_rows(),
        triangle_rows(),
        triangle_index_rows(),
        windows::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The `size` argument as a shape.
pub(in crate::op::rows) fn size_arg(c: &Call<TensorType>) -> OpResult<Vec<Dim>> {
    let dims = c.dims("size")?;
    for d in &dims {
        if let Some(n) = d.as_const()
            && n < 0
        {
            return Err(OpError::shape(match c.op.id() {
                Some(OpId::Zeros) => "zeros: Dimension size must be non-negative.".to_string(),
                _ => format!("Trying to create tensor with negative dimension {n}"),
            }));
        }
    }
    Ok(dims)
}

/// The sizes of `empty_permuted`. Its `physical_layout` must be a permutation of the dims.
fn permuted_size(c: &Call<TensorType>) -> OpResult<Vec<Dim>> {
    let (dims, order) = (size_arg(c)?, c.ints("physical_layout")?);
    if dims.len() != order.len() {
        return Err(OpError::shape(format!(
            "Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = {} is not equal to \
             len(physical_layout) = {}",
            dims.len(),
            order.len()
        )));
    }
    for (i, &d) in order.iter().enumerate() {
        if d < 0 || d >= dims.len() as i64 {
            return Err(OpError::shape(format!(
                "Dimension out of range (expected to be between 0 and {}, but got {d} at index {i}).",
                dims.len() as i64 - 1
            )));
        }
        if order[..i].contains(&d) {
            return Err(OpError::shape(format!("Duplicate dim not allowed: {d} at index {i}")));
        }
    }
    Ok(dims)
}

fn constant_rows() -> Vec<Op> {
    vec![
        creation_row(
            "full(SymInt[] size, Scalar fill_value, ScalarType? dtype=None) -> Tensor",
            D::GivenByValue,
            size_arg,
            "fill_value",
        )
        .order(MemoryOrder::RowMajor)
        .doc("a tensor filled with the value; its Python type determines the default dtype")
        .spelled("aten.@ torch.@"),
        creation_row(
            "zeros(SymInt[] size, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "0",
        )
        .order(MemoryOrder::RowMajor)
        .doc("a tensor of zeros")
        .spelled("aten.@ torch.@"),
        creation_row(
            "ones(SymInt[] size, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "1",
        )
        .order(MemoryOrder::RowMajor)
        .doc("a tensor of ones")
        .spelled("aten.@ torch.@"),
    ]
}

fn empty_rows() -> Vec<Op> {
    vec![
        creation_row(
            "empty(SymInt[] size, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "0",
        )
        .doc("a tensor of zeros (uninitialized in torch)")
        .spelled("aten.@.memory_format torch.@")
        .form(
            "aten.empty_strided.default torch.empty_strided",
            "empty_strided(SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None) -> Tensor",
        ),
        Op::composite(
            "empty_permuted(SymInt[] size, int[] physical_layout, *, ScalarType? dtype=None) -> Tensor",
            |b, c| {
                permuted_size(&c.types())?;
                b.call(OpId::Empty, vec![c.get("size").clone(), c.get("dtype").clone()])
            },
        )
        .doc("a tensor of zeros; the physical layout is ignored")
        .spelled("aten.@ torch.@"),
    ]
}

/// Tensors created from a single number.
fn scalar_rows() -> Vec<Op> {
    vec![
        creation_row(
            "scalar_tensor(Scalar s, ScalarType? dtype=None) -> Tensor",
            D::Given,
            |_| Ok(vec![]),
            "s",
        )
        .doc("a 0-d tensor with the number; f32 by default")
        .spelled("aten.@ torch.@"),
        creation_row(
            "tensor(Scalar data, ScalarType? dtype=None) -> Tensor",
            D::GivenByValue,
            |_| Ok(vec![]),
            "data",
        )
        .doc("a 0-d tensor with the number, whose Python type determines the default dtype")
        .spelled("torch.@ torch.as_tensor"),
        nested::row(),
    ]
}

fn like_rows() -> Vec<Op> {
    let like = |name, schema, text| pointwise((name, schema), D::Given, text);
    vec![
        like(
            "full_like",
            "full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None) -> Tensor",
            "fill_value",
        )
        .doc("a tensor with self's shape and dtype, filled with the value")
        .spelled("aten.@ torch.@"),
        like(
            "zeros_like",
            "zeros_like(Tensor self, *, ScalarType? dtype=None) -> Tensor",
            "0",
        )
        .doc("zeros with self's shape and dtype")
        .spelled("aten.@ torch.@"),
        like(
            "ones_like",
            "ones_like(Tensor self, *, ScalarType? dtype=None) -> Tensor",
            "1",
        )
        .doc("ones with self's shape and dtype")
        .spelled("aten.@ torch.@"),
        like(
            "empty_like",
            "empty_like(Tensor self, *, ScalarType? dtype=None) -> Tensor",
            "0",
        )
        .doc("zeros (uninitialized in torch) with self's shape and dtype")
        .spelled("aten.@ torch.@"),
    ]
}

/// Fills of existing tensors.
fn fill_rows() -> Vec<Op> {
    vec![
        pointwise("fill(Tensor self, Tensor value) -> Tensor", D::First, "value")
            .doc("a tensor with self's shape and dtype, filled with the value")
            .spelled("aten.@.Scalar aten.@.Tensor torch.@")
            .inplace("aten.@_.Scalar aten.@_.Tensor torch.@_ Tensor.@_")
            .shared_writes(of_numbers),
        pointwise("zero(Tensor self) -> Tensor", D::First, "0")
            .doc("zeros with self's shape and dtype")
            .spelled("aten.@")
            .inplace("aten.@_ torch.@_ Tensor.@_")
            .shared_writes(always_shared),
    ]
}

fn new_tensor_rows() -> Vec<Op> {
    vec![
        creation_row(
            "new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "fill_value",
        )
        .order(MemoryOrder::RowMajor)
        .doc("a tensor with self's dtype, filled with the value")
        .spelled("aten.@ Tensor.@"),
        creation_row(
            "new_zeros(Tensor self, SymInt[] size, *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "0",
        )
        .order(MemoryOrder::RowMajor)
        .doc("zeros with self's dtype")
        .spelled("aten.@ Tensor.@"),
        creation_row(
            "new_ones(Tensor self, SymInt[] size, *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "1",
        )
        .order(MemoryOrder::RowMajor)
        .doc("ones with self's dtype")
        .spelled("aten.@ Tensor.@"),
    ]
}

fn new_empty_rows() -> Vec<Op> {
    vec![
        creation_row(
            "new_empty(Tensor self, SymInt[] size, *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            size_arg,
            "0",
        )
        .order(MemoryOrder::RowMajor)
        .doc("zeros (uninitialized in torch) with self's dtype")
        .spelled("aten.@ Tensor.@")
        .form(
            "aten.new_empty_strided.default",
            "new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None) -> Tensor",
        ),
    ]
}

/// A row whose shape follows from its arguments.
fn range_row(
    name: &'static str,
    schema: &'static str,
    dtypes: D,
    shape: fn(&Call<TensorType>) -> OpResult<Vec<Dim>>,
    text: ExprText,
) -> Op {
    pointwise_row((name, schema), dtypes, ShapeRule::By(shape), text)
}

fn arange_rows() -> Vec<Op> {
    vec![
        range_row(
            "arange",
            "arange(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None) -> Tensor",
            D::GivenByValue,
            arange_size,
            ExprText::By(|c| match call_dtypes(c)?.common {
                DType::B8 => Err(not_implemented("arange_cpu", DType::B8)),
                d if d.is_float() => Ok("start + f64(i0) * step"),
                _ => Ok("start + compute(i0) * step"),
            }),
        )
        .doc("start, start + step, … up to, but excluding, end; i64 if all are ints, else f32")
        .spelled("aten.@.start_step torch.@")
        .form(
            "aten.arange.start",
            "arange(Scalar start, Scalar end, *, ScalarType? dtype=None) -> Tensor",
        )
        .form_with(
            "aten.arange.default torch.arange",
            "arange(Scalar end, *, ScalarType? dtype=None) -> Tensor",
            &[("start", Val::Int(Dim::Const(0)))],
        ),
    ]
}

/// Evenly spaced numbers, and their powers.
fn spaced_rows() -> Vec<Op> {
    vec![
        range_row(
            "linspace",
            "linspace(Scalar start, Scalar end, int steps, *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            steps_size,
            ExprText::By(|c| steps_text(c, ["f64(start)", LINSPACE])),
        )
        .doc("`steps` evenly spaced numbers from start to end")
        .spelled("aten.@ torch.@"),
        range_row(
            "logspace",
            "logspace(Scalar start, Scalar end, int steps, float base=10., *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            steps_size,
            ExprText::By(|c| steps_text(c, ["base ** f64(start)", LOGSPACE])),
        )
        .doc("base ** linspace(start, end, steps)")
        .spelled("aten.@ torch.@"),
    ]
}

/// Computed from both ends towards the middle, as in torch, so that both ends are exact.
const LINSPACE: &str = "d = (end - start) / (steps - 1); where(i0 < steps // 2, start + f64(i0) * d, end - f64(steps \
                        - 1 - i0) * d)";
const LOGSPACE: &str = "d = (end - start) / (steps - 1); base ** where(i0 < steps // 2, start + f64(i0) * d, end - \
                        f64(steps - 1 - i0) * d)";

/// The expression: the first text for at most one step, the second for several.
fn steps_text(c: &Call<TensorType>, text: [&'static str; 2]) -> OpResult<&'static str> {
    let (d, steps) = (call_dtypes(c)?.common, c.int("steps")?);
    match steps {
        0 | 1 => Ok(text[0]),
        _ if d == DType::B8 => Err(not_implemented(&format!("{}_cpu", c.op.name), d)),
        _ => Ok(text[1]),
    }
}

fn steps_size(c: &Call<TensorType>) -> OpResult<Vec<Dim>> {
    for name in ["start", "end"] {
        if c.opt_leaf(name).is_some() {
            return Err(OpError::arg(
                name,
                format!("`{name}` of `{}` must be a number, not a tensor", c.op.name),
            ));
        }
    }
    match c.int("steps")? {
        n if n < 0 => Err(OpError::arg("steps", "number of steps must be non-negative")),
        n => Ok(vec![Dim::Const(n)]),
    }
}

fn arange_size(c: &Call<TensorType>) -> OpResult<Vec<Dim>> {
    let (start, end, step) = (c.get("start"), c.get("end"), c.get("step"));
    let numbers = (number_of(start), number_of(end), number_of(step));
    if let (_, _, Some(step)) = numbers
        && step.to_f64() == 0.0
    {
        return Err(OpError::arg("step", "step must be nonzero"));
    }
    let inconsistent = || OpError::arg("end", "upper bound and lower bound inconsistent with step sign");
    if let (Some(a), Some(b), Some(s)) = numbers {
        let (x, y, d) = (a.to_f64(), b.to_f64(), s.to_f64());
        if !(x.is_finite() && y.is_finite() && d.is_finite()) {
            return Err(OpError::arg("end", format!("unsupported range: {x} -> {y}")));
        }
        if (d > 0.0 && x > y) || (d < 0.0 && x < y) {
            return Err(inconsistent());
        }
        let exact = match (a, b, s) {
            (UntypedNumber::Int(a), UntypedNumber::Int(b), UntypedNumber::Int(s)) => {
                let n = (b as i128 - a as i128 + s as i128 - (s as i128).signum()) / s as i128;
                i64::try_from(n).ok()
            }
            _ => Some(((y - x) / d).ceil()).filter(|n| *n < 9e18).map(|n| n as i64),
        };
        return exact
            .map(|n| vec![Dim::Const(n)])
            .ok_or_else(|| OpError::arg("end", "the range is too long"));
    }
    // Symbolic ends require integers and a known positive step.
    let dim = |v: &Type| match v {
        Val::Int(d) => d.clone(),
        Val::Bool(b) => Dim::Const(*b as i64),
        Val::Any(ScalarKind::Int) => Dim::Unknown,
        _ => Dim::Unknown,
    };
    let length = dim(end).sub(&dim(start));
    Ok(vec![match dim(step) {
        Dim::Const(1) => length,
        Dim::Const(s) if s > 0 => length.add(&Dim::Const(s - 1)).floordiv(&Dim::Const(s)),
        _ => Dim::Unknown,
    }])
}

fn triangle_rows() -> Vec<Op> {
    let triangle = |name, schema, text: fn(&Call<TensorType>) -> OpResult<&'static str>| {
        pointwise_by((name, schema), D::First, text)
    };
    vec![
        creation_row(
            "eye(SymInt n, SymInt? m=None, *, ScalarType? dtype=None) -> Tensor",
            D::Given,
            eye_size,
            "where(i0 == i1, 1, 0)",
        )
        .doc("the identity matrix")
        .spelled("aten.@.m torch.@")
        .form("aten.eye.default", "eye(SymInt n, *, ScalarType? dtype=None) -> Tensor"),
        triangle("tril", "tril(Tensor self, SymInt diagonal=0) -> Tensor", |c| {
            expr_of_matrix(c, "where(i0 <= i1 + diagonal, self, 0)")
        })
        .order(MemoryOrder::RowMajor)
        .doc("the lower triangle of the last two dims; zeros above the diagonal")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_")
        .shared_writes(always_shared),
        triangle("triu", "triu(Tensor self, SymInt diagonal=0) -> Tensor", |c| {
            expr_of_matrix(c, "where(i0 >= i1 + diagonal, self, 0)")
        })
        .order(MemoryOrder::RowMajor)
        .doc("the upper triangle of the last two dims; zeros below the diagonal")
        .spelled("aten.@ torch.@ Tensor.@")
        .inplace("aten.@_ Tensor.@_")
        .shared_writes(always_shared),
    ]
}

fn triangle_index_rows() -> Vec<Op> {
    vec![
        Op::new(
            "tril_indices(int row, int col, int offset=0, *, ScalarType? dtype=None) -> Tensor",
            |c, _| indices_type(c),
            Meaning::Routine(triangle_indices),
        )
        .doc("row and column indices of the elements on and below a diagonal")
        .spelled("aten.@ torch.@"),
        Op::new(
            "triu_indices(int row, int col, int offset=0, *, ScalarType? dtype=None) -> Tensor",
            |c, _| indices_type(c),
            Meaning::Routine(triangle_indices),
        )
        .doc("row and column indices of the elements on and above a diagonal")
        .spelled("aten.@ torch.@"),
    ]
}

fn expr_of_matrix(c: &Call<TensorType>, text: &'static str) -> OpResult<&'static str> {
    match c.leaf("self")?.rank() {
        Some(0 | 1) => Err(OpError::shape(format!(
            "{}: input tensor must have at least 2 dimensions",
            c.op.name
        ))),
        _ => Ok(text),
    }
}

fn eye_size(c: &Call<TensorType>) -> OpResult<Vec<Dim>> {
    let n = c.dims("n")?;
    let m = if c.is_none("m") { n.clone() } else { c.dims("m")? };
    for (name, d) in [("n", &n[0]), ("m", &m[0])] {
        if let Some(v) = d.as_const()
            && v < 0
        {
            return Err(OpError::arg(
                name,
                format!("{name} must be greater or equal to 0, got {v}"),
            ));
        }
    }
    Ok([n, m].concat())
}

/// `(rows, cols, offset)`. `offset` is clamped to ±2^32: larger ones give the same triangle, because sizes are at most
/// 2^31.
fn triangle_args<T>(c: &Call<T>) -> OpResult<(i64, i64, i64)> {
    let (row, col, offset) = (c.int("row")?, c.int("col")?, c.int("offset")?);
    for (name, v) in [("row", row), ("col", col)] {
        if !(0..=1 << 31).contains(&v) {
            return Err(OpError::arg(name, format!("{name} must be non-negative, got {v}")));
        }
    }
    Ok((row, col, offset.clamp(-(1 << 32), 1 << 32)))
}

/// The columns of one row of the triangle.
fn triangle_columns<T>(c: &Call<T>, row: i64, col: i64, offset: i64) -> std::ops::Range<i64> {
    match c.op.id() {
        Some(OpId::TrilIndices) => 0..(row + offset + 1).clamp(0, col),
        _ => (row + offset).clamp(0, col)..col,
    }
}

fn indices_type(c: &Call<TensorType>) -> OpResult<Type> {
    let (rows, col, offset) = triangle_args(c)?;
    if rows.saturating_mul(col.max(1)) > 1 << 28 {
        return Err(OpError::arg(
            "row",
            "triangles within more than 2^28 elements are not supported",
        ));
    }
    let n: i64 = (0..rows)
        .map(|r| triangle_columns(c, r, col, offset))
        .map(|r| r.end - r.start)
        .sum();
    let dtype = c.opt_dtype("dtype").unwrap_or(DType::I64);
    if !dtype.is_int() || !dtype.is_computed() {
        return Err(not_implemented(c.op.name, dtype));
    }
    Ok(Val::Leaf(TensorType::new(dtype, [Dim::Const(2), Dim::Const(n)])))
}

fn triangle_indices(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let ty = indices_type(&c.map(Tensor::ty))?;
    let (rows, col, offset) = triangle_args(c)?;
    let pairs = || (0..rows).flat_map(|r| triangle_columns(c, r, col, offset).map(move |k| (r, k)));
    let all: Vec<i64> = pairs().map(|p| p.0).chain(pairs().map(|p| p.1)).collect();
    let t = Tensor::from_slice(&[2, all.len() / 2], &all);
    Ok(Val::Leaf(t.to(ty.as_leaf().map_or(DType::I64, |t| t.dtype))))
}
