//! `torch.nn.functional.interpolate`, which calls the resampling row for its mode.

use super::scale_size;
use crate::op::{Build, Call, Op, OpError, OpId, OpResult, Traced};
use crate::types::{Dim, Val};

pub(super) fn interpolate_row() -> Op {
    Op::composite("interpolate(Tensor input, Any size=None, Any scale_factor=None, str mode='nearest', bool? align_corners=None, bool? \
         recompute_scale_factor=None, bool antialias=False) -> Tensor",
        interpolate,
    )
    .doc("the image resampled to another size in the given mode")
    .spelled("torch.nn.functional.@")
    .form(
        "torch.nn.functional.upsample",
        "upsample(Tensor input, Any size=None, Any scale_factor=None, str mode='nearest', bool? align_corners=None) -> Tensor",
    )
    .form_with(
        "torch.nn.functional.upsample_bilinear",
        "upsample_bilinear(Tensor input, Any size=None, Any scale_factor=None) -> Tensor",
        &[("mode", Val::str("bilinear")), ("align_corners", Val::Bool(true))],
    )
    .form(
        "torch.nn.functional.upsample_nearest",
        "upsample_nearest(Tensor input, Any size=None, Any scale_factor=None) -> Tensor",
    )
    .module(
        "Upsample(size=None, scale_factor=None, mode='nearest', align_corners=None, recompute_scale_factor=None) = \
         interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor)",
    )
    .module("UpsamplingNearest2d(size=None, scale_factor=None) = interpolate(input, size, scale_factor, 'nearest')")
    .module("UpsamplingBilinear2d(size=None, scale_factor=None) = interpolate(input, size, scale_factor, 'bilinear', True)")
}

/// One value per spatial dim, from a number or a list.
fn spread_per_dim(v: &Val<Traced>, n: usize) -> Option<Vec<Val<Traced>>> {
    match v {
        Val::None => None,
        Val::List(v) | Val::Tuple(v) => Some(v.clone()),
        v => Some(vec![v.clone(); n]),
    }
}

/// The op that resamples `n` spatial dims in a mode, with antialiasing if `smooth`.
fn resampling_row(mode: &str, n: usize, smooth: bool) -> Option<OpId> {
    Some(match (mode, n, smooth) {
        ("nearest", 1, false) => OpId::UpsampleNearest1d,
        ("nearest", 2, false) => OpId::UpsampleNearest2d,
        ("nearest", 3, false) => OpId::UpsampleNearest3d,
        ("nearest-exact", 1, false) => OpId::_UpsampleNearestExact1d,
        ("nearest-exact", 2, false) => OpId::_UpsampleNearestExact2d,
        ("nearest-exact", 3, false) => OpId::_UpsampleNearestExact3d,
        ("area", 1, false) => OpId::AdaptiveAvgPool1d,
        ("area", 2, false) => OpId::AdaptiveAvgPool2d,
        ("area", 3, false) => OpId::AdaptiveAvgPool3d,
        ("linear", 1, false) => OpId::UpsampleLinear1d,
        ("bilinear", 2, false) => OpId::UpsampleBilinear2d,
        ("bilinear", 2, true) => OpId::_UpsampleBilinear2dAa,
        ("trilinear", 3, false) => OpId::UpsampleTrilinear3d,
        ("bicubic", 2, false) => OpId::UpsampleBicubic2d,
        ("bicubic", 2, true) => OpId::_UpsampleBicubic2dAa,
        _ => return None,
    })
}

fn interpolate(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("input")?;
    let n = x.rank()?.saturating_sub(2);
    let mode = c.str("mode")?;
    let (size, scale) = size_or_scale(c, x, n)?;
    let list = |v: Option<Vec<Val<Traced>>>| v.map_or(Val::None, Val::List);
    let align = match c.is_none("align_corners") {
        true => Val::Bool(false),
        false => c.get("align_corners").clone(),
    };
    let row = resampling_row(mode, n, c.bool("antialias")?).ok_or_else(|| {
        OpError::arg(
            "mode",
            format!("mode {mode} does not support an input with {n} spatial dimensions"),
        )
    })?;
    let mut args = vec![x.into(), list(size)];
    if mode == "area" {
        return b.call(row, args);
    }
    if !mode.starts_with("nearest") {
        args.push(align);
    }
    args.extend(vec![Val::None; n]);
    args.push(list(scale));
    b.call(row, args)
}

type SizeOrScale = (Option<Vec<Val<Traced>>>, Option<Vec<Val<Traced>>>);

/// The sizes or the scale factors of `interpolate`, one for each of the `n` spatial dims. Scale factors become sizes where
/// torch computes these first.
fn size_or_scale(c: &Call<Traced>, x: &Traced, n: usize) -> OpResult<SizeOrScale> {
    let size = spread_per_dim(c.get("size"), n);
    let scale = spread_per_dim(c.get("scale_factor"), n);
    if size.is_some() == scale.is_some() {
        return Err(OpError::arg(
            "size",
            "either size or scale_factor should be defined, and only one of them",
        ));
    }
    if size.as_ref().or(scale.as_ref()).is_some_and(|v| v.len() != n) {
        return Err(OpError::shape(format!(
            "Input and output must have the same number of spatial dimensions, but got input with {n} spatial dimensions"
        )));
    }
    let recompute = !c.is_none("recompute_scale_factor") && c.bool("recompute_scale_factor")?;
    let sizes_first = recompute || c.str("mode")? == "area";
    let Some(factors) = scale.as_ref().filter(|_| sizes_first) else {
        return Ok((size, scale));
    };
    let scaled = |(d, s): (&Dim, &Val<Traced>)| Val::Int(s.as_f64().map_or(Dim::Unknown, |s| scale_size(d, s)));
    Ok((Some(x.shape()?[2..].iter().zip(factors).map(scaled).collect()), None))
}
