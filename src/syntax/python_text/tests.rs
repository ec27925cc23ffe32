use super::super::ast::{Graph, Item, TypeKind, ValueKind};
use super::super::parse_text;
use super::*;

fn graphs(text: &str) -> Vec<Graph> {
    let (file, findings) = parse_text(FileId(0), text);
    assert!(findings.is_empty(), "{findings:#?}");
    let graph = |i| match i {
        Item::Graph(g) => Some(g),
        _ => None,
    };
    file.items.into_iter().filter_map(graph).collect()
}

/// The statements of a graph as FXIR.
fn fxir(g: &Graph) -> Vec<String> {
    g.body.stmts.iter().map(|s| s.to_string()).collect()
}

#[test]
fn code_of_a_graph_module() {
    let text = r#"

torch.fx._symbolic_trace.wrap("__main___f")

def forward(self, x : torch.Tensor, n : typing_Union[int,NoneType] = None, *args):
    args_1 = args
    lin = getattr(self.blocks, "0").lin(x);  x = None
    w = getattr(self.blocks, "0").w
    add = lin + w;  lin = w = None
    pow_1 = add ** 2
    neg = -pow_1;  pow_1 = None
    getitem = neg[(slice(None, 3, None), 0)];  neg = None
    size = getitem.size(-1)
    shape = getitem.shape
    clamp = torch.clamp(getitem, min = -inf, max = 1e-05);  getitem = None
    to = clamp.to(device = device(type='cuda', index=0), dtype = torch.float16)
    clamp[0] = n;  setitem = clamp;  setitem = None
    add += to;  iadd = add;  add = to = None
    f = __main___f(iadd, (1+2j), complex(0.0, 1.0));  iadd = None
    _abs = _operator_abs(f)
    return {'a': f, 'b': (size, [shape, _abs], None)}
    "#;
    let graphs = graphs(text);
    assert_eq!(graphs.len(), 1);
    let want = [
        r#"%x : "torch.Tensor" = placeholder x"#,
        r#"%n : "typing.Optional[int]" = placeholder n = None"#,
        "%args_1 = placeholder *args",
        "%lin = call_module blocks.0.lin(%x)",
        "%w = get_attr blocks.0.w",
        "%add = call_function operator.add(%lin, %w)",
        "%pow_1 = call_function operator.pow(%add, 2)",
        "%neg = call_function operator.neg(%pow_1)",
        "%getitem = call_function operator.getitem(%neg, (slice(None, 3, None), 0))",
        "%size = call_method size(%getitem, -1)",
        r#"%shape = call_function builtins.getattr(%getitem, "shape")"#,
        "%clamp = call_function torch.clamp(%getitem, min=-inf, max=1e-05)",
        r#"%to = call_method to(%clamp, device=device("cuda:0"), dtype=torch.float16)"#,
        "%setitem = call_function operator.setitem(%clamp, 0, %n)",
        "%iadd = call_function operator.iadd(%add, %to)",
        "%f = call_function __main__.f(%iadd, (1+2j), 1j)",
        "%_abs = call_function operator.abs(%f)",
        r#"output {"a": %f, "b": (%size, [%shape, %_abs], None)}"#,
    ];
    assert_eq!(fxir(&graphs[0]), want);
}

