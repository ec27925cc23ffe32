//! Which files fxc reads: regular files that the user names, and those in the folder of a graph that it names itself.

use crate::support::{Dir, Ran, command, fxc_ends, fxc_in, root, wait_for};
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::Duration;

const BARE: &str =
    "graph main { %x : f32[2] = placeholder x  %w = get_attr w  %y = call_function torch.add(%x, %w)  output %y }";

/// A file `w.safetensors` with a weight of two elements.
fn weights() -> Vec<u8> {
    let header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    let header = format!("{header:<0$}", header.len().next_multiple_of(8));
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 8]].concat()
}

fn naming(weights: &str) -> String {
    format!("weights \"{weights}\"\n{BARE}")
}

/// Commands that open the file `BAD`.
const READERS: &[&str] = &[
    "check BAD",
    "run BAD x=ones",
    "run BAD.fxc x=ones",
    "fmt BAD",
    "fmt --check BAD",
    "check --fix BAD",
    "print BAD",
    "info BAD",
    "run ok.fxir x=ones --weights BAD",
    "run ok.fxir x=BAD",
    "run ok.fxir --inputs BAD",
    "run ok.fxir x=ones --state BAD",
    "run ok.fxir x=ones --expect BAD",
    "check ok.fxir --inputs BAD",
    "rewrite ok.fxir --rules BAD",
    "bench ok.fxir --inputs BAD --seconds 0",
    "bench ok.fxir x=ones --seconds 0 --against BAD",
    "compile ok.fxir --weights BAD",
    "opt ok.fxir --weights-from BAD",
    "run named.fxir x=ones",
];

#[cfg(target_os = "linux")]
#[test]
fn only_regular_files_are_opened() {
    let dir = Dir::new("special");
    dir.file("w.safetensors", weights());
    dir.file("ok.fxir", naming("w.safetensors"));
    assert!(
        Command::new("mkfifo")
            .arg(dir.0.join("fifo"))
            .status()
            .unwrap()
            .success()
    );
    let _socket = UnixListener::bind(dir.0.join("socket")).unwrap();
    fs::create_dir(dir.0.join("folder")).unwrap();
    for (file, reason) in [
        ("/dev/zero", "a device"),
        ("/dev/urandom", "a device"),
        ("/dev/tty", "a device"),
        ("/proc/self/maps", "made up by the system"),
        ("/proc/kmsg", "made up by the system"),
        ("/sys/kernel/uevent_seqnum", "made up by the system"),
        ("fifo", "a pipe"),
        ("socket", "a socket"),
        ("folder", "director"),
    ] {
        let path = dir.0.join(file);
        if !path.exists() {
            continue;
        }
        // By its name, and through a link whose name promises something else.
        for ending in ["", ".fxir", ".fxc", ".npy", ".npz", ".safetensors", ".pt2"] {
            let link = format!("link{ending}");
            let _ = fs::remove_file(dir.0.join(&link));
            symlink(&path, dir.0.join(&link)).unwrap();
        }
        dir.file("named.fxir", naming(&path.display().to_string()));
        for line in READERS {
            let args = line.replace("BAD.fxc", "link.fxc");
            let links = ["link", "link.npz"].map(|l| args.replace("BAD", l));
            for args in [&args.replace("BAD", &path.display().to_string()), &links[0], &links[1]] {
                let args = [&["--allow-path", "/"], &args.split(' ').collect::<Vec<_>>()[..]].concat();
                let ran = fxc_ends(&dir.0, &args);
                assert_ne!(ran.code, 0, "{args:?}");
                assert!(ran.err.contains(reason), "{args:?} must say `{reason}`: {}", ran.err);
            }
        }
    }
}

