//! Fusion: decides which values one kernel computes.
//!
//! Every pointwise value and every reduction belongs to one [`Cluster`]. A cluster has an iteration space (a shape),
//! some of whose dims may be reduced. Its members are *full* (one element per point of the space) or *reduced* (one per
//! point of the kept dims). Members refer to each other point by point, so one loop nest can compute them: a member's
//! operand inside the cluster must be the element of the same point, seen through views that only add, drop, permute or
//! broadcast dims. Softmax and layer norm become one cluster with several reductions.
//!
//! The algorithm is greedy over the values in order. A value joins the clusters of its operands where that makes no
//! cycle between units (the transitive dependencies of every unit are kept as bit sets). Clusters merge where a value
//! joins two that do not depend on each other. [`join`] has the conditions, with the message that `--explain-fusion`
//! prints for each that fails. Finally, independent clusters over one space that are small, or read the same data, are
//! merged (`horizontal.rs`).

pub(crate) mod cluster;
pub(crate) mod cost;
pub(crate) mod explain;
pub(super) mod flatten;
mod horizontal;
pub(crate) mod join;
pub(super) mod tail;
mod units;

use self::cluster::{Along, Cluster, ClusterMember, Level, Users, collect_users};
use self::horizontal::{MergeReason, MergeRefusal};
use self::join::Refusal;
use self::units::Units;
use crate::lower::ir::{Def, Tir, ValueId};
use cranelift_entity::entity_impl;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The id of a unit: a future kernel, a contraction, a special kernel or a library call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct UnitId(u32);
entity_impl!(UnitId, "unit");

/// What runs as one step.
#[derive(Clone, Debug)]
pub(crate) enum Unit {
    /// A loop kernel.
    Cluster(Cluster),
    /// A contraction or special kernel.
    Value(ValueId),
    /// A library call.
    Call(usize),
}

/// The result of fusion.
#[derive(Debug, Default)]
pub(crate) struct Fusion {
    /// The units, operands before users.
    pub order: Vec<UnitId>,
    /// The definition of each unit.
    pub units: Vec<Option<Unit>>,
    /// Whether each value has a buffer.
    pub stored: Vec<bool>,
    /// Whether each value is recomputed wherever it is used.
    pub inlined: Vec<bool>,
    /// Contractions that apply an activation: maps to the activated value, whose buffer receives the result.
    pub activated: FxHashMap<ValueId, ValueId>,
    /// The unit that computes each value, if any.
    pub unit_of: Vec<Option<UnitId>>,
    /// Values that did not join the cluster of an operand: the value, a value of the cluster, and why.
    pub refused: Vec<(ValueId, ValueId, Refusal)>,
    /// Independent clusters that were merged: a value of each, and why.
    pub merged: Vec<(ValueId, ValueId, MergeReason)>,
    /// Consecutive clusters that were not merged: a value of each, and why.
    pub unmerged: Vec<(ValueId, ValueId, MergeRefusal)>,
}

pub(in crate::lower) struct Fuser<'a> {
    pub(in crate::lower) tir: &'a Tir,
    /// The users of every value.
    users: &'a [Users],
    pub(in crate::lower) units: Vec<Option<Unit>>,
    /// The units that each unit depends on, directly or not.
    pub(in crate::lower) deps: Vec<Units>,
    pub(in crate::lower) unit_of: Vec<Option<UnitId>>,
    refused: Vec<(ValueId, ValueId, Refusal)>,
    pub(in crate::lower) merged: Vec<(ValueId, ValueId, MergeReason)>,
    pub(in crate::lower) unmerged: Vec<(ValueId, ValueId, MergeRefusal)>,
    inlined: Vec<bool>,
    activated: FxHashMap<ValueId, ValueId>,
    /// The last call with side effects.
    last_effect: Option<UnitId>,
}

/// Decides which values are computed together.
pub(crate) fn fuse(tir: &Tir) -> Fusion {
    let users = collect_users(tir);
    let n = tir.values.len();
    let mut f = Fuser::new(tir, &users);
    // Before `visit`, which gives an activated value to the unit of its contraction.
    f.find_activated(&users);
    for (i, users) in users.iter().enumerate() {
        let v = ValueId(i as u32);
        f.inlined[i] = f.is_inlined(v, users);
        if !f.inlined[i] {
            f.visit(v);
        }
    }
    // Last: joining the cluster of an operand saves a store and a load, while merging independent clusters saves only
    // launches and common reads.
    f.merge_horizontally(&users);
    let order = f.topological_order();
    // Only reports say why.
    if !tir.skips_report {
        f.explain_neighbours(&order, &users);
    }
    let stored = (0..n).map(|i| f.is_stored(ValueId(i as u32), &users[i])).collect();
    Fusion {
        order,
        units: f.units,
        stored,
        inlined: f.inlined,
        activated: f.activated,
        unit_of: f.unit_of,
        refused: f.refused,
        merged: f.merged,
        unmerged: f.unmerged,
    }
}

