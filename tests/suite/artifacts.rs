//! Compiled models: a file's results equal those of its model, and damaged or unsuitable files are reported.

use crate::mutants::{Random, rounds, survives};
use crate::support::{Dir, Ran, codes, examples, files, fxc_in, root};
use fxc::diag::Code;
use fxc::internals::driver::{CompiledFile, Fill, Session, fill};
use fxc::types::{TensorType, Val};
use fxc::{Error, Input, Model, Options, Runner, RunnerError, RunnerOptions, Tensor, View};
use std::collections::BTreeSet;
use std::path::Path;

/// Values for all inputs of a model, with every symbolic size 2; `None` if the model does not declare the type of one.
fn inputs_of(model: &Model) -> Option<Vec<Tensor>> {
    let inputs = model.inputs().into_iter().map(|i| {
        let Val::Leaf(t) = i.ty? else { return None };
        let shape: Vec<usize> = t.shape?.iter().map(|d| d.as_const().unwrap_or(2) as usize).collect();
        let how = if t.dtype.is_float() {
            Fill::Uniform(7)
        } else {
            Fill::Ones
        };
        Some(fill::filled_tensor(t.dtype, &shape, how))
    });
    inputs.collect()
}

/// Options that bind every symbolic size of a model to 2.
fn options(model: &Model) -> Options {
    let mut names = BTreeSet::new();
    let types = model.inputs().into_iter().filter_map(|i| i.ty);
    let mut note = |t: &TensorType| {
        t.shape.iter().flatten().for_each(|d| {
            d.visit_vars(&mut |n| {
                names.insert(n.to_string());
            })
        })
    };
    types.for_each(|ty| ty.leaves().into_iter().for_each(&mut note));
    names
        .into_iter()
        .fold(Options::new().threads(2), |o, name| o.dim(name, 2))
}

/// The results of two calls. The second finds what the first left in buffers.
fn two_calls(model: &Model, options: &Options, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
    fxc::manual_seed(0);
    let mut session = model.compile(options)?.session();
    let mut all = vec![];
    for _ in 0..2 {
        let out = session.run(inputs.iter().map(|t| Input::from(t.clone())))?;
        all.extend(out.tensors().into_iter().cloned());
    }
    Ok(all)
}

/// [`two_calls`] of a compiled model's file without the compiler.
fn two_runs(file: &Path, inputs: &[Tensor]) -> Result<Vec<Tensor>, RunnerError> {
    let mut runner = Runner::open(file, &RunnerOptions::new().threads(2))?;
    let inputs: Vec<View> = inputs.iter().map(View::from).collect();
    let mut all = runner.run(&inputs)?;
    all.extend(runner.run(&inputs)?);
    Ok(all)
}

