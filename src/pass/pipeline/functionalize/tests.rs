//! Writes as FXIR: the interpreter, which writes to memory, and the functional graph give the numbers that torch gives.

use super::functionalize;
use crate::interp::run;
use crate::interp::tests::{module, numbers};
use crate::tensor::Tensor;
use crate::types::Val;

/// Runs a graph of `%x : f32[2, 3] = [[1, 2, 3], [4, 5, 6]]` as it is and made functional.
fn check(body: &str, want: &[f64]) {
    let mut m = module(&format!("graph g {{ %x : f32[2, 3] = placeholder x\n{body} }}"));
    let x = Tensor::from_slice(&[2, 3], &[1f32, 2., 3., 4., 5., 6.]);
    let inputs = || vec![Val::Leaf(x.clone())];
    assert_eq!(numbers(&run(&m, inputs()).unwrap()), want, "{body}");
    functionalize(&mut m).unwrap();
    assert_eq!(numbers(&run(&m, inputs()).unwrap()), want, "functional: {body}");
}

#[test]
fn a_write_through_another_dtype_changes_the_bits() {
    check(
        "%z = call_function mul(%x, 1)
        %i = call_function torch.ops.aten.view.dtype(%z, torch.int32)
        %row = call_method select(%i, 0, 0)
        %w = call_method fill_(%row, 1065353216)
        %column = call_method select(%i, 1, 1)
        %v = call_method bitwise_or_(%column, -2147483648)
        output %z",
        &[1., -1., 1., 4., -5., 6.],
    );
    // Bytes: the highest of each number is its sign and most of its exponent.
    check(
        "%z = call_function mul(%x, 1)
        %b = call_function torch.ops.aten.view.dtype(%z, torch.uint8)
        %tops = call_function torch.ops.aten.slice.Tensor(%b, 1, 3, 12, 4)
        %w = call_method mul_(%tops, 0)
        output (%z, %tops)",
        &[
            1.1754943508222875e-38,
            0.,
            5.877471754111438e-39,
            1.1754943508222875e-38,
            1.4693679385278594e-38,
            1.7632415262334313e-38,
            0.,
            0.,
            0.,
            0.,
            0.,
            0.,
        ],
    );
}

#[test]
fn each_result_has_its_own_out() {
    let both = "%v = call_function torch.zeros([2])
        %i = call_function torch.zeros([2], dtype=i64)";
    for call in [
        "torch.max(%x, 1, out=(%v, %i))",
        "aten.max.dim_max(%x, 1, max=%v, max_values=%i)",
    ] {
        check(
            &format!(
                "{both}
                %r = call_function {call}
                %first = call_function operator.getitem(%r, 0)
                %w = call_method add_(%v, 1)
                output (%v, %i, %first)"
            ),
            &[4., 7., 2., 2., 4., 7.],
        );
    }
    check(
        "%o = call_function torch.zeros([2, 2, 2])
        %v = call_method select(%o, 0, 1)
        %i = call_function torch.zeros([2, 2], dtype=i64)
        %r = call_function aten.topk.values(%x, 2, values=%v, indices=%i)
        output (%o, %i)",
        &[0., 0., 0., 0., 3., 2., 6., 5., 2., 1., 2., 1.],
    );
}

#[test]
fn diagonals_are_filled() {
    check(
        "%z = call_function mul(%x, 1)
        %w = call_method fill_diagonal_(%z, 9)
        %t = call_method t(%z)
        %tall = call_function torch.cat([%t, %t], 0)
        %w2 = call_method fill_diagonal_(%tall, 0.0, wrap=True)
        output (%z, %tall)",
        // Rows of two: the diagonal begins again three rows down.
        &[9., 2., 3., 4., 9., 6., 0., 4., 2., 0., 3., 6., 0., 4., 2., 0., 3., 6.],
    );
}

/// Values as torch gives them for a contiguous [2, 3].
#[test]
fn as_strided_reads_the_memory() {
    // Of a transposed view, of a part with its own offset and with another, and of a view of another dtype.
    check(
        "%t = call_method t(%x)
        %a = call_method as_strided(%t, [2, 3], [3, 1])
        %part = call_method select(%x, 0, 1)
        %b = call_method as_strided(%part, [2], [1])
        %c = call_method as_strided(%part, [2], [1], 2)
        %i = call_function torch.ops.aten.view.dtype(%t, torch.int32)
        %d = call_method as_strided(%i, [2], [5])
        %e = call_function torch.ops.aten.view.dtype(%d, torch.float32)
        output (%a, %b, %c, %e)",
        &[1., 2., 3., 4., 5., 6., 4., 5., 3., 4., 1., 6.],
    );
    // Results of pointwise ops lie in memory as their operands do; copies by name do not.
    check(
        "%t = call_method t(%x)
        %sum = call_function torch.add(%t, 1)
        %a = call_method as_strided(%sum, [6], [1])
        %copy = call_method contiguous(%t)
        %b = call_method as_strided(%copy, [6], [1])
        output (%a, %b)",
        &[2., 3., 4., 5., 6., 7., 1., 4., 2., 5., 3., 6.],
    );
}

#[test]
fn writes_through_as_strided_are_seen_by_all() {
    check(
        "%z = call_function mul(%x, 1)
        %t = call_method t(%z)
        %s = call_method as_strided(%t, [2], [4])
        %w = call_method fill_(%s, 9)
        output (%z, %t)",
        &[9., 2., 3., 4., 9., 6., 9., 4., 2., 9., 3., 6.],
    );
    check(
        "%t = call_method t(%x)
        %two = call_function torch.full([2], 7.0)
        %s = call_function torch.as_strided_scatter(%t, %two, [2], [1], 1)
        output (%s, %x)",
        &[1., 4., 7., 5., 7., 6., 1., 2., 3., 4., 5., 6.],
    );
    check(
        "%z = call_function mul(%x, 1)
        %t = call_method t(%z)
        %v = call_method as_strided_(%t, [3], [2])
        %w = call_method mul_(%t, 10)
        output (%z, %v)",
        &[10., 2., 30., 4., 50., 6., 10., 30., 50.],
    );
}

#[test]
fn strides_are_those_of_the_memory() {
    check(
        "%t = call_method t(%x)
        %sum = call_function torch.add(%t, 1)
        %stride = call_method stride(%sum, 1)
        %part = call_method select(%x, 0, 1)
        %offset = call_method storage_offset(%part)
        %turned = call_method is_contiguous(%t)
        %plain = call_method is_contiguous(%x)
        %a = call_function torch.full([1], %stride, dtype=f32)
        %b = call_function torch.full([1], %offset, dtype=f32)
        %c = call_function torch.full([1], %turned, dtype=f32)
        %d = call_function torch.full([1], %plain, dtype=f32)
        output (%a, %b, %c, %d)",
        &[3., 3., 0., 1.],
    );
}

#[test]
fn a_new_shape_is_that_of_every_name() {
    check(
        "%z = call_function mul(%x, 1)
        %a = call_method t_(%z)
        %b = call_method unsqueeze_(%a, 0)
        %c = call_function torch.add(%z, %b)
        %n = call_method size(%z, 1)
        %d = call_function torch.full([1], %n, dtype=f32)
        output (%c, %d)",
        &[2., 8., 4., 10., 6., 12., 3.],
    );
}
