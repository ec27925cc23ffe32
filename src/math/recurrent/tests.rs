//! Compares layers with their definition in f64, on every instruction set level.

use super::*;
use crate::target::{PairUnit, Target};
use half::bf16;

fn values(n: usize, seed: usize) -> Vec<f32> {
    (0..n)
        .map(|i| ((i * 37 + seed * 11) % 61) as f32 / 30.0 - 1.0)
        .collect()
}

/// The definition in f64: hidden states after every step, then the cell states.
fn expected(d: &Recurrent, x: &[f32], h0: &[f32], c0: &[f32], w: &[f32], b: &[f32], p: &[f32]) -> Vec<f64> {
    let (h, g, s) = (d.hidden, d.cell.gates(), d.state_size());
    let mut out = vec![0.0; d.time * d.batch * s + d.batch * h];
    let dot = |row: &[f32], v: &[f64]| -> f64 { row.iter().zip(v).map(|(&a, &b)| a as f64 * b).sum() };
    let mut cell: Vec<f64> = c0.iter().map(|&v| v as f64).collect();
    let mut state: Vec<f64> = h0.iter().map(|&v| v as f64).collect();
    let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
    for i in 0..d.time {
        let t = if d.reverse { d.time - 1 - i } else { i };
        let old = state.clone();
        let mut new_state = vec![0.0; d.batch * h];
        for n in 0..d.batch {
            for k in 0..h {
                let xg = |q: usize| x[((t * d.batch + n) * g + q) * h + k] as f64;
                let ug = |q: usize| {
                    dot(&w[(q * h + k) * s..][..s], &old[n * s..]) + if d.bias { b[q * h + k] as f64 } else { 0.0 }
                };
                let at = n * h + k;
                new_state[at] = match d.cell {
                    RecurrentCell::Lstm => {
                        let a = |q| xg(q) + ug(q);
                        cell[at] = sigmoid(a(1)) * cell[at] + sigmoid(a(0)) * a(2).tanh();
                        sigmoid(a(3)) * cell[at].tanh()
                    }
                    RecurrentCell::Gru => {
                        let (r, z) = (sigmoid(xg(0) + ug(0)), sigmoid(xg(1) + ug(1)));
                        let new = (xg(2) + r * ug(2)).tanh();
                        (old[at] - new) * z + new
                    }
                    RecurrentCell::Tanh => (xg(0) + ug(0)).tanh(),
                    RecurrentCell::Relu => (xg(0) + ug(0)).max(0.0),
                };
            }
        }
        state = match d.projected {
            None => new_state,
            Some(s) => (0..d.batch * s)
                .map(|i| dot(&p[i % s * h..][..h], &new_state[i / s * h..]))
                .collect(),
        };
        out[t * d.batch * s..][..d.batch * s].copy_from_slice(&state);
    }
    let tail = d.time * d.batch * s;
    out[tail..].copy_from_slice(&cell);
    out
}

/// The result of a layer, after a comparison with what its definition says.
fn check(d: &Recurrent, kernels: &PairKernels, threads: usize, constant: bool) -> Vec<f32> {
    let [inputs, state, weight, rows, out] = d.extents().expect("small sizes");
    let (x, h0, c0) = (values(inputs, 1), values(state, 2), values(d.batch * d.hidden, 3));
    // Weights are numbers of bf16, and states of bf16 products are rounded by up to 2^-9 of them.
    let number = |v: &f32| bf16::from_f32(v / d.hidden as f32).to_f32();
    let scaled = |n: usize, seed: usize| -> Vec<f32> { values(n, seed).iter().map(number).collect() };
    let most = if d.in_bf16 { 4e-3 } else { 2e-6 };
    let (w, p) = (scaled(weight, 4), scaled(d.projected.unwrap_or(0) * d.hidden, 6));
    let b = values(rows, 5);
    let mut y = vec![f32::NAN; out];
    let bytes = |v: &[f32]| -> Vec<u8> { v.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let (w_bytes, p_bytes) = (bytes(&w), bytes(&p));
    let given = |b| constant.then_some(Constant::from_bytes(b));
    let constants = RecurrentConstants {
        weight: given(&w_bytes),
        projection: given(&p_bytes),
    };
    let plan = plan(kernels, d, constants).expect("a plan");
    let args = RecurrentArgs {
        inputs: x.as_ptr(),
        state: h0.as_ptr(),
        cell: c0.as_ptr(),
        weight: w.as_ptr(),
        projection: p.as_ptr(),
        bias: b.as_ptr(),
        out: y.as_mut_ptr(),
    };
    // SAFETY: the arrays have the descriptor's extents.
    unsafe { plan.run(&Pool::new(threads), &args) };
    let want = expected(d, &x, &h0, &c0, &w, &b, &p);
    for (i, (&y, &want)) in y.iter().zip(&want).enumerate() {
        assert!(
            (y as f64 - want).abs() < most * want.abs().max(1.0),
            "{d:?} {kernels} {i}: {y} {want}"
        );
    }
    y
}

fn check_everywhere(d: &Recurrent, kernels: &PairKernels) {
    let one = check(d, kernels, 1, true);
    assert_eq!(one, check(d, kernels, 3, true), "the same bits with three threads");
    let dynamic = check(d, kernels, 1, false);
    assert_eq!(one, dynamic, "the same bits with a weight that is not constant");
}

#[test]
fn layers_are_what_their_definition_says() {
    let cells = [
        RecurrentCell::Lstm,
        RecurrentCell::Gru,
        RecurrentCell::Tanh,
        RecurrentCell::Relu,
    ]
    .map(|c| (c, None));
    let projected = [1, 17, 130].map(|p| (RecurrentCell::Lstm, Some(p)));
    for (cell, projected) in cells.into_iter().chain(projected) {
        for (time, batch, hidden) in [(1, 1, 1), (5, 1, 33), (3, 3, 70), (2, 5, 128), (2, 12, 40), (1, 14, 20)] {
            for reverse in [false, true] {
                let d = Recurrent {
                    cell,
                    time,
                    batch,
                    hidden,
                    projected,
                    reverse,
                    bias: hidden != 33,
                    in_bf16: false,
                };
                for isa in Isa::available() {
                    check_everywhere(&d, &PairKernels::new(PairUnit::Widening, isa));
                }
                let in_bf16 = Recurrent { in_bf16: true, ..d };
                check_everywhere(&in_bf16, &PairKernels::for_target(Target::native()));
            }
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let d = Recurrent {
        cell: RecurrentCell::Lstm,
        time: 1,
        batch: 1,
        hidden: usize::MAX / 8,
        projected: None,
        reverse: false,
        bias: false,
        in_bf16: false,
    };
    assert!(matches!(
        plan(
            &PairKernels::new(PairUnit::Widening, Isa::Portable),
            &d,
            RecurrentConstants::default()
        ),
        Err(PlanError::Size)
    ));
}
