//! Epilogues: pointwise kernels that run on a contraction's result piece by piece, while it is in cache.
//!
//! A cluster qualifies as the tail of a product or convolution if it is the only reader of the result, stores one value
//! of the same size, and its kernel is one flat loop in which element `i` depends only on elements `i`. The contraction
//! then runs at the cluster's position, and writes into the cluster's buffer.

use super::cluster::Cluster;
use super::{Fusion, Unit, UnitId};
use crate::kernel::{Index, Inst, Kernel, Stmt, Var};
use crate::lower::contract::byte_input;
use crate::lower::ir::{Def, Scheduled, Stored, Tir, ValueId};
use crate::op::Contraction;
use crate::types::DType;
use rustc_hash::FxHashMap;
use std::fmt;

/// A contraction, and the result of the cluster that may be its tail.
#[derive(Clone, Copy, Debug)]
pub(in crate::lower) struct Host {
    /// The contraction.
    pub contraction: ValueId,
    /// The value that the cluster stores.
    pub result: ValueId,
}

/// Why a kernel that reads a contraction's result is not its tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::lower) enum TailRefusal {
    /// Other units read the result too.
    Shared,
    /// The contraction's result is a result of the graph.
    Result,
    /// The kernel reduces.
    Reduces,
    /// The kernel stores several values.
    Several,
    /// The kernel's result has a different size.
    Sizes,
    /// The kernel's result has a different dtype.
    Dtypes,
    /// The kernel is the tail of another contraction.
    Taken,
    /// Its elements are not in the order of the contraction's.
    Places,
}

impl fmt::Display for TailRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TailRefusal::Shared => "other steps also read the result, so it must be in memory",
            TailRefusal::Result => "the result is an output of the graph, so it must be in memory",
            TailRefusal::Reduces => "it reduces rows, but a tile of the result is not a whole row",
            TailRefusal::Several => "it does not store exactly one value in place of the result",
            TailRefusal::Sizes => "its number of elements differs from the result's",
            TailRefusal::Dtypes => "its dtype differs from the result's",
            TailRefusal::Taken => "it is already the epilogue of another matrix product",
            TailRefusal::Places => "it reads elements of the result at other positions than its own",
        })
    }
}

/// The kernels that read contractions' results and are not their tail: the contraction, a value of the kernel, and why.
pub(in crate::lower) fn refused_tails(
    tir: &Tir,
    fusion: &Fusion,
    hosts: &FxHashMap<UnitId, Host>,
) -> Vec<(ValueId, ValueId, TailRefusal)> {
    let users = contraction_users(tir, fusion);
    let hosting: Vec<ValueId> = hosts.values().map(|h| h.contraction).collect();
    let mut all: Vec<ValueId> = users.keys().copied().collect();
    all.retain(|v| tir.value(*v).numel() > 0 && !hosting.contains(v) && !fusion.activated.contains_key(v));
    all.sort_by_key(|v| v.0);
    let mut refusals = vec![];
    for v in all {
        let by = &users[&v];
        for u in by.iter().flatten() {
            let Some(Unit::Cluster(c)) = unit_at(fusion, *u) else {
                continue;
            };
            let result = only_result(fusion, c);
            let refusal = match (by.len(), result) {
                (2.., _) if by.contains(&None) => TailRefusal::Result,
                (2.., _) => TailRefusal::Shared,
                _ if c.reduced.contains(&true) => TailRefusal::Reduces,
                (_, None) => TailRefusal::Several,
                (_, Some(r)) if tir.value(r).numel() != tir.value(v).numel() => TailRefusal::Sizes,
                (_, Some(r)) if !can_store(tir, v, r) => TailRefusal::Dtypes,
                _ => TailRefusal::Taken,
            };
            let stored = c.members.iter().map(|m| m.value);
            let mut stored = stored.filter(|v| fusion.stored[v.0 as usize]);
            refusals.extend(stored.next().map(|s| (v, s, refusal)));
        }
    }
    refusals
}

/// The contraction of each cluster that may be a tail: of several, the last, because the others must be complete before the tail runs.
pub(in crate::lower) fn find_hosts(tir: &Tir, fusion: &Fusion) -> FxHashMap<UnitId, Host> {
    let users = contraction_users(tir, fusion);
    let position: FxHashMap<ValueId, usize> = fusion
        .order
        .iter()
        .enumerate()
        .filter_map(|(n, &u)| match unit_at(fusion, u) {
            Some(Unit::Value(v)) => Some((*v, n)),
            _ => None,
        })
        .collect();
    // Contractions that only one unit reads, by that unit.
    let mut read_by: FxHashMap<UnitId, Vec<ValueId>> = FxHashMap::default();
    for (&v, by) in &users {
        let def = tir.value(v);
        let contraction = matches!(def.def, Def::Contract { .. }) && has_tails(tir, v) && def.numel() > 0;
        if let (true, &[Some(u)]) = (contraction && !fusion.activated.contains_key(&v), &by[..]) {
            read_by.entry(u).or_default().push(v);
        }
    }
    let mut tails = FxHashMap::default();
    for &u in &fusion.order {
        let Some(Unit::Cluster(c)) = unit_at(fusion, u) else {
            continue;
        };
        let Some(result) = only_result(fusion, c) else {
            continue;
        };
        let numel = tir.value(result).numel();
        let hosts = read_by.get(&u).into_iter().flatten();
        let host = hosts
            .filter(|&&v| tir.value(v).numel() == numel && can_store(tir, v, result))
            .max_by_key(|v| position.get(v));
        if let Some(&contraction) = host {
            tails.insert(u, Host { contraction, result });
        }
    }
    tails
}

