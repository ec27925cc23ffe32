//! Loops of a kernel under construction.

use super::KernelBuilder;
use crate::kernel::{Buf, BufferRole, Kernel, Loop, LoopCarry, Reduce, ReduceOp, Stmt, Value, Var, key};
use crate::tensor::Scalar;
use crate::types::DType;
use rustc_hash::FxHashMap;

impl KernelBuilder {
    /// Adds a loop variable for each extent, opens a loop, lets `body` fill it, and closes it. `body` returns the
    /// values that the loop's results need.
    fn build_loop<R>(
        &mut self,
        extents: &[usize],
        body: impl FnOnce(&mut Self, &[Var]) -> R,
    ) -> (Vec<Var>, Vec<Stmt>, R) {
        let first = self.kernel.extents.len() as u32;
        self.kernel.extents.extend(extents);
        let vars: Vec<Var> = (first..first + extents.len() as u32).map(Var).collect();
        self.open.push(vec![]);
        // An earlier iteration may have stored to the element that this one loads. Loads outside the loop are therefore
        // reused only if their buffer is read-only.
        let read_only = |k: &Vec<u64>, kernel: &Kernel| {
            !kernel
                .buffers
                .iter()
                .enumerate()
                .any(|(i, b)| b.role != BufferRole::In && key::is_load_of(k, Buf(i as u32)))
        };
        for m in &mut self.known {
            let kernel = &self.kernel;
            m.retain(|k, _| read_only(k, kernel));
        }
        self.known.push(FxHashMap::default());
        let r = body(self, &vars);
        self.known.pop();
        let stmts = self.open.pop().expect("opened above");
        (vars, stmts, r)
    }

    fn push_plain_loop(
        &mut self,
        extents: &[usize],
        parallel: bool,
        vector: bool,
        body: impl FnOnce(&mut Self, &[Var]),
    ) {
        let (vars, body, ()) = self.build_loop(extents, body);
        self.push(Stmt::Loop(Loop {
            vars,
            parallel,
            vector,
            reduces: vec![],
            carries: vec![],
            body,
        }));
    }

    /// The parallel loop over all combinations of `extents`.
    pub fn parallel(&mut self, extents: &[usize], body: impl FnOnce(&mut Self, &[Var])) {
        self.push_plain_loop(extents, true, false, body);
    }

    /// The parallel loop of a flat kernel: its iterations are split over threads and run in vectors.
    pub fn parallel_vector(&mut self, extent: usize, body: impl FnOnce(&mut Self, Var)) {
        self.push_plain_loop(&[extent], true, true, |k, v| body(k, v[0]));
    }

    /// A vector loop.
    pub fn vector(&mut self, extent: usize, body: impl FnOnce(&mut Self, Var)) {
        self.push_plain_loop(&[extent], false, true, |k, v| body(k, v[0]));
    }

    /// A serial loop.
    pub fn serial(&mut self, extent: usize, body: impl FnOnce(&mut Self, Var)) {
        self.push_plain_loop(&[extent], false, false, |k, v| body(k, v[0]));
    }

    /// Nested serial loops around a vector loop over the last of `extents`, which must not be empty.
    pub fn map_nest(&mut self, extents: &[usize], body: impl FnOnce(&mut Self, &[Var])) {
        self.map_rest(extents, &mut vec![], body);
    }

    fn map_rest(&mut self, extents: &[usize], vars: &mut Vec<Var>, body: impl FnOnce(&mut Self, &[Var])) {
        let vector = extents.len() == 1;
        self.push_plain_loop(&extents[..1], false, vector, |k, v| {
            vars.push(v[0]);
            if vector {
                body(k, vars);
            } else {
                k.map_rest(&extents[1..], vars, body);
            }
        });
    }

