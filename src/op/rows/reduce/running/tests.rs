//! Running extrema, compared with those of single elements.

use super::*;

/// Rows whose extrema change often, seldom or never, and NaN in some.
#[test]
fn blocks_of_rows_have_the_extrema_of_single_elements() {
    let rows: [&dyn Fn(usize) -> f32; 5] = [
        &|k| k as f32,
        &|k| -(k as f32),
        &|k| (k * 7 % 11) as f32,
        &|k| if k == 20 { f32::NAN } else { (k % 5) as f32 },
        &|k| if k < 2 { f32::NAN } else { 1.0 },
    ];
    for n in [37, SHORT_ROW + 37] {
        let v: Vec<f32> = rows.iter().flat_map(|f| (0..n).map(f)).collect();
        check_rows::<true>(&v, n);
        check_rows::<false>(&v, n);
    }
}

fn check_rows<const LARGEST: bool>(v: &[f32], n: usize) {
    let (mut values, mut indices) = (vec![0.0; v.len()], vec![0; v.len()]);
    run_wide(RunningRows::<_, _, LARGEST> {
        v,
        values: &mut values,
        indices: &mut indices,
        n,
        order: PhantomData::<ByValue>,
    });
    for (r, row) in v.chunks(n).enumerate() {
        let mut best = (row[0], 0);
        for (k, &x) in row.iter().enumerate() {
            if ByValue::takes::<LARGEST>(x, best.0) {
                best = (x, k as i64);
            }
            let (value, index) = (values[r * n + k], indices[r * n + k]);
            assert!(
                value.to_bits() == best.0.to_bits() && index == best.1,
                "row {r}, element {k}"
            );
        }
    }
}

#[test]
fn threads_find_what_one_does() {
    for (outer, n, inner) in [(1, 50, 3000), (2, 300, 400), (1, 9000, 70)] {
        let element = |i: usize| if i % 1031 == 30 { f32::NAN } else { (i * 7 % 101) as f32 };
        let v: Vec<f32> = (0..outer * n * inner).map(element).collect();
        let lines = DimLines { outer, len: n, inner };
        let by = |threads: usize| {
            let (mut values, mut indices) = (vec![0.0; v.len()], vec![0; v.len()]);
            run_lines::<_, ByValue>(&v, &mut values, &mut indices, &lines, false, &Pool::new(threads));
            (values.iter().map(|x: &f32| x.to_bits()).collect::<Vec<_>>(), indices)
        };
        assert!(by(1) == by(2) && by(1) == by(3), "{outer} {n} {inner}");
    }
}

#[test]
fn few_columns_have_the_extrema_of_each_column() {
    for (n, inner) in [(1, 2), (2, 7), (3, 8), (50, 7), (40, 12), (5, 16)] {
        let element = |i: usize| if i % 31 == 30 { f64::NAN } else { (i * 7 % 11) as f64 };
        let v: Vec<f64> = (0..2 * n * inner).map(element).collect();
        let lines = DimLines::new(&[2, n, inner], 1);
        let (mut values, mut indices) = (vec![0.0; v.len()], vec![0; v.len()]);
        run_lines::<_, ByValue>(&v, &mut values, &mut indices, &lines, true, &Pool::new(1));
        for (o, i) in (0..2).flat_map(|o| (0..inner).map(move |i| (o, i))) {
            let place = |k: usize| (o * n + k) * inner + i;
            let mut best = (v[place(0)], 0);
            for k in 0..n {
                let x = v[place(k)];
                best = if ByValue::takes::<true>(x, best.0) {
                    (x, k as i64)
                } else {
                    best
                };
                let got = (values[place(k)], indices[place(k)]);
                assert!(
                    got.0.to_bits() == best.0.to_bits() && got.1 == best.1,
                    "{n} {inner} {k}"
                );
            }
        }
    }
}
