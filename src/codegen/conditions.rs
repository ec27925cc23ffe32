//! Conditions that a kernel only moves are moved as bytes. A byte need not be compared with zero when it is loaded, and has a narrow lane;
//! a condition that is an operand is compared by whatever kernel reads it next.

use crate::kernel::{Buf, Inst, Kernel, Loop, Stmt, Value};
use crate::scalar::ScalarOp;
use crate::tensor::Scalar;
use crate::types::DType;
use std::collections::HashSet;

/// Makes bytes of the conditions that are loaded or constant and only stored, perhaps after a selection among such.
pub(super) fn move_as_bytes(k: &mut Kernel) {
    if k.buffers.iter().all(|b| b.dtype != DType::B8) {
        return;
    }
    let mut m = Moves::new(k);
    loop {
        let before = m.size();
        m.exclude(&k.body);
        if m.size() == before {
            break;
        }
    }
    if m.values.is_empty() {
        return;
    }
    m.values.iter().for_each(|v| k.values[v.0 as usize] = DType::U8);
    m.buffers.iter().for_each(|b| k.buffers[b.0 as usize].dtype = DType::U8);
    m.convert_constants(&mut k.body);
}

/// The conditions that may be bytes, and the buffers that have only such elements.
struct Moves {
    values: HashSet<Value>,
    buffers: HashSet<Buf>,
}

impl Moves {
    /// Every value and buffer that could be bytes on its own.
    fn new(k: &Kernel) -> Moves {
        let conditions = k.buffers.iter().enumerate().filter(|(_, b)| b.dtype == DType::B8);
        let mut m = Moves {
            values: HashSet::new(),
            buffers: conditions.map(|(i, _)| Buf(i as u32)).collect(),
        };
        m.collect(k, &k.body);
        m
    }

    fn size(&self) -> usize {
        self.values.len() + self.buffers.len()
    }

    fn collect(&mut self, k: &Kernel, body: &[Stmt]) {
        for s in body {
            match s {
                Stmt::Let(v, Inst::Load(..) | Inst::Op(ScalarOp::Const(_) | ScalarOp::Select(..)))
                    if k.dtype(*v) == DType::B8 =>
                {
                    self.values.insert(*v);
                }
                Stmt::Loop(l) => self.collect(k, &l.body),
                _ => {}
            }
        }
    }

    /// Keeps the value and its buffer as bytes only if both can be.
    fn join_buffer(&mut self, b: Buf, v: Value) {
        if !(self.buffers.contains(&b) && self.values.contains(&v)) {
            self.buffers.remove(&b);
            self.values.remove(&v);
        }
    }

    /// Removes values that are used as conditions, and values and buffers that are connected to removed ones.
    fn exclude(&mut self, body: &[Stmt]) {
        for s in body {
            match s {
                Stmt::Let(v, Inst::Load(b, ..)) => self.join_buffer(*b, *v),
                Stmt::Store(b, _, v) => self.join_buffer(*b, *v),
                Stmt::Let(v, Inst::Op(ScalarOp::Select(c, x, y))) => {
                    self.values.remove(c);
                    if ![v, x, y].into_iter().all(|v| self.values.contains(v)) {
                        self.values.retain(|w| ![v, x, y].contains(&w));
                    }
                }
                Stmt::Let(_, i) => i.visit_operands(&mut |v| {
                    self.values.remove(&v);
                }),
                Stmt::Loop(l) => self.exclude_loop(l),
            }
        }
    }

    fn exclude_loop(&mut self, l: &Loop) {
        let reduced = l.reduces.iter().flat_map(|r| r.init.iter().chain(&r.value));
        let carried = l.carries.iter().flat_map(|c| [&c.init, &c.next]);
        for v in reduced.chain(carried) {
            self.values.remove(v);
        }
        self.exclude(&l.body);
    }

    /// Converts constants, including the ones that guarded loads yield out of range.
    fn convert_constants(&self, body: &mut [Stmt]) {
        for s in body {
            let constant = match s {
                Stmt::Let(v, Inst::Op(ScalarOp::Const(x))) if self.values.contains(v) => x,
                Stmt::Let(v, Inst::Load(_, _, Some(guard))) if self.values.contains(v) => &mut guard.other,
                Stmt::Loop(l) => {
                    self.convert_constants(&mut l.body);
                    continue;
                }
                _ => continue,
            };
            *constant = Scalar::from_i64(DType::U8, constant.to_bool() as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KernelBuilder;
    use crate::scalar::Binary;

    /// A kernel that stores `x` and `y`, of which `f` makes the second.
    fn dtypes(f: impl FnOnce(&mut KernelBuilder, Value) -> Value) -> Vec<DType> {
        let mut k = KernelBuilder::new("move");
        let x = k.input("x", DType::B8, &[40]);
        let [y, z] = ["y", "z"].map(|name| k.output(name, DType::B8, &[40]));
        k.parallel_vector(40, |k, i| {
            let v = k.load(x, i);
            k.store(y, i, v);
            let w = f(k, v);
            k.store(z, i, w);
        });
        let mut k = k.finish().expect("a kernel");
        move_as_bytes(&mut k);
        crate::kernel::verify(&k).expect("a kernel");
        k.buffers.iter().map(|b| b.dtype).collect()
    }

    #[test]
    fn only_conditions_that_are_moved_are_bytes() {
        use DType::{B8, U8};
        assert_eq!(dtypes(|_, v| v), [U8, U8, U8]);
        assert_eq!(dtypes(|k, v| k.binary(Binary::And, v, v)), [B8, B8, B8]);
        let constant = |k: &mut KernelBuilder| k.constant(Scalar::Bool(true));
        assert_eq!(dtypes(|k, _| constant(k)), [U8, U8, U8]);
        assert_eq!(
            dtypes(|k, v| {
                let yes = constant(k);
                k.select(v, yes, v)
            }),
            [B8, B8, B8]
        );
    }
}
