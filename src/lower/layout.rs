//! Layout: selects the values that are channels last in memory.
//!
//! The fast convolutions read and write `[N, spatial…, C]`. [`relayout`] rewrites the tensor IR so that whole islands
//! of convolutions have this layout, with the pointwise values, pools, means, joins and borders between them. A value
//! `[N, C, spatial…]` of an island becomes one of shape `[N, spatial…, C]`. Other readers of the value read a permuted
//! view, whose strides locate the elements. So a conversion happens only where an island meets an op that needs the
//! other order, and as a part of that op (a convolution reads its input in either order).
//!
//! A convolution's result is channels last if one of its readers gains from it ([`gains_channels_last`]). A pointwise
//! value follows the majority of its operands, everything else its operand. A value also counts as channels last if it
//! already has that layout: `x.permute(0, 3, 1, 2)` of a linear layer's result is such a value, and costs nothing.

mod forms;

use super::contract::byte_input;
use super::ir::{Def, Special, Tir, ValueId};
use crate::math::NARROWEST_ROW;
use crate::op::{Contraction, Convolution, IndexMap, OpResult};
use crate::types::DType;

/// The most channels of a depthwise convolution with lanes along rows. More channels fill vectors of their own.
const FEW_CHANNELS: usize = 8;

/// Whether `v` is a convolution that has kernels for either order.
fn is_island_conv(tir: &Tir, v: ValueId) -> bool {
    let d = tir.value(v);
    let Def::Contract {
        args,
        contraction: Contraction::Conv(conv),
    } = &d.def
    else {
        return false;
    };
    let has_kernels = matches!(d.dtype, DType::F32 | DType::F16 | DType::BF16) || byte_input(tir, v).is_some();
    has_kernels && d.shape.len() >= 3 && !runs_along_rows(conv, d.dtype, &d.shape, &tir.value(args[conv.weight]).shape)
}

/// Whether a convolution is faster along the rows of channels-first planes: a filter for each of few channels, such as a blur of
/// an image.
fn runs_along_rows(conv: &Convolution, dtype: DType, shape: &[usize], weight: &[usize]) -> bool {
    let is_filter = conv.groups > 1 && weight[1] == 1 && !conv.transposed && shape[1] <= FEW_CHANNELS;
    let is_wide = shape.len() <= 4
        && shape.last().is_some_and(|&w| w >= NARROWEST_ROW)
        && conv.stride.last().is_some_and(|&s| s <= 2);
    dtype == DType::F32 && is_filter && is_wide
}

/// Converts islands to channels last.
pub(in crate::lower) fn relayout(tir: &mut Tir) -> OpResult<()> {
    if (0..tir.values.len()).any(|i| is_island_conv(tir, ValueId(i as u32))) {
        *tir = islands_last(tir)?;
    }
    Ok(())
}

/// The same tensor IR with its islands channels last.
fn islands_last(old: &Tir) -> OpResult<Tir> {
    let wants = gains_channels_last(old);
    let n = old.values.len();
    let mut r = Relayout {
        new: Tir::default(),
        old,
        wants,
        plain: Vec::with_capacity(n),
        last: vec![None; n],
    };
    for i in 0..n {
        r.relayout_value(ValueId(i as u32))?;
    }
    let (mut new, plain) = (r.new, r.plain);
    let plain_id = |v: &ValueId| plain[v.0 as usize];
    let inputs = old.inputs.iter();
    new.inputs = inputs.map(|(name, v)| (name.clone(), v.map(plain_id))).collect();
    new.output = old.output.as_ref().map(|o| o.map(plain_id));
    new.state = old.state.clone();
    new.limits = old.limits;
    new.calls = old.calls.clone();
    for c in &mut new.calls {
        c.call = c.call.map(plain_id);
        c.results.iter_mut().for_each(|v| *v = plain_id(v));
    }
    Ok(new)
}

