//! Writes as FXIR: the interpreter, which writes to memory, and the functional graph both return torch's numbers.

use super::functionalize;
use crate::interp::run;
use crate::interp::tests::{module, numbers};
use crate::tensor::Tensor;
use crate::types::Val;

/// Runs a graph of `%x : f32[2, 3] = [[1, 2, 3], [4, 5, 6]]` as it is and after `functionalize`.
pub(super) fn check(body: &str, want: &[f64]) {
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
    // Bytes: the highest byte of a number holds its sign and most of its exponent.
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
fn a_write_to_an_item_shows_in_the_tuple_and_in_other_uses_of_the_item() {
    check(
        "%t = call_function torch.cummax(%x, 1)
        %v = call_function operator.getitem(%t, 0)
        %w = call_method mul_(%v, 10)
        output %t",
        &[10., 20., 30., 40., 50., 60., 0., 1., 2., 0., 1., 2.],
    );
    check(
        "%t = call_function torch.max(%x, 1)
        %v = call_function operator.getitem(%t, 0)
        %again = call_function operator.getitem(%t, -2)
        %w = call_method mul_(%v, 10)
        %last = call_function operator.getitem(%t, 0)
        output (%again, %last, %t)",
        &[30., 60., 30., 60., 30., 60., 2., 2.],
    );
    // An item is written after its first use, and a view of it is.
    check(
        "%t = call_function torch.max(%x, 1)
        %v = call_function operator.getitem(%t, 0)
        %before = call_function torch.add(%v, 1)
        %first = call_method select(%v, 0, 0)
        %w = call_method zero_(%first)
        output (%before, %t)",
        &[4., 7., 0., 6., 2., 2.],
    );
}

#[test]
fn a_strided_copy_does_not_show_later_writes() {
    check(
        "%z = call_function mul(%x, 1)
        %c = call_function torch.ops.aten.as_strided_copy.default(%z, [2, 2], [1, 1])
        %whole = call_function torch.ops.aten.as_strided_copy.default(%z, [2, 3], [3, 1])
        %v = call_function torch.ops.aten.as_strided.default(%z, [2], [1])
        %w = call_method mul_(%z, 10)
        output (%c, %whole, %v)",
        &[1., 2., 2., 3., 1., 2., 3., 4., 5., 6., 10., 20.],
    );
}

#[test]
fn resize_takes_the_first_elements_in_the_order_of_memory() {
    check(
        "%t = call_method t(%x)
        %y = call_function torch.ops.aten.resize.default(%t, [4])
        output %y",
        &[1., 2., 3., 4.],
    );
    // A copy of every other row keeps the order of the dims in memory.
    check(
        "%t = call_method t(%x)
        %rows = call_function torch.ops.aten.slice.Tensor(%t, 0, 0, 3, 2)
        %four = call_function torch.zeros([4])
        %y = call_function torch.ops.aten.resize_as.default(%rows, %four)
        output %y",
        &[1., 3., 4., 6.],
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
        // Rows of two: the diagonal starts again three rows down.
        &[9., 2., 3., 4., 9., 6., 0., 4., 2., 0., 3., 6., 0., 4., 2., 0., 3., 6.],
    );
}

/// Values from torch for a contiguous [2, 3].
#[test]
fn as_strided_reads_the_memory() {
    // `as_strided` of a transposed view, of a part with its own offset and with another, and of a view of another
    // dtype.
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
    // Results of pointwise ops have the memory order of their operands; explicit copies do not.
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

/// What `as_strided` becomes: a window of elements, wherever they are in memory.
#[test]
fn strided_reads_the_elements_of_a_view() {
    check(
        "%row = call_function narrow(%x, 0, 1, 1)
        %a = call_function strided(%row, [2], [2])
        %t = call_function t(%x)
        %b = call_function strided(%t, [2], [3], 1)
        %c = call_function strided_scatter(%row, %b, [2], [2])
        output (%a, %b, %c)",
        &[4., 6., 4., 3., 4., 5., 3.],
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

#[test]
fn writes_to_one_of_the_elements_that_share_a_place_are_seen_by_all() {
    // Writes through a part of an expanded tensor, and through one of several overlapping windows.
    check(
        "%y = call_function mul(%x, 1)
        %row = call_method select(%y, 0, 0)
        %e = call_method expand(%row, [2, 3])
        %first = call_method select(%e, 0, 0)
        %a = call_method mul_(%first, 10)
        output (%y, %e)",
        &[10., 20., 30., 4., 5., 6., 10., 20., 30., 10., 20., 30.],
    );
    check(
        "%y = call_function mul(%x, 1)
        %z = call_function torch.reshape(%y, [6])
        %w = call_method unfold(%z, 0, 3, 1)
        %one = call_method select(%w, 0, 1)
        %a = call_method neg_(%one)
        output (%z, %a)",
        &[1., -2., -3., -4., 5., 6., -2., -3., -4.],
    );
}

#[test]
fn some_writes_may_go_to_expanded_tensors() {
    let expanded = "%y = call_function mul(%x, 1)
        %row = call_method select(%y, 0, 0)
        %e = call_method expand(%row, [2, 3])
        %i = call_function torch.full([1], 1, dtype=i64)
        %eye = call_function torch.eye(2, 3)
        %mask = call_function torch.gt(%eye, 0)
        %ones = call_function torch.ones([3])
        %seven = call_function torch.full([1], 7.0)";
    for (write, row) in [
        ("call_method fill_(%e, 7)", [7., 7., 7.]),
        ("call_method zero_(%e)", [0.; 3]),
        ("call_method masked_fill_(%e, %mask, 7)", [7., 7., 3.]),
        ("call_method index_fill_(%e, 1, %i, 7)", [1., 7., 3.]),
        (
            "call_function aten.index_put_.default(%e, [None, %i], %seven)",
            [1., 7., 3.],
        ),
        ("call_method fill_diagonal_(%e, 7)", [7., 7., 3.]),
        ("call_method triu_(%e)", [0., 2., 3.]),
        ("call_function torch.threshold_(%e, 2, 7)", [7., 7., 3.]),
        ("call_function operator.setitem(%e, (slice(None), 0), 7)", [7., 2., 3.]),
        ("call_function operator.setitem(%e, 1, %ones)", [1., 1., 1.]),
    ] {
        let all = [&row[..], &[4., 5., 6.], &row, &row].concat();
        check(&format!("{expanded}\n%w = {write}\noutput (%y, %e)"), &all);
    }
    for refused in [
        "call_method add_(%e, 7)",
        "call_method fill_(%e, %eye_0)",
        "call_method copy_(%e, %eye)",
        "call_method index_put_(%e, [%i], %ones, True)",
        "call_method scatter_(%e, 0, %at, 1)",
        "call_function operator.setitem(%e, slice(None), %ones)",
        "call_function torch.mul(%eye, 2, out=%e)",
    ] {
        let text = format!(
            "graph g {{ %x : f32[2, 3] = placeholder x\n{expanded}\n%eye_0 = call_method sum(%eye)
            %at = call_function torch.zeros([2, 3], dtype=i64)\n%w = {refused}\noutput %e }}"
        );
        let mut m = module(&text);
        let x = Tensor::from_slice(&[2, 3], &[1f32; 6]);
        let e = run(&m, vec![Val::Leaf(x)]).unwrap_err();
        assert!(e.title.contains("single memory location"), "{refused}: {}", e.title);
        assert!(functionalize(&mut m).is_err(), "{refused}");
    }
}

#[test]
fn results_lie_where_torch_puts_them() {
    for (call, stride) in [
        ("torch.softmax(%t, 0)", 2.),
        ("torch.log_softmax(%t, 0)", 2.),
        ("torch.tril(%t)", 2.),
        ("torch.nn.functional.logsigmoid(%t)", 2.),
        ("torch.nn.functional.layer_norm(%t, [2])", 2.),
        ("torch.pow(2, %t)", 2.),
        ("torch.pow(%t, 2)", 1.),
        ("aten.new_zeros.default(%t, [3, 2])", 2.),
        ("torch.index_fill(%t, 0, %i, 1)", 1.),
        ("torch.repeat_interleave(%t, 1, 0)", 2.),
        ("aten.index_put.default(%t, [%i], %two)", 1.),
        ("aten.select_scatter.default(%t, %two, 0, 0)", 1.),
        ("torch.nonzero(%t)", 1.),
    ] {
        check(
            &format!(
                "%t = call_method t(%x)
                %i = call_function torch.full([1], 1, dtype=i64)
                %two = call_function torch.ones([2])
                %y = call_function {call}
                %s = call_method stride(%y, 0)
                %n = call_function torch.full([], %s, dtype=f32)
                output %n"
            ),
            &[stride],
        );
    }
    // A diagonal without elements starts where its operand does; `slice_scatter` copies the memory around the view.
    check(
        "%d = call_method diagonal(%x, 5)
        %a = call_function torch.as_strided(%d, [2], [1])
        %row = call_method select(%x, 0, 0)
        %two = call_function torch.zeros([2])
        %s = call_function torch.slice_scatter(%row, %two, 0, 0, 2)
        %b = call_function torch.as_strided(%s, [4], [1], 1)
        output (%a, %b)",
        &[1., 2., 0., 3., 4., 5.],
    );
}

#[test]
fn what_gives_its_operand_back_is_that_operand() {
    let given = [
        ("torch.positive(%z)", 3.),
        ("torch.flatten(%z, 1, 1)", 3.),
        ("torch.flatten(%z, 0, 0)", 3.),
        ("torch.flatten(%z)", 2.),
        ("torch.atleast_2d(%z)", 3.),
        ("torch.atleast_3d(%z)", 2.),
        ("aten.contiguous.default(%z)", 3.),
        ("aten.to.dtype(%z, f32)", 3.),
        ("aten.to.dtype(%z, f32, False, True)", 2.),
        ("aten.sum_to_size.default(%z, [2, 3])", 3.),
        ("torch.dropout(%z, 0.5, False)", 3.),
        ("torch.feature_dropout(%z, 0.5, False)", 3.),
        ("aten.alias.default(%z)", 2.),
        ("aten.expand.default(%z, [2, 3])", 2.),
    ];
    for (call, rank) in given {
        check(
            &format!(
                "%z = call_function mul(%x, 1)
                %y = call_function {call}
                %w = call_method unsqueeze_(%y, 0)
                %n = call_method dim(%z)
                %a = call_function torch.full([], %n, dtype=f32)
                output %a"
            ),
            &[rank],
        );
    }
    // A diagonal is a view, `diag` is not.
    check(
        "%z = call_function mul(%x, 1)
        %a = call_function torch.diag(%z)
        %b = call_method fill_(%a, 7)
        %c = call_function torch.linalg.diagonal(%z, offset=1)
        %d = call_method fill_(%c, 8)
        output %z",
        &[1., 8., 3., 4., 5., 8.],
    );
    // The stride of a new dim of one element.
    check(
        "%n = call_method unsqueeze(%x, 0)
        %m = call_method unsqueeze(%n, 3)
        %a = call_method stride(%m, 0)
        %b = call_method stride(%m, 3)
        %c = call_function torch.full([], %a, dtype=f32)
        %d = call_function torch.full([], %b, dtype=f32)
        output (%c, %d)",
        &[6., 1.],
    );
}

#[test]
fn scans_in_place_keep_the_dtype() {
    check(
        "%b = call_function torch.full([], True, dtype=b8)
        %w = call_method cumsum_(%b, 0)
        %i = call_function torch.full([3], 100, dtype=i8)
        %v = call_method cumsum_(%i, 0)
        %m = call_function torch.full([2], -0.0)
        %c = call_method cumsum_(%m, 0)
        %r = call_function torch.div(1, %c)
        output (%w, %v, %r)",
        &[1., 100., -56., 44., f64::INFINITY, f64::INFINITY],
    );
}

/// torch refuses branches and loop bodies that write to their inputs.
#[test]
fn called_graphs_do_not_write() {
    let text = |body: &str| {
        format!(
            "graph main {{ %x : f32[2] = placeholder x  %p : b8[] = placeholder p
            %y = call_function torch.cond(%p, @yes, @no, (%x,))  output %y }}
            graph yes {{ %x = placeholder x  {body}  output (%z,) }}
            graph no {{ %x = placeholder x  %z = call_function torch.sin(%x)  output (%z,) }}"
        )
    };
    let mut m = module(&text(
        "%y = call_method add_(%x, 1)  %z = call_function torch.mul(%y, 2)",
    ));
    let error = functionalize(&mut m).unwrap_err();
    assert!(error.title.contains("`yes` writes to its inputs"), "{error:?}");
    let mut m = module(&text(
        "%y = call_function torch.mul(%x, 2)  %z = call_method add_(%y, 1)",
    ));
    functionalize(&mut m).unwrap();
}
