//! Addresses, loads and stores.

use super::lanes::{Lanes, RegisterClass};
use super::state::{AccessKey, FunctionLowering, LoweredValue, Partial, VarAt};
use crate::kernel::{Affine, Buf, BufferRole, Cond, Index, Inst, LoadGuard, Stmt, Var};
use crate::types::DType;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F64X2, I64};
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder, Value};

fn access_key(b: Buf, i: &Index) -> AccessKey {
    (b, i.affine.terms().to_vec(), i.dynamic.clone())
}

/// The largest constant offset that is folded into an instruction. Groups of lanes add a little to it.
const MAX_OFFSET: i64 = 1 << 30;

impl FunctionLowering<'_> {
    /// `v * factor` as an I64.
    fn emit_scaled(&mut self, v: Value, factor: i64) -> Value {
        let b = &mut self.e.b;
        if factor == 1 {
            v
        } else if factor > 0 && (factor as u64).is_power_of_two() {
            b.ins().ishl_imm_u(v, factor.trailing_zeros() as i64)
        } else {
            let f = b.ins().iconst(I64, factor);
            b.ins().imul(v, f)
        }
    }

    /// The value of an affine expression at the group's first iteration, as an I64.
    pub(super) fn lower_affine(&mut self, a: &Affine) -> Value {
        let mut base = a.base;
        let mut sum = None;
        for &(v, s) in a.terms() {
            let value = self.vars[v.0 as usize];
            base = base.wrapping_add(value.constant_part().wrapping_mul(s));
            match value {
                VarAt::Const(_) => {}
                VarAt::At(x) | VarAt::Past(x, _) => {
                    let t = self.emit_scaled(x, s);
                    sum = Some(match sum {
                        None => t,
                        Some(u) => self.e.b.ins().iadd(u, t),
                    });
                }
            }
        }
        match sum {
            None => self.e.b.ins().iconst(I64, base),
            Some(u) if base == 0 => u,
            Some(u) => self.e.b.ins().iadd_imm_s(u, base),
        }
    }

    /// The part of an access's address that is known so far, extended by all variables that have a value now.
    fn partial_address(&mut self, b: Buf, i: &Index) -> Partial {
        let key = access_key(b, i);
        let size = self.k.buffer(b).dtype.size() as i64;
        let mut p = self.partials.get(&key).cloned().unwrap_or(Partial {
            ptr: self.buffers[b.0 as usize],
            vars: vec![],
            dynamic: i.dynamic.is_empty(),
        });
        for &(v, s) in i.affine.terms() {
            let value = self.vars[v.0 as usize];
            if let (VarAt::At(x) | VarAt::Past(x, _), false) = (value, p.vars.contains(&v)) {
                let t = self.emit_scaled(x, s * size);
                p.ptr = self.e.b.ins().iadd(p.ptr, t);
                p.vars.push(v);
            }
        }
        if !p.dynamic && i.dynamic.iter().all(|d| self.uniform_scalar(d.0).is_some()) {
            for &(v, s) in &i.dynamic {
                let x = self.uniform_scalar(v).expect("just found");
                let t = self.emit_scaled(x, s * size);
                p.ptr = self.e.b.ins().iadd(p.ptr, t);
            }
            p.dynamic = true;
        }
        p
    }

    /// Before a loop, computes the parts of its accesses' addresses that are loop-invariant.
    pub(super) fn hoist_addresses(&mut self, body: &[Stmt]) {
        let mut accesses = vec![];
        collect_accesses(body, &mut accesses);
        for (b, i) in accesses {
            let p = self.partial_address(b, i);
            self.partials.insert(access_key(b, i), p);
        }
    }

    /// The address of an access at the group's first iteration, as a pointer and a constant offset. Dynamic terms that
    /// vary over the group are not included.
    pub(super) fn access_address(&mut self, b: Buf, i: &Index) -> (Value, i32) {
        let p = self.partial_address(b, i);
        let size = self.k.buffer(b).dtype.size() as i64;
        let constant = i.affine.terms().iter().fold(i.affine.base, |a, &(v, s)| {
            a.wrapping_add(self.vars[v.0 as usize].constant_part().wrapping_mul(s))
        });
        let offset = constant.wrapping_mul(size);
        if offset.abs() < MAX_OFFSET {
            (p.ptr, offset as i32)
        } else {
            (self.e.b.ins().iadd_imm_s(p.ptr, offset), 0)
        }
    }

    /// An I8 that says whether all conditions hold at this scalar iteration, or `None` if there is nothing to test.
    /// Within a group, and in the iterations beside groups, it covers the conditions that do not depend on the loop's variable; the
    /// others are known to hold.
    fn lower_conditions(&mut self, conds: &[Cond]) -> Option<Value> {
        let within = self.lane_var().or(self.inside);
        let mut all = None;
        for c in conds {
            if within.is_some_and(|v| c.expr.stride(v) != 0) || self.is_always_true(c) {
                continue;
            }
            let x = self.lower_affine(&c.expr);
            let x = self.e.b.ins().iadd_imm_s(x, c.lo.wrapping_neg());
            let span = c.hi.saturating_sub(c.lo).max(0);
            // One unsigned comparison tests both bounds.
            let ok = self.e.b.ins().icmp_imm_s(IntCC::UnsignedLessThan, x, span);
            all = Some(match all {
                None => ok,
                Some(a) => self.e.b.ins().band(a, ok),
            });
        }
        all
    }

    /// Whether the loop extents alone make a condition true.
    pub(super) fn is_always_true(&self, c: &Cond) -> bool {
        let (lo, hi) = c.expr.value_range(|v| self.k.extent(v).max(1));
        lo >= c.lo as i128 && hi < c.hi as i128
    }

    /// Lowers a load.
    pub(super) fn lower_load(&mut self, b: Buf, i: &Index, guard: &Option<LoadGuard>) -> LoweredValue {
        let varies = self.is_varying_access(i);
        let Some(g) = guard else {
            return self.load_now(b, i, varies);
        };
        let fails = |v: Var, c: &Cond| c.expr.stride(v) != 0 && !self.is_always_true(c);
        if self.outside.is_some_and(|v| g.conds.iter().any(|c| fails(v, c))) {
            return LoweredValue::Const(g.other);
        }
        let Some(ok) = self.lower_conditions(&g.conds) else {
            return self.load_now(b, i, varies);
        };
        let dtype = self.k.buffer(b).dtype;
        let (then, other, join) = {
            let f = &mut self.e.b;
            (f.create_block(), f.create_block(), f.create_block())
        };
        self.e.b.ins().brif(ok, then, &[], other, &[]);
        self.e.b.seal_block(then);
        self.e.b.seal_block(other);
        self.e.b.switch_to_block(then);
        let v = self.load_now(b, i, varies);
        let v = self.canonicalize_lanes(dtype, v);
        self.jump_with_args(join, &v);
        self.e.b.switch_to_block(other);
        let n = v.len();
        let o = self.with_form(varies, |s| s.constant_lanes(g.other, n));
        self.jump_with_args(join, &o);
        let params = self.join_lanes(join, &v);
        match varies {
            true => LoweredValue::Lanes(params),
            false => LoweredValue::Uniform(params[0]),
        }
    }

    /// Goes on in a block whose parameters have the types of these values.
    fn join_lanes(&mut self, join: Block, like: &Lanes) -> Lanes {
        let types = like.iter().map(|&x| self.e.b.func.dfg.value_type(x));
        let types: Vec<_> = types.collect();
        let params = types.into_iter().map(|ty| self.e.b.append_block_param(join, ty));
        let params = params.collect();
        self.e.b.seal_block(join);
        self.e.b.switch_to_block(join);
        params
    }

    fn jump_with_args(&mut self, to: cranelift_codegen::ir::Block, args: &[Value]) {
        let args: Vec<BlockArg> = args.iter().map(|&v| v.into()).collect();
        self.e.b.ins().jump(to, &args);
    }

    /// Whether an access touches different elements within a group.
    fn is_varying_access(&self, i: &Index) -> bool {
        self.lane_var().is_some_and(|v| i.affine.stride(v) != 0)
            || i.dynamic
                .iter()
                .any(|d| matches!(self.vals[d.0.0 as usize], LoweredValue::Lanes(_)))
    }

    fn load_now(&mut self, b: Buf, i: &Index, varies: bool) -> LoweredValue {
        let dtype = self.k.buffer(b).dtype;
        if !varies {
            let (p, off) = self.access_address(b, i);
            return LoweredValue::Uniform(self.e.load_scalar(dtype, p, off));
        }
        let stride = self.lane_var().map_or(0, |v| i.affine.stride(v));
        if stride == 1 && i.dynamic.iter().all(|d| self.uniform_scalar(d.0).is_some()) {
            let (p, off) = self.access_address(b, i);
            return LoweredValue::Lanes(self.with_form(true, |l| l.e.load_lanes(dtype, p, off)));
        }
        if stride == -1 && self.e.packed < 4 {
            let (p, off) = self.access_address(b, i);
            return LoweredValue::Lanes(self.with_form(true, |l| l.e.load_packed(dtype, true, p, off)));
        }
        let shuffles = dtype.size() <= 4 && dtype != DType::B8 && self.e.width == 16;
        if matches!(stride, 2 | -1) && shuffles && i.dynamic.iter().all(|d| self.uniform_scalar(d.0).is_some()) {
            let (p, off) = self.access_address(b, i);
            return LoweredValue::Lanes(self.with_form(true, |l| l.e.load_strided(dtype, stride as i32, p, off)));
        }
        let places = self.lane_addresses(b, i, stride);
        let scalars: Vec<Value> = places
            .into_iter()
            .map(|(p, off)| self.e.as_scalar(|e| e.load_scalar(dtype, p, off)))
            .collect();
        LoweredValue::Lanes(self.with_form(true, |l| l.e.insert_scalars(RegisterClass::from_dtype(dtype), &scalars)))
    }

    /// The address of each lane of a group.
    fn lane_addresses(&mut self, b: Buf, i: &Index, stride: i64) -> Vec<(Value, i32)> {
        let size = self.k.buffer(b).dtype.size() as i64;
        let (p, off) = self.access_address(b, i);
        let mut out: Vec<(Value, i32)> = (0..self.e.elements as i64)
            .map(|l| {
                let offset = (l * stride).wrapping_mul(size);
                if offset.abs() < MAX_OFFSET {
                    (p, off + offset as i32)
                } else {
                    (self.e.b.ins().iadd_imm_s(p, offset), off)
                }
            })
            .collect();
        // If no dynamic term varies, the address already includes them.
        if i.dynamic.iter().all(|d| self.uniform_scalar(d.0).is_some()) {
            return out;
        }
        for &(v, s) in &i.dynamic {
            let lanes = self.lanes_of(v);
            let lanes = self.with_form(true, |l| l.e.extract_scalars(RegisterClass::I64, &lanes));
            for (place, x) in out.iter_mut().zip(lanes) {
                let t = self.emit_scaled(x, s * size);
                place.0 = self.e.b.ins().iadd(place.0, t);
            }
        }
        out
    }

    /// Whether a store is a streaming store, which bypasses the caches. It must write whole cache lines of a buffer so
    /// large that caching it would only displace other data.
    pub(super) fn is_streaming_store(&self, b: Buf, i: &Index) -> bool {
        let buffer = self.k.buffer(b);
        let large = self.e.width == 64 && self.may_stream && buffer.role == BufferRole::Out && buffer.streams;
        let line = |&(v, s): &(Var, i64)| Some(v) == self.lane || s % 16 == 0;
        large
            && buffer.dtype.size() == 4
            && i.dynamic.is_empty()
            && i.affine.base % 16 == 0
            && i.affine.terms().iter().all(line)
    }

    /// Lowers a store.
    pub(super) fn lower_store(&mut self, b: Buf, i: &Index, v: crate::kernel::Value) {
        let dtype = self.k.buffer(b).dtype;
        if !self.is_varying_access(i) {
            let (p, off) = self.access_address(b, i);
            let x = self.scalar_of(v);
            self.e.as_scalar(|e| e.store_scalar(dtype, x, p, off));
            return;
        }
        let stride = self.lane_var().map_or(0, |v| i.affine.stride(v));
        let x = self.lanes_of(v);
        if stride == 1 && i.dynamic.iter().all(|d| self.uniform_scalar(d.0).is_some()) {
            let (p, off) = self.access_address(b, i);
            let x = if self.aligned && self.is_streaming_store(b, i) {
                // `widen` turns stores of this type into streaming stores.
                x.iter().map(|&v| self.e.bitcast(F64X2, v)).collect()
            } else {
                x
            };
            // A uniform value was converted as a scalar.
            let is_half = self.folds.narrowed.get(&v) == Some(&true) && self.is_lanes(v);
            self.with_form(true, |l| match is_half && l.e.narrows_natively(dtype) {
                true => l.e.store_halves(dtype, &x, p, off),
                false => l.e.store_lanes(dtype, &x, p, off),
            });
            return;
        }
        let places = self.lane_addresses(b, i, stride);
        let scalars = self.with_form(true, |l| l.e.extract_scalars(RegisterClass::from_dtype(dtype), &x));
        for ((p, off), x) in places.into_iter().zip(scalars) {
            self.e.as_scalar(|e| e.store_scalar(dtype, x, p, off));
        }
    }
}

/// Collects every access in a body, including nested loops.
fn collect_accesses<'s>(body: &'s [Stmt], out: &mut Vec<(Buf, &'s Index)>) {
    for s in body {
        match s {
            Stmt::Let(_, Inst::Load(b, i, _)) | Stmt::Store(b, i, _) => out.push((*b, i)),
            Stmt::Let(..) => {}
            Stmt::Loop(l) => collect_accesses(&l.body, out),
        }
    }
}
