//! torchvision's functions and modules for regions: features of boxes in images, deformable convolution, DropBlock.

use crate::op::emit::ints_val;
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Effect, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    let mut rows = vec![deform_conv_row()];
    rows.extend(of_boxes());
    rows.extend(drop_block_rows());
    rows
}

/// The functions of torchvision.ops. They take boxes in two forms, and a single size for both dims.
fn of_boxes() -> Vec<Op> {
    vec![
        Op::composite("roi_align_of(Tensor input, Any boxes, int[2] output_size, float spatial_scale=1.0, int sampling_ratio=-1, bool \
             aligned=False) -> Tensor",
            |b, c| roi_features(b, c, OpId::RoiAlign, &["sampling_ratio", "aligned"]),
        )
        .doc("roi_align for boxes `[image, x1, y1, x2, y2]`, or for a list with boxes `[x1, y1, x2, y2]` of each image")
        .spelled("torchvision.ops.roi_align.roi_align torchvision.ops.roi_align")
        .module(
            "RoIAlign(output_size, spatial_scale, sampling_ratio, aligned=False) = roi_align_of($0:input, $1:rois, output_size, \
             spatial_scale, sampling_ratio, aligned)",
        ),
        Op::composite("roi_pool_of(Tensor input, Any boxes, int[2] output_size, float spatial_scale=1.0) -> Tensor",
            |b, c| roi_features(b, c, OpId::RoiPool, &[]),
        )
        .doc("roi_pool for boxes in the formats of roi_align_of")
        .spelled("torchvision.ops.roi_pool.roi_pool torchvision.ops.roi_pool")
        .module("RoIPool(output_size, spatial_scale) = roi_pool_of($0:input, $1:rois, output_size, spatial_scale)"),
        Op::composite("ps_roi_align_of(Tensor input, Any boxes, int[2] output_size, float spatial_scale=1.0, int sampling_ratio=-1) -> Tensor",
            |b, c| roi_features(b, c, OpId::PsRoiAlign, &["sampling_ratio"]),
        )
        .doc("ps_roi_align for boxes in the formats of roi_align_of")
        .spelled("torchvision.ops.ps_roi_align.ps_roi_align torchvision.ops.ps_roi_align")
        .module(
            "PSRoIAlign(output_size, spatial_scale, sampling_ratio) = ps_roi_align_of($0:input, $1:rois, output_size, \
             spatial_scale, sampling_ratio)",
        ),
        Op::composite("ps_roi_pool_of(Tensor input, Any boxes, int[2] output_size, float spatial_scale=1.0) -> Tensor",
            |b, c| roi_features(b, c, OpId::PsRoiPool, &[]),
        )
        .doc("ps_roi_pool for boxes in the formats of roi_align_of")
        .spelled("torchvision.ops.ps_roi_pool.ps_roi_pool torchvision.ops.ps_roi_pool")
        .module("PSRoIPool(output_size, spatial_scale) = ps_roi_pool_of($0:input, $1:rois, output_size, spatial_scale)"),
    ]
}

/// The boxes of all images, each preceded by the index of its image.
fn number_boxes(b: &mut dyn Build, boxes: &Val<Traced>) -> OpResult<Traced> {
    let Some(images) = boxes.items() else {
        return match boxes {
            Val::Leaf(t) => Ok(t.clone()),
            _ => Err(OpError::arg("boxes", "boxes must be a tensor or a list of tensors")),
        };
    };
    let mut parts = vec![];
    for (i, part) in images.iter().enumerate() {
        let part = part
            .as_leaf()
            .filter(|t| matches!(t.ty.shape.as_deref(), Some([_, n]) if *n == Dim::Const(4)));
        let part = part.ok_or_else(|| OpError::arg("boxes", "the boxes of each image must be a tensor [L, 4]"))?;
        let image = b.full(
            &[part.size(0)?.clone(), Dim::Const(1)],
            Val::int(i as i64),
            part.dtype(),
        )?;
        parts.push(b.cat(&[image, part.clone()], 1)?);
    }
    b.cat(&parts, 0)
}

