//! What happens to the user's files when fxc writes them: all of a file is written, or nothing.

use crate::support::{Dir, command, fxc_ends, fxc_in, wait_for};
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const MODEL: &str = "weights \"w.safetensors\"
param w : f32[64, 64]
buffer b : f32[64, 64]

graph main {
    %x : f32[64, 64] = placeholder x
    %w = get_attr w
    %b = get_attr b
    %m = call_function torch.matmul(%x, %w)
    %s = call_function torch.Tensor.add_(%b, %m)
    %y = call_function torch.relu(%s)
    output %y
}
";

const RULES: &str =
    "rewrite r(%a) { %r = call_function torch.relu(%a) output %r } => { %r = call_function torch.tanh(%a) output %r }";

/// A folder with models, weights and rules.
fn place(name: &str) -> Dir {
    let dir = Dir::new(name);
    dir.file("w.safetensors", weights());
    dir.file("m.fxir", MODEL);
    dir.file("source.fxir", graph("output (%x, %x)"));
    dir.file("relu.fxir", graph("%y = call_function torch.relu(%x)  output %y"));
    dir.file("r.fxir", RULES);
    dir
}

/// A graph with one input.
fn graph(body: &str) -> String {
    format!("graph main {{ %x : f32[64, 64] = placeholder x  {body} }}")
}

/// The file `w.safetensors`, written by hand.
fn weights() -> Vec<u8> {
    let header = "{\"b\":{\"dtype\":\"F32\",\"shape\":[64,64],\"data_offsets\":[0,16384]},\
                  \"w\":{\"dtype\":\"F32\",\"shape\":[64,64],\"data_offsets\":[16384,32768]}} ";
    let header = format!("{header:<0$}", header.len().next_multiple_of(8));
    let elements = (0..8192u32).flat_map(|i| (i as f32 / 8192.0).to_le_bytes());
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend(elements);
    bytes
}

/// The commands that write a file, with the ending of its name and the code of a failure. `OUT` is the file.
const WRITERS: &[(&str, &str, &str)] = &[
    ("run m.fxir x=rand:1 --outputs OUT", "npz", "E0702"),
    ("run m.fxir x=rand:1 --save-state OUT", "npz", "E0702"),
    ("run m.fxir x=rand:1 --save-state OUT", "safetensors", "E0702"),
    ("run source.fxir x=rand:1 --outputs OUT", "safetensors", "E0702"),
    ("run relu.fxir x=rand:1 --outputs OUT", "npy", "E0702"),
    ("print m.fxir -o OUT", "fxir", "E0702"),
    ("print m.fxir --weights OUT", "safetensors", "E0408"),
    ("opt m.fxir -o OUT", "fxir", "E0702"),
    ("opt m.fxir --weights OUT", "safetensors", "E0408"),
    ("rewrite m.fxir --rules r.fxir -o OUT", "fxir", "E0702"),
    ("emit-code m.fxir -o OUT", "py", "E0702"),
    ("emit-code m.fxir --stage kernels -o OUT", "py", "E0702"),
    ("emit-code m.fxir --stage object -o OUT", "o", "E0702"),
    ("emit-code m.fxir --weights OUT", "safetensors", "E0408"),
    ("compile m.fxir -o OUT", "fxc", "E0702"),
    ("compile m.fxir --emit kernels=OUT", "txt", "E0702"),
    ("fmt OUT", "fxir", "E0702"),
    ("check OUT --fix", "fxir", "E0702"),
];

/// The content of a file before a command writes it: for those that change a text in place, one that they change.
fn old_content(line: &str) -> &'static str {
    match line.split(' ').next() {
        Some("fmt") => {
            "graph main {%x:f32[2]=placeholder x\n%y=call_function torch.relu(%x)\noutput %y}\n# a comment\n"
        }
        Some("check") => "graph main {\n    %x : f32[2, 3] = placeholder x\n    return %x\n}\n",
        _ => "old",
    }
}

/// The arguments of a writer for a file.
fn arguments<'a>(line: &'a str, out: &'a str) -> Vec<String> {
    line.split(' ').map(|a| a.replace("OUT", out)).collect()
}

fn is_in_place(line: &str) -> bool {
    line.starts_with("fmt") || line.starts_with("check")
}

/// The names of incomplete files in a folder.
fn incomplete(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name());
    let names = names.map(|n| n.to_string_lossy().into_owned());
    names.filter(|n| n.ends_with(".tmp")).collect()
}

