//! Single elements: Rust types that are element types ([`Element`]) and dynamically typed values ([`Scalar`]) with
//! torch's casts.

use super::float8;
use crate::types::{Category, DType};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A Rust type whose values are the elements of tensors of one dtype. `bool` is stored as one byte, 0 or 1. It is read
/// through [`u8`] or [`Scalar`], because a file may contain other bytes.
pub trait Element: Copy + Send + Sync + 'static {
    /// The dtype.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty => $d:ident),*) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* };
}
elements!(f64 => F64, f32 => F32, f16 => F16, bf16 => BF16, i64 => I64, i32 => I32, i16 => I16, i8 => I8, u8 => U8, u16 => U16, u32 => U32, u64 => U64);

/// Reinterprets bytes as elements. Panics if they are not aligned or not a whole number of elements.
pub(super) fn cast_slice<T: Element>(bytes: &[u8]) -> &[T] {
    let size = std::mem::size_of::<T>();
    if bytes.is_empty() {
        // No memory, so no alignment.
        return &[];
    }
    assert!((bytes.as_ptr() as usize).is_multiple_of(std::mem::align_of::<T>()) && bytes.len().is_multiple_of(size));
    // SAFETY: every `Element` is a plain number for which all bit patterns are valid; alignment and length were checked.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size) }
}

/// [`cast_slice`] for writing.
pub(super) fn cast_slice_mut<T: Element>(bytes: &mut [u8]) -> &mut [T] {
    let size = std::mem::size_of::<T>();
    if bytes.is_empty() {
        return &mut [];
    }
    assert!((bytes.as_ptr() as usize).is_multiple_of(std::mem::align_of::<T>()) && bytes.len().is_multiple_of(size));
    // SAFETY: as in `cast_slice`; the borrow is unique.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / size) }
}

/// An operand's bytes as elements. Panics if they are not aligned or not a whole number of elements.
pub(crate) fn cells_of<T: Element>(bytes: &[u8]) -> &[T] {
    cast_slice(bytes)
}

/// A result's bytes as elements. Panics if they are not aligned or not a whole number of elements.
pub(crate) fn cells_of_mut<T: Element>(bytes: &mut [u8]) -> &mut [T] {
    cast_slice_mut(bytes)
}

/// One element with its dtype. A 16-bit float is held as the f32 of the same value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Scalar {
    /// f64.
    F64(f64),
    /// f32.
    F32(f32),
    /// An integer of the dtype, sign- or zero-extended.
    Int(DType, i64),
    /// b8.
    Bool(bool),
    /// f16, bf16 or an 8-bit float, holding a value that the dtype represents exactly.
    Half(DType, f32),
}

impl Scalar {
    /// The value's bits: 0.0 and -0.0 differ, and NaN equals itself. The dtype is not included.
    pub fn bits(self) -> u64 {
        match self {
            Scalar::F64(x) => x.to_bits(),
            Scalar::F32(x) | Scalar::Half(_, x) => x.to_bits() as u64,
            Scalar::Int(_, x) => x as u64,
            Scalar::Bool(b) => b as u64,
        }
    }

    /// Element `i` of row-major `bytes` of `dtype`. Panics for complex dtypes.
    pub fn read(dtype: DType, bytes: &[u8], i: usize) -> Scalar {
        let s = dtype.size();
        let b = &bytes[i * s..i * s + s];
        macro_rules! le {
            ($t:ty) => {
                <$t>::from_le_bytes(b.try_into().expect("an element's bytes"))
            };
        }
        match dtype {
            DType::F64 => Scalar::F64(le!(f64)),
            DType::F32 => Scalar::F32(le!(f32)),
            DType::F16 => Scalar::Half(dtype, le!(f16).to_f32()),
            DType::BF16 => Scalar::Half(dtype, le!(bf16).to_f32()),
            DType::I64 => Scalar::Int(dtype, le!(i64)),
            DType::I32 => Scalar::Int(dtype, le!(i32) as i64),
            DType::I16 => Scalar::Int(dtype, le!(i16) as i64),
            DType::I8 => Scalar::Int(dtype, le!(i8) as i64),
            DType::U8 => Scalar::Int(dtype, b[0] as i64),
            DType::B8 => Scalar::Bool(b[0] != 0),
            DType::U16 => Scalar::Int(dtype, le!(u16) as i64),
            DType::U32 => Scalar::Int(dtype, le!(u32) as i64),
            DType::U64 => Scalar::Int(dtype, le!(u64) as i64),
            d if d.is_float8() => Scalar::Half(d, float8::decode(d, b[0])),
            _ => panic!("{dtype} has no scalars"),
        }
    }

