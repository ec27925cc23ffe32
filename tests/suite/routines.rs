//! Operations that no kernel covers, and others whose results must not depend on the number of threads.

use fxc::{Model, Options, Tensor};

/// Calls of routines on operands that are large enough for several threads. `%x` is f32[48, 64, 64], `%i` i64[48, 64, 64].
const CALLS: &[&str] = &[
    "aten.max_pool2d_with_indices.default(%x, [3, 3], [2, 2], [1, 1])",
    "aten.max_pool2d_with_indices.default(%x, [2, 11], [1, 5], [0, 2], [3, 1])",
    "aten.max_pool3d_with_indices.default(%x4, [2, 3, 3], [2, 2, 2])",
    "aten.adaptive_max_pool2d.default(%x, [7, 5])",
    "aten._adaptive_avg_pool2d.default(%x, [7, 5])",
    "aten.avg_pool2d.default(%x, [3, 5], [2, 3], [1, 2], True, False)",
    "aten.scatter.src(%x, 1, %i, %x)",
    "aten.scatter_add.default(%x, 2, %i, %x)",
    "aten.scatter_add.default(%x, 0, %first, %x)",
    "aten.scatter_add.default(%x, 0, %one, %x)",
    "aten.scatter.value(%x, 2, %i, 0.5)",
    "aten.scatter_reduce.two(%x, 1, %i, %x, \"mean\")",
    "aten.scatter_reduce.two(%x, 1, %i, %x, \"amax\", include_self=False)",
    "aten.topk.default(%flat, 5, 1)",
    "aten.topk.default(%x, 3, 1, False)",
    "aten.sort.default(%x, 2, True)",
    "aten.median.dim(%x, 1)",
    "aten.histc.default(%x, 64, -1.5, 3)",
    "aten.dot.default(%line, %line)",
];

fn graph(call: &str) -> String {
    format!(
        "graph routine {{
    %x : f32[48, 64, 64] = placeholder x
    %i : i64[48, 64, 64] = placeholder i
    %x4 = call_function aten.view.default(%x, [12, 4, 64, 64])
    %flat = call_function aten.view.default(%x, [48, 4096])
    %line = call_function aten.view.default(%x, [196608])
    %first = call_function aten.clamp.default(%i, 0, 47)
    %one = call_function aten.slice.Tensor(%first, 0, 5, 6)
    %y = call_function {call}
    output %y
}}
"
    )
}

/// Numbers with ties, both zeros and a few NaN.
fn numbers() -> Vec<f32> {
    let number = |i: usize| match i % 4099 {
        7 => f32::NAN,
        9 => -0.0,
        _ => ((i * 7919) % 2003) as f32 / 500.0 - 2.0,
    };
    (0..48 * 64 * 64).map(number).collect()
}

fn run(text: &str, threads: usize) -> Vec<Vec<u8>> {
    let indices: Vec<i64> = (0..48 * 64 * 64).map(|i: i64| i * 31 % 64).collect();
    let inputs = [
        ("x", Tensor::from_slice(&[48, 64, 64], &numbers())).into(),
        ("i", Tensor::from_slice(&[48, 64, 64], &indices)).into(),
    ];
    let compiled = Model::from_text(text).and_then(|m| m.compile(&Options::new().threads(threads).cache(false)));
    let compiled = compiled.unwrap_or_else(|e| panic!("{text}: {e}"));
    let out = compiled.run(inputs).unwrap_or_else(|e| panic!("{text}: {e}"));
    out.tensors().into_iter().map(|t| t.bytes().to_vec()).collect()
}

#[test]
fn results_are_the_same_bits_on_any_number_of_threads() {
    for call in CALLS {
        let text = graph(call);
        let one = run(&text, 1);
        for threads in [2, 5] {
            assert!(one == run(&text, threads), "{call} on {threads} threads");
        }
    }
}

/// The maxima of windows of 3 x 11 at distances of 2 x 5, one element at a time, as torch's loop has them.
#[test]
fn maxima_and_their_places_are_those_of_the_plain_loop() {
    let found = run(
        &graph("aten.max_pool2d_with_indices.default(%x, [3, 11], [2, 5], [1, 4])"),
        2,
    );
    let x = numbers();
    let (mut values, mut places): (Vec<f32>, Vec<i64>) = (vec![], vec![]);
    for plane in x.chunks_exact(64 * 64) {
        for top in (-1..=62i64).step_by(2) {
            for left in (-4..=57i64).step_by(5) {
                let rows = top.max(0)..(top + 3).min(64);
                let columns = left.max(0)..(left + 11).min(64);
                let (mut best, mut place) = (f32::NEG_INFINITY, rows.start * 64 + columns.start);
                for k in rows.flat_map(|r| columns.clone().map(move |c| r * 64 + c)) {
                    let v = plane[k as usize];
                    if v > best || v.is_nan() {
                        (best, place) = (v, k);
                    }
                }
                values.push(best);
                places.push(place);
            }
        }
    }
    let bits = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    assert!(found[0] == bits(&values), "values");
    assert!(
        found[1] == places.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>(),
        "places"
    );
}

/// The least and the greatest of a line, where equal elements keep their order and NaN is the greatest.
#[test]
fn the_first_of_a_long_line_are_those_of_the_sorted_line() {
    let x = numbers();
    for (largest, text) in [
        (true, "aten.topk.default(%flat, 7, 1)"),
        (false, "aten.topk.default(%flat, 7, 1, False)"),
    ] {
        let found = run(&graph(text), 2);
        let places: Vec<i64> = found[1]
            .chunks_exact(8)
            .map(|b| i64::from_le_bytes(b.try_into().expect("8")))
            .collect();
        for (line, places) in x.chunks_exact(4096).zip(places.chunks_exact(7)) {
            let mut order: Vec<usize> = (0..4096).collect();
            let key = |k: usize| if line[k].is_nan() { f32::INFINITY } else { line[k] };
            match largest {
                true => order.sort_by(|a, b| key(*b).total_cmp(&(key(*a) + 0.0))),
                false => order.sort_by(|a, b| key(*a).total_cmp(&(key(*b) + 0.0))),
            }
            let values = |v: &[usize]| v.iter().map(|&k| key(k)).collect::<Vec<_>>();
            let places: Vec<usize> = places.iter().map(|&p| p as usize).collect();
            assert_eq!(values(&order[..7]), values(&places));
        }
    }
}

/// Rows without elements are not read, but the indices that name them are.
#[test]
fn indices_of_empty_rows_are_checked() {
    let text = "graph main {
    %x : f32[2, 0] = placeholder x
    %i : i64[1] = placeholder i
    %y = call_function aten.index_select.default(%x, 0, %i)
    output %y
}
";
    let compiled = Model::from_text(text).and_then(|m| m.compile(&Options::new().threads(1).cache(false)));
    let compiled = compiled.unwrap_or_else(|e| panic!("{e}"));
    for (index, fits) in [(1i64, true), (2, false), (-1, false)] {
        let inputs = [
            ("x", Tensor::from_slice::<f32>(&[2, 0], &[])).into(),
            ("i", Tensor::from_slice(&[1], &[index])).into(),
        ];
        assert_eq!(compiled.run(inputs).is_ok(), fits, "{index}");
    }
}
