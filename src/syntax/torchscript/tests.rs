use super::super::ast::{Graph, Item};
use super::super::parse_text;
use super::*;

fn fxir(text: &str) -> Vec<String> {
    let (file, findings) = parse_text(FileId(0), text);
    assert!(findings.is_empty(), "{findings:#?}");
    let graph = |i: &Item| match i {
        Item::Graph(g) => Some(lines(g)),
        _ => None,
    };
    file.items.iter().find_map(graph).expect("a graph")
}

fn lines(g: &Graph) -> Vec<String> {
    g.body.stmts.iter().map(|s| s.to_string()).collect()
}

#[test]
fn traced_modules() {
    let want = [
        "%x : f32[2, 4] = placeholder x",
        "%y : f32[1, 1, 8, 8] = placeholder y",
        "%c = get_attr c",
        "%net = call_module net(%x)",
        r#"%mul : f32[5] = call_function torch.ops.aten.mul(%c, 2)  loc("/m/ts.py":7)"#,
        r#"%a : f32[2, 5] = call_function torch.ops.aten.add(%net, %mul, 1)  loc("/m/ts.py":7)"#,
        r#"%cat : f32[2, 10] = call_function torch.ops.aten.cat([%a, %a], -1)  loc("/m/ts.py":8)"#,
        r#"%size = call_method size(%x, 0)  loc("/m/ts.py":8)"#,
        r#"%mul_1 = call_function operator.mul(%size, 2)  loc("/m/ts.py":8)"#,
        r#"%b : f32[5, 4] = call_function torch.ops.aten.view(%cat, [-1, %mul_1])  loc("/m/ts.py":8)"#,
        r#"%max = call_function torch.ops.aten.max(%b, 1, False)  loc("/m/ts.py":9)"#,
        r#"%getitem : f32[5] = call_function operator.getitem(%max, 0)  loc("/m/ts.py":9)"#,
        r#"%getitem_1 : i64[5] = call_function operator.getitem(%max, 1)  loc("/m/ts.py":9)"#,
        "%conv = call_module conv(%y)",
        r#"%q : f32[5, 4] = call_function torch.ops.aten.gelu(%b, "none")  loc("/m/ts.py":11)"#,
        r#"output (%getitem, (%getitem_1, %conv), {"q": %q})"#,
    ];
    assert_eq!(fxir(include_str!("../testdata/traced.txt")), want);
}

#[test]
fn frozen_and_inlined_modules_read_attributes_by_path() {
    let text = "graph(%self.1 : __torch__.___torch_mangle_5.M,\n      %x : Tensor):\n  %self.net.0.weight : Float(5, 4, strides=[4, 1], requires_grad=0, device=cpu) = prim::Constant[value=<Tensor>]()\n  %70 : Float(2, strides=[1], requires_grad=0, device=cpu) = prim::Constant[value= 2  2 [ CPUFloatType{2} ]]()\n  %net : __torch__.A = prim::GetAttr[name=\"net\"](%self.1)\n  %_0 : __torch__.B = prim::GetAttr[name=\"0\"](%net)\n  %bias.3 : Tensor = prim::GetAttr[name=\"bias\"](%_0)\n  %n : NoneType = prim::Constant()\n  %l : int[] = prim::Constant[value=[1, 1]]()\n  %s : str = prim::Constant[value=\"a]()\"]()\n  %y : Tensor = aten::linear(%x, %self.net.0.weight, %bias.3), scope: __module.net/__module.net.0 # /a b.py:134:0\n  %z : Tensor = aten::f(%y, %70, %n, %l, %s)\n  return (%z)\n";
    let want = [
        "%x = placeholder x",
        "%net_0_weight : f32[5, 4] = get_attr net.0.weight",
        "%constant_70 : f32[2] = get_attr constant_70",
        "%net_0_bias = get_attr net.0.bias",
        r#"%y = call_function torch.ops.aten.linear(%x, %net_0_weight, %net_0_bias)  loc("/a b.py":134)"#,
        r#"%z = call_function torch.ops.aten.f(%y, %constant_70, None, [1, 1], "a]()")"#,
        "output %z",
    ];
    assert_eq!(fxir(text), want);
}

#[test]
fn says_what_it_cannot_read() {
    let deep = format!(
        "graph(%x : Tensor):\n{}  return (%x)\n",
        "  %y : Tensor = prim::If(%x)\n block0():\n".repeat(50_000)
    );
    let types = format!(
        "graph(%x : {}Tensor{}):\n  %y : int = prim::Constant()\n  return (%x)\n",
        "(".repeat(90_000),
        ")".repeat(90_000)
    );
    for (text, codes) in [
        (
            "graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x\n  return (%y)\n",
            vec![Code::E0013],
        ),
        (
            "graph(%self : __torch__.M):\n  %y : int = prim::GetAttr[name=\"n\"](%self)\n  return (%y)\n",
            vec![Code::E0013],
        ),
        (&deep, vec![Code::E0008]),
        (&types, vec![]),
    ] {
        let (_, findings) = parse_text(FileId(0), text);
        let found: Vec<_> = findings.iter().map(|d| d.code).collect();
        assert_eq!(found, codes, "{:.80}: {:?}", text, findings.iter().next());
    }
}
