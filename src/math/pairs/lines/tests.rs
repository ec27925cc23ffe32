use super::super::model::sum_of_dots;
use super::super::tests::all_kernels;
use super::*;
use half::bf16;

fn numbers(n: usize, seed: u32) -> Vec<u16> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bf16::from_f32((state >> 8) as f32 / (1 << 23) as f32 - 1.0).to_bits()
    };
    (0..n).map(|_| next()).collect()
}

fn wide(x: u16) -> f32 {
    bf16::from_bits(x).to_f32()
}

/// Compares a product, whose lines are in reverse order, with the order of the instructions.
fn check([rows, cols, k]: [usize; 3], addend: Option<[usize; 2]>, clamp: Option<(f32, f32)>, [alpha, beta]: [f32; 2]) {
    let (a_row, b_row, c_row) = (k + 1, cols + 3, cols + 2);
    let (a, b) = (numbers(rows * a_row, 1), numbers(k * b_row, 2));
    let x = numbers(rows * cols + rows + cols, 3);
    let mut c = vec![0x1234; rows * c_row];
    let lines = Lines::new((0..k).map(|i| (k - 1 - i) * b_row).collect());
    let job = LineJob {
        a: a.as_ptr(),
        a_row,
        rows,
        b: b.as_ptr(),
        lines: &lines,
        cols,
        c: c.as_mut_ptr(),
        c_row,
        addend: addend.map(|strides| (x.as_ptr(), strides)),
        alpha,
        beta,
        clamp,
    };
    // SAFETY: the arrays hold the operands; the caller checked the machine.
    unsafe { multiply(&job) };
    for (r, col) in (0..rows).flat_map(|r| (0..c_row).map(move |c| (r, c))) {
        let got = c[r * c_row + col];
        if col >= cols {
            assert_eq!(got, 0x1234, "beyond the columns");
            continue;
        }
        let (mut row, mut column) = (a[r * a_row..][..k].to_vec(), vec![]);
        column.extend((0..k).rev().map(|i| b[i * b_row + col]));
        for v in [&mut row, &mut column] {
            v.resize(k.next_multiple_of(2), 0);
        }
        let x = addend.map_or(0.0, |[s_row, s_col]| wide(x[r * s_row + col * s_col]));
        let want = match [alpha, beta] {
            // Sums begin with the addend.
            [1.0, 1.0] => sum_of_dots(x, &row, &column),
            _ => alpha * sum_of_dots(0.0, &row, &column) + beta * x,
        };
        let (lo, hi) = clamp.unwrap_or((f32::NEG_INFINITY, f32::INFINITY));
        assert_eq!(
            got,
            bf16::from_f32(want.clamp(lo, hi)).to_bits(),
            "{rows} {cols} {k} at {r} {col}"
        );
    }
}

#[test]
fn lines_are_multiplied_in_the_order_of_the_instructions() {
    if !are_available(&all_kernels()[0]) {
        return;
    }
    for rows in [1, 2, 3, 6, 7, 12, 13, 25] {
        for cols in [1, 5, 16, 17, 31, 32, 33, 50, 64, 161, 300] {
            for k in [1, 2, 3, 8, 37] {
                let clamp = (rows % 2 == 0).then_some((-0.5, 1.0));
                let addend = Some([[0, 1], [1, 0], [cols, 1]][k % 3]);
                for factors in [[1.0, 1.0], [2.0, 0.5]] {
                    check([rows, cols, k], None, clamp, factors);
                    check([rows, cols, k], addend, clamp, factors);
                }
            }
        }
    }
}
