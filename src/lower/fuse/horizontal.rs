//! Horizontal fusion: merges independent kernels over the same iteration space.
//!
//! Two cases are worth it: small kernels, which take less time than a launch; and kernels that become ready at the same
//! time and read the same buffer, which is then read once. Three kinds of kernels are not merged: those that may become
//! the tail of a product, those that read through views (their loops would suit neither kernel), and those whose rows
//! are so short that losing a kernel's merged loop would cost more than a launch.

use super::cluster::{Along, Cluster, ClusterMember, Users, broadcast_along, trace_views};
use super::cost::{self, Cost, LAUNCH};
use super::join::MAX_MEMBERS;
use super::{Fuser, UnitId};
use crate::lower::ir::{Def, ValueId};
use rustc_hash::FxHashMap;
use std::fmt;

/// The number of earlier clusters over the same space that a cluster is compared with. It keeps the pass linear.
const WINDOW: usize = 8;
/// Rows shorter than this (in kernels with more than [`FEW`] elements) are not worth a loop of their own.
const SHORT: usize = 32;
const FEW: usize = 256;
/// The number of bytes read by both kernels that makes merging worthwhile.
const SHARED: usize = 64 << 10;
/// With more buffers than this there would be no registers left for their addresses.
const BUFFERS: usize = 10;

/// Why independent kernels are merged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MergeReason {
    /// Both take less time than another launch: the nanoseconds of each.
    Small(f64, f64),
    /// Both read the same data: the number of bytes.
    Shares(usize),
}

impl fmt::Display for MergeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeReason::Small(a, b) => write!(
                f,
                "both are small ({:.1} us and {:.1} us), compared with a launch overhead of {:.2} us",
                a / 1e3,
                b / 1e3,
                LAUNCH / 1e3
            ),
            MergeReason::Shares(n) => write!(f, "both read the same {}", crate::tensor::shown_bytes(*n)),
        }
    }
}

/// Why two consecutive kernels are not merged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MergeRefusal {
    /// One depends on the other, directly or not.
    Dependent,
    /// Their loops have different sizes, given here.
    Extents(Vec<usize>, Vec<usize>),
    /// They reduce different dims.
    Dims,
    /// One reads a product's result, so it may become the product's tail.
    Product,
    /// One reads through views: the loops that suit it do not suit the other.
    Views,
    /// The rows, of this size, are so short that a loop over them costs more than a launch.
    Short(usize),
    /// The larger kernel takes this long (first number, in nanoseconds), the limit is the second, and both share too
    /// few bytes.
    Large(f64, f64),
    /// Both read the same data, of this many bytes, but do not become ready at the same time.
    Ready(usize),
    /// Together they would use this many buffers.
    Buffers(usize),
    /// Together they would have more values than a kernel may have.
    Full,
    /// They became neighbours only after other kernels were merged.
    Late,
}

impl fmt::Display for MergeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeRefusal::Dependent => f.write_str("one depends on the other"),
            MergeRefusal::Extents(a, b) => write!(f, "their loop extents differ: {a:?} and {b:?}"),
            MergeRefusal::Dims => f.write_str("they reduce different dims"),
            MergeRefusal::Product => f.write_str("one may become the epilogue of a matrix product"),
            MergeRefusal::Views => f.write_str("one reads through views and needs a different loop order"),
            MergeRefusal::Short(n) => write!(
                f,
                "rows of {n} elements are too short: merged loops would cost more than a launch"
            ),
            MergeRefusal::Large(n, most) => write!(
                f,
                "one takes {:.1} us, so its launch overhead is negligible (the limit for merging is {:.1} us)",
                n / 1e3,
                most / 1e3
            ),
            MergeRefusal::Ready(n) => write!(
                f,
                "both read the same {}, but one must wait for values that the other does not need",
                crate::tensor::shown_bytes(*n)
            ),
            MergeRefusal::Buffers(n) => write!(f, "together they would use {n} buffers; the limit is {BUFFERS}"),
            MergeRefusal::Full => f.write_str("together they would exceed the limit of values in a kernel"),
            MergeRefusal::Late => f.write_str("they became adjacent only after other kernels were merged"),
        }
    }
}

