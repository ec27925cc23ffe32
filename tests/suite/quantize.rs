//! `fxc quantize` writes graphs whose products read integers.

use crate::docs::is_excerpt;
use crate::support::{Dir, Ran, fences, fxc, fxc_in, root};

const DIGITS: &str = "examples/digits/digits.fxir";
const IMAGES: &str = "examples/digits/images.npz";

/// Quantizes the digits model with these options. Returns the written graph and what the command reported.
fn quantized(dir: &Dir, options: &[&str]) -> (String, Ran) {
    let out = dir.0.join("q.fxir").display().to_string();
    let ran = fxc(&[&["quantize", DIGITS, "-o", &out], options].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    (out, ran)
}

/// The number after the last `error of output.0: `.
fn result_error(ran: &Ran) -> f64 {
    let line = ran.err.lines().find_map(|l| l.strip_prefix("error of output.0: "));
    line.expect("a measured error").parse().expect("a number")
}

#[test]
fn a_quantized_model_is_smaller_and_still_right() {
    let dir = Dir::new("quantize");
    let cases: [(&str, &[&str], u64, f64); 3] = [
        ("int8", &[], 32_000, 0.02),
        ("int8", &["--activations", "int8-dynamic"], 32_000, 0.03),
        ("int4-g32", &[], 29_000, 0.2),
    ];
    for (format, options, most_bytes, most_error) in cases {
        // Inputs that are rounded in each call may differ by a step.
        let tolerance: &[&str] = match options {
            [] => &["--rtol", "1e-3"],
            _ => &["--rtol", "1e-3", "--atol", "2e-2"],
        };
        let options = [&["--weights", format, "--calibrate", IMAGES], options].concat();
        let (out, ran) = quantized(&dir, &options);
        let error = result_error(&ran);
        assert!(error > 0.0 && error < most_error, "{format}: {error}");
        let weights = std::fs::metadata(dir.0.join("q.safetensors")).unwrap().len();
        assert!(weights < most_bytes, "{format}: {weights}");
        let run = ["run", &out, "--inputs", IMAGES, "--labels", "labels", "--check"];
        let run = fxc(&[&run[..], tolerance].concat());
        assert_eq!(run.code, 0, "{format}: {}", run.err);
        let accuracy = run
            .out
            .lines()
            .find(|l| l.contains('%'))
            .unwrap_or_else(|| panic!("{}", run.out));
        let percent: f64 = accuracy
            .split(|c: char| !c.is_ascii_digit() && c != '.')
            .filter_map(|w| w.parse().ok())
            .next_back()
            .unwrap_or_else(|| panic!("{accuracy}"));
        assert!(percent > 95.0, "{format}: {accuracy}");
        assert_eq!(fxc(&["check", &out]).code, 0);
    }
}

#[test]
fn activations_are_integers_of_each_call() {
    let dir = Dir::new("quantize-activations");
    let plain = result_error(&quantized(&dir, &["--calibrate", IMAGES]).1);
    let (out, ran) = quantized(&dir, &["--activations", "int8-dynamic", "--calibrate", IMAGES]);
    assert!(result_error(&ran) > plain, "{}", ran.err);
    let text = std::fs::read_to_string(&out).unwrap();
    assert_eq!(text.matches("call_function aminmax(").count(), 1, "{text}");
    let ran = fxc(&["quantize", DIGITS, "-o", "q.fxir", "--activations", "int4"]);
    assert!(ran.code == 2 && ran.err.contains("int8-dynamic"), "{}", ran.err);
}

/// Runs a program of numpy with constants of a safetensors file, and compares the result with that of `fxc run`.
const NUMPY: &str = r#"
import json, sys
import numpy as np
code, weights, x, want = sys.argv[1:]
data = open(weights, "rb").read()
end = 8 + int.from_bytes(data[:8], "little")
dtypes = {"F32": np.float32, "F64": np.float64, "I8": np.int8, "I32": np.int32, "I64": np.int64, "U8": np.uint8}
constants = {}
for name, t in json.loads(data[8:end]).items():
    if name != "__metadata__":
        first, last = t["data_offsets"]
        constants[name] = np.frombuffer(data[end + first : end + last], dtypes[t["dtype"]]).reshape(t["shape"])
names = {}
exec(compile(open(code).read(), code, "exec"), names)
got, want = names["run"]([np.load(x)], constants), np.load(want)
assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max(), (got, want)
"#;

#[test]
fn the_numpy_form_multiplies_bytes() {
    let python = |args: &[&str]| std::process::Command::new("python3").args(args).output();
    if !python(&["-c", "import numpy"]).is_ok_and(|o| o.status.success()) {
        eprintln!("SKIPPED: python3 with numpy is not installed, so the numpy form is not run");
        return;
    }
    let dir = Dir::new("quantize-numpy");
    let (out, _) = quantized(&dir, &["--activations", "int8-dynamic"]);
    let path = |name: &str| dir.0.join(name).display().to_string();
    let [code, weights, x, want] = ["code.py", "w.safetensors", "x.npy", "want.npy"].map(path);
    let make = format!("import numpy as np; np.save({x:?}, np.random.default_rng(0).random((4, 1, 8, 8), np.float32))");
    assert!(python(&["-c", &make]).unwrap().status.success());
    let emit = [
        "emit-code",
        &out,
        "--stage",
        "kernels",
        "--dim",
        "N=4",
        "-o",
        &code,
        "--weights",
        &weights,
    ];
    assert_eq!(fxc(&emit).code, 0);
    assert_eq!(fxc(&["run", &out, &format!("x={x}"), "--outputs", &want]).code, 0);
    let ran = python(&["-c", NUMPY, &code, &weights, &x, &want]).unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn limits_and_names_keep_weights() {
    let dir = Dir::new("quantize-limits");
    let (_, ran) = quantized(&dir, &["--max-error", "1e-6"]);
    assert!(ran.err.contains("quantized: 0 of "), "{}", ran.err);
    let (_, ran) = quantized(&dir, &["--calibrate", IMAGES, "--max-error", "1e-9"]);
    assert!(
        ran.err.contains("kept: ") && ran.err.contains("quantized: 0 of "),
        "{}",
        ran.err
    );
    assert_eq!(result_error(&ran), 0.0);
    let (_, ran) = quantized(&dir, &["--skip", "fc1", "--skip", "none"]);
    assert!(ran.err.contains("kept: it is skipped"), "{}", ran.err);
    assert!(ran.err.contains("no product reads a weight `none`"), "{}", ran.err);
}

#[test]
fn wrong_options_are_reported() {
    let ran = fxc(&["quantize", DIGITS, "-o", "q.fxir", "--weights", "int3"]);
    assert!(ran.code == 2 && ran.err.contains("int4-gN"), "{}", ran.err);
    let ran = fxc(&["quantize", DIGITS, "-o", "/nowhere/q.fxir"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
}

/// The commands of docs/quantization.md print what the page shows.
#[test]
fn the_page_shows_what_is_printed() {
    let page = std::fs::read_to_string(root().join("docs/quantization.md")).unwrap();
    let dir = Dir::new("quantize-page");
    let mut shown = 0;
    for (_, block) in fences(&page).iter().filter(|(info, _)| info == "console") {
        for command in format!("\n{block}").split("\n$ ").skip(1) {
            let (command, text) = command.split_once('\n').unwrap_or((command, ""));
            let digits = root().join("examples").display().to_string();
            let command = command.replace("examples", &digits);
            let words: Vec<&str> = command.split_whitespace().skip(1).collect();
            let ran = fxc_in(&dir.0, &words);
            let written = format!("{}{}", ran.out, ran.err);
            assert!(is_excerpt(text, &written), "{command}\n{written}");
            shown += 1;
        }
    }
    assert_eq!(shown, 2);
}
