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
    // Inputs that are rounded again may differ by a step.
    let cases: [(&str, &[&str], u64, f64, &str); 3] = [
        ("int8", &[], 32_000, 0.02, "1e-3"),
        ("int8", &["--activations", "int8-dynamic"], 32_000, 0.03, "2e-2"),
        ("int4-g32", &[], 29_000, 0.2, "1e-3"),
    ];
    for (format, options, most_bytes, most_error, tolerance) in cases {
        let options = [&["--weights", format, "--calibrate", IMAGES], options].concat();
        let (out, ran) = quantized(&dir, &options);
        let error = result_error(&ran);
        assert!(error > 0.0 && error < most_error, "{format}: {error}");
        let weights = std::fs::metadata(dir.0.join("q.safetensors")).unwrap().len();
        assert!(weights < most_bytes, "{format}: {weights}");
        let run = fxc(&[
            "run", &out, "--inputs", IMAGES, "--labels", "labels", "--check", "--rtol", tolerance, "--atol", tolerance,
        ]);
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
