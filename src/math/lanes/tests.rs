//! Products of every type and instruction set, over strides and remainders, beside sums of products.

use super::*;

/// The levels of the machine.
fn levels() -> Vec<Isa> {
    let all = [Isa::Portable, Isa::Avx2, Isa::Avx512];
    let best = crate::target::Target::native().isa();
    all.into_iter().take_while(|&l| l != best).chain([best]).collect()
}

/// Element `i` of an operand: all bits vary.
fn element<T: LaneElement>(i: usize) -> T {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    T::from_f64(((x >> 11) as i64 - (1 << 52)) as f64).mul(T::from_f64((x % 1_000_003) as f64))
}

fn check<T: LaneElement>(isa: Isa, [m, n, k]: [usize; 3], a_strides: [usize; 2], b_strides: [usize; 2], add: bool) {
    let c_row = if n == 1 { 1 } else { n + 3 };
    let a: Vec<T> = (0..1 + m * a_strides[0] + k * a_strides[1]).map(element).collect();
    let b: Vec<T> = (0..1 + k * b_strides[0] + n * b_strides[1])
        .map(|i| element(i + 77))
        .collect();
    let mut c: Vec<T> = (0..m * c_row).map(|i| element(i + 5)).collect();
    let before = c.clone();
    let product = Product {
        m,
        n,
        k,
        a: a.as_ptr(),
        a_strides,
        c: c.as_mut_ptr(),
        c_row,
        add,
    };
    let columns = StridedColumns {
        start: b.as_ptr(),
        strides: b_strides,
    };
    // SAFETY: the vectors hold what the strides reach.
    unsafe { multiply(isa, &product, &columns) };
    for (i, (&got, &before)) in c.iter().zip(&before).enumerate() {
        let (row, col) = (i / c_row, i % c_row);
        let start = if add { before } else { T::default() };
        let term = |p: usize| a[row * a_strides[0] + p * a_strides[1]].mul(b[p * b_strides[0] + col * b_strides[1]]);
        let want = if col < n {
            (0..k).fold(start, |s, p| s.add(term(p)))
        } else {
            before
        };
        assert!(got == want, "{isa:?} {m} {n} {k} {a_strides:?} {b_strides:?} {i}");
    }
}

fn check_all<T: LaneElement>() {
    for isa in levels() {
        for [m, n, k] in [
            [1, 1, 0],
            [1, 70, 9],
            [3, 3, 3],
            [7, 17, 40],
            [4, 1, 4],
            [13, 37, 130],
            [150, 90, 11],
            [9, 16, 300],
            [2, 2100, 6],
        ] {
            for add in [false, true] {
                check::<T>(isa, [m, n, k], [k, 1], [n, 1], add);
                check::<T>(isa, [m, n, k], [k + 1, 1], [1, k + 2], add);
                check::<T>(isa, [m, n, k], [1, m], [n + 1, 1], add);
                check::<T>(isa, [m, n, k], [2, 2 * m], [3, 3 * k + 1], add);
            }
        }
    }
}

#[test]
fn products_wrap_for_all_types_and_strides() {
    check_all::<i64>();
    check_all::<i32>();
    check_all::<i16>();
    check_all::<i8>();
    check_all::<u8>();
}

/// f64 of integers this small is exact in any order. The parts of a matrix are multiplied as the whole matrix would be.
#[test]
fn doubles_are_multiplied_by_every_method() {
    let value = |i: usize| (i * 37 % 19) as f64 - 9.0;
    for isa in levels() {
        for [m, n, k] in [
            [1, 70, 9],
            [3, 3, 3],
            [40, 2, 33],
            [90, 1, 20],
            [1, 1, 5],
            [13, 37, 130],
            [9, 16, 300],
        ] {
            for (a_strides, b_strides) in [([k, 1], [n, 1]), ([k + 1, 1], [1, k + 2]), ([1, m], [n + 1, 1])] {
                let a: Vec<f64> = (0..1 + m * a_strides[0] + k * a_strides[1]).map(value).collect();
                let b: Vec<f64> = (0..1 + k * b_strides[0] + n * b_strides[1]).map(value).collect();
                let mut c = vec![0.5; m * n];
                let whole = Product {
                    m,
                    n,
                    k,
                    a: a.as_ptr(),
                    a_strides,
                    c: c.as_mut_ptr(),
                    c_row: n,
                    add: false,
                };
                let columns = StridedColumns {
                    start: b.as_ptr(),
                    strides: b_strides,
                };
                let method = ProductMethod::for_product(isa, &whole, &columns);
                for [row, end] in [[0, m / 3], [m / 3, m]] {
                    let part = Product {
                        m: end - row,
                        a: a[row * a_strides[0]..].as_ptr(),
                        c: whole.c.wrapping_add(row * n),
                        ..whole
                    };
                    // SAFETY: the vectors hold what the strides reach.
                    unsafe { multiply_by(isa, method, &part, columns) };
                }
                for (i, &got) in c.iter().enumerate() {
                    let term = |p: usize| {
                        a[i / n * a_strides[0] + p * a_strides[1]] * b[p * b_strides[0] + i % n * b_strides[1]]
                    };
                    assert_eq!(got, (0..k).map(term).sum::<f64>(), "{isa:?} {m} {n} {k} {method:?} {i}");
                }
            }
        }
    }
}
