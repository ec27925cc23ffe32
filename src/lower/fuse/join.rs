//! The conditions of fusion, and the message for each that fails.

use super::cluster::{Along, Cluster, Level, broadcast_along, trace_views};
use super::cost::base_value;
use super::{Fuser, Unit, UnitId};
use crate::lower::ir::{Def, ValueId};
use std::fmt;

/// The maximal number of members of a cluster: longer kernels spill registers and compile slowly.
pub(super) const MAX_MEMBERS: usize = 64;

/// Why the kernel of an operand does not compute a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another step computes something between them.
    Between,
    /// The kernel has the maximal number of values.
    Full,
    /// The sizes differ.
    Sizes,
    /// The value needs elements of the kernel from points other than its own.
    Elsewhere,
    /// The kernel reduces different dims.
    Dims,
    /// The operand is not computed by a kernel: it is a product, a special kernel or a library call.
    NoKernel,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Between => "another step must run between them",
            Refusal::Full => "the kernel has 64 values, the maximum",
            Refusal::Sizes => "its sizes do not match the kernel's loops",
            Refusal::Elsewhere => "it reads the kernel's elements at other positions than its own",
            Refusal::Dims => "the kernel reduces different dims",
            Refusal::NoKernel => "that is a separate step, not a fused kernel",
        })
    }
}

