//! Control flow: see [`crate::control`]. Inference computes the types of the graphs.

use crate::control::Control;
use crate::op::{Meaning, Op};
use crate::types::Val;

fn control_row(name: &'static str, schema: &'static str, control: Control) -> Op {
    Op::new((name, schema), |_, _| Ok(Val::Unknown), Meaning::Control(control))
}

pub(super) fn rows() -> Vec<Op> {
    vec![
        control_row(
            "cond",
            "cond(Any pred, Any true_fn, Any false_fn, Any operands=None) -> Any",
            Control::Cond,
        )
        .doc("calls one of two graphs, selected by a bool: `cond(%p, @then, @else, (%x,))`")
        .spelled("higher_order.@ torch.@ torch._higher_order_ops.@ torch._higher_order_ops.@.@"),
        control_row(
            "while_loop",
            "while_loop(Any cond_fn, Any body_fn, Any carried_inputs, Any additional_inputs=None) -> Any",
            Control::While,
        )
        .doc("calls a graph on its own results while a test graph returns true: `while_loop(@test, @body, (%x,), (%w,))`")
        .spelled(
            "higher_order.while_loop torch.while_loop torch._higher_order_ops.while_loop \
             torch._higher_order_ops.while_loop.while_loop",
        ),
        control_row(
            "scan",
            "scan(Any combine_fn, Any init, Any xs, Any additional_inputs=None) -> Any",
            Control::Scan,
        )
        .doc("calls a graph for each row along dim 0, with carried values: `scan(@combine, [%h], [%xs], (%w,))`")
        .spelled("higher_order.@"),
        control_row("map_impl", "map_impl(Any f, Any xs, Any pos_args=None) -> Any", Control::Map)
            .doc("calls a graph for each row along dim 0 and stacks the results: `map_impl(@f, [%xs], [%w])`")
            .spelled("higher_order.@"),
        control_row(
            "associative_scan",
            "associative_scan(Any combine_fn, Any xs, Any additional_inputs=None) -> Any",
            Control::AssociativeScan,
        )
        .doc("cumulatively combines the rows along dim 0 by a graph with two operands: `associative_scan(@f, [%xs], ())`")
        .spelled("higher_order.@"),
    ]
}
