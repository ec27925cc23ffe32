//! Fractional max pooling: windows at random positions.

use super::unravel_index;
use crate::op::rows::dense::zeros;
use crate::op::rows::spell::text;
use crate::op::{Build, Call, Meaning, Op, OpError, OpId, OpResult, Traced};
use crate::tensor::{Scalar, Tensor};
use crate::types::{DType, Dim, TensorType, Type, Val};

/// The row of torch.nn's function and module for `N` dims. Its samples must be given.
fn given_samples<const N: usize>() -> Op {
    Op::composite((text!("nn_fractional_max_pool{N}d"), text!(
            "fractional_max_pool{N}d(Tensor input, int[{N}] kernel_size, Any output_size=None, Any output_ratio=None, \
             bool return_indices=False, Tensor? _random_samples=None) -> Any"
        )),
        |b, c| with_samples(b, c, N),
    )
    .doc("the maxima of windows at pseudo-random positions, determined by samples; the output size is given directly or as a ratio")
    .spelled(text!("torch.nn.functional.fractional_max_pool{N}d"))
    .module(text!(
        "FractionalMaxPool{N}d(kernel_size, output_size=None, output_ratio=None, return_indices=False, \
         _random_samples=None) = nn_fractional_max_pool{N}d(input, kernel_size, output_size, output_ratio, return_indices, \
         @_random_samples?)"
    ))
}

pub(super) fn fractional_rows() -> Vec<Op> {
    vec![
        Op::new("fractional_max_pool2d(Tensor self, int[2] kernel_size, int[2] output_size, Tensor random_samples) -> (Tensor, Tensor)",
            |c, _| fractional_type(c, 2),
            Meaning::Routine(|c| fractional_maxima(c, 2)),
        )
        .doc("the maxima of windows at pseudo-random positions, determined by samples, and their indices")
        .spelled("aten.@ torch._C._nn.@"),
        Op::new("fractional_max_pool3d(Tensor self, int[3] kernel_size, int[3] output_size, Tensor random_samples) -> (Tensor, Tensor)",
            |c, _| fractional_type(c, 3),
            Meaning::Routine(|c| fractional_maxima(c, 3)),
        )
        .doc("the maxima of windows at pseudo-random positions, determined by samples, and their indices")
        .spelled("aten.@ torch._C._nn.@"),
        given_samples::<2>(),
        given_samples::<3>(),
    ]
}

fn fractional_type(c: &Call<TensorType>, n: usize) -> OpResult<Type> {
    let (d, x) = c.shaped("self")?;
    if x.len() != n + 1 && x.len() != n + 2 {
        return Err(OpError::shape(format!(
            "fractional_max_pool{n}d(): Expected {}D or {}D tensor",
            n + 1,
            n + 2
        )));
    }
    let (kernel, size) = (c.ints("kernel_size")?, c.ints("output_size")?);
    if kernel.len() != n || size.len() != n {
        return Err(OpError::shape(format!(
            "fractional_max_pool{n}d: kernel_size must either be a single Int or {n} of them"
        )));
    }
    let lead = x.len() - n;
    for k in 0..n {
        let over = x[lead + k]
            .as_const()
            .is_some_and(|have| size[k] + kernel[k] - 1 > have);
        if size[k] < 0 || kernel[k] < 1 || over {
            return Err(OpError::shape(format!(
                "fractional_max_pool{n}d(): pool size ({}) too large relative to the input size ({})",
                kernel[k],
                x[lead + k]
            )));
        }
    }
    let sizes: Vec<Dim> = size.into_iter().map(Dim::Const).collect();
    let shape = [&x[..lead], &sizes[..]].concat();
    let tensor = |d| Val::Leaf(TensorType::new(d, shape.clone()));
    Ok(Val::Tuple(vec![tensor(d), tensor(DType::I64)]))
}

fn with_samples(b: &mut dyn Build, c: &Call<Traced>, n: usize) -> OpResult<Val<Traced>> {
    let x = c.leaf("input")?;
    let Some(samples) = c.opt_leaf("_random_samples") else {
        return Err(OpError::arg(
            "_random_samples",
            "fractional pooling without samples draws random numbers",
        )
        .help("pass _random_samples, a tensor [batch, channels, dims] of numbers in [0, 1)"));
    };
    let shape = x.shape()?;
    if shape.len() < n + 1 {
        return Err(OpError::shape(format!(
            "fractional_max_pool{n}d(): Expected {}D or {}D tensor",
            n + 1,
            n + 2
        )));
    }
    let size = match c.get("output_size") {
        Val::None => (0..n)
            .map(|d| fractional_size(c, d, &shape[shape.len() - n + d]))
            .collect::<OpResult<Vec<i64>>>()?,
        Val::List(_) | Val::Tuple(_) => c.ints("output_size")?,
        _ => vec![c.int("output_size")?; n],
    };
    let row = match n {
        2 => OpId::FractionalMaxPool2d,
        _ => OpId::FractionalMaxPool3d,
    };
    let sizes = crate::op::emit::ints_val(&size);
    let results = b.call(row, vec![x.into(), c.get("kernel_size").clone(), sizes, samples.into()])?;
    match (c.bool("return_indices")?, results.items().and_then(|v| v.first())) {
        (false, Some(values)) => Ok(values.clone()),
        _ => Ok(results),
    }
}