impl Fuser<'_> {
    /// The cluster `u`, if it has room and adding `v` to it makes no cycle.
    fn joinable_cluster(&self, u: UnitId, v: ValueId) -> Result<&Cluster, Refusal> {
        let c = self.cluster(u).ok_or(Refusal::NoKernel)?;
        if c.members.len() >= MAX_MEMBERS {
            return Err(Refusal::Full);
        }
        if !self.keeps_acyclic(v, u) {
            return Err(Refusal::Between);
        }
        Ok(c)
    }

    /// Whether `v`, with the dims `along`, reads every operand that `u` computes at its own point.
    fn is_aligned(&self, c: &Cluster, u: UnitId, v: ValueId, along: &Along) -> bool {
        self.tir.operands(v).iter().all(|&o| {
            if self.owning_unit(base_value(self.tir, o)) != Some(u) {
                return true;
            }
            let shape = &self.tir.value(o).shape;
            let Some((base, base_along)) = trace_views(self.tir, o, &broadcast_along(shape, along)) else {
                return false;
            };
            c.member(base).is_some_and(|m| m.along == base_along)
        })
    }

    /// Whether `v` may join `u` without creating a cycle. If another operand of `v` depends on `u`, then `u` would have to
    /// run before and after the unit of that operand.
    fn keeps_acyclic(&self, v: ValueId, u: UnitId) -> bool {
        self.operand_units(v)
            .iter()
            .all(|&o| o == u || !self.deps[unit_index(o)].contains(u))
    }

    /// The level and dims of the pointwise value `v` in the space of `u`, if it may join.
    pub(in crate::lower) fn pointwise_fits(&self, u: UnitId, v: ValueId) -> Result<(Level, Along), Refusal> {
        let c = self.joinable_cluster(u, v)?;
        let shape = &self.tir.value(v).shape;
        let levels: &[Level] = if c.has_reduction() {
            &[Level::Full, Level::Reduced]
        } else {
            &[Level::Full]
        };
        let mut refusal = Refusal::Sizes;
        // Several levels may match if the reduced dims have size one. The operands decide.
        for &level in levels {
            match c.place_shape(shape, level) {
                Some(along) if self.is_aligned(c, u, v, &along) => return Ok((level, along)),
                Some(_) => refusal = Refusal::Elsewhere,
                None => {}
            }
        }
        let permuted = self.permuted_along(u, v).ok_or(refusal)?;
        Ok((Level::Full, permuted))
    }

    /// The dims of the pointwise value `v` in the space of `u`, if it reads that kernel's elements with dims in another order
    /// and is the only value that the kernel stores. The loops then run in the order of `v`. A value that other kernels could
    /// compute with stays apart: they would have to run in its order, too.
    fn permuted_along(&self, u: UnitId, v: ValueId) -> Option<Along> {
        let c = self.cluster(u)?;
        let joins = self.operand_units(v)[..] == [u] && self.is_last(c, v);
        if c.has_reduction() || !joins || self.may_be_epilogue(c) {
            return None;
        }
        let shape = &self.tir.value(v).shape;
        let own: Along = shape.iter().enumerate().map(|(d, &s)| (s != 1).then_some(d)).collect();
        let operands = self.tir.operands(v);
        let is_member = |o: &&ValueId| self.owning_unit(base_value(self.tir, **o)) == Some(u);
        let &o = operands.iter().find(is_member)?;
        let read = broadcast_along(&self.tir.value(o).shape, &own);
        let (base, base_dims) = trace_views(self.tir, o, &read)?;
        let mut along: Along = vec![None; shape.len()];
        for (d, at) in base_dims.iter().zip(&c.member(base)?.along) {
            if let Some(d) = d {
                along[*d] = *at;
            }
        }
        let dims = c.space.iter().filter(|&&s| s != 1).count();
        let covers = along.iter().flatten().count() == dims && own.iter().flatten().count() == dims;
        (covers && self.is_aligned(c, u, v, &along)).then_some(along)
    }

    /// Whether `c` computes with the result of a product or a special kernel, and so may become its epilogue.
    fn may_be_epilogue(&self, c: &Cluster) -> bool {
        let operands = c.members.iter().flat_map(|m| self.tir.operands(m.value));
        let mut units = operands.filter_map(|o| self.owning_unit(base_value(self.tir, o)));
        units.any(|u| matches!(self.units[unit_index(u)], Some(Unit::Value(_))))
    }

    /// Whether only `v` needs values of `c` from outside, and no kernel could compute with `v`.
    fn is_last(&self, c: &Cluster, v: ValueId) -> bool {
        let inside = |m: ValueId| {
            let users = &self.users[m.0 as usize];
            !users.output && users.values.iter().all(|&x| x == v || c.member(x).is_some())
        };
        let in_kernel = |x: &ValueId| matches!(self.tir.value(*x).def, Def::Pointwise { .. } | Def::Reduce { .. });
        c.members.iter().all(|m| inside(m.value)) && !self.users[v.0 as usize].values.iter().any(in_kernel)
    }

    /// Merges cluster `from` into `into` if their spaces agree and neither depends on the other.
    pub(in crate::lower) fn merge(&mut self, into: UnitId, from: UnitId) -> Result<(), Refusal> {
        let (Some(a), Some(b)) = (self.cluster(into), self.cluster(from)) else {
            return Err(Refusal::NoKernel);
        };
        if self.deps[unit_index(into)].contains(from) || self.deps[unit_index(from)].contains(into) {
            return Err(Refusal::Between);
        }
        if a.space != b.space {
            return Err(Refusal::Sizes);
        }
        if a.permuted().is_some() || b.permuted().is_some() {
            return Err(Refusal::Elsewhere);
        }
        if a.reduced != b.reduced && a.has_reduction() && b.has_reduction() {
            return Err(Refusal::Dims);
        }
        if a.members.len() + b.members.len() >= MAX_MEMBERS {
            return Err(Refusal::Full);
        }
        let Some(Unit::Cluster(b)) = self.units[unit_index(from)].take() else {
            return Err(Refusal::NoKernel);
        };
        for m in &b.members {
            self.unit_of[m.value.0 as usize] = Some(into);
        }
        if let Some(Unit::Cluster(a)) = &mut self.units[unit_index(into)] {
            if b.has_reduction() {
                a.reduced = b.reduced;
            }
            a.members.extend(b.members);
            // `Cluster::member` searches the members in value order, and the scheduler visits operands before users.
            a.members.sort_by_key(|m| m.value);
        }
        self.merge_dependencies(into, from);
        Ok(())
    }

    /// Lets every unit that depends on `from` depend on `into`, and on what both depend on.
    fn merge_dependencies(&mut self, into: UnitId, from: UnitId) {
        let dependencies = [into, from].map(|u| self.deps[unit_index(u)].clone());
        for (i, d) in self.deps.iter_mut().enumerate() {
            if d.contains(from) {
                d.remove(from);
                d.insert(into);
            }
            if i == unit_index(into) || d.contains(into) {
                dependencies.iter().for_each(|b| d.union_with(b));
            }
        }
    }

    /// The reduced dims of `u` and the dims of `v` in its space, if the reduction `v` of `arg` may join.
    pub(in crate::lower) fn reduce_fits(
        &self,
        u: UnitId,
        v: ValueId,
        arg: ValueId,
        dims: &[usize],
    ) -> Result<(Vec<bool>, Along), Refusal> {
        let c = self.joinable_cluster(u, v)?;
        let shape = &self.tir.value(arg).shape;
        let along = c.place_shape(shape, Level::Full).ok_or(Refusal::Sizes)?;
        let (base, base_along) = trace_views(self.tir, arg, &along).ok_or(Refusal::Elsewhere)?;
        let m = c.member(base).ok_or(Refusal::Elsewhere)?;
        if m.level != Level::Full || m.along != base_along {
            return Err(Refusal::Elsewhere);
        }
        let mut reduced = vec![false; c.space.len()];
        dims.iter().filter_map(|&d| along[d]).for_each(|d| reduced[d] = true);
        // Dims of the space with size one may count as reduced or not.
        let same = |a: &[bool], b: &[bool]| a.iter().zip(b).zip(&c.space).all(|((a, b), &s)| a == b || s == 1);
        if c.has_reduction() && !same(&c.reduced, &reduced) {
            return Err(Refusal::Dims);
        }
        if !reduced.contains(&true) {
            // All reduced dims have size one: keep one of them as the row.
            let unit_dim = c.space.iter().position(|&s| s == 1).ok_or(Refusal::Sizes)?;
            reduced[unit_dim] = true;
        }
        let out = along
            .iter()
            .enumerate()
            .map(|(d, a)| if dims.contains(&d) { None } else { *a })
            .collect();
        Ok((if c.has_reduction() { c.reduced.clone() } else { reduced }, out))
    }
}

fn unit_index(u: UnitId) -> usize {
    u.as_u32() as usize
}
