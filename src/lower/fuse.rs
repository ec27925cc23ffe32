//! Fusion: which values are computed by one kernel.
//!
//! Every pointwise value and every reduction belongs to one [`Cluster`]. A cluster has an iteration space (a shape),
//! some of whose dims may be reduced; its members are *full* (one element per point of the space) or *reduced* (one per
//! point of the kept dims). Members refer to each other point by point, which is what makes one loop nest of them: a
//! member's operand inside the cluster must be the element of the same point, seen through views that only add, drop,
//! permute or broadcast dims. Softmax and layer norm come out as one cluster with several reductions.
//!
//! The algorithm is greedy over the values in order: a value joins the clusters of its operands where that makes no
//! cycle between units (the transitive dependencies of every unit are kept as bit sets), and clusters merge where a
//! value joins two that do not depend on each other.

use super::cluster::{Along, Cluster, Level, Member, Users, broadcast_along, trace, users};
use super::ir::{Def, Tir, ValueId};
use super::units::Units;
use cranelift_entity::entity_impl;
use std::collections::HashMap;

/// A kernel to be, or a contraction, special kernel or library call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnitId(u32);
entity_impl!(UnitId, "unit");

/// What executes as one step.
#[derive(Clone, Debug)]
pub enum Unit {
    /// A loop kernel.
    Cluster(Cluster),
    /// A contraction or special kernel.
    Value(ValueId),
    /// A library call.
    Call(usize),
}

/// The result of fusion.
#[derive(Debug, Default)]
pub struct Fusion {
    /// Units, operands before users.
    pub order: Vec<UnitId>,
    /// What each unit is.
    pub units: Vec<Option<Unit>>,
    /// Whether each value has a buffer.
    pub stored: Vec<bool>,
    /// Whether each value is computed anew wherever it is used.
    pub inlined: Vec<bool>,
    /// Contractions that apply an activation: the activated value, in whose buffer the result goes.
    pub activated: HashMap<ValueId, ValueId>,
}

/// At most this many members in one cluster: longer kernels spill and compile slowly.
const MAX_MEMBERS: usize = 64;

struct Fuser<'a> {
    tir: &'a Tir,
    units: Vec<Option<Unit>>,
    /// The units each unit depends on, directly or not.
    deps: Vec<Units>,
    unit_of: Vec<Option<UnitId>>,
    inlined: Vec<bool>,
    activated: HashMap<ValueId, ValueId>,
    /// The last call that did more than compute.
    last_effect: Option<UnitId>,
}

/// Decides which values are computed together.
pub fn fuse(tir: &Tir) -> Fusion {
    let users = users(tir);
    let n = tir.values.len();
    let mut f = Fuser {
        tir,
        units: vec![],
        deps: vec![],
        unit_of: vec![None; n],
        inlined: vec![false; n],
        activated: HashMap::new(),
        last_effect: None,
    };
    f.find_activated(&users);
    for (i, users) in users.iter().enumerate() {
        let v = ValueId(i as u32);
        f.inlined[i] = f.is_inlined(v, users);
        if !f.inlined[i] {
            f.visit(v);
        }
    }
    let stored = (0..n).map(|i| f.is_stored(ValueId(i as u32), &users[i])).collect();
    let order = f.topological();
    Fusion {
        order,
        units: f.units,
        stored,
        inlined: f.inlined,
        activated: f.activated,
    }
}