/// For each value, whether one of its readers gains if the value is channels last.
fn gains_channels_last(tir: &Tir) -> Vec<bool> {
    let n = tir.values.len();
    let mut wants = vec![false; n];
    // Whether something other than a view reads the value.
    let mut read = vec![false; n];
    tir.output
        .iter()
        .flat_map(|o| o.leaves())
        .for_each(|v| read[v.0 as usize] = true);
    // In reverse: whether a view or a pointwise value gains depends on its own readers.
    for i in (0..n).rev() {
        let u = ValueId(i as u32);
        let def = tir.value(u);
        if let Def::View { .. } = def.def {
            wants[i] |= read[i] && runs_along_channels(tir, u);
        }
        let in_island = wants[i];
        for (position, v) in tir.operands(u).into_iter().enumerate() {
            let arg = tir.value(v);
            let gains = match &def.def {
                Def::Contract { .. } => is_island_conv(tir, u) && position == 0,
                Def::Pointwise { .. } => in_island && arg.shape == def.shape,
                Def::Special { special, .. } => match special {
                    Special::MaxPool(_) | Special::AvgPool { .. } => true,
                    Special::Pad { .. } | Special::Concat { .. } => in_island,
                    _ => false,
                },
                Def::Reduce { .. } => arg.shape.len() >= 3,
                Def::View { .. } => in_island,
                _ => false,
            };
            wants[v.0 as usize] |= gains;
            read[v.0 as usize] |= !matches!(def.def, Def::View { .. });
        }
    }
    wants
}

/// Whether the last dim of the view `v` would run along the channels of its base value if that were channels first.
fn runs_along_channels(tir: &Tir, v: ValueId) -> bool {
    let shape = &tir.value(v).shape;
    let Some(a) = tir.access(v) else { return false };
    let base = &tir.value(a.base).shape;
    let Some(d) = shape.iter().rposition(|&s| s != 1) else {
        return false;
    };
    base.len() >= 3 && base[1] > 1 && a.strides[d] == base[2..].iter().product::<usize>() as i64 && a.strides[d] > 1
}

/// The shape of the value when it is channels last.
fn last_shape(shape: &[usize]) -> Vec<usize> {
    let mut s = shape.to_vec();
    s[1..].rotate_left(1);
    s
}

/// The position of dim `d` when channels are last.
fn last_dim(d: usize, rank: usize) -> usize {
    match d {
        0 => 0,
        1 => rank - 1,
        d => d - 1,
    }
}

/// The view of `[N, C, spatial…]` as `[N, spatial…, C]`.
fn to_last(rank: usize) -> IndexMap {
    IndexMap::Affine((0..rank).map(|d| super::ir::same_dim(last_dim(d, rank))).collect())
}

/// The view of `[N, spatial…, C]` as `[N, C, spatial…]`.
fn to_first(rank: usize) -> IndexMap {
    let from = |d: usize| match d {
        0 => 0,
        d if d == rank - 1 => 1,
        d => d + 1,
    };
    IndexMap::Affine((0..rank).map(|d| super::ir::same_dim(from(d))).collect())
}

/// Whether both orders are the same in memory.
fn is_degenerate(shape: &[usize]) -> bool {
    shape[1] == 1 || shape[2..].iter().product::<usize>() <= 1 || shape.contains(&0)
}

struct Relayout<'a> {
    old: &'a Tir,
    new: Tir,
    wants: Vec<bool>,
    /// For each old value, the new value of the same shape.
    plain: Vec<ValueId>,
    /// For each old value that is channels last, the new value of that shape.
    last: Vec<Option<ValueId>>,
}

