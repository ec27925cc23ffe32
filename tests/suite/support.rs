//! Helpers that the tests share.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The result of running the program.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(o: Output) -> Ran {
        let text = |b: Vec<u8>| String::from_utf8(b).expect("the program writes UTF-8");
        let ran = Ran {
            code: o.status.code().expect("the program exits"),
            out: text(o.stdout),
            err: text(o.stderr),
        };
        assert!(!ran.err.contains("panicked at"), "{}", ran.err);
        ran
    }
}

/// Runs fxc in the repository's root.
pub fn fxc(args: &[&str]) -> Ran {
    fxc_in(root(), args)
}

/// Runs fxc in a directory.
pub fn fxc_in(dir: &Path, args: &[&str]) -> Ran {
    command(dir, args).output().expect("the program starts").into()
}

/// A command for fxc, not started yet.
pub fn command(dir: &Path, args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_fxc"));
    c.current_dir(dir)
        .args(args)
        .stdin(Stdio::null())
        .env_remove("NO_COLOR")
        // Tests neither read nor fill the user's cache. Those of the cache set a folder of their own.
        .env("FXC_CACHE", "off")
        .env_remove("T0");
    c
}

/// Waits until a process ends. One that does not is killed, and the test fails.
pub fn wait_for(mut child: Child, what: &str) -> Output {
    let end = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("the process can be asked").is_none() {
        if Instant::now() > end {
            child.kill().expect("the process runs");
            panic!("{what} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("the process has ended")
}

/// Runs fxc in a directory, and fails if it does not end.
pub fn fxc_ends(dir: &Path, args: &[&str]) -> Ran {
    let mut command = command(dir, args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    wait_for(child.expect("the program starts"), &args.join(" ")).into()
}

/// A directory that is removed when this is dropped.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new(name: &str) -> Dir {
        // Tests run in parallel: each has its own directory, whatever its name.
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fxc-test-{}-{n}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    /// Writes a file to it. Returns the path as text.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The files of a directory with this extension, sorted.
pub fn files(dir: &str, ending: &str) -> Vec<PathBuf> {
    let mut list: Vec<PathBuf> = std::fs::read_dir(root().join(dir))
        .unwrap_or_else(|e| panic!("{dir}: {e}"))
        .map(|e| e.unwrap().path())
        .filter(|p| p.to_string_lossy().ends_with(ending))
        .collect();
    list.sort();
    assert!(!list.is_empty(), "no {ending} files in {dir}");
    list
}

/// The files of a directory and its subdirectories with this extension.
pub fn files_below(dir: &str, ending: &str) -> Vec<PathBuf> {
    let mut list = vec![];
    let mut open = vec![root().join(dir)];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false if path.to_string_lossy().ends_with(ending) => list.push(path),
                false => {}
            }
        }
    }
    list
}

/// The FXIR and torch texts among the examples, as paths within the repository.
pub fn examples() -> Vec<String> {
    let mut list = files("examples", ".fxir");
    list.extend(files("examples", ".txt"));
    list.extend(files("examples/digits", ".fxir"));
    list.iter()
        .map(|p| p.strip_prefix(root()).unwrap().display().to_string())
        .collect()
}

/// The fenced blocks of a Markdown text: the text after the fence, and the block.
pub fn fences(text: &str) -> Vec<(String, String)> {
    let mut out = vec![];
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let body: Vec<&str> = lines.by_ref().take_while(|l| *l != "```").collect();
            out.push((info.to_string(), body.join("\n") + "\n"));
        }
    }
    out
}

/// The codes of the findings that fxc wrote as JSON.
pub fn codes(json: &str) -> Vec<String> {
    let code = |l: &str| {
        let v: serde_json::Value = serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}"));
        v["code"].as_str().expect("a code").to_string()
    };
    json.lines().map(code).collect()
}

/// Writes a snapshot to a folder of the repository with Insta.
pub fn snapshot_in(folder: &str, name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root().join("snapshots").join(folder));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}
