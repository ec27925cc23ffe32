//! Commands end to end: exit codes, formats, files, pipes, damaged and hostile input.

use crate::support::{Dir, codes, command, files, fxc, fxc_in, root};
use std::io::{Read, Write};
use std::process::Stdio;

const RELU: &str =
    "graph main {\n    %x : f32[2, 3] = placeholder x\n    %y = call_function relu(%x)\n    output %y\n}\n";

#[test]
fn exit_codes_are_those_documented() {
    let dir = Dir::new("exit");
    let good = dir.file("good.fxir", RELU);
    let bad = dir.file("bad.fxir", RELU.replace("relu", "rleu"));
    assert_eq!(fxc(&["check", &good]).code, 0);
    assert_eq!(fxc(&["check", &bad]).code, 1);
    assert_eq!(fxc(&["check", "no/such/file.fxir"]).code, 2);
    assert_eq!(fxc(&["frobnicate"]).code, 2);
    assert_eq!(
        fxc(&["run", &good, "x=rand:0", "--outputs", "no/such/dir/out.npz"]).code,
        2
    );
    assert_eq!(fxc(&["run", &good, "x=rand:0"]).code, 0);
    assert_eq!(fxc(&["run", &good]).code, 1);
}

/// The numbers that torch draws after `torch.manual_seed(0)` for a transpose, whose memory order differs from the order
/// of its dims.
#[test]
fn draws_go_in_the_order_of_memory() {
    let dir = Dir::new("draws");
    let text = "%x : f32[2, 3] = placeholder x\n%t = call_method t(%x)\n%r = call_function torch.rand_like(%t)\n\
                %d = call_function torch.nn.functional.dropout(%t, 0.5, True)\n%c = call_method clone(%t)\n\
                %u = call_method random_(%c, 9)\noutput (%r, %d, %u)\n";
    let path = dir.file("draws.fxir", text);
    for how in ["--threads=1", "--interpret"] {
        let ran = fxc(&["run", &path, "x=ones", "--seed", "0", how]);
        let rows: Vec<&str> = ran
            .out
            .lines()
            .filter_map(|l| l.split("]  ").last())
            .map(str::trim)
            .collect();
        let want = [
            "0.49626 0.13203 0.76822 0.30742 0.08848 0.63408",
            "0 2 0 2 0 0",
            "5 2 3 8 8 2",
        ];
        assert_eq!(rows, want, "{how}: {}", ran.err);
    }
}

