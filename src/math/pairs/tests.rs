use super::pack::{Source, pack_pairs, pack_row, pack_rows, packed_row};
use super::store::StoreJob;
use super::*;
use crate::target::Feature;
use half::bf16;

/// The kernels of every unit and instruction set of this machine.
pub(in crate::math) fn all_kernels() -> Vec<PairKernels> {
    let native = Target::native();
    let dots = native.without(Feature::AmxBf16);
    let avx512 = dots.without(Feature::Avx512Bf16);
    let avx2 = avx512.without(Feature::Avx512F);
    let targets = [native, dots, avx512, avx2, Target::default()];
    let mut all: Vec<PairKernels> = targets.map(PairKernels::for_target).to_vec();
    all.dedup_by_key(|k| (k.unit, k.isa));
    all
}

/// The kernels of every unit for bytes, and instruction set, of this machine. The portable ones are last.
pub(in crate::math) fn byte_kernels() -> Vec<PairKernels> {
    let native = Target::native();
    let dots = native.without(Feature::AmxInt8);
    let avx512 = dots.without(Feature::Avx512Vnni);
    let targets = [native, dots, avx512, Target::default()];
    let mut all: Vec<PairKernels> = targets.map(PairKernels::for_target).to_vec();
    all.dedup_by_key(|k| (k.byte_unit, k.isa));
    all
}

