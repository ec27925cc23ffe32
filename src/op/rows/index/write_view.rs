//! Writing through views: slice_scatter, select_scatter, diagonal_scatter, as_strided_scatter.

use crate::op::layout::StridedWindow;
use crate::op::rows::fill::{copy_all, write_strided};
use crate::op::rows::spell::list_text;
use crate::op::rows::views::copy_in_rows;
use crate::op::view::scattered_view;
use crate::op::{Call, Meaning, MemoryUse, Op, OpError, OpId, OpResult, Sizes, View};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut};
use crate::types::{Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    [dim_write_rows(), strided_write_rows()].into_iter().flatten().collect()
}

/// Writes along dims.
fn dim_write_rows() -> Vec<Op> {
    let op = |name, schema, rule, routine| Op::new((name, schema), rule, Meaning::Fill(routine)).updates();
    vec![
        op(
            "slice_scatter",
            "slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
            write_type,
            write_view,
        )
        .scatters_to(OpId::Slice)
        .doc("a copy with src written to a slice")
        .spelled("aten.@ torch.@ Tensor.@"),
        op(
            "select_scatter",
            "select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor",
            write_type,
            write_view,
        )
        .scatters_to(OpId::Select)
        .doc("a copy with src written at one index of a dim")
        .spelled("aten.@ torch.@ Tensor.@"),
        op(
            "diagonal_scatter",
            "diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor",
            write_type,
            write_view,
        )
        .scatters_to(OpId::Diagonal)
        .doc("a copy with src written to a diagonal")
        .spelled("aten.@ torch.@ Tensor.@"),
    ]
}

/// Writes to strided views.
fn strided_write_rows() -> Vec<Op> {
    let op = |name, schema, rule, routine| Op::new((name, schema), rule, Meaning::Fill(routine)).updates();
    vec![
        op(
            "as_strided_scatter",
            "as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
            write_type,
            write_view,
        )
        .memory(MemoryUse::Window)
        .scatters_to(OpId::AsStrided)
        .doc("a copy with src written to a strided view of its memory")
        .spelled("aten.@ torch.@ Tensor.@"),
        Op::composite("strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt storage_offset=0) -> Tensor",
            |b, c| {
                let x = c.leaf("self")?;
                let window = StridedWindow::from_call(&c.types())?;
                window.check_bounds(&x.ty.numel(), x.dtype())?;
                let rows = copy_in_rows(b, x)?;
                let mut args = c.args.clone();
                args[0] = (&rows).into();
                b.op(OpId::AsStridedScatter, args).map(Val::Leaf)
            },
        )
        .doc("a copy with src written to a strided view of the elements in row-major order"),
    ]
}

/// The view row's call on the tensor that is written to.
fn view_call(c: &Call<TensorType>) -> OpResult<Call<TensorType>> {
    scattered_view(c).ok_or_else(|| OpError::shape(format!("`{}` does not write to a view", c.op.name)))
}

fn write_type(c: &Call<TensorType>, sizes: &mut Sizes) -> OpResult<Type> {
    let x = c.leaf("self")?;
    let call = view_call(c)?;
    let part = call.op.result_type(&call, sizes)?;
    let part = part.as_leaf().and_then(|t| t.shape.clone()).unwrap_or_default();
    let have = c.shaped("src")?.1;
    let text = || {
        format!(
            "expected src to have a size equal to the slice of self. src size = {}, slice size = {}",
            list_text(have),
            list_text(&part)
        )
    };
    if have.len() != part.len() {
        return Err(OpError::shape(text()));
    }
    for (a, b) in have.iter().zip(&part) {
        sizes.unify_dims(a, b, text)?;
    }
    Ok(Val::Leaf(x.clone()))
}

fn write_view(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, src) = (c.leaf("self")?, c.leaf("src")?);
    let call = view_call(&c.types())?;
    let Meaning::View(f) = call.op.meaning else {
        return Err(OpError::shape(format!("`{}` is not a view", call.op.name)));
    };
    let part: View = f(&call)?;
    if call.op.is(OpId::AsStrided) {
        StridedWindow::from_call(&call)?.check_bounds(&Dim::from(x.numel()), x.dtype())?;
    }
    let src = src.to(x.dtype());
    copy_all(x, &mut outs[0], pool);
    let (offset, strides) = part.offset_and_strides(x.shape());
    write_strided(
        &part.shape,
        offset,
        &strides,
        src.bytes(),
        outs[0].bytes_mut(),
        x.dtype().size(),
    );
    Ok(())
}