#[test]
fn weights_that_a_graph_names_are_in_its_folder() {
    let dir = Dir::new("confined");
    fs::create_dir_all(dir.0.join("models/deep")).unwrap();
    fs::create_dir(dir.0.join("secret")).unwrap();
    dir.file("secret/w.safetensors", weights());
    dir.file("models/w.safetensors", weights());
    dir.file("models/deep/w.safetensors", weights());
    symlink("../secret/w.safetensors", dir.0.join("models/link.safetensors")).unwrap();
    symlink("../secret", dir.0.join("models/folder")).unwrap();
    symlink("w.safetensors", dir.0.join("models/own.safetensors")).unwrap();
    let secret = dir.0.join("secret/w.safetensors").canonicalize().unwrap();
    let secret = secret.display().to_string();
    let run = |more: &[&str]| fxc_ends(&dir.0, &[&["run", "models/m.fxir", "x=ones"], more].concat());
    let refused = |ran: &Ran| ran.code == 1 && ran.err.contains("E0410");
    for name in [
        &secret,
        "../secret/w.safetensors",
        "link.safetensors",
        "folder/w.safetensors",
        "deep/../../secret/w.safetensors",
    ] {
        dir.file("models/m.fxir", naming(name));
        let ran = run(&[]);
        assert!(refused(&ran), "{name}: {}", ran.err);
        assert!(refused(&run(&["--allow-path", "models/deep"])), "{name}");
        for allowed in [
            ["--allow-path", "secret"],
            ["--allow-path", "."],
            ["--weights", "secret/w.safetensors"],
        ] {
            let ran = run(&allowed);
            assert_eq!(ran.code, 0, "{name} {allowed:?}: {}", ran.err);
        }
        // The help is what solves it.
        let option = ran
            .err
            .split("or `")
            .nth(1)
            .and_then(|t| t.split('`').next())
            .expect("an option");
        assert_eq!(run(&option.split(' ').collect::<Vec<_>>()).code, 0, "{option}");
    }
    for name in [
        "w.safetensors",
        "./w.safetensors",
        "deep/w.safetensors",
        "deep/../w.safetensors",
        "own.safetensors",
    ] {
        dir.file("models/m.fxir", naming(name));
        let ran = run(&[]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.err);
    }
    let absolute = dir.0.join("models/w.safetensors").display().to_string();
    dir.file("models/m.fxir", naming(&absolute));
    assert_eq!(run(&[]).code, 0);
    // A link to a model finds the weights beside the link and beside the model.
    dir.file("models/m.fxir", naming("w.safetensors"));
    symlink("../models/m.fxir", dir.0.join("secret/linked.fxir")).unwrap();
    symlink("../models/w.safetensors", dir.0.join("secret/v.safetensors")).unwrap();
    dir.file("models/v.fxir", naming("v.safetensors"));
    symlink("../models/v.fxir", dir.0.join("secret/v.fxir")).unwrap();
    for model in ["secret/linked.fxir", "secret/v.fxir"] {
        let ran = fxc_ends(&dir.0, &["run", model, "x=ones"]);
        assert_eq!(ran.code, 0, "{model}: {}", ran.err);
    }
    // Suggestions are applied without reading them either.
    dir.file("models/m.fxir", naming("../secret/w.safetensors"));
    assert!(refused(&fxc_ends(&dir.0, &["check", "--fix", "models/m.fxir"])));
}

#[test]
fn texts_that_fxc_writes_find_their_weights() {
    let dir = Dir::new("written");
    dir.file("w.safetensors", weights());
    dir.file("m.fxir", naming("w.safetensors"));
    fs::create_dir(dir.0.join("out")).unwrap();
    fs::create_dir(dir.0.join("other")).unwrap();
    let want = fxc_in(&dir.0, &["run", "m.fxir", "x=ones"]).out;
    for command in [
        "print m.fxir -o out/p.fxir",
        "opt m.fxir -o out/p.fxir",
        "compile m.fxir --emit graph=out/p.fxir",
    ] {
        let _ = fs::remove_dir_all(dir.0.join("out"));
        fs::create_dir(dir.0.join("out")).unwrap();
        let ran = fxc_in(&dir.0, &command.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.code, 0, "{command}: {}", ran.err);
        let ran = fxc_in(&dir.0, &["run", "out/p.fxir", "x=ones"]);
        assert_eq!((ran.code, &ran.out), (0, &want), "{command}: {}", ran.err);
    }
    // A request for another folder is granted, and its price named.
    let ran = fxc_in(
        &dir.0,
        &[
            "print",
            "m.fxir",
            "-o",
            "out/p.fxir",
            "--weights",
            "other/w.safetensors",
        ],
    );
    assert!(ran.err.contains("--allow-path"), "{}", ran.err);
    assert_eq!(fxc_in(&dir.0, &["run", "out/p.fxir", "x=ones"]).code, 1);
    let ran = fxc_in(&dir.0, &["run", "out/p.fxir", "x=ones", "--allow-path", "other"]);
    assert_eq!((ran.code, ran.out), (0, want), "{}", ran.err);
}

/// Runs fxc with a text as standard input, which stays a pipe.
fn piped(dir: &Dir, args: &[&str], text: &str) -> Ran {
    let mut c = command(&dir.0, args);
    let child = c
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    // A program that refuses its arguments ends without reading.
    if let Err(e) = child.stdin.take().unwrap().write_all(text.as_bytes()) {
        assert_eq!(e.kind(), std::io::ErrorKind::BrokenPipe);
    }
    wait_for(child, &args.join(" ")).into()
}

