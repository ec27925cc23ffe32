//! The interpreter of kernels: runs statements one by one, in order, in the arithmetic of each dtype. Compiled code is
//! tested against it.

use super::apply as eval;
use super::*;
use crate::scalar::{Compare, EvalError};

/// Runs iterations `begin..end` of the parallel loop (`0..1` for a kernel without one) over the bytes of the buffers
/// that [`Kernel::params`] lists. The kernel must be verified. Panics if a buffer is shorter than declared.
pub(crate) fn interpret(k: &Kernel, buffers: &mut [&mut [u8]], begin: usize, end: usize) -> Status {
    let mut place = 0;
    let mut local = vec![];
    let places = k.buffers.iter().map(|b| {
        if b.role == BufferRole::Local {
            // All ones is NaN in every float type, so a read of an element that was never written shows up in the
            // results.
            local.push(vec![0xffu8; b.numel() * b.dtype.size()]);
            BufferSlot::Local(local.len() - 1)
        } else {
            place += 1;
            BufferSlot::Param(place - 1)
        }
    });
    let places = places.collect();
    let mut m = Machine {
        k,
        places,
        params: buffers,
        local,
        values: vec![Scalar::Bool(false); k.values.len()],
        vars: vec![0; k.extents.len()],
        range: (begin, end),
        status: Status::OK,
    };
    m.run_body(&k.body);
    m.status
}

enum BufferSlot {
    Param(usize),
    Local(usize),
}

struct Machine<'a, 'b> {
    k: &'a Kernel,
    places: Vec<BufferSlot>,
    params: &'a mut [&'b mut [u8]],
    local: Vec<Vec<u8>>,
    values: Vec<Scalar>,
    vars: Vec<i64>,
    range: (usize, usize),
    status: Status,
}

impl Machine<'_, '_> {
    fn run_body(&mut self, body: &[Stmt]) {
        for s in body {
            match s {
                Stmt::Let(v, i) => {
                    let x = self.eval_inst(i);
                    self.values[v.0 as usize] = x;
                }
                Stmt::Store(b, i, v) => {
                    let index = self.element_index(i);
                    let x = self.get(*v);
                    x.write(self.buffer_bytes_mut(*b), index);
                }
                Stmt::Loop(l) => self.run_loop(l),
            }
        }
    }

    fn get(&self, v: Value) -> Scalar {
        self.values[v.0 as usize]
    }

    fn buffer_bytes(&self, b: Buf) -> &[u8] {
        match self.places[b.0 as usize] {
            BufferSlot::Param(i) => self.params[i],
            BufferSlot::Local(i) => &self.local[i],
        }
    }

    fn buffer_bytes_mut(&mut self, b: Buf) -> &mut [u8] {
        match self.places[b.0 as usize] {
            BufferSlot::Param(i) => self.params[i],
            BufferSlot::Local(i) => &mut self.local[i],
        }
    }

    fn eval_affine(&self, a: &Affine) -> i64 {
        a.eval(|v| self.vars[v.0 as usize])
    }

    fn element_index(&self, i: &Index) -> usize {
        let dynamic = i.dynamic.iter().map(|&(v, s)| self.get(v).to_i64() * s);
        (self.eval_affine(&i.affine) + dynamic.sum::<i64>()) as usize
    }

    fn eval_inst(&mut self, i: &Inst) -> Scalar {
        match i {
            Inst::Index(a) => Scalar::Int(DType::I64, self.eval_affine(a)),
            Inst::Load(b, i, guard) => {
                if let Some(g) = guard
                    && !g.conds.iter().all(|c| c.holds(|v| self.vars[v.0 as usize]))
                {
                    return g.other;
                }
                Scalar::read(self.k.buffer(*b).dtype, self.buffer_bytes(*b), self.element_index(i))
            }
            Inst::Bounded(v, n, bound) => {
                let x = self.get(*v).to_i64();
                Scalar::Int(DType::I64, self.apply_bound(x, *n as i64, *bound))
            }
            Inst::Op(op) => {
                let op = op.map(|v| self.get(v));
                self.value_or_fault(eval::apply(op), op.result_dtype(|s| s.dtype()))
            }
        }
    }

