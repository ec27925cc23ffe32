//! Pooling: maxima and means over windows.

pub(super) mod unpool;
pub(super) mod window;

use self::window::{Kind, Pool, averages, maxima};
use crate::op::emit::ints_val;
use crate::op::{Build, Call, Meaning, Op, OpError, OpResult, Traced};
use crate::types::{DType, TensorType, Type, Val};

/// `max_pool{n}d_with_indices`, also called as `$indexed`, and the pool that uses it.
macro_rules! max_rows {
    ($n:literal, $indexed:literal) => {
        [
            Op::new(
                concat!("max_pool", $n, "d_with_indices"),
                concat!(
                    "max_pool",
                    $n,
                    "d_with_indices(Tensor self, int[",
                    $n,
                    "] kernel_size, int[",
                    $n,
                    "]? stride=[], \
                     int[",
                    $n,
                    "] padding=0, int[",
                    $n,
                    "] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)"
                ),
                |c, _| max_types(c, $n),
                Meaning::Routine(|c| maxima(c, $n)),
            )
            .doc("the maximum of every window, and where it is")
            .spelled(concat!("aten.max_pool", $n, "d_with_indices.default ", $indexed))
            .form(
                concat!("torch.nn.functional.max_pool", $n, "d_with_indices"),
                concat!(
                    "max_pool",
                    $n,
                    "d(Tensor input, int[",
                    $n,
                    "] kernel_size, int[",
                    $n,
                    "]? stride=None, int[",
                    $n,
                    "] padding=0, int[",
                    $n,
                    "] dilation=1, bool ceil_mode=False, bool return_indices=False) -> (Tensor, Tensor)"
                ),
            )
            .module(concat!(
                "MaxPool",
                $n,
                "d(kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False) = \
                 max_pool",
                $n,
                "d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)"
            )),
            Op::composite(
                concat!("max_pool", $n, "d"),
                concat!(
                    "max_pool",
                    $n,
                    "d(Tensor self, int[",
                    $n,
                    "] kernel_size, int[",
                    $n,
                    "]? stride=[], int[",
                    $n,
                    "] \
                     padding=0, int[",
                    $n,
                    "] dilation=1, bool ceil_mode=False, bool return_indices=False) -> Tensor"
                ),
                |b, c| first_of(b, c, concat!("max_pool", $n, "d_with_indices")),
            )
            .doc("the maximum of every window")
            .spelled(concat!(
                "aten.max_pool",
                $n,
                "d.default torch.max_pool",
                $n,
                "d torch.nn.functional.max_pool",
                $n,
                "d"
            ))
            .module(concat!(
                "MaxPool",
                $n,
                "d(kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False) = \
                 max_pool",
                $n,
                "d(input, kernel_size, stride, padding, dilation, ceil_mode) when return_indices=False"
            )),
        ]
    };
}

/// `avg_pool{n}d`, also called as `$name`, with further parameters of the schema, of the module, and how they are passed.
macro_rules! avg_row {
    ($n:literal, $name:literal, $schema:literal, $params:literal, $args:literal) => {
        Op::new(
            concat!("avg_pool", $n, "d"),
            concat!(
                "avg_pool",
                $n,
                "d(Tensor self, int[",
                $n,
                "] kernel_size, int[",
                $n,
                "]? stride=[], int[",
                $n,
                "] padding=0, \
                 bool ceil_mode=False, bool count_include_pad=True",
                $schema,
                ") -> Tensor"
            ),
            |c, _| avg_type(c, $n),
            Meaning::Routine(|c| averages(c, $n)),
        )
        .doc("the mean of every window")
        .spelled(concat!(
            "aten.avg_pool",
            $n,
            "d.default ",
            $name,
            " torch.nn.functional.avg_pool",
            $n,
            "d"
        ))
        .module(concat!(
            "AvgPool",
            $n,
            "d(kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True",
            $params,
            ") = \
             avg_pool",
            $n,
            "d(input, kernel_size, stride, padding, ceil_mode, count_include_pad",
            $args,
            ")"
        ))
    };
}

/// [`avg_row`] of the dims that may divide by another number.
macro_rules! avg_row_with_divisor {
    (2) => {
        avg_row!(
            2,
            "torch._C._nn.avg_pool2d",
            ", int? divisor_override=None",
            ", divisor_override=None",
            ", divisor_override"
        )
    };
    (3) => {
        avg_row!(
            3,
            "torch._C._nn.avg_pool3d",
            ", int? divisor_override=None",
            ", divisor_override=None",
            ", divisor_override"
        )
    };
}

