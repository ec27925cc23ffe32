//! Functions of torchvision and transformers that tracing treats as opaque.

mod cubic;
mod deform;
mod detection;
mod grid;
mod grid_axis;
mod grid_half;
mod grid_kernel;
mod grid_planes;
mod grid_taps;
mod regions;
mod resample;
mod resample_axis;
mod resample_blend;
mod resample_bytes;
mod resample_lines;
mod resample_small;
mod rois;
mod suppress;

use crate::diag::Code;
use crate::op::emit::{dims_val, ints_val};
use crate::op::rows::spell::list_text;
use crate::op::{Build, Call, Effect, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, Val};

pub(super) fn rows() -> Vec<Op> {
    [
        parts_of_models(),
        detection::rows(),
        vec![deform::row()],
        rois::rows(),
        regions::rows(),
        grid::rows(),
        resample::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn parts_of_models() -> Vec<Op> {
    vec![
        Op::composite("shifted_window_attention(Tensor input, Tensor qkv_weight, Tensor proj_weight, Tensor relative_position_bias, int[] \
             window_size, int num_heads, int[] shift_size, float attention_dropout=0.0, float dropout=0.0, Tensor? \
             qkv_bias=None, Tensor? proj_bias=None, Tensor? logit_scale=None, bool training=True) -> Tensor",
            shifted_window_attention,
        )
        .doc("attention within windows of an image `[N, H, W, C]`, shifted by half a window (Swin)")
        .effect(Effect::Random)
        .spelled("torchvision.models.swin_transformer.@"),
        Op::composite("patch_merging_pad(Tensor x) -> Tensor", patch_merging_pad)
            .doc("2x2 patches concatenated in the channels, after padding to even sizes (Swin)")
            .spelled("torchvision.models.swin_transformer._patch_merging_pad"),
        Op::composite("relative_position_bias(Tensor relative_position_bias_table, Tensor relative_position_index, int[] window_size) -> \
             Tensor",
            relative_position_bias,
        )
        .doc("the table's rows selected by relative position, as `[1, heads, N, N]` (Swin)")
        .spelled("torchvision.models.swin_transformer._get_relative_position_bias"),
    ]
}

/// Height, width and channels, which must be known.
fn image_sizes(x: &Traced) -> OpResult<(Vec<Dim>, [i64; 2], Dim)> {
    let shape = x.shape()?;
    if let [lead @ .., h, w, c] = shape
        && let (Some(h), Some(w)) = (h.as_const(), w.as_const())
    {
        return Ok((lead.to_vec(), [h, w], c.clone()));
    }
    Err(OpError::new(
        Code::E0304,
        format!("the height and width of an image {} must be known", list_text(shape)),
    ))
}

fn patch_merging_pad(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("x")?;
    let (lead, [h, w], _) = image_sizes(x)?;
    let pad = ints_val(&[0, 0, 0, w % 2, 0, h % 2]);
    let x = b.op(OpId::ConstantPadNd, [x.into(), pad, Val::int(0)])?;
    let row_dim = lead.len();
    let mut parts = vec![];
    for (i, j) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let rows = b.slice(&x, row_dim, Dim::Const(i), Dim::Const(h + h % 2), 2)?;
        parts.push(b.slice(&rows, row_dim + 1, Dim::Const(j), Dim::Const(w + w % 2), 2)?);
    }
    b.cat(&parts, row_dim + 2).map(Val::Leaf)
}

fn relative_position_bias(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let sizes = c.ints("window_size")?;
    let n = sizes.iter().try_fold(1i64, |n, &s| n.checked_mul(s));
    let n = n.ok_or_else(|| OpError::arg("window_size", "the product of window_size overflows"))?;
    let indices = Val::List(vec![c.get("relative_position_index").clone()]);
    let rows = b.index(c.get("relative_position_bias_table").clone(), indices)?;
    let grid = b.op(OpId::Reshape, [rows.into(), ints_val(&[n, n, -1])])?;
    let heads = b.permute(&grid, &[2, 0, 1])?;
    b.unsqueeze(&heads, 0).map(Val::Leaf)
}

/// The parameters of a call of `shifted_window_attention`.
struct ShiftedWindows {
    /// Sizes of the padded image.
    size: [i64; 2],
    window: [i64; 2],
    shift: [i64; 2],
    batch: Dim,
    channels: Dim,
}

fn int_pair(c: &Call<Traced>, name: &str) -> OpResult<[i64; 2]> {
    <[i64; 2]>::try_from(c.ints(name)?).map_err(|_| OpError::arg(name, format!("{name} must be two ints")))
}

impl ShiftedWindows {
    fn from_call(c: &Call<Traced>) -> OpResult<(ShiftedWindows, [i64; 2])> {
        let x = c.leaf("input")?;
        let (lead, image, channels) = image_sizes(x)?;
        let [batch] = &lead[..] else {
            return Err(OpError::shape("shifted_window_attention expects an input with 4 dims"));
        };
        let (window, mut shift) = (int_pair(c, "window_size")?, int_pair(c, "shift_size")?);
        if window.iter().any(|&w| w <= 0) || shift.iter().any(|&s| s < 0) {
            return Err(OpError::arg(
                "window_size",
                "window sizes must be positive and shifts non-negative",
            ));
        }
        let mut size = image;
        for d in 0..2 {
            size[d] += (window[d] - image[d] % window[d]) % window[d];
            // A window as large as the image needs no shift.
            if window[d] >= size[d] {
                shift[d] = 0;
            }
        }
        let batch = batch.clone();
        Ok((
            ShiftedWindows {
                size,
                window,
                shift,
                batch,
                channels,
            },
            image,
        ))
    }

    fn is_shifted(&self) -> bool {
        self.shift != [0, 0]
    }

    fn counts(&self) -> [i64; 2] {
        [0, 1].map(|d| self.size[d] / self.window[d])
    }

    fn area(&self) -> i64 {
        self.window[0] * self.window[1]
    }

    /// Reshapes `[B, H, W, C]` to `[B * windows, area, C]`.
    fn split(&self, b: &mut dyn Build, x: &Traced) -> OpResult<Traced> {
        let [nh, nw] = self.counts().map(Dim::Const);
        let [wh, ww] = self.window.map(Dim::Const);
        let x = b.reshape(
            x,
            &[
                self.batch.clone(),
                nh.clone(),
                wh,
                nw.clone(),
                ww,
                self.channels.clone(),
            ],
        )?;
        let x = b.permute(&x, &[0, 1, 3, 2, 4, 5])?;
        let n = self.batch.mul(&nh).mul(&nw);
        b.reshape(&x, &[n, Dim::Const(self.area()), self.channels.clone()])
    }

    /// The inverse of [`ShiftedWindows::split`].
    fn merge(&self, b: &mut dyn Build, x: &Traced) -> OpResult<Traced> {
        let [nh, nw] = self.counts().map(Dim::Const);
        let [wh, ww] = self.window.map(Dim::Const);
        let x = b.reshape(x, &[self.batch.clone(), nh, nw, wh, ww, self.channels.clone()])?;
        let x = b.permute(&x, &[0, 1, 3, 2, 4, 5])?;
        let [h, w] = self.size.map(Dim::Const);
        b.reshape(&x, &[self.batch.clone(), h, w, self.channels.clone()])
    }

    fn roll(&self, b: &mut dyn Build, x: &Traced, sign: i64) -> OpResult<Traced> {
        if !self.is_shifted() {
            return Ok(x.clone());
        }
        let shifts = self.shift.map(|s| s * sign);
        b.op(OpId::Roll, [x.into(), ints_val(&shifts), ints_val(&[1, 2])])
    }

    /// The label of the region that each position belongs to, as `[windows, area]`. The cyclic shift puts different
    /// regions into one window.
    fn region_labels(&self, b: &mut dyn Build, dtype: DType) -> OpResult<Traced> {
        let mut along = vec![];
        for d in 0..2 {
            let (n, w, s) = (self.size[d], self.window[d], self.shift[d]);
            let i = b.arange(Val::int(0), Val::int(n))?;
            let mut region = b.full(&[Dim::Const(n)], Val::int(0), dtype)?;
            if s > 0 {
                for edge in [n - w, n - s] {
                    let after = b.ge(&i, Val::int(edge))?;
                    let after = b.to_dtype(&after, dtype)?;
                    region = b.add(&region, &after)?;
                }
            }
            along.push(region);
        }
        let rows = b.unsqueeze(&along[0], 1)?;
        let rows = b.mul(&rows, Val::int(3))?;
        let grid = b.add(&rows, &along[1])?;
        let [nh, nw] = self.counts().map(Dim::Const);
        let [wh, ww] = self.window.map(Dim::Const);
        let grid = b.reshape(&grid, &[nh.clone(), wh, nw.clone(), ww])?;
        let grid = b.permute(&grid, &[0, 2, 1, 3])?;
        b.reshape(&grid, &[nh.mul(&nw), Dim::Const(self.area())])
    }

    /// Adds -100 to scores `[B * windows, heads, area, area]` between positions of different regions.
    fn mask_scores(&self, b: &mut dyn Build, scores: &Traced) -> OpResult<Traced> {
        if !self.is_shifted() {
            return Ok(scores.clone());
        }
        let regions = self.region_labels(b, scores.dtype())?;
        let (columns, rows) = (b.unsqueeze(&regions, 1)?, b.unsqueeze(&regions, 2)?);
        let differ = b.ne(&columns, &rows)?;
        let mask = b.r#where(differ, Val::Float(-100.0), Val::Float(0.0))?;
        let mask = b.to_dtype(&mask, scores.dtype())?;
        let mask = b.unsqueeze(&mask, 1)?;
        let shape = scores.shape()?.to_vec();
        let count = self.counts().iter().product::<i64>();
        let mut windows = vec![self.batch.clone(), Dim::Const(count)];
        windows.extend_from_slice(&shape[1..]);
        let split = b.reshape(scores, &windows)?;
        let masked = b.add(&split, &mask)?;
        b.reshape(&masked, &shape)
    }
}

fn shifted_window_attention(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (win, [h, w]) = ShiftedWindows::from_call(c)?;
    let pad = ints_val(&[0, 0, 0, win.size[1] - w, 0, win.size[0] - h]);
    let x = b.op(OpId::ConstantPadNd, [c.get("input").clone(), pad, Val::int(0)])?;
    let x = win.roll(b, &x, -1)?;
    let x = win.split(b, &x)?;
    let y = attend_in_windows(b, c, &win, &x)?;
    let y = win.merge(b, &y)?;
    let y = win.roll(b, &y, 1)?;
    let y = b.slice(&y, 1, Dim::Const(0), Dim::Const(h), 1)?;
    b.slice(&y, 2, Dim::Const(0), Dim::Const(w), 1).map(Val::Leaf)
}

/// The bias of query, key and value. With cosine attention, that of the keys is zero.
fn qkv_bias(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let (Some(bias), Some(_)) = (c.opt_leaf("qkv_bias"), c.opt_leaf("logit_scale")) else {
        return Ok(c.get("qkv_bias").clone());
    };
    let third = bias.ty.numel().floordiv(&Dim::Const(3));
    let zeros = b.full(std::slice::from_ref(&third), Val::int(0), bias.dtype())?;
    let end = third.mul(&Dim::Const(2));
    b.op(
        OpId::SliceScatter,
        [bias.into(), zeros.into(), Val::int(0), Val::Int(third), Val::Int(end)],
    )
    .map(Val::Leaf)
}

fn attend_in_windows(b: &mut dyn Build, c: &Call<Traced>, win: &ShiftedWindows, x: &Traced) -> OpResult<Traced> {
    let heads = c.int("num_heads")?;
    let Some(channels) = win.channels.as_const().filter(|n| heads > 0 && n % heads == 0) else {
        return Err(OpError::shape(format!(
            "{} channels are not divisible by {heads} heads",
            win.channels
        )));
    };
    let width = channels / heads;
    let bias = qkv_bias(b, c)?;
    let qkv = b.op(OpId::Linear, [x.into(), c.get("qkv_weight").clone(), bias])?;
    let n = x.shape()?[0].clone();
    let [area, k, h, d] = [win.area(), 3, heads, width].map(Dim::Const);
    let qkv = b.reshape(&qkv, &[n.clone(), area.clone(), k, h, d])?;
    let qkv = b.permute(&qkv, &[2, 0, 3, 1, 4])?;
    let mut part = |i: i64| b.select(&qkv, 0, Dim::Const(i));
    let (q, k, v) = (part(0)?, part(1)?, part(2)?);
    let scores = window_scores(b, c, &q, &k, width)?;
    let scores = b.add(&scores, c.leaf("relative_position_bias")?)?;
    let scores = win.mask_scores(b, &scores)?;
    let p = crate::op::rows::norms::softmax::softmax(b, &scores, 3)?;
    let p = b.dropout(p, c.get("attention_dropout").clone(), c.get("training").clone())?;
    let y = b.matmul(&p, &v)?;
    let y = b.permute(&y, &[0, 2, 1, 3])?;
    let y = b.op(OpId::Reshape, [y.into(), dims_val(&[n, area, win.channels.clone()])])?;
    let y = b.op(
        OpId::Linear,
        [y.into(), c.get("proj_weight").clone(), c.get("proj_bias").clone()],
    )?;
    b.dropout(y, c.get("dropout").clone(), c.get("training").clone())
}

/// The products of queries and keys: with a `logit_scale` of unit vectors, otherwise divided by the root of their width.
fn window_scores(b: &mut dyn Build, c: &Call<Traced>, q: &Traced, k: &Traced, width: i64) -> OpResult<Traced> {
    let Some(scale) = c.opt_leaf("logit_scale") else {
        let q = b.mul(q, Val::Float((width as f64).powf(-0.5)))?;
        let kt = b.transpose(k, 2, 3)?;
        return b.matmul(&q, &kt);
    };
    let mut unit = |t: &Traced| b.op(OpId::Normalize, [t.into(), Val::Float(2.0), ints_val(&[-1])]);
    let (q, k) = (unit(q)?, unit(k)?);
    let kt = b.transpose(&k, 2, 3)?;
    let scores = b.matmul(&q, &kt)?;
    let scale = b.op(OpId::Clamp, [scale.into(), Val::None, Val::Float(100f64.ln())])?;
    let scale = b.exp(&scale)?;
    b.mul(&scores, &scale)
}
