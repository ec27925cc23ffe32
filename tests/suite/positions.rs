//! Locations in the user's Python: if a model, in any form, says where its nodes are from, so does every diagnostic,
//! remark, kernel and profile row.

use crate::support::{Dir, fxc_in};

const READABLE: &str = r#"class M(torch.nn.Module):
    def forward(self, x: "f32[4, 8]"):
        # File: model.py:9 in forward, code: y = torch.relu(x) * 1
        relu: "f32[4, 8]" = torch.ops.aten.relu.default(x);  x = None
        mul: "f32[4, 8]" = torch.ops.aten.mul.Tensor(relu, 1);  relu = None

        # File: model.py:10 in forward, code: return y.softmax(-1)
        softmax: "f32[4, 8]" = torch.ops.aten.softmax.int(mul, -1);  mul = None
        return softmax
"#;

const PROGRAM: &str = r#"ExportedProgram:
    class GraphModule(torch.nn.Module):
        def forward(self, x: "f32[4, 8]"):
            # File: model.py:9 in forward, code: y = torch.relu(x) * 1
            relu: "f32[4, 8]" = torch.ops.aten.relu.default(x);  x = None
            mul: "f32[4, 8]" = torch.ops.aten.mul.Tensor(relu, 1);  relu = None

            # File: model.py:10 in forward, code: return y.softmax(-1)
            softmax: "f32[4, 8]" = torch.ops.aten.softmax.int(mul, -1);  mul = None
            return (softmax,)

Graph signature:
    # inputs
    x: USER_INPUT

    # outputs
    softmax: USER_OUTPUT

Range constraints: {}
"#;

/// A `forward` with comments as torch writes them: gm.code itself has none.
const CODE: &str = r#"def forward(self, x : "f32[4, 8]"):
    # File: model.py:9 in forward, code: y = torch.relu(x) * 1
    relu = torch.relu(x);  x = None
    mul = relu * 1;  relu = None
    # File: model.py:10 in forward, code: return y.softmax(-1)
    softmax = mul.softmax(-1);  mul = None
    return softmax
"#;

const SCRIPT: &str = r"graph(%self : __torch__.M,
      %x : Float(4, 8, strides=[8, 1], requires_grad=0, device=cpu)):
  %2 : int = prim::Constant[value=1]() # model.py:9:0
  %3 : int = prim::Constant[value=-1]() # model.py:10:0
  %4 : NoneType = prim::Constant()
  %relu : Float(4, 8, strides=[8, 1], requires_grad=0, device=cpu) = aten::relu(%x) # model.py:9:0
  %mul : Float(4, 8, strides=[8, 1], requires_grad=0, device=cpu) = aten::mul(%relu, %2) # model.py:9:0
  %softmax : Float(4, 8, strides=[8, 1], requires_grad=0, device=cpu) = aten::softmax(%mul, %3, %4) # model.py:10:0
  return (%softmax)
";

/// The same as torch2fxir writes it.
const FXIR: &str = r#"graph main {
    %x : f32[4, 8] = placeholder x
    %relu = call_function torch.relu(%x)  loc("model.py":9 in forward)
    %mul = call_function operator.mul(%relu, 1)  loc("model.py":9 in forward)
    %softmax = call_method softmax(%mul, -1)  loc("model.py":10 in forward)
    output %softmax
}
"#;

const RULES: &str = "
rewrite mul_one(%x) {
    %r = call_function mul(%x, 1)
    output %r
} => {
    output %x
}
rewrite nearly(%x) {
    %r = call_function abs(%x)
    %s = call_function softmax(%r, -1)
    output %s
} => {
    output %x
}
";

/// Checks that `text`, the output for `what`, contains all of `wanted`.
#[track_caller]
fn says(what: &str, text: &str, wanted: &[&str]) {
    for w in wanted {
        assert!(text.contains(w), "{what}: no `{w}` in\n{text}");
    }
}

