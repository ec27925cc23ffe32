//! Tests of the accuracy of compiled code against f64, and of compiled runs that fail.

use super::{Dims, Fill, Function, Given, Provided, Request, Session, bind, fill};
use crate::interp::RuntimeValue;
use crate::tensor::Tensor;
use crate::types::{DType, Val};

/// The compiled graph's result for `x`, or `None` if the run fails.
fn run(text: &str, x: Tensor) -> Option<RuntimeValue> {
    let mut s = Session::new();
    let Ok(model) = s.load_text("test", text) else {
        panic!("{:?}", s.diagnostics);
    };
    let given = Provided {
        name: "x".into(),
        given: Given::Value(Val::Leaf(x)),
        origin: "the test".into(),
        must_match: true,
    };
    let (bound, found) = bind::bind_inputs(&model.module, vec![given], Dims::new());
    let bound = bound.unwrap_or_else(|| panic!("{found:?}"));
    Function::new(model, Request::default())
        .call(&mut s, &bound)
        .ok()
        .map(|r| r.result)
}

fn tensor(v: &RuntimeValue) -> Tensor {
    v.leaves().first().map(|&t| t.clone()).expect("a tensor")
}

#[test]
fn running_sums_lose_little() {
    let shapes = [
        (vec![30_000usize], 0usize),
        (vec![4, 10_007], 1),
        (vec![3, 2, 130], 2),
        (vec![10_000, 5], 0),
    ];
    for (shape, dim) in shapes {
        let text = format!(
            "graph main {{ %x : f32{shape:?} = placeholder x
            %y = call_function torch.cumsum(%x, {dim})
            output %y }}"
        );
        let x = fill::filled_tensor(DType::F32, &shape, Fill::Uniform(7));
        let y = tensor(&run(&text, x.clone()).expect("a result"));
        let inner: usize = shape[dim + 1..].iter().product();
        let mut sums = vec![0f64; x.numel()];
        for i in 0..x.numel() {
            let place = i / inner % shape[dim];
            let before = if place > 0 { sums[i - inner] } else { 0.0 };
            sums[i] = before + x.get(i).to_f64();
            let error = (y.get(i).to_f64() - sums[i]).abs() / sums[i];
            // Within the first block of a row, the rounding errors of f32 add up.
            let most = if place < 1000 { 3e-7 } else { 1.2e-7 };
            assert!(error < most, "{shape:?} at {i}: {error:e}");
        }
    }
}

#[test]
fn long_sums_lose_little() {
    for (shape, dim) in [
        (vec![20_001usize, 64], 0usize),
        (vec![2, 5_000, 24], 1),
        (vec![3, 300_000], 1),
    ] {
        let text = format!(
            "graph main {{ %x : f32{shape:?} = placeholder x
            %y = call_function torch.sum(%x, {dim})
            output %y }}"
        );
        let x = fill::filled_tensor(DType::F32, &shape, Fill::Uniform(7));
        let y = tensor(&run(&text, x.clone()).expect("a result"));
        let inner: usize = shape[dim + 1..].iter().product();
        let mut sums = vec![0f64; y.numel()];
        for i in 0..x.numel() {
            sums[i / (inner * shape[dim]) * inner + i % inner] += x.get(i).to_f64();
        }
        for (i, sum) in sums.iter().enumerate() {
            let error = (y.get(i).to_f64() - sum).abs() / sum;
            assert!(error < 6e-7, "{shape:?} at {i}: {error:e}");
        }
    }
}

#[test]
fn running_sums_of_rows_keep_infinities() {
    let mut row = vec![1f32; 300];
    (row[70], row[200]) = (f32::INFINITY, f32::NEG_INFINITY);
    let text = "graph main { %x : f32[300] = placeholder x
        %y = call_function torch.cumsum(%x, 0)
        output %y }";
    let y = tensor(&run(text, Tensor::from_slice(&[300], &row)).expect("a result"));
    let y = y.as_slice::<f32>();
    assert_eq!((y[69], y[70], y[199]), (70.0, f32::INFINITY, f32::INFINITY));
    assert!(y[200].is_nan() && y[299].is_nan());
}

