use super::super::ast::Item;
use super::super::parse_text;
use crate::source::FileId;

/// The statements of the first graph after its inputs, for a script with these lines on `%x : Tensor`.
#[track_caller]
pub(super) fn statements(lines: &str) -> Vec<String> {
    let text = format!("graph(%x : Tensor):\n{lines}  return (%x)\n");
    let (file, findings) = parse_text(FileId(0), &text);
    assert!(findings.is_empty(), "{findings:#?}");
    let graph = |i: &Item| match i {
        Item::Graph(g) => Some(g.body.stmts.iter().map(|s| s.to_string()).collect::<Vec<_>>()),
        _ => None,
    };
    let found = file.items.iter().find_map(graph).expect("a graph");
    found[1..found.len() - 1].to_vec()
}

/// `%n`, an unknown number, and constants.
const GIVEN: &str = "  %0 : int = prim::Constant[value=0]()\n  %1 : int = prim::Constant[value=1]()\n  %2 : int = prim::Constant[value=2]()\n  %3 : int = prim::Constant[value=3]()\n  %n : int = aten::size(%x, %0)\n";

#[track_caller]
fn check(lines: &str, want: &[&str]) {
    let found = statements(&format!("{GIVEN}{lines}"));
    assert_eq!(found[0], "%n = call_method size(%x, 0)");
    assert_eq!(found[1..], *want, "{lines}");
}

#[test]
fn arithmetic_has_the_meaning_that_aten_gives_it() {
    check(
        "  %a : int = aten::rsub(%n, %3, %1)\n",
        &["%a = call_function operator.sub(3, %n)"],
    );
    check(
        "  %a : int = aten::add(%n, %3, %2)\n",
        &["%a = call_function operator.add(%n, 6)"],
    );
    let divided = |mode: &str| {
        format!(
            "  %m : str = prim::Constant[value=\"{mode}\"]()\n  %a : Long() = aten::div(%n, %2, %m)\n  %b : int = aten::Int(%a)\n"
        )
    };
    check(&divided("floor"), &["%a = call_function operator.floordiv(%n, 2)"]);
    check(
        &divided("trunc"),
        &[
            "%truediv = call_function operator.truediv(%n, 2)",
            "%a = call_function math.trunc(%truediv)",
        ],
    );
    // A quotient is a float until it is converted to an integer.
    check(
        "  %a : Float() = aten::div(%n, %2)\n  %b : int = aten::Int(%a)\n",
        &[
            "%a = call_function operator.truediv(%n, 2)",
            "%b = call_function math.trunc(%a)",
        ],
    );
}

#[test]
fn lists_are_compared_item_by_item() {
    let lists =
        "  %s : int[] = aten::size(%x)\n  %l : int[] = prim::ListConstruct(%2, %n)\n  %a : bool = aten::ne(%s, %l)\n";
    check(
        lists,
        &[
            "%s = call_method size(%x)",
            "%getitem = call_function operator.getitem(%s, 0)",
            "%getitem_1 = call_function operator.getitem(%s, 1)",
            "%eq = call_function operator.eq(%getitem, 2)",
            "%eq_1 = call_function operator.eq(%getitem_1, %n)",
            "%and_ = call_function operator.and_(%eq, %eq_1)",
            "%a = call_function operator.not_(%and_)",
        ],
    );
    check(
        "  %l : int[] = prim::ListConstruct(%2, %n, %3)\n  %a : int = aten::sum(%l)\n",
        &[
            "%add = call_function operator.add(2, %n)",
            "%add_1 = call_function operator.add(%add, 3)",
        ],
    );
}

#[test]
fn lists_are_sliced() {
    check(
        "  %none : NoneType = prim::Constant()\n  %s : int[] = aten::size(%x)\n  %a : int[] = aten::slice(%s, %2, %none, %1)\n  %h : int, %w : int = prim::ListUnpack(%a)\n",
        &[
            "%s = call_method size(%x)",
            "%a = call_function operator.getitem(%s, slice(2, None, 1))",
            "%h = call_function operator.getitem(%a, 0)",
            "%w = call_function operator.getitem(%a, 1)",
        ],
    );
}

