//! Pooling: maxima and means over windows.

use super::pool_window::{Kind, Pool, averages, maxima};
use crate::op::emit::ints_val;
use crate::op::{Build, Call, Meaning, Op, OpError, OpResult, Traced};
use crate::types::{DType, TensorType, Type, Val};

/// The rows.
pub fn rows() -> Vec<Op> {
    let mut v = vec![];
    for n in 1..=3 {
        v.extend(max_rows(n));
        v.push(avg_row(n));
        v.extend(adaptive_rows(n));
    }
    v.extend(lp_rows());
    v
}

fn leaf(dtype: DType, shape: Vec<crate::types::Dim>) -> Type {
    Val::Leaf(TensorType::new(dtype, shape))
}

fn max_types(c: &Call<TensorType>, n: usize) -> OpResult<Type> {
    let p = Pool::of(c, n, Kind::Max)?;
    Ok(Val::Tuple(vec![leaf(p.dtype, p.out.clone()), leaf(DType::I64, p.out)]))
}

/// `max_pool{n}d_with_indices` and the pools that use it.
fn max_rows(n: usize) -> [Op; 2] {
    const SCHEMAS: [(&str, &str); 3] = [
        (
            "max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1]? stride=[], int[1] padding=0, int[1] dilation=1, \
             bool ceil_mode=False) -> (Tensor, Tensor)",
            "max_pool1d(Tensor self, int[1] kernel_size, int[1]? stride=[], int[1] padding=0, int[1] dilation=1, bool \
             ceil_mode=False, bool return_indices=False) -> Tensor",
        ),
        (
            "max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2]? stride=[], int[2] padding=0, int[2] dilation=1, \
             bool ceil_mode=False) -> (Tensor, Tensor)",
            "max_pool2d(Tensor self, int[2] kernel_size, int[2]? stride=[], int[2] padding=0, int[2] dilation=1, bool \
             ceil_mode=False, bool return_indices=False) -> Tensor",
        ),
        (
            "max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3]? stride=[], int[3] padding=0, int[3] dilation=1, \
             bool ceil_mode=False) -> (Tensor, Tensor)",
            "max_pool3d(Tensor self, int[3] kernel_size, int[3]? stride=[], int[3] padding=0, int[3] dilation=1, bool \
             ceil_mode=False, bool return_indices=False) -> Tensor",
        ),
    ];
    let (with, without) = SCHEMAS[n - 1];
    let indexed = match n {
        1 => Op::new("max_pool1d_with_indices", with, |c, _| max_types(c, 1), Meaning::Routine(|c| maxima(c, 1)))
            .spelled("aten.max_pool1d_with_indices.default torch.max_pool1d_with_indices torch.nn.functional.max_pool1d_with_indices"),
        2 => Op::new("max_pool2d_with_indices", with, |c, _| max_types(c, 2), Meaning::Routine(|c| maxima(c, 2)))
            .spelled("aten.max_pool2d_with_indices.default torch._C._nn.max_pool2d_with_indices torch.nn.functional.max_pool2d_with_indices"),
        _ => Op::new("max_pool3d_with_indices", with, |c, _| max_types(c, 3), Meaning::Routine(|c| maxima(c, 3)))
            .spelled("aten.max_pool3d_with_indices.default torch._C._nn.max_pool3d_with_indices torch.nn.functional.max_pool3d_with_indices"),
    };
    let plain = match n {
        1 => Op::composite("max_pool1d", without, |b, c| first_of(b, c, "max_pool1d_with_indices"))
            .spelled("aten.max_pool1d.default torch.max_pool1d torch.nn.functional.max_pool1d")
            .module(
                "MaxPool1d(kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False) = \
                 max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode) when return_indices=False",
            ),
        2 => Op::composite("max_pool2d", without, |b, c| first_of(b, c, "max_pool2d_with_indices"))
            .spelled("aten.max_pool2d.default torch.max_pool2d torch.nn.functional.max_pool2d")
            .module(
                "MaxPool2d(kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False) = \
                 max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode) when return_indices=False",
            ),
        _ => Op::composite("max_pool3d", without, |b, c| first_of(b, c, "max_pool3d_with_indices"))
            .spelled("aten.max_pool3d.default torch.max_pool3d torch.nn.functional.max_pool3d")
            .module(
                "MaxPool3d(kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False) = \
                 max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode) when return_indices=False",
            ),
    };
    let module = [
        "MaxPool1d(kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False) = \
         max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)",
        "MaxPool2d(kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False) = \
         max_pool2d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)",
        "MaxPool3d(kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False) = \
         max_pool3d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)",
    ][n - 1];
    [
        indexed
            .doc("the maximum of every window, and where it is")
            .module(module),
        plain.doc("the maximum of every window"),
    ]
}

