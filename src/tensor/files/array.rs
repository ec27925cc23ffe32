//! Arrays of files whose headers have been read, and whose elements have not.

use super::{Problem, npy};
use crate::tensor::{AlignedBytes, Storage, Tensor, is_available};
use crate::types::DType;
use memmap2::Mmap;
use std::fmt;
use std::io::{self, Cursor, Read};
use std::sync::Arc;
use zip::ZipArchive;

/// An array of a file: its type is known, its elements are read when they are asked for. What a header says can so be held
/// against what is wanted before memory is taken: a compressed array of a small file may unpack to any size.
#[derive(Clone)]
pub struct Array {
    dtype: DType,
    shape: Vec<usize>,
    /// The elements' bytes.
    len: usize,
    place: ArrayPlace,
}

/// Where the elements are.
#[derive(Clone)]
enum ArrayPlace {
    /// `offset` bytes into the mapped file, in order and plain.
    Mapped(Arc<Mmap>, usize),
    /// There, but in another order.
    Stored(Arc<Mmap>, usize, npy::ElementOrder),
    /// In a compressed entry of an archive, after so many bytes of its header.
    Packed(MappedArchive, usize, u64, npy::ElementOrder),
}

/// A mapped zip archive; clones share its directory.
pub(super) type MappedArchive = ZipArchive<Cursor<Bytes>>;

/// A mapped file, as the archive's reader takes it.
#[derive(Clone)]
pub(super) struct Bytes(pub Arc<Mmap>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({}{:?})", self.dtype, self.shape)
    }
}

impl Array {
    /// `len` bytes from `offset` of a mapped file.
    pub(super) fn from_mapped(map: &Arc<Mmap>, offset: usize, dtype: DType, shape: Vec<usize>, len: usize) -> Array {
        let place = ArrayPlace::Mapped(map.clone(), offset);
        Array {
            dtype,
            shape,
            len,
            place,
        }
    }

    /// The array of a `.npy` file that begins at `base` of the mapping; `Err` inside is the name of an unsupported element type.
    pub(super) fn from_stored_npy(
        map: &Arc<Mmap>,
        base: usize,
        header: npy::Header,
    ) -> Result<Result<Array, String>, Problem> {
        let order = header.order();
        let place = match order.is_plain() {
            true => ArrayPlace::Mapped(map.clone(), base + header.offset),
            false => ArrayPlace::Stored(map.clone(), base + header.offset, order),
        };
        Array::from_header(header, place)
    }

    /// The array of a `.npy` file that is a compressed entry of an archive.
    pub(super) fn from_packed_npy(
        zip: &MappedArchive,
        index: usize,
        header: npy::Header,
    ) -> Result<Result<Array, String>, Problem> {
        let place = ArrayPlace::Packed(zip.clone(), index, header.offset as u64, header.order());
        Array::from_header(header, place)
    }

    fn from_header(header: npy::Header, place: ArrayPlace) -> Result<Result<Array, String>, Problem> {
        let dtype = match header.dtype() {
            Ok(d) => d,
            Err(name) => return Ok(Err(name)),
        };
        let (shape, len) = header.checked_shape(dtype)?;
        Ok(Ok(Array {
            dtype,
            shape,
            len,
            place,
        }))
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements: in place where they lie in the mapped file, in order and aligned; else in memory of their own. An error if
    /// the system has not so much, or if what is packed is not what the header says.
    pub fn read(&self) -> Result<Tensor, Problem> {
        let storage = match &self.place {
            ArrayPlace::Mapped(map, offset) => match (map.as_ptr() as usize + offset).is_multiple_of(self.dtype.size())
            {
                true => Storage::Mapped {
                    map: map.clone(),
                    offset: *offset,
                    len: self.len,
                },
                false => {
                    self.check_memory(1)?;
                    Storage::Owned(AlignedBytes::from_slice(&map[*offset..*offset + self.len]))
                }
            },
            ArrayPlace::Stored(map, offset, order) => {
                self.check_memory(1)?;
                let mut out = AlignedBytes::zeroed(self.len);
                order.copy_row_major(
                    self.dtype.size(),
                    &self.shape,
                    &map[*offset..*offset + self.len],
                    out.bytes_mut(),
                );
                Storage::Owned(out)
            }
            ArrayPlace::Packed(zip, index, skip, order) => Storage::Owned(self.unpack(zip, *index, *skip, *order)?),
        };
        Ok(Tensor::from_storage(self.dtype, &self.shape, storage))
    }

    fn unpack(
        &self,
        zip: &MappedArchive,
        index: usize,
        skip: u64,
        order: npy::ElementOrder,
    ) -> Result<AlignedBytes, Problem> {
        let bad = |e: &dyn fmt::Display| Problem::Zip(e.to_string());
        self.check_memory(if order.is_plain() { 1 } else { 2 })?;
        let mut zip = zip.clone();
        let mut entry = zip.by_index(index).map_err(|e| bad(&e))?;
        io::copy(&mut entry.by_ref().take(skip), &mut io::sink()).map_err(|e| bad(&e))?;
        let mut out = AlignedBytes::zeroed(self.len);
        entry.read_exact(out.bytes_mut()).map_err(|e| bad(&e))?;
        // At its end the reader compares the checksum.
        entry.read(&mut [0]).map_err(|e| bad(&e))?;
        if order.is_plain() {
            return Ok(out);
        }
        let mut arranged = AlignedBytes::zeroed(self.len);
        order.copy_row_major(self.dtype.size(), &self.shape, out.bytes(), arranged.bytes_mut());
        Ok(arranged)
    }

    /// An error if the system has not the memory of so many copies.
    fn check_memory(&self, copies: usize) -> Result<(), Problem> {
        match is_available(self.len.saturating_mul(copies)) {
            true => Ok(()),
            false => Err(Problem::Memory(self.len as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_memory_holds_is_not_read() {
        let map = memmap2::MmapMut::map_anon(8).expect("memory");
        let map = Arc::new(map.make_read_only().expect("a mapping"));
        let header = b"\x93NUMPY\x01\x00\x3a\x00{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }   ";
        let order = npy::parse_header(header, header.len() as u64 + 4)
            .expect("a header")
            .order();
        // As a file of which most is a hole might have it.
        let array = Array {
            dtype: DType::I16,
            shape: vec![1 << 45],
            len: 1 << 46,
            place: ArrayPlace::Stored(map, 0, order),
        };
        assert_eq!(array.read().expect_err("no memory"), Problem::Memory(1 << 46));
    }
}
