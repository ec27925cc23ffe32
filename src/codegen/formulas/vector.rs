//! Emits the steps of formulas.

use super::{MAGIC, Real};
use crate::codegen::lanes::{Emitter, Lanes, RegisterClass};
use crate::math::functions::Arithmetic;
use crate::scalar::{Binary, Unary};
use crate::types::DType;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{InstBuilder, Value};
use std::cell::RefCell;
use std::f64::consts::FRAC_PI_2;
use std::marker::PhantomData;
use std::ops::{Add, Div, Mul, Sub};

const F: RegisterClass = RegisterClass::F32;
const I: RegisterClass = RegisterClass::I32;
const D: RegisterClass = RegisterClass::F64;
const L: RegisterClass = RegisterClass::I64;

/// The type of the lanes of a [`Vector`], and of constants.
pub(super) trait Lane: Copy + PartialEq {
    const CLASS: RegisterClass;
    const MINUS_ONE: Self;
    fn to_f64(self) -> f64;
}

impl Lane for f32 {
    const CLASS: RegisterClass = F;
    const MINUS_ONE: f32 = -1.0;
    fn to_f64(self) -> f64 {
        self.into()
    }
}

impl Lane for f64 {
    const CLASS: RegisterClass = D;
    const MINUS_ONE: f64 = -1.0;
    fn to_f64(self) -> f64 {
        self
    }
}

/// One of the vectors of a group of numbers of type `K`, or its one scalar.
#[derive(Clone, Copy)]
pub(in crate::codegen) struct Vector<'c, 'e, K> {
    emitter: &'c RefCell<&'c mut Emitter<'e>>,
    value: Value,
    lane: PhantomData<K>,
}

impl<'c, 'e, K: Lane> Vector<'c, 'e, K> {
    fn new(emitter: &'c RefCell<&'c mut Emitter<'e>>, value: Value) -> Self {
        Vector {
            emitter,
            value,
            lane: PhantomData,
        }
    }

    fn with(self, value: Value) -> Self {
        Vector { value, ..self }
    }

