use super::*;

#[test]
fn tiles_are_even_and_cover_the_rows() {
    for rows in 0..200 {
        let t = Tiles::new(rows, 14);
        assert_eq!(t.start(t.count()), rows);
        for i in 0..t.count() {
            let h = t.start(i + 1) - t.start(i);
            assert!((1..=14).contains(&h) && rows / t.count() <= h);
        }
    }
}

#[test]
fn halves_hold_the_columns() {
    for isa in Isa::available() {
        let k = Kernels::for_isa(isa);
        for cols in 1..=k.nr {
            let h = k.half_vectors(cols);
            let held = h * k.nr / 4;
            assert!(
                h <= 4 && held >= cols && (k.has_halves || h.is_multiple_of(2)),
                "{isa} {cols}"
            );
            assert!(held - cols < if k.has_halves { k.nr / 4 } else { k.nr / 2 });
        }
    }
}

#[test]
fn every_kernel_sums_its_tile() {
    for isa in Isa::available() {
        let k = Kernels::for_isa(isa);
        for halves in [1, 2, 3, 4, 8]
            .into_iter()
            .filter(|h: &usize| h.is_multiple_of(2) || k.has_halves)
        {
            for rows in 1..=if halves == 8 { k.mr_wide } else { k.mr } {
                for unit in [false, true] {
                    let width = halves * isa.lanes() / 2;
                    for cols in [1, width - 1, width] {
                        check(k, rows, halves, unit, cols);
                    }
                }
            }
        }
    }
}

/// Checks a kernel on two segments of five product indices. The integers are small, so every sum is exact.
fn check(k: &Kernels, rows: usize, halves: usize, unit: bool, cols: usize) {
    let (run, nr) = (5, k.nr);
    let (a_row, a_k) = if unit { (1, rows) } else { (run + 2, 1) };
    let seg = rows * (run + 2);
    let a: Vec<f32> = (0..2 * seg).map(|i| (i % 7) as f32 - 3.0).collect();
    let b: Vec<f32> = (0..2 * run * nr * 2).map(|i| (i % 5) as f32 - 2.0).collect();
    let bias: Vec<f32> = (0..rows * (cols + 1)).map(|i| i as f32).collect();
    let mut c = vec![1.0f32; rows * (cols + 1)];
    let segments = [0, seg];
    for (init, clamp) in [
        (Init::Zero, None),
        (Init::Output, None),
        (Init::Bias, Some((-3.0, 9.0))),
        (Init::RowBias, None),
        (Init::Matrix, None),
    ] {
        let before = c.clone();
        let job = TileJob {
            a: a.as_ptr(),
            a_row,
            a_k,
            segments: segments.as_ptr(),
            segment_count: 2,
            run,
            b: b.as_ptr(),
            b_k: nr,
            b_panel: 2 * run * nr,
            c: c.as_mut_ptr(),
            c_row: cols + 1,
            cols,
            init,
            bias: bias.as_ptr(),
            clamp,
            next: Prefetch::nothing(b.as_ptr()),
        };
        // SAFETY: the level is available, and the arrays hold what the job describes.
        unsafe { k.tile_kernel(rows, halves, unit)(&job) };
        for r in 0..rows {
            for j in 0..cols {
                let mut want = match init {
                    Init::Zero => 0.0,
                    Init::Output => before[r * (cols + 1) + j],
                    Init::Bias => bias[j],
                    Init::RowBias => bias[r],
                    Init::Matrix => bias[r * (cols + 1) + j],
                };
                for (s, &at) in segments.iter().enumerate() {
                    for i in 0..run {
                        let (panel, col) = if halves == 8 { (j / nr, j % nr) } else { (0, j) };
                        let y = b[panel * 2 * run * nr + (s * run + i) * nr + col];
                        want += a[at + r * a_row + i * a_k] * y;
                    }
                }
                if let Some((lo, hi)) = clamp {
                    want = want.clamp(lo, hi);
                }
                assert_eq!(
                    c[r * (cols + 1) + j],
                    want,
                    "{} {rows}x{halves} {unit} {cols} {r},{j}",
                    k.isa
                );
            }
            assert_eq!(c[r * (cols + 1) + cols], 1.0, "nothing beyond the columns is written");
        }
    }
}
