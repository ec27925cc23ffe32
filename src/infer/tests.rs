use super::*;
use crate::graph::build;
use crate::source::{FileId, Sources};
use crate::syntax::parse_text;
use crate::types::Dim;
use crate::types::TensorType;

fn module(text: &str) -> GraphModule {
    let (file, d) = parse_text(FileId(0), text);
    assert!(!d.has_errors(), "{d:?}");
    let (m, d) = build(&file, "g");
    assert!(!d.has_errors(), "{d:?}");
    m
}

fn inferred(text: &str) -> (GraphModule, Inference) {
    let mut m = module(text);
    let i = infer_sizes(&mut m, &InferOptions::default());
    (m, i)
}

fn ty(m: &GraphModule, node: &str) -> String {
    let g = m.entry().unwrap();
    g[g.find(node).unwrap()].meta.ty.as_ref().unwrap().to_string()
}

/// The diagnostics as `CODE title` lines.
fn report(text: &str) -> Vec<String> {
    let (_, i) = inferred(text);
    i.diagnostics
        .iter()
        .map(|d| format!("{} {}", d.code, d.title))
        .collect()
}

#[test]
fn sizes_flow_through_views_and_python() {
    let (m, i) = inferred(
        "graph g {
            %x : f32[N, 4, 6] = placeholder x
            %n = call_method size(%x, 0)
            %m = call_function operator.mul(%n, 2)
            %v = call_method view(%x, %m, -1)
            %s = call_function builtins.getattr(%v, 'shape')
            %w = call_function operator.getitem(%s, 1)
            %z = call_function torch.zeros(%w, 3)
            %c = call_function torch.matmul(%v, %z)
            output %c
        }",
    );
    assert!(i.diagnostics.is_empty(), "{:?}", i.diagnostics);
    assert_eq!(ty(&m, "v"), "f32[2*N, 12]");
    assert_eq!(ty(&m, "c"), "f32[2*N, 3]");
}

#[test]
fn what_is_not_known_is_no_error() {
    let (_, i) = inferred(
        "graph g {
            %x = placeholder x
            %m = call_function torch.ops.aten.new_zeros.default(%x, [4, 4])
            %v = call_function torch.ops.aten.view.default(%m, [2, 2, 4])
            %s = call_function torch.ops.aten.as_strided.default(%x, [2], [1])
            %c = call_method is_contiguous(%x)
            %y : f32[2, 3] = placeholder y
            %l = call_function torch.nn.functional.gaussian_nll_loss(%y, %y, %x)
            output [%v, %s, %c, %l]
        }",
    );
    assert!(i.diagnostics.is_empty(), "{:?}", i.diagnostics);
}

#[test]
fn equations_bind_sizes_and_contradictions_name_both_places() {
    let text = "graph g {
            %x : f32[N, 8] = placeholder x
            %w : f32[4, 8] = placeholder w
            %v : f32[5, 8] = placeholder v
            %a = call_function add(%x, %w)
            output %a
        }";
    let (m, i) = inferred(text);
    assert_eq!(i.sizes, [("N".into(), Dim::Const(4))]);
    assert_eq!(ty(&m, "x"), "f32[4, 8]");
    let both = text.replace("output %a", "%b = call_function add(%x, %v) output %b");
    let (_, i) = inferred(&both);
    let d: Vec<_> = i.diagnostics.iter().collect();
    assert_eq!(d.len(), 1, "{d:?}");
    let mut sources = Sources::new();
    let file = sources.add("g", both.as_str());
    let at = |span: crate::source::Span| sources.text(crate::source::Span { file, ..span }).to_string();
    assert!(d[0].labels.iter().any(|l| at(l.span).contains("%b =")), "{d:?}");
    let why = d[0].labels.iter().find(|l| at(l.span).contains("%a =")).unwrap();
    assert!(why.text.contains("`N` to be 4"), "{why:?}");
}