#[test]
fn a_file_is_replaced_behind_its_link_and_keeps_its_permissions() {
    let dir = place("replaced");
    for (i, (line, ending, _)) in WRITERS.iter().enumerate() {
        let (real, link) = (format!("real{i}.{ending}"), format!("link{i}.{ending}"));
        let old = old_content(line);
        dir.file(&real, old);
        fs::set_permissions(dir.0.join(&real), Permissions::from_mode(0o640)).unwrap();
        symlink(&real, dir.0.join(&link)).unwrap();
        let args = arguments(line, &link);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let ran = fxc_in(&dir.0, &args);
        assert_eq!(ran.code, 0, "{line}: {}", ran.err);
        assert!(fs::symlink_metadata(dir.0.join(&link)).unwrap().is_symlink(), "{line}");
        let meta = fs::metadata(dir.0.join(&real)).unwrap();
        assert_eq!(meta.permissions().mode() & 0o7777, 0o640, "{line}");
        assert_ne!(
            fs::read(dir.0.join(&real)).unwrap(),
            old.as_bytes(),
            "{line}: {}",
            ran.err
        );
        assert_eq!(incomplete(&dir.0), [""; 0], "{line}");
    }
}

#[test]
fn a_new_file_has_the_permissions_of_any_new_file() {
    let dir = place("new-mode");
    let mode = |name: &str| fs::metadata(dir.0.join(name)).unwrap().permissions().mode() & 0o777;
    let want = mode("m.fxir");
    // A link to a file that does not exist is followed too.
    symlink("absent.npz", dir.0.join("dangling.npz")).unwrap();
    for (file, name) in [
        ("o.npz", "o.npz"),
        ("o.safetensors", "o.safetensors"),
        ("dangling.npz", "absent.npz"),
    ] {
        let ran = fxc_in(&dir.0, &["run", "m.fxir", "x=rand:1", "--save-state", file]);
        assert_eq!((ran.code, mode(name)), (0, want), "{file}: {}", ran.err);
    }
}

#[test]
fn a_failed_write_leaves_the_old_file_and_says_what_failed() {
    let dir = place("failed");
    for (i, (line, ending, code)) in WRITERS.iter().enumerate() {
        let name = format!("kept{i}.{ending}");
        // Beyond a limit of 0 bytes, and in a folder that does not exist.
        let missing = format!("no/such/{name}");
        dir.file(&name, old_content(line));
        let args = arguments(line, &name).join(" ");
        let program = env!("CARGO_BIN_EXE_fxc");
        let script = format!("ulimit -f 0; {program} {args} >/dev/null");
        let out = command_in(&dir, &script);
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{line}: {err}");
        assert!(
            err.contains(&format!("[{code}]")) && err.contains("File too large"),
            "{line}: {err}"
        );
        assert_eq!(
            fs::read(dir.0.join(&name)).unwrap(),
            old_content(line).as_bytes(),
            "{line}"
        );
        assert_eq!(incomplete(&dir.0), [""; 0], "{line}");
        if !is_in_place(line) {
            let args = arguments(line, &missing);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let ran = fxc_in(&dir.0, &args);
            // The weights beside a text are written first.
            let failed = ran.err.contains(code) || ran.err.contains("E0408");
            assert!(ran.code == 2 && failed, "{line}: {}", ran.err);
        }
    }
}

/// Runs a shell script in a folder.
fn command_in(dir: &Dir, script: &str) -> std::process::Output {
    let mut c = Command::new("bash");
    c.current_dir(&dir.0)
        .args(["-c", script])
        .stdin(Stdio::null())
        .env("FXC_CACHE", "off");
    let child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(child, script)
}

