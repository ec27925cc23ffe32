//! Places for the nodes of a graph on paper: a layered layout, after Sugiyama.
//!
//! Each node gets the layer after all it uses, edges over several layers get a joint in each layer between, the layers are
//! ordered by the medians of their neighbours, and the nodes of a layer move towards their neighbours as far as there is
//! room. All in one unit: points of the drawing.

/// How often the layers are gone over, down and up.
const SWEEPS: usize = 8;
/// Room between two boxes of a layer.
const GAP: f64 = 18.0;
/// Room between two layers.
const LAYER_GAP: f64 = 34.0;
/// The room that an edge takes in a layer it only passes.
const JOINT: f64 = 8.0;
/// Layouts of more boxes and joints than this keep the first order: sweeps would take long and help nobody.
const LARGE: usize = 60_000;

/// What is to be placed.
#[derive(Clone, Debug, Default)]
pub struct Boxes {
    /// Width and height of each box.
    pub sizes: Vec<(f64, f64)>,
    /// From one box to another, by number. Edges lead from boxes to later ones.
    pub edges: Vec<(usize, usize)>,
}

/// Where everything is.
#[derive(Clone, Debug, Default)]
pub struct DrawingLayout {
    /// The middle of each box.
    pub places: Vec<(f64, f64)>,
    /// The points of each edge, from box to box.
    pub lines: Vec<Vec<(f64, f64)>>,
    /// Width and height of the whole.
    pub size: (f64, f64),
}

/// Boxes and joints in layers.
struct Layers {
    /// Width of each box and joint.
    width: Vec<f64>,
    layer: Vec<usize>,
    rows: Vec<Vec<usize>>,
    up: Vec<Vec<usize>>,
    down: Vec<Vec<usize>>,
    x: Vec<f64>,
}

/// Places the boxes.
pub fn compute_layout(boxes: &Boxes) -> DrawingLayout {
    let count = boxes.sizes.len();
    let edges: Vec<(usize, usize)> = boxes
        .edges
        .iter()
        .copied()
        .filter(|&(a, b)| a < b && b < count)
        .collect();
    let layer = layers_of(boxes, &edges);
    let mut layers = Layers {
        width: boxes.sizes.iter().map(|s| s.0).collect(),
        rows: vec![vec![]; layer.iter().max().map_or(0, |m| m + 1)],
        layer,
        up: vec![vec![]; count],
        down: vec![vec![]; count],
        x: vec![],
    };
    for b in 0..count {
        layers.rows[layers.layer[b]].push(b);
    }
    let chains: Vec<Vec<usize>> = edges.iter().map(|&(a, b)| layers.edge_chain(a, b)).collect();
    if layers.width.len() <= LARGE {
        layers.order_layers();
    }
    layers.place_boxes();
    layers.finish(boxes, &chains)
}

/// The layer of each box: one more than the highest layer among its predecessors. A box without predecessors goes into the layer
/// just before its first use.
fn layers_of(boxes: &Boxes, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut layer = vec![0; boxes.sizes.len()];
    let mut sorted = edges.to_vec();
    // Edges lead to later boxes, so that each layer is final when it is read.
    sorted.sort_unstable_by_key(|e| e.0);
    for &(a, b) in &sorted {
        layer[b] = layer[b].max(layer[a] + 1);
    }
    let mut first: Vec<Option<usize>> = vec![None; layer.len()];
    let mut is_source = vec![true; layer.len()];
    for &(a, b) in &sorted {
        is_source[b] = false;
        first[a] = Some(first[a].map_or(layer[b], |l| l.min(layer[b])));
    }
    for b in 0..layer.len() {
        if let (true, Some(l)) = (is_source[b], first[b]) {
            layer[b] = l - 1;
        }
    }
    layer
}

impl Layers {
    /// The boxes and joints of an edge.
    fn edge_chain(&mut self, a: usize, b: usize) -> Vec<usize> {
        let mut chain = vec![a];
        for l in self.layer[a] + 1..self.layer[b] {
            let joint = self.width.len();
            self.width.push(JOINT);
            self.layer.push(l);
            self.up.push(vec![]);
            self.down.push(vec![]);
            self.rows[l].push(joint);
            chain.push(joint);
        }
        chain.push(b);
        for pair in chain.windows(2) {
            self.down[pair[0]].push(pair[1]);
            self.up[pair[1]].push(pair[0]);
        }
        chain
    }