/// A batch of vectors has the sizes of `A` without the last. The reading as matrices must not decide a size that the other leaves open.
#[test]
fn sizes_say_whether_a_right_hand_side_is_vectors() {
    let solve = |call: &str, a: &str, b: &str| {
        report(&format!(
            "graph g {{ %a : f32[{a}] = placeholder a\n%b : f32[{b}] = placeholder b\n%y = call_function {call}(%a, %b)\noutput %y }}"
        ))
    };
    for call in ["torch.linalg.solve", "torch.linalg.solve_ex"] {
        for (a, b) in [
            ("2, N, N", "2, N"),
            ("2, N, N", "N, 31"),
            ("2, N, N", "3, 31"),
            ("B, N, N", "B, N, 5"),
        ] {
            assert_eq!(solve(call, a, b), [""; 0], "{call} {a} and {b}");
        }
        let [open] = &solve(call, "2, N, N", "2, 31")[..] else {
            panic!("{call}: one error");
        };
        assert!(open.contains("E0304") && open.contains("batch of vectors"), "{open}");
    }
}

#[test]
fn one_mistake_is_one_report() {
    let lines = report(
        "graph g {
            %x : f32[2, 3] = placeholder x
            %w : f32[4, 5] = placeholder w
            %bad = call_function torch.matmul(%x, %w)
            %y = call_function relu(%bad)
            %z : f32[7, 7] = call_function add(%y, %y)
            %u = call_function add(%z, %x)
            output %u
        }",
    );
    // The annotation after the mistake is trusted, and checked.
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(
        lines[0].contains("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"),
        "{lines:#?}"
    );
    assert!(
        lines[1].contains("The size of tensor a (7) must match the size of tensor b (3)"),
        "{lines:#?}"
    );
}

#[test]
fn every_unknown_op_is_reported_once_with_all_its_uses() {
    let (_, i) = inferred(
        "graph g {
            %x : f32[2] = placeholder x
            %a = call_function torch.rleu(%x)       loc(\"model.py\":3 in forward)
            %b = call_function torch.rleu(%a)       loc(\"model.py\":4 in forward)
            %c = call_method sotfmax(%b, 0)
            output %c
        }",
    );
    let d: Vec<_> = i.diagnostics.iter().collect();
    assert_eq!(d.len(), 2, "{d:?}");
    assert_eq!(d[0].suggestions[0].replacement, "torch.relu");
    assert!(
        d[0].labels.len() == 2 && d[0].notes.iter().any(|n| n.contains("model.py:4")),
        "{:?}",
        d[0]
    );
    assert_eq!(d[1].suggestions[0].replacement, "softmax");
}

#[test]
fn annotations_are_checked_and_fill_what_is_not_known() {
    let lines = report(
        "graph g {
            %x : f32[2, 3] = placeholder x
            %y : f32[3, 2] = call_function relu(%x)
            %i : i64[2, 3] = call_function neg(%x)
            output %y
        }",
    );
    assert_eq!(
        lines,
        [
            "E0301 `%y` is annotated f32[3, 2], but its type is f32[2, 3]",
            "E0301 `%i` is annotated i64[2, 3], but its type is f32[2, 3]"
        ]
    );
}

#[test]
fn products_that_overflow_are_errors() {
    let lines = report(
        "graph g {
            %x : f32[1] = placeholder x
            %y = call_function torch.Tensor.expand(%x, [4611686018427387904, 4611686018427387904])
            output %y
        }",
    );
    assert!(lines.len() == 1 && lines[0].starts_with("E0306"), "{lines:?}");
}

#[test]
fn arguments_that_do_not_fit_show_the_schema() {
    let (_, i) = inferred(
        "graph g {
            %x : f32[2] = placeholder x
            %a = call_function torch.flatten(%x, satrt_dim=0)
            %b = call_function torch.flatten(%x, 0, 1, 2)
            %c = call_function torch.flatten(%x, 'no')
            output (%a, %b, %c)
        }",
    );
    let d: Vec<_> = i.diagnostics.iter().collect();
    assert_eq!(
        d.iter().map(|d| d.code.name()).collect::<Vec<_>>(),
        ["E0203", "E0203", "E0202"]
    );
    assert_eq!(d[0].suggestions[0].replacement, "start_dim", "{:?}", d[0]);
    assert!(d[2].notes.iter().any(|n| n.contains("flatten(Tensor ")), "{:?}", d[2]);
}

#[test]
fn graphs_are_typed_by_their_calls() {
    let (m, i) = inferred(
        "graph main {
            %x : f32[2, 3] = placeholder x
            %y = call_function twice(%x)
            %z = call_function twice(%y, k=3)
            output %z
        }
        graph twice {
            %a = placeholder a
            %k : int = placeholder k = 2
            %m = call_function mul(%a, %k)
            output %m
        }",
    );
    assert!(i.diagnostics.is_empty(), "{:?}", i.diagnostics);
    assert_eq!(ty(&m, "z"), "f32[2, 3]");
    let callee = &m.graphs["twice"];
    assert_eq!(
        callee[callee.find("m").unwrap()].meta.ty.as_ref().unwrap().to_string(),
        "f32[2, 3]"
    );
}