#[test]
fn running_sums_keep_infinities() {
    let x = Tensor::from_slice(
        &[4, 2],
        &[1f32, 2., f32::INFINITY, 1., 3., f32::NEG_INFINITY, -1., f32::INFINITY],
    );
    let text = "graph main { %x : f32[4, 2] = placeholder x
        %y = call_function torch.cumsum(%x, 0)
        output %y }";
    let y = tensor(&run(text, x).expect("a result"));
    let inf = f32::INFINITY;
    assert_eq!(y.as_slice::<f32>()[..7], [1., 2., inf, 3., inf, -inf, inf]);
    assert!(y.as_slice::<f32>()[7].is_nan());
}

#[test]
fn a_maximum_that_nothing_uses_is_compiled() {
    let x = Tensor::from_slice(&[5], &[3i64, -4, 9, 0, 1]);
    let text = "graph main { %x : i64[5] = placeholder x
        %both = call_function torch.ops.aten.aminmax.default(%x, dim=0)
        %least = call_function operator.getitem(%both, 0)
        output %least }";
    assert_eq!(tensor(&run(text, x).expect("a result")).as_slice::<i64>(), [-4]);
}

#[test]
fn declared_sizes_are_checked_when_a_compiled_model_runs() {
    let text = "graph main { %x : f32[4] = placeholder x
        %y = call_function torch.relu(%x)
        %n : i64[4, 1] = call_function torch.nonzero(%y)
        %s = call_method size(%n, 0)
        output (%y, %s) }";
    let all = Tensor::from_slice(&[4], &[1f32, 2., 3., 4.]);
    assert!(run(text, all).is_some());
    assert!(run(text, Tensor::from_slice(&[4], &[1f32, 0., 3., 4.])).is_none());
}

#[test]
fn weights_of_8_bits_are_converted() {
    let text = "graph main { %x : f32[2, 2] = placeholder x
        %small = call_method to(%x, f8e5m2)
        %turned = call_method t(%small)
        %w = call_method float(%turned)
        %y = call_function torch.matmul(%x, %w)
        output %y }";
    let x = Tensor::from_slice(&[2, 2], &[1.125f32, 2., 3., 4.]);
    // 1.125 becomes 1.
    let y = tensor(&run(text, x.clone()).expect("a result"));
    assert_eq!(y.as_slice::<f32>(), [1.125 + 4., 3.375 + 8., 3. + 8., 9. + 16.]);
    let refused = text.replace(
        "%w = call_method float(%turned)",
        "%w = call_function torch.add(%turned, 1)",
    );
    let mut s = Session::new();
    let checked = s.load_text("test", &refused).map(|mut m| s.check(&mut m.module, &[]));
    assert!(checked.is_err() || s.diagnostics.has_errors());
}

/// The mean relative error of sums over dim 0 of positive numbers.
fn mean_error_of_sums(shape: &[usize]) -> f64 {
    let text =
        format!("graph main {{ %x : f32{shape:?} = placeholder x  %y = call_function torch.sum(%x, 0)  output %y }}");
    let x = fill::filled_tensor(DType::F32, shape, Fill::Uniform(3));
    let y = tensor(&run(&text, x.clone()).expect("a result"));
    let columns = x.numel() / shape[0];
    let error = |c: usize| {
        let exact: f64 = (0..shape[0]).map(|r| x.get(r * columns + c).to_f64()).sum();
        (y.get(c).to_f64() - exact).abs() / exact
    };
    (0..columns).map(error).sum::<f64>() / columns as f64
}

/// torch's cascade has mean errors of 3.4e-8 to 4.7e-8 for these shapes. Sequential sums of 1000 terms have 3.4e-7.
#[test]
fn sums_lose_little_at_every_length() {
    for n in [31usize, 49, 100, 127, 197, 512, 1000, 1023, 1024, 4096, 20_000] {
        let error = mean_error_of_sums(&[n, 64]);
        assert!(error < 8e-8, "{n}: {error:e}");
    }
    // Rows of 1000 have a rest that does not fill a vector.
    let rows: Vec<f64> = (1..20).map(|i| mean_error_of_sums(&[1000 + i, 1])).collect();
    let mean = rows.iter().sum::<f64>() / rows.len() as f64;
    assert!(mean < 6e-8, "{mean:e}");
}
