//! The last iterations of a vector loop of 64-byte vectors, which are too few for a group, as one group with masks.
//!
//! `for i in 0..17 { y[i] = x[i] + 1 }` runs one group of 16 iterations, and a group whose loads and stores touch only the first
//! element. Lanes beyond it compute on zeros. Without masks, the last iterations run one by one, which takes longer than all
//! groups where rows are short or elements take many instructions.
//!
//! CLIF has no masks. A masked store is emitted as a store of the last byte of a vector, and a masked load as one that extends 32-bit
//! elements to 64 bits. The number of lanes is in the upper bits of the offset, with what the lanes are in memory: elements of 8 or 16
//! bits are extended by the load and cut by the store. Kernels of this width have no other use for these instructions, which
//! [`widen`](super::widen) replaces.

use super::lanes::{Emitter, Lanes, MEM, RegisterClass};
use super::masking::{GROUP, can_mask, is_worth_masks};
use super::natives::NativeInst;
use super::state::{End, FunctionLowering, VarAt};
use super::widen::{MaskedLanes, NEAR, Stored, tagged_offset};
use crate::kernel::Loop;
use crate::types::DType;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8X16, I64};
use cranelift_codegen::ir::{InstBuilder, Value};

impl FunctionLowering<'_> {
    /// Lowers the iterations `start..end` as one group with masks, if they are fewer than a group has and can be one. Returns
    /// where the iterations that remain start.
    pub(super) fn masked_part(&mut self, l: &Loop, mut start: End, end: End) -> End {
        if self.e.width != 64 || !can_mask(self.k, l) {
            return start;
        }
        // Packed lanes become lanes of 32 bits, of which a vector has fewer.
        let packed = std::mem::replace(&mut self.e.packed, 4);
        if packed < 4 && matches!((start, end), (End::Const(a), End::Const(b)) if b.saturating_sub(a) >= GROUP as i64) {
            let mut none = vec![None; self.row_count()];
            start = self.lane_part(l, start, end, GROUP, &mut none);
        }
        let next = self.masked_group(l, start, end);
        self.e.packed = packed;
        next
    }

    /// [`masked_part`](Self::masked_part) of a loop that can have masks.
    fn masked_group(&mut self, l: &Loop, start: End, end: End) -> End {
        let (End::Const(a), End::Const(b)) = (start, end) else {
            return start;
        };
        let count = usize::try_from(b.saturating_sub(a)).unwrap_or(0);
        if count >= GROUP || !is_worth_masks(l, count) {
            return start;
        }
        self.e.elements = GROUP;
        self.e.tail = Some(count);
        self.each_row(|s, _| {
            let saved = s.partials.clone();
            s.spread_invariants(l);
            s.lane = Some(l.vars[0]);
            s.vars[l.vars[0].0 as usize] = VarAt::Const(a);
            s.lower_iteration(l, &vec![]);
            s.lane = None;
            s.splats.clear();
            s.close_loop(l);
            s.partials = saved;
        });
        self.e.tail = None;
        self.e.elements = 1;
        end
    }
}

impl Emitter<'_> {
    /// The number of 32-bit lanes of each vector of a class that the first `count` elements of a group are in.
    fn tail_lanes(&self, c: RegisterClass, count: usize) -> Vec<usize> {
        let (per, parts) = (self.width / c.size(), c.size() / 4);
        let vectors = 0..self.value_count(c);
        vectors
            .map(|k| count.saturating_sub(k * per).min(per) * parts)
            .collect()
    }

    /// Loads the first `count` elements of a group, and zeros.
    pub(super) fn load_tail(&mut self, d: DType, count: usize, p: Value, off: i32) -> Lanes {
        let (c, stored) = (RegisterClass::from_dtype(d), Stored::of(d));
        if stored != Stored::Whole {
            let lanes = vec![self.load_masked(RegisterClass::I32, MaskedLanes::new(count, stored), p, off)];
            return match d {
                DType::B8 => {
                    let zero = self.int_like(RegisterClass::I32, &lanes, 0);
                    self.icmp(IntCC::NotEqual, &lanes, &zero)
                }
                _ => lanes,
            };
        }
        let mut out = vec![];
        for (k, lanes) in self.tail_lanes(c, count).into_iter().enumerate() {
            let off = off + (self.width * k) as i32;
            out.push(match lanes {
                0 => self.constant_bits(c, 0, 1)[0],
                GROUP => self.b.ins().load(c.vector_type(), MEM, p, off),
                _ => self.load_masked(c, MaskedLanes::new(lanes, stored), p, off),
            });
        }
        out
    }

    fn load_masked(&mut self, c: RegisterClass, m: MaskedLanes, p: Value, off: i32) -> Value {
        let (p, off) = self.near_address(p, off);
        let v = self.b.ins().uload32x2(MEM, p, tagged_offset(off, m));
        self.bitcast(c.vector_type(), v)
    }

    /// The address `p + off` with an offset of few bits. A large offset comes from memory, so that it does not become part of an
    /// instruction.
    fn near_address(&mut self, p: Value, off: i32) -> (Value, i32) {
        if off.abs() < NEAR {
            return (p, off);
        }
        let place = self.table.constant_offset(off as i64 as u64, 8);
        let flags = MEM.with_aligned();
        let off = self.b.ins().load(I64, flags, self.table_ptr, place);
        (self.b.ins().iadd(p, off), 0)
    }

    /// Stores the first `count` elements of a group.
    pub(super) fn store_tail(&mut self, d: DType, count: usize, x: &Lanes, p: Value, off: i32) {
        let stored = Stored::of(d);
        if stored != Stored::Whole {
            let x = self.stored_lanes(d, x);
            return self.store_masked(MaskedLanes::new(count, stored), x[0], p, off);
        }
        let lanes = self.tail_lanes(RegisterClass::from_dtype(d), count);
        for (k, (&v, lanes)) in x.iter().zip(lanes).enumerate() {
            let off = off + (self.width * k) as i32;
            match lanes {
                0 => {}
                GROUP => drop(self.b.ins().store(MEM, v, p, off)),
                _ => self.store_masked(MaskedLanes::new(lanes, stored), v, p, off),
            }
        }
    }

    /// Stores the first `count` elements of a group, which are the halves of 16-bit elements that a native conversion returned.
    pub(super) fn store_tail_of_halves(&mut self, d: DType, count: usize, x: &Lanes, p: Value, off: i32) {
        let x = self.native1(NativeInst::ExtendHalf, RegisterClass::I32, x);
        self.store_tail(d, count, &x, p, off);
    }

    fn store_masked(&mut self, m: MaskedLanes, v: Value, p: Value, off: i32) {
        let (p, off) = self.near_address(p, off);
        let v = self.bitcast(I8X16, v);
        let byte = self.b.ins().extractlane(v, 15);
        self.b.ins().store(MEM, byte, p, tagged_offset(off, m));
    }
}
