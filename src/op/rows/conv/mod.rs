//! Convolutions.

mod checks;
mod fold;
mod tbc;

use self::checks::{check_bias, check_channels, check_not_empty, check_operands, check_result};
use crate::op::emit::ints_val;
use crate::op::rows::matmul::{contract_op, contracted};
use crate::op::rows::spell::{list_text, text};
use crate::op::{Build, Call, Contraction, Convolution, Meaning, Op, OpError, OpId, OpResult, Sizes, Traced};
use crate::types::{Dim, TensorType, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut v = vec![convolution_row()];
    v.extend([
        conv_row::<1>("[1]"),
        conv_mode_row::<1>(),
        conv_transpose_row::<1>("default"),
    ]);
    v.extend([
        conv_row::<2>("[1, 1]"),
        conv_mode_row::<2>(),
        conv_transpose_row::<2>("input"),
    ]);
    v.extend([
        conv_row::<3>("[1, 1, 1]"),
        conv_mode_row::<3>(),
        conv_transpose_row::<3>("input"),
    ]);
    v.extend(tbc::rows());
    v.extend(fold::rows());
    v
}

fn convolution_row() -> Op {
    contract_op!("convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, \
         bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
        convolution
    )
    .doc("convolution or transposed convolution over 1 to 3 dims")
    .spelled("aten.@ torch.@")
    .form(
        "aten._convolution.default",
        "_convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, \
         bool transposed, SymInt[] output_padding, SymInt groups, bool benchmark, bool deterministic, bool cudnn_enabled, \
         bool allow_tf32) -> Tensor",
    )
    .form(
        "aten._convolution.deprecated",
        "_convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, \
         bool transposed, int[] output_padding, SymInt groups, bool benchmark, bool deterministic, bool cudnn_enabled) -> \
         Tensor",
    )
}

fn conv_module<const N: usize>() -> &'static str {
    text!(
        "Conv{N}d(in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True, \
         padding_mode='zeros')"
    )
}

/// `conv{N}d` with the default list `ones`.
fn conv_row<const N: usize>(ones: &str) -> Op {
    let module = conv_module::<N>();
    Op::composite(
        (
            text!("conv{N}d"),
            text!(
                "conv{N}d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[{N}] stride={ones}, Any padding=0, \
             SymInt[{N}] dilation={ones}, SymInt groups=1) -> Tensor"
            ),
        ),
        |b, c| conv_nd(b, c, N),
    )
    .doc("convolution; the padding is numeric, 'valid' or 'same'")
    .spelled(text!(
        "aten.conv{N}d.default aten.conv{N}d.padding torch.conv{N}d torch.nn.functional.conv{N}d"
    ))
    .module(text!(
        "{module} = conv{N}d(input, @weight[out_channels, in_channels // groups, *kernel_size:{N}], \
         @bias[out_channels] if bias, stride, padding, dilation, groups) when \
         padding_mode='zeros'"
    ))
}

/// `conv{N}d` for modules with a padding mode other than zeros.
fn conv_mode_row<const N: usize>() -> Op {
    let module = conv_module::<N>();
    Op::composite(
        (
            text!("conv{N}d_mode"),
            text!(
                "conv{N}d_mode(Tensor input, Tensor weight, Tensor? bias=None, SymInt[{N}] stride=[1], Any padding=0, \
             SymInt[{N}] dilation=[1], SymInt groups=1, str padding_mode='zeros') -> Tensor"
            ),
        ),
        |b, c| conv_mode(b, c, N),
    )
    .doc("convolution of an input padded in the given mode of `pad`")
    .module(text!(
        "{module} = conv{N}d_mode(input, @weight[out_channels, in_channels // groups, *kernel_size:{N}], \
         @bias[out_channels] if bias, stride, padding, dilation, groups, padding_mode)"
    ))
}

/// The transposed convolution of `N` dims with the overload name `overload`.
fn conv_transpose_row<const N: usize>(overload: &str) -> Op {
    Op::composite(
        (
            text!("conv_transpose{N}d"),
            text!(
                "conv_transpose{N}d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[{N}] stride=[1], \
             SymInt[{N}] padding=[0], SymInt[{N}] output_padding=[0], SymInt groups=1, SymInt[{N}] dilation=[1]) \
             -> Tensor"
            ),
        ),
        |b, c| conv_transpose(b, c, N),
    )
    .doc("transposed convolution: the gradient of a convolution with respect to its input")
    .spelled(text!(
        "aten.conv_transpose{N}d.{overload} torch.conv_transpose{N}d torch.nn.functional.conv_transpose{N}d"
    ))
    .module(text!(
        "ConvTranspose{N}d(in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, \
         groups=1, bias=True, dilation=1, padding_mode='zeros') = conv_transpose{N}d(input, \
         @weight[in_channels, out_channels // groups, *kernel_size:{N}], @bias[out_channels] if bias, stride, \
         padding, output_padding, groups, dilation)"
    ))
}

