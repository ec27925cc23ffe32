//! The panels of a convolution: which output channels each computes, and which input channels these read.
//!
//! With one group, a panel is [`COLS`] output channels, all of which read every input channel. Otherwise, a panel has
//! whole groups, as many as fill the columns of one instruction, or a part of a group that is wider than a panel. Its product indices are the input channels of all its
//! groups, and the weight is zero where a column belongs to another group. So some products are wasted, but blocks of
//! pairs are fast enough to gain from a quarter of their rate ([`are_worthwhile`]). A product with zero is not zero for
//! infinities and NaN: such inputs need another method.

use crate::math::contract::Conv;
use crate::math::pairs::{COLS, PairKernels};
use crate::target::PairUnit;

/// The division of channels into panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Panels {
    groups: usize,
    /// The input and output channels of a group.
    group: [usize; 2],
    /// The number of groups in a panel.
    groups_in_panel: usize,
    /// The number of panels of a group; 1 if panels have several groups.
    panels_in_group: usize,
}

impl Panels {
    pub(super) fn new(kernels: &PairKernels, conv: &Conv) -> Panels {
        let groups = conv.groups.max(1);
        let group = [conv.in_channels / groups, conv.out_channels / groups];
        let filled = match kernels.unit {
            PairUnit::Dots => COLS / 2,
            PairUnit::Tiles | PairUnit::Widening => COLS,
        };
        Panels {
            groups,
            group,
            groups_in_panel: (filled / group[1].max(1)).clamp(1, groups),
            panels_in_group: group[1].div_ceil(COLS).max(1),
        }
    }

    /// The number of panels.
    pub(super) fn count(&self) -> usize {
        self.groups.div_ceil(self.groups_in_panel) * self.panels_in_group
    }

    /// The first group of panel `p`.
    fn first_group(&self, p: usize) -> usize {
        (p / self.panels_in_group * self.groups_in_panel).min(self.groups)
    }

    /// The first output channel of panel `p`. For the number of panels: the number of output channels.
    pub(super) fn start(&self, p: usize) -> usize {
        (self.first_group(p) * self.group[1] + p % self.panels_in_group * COLS).min(self.groups * self.group[1])
    }

    /// The number of output channels of panel `p`.
    pub(super) fn cols(&self, p: usize) -> usize {
        self.start(p + 1) - self.start(p)
    }

    /// The first input channel that panel `p` reads.
    pub(super) fn first_input(&self, p: usize) -> usize {
        self.first_group(p) * self.group[0]
    }

    /// The maximum number of input channels that a panel reads.
    pub(super) fn span(&self) -> usize {
        self.groups_in_panel * self.group[0]
    }

    /// Whether panels have several groups, so that columns multiply the input of others by zero.
    pub(super) fn have_several_groups(&self) -> bool {
        self.groups_in_panel > 1
    }

    /// The input channels of a group.
    pub(super) fn group_inputs(&self) -> usize {
        self.group[0]
    }

    /// The offset of the input channels of output channel `o` from the first that panel `p` reads.
    pub(super) fn offset(&self, p: usize, o: usize) -> usize {
        (o / self.group[1] - self.first_group(p)) * self.group[0]
    }
}

/// Whether panels with several groups are faster than a method of f32 for the groups of `conv`, in spite of the products
/// with zero.
pub(super) fn are_worthwhile(kernels: &PairKernels, conv: &Conv) -> bool {
    let panels = Panels::new(kernels, conv);
    let used = panels.group[0] as f64 * conv.out_channels as f64;
    let computed_cols: usize = (0..panels.count()).map(|p| kernels.computed_cols(panels.cols(p))).sum();
    let computed = kernels.padded_run(panels.span()) as f64 * computed_cols as f64;
    used > 0.0 && kernels.rate() as f64 * used >= 1.5 * computed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Isa;

    fn panels_of(unit: PairUnit, groups: usize, in_channels: usize, out_channels: usize) -> Panels {
        let kernels = PairKernels::new(unit, Isa::Avx512);
        Panels::new(
            &kernels,
            &Conv {
                groups,
                ..Conv::new2d(in_channels, out_channels, [1, 1], [1, 1])
            },
        )
    }

    /// The first output channel, the number of output channels and the first input channel of each panel.
    fn list(p: Panels) -> Vec<[usize; 3]> {
        (0..p.count())
            .map(|i| [p.start(i), p.cols(i), p.first_input(i)])
            .collect()
    }

    fn panels(groups: usize, in_channels: usize, out_channels: usize) -> Panels {
        panels_of(PairUnit::Tiles, groups, in_channels, out_channels)
    }

    #[test]
    fn panels_have_whole_groups_or_parts_of_one() {
        assert_eq!(list(panels(1, 7, 70)), [[0, 32, 0], [32, 32, 0], [64, 6, 0]]);
        assert_eq!(list(panels(5, 80, 80)), [[0, 32, 0], [32, 32, 32], [64, 16, 64]]);
        assert_eq!(list(panels(3, 72, 72)), [[0, 24, 0], [24, 24, 24], [48, 24, 48]]);
        assert_eq!(
            list(panels(2, 80, 80)),
            [[0, 32, 0], [32, 8, 0], [40, 32, 40], [72, 8, 40]]
        );
        assert_eq!(panels(5, 80, 80).span(), 32);
        assert_eq!(panels(5, 80, 80).offset(1, 50), 16);
        assert_eq!(panels(3, 72, 72).span(), 24);
    }

    #[test]
    fn vectors_have_the_groups_that_fill_one() {
        let dots = |groups, channels| list(panels_of(PairUnit::Dots, groups, channels, channels));
        assert_eq!(
            dots(5, 80),
            [[0, 16, 0], [16, 16, 16], [32, 16, 32], [48, 16, 48], [64, 16, 64]]
        );
        assert_eq!(dots(3, 24), [[0, 16, 0], [16, 8, 16]]);
        assert_eq!(dots(2, 48), [[0, 24, 0], [24, 24, 24]]);
    }

    #[test]
    fn groups_that_fill_vectors_are_worthwhile() {
        let conv = |groups, channels| Conv {
            groups,
            ..Conv::new2d(channels, channels, [1, 1], [1, 1])
        };
        let dots = PairKernels::new(PairUnit::Dots, Isa::Avx512);
        assert!(are_worthwhile(&dots, &conv(4, 64)) && are_worthwhile(&dots, &conv(2, 48)));
        assert!(!are_worthwhile(&dots, &conv(8, 64)));
        let widening = PairKernels::new(PairUnit::Widening, Isa::Avx2);
        assert!(!are_worthwhile(&widening, &conv(2, 64)));
    }
}
