//! The loops of `grid_sampler`: for a block of points the places and weights of the elements that they read, then these for each channel.
//! The arithmetic and its order are those of torch's vectorised CPU kernels, in the dtype of the image.

use super::grid_axis::{Axis, GridReal};
use super::grid_half::{GridElement, Numbers};
use super::grid_taps::{
    AddProducts, CombinePlaces, CombineWeights, Coordinates, FillTaps, Interpolation, Taps, separate,
};
use crate::tensor::{Neighbours, POINTS, Places, Reads, gather_weighted, run_wide};
use smallvec::SmallVec;

/// A call with its sizes; images of two dims have a depth of 1.
pub(super) struct Sampler<T> {
    pub axes: [Axis<T>; 3],
    pub dims: usize,
    pub how: Interpolation,
    pub channels: usize,
    pub points: usize,
}

/// The places and weights of a block of points.
struct Block<T> {
    n: usize,
    coordinates: Coordinates<T>,
    taps: [Taps<T>; 3],
    /// The places of what points read in a plane, or in its rows.
    places: Vec<[i32; POINTS]>,
    weights: Vec<[T; POINTS]>,
    /// Results before they are rounded to elements.
    buffer: [T; POINTS],
    line: [T; POINTS],
}

/// How elements are read.
enum Method {
    Nearest(Box<Neighbours<1, 1>>),
    /// By corners of squares.
    Squares(Box<Neighbours<2, 2>>),
    /// By corners of cubes.
    Cubes(Box<Neighbours<2, 4>>),
    Cubic(Box<Neighbours<4, 4>>),
}

/// What a thread keeps from block to block.
struct SamplerState<T> {
    block: Box<Block<T>>,
    method: Method,
    /// The numbers of an image, and of a block's coordinates.
    buffer: Vec<T>,
    places: Vec<T>,
}

impl<T: GridReal> SamplerState<T> {
    fn new(method: Method) -> SamplerState<T> {
        SamplerState {
            block: Block::new(),
            method,
            buffer: vec![],
            places: vec![],
        }
    }
}

impl<T: GridReal> Block<T> {
    fn new() -> Box<Block<T>> {
        Box::new(Block {
            n: 0,
            coordinates: [[T::default(); POINTS]; 3],
            taps: [Taps::new(), Taps::new(), Taps::new()],
            places: vec![],
            weights: vec![],
            buffer: [T::default(); POINTS],
            line: [T::default(); POINTS],
        })
    }

    /// Makes room for some lists.
    fn reserve(&mut self, places: usize, weights: usize) {
        self.places.resize(places.max(self.places.len()), [0; POINTS]);
        self.weights
            .resize(weights.max(self.weights.len()), [T::default(); POINTS]);
    }

    fn places<const K: usize>(&self) -> [&[i32]; K] {
        std::array::from_fn(|k| &self.places[k][..self.n])
    }
}

impl<T: GridReal> Sampler<T> {
    pub(super) fn plane(&self) -> usize {
        self.axes.iter().map(|a| a.size).product()
    }

    fn rows_and_columns(&self) -> [usize; 2] {
        [self.axes[0].size * self.axes[1].size, self.axes[2].size]
    }

    fn method(&self) -> Method {
        match (self.how, self.dims) {
            (Interpolation::Nearest, _) => Method::Nearest(Box::new(Neighbours::new())),
            (Interpolation::Cubic, _) => Method::Cubic(Box::new(Neighbours::new())),
            (_, 2) => Method::Squares(Box::new(Neighbours::new())),
            _ => Method::Cubes(Box::new(Neighbours::new())),
        }
    }

    /// Samples some planes, `first` and those after it, which are channels of several items.
    pub(super) fn sample_planes<E: GridElement<Real = T>>(&self, image: &[E], grid: &[E], first: usize, out: &mut [E]) {
        let (mut state, planes) = (SamplerState::new(self.method()), out.len() / self.points);
        let mut done = 0;
        while done < planes {
            let (item, channel) = ((first + done) / self.channels, (first + done) % self.channels);
            let count = (self.channels - channel).min(planes - done);
            let grid = &grid[item * self.points * self.dims..][..self.points * self.dims];
            let image = &image[(first + done) * self.plane()..][..count * self.plane()];
            let mut out: SmallVec<[&mut [E]; 4]> = out[done * self.points..][..count * self.points]
                .chunks_exact_mut(self.points)
                .collect();
            self.sample_points(image, grid, &mut out, &mut state);
            done += count;
        }
    }

