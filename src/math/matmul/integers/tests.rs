//! Compares products with integer weights with those of the weights as numbers.

use crate::math::contract::{Constant, MatMul, MatMulArgs, MatMulConstants, Packer, Packs, Precision};
use crate::math::matmul::plan;
use crate::math::pairs::{PairKernels, tests::all_kernels};
use crate::parallel::Pool;
use crate::tensor::{BlockValues, Quantized, SplitMix, Tensor};
use crate::types::DType;

/// Integers from `least` to `most` with scales for each column and `group` product indices, as `[n, k]` or `[k, n]`.
fn weight([n, k, group]: [usize; 3], [least, most]: [i64; 2], columns_last: bool) -> Tensor {
    let mut random = SplitMix::new(7);
    let mut next = |bound: i64| (random.next_u64() % bound as u64) as i64;
    let integers: Vec<i8> = (0..n * k).map(|_| (least + next(most - least + 1)) as i8).collect();
    let scales: Vec<f32> = (0..n * k / group).map(|_| (1 + next(100)) as f32 / 64.0).collect();
    let (shape, block, strides) = match columns_last {
        true => ([k, n], [group, 1], [n, 1]),
        false => ([n, k], [1, group], [k / group, 1]),
    };
    let quantized = Quantized {
        integers: Tensor::from_slice(&shape, &integers),
        strides: [shape[1], 1],
        shape,
        zero: None,
        scale: Some(BlockValues {
            values: Tensor::from_slice(&[scales.len()], &scales),
            offset: 0,
            block,
            strides,
        }),
        dtype: DType::F32,
    };
    quantized.into_tensor(&shape).expect("the sizes match")
}

fn run(kernels: PairKernels, precision: Precision, desc: &MatMul, a: &Tensor, b: Constant) -> Vec<f32> {
    let constants = MatMulConstants { a: None, b: Some(b) };
    let plan = plan(kernels, precision, desc, constants).expect("a plan");
    let mut out = Tensor::zeros(DType::F32, &[desc.m, desc.n]);
    let args = MatMulArgs {
        a: a.bytes().as_ptr(),
        b: std::ptr::null(),
        addend: std::ptr::null(),
        c: out.bytes_mut().as_mut_ptr(),
        tail: None,
    };
    // SAFETY: the operands hold the descriptor's extents.
    unsafe { plan.run(&Pool::new(2), &args) };
    out.as_slice::<f32>().to_vec()
}

#[test]
fn integers_and_numbers_have_equal_products() {
    for kernels in all_kernels() {
        for (range, zeros) in [
            ([-8, 7], Zeros::None),
            ([-128, 127], Zeros::None),
            ([-100, 100], Zeros::Far),
            ([0, 15], Zeros::OfGroups),
            ([-8, 7], Zeros::OfGroups),
        ] {
            for sizes in [[1, 16, 16], [33, 96, 32], [70, 45, 45], [64, 600, 8], [40, 256, 128]] {
                for (m, columns_last) in [(1, false), (3, true), (4, false), (5, true), (19, false), (37, false)] {
                    compare(kernels, sizes, range, zeros, m, columns_last);
                }
            }
        }
    }
}

/// The zero points of a weight.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Zeros {
    None,
    /// 100, so that differences need two bytes.
    Far,
    /// One in the range of half a byte for each scale.
    OfGroups,
}

