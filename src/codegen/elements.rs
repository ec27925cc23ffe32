//! Loads and stores of one element or of a group of consecutive elements.

use super::lanes::{Emitter, Lanes, MEM, RegisterClass};
use crate::types::DType;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F32, F64, I8, I8X16, I16X8, I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{InstBuilder, Value};

impl Emitter<'_> {
    /// Loads one element.
    pub(super) fn load_scalar(&mut self, d: DType, p: Value, off: i32) -> Value {
        let b = self.b.ins();
        match d {
            DType::F32 => b.load(F32, MEM, p, off),
            DType::F64 => b.load(F64, MEM, p, off),
            DType::I64 => b.load(I64, MEM, p, off),
            DType::I16 => b.sload16(I32, MEM, p, off),
            DType::I8 => b.sload8(I32, MEM, p, off),
            DType::U8 => b.uload8(I32, MEM, p, off),
            DType::F16 | DType::BF16 => b.uload16(I32, MEM, p, off),
            DType::B8 => {
                // The bytes of a b8 loaded from a file may be other than 0 and 1.
                let x = b.load(I8, MEM, p, off);
                self.b.ins().icmp_imm_u(IntCC::NotEqual, x, 0)
            }
            _ => b.load(I32, MEM, p, off),
        }
    }

    pub(super) fn store_scalar(&mut self, d: DType, x: Value, p: Value, off: i32) {
        let b = self.b.ins();
        match d {
            DType::I16 | DType::F16 | DType::BF16 => b.istore16(MEM, x, p, off),
            DType::I8 | DType::U8 => b.istore8(MEM, x, p, off),
            _ => b.store(MEM, x, p, off),
        };
    }

    /// Loads a group of consecutive elements.
    pub(super) fn load_lanes(&mut self, d: DType, p: Value, off: i32) -> Lanes {
        if self.is_packed() {
            return self.load_packed(d, false, p, off);
        }
        if let Some(count) = self.tail {
            return self.load_tail(d, count, p, off);
        }
        let c = RegisterClass::from_dtype(d);
        let n = self.value_count(c);
        if d.size() >= 4 {
            let ty = c.vector_type();
            let w = self.width as i32;
            return (0..n as i32)
                .map(|k| self.b.ins().load(ty, MEM, p, off + w * k))
                .collect();
        }
        if d.size() == 2 {
            // In memory the elements are half as far apart as their lanes.
            let offset = |k: usize| off + (self.width / 2 * k) as i32;
            return (0..n)
                .map(|k| match d {
                    DType::I16 => self.b.ins().sload16x4(MEM, p, offset(k)),
                    _ => self.b.ins().uload16x4(MEM, p, offset(k)),
                })
                .collect();
        }
        let offset = |width: usize, k: usize| off + (width / 4 * k) as i32;
        let out: Lanes = (0..n)
            .map(|k| self.load_bytes(d == DType::I8, p, offset(self.width, k)))
            .collect();
        if d == DType::B8 {
            let zero = self.int_like(RegisterClass::I32, &out, 0);
            return self.icmp(IntCC::NotEqual, &out, &zero);
        }
        out
    }

    /// Loads a vector of consecutive bytes, extended to 32 bits.
    fn load_bytes(&mut self, signed: bool, p: Value, off: i32) -> Value {
        if self.width > 16 {
            // `widen` turns this load into one that extends bytes to 32-bit lanes.
            let v = match signed {
                true => self.b.ins().sload8x8(MEM, p, off),
                false => self.b.ins().uload8x8(MEM, p, off),
            };
            return self.bitcast(I32X4, v);
        }
        let bytes = self.b.ins().load(I32, MEM, p, off);
        let v = self.b.ins().scalar_to_vector(I32X4, bytes);
        let mut v = self.bitcast(I8X16, v);
        for _ in 0..2 {
            v = match signed {
                true => self.b.ins().swiden_low(v),
                false => self.b.ins().uwiden_low(v),
            };
        }
        v
    }

    /// Loads a group of every second element, or of elements in reverse order, by shuffling vectors of 32-bit lanes.
    /// Reads nothing beyond them.
    pub(super) fn load_strided(&mut self, d: DType, stride: i32, p: Value, off: i32) -> Lanes {
        let size = d.size() as i32;
        let offset = |k: usize, element: i32| off + size * (4 * k as i32 * stride + element);
        let mut out = vec![];
        for k in 0..self.value_count(RegisterClass::from_dtype(d)) {
            if stride == -1 {
                let v = self.load_four(d, p, offset(k, -3));
                out.push(self.shuffle32(v, v, [3, 2, 1, 0]));
            } else {
                let a = self.load_four(d, p, offset(k, 0));
                let b = self.load_four(d, p, offset(k, 3));
                out.push(self.shuffle32(a, b, [0, 2, 5, 7]));
            }
        }
        out
    }

    /// Loads four consecutive elements of at most 4 bytes, other than conditions, as 32-bit lanes.
    fn load_four(&mut self, d: DType, p: Value, off: i32) -> Value {
        match d.size() {
            1 => self.load_bytes(d == DType::I8, p, off),
            2 if d == DType::I16 => self.b.ins().sload16x4(MEM, p, off),
            2 => self.b.ins().uload16x4(MEM, p, off),
            _ => self
                .b
                .ins()
                .load(RegisterClass::from_dtype(d).vector_type(), MEM, p, off),
        }
    }

    pub(super) fn store_lanes(&mut self, d: DType, x: &Lanes, p: Value, off: i32) {
        if self.is_packed() {
            return self.store_packed(d, x, p, off);
        }
        if let Some(count) = self.tail {
            return self.store_tail(d, count, x, p, off);
        }
        if d.size() >= 4 {
            for (k, &v) in x.iter().enumerate() {
                self.b.ins().store(MEM, v, p, off + (self.width * k) as i32);
            }
            return;
        }
        let x = self.stored_lanes(d, x);
        for (k, &v) in x.iter().enumerate() {
            let low = self.narrow_lanes(d, v);
            let distance = self.width / 4 * d.size();
            self.b.ins().store(MEM, low, p, off + (distance * k) as i32);
        }
    }

    /// 32-bit lanes whose low bits are elements of 8 or 16 bits. Those of conditions are 0 and 1.
    pub(super) fn stored_lanes(&mut self, d: DType, x: &Lanes) -> Lanes {
        if d != DType::B8 {
            return x.clone();
        }
        let m = self.mask32(x);
        let one = self.int_like(RegisterClass::I32, &m, 1);
        self.band(&m, &one)
    }

    /// Stores the lower halves of vectors of 64 bytes.
    pub(super) fn store_halves(&mut self, d: DType, x: &Lanes, p: Value, off: i32) {
        if let Some(count) = self.tail {
            return self.store_tail_of_halves(d, count, x, p, off);
        }
        for (k, &v) in x.iter().enumerate() {
            // `widen` turns the store of this lane into one of the half.
            let v = self.bitcast(I16X8, v);
            let lane = self.b.ins().extractlane(v, 1);
            self.b.ins().store(MEM, lane, p, off + (self.width / 2 * k) as i32);
        }
    }

    /// Whether stores of 8 or 16 bits take the low bits of lanes, whatever the others are.
    pub(super) fn stores_low_bits(&self) -> bool {
        self.width > 16 && !self.scalar
    }

    /// The 32-bit lanes of a vector as consecutive elements of 8 or 16 bits, in one value to store.
    fn narrow_lanes(&mut self, d: DType, v: Value) -> Value {
        if self.width > 16 {
            // `widen` turns the store of this lane into one of the low bits of every lane.
            let v = self.bitcast(if d.size() == 2 { I16X8 } else { I8X16 }, v);
            return self.b.ins().extractlane(v, 0);
        }
        // The values are in range, so saturation does not change them.
        let half = match d {
            DType::F16 | DType::BF16 => self.b.ins().unarrow(v, v),
            _ => self.b.ins().snarrow(v, v),
        };
        debug_assert_eq!(self.b.func.dfg.value_type(half), I16X8);
        let packed = match d {
            d if d.size() == 2 => self.bitcast(I64X2, half),
            DType::I8 => {
                let bytes = self.b.ins().snarrow(half, half);
                self.bitcast(I32X4, bytes)
            }
            _ => {
                let bytes = self.b.ins().unarrow(half, half);
                self.bitcast(I32X4, bytes)
            }
        };
        self.b.ins().extractlane(packed, 0)
    }
}
