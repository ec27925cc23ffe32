//! Pooling windows: their places and the shapes of results.

use super::narrow::is_narrow;
use crate::op::rows::dense::native;
use crate::op::rows::spell::list_text;
use crate::op::{Call, OpError, OpResult};
use crate::tensor::Tensor;
use crate::types::{DType, Dim, TensorType};

/// The computation of a pool and the way its windows are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::op::rows) enum Kind {
    Max,
    Average,
    AdaptiveMax,
    AdaptiveAverage,
}

/// A pool's windows and shapes.
pub(in crate::op::rows) struct Pool {
    pub dtype: DType,
    pub out: Vec<Dim>,
    kernel: Vec<i64>,
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
    adaptive: bool,
}

/// A window along one dim: operand indices `start, start + step, … < end`, and its size including padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolWindow {
    pub start: usize,
    pub end: usize,
    pub step: usize,
    pub full: i64,
}

impl PoolWindow {
    /// The number of indices of a window whose step is 1.
    #[inline(always)]
    pub(super) fn present(&self) -> i64 {
        self.end.saturating_sub(self.start) as i64
    }
}

fn per_dim(c: &Call<TensorType>, name: &str, n: usize, default: &[i64]) -> OpResult<Vec<i64>> {
    if c.op.schema.index_of(name).is_none() || c.is_none(name) {
        return Ok(default.to_vec());
    }
    let v = c.ints(name)?;
    match v.len() {
        0 => Ok(default.to_vec()),
        1 => Ok(vec![v[0]; n]),
        len if len == n => Ok(v),
        _ => Err(OpError::shape(format!(
            "{}: {name} must either be a single int, or a tuple of {n} ints",
            c.op.name
        ))),
    }
}

/// Checks the operand's rank, sizes and dtype.
fn check_operand(c: &Call<TensorType>, n: usize, kind: Kind, dtype: DType, x: &[Dim]) -> OpResult<()> {
    if x.len() != n + 1 && x.len() != n + 2 {
        return Err(OpError::shape(format!(
            "{}: Expected {}D or {}D input tensor, but got input of size {}",
            c.op.name,
            n + 1,
            n + 2,
            list_text(x)
        )));
    }
    if matches!(kind, Kind::Max) && x[x.len() - n - 1..].iter().any(|d| d.as_const() == Some(0)) {
        return Err(OpError::shape(format!(
            "{}: Expected input to have non-zero size for non-batch dimensions, but got {}",
            c.op.name,
            list_text(x)
        )));
    }
    match refusing_kernel(kind, n, dtype) {
        Some(kernel) => Err(crate::op::pointwise::not_implemented(&kernel, dtype)),
        None => Ok(()),
    }
}

/// The name of torch's kernel, if it does not support this dtype. (Half types are computed, though some kernels reject
/// them.)
fn refusing_kernel(kind: Kind, n: usize, dtype: DType) -> Option<String> {
    // A 1-dim pool uses the 2-dim kernel with a dim of size 1.
    let wide = n.max(2);
    let known = match kind {
        Kind::Max => dtype != DType::B8,
        Kind::Average => dtype.is_float() || dtype == DType::I64,
        Kind::AdaptiveMax | Kind::AdaptiveAverage => dtype.is_float(),
    };
    let kernel = match (kind, n) {
        (Kind::Max, _) => format!("max_pool{wide}d"),
        (Kind::Average, 3) => "avg_pool3d_out_frame".into(),
        (Kind::Average, _) => "avg_pool2d".into(),
        (Kind::AdaptiveMax, 3) => "adaptive_max_pool3d_cpu".into(),
        (Kind::AdaptiveMax, _) => "adaptive_max_pool2d".into(),
        (Kind::AdaptiveAverage, _) => format!("adaptive_avg_pool{n}d"),
    };
    (!known).then_some(kernel)
}

impl Pool {
    pub(in crate::op::rows) fn from_call(c: &Call<TensorType>, n: usize, kind: Kind) -> OpResult<Pool> {
        let (dtype, x) = c.shaped("self")?;
        check_operand(c, n, kind, dtype, x)?;
        if matches!(kind, Kind::AdaptiveMax | Kind::AdaptiveAverage) {
            return Pool::from_adaptive_call(c, n, dtype, x);
        }
        let kernel = per_dim(c, "kernel_size", n, &[])?;
        let p = Pool {
            dtype,
            out: vec![],
            stride: per_dim(c, "stride", n, &kernel)?,
            padding: per_dim(c, "padding", n, &vec![0; n])?,
            dilation: per_dim(c, "dilation", n, &vec![1; n])?,
            kernel,
            adaptive: false,
        };
        p.check_params()?;
        let ceil = c.bool("ceil_mode")?;
        let lead = x.len() - n;
        if matches!(kind, Kind::Average) && n == 3 {
            p.check_volume(&x[lead..])?;
        }
        let mut out = x[..lead].to_vec();
        out.extend((0..n).map(|d| p.out_size(d, &x[lead + d], ceil)));
        if out[lead..].iter().any(|d| d.as_const().is_some_and(|d| d < 1)) {
            let times = |v: &[Dim]| v.iter().map(Dim::to_string).collect::<Vec<_>>().join("x");
            return Err(OpError::shape(format!(
                "Given input size: ({}). Calculated output size: ({}). Output size is too small",
                times(&x[lead - 1..]),
                times(&out[lead - 1..])
            )));
        }
        Ok(Pool { out, ..p })
    }

