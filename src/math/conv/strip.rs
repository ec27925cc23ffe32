//! Where the channels-last kernels store their results, and how the work is split.
//!
//! A chunk computes some rows of output pixels for some columns (output channels). Channels-last output is written in
//! place. Channels-first output is written to a strip in the thread's cache and transposed into place when the chunk is
//! finished.

use super::ConvOperands;
use crate::math::contract::{Conv, ConvLayout, Tile};
use crate::math::scratch::{self, Scratch};
use crate::math::transpose::transpose;
use crate::parallel::Pool;

/// The output of a convolution.
#[derive(Clone, Debug)]
pub(super) struct ConvOutput {
    layout: ConvLayout,
    /// The number of bytes of an element: 4, or 2 for bf16, which is written in place only.
    size: usize,
    /// The number of output channels.
    pub channels: usize,
    /// The number of pixels of one image.
    pub pixels: usize,
}

/// The part of the output that one chunk computes: pixels of one image times channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutputPart {
    /// The image.
    pub image: usize,
    /// The first pixel.
    pub pixel: usize,
    /// The number of pixels.
    pub pixels: usize,
    /// The first channel.
    pub channel: usize,
    /// The number of channels.
    pub channels: usize,
}

/// A chunk's destination.
pub(super) struct Strip {
    buffer: Option<Scratch>,
    /// The address of the part's first element.
    pub base: *mut f32,
    /// The stride between pixels.
    pub row: usize,
}

impl ConvOutput {
    /// The output of `conv`.
    pub(super) fn new(conv: &Conv) -> ConvOutput {
        ConvOutput {
            layout: conv.output_layout,
            size: conv.dtype.size(),
            channels: conv.out_channels,
            pixels: conv.output_size().map_or(0, |o| o.iter().product()),
        }
    }

    /// Whether results go through a buffer.
    pub(super) fn is_buffered(&self) -> bool {
        self.layout == ConvLayout::ChannelsFirst && self.channels > 1
    }

    /// Returns the destination of `part`.
    ///
    /// # Safety
    /// `y` is the output; the part lies in it.
    pub(super) unsafe fn begin_strip(&self, y: *mut f32, part: &OutputPart) -> Strip {
        if self.is_buffered() {
            // Pixels a multiple of 4 KiB apart would share one set of the L1 cache.
            let row = part.channels + if part.channels.is_multiple_of(256) { 16 } else { 0 };
            let mut buffer = scratch::take_buffer(part.pixels * row);
            let base = buffer.as_mut_ptr();
            return Strip {
                buffer: Some(buffer),
                base,
                row,
            };
        }
        // SAFETY: guaranteed by the caller.
        let base =
            unsafe { y.byte_add(((part.image * self.pixels + part.pixel) * self.channels + part.channel) * self.size) };
        Strip {
            buffer: None,
            base,
            row: self.channels,
        }
    }

    /// Moves a finished strip into place and runs the tail.
    ///
    /// # Safety
    /// As for [`ConvOutput::begin_strip`]; the strip is the part's, and all of it was written.
    pub(super) unsafe fn finish_strip(&self, strip: Strip, part: &OutputPart, o: &ConvOperands) {
        let first = self.layout == ConvLayout::ChannelsFirst;
        let place = match first {
            true => (part.image * self.channels + part.channel) * self.pixels + part.pixel,
            false => (part.image * self.pixels + part.pixel) * self.channels + part.channel,
        };
        // SAFETY: the part lies in the output.
        unsafe {
            let data = o.y.byte_add(place * self.size);
            if strip.buffer.is_some() {
                transpose(strip.base, strip.row, part.pixels, part.channels, data, self.pixels);
            }
            let Some(tail) = &o.tail else { return };
            let tile = Tile {
                data: data.cast(),
                offset: place,
                batch: part.image,
                row: if first { part.channel } else { part.pixel },
                col: if first { part.pixel } else { part.channel },
                rows: if first { part.channels } else { part.pixels },
                cols: if first { part.pixels } else { part.channels },
                row_stride: if first { self.pixels } else { self.channels },
                data_stride: if first { self.pixels } else { self.channels },
            };
            tail.run(&tile);
        }
    }
}

