//! Opens zip archives with the settings that this crate needs.

use std::io::Cursor;
use zip::ZipArchive;
use zip::read::{ArchiveOffset, Config};
use zip::result::ZipResult;

/// Opens the zip archive in `bytes`, which starts at the first byte.
///
/// The reader must not guess where the archive starts. Its guess assumes that the directory ends where the end record
/// starts. But torch writes records of the 64-bit form between the two even where the plain record suffices, so the
/// guess is 76 bytes too late. The error goes unnoticed if an entry's header happens to be at that position, which
/// depends on the lengths of the entries' names.
pub(crate) fn open_zip<T: AsRef<[u8]>>(bytes: T) -> ZipResult<ZipArchive<Cursor<T>>> {
    let config = Config {
        archive_offset: ArchiveOffset::Known(0),
    };
    ZipArchive::with_config(config, Cursor::new(bytes))
}

/// The sizes of an archive's entries. Entries that share bytes could unpack a small file to any size.
pub(crate) struct EntrySizes {
    /// The bytes of the file that no entry has.
    left: u64,
}

impl EntrySizes {
    /// No entries of a file of `len` bytes.
    pub(crate) fn new(len: usize) -> EntrySizes {
        EntrySizes { left: len as u64 }
    }

    /// Adds an entry of `size` bytes in the file. Returns an error if the entries are larger than the file.
    pub(crate) fn add(&mut self, size: u64) -> Result<(), &'static str> {
        self.left = self.left.checked_sub(size).ok_or("its entries overlap")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use zip::write::SimpleFileOptions;

    /// The end of an archive's directory.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum End {
        /// Only the plain record.
        Plain,
        /// Records of the 64-bit form, with all values in the plain record too, as torch writes it.
        Both,
        /// Records of the 64-bit form, with no values in the plain record.
        Only64,
    }

    /// An archive of `entries` files in a folder `stem`.
    fn archive(stem: &str, entries: usize, end: End) -> Vec<u8> {
        let mut out = zip::ZipWriter::new(Cursor::new(vec![]));
        let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        for i in 0..entries {
            out.start_file(format!("{stem}/data/weights/weight_{i}"), options)
                .unwrap();
            out.write_all(&[i as u8; 3]).unwrap();
        }
        let mut bytes = out.finish().unwrap().into_inner();
        let plain = bytes.split_off(bytes.len() - 22);
        let word = |at: usize| u32::from_le_bytes(plain[at..at + 4].try_into().unwrap());
        let (size, offset) = (u64::from(word(12)), u64::from(word(16)));
        if end == End::Plain {
            return [bytes, plain].concat();
        }
        let place = bytes.len() as u64;
        bytes.extend(b"PK\x06\x06");
        bytes.extend(44u64.to_le_bytes());
        bytes.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for value in [entries as u64, entries as u64, size, offset] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(b"PK\x06\x07\0\0\0\0");
        bytes.extend(place.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        match end {
            End::Only64 => bytes.extend([&plain[..8], &[0xff; 12], &plain[20..]].concat()),
            _ => bytes.extend(plain),
        }
        bytes
    }

    #[test]
    fn archives_open_whatever_their_names_are_long() {
        for end in [End::Plain, End::Both, End::Only64] {
            for (length, entries) in (1..=120).map(|n| (n, 3)).chain([(8, 1), (8, 300), (120, 300)]) {
                let bytes = archive(&"n".repeat(length), entries, end);
                let what = format!("{end:?}, a name of {length} bytes, {entries} entries");
                let mut zip = open_zip(&bytes[..]).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!(zip.len(), entries, "{what}");
                let mut last = vec![];
                zip.by_index(entries - 1).unwrap().read_to_end(&mut last).unwrap();
                assert_eq!(last, [(entries - 1) as u8; 3], "{what}");
            }
        }
    }
}
