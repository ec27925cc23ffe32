//! Tests of round trips, of files written by NumPy and safetensors, and of malformed files.

use super::*;
use crate::tensor::{Scalar, Storage, contiguous_strides};
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes as a memory mapping.
fn map_of(bytes: &[u8]) -> Arc<Mmap> {
    let mut map = memmap2::MmapMut::map_anon(bytes.len().max(1)).expect("memory");
    map[..bytes.len()].copy_from_slice(bytes);
    Arc::new(map.make_read_only().expect("a mapping"))
}

fn parse_bytes(bytes: &[u8]) -> Result<TensorFile, FileProblem> {
    parse_contents(&map_of(bytes))?.read_all()
}

fn problem(bytes: &[u8]) -> String {
    match parse_bytes(bytes) {
        Ok(f) => panic!("a file was accepted: {f:?}"),
        Err((tensor, p)) => format!("{}{p}", tensor.map_or(String::new(), |t| format!("{t}: "))),
    }
}

/// The path of a file that is removed when this is dropped.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        Temporary(std::env::temp_dir().join(format!("fxc-file-{}-{n}-{name}", std::process::id())))
    }
}

impl std::ops::Deref for Temporary {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn samples() -> Vec<(String, Tensor)> {
    let shapes: [&[usize]; 4] = [&[], &[3], &[2, 0, 4], &[2, 3, 5]];
    DType::COMPUTED
        .iter()
        .flat_map(|&d| shapes.iter().map(move |s| (d, *s)))
        .map(|(d, s)| {
            let t = Tensor::from_fn(d, s, |i| Scalar::F64((i % 5) as f64 - 1.0));
            (format!("{d}.{s:?}"), t)
        })
        .collect()
}

#[test]
fn files_round_trip() {
    let all = samples();
    for name in ["a.npz", "a.safetensors"] {
        let path = Temporary::new(name);
        write(&path, all.iter().map(|(n, t)| (n.as_str(), t))).expect("written");
        let back = read(&path).expect("read");
        assert_eq!(back.tensors.len(), all.len());
        for (n, t) in &all {
            let want = if name == "a.npz" && t.dtype() == DType::BF16 {
                t.to(DType::F32)
            } else {
                t.clone()
            };
            assert_eq!(back.tensors[n], want, "{name} {n}");
        }
    }
    for (n, t) in all.iter().filter(|(_, t)| t.dtype() != DType::BF16) {
        let path = Temporary::new("a.npy");
        write(&path, [("x", t)]).expect("written");
        assert_eq!(read(&path).expect("read").tensors[""], *t, "{n}");
    }
}

#[test]
fn aligned_tensors_are_not_copied() {
    let t = Tensor::from_slice::<f32>(&[4], &[1.0, 2.0, 3.0, 4.0]);
    for name in ["m.npy", "m.safetensors"] {
        let path = Temporary::new(name);
        write(&path, [("x", &t)]).expect("written");
        let mut back = read(&path).expect("read");
        let t = &mut back.tensors[0];
        assert!(matches!(*t.storage, Storage::Mapped { .. }), "{name}");
        assert!(!t.is_unique());
        t.set(0, Scalar::F32(9.0));
        assert_eq!(t.as_slice::<f32>(), &[9.0, 2.0, 3.0, 4.0]);
    }
}

/// A `.npy` file with this header and these elements.
fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let len = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), data].concat()
}

fn read_npy(bytes: &[u8]) -> Tensor {
    parse_bytes(bytes).expect("a file").tensors[""].clone()
}

#[test]
fn other_orders_are_rearranged() {
    let data: Vec<u8> = (0..6u16).flat_map(|i| i.to_be_bytes()).collect();
    let t = read_npy(&npy(
        "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }  \n",
        &data,
    ));
    assert_eq!((t.shape(), t.as_slice::<i16>()), (&[2, 3][..], &[0, 2, 4, 1, 3, 5][..]));
    let t = read_npy(&npy(
        "{\"shape\": (2L,), \"descr\": \"|u1\", \"fortran_order\": False}",
        &[7, 8, 9],
    ));
    assert_eq!(t.as_slice::<u8>(), &[7, 8]);
    let t = read_npy(&npy(
        "{'descr': '<f4', 'fortran_order': False, 'shape': ()}",
        &1f32.to_le_bytes(),
    ));
    assert_eq!((t.shape(), t.as_slice::<f32>()), (&[][..], &[1.0][..]));
}

