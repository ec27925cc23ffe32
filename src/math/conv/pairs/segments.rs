//! How the taps of a window become the product indices of a row of A.
//!
//! | form | a segment | used for |
//! | --- | --- | --- |
//! | [`TapForm::Single`] | a tap | channels that fill steps; groups |
//! | [`TapForm::Rows`] | the taps of a row of the kernel, which are consecutive in memory | a few channels |
//! | [`TapForm::Gathered`] | all taps, copied into a row | the rest |
//!
//! A segment is padded to whole steps ([`PairKernels::step`]). Single taps have channels of zeros in the padded image or,
//! in groups, read elements of other groups, which the weight multiplies by zero; so do rows of taps with the next pixels.

use super::panels::Panels;
use crate::math::contract::{Conv, ConvLayout};
use crate::math::pairs::PairKernels;
use crate::target::PairUnit;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TapForm {
    Single,
    Rows,
    Gathered,
}

/// The segments of product indices. Lengths are in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segments {
    pub form: TapForm,
    pub count: usize,
    /// The length of a tap in a segment.
    pub tap: usize,
    /// The length of a segment.
    pub len: usize,
    /// The length of a segment with padding.
    pub run: usize,
    /// The stride between the pixels of a prepared image.
    pub pixel: usize,
}

/// The minimum number of channels of a tap that is a segment by itself: each segment starts a loop.
const LEAST: usize = 16;
/// The maximum number of channels whose planes are interleaved into pixels.
pub(super) const PLANES: usize = 4;

impl Segments {
    /// The fastest form for `conv`. Lengths saturate.
    pub(super) fn new(kernels: &PairKernels, conv: &Conv, panels: &Panels) -> Segments {
        let (channels, span) = (conv.in_channels, panels.span());
        let (single, rows) = (Segments::single(kernels, conv, span), Segments::rows(kernels, conv));
        let fills_steps = span >= LEAST && single.run.saturating_mul(4) <= span.saturating_mul(5);
        if conv.groups > 1 || fills_steps {
            return single;
        }
        let taps: usize = conv.kernel.iter().product();
        let len = taps.saturating_mul(channels);
        let gathered = Segments {
            form: TapForm::Gathered,
            count: 1,
            tap: channels,
            len,
            run: pad(kernels, len),
            pixel: channels,
        };
        match rows_are_faster(conv, panels, &rows, &gathered) && !kernels.widens_rows() {
            true => rows,
            false => gathered,
        }
    }

    fn single(kernels: &PairKernels, conv: &Conv, span: usize) -> Segments {
        let run = pad(kernels, span);
        Segments {
            form: TapForm::Single,
            count: conv.kernel.iter().product(),
            tap: span,
            len: span,
            run,
            pixel: if conv.groups == 1 { run } else { conv.in_channels },
        }
    }

    fn rows(kernels: &PairKernels, conv: &Conv) -> Segments {
        let [kd, kh, kw] = conv.kernel;
        let pixel = match has_planes(conv) && !reads_any_address(kernels) {
            true => PLANES,
            false => conv.in_channels,
        };
        let len = kw.saturating_mul(pixel);
        Segments {
            form: TapForm::Rows,
            count: kd.saturating_mul(kh),
            tap: pixel,
            len,
            run: pad(kernels, len),
            pixel,
        }
    }

    /// The number of product indices with padding. Saturates.
    pub(super) fn depth(&self) -> usize {
        self.count.saturating_mul(self.run)
    }

    /// Whether the planes of a channels-first input are interleaved into the prepared image.
    pub(super) fn interleaves(&self, conv: &Conv) -> bool {
        self.form == TapForm::Rows && has_planes(conv)
    }

    /// Whether products with zero are computed with elements of the input.
    pub(super) fn reads_others(&self, conv: &Conv, panels: &Panels) -> bool {
        match self.form {
            TapForm::Single => conv.groups > 1 && (panels.have_several_groups() || self.len < self.run),
            TapForm::Rows => self.len < self.run,
            TapForm::Gathered => false,
        }
    }
}

fn has_planes(conv: &Conv) -> bool {
    conv.input_layout == ConvLayout::ChannelsFirst && (2..=PLANES).contains(&conv.in_channels)
}

/// Whether pixels of any number of elements are read at full speed. AMX reads misaligned rows slowly, and bytes come in groups of four.
fn reads_any_address(kernels: &PairKernels) -> bool {
    kernels.unit == PairUnit::Dots && !kernels.are_bytes()
}

fn pad(kernels: &PairKernels, n: usize) -> usize {
    n.checked_next_multiple_of(kernels.step()).unwrap_or(usize::MAX)
}

/// Compares the product indices that rows of taps have in addition with the elements and pieces to gather. A block takes
/// about half a cycle for eight product indices of a pixel and panel. Gathering takes as long for about four elements, and
/// four cycles for a row of the kernel.
fn rows_are_faster(conv: &Conv, panels: &Panels, rows: &Segments, gathered: &Segments) -> bool {
    let more = rows.depth().saturating_sub(gathered.depth());
    let gather = gathered
        .len
        .saturating_mul(2)
        .saturating_add(rows.count.saturating_mul(64));
    conv.dilation[2] == 1 && more.saturating_mul(panels.count()) <= gather
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Isa;
    use crate::types::DType;

    fn segments(channels: [usize; 2], kernel: usize, layout: ConvLayout, unit: PairUnit) -> Segments {
        let conv = Conv {
            dtype: DType::BF16,
            input_layout: layout,
            ..Conv::new2d(channels[0], channels[1], [64, 64], [kernel, kernel])
        };
        let kernels = PairKernels::new(unit, Isa::Avx512);
        Segments::new(&kernels, &conv, &Panels::new(&kernels, &conv))
    }

    #[test]
    fn few_channels_are_read_in_rows_and_many_tap_by_tap() {
        let (first, last) = (ConvLayout::ChannelsFirst, ConvLayout::ChannelsLast);
        let form = |channels, kernel, layout, unit| segments(channels, kernel, layout, unit).form;
        assert_eq!(form([64, 64], 3, last, PairUnit::Tiles), TapForm::Single);
        assert_eq!(form([3, 64], 7, first, PairUnit::Tiles), TapForm::Rows);
        assert_eq!(form([3, 32], 3, last, PairUnit::Tiles), TapForm::Rows);
        // A patch embedding has many panels, and rows of taps would be a third longer.
        assert_eq!(form([3, 768], 16, first, PairUnit::Tiles), TapForm::Gathered);
        assert_eq!(segments([3, 64], 7, first, PairUnit::Dots).run, 22);
        // Widened rows are f32.
        assert_eq!(form([3, 64], 7, first, PairUnit::Widening), TapForm::Gathered);
        let s = segments([3, 64], 7, first, PairUnit::Tiles);
        assert_eq!((s.count, s.tap, s.len, s.run, s.pixel), (7, 4, 28, 32, 4));
        let s = segments([3, 64], 7, last, PairUnit::Tiles);
        assert_eq!((s.count, s.tap, s.len, s.run, s.pixel), (7, 3, 21, 32, 3));
    }
}