#[test]
fn json_is_one_object_per_finding_and_nothing_else() {
    let dir = Dir::new("json");
    let text = "graph main {\n    %x : f32[2, 3] = placeholder x\n    %y = call_function rleu(%x)\n    %z = call_method transpos(%x, 0, 1)\n    output (%y, %z)\n}\n";
    let path = dir.file("two.fxir", text);
    let ran = fxc(&["check", &path, "--message-format", "json"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert_eq!(codes(&ran.err), ["E0201", "E0201"]);
    let first: serde_json::Value = serde_json::from_str(ran.err.lines().next().unwrap()).unwrap();
    assert_eq!((first["line"].as_u64(), first["column"].as_u64()), (Some(3), Some(24)));
    assert_eq!(first["file"].as_str(), Some(path.as_str()));
    let short = fxc(&["check", &path, "--message-format", "short"]);
    assert_eq!(
        short.err.lines().count(),
        3,
        "two findings and the summary: {}",
        short.err
    );
    assert!(short.err.ends_with(": 2 errors\n"), "{}", short.err);
    let sarif = fxc(&["check", &path, "--message-format", "sarif"]);
    let doc: serde_json::Value = serde_json::from_str(&sarif.err).unwrap();
    assert_eq!(doc["runs"][0]["results"].as_array().unwrap().len(), 2);
}

#[test]
fn colour_is_only_where_asked_for() {
    let dir = Dir::new("colour");
    let bad = dir.file("bad.fxir", RELU.replace("relu", "rleu"));
    assert!(!fxc(&["check", &bad]).err.contains('\u{1b}'));
    assert!(fxc(&["check", &bad, "--color", "always"]).err.contains("\u{1b}["));
}

#[test]
fn a_model_can_come_from_standard_input() {
    let run = |args: &[&str], input: &str| {
        let mut child = command(root(), args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        crate::support::Ran::from(child.wait_with_output().unwrap())
    };
    let ran = run(&["run", "-", "x=ones"], RELU);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.out, "output.0   f32[2, 3]            1 1 1 1 1 1\n");
    let printed = run(&["print", "-", "--format", "torch"], RELU);
    assert!(printed.out.starts_with("graph():\n    %x "), "{}", printed.out);
    let bad = run(&["check", "-"], "graph main { output %x }");
    assert!(bad.err.contains("<stdin>:1:"), "{}", bad.err);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = command(root(), &["ops", "--format", "markdown"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0u8; 8];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut first).unwrap();
    drop(out);
    let ran = crate::support::Ran::from(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn fmt_is_idempotent_and_check_changes_nothing() {
    let dir = Dir::new("fmt");
    let untidy = "# kept\ngraph main {%x:f32[2,3]=placeholder x # and this\n %y=call_function relu(%x) output %y}";
    let path = dir.file("a.fxir", untidy);
    let check = fxc(&["fmt", "--check", &path]);
    assert_eq!(check.code, 1);
    assert!(check.out.contains("+    %y = call_function relu(%x)"), "{}", check.out);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), untidy);
    assert_eq!(fxc(&["fmt", &path]).code, 0);
    let once = std::fs::read_to_string(&path).unwrap();
    assert!(once.starts_with("# kept\n") && once.contains("# and this"), "{once}");
    assert_eq!(fxc(&["fmt", "--check", &path]).code, 0);
    assert_eq!(fxc(&["fmt", &path]).code, 0);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), once);
    let broken = dir.file("broken.fxir", "graph main { output (");
    assert_eq!(fxc(&["fmt", &broken]).code, 1);
    assert_eq!(std::fs::read_to_string(&broken).unwrap(), "graph main { output (");
}

