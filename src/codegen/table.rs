//! A kernel's table of constants. Code loads each directly before its use.
//!
//! Cranelift's own constants are addressed relative to the instruction, and widening moves instructions. Nor does it have an
//! entry wide enough for wider vectors.

use std::collections::HashMap;

/// The size of an entry in bytes: that of the widest vector, so that code of any vector width can load from it.
const ENTRY: usize = 64;

/// Constants, each repeated to fill 64 bytes.
#[derive(Default)]
pub(super) struct ConstantTable {
    bytes: Vec<u8>,
    known: HashMap<(u64, usize), i32>,
    iotas: HashMap<(i64, i64, usize), i32>,
}

impl ConstantTable {
    /// The offset of the entry that repeats these bits in every lane of `size` bytes.
    pub(super) fn constant_offset(&mut self, bits: u64, size: usize) -> i32 {
        let bytes = &mut self.bytes;
        *self.known.entry((bits, size)).or_insert_with(|| {
            let offset = bytes.len() as i32;
            for _ in 0..ENTRY / size {
                bytes.extend(&bits.to_le_bytes()[..size]);
            }
            offset
        })
    }

    /// The offset of the entry `start, start + step, …` of integers with `size` bytes.
    pub(super) fn iota(&mut self, start: i64, step: i64, size: usize) -> i32 {
        let bytes = &mut self.bytes;
        *self.iotas.entry((start, step, size)).or_insert_with(|| {
            let offset = bytes.len() as i32;
            for k in 0..(ENTRY / size) as i64 {
                let number = start.wrapping_add(k.wrapping_mul(step)).to_le_bytes();
                bytes.extend(&number[..size]);
            }
            offset
        })
    }

    /// The bytes of the table.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