    /// Samples some points of an item, from `first` on, in all channels of its `image`; `out` has those points of each channel.
    pub(super) fn sample_part<E: GridElement<Real = T>>(
        &self,
        image: &[E],
        grid: &[E],
        first: usize,
        out: &mut [&mut [E]],
    ) {
        let count = out.first().map_or(0, |o| o.len());
        let grid = &grid[first * self.dims..][..count * self.dims];
        self.sample_points(image, grid, out, &mut SamplerState::new(self.method()));
    }

    /// Samples the points of a grid in some planes of `image`; the results go to as many lists.
    fn sample_points<E: GridElement<Real = T>>(
        &self,
        image: &[E],
        grid: &[E],
        out: &mut [&mut [E]],
        state: &mut SamplerState<T>,
    ) {
        let (block, points) = (&mut state.block, grid.len() / self.dims);
        let mut image = Numbers::new(image, &mut state.buffer);
        for from in (0..points).step_by(POINTS) {
            let to = points.min(from + POINTS);
            let mut grid = Numbers::new(&grid[from * self.dims..to * self.dims], &mut state.places);
            self.fill_taps(grid.numbers(), block);
            let parts = out.iter_mut().map(|o| &mut o[from..to]);
            match &mut state.method {
                Method::Nearest(single) => self.copy_block(single, image.elements, parts, block),
                Method::Squares(pairs) => self.sample_corners::<E, 2, 4>(pairs, &mut image, parts, block),
                Method::Cubes(pairs) => self.sample_corners::<E, 4, 8>(pairs, &mut image, parts, block),
                Method::Cubic(quads) => self.sample_cubic(quads, &mut image, parts, block),
            }
        }
    }

    /// The taps of points with these coordinates.
    fn fill_taps(&self, grid: &[T], b: &mut Block<T>) {
        b.n = grid.len() / self.dims;
        separate(grid, self.dims, &mut b.coordinates);
        for d in 3 - self.dims..3 {
            run_wide(FillTaps {
                taps: &mut b.taps[d],
                coordinates: &b.coordinates[d][..b.n],
                axis: &self.axes[d],
                how: self.how,
            });
        }
    }

