//! What torch demands of the operands of a convolution.

use super::ConvSettings;
use crate::op::rows::spell::list_text;
use crate::op::{Call, OpError, OpResult, Sizes};
use crate::types::{Dim, TensorType};

/// Checks the ranks and dtypes of a convolution's input `x` and weight `w`.
pub(super) fn check_operands(c: &Call<TensorType>, x: &[Dim], w: &[Dim]) -> OpResult<()> {
    if !(3..=5).contains(&w.len()) {
        return Err(OpError::shape(format!(
            "weight should have at least three dimensions, got {}",
            list_text(w)
        )));
    }
    if x.len() != w.len() {
        return Err(OpError::shape(format!(
            "Expected {}-dimensional input for {}-dimensional weight {}, but got {}-dimensional input of size {} instead",
            w.len(),
            w.len(),
            list_text(w),
            x.len(),
            list_text(x)
        )));
    }
    let (dtype, weight_dtype) = (c.leaf("input")?.dtype, c.leaf("weight")?.dtype);
    if dtype != weight_dtype {
        return Err(OpError::dtype(format!(
            "expected scalar type {} but found {}",
            dtype.scalar_type_name(),
            weight_dtype.scalar_type_name()
        )));
    }
    Ok(())
}

pub(super) fn check_channels(x: &[Dim], w: &[Dim], set: &ConvSettings, s: &mut Sizes) -> OpResult<()> {
    let groups = set.groups;
    if let Some(c) = w[0].as_const().filter(|c| c % groups != 0 || *c < groups) {
        let requirement = if c < groups { "at least" } else { "divisible by" };
        return Err(OpError::shape(format!(
            "Given groups={groups}, expected weight to be {requirement} {groups} at dimension 0, but got weight of size [{}] instead",
            list_text(w)
        )));
    }
    let want = if set.transposed {
        w[0].clone()
    } else {
        w[1].mul(&Dim::Const(groups))
    };
    let setting = if set.transposed {
        "transposed=1".to_string()
    } else {
        format!("groups={groups}")
    };
    s.unify_dims(&want, &x[1], || {
        format!(
            "Given {setting}, weight of size {}, expected input{} to have {want} channels, but got {} channels instead",
            list_text(w),
            list_text(x),
            x[1]
        )
    })?;
    Ok(())
}

pub(super) fn check_bias(
    c: &Call<TensorType>,
    dtype: crate::types::DType,
    w: &[Dim],
    channels: &Dim,
    transposed: bool,
    s: &mut Sizes,
) -> OpResult<()> {
    if c.is_none("bias") {
        return Ok(());
    }
    let (d, b) = c.shaped("bias")?;
    if d != dtype {
        return Err(OpError::dtype(format!(
            "Input type ({}) and bias type ({}) should be the same",
            dtype.torch_name(),
            d.torch_name()
        )));
    }
    let setting = if transposed { "transposed=1, " } else { "" };
    let text = || {
        format!(
            "Given {setting}weight of size {}, expected bias to be 1-dimensional with {channels} elements, but got bias of size \
             {} instead",
            list_text(w),
            list_text(b)
        )
    };
    match b {
        [n] => s.unify_dims(channels, n, text).map(|_| ()),
        _ => Err(OpError::shape(text())),
    }
}

pub(super) fn check_result(x: &[Dim], w: &[Dim], set: &ConvSettings, out: &[Dim]) -> OpResult<()> {
    let negative = |d: &Dim, least: i64| d.as_const().is_some_and(|c| c < least);
    if !set.transposed && out[2..].iter().any(|d| negative(d, 1)) {
        let times = |v: Vec<String>| format!("({})", v.join(" x "));
        let padded = (2..x.len())
            .map(|d| x[d].add(&Dim::Const(2 * set.padding[d - 2])).to_string())
            .collect();
        let reach = |d: usize| {
            w[d].sub(&Dim::Const(1))
                .mul(&Dim::Const(set.dilation[d - 2]))
                .add(&Dim::Const(1))
        };
        let kernel = (2..w.len()).map(|d| reach(d).to_string()).collect();
        return Err(OpError::shape(format!(
            "Calculated padded input size per channel: {}. Kernel size: {}. Kernel size can't be greater than actual input size",
            times(padded),
            times(kernel)
        )));
    }
    if out[2..].iter().any(|d| negative(d, 0)) {
        return Err(OpError::shape(format!(
            "Given input size per channel: {}. Calculated output size per channel: {}. Output size is too small",
            list_text(&x[2..]),
            list_text(&out[2..])
        )));
    }
    Ok(())
}

/// torch computes nothing for an input whose spatial sizes contain a 0, and has no kernel of size 0, unless the input has no
/// channels.
pub(super) fn check_not_empty(x: &[Dim], w: &[Dim]) -> OpResult<()> {
    let is_zero = |d: &Dim| *d == Dim::Const(0);
    if is_zero(&x[1]) {
        return Ok(());
    }
    // torch computes convolutions of one dim as those of two.
    let as_image = |v: &[Dim]| match v {
        [n, c, width] => vec![n.clone(), c.clone(), Dim::Const(1), width.clone()],
        v => v.to_vec(),
    };
    if !is_zero(&x[0]) && x[2..].iter().any(is_zero) {
        return Err(OpError::shape(format!(
            "Only zero batch or zero channel inputs are supported, but got input shape: {}",
            list_text(&as_image(x))
        )));
    }
    if w[2..].iter().any(is_zero) {
        let title = "kernel size should be greater than zero, but got";
        return Err(OpError::shape(match &as_image(w)[2..] {
            [height, width] => format!("{title} kernel_height: {height} kernel_width: {width}"),
            sizes => {
                let sizes: Vec<String> = sizes.iter().map(Dim::to_string).collect();
                format!("{title}: {} (TxHxW)", sizes.join(" x "))
            }
        }));
    }
    Ok(())
}