/// The first result of the op `name`; `params` are its further parameters.
fn roi_features(b: &mut dyn Build, c: &Call<Traced>, name: OpId, params: &[&str]) -> OpResult<Val<Traced>> {
    let rois = number_boxes(b, c.get("boxes"))?;
    let size = c.ints("output_size")?;
    let mut args = vec![c.get("input").clone(), rois.into(), c.get("spatial_scale").clone()];
    args.extend(size.iter().map(|&n| Val::int(n)));
    args.extend(params.iter().map(|p| c.get(p).clone()));
    Ok(match b.call(name, args)? {
        Val::Tuple(mut items) | Val::List(mut items) if !items.is_empty() => items.swap_remove(0),
        single => single,
    })
}

fn deform_conv_row() -> Op {
    Op::composite("deform_conv2d_of(Tensor input, Tensor offset, Tensor weight, Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] \
         dilation=1, Tensor? mask=None) -> Tensor",
        deform_conv2d,
    )
    .doc("deform_conv2d with groups inferred from the operands' shapes")
    .spelled("torchvision.ops.deform_conv.deform_conv2d torchvision.ops.deform_conv2d")
    .module(
        "DeformConv2d(in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True) = \
         deform_conv2d_of($0:input, $1:offset, @weight[out_channels, in_channels // groups, *kernel_size:2], \
         @bias[out_channels] if bias, stride, padding, dilation, $2:mask?)",
    )
}

fn deform_conv2d(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (x, offset, weight) = (c.leaf("input")?, c.leaf("offset")?, c.leaf("weight")?);
    let known = |t: &Traced, d: usize| {
        let size = t.size(d)?.as_const().filter(|&n| n > 0);
        size.ok_or_else(|| {
            let shape = t.shape().map(list_text).unwrap_or_default();
            OpError::shape(format!(
                "deform_conv2d(): channels and kernels must be known and not empty, got {shape}"
            ))
        })
    };
    let (channels, per_group) = (known(x, 1)?, known(weight, 1)?);
    let taps = known(weight, 2)?.saturating_mul(known(weight, 3)?).saturating_mul(2);
    let groups = known(offset, 1)? / taps;
    if groups == 0 {
        return Err(OpError::shape(format!(
            "the shape of the offset tensor at dimension 1 is not valid. It should be a multiple of 2 * weight.size[2] * \
             weight.size[3].\nGot offset.shape[1]={}, while 2 * weight.size[2] * weight.size[3]={taps}",
            known(offset, 1)?
        )));
    }
    let zeros = |b: &mut dyn Build, shape: &[Dim]| b.full(shape, Val::int(0), x.dtype()).map(Val::Leaf);
    let mask = match c.opt_leaf("mask") {
        Some(mask) => mask.into(),
        None => zeros(b, &[x.size(0)?.clone(), Dim::Const(1)])?,
    };
    let bias = match c.opt_leaf("bias") {
        Some(bias) => bias.into(),
        None => zeros(b, &[weight.size(0)?.clone()])?,
    };
    let mut args = vec![x.into(), weight.into(), offset.into(), mask, bias];
    for name in ["stride", "padding", "dilation"] {
        args.extend(c.ints(name)?.iter().map(|&n| Val::int(n)));
    }
    let masked = c.opt_leaf("mask").is_some();
    args.extend([Val::int(channels / per_group), Val::int(groups), Val::Bool(masked)]);
    b.call(OpId::DeformConv2d, args)
}

/// DropBlock, which is the identity in evaluation mode.
fn drop_block_rows() -> Vec<Op> {
    vec![
        Op::composite("drop_block2d(Tensor input, float p, int block_size, bool inplace=False, float eps=1e-06, bool training=True) -> Tensor",
            |b, c| drop_block(b, c, 2),
        )
        .doc("in training, the input with squares zeroed and the rest scaled; else the input")
        .spelled("torchvision.ops.drop_block.@ torchvision.ops.@")
        .module("DropBlock2d(p, block_size, inplace=False, eps=1e-06) = alias(input)")
        .effect(Effect::Random)
        .aliasing(),
        Op::composite("drop_block3d(Tensor input, float p, int block_size, bool inplace=False, float eps=1e-06, bool training=True) -> Tensor",
            |b, c| drop_block(b, c, 3),
        )
        .doc("in training, the input with cubes zeroed and the rest scaled; else the input")
        .spelled("torchvision.ops.drop_block.@ torchvision.ops.@")
        .module("DropBlock3d(p, block_size, inplace=False, eps=1e-06) = alias(input)")
        .effect(Effect::Random)
        .aliasing(),
    ]
}

