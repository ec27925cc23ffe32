//! Tests of functions of lists, dicts and strings: what is folded, and what the graph computes.

use super::super::ast::Item;
use super::number_tests::statements;

/// `%n`, an unknown number; `%0` to `%3`, constants; `%l`, the list `[3, 1, 2]`; `%s`, unknown sizes.
const GIVEN: &str = "  %0 : int = prim::Constant[value=0]()\n  %1 : int = prim::Constant[value=1]()\n  %2 : int = prim::Constant[value=2]()\n  %3 : int = prim::Constant[value=3]()\n  %none : NoneType = prim::Constant()\n  %yes : bool = prim::Constant[value=1]()\n  %text : str = prim::Constant[value=\"why\"]()\n  %n : int = aten::size(%x, %0)\n  %s : int[] = aten::size(%x)\n  %l : int[] = prim::ListConstruct(%3, %1, %2)\n";

/// The arguments of `aten::f`, called with the named results of these lines.
#[track_caller]
fn given(lines: &str, names: &str) -> String {
    let call = format!("{GIVEN}{lines}  %z : Tensor = aten::f({names})\n");
    let found = statements(&call);
    let steps = found[2..found.len() - 1]
        .iter()
        .map(|s| s.split_once("call_function ").map_or(&**s, |s| s.1));
    let result = found.last().and_then(|s| s.split_once("aten.f")).map_or("", |s| s.1);
    steps.chain([result]).collect::<Vec<_>>().join("; ")
}

#[test]
fn functions_of_known_lists_are_literals() {
    for (line, want) in [
        ("%a : bool = aten::any(%l)", "True"),
        ("%a : bool = aten::all(%l)", "True"),
        ("%a : int = aten::sum(%l)", "6"),
        ("%a : int = prim::min(%l)", "1"),
        ("%a : int = prim::max(%l)", "3"),
        ("%a : int = prim::max(%2, %3)", "3"),
        ("%a : int = aten::len(%text)", "3"),
        ("%a : int[] = aten::sorted(%l)", "[1, 2, 3]"),
        ("%a : int[] = aten::slice(%l, %1, %none, %1)", "[1, 2]"),
        ("%a : int[] = aten::mul(%l, %2)", "[3, 1, 2, 3, 1, 2]"),
        ("%a : int = aten::index(%l, %2)", "2"),
        ("%a : int[] = prim::rangelist(%3)", "[0, 1, 2]"),
        ("%a : int = aten::__range_length(%1, %3, %1)", "2"),
        ("%a : int = aten::__range_length(%3, %1, %2)", "0"),
        ("%a : int = aten::__derive_index(%2, %3, %2)", "7"),
        ("%a : str = aten::str(%3)", "\"3\""),
        ("%a : bool = prim::isinstance[types=[list]](%l)", "True"),
        ("%a : bool = prim::isinstance[types=[Tensor, int]](%x)", "True"),
        ("%a : bool = prim::isinstance[types=[str]](%x)", "False"),
    ] {
        assert_eq!(given(&format!("  {line}\n"), "%a"), format!("({want})"), "{line}");
    }
}

/// A module's dict that the script fills when a key is missing is empty at first, and is the same dict wherever it is
/// read.
#[test]
fn memos_of_modules_are_empty_at_first() {
    let read = |at: &str| format!("{at} : Dict(str, Tensor) = prim::GetAttr[name=\"cache\"](%self)\n");
    let script = |body: &str| {
        let (r0, r1, r2) = (read("  %d"), read("      %e"), read("  %f"));
        let body = body.replace("$d", &r0).replace("$e", &r1).replace("$f", &r2);
        format!("graph(%self : __torch__.M, %x : Tensor):\n  %k : str = prim::Constant[value=\"cpu\"]()\n{body}")
    };
    let write = "      %y : Tensor = aten::relu(%x)\n$e       = aten::_set_item(%e, %k, %y)\n      -> ()\n";
    let memo = format!(
        "$d  %c : bool = aten::__contains__(%d, %k)\n  %m : bool = aten::__not__(%c)\n   = prim::If(%m)\n    block0():\n{write}    \
         block1():\n      -> ()\n$f  %z : Tensor = aten::__getitem__(%f, %k)\n  return (%z)\n"
    );
    let found = super::super::parse_text(crate::source::FileId(0), &script(&memo));
    assert!(found.1.is_empty(), "{:#?}", found.1);
    let last = found.0.items.iter().find_map(|i| match i {
        Item::Graph(g) => g.body.stmts.last(),
        _ => None,
    });
    assert_eq!(last.map(|s| s.to_string()).as_deref(), Some("output %y"));
    // Its contents determine what is computed, so it is treated as unknown.
    let kept = "$d$e       = aten::_set_item(%e, %k, %x)\n  %c : bool = aten::__contains__(%d, %k)\n  return (%c)\n";
    let found = super::super::parse_text(crate::source::FileId(0), &script(kept));
    assert!(found.1.has_errors());
}

#[test]
fn lists_and_dicts_change() {
    let dict = "  %a : Dict(str, int) = aten::dict()\n   = aten::_set_item(%a, %text, %2)\n";
    assert_eq!(given(dict, "%a"), "({\"why\": 2})");
    let read = format!(
        "{dict}  %b : int = aten::setdefault(%a, %text, %3)\n   = aten::Delete(%a, %text)\n  %c : int? = aten::get(%a, %text)\n"
    );
    assert_eq!(given(&read, "%a, %b, %c"), "({}, 2, None)");
    assert_eq!(given("   = aten::sort(%l, %yes)\n", "%l"), "([3, 2, 1])");
    assert_eq!(
        given("   = aten::remove(%l, %1)\n  %a : int[] = aten::add_(%l, %l)\n", "%l"),
        "([3, 2, 3, 2])"
    );
}

#[test]
fn functions_of_other_lists_are_nodes() {
    let list = "  %k : int[] = prim::ListConstruct(%n, %2, %n)\n";
    for (line, want) in [
        (
            "%a : int = aten::sum(%k)",
            "operator.add(%n, 2); operator.add(%add, %n); (%add_1)",
        ),
        (
            "%a : int = prim::max(%k)",
            "builtins.max(%n, 2); builtins.max(%max, %n); (%max_1)",
        ),
        ("%a : bool = aten::any(%k)", "(True)"),
        (
            "%a : bool = aten::all(%k)",
            "operator.ne(%n, 0); operator.ne(%n, 0); operator.and_(%ne, %ne_1); (%and_)",
        ),
        (
            "%a : int[] = aten::add(%k, %s)",
            "builtins.list(%s); operator.add([%n, 2, %n], %list); (%a)",
        ),
        ("%a : int[] = aten::list(%s)", "builtins.list(%s); (%a)"),
    ] {
        assert_eq!(given(&format!("{list}  {line}\n"), "%a"), want, "{line}");
    }
}

#[test]
fn tensors_of_lists_are_attributes() {
    let line = "  %9 : Tensor?[] = prim::Constant[value=annotate(List[Optional[Tensor]], [None, <Tensor>])]()\n";
    let found = given(line, "%9");
    assert_eq!(found, "%constant_9_1 = get_attr constant_9.1; ([None, %constant_9_1])");
    let line = "  %9 : int[] = prim::Constant[value=annotate(List[int], [])]()\n";
    assert_eq!(given(line, "%9"), "([])");
}