#[test]
fn readable_classes_with_sub_modules_and_places() {
    let text = r#"class Net(torch.nn.Module):
    def forward(self, x: "f32[s77, 4]", n: "Sym(s77)"):
        # File: a b/net.py:8 in forward, code: y = cond(p, f, g, (x,))
        gt: "b8[]" = torch.ops.aten.gt.Scalar(x, 0)
        true_graph_0 = self.true_graph_0
        false_graph_0 = self.false_graph_0
        cond = torch.ops.higher_order.cond(gt, true_graph_0, false_graph_0, (x,));  gt = true_graph_0 = false_graph_0 = x = None

        # No stacktrace found for following nodes
        getitem: "f32[s77, 4]" = cond[0];  cond = None
        return (getitem,)

    class true_graph_0(torch.nn.Module):
        def forward(self, x: "f32[s77, 4]"):
            add: "f32[s77, 4]" = torch.ops.aten.add.Tensor(x, 1);  x = None
            return (add,)

    class false_graph_0(torch.nn.Module):
        def forward(self, x: "f32[s77, 4]"):
            return (x,)
"#;
    let graphs = graphs(text);
    let names: Vec<_> = graphs
        .iter()
        .map(|g| g.name.as_ref().map(|n| n.text.to_string()))
        .collect();
    assert_eq!(names, [None, Some("true_graph_0".into()), Some("false_graph_0".into())]);
    assert_eq!(graphs[0].dialect, Dialect::Python(Some("Net".into())));
    let stmts = &graphs[0].body.stmts;
    assert!(
        matches!(&stmts[1].ty.as_ref().unwrap().kind, TypeKind::Size(v) if matches!(&v.kind, ValueKind::Name(n) if &**n == "s77"))
    );
    let loc = stmts[3].loc.as_ref().unwrap();
    assert_eq!(
        (&*loc.file, loc.line, loc.function.as_deref()),
        ("a b/net.py", 8, Some("forward"))
    );
    assert_eq!(loc.code.as_deref(), Some("y = cond(p, f, g, (x,))"));
    assert!(stmts[4].loc.is_none());
    assert!(
        fxir(&graphs[0])[3].contains("cond(%gt, @true_graph_0, @false_graph_0, (%x,))"),
        "{:?}",
        fxir(&graphs[0])
    );
}

#[test]
fn exported_programs_keep_their_signature() {
    let text = include_str!("../testdata/exported.txt");
    let graphs = graphs(text);
    let s = graphs[0].signature.as_ref().expect("a signature");
    let kinds: Vec<_> = s.specs.iter().map(|s| &*s.kind.text).collect();
    assert_eq!(
        kinds,
        ["PARAMETER", "BUFFER", "USER_INPUT", "BUFFER_MUTATION", "USER_OUTPUT"]
    );
    assert_eq!(s.specs[1].target.as_deref(), Some("bn.mean"));
    assert_eq!(s.specs[1].persistent, Some(true));
    assert_eq!(s.ranges, [("s40".into(), "VR[2, int_oo]".into())]);
    // The output of an older torch for the same signature.
    let old = text.split("Graph signature:").next().unwrap().to_string()
        + "Graph signature: ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_w'), target='w', persistent=None)], output_specs=[OutputSpec(kind=<OutputKind.USER_OUTPUT: 1>, arg=TensorArgument(name='add'), target=None)])\nRange constraints: {}\n";
    let graphs = self::graphs(&old);
    let s = graphs[0].signature.as_ref().expect("a signature");
    assert_eq!(s.specs.len(), 2);
    assert_eq!(
        (&*s.specs[0].kind.text, s.specs[0].target.as_deref()),
        ("PARAMETER", Some("w"))
    );
}

#[test]
fn stands_among_fxir_and_behind_prompts() {
    let code = "def forward(self, x):\n    relu = torch.relu(x);  x = None\n    return relu\n";
    let mixed = format!("weights \"w.safetensors\"\n# def forward(self): of old\n{code}module fc = Linear(1, 2)\n");
    let (file, findings) = parse_text(FileId(0), &mixed);
    assert!(findings.is_empty(), "{findings:#?}");
    assert_eq!(file.items.len(), 3);
    for prefix in [
        "# ",
        ">>> ",
        "    ",
        "V1121 08:10:45.123000 12 torch/a.py:16] [0/0] [__graph_code] ",
    ] {
        let text: String = code.lines().map(|l| format!("{prefix}{l}\n")).collect();
        assert_eq!(fxir(&graphs(&text)[0]).len(), 3, "{prefix}");
    }
    let coloured = "class A(torch.nn.Module):\n    def forward(self, x: \"\u{1b}[31mf32\u{1b}[0m\u{1b}[34m[2]\u{1b}[0m\"):\n        return x\u{1b}[2m;  x = None\u{1b}[0m\n";
    assert_eq!(fxir(&graphs(coloured)[0])[0], "%x : f32[2] = placeholder x");
}

