//! Checks the parallel loops with which a kernel ends.

use super::Checked;
use crate::kernel::{Affine, Buf, BufferRole, Index, Inst, Kernel, Stmt};
use crate::scalar::ScalarOp;

/// Checks the number of iterations of the parallel loops and what comes before them.
pub(super) fn check_ranges(k: &Kernel) -> Checked {
    let total = k.parallel_loops().try_fold(0usize, |total, l| {
        let all = l.vars.iter().try_fold(1usize, |a, &v| {
            k.extents.get(v.0 as usize).and_then(|&e| a.checked_mul(e.max(1)))
        });
        total.checked_add(all?)
    });
    ensure!(
        total.is_some_and(|t| t <= i64::MAX as usize),
        "the parallel range is too large"
    );
    let count = k.parallel_loops().count();
    if count == 0 {
        return Ok(());
    }
    // Every chunk of the range executes it again, so it must be cheap and must not write.
    let before = &k.body[..k.body.len() - count];
    ensure!(
        before
            .iter()
            .all(|s| matches!(s, Stmt::Let(_, Inst::Op(ScalarOp::Const(_))))),
        "only constants may come before a parallel loop"
    );
    Ok(())
}

/// An element of a buffer that a loop reads or writes.
struct Access<'k> {
    buffer: Buf,
    index: &'k Index,
    writes: bool,
}

/// Checks that a parallel loop does not touch elements that another one writes: their order is open.
pub(super) fn check_independence(k: &Kernel) -> Checked {
    let mut earlier: Vec<Access> = vec![];
    if k.parallel_loop().is_some() {
        return Ok(());
    }
    for (l, _) in k.parallel_ranges().filter(|(_, range)| !range.is_empty()) {
        let mut own = vec![];
        collect_accesses(k, &l.body, &mut own);
        for a in &own {
            let meet = |b: &Access| a.buffer == b.buffer && (a.writes || b.writes) && !are_apart(k, a.index, b.index);
            ensure!(
                !earlier.iter().any(meet),
                "two parallel loops may use the same elements of {}",
                k.buffer(a.buffer).name
            );
        }
        earlier.extend(own);
    }
    Ok(())
}

fn collect_accesses<'k>(k: &Kernel, body: &'k [Stmt], out: &mut Vec<Access<'k>>) {
    for s in body {
        let (buffer, index, writes) = match s {
            Stmt::Let(_, Inst::Load(b, i, _)) => (*b, i, false),
            Stmt::Store(b, i, _) => (*b, i, true),
            Stmt::Loop(l) => {
                collect_accesses(k, &l.body, out);
                continue;
            }
            Stmt::Let(..) => continue,
        };
        if matches!(k.buffer(buffer).role, BufferRole::Out | BufferRole::InOut) {
            out.push(Access { buffer, index, writes });
        }
    }
}

/// Whether two indices are certain to be different for all values of their variables. The test: they lie in different
/// intervals, or in different parts of the rows of a matrix, whose length is one of their strides.
fn are_apart(k: &Kernel, a: &Index, b: &Index) -> bool {
    if !a.dynamic.is_empty() || !b.dynamic.is_empty() {
        return false;
    }
    let strides = [a, b]
        .into_iter()
        .flat_map(|i| i.affine.terms())
        .map(|t| t.1.unsigned_abs() as i128);
    let lengths = strides.chain([i128::MAX]);
    let apart = |row: i128| {
        let (a, b) = (columns(k, &a.affine, row), columns(k, &b.affine, row));
        matches!((a, b), (Some(a), Some(b)) if a.1 < b.0 || b.1 < a.0)
    };
    lengths.filter(|&row| row > 1).any(apart)
}

/// The first and last column of an index in a matrix with rows of `row` elements, if all its elements are in these columns.
fn columns(k: &Kernel, index: &Affine, row: i128) -> Option<(i128, i128)> {
    let along = |s: i64| s as i128 % row != 0;
    let rest = index.terms().iter().copied().filter(|&(_, s)| along(s));
    let base = index.base as i128 % row;
    let (lo, hi) = Affine::new(0, rest).value_range(|v| k.extent(v).max(1));
    let (first, last) = (base + lo, base + hi);
    (0 <= first && last < row).then_some((first, last))
}
