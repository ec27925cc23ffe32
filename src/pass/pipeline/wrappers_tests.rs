//! Tests of wrapper expansion: what runs, in the interpreter and after the passes, and what is refused.

use crate::diag::Diagnostics;
use crate::graph::{self, GraphModule};
use crate::infer::{InferOptions, expand_wrappers, infer};
use crate::interp;
use crate::source::FileId;
use crate::syntax::parse_text;
use crate::tensor::Tensor;
use crate::types::Val;

fn module(text: &str) -> (GraphModule, Diagnostics) {
    let (tree, found) = parse_text(FileId(0), text);
    assert!(!found.has_errors(), "{found:?}");
    let (mut module, found) = graph::build(&tree, "test");
    assert!(!found.has_errors(), "{found:?}");
    let found = infer(&mut module, &InferOptions::default());
    (module, found)
}

/// The module of a region `body` with two inputs, and its result's type.
fn region(head: &str, types: [&str; 2], body: &str) -> (String, GraphModule) {
    let [x, y] = types;
    let text = format!(
        "graph main {{\n  %x : {x} = placeholder x\n  %y : {y} = placeholder y\n  \
         %r = call_function torch.ops.higher_order.wrap_with_autocast({head}, @region, %x, %y)\n  output %r\n}}\n\
         graph region {{\n  %a = placeholder a\n  %b = placeholder b\n  {body}\n  output %c\n}}\n"
    );
    let (module, found) = module(&text);
    assert!(found.is_empty(), "{found:?}");
    let graph = module.entry().unwrap();
    let r = graph.find("r").unwrap();
    let ty = graph[r].meta.ty.clone().unwrap_or(Val::Unknown).to_string();
    (ty, module)
}

#[test]
fn a_region_converts_what_its_ops_take() {
    let mm = "%c = call_function torch.ops.aten.mm.default(%a, %b)";
    let cat = "%c = call_function torch.ops.aten.cat.default([%a, %b])";
    let mse = "%c = call_function torch.ops.aten.mse_loss.default(%a, %b)";
    let on = "\"cpu\", torch.bfloat16, True, False";
    let inner = "%c = call_function torch.ops.aten.inner.default(%a, %b)";
    let tensordot = "%c = call_function torch.ops.aten.tensordot.default(%a, %b, [0, 1], [0, 1])";
    let lone = "%c = call_function torch.ops.aten.einsum.default(\"ij,kj->\", [%a, %b])";
    let outer = "%c = call_function torch.ops.aten.einsum.default(\"ij,kl->ijkl\", [%a, %b])";
    let power = |n: i32| format!("%c = call_function torch.ops.aten.linalg_matrix_power.default(%a, {n})");
    for (head, types, body, want) in [
        (on, ["f32[2, 2]", "f32[2, 2]"], mm, "bf16[2, 2]"),
        (on, ["f32[2, 2]", "bf16[2, 2]"], mm, "bf16[2, 2]"),
        (on, ["f64[2, 2]", "f64[2, 2]"], mm, "f64[2, 2]"),
        (on, ["i64[2, 2]", "i64[2, 2]"], mm, "i64[2, 2]"),
        (on, ["f32[2, 2]", "bf16[2, 2]"], cat, "f32[4, 2]"),
        (on, ["bf16[2, 2]", "bf16[2, 2]"], cat, "bf16[4, 2]"),
        (on, ["bf16[2, 2]", "bf16[2, 2]"], mse, "f32[]"),
        (on, ["f32[2, 2]", "f32[2, 2]"], inner, "bf16[2, 2]"),
        (on, ["f32[2]", "f32[2]"], inner, "f32[]"),
        (on, ["f32[2]", "f32[]"], inner, "f32[2]"),
        (on, ["f32[2, 2]", "f32[2, 2]"], tensordot, "f32[]"),
        (on, ["f32[2, 2, 3]", "f32[2, 2]"], tensordot, "bf16[3]"),
        (on, ["f32[2, 2]", "f32[2, 2]"], lone, "bf16[]"),
        (on, ["f32[2, 2]", "f32[2, 2]"], outer, "f32[2, 2, 2, 2]"),
        (on, ["f32[2, 2]", "f32[2, 2]"], &power(1), "f32[2, 2]"),
        (on, ["f32[2, 2]", "f32[2, 2]"], &power(3), "bf16[2, 2]"),
        (on, ["f32[2, 2]", "f32[2, 2]"], &power(-1), "f32[2, 2]"),
        (on, ["f32[2, 2]", "f32[2, 2]"], &power(-2), "bf16[2, 2]"),
        (
            "\"cpu\", torch.float16, True, False",
            ["f32[2, 2]", "f32[2, 2]"],
            mm,
            "f16[2, 2]",
        ),
        (
            "\"cpu\", None, True, False",
            ["f32[2, 2]", "f32[2, 2]"],
            mm,
            "bf16[2, 2]",
        ),
        (
            "\"cpu\", torch.float64, True, False",
            ["f32[2, 2]", "f32[2, 2]"],
            mm,
            "f32[2, 2]",
        ),
        (
            "\"cuda\", torch.float16, True, False",
            ["f32[2, 2]", "f32[2, 2]"],
            mm,
            "f32[2, 2]",
        ),
        (
            "\"cpu\", torch.bfloat16, False, False",
            ["f32[2, 2]", "f32[2, 2]"],
            mm,
            "f32[2, 2]",
        ),
    ] {
        assert_eq!(region(head, types, body).0, want, "{head} {types:?} {body}");
    }
}

