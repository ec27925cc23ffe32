//! Views that keep the order of elements: reshapes and no-ops.

mod affine;
mod bits;
mod getitem;
mod slices;
mod splits;

pub(super) use slices::copy_in_rows;

use crate::op::layout::has_format;
use crate::op::rows::spell::list_text;
use crate::op::view::{DimView, view_type};
use crate::op::{Call, Meaning, MemoryOrder, MemoryUse, Op, OpError, OpResult, Sizes, wrap_dim};
use crate::types::{Dim, TensorType};

/// A view row. One rule provides both its type rule and its meaning.
macro_rules! view_op {
    ($schema:literal, $rule:path) => {{
        let mut op = Op::new(
            $schema,
            |c, s| view_type(c, $rule(c, s)?),
            Meaning::View(|c| $rule(c, &mut Sizes::default())?.fix(0)),
        );
        op.view = Some($rule);
        op
    }};
}
pub(in crate::op::rows) use view_op;

pub(super) fn rows() -> Vec<Op> {
    [
        reshape_rows(),
        unit_dim_rows(),
        identity_rows(),
        affine::rows(),
        slices::rows(),
        splits::rows(),
        getitem::rows(),
        bits::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn reshape_rows() -> Vec<Op> {
    vec![
        view_op!("view(Tensor self, SymInt[] size) -> Tensor", reshape)
            .memory(MemoryUse::Checks)
            .doc("the same elements in another shape; one size may be -1")
            .spelled("aten.@ aten._unsafe_view.default aten.@_copy torch.@_copy Tensor.@"),
        view_op!("reshape(Tensor self, SymInt[] shape) -> Tensor", reshape)
            .doc("the same elements in another shape; one size may be -1")
            .spelled("aten.@ torch.@ Tensor.@")
            .form(
                "aten._reshape_alias.default",
                "_reshape_alias(Tensor self, SymInt[] shape, SymInt[] stride) -> Tensor",
            ),
        view_op!(
            "flatten(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor",
            flatten
        )
        .doc("several dims merged into one")
        .same_object(|_, _| true)
        .spelled("aten.@.using_ints torch.@ Tensor.@")
        .module("Flatten(start_dim=1, end_dim=-1) = flatten(input, start_dim, end_dim)"),
        view_op!("ravel(Tensor self) -> Tensor", ravel)
            .doc("all dims merged into one")
            .spelled("aten.@ torch.@ Tensor.@"),
        view_op!("unflatten(Tensor self, int dim, SymInt[] sizes) -> Tensor", unflatten)
            .doc("one dim split into several")
            .spelled("aten.@.int torch.@ Tensor.@")
            .module("Unflatten(dim, unflattened_size) = unflatten(input, dim, unflattened_size)"),
        view_op!("view_as(Tensor self, Tensor other) -> Tensor", like_other)
            .memory(MemoryUse::Checks)
            .doc("the same elements in the other tensor's shape")
            .spelled("aten.@ Tensor.@"),
        view_op!("reshape_as(Tensor self, Tensor other) -> Tensor", like_other)
            .doc("the same elements in the other tensor's shape")
            .spelled("aten.@ Tensor.@"),
    ]
}

fn unit_dim_rows() -> Vec<Op> {
    vec![
        view_op!("squeeze(Tensor self, int[1]? dim=None) -> Tensor", squeeze)
            .doc("the tensor without its dims of size 1: all of them, or the given ones")
            .spelled("torch.@ Tensor.@ torch.@_copy")
            .form(
                "aten.squeeze.default aten.squeeze_copy.default",
                "squeeze(Tensor self) -> Tensor",
            )
            .form(
                "aten.squeeze.dim aten.squeeze_copy.dim",
                "squeeze(Tensor self, int dim) -> Tensor",
            )
            .form(
                "aten.squeeze.dims aten.squeeze_copy.dims",
                "squeeze(Tensor self, int[] dim) -> Tensor",
            )
            .inplace("Tensor.@_")
            .inplace_form("aten.squeeze_.default", "squeeze_(Tensor self) -> Tensor")
            .inplace_form("aten.squeeze_.dim", "squeeze_(Tensor self, int dim) -> Tensor")
            .inplace_form("aten.squeeze_.dims", "squeeze_(Tensor self, int[] dim) -> Tensor"),
        view_op!("unsqueeze(Tensor self, int dim) -> Tensor", unsqueeze)
            .doc("the tensor with a new dim of size 1")
            .spelled("aten.@ aten.@_copy torch.@_copy torch.@ Tensor.@")
            .inplace("aten.@_ Tensor.@_"),
        view_op!("atleast_1d(Tensor self) -> Tensor", atleast_1d)
            .doc("a 0-d tensor as a vector with one element")
            .same_object(|_, _| true)
            .spelled("aten.@ torch.@"),
        view_op!("atleast_2d(Tensor self) -> Tensor", atleast_2d)
            .doc("the tensor with leading dims of size 1 up to rank 2")
            .same_object(|_, _| true)
            .spelled("aten.@ torch.@"),
        view_op!("atleast_3d(Tensor self) -> Tensor", atleast_3d)
            .doc("the tensor with dims of size 1 added up to rank 3")
            .same_object(|_, _| true)
            .spelled("aten.@ torch.@"),
    ]
}

fn identity_rows() -> Vec<Op> {
    vec![
        view_op!("alias(Tensor self) -> Tensor", identity)
            .doc("the tensor itself")
            .spelled(
                "aten.alias.default aten.alias_copy.default torch.alias_copy aten.lift_fresh.default aten.lift.default aten.real.default torch.real \
                 aten.resolve_conj.default aten.resolve_neg.default torch.resolve_conj torch.resolve_neg Tensor.resolve_conj \
                 Tensor.resolve_neg Tensor.cpu Tensor.conj torch.conj aten.conj.default \
                 aten._conj.default aten.conj_physical.default torch.conj_physical Tensor.conj_physical",
            )
            .form("Tensor.requires_grad_", "requires_grad_(Tensor self, bool requires_grad=True) -> Tensor")
            .inplace("aten.conj_physical_.default torch.conj_physical_ Tensor.conj_physical_")
            .module("Identity() = alias(input)"),
        view_op!("detach(Tensor self) -> Tensor", identity)
            .doc("the tensor itself, without gradients")
            .spelled("aten.@ aten.@_copy torch.@_copy torch.@ Tensor.@")
            .inplace("aten.@_ torch.@_ Tensor.@_"),
        view_op!("contiguous(Tensor self, *, MemoryFormat memory_format=contiguous_format) -> Tensor", identity)
            .doc("the contiguous tensor, which all fxc tensors are")
            .spelled("aten.@ Tensor.@")
            .same_object(|c, at| has_format(c, at) == Some(true)),
        view_op!("clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", identity)
            .order(MemoryOrder::First)
            .doc("a copy")
            .spelled("aten.@ torch.@ Tensor.@")
            .form("aten.lift_fresh_copy.default", "lift_fresh_copy(Tensor self) -> Tensor")
            .copies(),
    ]
}

/// Shape of `self`.
pub(in crate::op::rows) fn self_shape(c: &Call<TensorType>) -> OpResult<Vec<Dim>> {
    c.shaped("self").map(|(_, s)| s.to_vec())
}

fn dims_product(v: &[Dim]) -> Dim {
    v.iter().fold(Dim::Const(1), |a, d| a.mul(d))
}

/// The shape `size`, which may contain one -1, for the elements of `old`.
pub(in crate::op::rows) fn infer_size(old: &[Dim], size: &[Dim], sizes: &mut Sizes) -> OpResult<Vec<Dim>> {
    let minus = Dim::Const(-1);
    check_wanted_size(size)?;
    let invalid = || {
        format!(
            "shape '{}' is invalid for input of size {}",
            list_text(size),
            dims_product(old)
        )
    };
    let (left, right) = cancelled_products(old, size.iter().filter(|d| **d != minus));
    let Some(inferred) = size.iter().position(|d| *d == minus) else {
        sizes.unify_dims(&left, &right, invalid)?;
        return Ok(size.to_vec());
    };
    if size.contains(&Dim::Const(0)) {
        return Err(OpError::shape(format!(
            "cannot reshape tensor of 0 elements into shape {} because the unspecified dimension size -1 can be any value \
             and is ambiguous",
            list_text(size)
        )));
    }
    if let (Some(a), Some(b)) = (left.as_const(), right.as_const())
        && (b == 0 || a % b != 0)
    {
        return Err(OpError::shape(invalid()));
    }
    let mut out = size.to_vec();
    out[inferred] = left.floordiv(&right);
    Ok(out)
}

/// Checks that no size is below -1 and that at most one is to be inferred.
fn check_wanted_size(size: &[Dim]) -> OpResult<()> {
    let bad = |d: &Dim| d.as_const().is_some_and(|c| c < -1);
    if let Some(i) = size.iter().position(bad) {
        return Err(OpError::shape(format!(
            "invalid shape dimension {} at index {i} of shape {}",
            size[i],
            list_text(size)
        )));
    }
    match size.iter().filter(|d| **d == Dim::Const(-1)).count() {
        0 | 1 => Ok(()),
        _ => Err(OpError::shape("only one dimension can be inferred")),
    }
}

/// The products of both lists of sizes without the factors that they share, so that symbolic quotients stay simple.
fn cancelled_products<'a>(old: &[Dim], new: impl Iterator<Item = &'a Dim>) -> (Dim, Dim) {
    let mut left: Vec<Dim> = old.to_vec();
    let mut right: Vec<Dim> = Vec::new();
    for d in new {
        let known = *d != Dim::Unknown && *d != Dim::Const(0);
        match left.iter().position(|x| known && x == d) {
            Some(i) => drop(left.swap_remove(i)),
            None => right.push(d.clone()),
        }
    }
    (dims_product(&left), dims_product(&right))
}

fn reshape(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<DimView> {
    let size = c.dims(&c.op.schema.params[1].name)?;
    // The result's shape is known even if the operand's rank is not, unless a size must be inferred.
    let old = match &c.leaf("self")?.shape {
        Some(shape) => shape.clone(),
        None => vec![Dim::Unknown],
    };
    infer_size(&old, &size, s).map(DimView::reshape)
}

/// The shape with dims `start..=end` merged.
pub(in crate::op::rows) fn flat_shape(shape: &[Dim], start: usize, end: usize) -> Vec<Dim> {
    if shape.is_empty() {
        return vec![Dim::Const(1)];
    }
    let mut out = shape[..start].to_vec();
    out.push(dims_product(&shape[start..=end]));
    out.extend_from_slice(&shape[end + 1..]);
    out
}

fn flatten(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    let start = wrap_dim(c.int("start_dim")?, shape.len())?;
    let end = wrap_dim(c.int("end_dim")?, shape.len())?;
    if start > end {
        return Err(OpError::shape(
            "flatten() has invalid args: start_dim cannot come after end_dim",
        ));
    }
    Ok(DimView::reshape(flat_shape(&shape, start, end)))
}

fn ravel(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    Ok(DimView::reshape(vec![c.leaf("self")?.numel()]))
}

fn unflatten(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    let dim = wrap_dim(c.int("dim")?, shape.len())?;
    let size = c.dims("sizes")?;
    if size.is_empty() {
        return Err(OpError::shape("unflatten: sizes must be non-empty"));
    }
    let old = shape.get(dim).cloned().unwrap_or(Dim::Const(1));
    let new = infer_size(std::slice::from_ref(&old), &size, s).map_err(|_| {
        OpError::shape(format!(
            "unflatten: Provided sizes {} don't multiply up to the size of dim {dim} ({old}) in the input tensor",
            list_text(&size)
        ))
    })?;
    let mut out = shape;
    out.splice(dim..(dim + 1).min(out.len()), new);
    Ok(DimView::reshape(out))
}

fn like_other(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<DimView> {
    let size = c.shaped("other")?.1.to_vec();
    infer_size(&self_shape(c)?, &size, s).map(DimView::reshape)
}

fn squeeze(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let shape = self_shape(c)?;
    let dims = match c.opt_ints("dim")? {
        None => (0..shape.len()).collect(),
        Some(v) => v
            .iter()
            .map(|&d| wrap_dim(d, shape.len()))
            .collect::<OpResult<Vec<_>>>()?,
    };
    if let Some((_, d)) = dims.iter().enumerate().find(|(i, d)| dims[..*i].contains(d)) {
        return Err(OpError::shape(format!(
            "dim {d} appears multiple times in the list of dims"
        )));
    }
    let keep = |(i, d): (usize, &Dim)| (*d != Dim::Const(1) || !dims.contains(&i)).then(|| d.clone());
    Ok(DimView::reshape(shape.iter().enumerate().filter_map(keep).collect()))
}

fn unsqueeze(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let mut shape = self_shape(c)?;
    let dim = wrap_dim(c.int("dim")?, shape.len() + 1)?;
    shape.insert(dim, Dim::Const(1));
    Ok(DimView::reshape(shape))
}

fn identity(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    self_shape(c).map(DimView::reshape)
}

fn atleast_1d(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let mut shape = self_shape(c)?;
    if shape.is_empty() {
        shape.push(Dim::Const(1));
    }
    Ok(DimView::reshape(shape))
}

fn atleast_2d(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let mut shape = self_shape(c)?;
    while shape.len() < 2 {
        shape.insert(0, Dim::Const(1));
    }
    Ok(DimView::reshape(shape))
}

fn atleast_3d(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<DimView> {
    let mut shape = self_shape(c)?;
    if shape.len() < 2 {
        while shape.len() < 2 {
            shape.insert(0, Dim::Const(1));
        }
    }
    if shape.len() == 2 {
        shape.push(Dim::Const(1));
    }
    Ok(DimView::reshape(shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infers_symbolic_sizes() {
        let (n, t) = (Dim::var("N"), Dim::var("T"));
        let c = |v: i64| Dim::Const(v);
        let mut s = Sizes::default();
        let t1 = t.add(&c(1));
        let got = infer_size(&[n.clone(), t1.clone(), c(8)], &[c(-1), c(8)], &mut s);
        assert_eq!(got, Ok(vec![n.mul(&t1), c(8)]));
        let got = infer_size(&[n.clone(), t1.clone(), c(8)], &[n.clone(), t1, c(2), c(-1)], &mut s);
        assert_eq!(got.map(|v| v[3].clone()), Ok(c(4)));
        assert!(s.equations.is_empty());
        let err = infer_size(&[c(2), c(3)], &[c(-1), c(4)], &mut s).unwrap_err();
        assert_eq!(err.title, "shape '[-1, 4]' is invalid for input of size 6");
        let err = infer_size(&[c(0), c(3)], &[c(-1), c(0)], &mut s).unwrap_err();
        assert!(
            err.title
                .starts_with("cannot reshape tensor of 0 elements into shape [-1, 0]"),
            "{}",
            err.title
        );
    }

    #[test]
    fn an_equation_remains_where_sizes_may_agree() {
        let mut s = Sizes::default();
        let n = Dim::var("N");
        assert!(infer_size(&[n.clone(), Dim::Const(3)], &[Dim::Const(6)], &mut s).is_ok());
        assert_eq!(s.equations.len(), 1);
    }
}