/// An archive of one compressed entry, `x.npy`.
fn compressed(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(vec![]));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    zip.start_file("x.npy", options).expect("an entry");
    zip.write_all(bytes).expect("written");
    zip.finish().expect("an archive").into_inner()
}

#[test]
fn compressed_arrays_are_unpacked_when_they_are_asked_for() {
    let header = "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n";
    let data: Vec<u8> = [1i16, 4, 2, 5, 3, 6].iter().flat_map(|x| x.to_be_bytes()).collect();
    let bytes = compressed(&npy(header, &data));
    let found = parse_contents(&map_of(&bytes)).expect("headers");
    let array = &found.arrays["x"];
    assert_eq!((array.dtype(), array.shape()), (DType::I16, &[2, 3][..]));
    let t = Tensor::from_slice::<i16>(&[2, 3], &[1, 2, 3, 4, 5, 6]);
    assert_eq!(array.read().expect("elements"), t);
    // The entry's checksum, after the signature, versions, flags, method and time.
    let mut broken = bytes.clone();
    let central = (0..bytes.len())
        .rfind(|&i| bytes[i..].starts_with(b"PK\x01\x02"))
        .expect("a directory");
    broken[central + 16] ^= 1;
    assert!(problem(&broken).contains("checksum"), "{}", problem(&broken));
}

#[test]
fn a_header_of_more_than_the_entry_has_is_told() {
    let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (4611686018427387904,), }\n";
    let says = problem(&compressed(&npy(header, &[0; 64])));
    assert!(says.starts_with("x: the file is truncated: 46116860184273"), "{says}");
}

#[test]
fn strange_element_types_are_named() {
    for descr in ["'<U3'", "'<c8'", "[('a', '<f4'), ('b', '<i2', (2,))]", "'|O'", "'<u2'"] {
        let file = parse_bytes(&npy(
            &format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1,)}}"),
            &[0; 64],
        ));
        let file = file.expect("a file");
        assert!(file.tensors.is_empty());
        assert_eq!(file.unsupported[""], descr.trim_matches('\''));
    }
}

#[test]
fn broken_npy_files_say_what_is_wrong() {
    let header = |s: &str| npy(s, &[0; 8]);
    for (bytes, want) in [
        (
            b"\x93NUMPY".to_vec(),
            "the file is truncated: 10 bytes are expected, but only 6 remain",
        ),
        (
            b"\x93NUMPY\x09\x00\x00\x00".to_vec(),
            "malformed header: unknown version 9 of the .npy format",
        ),
        (
            b"\x93NUMPY\x01\x00\xff\xff{".to_vec(),
            "the recorded header length is 65535 bytes, but 1 bytes are available: the file is truncated or has another format",
        ),
        (
            header("{'descr': '<f4', 'fortran_order': False}"),
            "malformed header: `shape` is missing",
        ),
        (
            header("{'descr': '<f4', 'shape': (-1,)}"),
            "malformed header: expected a size at `-1,)}`",
        ),
        (header("{'descr': '<f4"), "malformed header: unterminated string"),
        (
            header("{'fortran_order': Maybe}"),
            "malformed header: expected True or False at `Maybe}`",
        ),
        (
            header("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"),
            "the file is truncated: 77 bytes are expected, but only 73 remain",
        ),
        (
            header("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"),
            "the size of shape [4294967296, 4294967296] in bytes overflows",
        ),
        (
            header("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296)}"),
            "the size of shape [0, 4294967296, 4294967296] in bytes overflows",
        ),
        (
            header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"),
            "malformed header: expected a size at `99999999999999999999`",
        ),
    ] {
        assert_eq!(problem(&bytes), want);
    }
}

/// A `.safetensors` file with this header and `data` bytes of tensors.
fn safe(header: &str, data: usize) -> Vec<u8> {
    [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        &vec![0; data],
    ]
    .concat()
}

