//! Places for the nodes of a graph on paper: a layered layout, after Sugiyama.
//!
//! Each node gets the layer after all it uses. Edges over several layers get a joint in each layer between, and edges from one
//! box share theirs. Layers are ordered by the medians of their neighbours, and the boxes of a layer move to where their
//! neighbours are. All in one unit: points of the drawing.
//!
//! Longest paths are drawn straight: a box goes by its neighbours on the longest path alone, and gives way to boxes on longer
//! ones. Where all neighbours count alike, as in the coordinates of Brandes and Köpf, the weights on one side of each call move
//! it a little to that side of the call before, and a deep model becomes a diagonal.

/// How often the layers are gone over, down and up.
const SWEEPS: usize = 8;
/// Room between two boxes of a layer.
const GAP: f64 = 18.0;
/// Room between two layers.
const LAYER_GAP: f64 = 34.0;
/// The room that an edge takes in a layer it only passes.
const JOINT: f64 = 8.0;
/// A drawing that needs more joints gets none, and its long edges go straight, over boxes. The number of joints is quadratic
/// where everything is used at the end.
const MAX_JOINTS: usize = 100_000;
/// The whole is at most this many times as wide as the widest layer without holes.
const ROOM: f64 = 2.0;
/// What a box counts beside one on the next longer path: all but nothing.
const GIVING_WAY: f64 = 1e-5;
/// Paths that count differently in a layer. `GIVING_WAY` to the power of this is still a normal number.
const RANKS: usize = 40;

/// What is to be placed.
#[derive(Clone, Debug, Default)]
pub struct Boxes {
    /// Width and height of each box, finite.
    pub sizes: Vec<(f64, f64)>,
    /// From one box to another, by number. Edges lead from boxes to later ones.
    pub edges: Vec<(usize, usize)>,
}

/// Where everything is.
#[derive(Clone, Debug, Default)]
pub struct DrawingLayout {
    /// The middle of each box.
    pub places: Vec<(f64, f64)>,
    /// The points of each edge. It begins at its box, or where it leaves another edge of that box.
    pub lines: Vec<Vec<(f64, f64)>>,
    /// Width and height of the whole.
    pub size: (f64, f64),
}

/// Boxes, and after them joints, in layers.
#[derive(Default)]
struct Layers {
    width: Vec<f64>,
    layer: Vec<usize>,
    /// How many edges the longest path through each has; through a joint, to the last box that the joint leads to.
    length: Vec<usize>,
    rows: Vec<Vec<usize>>,
    /// The neighbours in the layers before and after, each with the length of the longest path over that edge.
    near: [Vec<Vec<(usize, usize)>>; 2],
    x: Vec<f64>,
}

/// The sides of [`Layers::near`].
const ABOVE: usize = 0;
const BELOW: usize = 1;

/// Neighbours of a layer that touch and move as one.
struct Pool {
    /// Where the members wish to be, times what they count.
    sum: f64,
    weight: f64,
    members: usize,
}

/// Places the boxes.
pub fn compute_layout(boxes: &Boxes) -> DrawingLayout {
    let count = boxes.sizes.len();
    let is_sound = |&(a, b): &(usize, usize)| a < b && b < count;
    let edges: Vec<(usize, usize)> = boxes.edges.iter().copied().filter(is_sound).collect();
    let (to, from) = longest_paths(count, &edges);
    let mut layers = Layers {
        width: boxes.sizes.iter().map(|s| s.0).collect(),
        layer: layers_of(&to, &edges),
        length: to.iter().zip(&from).map(|(a, b)| a + b).collect(),
        near: [vec![vec![]; count], vec![vec![]; count]],
        ..Layers::default()
    };
    layers.rows = vec![vec![]; layers.layer.iter().max().map_or(0, |m| m + 1)];
    for b in 0..count {
        layers.rows[layers.layer[b]].push(b);
    }
    let chains = layers.connect(&edges, &to, &from);
    layers.order();
    layers.place();
    layers.finish(boxes, &chains)
}

