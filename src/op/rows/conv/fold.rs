//! Unfolding images into columns of sliding blocks, and folding them back.

use crate::op::rows::dense::{Number, native, with_number};
use crate::op::rows::fill::{units_per_part, with_word};
use crate::op::rows::spell::list_text;
use crate::op::{Call, Meaning, Op, OpError, OpResult, Sizes};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, with_wide_vectors};
use crate::types::{Dim, TensorType, Type, Val};
use std::ops::Range;

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::new("im2col(Tensor self, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1) -> Tensor",
            im2col_type,
            Meaning::Fill(im2col),
        )
        .doc("the sliding blocks as columns")
        .spelled("aten.@ torch._C._nn.@ torch.nn.functional.unfold")
        .module(
            "Unfold(kernel_size, dilation=1, padding=0, stride=1) = im2col(input, kernel_size, dilation, padding, stride)",
        ),
        Op::new("col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] \
             stride=1) -> Tensor",
            col2im_type,
            Meaning::Fill(col2im),
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

/// The lines that a call moves: `[planes, h, w]` images, and a line of columns for each plane and place in the kernel.
struct FoldLines {
    blocks: SlidingBlocks,
    image: [usize; 2],
    /// The numbers of blocks along both dims.
    counts: [usize; 2],
}

impl FoldLines {
    fn new(c: &Call<TensorType>, image: [usize; 2]) -> OpResult<FoldLines> {
        let blocks = SlidingBlocks::from_call(c)?;
        let count = |d: usize| {
            let n = blocks.count(d, &Dim::from(image[d])).as_const();
            n.unwrap_or(0).max(0) as usize
        };
        let counts = [count(0), count(1)];
        Ok(FoldLines { blocks, image, counts })
    }

    /// The number of places in the kernel.
    fn area(&self) -> usize {
        (self.blocks.kernel[0] * self.blocks.kernel[1]) as usize
    }

    fn plane(&self) -> usize {
        self.image[0] * self.image[1]
    }

    fn columns(&self) -> usize {
        self.counts[0] * self.counts[1]
    }

    /// The blocks along dim `d` whose element `at` is within the image, and its position in the first of them.
    fn inside(&self, d: usize, at: usize) -> (Range<usize>, usize) {
        let (b, n) = (&self.blocks, self.image[d] as i64);
        let first = at as i64 * b.dilation[d] - b.padding[d];
        let stride = b.stride[d];
        let from = (-first).max(0).div_euclid(stride) + ((-first).max(0) % stride != 0) as i64;
        let to = (n - first).max(0).div_euclid(stride) + ((n - first).max(0) % stride != 0) as i64;
        let to = to.min(self.counts[d] as i64);
        match from < to {
            true => (from as usize..to as usize, (first + from * stride) as usize),
            false => (0..0, 0),
        }
    }

    /// Calls `f(columns, first)` for each line of blocks with the columns that place `k` of the kernel has within the image, and the
    /// position in the plane that belongs to the first of them. Others follow at the stride.
    fn for_each_line(&self, k: usize, mut f: impl FnMut(Range<usize>, usize)) {
        let width = self.blocks.kernel[1] as usize;
        let ((rows, y), (columns, x)) = (self.inside(0, k / width), self.inside(1, k % width));
        for (step, r) in rows.enumerate() {
            let line = y + step * self.blocks.stride[0] as usize;
            let first = r * self.counts[1];
            f(first + columns.start..first + columns.end, line * self.image[1] + x);
        }
    }

    /// Copies the elements of place `k` of the kernel.
    fn unfold<T: Copy + Default>(&self, plane: &[T], k: usize, out: &mut [T]) {
        let stride = self.blocks.stride[1] as usize;
        let mut done = 0;
        self.for_each_line(k, |columns, first| {
            out[done..columns.start].fill(T::default());
            done = columns.end;
            let out = &mut out[columns];
            match stride {
                1 => out.copy_from_slice(&plane[first..first + out.len()]),
                _ => {
                    let from = plane[first.min(plane.len())..].iter().step_by(stride);
                    out.iter_mut().zip(from).for_each(|(o, x)| *o = *x);
                }
            }
        });
        out[done..].fill(T::default());
    }

    /// Adds the columns of place `k` of the kernel.
    fn fold<T: Number>(&self, columns: &[T], k: usize, plane: &mut [T]) {
        let stride = self.blocks.stride[1] as usize;
        self.for_each_line(k, |from, first| {
            let (from, to) = (&columns[from], plane[first..].iter_mut());
            match stride {
                1 => with_wide_vectors(|| to.zip(from).for_each(|(o, &x)| *o = o.add(x))),
                _ => to.step_by(stride).zip(from).for_each(|(o, &x)| *o = o.add(x)),
            }
        });
    }
}

/// The number of planes, and their size.
fn planes_of(shape: &[usize]) -> (usize, [usize; 2]) {
    let n = shape.len();
    (shape[..n - 2].iter().product(), [shape[n - 2], shape[n - 1]])
}

fn im2col(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let x = c.leaf("self")?;
    let lines = FoldLines::new(&c.types(), planes_of(x.shape()).1)?;
    let size = x.dtype().size();
    let (src, dst) = (x.bytes(), outs[0].bytes_mut());
    if dst.is_empty() {
        return Ok(());
    }
    with_word!(size, src, dst, |src, dst| {
        let (len, plane, area) = (lines.columns(), lines.plane(), lines.area());
        let count = units_per_part(dst.len() / len, len * size, pool);
        pool.run_parts(dst, count * len, |i, out| {
            for (n, out) in (i * count..).zip(out.chunks_exact_mut(len)) {
                lines.unfold(&src[n / area * plane..][..plane], n % area, out);
            }
        });
    });
    Ok(())
}

fn col2im(c: &Call<Tensor>, outs: &mut [ViewMut<'_>], pool: &Pool) -> OpResult<()> {
    let (x, out) = (c.leaf("self")?, &mut outs[0]);
    let lines = FoldLines::new(&c.types(), planes_of(out.shape()).1)?;
    let wide = x.to(native(x.dtype()));
    with_number!(x.dtype(), T => {
        if wide.dtype() == x.dtype() {
            fold_planes::<T>(&lines, wide.as_slice(), out.as_mut_slice(), pool);
        } else {
            let mut sums = Tensor::zeros(wide.dtype(), out.shape());
            fold_planes::<T>(&lines, wide.as_slice(), sums.as_mut_slice(), pool);
            out.fill_from(&sums.to(x.dtype()));
        }
    });
    Ok(())
}

fn fold_planes<T: Number>(lines: &FoldLines, src: &[T], out: &mut [T], pool: &Pool) {
    let (len, plane, area) = (lines.columns(), lines.plane(), lines.area());
    if out.is_empty() {
        return;
    }
    let planes = units_per_part(out.len() / plane, (plane + area * len) * size_of::<T>(), pool);
    pool.run_parts(out, planes * plane, |i, out| {
        out.fill(T::default());
        for (p, out) in (i * planes..).zip(out.chunks_exact_mut(plane)) {
            for k in 0..area {
                lines.fold(&src[(p * area + k) * len..][..len], k, out);
            }
        }
    });
}
