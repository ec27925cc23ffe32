//! Tests of hand-written scripts: without types, brackets, header or result.

use super::super::ast::{Graph, Item};
use super::super::parse_text;
use super::*;

fn graphs(text: &str) -> Vec<Vec<String>> {
    let (file, findings) = parse_text(FileId(0), text);
    assert!(findings.is_empty(), "{text}: {findings:#?}");
    let lines = |g: &Graph| g.body.stmts.iter().map(|s| s.to_string()).collect();
    let graph = |i: &Item| match i {
        Item::Graph(g) => Some(lines(g)),
        _ => None,
    };
    file.items.iter().filter_map(graph).collect()
}

const RELU: [&str; 3] = [
    "%x = placeholder x",
    "%relu = call_function torch.ops.aten.relu(%x)",
    "output %relu",
];

#[test]
fn a_graph_may_lack_what_torch_prints() {
    for text in [
        "graph(%x : Tensor):\n  %2 : Tensor = aten::relu(%x)\n  return (%2)\n",
        "graph(%x):\n  %2 = aten::relu(%x)\n  return (%2)\n",
        "graph(%self, %x):\n  %2 = aten::relu(%x)\n  return %2\n",
        "graph(%self.1, %x):\n  %2 = aten::relu(%x)\n  return %2\n",
        "graph(%self : __torch__.M, %x):\n%2=aten::relu(%x)\nreturn %2",
        "    graph(%self,\n\n          %x):\n\n      %2 = aten::relu(%x)\n\n\n      return (%2)\n",
        "graph(%x):\n  %2 = aten::relu(%x)\n",
        "graph(%x): %2 = aten::relu(%x) return (%2)",
        "graph(%x):\n  %2 = aten::relu(%x);\n  return %2;\n",
        "graph(%x)\n  %2 = aten::relu(%x)\n  return %2\n",
        "graph(%x : Tensor) -> Tensor:\n  %2 : Tensor = aten::relu(%x)\n  return (%2)\n",
        "graph(%x) {\n  %2 = aten::relu(%x)\n  return (%2);\n}\n",
        "graph net(%x : Tensor) {\n  %2 : Tensor = aten::relu(%x)\n  return (%2)\n}\n",
        "# a script\ngraph(%x):\n  # relu first\n  %2 = aten::relu(%x)  # the relu\n  // and return\n  return (%2)\n",
        "The graph:\n\n```\ngraph(%x):\n  %2 = aten::relu(%x)\n  return %2\n```\nWhat does it do?\n",
        "%2 : Tensor = aten::relu(%x)\nreturn (%2)\n",
        "%2 = aten::relu(%x)\n",
    ] {
        assert_eq!(graphs(text), [RELU], "{text}");
    }
    let two = graphs("graph(%x):\n  %2 = aten::relu(%x)\ngraph(%x):\n  %2 = aten::relu(%x)\n  return %2\n");
    assert_eq!(two, [RELU, RELU]);
}

#[test]
fn constants_are_written_in_many_ways() {
    let add = [
        "%x = placeholder x",
        "%add = call_function torch.ops.aten.add(%x, 1)",
        "output %add",
    ];
    for one in [
        "%1 : int = prim::Constant[value=1]()",
        "%1 = prim::Constant[value=1]()",
        "%1 : int = prim::Constant[value=1]",
        "%1 : int = prim::Constant[value=1]  # a.py:3:0",
        "%1 : int = prim::constant(1)",
        "%1 : int = prim::Constant(1)",
        "%1 = prim::constant[value=1]()",
    ] {
        let text = format!("graph(%self, %x):\n  {one}\n  %2 : Tensor = aten::add(%x, %1)\n  return %2\n");
        assert_eq!(graphs(&text), [add], "{text}");
    }
    assert_eq!(graphs("graph(%x):\n  %2 = aten::add(%x, 1)\n  return %2\n"), [add]);
    for (written, want) in [
        ("0.5", "0.5"),
        ("-1", "-1"),
        ("True", "True"),
        ("None", "None"),
        ("[2, 3]", "[2, 3]"),
        ("\"tanh\"", "\"tanh\""),
    ] {
        for text in [
            format!("%c = prim::Constant({written})\n  %2 = aten::f(%x, %c)"),
            format!("%2 = aten::f(%x, {written})"),
        ] {
            let got = graphs(&format!("graph(%x):\n  {text}\n  return %2\n"));
            assert_eq!(
                got[0][1],
                format!("%f = call_function torch.ops.aten.f(%x, {want})"),
                "{text}"
            );
        }
    }
}

#[test]
fn types_that_are_missing_are_found() {
    let text = "graph(%self, %x):\n  %fc = prim::GetAttr[name=\"fc\"](%self)\n  %w = prim::GetAttr[name=\"weight\"](%fc)\n  %0 = prim::Constant[value=0]()\n  %n = aten::size(%x, %0)\n  %m = aten::mul(%n, 2)\n  %l = prim::ListConstruct(%m, -1)\n  %v = aten::view(%x, %l)\n  %c = prim::Constant[value=1]()\n  %r = prim::If(%c)\n    block0():\n      %a = aten::matmul(%v, %w)\n      -> (%a)\n    block1():\n      -> (%v)\n  %t = prim::TupleConstruct(%r, %x)\n  return %t\n";
    let want = [
        "%x = placeholder x",
        "%fc_weight = get_attr fc.weight",
        "%n = call_method size(%x, 0)",
        "%m = call_function operator.mul(%n, 2)",
        "%v = call_function torch.ops.aten.view(%x, [%m, -1])",
        "%a = call_function torch.ops.aten.matmul(%v, %fc_weight)",
        "output (%a, %x)",
    ];
    assert_eq!(graphs(text), [want]);
}

#[test]
fn what_is_left_out_is_said() {
    for (text, title) in [
        (
            "graph(%x):\n  %2 = aten::relu(%x)\n  ...\n  return (%2)\n",
            "part of the graph is omitted",
        ),
        (
            "graph(%x):\n  %2 = aten::relu(%x\n  return (%2)\n",
            "invalid TorchScript: unexpected `return`",
        ),
    ] {
        let (_, findings) = parse_text(FileId(0), text);
        let titles: Vec<_> = findings.iter().map(|d| d.title.as_str()).collect();
        assert_eq!(titles, [title], "{text}");
    }
}
