//! Element types and torch's type promotion (`c10/core/ScalarType.h`, `torch.result_type`).

use serde::{Deserialize, Serialize};
use std::fmt;

/// A tensor's element type. fxc computes with the first ten. The others are known by name, and a stage that does not
/// support one rejects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
#[non_exhaustive]
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I16,
    I8,
    U8,
    B8,
    U16,
    U32,
    U64,
    C32,
    C64,
    C128,
    F8E4M3FN,
    F8E5M2,
    F8E4M3FNUZ,
    F8E5M2FNUZ,
    F8E8M0FNU,
}

/// The categories of promotion, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
#[non_exhaustive]
pub enum Category {
    Bool,
    Int,
    Float,
    Complex,
}

/// The table of element types: `(dtype, torch's abbreviation, torch's name, other accepted names, bytes)`.
const TABLE: &[(DType, &str, &str, &[&str], usize)] = &[
    (DType::F64, "f64", "float64", &["double"], 8),
    (DType::F32, "f32", "float32", &["float"], 4),
    (DType::F16, "f16", "float16", &["half"], 2),
    (DType::BF16, "bf16", "bfloat16", &[], 2),
    (DType::I64, "i64", "int64", &["long"], 8),
    (DType::I32, "i32", "int32", &["int"], 4),
    (DType::I16, "i16", "int16", &["short"], 2),
    (DType::I8, "i8", "int8", &[], 1),
    (DType::U8, "u8", "uint8", &[], 1),
    (DType::B8, "b8", "bool", &[], 1),
    (DType::U16, "u16", "uint16", &[], 2),
    (DType::U32, "u32", "uint32", &[], 4),
    (DType::U64, "u64", "uint64", &[], 8),
    (DType::C32, "c32", "complex32", &["chalf"], 4),
    (DType::C64, "c64", "complex64", &["cfloat"], 8),
    (DType::C128, "c128", "complex128", &["cdouble"], 16),
    (DType::F8E4M3FN, "f8e4m3fn", "float8_e4m3fn", &[], 1),
    (DType::F8E5M2, "f8e5m2", "float8_e5m2", &[], 1),
    (DType::F8E4M3FNUZ, "f8e4m3fnuz", "float8_e4m3fnuz", &[], 1),
    (DType::F8E5M2FNUZ, "f8e5m2fnuz", "float8_e5m2fnuz", &[], 1),
    (DType::F8E8M0FNU, "f8e8m0fnu", "float8_e8m0fnu", &[], 1),
];

