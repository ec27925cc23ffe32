//! Derivatives: of sampled functions, and the backward ops that occur in gradient graphs.

use crate::op::emit::{ints_val, list_val};
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced, wrap_dim};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut v = backward_rows();
    v.extend(dropout_backward_rows());
    v.push(gradient_row());
    v
}

fn gradient_row() -> Op {
    Op::composite(
        "gradient(Tensor self, *, Any spacing=None, Any dim=None, int edge_order=1) -> Tensor[]",
        gradient,
    )
    .doc("the gradient along each dim by finite differences, with a given spacing or coordinates")
    .form(
        "aten.gradient.scalarint torch.gradient",
        "gradient(Tensor self, *, Scalar? spacing=None, int? dim=None, int edge_order=1) -> Tensor[]",
    )
    .form(
        "aten.gradient.scalararray torch.gradient",
        "gradient(Tensor self, *, Scalar spacing, int[] dim, int edge_order=1) -> Tensor[]",
    )
    .form(
        "aten.gradient.array torch.gradient",
        "gradient(Tensor self, *, int[] dim, int edge_order=1) -> Tensor[]",
    )
    .form(
        "aten.gradient.scalarrayint torch.gradient",
        "gradient(Tensor self, *, Scalar[] spacing, int? dim=None, int edge_order=1) -> Tensor[]",
    )
    .form(
        "aten.gradient.scalarrayarray torch.gradient",
        "gradient(Tensor self, *, Scalar[] spacing, int[] dim, int edge_order=1) -> Tensor[]",
    )
    .form(
        "aten.gradient.tensorarrayint torch.gradient",
        "gradient(Tensor self, *, Tensor[] spacing, int? dim=None, int edge_order=1) -> Tensor[]",
    )
    .form(
        "aten.gradient.tensorarray torch.gradient",
        "gradient(Tensor self, *, Tensor[] spacing, int[] dim, int edge_order=1) -> Tensor[]",
    )
}

fn backward_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor",
            |b, c| {
                let (grad, y) = widen_operands(b, c)?;
                let (grad, y) = (&grad, &y);
                let product = b.mul(grad, y)?;
                let sum = b.op(
                    OpId::Sum,
                    [(&product).into(), ints_val(&[c.int("dim")?]), Val::Bool(true)],
                )?;
                let part = b.mul(y, &sum)?;
                let out = b.sub(&product, &part)?;
                b.to_dtype(&out, c.opt_dtype("input_dtype").unwrap_or(c.leaf("output")?.dtype()))
                    .map(Val::Leaf)
            },
        )
        .doc("the gradient of softmax")
        .spelled("aten.@ torch.@"),
        Op::composite(
            "_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor",
            |b, c| {
                let (grad, y) = widen_operands(b, c)?;
                let (grad, y) = (&grad, &y);
                let sum = b.op(OpId::Sum, [grad.into(), ints_val(&[c.int("dim")?]), Val::Bool(true)])?;
                let e = b.exp(y)?;
                let part = b.mul(&e, &sum)?;
                let out = b.sub(grad, &part)?;
                b.to_dtype(&out, c.opt_dtype("input_dtype").unwrap_or(c.leaf("output")?.dtype()))
                    .map(Val::Leaf)
            },
        )
        .doc("the gradient of log_softmax")
        .spelled("aten.@ torch.@"),
    ]
}

fn dropout_backward_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "native_dropout_backward(Tensor grad_output, Tensor mask, float scale) -> Tensor",
            |b, c| {
                let product = b.mul(c.leaf("grad_output")?, c.leaf("mask")?)?;
                b.mul(&product, c.get("scale").clone()).map(Val::Leaf)
            },
        )
        .doc("the gradient of native_dropout")
        .spelled("aten.@"),
    ]
}