#[test]
fn broken_safetensors_files_say_what_is_wrong() {
    let one = |dtype: &str, shape: &str, offsets: &str| {
        format!("{{\"w\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":{offsets}}}}}")
    };
    for (bytes, want) in [
        (
            vec![1, 2, 3],
            "the file is truncated: 8 bytes are expected, but only 3 remain",
        ),
        (
            vec![0xff; 9],
            "the recorded header length is 18446744073709551615 bytes, but 1 bytes are available: the file is truncated or has another format",
        ),
        (
            safe("{\"w\":3}", 0),
            "w: malformed header: the string `dtype` is missing",
        ),
        (
            safe("[]", 0),
            "malformed header: invalid type: sequence, expected a map at line 1 column 0",
        ),
        (
            safe(&one("F32", "[2]", "[0,8]"), 4),
            "w: the file is truncated: 8 bytes are expected, but only 4 remain",
        ),
        (
            safe(&one("F32", "[3]", "[0,8]"), 8),
            "w: the shape and element type require 12 bytes, but the file reserves 8",
        ),
        (
            safe(&one("F32", "[2]", "[8,0]"), 8),
            "w: malformed header: `data_offsets` [8, 0] are not a valid range",
        ),
        (
            safe(&one("F32", "[2]", "[4,12]"), 12),
            "w: bytes 0 to 4 before it belong to no tensor",
        ),
        (
            safe(&one("F32", "[2]", "[0,8]"), 9),
            "the last 1 bytes belong to no tensor",
        ),
        (
            safe(&one("F32", "[-2]", "[0,8]"), 8),
            "w: malformed header: `shape` is not a list of sizes",
        ),
        (
            safe(&one("F32", "[4294967296,4294967296,4294967296]", "[0,8]"), 8),
            "w: the size of shape [4294967296, 4294967296, 4294967296] in bytes overflows",
        ),
        (
            safe(
                "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
                6,
            ),
            "b: its bytes from 2 overlap another tensor",
        ),
    ] {
        assert_eq!(problem(&bytes), want);
    }
    let file = parse_bytes(&safe(&one("F6_E2M3", "[8]", "[0,8]"), 8)).expect("a file");
    assert_eq!(file.unsupported["w"], "F6_E2M3");
    let deep = safe(&"[".repeat(100_000), 0);
    assert!(problem(&deep).starts_with("malformed header: "));
}

#[test]
fn missing_and_empty_files_are_errors() {
    let path = Temporary::new("nothing.npy");
    assert!(matches!(
        read(&path),
        Err(FileError {
            problem: Problem::Io(_),
            ..
        })
    ));
    std::fs::write(&*path, b"").expect("written");
    assert_eq!(read(&path).expect_err("empty").problem, Problem::Empty);
    assert!(matches!(
        read(&std::env::temp_dir()),
        Err(FileError {
            problem: Problem::Io(_),
            ..
        })
    ));
    let t = Tensor::scalar(1f32);
    assert_eq!(
        write(Path::new("x.txt"), [("x", &t)]).expect_err("no format").problem,
        Problem::UnknownFormat
    );
    let twice = write(&Temporary::new("twice.npz"), [("x", &t), ("x", &t)]).expect_err("one name");
    assert_eq!(
        (twice.tensor.as_deref(), twice.problem),
        (Some("x"), Problem::Duplicate)
    );
}

#[test]
fn shapes_hold_their_strides() {
    // `contiguous_strides` can multiply whatever `checked_sizes` accepts.
    let (shape, bytes) = checked_sizes(DType::F32, &[0, 5, 7]).expect("a shape");
    assert_eq!((bytes, contiguous_strides(&shape)), (0, vec![35, 7, 1]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    /// Files that were modified or truncated yield a result or an error, never a panic.
    #[test]
    fn damaged_files_do_not_panic(
        which in 0..3usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let path = Temporary::new(&format!("damage-{which}.{}", ["npy", "npz", "safetensors"][which]));
        let t = Tensor::from_slice::<f32>(&[2, 3], &[1.0; 6]);
        let tensors = [("a", &t), ("b", &t)];
        write(&path, tensors.into_iter().take(if which == 0 { 1 } else { 2 })).expect("written");
        let mut bytes = std::fs::read(&*path).expect("bytes");
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(f) = parse_bytes(&bytes) {
            for t in f.tensors.values() {
                // All bytes exist.
                prop_assert_eq!(t.bytes().len(), byte_len(t.dtype(), t.shape()).expect("checked"));
            }
        }
    }
}