fn first_of(b: &mut dyn Build, c: &Call<Traced>, op: &str) -> OpResult<Val<Traced>> {
    let both = b.call(op, c.args[..6].to_vec())?;
    // The functions of torch.nn take `return_indices`.
    if c.bool("return_indices")? {
        return Ok(both);
    }
    let first = both.items().and_then(|v| v.first()).cloned();
    first.ok_or_else(|| OpError::arg("self", format!("`{op}` gives two tensors")))
}

fn avg_type(c: &Call<TensorType>, n: usize) -> OpResult<Type> {
    let p = Pool::of(c, n, Kind::Average)?;
    if p.dtype == DType::B8 {
        return Err(crate::op::pointwise::not_implemented("avg_pool2d_out_frame", p.dtype));
    }
    Ok(leaf(p.dtype, p.out))
}

fn avg_row(n: usize) -> Op {
    match n {
        1 => Op::new(
            "avg_pool1d",
            "avg_pool1d(Tensor self, int[1] kernel_size, int[1]? stride=[], int[1] padding=0, bool ceil_mode=False, bool \
             count_include_pad=True) -> Tensor",
            |c, _| avg_type(c, 1),
            Meaning::Routine(|c| averages(c, 1)),
        )
        .spelled("aten.avg_pool1d.default torch.avg_pool1d torch.nn.functional.avg_pool1d")
        .module(
            "AvgPool1d(kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True) = avg_pool1d(input, \
             kernel_size, stride, padding, ceil_mode, count_include_pad)",
        ),
        2 => Op::new(
            "avg_pool2d",
            "avg_pool2d(Tensor self, int[2] kernel_size, int[2]? stride=[], int[2] padding=0, bool ceil_mode=False, bool \
             count_include_pad=True, int? divisor_override=None) -> Tensor",
            |c, _| avg_type(c, 2),
            Meaning::Routine(|c| averages(c, 2)),
        )
        .spelled("aten.avg_pool2d.default torch._C._nn.avg_pool2d torch.nn.functional.avg_pool2d")
        .module(
            "AvgPool2d(kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None) = \
             avg_pool2d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)",
        ),
        _ => Op::new(
            "avg_pool3d",
            "avg_pool3d(Tensor self, int[3] kernel_size, int[3]? stride=[], int[3] padding=0, bool ceil_mode=False, bool \
             count_include_pad=True, int? divisor_override=None) -> Tensor",
            |c, _| avg_type(c, 3),
            Meaning::Routine(|c| averages(c, 3)),
        )
        .spelled("aten.avg_pool3d.default torch._C._nn.avg_pool3d torch.nn.functional.avg_pool3d")
        .module(
            "AvgPool3d(kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None) = \
             avg_pool3d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)",
        ),
    }
    .doc("the mean of every window")
}

fn adaptive_type(c: &Call<TensorType>, n: usize, kind: Kind) -> OpResult<Type> {
    let p = Pool::of(c, n, kind)?;
    Ok(match kind {
        Kind::AdaptiveMax => Val::Tuple(vec![leaf(p.dtype, p.out.clone()), leaf(DType::I64, p.out)]),
        _ => leaf(p.dtype, p.out),
    })
}