fn reports(dir: &Dir, file: &str) {
    let run = |args: &[&str]| {
        let ran = fxc_in(&dir.0, args);
        assert_eq!(ran.code, 0, "{file} {args:?}\n{}\n{}", ran.out, ran.err);
        ran.out + &ran.err
    };
    let rewritten = run(&["rewrite", file, "--rules", "rules.fxir", "--remarks"]);
    says(file, &rewritten, &["mul_one: fired at `%mul` (model.py:9)"]);
    says(file, &rewritten, &["nearly: near match at `%softmax` (model.py:10)"]);
    let optimized = run(&["opt", file, "--remarks"]);
    says(file, &optimized, &["mul_one: fired at `%mul` (model.py:9)"]);
    let fused = run(&["compile", file, "--explain-fusion"]);
    says(file, &fused, &["\n  from model.py:9", "model.py:10"]);
    let profile = run(&["bench", file, "x=ones", "--profile", "--seconds", "0.01"]);
    says(file, &profile, &["softmax", "model.py:9", "model.py:10"]);
    for stage in ["kernels", "clif", "asm"] {
        says(file, &run(&["emit-code", file, "--stage", stage]), &["model.py:10"]);
    }
}

#[test]
fn every_report_names_the_line() {
    let dir = Dir::new("positions");
    let write =
        |name: &str, text: &str| std::fs::write(dir.0.join(name), text).expect("a file in a directory of the test");
    write("rules.fxir", RULES);
    for (name, text) in [
        ("readable.txt", READABLE),
        ("program.txt", PROGRAM),
        ("code.py", CODE),
        ("script.txt", SCRIPT),
        ("model.fxir", FXIR),
    ] {
        write(name, text);
        reports(&dir, name);
        // Nothing is lost in conversion to FXIR.
        let again = format!("{name}.again.fxir");
        assert_eq!(fxc_in(&dir.0, &["print", name, "-o", &again]).code, 0);
        reports(&dir, &again);
        // Diagnostics of errors and of unused nodes give the line.
        let wrong = format!("wrong.{name}");
        write(&wrong, &text.replace("-1", "7"));
        let ran = fxc_in(&dir.0, &["check", &wrong]);
        assert_eq!(ran.code, 1, "{name}");
        says(name, &ran.err, &["error[E0302]", "`%softmax` comes from model.py:10"]);
        write(
            &wrong,
            &text
                .replace("return softmax", "return x")
                .replace("(%softmax)", "(%x)")
                .replace("output %softmax", "output %x"),
        );
        if name != "program.txt" {
            says(
                name,
                &fxc_in(&dir.0, &["check", "--lints", &wrong]).err,
                &["warning[L0001]", "`%softmax` comes from model.py:10"],
            );
        }
    }
}

#[test]
fn archives_name_the_lines_of_the_model() {
    let pt2 = "tests/data/mlp.pt2";
    let run = |args: &[&str]| {
        let ran = fxc_in(crate::support::root(), args);
        assert_eq!(ran.code, 0, "{args:?}\n{}", ran.err);
        ran.out + &ran.err
    };
    let wanted = ["data/make_pt2.py:29", "data/make_pt2.py:31"];
    says(
        "profile",
        &run(&[
            "bench",
            pt2,
            "--dim",
            "s77=4",
            "x=ones",
            "--profile",
            "--seconds",
            "0.01",
        ]),
        &wanted,
    );
    let dir = Dir::new("positions-of-archives");
    let rules = dir.0.join("rules.fxir");
    std::fs::write(&rules, RULES).expect("a file in a directory of the test");
    let remarks = run(&["rewrite", pt2, "--remarks", "--rules", &rules.to_string_lossy()]);
    says(
        "remarks",
        &remarks,
        &["nearly: near match at `%softmax` (data/make_pt2.py:31)"],
    );
    says(
        "fusion",
        &run(&["compile", pt2, "--dim", "s77=4", "--explain-fusion"]),
        &["from data/make_pt2.py:31"],
    );
    says(
        "kernels",
        &run(&["emit-code", pt2, "--dim", "s77=4", "--stage", "kernels"]),
        &wanted,
    );
}