/// The gradient and the forward result, in torch's compute dtype.
fn widen_operands(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<(Traced, Traced)> {
    let (grad, y) = (c.leaf("grad_output")?, c.leaf("output")?);
    let dtype = y.dtype().compute_dtype();
    Ok((b.to_dtype(grad, dtype)?, b.to_dtype(y, dtype)?))
}

/// The sample spacing along one dim.
enum Steps {
    Even(Val<Traced>),
    At(Traced),
}

/// The dims along which gradients are wanted.
fn gradient_dims(c: &Call<Traced>, rank: usize) -> OpResult<Vec<usize>> {
    let dims: Vec<usize> = match c.get("dim") {
        Val::None => (0..rank).collect(),
        _ => c
            .ints("dim")?
            .into_iter()
            .map(|d| wrap_dim(d, rank))
            .collect::<OpResult<_>>()?,
    };
    if let Some(d) = (1..dims.len()).find(|&i| dims[..i].contains(&dims[i])) {
        return Err(OpError::arg(
            "dim",
            format!("dim {} appears multiple times in the list of dims", dims[d]),
        ));
    }
    Ok(dims)
}

/// The spacing along each of `count` dims.
fn gradient_spacing(c: &Call<Traced>, count: usize, rank: usize) -> OpResult<Vec<Val<Traced>>> {
    let spacing: Vec<Val<Traced>> = match c.get("spacing") {
        Val::None => vec![Val::Float(1.0); count],
        Val::List(v) | Val::Tuple(v) => v.clone(),
        v => vec![v.clone(); count],
    };
    if spacing.len() == count {
        return Ok(spacing);
    }
    Err(OpError::arg(
        "spacing",
        format!(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = {rank}', \
             but got a list of length {}",
            spacing.len()
        ),
    ))
}

fn gradient(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?;
    let rank = x.rank()?;
    if x.dtype() == DType::U8 {
        return Err(OpError::dtype("torch.gradient does not support uint8 input."));
    }
    let dims = gradient_dims(c, rank)?;
    let order = c.int("edge_order")?;
    if order != 1 && order != 2 {
        return Err(OpError::arg(
            "edge_order",
            "torch.gradient only supports edge_order=1 and edge_order=2.",
        ));
    }
    let spacing = gradient_spacing(c, dims.len(), rank)?;
    let mut out = vec![];
    for (&dim, step) in dims.iter().zip(spacing) {
        if x.shape()?[dim].as_const().is_some_and(|n| n < order + 1) {
            return Err(OpError::shape(
                "torch.gradient expected each dimension size to be at least edge_order+1",
            ));
        }
        let steps = match step {
            Val::Leaf(t) if t.rank()? != 1 => {
                return Err(OpError::shape(format!(
                    "torch.gradient expected each element of spacing to have one dimension, but got an element with {} dimensions",
                    t.rank()?
                )));
            }
            Val::Leaf(t) => Steps::At(t),
            v => Steps::Even(v),
        };
        out.push(gradient_along(b, x, dim, steps, order)?);
    }
    Ok(list_val(&out))
}

/// The slice without the first `start` and the last `end` elements.
fn trim_dim(b: &mut dyn Build, x: &Traced, dim: usize, start: i64, end: i64) -> OpResult<Traced> {
    let n = x.shape()?[dim].clone();
    b.slice(x, dim, Dim::Const(start), n.sub(&Dim::Const(end)), 1)
}

/// The slice of one element at index `index`; negative indices count from the back.
fn slice_one(b: &mut dyn Build, x: &Traced, dim: usize, index: i64) -> OpResult<Traced> {
    let n = x.shape()?[dim].clone();
    let start = if index < 0 {
        n.add(&Dim::Const(index))
    } else {
        Dim::Const(index)
    };
    b.slice(x, dim, start.clone(), start.add(&Dim::Const(1)), 1)
}

fn gradient_along(b: &mut dyn Build, x: &Traced, dim: usize, steps: Steps, order: i64) -> OpResult<Traced> {
    let steps = match steps {
        Steps::Even(step) => return even_gradient(b, x, dim, step, order),
        Steps::At(points) => {
            let (later, earlier) = (trim_dim(b, &points, 0, 1, 0)?, trim_dim(b, &points, 0, 0, 1)?);
            b.sub(&later, &earlier)?
        }
    };
    let mut shape = vec![Dim::Const(1); x.rank()?];
    shape[dim] = steps.shape()?[0].clone();
    let h = b.reshape(&steps, &shape)?;
    let (left, right) = (trim_dim(b, &h, dim, 0, 1)?, trim_dim(b, &h, dim, 1, 0)?);
    let sum = b.add(&left, &right)?;
    // The weights of neighbours for uneven steps.
    let weight = |b: &mut dyn Build, over: &Traced, p: &Traced, q: &Traced| -> OpResult<Traced> {
        let product = b.mul(p, q)?;
        b.div(over, &product)
    };
    let before = weight(b, &right, &left, &sum)?;
    let before = b.neg(&before)?;
    let difference = b.sub(&right, &left)?;
    let point_weight = weight(b, &difference, &left, &right)?;
    let after = weight(b, &left, &right, &sum)?;
    let mut centre: Option<Traced> = None;
    for (k, w) in [before, point_weight, after].iter().enumerate() {
        let values = trim_dim(b, x, dim, k as i64, 2 - k as i64)?;
        let term = b.mul(w, &values)?;
        centre = Some(match centre {
            Some(sum) => b.add(&sum, &term)?,
            None => term,
        });
    }
    let mut ends = vec![];
    for end in [0, -1] {
        ends.push(uneven_end(b, x, dim, &h, order, end)?);
    }
    let middle = centre.ok_or_else(|| OpError::shape("gradient requires neighbouring elements"))?;
    b.cat(&[ends.remove(0), middle, ends.remove(0)], dim)
}

/// The derivative at the first or last point for uneven steps.
fn uneven_end(b: &mut dyn Build, x: &Traced, dim: usize, h: &Traced, order: i64, end: i64) -> OpResult<Traced> {
    let step = |k: i64| if end < 0 { -1 - k } else { k };
    let outer = slice_one(b, h, dim, step(0))?;
    let (first, second) = (slice_one(b, x, dim, step(0))?, slice_one(b, x, dim, step(1))?);
    let (high, low) = if end < 0 { (&first, &second) } else { (&second, &first) };
    if order == 1 {
        let d = b.sub(high, low)?;
        return b.div(&d, &outer);
    }
    let inner = slice_one(b, h, dim, step(1))?;
    let third = slice_one(b, x, dim, step(2))?;
    let sum = b.add(&outer, &inner)?;
    // -(2 outer + inner) / (outer sum), sum / (outer inner), -outer / (inner sum); negated at the last point.
    let twice = b.add(&outer, &sum)?;
    let divided = |b: &mut dyn Build, n: &Traced, p: &Traced, q: &Traced| -> OpResult<Traced> {
        let product = b.mul(p, q)?;
        b.div(n, &product)
    };
    let (p, q, r) = (
        divided(b, &twice, &outer, &sum)?,
        divided(b, &sum, &outer, &inner)?,
        divided(b, &outer, &inner, &sum)?,
    );
    let (p, q, r) = (b.mul(&p, &first)?, b.mul(&q, &second)?, b.mul(&r, &third)?);
    let all = b.sub(&q, &p)?;
    let all = b.sub(&all, &r)?;
    if end < 0 { b.neg(&all) } else { Ok(all) }
}

fn even_gradient(b: &mut dyn Build, x: &Traced, dim: usize, step: Val<Traced>, order: i64) -> OpResult<Traced> {
    let (later, earlier) = (trim_dim(b, x, dim, 2, 0)?, trim_dim(b, x, dim, 0, 2)?);
    let d = b.sub(&later, &earlier)?;
    let d = b.div(&d, step.clone())?;
    let centre = b.mul(&d, Val::Float(0.5))?;
    let mut ends = vec![];
    for end in [0, -1] {
        let place = |k: i64| if end < 0 { -1 - k } else { k };
        let (first, second) = (slice_one(b, x, dim, place(0))?, slice_one(b, x, dim, place(1))?);
        let d = if order == 1 {
            match end {
                0 => b.sub(&second, &first)?,
                _ => b.sub(&first, &second)?,
            }
        } else {
            let third = slice_one(b, x, dim, place(2))?;
            // Terms are added from front to back at both ends, as in torch.
            let terms = match end {
                0 => [(&first, -1.5), (&second, 2.0), (&third, -0.5)],
                _ => [(&third, 0.5), (&second, -2.0), (&first, 1.5)],
            };
            let [p, q, r] = terms.map(|(t, weight)| b.mul(t, Val::Float(weight)));
            let sum = b.add(&p?, &q?)?;
            b.add(&sum, &r?)?
        };
        ends.push(b.div(&d, step.clone())?);
    }
    b.cat(&[ends.remove(0), centre, ends.remove(0)], dim)
}