#[test]
fn items_that_a_branch_sets_are_chosen() {
    let lines = "  %l : int[] = prim::ListConstruct(%3, %2)\n  %c : bool = aten::gt(%n, %2)\n   = prim::If(%c)\n    block0():\n      %9 : int[] = aten::_set_item(%l, %0, %1)\n      -> ()\n    block1():\n      -> ()\n  %y : Tensor = aten::roll(%x, %l, %l)\n";
    check(
        lines,
        &[
            "%c = call_function operator.gt(%n, 2)",
            "%mul = call_function operator.mul(-2, %c)",
            "%add = call_function operator.add(3, %mul)",
            "%y = call_function torch.ops.aten.roll(%x, [%add, 2], [%add, 2])",
        ],
    );
}

#[test]
fn what_both_branches_give_is_known() {
    let lines = "  %none : NoneType = prim::Constant()\n  %c : bool = aten::gt(%n, %2)\n  %y : Tensor, %m : Tensor? = prim::If(%c)\n    block0():\n      %a : Tensor = aten::relu(%x)\n      -> (%a, %none)\n    block1():\n      -> (%x, %none)\n  %is : bool = aten::__is__(%m, %none)\n  %z : Tensor = prim::If(%is)\n    block0():\n      %b : Tensor = aten::neg(%y)\n      -> (%b)\n    block1():\n      %d : Tensor = aten::abs(%y)\n      -> (%d)\n";
    check(
        lines,
        &[
            "%c = call_function operator.gt(%n, 2)",
            "%y = call_function torch.cond(%c, @then_1_1, @else_1_2, (%x,))",
            "%b = call_function torch.ops.aten.neg(%y)",
        ],
    );
    // If only one branch returns `None`, the result may or may not be `None`.
    let either = lines.replacen("(%x, %none)", "(%x, %x)", 1);
    let found = statements(&format!("{GIVEN}{either}")).join("\n");
    assert!(found.contains("operator.eq(%m, None)"), "{found}");
}

#[test]
fn devices_and_constants_of_several_kinds() {
    let lines = "  %k : str[] = prim::Constant[value=[\"cpu\", \"a, b\"]]()\n  %t : (NoneType, int) = prim::Constant[value=(None, 3)]()\n  %d : Device = prim::device(%x)\n  %s : str = prim::type(%d)\n  %a : bool = aten::__contains__(%k, %s)\n  %y : Tensor = prim::If(%a)\n    block0():\n      %b : Tensor = aten::f(%x, %t, %k)\n      -> (%b)\n    block1():\n      -> (%x)\n";
    check(
        lines,
        &[
            r#"%d = call_function builtins.getattr(%x, "device")"#,
            r#"%b = call_function torch.ops.aten.f(%x, (None, 3), ["cpu", "a, b"])"#,
        ],
    );
}

#[test]
fn sequences_are_called_module_by_module() {
    let text = "Net(\n  (net): Sequential(\n    (0): ReLU()\n    (block1-0): Sequential(\n      (a): Tanh()\n    )\n  )\n)\ngraph(%self : __torch__.Net,\n      %x : Tensor):\n  %net : __torch__.Sequential = prim::GetAttr[name=\"net\"](%self)\n  %y : Tensor = prim::CallMethod[name=\"forward\"](%net, %x)\n  %self.net.block1-0.w : Tensor = prim::Constant[value=<Tensor>]()\n  %z : Tensor = aten::add(%y, %self.net.block1-0.w)\n  return (%z)\n";
    let (file, findings) = parse_text(FileId(0), text);
    assert!(findings.is_empty(), "{findings:#?}");
    let found: Vec<String> = file
        .items
        .iter()
        .filter_map(|i| match i {
            Item::Graph(g) => Some(&g.body.stmts),
            _ => None,
        })
        .flatten()
        .map(|s| s.to_string())
        .collect();
    let want = [
        "%x = placeholder x",
        "%net_0 = call_module net.0(%x)",
        "%y = call_module \"net.block1-0.a\"(%net_0)",
        "%net_block1_0_w = get_attr \"net.block1-0.w\"",
        "%z = call_function torch.ops.aten.add(%y, %net_block1_0_w)",
        "output %z",
    ];
    assert_eq!(found, want);
}
