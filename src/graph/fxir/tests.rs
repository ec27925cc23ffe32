use crate::diag::{Code, Diagnostics};
use crate::graph::arbitrary::{module, module_difference, program};
use crate::graph::{GraphModule, build};
use crate::graph::{print, torch_print};
use crate::op::Literal;
use crate::source::FileId;
use crate::syntax::parse_text;

fn read(text: &str) -> (GraphModule, Diagnostics) {
    let (file, findings) = parse_text(FileId(0), text);
    assert!(findings.is_empty(), "{text}\n{findings:#?}");
    build(&file, "random")
}

fn codes(text: &str) -> Vec<(Code, String)> {
    read(text).1.iter().map(|d| (d.code, d.title.clone())).collect()
}

#[test]
fn printed_modules_read_back_the_same() {
    for seed in 0..400 {
        let m = module(seed);
        let text = print(&m);
        let (again, findings) = read(&text);
        assert!(findings.is_empty(), "seed {seed}\n{text}\n{findings:#?}");
        if let Some(d) = module_difference(&m, &again) {
            panic!("seed {seed}: {d}\n{text}");
        }
        assert_eq!(print(&again), text);
    }
}

#[test]
fn programs_read_back_the_same() {
    for seed in 0..50 {
        let m = GraphModule::new("main", program(seed, 20));
        let (again, findings) = read(&print(&m));
        assert!(findings.is_empty());
        assert_eq!(module_difference(&m, &again), None);
    }
}

#[test]
fn builds_the_whole_language() {
    let text = include_str!("../../syntax/testdata/language.fxir");
    let (m, findings) = read(text);
    let undefined: Vec<_> = findings.iter().map(|d| (d.code, &*d.title)).collect();
    assert_eq!(undefined, [(Code::E0101, "unknown placeholder `%x`")]);
    assert_eq!(m.modules["conv"].kwargs[2].1, Literal::str("circular"));
    let table = m.attributes["table"].value.as_ref().expect("written out");
    assert_eq!(table.as_slice::<i64>(), [1, -2, 3, i64::MIN]);
    assert_eq!(m.dims["M"].max, None);
    let g = &m.graphs["mlp"];
    assert_eq!(g.placeholders().len(), 4);
    let act = &g[g.find("act").expect("act")];
    assert_eq!(act.meta.loc.as_ref().map(|l| l.line), Some(13));
    let frames: Vec<_> = act
        .meta
        .frame
        .iter()
        .flat_map(|f| f.chain())
        .map(|f| f.loc.line)
        .collect();
    assert_eq!(frames, [13, 1]);
    assert_eq!(act.meta.modules[1].class_name(), "GELU");
    assert_eq!(act.meta.custom, [("a".into(), "b".into())]);
    assert_eq!(m.graphs["then_graph"].attribute.as_deref(), Some("then"));
    assert_eq!(m.exported.as_ref().map(|s| s.inputs.len()), Some(2));
    let kwargs = g.text(g.find("kwargs").expect("kwargs"));
    assert_eq!(kwargs.annotation.as_deref(), Some("typing.Any"));
}

#[test]
fn conditions_on_sizes_read_and_print() {
    let text = "dim N in 2..\ndim where N % 2 == 0\ndim where N*3 <= M\n\ngraph main {\n    %x : f32[N, M] = placeholder x\n    output %x\n}\n";
    let (m, findings) = read(text);
    assert!(findings.is_empty(), "{findings:?}");
    let size = |n: &str| Some(if n == "N" { 4 } else { 11 });
    let held: Vec<_> = m.guards.iter().map(|g| g.holds(&size)).collect();
    assert_eq!(held, [Some(true), Some(false)]);
    let printed = crate::graph::print(&m);
    assert!(
        printed.contains("dim where (N % 2) == 0\ndim where 3*N <= M\n"),
        "{printed}"
    );
    assert_eq!(read(&printed).0.guards, m.guards);
    let (_, findings) = read("dim where N + 1\ngraph g { output 1 }");
    assert!(findings.iter().any(|d| d.code == Code::E0016), "{findings:?}");
}

#[test]
fn reports_all_errors_at_once() {
    let text = "weights \"a\" weights \"b\"\nmodule m = ReLU() module m = ReLU()\nparam w : f32[2] buffer w : f33[2]\nconst c : i8[2] = [1, 300]\nconst d : f32[] = \"s\"\ndim N in 5..3\ngraph a { %x = placeholder x %y = call_function relu(%xx, k=%q, k=1) %y = get_attr w output (%z, %y) }\ngraph a { output () }";
    let found: Vec<String> = codes(text).into_iter().map(|(c, t)| format!("{c} {t}")).collect();
    assert_eq!(
        found,
        [
            "E0103 a second weights file",
            "E0103 module `m` is declared twice",
            "E0015 unknown element type `f33`",
            "E0103 attribute `w` is declared twice",
            "E0112 this is not a valid element of type i8",
            "E0112 this is not a valid element of type f32",
            "E0016 the range of `N` contains no valid size",
            "E0103 `%y` is defined twice",
            "E0101 undefined node `%xx`",
            "E0101 undefined node `%q`",
            "E0103 keyword argument `k` is given twice",
            "E0101 undefined node `%z`",
            "E0103 graph `a` is declared twice",
        ]
    );
}