impl DType {
    /// The ten element types that fxc computes with.
    pub const COMPUTED: [DType; 10] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I64,
        DType::I32,
        DType::I16,
        DType::I8,
        DType::U8,
        DType::B8,
    ];

    /// Every dtype, in the table's order.
    pub fn all() -> impl Iterator<Item = DType> {
        TABLE.iter().map(|r| r.0)
    }

    fn table_row(self) -> &'static (DType, &'static str, &'static str, &'static [&'static str], usize) {
        &TABLE[self as usize]
    }

    /// The dtype with this number in torch's C++ enum `ScalarType`, as TorchScript writes it.
    pub fn from_scalar_type(number: i64) -> Option<DType> {
        Some(match number {
            0 => DType::U8,
            1 => DType::I8,
            2 => DType::I16,
            3 => DType::I32,
            4 => DType::I64,
            5 => DType::F16,
            6 => DType::F32,
            7 => DType::F64,
            9 => DType::C64,
            10 => DType::C128,
            11 => DType::B8,
            15 => DType::BF16,
            _ => return None,
        })
    }

    /// torch's abbreviation: `f32`, `b8`.
    pub fn short_name(self) -> &'static str {
        self.table_row().1
    }

    /// torch's name without the prefix `torch.`: `float32`, `bool`.
    pub fn torch_name(self) -> &'static str {
        self.table_row().2
    }

    /// The C++ type of a dtype, which some of torch's messages use.
    pub fn cpp_name(self) -> &'static str {
        match self {
            DType::F64 => "double",
            DType::F32 => "float",
            DType::F16 => "c10::Half",
            DType::BF16 => "c10::BFloat16",
            DType::I64 => "long int",
            DType::I32 => "int",
            DType::I16 => "short int",
            DType::I8 => "signed char",
            DType::U8 => "unsigned char",
            DType::B8 => "bool",
            d => d.torch_name(),
        }
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        self.table_row().4
    }

    /// The dtype that `abbr` (`f32`, `b8`, also `bool`) abbreviates.
    pub fn from_short(abbr: &str) -> Option<DType> {
        if abbr == "bool" {
            return Some(DType::B8);
        }
        TABLE.iter().find(|r| r.1 == abbr).map(|r| r.0)
    }

    /// The dtype with this torch name, with or without `torch.`: `torch.float32`, `float`, `long`.
    pub fn from_torch(name: &str) -> Option<DType> {
        let name = name.strip_prefix("torch.").unwrap_or(name);
        TABLE.iter().find(|r| r.2 == name || r.3.contains(&name)).map(|r| r.0)
    }

    /// Whether fxc computes with this dtype.
    pub fn is_computed(self) -> bool {
        Self::COMPUTED.contains(&self)
    }

    /// The promotion category.
    pub fn category(self) -> Category {
        use DType::*;
        match self {
            B8 => Category::Bool,
            I64 | I32 | I16 | I8 | U8 | U16 | U32 | U64 => Category::Int,
            C32 | C64 | C128 => Category::Complex,
            _ => Category::Float,
        }
    }

    /// Whether this is a floating-point type (complex is not).
    pub fn is_float(self) -> bool {
        self.category() == Category::Float
    }

    /// Whether this is a 16-bit float: f16 or bf16, which kernels compute with as f32.
    pub fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// Whether this is an 8-bit float, which can only be stored, moved and converted.
    pub fn is_float8(self) -> bool {
        self.is_float() && self.size() == 1
    }

    /// Whether this type is stored, moved and converted, but hardly computed with: 8-bit floats, and unsigned integers
    /// of more than 8 bits.
    pub fn is_stored(self) -> bool {
        self.is_float8() || matches!(self, DType::U16 | DType::U32 | DType::U64)
    }

    /// Whether fxc supports tensors of this type, for computing or only for storage.
    pub fn is_held(self) -> bool {
        self.is_computed() || self.is_stored()
    }

    /// Whether this is an integer type (bool is not).
    pub fn is_int(self) -> bool {
        self.category() == Category::Int
    }

    /// torch's capitalised name, which its error messages use: `Float`, `Long`, `Bool`.
    pub fn scalar_type_name(self) -> &'static str {
        use DType::*;
        match self {
            F64 => "Double",
            F32 => "Float",
            F16 => "Half",
            BF16 => "BFloat16",
            I64 => "Long",
            I32 => "Int",
            I16 => "Short",
            I8 => "Char",
            U8 => "Byte",
            B8 => "Bool",
            U16 => "UInt16",
            U32 => "UInt32",
            U64 => "UInt64",
            C32 => "ComplexHalf",
            C64 => "ComplexFloat",
            C128 => "ComplexDouble",
            F8E4M3FN => "Float8_e4m3fn",
            F8E5M2 => "Float8_e5m2",
            F8E4M3FNUZ => "Float8_e4m3fnuz",
            F8E5M2FNUZ => "Float8_e5m2fnuz",
            F8E8M0FNU => "Float8_e8m0fnu",
        }
    }

    /// The dtype in which arithmetic runs: f32 for 16-bit floats, otherwise the dtype itself.
    pub fn compute_dtype(self) -> DType {
        match self {
            DType::F16 | DType::BF16 => DType::F32,
            d => d,
        }
    }

    /// The result dtype of an op that only has float results: the dtype itself for floats, f32 otherwise.
    pub fn to_float(self) -> DType {
        if self.category() >= Category::Float {
            self
        } else {
            DType::F32
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short_name())
    }
}

