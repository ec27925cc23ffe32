//! Loop-invariant code motion: moves values that do not change between iterations in front of the loop.

use super::*;
use std::collections::HashSet;

/// Returns the kernel with every invariant value moved out of the loops that it does not depend on. Nothing moves out
/// of the parallel loop or out of loops that never run. A constant moves only with a value that needs it: constants
/// cost nothing in a loop.
pub(crate) fn hoist_invariants(k: &Kernel) -> Kernel {
    let mut k = k.clone();
    let body = std::mem::take(&mut k.body);
    k.body = hoist_block(&k, body);
    k
}

fn hoist_block(k: &Kernel, body: Vec<Stmt>) -> Vec<Stmt> {
    let mut out = vec![];
    for s in body {
        match s {
            Stmt::Loop(l) => {
                let (moved, l) = out_of(k, l);
                out.extend(moved);
                out.push(Stmt::Loop(l));
            }
            s => out.push(s),
        }
    }
    out
}

fn out_of(k: &Kernel, mut l: Loop) -> (Vec<Stmt>, Loop) {
    l.body = hoist_block(k, std::mem::take(&mut l.body));
    if l.parallel || l.vars.iter().any(|&v| k.extent(v) == 0) {
        return (vec![], l);
    }
    let mut inside: HashSet<Value> = l.carries.iter().map(|c| c.phi).collect();
    let mut stored = HashSet::new();
    collect_defs_and_stores(&l.body, &mut inside, &mut stored);
    let (mut moved, mut kept) = (vec![], vec![]);
    for s in std::mem::take(&mut l.body) {
        match &s {
            Stmt::Let(v, i)
                if !matches!(i, Inst::Op(ScalarOp::Const(_))) && is_invariant(i, &l.vars, &inside, &stored) =>
            {
                inside.remove(v);
                moved.push(s);
            }
            // Constants stay, except those that a moved statement needs; they are moved with it below.
            _ => kept.push(s),
        }
    }
    let needed = constants_of(&moved, &kept);
    let is_needed = |s: &Stmt| matches!(s, Stmt::Let(v, _) if needed.contains(v));
    let (constants, rest): (Vec<Stmt>, Vec<Stmt>) = kept.into_iter().partition(is_needed);
    l.body = rest;
    (constants.into_iter().chain(moved).collect(), l)
}

/// The constants among `kept` that statements in `moved` use.
fn constants_of(moved: &[Stmt], kept: &[Stmt]) -> HashSet<Value> {
    let mut used = HashSet::new();
    for s in moved {
        if let Stmt::Let(_, i) = s {
            i.visit_operands(&mut |v| {
                used.insert(v);
            });
        }
    }
    let constants = kept.iter().filter_map(|s| match s {
        Stmt::Let(v, Inst::Op(ScalarOp::Const(_))) if used.contains(v) => Some(*v),
        _ => None,
    });
    constants.collect()
}

/// Collects the values that a body defines, except constants, which may be used anywhere, and the buffers that it
/// writes.
fn collect_defs_and_stores(body: &[Stmt], defined: &mut HashSet<Value>, stored: &mut HashSet<Buf>) {
    for s in body {
        match s {
            Stmt::Let(_, Inst::Op(ScalarOp::Const(_))) => {}
            Stmt::Let(v, _) => {
                defined.insert(*v);
            }
            Stmt::Store(b, ..) => {
                stored.insert(*b);
            }
            Stmt::Loop(l) => {
                defined.extend(l.carries.iter().flat_map(|c| [c.phi, c.out]));
                defined.extend(l.reduces.iter().flat_map(|r| r.out.iter().copied()));
                collect_defs_and_stores(&l.body, defined, stored);
            }
        }
    }
}

fn is_invariant(i: &Inst, vars: &[Var], inside: &HashSet<Value>, stored: &HashSet<Buf>) -> bool {
    let mut ok = true;
    i.visit_operands(&mut |v| ok &= !inside.contains(&v));
    i.visit_affines(&mut |a| ok &= vars.iter().all(|&v| a.stride(v) == 0));
    if let Inst::Load(b, ..) = i {
        ok &= !stored.contains(b);
    }
    ok
}
