//! Steps that make the inputs simpler: smaller sizes, elements that are easy to read.

use super::{Failing, Reducer};
use crate::graph::Arg;
use crate::tensor::{Scalar, Tensor};
use crate::types::Val;
use std::collections::BTreeSet;

/// With at most this many elements, an input's elements are tried one by one.
const FEW_ELEMENTS: usize = 16;

impl Reducer<'_> {
    /// Makes sizes smaller, each in all inputs and lists of numbers that have it.
    pub(super) fn shrink_sizes(&mut self) {
        let tensors = self.best.inputs.iter().flat_map(|v| v.leaves());
        let sizes: BTreeSet<usize> = tensors
            .flat_map(|t| t.shape().iter().copied())
            .filter(|&n| n > 1)
            .collect();
        for from in sizes.into_iter().rev() {
            let mut from = from;
            // 1 at once, then half, then one less, as long as that works.
            while let Some(to) = [1, from / 2, from - 1]
                .into_iter()
                .find(|&to| to < from && self.resize(from, to))
            {
                if to <= 1 {
                    break;
                }
                from = to;
            }
        }
    }

    fn resize(&mut self, from: usize, to: usize) -> bool {
        self.attempt(|f| {
            f.inputs = f.inputs.iter().map(|v| v.map(|t| truncate(t, from, to))).collect();
            declare_types(f)?;
            let graph = f.module.entry_mut()?;
            for n in graph.ids() {
                let args = graph[n]
                    .args()
                    .iter()
                    .map(|a| resize_lists(a, from, to, false))
                    .collect();
                graph.set_args(n, args);
            }
            Some(())
        }) || self.attempt(|f| {
            f.inputs = f.inputs.iter().map(|v| v.map(|t| truncate(t, from, to))).collect();
            declare_types(f)
        })
    }

    /// Makes elements 0, 1 or whole numbers.
    pub(super) fn simplify_elements(&mut self) {
        for i in 0..self.best.inputs.len() {
            let Some(tensor) = self.best.inputs.get(i).and_then(|v| v.as_leaf()).cloned() else {
                continue;
            };
            if self.fill(i, &tensor, 0.0) || self.fill(i, &tensor, 1.0) {
                continue;
            }
            let round = |j: usize| Scalar::F64(tensor.get(j).to_f64().round());
            self.set_input(i, Tensor::from_fn(tensor.dtype(), tensor.shape(), round));
            if tensor.numel() > FEW_ELEMENTS {
                continue;
            }
            for k in 0..tensor.numel() {
                let Some(now) = self.best.inputs.get(i).and_then(|v| v.as_leaf()).cloned() else {
                    break;
                };
                let zero = Tensor::from_fn(now.dtype(), now.shape(), |j| {
                    if j == k { Scalar::F64(0.0) } else { now.get(j) }
                });
                self.set_input(i, zero);
            }
        }
    }

    /// Sets all elements to `x`. Also true if they are `x` already: otherwise zeros and ones would replace each other for ever.
    fn fill(&mut self, i: usize, t: &Tensor, x: f64) -> bool {
        let new = Tensor::from_fn(t.dtype(), t.shape(), |_| Scalar::F64(x));
        t.bit_eq(&new) || self.set_input(i, new)
    }

    fn set_input(&mut self, i: usize, new: Tensor) -> bool {
        self.attempt(|f| {
            let old = f.inputs.get_mut(i)?;
            if old.as_leaf().is_some_and(|t| t.bit_eq(&new)) {
                return None;
            }
            *old = Val::Leaf(new);
            Some(())
        })
    }
}

/// The first elements along each dim of size `from`.
fn truncate(t: &Tensor, from: usize, to: usize) -> Tensor {
    let shape: Vec<usize> = t.shape().iter().map(|&n| if n == from { to } else { n }).collect();
    let strides = t.strides();
    Tensor::from_fn(t.dtype(), &shape, |i| {
        let mut rest = i;
        let mut source = 0;
        for (d, &n) in shape.iter().enumerate().rev() {
            source += rest % n * strides[d];
            rest /= n;
        }
        t.get(source)
    })
}

/// An argument with the size replaced in its lists.
fn resize_lists(v: &Arg, from: usize, to: usize, in_list: bool) -> Arg {
    match v {
        Val::List(items) => Val::List(items.iter().map(|i| resize_lists(i, from, to, true)).collect()),
        Val::Int(_) if in_list && v.as_int() == Some(from as i64) => Val::int(to as i64),
        v => v.clone(),
    }
}

/// Declares the types of the inputs.
fn declare_types(f: &mut Failing) -> Option<()> {
    let graph = f.module.entry_mut()?;
    for (p, v) in graph.placeholders().into_iter().zip(&f.inputs) {
        if let Val::Leaf(t) = v {
            graph.meta_mut(p).ty = Some(Val::Leaf(t.ty()));
        }
    }
    Some(())
}
