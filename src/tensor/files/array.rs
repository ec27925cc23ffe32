//! Arrays in files: their headers have been read, but not their elements.

use super::{Problem, npy};
use crate::tensor::{AlignedBytes, Storage, Tensor, is_available};
use crate::types::DType;
use memmap2::Mmap;
use std::fmt;
use std::io::{self, Cursor, Read};
use std::sync::Arc;
use zip::ZipArchive;

/// An array in a file. Its type is known, and its elements are read on request. So a header can be compared with what
/// is expected before memory is allocated: a compressed array in a small file may unpack to any size.
#[derive(Clone)]
pub(crate) struct Array {
    dtype: DType,
    shape: Vec<usize>,
    /// The size of the elements in bytes.
    len: usize,
    place: ArrayPlace,
}

/// The location of the elements.
#[derive(Clone)]
enum ArrayPlace {
    /// In the mapped file at this offset, row-major and in native byte order.
    Mapped(Arc<Mmap>, usize),
    /// In the mapped file at this offset, in another order.
    Stored(Arc<Mmap>, usize, npy::ElementOrder),
    /// In a compressed entry of an archive, after a header of this many bytes.
    Packed(MappedArchive, usize, u64, npy::ElementOrder),
}

/// A mapped zip archive. Clones share its directory.
pub(crate) type MappedArchive = ZipArchive<Cursor<Bytes>>;

/// A mapped file in the form that the archive's reader takes.
#[derive(Clone)]
pub(crate) struct Bytes(pub Arc<Mmap>);

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
    /// An array of `len` bytes at `offset` of a mapped file.
    pub(super) fn from_mapped(map: &Arc<Mmap>, offset: usize, dtype: DType, shape: Vec<usize>, len: usize) -> Array {
        let place = ArrayPlace::Mapped(map.clone(), offset);
        Array {
            dtype,
            shape,
            len,
            place,
        }
    }

    /// The array of a `.npy` file that starts at `base` of the mapping. The inner `Err` is the name of an unsupported
    /// element type.
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
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes, outermost first.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements: in place if the mapped file has them in order and aligned, otherwise in newly allocated memory.
    /// Returns an error if the system does not have enough memory, or if unpacked data does not match the header.
    pub(crate) fn read(&self) -> Result<Tensor, Problem> {
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
        // The reader checks the checksum at the end.
        entry.read(&mut [0]).map_err(|e| bad(&e))?;
        if order.is_plain() {
            return Ok(out);
        }
        let mut arranged = AlignedBytes::zeroed(self.len);
        order.copy_row_major(self.dtype.size(), &self.shape, out.bytes(), arranged.bytes_mut());
        Ok(arranged)
    }

    /// Returns an error if the system does not have the memory for this many copies.
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
        // A sparse file could have a header like this.
        let array = Array {
            dtype: DType::I16,
            shape: vec![1 << 45],
            len: 1 << 46,
            place: ArrayPlace::Stored(map, 0, order),
        };
        assert_eq!(array.read().expect_err("no memory"), Problem::Memory(1 << 46));
    }
}