#[test]
fn nested_expressions_become_nodes() {
    let text = "def forward(self, x, y):\n    x = torch.relu(x + 1)\n    x += y * 2\n    a, b = x.split(2)\n    return self.head(a[:, 1:], b).sum(dim=(0, 1))\n";
    let want = [
        "%x = placeholder x",
        "%y = placeholder y",
        "%add = call_function operator.add(%x, 1)",
        "%x_1 = call_function torch.relu(%add)",
        "%mul = call_function operator.mul(%y, 2)",
        "%iadd = call_function operator.iadd(%x_1, %mul)",
        "%split = call_method split(%iadd, 2)",
        "%a = call_function operator.getitem(%split, 0)",
        "%b = call_function operator.getitem(%split, 1)",
        "%getitem = call_function operator.getitem(%a, (slice(None, None, None), slice(1, None, None)))",
        "%head = call_module head(%getitem, %b)",
        "%sum = call_method sum(%head, dim=(0, 1))",
        "output %sum",
    ];
    assert_eq!(fxir(&graphs(text)[0]), want);
}

#[test]
fn pytrees_are_flat() {
    let text = "def forward(self, x, y):\n    x_1: \"f32[2]\"; y_1: \"f32[2]\";\n\n    x_1, y_1, = fx_pytree.tree_flatten_spec(([x], {'y':y}), self._in_spec)\n    add: \"f32[2]\" = x_1 + y_1;  x_1 = y_1 = None\n    return pytree.tree_unflatten([add], self._out_spec)\n";
    let want = [
        "%x_1 : f32[2] = placeholder x_1",
        "%y_1 : f32[2] = placeholder y_1",
        "%add : f32[2] = call_function operator.add(%x_1, %y_1)",
        "output [%add]",
    ];
    assert_eq!(fxir(&graphs(text)[0]), want);
}

#[test]
fn says_what_it_cannot_read() {
    let n = 100_000;
    let deep = format!(
        "def forward(self, x):\n    return {}x{}\n",
        "(".repeat(n),
        ")".repeat(n)
    );
    let nested = format!(
        "def forward(self, x):\n    y = {}x{}\n    return y\n",
        "f(".repeat(n),
        ")".repeat(n)
    );
    let long = format!("def forward(self, x):\n    return x{}\n", " + 1".repeat(n));
    let blocks: String = (0..n)
        .map(|i| format!("{}class A(Module):\n", " ".repeat(i % 300)))
        .collect();
    for (text, codes) in [
        ("def forward(self, x):\n    y = x +\n    return y\n", vec![Code::E0013]),
        (
            "def forward(self, x):\n    y = = x\n    z = x ? 1\n    return y\n",
            vec![Code::E0013; 2],
        ),
        ("def forward(self, x):\n    x.a = 3\n    return x\n", vec![Code::E0013]),
        (
            "def forward(self, x):\n    return 123456789012345678901\n",
            vec![Code::E0005],
        ),
        ("def forward(self, x:\n    return x\n", vec![Code::E0013]),
        ("ExportedProgram:\n", vec![Code::E0013]),
        (&deep, vec![]),
        (&nested, vec![Code::E0008]),
        (&long, vec![Code::E0008]),
    ] {
        let (_, findings) = parse_text(FileId(0), text);
        let found: Vec<_> = findings.iter().map(|d| d.code).collect();
        assert_eq!(found, codes, "{:.80}: {:?}", text, findings.iter().next());
    }
    let (_, findings) = parse_text(FileId(0), &blocks);
    assert!(findings.has_errors());
}
