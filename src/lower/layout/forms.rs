//! The channels-last forms of operations.

use super::{Relayout, is_degenerate, last_dim, last_shape, to_last};
use crate::lower::ir::{Def, SpatialWindow, Special, ValueId};
use crate::op::{Contraction, IndexMap, OpResult, Reduction};
use crate::scalar::{ScalarExpr, ScalarNode};
use std::sync::Arc;

impl Relayout<'_> {
    pub(super) fn pointwise(&mut self, v: ValueId, expr: &Arc<ScalarExpr>, args: &[ValueId]) -> OpResult<bool> {
        let old = self.old;
        let shape = &old.value(v).shape;
        let indexed = expr.nodes().any(|(_, n, _)| matches!(n, ScalarNode::Index(_)));
        // The expression computes with positions along the dims, whose order would change.
        if indexed {
            return Ok(false);
        }
        let (mut last, mut first) = (0, 0);
        for &a in args.iter().filter(|&&a| old.value(a).shape == *shape) {
            match self.has_last(a)? {
                true => last += 1,
                false => first += 1,
            }
        }
        if last == 0 || last < first {
            return Ok(false);
        }
        if expr.is_copy() && self.wants[v.0 as usize] {
            // This copy only established an order that no reader needs any more.
            self.plain.push(self.plain_value(args[0]));
            self.last[v.0 as usize] = self.channels_last_value(args[0])?;
            return Ok(true);
        }
        let rank = shape.len();
        let args = args.iter().map(|&a| self.last_operand(a, rank));
        let args = args.collect::<OpResult<Vec<_>>>()?;
        let expr = expr.clone();
        self.push_last(v, Def::Pointwise { expr, args })
    }

    /// An operand of an operation on channels-last values of this rank.
    fn last_operand(&mut self, a: ValueId, rank: usize) -> OpResult<ValueId> {
        let shape = &self.old.value(a).shape;
        match shape.len() {
            0 => Ok(self.plain_value(a)),
            r if r == rank => match self.channels_last_value(a)? {
                Some(l) => Ok(l),
                None => self.view_last(a),
            },
            r => {
                let mut wide = vec![1; rank - r];
                wide.extend(shape);
                let w = self.new.view(self.plain_value(a), IndexMap::Reshape, &wide)?;
                self.new.view(w, to_last(rank), &last_shape(&wide))
            }
        }
    }

    pub(super) fn reduce(
        &mut self,
        v: ValueId,
        arg: ValueId,
        dims: &[usize],
        reduction: &Arc<Reduction>,
    ) -> OpResult<bool> {
        if !self.has_last(arg)? {
            return Ok(false);
        }
        let rank = self.old.value(arg).shape.len();
        let mut dims: Vec<usize> = dims.iter().map(|&d| last_dim(d, rank)).collect();
        dims.sort_unstable();
        let reduction = Arc::new(Reduction {
            dims: dims.clone(),
            ..(**reduction).clone()
        });
        let Some(arg) = self.channels_last_value(arg)? else {
            return Ok(false);
        };
        self.push_last(v, Def::Reduce { arg, dims, reduction })
    }

    pub(super) fn special(&mut self, v: ValueId, args: &[ValueId], special: &Special) -> OpResult<bool> {
        let old = self.old;
        let rank = old.value(v).shape.len();
        let mut last = 0;
        for &a in args {
            last += self.has_last(a)? as usize;
        }
        let inner = |w: &SpatialWindow| (w.first == 2).then(|| SpatialWindow { first: 1, ..w.clone() });
        let special = match special {
            _ if 2 * last < args.len().max(1) || last == 0 => None,
            Special::MaxPool(w) => inner(w).map(Special::MaxPool),
            Special::AvgPool {
                window,
                count_include_pad,
                divisor,
            } => inner(window).map(|window| Special::AvgPool {
                window,
                count_include_pad: *count_include_pad,
                divisor: *divisor,
            }),
            Special::Concat { dim } => Some(Special::Concat {
                dim: last_dim(*dim, rank),
            }),
            Special::Pad { before, value } => {
                let mut before = before.clone();
                before[1..].rotate_left(1);
                Some(Special::Pad { before, value: *value })
            }
            _ => None,
        };
        let Some(special) = special else { return Ok(false) };
        let mut new = vec![];
        for &a in args {
            new.push(match self.channels_last_value(a)? {
                Some(l) => l,
                None => self.view_last(a)?,
            });
        }
        self.push_last(v, Def::Special { args: new, special })
    }

    pub(super) fn conv(&mut self, v: ValueId, args: &[ValueId], contraction: &Contraction) -> OpResult<bool> {
        let old = self.old;
        let d = old.value(v);
        let last = self.channels_last_value(args[0])?;
        let mut new: Vec<ValueId> = args.iter().map(|&a| self.plain_value(a)).collect();
        if let Some(l) = last {
            new[0] = l;
        }
        let mut def = Def::Contract {
            args: new,
            contraction: contraction.clone(),
        };
        self.copy_unreadable(&mut def)?;
        let out = self.wants[v.0 as usize] || is_degenerate(&d.shape);
        let id = match out {
            true => {
                self.push_last(v, def)?;
                self.last[v.0 as usize].expect("just pushed")
            }
            false => {
                let p = self.push_new_form(v, &d.shape, def)?;
                self.plain.push(p);
                p
            }
        };
        self.new.channels_last.insert(id, [last.is_some(), out]);
        Ok(true)
    }
}
