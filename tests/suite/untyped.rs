//! Graphs without type declarations: the command line may provide types, and the errors if nothing does.

use crate::support::{Dir, fxc, root};
use fxc::diag::{Code, Diagnostic};
use fxc::graph::Arg;
use fxc::internals::driver::{Dims, Fill, Function, Given, Provided, Request, Session, bind};
use fxc::interp::Interpreter;
use fxc::types::{DType, Val};
use std::fmt::Write;

/// Bare statements without types.
const BARE: &str = "%x = placeholder x\n%y = placeholder y\n%add = call_function add(%x, %y)\n%z = call_function F.relu(%add)\noutput %z\n";

const TYPES: [&str; 2] = ["x:f32[2, 3]", "y:f32[3]"];

fn with<'a>(args: &[&'a str], inputs: &[&'a str]) -> Vec<&'a str> {
    args.iter().chain(inputs).copied().collect()
}

#[test]
fn every_command_takes_types_as_run_does() {
    let dir = Dir::new("types");
    let m = dir.file("m.fxir", BARE);
    let rules = dir.file(
        "r.fxir",
        "rewrite r(%a : f32[2, 3]) { %r = call_function relu(%a) output %r } => { %s = call_function sigmoid(%a) output %s }",
    );
    let commands: [&[&str]; 12] = [
        &["check", &m],
        &["compile", &m],
        &["emit-code", &m, "--stage", "asm"],
        &["emit-code", &m, "--stage", "optimized"],
        &["print", &m],
        &["print", &m, "--typed"],
        &["print", &m, "--fused", "--format", "dot"],
        &["opt", &m],
        &["opt", &m, "--bisect"],
        &["bisect", &m],
        &["bench", &m, "--seconds", "0.01"],
        &["rewrite", &m, "--rules", &rules],
    ];
    for command in commands {
        let ran = fxc(&with(command, &TYPES));
        assert_eq!(ran.code, 0, "{command:?}: {}", ran.err);
        assert!(!ran.err.contains("warning"), "{command:?}: {}", ran.err);
        if matches!(command[0], "print" | "opt" | "rewrite")
            && !command.contains(&"--fused")
            && !command.contains(&"--bisect")
        {
            assert!(
                ran.out.contains("%x : f32[2, 3] = placeholder x"),
                "{command:?}: {}",
                ran.out
            );
        }
        let wrong = fxc(&with(command, &["q:f32[2]"]));
        assert_eq!(wrong.code, 1, "{command:?} ignores an input that is none");
        assert!(
            wrong.err.contains("the graph has no input `q`"),
            "{command:?}: {}",
            wrong.err
        );
    }
    let rewritten = fxc(&with(&["rewrite", &m, "--rules", &rules], &TYPES));
    assert!(rewritten.out.contains("sigmoid"), "{}", rewritten.out);
    let ran = fxc(&["run", &m, "x:f32[2, 3]=ones", "y:f32[3]", "y=arange"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "output.0   f32[2, 3]            1 2 3 1 2 3\n"),
        "{}",
        ran.err
    );
}

#[test]
fn given_types_find_errors_and_bind_sizes() {
    let dir = Dir::new("types-errors");
    let m = dir.file("m.fxir", BARE);
    let ran = fxc(&["check", &m, "x:f32[2, 3]", "y:f32[4]"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("The size of tensor a (3) must match"), "{}", ran.err);
    let n = dir.file(
        "n.fxir",
        "graph main { %x : f32[N, 4] = placeholder x  %k = placeholder k  %y = call_function mul(%x, %k)  output %y }",
    );
    let ran = fxc(&["print", "--typed", &n, "x:f32[8, 4]", "k=3"]);
    for line in [
        "%x : f32[8, 4] = placeholder x",
        "%k : int = placeholder k",
        "%y : f32[8, 4] =",
    ] {
        assert!(ran.out.contains(line), "{line}: {}", ran.out);
    }
    for (given, said) in [
        ("x:f32[8, 5]", "must be f32[N, 4]"),
        ("x:f64[8, 4]", "must be f32[N, 4]"),
        ("x:f32[8", "is not a valid type"),
        ("x", "neither a type nor a value"),
    ] {
        let ran = fxc(&["print", &n, given]);
        assert_eq!(ran.code, 1, "{given}: {}", ran.err);
        assert!(ran.err.contains(said), "{given}: {}", ran.err);
    }
}

/// torch's results for modules of every class whose constructor implies the sizes of its weights, without weights, and
/// torch's errors.
#[test]
fn modules_declare_the_sizes_of_their_weights() {
    let dir = Dir::new("sizes");
    let text = std::fs::read_to_string(root().join("tests/data/module_sizes.txt")).unwrap();
    let cases: Vec<[&str; 3]> = text
        .lines()
        .map(|l| l.split(" | ").collect::<Vec<_>>().try_into().unwrap())
        .collect();
    let graphs: Vec<String> = cases.iter().enumerate().map(|(n, c)| module_graph(n, *c)).collect();
    let all = graphs.concat();
    let path = dir.file("m.fxir", &all);
    let ran = fxc(&["check", &path, "--message-format", "json"]);
    let found: Vec<serde_json::Value> = ran.err.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    for (n, case) in cases.iter().enumerate() {
        let before = &all[..all.find(&format!("%y{n} =")).unwrap()];
        let line = 1 + before.matches('\n').count() as u64;
        let refused = found
            .iter()
            .any(|d| d["severity"] == "error" && d["line"].as_u64() == Some(line));
        assert_eq!(refused, case[2] == "error", "{case:?}");
    }
    // `fxc print --typed` only prints types of a file without errors.
    let fit = || (0..cases.len()).filter(|&n| cases[n][2] != "error");
    let good = dir.file("good.fxir", fit().map(|n| graphs[n].as_str()).collect::<String>());
    let printed = fxc(&["print", "--typed", &good]);
    assert_eq!(printed.code, 0, "{}", printed.err);
    for n in fit() {
        let want = format!("%y{n} : {} = call_module m{n}(", cases[n][2]);
        assert!(printed.out.contains(&want), "{:?}", cases[n]);
    }
}

/// A graph that calls a module on inputs of these types.
fn module_graph(n: usize, [module, inputs, _]: [&str; 3]) -> String {
    let mut text = format!("module m{n} = {module}\ngraph g{n} {{\n");
    let mut names = vec![];
    for (i, ty) in inputs.split("; ").enumerate() {
        let _ = writeln!(text, "    %i{i} : {ty} = placeholder i{i}");
        names.push(format!("%i{i}"));
    }
    let _ = writeln!(
        text,
        "    %y{n} = call_module m{n}({})\n    output %y{n}\n}}",
        names.join(", ")
    );
    text
}

#[test]
fn missing_types_are_the_reason_that_is_stated() {
    let dir = Dir::new("reasons");
    let m = dir.file("m.fxir", BARE);
    let checked = fxc(&["check", &m]);
    assert_eq!(checked.code, 0, "{}", checked.err);
    let said = "5 nodes: 0 of 5 have types; `%x` and 1 other have no types: write `%x : f32[…]`, or pass `x:f32[…]`";
    assert!(checked.err.contains(said), "{}", checked.err);
    let half = fxc(&["check", &m, "x:f32[2]"]);
    assert!(
        half.err
            .contains("1 of 5 have types; `%y` has no type: write `%y : f32[…]`"),
        "{}",
        half.err
    );
    for (command, code) in [(vec!["compile", &m], 0), (vec!["emit-code", &m, "--stage", "asm"], 1)] {
        let ran = fxc(&command);
        assert_eq!(ran.code, code, "{}", ran.err);
        assert!(
            ran.err.contains("because `%x` and 1 other have no types"),
            "{}",
            ran.err
        );
        assert!(
            ran.err.contains("write `%x : f32[…]`, or pass `x:f32[…]`"),
            "{}",
            ran.err
        );
        assert!(!ran.err.contains("data-dependent"), "{}", ran.err);
    }
    let values = dir.file(
        "v.fxir",
        "%x : f32[3] = placeholder x\n%y = call_function torch.nonzero(%x)\noutput %y\n",
    );
    assert!(
        fxc(&["compile", &values])
            .err
            .contains("because of data-dependent sizes")
    );
    let number = dir.file(
        "n.fxir",
        "%x : f32[3] = placeholder x\n%n : int = placeholder n\n%y = call_method view(%x, %n)\noutput %y\n",
    );
    let ran = fxc(&["compile", &number]);
    assert!(
        ran.err.contains("the value of `%n` is unknown") && ran.err.contains("`n=3`"),
        "{}",
        ran.err
    );
    assert_eq!(fxc(&["compile", &number, "n=3"]).err.matches("warning").count(), 0);
    let weights = dir.file(
        "w.fxir",
        "module l = Linear(3, 4)\n%x : f32[3] = placeholder x\n%y = call_module l(%x)\noutput %y\n",
    );
    let checked = fxc(&["check", &weights]);
    assert!(checked.err.contains("all types inferred"), "{}", checked.err);
    assert!(
        checked.err.contains("`l.weight` and 1 other weight have no values"),
        "{}",
        checked.err
    );
}

/// Without a momentum, running statistics are means over all batches. The module counts the batches.
#[test]
fn statistics_without_momentum_are_means_over_all_batches() {
    let dir = Dir::new("cumulative");
    let text = |count: &str| {
        format!(
            "module bn = BatchNorm1d(1, momentum=None, affine=False, training=True)\nconst bn.running_mean : f32[1] = [7.0]\n\
             const bn.running_var : f32[1] = [2.0]\n{count}%x : f32[2, 1] = placeholder x\n%y = call_module bn(%x)\noutput %y\n"
        )
    };
    let counted = dir.file("bn.fxir", text("const bn.num_batches_tracked : i64[] = 3\n"));
    let ran = fxc(&["run", &counted, "x=arange", "--repeat", "2"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    // The batch has mean 0.5 and unbiased variance 0.5: (7 * 3 + 0.5 * 2) / 5, (2 * 3 + 0.5 * 2) / 5.
    for (name, want) in [
        ("num_batches_tracked", "5"),
        ("running_mean", "4.4"),
        ("running_var", "1.4"),
    ] {
        let line = ran.out.lines().find(|l| l.starts_with(&format!("buffer.bn.{name}")));
        assert!(
            line.is_some_and(|l| l.ends_with(&format!(" {want}"))),
            "{name}: {}",
            ran.out
        );
    }
    let ran = fxc(&["run", &dir.file("unknown.fxir", text("")), "x=arange"]);
    assert!(ran.err.contains("`num_batches_tracked`"), "{}", ran.err);
}

#[test]
fn training_mode_is_said_and_set() {
    let dir = Dir::new("training");
    let text = "Net(\n  (drop): Dropout(p=0.5, inplace=False)\n  (bn): BatchNorm1d(2, eps=1e-05, momentum=0.1, affine=False, \
                track_running_stats=False)\n)\n\n\n\ndef forward(self, x):\n    drop = self.drop(x);  x = None\n    return drop\n";
    let m = dir.file("m.txt", text);
    let plain = fxc(&["run", &m, "x:f32[6]=ones"]);
    assert!(
        plain
            .err
            .contains("`drop` (Dropout) and 1 other module compute in evaluation mode"),
        "{}",
        plain.err
    );
    assert_eq!(plain.out, "output.0   f32[6]               1 1 1 1 1 1\n");
    let trained = fxc(&["run", &m, "x:f32[6]=ones", "--training"]);
    assert!(!trained.err.contains("evaluation"), "{}", trained.err);
    assert!(
        trained.out.contains(" 0") && trained.out.contains(" 2"),
        "{}",
        trained.out
    );
    let printed = fxc(&["print", &m, "--training"]);
    assert!(
        printed
            .out
            .contains("module drop = Dropout(p=0.5, inplace=False, training=True)"),
        "{}",
        printed.out
    );
    let bn = dir.file(
        "bn.fxir",
        "module bn = BatchNorm1d(1, training=True)\nconst bn.weight : f32[1] = [2.0]\nconst bn.bias : f32[1] = [0.5]\n\
         const bn.running_mean : f32[1] = [7.0]\nconst bn.running_var : f32[1] = [3.0]\n\
         %x : f32[2, 1] = placeholder x\n%y = call_module bn(%x)\noutput %y\n",
    );
    let ran = fxc(&["run", &bn, "x=arange"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    // The batch has mean 0.5 and variance 0.25.
    let values = |name: &str| {
        ran.out
            .lines()
            .find(|l| l.starts_with(name))
            .map(|l| l.split("  ").last().unwrap().trim())
    };
    assert_eq!(values("output.0"), Some("-1.49996 2.49996"), "{}", ran.out);
    // 0.9 times the old value plus 0.1 times the batch's.
    assert_eq!(values("buffer.bn.running_mean"), Some("6.35"), "{}", ran.out);
    assert_eq!(values("buffer.bn.running_var"), Some("2.75"), "{}", ran.out);
    let lstm = dir.file(
        "lstm.fxir",
        "module l = LSTM(3, 4, 2, dropout=0.5, training=True)\n%x : f32[5, 3] = placeholder x\n%y = call_module l(%x)\noutput %y\n",
    );
    // Dropout between layers is drawn as in torch: the class has a training mode.
    let ran = fxc(&["check", &lstm]);
    assert!(ran.code == 0 && !ran.err.contains("evaluation"), "{}", ran.err);
}

/// Calls with one argument replaced by another kind: whatever `check` accepts runs, except for errors that depend on
/// values.
#[test]
fn check_accepts_nothing_that_run_refuses() {
    let text = std::fs::read_to_string(root().join("tests/data/opinfo.json")).unwrap();
    let data: serde_json::Value = serde_json::from_str(&text).unwrap();
    let other: [Arg; 12] = [
        Val::None,
        Val::Bool(true),
        Val::Float(1.5),
        Val::int(-1),
        Val::int(2),
        Val::int(100),
        Val::str("mean"),
        Val::str("x"),
        Val::List(vec![Val::int(1)]),
        Val::List(vec![]),
        Val::DType(DType::I64),
        Val::Tuple(vec![Val::int(0), Val::int(1)]),
    ];
    let mut accepted = 0;
    let mut refused = vec![];
    for (k, case) in data["cases"].as_array().unwrap().iter().enumerate().step_by(5) {
        let mut s = Session::new();
        let Ok(mut model) = s.load_text("m", case["text"].as_str().unwrap()) else {
            continue;
        };
        let graph = model.module.entry_mut().unwrap();
        let calls: Vec<_> = graph
            .iter()
            .filter(|&n| graph[n].op().is_call() && !graph[n].args().is_empty())
            .collect();
        let Some(&n) = calls.get(k % calls.len().max(1)) else {
            continue;
        };
        let mut args = graph[n].args().to_vec();
        let at = (k / 5) % args.len();
        args[at] = other[(k / 3) % other.len()].clone();
        graph.set_args(n, args);
        let statement = fxc::graph::print::print_node(graph, n);
        let names: Vec<String> = graph
            .placeholders()
            .iter()
            .map(|&p| graph[p].target().to_string())
            .collect();
        if s.check(&mut model.module, &[]).is_err() {
            continue;
        }
        accepted += 1;
        let provided = names.into_iter().map(|name| Provided {
            name,
            given: Given::Fill(Fill::Uniform(k as u64), None),
            origin: "the test".into(),
            must_match: true,
        });
        let (Some(bound), _) = bind::bind_inputs(&model.module, provided.collect(), Dims::new()) else {
            continue;
        };
        // An index out of range, a singular matrix, or not enough memory.
        let by_value = |d: &Diagnostic| matches!(d.code, Code::E0502 | Code::E0509 | Code::E0306);
        if let Err(d) = Interpreter::new(&model.module).run(bound.values.clone()) {
            if !by_value(&d) {
                refused.push(format!("{statement}: {}", d.title));
            }
            continue;
        }
        if k % 3 == 0 && Function::new(model, Request::default()).call(&mut s, &bound).is_err() {
            let errors = s.diagnostics.iter().filter(|d| d.is_error() && !by_value(d));
            refused.extend(errors.map(|d| format!("{statement}, compiled: {}", d.title)));
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(accepted > 40, "{accepted} calls are accepted");
}

#[test]
fn values_of_pythons_own_are_known_or_refused() {
    let run = |call: &str| {
        let dir = Dir::new("host");
        let m = dir.file(
            "m.fxir",
            format!(
                "%x : f32[1] = placeholder x\n%a = call_function {call}\n%y = call_function mul(%x, %a)\noutput %y\n"
            ),
        );
        let (checked, ran) = (fxc(&["check", &m]), fxc(&["run", &m, "x=ones"]));
        assert_eq!(checked.code, ran.code, "{call}: {} {}", checked.err, ran.err);
        (ran.code == 0).then(|| ran.out.split_whitespace().next_back().unwrap().to_string())
    };
    for (call, want) in [
        ("builtins.float(\"inf\")", Some("inf")),
        ("builtins.float(\" -1_0.5e1 \")", Some("-105")),
        ("builtins.float(\"abc\")", None),
        ("builtins.float(None)", None),
        ("builtins.int(\"3\")", Some("3")),
        ("builtins.int(\"3.5\")", None),
        ("builtins.bool([])", Some("0")),
        ("builtins.bool(\"a\")", Some("1")),
        ("operator.not_(None)", Some("1")),
        ("math.floor(\"a\")", None),
        ("math.prod([1.5, 2])", Some("3")),
        ("builtins.max(\"a\", 1)", None),
    ] {
        assert_eq!(run(call).as_deref(), want, "{call}");
    }
}
