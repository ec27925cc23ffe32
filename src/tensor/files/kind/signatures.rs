//! The signatures that files begin with.

use super::Kind;

/// A signature: where it is, its bytes, and the kind of file.
type Row = (usize, &'static [u8], Kind);

/// The first row that fits counts.
const ROWS: &[Row] = &[
    (0, b"PK\x03\x04", Kind::Zip),
    (0, b"PK\x05\x06", Kind::Zip),
    (0, b"\x93NUMPY", Kind::Npy),
    (0, b"GGUF", Kind::Gguf),
    (0, b"\x89HDF\r\n\x1a\n", Kind::Hdf5),
    // Models of other programs.
    (4, b"TFL3", Kind::Model("a TensorFlow Lite model")),
    (4, b"ORTM", Kind::Model("a model in ONNX Runtime's own format")),
    (4, b"ET12", Kind::Model("an ExecuTorch program")),
    (0, b"ftrt", Kind::Model("a TensorRT engine")),
    (0, b"ptrt", Kind::Model("a TensorRT engine")),
    (0, b"lmgg", Kind::Model("a GGML model")),
    (0, b"tjgg", Kind::Model("a GGML model")),
    (0, b"fmgg", Kind::Model("a GGML model")),
    // Data.
    (0, b"ARROW1", Kind::Data("an Arrow file")),
    (0, b"PAR1", Kind::Data("a Parquet file")),
    (0, b"SQLite format 3\0", Kind::Data("an SQLite database")),
    (0, b"MATLAB 5.0 MAT-file", Kind::Data("a MATLAB file")),
    (0, b"%PDF-", Kind::Data("a PDF document")),
    (8, b"WEBP", Kind::Image("a WebP image")),
    (0, b"RIFF", Kind::Data("a RIFF file of sound or video")),
    (4, b"ftyp", Kind::Data("a video or a HEIF image")),
    (0, b"OggS", Kind::Data("an Ogg file of sound")),
    (0, b"fLaC", Kind::Data("a FLAC file of sound")),
    (0, b"ID3", Kind::Data("an MP3 file of sound")),
    // Images.
    (0, b"\x89PNG\r\n\x1a\n", Kind::Image("a PNG image")),
    (0, b"\xff\xd8\xff", Kind::Image("a JPEG image")),
    (0, b"GIF8", Kind::Image("a GIF image")),
    (0, b"II*\0", Kind::Image("a TIFF image")),
    (0, b"MM\0*", Kind::Image("a TIFF image")),
    (0, b"P6\n", Kind::Image("a PPM image")),
    (0, b"P5\n", Kind::Image("a PGM image")),
    // Packed files.
    (0, b"\x1f\x8b", Kind::Packed("a gzip file", "gunzip")),
    (0, b"\xfd7zXZ\0", Kind::Packed("an xz file", "unxz")),
    (0, b"BZh", Kind::Packed("a bzip2 file", "bunzip2")),
    (0, b"\x28\xb5\x2f\xfd", Kind::Packed("a Zstandard file", "unzstd")),
    (0, b"7z\xbc\xaf\x27\x1c", Kind::Packed("a 7z archive", "7z x")),
    (0, b"Rar!\x1a\x07", Kind::Packed("a RAR archive", "unrar x")),
    (257, b"ustar", Kind::Packed("a tar archive", "tar xf")),
    // Machine code.
    (0, b"\x7fELF", Kind::Program("a compiled program or library")),
    (0, b"\xcf\xfa\xed\xfe", Kind::Program("a compiled program or library")),
    (0, b"MZ\x90\0", Kind::Program("a compiled program or library")),
    (0, b"!<arch>\n", Kind::Program("a compiled library")),
    (0, b"\0asm", Kind::Program("a WebAssembly module")),
];

/// The kind that a signature shows.
pub(super) fn find(head: &[u8]) -> Option<Kind> {
    let is = |(at, bytes, _): &&Row| head.get(*at..).is_some_and(|h| h.starts_with(bytes));
    // Two letters are a signature only together with the size of the file, which is in the header.
    if head.starts_with(b"BM") && head.get(6..10) == Some(&[0; 4]) {
        return Some(Kind::Image("a BMP image"));
    }
    ROWS.iter().find(is).map(|(_, _, kind)| kind.clone())
}
