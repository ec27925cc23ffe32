use super::super::parse_text;
use super::*;

fn only_graph(text: &str) -> Graph {
    let (file, findings) = parse_text(FileId(0), text);
    assert!(findings.is_empty(), "{findings:#?}");
    let mut graphs = file.items.into_iter().filter_map(|i| match i {
        Item::Graph(g) => Some(g),
        _ => None,
    });
    let g = graphs.next().expect("a graph");
    assert!(graphs.next().is_none());
    g
}

fn args(stmt: &Stmt) -> Vec<&ValueKind> {
    match &stmt.op {
        Op::Call { args, .. } => args.positional.iter().map(|v| &v.kind).collect(),
        _ => panic!("not a call"),
    }
}

#[test]
fn reads_every_kind_of_statement() {
    let g = only_graph(include_str!("../testdata/print.txt"));
    assert_eq!(g.body.stmts.len(), 37);
    let find = |n: &str| {
        g.body
            .stmts
            .iter()
            .find(|s| s.name.as_ref().is_some_and(|x| &*x.text == n))
            .expect(n)
    };
    let t = find("x").torch.as_ref().expect("torch");
    assert_eq!(
        (&*t.annotation, t.tag.as_ref().map(|t| t.count)),
        ("torch.Tensor ", Some(6))
    );
    assert!(
        matches!(&find("ds").op, Op::Placeholder { default: Some(v), .. } if matches!(&v.kind, ValueKind::Str(s) if &**s == "a b"))
    );
    assert!(matches!(&find("dx").op, Op::Placeholder { default: Some(v), .. }
        if matches!(&v.kind, ValueKind::Tuple(t) if matches!(&t[0].kind, ValueKind::Node(n) if &**n == "x"))));
    assert!(matches!(args(find("getitem"))[1], ValueKind::Tuple(t) if t.len() == 4
        && matches!(&t[1].kind, ValueKind::Slice(s) if matches!(s[1].kind, ValueKind::Node(_)))));
    assert!(matches!(args(find("mul"))[1], ValueKind::Complex(1.0, 2.0)));
    assert!(matches!(args(find("einsum"))[0], ValueKind::Str(s) if &**s == "B G H I D, B G H J D -> B G H I J"));
    assert!(matches!(args(find("einsum"))[2], ValueKind::Node(_)));
    assert!(matches!(args(find("getattr_1"))[1], ValueKind::Str(s) if &**s == "device"));
    assert!(
        matches!(args(find("odd"))[..], [ValueKind::Str(a), ValueKind::Str(b), ValueKind::Int(-1), ValueKind::Str(c)]
        if &**a == "007" && &**b == "1e5" && c.is_empty())
    );
    let text = find("lin").torch.as_ref().map(|t| t.annotation.to_string());
    assert_eq!(text.as_deref(), Some("Tensor \"f32[4, 5][5, 1]cpu\""));
    assert!(find("lin").ty.is_some());
}

#[test]
fn reads_inductors_fragments() {
    let text = "# Topologically Sorted Source Nodes: [sin], Original ATen: [aten.sin]\n# Graph fragment:\n#   %arg2_1 : Tensor \"f32[4, 4][4, 1]cuda:0\" = PlaceHolder[target=arg2_1]\n#   %cos : Tensor \"f32[s77, 4][4, 1]cuda:0\"[num_users=1] = call_function[target=torch.ops.aten.cos.default](args = (%arg2_1,), kwargs = {})\n#   return %cos,%arg2_1\n";
    let g = only_graph(text);
    assert_eq!(g.body.stmts.len(), 3);
    assert!(
        matches!(&g.body.stmts[2].op, Op::Output { value } if matches!(&value.kind, ValueKind::Tuple(t) if t.len() == 2))
    );
    assert!(matches!(&g.dialect, Dialect::Torch(t) if t.fragment));
    // Between FXIR items, the same lines are comments.
    let (file, findings) = parse_text(FileId(0), &format!("{text}graph a {{ output () }}"));
    assert!(findings.is_empty());
    assert_eq!((file.items.len(), file.comments.len()), (1, 5));
}

#[test]
fn reads_the_oldest_form() {
    let text = "graph(x, y : torch.Tensor):\n    %w : [uses=1] = self.linear.weight\n    %add_1 : [#users=1] = call_function[target=<built-in function add>](args = (%x, %w), kwargs = {})\n    return %add_1";
    let g = only_graph(text);
    let forms: Vec<_> = g
        .body
        .stmts
        .iter()
        .filter_map(|s| s.torch.as_ref())
        .map(|t| t.form)
        .collect();
    use TorchForm::*;
    assert_eq!(forms, [HeaderParam, HeaderParam, SelfAttr, Bracketed, ReturnPercent]);
}

#[test]
fn stands_among_fxir() {
    let text = "weights \"w.safetensors\"\ngraph():\n    %x : [num_users=1] = placeholder[target=x]\n\n    # a remark\n    %c : [num_users=0] = call_function[target=f](args = (%x, tensor([[1., 2.],\n        [3., 4.]])), kwargs = {mode: a\nb})\n    return x\nmodule fc = Linear(1, 2)\n";
    let (file, findings) = parse_text(FileId(0), text);
    assert!(findings.is_empty(), "{findings:#?}");
    assert_eq!(file.items.len(), 3);
    assert!(matches!(&file.items[1], Item::Graph(g) if g.body.stmts.len() == 3));
}

#[test]
fn says_what_it_cannot_read() {
    let deep = format!(
        "graph():\n    %a : [num_users=1] = call_function[target=f](args = ({}), kwargs = {{}})\n    return {}",
        "[".repeat(5000) + &"]".repeat(5000),
        "(".repeat(5000)
    );
    for (text, codes) in [
        (
            "graph():\n    %x = add(1, 2)\n    %y : [num_users=1] = call_function[target=f](args = (a(b, %x), kwargs = {})\n    return (y",
            vec![Code::E0013; 3],
        ),
        (
            "graph():\n    %y : [num_users=1] = call_function[target=f](args = (123456789012345678901,), kwargs = {})\n    return y",
            vec![Code::E0005],
        ),
        (&deep, vec![Code::E0008, Code::E0008]),
    ] {
        let (_, findings) = parse_text(FileId(0), text);
        assert_eq!(
            findings.iter().map(|d| d.code).collect::<Vec<_>>(),
            codes,
            "{:.80}",
            text
        );
    }
}
