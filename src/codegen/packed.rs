//! Packed kernels: all elements that vary have the same one or two bytes, and the operations on them need no more. Lanes
//! are then as narrow as the elements, which are neither extended when they are loaded nor cut when they are stored:
//! four times as many bytes fit a vector. Copies of 16-bit floats are such kernels too.
//!
//! AVX2 has these operations on 32 bytes. Those of AVX-512 are not asked of the machine (AVX512BW), so 64-byte vectors
//! only copy and fill.

use super::lanes::{Emitter, Lanes, MEM, RegisterClass};
use super::reduce::ReduceRule;
use super::state::FunctionLowering;
use super::vector_loops::{VectorLoops, VisitLanes, int_unary};
use crate::kernel::{Buf, Index, Inst, Kernel, Loop, ReduceOp, Value, Var};
use crate::scalar::{Binary, ScalarOp};
use crate::types::DType;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I16X8, I32, I32X4, I64};
use cranelift_codegen::ir::{self, InstBuilder};

/// How a kernel is lowered with packed lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedLanes {
    /// The size of a lane in bytes.
    pub lane: usize,
    /// The width of the vectors in bytes.
    pub width: usize,
    /// Whether the target has instructions that convert f32 to bf16, and those on masks of words.
    pub narrows: bool,
    /// Whether the target has the conversions of F16C.
    pub f16c: bool,
    /// Whether a group is one vector instead of several.
    pub single: bool,
}

/// The packing of `k` for vectors of at most `most` bytes, if it can be packed and its loops are long enough.
pub(super) fn choose_packing(k: &Kernel, most: usize) -> Option<PackedLanes> {
    let mut s = PackingSurvey {
        loops: VectorLoops::new(k),
        size: None,
        packable: true,
        widest: most,
    };
    s.walk(&k.body);
    let lane = s.size.filter(|_| s.packable)?;
    s.loops.leave_borders_out();
    let steps = |w: usize, lane: usize| match w {
        64 => s.loops.masked_packed_steps(w / lane),
        w => s.loops.steps(w / lane),
    };
    let fewest = |most: usize, lane: usize| {
        let widths = [64, 32, 16].into_iter().filter(move |&w| w <= most);
        widths.min_by_key(|&w| steps(w, lane))
    };
    let width = fewest(s.widest, lane)?;
    // Reversed loads have 16 bytes without packing, too.
    let unpacked = fewest(if s.widest == 16 { 16 } else { most }, 4)?;
    (steps(width, lane) <= steps(unpacked, 4)).then_some(PackedLanes {
        lane,
        width,
        narrows: false,
        f16c: false,
        single: false,
    })
}

/// What is known of a kernel's vector loops.
struct PackingSurvey<'a> {
    loops: VectorLoops<'a>,
    /// The size of the elements that vary.
    size: Option<usize>,
    packable: bool,
    /// The widest vectors that have all operations.
    widest: usize,
}

impl<'a> VisitLanes<'a> for PackingSurvey<'a> {
    fn loops(&mut self) -> &mut VectorLoops<'a> {
        &mut self.loops
    }

    fn visit_loop(&mut self, l: &Loop) {
        for r in &l.reduces {
            let d = self.loops.k.dtype(r.init[0]);
            self.note_size(d);
            self.require(d == DType::B8 || (d.is_int() && !matches!(r.op, ReduceOp::Add | ReduceOp::Mul)));
            self.require(r.op.as_binary().is_some());
            self.widest = self.widest.min(32);
        }
        l.carries.iter().for_each(|c| self.note_size(self.loops.k.dtype(c.phi)));
    }

    fn visit_store(&mut self, b: Buf, i: &Index, stride: i64) {
        let fixed = self.loops.is_fixed(i);
        if stride != 0 || !fixed {
            self.note_size(self.loops.k.buffer(b).dtype);
            self.require(stride == 1 && fixed);
        }
    }

    fn visit_varying(&mut self, v: Value, i: &Inst, lane: Var) {
        self.note_size(self.loops.k.dtype(v));
        match i {
            Inst::Load(b, index, _) => self.visit_load(*b, index, lane),
            Inst::Op(op) => {
                if !self.is_of_sign_bits(op) {
                    self.widest = self.widest.min(32);
                }
                self.require(self.is_packable(op));
            }
            Inst::Index(_) | Inst::Bounded(..) => self.require(false),
        }
    }
}