/// How rows and columns are split into chunks: see [`cut_chunks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkCut {
    /// The number of rows in a chunk.
    pub rows: usize,
    /// The number of column panels in a chunk.
    pub panels: usize,
}

/// Which chunks follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkOrder {
    /// All rows of some panels, because the weights of the panels stay in cache.
    RowsOfPanels,
    /// All panels of some rows, because the input of the rows stays in cache.
    PanelsOfRows,
}

impl ChunkCut {
    /// Calls `run` for each chunk of `images` images that have this number of rows and of panels: with the image's index, and the
    /// ranges of rows and of panels.
    pub(super) fn for_each_chunk(
        &self,
        pool: &Pool,
        images: usize,
        [rows, panels]: [usize; 2],
        order: ChunkOrder,
        run: impl Fn(usize, [usize; 2], [usize; 2]) + Sync,
    ) {
        let [row_chunks, panel_chunks] = [rows.div_ceil(self.rows), panels.div_ceil(self.panels)];
        let part = |i: usize, len: usize, all: usize| [i * len, ((i + 1) * len).min(all)];
        pool.run(images * row_chunks * panel_chunks, |i| {
            let (row, panel, image) = match order {
                ChunkOrder::RowsOfPanels => {
                    let (rest, row) = (i / row_chunks, i % row_chunks);
                    (row, rest % panel_chunks, rest / panel_chunks)
                }
                ChunkOrder::PanelsOfRows => {
                    let (rest, panel) = (i / panel_chunks, i % panel_chunks);
                    (rest % row_chunks, panel, rest / row_chunks)
                }
            };
            run(image, part(row, self.rows, rows), part(panel, self.panels, panels));
        });
    }
}

/// The inputs of [`cut_chunks`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// The number of rows of one image.
    pub rows: usize,
    /// The number of pixels in a row.
    pub row_pixels: usize,
    /// The number of column panels.
    pub panels: usize,
    /// The number of columns in a panel.
    pub panel_cols: usize,
    /// The number of images.
    pub images: usize,
    /// The total number of multiply-adds.
    pub macs: f64,
    /// The number of weight elements.
    pub weights: usize,
    /// The number of input elements.
    pub input: usize,
    /// Whether results go through a buffer.
    pub buffered: bool,
}

/// The maximum number of elements in a strip: half of a 1 MB L2 cache.
const STRIP: usize = 128 * 1024;
/// The number of multiply-adds in the smallest chunk worth distributing.
const SMALLEST: f64 = 200e3;

/// Splits the work for `threads` threads. Each output element belongs to one chunk, so the split does not affect
/// results.
pub(super) fn cut_chunks(l: &Load, threads: usize) -> ChunkCut {
    let mut c = ChunkCut {
        rows: l.rows.max(1),
        panels: l.panels.max(1),
    };
    // If the weights are larger than the input, panels are split, so that one thread reads each weight. Otherwise rows
    // are split.
    let by_panels = l.weights > l.input;
    let split = |c: &mut ChunkCut, panels: bool| {
        if c.panels > 1 && (panels || c.rows == 1) {
            c.panels = c.panels.div_ceil(2);
        } else if c.rows > 1 {
            c.rows = c.rows.div_ceil(2);
        } else {
            return false;
        }
        true
    };
    if l.buffered {
        while c.rows * l.row_pixels * c.panels * l.panel_cols > STRIP && split(&mut c, by_panels) {}
    }
    let chunks = |c: &ChunkCut| l.images * l.rows.div_ceil(c.rows) * l.panels.div_ceil(c.panels);
    if threads > 1 {
        while chunks(&c) < 4 * threads && l.macs / chunks(&c) as f64 > SMALLEST && split(&mut c, by_panels) {}
    }
    ChunkCut {
        rows: l.rows.div_ceil(l.rows.div_ceil(c.rows).max(1)).max(1),
        panels: l.panels.div_ceil(l.panels.div_ceil(c.panels).max(1)).max(1),
    }
}
