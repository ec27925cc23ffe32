use super::{Neighbours, POINTS, Reads};
use crate::tensor::rounded::{RealBf16, RealF16};

/// A plane of 9 columns, and points with their first columns and rows, some of which are outside.
fn plane() -> (Vec<f32>, Vec<i32>, Vec<i32>) {
    let plane = (0..9 * 9).map(|i| (i % 13) as f32 - 5.0).collect();
    let columns = (0..37).map(|j| j % 11 - 2).collect();
    (plane, columns, (0..37).map(|j| j / 3 - 1).collect())
}

/// Lists at some distances from a list, with -1 for what is not among 9.
fn lists<const N: usize>(list: &[i32]) -> [Vec<i32>; N] {
    let inside = |p: i32| if (0..9).contains(&p) { p } else { -1 };
    std::array::from_fn(|k| list.iter().map(|p| inside(p + k as i32)).collect())
}

fn reads<'a, const K: usize, const R: usize>(columns: &'a [Vec<i32>; K], rows: &'a [Vec<i32>; R]) -> Reads<'a, K, R> {
    Reads {
        columns: columns.each_ref().map(|l| &l[..]),
        rows: rows.each_ref().map(|l| &l[..]),
        size: [9, 9],
    }
}

fn element(plane: &[f32], column: i32, row: i32) -> f32 {
    if column.min(row) < 0 {
        return 0.0;
    }
    plane[(row * 9 + column) as usize]
}

#[test]
fn single_elements() {
    let (plane, columns, rows) = plane();
    let (columns, rows) = (lists::<1>(&columns), lists::<1>(&rows));
    let mut single = Neighbours::new();
    if single.read::<f32>(reads(&columns, &rows)) {
        let mut out = [9.0f32; 37];
        single.copy(&plane, &mut out);
        let want = |j: usize| element(&plane, columns[0][j], rows[0][j]);
        assert_eq!(out, std::array::from_fn(want));
    }
    // The plane of one that vectors hold.
    let small = Reads {
        size: [4, 9],
        columns: [&columns[0]],
        rows: [&[3; 37]],
    };
    if single.read::<f32>(small) {
        let mut out = [9.0f32; 37];
        single.copy(&plane[..36], &mut out);
        assert_eq!(out, std::array::from_fn(|j| element(&plane, columns[0][j], 3)));
    }
}

/// The sums of pairs in two rows, which are small integers in every format.
#[test]
fn pairs() {
    let (plane, columns, rows) = plane();
    let (columns, rows) = (lists::<2>(&columns), lists::<2>(&rows));
    let want: Vec<f32> = (0..37)
        .map(|j| {
            let term = |k: usize| element(&plane, columns[k & 1][j], rows[k >> 1][j]) * k as f32;
            term(0) + term(1) + term(2) + term(3)
        })
        .collect();
    macro_rules! check {
        ($t:ty, $from:expr, $to:expr) => {{
            let mut pairs = Neighbours::new();
            if pairs.read::<$t>(reads(&columns, &rows)) {
                let plane: Vec<$t> = plane.iter().map($from).collect();
                let weights: [[$t; 37]; 4] = std::array::from_fn(|k| [$from(&(k as f32)); 37]);
                let mut out = [$from(&9.0); 37];
                let [a, b, c, d] = weights.each_ref().map(|w| &w[..]);
                pairs.sum(&plane, [[a, b], [c, d]], &mut out);
                assert_eq!(out.iter().map($to).collect::<Vec<f32>>(), want);
            }
        }};
    }
    check!(f32, |x: &f32| *x, |x: &f32| *x);
    check!(f64, |x: &f32| f64::from(*x), |x: &f64| *x as f32);
    check!(RealBf16, |x: &f32| RealBf16(*x), |x: &RealBf16| x.0);
    check!(RealF16, |x: &f32| RealF16(*x), |x: &RealF16| x.0);
}

#[test]
fn quads() {
    let (plane, columns, rows) = plane();
    let (columns, rows) = (lists::<4>(&columns), lists::<4>(&rows));
    let mut quads = Neighbours::new();
    if !quads.read::<f32>(reads(&columns, &rows)) {
        return;
    }
    let weights: [[f32; 37]; 4] = std::array::from_fn(|k| [k as f32 - 1.0; 37]);
    let weights = weights.each_ref().map(|w| &w[..]);
    let mut out = [9.0; 37];
    quads.sum_nested(&plane, weights, weights, &mut out);
    for (j, got) in out.into_iter().enumerate() {
        let term = |k: usize| {
            let value = element(&plane, columns[k % 4][j], rows[k / 4][j]);
            value * weights[k % 4][j] * weights[k / 4][j]
        };
        assert_eq!(got, (0..16).map(term).sum::<f32>());
    }
}

#[test]
fn what_is_no_neighbour_has_no_plan() {
    let (near, far, rows) = (vec![1; 5], vec![3; 5], [vec![0; 5], vec![0; 5]]);
    let columns = [near.clone(), far];
    let reads_far = reads(&columns, &rows);
    assert!(!Neighbours::new().read::<f32>(reads_far));
    // Rows that are shorter than a pair.
    let (columns, size) = ([&rows[0][..]; 2], [9, 1]);
    let narrow = Reads {
        columns,
        size,
        ..reads_far
    };
    assert!(!Neighbours::new().read::<f32>(narrow));
    let single = [near];
    assert!(!Neighbours::new().read::<i32>(reads(&single, &single)));
}

#[test]
#[should_panic(expected = "POINTS")]
fn blocks_are_not_too_long() {
    let list = [vec![0; POINTS + 1]];
    Neighbours::new().read::<f32>(reads(&list, &list));
}
