//! Pooling: maxima and means over windows.

mod lanes;
mod maxima;
mod means;
mod narrow;
mod planes;
mod row_windows;
mod sums;
mod unpool;
mod window;

use self::planes::{avg_pool, max_pool};
use self::window::{Kind, Pool};
use crate::op::emit::ints_val;
use crate::op::pointwise::not_implemented;
use crate::op::rows::spell::text;
use crate::op::{Build, Call, Meaning, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, TensorType, Type, Val};

/// The pools for 1, 2 and 3 dims that return the maxima and their indices.
const MAX_WITH_INDICES: [OpId; 3] = [
    OpId::MaxPool1dWithIndices,
    OpId::MaxPool2dWithIndices,
    OpId::MaxPool3dWithIndices,
];
const ADAPTIVE_MAX_WITH_INDICES: [OpId; 3] = [
    OpId::AdaptiveMaxPool1dWithIndices,
    OpId::AdaptiveMaxPool2dWithIndices,
    OpId::AdaptiveMaxPool3dWithIndices,
];

pub(super) fn rows() -> Vec<Op> {
    let mut v = of_rank::<1>();
    v.extend(of_rank::<2>());
    v.extend(of_rank::<3>());
    v.extend([lp_row::<1>(), lp_row::<2>(), lp_row::<3>()]);
    v.extend(unpool::rows());
    v
}

/// The pools of `N` dims.
fn of_rank<const N: usize>() -> Vec<Op> {
    vec![
        max_with_indices_row::<N>(),
        max_row::<N>(),
        avg_row::<N>(),
        adaptive_avg_row::<N>(),
        adaptive_max_with_indices_row::<N>(),
        adaptive_max_row::<N>(),
    ]
}

/// The Python module of a function that `torch.nn.functional` only re-exports.
const fn torch_module(n: usize) -> &'static str {
    if n == 1 { "torch" } else { "torch._C._nn" }
}

/// The module of maxima over windows; its parameters are those of the pools.
fn max_module<const N: usize>() -> &'static str {
    text!("MaxPool{N}d(kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False)")
}

fn max_with_indices_row<const N: usize>() -> Op {
    let (home, module) = (torch_module(N), max_module::<N>());
    Op::new(
        (
            text!("max_pool{N}d_with_indices"),
            text!(
                "max_pool{N}d_with_indices(Tensor self, int[{N}] kernel_size, int[{N}]? stride=[], int[{N}] padding=0, \
                 int[{N}] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)"
            ),
        ),
        |c, _| max_types(c, N),
        Meaning::Fill(|c, outs, threads| max_pool(c, outs, threads, N)),
    )
    .doc("the maximum of every window, and its index")
    .spelled(text!(
        "aten.max_pool{N}d_with_indices.default {home}.max_pool{N}d_with_indices"
    ))
    .form(
        text!("torch.nn.functional.max_pool{N}d_with_indices"),
        text!(
            "max_pool{N}d(Tensor input, int[{N}] kernel_size, int[{N}]? stride=None, int[{N}] padding=0, \
             int[{N}] dilation=1, bool ceil_mode=False, bool return_indices=False) -> (Tensor, Tensor)"
        ),
    )
    .module(text!(
        "{module} = max_pool{N}d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)"
    ))
}

fn max_row<const N: usize>() -> Op {
    let module = max_module::<N>();
    Op::composite(
        (
            text!("max_pool{N}d"),
            text!(
                "max_pool{N}d(Tensor self, int[{N}] kernel_size, int[{N}]? stride=[], int[{N}] padding=0, \
                 int[{N}] dilation=1, bool ceil_mode=False, bool return_indices=False) -> Tensor"
            ),
        ),
        |b, c| first_of(b, c, OpId::for_dims(MAX_WITH_INDICES, N)),
    )
    .doc("the maximum of every window")
    .spelled(text!(
        "aten.max_pool{N}d.default torch.max_pool{N}d torch.nn.functional.max_pool{N}d"
    ))
    .module(text!(
        "{module} = max_pool{N}d(input, kernel_size, stride, padding, dilation, ceil_mode) when return_indices=False"
    ))
}

