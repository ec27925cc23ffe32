//! Computes a row of output pixels for one panel of output channels, tile by tile.

use crate::math::contract::Activation;
use crate::math::tile::{Init, Kernels, Prefetch, TileFn, TileJob, Tiles};

/// The operands of a row. Strides are in elements.
pub(super) struct PixelRow<'a> {
    /// The window of the first pixel.
    pub x: *const f32,
    /// The stride between the windows of adjacent pixels.
    pub x_pixel: usize,
    /// The offset of each run from the window.
    pub segments: &'a [usize],
    /// The number of elements in a run.
    pub run: usize,
    /// The panel's weights, and the stride between product indices.
    pub weight: (*const f32, usize),
    /// The first pixel of the output.
    pub y: *mut f32,
    /// The stride between output pixels.
    pub y_pixel: usize,
    /// The number of pixels.
    pub pixels: usize,
    /// The number of output channels.
    pub cols: usize,
    /// One element for each output channel, or null.
    pub bias: *const f32,
    /// The activation, which is applied last.
    pub activation: Activation,
    /// Whether the runs are the first ones of the window, which overwrite the output. Others are added to it.
    pub is_first: bool,
    /// Whether the runs are the last ones.
    pub is_last: bool,
    /// The panel of weights to prefetch, this row's index, and the number of rows that are multiplied before it; `None`
    /// if there is no further panel.
    pub next: Option<(*const f32, usize, usize)>,
}

impl PixelRow<'_> {
    /// Computes the row with the tile kernels `tile(rows)`.
    ///
    /// # Safety
    /// The pixels lie in the output and belong to the caller. Their windows lie in the input. The machine supports the
    /// kernels' level.
    #[inline]
    pub(super) unsafe fn run(&self, kernels: &Kernels, tile: impl Fn(usize) -> TileFn) {
        let tiles = Tiles::new(self.pixels, kernels.mr);
        let init = match self.is_first {
            false => Init::Output,
            true if self.bias.is_null() => Init::Zero,
            true => Init::Bias,
        };
        for t in 0..tiles.count() {
            let (w, rows) = (tiles.start(t), tiles.start(t + 1) - tiles.start(t));
            // SAFETY: the tile's pixels lie in the row.
            unsafe {
                let job = TileJob {
                    a: self.x.add(w * self.x_pixel),
                    a_row: self.x_pixel,
                    a_k: 1,
                    segments: self.segments.as_ptr(),
                    segment_count: self.segments.len(),
                    run: self.run,
                    b: self.weight.0,
                    b_k: self.weight.1,
                    b_panel: 0,
                    c: self.y.add(w * self.y_pixel),
                    c_row: self.y_pixel,
                    cols: self.cols,
                    init,
                    bias: self.bias,
                    clamp: self.activation.bounds().filter(|_| self.is_last),
                    next: self.prefetch(kernels.nr, t, tiles.count()),
                };
                tile(rows)(&job);
            }
        }
    }

    /// What tile `t` of `tiles` prefetches.
    #[inline]
    fn prefetch(&self, nr: usize, t: usize, tiles: usize) -> Prefetch {
        match self.next {
            Some((panel, row, rows)) => {
                let depth = self.segments.len() * self.run;
                Prefetch::share(panel, nr, depth, row * tiles + t, rows * tiles)
            }
            None => Prefetch::nothing(self.weight.0),
        }
    }
}

/// The address of element `at` of a bias, or null if the bias is null.
pub(super) fn bias_at(bias: *const f32, at: usize) -> *const f32 {
    if bias.is_null() { bias } else { bias.wrapping_add(at) }
}