#[cfg(target_os = "linux")]
#[test]
fn devices_and_pipes_are_written_as_they_are() {
    let dir = place("devices");
    for (i, (line, ending, code)) in WRITERS.iter().enumerate().filter(|(_, w)| !is_in_place(w.0)) {
        for device in ["full", "null"] {
            let link = format!("{device}{i}.{ending}");
            symlink(format!("/dev/{device}"), dir.0.join(&link)).unwrap();
            let args = arguments(line, &link);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let ran = fxc_ends(&dir.0, &args);
            let full = device == "full";
            assert_eq!(ran.code, if full { 2 } else { 0 }, "{line} {device}: {}", ran.err);
            assert!(
                !full || ran.err.contains(code) && ran.err.contains("No space left"),
                "{line}: {}",
                ran.err
            );
        }
        // What goes through a pipe is what goes to a file.
        let (pipe, file) = (format!("pipe{i}.{ending}"), format!("file{i}.{ending}"));
        let script = format!(
            "mkfifo {pipe}; cat {pipe} >got & {program} {piped} >/dev/null 2>&1; wait; {program} {filed} >/dev/null 2>&1; cmp got {file}",
            program = env!("CARGO_BIN_EXE_fxc"),
            piped = arguments(line, &pipe).join(" "),
            filed = arguments(line, &file).join(" "),
        );
        let out = command_in(&dir, &script);
        assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stdout));
    }
    let want = fxc_in(&dir.0, &["print", "m.fxir"]).out;
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        assert_eq!(fxc_in(&dir.0, &["print", "m.fxir", "-o", name]).out, want, "{name}");
    }
    let program = env!("CARGO_BIN_EXE_fxc");
    let appended = command_in(
        &dir,
        &format!("echo first >all; {program} print m.fxir -o /dev/stdout >>all; cat all"),
    );
    assert_eq!(String::from_utf8_lossy(&appended.stdout), format!("first\n{want}"));
    let substituted = command_in(
        &dir,
        &format!("{program} print m.fxir -o >(cat >sub); sleep 0.2; cat sub"),
    );
    assert_eq!(String::from_utf8_lossy(&substituted.stdout), want);
}

