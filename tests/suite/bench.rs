//! Options of `fxc bench`: several sizes in turn, and two models in turn.

use crate::support::{Dir, fxc};

#[test]
fn a_sweep_measures_each_size() {
    let args = [
        "bench",
        "examples/symbolic_batch.fxir",
        "x=rand:1",
        "--sweep",
        "N=1,3,8",
        "--seconds",
        "0.01",
    ];
    let ran = fxc(&args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let rows: Vec<Vec<&str>> = ran.out.lines().map(|l| l.split_whitespace().collect()).collect();
    let sizes: Vec<&str> = rows.iter().map(|r| r[0]).collect();
    assert_eq!(sizes, ["N", "1", "3", "8"], "{}", ran.out);
    // The time until ready, the first call, the median and the shortest.
    let times = |r: &[&str]| r[1..].iter().map(|t| t.parse().unwrap()).collect::<Vec<f64>>();
    assert!(
        rows[1..]
            .iter()
            .all(|r| times(r).len() == 4 && times(r).iter().all(|t| *t > 0.0)),
        "{}",
        ran.out
    );
    assert_eq!(
        fxc(&["bench", "examples/mlp.fxir", "x=rand:1", "--sweep", "1,2"]).code,
        2
    );
}

/// Two names of one size take their values together.
#[test]
fn sizes_are_swept_together() {
    let dir = Dir::new("together");
    let model = dir.file(
        "model.fxir",
        "graph main {\n    %x : f32[N, 2] = placeholder x\n    %y : f32[M, 2] = placeholder y\n    \
         %s = call_function torch.cat([%x, %y], 0)\n    output %s\n}\n",
    );
    let args = [
        "bench",
        &model,
        "x=ones",
        "y=ones",
        "--sweep",
        "N,M=2,4",
        "--seconds",
        "0.01",
    ];
    let ran = fxc(&args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.out.trim_start().starts_with("N,M ") && ran.out.lines().count() == 3,
        "{}",
        ran.out
    );
}

#[test]
fn two_models_are_called_in_turn() {
    let dir = Dir::new("against");
    let model = |name: &str, ops: &str| {
        let text = format!("graph main {{\n    %x : f32[64, 64] = placeholder x\n{ops}    output %y\n}}\n");
        dir.file(name, &text)
    };
    let one = model("one.fxir", "    %y = call_function torch.matmul(%x, %x)\n");
    let step = |to: &str, of: &str| format!("    %{to} = call_function torch.matmul(%{of}, %x)\n");
    let names = ["x", "a", "b", "c", "d", "e", "f", "g", "h", "i", "y"];
    let many = model(
        "many.fxir",
        &names.windows(2).map(|w| step(w[1], w[0])).collect::<String>(),
    );
    let run = |a: &str, b: &str, extra: &[&str]| {
        let args = [
            "bench",
            a,
            "--against",
            b,
            "x=rand:1",
            "--seconds",
            "0.05",
            "--threads",
            "1",
        ];
        let ran = fxc(&[&args, extra].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out
    };
    let text = run(&many, &one, &["--json"]);
    let v: serde_json::Value = serde_json::from_str(&text).unwrap();
    let times: Vec<f64> = (0..2).map(|i| v["models"][i]["min_ms"].as_f64().unwrap()).collect();
    let ratio = v["ratio"].as_f64().unwrap();
    assert!((ratio - times[0] / times[1]).abs() < 1e-9 && ratio > 2.0, "{text}");
    let text = run(&one, &many, &[]);
    assert!(
        text.lines().count() == 3 && text.contains("the first takes 0."),
        "{text}"
    );
    assert_ne!(fxc(&["bench", &one, "--against", "missing.fxir", "x=ones"]).code, 0);
}
