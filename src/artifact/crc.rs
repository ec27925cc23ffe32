//! The CRC-32 of zlib, eight bytes at a time.

/// The reversed polynomial.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// `TABLES[i][b]` is the checksum of byte `b` followed by `i` zeros.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut b = 0;
    while b < 256 {
        let (mut crc, mut bit) = (b as u32, 0);
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][b] = crc;
        b += 1;
    }
    let mut i = 0;
    while i < 7 * 256 {
        let before = tables[i / 256][i % 256];
        tables[i / 256 + 1][i % 256] = before >> 8 ^ tables[0][(before & 0xff) as usize];
        i += 1;
    }
    tables
}

/// The checksum of bytes that arrive in pieces.
#[derive(Clone)]
pub(super) struct Crc(u32);

impl Crc {
    /// The checksum of no bytes.
    pub(super) fn new() -> Crc {
        Crc(!0)
    }

    /// Adds bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        let mut crc = self.0;
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            let word = u64::from_le_bytes(*word) ^ u64::from(crc);
            crc = 0;
            for (i, b) in word.to_le_bytes().into_iter().enumerate() {
                crc ^= TABLES[7 - i][b as usize];
            }
        }
        for &b in rest {
            crc = crc >> 8 ^ TABLES[0][(crc as u8 ^ b) as usize];
        }
        self.0 = crc;
    }

    /// The checksum.
    pub(super) fn finalize(self) -> u32 {
        !self.0
    }
}

/// The checksum of bytes.
pub(super) fn crc_of(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::{Crc, crc_of};
    use proptest::prelude::*;

    #[test]
    fn checksums_are_zlibs() {
        assert_eq!(crc_of(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc_of(b""), 0);
        assert_eq!(crc_of(b"The quick brown fox jumps over the lazy dog"), 0x414f_a339);
    }

    proptest! {
        #[test]
        fn pieces_have_the_checksum_of_the_whole(bytes: Vec<u8>, cut: prop::sample::Index) {
            let cut = cut.index(bytes.len() + 1);
            let mut crc = Crc::new();
            crc.update(&bytes[..cut]);
            crc.update(&bytes[cut..]);
            prop_assert_eq!(crc.finalize(), crc32fast::hash(&bytes));
        }
    }
}
