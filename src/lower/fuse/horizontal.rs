//! Horizontal fusion: kernels that do not depend on each other and go over the same points, as one.
//!
//! Two kinds are worth it. Small kernels take less time than starting them; and kernels that become ready at the same time
//! and read the same buffer read it once. A kernel that may become the tail of a product stays by itself, as do kernels that
//! read through views (their loops would suit neither) and kernels whose rows are so short that losing the merged loop of one would
//! cost more than a launch.

use super::cluster::{Along, Cluster, Member, Users, broadcast_along, trace};
use super::cost::{self, Cost, LAUNCH};
use super::{Fuser, UnitId};
use crate::lower::ir::{Def, ValueId};
use std::collections::HashMap;
use std::fmt;

/// How many earlier clusters over the same space one is compared with: what keeps the pass linear.
const WINDOW: usize = 8;
/// Rows shorter than this (in kernels of more than [`FEW`] elements) are not worth a loop of their own.
const SHORT: usize = 32;
/// See [`SHORT`].
const FEW: usize = 256;
/// Bytes read by both that are worth keeping two kernels together.
const SHARED: usize = 64 << 10;
/// More buffers than this would not leave registers for their addresses.
const BUFFERS: usize = 10;

/// Why independent kernels run as one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Beside {
    /// Both take less than it would cost to start another: nanoseconds of both.
    Small(f64, f64),
    /// Both read these many bytes.
    Shares(usize),
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Beside::Small(a, b) => write!(
                f,
                "both are small ({:.1} us and {:.1} us), and starting one takes {:.2} us",
                a / 1e3,
                b / 1e3,
                LAUNCH / 1e3
            ),
            Beside::Shares(n) => write!(f, "both read the same {}", crate::tensor::shown_bytes(*n)),
        }
    }
}

impl Fuser<'_> {
    /// Merges clusters that do not depend on each other where it pays.
    pub(in crate::lower) fn horizontal(&mut self, users: &[Users]) {
        let mut recent: HashMap<(Vec<usize>, Vec<bool>), Vec<UnitId>> = HashMap::new();
        for u in self.topological() {
            let Some(c) = self.cluster(u).filter(|c| self.may_be_beside(c)) else {
                continue;
            };
            let key = (c.space.clone(), c.reduced.clone());
            let others = recent.entry(key).or_default();
            let found = others.iter().rev().find_map(|&o| Some((o, self.beside(o, u, users)?)));
            match found {
                Some((o, why)) => {
                    let first = |f: &Self, u: UnitId| f.cluster(u).map_or(ValueId(0), |c| c.members[0].value);
                    let (a, b) = (first(self, o), first(self, u));
                    if self.merge(o, u).is_ok() {
                        self.beside.push((a, b, why));
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

    /// Whether a cluster may run together with others at all.
    fn may_be_beside(&self, c: &Cluster) -> bool {
        let numel: usize = c.space.iter().product();
        let row = c.space.iter().rev().copied().find(|&s| s != 1).unwrap_or(1);
        let plain = |m: &Member| {
            self.tir.operands(m.value).iter().all(|&o| {
                let along = match &self.tir.value(m.value).def {
                    Def::Pointwise { .. } => broadcast_along(&self.tir.value(o).shape, &m.along),
                    // The operand lies along the whole space.
                    _ => (0..c.space.len()).map(|d| (c.space[d] != 1).then_some(d)).collect(),
                };
                let in_order = |a: &Along| a.iter().flatten().is_sorted();
                along.len() == self.tir.value(o).shape.len()
                    && trace(self.tir, o, &along).is_some_and(|(_, found)| in_order(&found))
                    && !matches!(self.tir.value(cost::base(self.tir, o)).def, Def::Contract { .. })
            })
        };
        numel > 0 && (row >= SHORT || numel <= FEW) && c.members.iter().all(plain)
    }

    /// Why `a` and `b` are better one kernel; `None` if they are not, or depend on each other.
    fn beside(&self, a: UnitId, b: UnitId, users: &[Users]) -> Option<Beside> {
        let (i, j) = (a.as_u32() as usize, b.as_u32() as usize);
        if self.deps[i].contains(b) || self.deps[j].contains(a) {
            return None;
        }
        let (x, y) = (self.cluster(a)?, self.cluster(b)?);
        let (of_x, of_y) = (self.cost(x, users), self.cost(y, users));
        let (reads, others) = (cost::reads(self.tir, x), cost::reads(self.tir, y));
        let shared: Vec<&(ValueId, usize)> = reads.iter().filter(|r| others.contains(r)).collect();
        let results = |c: &Cluster| {
            c.members
                .iter()
                .filter(|m| self.is_stored(m.value, &users[m.value.0 as usize]))
                .count()
        };
        let buffers = reads.len() + others.len() - shared.len() + results(x) + results(y);
        if buffers > BUFFERS {
            return None;
        }
        let bytes = shared.iter().fold(0usize, |n, r| n.saturating_add(r.1));
        let (small, large) = (of_x.nanoseconds(), of_y.nanoseconds());
        if bytes >= SHARED && self.deps[i] == self.deps[j] {
            return Some(Beside::Shares(bytes));
        }
        (small.max(large) <= self.tir.limits.small).then_some(Beside::Small(small, large))
    }

    fn cost(&self, c: &Cluster, users: &[Users]) -> Cost {
        cost::cost(self.tir, c, &|v| self.is_stored(v, &users[v.0 as usize]))
    }
}
