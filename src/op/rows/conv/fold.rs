//! Unfolding images into columns of sliding blocks, and folding them back.

use crate::op::rows::dense::{Number, native, with_number, zeros};
use crate::op::rows::spell::list_text;
use crate::op::{Call, Meaning, Op, OpError, OpResult, Sizes};
use crate::tensor::Tensor;
use crate::types::{Dim, TensorType, Type, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new("im2col(Tensor self, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1) -> Tensor",
            im2col_type,
            Meaning::Routine(im2col),
        )
        .doc("the sliding blocks as columns")
        .spelled("aten.@ torch._C._nn.@ torch.nn.functional.unfold")
        .module(
            "Unfold(kernel_size, dilation=1, padding=0, stride=1) = im2col(input, kernel_size, dilation, padding, stride)",
        ),
        Op::new("col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] \
             stride=1) -> Tensor",
            col2im_type,
            Meaning::Routine(col2im),
        )
        .doc("the sum of columns at the positions of their sliding blocks")
        .spelled("aten.@ torch._C._nn.@ torch.nn.functional.fold")
        .module(
            "Fold(output_size, kernel_size, dilation=1, padding=0, stride=1) = col2im(input, output_size, kernel_size, dilation, \
             padding, stride)",
        ),
    ]
}

/// Kernel size, dilation, padding and stride for both dims.
struct SlidingBlocks {
    kernel: [i64; 2],
    dilation: [i64; 2],
    padding: [i64; 2],
    stride: [i64; 2],
}

fn pair_arg(c: &Call<TensorType>, name: &str) -> OpResult<[i64; 2]> {
    match c.ints(name)?[..] {
        [a] => Ok([a, a]),
        [a, b] => Ok([a, b]),
        _ => Err(OpError::arg(name, format!("It is expected {name} equals to 2"))),
    }
}

impl SlidingBlocks {
    fn from_call(c: &Call<TensorType>) -> OpResult<SlidingBlocks> {
        let b = SlidingBlocks {
            kernel: pair_arg(c, "kernel_size")?,
            dilation: pair_arg(c, "dilation")?,
            padding: pair_arg(c, "padding")?,
            stride: pair_arg(c, "stride")?,
        };
        for (name, v, least) in [
            ("kernel_size", b.kernel, 1),
            ("dilation", b.dilation, 1),
            ("padding", b.padding, 0),
            ("stride", b.stride, 1),
        ] {
            if v.iter().any(|&x| x < least) {
                let what = if least == 1 {
                    "greater than zero"
                } else {
                    "non-negative"
                };
                return Err(OpError::arg(name, format!("{name} should be {what}, but got {v:?}")));
            }
        }
        Ok(b)
    }

    /// The number of blocks along dim `d` for size `n`.
    fn count(&self, d: usize, n: &Dim) -> Dim {
        let reach = self.dilation[d].saturating_mul(self.kernel[d] - 1).saturating_add(1);
        n.add(&Dim::Const(2 * self.padding[d] - reach))
            .floordiv(&Dim::Const(self.stride[d]))
            .add(&Dim::Const(1))
    }
}

/// Splits a shape into the optional batch dim and the rest.
fn split_batch<'a>(x: &'a [Dim], what: &str, rank: usize) -> OpResult<(&'a [Dim], &'a [Dim])> {
    match x.len() {
        n if n == rank => Ok((&x[..1], &x[1..])),
        n if n == rank - 1 => Ok((&x[..0], x)),
        _ => Err(OpError::shape(format!(
            "Expected {}D or {rank}D (batch mode) tensor for {what}, but got: {}",
            rank - 1,
            list_text(x)
        ))),
    }
}

fn im2col_type(c: &Call<TensorType>, _: &mut Sizes) -> OpResult<Type> {
    let (d, x) = c.shaped("self")?;
    let b = SlidingBlocks::from_call(c)?;
    let (lead, image) = split_batch(x, "im2col", 4)?;
    let counts = [b.count(0, &image[1]), b.count(1, &image[2])];
    if counts.iter().any(|n| n.as_const().is_some_and(|n| n < 1)) {
        return Err(OpError::shape(format!(
            "Given input with spatial size ({}, {}), calculated shape of the array of sliding blocks as ({}, {}), but its components \
             must be at least one.",
            image[1], image[2], counts[0], counts[1]
        )));
    }
    let mut shape = lead.to_vec();
    shape.push(image[0].mul(&Dim::Const(b.kernel[0].saturating_mul(b.kernel[1]))));
    shape.push(counts[0].mul(&counts[1]));
    Ok(Val::Leaf(TensorType::new(d, shape)))
}