#[test]
fn the_examples_are_formatted() {
    let list = [files("examples", ".fxir"), files("examples/digits", ".fxir")].concat();
    let names: Vec<String> = list.iter().map(|p| p.display().to_string()).collect();
    let args: Vec<&str> = ["fmt", "--check"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    let ran = fxc(&args);
    assert_eq!(ran.code, 0, "{}", ran.out);
}

#[test]
fn torch_text_prints_back_byte_for_byte() {
    let ran = fxc(&["print", "examples/torch_print.txt", "--format", "torch"]);
    assert_eq!(
        ran.out,
        std::fs::read_to_string(root().join("examples/torch_print.txt")).unwrap()
    );
}

#[test]
fn printed_fxir_is_the_same_model() {
    let dir = Dir::new("print");
    let out = dir.0.join("copy.fxir").display().to_string();
    let weights = dir.0.join("copy.safetensors").display().to_string();
    let ran = fxc(&[
        "print",
        "examples/digits/digits.fxir",
        "-o",
        &out,
        "--weights",
        &weights,
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let args = |model| {
        [
            "run",
            model,
            "--inputs",
            "examples/digits/images.npz",
            "--labels",
            "labels",
        ]
    };
    let (a, b) = (fxc(&args("examples/digits/digits.fxir")), fxc(&args(&out)));
    assert_eq!((a.code, b.code), (0, 0), "{}{}", a.err, b.err);
    assert_eq!(a.out, b.out);
    let doc: serde_json::Value = serde_json::from_str(&fxc(&["print", &out, "--format", "json"]).out).unwrap();
    assert_eq!(doc["graphs"][0]["nodes"][0]["op"], "placeholder");
}

#[test]
fn digits_meets_97_percent_of_the_labels() {
    let ran = fxc(&[
        "run",
        "examples/digits/digits.fxir",
        "--inputs",
        "examples/digits/images.npz",
        "--labels",
        "labels",
        "--check",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let line = ran
        .out
        .lines()
        .find(|l| l.starts_with("labels"))
        .expect("a line on labels");
    let met: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(line.contains(" of 360 correct") && met >= 0.97 * 360.0, "{line}");
}

#[test]
fn results_are_saved_and_compared() {
    let dir = Dir::new("expect");
    let model = dir.file("m.fxir", RELU);
    for kind in ["npz", "safetensors", "npy"] {
        let out = dir.0.join(format!("out.{kind}")).display().to_string();
        assert_eq!(fxc(&["run", &model, "x=randn:3", "--outputs", &out]).code, 0);
        if kind != "npy" {
            let same = fxc(&["run", &model, "x=randn:3", "--expect", &out]);
            assert_eq!(same.code, 0, "{}", same.err);
            let other = fxc(&["run", &model, "x=randn:4", "--expect", &out, "--message-format", "json"]);
            assert_eq!((other.code, codes(&other.err)), (1, vec!["E0506".to_string()]));
        }
    }
    let npy = dir.0.join("out.npy").display().to_string();
    let given = format!("x={npy}");
    let again = fxc(&[
        "run",
        &model,
        &given,
        "--interpret",
        "--expect",
        &dir.0.join("out.npz").display().to_string(),
    ]);
    assert_eq!(again.code, 0, "relu of relu is relu: {}", again.err);
}

#[test]
fn inputs_that_do_not_fit_are_told_by_name() {
    let run = |args: &[&str]| {
        let all: Vec<&str> = ["--message-format", "json", "run", "examples/digits/digits.fxir"]
            .iter()
            .chain(args)
            .copied()
            .collect();
        let ran = fxc(&all);
        (ran.code, codes(&ran.err))
    };
    let one = |c: &str| (1, vec![c.to_string()]);
    assert_eq!(run(&["x:f64[2,1,8,8]=zeros"]), one("E0503"));
    assert_eq!(run(&["x:f32[2,8,8]=zeros"]), one("E0504"));
    assert_eq!(run(&["x:f32[2,3,8,8]=zeros"]), one("E0504"));
    assert_eq!(run(&["y:f32[2,1,8,8]=zeros"]).0, 1);
    assert_eq!(run(&["x=zeros"]), one("E0304"));
    assert_eq!(run(&["x=zeros", "--dim", "N=2"]), (0, vec![]));
    assert_eq!(run(&["x=zeros", "--dim", "M=2"]).0, 1);
}

#[test]
fn damaged_weights_are_findings() {
    let dir = Dir::new("weights");
    let text = std::fs::read_to_string(root().join("examples/digits/digits.fxir")).unwrap();
    let whole = std::fs::read(root().join("examples/digits/digits.safetensors")).unwrap();
    let model = dir.file("digits.fxir", text);
    let check = |bytes: &[u8]| {
        dir.file("digits.safetensors", bytes);
        let ran = fxc(&["check", &model, "--message-format", "json"]);
        (ran.code, codes(&ran.err))
    };
    assert_eq!(check(&whole), (0, vec![]));
    for n in [0, 4, 8, 100, whole.len() / 2, whole.len() - 1] {
        let (code, found) = check(&whole[..n]);
        assert_eq!((code, found), (1, vec!["E0407".to_string()]), "cut at {n}");
    }
    let mut header = whole.clone();
    header[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(check(&header), (1, vec!["E0407".to_string()]));
    // Change the shape. The header is JSON, so an edit of the same length keeps the file valid.
    let from = b"\"shape\":[64,128]";
    let at = whole.windows(from.len()).position(|w| w == from).expect("fc1.weight");
    let mut shape = whole.clone();
    shape[at..at + from.len()].copy_from_slice(b"\"shape\":[128,64]");
    let (code, found) = check(&shape);
    assert_eq!(
        (code, found.iter().all(|c| c == "E0406" || c == "E0302")),
        (1, true),
        "{found:?}"
    );
}

#[test]
fn hostile_texts_end_in_a_finding() {
    let dir = Dir::new("hostile");
    let mut many = String::from("graph main {\n    %x0 : f32[1] = placeholder x\n");
    for i in 0..5000 {
        many.push_str(&format!("    %y{i} = call_function nothing{i}(%x0)\n"));
    }
    many.push_str("    output %x0\n}\n");
    let cases = [
        ("parens", format!("graph main {{ output {} }}", "(".repeat(100_000)), "E0008"),
        ("closed", format!("graph main {{ output {}1{} }}", "(".repeat(100_000), ")".repeat(100_000)), "E0008"),
        ("types", format!("graph main {{ %x : {}int = placeholder x output %x }}", "(".repeat(100_000)), "E0008"),
        ("minus", format!("graph main {{ output {}1 }}", "- ".repeat(100_000)), "E0008"),
        (
            "sizes",
            "graph main { %x : f32[4294967296, 4294967296, 4294967296] = placeholder x output %x }".to_string(),
            "E0306",
        ),
        (
            "product",
            "graph main { %x : f32[9223372036854775807] = placeholder x %y = call_method repeat(%x, 4, 4) output %y }".to_string(),
            "E0306",
        ),
        (
            "cycle",
            "graph main { %x = placeholder x %y = call_function b(%x) output %y } graph b { %x = placeholder x %y = call_function main(%x) output %y }".to_string(),
            "E0111",
        ),
        ("many", many, "E0201"),
        ("empty", String::new(), "E0113"),
        ("bytes", "\u{1}\u{feff}\u{202e}\u{feff}\u{202e}\u{feff}\u{202e}\u{feff}\u{202e} ".repeat(100), "E0002"),
    ];
    for (name, text, code) in cases {
        let path = dir.file(&format!("{name}.fxir"), text);
        let ran = fxc(&["check", &path]);
        assert_eq!(ran.code, 1, "{name}: {}", ran.err);
        assert!(
            ran.err.contains(&format!("error[{code}]")),
            "{name} wants {code}:\n{}",
            &ran.err[..ran.err.len().min(2000)]
        );
        assert!(
            ran.err.len() < 200_000,
            "{name}: {} bytes of diagnostics",
            ran.err.len()
        );
    }
}

#[test]
fn compile_reports_and_emits() {
    let dir = Dir::new("compile");
    let asm = dir.0.join("a.asm").display().to_string();
    let emit = format!("asm={asm}");
    let ran = fxc(&["compile", "examples/mlp.fxir", "--emit", &emit, "--emit", "optimized"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for word in ["nodes", "passes", "kernels", "arena", "ms"] {
        assert!(ran.err.contains(word), "{word} is not in\n{}", ran.err);
    }
    assert!(ran.out.contains("graph mlp"), "{}", ran.out);
    assert!(std::fs::metadata(&asm).unwrap().len() > 0);
}

/// Whether the machine has the features that every target needs.
fn is_v2() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("sse4.2") && std::is_x86_feature_detected!("popcnt");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[test]
fn targets_give_the_same_results_with_their_own_instructions() {
    let dir = Dir::new("targets");
    let wide = dir.0.join("wide.fxir");
    let text = "graph g {\n    %x : f32[8, 256] = placeholder x\n    %y = call_function torch.softmax(%x, -1)\n    output %y\n}\n";
    std::fs::write(&wide, text).unwrap();
    let wide = wide.display().to_string();
    let with = |target: &str, args: &[&str]| fxc(&[args, &["--target", target][..]].concat());
    let mut ran_any = false;
    for (target, bits) in [
        ("x86-64-v2", "128 bits"),
        ("x86-64-v3", "256 bits"),
        ("x86-64-v4", "512 bits"),
    ] {
        let ran = with(target, &["run", "examples/mlp.fxir", "x=rand:1", "--check"]);
        if ran.code == 2 && ran.err.contains("this machine has no") {
            eprintln!("skipped: {target}: {}", ran.err);
            continue;
        }
        ran_any = true;
        assert_eq!(ran.code, 0, "{target}: {}", ran.err);
        let ran = with(target, &["run", &wide, "x=rand:1", "--check"]);
        assert_eq!(ran.code, 0, "{target}: {}", ran.err);
        let ran = with(target, &["bench", &wide, "x=rand:1", "--seconds", "0", "--profile"]);
        assert!(
            ran.code == 0 && ran.out.contains(bits),
            "{target}: {}{}",
            ran.out,
            ran.err
        );
        let ran = with(target, &["emit-code", &wide, "--stage", "asm"]);
        assert_eq!(
            ran.out.contains("vaddps"),
            target != "x86-64-v2",
            "{target}: {}",
            ran.out
        );
    }
    assert!(ran_any || !is_v2(), "every target was skipped");
    assert_eq!(with("native", &["run", "examples/mlp.fxir", "x=rand:1"]).code, 0);
    let ran = with("native-avx512f-avx2", &["run", &wide, "x=rand:1", "--check"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = with("native+avx1024", &["run", &wide, "x=rand:1"]);
    assert!(
        ran.code == 2 && ran.err.contains("`avx1024` is not a feature"),
        "{}",
        ran.err
    );
    let ran = with("pentium", &["run", "examples/mlp.fxir", "x=rand:1"]);
    assert!(ran.code == 2 && ran.err.contains("x86-64-v3"), "{}", ran.err);
}

#[test]
fn bench_prints_what_measuring_programs_read() {
    let ran = fxc(&[
        "bench",
        "examples/mlp.fxir",
        "x=rand:1",
        "--threads",
        "1",
        "--seconds",
        "0.05",
        "--json",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let v: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    for key in ["median_ms", "min_ms", "first_ms"] {
        assert!(v[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert!(v["min_ms"].as_f64() <= v["median_ms"].as_f64());
    for key in ["weights", "packed", "arena", "code"] {
        assert!(v["memory_bytes"][key].is_u64(), "{key}");
    }
    assert!(v["memory_bytes"]["weights"].as_u64() > Some(0));
    assert!(v["memory_bytes"]["peak"].is_u64() || !cfg!(target_os = "linux"));
    assert!(v["peak_rss_mb"].is_u64() || !cfg!(target_os = "linux"));
}

#[test]
fn sizes_that_depend_on_values_compile_and_are_measured() {
    let dir = Dir::new("values");
    let model = dir.0.join("values.fxir");
    let text = "graph main {\n    %x : f32[4] = placeholder x\n    %e = call_function torch.exp(%x)\n    \
        %m = call_function operator.gt(%e, 1)\n    %y = call_function torch.masked_select(%e, %m)\n    output %y\n}\n";
    std::fs::write(&model, text).unwrap();
    let model = model.display().to_string();
    let ran = fxc(&["compile", &model]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.err.contains("interpreted 1 operation") && ran.err.contains("L0003"),
        "{}",
        ran.err
    );
    let ran = fxc(&["bench", &model, "x=randn:1", "--seconds", "0.01", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let v: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (v["interpreted"].as_u64(), v["kernels"].as_u64()),
        (Some(1), Some(1)),
        "{}",
        ran.out
    );
    assert_eq!(fxc(&["run", &model, "x=randn:1", "--check"]).code, 0);
}

#[test]
fn small_commands_work() {
    for args in [
        &["passes"][..],
        &["completions", "bash"],
        &["man"],
        &["ops", "torch.add"],
        &["ops", "--format", "json"],
        &["--version"],
    ] {
        let ran = fxc(args);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
        assert!(!ran.out.is_empty());
    }
    assert_eq!(fxc(&["ops", "torch.ad"]).code, 1);
    let dir = Dir::new("man");
    assert_eq!(fxc_in(&dir.0, &["man", "-o", "."]).code, 0);
    assert!(dir.0.join("fxc-run.1").exists());
}
