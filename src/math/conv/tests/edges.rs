//! Kernels larger than those of fixed size, narrow rows with much padding, and transposed convolutions with channels first.

use super::*;

/// Checks a layer with constant and with dynamic weights, in both layouts of the output.
fn check_layer(conv: Conv) {
    for (constant, output_layout) in [(false, ConvLayout::ChannelsFirst), (true, ConvLayout::ChannelsLast)] {
        let case = Case {
            conv: Conv {
                output_layout,
                ..conv.clone()
            },
            constant,
            constant_bias: constant,
            exact: true,
            precision: Precision::F32,
            seed: 5,
        };
        check(&case, &Pool::new(1), &Pool::new(3));
    }
}

#[test]
fn tall_depthwise_kernels_agree() {
    for (kernel, stride, height, width) in [
        ([4, 4], [1, 1], 4, 24),
        ([7, 7], [1, 1], 6, 30),
        ([9, 9], [1, 1], 27, 28),
        ([8, 3], [1, 2], 13, 70),
        ([13, 13], [1, 1], 9, 41),
        ([5, 5], [1, 2], 11, 60),
        ([7, 7], [3, 2], 20, 60),
        ([3, 9], [1, 1], 9, 33),
        // Over channels.
        ([9, 9], [1, 1], 14, 14),
        ([11, 11], [1, 1], 5, 9),
    ] {
        check_layer(Conv {
            input: [1, height, width],
            kernel: [1, kernel[0], kernel[1]],
            stride: [1, stride[0], stride[1]],
            padding: [0, kernel[0] / 2, kernel[1] / 2],
            activation: Activation::Clamp(-1.0, 2.0),
            ..square(18, 18, 18, 1, 1, 1)
        });
    }
}

#[test]
fn bf16_depthwise_kernels_with_other_rows_than_columns_agree() {
    for (kernel, stride, height, width) in [
        ([1, 3], [1, 1], 6, 9),
        ([2, 3], [2, 1], 9, 17),
        ([5, 3], [1, 2], 8, 12),
        ([9, 3], [1, 1], 4, 7),
        ([3, 5], [3, 1], 10, 11),
        ([4, 7], [1, 1], 7, 13),
        ([1, 7], [1, 1], 2, 20),
    ] {
        check_layer(Conv {
            dtype: DType::BF16,
            input_layout: ConvLayout::ChannelsLast,
            input: [1, height, width],
            kernel: [1, kernel[0], kernel[1]],
            stride: [1, stride[0], stride[1]],
            padding: [0, kernel[0] / 2, kernel[1] / 2],
            ..square(70, 70, 70, 1, 1, 1)
        });
    }
}

#[test]
fn pixels_without_taps_are_left_out() {
    for (channels, groups, kernel, stride, dilation, size) in [
        (512, 1, 3, 1, 2, 7),
        (40, 1, 5, 2, 1, 7),
        (33, 1, 7, 1, 1, 3),
        (300, 1, 3, 1, 1, 5),
        (32, 1, 3, 1, 9, 8),
        (256, 2, 3, 1, 1, 7),
        (140, 2, 3, 2, 1, 15),
        (64, 4, 3, 1, 7, 9),
    ] {
        for activation in [Activation::None, Activation::Relu] {
            check_layer(Conv {
                stride: [1, stride, stride],
                dilation: [1, dilation, dilation],
                padding: [0, kernel / 2 * dilation, kernel / 2 * dilation],
                activation,
                ..square(channels, 20, groups, size, kernel, 1)
            });
        }
    }
}

#[test]
fn phases_agree() {
    for (channels, groups, kernel, stride, input) in [
        // Rows that are split, and their last pieces.
        ([12, 10], 1, [1, 8], [1, 4], [1, 300]),
        ([3, 9], 1, [3, 4], [2, 2], [3, 250]),
        // More outputs than taps, and groups of one channel.
        ([20, 20], 20, [4, 4], [2, 2], [7, 7]),
        ([70, 70], 70, [2, 3], [3, 3], [5, 4]),
        ([9, 9], 9, [1, 5], [1, 2], [1, 400]),
        ([24, 32], 2, [3, 3], [2, 1], [4, 6]),
    ] {
        check_layer(Conv {
            transposed: true,
            input: [1, input[0], input[1]],
            kernel: [1, kernel[0], kernel[1]],
            stride: [1, stride[0], stride[1]],
            padding: [0, kernel[0] / 2, kernel[1] / 2],
            batch: 2,
            activation: Activation::Relu,
            ..square(channels[0], channels[1], groups, 1, 1, 1)
        });
    }
}

