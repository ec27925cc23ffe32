//! Compares layers with their definition in f64, on every instruction set level.

use super::*;

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

fn check(d: &Recurrent, isa: Isa, threads: usize, constant: bool) -> Vec<f32> {
    let [inputs, state, weight, rows, out] = d.extents().expect("small sizes");
    let (x, h0, c0) = (values(inputs, 1), values(state, 2), values(d.batch * d.hidden, 3));
    let scaled = |n: usize, seed: usize| -> Vec<f32> { values(n, seed).iter().map(|v| v / d.hidden as f32).collect() };
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
    let plan = plan(isa, d, constants).expect("a plan");
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
            (y as f64 - want).abs() < 2e-6 * want.abs().max(1.0),
            "{d:?} {isa} {i}: {y} {want}"
        );
    }
    y
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
                };
                for isa in Isa::available() {
                    let one = check(&d, isa, 1, true);
                    assert_eq!(one, check(&d, isa, 3, true), "the same bits with three threads");
                    assert_eq!(
                        one,
                        check(&d, isa, 1, false),
                        "the same bits with a weight that is not constant"
                    );
                }
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
    };
    assert!(matches!(
        plan(Isa::Portable, &d, RecurrentConstants::default()),
        Err(PlanError::Size)
    ));
}