impl Fuser<'_> {
    fn is_inlined(&self, v: ValueId, users: &Users) -> bool {
        // A value made of nothing (`full`, `arange`) costs less to compute again than to load.
        let Def::Pointwise { expr, args } = &self.tir.value(v).def else {
            return false;
        };
        let fused = |u: &ValueId| matches!(self.tir.value(*u).def, Def::Pointwise { .. } | Def::Reduce { .. });
        args.is_empty()
            && expr.len() <= 4
            && !users.output
            && users.values.iter().all(fused)
            && self.users_rename_only(v)
    }

    /// Whether every view on `v` only renames dims.
    fn users_rename_only(&self, v: ValueId) -> bool {
        self.tir
            .values
            .iter()
            .skip(v.0 as usize)
            .all(|d| !matches!(&d.def, Def::View { arg, .. } if *arg == v))
    }

    /// Activations that are the only use of a contraction, seen through no view.
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
                self.unit_of[v.0 as usize] = self.unit(args[0]);
            }
            Def::Input(_) | Def::Constant(_) | Def::View { .. } => {}
            Def::Contract { .. } | Def::Special { .. } => {
                self.new_unit(Unit::Value(v), &[v]);
            }
            Def::Routine { call, result } => {
                if *result == 0 {
                    let results = self.tir.calls[*call].results.clone();
                    let id = self.new_unit(Unit::Call(*call), &results);
                    if self.tir.calls[*call].does_more() {
                        // Random numbers are drawn in the graph's order.
                        let before: Vec<UnitId> = self.last_effect.replace(id).into_iter().collect();
                        self.depend(id, &before);
                    }
                }
            }
            Def::Pointwise { .. } => self.pointwise(v),
            Def::Reduce { .. } => self.reduce(v),
        }
    }

    fn unit(&self, v: ValueId) -> Option<UnitId> {
        self.unit_of[v.0 as usize]
    }

    /// The value whose buffer or register an operand is: views looked through.
    fn base(&self, mut v: ValueId) -> ValueId {
        while let Def::View { arg, .. } = &self.tir.value(v).def {
            v = *arg;
        }
        v
    }

    fn operand_units(&self, v: ValueId) -> Vec<UnitId> {
        let mut units: Vec<UnitId> = self
            .tir
            .operands(v)
            .iter()
            .filter_map(|&o| self.unit(self.base(o)))
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
        // Nothing depends on it yet.
        self.deps[id.0 as usize] = self.with_deps(&self.operand_units(values[0]), id);
        id
    }

    /// Units other than `u` with all that they depend on.
    fn with_deps(&self, on: &[UnitId], u: UnitId) -> Units {
        let mut all = Units::default();
        for &o in on.iter().filter(|&&o| o != u) {
            all.insert(o);
            all.add(&self.deps[o.0 as usize]);
        }
        all
    }

    /// Records that `u`, and with it all that depend on it, depends on `on`.
    fn depend(&mut self, u: UnitId, on: &[UnitId]) {
        // What it depends on already it depends on with all that follows.
        let known = &self.deps[u.0 as usize];
        if on.iter().all(|&o| o == u || known.contains(o)) {
            return;
        }
        let new = self.with_deps(on, u);
        for (i, d) in self.deps.iter_mut().enumerate() {
            if i == u.0 as usize || d.contains(u) {
                d.add(&new);
            }
        }
    }

    fn cluster(&self, u: UnitId) -> Option<&Cluster> {
        match &self.units[u.0 as usize] {
            Some(Unit::Cluster(c)) => Some(c),
            _ => None,
        }
    }

    /// Whether `v`, lying `along` the space of `u`, finds every operand that `u` computes at its own point.
    fn aligned(&self, c: &Cluster, u: UnitId, v: ValueId, along: &Along) -> bool {
        self.tir.operands(v).iter().all(|&o| {
            if self.unit(self.base(o)) != Some(u) {
                return true;
            }
            let shape = &self.tir.value(o).shape;
            let Some((base, found)) = trace(self.tir, o, &broadcast_along(shape, along)) else {
                return false;
            };
            c.member(base).is_some_and(|m| m.along == found)
        })
    }

    /// Whether `v` may join `u` without making a cycle.
    fn acyclic(&self, v: ValueId, u: UnitId) -> bool {
        self.operand_units(v)
            .iter()
            .all(|&o| o == u || !self.deps[o.0 as usize].contains(u))
    }

    fn fits(&self, u: UnitId, v: ValueId) -> Option<(Level, Along)> {
        let c = self.cluster(u)?;
        if c.members.len() >= MAX_MEMBERS || !self.acyclic(v, u) {
            return None;
        }
        let shape = &self.tir.value(v).shape;
        let levels: &[Level] = if c.has_reduction() {
            &[Level::Full, Level::Reduced]
        } else {
            &[Level::Full]
        };
        levels.iter().find_map(|&level| {
            let along = c.place(shape, level)?;
            self.aligned(c, u, v, &along).then_some((level, along))
        })
    }

    fn add(&mut self, u: UnitId, v: ValueId, level: Level, along: Along) {
        if let Some(Unit::Cluster(c)) = &mut self.units[u.0 as usize] {
            c.members.push(Member { value: v, level, along });
        }
        self.unit_of[v.0 as usize] = Some(u);
        let on = self.operand_units(v);
        self.depend(u, &on);
    }

    fn pointwise(&mut self, v: ValueId) {
        let operands = self.operand_units(v);
        let joins: Vec<UnitId> = operands
            .iter()
            .copied()
            .filter(|&u| self.fits(u, v).is_some())
            .collect();
        let Some(&into) = joins.last() else {
            let shape = self.tir.value(v).shape.clone();
            let along = shape.iter().enumerate().map(|(d, &s)| (s != 1).then_some(d)).collect();
            let members = vec![Member {
                value: v,
                level: Level::Full,
                along,
            }];
            let reduced = vec![false; shape.len()];
            self.new_unit(
                Unit::Cluster(Cluster {
                    space: shape,
                    reduced,
                    members,
                }),
                &[v],
            );
            return;
        };
        for &other in joins.iter().rev().skip(1) {
            self.merge(into, other);
        }
        // A merge may have changed what fits; it never makes the join illegal, but the place is to be found again.
        match self.fits(into, v) {
            Some((level, along)) => self.add(into, v, level, along),
            None => unreachable!("a merge keeps the space"),
        }
    }

    /// Merges cluster `from` into `into` if their spaces agree and neither depends on the other.
    fn merge(&mut self, into: UnitId, from: UnitId) {
        let (Some(a), Some(b)) = (self.cluster(into), self.cluster(from)) else {
            return;
        };
        let independent = !self.deps[into.0 as usize].contains(from) && !self.deps[from.0 as usize].contains(into);
        let same = a.space == b.space && (a.reduced == b.reduced || !a.has_reduction() || !b.has_reduction());
        if !independent || !same || a.members.len() + b.members.len() >= MAX_MEMBERS {
            return;
        }
        let Some(Unit::Cluster(b)) = self.units[from.0 as usize].take() else {
            return;
        };
        for m in &b.members {
            self.unit_of[m.value.0 as usize] = Some(into);
        }
        if let Some(Unit::Cluster(a)) = &mut self.units[into.0 as usize] {
            if b.has_reduction() {
                a.reduced = b.reduced;
            }
            a.members.extend(b.members);
            a.members.sort_by_key(|m| m.value);
        }
        let both = [into, from].map(|u| self.deps[u.0 as usize].clone());
        for (i, d) in self.deps.iter_mut().enumerate() {
            if d.contains(from) {
                d.remove(from);
                d.insert(into);
            }
            if i == into.0 as usize || d.contains(into) {
                both.iter().for_each(|b| d.add(b));
            }
        }
    }

    fn reduce(&mut self, v: ValueId) {
        let Def::Reduce { arg, dims, .. } = &self.tir.value(v).def else {
            return;
        };
        let (arg, dims) = (*arg, dims.clone());
        let shape = self.tir.value(arg).shape.clone();
        let joined = self
            .unit(self.base(arg))
            .and_then(|u| self.reduce_fits(u, v, arg, &dims).map(|r| (u, r)));
        if let Some((u, (reduced, along))) = joined {
            if let Some(Unit::Cluster(c)) = &mut self.units[u.0 as usize] {
                c.reduced = reduced;
            }
            self.add(u, v, Level::Reduced, along);
            return;
        }
        let reduced: Vec<bool> = (0..shape.len()).map(|d| dims.contains(&d)).collect();
        let along = (0..shape.len())
            .map(|d| (!reduced[d] && shape[d] != 1).then_some(d))
            .collect();
        let members = vec![Member {
            value: v,
            level: Level::Reduced,
            along,
        }];
        self.new_unit(
            Unit::Cluster(Cluster {
                space: shape,
                reduced,
                members,
            }),
            &[v],
        );
    }

    /// The reduced dims of `u` and the place of `v` in it, if the reduction `v` of `arg` may join.
    fn reduce_fits(&self, u: UnitId, v: ValueId, arg: ValueId, dims: &[usize]) -> Option<(Vec<bool>, Along)> {
        let c = self.cluster(u)?;
        if c.members.len() >= MAX_MEMBERS || !self.acyclic(v, u) {
            return None;
        }
        let shape = &self.tir.value(arg).shape;
        let along = c.place(shape, Level::Full)?;
        let (base, found) = trace(self.tir, arg, &along)?;
        let m = c.member(base)?;
        if m.level != Level::Full || m.along != found {
            return None;
        }
        let mut reduced = vec![false; c.space.len()];
        dims.iter().filter_map(|&d| along[d]).for_each(|d| reduced[d] = true);
        // Dims of size one of the space may count as reduced or not.
        let same = |a: &[bool], b: &[bool]| a.iter().zip(b).zip(&c.space).all(|((a, b), &s)| a == b || s == 1);
        if c.has_reduction() && !same(&c.reduced, &reduced) {
            return None;
        }
        let kept: usize = (0..reduced.len())
            .filter(|&d| !reduced[d])
            .map(|d| c.space[d])
            .product();
        if kept < 2 && c.space.iter().product::<usize>() > 1 << 16 {
            // One long sum would keep the pointwise part from running on several threads.
            return None;
        }
        if !reduced.contains(&true) {
            // Only dims of size one are reduced: keep one of them as the row.
            let one = c.space.iter().position(|&s| s == 1)?;
            reduced[one] = true;
        }
        let out = along
            .iter()
            .enumerate()
            .map(|(d, a)| if dims.contains(&d) { None } else { *a })
            .collect();
        Some((if c.has_reduction() { c.reduced.clone() } else { reduced }, out))
    }

    fn is_stored(&self, v: ValueId, users: &Users) -> bool {
        if self.inlined[v.0 as usize] {
            return false;
        }
        match &self.tir.value(v).def {
            Def::View { .. } => false,
            Def::Contract { .. } if self.activated.contains_key(&v) => false,
            Def::Pointwise { args, .. } if args.iter().any(|a| self.activated.get(a) == Some(&v)) => true,
            Def::Pointwise { .. } | Def::Reduce { .. } => {
                users.output || users.values.iter().any(|&u| self.unit(u) != self.unit(v))
            }
            _ => true,
        }
    }

    /// The units with operands before users.
    fn topological(&self) -> Vec<UnitId> {
        let mut order: Vec<UnitId> = (0..self.units.len())
            .filter(|&i| self.units[i].is_some())
            .map(|i| UnitId(i as u32))
            .collect();
        // A unit has strictly more dependencies than any unit it depends on.
        order.sort_by_cached_key(|u| (self.deps[u.0 as usize].count(), u.0));
        order
    }
}
