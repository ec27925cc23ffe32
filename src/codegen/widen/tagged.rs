//! How a load or a store says that it has a mask, and what its elements are: by the upper bits of its offset.

use crate::types::DType;

/// The bits of a masked access's offset that are the offset.
const OFFSET_BITS: u32 = 24;

/// Offsets of masked accesses are smaller than this.
pub(in crate::codegen) const NEAR: i32 = 1 << (OFFSET_BITS - 2);

/// The lanes of a vector.
const LANES: u32 = 16;

/// What 32-bit lanes are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::codegen) enum Stored {
    /// The lanes themselves, also pairs of them.
    Whole,
    /// 16 bits, extended with zeros.
    Half,
    /// 16 bits, extended with their sign.
    SignedHalf,
    /// A byte, extended with zeros.
    Byte,
    /// A byte, extended with its sign.
    SignedByte,
}

impl Stored {
    const ALL: [Stored; 5] = [
        Stored::Whole,
        Stored::Half,
        Stored::SignedHalf,
        Stored::Byte,
        Stored::SignedByte,
    ];

    pub(in crate::codegen) fn of(d: DType) -> Stored {
        match (d.size(), d) {
            (1, DType::I8) => Stored::SignedByte,
            (1, _) => Stored::Byte,
            (2, DType::I16) => Stored::SignedHalf,
            (2, _) => Stored::Half,
            _ => Stored::Whole,
        }
    }
}

/// A masked access: the number of 32-bit lanes, and what they are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::codegen) struct MaskedLanes {
    pub lanes: u32,
    pub stored: Stored,
}

impl MaskedLanes {
    pub(in crate::codegen) fn new(lanes: usize, stored: Stored) -> MaskedLanes {
        MaskedLanes {
            lanes: lanes as u32,
            stored,
        }
    }
}

/// The offset of a masked access.
pub(in crate::codegen) fn tagged_offset(offset: i32, m: MaskedLanes) -> i32 {
    debug_assert!(offset.abs() < NEAR && (1..LANES).contains(&m.lanes));
    let tag = m.lanes + LANES * m.stored as u32;
    offset + ((tag as i32) << OFFSET_BITS)
}

/// The offset and the lanes of a [`tagged_offset`]. `None` if it cannot be one.
pub(super) fn split_offset(tagged: i32) -> Option<(i32, MaskedLanes)> {
    let half = 1 << (OFFSET_BITS - 1);
    let tag = tagged.checked_add(half)? >> OFFSET_BITS;
    let offset = tagged - (tag << OFFSET_BITS);
    let (stored, lanes) = (usize::try_from(tag).ok()? / LANES as usize, tag as u32 % LANES);
    let stored = *Stored::ALL.get(stored)?;
    (lanes > 0 && offset.abs() < half).then_some((offset, MaskedLanes { lanes, stored }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_keep_their_tags() {
        for stored in Stored::ALL {
            for lanes in 1..LANES {
                for offset in [0, 2, -6, NEAR - 1, 1 - NEAR] {
                    let m = MaskedLanes { lanes, stored };
                    assert_eq!(split_offset(tagged_offset(offset, m)), Some((offset, m)));
                }
            }
        }
        assert_eq!(split_offset(64), None);
    }
}
