//! Places the nodes of a graph in a drawing: a layered layout, after Sugiyama.
//!
//! Each node is in a layer after all nodes it uses. An edge over several layers gets a joint in each layer between, and
//! edges from the same box share their joints. Layers are ordered by the medians of their neighbours, then boxes move
//! towards their neighbours within the order of their layer. All lengths are in points of the drawing.
//!
//! Longest paths are drawn straight: the position of a box depends only on its neighbours on the longest path, and
//! boxes on shorter paths give way to boxes on longer ones. If all neighbours had the same weight, as in the
//! coordinates of Brandes and Köpf, the parameters on one side of each call would shift it slightly to that side of the
//! previous call, and a deep model would become a diagonal.

/// The number of sweeps over all layers, half of them down and half up.
const SWEEPS: usize = 8;
/// The gap between two boxes of a layer.
const GAP: f64 = 18.0;
/// The gap between two layers.
const LAYER_GAP: f64 = 34.0;
/// The width of an edge in a layer that it passes through.
const JOINT: f64 = 8.0;
/// If a drawing needs more joints than this, it gets none, and its long edges are straight lines across boxes. The
/// number of joints is quadratic if every node is used at the end.
const MAX_JOINTS: usize = 100_000;
/// The maximum width of the drawing, relative to the widest layer without holes.
const ROOM: f64 = 2.0;
/// The weight of a box relative to one on the next longer path. It is almost zero.
const GIVING_WAY: f64 = 1e-5;
/// The number of path lengths with different weights in a layer. `GIVING_WAY` to this power is still a normal number.
const RANKS: usize = 40;

/// The input of the layout.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Boxes {
    /// Width and height of each box; finite.
    pub sizes: Vec<(f64, f64)>,
    /// Edges as pairs of box numbers. Edges lead from a box to a later one.
    pub edges: Vec<(usize, usize)>,
}

/// The result of the layout.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DrawingLayout {
    /// The centre of each box.
    pub places: Vec<(f64, f64)>,
    /// The points of each edge. An edge begins at its box, or where it branches off another edge of that box.
    pub lines: Vec<Vec<(f64, f64)>>,
    /// Width and height of the drawing.
    pub size: (f64, f64),
}

/// Boxes, followed by joints, in layers.
#[derive(Default)]
struct Layers {
    width: Vec<f64>,
    layer: Vec<usize>,
    /// The number of edges on the longest path through each. For a joint, only paths to the last box that it leads to
    /// count.
    length: Vec<usize>,
    rows: Vec<Vec<usize>>,
    /// The neighbours in the previous and the next layer, each with the length of the longest path over that edge.
    neighbours: [Vec<Vec<(usize, usize)>>; 2],
    x: Vec<f64>,
}

/// Indices into [`Layers::neighbours`].
const ABOVE: usize = 0;
const BELOW: usize = 1;

/// Adjacent boxes of a layer that touch and move together.
struct BoxGroup {
    /// The sum of the wanted positions, weighted.
    sum: f64,
    weight: f64,
    members: usize,
}

/// Computes the layout.
pub fn compute_layout(boxes: &Boxes) -> DrawingLayout {
    let count = boxes.sizes.len();
    let is_sound = |&(a, b): &(usize, usize)| a < b && b < count;
    let edges: Vec<(usize, usize)> = boxes.edges.iter().copied().filter(is_sound).collect();
    let (to, from) = longest_paths(count, &edges);
    let mut layers = Layers {
        width: boxes.sizes.iter().map(|s| s.0).collect(),
        layer: layers_of(&to, &edges),
        length: to.iter().zip(&from).map(|(a, b)| a + b).collect(),
        neighbours: [vec![vec![]; count], vec![vec![]; count]],
        ..Layers::default()
    };
    layers.rows = vec![vec![]; layers.layer.iter().max().map_or(0, |m| m + 1)];
    for b in 0..count {
        layers.rows[layers.layer[b]].push(b);
    }
    let chains = layers.connect(&edges, &to, &from);
    layers.order();
    layers.assign_positions();
    layers.finish(boxes, &chains)
}