impl Fuser<'_> {
    /// Merges independent clusters where this pays off.
    pub(in crate::lower) fn merge_horizontally(&mut self, users: &[Users]) {
        let mut recent: FxHashMap<(Vec<usize>, Vec<bool>), Vec<UnitId>> = FxHashMap::default();
        for u in self.topological_order() {
            let Some(c) = self.cluster(u).filter(|c| self.check_mergeable(c).is_ok()) else {
                continue;
            };
            let key = (c.space.clone(), c.reduced.clone());
            let others = recent.entry(key).or_default();
            let partner = others
                .iter()
                .rev()
                .find_map(|&o| Some((o, self.judge_merge(o, u, users).ok()?)));
            match partner {
                Some((o, reason)) => {
                    let (a, b) = (self.first_value(o), self.first_value(u));
                    if self.merge(o, u).is_ok() {
                        self.merged.push((a, b, reason));
                    }
                }
                None => {
                    others.push(u);
                    if others.len() > WINDOW {
                        others.remove(0);
                    }
                }
            }
        }
    }

    /// Records why consecutive kernels are not merged, if one of them is small or both read the same data.
    pub(in crate::lower) fn explain_neighbours(&mut self, order: &[UnitId], users: &[Users]) {
        let stores = |c: &Cluster| {
            let stored = |m: &ClusterMember| self.is_stored(m.value, &users[m.value.0 as usize]);
            c.members.iter().any(stored)
        };
        let kernels = order.iter().copied().filter(|&u| self.cluster(u).is_some_and(stores));
        let order: Vec<UnitId> = kernels.collect();
        let mut refusals = vec![];
        for pair in order.windows(2) {
            let &[a, b] = pair else { continue };
            refusals.extend(
                self.explain_separation(a, b, users)
                    .map(|reason| (self.first_value(a), self.first_value(b), reason)),
            );
        }
        self.unmerged = refusals;
    }

    /// The first value of a cluster.
    fn first_value(&self, u: UnitId) -> ValueId {
        self.cluster(u).map_or(ValueId(0), |c| c.members[0].value)
    }

    /// Why two clusters are not merged; `None` if nobody would expect it.
    fn explain_separation(&self, a: UnitId, b: UnitId, users: &[Users]) -> Option<MergeRefusal> {
        let (x, y) = (self.cluster(a)?, self.cluster(b)?);
        let small = [x, y].map(|c| self.cost(c, users).nanoseconds() <= self.tir.limits.small);
        if small == [false; 2] && self.shared_reads(x, y).1 < SHARED {
            return None;
        }
        if self.are_dependent(a, b) {
            return Some(MergeRefusal::Dependent);
        }
        if x.space != y.space {
            return Some(MergeRefusal::Extents(x.space.clone(), y.space.clone()));
        }
        if x.reduced != y.reduced {
            return Some(MergeRefusal::Dims);
        }
        let refusal = [x, y].into_iter().find_map(|c| self.check_mergeable(c).err());
        let refusal = refusal.or_else(|| self.judge_merge(a, b, users).err());
        let full = x.members.len() + y.members.len() >= MAX_MEMBERS;
        Some(refusal.unwrap_or(if full { MergeRefusal::Full } else { MergeRefusal::Late }))
    }

    fn are_dependent(&self, a: UnitId, b: UnitId) -> bool {
        self.deps[a.as_u32() as usize].contains(b) || self.deps[b.as_u32() as usize].contains(a)
    }

    /// The number of buffers that both read, and their bytes.
    fn shared_reads(&self, x: &Cluster, y: &Cluster) -> (usize, usize) {
        let others = cost::outside_reads(self.tir, y);
        let reads = cost::outside_reads(self.tir, x);
        let shared = reads.iter().filter(|r| others.contains(r));
        shared.fold((0, 0), |(n, bytes), r| (n + 1, bytes.saturating_add(r.1)))
    }

    /// Whether a cluster may be merged with independent ones at all.
    fn check_mergeable(&self, c: &Cluster) -> Result<(), MergeRefusal> {
        let numel: usize = c.space.iter().product();
        let row = c.space.iter().rev().copied().find(|&s| s != 1).unwrap_or(1);
        if numel == 0 || (row < SHORT && numel > FEW) {
            return Err(MergeRefusal::Short(row));
        }
        for m in &c.members {
            for o in self.tir.operands(m.value) {
                if matches!(self.tir.value(cost::base_value(self.tir, o)).def, Def::Contract { .. }) {
                    return Err(MergeRefusal::Product);
                }
                if !self.reads_in_order(c, m, o) {
                    return Err(MergeRefusal::Views);
                }
            }
        }
        Ok(())
    }

    /// Whether the member `m` of `c` reads the operand `o` in the order of the space's dims.
    fn reads_in_order(&self, c: &Cluster, m: &ClusterMember, o: ValueId) -> bool {
        let along = match &self.tir.value(m.value).def {
            Def::Pointwise { .. } => broadcast_along(&self.tir.value(o).shape, &m.along),
            // The operand covers the whole space.
            _ => (0..c.space.len()).map(|d| (c.space[d] != 1).then_some(d)).collect(),
        };
        let in_order = |a: &Along| a.iter().flatten().is_sorted();
        along.len() == self.tir.value(o).shape.len()
            && trace_views(self.tir, o, &along).is_some_and(|(_, source_along)| in_order(&source_along))
    }

    /// Why merging `a` and `b` pays off, or why not.
    fn judge_merge(&self, a: UnitId, b: UnitId, users: &[Users]) -> Result<MergeReason, MergeRefusal> {
        let (Some(x), Some(y), false) = (self.cluster(a), self.cluster(b), self.are_dependent(a, b)) else {
            return Err(MergeRefusal::Dependent);
        };
        let (of_x, of_y) = (self.cost(x, users), self.cost(y, users));
        let (shared, bytes) = self.shared_reads(x, y);
        let buffers = |c: &Cluster| {
            let stored = |m: &&ClusterMember| self.is_stored(m.value, &users[m.value.0 as usize]);
            cost::outside_reads(self.tir, c).len() + c.members.iter().filter(stored).count()
        };
        let buffers = buffers(x) + buffers(y) - shared;
        if buffers > BUFFERS {
            return Err(MergeRefusal::Buffers(buffers));
        }
        let (small, large) = (of_x.nanoseconds(), of_y.nanoseconds());
        let together = self.deps[a.as_u32() as usize] == self.deps[b.as_u32() as usize];
        if bytes >= SHARED && together {
            return Ok(MergeReason::Shares(bytes));
        }
        let most = self.tir.limits.small;
        match small.max(large) {
            n if n <= most => Ok(MergeReason::Small(small, large)),
            _ if bytes >= SHARED => Err(MergeRefusal::Ready(bytes)),
            n => Err(MergeRefusal::Large(n, most)),
        }
    }

    fn cost(&self, c: &Cluster, users: &[Users]) -> Cost {
        cost::cluster_cost(self.tir, c, &|v| self.is_stored(v, &users[v.0 as usize]))
    }
}
