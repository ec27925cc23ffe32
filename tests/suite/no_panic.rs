//! Any bytes give a result or a diagnostic: mutations of every text in the repository go through all checks.

use crate::support::{examples, files, root};
use fxc::diag::render::{Format, render};
use fxc::driver::Session;

/// Linear congruential numbers: the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

const PIECES: [&str; 36] = [
    "(",
    ")",
    "[",
    "{",
    "}",
    ",",
    "%",
    "%x",
    "@",
    "\"",
    "'",
    "-",
    "9223372036854775808",
    "1e400",
    "None",
    "f32[",
    "N",
    "call_function",
    "output",
    "\u{0}",
    "é",
    "\\",
    "//0",
    ":",
    "\n",
    "\n    ",
    "\n        class a(torch.nn.Module):\n",
    "def forward(self, x):\n",
    "self.",
    " = None",
    ";  x = ",
    "# File: ",
    "ExportedProgram:\n",
    "Graph signature:\n",
    "[value=",
    "prim::",
];

fn mutate(text: &str, r: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + r.below(4) {
        let (a, n) = (r.below(bytes.len()), r.below(12));
        let b = (a + n).min(bytes.len());
        match r.below(4) {
            0 => drop(bytes.drain(a..b)),
            1 => {
                let piece = bytes[a..b].to_vec();
                let at = r.below(bytes.len());
                bytes.splice(at..at, piece);
            }
            2 => drop(bytes.splice(a..b, PIECES[r.below(PIECES.len())].bytes())),
            _ => {
                if let Some(x) = bytes.get_mut(a) {
                    *x = r.below(256) as u8;
                }
            }
        }
        if bytes.is_empty() {
            bytes.push(b'(');
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn check(text: &str) {
    let mut s = Session::new();
    if let Ok(mut model) = s.load_text("mutant.fxir", text)
        && s.check(&mut model.module, &[]).is_ok()
    {
        let _ = fxc::graph::print(&model.module);
    }
    let list: Vec<_> = s.diagnostics.iter().collect();
    for format in [Format::Human, Format::Short, Format::Json, Format::Sarif] {
        render(&s.sources, &list, format, false);
    }
}

#[test]
fn mutants_of_every_text_are_results_or_diagnostics() {
    let mut texts: Vec<String> = files("tests/ui", ".fxir")
        .iter()
        .map(|p| std::fs::read_to_string(p).unwrap())
        .collect();
    texts.extend(
        examples()
            .iter()
            .map(|p| std::fs::read_to_string(root().join(p)).unwrap()),
    );
    // What torch prints, in each of its forms.
    for (dir, ext) in [
        ("tests/data", ".program"),
        ("tests/data", ".code"),
        ("src/syntax/testdata", ".txt"),
    ] {
        texts.extend(files(dir, ext).iter().map(|p| std::fs::read_to_string(p).unwrap()));
    }
    let mut r = Random(2026);
    for text in texts.iter().filter(|t| t.len() < 8000) {
        for _ in 0..40 {
            let mutant = mutate(text, &mut r);
            let result = std::panic::catch_unwind(|| check(&mutant));
            assert!(result.is_ok(), "this text panics:\n{mutant}");
        }
    }
}