    /// Orders each layer by the medians of its neighbours.
    fn order_layers(&mut self) {
        let mut place: Vec<f64> = vec![0.0; self.width.len()];
        for row in &self.rows {
            row.iter().enumerate().for_each(|(i, &n)| place[n] = i as f64);
        }
        for sweep in 0..SWEEPS {
            let down = sweep % 2 == 0;
            let count = self.rows.len();
            for i in 0..count {
                let l = if down { i } else { count - 1 - i };
                let near = if down { &self.up } else { &self.down };
                let mut keyed: Vec<(f64, usize)> = self.rows[l]
                    .iter()
                    .map(|&n| (median(near[n].iter().map(|&m| place[m])).unwrap_or(place[n]), n))
                    .collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                self.rows[l] = keyed.into_iter().map(|(_, n)| n).collect();
                self.rows[l].iter().enumerate().for_each(|(i, &n)| place[n] = i as f64);
            }
        }
    }

    /// Moves boxes towards the middle of their neighbours, without changing the order of a layer.
    fn place_boxes(&mut self) {
        self.x = vec![0.0; self.width.len()];
        for row in &self.rows {
            let mut at = 0.0;
            for &n in row {
                self.x[n] = at + self.width[n] / 2.0;
                at += self.width[n] + GAP;
            }
        }
        for sweep in 0..SWEEPS {
            let count = self.rows.len();
            for i in 0..count {
                let l = if sweep % 2 == 0 { i } else { count - 1 - i };
                self.settle(l, sweep % 2 == 0);
            }
        }
    }

    /// Moves the boxes of one layer to where they would like to be, pushed apart where they would overlap: the mean of what
    /// pushing from the left and from the right gives.
    fn settle(&mut self, l: usize, down: bool) {
        let row = &self.rows[l];
        let near = if down { &self.up } else { &self.down };
        let wish: Vec<f64> = row
            .iter()
            .map(|&n| median(near[n].iter().map(|&m| self.x[m])).unwrap_or(self.x[n]))
            .collect();
        let apart = |i: usize| (self.width[row[i]] + self.width[row[i + 1]]) / 2.0 + GAP;
        let mut left = wish.clone();
        for i in 1..row.len() {
            left[i] = left[i].max(left[i - 1] + apart(i - 1));
        }
        let mut right = wish;
        for i in (0..row.len().saturating_sub(1)).rev() {
            right[i] = right[i].min(right[i + 1] - apart(i));
        }
        let places: Vec<f64> = left.iter().zip(&right).map(|(a, b)| (a + b) / 2.0).collect();
        for (&n, x) in self.rows[l].iter().zip(places) {
            self.x[n] = x;
        }
    }

    fn finish(&self, boxes: &Boxes, chains: &[Vec<usize>]) -> DrawingLayout {
        let count = boxes.sizes.len();
        let mut top = 0.0;
        let mut middle = vec![];
        let mut heights = vec![];
        for row in &self.rows {
            let tall = row.iter().filter(|&&n| n < count).map(|&n| boxes.sizes[n].1);
            let height = tall.fold(0.0, f64::max);
            middle.push(top + height / 2.0);
            heights.push(height);
            top += height + LAYER_GAP;
        }
        let edge = |n: usize, sign: f64| self.x[n] + sign * self.width[n] / 2.0;
        let all = 0..self.width.len();
        let least = all.clone().map(|n| edge(n, -1.0)).fold(f64::INFINITY, f64::min);
        let least = if least.is_finite() { least } else { 0.0 };
        let most = all.map(|n| edge(n, 1.0)).fold(least, f64::max);
        let at = |n: usize| (self.x[n] - least, middle[self.layer[n]]);
        let line = |chain: &Vec<usize>| -> Vec<(f64, f64)> {
            let mut points = vec![];
            for (i, &n) in chain.iter().enumerate() {
                let (x, y) = at(n);
                let half = if n < count {
                    boxes.sizes[n].1
                } else {
                    heights[self.layer[n]]
                } / 2.0;
                if i > 0 {
                    points.push((x, y - half));
                }
                if i + 1 < chain.len() {
                    points.push((x, y + half));
                }
            }
            points
        };
        DrawingLayout {
            places: (0..count).map(at).collect(),
            lines: chains.iter().map(line).collect(),
            size: (most - least, (top - LAYER_GAP).max(0.0)),
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut v: Vec<f64> = values.collect();
    v.sort_by(f64::total_cmp);
    let mid = v.len() / 2;
    match v.len() {
        0 => None,
        n if n % 2 == 1 => Some(v[mid]),
        _ => Some((v[mid - 1] + v[mid]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
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
                let ends = [line[0], line[line.len() - 1]];
                assert_eq!(ends, [(l.places[a].0, low(a, 1.0)), (l.places[b].0, low(b, -1.0))]);
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
}