fn compare(kernels: PairKernels, sizes: [usize; 3], range: [i64; 2], zeros: Zeros, m: usize, columns_last: bool) {
    let [n, k, group] = sizes;
    let w = weight(sizes, range, columns_last);
    let w = with_zeros(&w, zeros);
    let mut random = SplitMix::new(3);
    let a: Vec<f32> = (0..m * k)
        .map(|_| (random.next_u64() % 64) as f32 / 8.0 - 4.0)
        .collect();
    let a = Tensor::from_slice(&[m, k], &a);
    let desc = match columns_last {
        true => MatMul::new(DType::F32, m, n, k),
        false => MatMul::linear(DType::F32, m, n, k),
    };
    let want = run(kernels, Precision::F32, &desc, &a, Constant::from_bytes(w.bytes()));
    compare_small_rows(kernels, &desc, group, &w, zeros);
    let packs = Packs::default();
    let packer = Packer::new(&packs);
    let desc = MatMul {
        quantized: Some(group),
        ..desc
    };
    let plain = MatMul {
        quantized: None,
        ..desc.clone()
    };
    let got = run(kernels, Precision::F32, &desc, &a, Constant::from_tensor(&w, &packer));
    let narrow = w.to(DType::BF16).to(DType::F32);
    let rounded = run(
        kernels,
        Precision::F32,
        &plain,
        &a,
        Constant::from_bytes(narrow.bytes()),
    );
    let pairs = run(kernels, Precision::Bf16, &desc, &a, Constant::from_tensor(&w, &packer));
    let packed = packer.into_packed();
    assert!(packed.iter().all(|p| p.key[0] == 7), "packed as integers");
    // Zero points do not cost half a byte for each integer.
    if zeros == Zeros::OfGroups && group % 2 == 0 {
        let columns = n.next_multiple_of(32);
        let most = columns * (k / 2 + k / group * 5);
        assert!(packed.iter().all(|p| p.bytes.bytes().len() <= most), "{sizes:?}");
    }
    // Plans for few rows and other processors do not round the weight.
    for ((got, want), near) in pairs.iter().zip(&rounded).zip(&want) {
        let error = (got - want).abs().min((got - near).abs());
        assert!(
            error <= 1e-5 * want.abs().max(100.0 * k as f32),
            "{sizes:?} {m}: {got} {want}"
        );
    }
    for (got, want) in got.iter().zip(want) {
        assert!(
            (got - want).abs() <= 1e-5 * want.abs().max(100.0 * k as f32),
            "{sizes:?} {m}: {got} {want}"
        );
    }
}

/// The same with rows of 8-bit integers.
fn compare_small_rows(kernels: PairKernels, desc: &MatMul, group: usize, w: &Tensor, zeros: Zeros) {
    let mut random = SplitMix::new(4);
    let a: Vec<f32> = (0..desc.m * desc.k)
        .map(|_| (random.next_u64() % 256) as f32 - 128.0)
        .collect();
    let a = Tensor::from_slice(&[desc.m, desc.k], &a);
    let want = run(kernels, Precision::F32, desc, &a, Constant::from_bytes(w.bytes()));
    let small = MatMul {
        quantized: Some(group),
        a_is_i8: true,
        ..desc.clone()
    };
    let packs = Packs::default();
    let packer = Packer::new(&packs);
    // Units that multiply pairs round the weight, but rows of integers do not reach them.
    let exact = kernels.has_quads && group.is_multiple_of(32) && zeros != Zeros::Far;
    for precision in [Precision::F32, Precision::Bf16].into_iter().take(1 + exact as usize) {
        let got = run(kernels, precision, &small, &a, Constant::from_tensor(w, &packer));
        for (got, want) in got.iter().zip(&want) {
            let bound = 1e-5 * want.abs().max(3000.0 * desc.k as f32);
            assert!(
                (got - want).abs() <= bound,
                "{kernels} {group} {}: {got} {want}",
                desc.m
            );
        }
    }
}

/// The matrix with zero points.
fn with_zeros(w: &Tensor, zeros: Zeros) -> Tensor {
    let q = w.quantized().expect("a quantized tensor");
    let scale = q.scale.as_ref().expect("scales");
    let blocks = |values: Tensor, block, strides| BlockValues {
        values,
        offset: 0,
        block,
        strides,
    };
    let mut random = SplitMix::new(5);
    let least = if q.integers.as_slice::<i8>().iter().any(|&x| x < 0) {
        -8
    } else {
        0
    };
    let of_groups: Vec<i32> = (0..scale.values.numel())
        .map(|_| least + (random.next_u64() % 16) as i32)
        .collect();
    let quantized = Quantized {
        integers: q.integers.clone(),
        strides: q.strides,
        shape: q.shape,
        zero: match zeros {
            Zeros::None => None,
            Zeros::Far => Some(blocks(Tensor::scalar(100i64), q.shape, [0, 0])),
            Zeros::OfGroups => {
                let values = Tensor::from_slice(&[of_groups.len()], &of_groups);
                Some(blocks(values, scale.block, scale.strides))
            }
        },
        scale: Some(blocks(scale.values.clone(), scale.block, scale.strides)),
        dtype: DType::F32,
    };
    quantized.into_tensor(w.shape()).expect("the sizes match")
}