fn unit_at(fusion: &Fusion, u: UnitId) -> Option<&Unit> {
    fusion.units[u.as_u32() as usize].as_ref()
}

/// Whether the contraction `v` runs tails. Sums of bytes need rows of channels for it.
fn has_tails(tir: &Tir, v: ValueId) -> bool {
    let is_matrix = matches!(
        tir.value(v).def,
        Def::Contract {
            contraction: Contraction::MatMul(_),
            ..
        }
    );
    let in_rows = || is_matrix || tir.channels_last.get(&v).is_some_and(|last| last[1]);
    is_tail_dtype(tir.value(v).dtype) || byte_input(tir, v).is_some() && in_rows()
}

/// Whether a tail of the contraction `host` can store `result`. It overwrites the tile that it reads, except sums of bytes.
fn can_store(tir: &Tir, host: ValueId, result: ValueId) -> bool {
    let dtype = tir.value(result).dtype;
    byte_input(tir, host).is_some() || is_tail_dtype(dtype) && dtype == tir.value(host).dtype
}

fn is_tail_dtype(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// The only stored value of a cluster without reductions.
fn only_result(fusion: &Fusion, c: &Cluster) -> Option<ValueId> {
    let mut stored = c
        .members
        .iter()
        .map(|m| m.value)
        .filter(|v| fusion.stored[v.0 as usize]);
    let result = stored.next()?;
    (stored.next().is_none() && !c.reduced.contains(&true)).then_some(result)
}

/// For each contraction, the units that read its result. `None` means that it is a result of the program.
fn contraction_users(tir: &Tir, fusion: &Fusion) -> FxHashMap<ValueId, Vec<Option<UnitId>>> {
    let base = |mut v: ValueId| {
        while let Def::View { arg, .. } = &tir.value(v).def {
            v = *arg;
        }
        v
    };
    let mut unit_of: Vec<Option<UnitId>> = vec![None; tir.values.len()];
    for &u in &fusion.order {
        let mut set = |v: ValueId| unit_of[v.0 as usize] = Some(u);
        match unit_at(fusion, u) {
            Some(Unit::Cluster(c)) => c.members.iter().for_each(|m| set(m.value)),
            Some(Unit::Value(v)) => set(*v),
            Some(Unit::Call(i)) => tir.calls[*i].results.iter().for_each(|&v| set(v)),
            None => {}
        }
    }
    let mut users: FxHashMap<ValueId, Vec<Option<UnitId>>> = FxHashMap::default();
    let mut add = |v: ValueId, by: Option<UnitId>| {
        if matches!(tir.value(v).def, Def::Contract { .. }) {
            let all = users.entry(v).or_default();
            if !all.contains(&by) {
                all.push(by);
            }
        }
    };
    for v in (0..tir.values.len() as u32).map(ValueId) {
        if !matches!(tir.value(v).def, Def::View { .. }) {
            tir.operands(v)
                .into_iter()
                .for_each(|o| add(base(o), unit_of[v.0 as usize]));
        }
    }
    for &v in tir.output.iter().flat_map(|o| o.leaves()) {
        add(base(v), None);
    }
    users
}

/// Whether a kernel is one flat loop over the elements of its result: it reads each element of `host` and writes at the
/// same position.
pub(in crate::lower) fn is_flat(s: &Scheduled, host: ValueId, numel: usize) -> bool {
    let k = &s.kernel;
    let Some(l) = k.parallel_loop() else { return false };
    let [var] = l.vars[..] else { return false };
    let params: Vec<_> = k.params().collect();
    let of_host = |b: crate::kernel::Buf| {
        let n = params.iter().position(|(p, _)| *p == b);
        n.is_some_and(|n| s.buffers[n] == Stored::Value(host))
    };
    let at_loop_index = |i: &Index| i.dynamic.is_empty() && i.affine.base == 0 && i.affine.terms() == [(var, 1)];
    let plain = |stmt: &Stmt| match stmt {
        Stmt::Let(_, Inst::Load(b, i, None)) => at_loop_index(i) || (!of_host(*b) && is_invariant(i, var)),
        Stmt::Let(_, Inst::Load(..) | Inst::Index(_) | Inst::Bounded(..)) | Stmt::Loop(_) => false,
        Stmt::Let(..) => true,
        Stmt::Store(_, i, _) => at_loop_index(i),
    };
    l.vector && k.extent(var) == numel && no_scratch(k) && l.body.iter().all(plain)
}

fn is_invariant(i: &Index, var: Var) -> bool {
    i.dynamic.is_empty() && i.affine.stride(var) == 0
}

fn no_scratch(k: &Kernel) -> bool {
    k.scratch_layout().1 == 0
}