#[test]
fn constants_fit_their_types() {
    for (text, title) in [
        ("const c : f32[2] = [1.0]", "found 1 element, but the type requires 2"),
        (
            "const c : f32[2] = 1.0",
            "the constant has fewer dimensions than its type",
        ),
        (
            "const c : f32[] = [1.0]",
            "the constant has more dimensions than its type",
        ),
        ("const c : f32[N] = [1.0]", "a constant's sizes must be known numbers"),
        ("const c : c64[] = 1.0", "fxc does not support computation with c64"),
        ("const c : int = 1", "a constant must be a tensor"),
        ("const c : b8[] = 2", "this is not a valid element of type b8"),
        ("const c : i32[] = 0.5", "this is not a valid element of type i32"),
        (
            "const c : f32[4611686018427387904, 4] = []",
            "the constant is too large",
        ),
    ] {
        assert_eq!(codes(text), [(Code::E0112, title.to_string())], "{text}");
    }
}

#[track_caller]
fn torch_round_trip(text: &str) -> GraphModule {
    let (m, findings) = read(text);
    assert!(findings.is_empty(), "{findings:#?}");
    let g = m.entry().expect("a graph");
    assert_eq!(torch_print::print(g, Some(&m)), text.trim_end_matches('\n'));
    m
}

#[test]
fn torchs_text_comes_back_byte_for_byte() {
    torch_round_trip(include_str!("../../syntax/testdata/print.txt"));
    torch_round_trip(include_str!("../../syntax/testdata/dynamo.txt"));
    torch_round_trip(include_str!("../../syntax/testdata/metadata.txt"));
    let core = torch_round_trip(include_str!("../../syntax/testdata/core_aten.txt"));
    let g = core.entry().expect("a graph");
    // Every use was found: the counts that torch printed are those of the graph.
    assert!(
        g.iter()
            .all(|n| g.text(n).torch.as_ref().is_some_and(|t| t.hidden_users == 0))
    );
    torch_round_trip(
        "graph(x, y : torch.Tensor):\n    %w : [uses=1] = self.linear.weight\n    %add_1 : [#users=1] = call_function[target=<built-in function add>](args = (%x, %w), kwargs = {})\n    %len_1 : [#users=1] = call_function[target=len](args = (%add_1,), kwargs = {})\n    return %add_1",
    );
    let m = torch_round_trip(
        "# Graph fragment:\n#   %arg2_1 : Tensor \"f32[4, 4][4, 1]cuda:0\" = PlaceHolder[target=arg2_1]\n#   %cos : Tensor \"f32[4, 4][4, 1]cuda:0\"[num_users=3] = call_function[target=torch.ops.aten.cos.default](args = (%arg2_1,), kwargs = {})\n#   return %cos,%arg2_1",
    );
    assert!(m.entry().is_some_and(|g| g[g.placeholders()[0]].meta.ty.is_some()));
}

#[test]
fn fragments_imply_their_inputs_and_results() {
    let text = "# Graph fragment:\n#   %relu : [num_users=1] = call_function[target=torch.ops.aten.relu.default](args = (%arg0_1,), kwargs = {})\n#   %add : [num_users=2] = call_function[target=torch.ops.aten.add.Tensor](args = (%relu, %arg1_1), kwargs = {})\n";
    let m = torch_round_trip(text);
    let g = m.entry().expect("a graph");
    let names: Vec<&str> = g.iter().map(|n| g[n].name()).collect();
    assert_eq!(names, ["arg0_1", "arg1_1", "relu", "add", "output"]);
    assert!(crate::graph::lint::lint(&m).is_empty());
}

/// The first block of an explain page shows the error; the last one has no errors.
#[test]
fn explain_pages_tell_the_truth() {
    let mine = |c: &&Code| c.name().starts_with("E00") || matches!(c, Code::E0101 | Code::E0112);
    for code in Code::ALL.iter().filter(mine) {
        let page = code.explanation();
        let blocks: Vec<&str> = page
            .split("```fxir\n")
            .skip(1)
            .map(|b| b.split("```").next().unwrap_or_default())
            .collect();
        assert_eq!(blocks.len(), 2, "{code}");
        let found = |text: &str| -> Vec<Code> {
            let (file, mut findings) = parse_text(FileId(0), text);
            findings.extend(build(&file, "page").1);
            findings.iter().map(|d| d.code).collect()
        };
        let bad = found(blocks[0]);
        assert!(!bad.is_empty() && bad.iter().all(|c| c == code), "{code}: {bad:?}");
        assert_eq!(found(blocks[1]), [], "{code}");
    }
}

#[test]
fn frames_and_scopes_stand_before_what_names_them() {
    let text = "frame f1 = f2 > \"a.py\":1\nframe f2 = \"a.py\":2\nframe f2 = \"a.py\":3\nscope s1 = s9 > a : B\ngraph g { %x = placeholder x  loc(frame=f3)  output %x }";
    let (_, findings) = read(text);
    let found: Vec<_> = findings.iter().map(|d| (d.code, &*d.title)).collect();
    let want = [
        (Code::E0101, "unknown frame `f2`"),
        (Code::E0103, "frame `f2` is declared twice"),
        (Code::E0101, "unknown scope `s9`"),
        (Code::E0101, "unknown frame `f3`"),
    ];
    assert_eq!(found, want);
    let chain = |n: usize, what: &str, rest: &str| -> String {
        let one = |i: usize| format!("{what} n{i} = n{} > {rest}\n", i - 1);
        format!("{what} n0 = {rest}\n") + &(1..n).map(one).collect::<String>() + "graph g { output 1 }"
    };
    for (what, rest) in [("frame", "\"a.py\":1"), ("scope", "a : B")] {
        let (_, findings) = read(&chain(1200, what, rest));
        assert!(findings.iter().any(|d| d.code == Code::E0008), "{what}");
    }
}
