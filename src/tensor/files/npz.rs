//! NumPy's `.npz`: a zip archive of `.npy` files. An array has the name of its file without the extension.

use super::array::{Array, Bytes, MappedArchive};
use super::{Contents, EntrySizes, FileKind, FileProblem, HEAD, Problem, io_problem, npy, open_zip, whole_file};
use crate::fs::OutputFile;
use crate::tensor::Tensor;
use memmap2::Mmap;
use std::io::Read;
use std::sync::Arc;
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Reads an archive's headers. Stored entries are used in place, without computing their checksums; compressed ones are
/// unpacked when their elements are requested.
pub(super) fn open(map: &Arc<Mmap>) -> Result<Contents, FileProblem> {
    let zip = |e: ZipError| Problem::Zip(e.to_string());
    let mut archive = open_zip(Bytes(map.clone())).map_err(|e| whole_file(zip(e)))?;
    let again = archive.clone();
    if let Some(kind) = other_kind(&archive) {
        return Err(whole_file(Problem::Kind(kind)));
    }
    let mut file = Contents::default();
    let mut sizes = EntrySizes::new(map.len());
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).map_err(|e| whole_file(zip(e)))?;
        let overlap = |why: &str| whole_file(Problem::Zip(why.into()));
        sizes.add(entry.compressed_size()).map_err(overlap)?;
        let path = entry.name().map_err(|e| whole_file(zip(e)))?.into_owned();
        let name = path.strip_suffix(".npy").unwrap_or(&path).to_owned();
        let in_array = |p: Problem| (Some(name.clone()), p);
        let read = match stored_range(&entry, map.len()) {
            Some((start, len)) => {
                let header = npy::parse_header(&map[start..start + len], len as u64).map_err(in_array)?;
                Array::from_stored_npy(map, start, header).map_err(in_array)?
            }
            None => {
                let lead = npy::read_lead(&mut entry).map_err(|e| in_array(Problem::Zip(e.to_string())))?;
                let header = npy::parse_header(&lead, entry.size()).map_err(in_array)?;
                Array::from_packed_npy(&again, i, header).map_err(in_array)?
            }
        };
        if file.arrays.contains_key(&name) || file.unsupported.contains_key(&name) {
            return Err((Some(name), Problem::Duplicate));
        }
        file.insert(name, read);
    }
    Ok(file)
}

/// The kind of the archive, if it contains something other than arrays.
fn other_kind(archive: &MappedArchive) -> Option<FileKind> {
    let names: Vec<_> = archive.file_names().filter_map(Result::ok).collect();
    let pickle = |name: &str| {
        let mut head = vec![];
        let mut archive = archive.clone();
        // Entries that cannot be read are judged by their names only.
        let _ = archive
            .by_name(name)
            .map(|e| e.take(HEAD as u64).read_to_end(&mut head));
        head
    };
    let kind = FileKind::of_entries(names.iter().map(|n| &**n), pickle);
    (kind != FileKind::Npz && !names.is_empty()).then_some(kind)
}

/// The offset and length of an entry's bytes, if they are neither compressed nor encrypted and within the file.
fn stored_range<R: Read>(entry: &zip::read::ZipFile<'_, R>, file: usize) -> Option<(usize, usize)> {
    if entry.compression() != CompressionMethod::Stored || entry.encrypted() {
        return None;
    }
    let (start, len) = (
        usize::try_from(entry.data_start()?).ok()?,
        usize::try_from(entry.size()).ok()?,
    );
    (start.checked_add(len)? <= file).then_some((start, len))
}

/// Writes an archive of tensors with distinct names, uncompressed as `numpy.savez` does.
pub(super) fn write(to: &mut OutputFile, tensors: &[(&str, &Tensor)]) -> Result<(), FileProblem> {
    let zip = |e: ZipError| match e {
        ZipError::Io(e) => io_problem(e),
        e => whole_file(Problem::Zip(e.to_string())),
    };
    let mut archive = ZipWriter::new(to);
    for (name, tensor) in tensors {
        // Sizes above 4 GB need the 64-bit form of the entry.
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(tensor.bytes().len() >= 1 << 31);
        archive.start_file(format!("{name}.npy"), options).map_err(zip)?;
        npy::write_to(&mut archive, tensor).map_err(|p| match p {
            Problem::Io(_) => whole_file(p),
            p => (Some(name.to_string()), p),
        })?;
    }
    archive.finish().map_err(zip).map(drop)
}