fn col2im_type(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Type> {
    let (d, x) = c.shaped("self")?;
    let b = SlidingBlocks::from_call(c)?;
    let (lead, columns) = split_batch(x, "col2im", 3)?;
    let size = c.dims("output_size")?;
    let size = [size[0].clone(), size.get(1).unwrap_or(&size[0]).clone()];
    let area = b.kernel[0].saturating_mul(b.kernel[1]);
    if columns[0].as_const().is_some_and(|n| n % area != 0) {
        return Err(OpError::shape(format!(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got input.size(1)={} and \
             kernel_size={:?}.",
            columns[0], b.kernel
        )));
    }
    let blocks = b.count(0, &size[0]).mul(&b.count(1, &size[1]));
    s.unify_dims(&blocks, &columns[1], || {
        format!(
            "Given output_size=({}, {}), kernel_size={:?}, dilation={:?}, padding={:?}, stride={:?}, expected size of input's \
             dimension 2 to match the calculated number of sliding blocks {blocks}, but got input.size(2)={}.",
            size[0], size[1], b.kernel, b.dilation, b.padding, b.stride, columns[1]
        )
    })?;
    let mut shape = lead.to_vec();
    shape.push(columns[0].floordiv(&Dim::Const(area)));
    shape.extend(size);
    Ok(Val::Leaf(TensorType::new(d, shape)))
}

/// Calls `f(column element, image element)` for each pair that lies within the image. `image` is `[planes, h, w]`.
fn for_each_pair(b: &SlidingBlocks, planes: usize, image: [usize; 2], f: &mut dyn FnMut(usize, usize)) {
    let count = |d: usize| b.count(d, &Dim::from(image[d])).as_const().unwrap_or(0).max(0) as usize;
    let (rows, columns) = (count(0), count(1));
    let mut at = 0;
    for p in 0..planes {
        for i in 0..b.kernel[0] {
            for j in 0..b.kernel[1] {
                for r in 0..rows as i64 {
                    let y = r * b.stride[0] - b.padding[0] + i * b.dilation[0];
                    for k in 0..columns as i64 {
                        let x = k * b.stride[1] - b.padding[1] + j * b.dilation[1];
                        let inside = (0..image[0] as i64).contains(&y) && (0..image[1] as i64).contains(&x);
                        if inside {
                            f(at, (p * image[0] + y as usize) * image[1] + x as usize);
                        }
                        at += 1;
                    }
                }
            }
        }
    }
}

fn im2col(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let types = c.types();
    let shape = im2col_type(&types, &mut Sizes::default())?;
    let shape = shape.as_leaf().and_then(TensorType::fixed_shape).unwrap_or_default();
    let x = c.leaf("self")?;
    let mut out = zeros(x.dtype(), &shape)?;
    let n = x.rank();
    let planes: usize = x.shape()[..n - 2].iter().product();
    let (size, src) = (x.dtype().size(), x.bytes());
    let dst = out.bytes_mut();
    for_each_pair(
        &SlidingBlocks::from_call(&types)?,
        planes,
        [x.shape()[n - 2], x.shape()[n - 1]],
        &mut |to, from| crate::op::rows::index::gather::copy_element(dst, to, src, from, size),
    );
    Ok(Val::Leaf(out))
}

fn col2im(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let types = c.types();
    let shape = col2im_type(&types, &mut Sizes::default())?;
    let shape = shape.as_leaf().and_then(TensorType::fixed_shape).unwrap_or_default();
    let x = c.leaf("self")?;
    let n = shape.len();
    let planes: usize = shape[..n - 2].iter().product();
    let b = SlidingBlocks::from_call(&types)?;
    let wide = x.to(native(x.dtype()));
    let mut out = zeros(wide.dtype(), &shape)?;
    with_number!(x.dtype(), T => {
        let (src, dst) = (wide.as_slice::<T>(), out.as_mut_slice::<T>());
        for_each_pair(&b, planes, [shape[n - 2], shape[n - 1]], &mut |from, to| dst[to] = dst[to].add(src[from]));
    });
    Ok(Val::Leaf(out.to(x.dtype())))
}