/// One number per spatial dim; a single number applies to all dims.
fn per_dim(c: &Call<TensorType>, name: &str, n: usize) -> OpResult<Vec<i64>> {
    let v = c.ints(name)?;
    match v.len() {
        1 => Ok(vec![v[0]; n]),
        len if len == n => Ok(v),
        _ => Err(OpError::shape(format!(
            "expected {name} to be a single integer value or a list of {n} values to match the convolution dimensions, but \
             got {name}={v:?}"
        ))),
    }
}

/// Settings per spatial dim, checked with torch's errors.
struct ConvSettings {
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
    output_padding: Vec<i64>,
    groups: i64,
    transposed: bool,
}

impl ConvSettings {
    fn from_call(c: &Call<TensorType>, n: usize) -> OpResult<ConvSettings> {
        let s = ConvSettings {
            stride: per_dim(c, "stride", n)?,
            padding: per_dim(c, "padding", n)?,
            dilation: per_dim(c, "dilation", n)?,
            output_padding: per_dim(c, "output_padding", n)?,
            groups: c.int("groups")?,
            transposed: c.bool("transposed")?,
        };
        let fail = |title: String| Err(OpError::shape(title));
        if s.padding.iter().any(|&p| p < 0) {
            return fail("negative padding is not supported".into());
        }
        if s.output_padding.iter().any(|&p| p < 0) {
            return fail("negative output_padding is not supported".into());
        }
        if s.stride.iter().any(|&x| x <= 0) {
            return fail("non-positive stride is not supported".into());
        }
        if s.groups <= 0 {
            return fail("non-positive groups is not supported".into());
        }
        if s.dilation.iter().any(|&x| x <= 0) {
            return fail(format!(
                "dilation should be greater than zero, but got {:?}",
                s.dilation
            ));
        }
        let too_far = |d: usize| s.output_padding[d] >= s.stride[d].max(s.dilation[d]);
        if s.transposed && (0..n).any(too_far) {
            return fail(format!(
                "output padding must be smaller than either stride or dilation, but got output_padding: {:?} stride: {:?} \
                 dilation: {:?}",
                s.output_padding, s.stride, s.dilation
            ));
        }
        Ok(s)
    }

    /// The spatial size of the result.
    fn out_size(&self, d: usize, input: &Dim, kernel: &Dim) -> Dim {
        let c = Dim::Const;
        let reach = kernel.sub(&c(1)).mul(&c(self.dilation[d]));
        if self.transposed {
            let base = input.sub(&c(1)).mul(&c(self.stride[d]));
            return base
                .sub(&c(self.padding[d].saturating_mul(2)))
                .add(&reach)
                .add(&c(self.output_padding[d] + 1));
        }
        let room = input.add(&c(self.padding[d].saturating_mul(2))).sub(&reach).sub(&c(1));
        room.floordiv(&c(self.stride[d])).add(&c(1))
    }
}

fn convolution(c: &Call<TensorType>, s: &mut Sizes) -> OpResult<Contraction> {
    let (dtype, x) = c.shaped("input")?;
    let w = c.shaped("weight")?.1;
    check_operands(c, x, w)?;
    let n = w.len() - 2;
    let set = ConvSettings::from_call(c, n)?;
    let groups = Dim::Const(set.groups);
    check_channels(x, w, &set, s)?;
    let channels = if set.transposed {
        w[1].mul(&groups)
    } else {
        w[0].clone()
    };
    check_bias(c, dtype, w, &channels, set.transposed, s)?;
    // For an input without channels torch returns no channels, whatever the weight's shape is.
    let channels = if x[1] == Dim::Const(0) { x[1].clone() } else { channels };
    let mut out = vec![x[0].clone(), channels];
    for d in 0..n {
        out.push(set.out_size(d, &x[d + 2], &w[d + 2]));
    }
    check_result(x, w, &set, &out)?;
    check_not_empty(x, w)?;
    let sizes = |v: &[i64]| v.iter().map(|&x| x as usize).collect::<Vec<_>>();
    Ok(Contraction::Conv(Convolution {
        input: 0,
        weight: 1,
        bias: (!c.is_none("bias")).then_some(2),
        stride: sizes(&set.stride),
        padding: sizes(&set.padding),
        dilation: sizes(&set.dilation),
        transposed: set.transposed,
        output_padding: sizes(&set.output_padding),
        groups: set.groups as usize,
        out: TensorType::new(dtype, out),
    }))
}