impl PackingSurvey<'_> {
    fn require(&mut self, holds: bool) {
        self.packable &= holds;
    }

    /// Notes an element or a value that varies.
    fn note_size(&mut self, d: DType) {
        let size = *self.size.get_or_insert(d.size());
        self.require(size == d.size() && size < 4);
    }

    fn visit_load(&mut self, b: Buf, index: &Index, lane: Var) {
        self.require(self.loops.is_fixed(index));
        match index.affine.stride(lane) {
            // Conditions are compared with zero as they are loaded.
            1 if self.loops.k.buffer(b).dtype == DType::B8 => self.widest = self.widest.min(32),
            1 => {}
            // The order of bytes is reversed within 16 of them.
            -1 => self.widest = self.widest.min(16),
            _ => self.require(false),
        }
    }

    /// Whether an operation is bitwise, on 16-bit floats: AVX-512 has those for vectors of any lanes.
    fn is_of_sign_bits(&self, op: &ScalarOp<Value>) -> bool {
        match op {
            ScalarOp::Unary(_, x) | ScalarOp::Binary(_, x, _) => self.loops.k.dtype(*x).is_float(),
            _ => false,
        }
    }

    /// Whether packed lanes have an operation.
    fn is_packable(&self, op: &ScalarOp<Value>) -> bool {
        let d = |v: Value| self.loops.k.dtype(v);
        let bytes = self.size == Some(1);
        match op {
            ScalarOp::Const(_) => true,
            _ if self.is_of_sign_bits(op) => true,
            ScalarOp::Unary(op, x) => d(*x) == DType::B8 || (d(*x).is_int() && int_unary(*op)),
            ScalarOp::Binary(op, x, _) if d(*x) == DType::B8 => packable_binary(*op) || *op == Binary::Mul,
            ScalarOp::Binary(Binary::Mul, x, _) => d(*x).is_int(),
            ScalarOp::Binary(op, x, _) => d(*x).is_int() && packable_binary(*op),
            ScalarOp::Compare(_, x, _) => bytes && d(*x).size() == 1,
            ScalarOp::Select(_, x, _) => bytes && d(*x).size() == 1,
            ScalarOp::Cast(_, x) => bytes && d(*x).size() == 1,
            ScalarOp::Fma(..) => false,
        }
    }
}

fn packable_binary(op: Binary) -> bool {
    use Binary::*;
    matches!(op, Add | Sub | And | Or | Xor | Max | Min | Fmax | Fmin)
}