    /// Writes the element at index `i` of row-major `bytes` of its own dtype.
    pub fn write(self, bytes: &mut [u8], i: usize) {
        let s = self.dtype().size();
        let b = &mut bytes[i * s..i * s + s];
        match self {
            Scalar::F64(x) => b.copy_from_slice(&x.to_le_bytes()),
            Scalar::F32(x) => b.copy_from_slice(&x.to_le_bytes()),
            Scalar::Half(d, x) if d.is_float8() => b[0] = float8::encode(d, x),
            Scalar::Half(DType::F16, x) => b.copy_from_slice(&f16::from_f32(x).to_le_bytes()),
            Scalar::Half(_, x) => b.copy_from_slice(&bf16::from_f32(x).to_le_bytes()),
            Scalar::Int(_, x) => b.copy_from_slice(&x.to_le_bytes()[..s]),
            Scalar::Bool(x) => b[0] = x as u8,
        }
    }

    /// The dtype.
    pub fn dtype(self) -> DType {
        match self {
            Scalar::F64(_) => DType::F64,
            Scalar::F32(_) => DType::F32,
            Scalar::Int(d, _) | Scalar::Half(d, _) => d,
            Scalar::Bool(_) => DType::B8,
        }
    }

    /// The value as f64. Bools become 0 and 1.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::F64(x) => x,
            Scalar::F32(x) | Scalar::Half(_, x) => x as f64,
            Scalar::Int(DType::U64, x) => x as u64 as f64,
            Scalar::Int(_, x) => x as f64,
            Scalar::Bool(b) => b as u8 as f64,
        }
    }

    /// The value as i64. Floats are truncated; NaN, infinities and values out of range become `i64::MIN`, as on x86.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Int(_, x) => x,
            Scalar::Bool(b) => b as i64,
            _ => {
                let x = self.to_f64();
                if (-9.223372036854776e18..9.223372036854776e18).contains(&x) {
                    x as i64
                } else {
                    i64::MIN
                }
            }
        }
    }

    /// Whether the value is not zero. NaN is not zero.
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Int(_, x) => x != 0,
            Scalar::Bool(b) => b,
            _ => self.to_f64() != 0.0,
        }
    }

    /// The value converted as by `Tensor.to`. Floats are truncated to integers (through i32 for narrow types, so that
    /// 300.0 becomes the u8 44), integers wrap, and any value but zero is true.
    pub fn cast(self, to: DType) -> Scalar {
        if self.dtype() == to {
            return self;
        }
        match to.category() {
            Category::Bool => Scalar::Bool(self.to_bool()),
            Category::Int => Scalar::from_i64(to, self.to_int_for(to)),
            _ => match to {
                DType::F64 => Scalar::F64(self.to_f64()),
                // Convert an i64 to f32 with a single rounding.
                DType::F32 => Scalar::F32(match self {
                    Scalar::Int(DType::U64, x) => x as u64 as f32,
                    Scalar::Int(_, x) => x as f32,
                    Scalar::Half(_, x) => x,
                    s => s.to_f64() as f32,
                }),
                DType::F16 => Scalar::Half(to, f16::from_f32(self.cast_f32()).to_f32()),
                DType::BF16 if self.dtype().is_float8() && self.to_f64().is_nan() => Scalar::Half(to, f32::NAN),
                DType::BF16 => Scalar::Half(to, bf16::from_f32(self.cast_f32()).to_f32()),
                d if d.is_float8() => Scalar::Half(d, float8::decode(d, float8::encode(d, self.cast_f32()))),
                _ => panic!("{to} has no scalars"),
            },
        }
    }

    fn cast_f32(self) -> f32 {
        match self.cast(DType::F32) {
            Scalar::F32(x) => x,
            _ => unreachable!("a cast to f32 is an f32"),
        }
    }

    fn to_int_for(self, to: DType) -> i64 {
        match self {
            Scalar::Int(..) | Scalar::Bool(_) => self.to_i64(),
            _ if matches!(to, DType::I64 | DType::U32) => self.to_i64(),
            _ if to == DType::U64 => above_i64(self.to_f64()).unwrap_or_else(|| self.to_i64()),
            _ => {
                let x = self.to_f64();
                if (-2147483649.0..2147483648.0).contains(&x.trunc()) && x > -2147483649.0 {
                    x as i64
                } else {
                    i32::MIN as i64
                }
            }
        }
    }

    /// The integer `x`, wrapped to `dtype`.
    pub fn from_i64(dtype: DType, x: i64) -> Scalar {
        match dtype {
            DType::I64 => Scalar::Int(dtype, x),
            DType::I32 => Scalar::Int(dtype, x as i32 as i64),
            DType::I16 => Scalar::Int(dtype, x as i16 as i64),
            DType::I8 => Scalar::Int(dtype, x as i8 as i64),
            DType::U8 => Scalar::Int(dtype, x as u8 as i64),
            DType::U16 => Scalar::Int(dtype, x as u16 as i64),
            DType::U32 => Scalar::Int(dtype, x as u32 as i64),
            DType::U64 => Scalar::Int(dtype, x),
            _ => Scalar::Int(DType::I64, x).cast(dtype),
        }
    }

    /// The number `x`, rounded once to `dtype`: a Python float as an operand of a tensor op.
    pub fn from_f64(dtype: DType, x: f64) -> Scalar {
        Scalar::F64(x).cast(dtype)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::F64(x) => f.write_str(&crate::types::write_float(*x)),
            Scalar::F32(x) | Scalar::Half(_, x) => write!(f, "{x:?}"),
            Scalar::Int(DType::U64, x) => write!(f, "{}", *x as u64),
            Scalar::Int(_, x) => write!(f, "{x}"),
            Scalar::Bool(true) => f.write_str("True"),
            Scalar::Bool(false) => f.write_str("False"),
        }
    }
}