/// Convolutions of few input channels, whose planes are read in lines: narrow and wide rows, one long row, strides between rows,
/// three dimensions, and an odd number of taps.
#[test]
fn few_channels_are_multiplied_in_planes() {
    let plain = Conv {
        dtype: DType::BF16,
        batch: 2,
        bias: true,
        activation: Activation::Relu,
        ..Conv::new2d(3, 13, [20, 23], [3, 3])
    };
    let layers = [
        plain.clone(),
        Conv {
            padding: [0, 2, 2],
            dilation: [1, 2, 2],
            ..plain.clone()
        },
        Conv {
            input: [1, 40, 301],
            stride: [1, 3, 1],
            padding: [0, 1, 4],
            ..plain.clone()
        },
        Conv {
            in_channels: 1,
            out_channels: 1,
            input: [1, 1, 5000],
            kernel: [1, 1, 7],
            ..plain.clone()
        },
        Conv {
            in_channels: 2,
            input: [5, 6, 7],
            kernel: [2, 3, 3],
            stride: [2, 1, 1],
            padding: [1; 3],
            ..plain.clone()
        },
    ];
    for conv in layers {
        let case = Case {
            constant: conv.padding[2] == 2,
            constant_bias: true,
            exact: true,
            precision: Precision::F32,
            seed: 3,
            conv,
        };
        check(&case, &Pool::new(1), &Pool::new(3));
    }
}

/// bf16, whose blocks read the image without padding: also where a window lies in the padding entirely, and in three dimensions.
#[test]
fn taps_of_pairs_that_see_padding_are_left_out() {
    let flat = |size: usize, kernel: usize| Conv {
        dtype: DType::BF16,
        batch: 2,
        ..square(64, 20, 1, size, kernel, 1)
    };
    check_layer(Conv {
        dilation: [1, 2, 2],
        padding: [0, 2, 2],
        ..flat(7, 3)
    });
    check_layer(Conv {
        stride: [1, 4, 4],
        padding: [0, 3, 3],
        ..flat(14, 7)
    });
    check_layer(Conv {
        padding: [0, 5, 6],
        groups: 2,
        ..flat(4, 3)
    });
    check_layer(Conv {
        input: [4, 5, 3],
        kernel: [3, 3, 3],
        padding: [2, 1, 1],
        ..flat(5, 3)
    });
}

/// Transposed convolutions of bf16, whose phases are plain convolutions in pairs: all layouts, phases of unequal taps and sizes, groups,
/// three dimensions, and a stride that leaves phases without taps.
#[test]
fn transposed_convolutions_of_pairs_agree() {
    for (groups, stride, kernel, padding, more) in [
        (1, 2, 4, 1, 0),
        (1, 2, 2, 0, 1),
        (1, 2, 3, 1, 1),
        (1, 3, 5, 2, 2),
        (1, 1, 3, 1, 0),
        (1, 3, 2, 0, 1),
        (2, 2, 4, 3, 0),
    ] {
        for input_layout in [ConvLayout::ChannelsFirst, ConvLayout::ChannelsLast] {
            let flat = Conv {
                dtype: DType::BF16,
                transposed: true,
                padding: [0, padding, padding],
                output_padding: [0, more, more],
                input_layout,
                batch: 2,
                ..square(32 * groups, 18 * groups, groups, 7, kernel, stride)
            };
            check_layer(Conv {
                input: [3, 5, 7],
                kernel: [3, kernel, kernel],
                stride: [2, stride, stride],
                padding: [1, padding, padding],
                ..flat.clone()
            });
            check_layer(flat);
        }
    }
}

/// Large images of 16-bit floats are converted to f32 group by group, and several small ones at once.
#[test]
fn images_are_converted_in_parts() {
    let large = Conv {
        dtype: DType::F16,
        batch: 2,
        bias: true,
        groups: 4,
        ..Conv::new2d(4, 4, [256, 260], [2, 1])
    };
    let small = Conv {
        batch: 4,
        input: [1, 150, 190],
        ..large.clone()
    };
    for (conv, constant) in [(&large, false), (&large, true), (&small, true)] {
        let case = Case {
            conv: conv.clone(),
            constant,
            constant_bias: constant,
            exact: true,
            precision: Precision::F32,
            seed: 7,
        };
        check(&case, &Pool::new(1), &Pool::new(3));
    }
}
