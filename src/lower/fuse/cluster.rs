//! Clusters: values that one loop nest computes, and the mapping of their dims to the iteration space.

use crate::lower::ir::{Def, Tir, ValueId};
use crate::op::IndexMap;

/// For which points of the space a member has an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// For every point.
    Full,
    /// For every point of the kept dims.
    Reduced,
}

/// For each dim of a value, the corresponding dim of the space; `None` for dims of size one.
pub(crate) type Along = Vec<Option<usize>>;

/// A value within a cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterMember {
    /// The value.
    pub value: ValueId,
    /// Its level.
    pub level: Level,
    /// The dims of the space that its dims correspond to.
    pub along: Along,
}

/// Values that one loop nest computes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    /// The iteration space.
    pub space: Vec<usize>,
    /// Which of its dims are reduced.
    pub reduced: Vec<bool>,
    /// The members, in value order.
    pub members: Vec<ClusterMember>,
}

impl Cluster {
    /// The member that is `v`.
    pub(crate) fn member(&self, v: ValueId) -> Option<&ClusterMember> {
        self.members
            .binary_search_by_key(&v, |m| m.value)
            .ok()
            .map(|i| &self.members[i])
    }

    /// Whether any dim is reduced.
    pub(in crate::lower) fn has_reduction(&self) -> bool {
        self.reduced.contains(&true)
    }

    /// The member whose dims are in another order than those of the space, if there is one.
    pub(in crate::lower) fn permuted(&self) -> Option<&ClusterMember> {
        self.members.iter().find(|m| !m.along.iter().flatten().is_sorted())
    }

    /// The dims of the space in the order of the loops over them: that of the permuted member, if there is one. It is the
    /// last, and the only one that is stored.
    pub(in crate::lower) fn loop_order(&self) -> Vec<usize> {
        let permuted = self.permuted().into_iter();
        let mut order: Vec<usize> = permuted.flat_map(|m| m.along.iter().flatten().copied()).collect();
        let rest: Vec<usize> = (0..self.space.len()).filter(|d| !order.contains(d)).collect();
        order.extend(rest);
        order
    }

    /// Maps a value of `shape` at `level` to the space, matching the dims larger than one in order.
    pub(in crate::lower) fn place_shape(&self, shape: &[usize], level: Level) -> Option<Along> {
        let dim = |d: usize| {
            if level == Level::Reduced && self.reduced[d] {
                1
            } else {
                self.space[d]
            }
        };
        let mut rest = (0..self.space.len()).filter(|&d| dim(d) != 1);
        let mut along = Vec::with_capacity(shape.len());
        for &s in shape {
            along.push(match s {
                1 => None,
                _ => Some(rest.next().filter(|&d| dim(d) == s)?),
            });
        }
        rest.next().is_none().then_some(along)
    }
}

/// The users of a value, through any views.
#[derive(Clone, Default)]
pub(in crate::lower) struct Users {
    /// The values that use it.
    pub values: Vec<ValueId>,
    /// Whether it is a result of the program.
    pub output: bool,
}

/// The users of every value.
pub(in crate::lower) fn collect_users(tir: &Tir) -> Vec<Users> {
    let mut users = vec![Users::default(); tir.values.len()];
    for v in tir.output.iter().flat_map(|o| o.leaves()) {
        users[v.0 as usize].output = true;
    }
    // In reverse: the users of a view are complete before its operand inherits them.
    for i in (0..tir.values.len()).rev() {
        let v = ValueId(i as u32);
        let is_view = matches!(tir.value(v).def, Def::View { .. });
        for o in tir.operands(v) {
            if is_view {
                let through = users[i].clone();
                let u = &mut users[o.0 as usize];
                u.values.extend(through.values);
                u.output |= through.output;
            } else {
                users[o.0 as usize].values.push(v);
            }
        }
    }
    users
}

/// Follows a chain of views that only rename dims. Returns the base value and the dims of the space that its dims
/// correspond to; `along` are those of `v`.
pub(crate) fn trace_views(tir: &Tir, v: ValueId, along: &Along) -> Option<(ValueId, Along)> {
    let def = tir.value(v);
    let Def::View { arg, map } = &def.def else {
        return Some((v, along.clone()));
    };
    let from = &tir.value(*arg).shape;
    let inner: Along = match map {
        IndexMap::Reshape => {
            let mut rest = along
                .iter()
                .zip(&def.shape)
                .filter(|&(_, &s)| s != 1)
                .map(|(a, &s)| (*a, s));
            let mut inner = Vec::with_capacity(from.len());
            for &s in from {
                inner.push(match s {
                    1 => None,
                    _ => rest.next().filter(|r| r.1 == s)?.0,
                });
            }
            rest.next().is_none().then_some(inner)?
        }
        IndexMap::Affine(dims) => dims
            .iter()
            .zip(from)
            .map(|(index, &size)| match (&index.terms[..], index.offset) {
                _ if size == 1 => Some(None),
                // The whole dim, starting at its first element.
                (&[(d, 1)], 0) if def.shape[d] == size => Some(along[d]),
                _ => None,
            })
            .collect::<Option<Along>>()?,
        IndexMap::Strided { .. } => return None,
    };
    trace_views(tir, *arg, &inner)
}

/// The dims of the space for an operand of shape `shape` that broadcasts to a value with dims `along`.
pub(crate) fn broadcast_along(shape: &[usize], along: &Along) -> Along {
    let skip = along.len() - shape.len();
    shape
        .iter()
        .enumerate()
        .map(|(d, &s)| if s == 1 { None } else { along[d + skip] })
        .collect()
}