/// `adaptive_avg_pool{n}d` and `adaptive_max_pool{n}d`, also called as `$avg` and `$max`.
macro_rules! adaptive_rows {
    ($n:literal, $avg:literal, $max:literal) => {
        [
            Op::new(
                concat!("adaptive_avg_pool", $n, "d"),
                concat!("adaptive_avg_pool", $n, "d(Tensor self, Any output_size) -> Tensor"),
                |c, _| adaptive_type(c, $n, Kind::AdaptiveAverage),
                Meaning::Routine(|c| averages(c, $n)),
            )
            .doc("means of windows chosen so that the result has the given size")
            .spelled(concat!(
                "aten.adaptive_avg_pool",
                $n,
                "d.default ",
                $avg,
                " torch.nn.functional.adaptive_avg_pool",
                $n,
                "d"
            ))
            .module(concat!(
                "AdaptiveAvgPool",
                $n,
                "d(output_size) = adaptive_avg_pool",
                $n,
                "d(input, output_size)"
            )),
            Op::new(
                concat!("adaptive_max_pool", $n, "d_with_indices"),
                concat!(
                    "adaptive_max_pool",
                    $n,
                    "d_with_indices(Tensor self, Any output_size) -> (Tensor, Tensor)"
                ),
                |c, _| adaptive_type(c, $n, Kind::AdaptiveMax),
                Meaning::Routine(|c| maxima(c, $n)),
            )
            .doc("maxima of windows chosen so that the result has the given size, and where they are")
            .spelled(concat!("aten.adaptive_max_pool", $n, "d.default ", $max))
            .form(
                concat!("torch.nn.functional.adaptive_max_pool", $n, "d_with_indices"),
                concat!(
                    "adaptive_max_pool",
                    $n,
                    "d(Tensor input, Any output_size, bool return_indices=False) -> (Tensor, Tensor)"
                ),
            ),
            Op::composite(
                concat!("adaptive_max_pool", $n, "d"),
                concat!(
                    "adaptive_max_pool",
                    $n,
                    "d(Tensor self, Any output_size, bool return_indices=False) -> Tensor"
                ),
                |b, c| adaptive_first(b, c, concat!("adaptive_max_pool", $n, "d_with_indices")),
            )
            .doc("maxima of windows chosen so that the result has the given size")
            .spelled(concat!("torch.nn.functional.adaptive_max_pool", $n, "d"))
            .module(concat!(
                "AdaptiveMaxPool",
                $n,
                "d(output_size, return_indices=False) = adaptive_max_pool",
                $n,
                "d(input, output_size, \
                 return_indices)"
            )),
        ]
    };
}

/// The rows.
pub fn rows() -> Vec<Op> {
    let mut v = vec![];
    v.extend(max_rows!(1, "torch.max_pool1d_with_indices"));
    v.push(avg_row!(1, "torch.avg_pool1d", "", "", ""));
    v.extend(adaptive_rows!(
        1,
        "torch.adaptive_avg_pool1d",
        "torch.adaptive_max_pool1d"
    ));
    v.extend(max_rows!(2, "torch._C._nn.max_pool2d_with_indices"));
    v.push(avg_row_with_divisor!(2));
    v.extend(adaptive_rows!(
        2,
        "aten._adaptive_avg_pool2d.default torch._C._nn.adaptive_avg_pool2d torch._adaptive_avg_pool2d",
        "torch._C._nn.adaptive_max_pool2d"
    ));
    v.extend(max_rows!(3, "torch._C._nn.max_pool3d_with_indices"));
    v.push(avg_row_with_divisor!(3));
    v.extend(adaptive_rows!(
        3,
        "aten._adaptive_avg_pool3d.default torch._C._nn.adaptive_avg_pool3d torch._adaptive_avg_pool3d",
        "torch._C._nn.adaptive_max_pool3d"
    ));
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
    if c.op.schema.index_of("divisor_override").is_some() && c.opt_int("divisor_override")? == Some(0) {
        return Err(OpError::arg("divisor_override", "divisor must be not zero"));
    }
    if p.dtype == DType::B8 {
        return Err(crate::op::pointwise::not_implemented("avg_pool2d_out_frame", p.dtype));
    }
    Ok(leaf(p.dtype, p.out))
}

fn adaptive_type(c: &Call<TensorType>, n: usize, kind: Kind) -> OpResult<Type> {
    let p = Pool::of(c, n, kind)?;
    Ok(match kind {
        Kind::AdaptiveMax => Val::Tuple(vec![leaf(p.dtype, p.out.clone()), leaf(DType::I64, p.out)]),
        _ => leaf(p.dtype, p.out),
    })
}

fn adaptive_first(b: &mut dyn Build, c: &Call<Traced>, op: &str) -> OpResult<Val<Traced>> {
    let both = b.call(op, c.args[..2].to_vec())?;
    if c.bool("return_indices")? {
        return Ok(both);
    }
    let first = both.items().and_then(|v| v.first()).cloned();
    first.ok_or_else(|| OpError::arg("self", format!("`{op}` gives two tensors")))
}

fn lp_rows() -> Vec<Op> {
    macro_rules! lp_pool {
        ($n:literal) => {
            Op::composite(
                concat!("lp_pool", $n, "d"),
                concat!(
                    "lp_pool",
                    $n,
                    "d(Tensor input, float norm_type, int[",
                    $n,
                    "] kernel_size, int[",
                    $n,
                    "]? stride=None, bool ceil_mode=False) -> Tensor"
                ),
                |b, c| lp_pool(b, c, concat!("avg_pool", $n, "d")),
            )
            .doc("the p-norm of every window")
            .spelled(concat!("torch.nn.functional.lp_pool", $n, "d"))
            .module(concat!(
                "LPPool",
                $n,
                "d(norm_type, kernel_size, stride=None, ceil_mode=False) = lp_pool",
                $n,
                "d(input, norm_type, kernel_size, stride, ceil_mode)"
            ))
        };
    }
    vec![lp_pool!("1"), lp_pool!("2"), lp_pool!("3")]
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
    let count = kernel.iter().fold(1i64, |n, k| n.saturating_mul(*k));
    let y = b.binary("mul", &y, Val::int(count))?;
    b.binary("pow", &y, Val::Float(1.0 / p)).map(Val::Leaf)
}
