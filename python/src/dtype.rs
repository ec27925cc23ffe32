//! Element types of numpy and DLPack.

use fxc::types::DType;
use numpy::npyffi::NPY_TYPES;

/// fxc's dtypes with numpy's type number, if numpy has the type, and DLPack's code and bits.
///
/// `long` and `long long` are the same type on some systems. Where they differ, numpy has two numbers for 64-bit
/// integers, and the table has both.
const TABLE: &[(DType, Option<NPY_TYPES>, u8, u8)] = &[
    (DType::F32, Some(NPY_TYPES::NPY_FLOAT), 2, 32),
    (DType::F64, Some(NPY_TYPES::NPY_DOUBLE), 2, 64),
    (DType::I64, Some(LONG_64), 0, 64),
    (DType::B8, Some(NPY_TYPES::NPY_BOOL), 6, 8),
    (DType::I32, Some(NPY_TYPES::NPY_INT), 0, 32),
    (DType::U8, Some(NPY_TYPES::NPY_UBYTE), 1, 8),
    (DType::F16, Some(NPY_TYPES::NPY_HALF), 2, 16),
    (DType::I16, Some(NPY_TYPES::NPY_SHORT), 0, 16),
    (DType::I8, Some(NPY_TYPES::NPY_BYTE), 0, 8),
    (DType::U16, Some(NPY_TYPES::NPY_USHORT), 1, 16),
    (DType::U32, Some(NPY_TYPES::NPY_UINT), 1, 32),
    (DType::U64, Some(ULONG_64), 1, 64),
    (DType::C64, Some(NPY_TYPES::NPY_CFLOAT), 5, 64),
    (DType::C128, Some(NPY_TYPES::NPY_CDOUBLE), 5, 128),
    (DType::BF16, None, 4, 16),
    (DType::C32, None, 5, 32),
    (DType::F8E4M3FN, None, 10, 8),
    (DType::F8E4M3FNUZ, None, 11, 8),
    (DType::F8E5M2, None, 12, 8),
    (DType::F8E5M2FNUZ, None, 13, 8),
    (DType::F8E8M0FNU, None, 14, 8),
];

/// numpy's type number for 64-bit integers: that of `long` if it has 64 bits.
#[cfg(not(windows))]
const LONG_64: NPY_TYPES = NPY_TYPES::NPY_LONG;
#[cfg(windows)]
const LONG_64: NPY_TYPES = NPY_TYPES::NPY_LONGLONG;
#[cfg(not(windows))]
const ULONG_64: NPY_TYPES = NPY_TYPES::NPY_ULONG;
#[cfg(windows)]
const ULONG_64: NPY_TYPES = NPY_TYPES::NPY_ULONGLONG;

/// The dtype of a numpy type number.
pub(crate) fn from_numpy(number: i32) -> Option<DType> {
    let number_of = |t: NPY_TYPES| t as i32;
    let row = TABLE.iter().find(|r| r.1.is_some_and(|t| number_of(t) == number));
    row.map(|r| r.0).or_else(|| {
        // The second number of the same integer type.
        let long = size_of::<std::ffi::c_long>() == 8;
        Some(match number {
            n if n == number_of(NPY_TYPES::NPY_LONGLONG) => DType::I64,
            n if n == number_of(NPY_TYPES::NPY_ULONGLONG) => DType::U64,
            n if n == number_of(NPY_TYPES::NPY_LONG) && !long => DType::I32,
            n if n == number_of(NPY_TYPES::NPY_ULONG) && !long => DType::U32,
            _ => return None,
        })
    })
}

/// numpy's type number; `None` if numpy does not have the type.
pub(crate) fn to_numpy(dtype: DType) -> Option<i32> {
    let row = TABLE.iter().find(|r| r.0 == dtype)?;
    row.1.map(|t| t as i32)
}

/// The dtype of DLPack's code and bits.
pub(crate) fn from_dlpack(code: u8, bits: u8) -> Option<DType> {
    TABLE.iter().find(|r| r.2 == code && r.3 == bits).map(|r| r.0)
}

/// DLPack's code and bits.
pub(crate) fn to_dlpack(dtype: DType) -> Option<(u8, u8)> {
    TABLE.iter().find(|r| r.0 == dtype).map(|r| (r.2, r.3))
}

/// The dtype with this name in `ml_dtypes`.
pub(crate) fn from_ml_dtypes(name: &str) -> Option<DType> {
    let same = |d: &DType| to_numpy(*d).is_none() && d.torch_name() == name;
    DType::all().find(same)
}