fn adaptive_rows(n: usize) -> Vec<Op> {
    const AVG: Kind = Kind::AdaptiveAverage;
    const MAX: Kind = Kind::AdaptiveMax;
    let mut v = match n {
        1 => vec![
            Op::new(
                "adaptive_avg_pool1d",
                "adaptive_avg_pool1d(Tensor self, Any output_size) -> Tensor",
                |c, _| adaptive_type(c, 1, AVG),
                Meaning::Routine(|c| averages(c, 1)),
            )
            .spelled("aten.adaptive_avg_pool1d.default torch.adaptive_avg_pool1d torch.nn.functional.adaptive_avg_pool1d")
            .module("AdaptiveAvgPool1d(output_size) = adaptive_avg_pool1d(input, output_size)"),
            Op::new(
                "adaptive_max_pool1d_with_indices",
                "adaptive_max_pool1d_with_indices(Tensor self, Any output_size) -> (Tensor, Tensor)",
                |c, _| adaptive_type(c, 1, MAX),
                Meaning::Routine(|c| maxima(c, 1)),
            )
            .spelled("aten.adaptive_max_pool1d.default torch.adaptive_max_pool1d torch.nn.functional.adaptive_max_pool1d_with_indices"),
            Op::composite("adaptive_max_pool1d", ADAPTIVE_MAX[0], |b, c| adaptive_first(b, c, "adaptive_max_pool1d_with_indices"))
                .spelled("torch.nn.functional.adaptive_max_pool1d")
                .module("AdaptiveMaxPool1d(output_size, return_indices=False) = adaptive_max_pool1d(input, output_size, return_indices)"),
        ],
        2 => vec![
            Op::new(
                "adaptive_avg_pool2d",
                "adaptive_avg_pool2d(Tensor self, Any output_size) -> Tensor",
                |c, _| adaptive_type(c, 2, AVG),
                Meaning::Routine(|c| averages(c, 2)),
            )
            .spelled(
                "aten.adaptive_avg_pool2d.default aten._adaptive_avg_pool2d.default torch._C._nn.adaptive_avg_pool2d \
                 torch._adaptive_avg_pool2d torch.nn.functional.adaptive_avg_pool2d",
            )
            .module("AdaptiveAvgPool2d(output_size) = adaptive_avg_pool2d(input, output_size)"),
            Op::new(
                "adaptive_max_pool2d_with_indices",
                "adaptive_max_pool2d_with_indices(Tensor self, Any output_size) -> (Tensor, Tensor)",
                |c, _| adaptive_type(c, 2, MAX),
                Meaning::Routine(|c| maxima(c, 2)),
            )
            .spelled("aten.adaptive_max_pool2d.default torch._C._nn.adaptive_max_pool2d torch.nn.functional.adaptive_max_pool2d_with_indices"),
            Op::composite("adaptive_max_pool2d", ADAPTIVE_MAX[1], |b, c| adaptive_first(b, c, "adaptive_max_pool2d_with_indices"))
                .spelled("torch.nn.functional.adaptive_max_pool2d")
                .module("AdaptiveMaxPool2d(output_size, return_indices=False) = adaptive_max_pool2d(input, output_size, return_indices)"),
        ],
        _ => vec![
            Op::new(
                "adaptive_avg_pool3d",
                "adaptive_avg_pool3d(Tensor self, Any output_size) -> Tensor",
                |c, _| adaptive_type(c, 3, AVG),
                Meaning::Routine(|c| averages(c, 3)),
            )
            .spelled(
                "aten.adaptive_avg_pool3d.default aten._adaptive_avg_pool3d.default torch._C._nn.adaptive_avg_pool3d \
                 torch._adaptive_avg_pool3d torch.nn.functional.adaptive_avg_pool3d",
            )
            .module("AdaptiveAvgPool3d(output_size) = adaptive_avg_pool3d(input, output_size)"),
            Op::new(
                "adaptive_max_pool3d_with_indices",
                "adaptive_max_pool3d_with_indices(Tensor self, Any output_size) -> (Tensor, Tensor)",
                |c, _| adaptive_type(c, 3, MAX),
                Meaning::Routine(|c| maxima(c, 3)),
            )
            .spelled("aten.adaptive_max_pool3d.default torch._C._nn.adaptive_max_pool3d torch.nn.functional.adaptive_max_pool3d_with_indices"),
            Op::composite("adaptive_max_pool3d", ADAPTIVE_MAX[2], |b, c| adaptive_first(b, c, "adaptive_max_pool3d_with_indices"))
                .spelled("torch.nn.functional.adaptive_max_pool3d")
                .module("AdaptiveMaxPool3d(output_size, return_indices=False) = adaptive_max_pool3d(input, output_size, return_indices)"),
        ],
    };
    let docs = [
        "means of windows chosen so that the result has the given size",
        "maxima of windows chosen so that the result has the given size, and where they are",
        "maxima of windows chosen so that the result has the given size",
    ];
    v = v.into_iter().zip(docs).map(|(op, doc)| op.doc(doc)).collect();
    v
}

