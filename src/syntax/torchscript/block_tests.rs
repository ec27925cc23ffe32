use super::super::ast::Item;
use super::super::parse_text;
use crate::source::FileId;

/// All graphs, one statement per line.
fn graphs(text: &str) -> Vec<String> {
    let (file, findings) = parse_text(FileId(0), text);
    assert!(findings.is_empty(), "{findings:#?}");
    let mut out = vec![];
    for i in &file.items {
        let Item::Graph(g) = i else { continue };
        out.extend(g.name.as_ref().map(|n| format!("graph {}", n.text)));
        out.extend(g.body.stmts.iter().map(|s| s.to_string()));
    }
    out
}

#[test]
fn branches_on_constants_are_followed() {
    let text = "graph(%self : __torch__.M,\n      %x.1 : Tensor):\n  %2 : bool = prim::Constant[value=0]()\n  %3 : NoneType = prim::Constant()\n  %4 : bool = aten::__is__(%x.1, %3)\n  %y : Tensor = prim::If(%2)\n    block0():\n      %a : Tensor = aten::relu_(%x.1)\n      -> (%a)\n    block1():\n      %b : Tensor = prim::If(%4)\n        block0():\n          -> (%x.1)\n        block1():\n          %c : Tensor = aten::relu(%x.1)\n          -> (%c)\n      -> (%b)\n  return (%y)\n";
    let want = [
        "%x_1 = placeholder x_1",
        "%c = call_function torch.ops.aten.relu(%x_1)",
        "output %c",
    ];
    assert_eq!(graphs(text), want);
}

#[test]
fn branches_on_values_are_graphs() {
    let text = "graph(%x.1 : Tensor):\n  %3 : NoneType = prim::Constant()\n  %5 : int = prim::Constant[value=0]()\n  %11 : int = prim::Constant[value=1]()\n  %4 : Tensor = aten::sum(%x.1, %3)\n  %6 : Tensor = aten::gt(%4, %5)\n  %8 : bool = aten::Bool(%6)\n  %33 : Tensor = prim::If(%8)\n    block0():\n      %13 : Tensor = aten::add(%x.1, %4, %11)\n      -> (%13)\n    block1():\n      -> (%x.1)\n  return (%33)\n";
    let want = [
        "%x_1 = placeholder x_1",
        "%sum = call_function torch.ops.aten.sum(%x_1, None)",
        "%gt = call_function torch.ops.aten.gt(%sum, 0)",
        "%bool = call_function builtins.bool(%gt)",
        "%cond = call_function torch.cond(%gt, @then_1_1, @else_1_2, (%x_1, %sum))",
        "output %cond",
        "graph then_1_1",
        "%x_1 = placeholder x_1",
        "%sum = placeholder sum",
        "%add = call_function torch.ops.aten.add(%x_1, %sum, 1)",
        "output %add",
        "graph else_1_2",
        "%x_1 = placeholder x_1",
        "%sum = placeholder sum",
        "output %x_1",
    ];
    assert_eq!(graphs(text), want);
}

#[test]
fn counted_loops_are_repeated_and_lists_grow() {
    let text = "graph(%x.1 : Tensor):\n  %0 : int = prim::Constant[value=0]()\n  %1 : int = prim::Constant[value=3]()\n  %2 : bool = prim::Constant[value=1]()\n  %l : Tensor[] = prim::ListConstruct()\n  %y : Tensor = prim::Loop(%1, %2, %x.1)\n    block0(%i : int, %y.1 : Tensor):\n      %odd : bool = aten::eq(%i, %2)\n      %y.2 : Tensor = aten::mul(%y.1, %i)\n      %9 : Tensor[] = aten::append(%l, %y.2)\n      -> (%2, %y.2)\n  %s : Tensor = aten::stack(%l, %0)\n  return (%s, %y)\n";
    let want = [
        "%x_1 = placeholder x_1",
        "%y_2 = call_function torch.ops.aten.mul(%x_1, 0)",
        "%y_2_1 = call_function torch.ops.aten.mul(%y_2, 1)",
        "%y_2_2 = call_function torch.ops.aten.mul(%y_2_1, 2)",
        "%s = call_function torch.ops.aten.stack([%y_2, %y_2_1, %y_2_2], 0)",
        "output (%s, %y_2_2)",
    ];
    assert_eq!(graphs(text), want);
}

