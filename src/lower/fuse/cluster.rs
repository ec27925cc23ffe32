//! Clusters: values computed by one loop nest, and how their dims lie in its space.

use crate::lower::ir::{Def, Tir, ValueId};
use crate::op::IndexMap;

/// Which points of the space a member has an element for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Every point.
    Full,
    /// Every point of the kept dims.
    Reduced,
}

/// For each dim of a value, the dim of the space it runs along; `None` for dims of size one.
pub type Along = Vec<Option<usize>>;

/// A value within a cluster.
#[derive(Clone, Debug)]
pub struct ClusterMember {
    /// The value.
    pub value: ValueId,
    /// Its level.
    pub level: Level,
    /// Its dims in the space.
    pub along: Along,
}

/// Values computed by one loop nest.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// The iteration space.
    pub space: Vec<usize>,
    /// Which dims of it are reduced.
    pub reduced: Vec<bool>,
    /// In value order.
    pub members: Vec<ClusterMember>,
}

impl Cluster {
    /// The member that is `v`.
    pub fn member(&self, v: ValueId) -> Option<&ClusterMember> {
        self.members
            .binary_search_by_key(&v, |m| m.value)
            .ok()
            .map(|i| &self.members[i])
    }

    /// Whether a dim is reduced.
    pub(in crate::lower) fn has_reduction(&self) -> bool {
        self.reduced.contains(&true)
    }

    /// How a value of `shape` at `level` lies in the space, by its dims other than one, in order.
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

/// Who uses a value, through any views.
#[derive(Clone, Default)]
pub(in crate::lower) struct Users {
    /// The values.
    pub values: Vec<ValueId>,
    /// Whether the program gives it.
    pub output: bool,
}

/// The users of every value.
pub(in crate::lower) fn collect_users(tir: &Tir) -> Vec<Users> {
    let mut users = vec![Users::default(); tir.values.len()];
    for v in tir.output.iter().flat_map(|o| o.leaves()) {
        users[v.0 as usize].output = true;
    }
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

/// The value under a chain of views that only rename dims, and the dims of it: `along` says where the dims of `v` lie.
pub fn trace_views(tir: &Tir, v: ValueId, along: &Along) -> Option<(ValueId, Along)> {
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
                // The whole dim, from its first element on.
                (&[(d, 1)], 0) if def.shape[d] == size => Some(along[d]),
                _ => None,
            })
            .collect::<Option<Along>>()?,
        IndexMap::Strided { .. } => return None,
    };
    trace_views(tir, *arg, &inner)
}

/// The dims of an operand of shape `shape` that broadcasts to a value whose dims lie `along`.
pub fn broadcast_along(shape: &[usize], along: &Along) -> Along {
    let skip = along.len() - shape.len();
    shape
        .iter()
        .enumerate()
        .map(|(d, &s)| if s == 1 { None } else { along[d + skip] })
        .collect()
}
