//! Structural keys of kernels, as words. Kernels with equal keys compile to the same code. Floats compare by their
//! bits; names do not count.

use super::*;

/// The size in bytes from which a buffer may be streamed (written past the caches): about what a few cores share of a
/// machine's last-level cache. Of a buffer twice as large, nothing is left in that cache when the next kernel reads it.
pub const LARGE: usize = 24 << 20;

/// The structure of a kernel as words. Kernels with equal keys differ at most in names and in the shapes of their
/// parameter buffers, provided that the same ones are streamed.
pub(crate) fn structural_key(k: &Kernel) -> Vec<u64> {
    structural_key_with(k, None)
}

/// [`structural_key`] of the kernel with another extent of one loop variable.
pub(crate) fn structural_key_with(k: &Kernel, changed: Option<(Var, usize)>) -> Vec<u64> {
    let mut w = vec![k.buffers.len() as u64];
    for b in &k.buffers {
        let size = match b.role {
            BufferRole::Local => b.numel() as u64,
            _ => b.streams as u64,
        };
        w.extend([b.dtype as u64, b.role as u64, size]);
    }
    w.push(k.extents.len() as u64);
    let first = w.len();
    w.extend(k.extents.iter().map(|&e| e as u64));
    if let Some((var, extent)) = changed {
        w[first + var.0 as usize] = extent as u64;
    }
    w.push(k.shares.len() as u64);
    w.extend(k.shares.iter().map(|v| v.0 as u64));
    w.push(k.flushing.len() as u64);
    w.extend(k.flushing.iter().map(|v| v.0 as u64));
    encode_stmts(&k.body, &mut w);
    w
}

fn encode_stmts(body: &[Stmt], w: &mut Vec<u64>) {
    w.push(body.len() as u64);
    for s in body {
        match s {
            Stmt::Let(v, i) => {
                w.extend([0, v.0 as u64]);
                encode_inst(i, w);
            }
            Stmt::Store(b, i, v) => {
                w.extend([1, b.0 as u64, v.0 as u64]);
                encode_index(i, w);
            }
            Stmt::Loop(l) => encode_loop(l, w),
        }
    }
}

fn encode_loop(l: &Loop, w: &mut Vec<u64>) {
    w.extend([2, l.parallel as u64, l.vector as u64, l.vars.len() as u64]);
    w.extend(l.vars.iter().map(|v| v.0 as u64));
    w.push(l.reduces.len() as u64);
    for r in &l.reduces {
        w.push(r.op as u64);
        for v in r.init.iter().chain(&r.value).chain(&r.out) {
            w.push(v.0 as u64);
        }
    }
    w.push(l.carries.len() as u64);
    for c in &l.carries {
        w.extend([c.init, c.phi, c.next, c.out].map(|v| v.0 as u64));
    }
    encode_stmts(&l.body, w);
}

fn encode_affine(a: &Affine, w: &mut Vec<u64>) {
    w.extend([a.base as u64, a.terms().len() as u64]);
    for &(v, s) in a.terms() {
        w.extend([v.0 as u64, s as u64]);
    }
}

fn encode_index(i: &Index, w: &mut Vec<u64>) {
    encode_affine(&i.affine, w);
    w.push(i.dynamic.len() as u64);
    for &(v, s) in &i.dynamic {
        w.extend([v.0 as u64, s as u64]);
    }
}

fn encode_scalar(s: Scalar, w: &mut Vec<u64>) {
    w.extend([s.dtype() as u64, s.bits()]);
}

const LOAD: u64 = 2;

/// Appends the words of an instruction.
pub(super) fn encode_inst(i: &Inst, w: &mut Vec<u64>) {
    match i {
        Inst::Index(a) => {
            w.push(1);
            encode_affine(a, w);
        }
        Inst::Load(b, i, g) => {
            w.extend([LOAD, b.0 as u64]);
            encode_index(i, w);
            if let Some(g) = g {
                w.push(g.conds.len() as u64);
                for c in &g.conds {
                    encode_affine(&c.expr, w);
                    w.extend([c.lo as u64, c.hi as u64]);
                }
                encode_scalar(g.other, w);
            }
        }
        Inst::Bounded(v, n, b) => w.extend([3, v.0 as u64, *n as u64, *b as u64]),
        Inst::Op(op) => {
            w.push(4);
            w.extend(op.key(|v| v.0 as u64));
        }
    }
}

/// Whether `words` are those of a load of `b`.
pub(super) fn is_load_of(words: &[u64], b: Buf) -> bool {
    words[..2] == [LOAD, b.0 as u64]
}