#[test]
fn a_graph_that_is_called_in_two_ways_has_a_copy_for_each() {
    let text = "graph main {
        %x : f32[2, 2] = placeholder x
        %on = call_function torch.ops.higher_order.wrap_with_autocast(\"cpu\", torch.bfloat16, True, False, @outer, %x)
        %off = call_function product(%x)
        output (%on, %off)
    }
    graph outer { %a = placeholder a  %b = call_function product(%a)  output %b }
    graph product { %a = placeholder a  %b = call_function torch.ops.aten.mm.default(%a, %a)  output %b }
    ";
    let (module, found) = module(&text.replace("  ", "\n"));
    assert!(found.is_empty(), "{found:?}");
    let graph = module.entry().unwrap();
    let ty = |n: &str| graph[graph.find(n).unwrap()].meta.ty.clone().unwrap().to_string();
    assert_eq!((ty("on"), ty("off")), ("bf16[2, 2]".into(), "f32[2, 2]".into()));
    assert_eq!(module.graphs.len(), 3, "the module itself stays as it was");
    let written = expand_wrappers(&module).unwrap().unwrap();
    assert_eq!(written.graphs.len(), 4);
    assert!(expand_wrappers(&written).unwrap().is_none());
}

#[test]
fn what_autocast_makes_of_some_ops_is_not_known() {
    let text = "graph main {
        %x : f32[2, 2] = placeholder x
        %r = call_function torch.ops.higher_order.wrap_with_autocast(\"cpu\", torch.bfloat16, True, False, @region, %x)
        output %r
    }
    graph region { %a = placeholder a  %b = call_function torch.ops.aten.cov.default(%a)  output %b }
    ";
    let (_, found) = module(&text.replace("  ", "\n"));
    let titles: Vec<&str> = found.iter().map(|d| d.title.as_str()).collect();
    assert_eq!(
        titles,
        ["fxc does not know how autocast handles `torch.ops.aten.cov.default`"]
    );
    let said = found.iter().flat_map(|d| &d.notes).cloned().collect::<String>();
    assert!(
        said.contains("`run_decompositions` keeps this op but loses its autocast region"),
        "{said}"
    );
}

/// A call of `mylib.accum`, wrapped.
fn accum(call: &str) -> GraphModule {
    let text = format!(
        "graph main {{\n  %x : f32[3] = placeholder x\n  %y : f32[3] = placeholder y\n  {call}\n  \
         %new = call_function operator.getitem(%f, 1)\n  output (%new, %y)\n}}\n\
         graph mylib.accum {{\n  %x = placeholder x\n  %out = placeholder out\n  \
         %part = call_function torch.ops.aten.slice.Tensor(%out, 0, 1, 3)\n  \
         %from = call_function torch.ops.aten.slice.Tensor(%x, 0, 1, 3)\n  \
         %written = call_function torch.ops.aten.add_.Tensor(%part, %from)\n  output None\n}}\n"
    );
    let (module, found) = module(&text);
    assert!(found.is_empty(), "{found:?}");
    module
}

#[test]
fn a_wrapped_op_writes_to_copies() {
    let op = "call_function torch.ops.higher_order.auto_functionalized";
    for call in [
        format!("%f = {op}(\"mylib.accum.default\", x=%x, out=%y)"),
        format!("%f = {op}_v2(\"mylib.accum.default\", x=%x, _out_base_index=0, _all_bases=[%y])"),
        format!("%f = {op}_v2(\"mylib.accum.default\", x=%x, _out_base_index=0, _out_alias=True, _all_bases=[%y])"),
        format!(
            "%f = {op}_v2(\"mylib.accum.default\", x=%x, _out_base_index=0, _out_slice_dim=0, _out_slice_start=0, \
             _out_slice_end=3, _all_bases=[%y])"
        ),
        format!(
            "%f = {op}_v2(\"mylib.accum.default\", x=%x, _out_base_index=0, _out_size=(3,), _out_stride=(1,), \
             _out_storage_offset=0, _all_bases=[%y])"
        ),
    ] {
        let module = accum(&call);
        let vector = |v: [f32; 3]| Tensor::from_slice(&[3], &v);
        let inputs = vec![
            Val::Leaf(vector([1.0, 2.0, 3.0])),
            Val::Leaf(vector([10.0, 20.0, 30.0])),
        ];
        let want = Val::Tuple(vec![
            Val::Leaf(vector([10.0, 22.0, 33.0])),
            Val::Leaf(vector([10.0, 20.0, 30.0])),
        ]);
        assert_eq!(interp::run(&module, inputs).unwrap(), want, "{call}");
    }
}

#[test]
fn a_wrapped_op_that_no_graph_says_is_unknown_by_its_own_name() {
    let text = "graph main {
        %x : f32[3] = placeholder x
        %f = call_function torch.ops.higher_order.auto_functionalized_v2(\"mylib.accum.default\", _x_base_index=0, _all_bases=[%x])
        output %f
    }";
    let (_, found) = module(text);
    let d = found.iter().next().unwrap();
    assert_eq!(d.title, "unknown op: `torch.ops.mylib.accum.default`");
    assert!(d.help[0].contains("`graph mylib.accum { … }`"), "{:?}", d.help);
}