/// `avg_pool{N}d`; the 1-dim pool has no `divisor_override`.
fn avg_row<const N: usize>() -> Op {
    let home = torch_module(N);
    let [schema, params, args] = match N {
        1 => [""; 3],
        _ => [
            ", int? divisor_override=None",
            ", divisor_override=None",
            ", divisor_override",
        ],
    };
    Op::new(
        (
            text!("avg_pool{N}d"),
            text!(
                "avg_pool{N}d(Tensor self, int[{N}] kernel_size, int[{N}]? stride=[], int[{N}] padding=0, \
             bool ceil_mode=False, bool count_include_pad=True{schema}) -> Tensor"
            ),
        ),
        |c, _| avg_type(c, N),
        Meaning::Fill(|c, outs, threads| avg_pool(c, outs, threads, N)),
    )
    .doc("the mean of every window")
    .spelled(text!(
        "aten.avg_pool{N}d.default {home}.avg_pool{N}d torch.nn.functional.avg_pool{N}d"
    ))
    .module(text!(
        "AvgPool{N}d(kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True{params}) = \
         avg_pool{N}d(input, kernel_size, stride, padding, ceil_mode, count_include_pad{args})"
    ))
}

/// The size that an adaptive pooling requests for spatial dim `d` of `n`, whose operand has this size.
fn adaptive_size(c: &Call<TensorType>, n: usize, d: usize, size: &Dim) -> OpResult<Dim> {
    let requested = match c.get("output_size") {
        Val::List(v) | Val::Tuple(v) if v.len() == n => &v[d],
        Val::List(v) | Val::Tuple(v) if v.len() == 1 => &v[0],
        Val::List(_) | Val::Tuple(_) => {
            return Err(OpError::shape(format!("{}: output_size must be {n}", c.op.name)));
        }
        v => v,
    };
    match requested {
        // `None` keeps the operand's size.
        Val::None => Ok(size.clone()),
        Val::Int(d) => Ok(d.clone()),
        _ => Err(OpError::arg("output_size", "the sizes must be ints or None")),
    }
}

fn adaptive_avg_row<const N: usize>() -> Op {
    let home = torch_module(N);
    let paths = match N {
        1 => "torch.adaptive_avg_pool1d",
        _ => text!("aten._adaptive_avg_pool{N}d.default {home}.adaptive_avg_pool{N}d torch._adaptive_avg_pool{N}d"),
    };
    Op::new(
        (
            text!("adaptive_avg_pool{N}d"),
            text!("adaptive_avg_pool{N}d(Tensor self, Any output_size) -> Tensor"),
        ),
        |c, _| adaptive_type(c, N, Kind::AdaptiveAverage),
        Meaning::Fill(|c, outs, threads| avg_pool(c, outs, threads, N)),
    )
    .doc("the means of windows that are chosen to produce the given output size")
    .spelled(text!(
        "aten.adaptive_avg_pool{N}d.default {paths} torch.nn.functional.adaptive_avg_pool{N}d"
    ))
    .module(text!(
        "AdaptiveAvgPool{N}d(output_size) = adaptive_avg_pool{N}d(input, output_size)"
    ))
}

fn adaptive_max_with_indices_row<const N: usize>() -> Op {
    let home = torch_module(N);
    Op::new(
        (
            text!("adaptive_max_pool{N}d_with_indices"),
            text!("adaptive_max_pool{N}d_with_indices(Tensor self, Any output_size) -> (Tensor, Tensor)"),
        ),
        |c, _| adaptive_type(c, N, Kind::AdaptiveMax),
        Meaning::Fill(|c, outs, threads| max_pool(c, outs, threads, N)),
    )
    .doc("the maxima of windows that are chosen to produce the given output size, and their indices")
    .form(
        text!("aten.adaptive_max_pool{N}d.default {home}.adaptive_max_pool{N}d"),
        text!("adaptive_max_pool{N}d(Tensor self, int[{N}] output_size) -> (Tensor, Tensor)"),
    )
    .form(
        text!("torch.nn.functional.adaptive_max_pool{N}d_with_indices"),
        text!("adaptive_max_pool{N}d(Tensor input, Any output_size, bool return_indices=False) -> (Tensor, Tensor)"),
    )
}

fn adaptive_max_row<const N: usize>() -> Op {
    Op::composite(
        (
            text!("adaptive_max_pool{N}d"),
            text!("adaptive_max_pool{N}d(Tensor self, Any output_size, bool return_indices=False) -> Tensor"),
        ),
        |b, c| first_of(b, c, OpId::for_dims(ADAPTIVE_MAX_WITH_INDICES, N)),
    )
    .doc("the maxima of windows that are chosen to produce the given output size")
    .spelled(text!("torch.nn.functional.adaptive_max_pool{N}d"))
    .module(text!(
        "AdaptiveMaxPool{N}d(output_size, return_indices=False) = adaptive_max_pool{N}d(input, output_size, \
         return_indices)"
    ))
}