/// For each box, the number of edges on the longest path to it and on the longest path from it.
fn longest_paths(count: usize, edges: &[(usize, usize)]) -> (Vec<usize>, Vec<usize>) {
    let (mut to, mut from) = (vec![0; count], vec![0; count]);
    let mut sorted = edges.to_vec();
    // Edges lead to later boxes, so in sorted order every value is final when it is read.
    sorted.sort_unstable();
    for &(a, b) in &sorted {
        to[b] = to[b].max(to[a] + 1);
    }
    for &(a, b) in sorted.iter().rev() {
        from[a] = from[a].max(from[b] + 1);
    }
    (to, from)
}

/// The layer of each box: after all boxes it uses. A box without inputs is in the layer just before its first user.
fn layers_of(to: &[usize], edges: &[(usize, usize)]) -> Vec<usize> {
    let mut first = vec![usize::MAX; to.len()];
    for &(a, b) in edges {
        first[a] = first[a].min(to[b]);
    }
    let layer = |(&to, first)| match (to, first) {
        (0, 1..usize::MAX) => first - 1,
        _ => to,
    };
    to.iter().zip(first).map(layer).collect()
}

impl Layers {
    /// Links boxes with their users, with joints in the layers between. Returns the boxes and joints on each edge.
    fn connect(&mut self, edges: &[(usize, usize)], to: &[usize], from: &[usize]) -> Vec<Vec<usize>> {
        let mut users: Vec<Vec<usize>> = vec![vec![]; to.len()];
        for (e, &(a, _)) in edges.iter().enumerate() {
            users[a].push(e);
        }
        let mut joints = 0;
        for (a, users) in users.iter_mut().enumerate() {
            users.sort_by_key(|&e| self.layer[edges[e].1]);
            joints += users.last().map_or(0, |&e| self.layer[edges[e].1] - self.layer[a] - 1);
        }
        let mut chains = vec![vec![]; edges.len()];
        for (a, users) in users.iter().enumerate() {
            let length = |e: usize| to[a] + 1 + from[edges[e].1];
            let mut tail = a;
            for &e in users {
                let b = edges[e].1;
                chains[e].push(tail);
                while joints <= MAX_JOINTS && self.layer[tail] + 1 < self.layer[b] {
                    tail = self.add_joint(tail, length(users[users.len() - 1]));
                    chains[e].push(tail);
                }
                self.link(tail, b, length(e));
                chains[e].push(b);
            }
        }
        chains
    }

    /// Adds a joint in the layer after that of `above`.
    fn add_joint(&mut self, above: usize, length: usize) -> usize {
        let (joint, layer) = (self.width.len(), self.layer[above] + 1);
        self.width.push(JOINT);
        self.layer.push(layer);
        self.length.push(length);
        self.rows[layer].push(joint);
        self.neighbours.iter_mut().for_each(|n| n.push(vec![]));
        self.link(above, joint, length);
        joint
    }

    fn link(&mut self, above: usize, below: usize, length: usize) {
        self.neighbours[ABOVE][below].push((above, length));
        self.neighbours[BELOW][above].push((below, length));
    }

    /// The layers in the order of the sweeps, each with the side of the neighbours that determine its positions.
    fn sweep_order(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let count = self.rows.len();
        let down = move || (0..count).map(|l| (l, ABOVE));
        let up = move || (0..count).rev().map(|l| (l, BELOW));
        (0..SWEEPS / 2).flat_map(move |_| down().chain(up()))
    }