    fn check_params(&self) -> OpResult<()> {
        let fail = |title: &str| Err(OpError::shape(title.to_string()));
        if self.kernel.is_empty() || self.kernel.iter().any(|&k| k <= 0) {
            return fail("kernel size should be greater than zero");
        }
        if self.stride.iter().any(|&s| s <= 0) {
            return fail("stride should not be zero");
        }
        if self.dilation.iter().any(|&d| d <= 0) {
            return fail("dilation should be greater than zero");
        }
        for d in 0..self.kernel.len() {
            let (k, p, dil) = (self.kernel[d], self.padding[d], self.dilation[d]);
            if p < 0 {
                return Err(OpError::shape(format!("pad must be non-negative, but got pad: {p}")));
            }
            let reach = (k - 1).saturating_mul(dil).saturating_add(1);
            if p > reach / 2 {
                return Err(OpError::shape(format!(
                    "pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and dilation={dil}"
                )));
            }
        }
        Ok(())
    }

    /// torch's `avg_pool3d` refuses volumes that are smaller than the kernel without their padding.
    fn check_volume(&self, volume: &[Dim]) -> OpResult<()> {
        let is_smaller = |(n, k): (&Dim, &i64)| n.as_const().is_some_and(|n| n < *k);
        match (volume, &self.kernel[..]) {
            ([t, h, w], [kt, kh, kw]) if volume.iter().zip(&self.kernel).any(is_smaller) => Err(OpError::shape(
                format!("input image (T: {t} H: {h} W: {w}) smaller than kernel size (kT: {kt} kH: {kh} kW: {kw})"),
            )),
            _ => Ok(()),
        }
    }

    /// With `ceil`, the last window may extend beyond the end, but must start within the operand or its left padding.
    fn out_size(&self, d: usize, n: &Dim, ceil: bool) -> Dim {
        let c = Dim::Const;
        let (s, p) = (self.stride[d], self.padding[d]);
        let reach = (self.kernel[d] - 1).saturating_mul(self.dilation[d]).saturating_add(1);
        let room = n.add(&c(2 * p)).sub(&c(reach));
        if !ceil {
            return room.floordiv(&c(s)).add(&c(1));
        }
        let up = room.add(&c(s - 1)).floordiv(&c(s)).add(&c(1));
        let begins = n.add(&c(p - 1)).floordiv(&c(s)).add(&c(1));
        up.min_of(&begins)
    }

    fn from_adaptive_call(c: &Call<TensorType>, n: usize, dtype: DType, x: &[Dim]) -> OpResult<Pool> {
        let lead = x.len() - n;
        let mut out = x[..lead].to_vec();
        for (d, size) in x[lead..].iter().enumerate() {
            out.push(super::adaptive_size(c, n, d, size)?);
        }
        if out.iter().any(|d| d.as_const().is_some_and(|d| d < 0)) {
            return Err(OpError::shape(format!(
                "{}: elements of output_size must be greater than or equal to 0",
                c.op.name
            )));
        }
        if x[lead..].contains(&Dim::Const(0)) {
            return Err(OpError::shape(format!(
                "{}: Expected input to have non-zero size for non-batch dimensions, but input has sizes {}",
                c.op.name,
                list_text(x)
            )));
        }
        Ok(Pool {
            dtype,
            out,
            kernel: vec![],
            stride: vec![],
            padding: vec![],
            dilation: vec![],
            adaptive: true,
        })
    }

    /// The windows along spatial dim `d`.
    fn windows_along(&self, d: usize, n: usize, out: usize) -> Vec<PoolWindow> {
        let window = |i: usize| {
            if self.adaptive {
                let start = i * n / out;
                let end = ((i + 1) * n).div_ceil(out);
                return PoolWindow {
                    start,
                    end,
                    step: 1,
                    full: (end - start) as i64,
                };
            }
            let (k, s, p, dil) = (self.kernel[d], self.stride[d], self.padding[d], self.dilation[d]);
            let first = i as i64 * s - p;
            let last = first + (k - 1) * dil + 1;
            let skipped = if first < 0 { (-first + dil - 1) / dil } else { 0 };
            PoolWindow {
                start: (first + skipped * dil).max(0) as usize,
                end: last.clamp(0, n as i64) as usize,
                step: dil as usize,
                full: last.min(n as i64 + p) - first,
            }
        };
        (0..out).map(window).collect()
    }
}

/// A call with its operand converted to planes of up to three spatial dims.
pub(super) struct Planes {
    pub pool: Pool,
    /// The operand: in the dtype that is computed with, unless it is narrow.
    pub x: Tensor,
    /// The result's shape.
    pub shape: Vec<usize>,
    /// The size of a plane.
    pub size: [usize; 3],
    /// The windows along each dim of a plane.
    pub windows: [Vec<PoolWindow>; 3],
}

pub(super) fn prepare_planes(c: &Call<Tensor>, n: usize, kind: Kind) -> OpResult<Planes> {
    let pool = Pool::from_call(&c.types(), n, kind)?;
    let x = c.leaf("self")?;
    let shape: Vec<usize> = pool
        .out
        .iter()
        .filter_map(|d| d.as_const().map(|d| d as usize))
        .collect();
    let lead = x.rank() - n;
    let unit = PoolWindow {
        start: 0,
        end: 1,
        step: 1,
        full: 1,
    };
    let mut size = [1; 3];
    let mut windows = [vec![unit], vec![unit], vec![unit]];
    for d in 0..n {
        size[3 - n + d] = x.shape()[lead + d];
        windows[3 - n + d] = pool.windows_along(d, x.shape()[lead + d], shape[lead + d]);
    }
    let narrow = is_narrow(x.dtype());
    Ok(Planes {
        x: if narrow { x.clone() } else { x.to(native(x.dtype())) },
        pool,
        shape,
        size,
        windows,
    })
}