/// Numbers without a pattern, of moderate size.
fn random(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn narrow(x: &[f32]) -> Vec<u16> {
    x.iter().map(|&x| bf16::from_f32(x).to_bits()).collect()
}

/// A product of `rows` rows in segments of `run` elements with one panel, its operands, and the elements of B by columns.
struct Problem {
    rows: [usize; 2],
    a: Vec<u16>,
    a_row: usize,
    segments: Vec<usize>,
    run: usize,
    columns: Vec<Vec<u16>>,
    panel: Vec<u16>,
}

impl Problem {
    fn new(rows: [usize; 2], segments: &[usize], run: usize, cols: usize) -> Problem {
        let a_row = segments.iter().max().unwrap() + run + 6;
        let depth = segments.len() * run;
        let columns: Vec<_> = (0..cols).map(|c| narrow(&random(depth, 100 + c as u32))).collect();
        let lines: Vec<u16> = columns.concat();
        let mut panel = vec![0xffff; depth * COLS];
        // SAFETY: the lines are the panel's columns.
        unsafe {
            pack_pairs(
                Source::Narrow(lines.as_ptr()),
                [1, depth],
                cols,
                [depth; 2],
                panel.as_mut_ptr(),
            )
        };
        Problem {
            rows,
            a: narrow(&random((rows[0] + rows[1]) * a_row, 7)),
            a_row,
            segments: segments.to_vec(),
            run,
            columns,
            panel,
        }
    }

    /// The elements of row `r` in the order of the panel.
    fn row(&self, r: usize) -> Vec<u16> {
        let part = |s: &usize| &self.a[r * self.a_row + s..][..self.run];
        self.segments.iter().flat_map(|s| part(s).to_vec()).collect()
    }

    /// Calls `f` with the job, for kernels whose rows are f32 if `wide`.
    fn with_job<R>(&self, wide: bool, f: impl FnOnce(&PairJob) -> R) -> R {
        let floats: Vec<f32> = self.a.iter().map(|&x| bf16::from_bits(x).to_f32()).collect();
        let (first, size) = match wide {
            true => (floats.as_ptr().cast::<u8>(), 4),
            false => (self.a.as_ptr().cast::<u8>(), 2),
        };
        let segments: Vec<usize> = self.segments.iter().map(|s| s * size).collect();
        f(&PairJob {
            a: [first, first.wrapping_add(self.rows[0] * self.a_row * size)],
            rows: self.rows,
            a_row: self.a_row * size,
            segments: &segments,
            groups: self.run / 2,
            b: self.panel.as_ptr(),
            cols: self.columns.len(),
            adds: false,
            next: self.panel.as_ptr(),
        })
    }
}

#[test]
fn blocks_sum_in_the_order_of_their_instructions() {
    for k in all_kernels() {
        for rows in [[1, 0], [k.rows, 0], [k.rows, k.rows], [k.rows, 3]] {
            for (segments, run, cols) in [
                (&[0][..], 32, 32),
                (&[0], 96, 17),
                (&[0], 64, 5),
                (&[64, 0, 128], 32, 32),
                (&[0], 6, 16),
                (&[6, 0], 4, 9),
            ] {
                if run % k.step() != 0 {
                    continue;
                }
                let p = Problem::new(rows, segments, run, cols);
                let mut blocks = k.begin();
                p.with_job(k.widens_rows(), |job| {
                    // SAFETY: the problem's operands are those of the job.
                    let sums = unsafe { blocks.compute(job) };
                    for (r, c) in (0..rows[0] + rows[1]).flat_map(|r| (0..cols).map(move |c| (r, c))) {
                        // SAFETY: the block has the row.
                        let got = unsafe { *sums.add(r * COLS + c) };
                        let (a, b) = (p.row(r), &p.columns[c]);
                        match (k.unit, k.isa) {
                            (PairUnit::Tiles, _) => assert_eq!(got, model::sum_of_tiles(0.0, &a, b), "{} {r} {c}", k),
                            // Not fused, as the portable level has no such instruction.
                            (_, Isa::Portable) => assert!((got - model::sum_of_dots(0.0, &a, b)).abs() < 1e-4),
                            _ => assert_eq!(got, model::sum_of_dots(0.0, &a, b), "{} {r} {c}", k),
                        }
                    }
                });
            }
        }
    }
}

#[test]
fn modelled_tiles_read_what_was_packed() {
    for (rows, segments, run, cols) in [
        ([16, 16], &[0][..], 64, 32),
        ([5, 0], &[32, 0], 32, 20),
        ([16, 1], &[0], 96, 1),
    ] {
        let p = Problem::new(rows, segments, run, cols);
        // SAFETY: the problem's operands are those of the job.
        let sums = p.with_job(false, |job| unsafe { model::run_block(job) });
        for (r, c) in (0..rows[0] + rows[1]).flat_map(|r| (0..cols).map(move |c| (r, c))) {
            let value = |x: &u16| bf16::from_bits(*x).to_f64();
            let (a, b) = (p.row(r), &p.columns[c]);
            let products = a.iter().zip(b).map(|(a, b)| value(a) * value(b));
            let (want, size) = products.fold((0.0, 0.0), |(s, t), x| (s + x, t + x.abs()));
            let bound = (a.len() as f64) * 2f64.powi(-24) * size;
            assert!((sums[r * COLS + c] as f64 - want).abs() <= bound, "row {r}, column {c}");
        }
    }
}

#[test]
fn panels_have_pairs_and_zeros() {
    for (depth, cols) in [(64, 32), (33, 32), (1, 7), (48, 3), (31, 31)] {
        let x = random(depth * cols + 1, 3);
        let bits = narrow(&x);
        // By columns, by rows, and with gaps.
        for strides in [[1, depth], [cols, 1]] {
            for wide in [false, true] {
                let src = match wide {
                    true => Source::Wide(x.as_ptr()),
                    false => Source::Narrow(bits.as_ptr()),
                };
                let mut dst = vec![0xffff; padded_run(depth) * COLS];
                // SAFETY: the source has the columns.
                unsafe { pack_pairs(src, strides, cols, [depth, padded_run(depth)], dst.as_mut_ptr()) };
                for (i, &got) in dst.iter().enumerate() {
                    let (k, c) = (i / (2 * COLS) * 2 + i % 2, i / 2 % COLS);
                    let inside = k < depth && c < cols;
                    let want = if inside {
                        bits[k * strides[0] + c * strides[1]]
                    } else {
                        0
                    };
                    assert_eq!(got, want, "{depth}x{cols} {strides:?} product index {k}, column {c}");
                }
            }
        }
    }
}

#[test]
fn rows_are_copied_or_converted() {
    let x = random(300, 9);
    let bits = narrow(&x);
    for k in all_kernels() {
        for (stride, n) in [(1, 1), (1, 40), (3, 99), (1, 300)] {
            for src in [Source::Narrow(bits.as_ptr()), Source::Wide(x.as_ptr())] {
                let run = padded_run(n);
                let mut dst = vec![1f32; run];
                // SAFETY: the source has the elements, and the destination the largest row.
                unsafe { pack_row(&k, src, stride, n, run, dst.as_mut_ptr().cast()) };
                // SAFETY: the row is in the buffer; any bits are elements.
                let (_, halves, _) = unsafe { dst.align_to::<u16>() };
                for i in 0..run {
                    let want = if i < n { bits[i * stride] } else { 0 };
                    let got = if k.widens_rows() {
                        (dst[i].to_bits() >> 16) as u16
                    } else {
                        halves[i]
                    };
                    assert_eq!(got, want, "{} element {i} of {n}", k);
                }
            }
        }
    }
    assert!((1..40).all(|n| !packed_row(64 * n).is_multiple_of(512)));
}

#[test]
fn rows_side_by_side_are_packed_as_single_ones() {
    let x = random(70 * 90, 9);
    let bits = narrow(&x);
    for k in all_kernels() {
        for [rows, n] in [[1, 7], [5, 64], [33, 31], [70, 90]] {
            for src in [Source::Narrow(bits.as_ptr()), Source::Wide(x.as_ptr())] {
                let run = padded_run(n);
                let width = packed_row(run * k.row_element());
                let [mut got, mut want] = [(); 2].map(|_| vec![1f32; rows * width / 4]);
                // SAFETY: the source has the elements, and the buffers have the rows.
                unsafe {
                    let to = (got.as_mut_ptr().cast(), width);
                    pack_rows(&k, src, [1, 70], rows, [n, run], to);
                    for r in 0..rows {
                        let to = want.as_mut_ptr().cast::<u8>().add(r * width);
                        pack_row(&k, src.skip(r), 70, n, run, to);
                    }
                }
                assert!(
                    got.iter().map(|x| x.to_bits()).eq(want.iter().map(|x| x.to_bits())),
                    "{k} {rows}x{n}"
                );
            }
        }
    }
}

#[test]
fn results_are_scaled_clamped_and_rounded_once() {
    let (rows, c_row) = (5, 40);
    let (sums, addend) = (random(rows * COLS, 1), random(rows * COLS, 2));
    let bits = narrow(&addend);
    for k in all_kernels() {
        for (cols, wide, strides, alpha, beta) in [
            (32, false, None, 1.0, 1.0),
            (32, false, Some([0, 1]), 1.0, 1.0),
            (32, true, Some([0, 1]), 1.0, 1.0),
            (19, false, Some([1, 0]), 1.0, 1.0),
            (32, false, Some([COLS, 1]), 0.5, -2.0),
            (3, true, Some([0, 0]), 1.0, 0.25),
        ] {
            let mut c = vec![0f32; rows * c_row];
            let clamp = (cols == 32).then_some((0.0, 0.75));
            let source = if wide {
                Source::Wide(addend.as_ptr())
            } else {
                Source::Narrow(bits.as_ptr())
            };
            let job = StoreJob {
                sums: sums.as_ptr(),
                rows,
                cols,
                c: c.as_mut_ptr().cast(),
                c_row,
                wide,
                addend: strides.map(|s| (source, s)),
                alpha,
                beta,
                clamp,
                affine: None,
            };
            // SAFETY: the buffers hold the rows.
            unsafe { job.run(&k) };
            for (r, col) in (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))) {
                // SAFETY: the element lies in the source.
                let a = strides.map_or(0.0, |[row, column]| unsafe { source.value(r * row + col * column) });
                let mut want = alpha * sums[r * COLS + col] + beta * a;
                if let Some((lo, hi)) = clamp {
                    want = want.clamp(lo, hi);
                }
                let at = r * c_row + col;
                // SAFETY: any bits are elements.
                let halves = unsafe { c.align_to::<u16>().1 };
                match wide {
                    true => assert_eq!(c[at], want),
                    false => assert_eq!(halves[at], bf16::from_f32(want).to_bits(), "{} {r} {col}", k),
                }
            }
        }
    }
}