/// How many edges the longest path to each box has, and the longest one from it.
fn longest_paths(count: usize, edges: &[(usize, usize)]) -> (Vec<usize>, Vec<usize>) {
    let (mut to, mut from) = (vec![0; count], vec![0; count]);
    let mut sorted = edges.to_vec();
    // Edges lead to later boxes, so that what is read is final.
    sorted.sort_unstable();
    for &(a, b) in &sorted {
        to[b] = to[b].max(to[a] + 1);
    }
    for &(a, b) in sorted.iter().rev() {
        from[a] = from[a].max(from[b] + 1);
    }
    (to, from)
}

/// The layer of each box: after all it uses. A box that uses nothing goes into the layer just before its first user.
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
    /// Links boxes with their users, over joints where there are layers between. Gives the boxes and joints of each edge.
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

    /// A joint in the layer after that of `above`.
    fn add_joint(&mut self, above: usize, length: usize) -> usize {
        let (joint, layer) = (self.width.len(), self.layer[above] + 1);
        self.width.push(JOINT);
        self.layer.push(layer);
        self.length.push(length);
        self.rows[layer].push(joint);
        self.near.iter_mut().for_each(|n| n.push(vec![]));
        self.link(above, joint, length);
        joint
    }

    fn link(&mut self, above: usize, below: usize, length: usize) {
        self.near[ABOVE][below].push((above, length));
        self.near[BELOW][above].push((below, length));
    }

    /// The layers in the order in which they are gone over, each with the side whose neighbours it goes by.
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
            let key = |n: usize| median(self.near[side][n].iter().map(|&(m, _)| place[m])).unwrap_or(place[n]);
            let mut keyed: Vec<(f64, usize)> = self.rows[l].iter().map(|&n| (key(n), n)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            self.rows[l] = keyed.into_iter().map(|(_, n)| n).collect();
            self.rows[l].iter().enumerate().for_each(|(i, &n)| place[n] = i as f64);
        }
    }

    /// Moves boxes to their neighbours, without changing the order of a layer.
    fn place(&mut self) {
        let packed = |row: &Vec<usize>| row.iter().map(|&n| self.width[n] + GAP).sum::<f64>();
        let widths: Vec<f64> = self.rows.iter().map(packed).collect();
        let room = ROOM * widths.iter().copied().fold(0.0, f64::max);
        self.x = vec![0.0; self.width.len()];
        for (l, width) in widths.iter().enumerate() {
            self.put(l, [((room - width) / 2.0, self.rows[l].len())]);
        }
        for (l, side) in self.sweep_order() {
            let pools = self.settle(l, side);
            let inside = |p: Pool| ((p.sum / p.weight).clamp(0.0, room - widths[l]), p.members);
            self.put(l, pools.into_iter().map(inside));
        }
    }

    /// Puts as many boxes of a layer as each pool has where it is. Places are those of the pool's first box if nothing were on
    /// its left: boxes that touch have the same.
    fn put(&mut self, l: usize, pools: impl IntoIterator<Item = (f64, usize)>) {
        let mut left = 0.0;
        let mut row = self.rows[l].iter();
        for (at, members) in pools {
            for &n in row.by_ref().take(members) {
                let width = self.width[n] + GAP;
                self.x[n] = at + left + width / 2.0;
                left += width;
            }
        }
    }

    /// The boxes of a layer as near to where they wish to be as their widths allow, by least squares: those that would overlap
    /// are pooled. Gives the pools from left to right.
    fn settle(&self, l: usize, side: usize) -> Vec<Pool> {
        let row = &self.rows[l];
        let mut lengths: Vec<usize> = row.iter().map(|&n| self.length[n]).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        let mut left = 0.0;
        let mut pools: Vec<Pool> = vec![];
        for &n in row {
            let (wish, rank) = match self.wanted_position(n, side) {
                Some(x) => (x, lengths.partition_point(|&l| l > self.length[n]).min(RANKS - 1)),
                None => (self.x[n], RANKS),
            };
            let width = self.width[n] + GAP;
            let weight = GIVING_WAY.powi(rank as i32);
            let mut pool = Pool {
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

    /// Where the neighbours on the longest path are.
    fn wanted_position(&self, n: usize, side: usize) -> Option<f64> {
        let near = &self.near[side][n];
        let longest = near.iter().map(|e| e.1).max()?;
        median(near.iter().filter(|e| e.1 == longest).map(|e| self.x[e.0]))
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
mod tests;