const ADAPTIVE_MAX: [&str; 3] = [
    "adaptive_max_pool1d(Tensor self, Any output_size, bool return_indices=False) -> Tensor",
    "adaptive_max_pool2d(Tensor self, Any output_size, bool return_indices=False) -> Tensor",
    "adaptive_max_pool3d(Tensor self, Any output_size, bool return_indices=False) -> Tensor",
];

fn adaptive_first(b: &mut dyn Build, c: &Call<Traced>, op: &str) -> OpResult<Val<Traced>> {
    let both = b.call(op, c.args[..2].to_vec())?;
    if c.bool("return_indices")? {
        return Ok(both);
    }
    let first = both.items().and_then(|v| v.first()).cloned();
    first.ok_or_else(|| OpError::arg("self", format!("`{op}` gives two tensors")))
}

fn lp_rows() -> Vec<Op> {
    vec![
        Op::composite(
            "lp_pool1d",
            "lp_pool1d(Tensor input, float norm_type, int[1] kernel_size, int[1]? stride=None, bool ceil_mode=False) -> Tensor",
            |b, c| lp_pool(b, c, "avg_pool1d"),
        )
        .doc("the p-norm of every window")
        .spelled("torch.nn.functional.lp_pool1d")
        .module(
            "LPPool1d(norm_type, kernel_size, stride=None, ceil_mode=False) = lp_pool1d(input, norm_type, kernel_size, stride, \
             ceil_mode)",
        ),
        Op::composite(
            "lp_pool2d",
            "lp_pool2d(Tensor input, float norm_type, int[2] kernel_size, int[2]? stride=None, bool ceil_mode=False) -> Tensor",
            |b, c| lp_pool(b, c, "avg_pool2d"),
        )
        .doc("the p-norm of every window")
        .spelled("torch.nn.functional.lp_pool2d")
        .module(
            "LPPool2d(norm_type, kernel_size, stride=None, ceil_mode=False) = lp_pool2d(input, norm_type, kernel_size, stride, \
             ceil_mode)",
        ),
        Op::composite(
            "lp_pool3d",
            "lp_pool3d(Tensor input, float norm_type, int[3] kernel_size, int[3]? stride=None, bool ceil_mode=False) -> Tensor",
            |b, c| lp_pool(b, c, "avg_pool3d"),
        )
        .doc("the p-norm of every window")
        .spelled("torch.nn.functional.lp_pool3d")
        .module(
            "LPPool3d(norm_type, kernel_size, stride=None, ceil_mode=False) = lp_pool3d(input, norm_type, kernel_size, stride, \
             ceil_mode)",
        ),
    ]
}

/// As torch writes it: `(relu(sign(mean)) * |mean| * size) ** (1 / p)` of the powers.
fn lp_pool(b: &mut dyn Build, c: &Call<Traced>, pool: &str) -> OpResult<Val<Traced>> {
    let (x, p) = (c.leaf("input")?, c.f64("norm_type")?);
    let kernel = c.ints("kernel_size")?;
    let power = b.binary("pow", x, Val::Float(p))?;
    let zero = ints_val(&vec![0; kernel.len()]);
    let args = vec![
        power.into(),
        c.get("kernel_size").clone(),
        c.get("stride").clone(),
        zero,
        c.get("ceil_mode").clone(),
    ];
    let mean = b.op(pool, args)?;
    let sign = b.unary("sign", &mean)?;
    let abs = b.unary("abs", &mean)?;
    let abs = b.unary("relu", &abs)?;
    let y = b.binary("mul", &sign, &abs)?;
    let count: i64 = kernel.iter().product();
    let y = b.binary("mul", &y, Val::int(count))?;
    b.binary("pow", &y, Val::Float(1.0 / p)).map(Val::Leaf)
}
