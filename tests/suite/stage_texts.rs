//! Every stage of one softmax as text. What fxc reads back gives the same text and the same program again; ARCHITECTURE.md lists
//! which texts these are.

use crate::support::Dir;
use fxc::internals::driver::text::Artifact;
use fxc::internals::driver::{Compilation, Dims, Request, Session, Stage, compile};
use fxc::internals::kernel::Kernel;
use fxc::internals::lower::ir::Tir;
use fxc::internals::lower::lower_tir;

const MODEL: &str = "graph main {
    %x : f32[N, 8] = placeholder x
    %y = call_function torch.softmax(%x, -1)
    output %y
}
";

/// The stages whose text is FXIR, in order.
const GRAPHS: [Artifact; 4] = [Artifact::Ast, Artifact::Graph, Artifact::Typed, Artifact::Optimized];

/// Compiles a text for four rows, up to the program.
fn lowered(dir: &Dir, text: &str, artifacts: &[Artifact]) -> Compilation {
    let file = dir.file("softmax.fxir", text);
    let mut session = Session::new();
    let model = session.load(&file).expect("it is valid");
    let request = Request {
        dims: Dims::from([("N".to_string(), 4)]),
        threads: 1,
        artifacts: artifacts.to_vec(),
        until: Some(Stage::Lower),
        ..Request::default()
    };
    compile(&mut session, model, &request).expect("it compiles")
}

#[test]
fn graphs_of_all_stages_are_read_back() {
    let dir = Dir::new("stage-graphs");
    for stage in GRAPHS {
        let text = lowered(&dir, MODEL, &[stage]).texts.remove(0).1;
        assert!(text.starts_with("graph main"), "{text}");
        let again = lowered(&dir, &text, &[stage]).texts.remove(0).1;
        assert_eq!(again, text, "{stage:?}");
    }
}

#[test]
fn tensor_ir_of_all_steps_is_read_back_and_gives_the_same_program() {
    let dir = Dir::new("stage-tir");
    let made = lowered(&dir, MODEL, &[Artifact::Tir]);
    let program = made.program.expect("it is lowered");
    let text = &made.texts[0].1;
    // A comment with the step's name begins the text of each step.
    let steps: Vec<&str> = text.split("// ").skip(1).collect();
    assert!(steps[0].starts_with("read\n"), "{text}");
    let bodies = steps
        .iter()
        .map(|s| s.split_once('\n').expect("a name and a text").1.trim());
    let bodies: Vec<&str> = bodies.filter(|b| b.starts_with('%')).collect();
    assert!(!bodies.is_empty());
    for body in bodies {
        let tir = Tir::parse(body).unwrap_or_else(|e| panic!("{e}\n{body}"));
        assert_eq!(tir.to_string().trim(), body);
        let again = lower_tir(tir).unwrap_or_else(|e| panic!("{e:?}"));
        let texts = |kernels: &[Kernel]| kernels.iter().map(unnamed).collect::<Vec<_>>();
        assert_eq!(texts(&again.kernels), texts(&program.kernels), "{body}");
    }
}

/// A kernel's text without the names of the graph's nodes, which tensor IR does not have.
fn unnamed(k: &Kernel) -> String {
    let lines = k.to_string();
    let words = |l: &str| {
        let kept = l.split(' ').filter(|w| !w.starts_with('@'));
        kept.collect::<Vec<_>>().join(" ")
    };
    lines.lines().skip(1).map(words).collect::<Vec<_>>().join("\n")
}

#[test]
fn kernels_are_read_back() {
    let dir = Dir::new("stage-kernels");
    let made = lowered(&dir, MODEL, &[Artifact::KernelIr]);
    let program = made.program.expect("it is lowered");
    let [kernel] = &program.kernels[..] else {
        panic!("a softmax is one kernel: {program}");
    };
    let text = made.texts[0].1.trim();
    assert_eq!(unnamed(kernel), KERNEL.trim(), "{text}");
    let again = Kernel::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(again.to_string().trim(), text);
}

/// The maximum, the exponentials with their sum, and the quotients.
const KERNEL: &str = "
in x: f32[4, 8]
out y: f32[4, 8]
local y_row3: f32[8]
parallel for i0 in 4 {
    v0: f32 = f32(-inf)
    vector for i1 in 8 {
        v1: f32 = x[8 * i0 + i1]
        reduce max v1 from v0 to v2: f32
    }
    v3: f32 = f32(0.0)
    vector for i2 in 8 {
        v4: f32 = x[8 * i0 + i2]
        v5: f32 = sub(v4, v2)
        v6: f32 = exp(v5) share
        y_row3[i2] = v6
        reduce add v6 from v3 to v7: f32
    }
    vector for i3 in 8 {
        v8: f32 = y_row3[i3]
        v9: f32 = f32(1.0)
        v10: f32 = div(v9, v7)
        v11: f32 = mul(v8, v10)
        y[8 * i0 + i3] = v11
    }
}
";
