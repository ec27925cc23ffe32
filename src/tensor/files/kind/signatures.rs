//! Signatures: the bytes that files of a kind start with.

use super::FileKind;
use crate::tensor::COMPILED_MAGIC;

/// A signature: its offset, its bytes, and the kind of file.
type FileSignature = (usize, &'static [u8], FileKind);

/// The first matching row wins.
const ROWS: &[FileSignature] = &[
    (0, b"PK\x03\x04", FileKind::Zip),
    (0, b"PK\x05\x06", FileKind::Zip),
    (0, COMPILED_MAGIC, FileKind::Compiled),
    (0, b"\x93NUMPY", FileKind::Npy),
    (0, b"GGUF", FileKind::Gguf),
    (0, b"\x89HDF\r\n\x1a\n", FileKind::Hdf5),
    // Models of other programs.
    (4, b"TFL3", FileKind::Model("a TensorFlow Lite model")),
    (4, b"ORTM", FileKind::Model("a model in ONNX Runtime format")),
    (4, b"ET12", FileKind::Model("an ExecuTorch program")),
    (0, b"ftrt", FileKind::Model("a TensorRT engine")),
    (0, b"ptrt", FileKind::Model("a TensorRT engine")),
    (0, b"lmgg", FileKind::Model("a GGML model")),
    (0, b"tjgg", FileKind::Model("a GGML model")),
    (0, b"fmgg", FileKind::Model("a GGML model")),
    // Data.
    (0, b"ARROW1", FileKind::Data("an Arrow file")),
    (0, b"PAR1", FileKind::Data("a Parquet file")),
    (0, b"SQLite format 3\0", FileKind::Data("an SQLite database")),
    (0, b"MATLAB 5.0 MAT-file", FileKind::Data("a MATLAB file")),
    (0, b"%PDF-", FileKind::Data("a PDF document")),
    (8, b"WEBP", FileKind::Image("a WebP image")),
    (0, b"RIFF", FileKind::Data("a RIFF audio or video file")),
    (4, b"ftyp", FileKind::Data("a video or a HEIF image")),
    (0, b"OggS", FileKind::Data("an Ogg audio file")),
    (0, b"fLaC", FileKind::Data("a FLAC audio file")),
    (0, b"ID3", FileKind::Data("an MP3 audio file")),
    // Images.
    (0, b"\x89PNG\r\n\x1a\n", FileKind::Image("a PNG image")),
    (0, b"\xff\xd8\xff", FileKind::Image("a JPEG image")),
    (0, b"GIF8", FileKind::Image("a GIF image")),
    (0, b"II*\0", FileKind::Image("a TIFF image")),
    (0, b"MM\0*", FileKind::Image("a TIFF image")),
    (0, b"P6\n", FileKind::Image("a PPM image")),
    (0, b"P5\n", FileKind::Image("a PGM image")),
    // Packed files.
    (0, b"\x1f\x8b", FileKind::Packed("a gzip file", "gunzip")),
    (0, b"\xfd7zXZ\0", FileKind::Packed("an xz file", "unxz")),
    (0, b"BZh", FileKind::Packed("a bzip2 file", "bunzip2")),
    (0, b"\x28\xb5\x2f\xfd", FileKind::Packed("a Zstandard file", "unzstd")),
    (0, b"7z\xbc\xaf\x27\x1c", FileKind::Packed("a 7z archive", "7z x")),
    (0, b"Rar!\x1a\x07", FileKind::Packed("a RAR archive", "unrar x")),
    (257, b"ustar", FileKind::Packed("a tar archive", "tar xf")),
    // Machine code.
    (0, b"\x7fELF", FileKind::Program("a compiled program or library")),
    (
        0,
        b"\xcf\xfa\xed\xfe",
        FileKind::Program("a compiled program or library"),
    ),
    (0, b"MZ\x90\0", FileKind::Program("a compiled program or library")),
    (0, b"!<arch>\n", FileKind::Program("a compiled library")),
    (0, b"\0asm", FileKind::Program("a WebAssembly module")),
];

/// The kind of the file by its signature.
pub(super) fn find(head: &[u8]) -> Option<FileKind> {
    let is = |(at, bytes, _): &&FileSignature| head.get(*at..).is_some_and(|h| h.starts_with(bytes));
    // Two letters are a signature only together with the header's reserved bytes, which are zero.
    if head.starts_with(b"BM") && head.get(6..10) == Some(&[0; 4]) {
        return Some(FileKind::Image("a BMP image"));
    }
    ROWS.iter().find(is).map(|(_, _, kind)| kind.clone())
}
