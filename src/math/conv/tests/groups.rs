//! Groups that are multiplied together.

use super::*;

/// Products with zero are not zero for infinities and NaN, so units that multiply several groups together must not meet them.
#[test]
fn special_values_stay_in_their_group() {
    let pool = Pool::new(2);
    for (layout, conv) in [ConvLayout::ChannelsFirst, ConvLayout::ChannelsLast]
        .into_iter()
        .flat_map(|l| [square(64, 64, 4, 6, 3, 1), square(48, 96, 3, 6, 1, 1)].map(|c| (l, c)))
    {
        for (dtype, precision) in [(DType::BF16, Precision::F32), (DType::F32, Precision::Bf16)] {
            let conv = Conv {
                dtype,
                batch: 2,
                input_layout: layout,
                output_layout: layout,
                ..conv.clone()
            };
            let case = Case {
                conv,
                constant: true,
                constant_bias: true,
                exact: true,
                precision,
                seed: 5,
            };
            let (mut x, w, b) = operands(&case);
            let infinite = Scalar::from_f64(dtype, f64::INFINITY);
            // In the second image's second group.
            let (pixels, channels) = (36, case.conv.in_channels);
            let at = (channels + channels / case.conv.groups) * pixels + 7;
            x = Tensor::from_fn(dtype, x.shape(), |i| if i == at { infinite } else { x.get(i) });
            let want = expected(&case.conv, &x, &w, b.as_ref());
            for kernels in all_kernels() {
                let got = run(&case, kernels, &pool, &x, &w, b.as_ref(), None);
                for i in 0..got.numel() {
                    let (a, b) = (got.get(i).to_f64(), want.get(i).to_f64());
                    let agree = (a - b).abs() <= 0.01 * b.abs().max(1.0);
                    assert!(
                        agree || a == b || a.is_nan() && b.is_nan(),
                        "{kernels} {i}: {a} and {b}"
                    );
                }
            }
        }
    }
}
