use super::*;

fn overlaps(b: &Boxes, l: &DrawingLayout) -> bool {
    let inside = |i: usize, j: usize| {
        let (dx, dy) = (l.places[i].0 - l.places[j].0, l.places[i].1 - l.places[j].1);
        let (w, h) = (b.sizes[i].0 + b.sizes[j].0, b.sizes[i].1 + b.sizes[j].1);
        dx.abs() < w / 2.0 && dy.abs() < h / 2.0
    };
    (0..b.sizes.len()).any(|i| (0..i).any(|j| inside(i, j)))
}

#[test]
fn boxes_stand_below_what_they_use_and_do_not_overlap() {
    let mut seed = 7u64;
    let mut random = |n: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % n
    };
    for count in [0, 1, 2, 9, 60] {
        let sizes = (0..count)
            .map(|_| (20.0 + random(90) as f64, 15.0 + random(30) as f64))
            .collect();
        let edges = (1..count).flat_map(|b| [(random(b), b), (random(b), b)]).collect();
        let boxes = Boxes { sizes, edges };
        let l = compute_layout(&boxes);
        assert_eq!(l.places.len(), count);
        assert!(!overlaps(&boxes, &l), "{l:?}");
        for (&(a, b), line) in boxes.edges.iter().zip(&l.lines) {
            let low = |n: usize, sign: f64| l.places[n].1 + sign * boxes.sizes[n].1 / 2.0;
            assert!(low(a, 1.0) < low(b, -1.0));
            assert!(line.windows(2).all(|p| p[0].1 <= p[1].1), "{line:?}");
            assert_eq!(line[line.len() - 1], (l.places[b].0, low(b, -1.0)));
            let start = (l.places[a].0, low(a, 1.0));
            assert!(line[0] == start || l.lines.iter().any(|other| other[1..].contains(&line[0])));
        }
        let inside = |p: &(f64, f64)| p.0 >= 0.0 && p.1 >= 0.0 && p.0 <= l.size.0 && p.1 <= l.size.1;
        assert!(l.places.iter().chain(l.lines.iter().flatten()).all(inside));
    }
}

#[test]
fn a_chain_is_straight() {
    let boxes = Boxes {
        sizes: vec![(50.0, 20.0), (80.0, 20.0), (30.0, 20.0)],
        edges: vec![(0, 1), (1, 2)],
    };
    let l = compute_layout(&boxes);
    assert!(l.places.iter().all(|p| (p.0 - 40.0).abs() < 1e-9), "{l:?}");
    assert_eq!(l.size, (80.0, 3.0 * 20.0 + 2.0 * LAYER_GAP));
}

/// A sequence of calls, each with its own parameters; every other call also uses the result of three calls before.
fn model(calls: usize, weights: usize) -> Boxes {
    let mut edges = vec![];
    for call in (1..=calls).map(|c| c * (weights + 1)) {
        edges.extend((call - weights - 1..call).map(|a| (a, call)));
        edges.extend((call % 2 == 0 && call > 4 * weights + 4).then(|| (call - 4 * (weights + 1), call)));
    }
    let sizes = (0..=calls * (weights + 1)).map(|i| (60.0 + (i * 7 % 50) as f64, 20.0));
    Boxes {
        sizes: sizes.collect(),
        edges,
    }
}

#[test]
fn deep_models_are_upright() {
    for weights in [0, 1, 2, 4] {
        let boxes = model(200, weights);
        let l = compute_layout(&boxes);
        assert!(!overlaps(&boxes, &l));
        let calls = || l.places.iter().step_by(weights + 1).skip(1).map(|p| p.0);
        assert!(
            calls().all(|x| (x - l.places[weights + 1].0).abs() < 1.0),
            "{:?}",
            calls().collect::<Vec<_>>()
        );
        // A call, its parameters, and two edges that pass through.
        let widest = (110.0 + GAP) * (weights + 1) as f64 + 2.0 * (JOINT + GAP);
        assert!(l.size.0 < 2.0 * widest, "{weights} weights: {:?}", l.size);
    }
}

#[test]
fn large_graphs_have_layouts() {
    let all_used_at_the_end = (1..3000).flat_map(|b| [(b - 1, b), (b - 1, 2999)]).collect();
    let graphs: [(usize, Vec<(usize, usize)>); 5] = [
        (10_000, vec![]),
        (10_000, (1..10_000).map(|b| (0, b)).collect()),
        (10_000, (0..9_999).map(|a| (a, 9_999)).collect()),
        (5_000, (1..5_000).map(|b| (b - 1, b)).collect()),
        (3_000, all_used_at_the_end),
    ];
    for (count, edges) in graphs {
        let boxes = Boxes {
            sizes: vec![(50.0, 20.0); count],
            edges,
        };
        let l = compute_layout(&boxes);
        let at = |y: f64| l.places.iter().filter(|p| p.1 == y).count();
        let widest = at(l.places[0].1).max(at(l.places[count - 1].1)) as f64 * (50.0 + GAP);
        assert!(l.size.0 <= ROOM * widest, "{count}: {:?}", l.size);
        assert!(l.places.iter().all(|p| p.0.is_finite() && p.1.is_finite()));
    }
}