/// The input with a batch dim, and whether it was added.
pub(in crate::op::rows) fn ensure_batch_dim(
    b: &mut dyn Build,
    x: &Traced,
    n: usize,
    op: &str,
) -> OpResult<(Traced, bool)> {
    match x.rank()? {
        r if r == n + 2 => Ok((x.clone(), false)),
        r if r == n + 1 => Ok((b.unsqueeze(x, 0)?, true)),
        _ => Err(OpError::shape(format!(
            "Expected {}D (unbatched) or {}D (batched) input to {op}, but got input of size: {}",
            n + 1,
            n + 2,
            list_text(x.shape()?)
        ))),
    }
}

/// The padding per spatial dim: `(before, after)`.
fn padding_of(c: &Call<Traced>, n: usize) -> OpResult<Vec<(i64, i64)>> {
    let Some(mode) = c.get("padding").as_str() else {
        return Ok(per_dim(&c.types(), "padding", n)?.into_iter().map(|p| (p, p)).collect());
    };
    match mode {
        "valid" => Ok(vec![(0, 0); n]),
        "same" => {
            let types = c.types();
            if per_dim(&types, "stride", n)?.iter().any(|&s| s != 1) {
                return Err(OpError::shape(
                    "padding='same' is not supported for strided convolutions",
                ));
            }
            let dilation = per_dim(&types, "dilation", n)?;
            let w = c.leaf("weight")?.shape()?;
            let total = |d: usize| {
                let k = w.get(d + 2).and_then(Dim::as_const);
                k.map(|k| dilation[d].saturating_mul(k - 1))
                    .ok_or_else(|| OpError::shape("padding='same' requires a weight with known sizes"))
            };
            (0..n).map(|d| total(d).map(|t| (t / 2, t - t / 2))).collect()
        }
        _ => Err(OpError::arg("padding", format!("Invalid padding string: '{mode}'"))),
    }
}

/// The list for `pad`: pairs, from the last dim to the first.
fn pad_list(sides: &[(i64, i64)]) -> Vec<i64> {
    sides.iter().rev().flat_map(|&(l, r)| [l, r]).collect()
}

fn conv_nd(b: &mut dyn Build, c: &Call<Traced>, n: usize) -> OpResult<Val<Traced>> {
    let (mut x, added) = ensure_batch_dim(b, c.leaf("input")?, n, c.op.name)?;
    let sides = padding_of(c, n)?;
    let even: Vec<i64> = if sides.iter().all(|(l, r)| l == r) {
        sides.iter().map(|s| s.0).collect()
    } else {
        x = b.op(
            OpId::ConstantPadNd,
            [(&x).into(), ints_val(&pad_list(&sides)), Val::int(0)],
        )?;
        vec![0; n]
    };
    let g = |name: &str| c.get(name).clone();
    let zeros = ints_val(&vec![0; n]);
    let args = vec![
        x.into(),
        g("weight"),
        g("bias"),
        g("stride"),
        ints_val(&even),
        g("dilation"),
        Val::Bool(false),
        zeros,
        g("groups"),
    ];
    let out = b.op(OpId::Convolution, args)?;
    if added { b.squeeze(&out, 0) } else { Ok(out) }.map(Val::Leaf)
}

fn conv_mode(b: &mut dyn Build, c: &Call<Traced>, rank: usize) -> OpResult<Val<Traced>> {
    let mut args = c.args[..7].to_vec();
    let mode = c.str("padding_mode")?;
    if mode != "zeros" {
        let n = c.leaf("weight")?.rank()?.saturating_sub(2);
        let sides = pad_list(&padding_of(c, n)?);
        args[0] = b.call(
            OpId::Pad,
            vec![c.get("input").clone(), ints_val(&sides), Val::str(mode)],
        )?;
        args[4] = Val::int(0);
    }
    b.call(OpId::for_dims([OpId::Conv1d, OpId::Conv2d, OpId::Conv3d], rank), args)
}

fn conv_transpose(b: &mut dyn Build, c: &Call<Traced>, n: usize) -> OpResult<Val<Traced>> {
    let (x, added) = ensure_batch_dim(b, c.leaf("input")?, n, c.op.name)?;
    let g = |name: &str| c.get(name).clone();
    let args = vec![
        x.into(),
        g("weight"),
        g("bias"),
        g("stride"),
        g("padding"),
        g("dilation"),
        Val::Bool(true),
        g("output_padding"),
        g("groups"),
    ];
    let out = b.op(OpId::Convolution, args)?;
    if added { b.squeeze(&out, 0) } else { Ok(out) }.map(Val::Leaf)
}