/// The bits as u64 of a float from 2 to the 63 on, which i64 cannot hold; 0 if u64 cannot hold it either.
fn above_i64(x: f64) -> Option<i64> {
    let limit = 9.223372036854776e18;
    (x >= limit).then_some(if x < 2.0 * limit { x as u64 as i64 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_as_torch_does() {
        let f = |x: f32| Scalar::F32(x);
        for (from, to, want) in [
            (f(300.0), DType::U8, 44),
            (f(-1.0), DType::U8, 255),
            (f(f32::NAN), DType::I32, i32::MIN as i64),
            (f(f32::INFINITY), DType::I64, i64::MIN),
            (f(-2147483648.0), DType::I32, i32::MIN as i64),
            (f(-2.9), DType::I32, -2),
            (Scalar::Int(DType::I64, 300), DType::I8, 44),
            (f(-1.5), DType::U16, 65535),
            (f(70000.0), DType::U16, 4464),
            (f(-1e10), DType::U16, 0),
            (f(-1e10), DType::U32, 2884901888),
            (f(f32::NAN), DType::U32, 0),
            (f(-1.0), DType::U64, -1),
            (f(1e19), DType::U64, 9999999980506447872u64 as i64),
            (f(2e19), DType::U64, 0),
            (f(f32::INFINITY), DType::U64, 0),
            (f(f32::NEG_INFINITY), DType::U64, i64::MIN),
            (Scalar::Int(DType::U64, -1), DType::U32, u32::MAX as i64),
        ] {
            assert_eq!(from.cast(to).to_i64(), want, "{from:?} to {to}");
        }
        assert_eq!(f(f32::NAN).cast(DType::B8), Scalar::Bool(true));
        assert_eq!(Scalar::Int(DType::U64, -1).cast(DType::F32), f(18446744073709551616.0));
        assert_eq!(f(70000.0).cast(DType::F16), Scalar::Half(DType::F16, f32::INFINITY));
    }
}