impl Emitter<'_> {
    /// Whether the current form has packed lanes.
    pub(super) fn is_packed(&self) -> bool {
        !self.scalar && self.packed < 4
    }

    /// Loads a group of consecutive elements as packed lanes, in the order of memory or reversed.
    pub(super) fn load_packed(&mut self, d: DType, reversed: bool, p: ir::Value, off: i32) -> Lanes {
        let c = RegisterClass::from_dtype(d);
        let (ty, n) = (self.lane_type(c), self.value_count(c) as i32);
        let mut out = vec![];
        for k in 0..n {
            let v = if reversed {
                let size = self.packed as i32;
                let v = self.b.ins().load(ty, MEM, p, off - 16 * k - 16 + size);
                let order = std::array::from_fn(|i| ((15 - i) / self.packed * self.packed + i % self.packed) as u8);
                self.shuffle(v, v, order)
            } else {
                let distance = self.width as i32;
                self.b.ins().load(ty, MEM, p, off + distance * k)
            };
            out.push(v);
        }
        if d == DType::B8 {
            let zero = self.int_like(RegisterClass::I32, &out, 0);
            return self.icmp(IntCC::NotEqual, &out, &zero);
        }
        out
    }

    /// Stores a group of packed lanes.
    pub(super) fn store_packed(&mut self, d: DType, x: &Lanes, p: ir::Value, off: i32) {
        let x = if d == DType::B8 {
            let one = self.int_like(RegisterClass::I32, x, 1);
            self.band(x, &one)
        } else {
            x.clone()
        };
        for (k, &v) in x.iter().enumerate() {
            self.b.ins().store(MEM, v, p, off + (self.width * k) as i32);
        }
    }

    /// A scalar of class I32, of which the low bits count, in every packed lane.
    pub(super) fn splat_packed(&mut self, s: ir::Value) -> ir::Value {
        let (mask, factor) = match self.packed {
            1 => (0xff, 0x0101_0101),
            _ => (0xffff, 0x0001_0001),
        };
        let low = self.b.ins().band_imm_u(s, mask);
        let factor = self.b.ins().iconst(I32, factor);
        let all = self.b.ins().imul(low, factor);
        let v = self.b.ins().splat(I32X4, all);
        let ty = self.lane_type(RegisterClass::I32);
        self.bitcast(ty, v)
    }

    /// The low bits of the products of packed integers.
    pub(super) fn multiply_packed(&mut self, x: &Lanes, y: &Lanes) -> Lanes {
        if self.packed == 2 {
            return self.map2(x, y, |e, x, y| e.b.ins().imul(x, y));
        }
        // Of each pair of bytes, the products of the lower ones and those of the upper ones.
        let [low, high] = [0x00ff, 0xff00].map(|bits| {
            let offset = self.table.constant_offset(bits, 2);
            self.b.ins().load(I16X8, MEM.with_aligned(), self.table_ptr, offset)
        });
        self.map2(x, y, |e, x, y| {
            let ty = e.b.func.dfg.value_type(x);
            let (x, y) = (e.bitcast(I16X8, x), e.bitcast(I16X8, y));
            let lower = e.b.ins().imul(x, y);
            let lower = e.b.ins().band(lower, low);
            let eight = e.b.ins().iconst(I32, 8);
            let x = e.b.ins().ushr(x, eight);
            let y = e.b.ins().band(y, high);
            let upper = e.b.ins().imul(x, y);
            let r = e.b.ins().bor(lower, upper);
            e.bitcast(ty, r)
        })
    }

    /// The larger or smaller of packed integers.
    pub(super) fn extremum_packed(&mut self, larger: bool, d: DType, x: &Lanes, y: &Lanes) -> Lanes {
        let unsigned = d == DType::U8;
        self.map2(x, y, |e, x, y| match (larger, unsigned) {
            (true, true) => e.b.ins().umax(x, y),
            (true, false) => e.b.ins().smax(x, y),
            (false, true) => e.b.ins().umin(x, y),
            (false, false) => e.b.ins().smin(x, y),
        })
    }
}

impl FunctionLowering<'_> {
    /// Combines the packed lanes of one vector into a scalar: the parts of a wide vector, then their 32-bit lanes, then the
    /// elements within these.
    pub(super) fn collapse_packed(&mut self, rule: ReduceRule, x: ir::Value) -> ir::Value {
        let mut x = self.across_parts(rule, x);
        for order in [[2, 3, 0, 1], [1, 0, 3, 2]] {
            let y = self.e.shuffle32(x, x, order);
            x = self.combine_two(rule, x, y);
        }
        let shifts = [(I32X4, 16), (I16X8, 8)].into_iter().take(3 - self.e.packed);
        for (lanes, distance) in shifts {
            let (ty, v) = (self.e.b.func.dfg.value_type(x), self.e.bitcast(lanes, x));
            let distance = self.e.b.ins().iconst(I32, distance);
            let v = self.e.b.ins().ushr(v, distance);
            let y = self.e.bitcast(ty, v);
            x = self.combine_two(rule, x, y);
        }
        let slot = self.e.b.ins().stack_addr(I64, self.e.slot, 0);
        self.e.b.ins().store(MEM, x, slot, 0);
        self.e.as_scalar(|e| e.load_scalar(rule.dtype, slot, 0))
    }

    fn combine_two(&mut self, rule: ReduceRule, x: ir::Value, y: ir::Value) -> ir::Value {
        self.with_form(true, |s| s.combine(rule, &[vec![x]], &[vec![y]]))[0][0]
    }
}
