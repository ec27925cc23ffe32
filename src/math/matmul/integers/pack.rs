//! Packs matrices of integers.

use super::form::{StoredForm, StoredWidth};
use crate::math::contract::MatMul;
use crate::tensor::{AlignedBytes, Quantized};

/// Packs a quantized B.
pub(super) fn pack(q: &Quantized, desc: &MatMul, [group, nr]: [usize; 2], in_quads: bool) -> AlignedBytes {
    let packing = PackJob::new(q, desc, [group, nr], in_quads);
    let size = packing.form.size(packing.panels() * nr, desc.k, group);
    let mut out =
        AlignedBytes::zeroed_in_huge_pages(size.expect("the matrix exists, and the packed form is not much larger"));
    let values = packing.panels() * nr * (desc.k / group) * packing.form.group_bytes();
    let (head, data) = out.bytes_mut().split_at_mut(values);
    packing.pack_groups(head);
    packing.pack_integers(data);
    out
}

/// A matrix, and how it is packed.
struct PackJob<'a> {
    q: &'a Quantized,
    desc: &'a MatMul,
    group: usize,
    nr: usize,
    in_quads: bool,
    form: StoredForm,
    /// What is subtracted from the integers, and from their zero points, if those are stored.
    centre: i16,
}

impl<'a> PackJob<'a> {
    fn new(q: &'a Quantized, desc: &'a MatMul, [group, nr]: [usize; 2], in_quads: bool) -> PackJob<'a> {
        let mut packing = PackJob {
            q,
            desc,
            group,
            nr,
            in_quads,
            form: StoredForm {
                storage: StoredWidth::Words,
                has_narrow_scales: false,
                has_zeros: false,
            },
            centre: 0,
        };
        packing.choose_form();
        packing
    }

    /// Chooses the smallest form. Zero points are subtracted beforehand, unless only the integers without them fit half a byte.
    fn choose_form(&mut self) {
        let groups = self.desc.k / self.group;
        let mut columns = 0..self.desc.n;
        self.form.has_narrow_scales = columns.all(|c| (0..groups).all(|g| self.scale(c, g).to_bits() & 0xffff == 0));
        // Pairs of product indices must not straddle groups.
        let is_paired = self.group.is_multiple_of(2) || groups == 1;
        let range = range(|f| self.q.for_each_line(f));
        self.form.storage = match range {
            (-8.., ..=7) if is_paired => StoredWidth::Nibbles,
            (-128.., ..=127) => StoredWidth::Bytes,
            _ => StoredWidth::Words,
        };
        if self.form.storage != StoredWidth::Nibbles
            && is_paired
            && let Some(centre) = self.centre_of_nibbles()
        {
            self.form.storage = StoredWidth::Nibbles;
            self.form.has_zeros = true;
            self.centre = centre;
        }
    }

    /// The middle of the integers as they are stored, if they fit half a byte and their zero points a byte.
    fn centre_of_nibbles(&self) -> Option<i16> {
        let (least, most) = range(|f| self.q.for_each_stored_line(f));
        if most - least >= 16 || !self.q.zero_run(self.k_dim()).is_multiple_of(self.group) {
            return None;
        }
        let centre = least + 8;
        let groups = self.desc.k / self.group;
        let fits = |c: usize, g: usize| i8::try_from(self.zero(c, g) - centre).is_ok();
        (0..self.desc.n)
            .all(|c| (0..groups).all(|g| fits(c, g)))
            .then_some(centre)
    }

    fn panels(&self) -> usize {
        self.desc.n.div_ceil(self.nr)
    }

    /// The dim of the matrix along which the product index runs.
    fn k_dim(&self) -> usize {
        let columns_last = self.desc.b[1] == 1 && self.desc.b[0] == self.desc.n;
        if columns_last { 0 } else { 1 }
    }

    /// The row and the column of the matrix of a column's first element in a group.
    fn position(&self, column: usize, group: usize) -> [usize; 2] {
        match self.k_dim() {
            0 => [group * self.group, column],
            _ => [column, group * self.group],
        }
    }

    fn scale(&self, column: usize, group: usize) -> f32 {
        let [i, j] = self.position(column, group);
        self.q.scale_at(i, j)
    }

    fn zero(&self, column: usize, group: usize) -> i16 {
        let [i, j] = self.position(column, group);
        self.q.zero_at(i, j) - self.centre
    }

    /// Writes the scales and the zero points.
    fn pack_groups(&self, head: &mut [u8]) {
        let (groups, scale_bytes) = (self.desc.k / self.group, self.form.scale_bytes());
        let panel = groups * self.nr * self.form.group_bytes();
        for (p, values) in head.chunks_exact_mut(panel.max(1)).enumerate() {
            let (scales, zeros) = values.split_at_mut(groups * self.nr * scale_bytes);
            for (i, to) in scales.chunks_exact_mut(scale_bytes).enumerate() {
                let column = (p * self.nr + i % self.nr).min(self.desc.n - 1);
                let bits = self.scale(column, i / self.nr).to_bits();
                match self.form.has_narrow_scales {
                    true => to.copy_from_slice(&((bits >> 16) as u16).to_ne_bytes()),
                    false => to.copy_from_slice(&bits.to_ne_bytes()),
                }
            }
            for (i, to) in zeros.iter_mut().enumerate() {
                let column = (p * self.nr + i % self.nr).min(self.desc.n - 1);
                *to = self.zero(column, i / self.nr) as u8;
            }
        }
    }

    fn pack_integers(&self, data: &mut [u8]) {
        // Lines run along the product index or along the columns.
        let along_k = self.q.inner_dim() == self.k_dim();
        match self.form.has_zeros {
            true => self
                .q
                .for_each_stored_line(|index, line| self.pack_line(data, along_k, index, line)),
            false => self
                .q
                .for_each_line(|index, line| self.pack_line(data, along_k, index, line)),
        }
    }

    fn pack_line(&self, data: &mut [u8], along_k: bool, index: usize, line: &[i16]) {
        let nr = self.nr;
        let column_bytes = self.form.storage.column_bytes(self.desc.k);
        for (i, &x) in line.iter().enumerate() {
            let (p, c) = if along_k { (i, index) } else { (index, i) };
            let (panel, x) = (c / nr * nr * column_bytes, x - self.centre);
            match self.form.storage {
                StoredWidth::Nibbles if self.in_quads => {
                    let offset = (p / 8 * nr + c % nr) * 4 + p % 4;
                    data[panel + offset] |= ((x + 8) as u8) << (p / 4 % 2 * 4);
                }
                StoredWidth::Bytes if self.in_quads => data[panel + (p / 4 * nr + c % nr) * 4 + p % 4] = x as u8,
                StoredWidth::Nibbles => data[panel + p / 2 * nr + c % nr] |= ((x + 8) as u8) << (p % 2 * 4),
                StoredWidth::Bytes => data[panel + p * nr + c % nr] = x as u8,
                StoredWidth::Words => {
                    let offset = panel + 2 * (p * nr + c % nr);
                    data[offset..offset + 2].copy_from_slice(&x.to_ne_bytes());
                }
            }
        }
    }
}

/// The least and the greatest integer of some lines, and of 0.
fn range(for_each: impl FnOnce(&mut dyn FnMut(usize, &[i16]))) -> (i16, i16) {
    let (mut least, mut most) = (0i16, 0i16);
    for_each(&mut |_, line| {
        line.iter().for_each(|&x| (least, most) = (least.min(x), most.max(x)));
    });
    (least, most)
}