    /// Orders each layer by the medians of its neighbours.
    fn order(&mut self) {
        let mut place: Vec<f64> = vec![0.0; self.width.len()];
        for row in &self.rows {
            row.iter().enumerate().for_each(|(i, &n)| place[n] = i as f64);
        }
        for (l, side) in self.sweep_order() {
            let key = |n: usize| median(self.neighbours[side][n].iter().map(|&(m, _)| place[m])).unwrap_or(place[n]);
            let mut keyed: Vec<(f64, usize)> = self.rows[l].iter().map(|&n| (key(n), n)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            self.rows[l] = keyed.into_iter().map(|(_, n)| n).collect();
            self.rows[l].iter().enumerate().for_each(|(i, &n)| place[n] = i as f64);
        }
    }

    /// Moves boxes towards their neighbours without changing the order of a layer.
    fn assign_positions(&mut self) {
        let packed = |row: &Vec<usize>| row.iter().map(|&n| self.width[n] + GAP).sum::<f64>();
        let widths: Vec<f64> = self.rows.iter().map(packed).collect();
        let room = ROOM * widths.iter().copied().fold(0.0, f64::max);
        self.x = vec![0.0; self.width.len()];
        for (l, width) in widths.iter().enumerate() {
            self.put(l, [((room - width) / 2.0, self.rows[l].len())]);
        }
        for (l, side) in self.sweep_order() {
            let pools = self.settle(l, side);
            let inside = |p: BoxGroup| ((p.sum / p.weight).clamp(0.0, room - widths[l]), p.members);
            self.put(l, pools.into_iter().map(inside));
        }
    }

    /// Places the boxes of a layer: for each pool, its position and the number of its boxes. The position is that of
    /// the pool's first box as if nothing were on its left, so touching boxes have the same position.
    fn put(&mut self, l: usize, pools: impl IntoIterator<Item = (f64, usize)>) {
        let mut left = 0.0;
        let mut row = self.rows[l].iter();
        for (left_edge, members) in pools {
            for &n in row.by_ref().take(members) {
                let width = self.width[n] + GAP;
                self.x[n] = left_edge + left + width / 2.0;
                left += width;
            }
        }
    }

    /// Finds the positions of a layer's boxes that are closest to the wanted ones by least squares, given their widths.
    /// Boxes that would overlap are merged into a pool. Returns the pools from left to right.
    fn settle(&self, l: usize, side: usize) -> Vec<BoxGroup> {
        let row = &self.rows[l];
        let mut lengths: Vec<usize> = row.iter().map(|&n| self.length[n]).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        let mut left = 0.0;
        let mut pools: Vec<BoxGroup> = vec![];
        for &n in row {
            let (wish, rank) = match self.wanted_position(n, side) {
                Some(x) => (x, lengths.partition_point(|&l| l > self.length[n]).min(RANKS - 1)),
                None => (self.x[n], RANKS),
            };
            let width = self.width[n] + GAP;
            let weight = GIVING_WAY.powi(rank as i32);
            let mut pool = BoxGroup {
                sum: (wish - left - width / 2.0) * weight,
                weight,
                members: 1,
            };
            while let Some(p) = pools.pop_if(|p| p.sum / p.weight > pool.sum / pool.weight) {
                pool.sum += p.sum;
                pool.weight += p.weight;
                pool.members += p.members;
            }
            pools.push(pool);
            left += width;
        }
        pools
    }

    /// The median position of the neighbours on the longest path.
    fn wanted_position(&self, n: usize, side: usize) -> Option<f64> {
        let neighbours = &self.neighbours[side][n];
        let longest = neighbours.iter().map(|e| e.1).max()?;
        median(neighbours.iter().filter(|e| e.1 == longest).map(|e| self.x[e.0]))
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
        let centre = |n: usize| (self.x[n] - least, middle[self.layer[n]]);
        let height = |n: usize| match n < count {
            true => boxes.sizes[n].1,
            false => heights[self.layer[n]],
        };
        let half_box = |&n: &usize| (centre(n), height(n) / 2.0);
        let line = |chain: &Vec<usize>| line_points(chain.iter().map(half_box).collect());
        DrawingLayout {
            places: (0..count).map(centre).collect(),
            lines: chains.iter().map(line).collect(),
            size: (most - least, (top - LAYER_GAP).max(0.0)),
        }
    }
}

/// The points of a line that enters each box at its top and leaves it at its bottom. `boxes` are the centres and half
/// heights.
fn line_points(boxes: Vec<((f64, f64), f64)>) -> Vec<(f64, f64)> {
    let mut points = vec![];
    for (i, &((x, y), half)) in boxes.iter().enumerate() {
        if i > 0 {
            points.push((x, y - half));
        }
        if i + 1 < boxes.len() {
            points.push((x, y + half));
        }
    }
    points
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
mod tests;