impl Relayout<'_> {
    fn plain_value(&self, v: ValueId) -> ValueId {
        self.plain[v.0 as usize]
    }

    /// The channels-last form of the value, if it has that layout.
    fn channels_last_value(&mut self, v: ValueId) -> OpResult<Option<ValueId>> {
        if let Some(l) = self.last[v.0 as usize] {
            return Ok(Some(l));
        }
        let shape = &self.old.value(v).shape;
        if shape.len() < 3 || shape.contains(&0) {
            return Ok(None);
        }
        let Some(mut a) = self.new.access(self.plain_value(v)) else {
            return Ok(None);
        };
        a.strides[1..].rotate_left(1);
        if !a.is_contiguous(&last_shape(shape)) {
            return Ok(None);
        }
        let l = self.view_last(v)?;
        self.last[v.0 as usize] = Some(l);
        Ok(Some(l))
    }

    /// A channels-last view of the value, whatever its layout.
    fn view_last(&mut self, v: ValueId) -> OpResult<ValueId> {
        let shape = &self.old.value(v).shape;
        self.new
            .view(self.plain_value(v), to_last(shape.len()), &last_shape(shape))
    }

    fn has_last(&mut self, v: ValueId) -> OpResult<bool> {
        let rank = self.old.value(v).shape.len();
        if rank >= 3 && is_degenerate(&self.old.value(v).shape) {
            // Both layouts are the same here: keep the one that was chosen.
            return Ok(self.last[v.0 as usize].is_some());
        }
        Ok(rank >= 3 && self.channels_last_value(v)?.is_some())
    }

    fn relayout_value(&mut self, v: ValueId) -> OpResult<()> {
        let old = self.old;
        let d = old.value(v);
        self.new.name = d.name.clone();
        let done = match &d.def {
            Def::View { arg, map } => {
                let p = self.new.view(self.plain_value(*arg), map.clone(), &d.shape)?;
                self.plain.push(p);
                true
            }
            _ if d.shape.len() < 3 => false,
            Def::Pointwise { expr, args } => self.pointwise(v, expr, args)?,
            Def::Reduce { arg, dims, reduction } => self.reduce(v, *arg, dims, reduction)?,
            Def::Special { args, special } => self.special(v, args, special)?,
            Def::Contract { args, contraction } if is_island_conv(old, v) => self.conv(v, args, contraction)?,
            _ => false,
        };
        if done { Ok(()) } else { self.keep_layout(v) }
    }

    /// Copies the value with its old layout, reading plain operands.
    fn keep_layout(&mut self, v: ValueId) -> OpResult<()> {
        let old = self.old;
        let d = old.value(v);
        let mut def = d.def.clone();
        match &mut def {
            Def::Pointwise { args, .. } | Def::Contract { args, .. } | Def::Special { args, .. } => {
                args.iter_mut().for_each(|a| *a = self.plain[a.0 as usize]);
            }
            Def::Reduce { arg, .. } => *arg = self.plain_value(*arg),
            _ => {}
        }
        self.copy_unreadable(&mut def)?;
        let p = self.push_new_form(v, &d.shape, def)?;
        self.plain.push(p);
        Ok(())
    }

    /// Copies the operands whose new layout a contraction cannot read.
    fn copy_unreadable(&mut self, def: &mut Def) -> OpResult<()> {
        let (args, inner) = match def {
            Def::Contract {
                args,
                contraction: Contraction::Conv(_),
            } => (args, false),
            Def::Special {
                args,
                special: Special::Recurrent { .. },
            } => (args, false),
            Def::Special {
                args,
                special: Special::Attention(_),
            } => (args, true),
            _ => return Ok(()),
        };
        for a in args.iter_mut() {
            let shape = self.new.value(*a).shape.clone();
            let good = self.new.access(*a).is_some_and(|x| match inner {
                true => shape.last() == Some(&1) || x.strides.last() == Some(&1),
                false => x.is_contiguous(&shape),
            });
            if !good {
                *a = self.new.copy(*a)?;
            }
        }
        Ok(())
    }

    /// Pushes the new form of `v` and transfers its entries in the side tables.
    fn push_new_form(&mut self, v: ValueId, shape: &[usize], def: Def) -> OpResult<ValueId> {
        let p = self.new.push(self.old.value(v).dtype, shape, def)?;
        if let Some(&a) = self.old.activations.get(&v) {
            self.new.activations.insert(p, a);
        }
        if let Some(&part) = self.old.softmax.get(&v) {
            self.new.softmax.insert(p, part);
        }
        Ok(p)
    }

    /// Pushes `v` as channels last.
    fn push_last(&mut self, v: ValueId, def: Def) -> OpResult<bool> {
        let shape = self.old.value(v).shape.clone();
        let l = self.push_new_form(v, &last_shape(&shape), def)?;
        let p = self.new.view(l, to_first(shape.len()), &shape)?;
        self.plain.push(p);
        self.last[v.0 as usize] = Some(l);
        Ok(true)
    }
}
