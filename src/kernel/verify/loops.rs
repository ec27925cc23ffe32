//! Loops: what kinds may nest, and which values enter and leave them.

use super::{Checked, OpenLoop, ScopeState, Verifier, check_binary};
use crate::kernel::{Loop, Reduce, Stmt, Value};
use crate::types::DType;

impl<'k> Verifier<'k> {
    pub(super) fn check_loop(&mut self, l: &'k Loop, defined_here: &mut Vec<Value>) -> Checked {
        self.check_loop_kind(l)?;
        for &v in &l.vars {
            let state = self.vars.get_mut(v.0 as usize).ok_or("unknown loop variable")?;
            ensure!(
                *state == ScopeState::Unseen,
                "i{} is used as the variable of two loops",
                v.0
            );
            *state = ScopeState::Live;
        }
        let reduced = l.reduces.iter().flat_map(|r| &r.init);
        for init in reduced.chain(l.carries.iter().map(|c| &c.init)) {
            self.check_used(*init)?;
        }
        let mut inner = vec![];
        for c in &l.carries {
            self.define_value(c.phi, &mut inner)?;
        }
        self.open.push(OpenLoop { l });
        self.check_loop_body(l)?;
        self.open.pop();
        // A carried value is another one in each iteration. After the loop only its last value, `out`, has a meaning.
        for v in inner {
            self.defined[v.0 as usize] = ScopeState::Gone;
        }
        for &v in &l.vars {
            self.vars[v.0 as usize] = ScopeState::Gone;
        }
        for r in &l.reduces {
            for &v in &r.out {
                self.define_value(v, defined_here)?;
            }
        }
        for c in &l.carries {
            self.define_value(c.out, defined_here)?;
        }
        Ok(())
    }

    /// Checks the body and the values that the loop's results take from it, which are in scope only at the end of the
    /// body.
    fn check_loop_body(&mut self, l: &'k Loop) -> Checked {
        self.check_body(&l.body)?;
        let in_body = |v: &Value| {
            let outer = self.defined.get(v.0 as usize) == Some(&ScopeState::Live);
            let is_inner = l.body.iter().any(|s| defines_value(s, *v)) || l.carries.iter().any(|c| c.phi == *v);
            (is_inner || outer).then(|| self.k.dtype(*v))
        };
        for r in &l.reduces {
            self.check_reduction(r, in_body)?;
        }
        for c in &l.carries {
            let d = in_body(&c.next).ok_or("the carried value is not defined in the loop's body")?;
            let same = [c.init, c.phi, c.out]
                .iter()
                .all(|v| self.k.values.get(v.0 as usize) == Some(&d));
            ensure!(same, "a carried value of {d} gets a value of another dtype");
        }
        Ok(())
    }

    /// Checks a reduction of a loop. `in_body` gives the dtype of a value that is defined at the end of the body.
    fn check_reduction(&self, r: &Reduce, in_body: impl Fn(&Value) -> Option<DType>) -> Checked {
        let n = r.op.arity();
        ensure!(
            [r.init.len(), r.value.len(), r.out.len()] == [n; 3],
            "{:?} takes {n} values",
            r.op
        );
        for i in 0..n {
            let d = in_body(&r.value[i]).ok_or("the reduced value is not defined in the loop's body")?;
            ensure!(
                d == self.k.dtype(r.init[i]) && Some(&d) == self.k.values.get(r.out[i].0 as usize),
                "a reduction of {d} has an accumulator of another dtype"
            );
            ensure!(d.compute_dtype() == d, "reductions in {d} are not supported");
            ensure!(i == 0 || d == DType::I64, "the index of {:?} is not an i64", r.op);
        }
        if let Some(op) = r.op.as_binary() {
            check_binary(op, self.k.dtype(r.value[0]))?;
        }
        Ok(())
    }

    fn check_loop_kind(&self, l: &Loop) -> Checked {
        ensure!(!l.vars.is_empty(), "a loop must have a variable");
        ensure!(
            l.vars.len() == 1 || l.parallel,
            "only parallel loops can have several variables"
        );
        ensure!(l.vars.len() == 1 || !l.vector, "a vector loop must have one variable");
        ensure!(
            !l.parallel || self.open.is_empty(),
            "a parallel loop cannot be nested in a loop"
        );
        // Each chunk of the range is a call of the kernel: what came after the loop or left it would belong to one
        // chunk.
        if l.parallel {
            ensure!(
                self.k.parallel_range(l).is_some(),
                "only parallel loops may come after a parallel loop"
            );
            ensure!(
                l.reduces.is_empty() && l.carries.is_empty(),
                "a parallel loop cannot have results"
            );
        }
        if l.vector {
            ensure!(!self.open.iter().any(|o| o.l.vector), "vector loops cannot be nested");
            // Its iterations run in lanes at the same time, so none can wait for the one before it.
            ensure!(l.carries.is_empty(), "a vector loop cannot carry values");
        }
        Ok(())
    }
}

fn defines_value(s: &Stmt, v: Value) -> bool {
    match s {
        Stmt::Let(w, _) => *w == v,
        Stmt::Store(..) => false,
        Stmt::Loop(l) => l.reduces.iter().any(|r| r.out.contains(&v)) || l.carries.iter().any(|c| c.out == v),
    }
}