    /// Copies the nearest elements of points in all planes of `image` to `parts`.
    fn copy_block<'o, E: GridElement>(
        &self,
        single: &mut Neighbours<1, 1>,
        image: &[E],
        parts: impl Iterator<Item = &'o mut [E]>,
        b: &mut Block<T>,
    ) {
        b.reserve(2, 0);
        self.volume_rows::<1>(b, 1);
        let reads = Reads {
            columns: [&b.taps[2].places[0][..b.n]],
            rows: self.rows(b, 1),
            size: self.rows_and_columns(),
        };
        let planes = image.chunks_exact(self.plane()).zip(parts);
        if single.read::<E>(reads) {
            return planes.for_each(|(x, o)| single.copy(x, o));
        }
        self.row_places(b, 1, [0, 0]);
        self.plane_places(b, 0, 1, 0);
        let places = Places::new(self.plane(), &b.places[0][..b.n]);
        planes.for_each(|(x, o)| places.gather(x, o));
    }

    /// The places in list `to` of rows of an image, of these taps of the outer dims.
    fn row_places(&self, b: &mut Block<T>, to: usize, [z, y]: [usize; 2]) {
        let (n, outer, inner) = (b.n, &b.taps[0].places[z], &b.taps[1].places[y]);
        if self.dims == 2 {
            return b.places[to][..n].copy_from_slice(&inner[..n]);
        }
        run_wide(CombinePlaces {
            outer,
            inner,
            size: self.axes[1].size as i32,
            to: &mut b.places[to][..n],
        });
    }

    /// The places in the lists from `first` on of the rows of a volume that points read. Those of an image are the taps.
    fn volume_rows<const R: usize>(&self, b: &mut Block<T>, first: usize) {
        if self.dims == 3 {
            (0..R).for_each(|r| self.row_places(b, first + r, [r >> 1, r & 1]));
        }
    }

    /// The rows that points read, after [`Sampler::volume_rows`].
    fn rows<'b, const R: usize>(&self, b: &'b Block<T>, first: usize) -> [&'b [i32]; R] {
        std::array::from_fn(|r| match self.dims {
            2 => &b.taps[1].places[r][..b.n],
            _ => &b.places[first + r][..b.n],
        })
    }

    /// The places in list `to` of elements of an image, in the rows of list `rows` and at a tap of the last dim. Needs `to < rows`.
    fn plane_places(&self, b: &mut Block<T>, to: usize, rows: usize, x: usize) {
        let (list, rows_list) = b.places.split_at_mut(rows);
        run_wide(CombinePlaces {
            outer: &rows_list[0],
            inner: &b.taps[2].places[x],
            size: self.axes[2].size as i32,
            to: &mut list[to][..b.n],
        });
    }

    /// The weights of the corner that is tap `k & 1` of the last dim and so on.
    fn corner_weights(&self, b: &mut Block<T>, k: usize) {
        let [z, y, x] = [k >> 2, k >> 1 & 1, k & 1];
        let (n, to) = (b.n, &mut b.weights[k]);
        let (across, down) = (&b.taps[2].weights[x], &b.taps[1].weights[y]);
        if self.dims == 2 {
            let to = &mut to[..n];
            return run_wide(CombineWeights { a: across, b: down, to });
        }
        let line = &mut b.line[..n];
        run_wide(CombineWeights {
            a: across,
            b: down,
            to: &mut *line,
        });
        let deep = &b.taps[0].weights[z];
        run_wide(CombineWeights {
            a: line,
            b: deep,
            to: &mut to[..n],
        });
    }

    /// Samples points by the `C` corners that they have in `R` rows, in all planes of `image`; the results go to `parts`.
    fn sample_corners<'o, E: GridElement<Real = T>, const R: usize, const C: usize>(
        &self,
        pairs: &mut Neighbours<2, R>,
        image: &mut Numbers<'_, E>,
        parts: impl Iterator<Item = &'o mut [E]>,
        b: &mut Block<T>,
    ) {
        b.reserve(C + R, C);
        (0..C).for_each(|k| self.corner_weights(b, k));
        self.volume_rows::<R>(b, C);
        let n = b.n;
        let reads = Reads {
            columns: [0, 1].map(|k: usize| &b.taps[2].places[k][..n]),
            rows: self.rows(b, C),
            size: self.rows_and_columns(),
        };
        if pairs.read::<T>(reads) {
            let weight = |k: usize| &b.weights[k][..n];
            let weights = std::array::from_fn(|r| [weight(2 * r), weight(2 * r + 1)]);
            let planes = image.elements.chunks_exact(self.plane()).zip(parts);
            return planes.for_each(|(x, o)| E::sum_pairs(pairs, x, weights, o));
        }
        (0..R).for_each(|r| self.row_places(b, C + r, [r >> 1, r & 1]));
        (0..C).for_each(|k| self.plane_places(b, k, C + k / 2, k & 1));
        let weights: [&[T]; C] = std::array::from_fn(|k| &b.weights[k][..n]);
        let places = b.places::<C>().map(|p| Places::new(self.plane(), p));
        let buffer = &mut [T::default(); POINTS];
        let planes = image.numbers().chunks_exact(self.plane()).zip(parts);
        planes.for_each(|(x, o)| E::write(o, buffer, |o| gather_weighted(x, places, weights, o)));
    }

    /// Samples points by cubic interpolation: along the last dim, then along the other.
    fn sample_cubic<'o, E: GridElement<Real = T>>(
        &self,
        quads: &mut Neighbours<4, 4>,
        image: &mut Numbers<'_, E>,
        parts: impl Iterator<Item = &'o mut [E]>,
        b: &mut Block<T>,
    ) {
        let n = b.n;
        let planes = image.numbers().chunks_exact(self.plane()).zip(parts);
        let [rows, columns] = [1, 2].map(|d: usize| b.taps[d].weights.each_ref().map(|w| &w[..n]));
        let reads = Reads {
            columns: b.taps[2].places.each_ref().map(|p| &p[..n]),
            rows: b.taps[1].places.each_ref().map(|p| &p[..n]),
            size: self.rows_and_columns(),
        };
        if quads.read::<T>(reads) {
            let buffer = &mut b.buffer;
            return planes.for_each(|(x, o)| E::write(o, buffer, |o| quads.sum_nested(x, columns, rows, o)));
        }
        b.reserve(17, 0);
        for k in 0..16 {
            self.row_places(b, 16, [0, k / 4]);
            self.plane_places(b, k, 16, k % 4);
        }
        let places = b.places::<16>().map(|p| Places::new(self.plane(), p));
        let [rows, columns] = [1, 2].map(|d: usize| b.taps[d].weights.each_ref().map(|w| &w[..n]));
        let (mut line, mut buffer) = ([T::default(); POINTS], [T::default(); POINTS]);
        planes.for_each(|(x, o)| {
            E::write(o, &mut buffer, |o| {
                sum_rows(x, places.as_chunks::<4>().0, columns, rows, o, &mut line[..n])
            });
        });
    }
}

/// The sums of four rows of a plane, of four elements each.
fn sum_rows<T: GridReal>(
    plane: &[T],
    places: &[[Places<&[i32]>; 4]],
    columns: [&[T]; 4],
    rows: [&[T]; 4],
    out: &mut [T],
    line: &mut [T],
) {
    out.fill(T::default());
    for (places, row) in places.iter().zip(rows) {
        gather_weighted(plane, *places, columns, line);
        run_wide(AddProducts {
            a: line,
            b: row,
            to: out,
        });
    }
}