/// Saves a model in compiled form and compares calls of the file with calls of the model. Returns the number of native
/// parts in the file.
fn round_trip(path: &Path, dir: &Dir) -> usize {
    let Ok(model) = Model::open(path) else { return 0 };
    let (options, Some(inputs)) = (options(&model), inputs_of(&model)) else {
        return 0;
    };
    // Without types, or with inputs that it rejects, the model cannot run in any form.
    let Ok(want) = two_calls(&model, &options, &inputs) else {
        return 0;
    };
    let file = dir.0.join("model.fxc");
    model
        .save_compiled(&file, &options)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let opened = CompiledFile::open(&file).unwrap();
    opened
        .verify()
        .unwrap_or_else(|d| panic!("{}: {}", path.display(), d.title));
    let parts = opened.parts().len();
    let again = Model::open(&file).unwrap();
    let got =
        two_calls(&again, &options.fallback(parts == 0), &inputs).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(
        got.len() == want.len() && got.iter().zip(&want).all(|(a, b)| a.bit_eq(b)),
        "{}",
        path.display()
    );
    match two_runs(&file, &inputs) {
        Ok(got) => assert!(
            got.len() == want.len() && got.iter().zip(&want).all(|(a, b)| a.bit_eq(b)),
            "{} without the compiler",
            path.display()
        ),
        // Without native parts, or with ops whose code is not in the file.
        Err(e) => assert_eq!(e.code(), Code::E0604, "{}: {e}", path.display()),
    }
    // The file has the graphs that were saved.
    let text = |m: &Model| {
        fxc::graph::print(m.module())
            .lines()
            .filter(|l| !l.starts_with("weights "))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(text(&again), text(&model), "{}", path.display());
    parts
}

#[test]
fn compiled_models_run_as_the_models_do() {
    let dir = Dir::new("artifacts");
    let mut paths: Vec<_> = examples().into_iter().map(|p| root().join(p)).collect();
    paths.extend(files("tests/data", ".pt2"));
    let with_code = paths.iter().filter(|p| round_trip(p, &dir) > 0).count();
    assert!(with_code >= 16, "only {with_code} of {} files have code", paths.len());
}

fn compile(dir: &Dir, args: &[&str]) -> Ran {
    let ran = fxc_in(&dir.0, &[&["compile"], args].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran
}

const ROWS: &str = "dim N in 1..9
weights \"w.safetensors\"
param w : f32[4, 4]
graph main {
    %x : f32[N, 4] = placeholder x
    %w = get_attr w
    %y = call_function torch.matmul(%x, %w)
    %z = call_function torch.atan2(%y, %x)
    output {\"z\": %z}
}";

/// A model with a weight, a product and a call of one of fxc's functions, for two numbers of rows and two processors.
fn rows(dir: &Dir) -> String {
    let text = ROWS.replace("weights \"w.safetensors\"\n", "").replace(
        "param w : f32[4, 4]",
        "const w : f32[4, 4] = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 8, 7, 6], [5, 4, 3, 2]]",
    );
    dir.file("rows.fxir", text);
    compile(
        dir,
        &[
            "rows.fxir",
            "-o",
            "rows.fxc",
            "--at",
            "N=1,3",
            "--target",
            "x86-64-v2,native",
        ],
    );
    dir.0.join("rows.fxc").display().to_string()
}

#[test]
fn a_file_has_code_for_several_sizes_and_processors() {
    let dir = Dir::new("artifacts");
    rows(&dir);
    let info = fxc_in(&dir.0, &["info", "rows.fxc", "--json", "--verify"]);
    let info: serde_json::Value = serde_json::from_str(&info.out).unwrap();
    assert_eq!(info["native"].as_array().unwrap().len(), 4);
    let run = |model: &str, n: &str, more: &[&str]| {
        let size = format!("x:f32[{n},4]=randn:3");
        fxc_in(
            &dir.0,
            &[&["--message-format", "json", "run", model, &size], more].concat(),
        )
    };
    for n in ["1", "3"] {
        for more in [
            &[][..],
            &["--target", "x86-64-v2"],
            &["--threads", "1"],
            &["--threads", "3"],
        ] {
            let (want, got) = (
                run("rows.fxir", n, more),
                run("rows.fxc", n, &[&["--no-fallback"], more].concat()),
            );
            assert!(
                got.code == 0 && got.out == want.out && got.err.is_empty(),
                "{n} rows, {more:?}: {}",
                got.err
            );
        }
    }
    let refused = run("rows.fxc", "5", &["--no-fallback"]);
    assert_eq!((refused.code, codes(&refused.err)), (1, vec!["E0604".to_string()]));
    let anew = run("rows.fxc", "5", &[]);
    assert_eq!((anew.code, codes(&anew.err)), (0, vec!["L0004".to_string()]));
    assert_eq!(anew.out, run("rows.fxir", "5", &[]).out);
    // Options with which the code was not compiled, and options that need the graphs.
    for more in [
        &["--fast-math"][..],
        &["--exact"],
        &["--precision", "bf16"],
        &["--skip-pass", "cse"],
    ] {
        let anew = run("rows.fxc", "3", more);
        assert_eq!(
            (anew.code, codes(&anew.err)),
            (0, vec!["L0004".to_string()]),
            "{more:?}"
        );
    }
    for more in [&["--check"][..], &["--interpret"]] {
        assert_eq!(
            run("rows.fxc", "3", more).out,
            run("rows.fxir", "3", more).out,
            "{more:?}"
        );
    }
    // Sizes are checked against the model's declarations, as without a file.
    assert_eq!(
        codes(&run("rows.fxc", "10", &[]).err),
        codes(&run("rows.fxir", "10", &[]).err)
    );
}

#[test]
fn commands_take_a_compiled_model_as_they_take_the_model() {
    let dir = Dir::new("artifacts");
    rows(&dir);
    let both = |args: &[&str]| {
        let with = |model: &str| {
            let args: Vec<&str> = args.iter().map(|a| if *a == "MODEL" { model } else { a }).collect();
            fxc_in(&dir.0, &args)
        };
        let (want, got) = (with("rows.fxir"), with("rows.fxc"));
        assert_eq!((got.code, got.out), (want.code, want.out), "{args:?}: {}", got.err);
    };
    both(&["print", "MODEL"]);
    both(&["print", "MODEL", "--format", "torch"]);
    both(&["opt", "MODEL"]);
    both(&["check", "MODEL"]);
    both(&["emit-code", "MODEL"]);
    let bench = fxc_in(
        &dir.0,
        &[
            "bench",
            "rows.fxc",
            "x:f32[3,4]=ones",
            "--seconds",
            "0",
            "--json",
            "--no-fallback",
        ],
    );
    assert_eq!(bench.code, 0, "{}", bench.err);
}

#[test]
fn files_of_code_only_run_and_are_no_models() {
    let dir = Dir::new("artifacts");
    rows(&dir);
    let compiled = fxc_in(
        &dir.0,
        &["compile", "rows.fxir", "--at", "N=1,3", "--code-only", "-o", "code.fxc"],
    );
    assert_eq!(compiled.code, 0, "{}", compiled.err);
    let run = |model: &str| fxc_in(&dir.0, &["run", model, "x:f32[3,4]=rand:1"]);
    let (want, got) = (run("rows.fxir"), run("code.fxc"));
    assert_eq!((got.code, got.out, &*got.err), (0, want.out, ""));
    assert_eq!(fxc_in(&dir.0, &["info", "code.fxc", "--verify"]).code, 0);
    let graphs = [
        &["print", "code.fxc"][..],
        &["check", "code.fxc"],
        &["run", "code.fxc", "x:f32[3,4]=ones", "--check"],
        &["run", "code.fxc", "x:f32[5,4]=ones"],
        &["run", "code.fxc", "x:f32[3,4]=ones", "--exact"],
    ];
    for args in graphs {
        let refused = fxc_in(&dir.0, &[&["--message-format", "json"], args].concat());
        assert_eq!(
            (refused.code, codes(&refused.err)),
            (1, vec!["E0604".into()]),
            "{args:?}"
        );
    }
}

/// A section of a file: the offset of its table entry, its kind, and its bytes.
struct Section {
    entry: usize,
    kind: u32,
    bytes: std::ops::Range<usize>,
}

fn number(b: &[u8], at: usize, len: usize) -> usize {
    b[at..at + len].iter().rev().fold(0, |n, &x| n << 8 | x as usize)
}

fn sections(b: &[u8]) -> Vec<Section> {
    let (count, table) = (number(b, 12, 4), number(b, 16, 8));
    let one = |i: usize| {
        let entry = table + 32 * i;
        let at = number(b, entry + 8, 8);
        Section {
            entry,
            kind: number(b, entry, 4) as u32,
            bytes: at..at + number(b, entry + 16, 8),
        }
    };
    (0..count).map(one).collect()
}

/// Recomputes all checksums.
fn mend_checksums(b: &mut [u8]) {
    let all = sections(b);
    for s in &all {
        let crc = crc32fast::hash(&b[s.bytes.clone()]).to_le_bytes();
        b[s.entry + 24..s.entry + 28].copy_from_slice(&crc);
    }
    let table = number(b, 16, 8);
    let crc = crc32fast::hash(&b[table..table + 32 * all.len()]).to_le_bytes();
    b[32..36].copy_from_slice(&crc);
    let crc = crc32fast::hash(&b[..60]).to_le_bytes();
    b[60..64].copy_from_slice(&crc);
}

/// A file with one text replaced by another of the same length, with valid checksums.
fn edited(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut out = bytes.to_vec();
    let at: Vec<usize> = (0..out.len() - from.len())
        .filter(|&i| out[i..].starts_with(from.as_bytes()))
        .collect();
    assert!(!at.is_empty(), "{from}");
    at.into_iter()
        .for_each(|i| out[i..i + to.len()].copy_from_slice(to.as_bytes()));
    mend_checksums(&mut out);
    out
}

#[test]
fn parts_that_do_not_fit_are_left_alone() {
    let dir = Dir::new("artifacts");
    let bytes = std::fs::read(rows(&dir)).unwrap();
    let info = fxc_in(&dir.0, &["info", "rows.fxc", "--json"]);
    let info: serde_json::Value = serde_json::from_str(&info.out).unwrap();
    let build = info["native"][0]["fxc"].as_str().unwrap();
    let platform = info["native"][0]["platform"].as_str().unwrap();
    for (from, to) in [
        (build, build.replace("0.1.0", "0.0.9").as_str()),
        (platform, platform.replace("linux", "plan9").as_str()),
        ("\"sse3\"", "\"avx9\""),
        ("\"exact\":false", "\"exact\": true"),
    ] {
        if from == to {
            continue;
        }
        dir.file("other.fxc", edited(&bytes, from, to));
        let run = |more: &[&str]| {
            fxc_in(
                &dir.0,
                &[
                    &["--message-format", "json", "run", "other.fxc", "x:f32[3,4]=ones"],
                    more,
                ]
                .concat(),
            )
        };
        let anew = run(&[]);
        assert_eq!(
            (anew.code, codes(&anew.err)),
            (0, vec!["L0004".to_string()]),
            "{to}: {}",
            anew.err
        );
        let refused = run(&["--no-fallback"]);
        assert_eq!(
            (refused.code, codes(&refused.err)),
            (1, vec!["E0604".to_string()]),
            "{to}"
        );
        assert_eq!(fxc_in(&dir.0, &["info", "other.fxc", "--verify"]).code, 0, "{to}");
    }
    let newer = |b: &mut Vec<u8>| b[8] = 2;
    let mut bytes = bytes.clone();
    newer(&mut bytes);
    mend_checksums(&mut bytes);
    dir.file("newer.fxc", bytes);
    let refused = fxc_in(&dir.0, &["info", "newer.fxc"]);
    assert!(refused.code == 1 && refused.err.contains("format 2"), "{}", refused.err);
}

#[test]
fn names_and_contents_agree() {
    let dir = Dir::new("artifacts");
    let bytes = std::fs::read(rows(&dir)).unwrap();
    dir.file("rows.bin", &bytes);
    dir.file("text.fxc", ROWS);
    for model in ["rows.bin", "text.fxc"] {
        let ran = fxc_in(&dir.0, &["--message-format", "json", "run", model, "x:f32[3,4]=ones"]);
        assert_eq!(codes(&ran.err), ["E0409"], "{model}");
    }
    let ran = fxc_in(
        &dir.0,
        &[
            "--message-format",
            "json",
            "compile",
            "rows.fxir",
            "--dim",
            "N=1",
            "-o",
            "rows.bin",
        ],
    );
    assert_eq!(codes(&ran.err), ["E0702"]);
    assert_eq!(
        std::fs::read(dir.0.join("rows.bin")).unwrap(),
        bytes,
        "nothing was written"
    );
    let ran = fxc_in(
        &dir.0,
        &[
            "--message-format",
            "json",
            "compile",
            "rows.fxir",
            "--dim",
            "N=1",
            "-o",
            "none/rows.fxc",
        ],
    );
    assert_eq!(codes(&ran.err), ["E0702"]);
    let left = std::fs::read_dir(&dir.0).unwrap().map(|e| e.unwrap().file_name());
    let left: Vec<_> = left.filter(|n| n.to_string_lossy().ends_with(".tmp")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Reads all of a possibly damaged file: its description, its inputs, its graphs. Returns whether any damage is found.
fn finds_damage(path: &Path) -> bool {
    let mut session = Session::new();
    let name = path.display().to_string();
    let inputs = session.load_to_run(&name).is_err();
    let graphs = session.load(&name).is_err();
    let parts = CompiledFile::open(path).and_then(|f| f.verify()).is_err();
    inputs || graphs || parts
}

#[test]
fn damaged_files_are_diagnostics() {
    let dir = Dir::new("artifacts");
    let bytes = std::fs::read(rows(&dir)).unwrap();
    let path = dir.0.join("damaged.fxc");
    let check = |b: &[u8]| {
        std::fs::write(&path, b).unwrap();
        let mut found = false;
        survives(&|| format!("{} bytes: {b:x?}", b.len()), || found = finds_damage(&path));
        found
    };
    assert!(!check(&bytes));
    let all = sections(&bytes);
    for cut in all
        .iter()
        .flat_map(|s| [s.bytes.start, s.bytes.end, s.bytes.start + s.bytes.len() / 2])
        .chain([0, 1, 63, 64])
    {
        assert!(check(&bytes[..cut]), "cut at {cut}");
    }
    let mut r = Random(31);
    for _ in 0..rounds(60) {
        let mut b = bytes.clone();
        let at = r.below(b.len());
        b[at] ^= 1 << r.below(8);
        let gap = at >= 64 && at < number(&bytes, 16, 8) && !all.iter().any(|s| s.bytes.contains(&at));
        assert!(check(&b) || gap, "byte {at}");
    }
    for n in [8, 64, 100, 5000] {
        let noise: Vec<u8> = (0..n).map(|_| r.below(256) as u8).collect();
        assert!(check(&[&bytes[..8], &noise].concat()));
    }
}

/// Readers find the errors that checksums cannot reveal: numbers out of range, lengths beyond all memory.
#[test]
fn changed_files_whose_checksums_hold_are_results_or_diagnostics() {
    let dir = Dir::new("artifacts");
    let bytes = std::fs::read(rows(&dir)).unwrap();
    let path = dir.0.join("changed.fxc");
    let mut r = Random(37);
    let small: Vec<_> = sections(&bytes).into_iter().filter(|s| !s.bytes.is_empty()).collect();
    for _ in 0..rounds(400) {
        let mut b = bytes.clone();
        let s = r.pick(&small);
        for _ in 0..1 + r.below(3) {
            let at = s.bytes.start + r.below(s.bytes.len());
            b[at] = *r.pick(&[0, 1, 0x7f, 0x80, 0xff, b[at] ^ 1, b[at].wrapping_add(1), r.0 as u8]);
        }
        if r.below(8) == 0 {
            let at = s.entry + 8 + r.below(16);
            b[at] ^= 1 << r.below(8);
        }
        // If the table has wrong offsets, there are no checksums to recompute.
        let sound = sections(&b).iter().all(|s| s.bytes.end <= b.len());
        if sound {
            mend_checksums(&mut b);
        }
        std::fs::write(&path, &b).unwrap();
        survives(&|| format!("a change of section kind {}", s.kind), || {
            finds_damage(&path);
        });
    }
}