impl<'a> Fuser<'a> {
    /// The state before the first value.
    fn new(tir: &'a Tir, users: &'a [Users]) -> Fuser<'a> {
        let n = tir.values.len();
        Fuser {
            tir,
            users,
            units: vec![],
            deps: vec![],
            unit_of: vec![None; n],
            refused: vec![],
            merged: vec![],
            unmerged: vec![],
            inlined: vec![false; n],
            activated: FxHashMap::default(),
            last_effect: None,
        }
    }
}

impl Fuser<'_> {
    fn is_inlined(&self, v: ValueId, users: &Users) -> bool {
        // A value without operands (`full`, `arange`) is cheaper to recompute than to load.
        let Def::Pointwise { expr, args } = &self.tir.value(v).def else {
            return false;
        };
        let fused = |u: &ValueId| matches!(self.tir.value(*u).def, Def::Pointwise { .. } | Def::Reduce { .. });
        // Only kernels can recompute an operand. Contractions, routines and callers read buffers.
        args.is_empty() && expr.len() <= 4 && !users.output && users.values.iter().all(fused) && self.has_no_views(v)
    }

    /// Whether no view reads `v`. A view may select elements, which requires a buffer.
    fn has_no_views(&self, v: ValueId) -> bool {
        self.tir
            .values
            .iter()
            .skip(v.0 as usize)
            .all(|d| !matches!(&d.def, Def::View { arg, .. } if *arg == v))
    }

    /// Finds activations that are the only use of a contraction, without a view between them.
    fn find_activated(&mut self, users: &[Users]) {
        for &v in self.tir.activations.keys() {
            let a = self.tir.operands(v)[0];
            let u = &users[a.0 as usize];
            let only = !u.output && u.values == [v] && self.tir.value(a).dtype == self.tir.value(v).dtype;
            if only && matches!(self.tir.value(a).def, Def::Contract { .. }) {
                self.activated.insert(a, v);
            }
        }
    }

    fn visit(&mut self, v: ValueId) {
        match &self.tir.value(v).def {
            Def::Pointwise { args, .. } if args.iter().any(|a| self.activated.get(a) == Some(&v)) => {
                self.unit_of[v.0 as usize] = self.owning_unit(args[0]);
            }
            Def::Input(_) | Def::Constant(_) | Def::View { .. } => {}
            Def::Contract { .. } | Def::Special { .. } => {
                self.new_unit(Unit::Value(v), &[v]);
            }
            Def::Routine { call, result } => {
                // One unit computes all results of the call. It is created at the first, when all operands have
                // units.
                if *result == 0 {
                    let results = self.tir.calls[*call].results.clone();
                    let id = self.new_unit(Unit::Call(*call), &results);
                    if self.tir.calls[*call].has_side_effects() {
                        // Random numbers are drawn in graph order.
                        let before: Vec<UnitId> = self.last_effect.replace(id).into_iter().collect();
                        self.add_dependencies(id, &before);
                    }
                }
            }
            Def::Pointwise { .. } => self.pointwise(v),
            Def::Reduce { .. } => self.reduce(v),
        }
    }

    pub(in crate::lower) fn owning_unit(&self, v: ValueId) -> Option<UnitId> {
        self.unit_of[v.0 as usize]
    }

    pub(in crate::lower) fn operand_units(&self, v: ValueId) -> SmallVec<[UnitId; 4]> {
        let mut units: SmallVec<[UnitId; 4]> = self
            .tir
            .operands(v)
            .iter()
            .filter_map(|&o| self.owning_unit(cost::base_value(self.tir, o)))
            .collect();
        units.sort_unstable();
        units.dedup();
        units
    }

    fn new_unit(&mut self, unit: Unit, values: &[ValueId]) -> UnitId {
        let id = UnitId(self.units.len() as u32);
        self.units.push(Some(unit));
        self.deps.push(Units::default());
        for &v in values {
            self.unit_of[v.0 as usize] = Some(id);
        }
        // No unit depends on it yet.
        self.deps[id.0 as usize] = self.with_deps(&self.operand_units(values[0]), id);
        id
    }

    /// The units `on`, with everything they depend on, except `u`.
    fn with_deps(&self, on: &[UnitId], u: UnitId) -> Units {
        let mut all = Units::default();
        for &o in on.iter().filter(|&&o| o != u) {
            all.insert(o);
            all.union_with(&self.deps[o.0 as usize]);
        }
        all
    }

    /// Records that `u`, and every unit that depends on it, depends on `on`.
    fn add_dependencies(&mut self, u: UnitId, on: &[UnitId]) {
        // If `u` already depends on a unit, it also depends on that unit's dependencies.
        let known = &self.deps[u.0 as usize];
        if on.iter().all(|&o| o == u || known.contains(o)) {
            return;
        }
        let new = self.with_deps(on, u);
        for (i, d) in self.deps.iter_mut().enumerate() {
            if i == u.0 as usize || d.contains(u) {
                d.union_with(&new);
            }
        }
    }

    pub(in crate::lower) fn cluster(&self, u: UnitId) -> Option<&Cluster> {
        match &self.units[u.0 as usize] {
            Some(Unit::Cluster(c)) => Some(c),
            _ => None,
        }
    }

    /// Records why `v` does not join `u`, if that is a kernel.
    fn refuse(&mut self, v: ValueId, u: UnitId, refusal: Refusal) {
        if let Some(m) = self.cluster(u).and_then(|c| c.members.first()) {
            self.refused.push((v, m.value, refusal));
        }
    }

    fn add_member(&mut self, u: UnitId, v: ValueId, level: Level, along: Along) {
        if let Some(Unit::Cluster(c)) = &mut self.units[u.0 as usize] {
            c.members.push(ClusterMember { value: v, level, along });
        }
        self.unit_of[v.0 as usize] = Some(u);
        let on = self.operand_units(v);
        self.add_dependencies(u, &on);
    }

    fn pointwise(&mut self, v: ValueId) {
        let mut joins = vec![];
        for u in self.operand_units(v) {
            match self.pointwise_fits(u, v) {
                Ok(_) => joins.push(u),
                Err(refusal) => self.refuse(v, u, refusal),
            }
        }
        let Some(&into) = joins.last() else {
            let shape = self.tir.value(v).shape.clone();
            let reduced = vec![false; shape.len()];
            return self.new_cluster(v, Level::Full, shape, reduced);
        };
        // `v` connects these clusters: merged, they pass their values to it in registers.
        for &other in joins.iter().rev().skip(1) {
            if let Err(refusal) = self.merge(into, other) {
                self.refuse(v, other, refusal);
            }
        }
        // The merge may have changed the level and dims of `v`. It never makes the join illegal.
        match self.pointwise_fits(into, v) {
            Ok((level, along)) => self.add_member(into, v, level, along),
            Err(_) => unreachable!("a merge keeps the space"),
        }
    }

    fn reduce(&mut self, v: ValueId) {
        let Def::Reduce { arg, dims, .. } = &self.tir.value(v).def else {
            return;
        };
        let (arg, dims) = (*arg, dims.clone());
        let shape = self.tir.value(arg).shape.clone();
        let unit = self.owning_unit(cost::base_value(self.tir, arg));
        match unit.map(|u| (u, self.reduce_fits(u, v, arg, &dims))) {
            Some((u, Ok((reduced, along)))) => {
                if let Some(Unit::Cluster(c)) = &mut self.units[u.0 as usize] {
                    c.reduced = reduced;
                }
                return self.add_member(u, v, Level::Reduced, along);
            }
            Some((u, Err(refusal))) => self.refuse(v, u, refusal),
            None => {}
        }
        let reduced: Vec<bool> = (0..shape.len()).map(|d| dims.contains(&d)).collect();
        self.new_cluster(v, Level::Reduced, shape, reduced);
    }

    /// Creates a cluster of one value over the iteration space `space`.
    fn new_cluster(&mut self, v: ValueId, level: Level, space: Vec<usize>, reduced: Vec<bool>) {
        let along = (0..space.len())
            .map(|d| (!reduced[d] && space[d] != 1).then_some(d))
            .collect();
        let members = vec![ClusterMember { value: v, level, along }];
        let cluster = Cluster {
            space,
            reduced,
            members,
        };
        self.new_unit(Unit::Cluster(cluster), &[v]);
    }

    pub(in crate::lower) fn is_stored(&self, v: ValueId, users: &Users) -> bool {
        if self.inlined[v.0 as usize] {
            return false;
        }
        match &self.tir.value(v).def {
            Def::View { .. } => false,
            Def::Contract { .. } if self.activated.contains_key(&v) => false,
            Def::Pointwise { args, .. } if args.iter().any(|a| self.activated.get(a) == Some(&v)) => true,
            Def::Pointwise { .. } | Def::Reduce { .. } => {
                users.output || users.values.iter().any(|&u| self.owning_unit(u) != self.owning_unit(v))
            }
            _ => true,
        }
    }

    /// The units in topological order: operands before users.
    pub(in crate::lower) fn topological_order(&self) -> Vec<UnitId> {
        let mut order: Vec<UnitId> = (0..self.units.len())
            .filter(|&i| self.units[i].is_some())
            .map(|i| UnitId(i as u32))
            .collect();
        // A unit has strictly more dependencies than any unit it depends on.
        order.sort_by_cached_key(|u| (self.deps[u.0 as usize].count(), u.0));
        order
    }
}
