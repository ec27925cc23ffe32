use super::*;

fn seq(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::from_slice(shape, &(0..n).map(|i| i as f32 % 7.0 - 3.0).collect::<Vec<_>>())
}

fn conv(x: &Tensor, w: &Tensor, out: &[usize], transposed: bool, groups: usize, s: usize, p: usize) -> Vec<f32> {
    let c = Contraction::Conv(Convolution {
        input: 0,
        weight: 1,
        bias: None,
        stride: vec![s; 2],
        padding: vec![p; 2],
        dilation: vec![1; 2],
        transposed,
        output_padding: vec![0; 2],
        groups,
        out: TensorType::with_fixed_shape(DType::F32, out),
    });
    eval_contraction(&c, &[Some(x), Some(w)])
        .unwrap()
        .as_slice::<f32>()
        .to_vec()
}

/// Convolution by its definition, one element at a time.
fn naive(x: &Tensor, w: &Tensor, out: &[usize], groups: usize, s: usize, p: usize) -> Vec<f32> {
    let (xs, ws) = (x.shape(), w.shape());
    let at = |v: &Tensor, i: usize| v.as_slice::<f32>()[i];
    let mut r = vec![];
    for i in all_indices(out) {
        let mut sum = 0.0;
        for t in all_indices(&ws[1..]) {
            let c = i[1] / (out[1] / groups) * ws[1] + t[0];
            let (y, z) = (i[2] * s + t[1], i[3] * s + t[2]);
            if y >= p && z >= p && y - p < xs[2] && z - p < xs[3] {
                let xi = ((i[0] * xs[1] + c) * xs[2] + y - p) * xs[3] + z - p;
                let wi = ((i[1] * ws[1] + t[0]) * ws[2] + t[1]) * ws[3] + t[2];
                sum += at(x, xi) * at(w, wi);
            }
        }
        r.push(sum);
    }
    r
}

#[test]
fn convolution_is_its_definition() {
    let (x, w) = (seq(&[2, 4, 6, 5]), seq(&[6, 2, 3, 3]));
    for (s, p, out) in [(1, 1, [2, 6, 6, 5]), (2, 0, [2, 6, 2, 2]), (2, 1, [2, 6, 3, 3])] {
        assert_eq!(conv(&x, &w, &out, false, 2, s, p), naive(&x, &w, &out, 2, s, p));
    }
}

#[test]
fn transposed_convolution_is_the_adjoint() {
    // <conv(x), y> == <x, conv_transpose(y)> for the same weight.
    let (x, w, y) = (seq(&[1, 4, 5, 5]), seq(&[6, 2, 3, 3]), seq(&[1, 6, 3, 3]));
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let forward = conv(&x, &w, &[1, 6, 3, 3], false, 2, 2, 1);
    let back = conv(&y, &w, &[1, 4, 5, 5], true, 2, 2, 1);
    assert_eq!(dot(&forward, y.as_slice()), dot(x.as_slice(), &back));
}

#[test]
fn batches_broadcast() {
    let (a, b) = (seq(&[3, 1, 2, 4]), seq(&[5, 3, 4]));
    let c = Contraction::MatMul(MatrixProduct {
        a: 0,
        b: 1,
        bias: None,
        a_transposed: false,
        b_transposed: true,
        alpha: 2.0,
        beta: 1.0,
        out: TensorType::with_fixed_shape(DType::F32, &[3, 5, 2, 3]),
    });
    let out = eval_contraction(&c, &[Some(&a), Some(&b)]).unwrap();
    let (x, y) = (a.as_slice::<f32>(), b.as_slice::<f32>());
    for (i, at) in all_indices(&[3, 5, 2, 3]).iter().enumerate() {
        let want: f32 = (0..4)
            .map(|k| x[(at[0] * 2 + at[2]) * 4 + k] * y[(at[1] * 3 + at[3]) * 4 + k])
            .sum();
        assert_eq!(out.as_slice::<f32>()[i], 2.0 * want);
    }
}
