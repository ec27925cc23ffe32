//! The cache of compiled models: hits, misses, damage, its size, and who may write to it.

use crate::support::{Dir, Ran, codes, command, root};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

const MODEL: &str = "graph main {\n    %x : f32[N, 4] = placeholder x\n    %w = call_function torch.ones([4, 4])\n    %y = call_function torch.matmul(%x, %w)\n    %z = call_function torch.relu(%y)\n    output %z\n}\n";

/// A folder with models and a cache.
struct Place {
    dir: Dir,
    env: Vec<(&'static str, String)>,
}

impl Place {
    fn new() -> Place {
        let dir = Dir::new("cache");
        dir.file("m.fxir", MODEL);
        Place { dir, env: vec![] }
    }

    fn with(name: &'static str, value: &str) -> Place {
        let mut place = Place::new();
        place.env.push((name, value.into()));
        place
    }

    fn folder(&self) -> PathBuf {
        self.dir.0.join("cached")
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut c = command(&self.dir.0, args);
        c.env_remove("FXC_CACHE").env("FXC_CACHE_DIR", self.folder());
        c.envs(self.env.iter().map(|(k, v)| (k, v)));
        c
    }

    fn fxc(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    fn run(&self, model: &str, more: &[&str]) -> Ran {
        self.fxc(&[&["run", model, "x:f32[3,4]=rand:1"], more].concat())
    }

    /// Whether a call compiles.
    fn compiles(&self, model: &str, more: &[&str]) -> bool {
        let all = [&["bench", model, "--seconds", "0", "--json"], more].concat();
        let ran = self.fxc(&all);
        assert!(ran.code == 0, "{}", ran.err);
        let found: Value = serde_json::from_str(&ran.out).unwrap();
        found["stages_ms"].get("lower").is_some()
    }

    fn entries(&self) -> Vec<PathBuf> {
        let Ok(files) = fs::read_dir(self.folder()) else {
            return vec![];
        };
        let mut all: Vec<_> = files.map(|f| f.unwrap().path()).collect();
        all.sort();
        all
    }

    fn listed(&self) -> Value {
        let ran = self.fxc(&["cache", "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        serde_json::from_str(&ran.out).unwrap()
    }
}

const X: &str = "x:f32[3,4]=rand:1";

#[test]
fn the_second_start_compiles_nothing() {
    let place = Place::new();
    let first = place.run("m.fxir", &[]);
    assert_eq!((first.code, place.entries().len()), (0, 1), "{}", first.err);
    let second = place.run("m.fxir", &[]);
    assert_eq!((second.out, second.err), (first.out, String::new()));
    assert!(!place.compiles("m.fxir", &[X]));
    // What decides about code: options, types, processors, the model itself.
    for more in [
        &["--exact"][..],
        &["--precision", "bf16"],
        &["--fast-math"],
        &["--skip-pass", "cse"],
        &["--target", "x86-64-v2"],
    ] {
        let more = [&[X], more].concat();
        assert!(place.compiles("m.fxir", &more), "{more:?}");
        assert!(!place.compiles("m.fxir", &more), "{more:?}");
    }
    assert!(place.compiles("m.fxir", &["x:f32[5,4]=rand:1"]));
    place.dir.file("m.fxir", MODEL.replace("relu", "sigmoid"));
    assert!(place.compiles("m.fxir", &[X]));
    // Not: the name of the file, the number of threads.
    place.dir.file("other.fxir", MODEL);
    assert!(!place.compiles("other.fxir", &[X, "--threads", "1"]));
}

#[test]
fn weights_are_part_of_a_model() {
    let place = Place::new();
    place.dir.file(
        "m.fxir",
        MODEL
            .replace("call_function torch.ones([4, 4])", "get_attr w")
            .replace("graph", "weights \"w.safetensors\"\n\ngraph"),
    );
    let weights = |value: f32| {
        let head = r#"{"w":{"dtype":"F32","shape":[4,4],"data_offsets":[0,64]}}"#;
        let data = [value; 16].map(f32::to_le_bytes).concat();
        let bytes = [&(head.len() as u64).to_le_bytes()[..], head.as_bytes(), &data].concat();
        place.dir.file("w.safetensors", bytes);
    };
    weights(1.0);
    let ones = place.run("m.fxir", &[]);
    assert_eq!(ones.code, 0, "{}", ones.err);
    weights(2.0);
    let twos = place.run("m.fxir", &[]);
    assert_ne!(ones.out, twos.out);
    weights(1.0);
    assert_eq!(place.run("m.fxir", &[]).out, ones.out);
    assert_eq!(place.entries().len(), 2);
}

#[test]
fn archives_are_read_when_the_cache_has_no_code() {
    let place = Place::new();
    let data = |name: &str| fs::read(root().join("tests/data").join(name)).unwrap();
    place.dir.file("m.pt2", data("mlp.pt2"));
    let inputs = place.dir.file("x.safetensors", data("mlp.safetensors"));
    let run = || place.fxc(&["run", "m.pt2", "--inputs", &inputs]);
    let first = run();
    assert_eq!((first.code, place.entries().len()), (0, 1), "{}", first.err);
    let second = run();
    assert_eq!((second.code, &second.out), (0, &first.out), "{}", second.err);
    // The entry has the inputs of the model, which other calls are bound to; their code needs the archive.
    let exact = place.fxc(&["run", "m.pt2", "--inputs", &inputs, "--exact", "--check"]);
    assert_eq!((exact.code, &exact.out), (0, &first.out), "{}", exact.err);
    let exact = place.fxc(&["run", "m.pt2", "--inputs", &inputs, "--exact"]);
    assert_eq!(
        (exact.code, &exact.out, place.entries().len()),
        (0, &first.out, 2),
        "{}",
        exact.err
    );
}

#[test]
fn damaged_entries_are_replaced() {
    let place = Place::new();
    let want = place.run("m.fxir", &[]).out;
    let entry = place.entries().remove(0);
    let sound = fs::read(&entry).unwrap();
    let middle = sound.len() / 2;
    let mut damaged = vec![vec![], b"text".to_vec(), sound[..middle].to_vec(), vec![0; sound.len()]];
    for at in [8, 70, middle, sound.len() - 20] {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x55;
        damaged.push(bytes);
    }
    for bytes in damaged {
        fs::write(&entry, &bytes).unwrap();
        let ran = place.run("m.fxir", &[]);
        assert_eq!((ran.code, &ran.out, &*ran.err), (0, &want, ""));
        assert_eq!(place.entries(), std::slice::from_ref(&entry));
        assert!(!place.compiles("m.fxir", &[X]), "the entry is sound again");
    }
    // An entry of another model under this name does not fit, and goes.
    place.run("m.fxir", &["--exact"]);
    let other = place.entries().into_iter().find(|e| *e != entry).unwrap();
    fs::copy(&other, &entry).unwrap();
    let ran = place.run("m.fxir", &[]);
    assert_eq!((ran.code, &ran.out, &*ran.err), (0, &want, ""));
}

#[test]
fn entries_that_were_not_used_for_longest_go_first() {
    let place = Place::new();
    let model = |i: usize| format!("m{i}.fxir");
    for i in 0..3 {
        place
            .dir
            .file(&model(i), MODEL.replace("relu", ["relu", "abs", "neg"][i]));
    }
    assert!(place.compiles("m0.fxir", &[X]));
    let age = |path: &PathBuf, hours: u64| {
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(3600 * hours))
            .unwrap();
    };
    age(&place.entries()[0], 3);
    let one = fs::metadata(&place.entries()[0]).unwrap().len();
    assert!(place.compiles("m1.fxir", &[X]));
    place.entries().iter().for_each(|e| age(e, 2));
    // A use of the first makes it the youngest.
    assert!(!place.compiles("m0.fxir", &[X]));
    let small = Place {
        env: vec![("FXC_CACHE_SIZE", format!("{}", one * 5 / 2))],
        dir: place.dir,
    };
    assert!(small.compiles("m2.fxir", &[X]));
    assert_eq!(small.entries().len(), 2);
    assert!(!small.compiles("m0.fxir", &[X]));
    assert!(!small.compiles("m2.fxir", &[X]));
    assert!(small.compiles("m1.fxir", &[X]));
    // What is larger than the cache is not kept.
    let tiny = Place::with("FXC_CACHE_SIZE", "100");
    assert_eq!(tiny.run("m.fxir", &[]).code, 0);
    assert!(tiny.entries().is_empty());
}

#[test]
fn processes_may_compile_a_model_at_the_same_time() {
    let place = Place::new();
    let start = || {
        place
            .command(&["run", "m.fxir", X])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
    };
    let all: Vec<_> = (0..4).map(|_| start().unwrap()).collect();
    let all: Vec<Ran> = all.into_iter().map(|c| c.wait_with_output().unwrap().into()).collect();
    for ran in &all {
        assert_eq!((ran.code, &ran.out, &*ran.err), (0, &all[0].out, ""));
    }
    assert_eq!(place.entries().len(), 1);
    assert!(!place.compiles("m.fxir", &[X]));
}

#[test]
fn users_turn_the_cache_off() {
    let place = Place::new();
    assert_eq!(place.run("m.fxir", &["--no-cache"]).code, 0);
    assert!(!place.folder().exists());
    for (name, value) in [("FXC_CACHE", "off"), ("FXC_CACHE", "OFF"), ("FXC_CACHE_SIZE", "0")] {
        let place = Place::with(name, value);
        let ran = place.run("m.fxir", &[]);
        assert_eq!((ran.code, &*ran.err), (0, ""));
        assert!(!place.folder().exists(), "{name}={value}");
    }
    let wrong = Place::with("FXC_CACHE_SIZE", "much").run("m.fxir", &[]);
    assert!(
        wrong.code == 0 && wrong.err.contains("FXC_CACHE_SIZE is `much`"),
        "{}",
        wrong.err
    );
}

/// The commands that say what the compiler does need it to do it.
#[test]
fn what_the_passes_do_is_shown_each_time() {
    let place = Place::new();
    place.run("m.fxir", &[]);
    let shown = [&["--print-after", "cse"][..], &["--time-passes"], &["--print-changed"]];
    for more in shown {
        let ran = place.run("m.fxir", more);
        assert!(ran.code == 0 && !ran.err.is_empty(), "{more:?}");
    }
}

#[test]
fn warnings_are_given_at_each_start() {
    let place = Place::new();
    place.dir.file(
        "m.fxir",
        MODEL.replace("    output", "    %unused = call_function torch.neg(%y)\n    output"),
    );
    for _ in 0..2 {
        let ran = place.run("m.fxir", &["--message-format", "json"]);
        assert_eq!((ran.code, codes(&ran.err)), (0, vec!["L0001".to_string()]));
    }
}

#[test]
fn buffers_given_for_a_call_are_not_the_models() {
    let place = Place::new();
    place.dir.file(
        "m.fxir",
        MODEL
            .replace("    %w =", "    %b = get_attr b\n    %w =")
            .replace("torch.relu(%y)", "torch.add(%y, %b)")
            .replace("graph", "const b : f32[] = 0.0\n\ngraph"),
    );
    let plain = place.run("m.fxir", &[]);
    assert_eq!(plain.code, 0, "{}", plain.err);
    let other = place.run("m.fxir", &["buffer.b=100.0"]);
    assert_eq!(other.code, 0, "{}", other.err);
    assert_ne!(plain.out, other.out);
    assert_eq!(place.run("m.fxir", &[]).out, plain.out);
    assert_eq!(place.entries().len(), 1);
}

#[cfg(unix)]
#[test]
fn only_the_user_may_write_to_the_folder() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.run("m.fxir", &[]);
    let mode = |mode: u32| fs::set_permissions(place.folder(), fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(
        fs::metadata(place.folder()).unwrap().permissions().mode() & 0o777,
        0o700
    );
    for open in [0o777, 0o720, 0o702] {
        mode(open);
        let ran = place.run("m.fxir", &[]);
        assert!(
            ran.code == 0 && ran.err.contains("other users may write to it"),
            "{}",
            ran.err
        );
        assert_eq!(codes(&place.fxc(&["--message-format", "json", "cache"]).err), ["E0701"]);
    }
    mode(0o700);
    // A folder in which nothing can be written.
    let place = Place::new();
    place.dir.file("cached", "a file");
    let ran = place.run("m.fxir", &[]);
    assert!(ran.code == 0 && ran.err.contains("it is not a folder"), "{}", ran.err);
    let place = Place::with("FXC_CACHE_DIR", "/dev/null/none");
    let ran = place.run("m.fxir", &[]);
    assert_eq!((ran.code, &*ran.err), (0, ""));
}

#[test]
fn the_cache_is_shown_and_cleared() {
    let place = Place::new();
    let empty = place.fxc(&["cache"]);
    assert!(
        empty.code == 0 && empty.out.contains("0 compiled models"),
        "{}",
        empty.out
    );
    place.run("m.fxir", &[]);
    let listed = place.listed();
    assert_eq!(listed["folder"], place.folder().display().to_string());
    assert_eq!(listed["entries"][0]["model"], "m");
    assert_eq!(listed["entries"][0]["inputs"][0], "f32[3, 4]");
    let shown = place.fxc(&["cache"]).out;
    assert!(
        shown.contains("1 compiled model,") && shown.contains("m(f32[3, 4])"),
        "{shown}"
    );
    // Of what else is in the folder, only what interrupted processes left is removed.
    place.dir.file("cached/.a.fxc.1-0.fxc.tmp", "left");
    place.dir.file("cached/notes.txt", "mine");
    assert_eq!(place.fxc(&["cache", "--clear"]).code, 0);
    assert_eq!(place.entries(), [place.folder().join("notes.txt")]);
}