    /// The value of an operation. Records a division by zero and returns 0 for it. Panics on an operation that its
    /// dtype does not have; the verifier rejects such kernels.
    fn value_or_fault(&mut self, result: Result<Scalar, EvalError>, dtype: DType) -> Scalar {
        match result {
            Ok(v) => v,
            Err(EvalError::ZeroDivision) => {
                self.status.record(Fault::ZeroDivision);
                Scalar::from_i64(dtype, 0)
            }
            Err(e) => panic!("{e}"),
        }
    }

    fn apply_bound(&mut self, x: i64, n: i64, bound: IndexBound) -> i64 {
        let wrapped = if bound == IndexBound::Wrap && x < 0 {
            x.wrapping_add(n)
        } else {
            x
        };
        match bound {
            IndexBound::Clamp => x.clamp(0, (n - 1).max(0)),
            _ if (0..n).contains(&wrapped) => wrapped,
            _ => {
                self.status.record(Fault::Index);
                0
            }
        }
    }

    fn run_loop(&mut self, l: &Loop) {
        for r in &l.reduces {
            for (o, i) in r.out.iter().zip(&r.init) {
                self.values[o.0 as usize] = self.get(*i);
            }
        }
        for c in &l.carries {
            self.values[c.phi.0 as usize] = self.get(c.init);
        }
        let (begin, end) = match l.parallel {
            true => {
                let range = self.k.parallel_range(l).expect("verified");
                let within = |i: usize| i.clamp(range.start, range.end) - range.start;
                (within(self.range.0), within(self.range.1))
            }
            false => (0, self.k.extent(l.vars[0])),
        };
        for i in begin..end {
            let mut rest = i;
            for &v in l.vars.iter().rev() {
                let n = self.k.extent(v);
                self.vars[v.0 as usize] = (rest % n) as i64;
                rest /= n;
            }
            self.run_body(&l.body);
            for r in &l.reduces {
                self.combine_reduce(r);
            }
            // Update all carried values at once: one's `next` may be another's `phi`.
            let next: Vec<Scalar> = l.carries.iter().map(|c| self.get(c.next)).collect();
            for (c, x) in l.carries.iter().zip(next) {
                self.values[c.phi.0 as usize] = x;
            }
        }
        for c in &l.carries {
            self.values[c.out.0 as usize] = self.get(c.phi);
        }
    }

    fn combine_reduce(&mut self, r: &Reduce) {
        let (best, x) = (self.get(r.out[0]), self.get(r.value[0]));
        let Some(op) = r.op.as_binary() else {
            let index = |v: Value, m: &Self| m.get(v).to_i64();
            let (best_index, i) = (index(r.out[1], self), index(r.value[1], self));
            if is_better(r.op, (x, i), (best, best_index)) {
                self.values[r.out[0].0 as usize] = x;
                self.values[r.out[1].0 as usize] = Scalar::Int(DType::I64, i);
            }
            return;
        };
        let x = self.value_or_fault(eval::eval_binary(op, best, x), best.dtype());
        self.values[r.out[0].0 as usize] = x;
    }
}

/// Whether the pair `a` replaces `b` in an arg-reduction.
fn is_better(op: ReduceOp, a: (Scalar, i64), b: (Scalar, i64)) -> bool {
    let nan = |s: Scalar| s.to_f64().is_nan();
    match (nan(a.0), nan(b.0)) {
        (true, true) => return a.1 < b.1,
        (x, y) if x != y => return x,
        _ => {}
    }
    let order = if op == ReduceOp::ArgMax {
        Compare::Gt
    } else {
        Compare::Lt
    };
    eval::eval_compare(order, a.0, b.0) || (eval::eval_compare(Compare::Eq, a.0, b.0) && a.1 < b.1)
}
