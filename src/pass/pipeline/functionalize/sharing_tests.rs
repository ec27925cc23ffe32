//! Which values share memory: a write to one shows in the other, in the interpreter and in the functional graph.

use super::functionalize;
use super::tests::check;
use crate::graph::GraphModule;
use crate::interp::run;
use crate::interp::tests::{module, numbers};
use crate::tensor::Tensor;
use crate::types::Val;

/// Ops on lists of tensors return views of them.
#[test]
fn items_of_lists_share_memory() {
    for call in [
        "torch.atleast_1d([%z, %z])",
        "torch.atleast_2d([%z, %z])",
        "torch.broadcast_tensors([%z, %z])",
    ] {
        check(
            &format!(
                "%z = call_function mul(%x, 1)
                %l = call_function {call}
                %a = call_function operator.getitem(%l, 0)
                %w = call_method mul_(%z, 2)
                output %a"
            ),
            &[2., 4., 6., 8., 10., 12.],
        );
    }
    check(
        "%z = call_function mul(%x, 1)
        %v = call_method select(%z, 1, 0)
        %l = call_function torch.meshgrid([%v, %v], indexing=\"ij\")
        %a = call_function operator.getitem(%l, 1)
        %w = call_method mul_(%v, 2)
        output %a",
        &[2., 8., 2., 8.],
    );
}

/// Views that are composites were once taken for tensors of their own.
#[test]
fn a_write_shows_in_views_by_primitives() {
    for view in [
        "view_of.default(%z)",
        "split_dim.default(%z, 1, 3)",
        "collapse_view.default(%z, 0, 1)",
        "broadcast_in_dim.default(%z, [2, 3, 1], [0, 1])",
    ] {
        let write = "%z = call_function mul(%x, 1)\n%v = call_function prims.";
        let rest = "\n%row = call_method select(%z, 0, 0)\n%w = call_method add_(%row, 1)\noutput %v";
        check(&format!("{write}{view}{rest}"), &[2., 3., 4., 4., 5., 6.]);
    }
}

#[test]
fn a_write_shows_in_the_operand_of_einsum() {
    // What permutes or takes diagonals is a view; what sums is not.
    let cases: [(&str, &str, &[f64]); 5] = [
        ("ij->ji", "%v", &[2., 5., 3., 6., 4., 7.]),
        ("ij->ji", "%z", &[2., 3., 4., 5., 6., 7.]),
        ("...->...", "%z", &[2., 3., 4., 5., 6., 7.]),
        ("ij->i", "%z", &[1., 2., 3., 4., 5., 6.]),
        ("ij->", "%v", &[22.]),
    ];
    for (equation, result, want) in cases {
        check(
            &format!(
                "%z = call_function mul(%x, 1)
                %v = call_function torch.einsum(\"{equation}\", %z)
                %w = call_method add_(%v, 1)
                output {result}"
            ),
            want,
        );
    }
    check(
        "%z = call_method narrow(%x, 1, 0, 2)
        %c = call_method clone(%z)
        %v = call_function torch.einsum(\"ii->i\", [%c])
        %w = call_method mul_(%v, 10)
        %p = call_function torch.einsum(\"ij,jk->ik\", %c, %c)
        %u = call_method zero_(%c)
        output (%p, %v)",
        &[108., 120., 240., 2508., 0., 0.],
    );
}

#[test]
fn a_view_of_everything_keeps_its_shape_when_its_base_changes() {
    for (view, shape) in [
        ("call_function torch.ops.aten.numpy_T(%z)", vec![]),
        ("call_function torch.ops.aten.alias(%z)", vec![]),
        ("call_function prims.view_of.default(%z)", vec![]),
        ("call_function getattr(%z, \"data\")", vec![]),
        ("call_method view([])", vec![]),
        ("call_method permute([])", vec![]),
        ("call_function getattr(%z, \"mT\")", vec![1]),
        ("call_function torch.ops.aten.mT(%z)", vec![1]),
    ] {
        let view = view.replace("([", "(%z, [");
        let mut m = module(&format!(
            "graph g {{ %x : f32[] = placeholder x
            %z = call_function mul(%x, 1)
            %v = {view}
            %w = call_method add_(%v, 1)
            %u = call_method unsqueeze_(%z, 0)
            output (%v, %z) }}"
        ));
        let x = Tensor::from_slice(&[], &[3f32]);
        let look = |m: &GraphModule| {
            let got = run(m, vec![Val::Leaf(x.clone())]).unwrap();
            let shapes: Vec<_> = got.leaves().iter().map(|t| t.shape().to_vec()).collect();
            assert_eq!(shapes, [shape.clone(), vec![1]], "{view}");
            assert_eq!(numbers(&got), [4., 4.], "{view}");
        };
        look(&m);
        functionalize(&mut m).unwrap();
        look(&m);
    }
}

/// Calls that have nothing to do copy all the same.
#[test]
fn a_write_does_not_show_in_copies() {
    for call in [
        "torch.roll(%z, 0)",
        "torch.roll(%z, [0, 0], [0, 1])",
        "torch.native_dropout(%z, 0.5, False)[0]",
        "torch.pixel_shuffle(%image, 1)",
        "torch.pixel_unshuffle(%image, 1)",
    ] {
        let (call, item) = match call.strip_suffix("[0]") {
            Some(call) => (call, "%v = call_function operator.getitem(%c, 0)"),
            None => (call, "%v = call_method view(%c, [2, 3])"),
        };
        check(
            &format!(
                "%z = call_function mul(%x, 1)
                %image = call_method view(%z, [1, 2, 3])
                %c = call_function {call}
                %w = call_method zero_(%z)
                {item}
                output %v"
            ),
            &[1., 2., 3., 4., 5., 6.],
        );
    }
    check(
        "%z = call_function mul(%x, 1)
        %row = call_method select(%z, 0, 0)
        %v = call_function torch.cartesian_prod([%row])
        %w = call_method zero_(%z)
        output %v",
        &[0., 0., 0.],
    );
}
