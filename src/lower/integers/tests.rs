use super::*;

/// The tensor IR of `text`, with quantized weights as constants, after a change.
fn changed(text: &str, change: impl FnOnce(&mut Tir) -> OpResult<()>) -> Tir {
    changed_with(text, 1, change)
}

/// [`changed`] with weights of `groups` scales for each output channel.
fn changed_with(text: &str, groups: usize, change: impl FnOnce(&mut Tir) -> OpResult<()>) -> Tir {
    let mut tir = Tir::parse(text).unwrap();
    for v in &mut tir.values {
        if matches!(v.def, Def::Constant(_)) {
            v.def = Def::Constant(quantized_weight(&v.shape, groups));
        }
    }
    change(&mut tir).unwrap();
    tir.remove_unused_values().unwrap();
    tir
}

/// The tensor IR with scales moved, for a target with these units.
fn moved(text: &str, bytes: bool, pairs: bool) -> Tir {
    changed(text, |tir| move_scales_for(tir, ProductUnits { bytes, pairs }))
}

/// The lines of values that are not inputs or constants.
fn computed(tir: &Tir) -> Vec<String> {
    let text = tir.to_string();
    let lines = text
        .lines()
        .filter(|l| !l.contains("constant") && !l.contains("= input"));
    lines.map(str::to_string).collect()
}

const PRODUCTS: &str = "\
%q: u8[2, 64] = input 0
%s: f32[] = input 1
%b: f32[64] = input 2
%f: f32[2, 64] = map(%q) { sub(f32.cast(a0), f32(3.0)) }
%x: f32[2, 64] = map(%f) { mul(a0, f32(0.5)) }
%y: f32[2, 64] = map(%f, %s) { mul(a0, a1) }
%w: f32[64, 64] = constant
%m: f32[2, 64] = matmul(%x, %w, %b) transpose_b=1
%n: f32[2, 64] = matmul(%y, %w) transpose_b=1
return (%m, %n)
";

/// Inputs and weights with and without scales that are values.
#[test]
fn scales_follow_the_product_of_integers() {
    let plain = moved(PRODUCTS, false, false);
    assert_eq!(plain.to_string(), PRODUCTS);
    assert_eq!(
        computed(&moved(PRODUCTS, false, true)),
        [
            "%f: f32[2, 64] = map(%q) { sub(f32.cast(a0), f32(3.0)) }",
            "%m#2: f32[2, 64] = matmul(%f, %m#1) transpose_b=1",
            "%m#3: f32[2, 64] = map(%m#2, %m, %b) { add(mul(a0, a1), a2) }",
            "%n#2: f32[2, 64] = matmul(%f, %n#1) transpose_b=1",
            "%n#3: f32[2, 64] = map(%n#2, %n, %s) { mul(mul(a0, a1), a2) }",
            "return (%m#3, %n#3)",
        ]
    );
}

/// The zero point 3 is subtracted from the sums, 3 times the sum of each channel's weight.
#[test]
fn zero_points_follow_the_product_of_bytes() {
    let tir = moved(PRODUCTS, true, true);
    assert_eq!(
        computed(&tir),
        [
            "%m#3: i32[2, 64] = matmul(%q, %m#2) transpose_b=1",
            "%m#4: f32[2, 64] = map(%m#3, %m#1, %m, %b) { add(mul(f32.cast(sub(a0, a1)), a2), a3) }",
            "%n#3: i32[2, 64] = matmul(%q, %n#2) transpose_b=1",
            "%n#4: f32[2, 64] = map(%n#3, %n#1, %n, %s) { mul(mul(f32.cast(sub(a0, a1)), a2), a3) }",
            "return (%m#4, %n#4)",
        ]
    );
    let sums = tir.values.iter().find(|v| v.dtype == DType::I32).unwrap();
    let Def::Constant(sums) = &sums.def else {
        panic!("the sums are constant")
    };
    let row: i64 = (0..64).map(|i| i % 7 - 3).sum();
    assert_eq!(sums.get(0).to_i64(), 3 * row);
}

/// Activations that were quantized with a scale and a zero point for each row.
const ROWS: &str = "\
%q: i8[2, 64] = input 0
%z: i8[2, 1] = input 1
%s: f32[2, 1] = input 2
%f: f32[2, 64] = map(%q) { f32.cast(a0) }
%g: f32[2, 1] = map(%z) { f32.cast(a0) }
%d: f32[2, 64] = map(%f, %g) { sub(a0, a1) }
%x: f32[2, 64] = map(%d, %s) { mul(a0, a1) }
%w: f32[64, 64] = constant
%m: f32[2, 64] = matmul(%x, %w) transpose_b=1
return %m
";