#[test]
fn loops_along_rows_are_scans() {
    let text = "graph(%x.1 : Tensor, %h.0 : Tensor):\n  %0 : int = prim::Constant[value=0]()\n  %2 : bool = prim::Constant[value=1]()\n  %l : Tensor[] = prim::ListConstruct()\n  %n : int = aten::size(%x.1, %0)\n  %h : Tensor = prim::Loop(%n, %2, %h.0)\n    block0(%i : int, %h.1 : Tensor):\n      %r : Tensor = aten::select(%x.1, %0, %i)\n      %h.2 : Tensor = aten::mul(%h.1, %r)\n      %9 : Tensor[] = aten::append(%l, %h.2)\n      -> (%2, %h.2)\n  %s : Tensor = aten::stack(%l, %0)\n  return (%s, %h)\n";
    let found = graphs(text).join("\n");
    for line in [
        "%scan = call_function torch.ops.higher_order.scan(@rows_1_1, [%h_0], [%x_1], ())",
        "%h = call_function operator.getitem(%scan, 0)",
        "%unbind = call_function torch.unbind(%getitem)",
        "%s = call_function torch.ops.aten.stack(%unbind, 0)",
        "%h_2 = call_function torch.ops.aten.mul(%h_1, %row)\noutput [%h_2, %h_2]",
    ] {
        assert!(found.contains(line), "{line}\n{found}");
    }
}

#[test]
fn other_loops_carry_their_turn() {
    let text = "graph(%x.1 : Tensor, %n : int):\n  %0 : int = prim::Constant[value=0]()\n  %2 : bool = prim::Constant[value=1]()\n  %h : Tensor = prim::Loop(%n, %2, %x.1)\n    block0(%i : int, %h.1 : Tensor):\n      %h.2 : Tensor = aten::mul(%h.1, %n)\n      -> (%2, %h.2)\n  %k : Tensor = prim::Loop(%n, %2, %h)\n    block0(%i.2 : int, %k.1 : Tensor):\n      %k.2 : Tensor = aten::mul(%k.1, %i.2)\n      -> (%2, %k.2)\n  return (%k)\n";
    let found = graphs(text).join("\n");
    for line in [
        "%full = call_function torch.full([], 0)\n%while_loop = call_function torch.while_loop(@test_1_1, @body_1_2, (%full, %x_1), (%n,))",
        "call_function torch.while_loop(@test_1_3, @body_1_4, (0, %h), (%n,))",
        "call_function operator.lt(%turn, %n)",
        "call_function operator.add(%turn, 1)",
    ] {
        assert!(found.contains(line), "{line}\n{found}");
    }
}

#[test]
fn exceptions_are_assertions() {
    let text = "graph(%x.1 : Tensor):\n  %2 : int = prim::Constant[value=2]()\n  %m : str = prim::Constant[value=\"bad\"]()\n  %d : int = aten::dim(%x.1)\n  %ne : bool = aten::ne(%d, %2)\n   = prim::If(%ne) # a.py:3:4\n    block0():\n       = prim::RaiseException(%m, %m)\n      -> ()\n    block1():\n      -> ()\n  return (%x.1)\n";
    let found = graphs(text).join("\n");
    for line in [
        "%not_ = call_function operator.not_(%ne)",
        "call_function torch._assert(%not_, \"bad\")",
    ] {
        assert!(found.contains(line), "{line}\n{found}");
    }
}

#[test]
fn endless_and_wild_scripts_end() {
    let forever = "graph(%x : Tensor):\n  %n : int = prim::Constant[value=9223372036854775807]()\n  %t : bool = prim::Constant[value=1]()\n  %y : Tensor = prim::Loop(%n, %t, %x)\n    block0(%i : int, %a : Tensor):\n      %b : Tensor = aten::relu(%a)\n      -> (%t, %b)\n  return (%y)\n";
    parse_text(FileId(0), forever);
    let nested = format!(
        "graph(%x : Tensor):\n  %n : int = prim::Constant[value=1000]()\n  %t : bool = prim::Constant[value=1]()\n{}{}  return (%x)\n",
        "   = prim::Loop(%n, %t)\n block0(%i : int):\n".repeat(50),
        "  %b : Tensor = aten::relu(%x)\n  -> (%t)\n".to_string() + &" -> (%t)\n".repeat(49)
    );
    parse_text(FileId(0), &nested);
}