    /// Emits a step of one operand.
    pub(super) fn emit(self, f: impl FnOnce(&mut Emitter<'e>, &Lanes) -> Lanes) -> Self {
        self.with(self.emit_value(f))
    }

    fn emit_value(self, f: impl FnOnce(&mut Emitter<'e>, &Lanes) -> Lanes) -> Value {
        f(&mut self.emitter.borrow_mut(), &vec![self.value])[0]
    }

    /// Emits a step of two operands.
    pub(super) fn emit2(self, y: Self, f: impl FnOnce(&mut Emitter<'e>, &Lanes, &Lanes) -> Lanes) -> Self {
        self.emit(|e, x| f(e, x, &vec![y.value]))
    }

    /// Whether [`Emitter::native`] may be used.
    pub(super) fn has_natives(self) -> bool {
        self.emitter.borrow().has_natives()
    }

    fn compare(self, cc: FloatCC, y: Self) -> Value {
        self.emit_value(|e, x| e.fcmp(cc, x, &vec![y.value]))
    }
}

impl<K: Lane> Add for Vector<'_, '_, K> {
    type Output = Self;
    fn add(self, y: Self) -> Self {
        self.emit2(y, |e, x, y| e.fadd(x, y))
    }
}

impl<K: Lane> Sub for Vector<'_, '_, K> {
    type Output = Self;
    fn sub(self, y: Self) -> Self {
        self.emit2(y, |e, x, y| e.fsub(x, y))
    }
}

impl<K: Lane> Mul for Vector<'_, '_, K> {
    type Output = Self;
    fn mul(self, y: Self) -> Self {
        self.emit2(y, |e, x, y| e.fmul(x, y))
    }
}

impl<K: Lane> Div for Vector<'_, '_, K> {
    type Output = Self;
    fn div(self, y: Self) -> Self {
        self.emit2(y, |e, x, y| e.fdiv(x, y))
    }
}

impl<K: Lane> Add<K> for Vector<'_, '_, K> {
    type Output = Self;
    fn add(self, y: K) -> Self {
        self + self.constant(y)
    }
}

impl<K: Lane> Sub<K> for Vector<'_, '_, K> {
    type Output = Self;
    fn sub(self, y: K) -> Self {
        self - self.constant(y)
    }
}

impl<K: Lane> Mul<K> for Vector<'_, '_, K> {
    type Output = Self;
    fn mul(self, y: K) -> Self {
        match y == K::MINUS_ONE {
            true => self.emit(|e, x| e.fneg(K::CLASS, x)),
            false => self * self.constant(y),
        }
    }
}

impl<K: Lane> Arithmetic<K> for Vector<'_, '_, K> {
    type Mask = Value;

    fn constant(self, k: K) -> Self {
        self.emit(|e, x| e.float_like(K::CLASS, x, k.to_f64()))
    }

    fn fma(self, factor: Self, term: Self) -> Self {
        self.emit2(factor, |e, x, y| e.fma(x, y, &vec![term.value]))
    }

    fn abs(self) -> Self {
        self.emit(|e, x| e.fabs(K::CLASS, x))
    }

    fn below(self, other: Self) -> Value {
        self.compare(FloatCC::LessThan, other)
    }

    fn equals(self, other: Self) -> Value {
        self.compare(FloatCC::Equal, other)
    }

    fn pick(c: Value, x: Self, y: Self) -> Self {
        x.emit2(y, |e, x, y| e.choose(&vec![c], x, y))
    }
}

impl Real for Vector<'_, '_, f32> {
    fn fuses(self) -> bool {
        self.emitter.borrow().fma
    }

    fn sqrt(self) -> Self {
        self.emit(|e, x| e.map1(x, |e, x| e.b.ins().sqrt(x)))
    }

    fn floor(self) -> Self {
        self.emit(|e, x| e.map1(x, |e, x| e.b.ins().floor(x)))
    }

    fn split_power(self) -> [Self; 2] {
        let e = &mut self.emitter.borrow_mut();
        let (exponent, m) = e.split_exponent(&vec![self.value]);
        let exponent = e.int_to_f32(&exponent);
        let exponent = e.mul_k(&exponent, 1.1920929e-7);
        [exponent[0], m[0]].map(|v| self.with(v))
    }

    fn ln(self) -> Self {
        self.emit(|e, x| e.log_f32(x))
    }

    fn ln_plus(self, low: Self) -> Self {
        self.emit2(low, |e, x, low| e.log_plus(x, Some(low)))
    }

    fn ln_in_two(self) -> [Self; 2] {
        let parts = self.emitter.borrow_mut().log_in_two(&vec![self.value]);
        parts.map(|v| self.with(v[0]))
    }

    fn or_sign(self, sign: Self) -> Self {
        self.emit2(sign, |e, x, y| e.or_sign(F, x, y))
    }

    fn unordered(self, other: Self) -> Value {
        self.compare(FloatCC::Unordered, other)
    }

    fn has_sign(self) -> Value {
        self.emit_value(|e, x| {
            let bits = e.bitcast_lanes(I, x);
            let zero = e.int_like(I, &bits, 0);
            e.icmp(IntCC::SignedLessThan, &bits, &zero)
        })
    }

    fn has_bit(self, bit: u32) -> Value {
        self.emit_value(|e, x| {
            let bits = e.bitcast_lanes(I, x);
            let mask = e.int_like(I, &bits, 1 << bit);
            let set = e.band(&bits, &mask);
            let mask = e.int_like(I, &bits, 1 << bit);
            e.icmp(IntCC::Equal, &set, &mask)
        })
    }

    fn flip_sign(self, bits: Self, bit: u32) -> Self {
        self.emit2(bits, |e, x, bits| {
            let bits = e.bitcast_lanes(I, bits);
            let mask = e.int_like(I, &bits, 1 << bit);
            let sign = e.band(&bits, &mask);
            let sign = e.shl(&sign, 31 - bit as i64);
            let x = e.bitcast_lanes(I, x);
            let y = e.map2(&x, &sign, |e, a, b| e.b.ins().bxor(a, b));
            e.bitcast_lanes(F, &y)
        })
    }

    fn add_to_bits(self, n: i32) -> Self {
        self.emit(|e, x| {
            let bits = e.bitcast_lanes(I, x);
            let n = e.int_like(I, &bits, n as i64);
            let sum = e.iadd(&bits, &n);
            e.bitcast_lanes(F, &sum)
        })
    }

    fn times_power(self, n: Self, t: Self) -> Self {
        self.emit2(n, |e, p, n| e.times_power(p, n, &vec![t.value], false))
    }

    fn replace<const N: usize>(c: Value, old: [Self; N], f: impl FnOnce() -> [Self; N]) -> [Self; N] {
        let x = old[0];
        let values = old.iter().map(|v| v.value).collect();
        let cold = x.emitter.borrow_mut().open_cold(&vec![c], &values);
        let new = f();
        let new = std::array::from_fn::<Self, N, _>(|i| Self::pick(c, new[i], old[i]));
        let new: Lanes = new.iter().map(|v| v.value).collect();
        let joined = x.emitter.borrow_mut().close_cold(cold, &new);
        std::array::from_fn(|i| x.with(joined[i]))
    }

    fn reduce_quadrants(self) -> [Self; 3] {
        let emitted = reduce_quadrants(&mut self.emitter.borrow_mut(), self.value);
        emitted.map(|v| self.with(v))
    }
}

/// 2 / pi in parts of 28 bits, whose products with f32 numbers are exact in f64. The last one is below 2^-168: with the
/// largest f32, that is below 2^-40, and its error below 2^-68.
const QUADRANTS: [f64; 7] = [
    0.6366197690367699,
    3.3308114738561656e-9,
    2.276010047810136e-18,
    2.5268260189002822e-26,
    1.6682867657019525e-34,
    1.158871328288855e-43,
    7.053959174404295e-52,
];

/// [`Real::reduce_quadrants`]: `x * 2 / pi` modulo 4 in f64. Each product with a part is reduced by itself, which is exact,
/// and added with its rounding error.
fn reduce_quadrants(e: &mut Emitter<'_>, x: Value) -> [Value; 3] {
    let x = e.cast(DType::F32, DType::F64, &vec![x]);
    let halves: Vec<[Value; 3]> = x.iter().map(|&x| reduce_in_f64(e, vec![x])).collect();
    let mut gather = |i: usize| {
        let lanes = halves.iter().map(|h| h[i]).collect();
        e.cast(DType::F64, DType::F32, &lanes)
    };
    let [r, low, k] = [0, 1, 2].map(&mut gather);
    [r[0], low[0], e.add_k(&k, MAGIC)[0]]
}

/// `[r, low, k]` for f64 lanes that hold f32 numbers. r is an f32 number.
fn reduce_in_f64(e: &mut Emitter<'_>, x: Lanes) -> [Value; 3] {
    let nearest = |e: &mut Emitter<'_>, x: &Lanes| e.map1(x, |e, x| e.b.ins().nearest(x));
    let turns = |e: &mut Emitter<'_>, part: f64| {
        let part = e.float_like(D, &x, part);
        let product = e.fmul(&x, &part);
        let quarter = e.float_like(D, &x, 0.25);
        let whole = e.fmul(&product, &quarter);
        let whole = nearest(e, &whole);
        let four = e.float_like(D, &x, -4.0);
        e.fma(&whole, &four, &product)
    };
    let mut high = turns(e, QUADRANTS[0]);
    let mut low = e.float_like(D, &x, 0.0);
    for part in &QUADRANTS[1..] {
        let y = turns(e, *part);
        // Knuth's sum of two numbers of any order.
        let sum = e.fadd(&high, &y);
        let second = e.fsub(&sum, &high);
        let first = e.fsub(&sum, &second);
        let (first, second) = (e.fsub(&high, &first), e.fsub(&y, &second));
        let error = e.fadd(&first, &second);
        low = e.fadd(&low, &error);
        high = sum;
    }
    let k = nearest(e, &high);
    let rest = e.fsub(&high, &k);
    let rest = e.fadd(&rest, &low);
    let angle = e.float_like(D, &rest, FRAC_PI_2);
    let r = e.fmul(&rest, &angle);
    // Rounds in the bits: a conversion would have to gather lanes.
    let bits = e.bitcast_lanes(L, &r);
    let half = e.int_like(L, &bits, 1 << 28);
    let bits = e.iadd(&bits, &half);
    let mask = e.int_like(L, &bits, !0 << 29);
    let bits = e.band(&bits, &mask);
    let rounded = e.bitcast_lanes(D, &bits);
    let rest = e.fsub(&r, &rounded);
    [rounded[0], rest[0], k[0]]
}

impl Emitter<'_> {
    /// An f32 operation of one number by its formula.
    pub(in crate::codegen) fn unary_formula(&mut self, op: Unary, x: &Lanes) -> Option<Lanes> {
        let each = x.iter().map(|&value| {
            let emitter = &RefCell::new(&mut *self);
            super::unary::<Vector<f32>>(op).map(|f| f(Vector::new(emitter, value)).value)
        });
        each.collect()
    }

    /// An f64 operation of one number, if it is computed in place.
    pub(in crate::codegen) fn unary_f64(&mut self, op: Unary, x: &Lanes) -> Option<Lanes> {
        // A call computes in the widest vectors, so only kernels of wide vectors, which cannot call, compute in place.
        if self.width == 16 {
            return None;
        }
        let each = x.iter().map(|&value| {
            let emitter = &RefCell::new(&mut *self);
            super::double::unary::<Vector<f64>>(op).map(|f| f(Vector::new(emitter, value)).value)
        });
        each.collect()
    }

    /// An f32 operation of two numbers by its formula.
    pub(in crate::codegen) fn binary_formula(&mut self, op: Binary, x: &Lanes, y: &Lanes) -> Option<Lanes> {
        let each = x.iter().zip(y).map(|(&x, &y)| {
            let emitter = &RefCell::new(&mut *self);
            let [x, y] = [x, y].map(|value| Vector::new(emitter, value));
            super::binary::<Vector<f32>>(op).map(|f| f(x, y).value)
        });
        each.collect()
    }
}