/// Elements of any magnitude, among them infinities and NaN, in rows that are multiplied with integers.
#[test]
fn rows_of_any_numbers_keep_their_precision() {
    let [n, k, group] = [33, 192, 64];
    for (range, columns_last) in [([-8, 7], false), ([-128, 127], true)] {
        let w = weight([n, k, group], range, columns_last);
        let mut random = SplitMix::new(9);
        let mut number =
            |magnitude: i32| (random.next_u64() % 2001) as f32 / 1000.0 * 2f32.powi(magnitude) - 2f32.powi(magnitude);
        // One magnitude for each block of 32, and rows of denormal numbers, with an infinity, and with NaN.
        let magnitudes = [0, 40, -60, 3, -120, 80];
        let mut a: Vec<f32> = (0..k).map(|i| number(magnitudes[i / 32])).collect();
        a.extend((0..k).map(|_| number(-130)));
        let finite = a.len();
        a.extend((0..k).map(|i| if i == 70 { f32::INFINITY } else { number(0) }));
        a.extend((0..k).map(|i| if i == 5 { f32::NAN } else { number(0) }));
        let (bytes, strides) = (w.to(DType::F64), if columns_last { [n, 1] } else { [1, k] });
        let weights = bytes.as_slice::<f64>();
        for kernels in all_kernels() {
            for rows in [0..1, 1..2, 0..2, 0..4] {
                let m = rows.len();
                let desc = match columns_last {
                    true => MatMul::new(DType::F32, m, n, k),
                    false => MatMul::linear(DType::F32, m, n, k),
                };
                let desc = MatMul {
                    quantized: Some(group),
                    ..desc
                };
                let a = &a[rows.start * k..rows.end * k];
                let packs = Packs::default();
                let packer = Packer::new(&packs);
                let b = Constant::from_tensor(&w, &packer);
                let got = run(kernels, Precision::F32, &desc, &Tensor::from_slice(&[m, k], a), b);
                for (i, got) in got.into_iter().enumerate() {
                    let products = (0..k).map(|p| {
                        let x = f64::from(a[i / n * k + p]);
                        x * weights[p * strides[0] + i % n * strides[1]]
                    });
                    let (sum, size) = products.fold((0.0, 0.0), |(s, a), p| (s + p, a + p.abs()));
                    match (rows.start + i / n) * k < finite {
                        true => assert!(
                            (f64::from(got) - sum).abs() <= 1e-6 * size + 1e-37,
                            "{kernels} {i}: {got} {sum}"
                        ),
                        false => assert!(
                            f64::from(got) == sum || got.is_nan() && sum.is_nan(),
                            "{kernels} {i}: {got} {sum}"
                        ),
                    }
                }
            }
        }
    }
}

/// Small integers are multiplied without rounding, whether or not B is kept as integers.
#[test]
fn products_of_small_integers_are_exact() {
    for kernels in all_kernels() {
        for (m, k, n) in [(1, 70, 33), (5, 64, 32), (37, 300, 45)] {
            let values = |count: usize, span: i64, low: i64| -> Vec<f32> {
                (0..count as i64).map(|i| (low + i * 37 % span) as f32).collect()
            };
            let (a, b) = (values(m * k, 511, -255), values(k * n, 256, -128));
            let desc = MatMul {
                exact_in_bf16: true,
                ..MatMul::linear(DType::F32, m, n, k)
            };
            let bytes = Tensor::from_slice(&[n, k], &b);
            let a_tensor = Tensor::from_slice(&[m, k], &a);
            let got = run(
                kernels,
                Precision::F32,
                &desc,
                &a_tensor,
                Constant::from_bytes(bytes.bytes()),
            );
            let exact = |i: usize| -> i64 {
                let (row, column) = (&a[i / n * k..][..k], &b[i % n * k..][..k]);
                row.iter().zip(column).map(|(x, y)| *x as i64 * *y as i64).sum()
            };
            let want: Vec<f32> = (0..m * n).map(|i| exact(i) as f32).collect();
            assert_eq!(got, want, "{kernels} {m} {k} {n}");
        }
    }
}
