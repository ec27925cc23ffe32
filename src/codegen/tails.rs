//! The last iterations of a vector loop of 64-byte vectors, which are too few for a group, as one group with masks.
//!
//! `for i in 0..17 { y[i] = x[i] + 1 }` runs one group of 16 iterations, and a group whose loads and stores touch only the first
//! element. Lanes beyond it compute on zeros. Without masks, the last iterations run one by one, which takes longer than all
//! groups where rows are short or elements take many instructions.
//!
//! CLIF has no masks. A masked store is emitted as a store of one byte of a vector, whose position is the number of 32-bit lanes that
//! the mask has. A masked load is emitted as one that extends 32-bit elements to 64 bits, with the number of lanes in the upper bits
//! of its offset. Kernels of this width have no other use for these instructions, which [`widen`](super::widen) replaces.

use super::lanes::{Emitter, Lanes, MEM, RegisterClass};
use super::masking::{GROUP, can_mask, is_worth_masks};
use super::state::{End, FunctionLowering, VarAt};
use super::widen::{NEAR, tagged_offset};
use crate::kernel::Loop;
use crate::types::DType;
use cranelift_codegen::ir::types::{I8X16, I64};
use cranelift_codegen::ir::{InstBuilder, Value};

impl FunctionLowering<'_> {
    /// Lowers the iterations `start..end` as one group with masks, if they are fewer than a group has and can be one. Returns
    /// where the iterations that remain start.
    pub(super) fn masked_part(&mut self, l: &Loop, start: End, end: End) -> End {
        let (End::Const(a), End::Const(b)) = (start, end) else {
            return start;
        };
        let count = usize::try_from(b.saturating_sub(a)).unwrap_or(0);
        let fits = count < GROUP && is_worth_masks(l, count) && self.e.width == 64 && self.e.packed == 4;
        if !fits || !can_mask(self.k, l) {
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
        let c = RegisterClass::from_dtype(d);
        let mut out = vec![];
        for (k, lanes) in self.tail_lanes(c, count).into_iter().enumerate() {
            let off = off + (self.width * k) as i32;
            out.push(match lanes {
                0 => self.constant_bits(c, 0, 1)[0],
                GROUP => self.b.ins().load(c.vector_type(), MEM, p, off),
                _ => {
                    let (p, off) = self.near_address(p, off);
                    let v = self.b.ins().uload32x2(MEM, p, tagged_offset(off, lanes));
                    self.bitcast(c.vector_type(), v)
                }
            });
        }
        out
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
        let lanes = self.tail_lanes(RegisterClass::from_dtype(d), count);
        for (k, (&v, lanes)) in x.iter().zip(lanes).enumerate() {
            let off = off + (self.width * k) as i32;
            match lanes {
                0 => {}
                GROUP => drop(self.b.ins().store(MEM, v, p, off)),
                _ => {
                    let v = self.bitcast(I8X16, v);
                    let byte = self.b.ins().extractlane(v, lanes as u8);
                    self.b.ins().store(MEM, byte, p, off);
                }
            }
        }
    }
}