    /// A loop with reductions. `reductions` lists each reduction's operation and initial values (see [`ReduceOp::arity`]).
    /// `body` returns the values that an iteration contributes, all in one list. Returns the results in the same order.
    pub fn reduce(
        &mut self,
        extent: usize,
        vector: bool,
        reductions: &[(ReduceOp, &[Value])],
        body: impl FnOnce(&mut Self, Var) -> Vec<Value>,
    ) -> Vec<Value> {
        let (vars, body, values) = self.build_loop(&[extent], |k, v| body(k, v[0]));
        let mut outs = vec![];
        let mut reduces = vec![];
        let mut rest = &values[..];
        for (op, init) in reductions {
            assert!(
                init.len() == op.arity() && rest.len() >= op.arity(),
                "{op:?} takes {} values",
                op.arity()
            );
            let (value, tail) = rest.split_at(op.arity());
            rest = tail;
            let out: Vec<Value> = init.iter().map(|&v| self.new_value(self.dtype(v))).collect();
            outs.extend(&out);
            reduces.push(Reduce {
                op: *op,
                init: init.to_vec(),
                value: value.to_vec(),
                out,
            });
        }
        assert!(rest.is_empty(), "a value without a reduction");
        self.push(Stmt::Loop(Loop {
            vars,
            parallel: false,
            vector,
            reduces,
            carries: vec![],
            body,
        }));
        outs
    }

    /// A vector loop with one reduction of values of `dtype`. The initial value is [`KernelBuilder::initial_value`].
    pub fn vector_reduce(
        &mut self,
        op: ReduceOp,
        dtype: DType,
        extent: usize,
        body: impl FnOnce(&mut Self, Var) -> Value,
    ) -> Value {
        self.one_reduce(op, dtype, extent, true, body)
    }

    /// A serial loop with one reduction, for windows and columns inside a vector loop.
    pub fn serial_reduce(
        &mut self,
        op: ReduceOp,
        dtype: DType,
        extent: usize,
        body: impl FnOnce(&mut Self, Var) -> Value,
    ) -> Value {
        self.one_reduce(op, dtype, extent, false, body)
    }

    fn one_reduce(
        &mut self,
        op: ReduceOp,
        dtype: DType,
        extent: usize,
        vector: bool,
        body: impl FnOnce(&mut Self, Var) -> Value,
    ) -> Value {
        assert_eq!(op.arity(), 1, "reductions of pairs go through `reduce`");
        let init = self.initial_value(op, dtype);
        self.reduce(extent, vector, &[(op, &[init])], |k, v| vec![body(k, v)])[0]
    }

    /// The initial value of a reduction as torch defines it: 0 for sums, so that a sum over only -0.0 is 0.0, and the
    /// operation's identity otherwise.
    pub fn initial_value(&mut self, op: ReduceOp, dtype: DType) -> Value {
        self.constant(match op {
            ReduceOp::Add => Scalar::from_i64(dtype, 0),
            op => op.identity(dtype),
        })
    }

    /// A serial loop with carried values (a scan). `body` receives the values at the start of an iteration and returns
    /// those at its end. Returns the values after the last iteration.
    pub fn scan(
        &mut self,
        extent: usize,
        init: &[Value],
        body: impl FnOnce(&mut Self, Var, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let phis: Vec<Value> = init.iter().map(|&v| self.new_value(self.dtype(v))).collect();
        let (vars, body, nexts) = self.build_loop(&[extent], |k, v| body(k, v[0], &phis));
        assert_eq!(nexts.len(), init.len(), "carried values");
        let outs: Vec<Value> = init.iter().map(|&v| self.new_value(self.dtype(v))).collect();
        let carries = (0..init.len())
            .map(|i| LoopCarry {
                init: init[i],
                phi: phis[i],
                next: nexts[i],
                out: outs[i],
            })
            .collect();
        self.push(Stmt::Loop(Loop {
            vars,
            parallel: false,
            vector: false,
            reduces: vec![],
            carries,
            body,
        }));
        outs
    }
}
