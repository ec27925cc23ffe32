//! How a matrix of integers is stored.

/// How an integer is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StoredWidth {
    /// Half a byte, with an offset of 8. The low half belongs to the even product index.
    Nibbles,
    /// A signed byte.
    Bytes,
    /// Two signed bytes.
    Words,
}

impl StoredWidth {
    /// The bytes of one column of `k` integers.
    pub(super) fn column_bytes(self, k: usize) -> usize {
        match self {
            StoredWidth::Nibbles => k.div_ceil(2),
            StoredWidth::Bytes => k,
            StoredWidth::Words => 2 * k,
        }
    }
}

/// What is stored of each integer, and of each group of them in a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoredForm {
    pub storage: StoredWidth,
    /// Whether scales are bf16 rather than f32.
    pub has_narrow_scales: bool,
    /// Whether zero points, a signed byte each, are subtracted from the integers.
    pub has_zeros: bool,
}

impl StoredForm {
    /// The bytes of a scale.
    pub(super) fn scale_bytes(self) -> usize {
        if self.has_narrow_scales { 2 } else { 4 }
    }

    /// The bytes that a column has for each group.
    pub(super) fn group_bytes(self) -> usize {
        self.scale_bytes() + self.has_zeros as usize
    }

    /// The bytes of a matrix. `None` if they overflow.
    pub(super) fn size(self, columns: usize, k: usize, group: usize) -> Option<usize> {
        let values = (k / group).checked_mul(self.group_bytes())?;
        columns.checked_mul(self.storage.column_bytes(k).checked_add(values)?)
    }

    /// The form of a packed matrix of `len` bytes. Groups have at least eight integers, so no two forms have the same size.
    pub(super) fn with_size(len: usize, columns: usize, k: usize, group: usize) -> Option<StoredForm> {
        let all = [StoredWidth::Nibbles, StoredWidth::Bytes, StoredWidth::Words]
            .into_iter()
            .flat_map(|storage| {
                [(false, false), (false, true), (true, false), (true, true)].map(|(has_narrow_scales, has_zeros)| {
                    StoredForm {
                        storage,
                        has_narrow_scales,
                        has_zeros,
                    }
                })
            });
        all.into_iter().find(|f| f.size(columns, k, group) == Some(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_tells_the_form() {
        for (k, group) in [(8, 8), (9, 9), (64, 8), (96, 32), (4096, 4096)] {
            for storage in [StoredWidth::Nibbles, StoredWidth::Bytes, StoredWidth::Words] {
                for bits in 0..4 {
                    let form = StoredForm {
                        storage,
                        has_narrow_scales: bits & 1 != 0,
                        has_zeros: bits & 2 != 0,
                    };
                    let size = form.size(64, k, group).expect("a small matrix");
                    assert_eq!(StoredForm::with_size(size, 64, k, group), Some(form), "{k} by {group}");
                }
            }
        }
    }
}