#[test]
fn scales_of_rows_follow_the_product_of_bytes() {
    assert_eq!(
        computed(&moved(ROWS, true, true)),
        [
            "%m#3: i32[2, 64] = matmul(%q, %m#2) transpose_b=1",
            "%m#4: f32[2, 64] = map(%m#3, %m#1, %z, %m, %s) { mul(mul(f32.cast(sub(a0, mul(a1, i32.cast(a2)))), a3), a4) }",
            "return %m#4",
        ]
    );
}

/// A weight with scales for groups keeps them, and its rows are small integers.
#[test]
fn scales_of_rows_follow_the_product_with_groups() {
    let blocks = ROWS
        .replace("%w: f32[64, 64]", "%b: f32[64, 2, 32]")
        .replace("%m:", "%w: f32[64, 64] = reshape(%b)\n%m:");
    let tir = changed_with(&blocks, 2, |tir| {
        move_scales_for(
            tir,
            ProductUnits {
                bytes: true,
                pairs: true,
            },
        )
    });
    assert_eq!(
        computed(&tir),
        [
            "%m#2: f32[2, 64] = map(%q) { f32.cast(a0) }",
            "%m#3: f32[2, 64] = matmul(%m#2, %m#1) transpose_b=1",
            "%m#4: f32[2, 64] = map(%m#3, %m, %z, %s) { mul(sub(a0, mul(a1, f32.cast(a2))), a3) }",
            "return %m#4",
        ]
    );
    let sums = tir
        .values
        .iter()
        .find(|v| v.name.starts_with("m") && v.shape == [64])
        .unwrap();
    let Def::Constant(sums) = &sums.def else {
        panic!("the sums are constant")
    };
    let part = |range: std::ops::Range<i32>| range.map(|i| i % 7 - 3).sum::<i32>() as f64;
    // The scales of row 3 are 1.0 and 2.0.
    assert_eq!(sums.get(3).to_f64(), part(0..32) + 2.0 * part(32..64));
}

/// As `addmm` and `mm` with the transpose of a weight.
#[test]
fn weights_may_be_shown_transposed() {
    let text = "\
%q: u8[2, 64] = input 0
%b: f32[16] = input 1
%x: f32[2, 64] = map(%q) { f32.cast(a0) }
%y: f32[2, 64] = map(%x) { mul(a0, f32(0.5)) }
%w: f32[16, 64] = constant
%t: f32[64, 16] = affine(%w) at=[d1, d0]
%m: f32[2, 16] = matmul(%y, %t, %b)
return %m
";
    let lines = computed(&moved(text, true, true));
    assert!(
        lines
            .iter()
            .any(|l| l.contains("i32[2, 16] = matmul(%q, ") && l.ends_with("transpose_b=1")),
        "{lines:#?}"
    );
}

/// As `_int_mm` is decomposed.
#[test]
fn products_of_converted_bytes_read_the_bytes() {
    let text = "\
%q: i8[2, 64] = input 0
%r: i8[64, 8] = input 1
%s: u8[64, 8] = input 2
%a: i32[2, 64] = map(%q) { i32.cast(a0) }
%b: i32[64, 8] = map(%r) { i32.cast(a0) }
%c: i32[64, 8] = map(%s) { i32.cast(a0) }
%x: i32[2, 8] = matmul(%a, %b)
%y: i32[2, 8] = matmul(%a, %c)
return (%x, %y)
";
    let lines = computed(&moved(text, true, true));
    assert!(
        lines.iter().any(|l| l == "%x: i32[2, 8] = matmul(%q, %r)"),
        "{lines:#?}"
    );
    // No unit multiplies by unsigned bytes.
    assert!(
        lines.iter().any(|l| l == "%y: i32[2, 8] = matmul(%a, %c)"),
        "{lines:#?}"
    );
}