#[test]
fn given_inputs_bind_declared_sizes() {
    let text = "dim N in 1..8
        graph g {
            %x : f32[N, 3] = placeholder x
            output %x
        }";
    let run = |shape: &[usize], dtype| {
        let mut m = module(text);
        let inputs = vec![Val::Leaf(TensorType::with_fixed_shape(dtype, shape))];
        infer_sizes(&mut m, &InferOptions { inputs })
    };
    assert_eq!(
        run(&[5, 3], crate::types::DType::F32).sizes,
        [("N".into(), Dim::Const(5))]
    );
    for (shape, dtype) in [
        (&[9, 3][..], crate::types::DType::F32),
        (&[5, 4], crate::types::DType::F32),
        (&[5, 3], crate::types::DType::F64),
        (&[5], crate::types::DType::F32),
    ] {
        assert_eq!(run(shape, dtype).diagnostics.len(), 1, "{shape:?}");
    }
}

#[test]
fn modules_are_ops_with_their_attributes() {
    let (m, i) = inferred(
        "module fc = Linear(4, 2)
        module bad = Linaer(4, 2)
        param fc.weight : f32[2, 4]
        param fc.bias : f32[2]
        graph g {
            %x : f32[3, 4] = placeholder x
            %y = call_module fc(%x)
            %z = call_module bad(%y)
            output %z
        }",
    );
    assert_eq!(ty(&m, "y"), "f32[3, 2]");
    let d: Vec<_> = i.diagnostics.iter().collect();
    assert!(d.len() == 1 && d[0].title.contains("Linaer"), "{d:?}");
}

/// The diagnostics for `%v`, where `%x` is f32[2, 3, 4].
fn of_view(lines: &str) -> Vec<String> {
    report(&format!(
        "graph g {{
            %x : f32[2, 3, 4] = placeholder x
            %w : f32[4, 4] = placeholder w
            {lines}
            output %v
        }}"
    ))
}

#[test]
fn views_need_strides_that_say_them() {
    for lines in [
        "%t = call_method transpose(%x, 1, 2)\n %v = call_method view(%t, 2, 12)",
        "%t = call_method transpose(%x, 0, 1)\n %r = call_function torch.relu(%t)\n %v = call_function aten.view.default(%r, [6, 4])",
        "%t = call_function aten.slice.Tensor(%x, 2, 0, 2)\n %v = call_method view(%t, [12])",
    ] {
        let found = of_view(lines);
        assert_eq!(found.len(), 1, "{lines}: {found:?}");
        assert!(found[0].contains("view size is not compatible"), "{found:?}");
    }
    for lines in [
        "%t = call_method transpose(%x, 1, 2)\n %v = call_method reshape(%t, 2, 12)",
        "%t = call_method transpose(%x, 1, 2)\n %c = call_method contiguous(%t)\n %v = call_method view(%c, 2, 12)",
        "%t = call_method transpose(%x, 1, 2)\n %v = call_method view(%t, 2, 2, 2, 3)",
        // The layout of a product is not certain.
        "%p = call_function torch.matmul(%x, %w)\n %t = call_method transpose(%p, 1, 2)\n %v = call_method view(%t, 2, 12)",
    ] {
        assert_eq!(of_view(lines), Vec::<String>::new(), "{lines}");
    }
}

#[test]
fn asserted_strides_are_those_of_inputs_and_their_views() {
    let asserted = |strides: &str| {
        of_view(&format!(
            "%v = call_method transpose(%x, 1, 2)
             %a = call_function aten._assert_tensor_metadata.default(%v, [2, 4, 3], {strides}, torch.float32)"
        ))
    };
    assert_eq!(asserted("[12, 1, 4]"), Vec::<String>::new());
    assert_eq!(asserted("None"), Vec::<String>::new());
    let found = asserted("[12, 3, 1]");
    assert!(
        found.len() == 1 && found[0].contains("strides mismatch! Expected: [12, 3, 1], Got: [12, 1, 4]"),
        "{found:?}"
    );
}