fn lp_row<const N: usize>() -> Op {
    Op::composite(
        (
            text!("lp_pool{N}d"),
            text!(
                "lp_pool{N}d(Tensor input, float norm_type, int[{N}] kernel_size, int[{N}]? stride=None, \
             bool ceil_mode=False) -> Tensor"
            ),
        ),
        |b, c| {
            lp_pool(
                b,
                c,
                OpId::for_dims([OpId::AvgPool1d, OpId::AvgPool2d, OpId::AvgPool3d], N),
            )
        },
    )
    .doc("the p-norm of every window")
    .spelled(text!("torch.nn.functional.lp_pool{N}d"))
    .module(text!(
        "LPPool{N}d(norm_type, kernel_size, stride=None, ceil_mode=False) = lp_pool{N}d(input, norm_type, kernel_size, \
         stride, ceil_mode)"
    ))
}

fn leaf_type(dtype: DType, shape: Vec<crate::types::Dim>) -> Type {
    Val::Leaf(TensorType::new(dtype, shape))
}

fn max_types(c: &Call<TensorType>, n: usize) -> OpResult<Type> {
    let p = Pool::from_call(c, n, Kind::Max)?;
    Ok(Val::Tuple(vec![
        leaf_type(p.dtype, p.out.clone()),
        leaf_type(DType::I64, p.out),
    ]))
}

/// Calls the pool `op` with the arguments other than `return_indices`. Returns both of its results if that is true,
/// else the first.
fn first_of(b: &mut dyn Build, c: &Call<Traced>, op: OpId) -> OpResult<Val<Traced>> {
    let count = c.op.schema.index_of("return_indices").unwrap_or(c.args.len());
    let dtype = c.args.first().and_then(Val::as_leaf).map(Traced::dtype);
    if let (Some(d), "max_pool1d", false) = (dtype.filter(|d| !d.is_float()), c.op.name, c.bool("return_indices")?) {
        return Err(not_implemented("max_pool1d_impl", d));
    }
    let results = b.call(op, c.args[..count].to_vec())?;
    if c.bool("return_indices")? {
        return Ok(results);
    }
    let first = results.items().and_then(|v| v.first()).cloned();
    first.ok_or_else(|| OpError::arg("self", format!("`{op}` returns two tensors")))
}

fn avg_type(c: &Call<TensorType>, n: usize) -> OpResult<Type> {
    let p = Pool::from_call(c, n, Kind::Average)?;
    if c.op.schema.index_of("divisor_override").is_some() && c.opt_int("divisor_override")? == Some(0) {
        return Err(OpError::arg("divisor_override", "divisor must be not zero"));
    }
    Ok(leaf_type(p.dtype, p.out))
}

fn adaptive_type(c: &Call<TensorType>, n: usize, kind: Kind) -> OpResult<Type> {
    let p = Pool::from_call(c, n, kind)?;
    Ok(match kind {
        Kind::AdaptiveMax => Val::Tuple(vec![leaf_type(p.dtype, p.out.clone()), leaf_type(DType::I64, p.out)]),
        _ => leaf_type(p.dtype, p.out),
    })
}

/// As in torch: `(relu(sign(mean)) * |mean| * size) ** (1 / p)`, with the mean of the p-th powers.
fn lp_pool(b: &mut dyn Build, c: &Call<Traced>, pool: OpId) -> OpResult<Val<Traced>> {
    let (x, p) = (c.leaf("input")?, c.f64("norm_type")?);
    let kernel = c.ints("kernel_size")?;
    let power = b.pow(x, Val::Float(p))?;
    let zero = ints_val(&vec![0; kernel.len()]);
    let args = vec![
        power.into(),
        c.get("kernel_size").clone(),
        c.get("stride").clone(),
        zero,
        c.get("ceil_mode").clone(),
    ];
    let mean = b.op(pool, args)?;
    let sign = b.sign(&mean)?;
    let abs = b.abs(&mean)?;
    let abs = b.relu(&abs)?;
    let y = b.mul(&sign, &abs)?;
    let count = kernel.iter().fold(1i64, |n, k| n.saturating_mul(*k));
    let y = b.mul(&y, Val::int(count))?;
    b.pow(&y, Val::Float(1.0 / p)).map(Val::Leaf)
}
