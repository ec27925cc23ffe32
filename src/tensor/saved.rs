//! Bytes that were overwritten in place, so that a failed run can restore them.

use std::ops::Range;

/// The former bytes of parts of a tensor, in the order in which they were overwritten. Clearing keeps the memory, so that runs of
/// equal sizes allocate once.
#[derive(Default)]
pub struct SavedBytes {
    bytes: Vec<u8>,
    /// The position of each part in the tensor.
    parts: Vec<Range<usize>>,
}

impl SavedBytes {
    /// Saves a part of a tensor's bytes before it is overwritten.
    pub fn save(&mut self, tensor: &[u8], part: Range<usize>) {
        self.bytes.extend_from_slice(&tensor[part.clone()]);
        self.parts.push(part);
    }

    /// Restores the tensor's bytes and forgets them. A part that was overwritten twice gets its oldest bytes.
    pub fn restore(&mut self, tensor: &mut [u8]) {
        let mut end = self.bytes.len();
        for part in self.parts.drain(..).rev() {
            let start = end - part.len();
            tensor[part].copy_from_slice(&self.bytes[start..end]);
            end = start;
        }
        self.bytes.clear();
    }

    /// Forgets all bytes.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.parts.clear();
    }

    /// Whether there is nothing to restore.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_was_overwritten_twice_gets_its_oldest_bytes() {
        let mut tensor = *b"abcdef";
        let mut saved = SavedBytes::default();
        for new in [b"xy", b"zw"] {
            saved.save(&tensor, 2..4);
            tensor[2..4].copy_from_slice(new);
        }
        saved.save(&tensor, 3..5);
        tensor[3..5].copy_from_slice(b"--");
        assert_eq!(&tensor, b"abz--f");
        saved.restore(&mut tensor);
        assert_eq!(&tensor, b"abcdef");
        assert!(saved.is_empty());
    }
}