/// A border of zeros is one of zero points.
#[test]
fn borders_of_bytes_are_zero_points() {
    let text = "\
%q: i8[1, 16, 8, 8] = input 0
%x: f32[1, 16, 8, 8] = map(%q) { mul(sub(f32.cast(a0), f32(-5.0)), f32(0.5)) }
%f: f32[1, 16, 8, 8] = map(%q) { sub(f32.cast(a0), f32(-5.0)) }
%y: f32[1, 16, 8, 8] = map(%f) { mul(a0, f32(0.5)) }
%w: f32[8, 16, 3, 3] = constant
%c: f32[1, 8, 8, 8] = conv(%y, %w) stride=[1, 1] padding=[1, 1] dilation=[1, 1] groups=1
return (%c, %x)
";
    let tir = moved(text, true, true);
    let lines = computed(&tir);
    assert_eq!(
        lines[1..4],
        [
            "%c#3: i8[1, 16, 10, 10] = pad(%q) before=[0, 0, 1, 1] value=i8(-5)",
            "%c#4: i32[1, 8, 8, 8] = conv(%c#3, %c#2) stride=[1, 1] padding=[0, 0] dilation=[1, 1] groups=1",
            "%c#5: f32[1, 8, 8, 8] = map(%c#4, %c#1, %c) { mul(f32.cast(sub(a0, a1)), a2) }",
        ]
    );
}

/// Readers convert bytes, pools and concatenations move them, and other values stay.
#[test]
fn values_of_bytes_are_computed_where_they_are_read() {
    let text = "\
%q: u8[1, 4, 8, 8] = input 0
%r: u8[1, 4, 8, 8] = input 1
%s: f32[] = input 2
%x: f32[1, 4, 8, 8] = map(%q) { mul(sub(f32.cast(a0), f32(3.0)), f32(0.5)) }
%y: f32[1, 4, 8, 8] = map(%r) { mul(sub(f32.cast(a0), f32(3.0)), f32(0.5)) }
%z: f32[1, 4, 8, 8] = map(%q, %s) { mul(f32.cast(a0), a1) }
%sum: f32[1, 4, 8, 8] = map(%x, %z) { add(a0, a1) }
%pool: f32[1, 4, 4, 4] = max_pool(%x) first=2 kernel=[2, 2] stride=[2, 2] padding=[0, 0] dilation=[1, 1]
%scaled: f32[1, 4, 4, 4] = max_pool(%z) first=2 kernel=[2, 2] stride=[2, 2] padding=[0, 0] dilation=[1, 1]
%both: f32[2, 4, 8, 8] = concat(%x, %y) dim=0
%mixed: f32[2, 4, 8, 8] = concat(%x, %z) dim=0
return (%sum, %pool, %scaled, %both, %mixed)
";
    let tir = changed(text, read_bytes);
    let lines = computed(&tir);
    let has = |line: &str| assert!(lines.iter().any(|l| l == line), "{line}\n{lines:#?}");
    has(
        "%sum: f32[1, 4, 8, 8] = map(%q, %s) { t0 = f32.cast(a0); add(mul(sub(t0, f32(3.0)), f32(0.5)), mul(t0, a1)) }",
    );
    has("%pool: u8[1, 4, 4, 4] = max_pool(%q) first=2 kernel=[2, 2] stride=[2, 2] padding=[0, 0] dilation=[1, 1]");
    has("%pool#1: f32[1, 4, 4, 4] = map(%pool) { mul(sub(f32.cast(a0), f32(3.0)), f32(0.5)) }");
    // The scale may be negative.
    has("%scaled: f32[1, 4, 4, 4] = max_pool(%z) first=2 kernel=[2, 2] stride=[2, 2] padding=[0, 0] dilation=[1, 1]");
    has("%both: u8[2, 4, 8, 8] = concat(%q, %r) dim=0");
    has("%mixed: f32[2, 4, 8, 8] = concat(%x, %z) dim=0");
}

/// Rows of i8, each with a scale of its own.
fn quantized_weight(shape: &[usize], groups: usize) -> Tensor {
    use crate::tensor::{BlockValues, Quantized};
    let (rows, cols) = (shape[0], shape[1..].iter().product());
    let integers: Vec<i8> = (0..rows * cols).map(|i| (i % cols % 7) as i8 - 3).collect();
    let scale = |i: usize| 0.25 * (1 + i / groups) as f32 * (1 + i % groups) as f32;
    let scales: Vec<f32> = (0..rows * groups).map(scale).collect();
    let quantized = Quantized {
        integers: Tensor::from_slice(&[rows, cols], &integers),
        strides: [cols, 1],
        shape: [rows, cols],
        zero: None,
        scale: Some(BlockValues {
            values: Tensor::from_slice(&[rows * groups], &scales),
            offset: 0,
            block: [1, cols / groups],
            strides: [groups, (groups > 1) as usize],
        }),
        dtype: DType::F32,
    };
    quantized.into_tensor(shape).unwrap()
}