#[test]
fn an_output_may_be_the_file_that_is_read() {
    let dir = place("onto-itself");
    let run = |args: &str| {
        let args: Vec<&str> = args.split(' ').collect();
        let ran = fxc_ends(&dir.0, &args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
        ran
    };
    for ending in ["npy", "npz", "safetensors"] {
        let model = dir.file(
            "twice.fxir",
            "graph main { %x : f32[64, 64] = placeholder output.0  %y = call_function torch.neg(%x)  output %y }",
        );
        let (file, copy) = (format!("x.{ending}"), format!("copy.{ending}"));
        run(&format!("run relu.fxir x=rand:1 --outputs {file}"));
        fs::copy(dir.0.join(&file), dir.0.join(&copy)).unwrap();
        let input = if ending == "npy" {
            format!("output.0={file}")
        } else {
            format!("--inputs {file}")
        };
        run(&format!("run {model} {input} --outputs {file}"));
        assert_ne!(
            fs::read(dir.0.join(&file)).unwrap(),
            fs::read(dir.0.join(&copy)).unwrap()
        );
        run(&format!("run {model} {input} --outputs {file}"));
        assert_eq!(
            fs::read(dir.0.join(&file)).unwrap(),
            fs::read(dir.0.join(&copy)).unwrap()
        );
    }
    let want = run("run m.fxir x=rand:1").out;
    run("print m.fxir -o m.fxir --weights w.safetensors");
    assert_eq!(run("run m.fxir x=rand:1").out, want);
    run("opt m.fxir -o m.fxir --weights w.safetensors");
    // A graph that was changed returns a tuple.
    assert_eq!(run("run m.fxir x=rand:1").out.replace(" [0] ", " "), want);
    let want = run("run m.fxir x=rand:1").out;
    run("compile m.fxir -o m.fxc");
    run("compile m.fxc -o m.fxc");
    assert_eq!(run("run m.fxc x=rand:1 --no-fallback").out, want);
    fs::copy(crate::support::root().join("tests/data/mlp.pt2"), dir.0.join("a.pt2")).unwrap();
    run("print a.pt2 -o a.pt2");
    run("check a.pt2");
}

#[test]
fn processes_that_write_one_file_give_one_whole_file() {
    let dir = place("many");
    let model = "graph main { %x : f32[512, 512] = placeholder x  %y = call_function torch.neg(%x)  output %y }";
    dir.file("big.fxir", model);
    let mut wanted = vec![];
    for seed in 0..4 {
        let (x, out) = (format!("x=rand:{seed}"), format!("want{seed}.npz"));
        assert_eq!(fxc_in(&dir.0, &["run", "big.fxir", &x, "--outputs", &out]).code, 0);
        wanted.push(fs::read(dir.0.join(out)).unwrap());
    }
    let start = |seed: usize| {
        let x = format!("x=rand:{seed}");
        let mut c = command(&dir.0, &["run", "big.fxir", &x, "--outputs", "shared.npz"]);
        c.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for _ in 0..3 {
        let children: Vec<_> = (0..4).map(start).collect();
        for child in children {
            assert!(wait_for(child, "a writer").status.success());
        }
        let got = fs::read(dir.0.join("shared.npz")).unwrap();
        assert!(wanted.contains(&got));
    }
    assert_eq!(incomplete(&dir.0), [""; 0]);
}

#[test]
fn a_process_that_is_killed_leaves_the_old_file() {
    let dir = place("killed");
    let model = "graph main { %x : f32[2048, 2048] = placeholder x  %y = call_function torch.neg(%x)  output %y }";
    dir.file("big.fxir", model);
    let args = ["run", "big.fxir", "x=rand:1", "--outputs", "o.npy"];
    assert_eq!(fxc_in(&dir.0, &args).code, 0);
    let new = fs::read(dir.0.join("o.npy")).unwrap();
    for ms in [20, 60, 100, 140, 180] {
        dir.file("o.npy", "old");
        let mut child = command(&dir.0, &args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(ms));
        child.kill().unwrap();
        child.wait().unwrap();
        let got = fs::read(dir.0.join("o.npy")).unwrap();
        assert!(got == b"old" || got == new, "{} bytes after {ms} ms", got.len());
    }
}

#[test]
fn an_interrupted_process_removes_its_incomplete_file() {
    let dir = place("interrupted");
    assert!(
        Command::new("mkfifo")
            .arg(dir.0.join("o.npz"))
            .status()
            .unwrap()
            .success()
    );
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        // Under `nohup`, processes ignore this signal.
        if name == "HUP" && ignores_hangup() {
            continue;
        }
        // The pipe has no reader: the program waits when its incomplete file is complete.
        let mut c = command(&dir.0, &["run", "source.fxir", "x=rand:1", "--outputs", "o.npz"]);
        let child = c
            .env("TMPDIR", &dir.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while incomplete(&dir.0).is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let kill = format!("kill -{name} {}", child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        let out = wait_for(child, &kill);
        assert_eq!(out.status.signal(), Some(number), "{name}");
        assert_eq!(incomplete(&dir.0), [""; 0], "{name}");
    }
}

/// Whether this process, and so those it starts, ignores SIGHUP, which is the lowest bit of the mask.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok())
        .is_some_and(|m| m & 1 == 1)
}

#[test]
fn results_are_kept_and_judged_if_nobody_reads_the_table() {
    let dir = place("unread");
    let run = |args: &[&str]| {
        let args = [
            &[
                "run",
                "source.fxir",
                "x=rand:1",
                "--outputs",
                "o.npz",
                "--save-state",
                "s.npz",
            ],
            args,
        ]
        .concat();
        let mut child = command(&dir.0, &args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let out = wait_for(child, "a run without a reader");
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.code(), err)
    };
    let (code, err) = run(&[]);
    assert_eq!(code, Some(0), "{err}");
    fs::rename(dir.0.join("o.npz"), dir.0.join("want.npz")).unwrap();
    let (code, err) = run(&["--expect", "want.npz"]);
    assert_eq!(code, Some(0), "{err}");
    let (code, err) = run(&["--expect", "s.npz", "--seed", "1"]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("E0506") && dir.0.join("o.npz").exists(), "{err}");
    // A full disk behind the table is an error, after the files have been written.
    #[cfg(target_os = "linux")]
    {
        fs::remove_file(dir.0.join("o.npz")).unwrap();
        let program = env!("CARGO_BIN_EXE_fxc");
        let out = command_in(
            &dir,
            &format!("{program} run source.fxir x=rand:1 --outputs o.npz >/dev/full"),
        );
        assert_eq!(out.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&out.stderr).contains("E0702"));
        assert!(dir.0.join("o.npz").exists());
    }
}

#[test]
fn internal_errors_write_a_file_that_repeats_them() {
    if !cfg!(debug_assertions) {
        return;
    }
    let dir = place("internal");
    let mut child = command(&dir.0, &["run", "m.fxir", "x=rand:1", "--outputs", "it's.npz"]);
    let child = child.env("FXC_FAIL", "1").env("TMPDIR", &dir.0).stderr(Stdio::piped());
    let out = wait_for(child.spawn().unwrap(), "a failure");
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{err}");
    for part in [
        "internal error: panicked at src/",
        "runs the command again",
        "to reduce the model",
        "report it",
    ] {
        assert!(err.contains(part), "no `{part}` in {err}");
    }
    let names = fs::read_dir(&dir.0).unwrap().map(|e| e.unwrap().path());
    let script = names
        .into_iter()
        .find(|p| p.extension().is_some_and(|e| e == "sh"))
        .expect("a script");
    let mut text = String::new();
    fs::File::open(&script).unwrap().read_to_string(&mut text).unwrap();
    assert!(
        text.contains("# file m.fxir, ") && text.contains("FXC_FAIL is set"),
        "{text}"
    );
    let again = Command::new("sh").arg(&script).env_remove("FXC_FAIL").output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("FXC_FAIL is set"));
    assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o600);
}