#[test]
fn texts_come_from_standard_input_and_from_substituted_commands() {
    let dir = Dir::new("streams");
    let text = naming("w.safetensors");
    dir.file("w.safetensors", weights());
    dir.file("m.fxir", &text);
    let want = fxc_in(&dir.0, &["run", "m.fxir", "x=ones"]).out;
    for name in ["-", "/dev/stdin", "/dev/fd/0"] {
        let ran = piped(&dir, &["run", name, "x=ones"], &text);
        assert_eq!((ran.code, &ran.out), (0, &want), "{name}: {}", ran.err);
        let ran = piped(&dir, &["fmt", name], &text);
        assert!(
            ran.code == 0 && ran.out.starts_with("weights \"w"),
            "{name}: {}",
            ran.err
        );
        let ran = piped(&dir, &["check", "--fix", name], &text);
        assert!(ran.code == 2 && ran.err.contains("E0702"), "{name}: {}", ran.err);
    }
    let program = env!("CARGO_BIN_EXE_fxc");
    let script = format!("{program} run <(cat m.fxir) x=ones");
    let out = Command::new("bash")
        .current_dir(&dir.0)
        .args(["-c", &script])
        .env("FXC_CACHE", "off")
        .output();
    assert_eq!(String::from_utf8_lossy(&out.unwrap().stdout), want);
    // Files that are mapped cannot come from a pipe.
    for args in [
        &["run", "m.fxir", "x=/dev/stdin"][..],
        &["run", "m.fxir", "x=ones", "--weights", "/dev/stdin"],
    ] {
        let ran = piped(&dir, args, "");
        assert!(
            ran.code != 0 && ran.err.contains("it is a pipe"),
            "{args:?}: {}",
            ran.err
        );
    }
}

#[test]
fn a_text_without_end_is_not_read_to_its_end() {
    let dir = Dir::new("endless");
    let program = env!("CARGO_BIN_EXE_fxc");
    for source in ["-", "<(yes '# a comment')"] {
        // 64 MiB of text, and as much for the program itself.
        let script = format!("ulimit -v 1000000; yes '# a comment' | {program} check {source}");
        let mut c = Command::new("bash");
        c.current_dir(&dir.0).args(["-c", &script]).stdin(Stdio::null());
        let child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = wait_for(child, &script);
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{err}");
        assert!(
            err.contains("is too large: the limit for text is 67108864 bytes"),
            "{err}"
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_is_shortened_while_it_is_used_is_named_as_the_cause() {
    let dir = Dir::new("shortened");
    dir.file(
        "m.fxir",
        "graph main { %x : f32[1024, 1024] = placeholder x  %y = call_function torch.neg(%x)  output %y }",
    );
    let model = fs::read_to_string(dir.0.join("m.fxir")).unwrap();
    dir.file("n.fxir", model.replace("placeholder x", "placeholder output.0"));
    // On a busy machine the program may not have read the header yet, and then reports a truncated file.
    let ran = (1..=5)
        .map(|attempt| bench_shortened(&dir, Duration::from_millis(200 * attempt)))
        .find(|ran| !ran.err.contains("truncated"))
        .expect("a run that had read the header");
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.err.contains("E0701") && ran.err.contains("shortened"),
        "{}",
        ran.err
    );
}

/// Runs a model on a file that is shortened some time after the program has mapped it.
fn bench_shortened(dir: &Dir, after: Duration) -> Ran {
    let args = ["run", "m.fxir", "x=rand:1", "--outputs", "x.safetensors"];
    assert_eq!(fxc_in(&dir.0, &args).code, 0);
    let args = ["bench", "n.fxir", "--inputs", "x.safetensors", "--seconds", "30"];
    let mut c = command(&dir.0, &args);
    let child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let maps = format!("/proc/{}/maps", child.id());
    while !fs::read_to_string(&maps).is_ok_and(|m| m.contains("x.safetensors")) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(after);
    let file = fs::OpenOptions::new().write(true).open(dir.0.join("x.safetensors"));
    file.unwrap().set_len(100).unwrap();
    wait_for(child, "bench").into()
}

#[test]
fn the_user_is_told_about_every_option_for_files() {
    let help = fxc_in(root(), &["run", "--help"]).out;
    assert!(help.contains("--allow-path <DIR>"), "{help}");
}