/// The output size of spatial dim `d` of size `size`, from `output_ratio`.
fn fractional_size(c: &Call<Traced>, d: usize, size: &Dim) -> OpResult<i64> {
    let ratio = match c.get("output_ratio") {
        Val::List(v) | Val::Tuple(v) => v.get(d).and_then(Val::as_f64),
        v => v.as_f64(),
    };
    let size = ratio.zip(size.as_const()).map(|(r, n)| (n as f64 * r) as i64);
    size.ok_or_else(|| {
        OpError::arg(
            "output_ratio",
            "fractional_max_pool requires specifying either an output_size or an output_ratio",
        )
    })
}

/// The start of each window along one dim (Graham 2014), computed in the dtype's own arithmetic.
fn window_starts(sample: f64, from: usize, to: usize, kernel: usize, dtype: DType) -> Vec<usize> {
    let last = from - kernel;
    let start = |i: usize| match dtype {
        DType::F64 => {
            let alpha = last as f64 / (to - 1) as f64;
            ((i as f64 + sample) * alpha) as i64 - (sample * alpha) as i64
        }
        _ => {
            let (alpha, sample) = (last as f32 / (to - 1) as f32, sample as f32);
            ((i as f32 + sample) * alpha) as i64 - (sample * alpha) as i64
        }
    };
    (0..to)
        .map(|i| {
            if i + 1 == to {
                last
            } else {
                start(i).clamp(0, last as i64) as usize
            }
        })
        .collect()
}

/// The greatest value of a window of a plane, and its place. The last NaN is greater than any number.
fn window_maximum(value: impl Fn(usize) -> f64, plane: &[usize], begin: &[usize], kernel: &[usize]) -> (f64, usize) {
    let mut best = (f64::NEG_INFINITY, 0);
    for k in 0..kernel.iter().product() {
        let offset = unravel_index(k, kernel);
        let place = (0..plane.len()).fold(0, |p, d| p * plane[d] + begin[d] + offset[d]);
        let v = value(place);
        if k == 0 || v > best.0 || v.is_nan() {
            best = (v, place);
        }
    }
    best
}

fn fractional_maxima(c: &Call<Tensor>, n: usize) -> OpResult<Val<Tensor>> {
    let (x, samples) = (c.leaf("self")?, c.leaf("random_samples")?);
    let ty = fractional_type(&c.types(), n)?;
    let shape = ty.leaves().first().and_then(|t| t.fixed_shape());
    let shape = shape.ok_or_else(|| OpError::shape("the sizes of the result are unknown"))?;
    let lead = x.rank() - n;
    let planes: usize = x.shape()[..lead].iter().product();
    if samples.numel() != planes * n {
        return Err(OpError::shape(
            "Expect _random_samples to have a sample for each plane and dim",
        ));
    }
    let kernel: Vec<usize> = c.ints("kernel_size")?.iter().map(|&k| k as usize).collect();
    let (from, to) = (&x.shape()[lead..], &shape[lead..]);
    let (size, count): (usize, usize) = (from.iter().product(), to.iter().product());
    let (mut out, mut indices) = (zeros(x.dtype(), &shape)?, zeros(DType::I64, &shape)?);
    for plane in 0..planes {
        // The last sample belongs to the first dim in 2d; the first sample does in 3d.
        let sample = |d: usize| samples.get(plane * n + if n == 2 { 1 - d } else { d }).to_f64();
        let windows: Vec<Vec<usize>> = (0..n)
            .map(|d| window_starts(sample(d), from[d], to[d], kernel[d], x.dtype()))
            .collect();
        for o in 0..count {
            let numbered = unravel_index(o, to).into_iter().enumerate();
            let begin: Vec<usize> = numbered.map(|(d, i)| windows[d][i]).collect();
            let value = |place: usize| x.get(plane * size + place).to_f64();
            let (greatest, place) = window_maximum(value, from, &begin, &kernel);
            out.set(plane * count + o, Scalar::F64(greatest));
            indices.set(plane * count + o, Scalar::Int(DType::I64, place as i64));
        }
    }
    Ok(Val::Tuple(vec![Val::Leaf(out), Val::Leaf(indices)]))
}