/// The centres of blocks are drawn where whole blocks fit; max pooling over the block size expands them to blocks.
fn drop_block(b: &mut dyn Build, c: &Call<Traced>, spatial: usize) -> OpResult<Val<Traced>> {
    let (x, p) = (c.leaf("input")?, c.f64("p")?);
    if !(0.0..=1.0).contains(&p) {
        return Err(OpError::arg(
            "p",
            format!("drop probability has to be between 0 and 1, but got {p}."),
        ));
    }
    let rank = x.rank()?;
    if rank != spatial + 2 {
        let want = spatial + 2;
        return Err(OpError::shape(format!(
            "input should be {want} dimensional. Got {rank} dimensions."
        )));
    }
    if !c.bool("training")? || p == 0.0 {
        return Ok(x.into());
    }
    let sizes: Option<Vec<i64>> = x.shape()?[2..].iter().map(Dim::as_const).collect();
    let sizes = sizes.ok_or_else(|| OpError::shape("DropBlock requires known sizes"))?;
    let block = sizes.iter().fold(c.int("block_size")?, |a, &n| a.min(n));
    if block <= 0 || block % 2 == 0 {
        return Err(OpError::arg(
            "block_size",
            format!("block size should be odd. Got {block} which is even."),
        ));
    }
    let dropped = draw_blocks(b, x, &sizes, block, p)?;
    let kept = b.rsub(&dropped, Val::int(1))?;
    scale_kept(b, x, &kept, c.get("eps"))
}

/// Draws the blocks that are dropped: 1 inside them, 0 elsewhere.
fn draw_blocks(b: &mut dyn Build, x: &Traced, sizes: &[i64], block: i64, p: f64) -> OpResult<Traced> {
    let spatial = sizes.len();
    let centres: Vec<i64> = sizes.iter().map(|n| n - block + 1).collect();
    let product = |v: &[i64]| v.iter().map(|&n| n as f64).product::<f64>();
    let gamma = p * product(sizes) / (product(&vec![block; spatial]) * product(&centres));
    let mut shape = x.shape()?[..2].to_vec();
    shape.extend(centres.iter().map(|&n| Dim::Const(n)));
    let noise = b.full(&shape, Val::int(0), x.dtype())?;
    let noise = b.op(OpId::Bernoulli, [noise.into(), Val::Float(gamma)])?;
    let half = block / 2;
    let padding = ints_val(&vec![half; 2 * spatial]);
    let noise = b.op(OpId::ConstantPadNd, [noise.into(), padding, Val::int(0)])?;
    let every = |n: i64| ints_val(&vec![n; spatial]);
    let pool = if spatial == 2 { OpId::MaxPool2d } else { OpId::MaxPool3d };
    b.op(pool, [noise.into(), every(block), every(1), every(half)])
}

/// `x * kept`, scaled so that the expected sum remains.
fn scale_kept(b: &mut dyn Build, x: &Traced, kept: &Traced, eps: &Val<Traced>) -> OpResult<Val<Traced>> {
    let all: Vec<usize> = (0..x.rank()?).collect();
    let sum = b.reduce(OpId::Sum, kept, &all, false)?;
    let sum = b.add(&sum, eps.clone())?;
    let count = b.op(
        OpId::Full,
        [ints_val(&[]), Val::Int(kept.ty.numel()), Val::DType(x.dtype())],
    )?;
    let scale = b.div(&count, &sum)?;
    let y = b.mul(x, kept)?;
    b.mul(&y, &scale).map(Val::Leaf)
}
