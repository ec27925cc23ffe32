//! Small hostile files end in a result or a diagnostic, in time and memory in proportion: each in a process of its own, with limits of the
//! system that are larger than fxc's. `python tests/attacks/run.py` has the large files and measures.

use crate::support::{Dir, command, root};
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// What an attack may do at most. The development build is ten times slower than a release.
const PATIENCE: Duration = Duration::from_secs(30);

/// Virtual memory of the process. fxc itself maps some hundred megabytes.
const ADDRESS_SPACE: &str = "3000000";

/// Runs fxc with limits of the system. Returns its exit code and the codes it reports. Panics if it crashes or hangs.
fn attack(dir: &Dir, args: &[&str]) -> (i32, Vec<String>) {
    attack_within(dir, args, ADDRESS_SPACE)
}

fn attack_within(dir: &Dir, args: &[&str], kilobytes: &str) -> (i32, Vec<String>) {
    let fxc = command(&dir.0, &[]);
    let mut shell = std::process::Command::new("sh");
    let script = format!("ulimit -c 0; ulimit -v {kilobytes}; exec \"$0\" --message-format json \"$@\"");
    shell.args(["-c", &script]).arg(fxc.get_program()).args(args);
    shell.current_dir(&dir.0).env("FXC_CACHE", "off").stdin(Stdio::null());
    let mut child = shell
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the shell starts");
    let mut pipe = child.stderr.take().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut text = vec![];
        pipe.read_to_end(&mut text).expect("the text of errors");
        String::from_utf8_lossy(&text).into_owned()
    });
    let start = Instant::now();
    let status = loop {
        match child.try_wait().expect("a state") {
            Some(status) => break status,
            None if start.elapsed() > PATIENCE => {
                let _ = child.kill();
                panic!("{args:?} hangs");
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let text = reader.join().expect("the reader");
    let code = status
        .code()
        .unwrap_or_else(|| panic!("{args:?} is ended by a signal: {text}"));
    assert!(
        (0..=2).contains(&code) && !text.contains("panicked"),
        "{args:?}: {code}, {text}"
    );
    assert!(text.len() < 100_000, "{args:?} prints {} bytes", text.len());
    let code_of = |l: &str| {
        serde_json::from_str::<serde_json::Value>(l).ok()?["code"]
            .as_str()
            .map(str::to_string)
    };
    (code, text.lines().filter_map(code_of).collect())
}

fn graph(lines: &[String]) -> String {
    format!("graph main {{\n%x : f32[N] = placeholder x\n{}\n}}\n", lines.join("\n"))
}

/// A graph with one call after the other, each on the result of the one before.
fn chain(calls: &[&str]) -> String {
    let mut lines: Vec<String> = calls
        .iter()
        .enumerate()
        .map(|(i, c)| format!("%a{i} = call_function {c}"))
        .collect();
    lines.push(format!("output %a{}", calls.len() - 1));
    graph(&lines)
}

/// Runs a text compiled and interpreted, with 256 MB. Both must report one of the codes, or neither does if there are none.
fn runs_to(name: &str, text: &str, expected: &[&str]) {
    let dir = Dir::new(name);
    dir.file("m.fxir", text);
    for how in [&[][..], &["--interpret"]] {
        let args = [
            &["run", "m.fxir", "x=[1,2]", "--max-memory", "256MB", "--max-time", "10"],
            how,
        ]
        .concat();
        let (code, found) = attack(&dir, &args);
        let known = found.iter().any(|f| expected.contains(&f.as_str()));
        assert_eq!(
            (known, code != 0),
            (!expected.is_empty(), !expected.is_empty()),
            "{name} {how:?}: {found:?}"
        );
    }
}

#[test]
fn results_larger_than_the_limit_are_refused_before_they_are_allocated() {
    let large = 1u64 << 33;
    let pad = |n: u64| format!("torch.nn.functional.pad(%x, [1, {n}])");
    let calls: [&[&str]; 12] = [
        &[&format!("torch.repeat_interleave(%x, {large})")],
        &[&format!("torch.full([2], {large})"), "torch.repeat_interleave(%a0)"],
        &[&pad(large)],
        &[&format!("torch.arange({large})")],
        &[&format!("torch.full([{large}], 1.0)")],
        &["torch.arange(2)", &format!("torch.nn.functional.one_hot(%a0, {large})")],
        &["torch.full([1], 8589934592)", "torch.nn.functional.one_hot(%a0)"],
        &["torch.as_strided(%x, [1048576, 1048576], [0, 0])", "torch.exp(%a0)"],
        &["torch.arange(131072)", "torch.cartesian_prod(%a0, %a0)"],
        &["torch.arange(131072)", "torch.outer(%a0, %a0)"],
        &["torch.eye(1048576)"],
        &["torch.full([1], 8589934592)", "torch.bincount(%a0)"],
    ];
    for (i, call) in calls.iter().enumerate() {
        runs_to(&format!("large{i}"), &chain(call), &["E0509", "E0306"]);
    }
}

#[test]
fn sizes_beyond_64_bits_are_errors() {
    let most = i64::MAX;
    for (i, call) in [
        format!("torch.nn.functional.pad(%x, [1, {most}])"),
        format!("torch.full([{most}, {most}], 1.0)"),
        format!("torch.repeat_interleave(%x, {most})"),
        format!("torch.arange({most})"),
    ]
    .iter()
    .enumerate()
    {
        runs_to(
            &format!("overflow{i}"),
            &chain(&[call]),
            &["E0306", "E0302", "E0202", "E0509"],
        );
    }
}

#[test]
fn graphs_that_double_are_refused_before_they_grow() {
    let twice = "graph twice {\n%v = placeholder v\noutput (%v, %v)\n}\n";
    runs_to(
        "values",
        &(chain(&["torch.exp(%x)"; 1]).replace("output %a0", &doubled("twice", 22)) + twice),
        &["E0114"],
    );
    let mut graphs =
        chain(&["g20(%x)"]) + "graph g0 {\n%x = placeholder x\n%y = call_function torch.exp(%x)\noutput %y\n}\n";
    for i in 1..=20 {
        let before = i - 1;
        graphs += &format!(
            "graph g{i} {{\n%x = placeholder x\n%a = call_function g{before}(%x)\n%b = call_function g{before}(%a)\noutput %b\n}}\n"
        );
    }
    let dir = Dir::new("inlined");
    dir.file("m.fxir", graphs);
    let (code, found) = attack(&dir, &["compile", "m.fxir", "--dim", "N=2"]);
    assert_eq!((code, found), (1, vec!["E0114".to_string()]));
}

fn doubled(callee: &str, times: usize) -> String {
    let calls = (0..times).map(|i| format!("%a{} = call_function {callee}(%a{i})", i + 1));
    calls
        .chain([format!("output %a{times}")])
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn sizes_that_square_stay_small() {
    let mut lines = vec!["%a0 = call_method size(%x, 0)".to_string()];
    lines.extend((0..30).map(|i| format!("%a{} = call_function operator.mul(%a{i}, %a{i})", i + 1)));
    lines.extend(["%y = call_function torch.full([2], %a30)".into(), "output %y".into()]);
    let dir = Dir::new("squares");
    dir.file("m.fxir", graph(&lines));
    attack(&dir, &["check", "m.fxir", "--max-memory", "128MB"]);
    attack(&dir, &["run", "m.fxir", "x=[1,1]", "--max-memory", "256MB"]);
}

/// A convolution over time is a product for each tap, unless there are many.
#[test]
fn taps_of_any_number_take_little() {
    let operands = |taps: i64| {
        [
            ("a0", format!("[{taps}, 3, 4]")),
            ("a1", "[4]".into()),
            ("a2", "[5, 2, 3]".into()),
        ]
        .map(|(name, shape)| format!("%{name} = call_function torch.empty({shape})"))
    };
    for (i, (taps, pad)) in [(3, i64::MAX), (3, i64::MAX / 2), (100_000_000, 50_000_000)]
        .into_iter()
        .enumerate()
    {
        let mut lines = operands(taps).to_vec();
        lines.push(format!("%y = call_function torch.conv_tbc(%a2, %a0, %a1, {pad})"));
        lines.push("output %y".into());
        let dir = Dir::new(&format!("taps{i}"));
        dir.file("m.fxir", graph(&lines));
        let (code, found) = attack(&dir, &["check", "m.fxir"]);
        let expected: &[&str] = if taps == 3 { &["E0306"] } else { &[] };
        assert_eq!(
            (code, found),
            (
                !expected.is_empty() as i32,
                expected.iter().map(|c| c.to_string()).collect()
            )
        );
    }
}

#[test]
fn loops_without_an_end_end_in_time() {
    let text = chain(&["torch.while_loop(@always, @same, (%x,))"]);
    let text = text
        + "graph always {\n%v = placeholder v\n%s = call_function torch.sum(%v)\n%y = call_function operator.gt(%s, 0)\noutput %y\n}\n";
    let text = text + "graph same {\n%v = placeholder v\n%y = call_function operator.mul(%v, 1)\noutput (%y,)\n}\n";
    let dir = Dir::new("endless");
    dir.file("m.fxir", text);
    for how in [&[][..], &["--interpret"]] {
        let (code, found) = attack(
            &dir,
            &[&["run", "m.fxir", "x=[1,2]", "--max-time", "0.3"], how].concat(),
        );
        assert!(
            code != 0 && found.contains(&"E0513".to_string()),
            "{how:?}: {code} {found:?}"
        );
    }
}

/// A `.npy` file with this shape and these elements.
fn npy(shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}");
    let len = (header.len() as u32).to_le_bytes();
    [b"\x93NUMPY\x02\x00", &len[..], header.as_bytes(), data].concat()
}

#[test]
fn files_of_arrays_are_read_in_proportion() {
    let dir = Dir::new("arrays");
    dir.file("m.fxir", chain(&["torch.relu(%x)"]));
    dir.file("rank.npy", npy(&format!("({})", "1,".repeat(100_000)), &[0]));
    dir.file("overlap.npz", overlapping_entries(&npy("(1000,)", &[0; 1000]), 2000));
    dir.file(
        "lists.safetensors",
        safetensors(&format!("{{\"a\":[{}[]]}}", "[],".repeat(3_000_000))),
    );
    for file in ["rank.npy", "overlap.npz", "lists.safetensors"] {
        let (code, found) = attack(&dir, &["run", "m.fxir", "--inputs", file, "--max-memory", "128MB"]);
        assert!(
            code != 0 && !found.is_empty() && found != ["E0509"],
            "{file}: {code} {found:?}"
        );
    }
}

fn safetensors(header: &str) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()
}

/// A zip archive whose directory names the same bytes many times.
fn overlapping_entries(body: &[u8], copies: usize) -> Vec<u8> {
    let (mut local, mut directory) = (vec![], vec![]);
    let name = |i: usize| format!("a{i:05}.npy").into_bytes();
    let sizes = [crc32fast::hash(body), body.len() as u32, body.len() as u32]
        .map(u32::to_le_bytes)
        .concat();
    let lengths = [name(0).len() as u16, 0].map(u16::to_le_bytes).concat();
    local.extend(
        [
            &b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0"[..],
            &sizes,
            &lengths,
            &name(0),
            body,
        ]
        .concat(),
    );
    for i in 0..copies {
        let head = &b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0"[..];
        directory.extend([head, &sizes, &lengths, &[0; 14], &name(i)].concat());
    }
    let count = (copies as u16).to_le_bytes();
    let places = [directory.len() as u32, local.len() as u32]
        .map(u32::to_le_bytes)
        .concat();
    [
        &local[..],
        &directory,
        b"PK\x05\x06\0\0\0\0",
        &count,
        &count,
        &places,
        &[0, 0],
    ]
    .concat()
}

/// The archive of the tests, with every entry changed as `change` says, and packed.
fn archive(change: impl Fn(&str, Vec<u8>) -> Vec<u8>) -> Vec<u8> {
    let file = std::fs::File::open(root().join("tests/data/buffers.pt2")).expect("the archive");
    let mut from = zip::ZipArchive::new(file).expect("an archive");
    let mut to = zip::ZipWriter::new(std::io::Cursor::new(vec![]));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    for i in 0..from.len() {
        let mut entry = from.by_index(i).expect("an entry");
        let name = entry.name().expect("a name").into_owned();
        let mut bytes = vec![];
        entry.read_to_end(&mut bytes).expect("its bytes");
        to.start_file(&*name, options).expect("an entry");
        to.write_all(&change(&name, bytes)).expect("written");
    }
    to.finish().expect("an archive").into_inner()
}

#[test]
fn archives_are_read_in_proportion() {
    let dir = Dir::new("archives");
    let strided = |name: &str, bytes: Vec<u8>| match name.ends_with("weights_config.json") {
        true => String::from_utf8(bytes)
            .expect("JSON")
            .replace("\"sizes\": [{\"as_int\": 4}]", "\"sizes\": [{\"as_int\": 1073741824}]")
            .replace("\"strides\": [{\"as_int\": 1}]", "\"strides\": [{\"as_int\": 0}]")
            .into_bytes(),
        false => bytes,
    };
    dir.file("strided.pt2", archive(strided));
    let lists = |name: &str, bytes: Vec<u8>| match name.ends_with("models/model.json") {
        true => format!("{{\"a\":[{}[]]}}", "[],".repeat(4_000_000)).into_bytes(),
        false => bytes,
    };
    dir.file("lists.pt2", archive(lists));
    for file in ["strided.pt2", "lists.pt2"] {
        let (code, found) = attack(&dir, &["check", file]);
        assert!(
            code == 1 && found.iter().any(|f| f == "E0403"),
            "{file}: {code} {found:?}"
        );
    }
}

#[test]
fn little_memory_and_many_threads_end_in_a_message() {
    let dir = Dir::new("little");
    dir.file("m.fxir", chain(&["torch.relu(%x)"]));
    let program = std::fs::metadata(env!("CARGO_BIN_EXE_fxc")).expect("the program").len() >> 10;
    for more in [12_000, 20_000, 40_000, 100_000, 200_000] {
        attack_within(&dir, &["run", "m.fxir", "x=[1,2]"], &(program + more).to_string());
    }
    assert_eq!(attack(&dir, &["run", "m.fxir", "x=[1,2]", "--threads", "100000"]).0, 2);
}

#[test]
fn one_error_does_not_print_the_file() {
    let dir = Dir::new("nulls");
    dir.file("m.fxir", "graph main { ".to_string() + &"\0".repeat(3_000_000) + "}");
    // No text has such bytes.
    let (code, found) = attack(&dir, &["check", "m.fxir"]);
    assert!(code == 2 && found == ["E0703"], "{code} {found:?}");
}