/// `torch.promote_types(a, b)`; `None` if torch refuses (unsigned 16 to 64 bits with other integers).
pub fn promote_types(a: DType, b: DType) -> Option<DType> {
    use DType::*;
    if a == b {
        return Some(a);
    }
    let (lo, hi) = if a.category() <= b.category() { (a, b) } else { (b, a) };
    match (lo.category(), hi.category()) {
        (Category::Bool, _) => Some(hi),
        (Category::Int, Category::Int) => {
            let wide = |d| matches!(d, U16 | U32 | U64);
            if wide(lo) || wide(hi) {
                return None;
            }
            let (small, big) = if lo.size() <= hi.size() { (lo, hi) } else { (hi, lo) };
            Some(if small.size() == big.size() { I16 } else { big })
        }
        (Category::Int, _) => Some(hi),
        (Category::Float, Category::Float) => match (lo, hi) {
            _ if lo.is_float8() || hi.is_float8() => None,
            _ if lo.size() == hi.size() => Some(F32),
            _ => Some(if lo.size() > hi.size() { lo } else { hi }),
        },
        (Category::Float, _) => Some(match (lo, hi) {
            (F64, _) | (_, C128) => C128,
            (F32 | BF16, _) | (_, C64) => C64,
            _ => hi,
        }),
        _ => Some(if lo.size() > hi.size() { lo } else { hi }),
    }
}

/// An operand's contribution to `torch.result_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Promotion {
    /// A tensor with at least one dimension.
    Dimensioned(DType),
    /// A tensor of rank 0.
    ZeroDim(DType),
    /// A Python number of this category.
    Number(Category),
}

/// `torch.result_type` of operands. Dimensioned tensors take precedence over 0-d tensors, and these over Python
/// numbers: a lower class changes the result only if its category is higher. `None` if torch refuses to promote.
pub fn result_type(operands: impl IntoIterator<Item = Promotion>) -> Option<DType> {
    let mut groups: [Option<DType>; 3] = [None; 3];
    for o in operands {
        let (group, dtype) = match o {
            Promotion::Dimensioned(d) => (0, d),
            Promotion::ZeroDim(d) => (1, d),
            Promotion::Number(Category::Bool) => (2, DType::B8),
            Promotion::Number(Category::Int) => (2, DType::I64),
            Promotion::Number(Category::Float) => (2, DType::F32),
            Promotion::Number(Category::Complex) => (2, DType::C64),
        };
        groups[group] = Some(match groups[group] {
            Some(d) => promote_types(d, dtype)?,
            None => dtype,
        });
    }
    let mut result: Option<DType> = None;
    for g in groups.into_iter().flatten() {
        result = Some(match result {
            None => g,
            Some(r) if g.category() > r.category() => promote_types(r, g)?,
            Some(r) => r,
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::*;

    #[test]
    fn table_is_in_declaration_order() {
        for (i, r) in TABLE.iter().enumerate() {
            assert_eq!(r.0 as usize, i);
        }
    }

    #[test]
    fn promotes_as_torch_does() {
        for (a, b, want) in [
            (U8, I8, Some(I16)),
            (U8, I16, Some(I16)),
            (I64, F16, Some(F16)),
            (F16, BF16, Some(F32)),
            (F32, C64, Some(C64)),
            (F64, C64, Some(C128)),
            (B8, U8, Some(U8)),
            (U32, I32, None),
        ] {
            assert_eq!(promote_types(a, b), want, "{a} {b}");
            assert_eq!(promote_types(b, a), want, "{b} {a}");
        }
    }

    #[test]
    fn ranks_decide_as_torch_does() {
        use Promotion::*;
        for (a, b, want) in [
            (Dimensioned(I32), Number(Category::Float), F32),
            (Dimensioned(I32), ZeroDim(I64), I32),
            (Dimensioned(I32), ZeroDim(F64), F64),
            (Dimensioned(F16), ZeroDim(F64), F16),
            (Dimensioned(B8), Number(Category::Int), I64),
            (ZeroDim(I32), ZeroDim(I64), I64),
        ] {
            assert_eq!(result_type([a, b]), Some(want), "{a:?} {b:?}");
        }
    }
}
