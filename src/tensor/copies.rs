//! Copies of strided inputs in memory that later calls use again. New memory would cost more than the copy: the system clears its pages.

use super::{Tensor, View};

/// Row-major copies of the inputs of a call, by position. Inputs that code can read in place have none.
#[derive(Default)]
pub(crate) struct StridedCopies(Vec<Option<Tensor>>);

impl StridedCopies {
    /// Copies the views that are not dense and aligned ([`View::dense_address`]); inputs that are no views are `None`. Returns the copies,
    /// which are no more than the inputs.
    pub(crate) fn update<'v>(&mut self, inputs: impl Iterator<Item = Option<&'v View<'v>>>) -> &[Option<Tensor>] {
        for (i, input) in inputs.enumerate() {
            match input.filter(|v| v.dense_address().is_none()) {
                Some(view) => {
                    self.0.resize(self.0.len().max(i + 1), None);
                    replace_copy(&mut self.0[i], view);
                }
                None => {
                    if let Some(unused) = self.0.get_mut(i) {
                        *unused = None;
                    }
                }
            }
        }
        &self.0
    }
}

/// Replaces an earlier copy, in its memory if it has the same type and nothing else refers to it.
fn replace_copy(copy: &mut Option<Tensor>, view: &View<'_>) {
    if let Some(t) = copy
        && (t.dtype(), t.shape()) == (view.dtype(), view.shape())
        && t.is_unique()
    {
        return view.copy_to(t.bytes_mut());
    }
    *copy = Some(view.to_tensor());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_made_in_the_same_memory() {
        let mut copies = StridedCopies::default();
        let (first, second) = ([1.0f32, 2.0, 3.0, 4.0], [5.0f32, 6.0, 7.0, 8.0]);
        let dense = View::from_slice(&[2], &[0i64, 1]).expect("a view").to_tensor();
        let dense = View::from(&dense);
        let mut transposed = |data: &[f32; 4]| {
            let view = View::strided(&[2, 2], &[1, 2], data).expect("a view");
            let made = copies.update([Some(&dense), Some(&view), None].into_iter());
            assert!(made.len() == 2 && made[0].is_none());
            made[1].clone().expect("a copy")
        };
        let copy = transposed(&first);
        let address = copy.bytes().as_ptr();
        assert_eq!(copy.as_slice::<f32>(), [1.0, 3.0, 2.0, 4.0]);
        drop(copy);
        let kept = transposed(&second);
        assert_eq!(
            (kept.as_slice::<f32>(), kept.bytes().as_ptr()),
            (&[5.0f32, 7.0, 6.0, 8.0][..], address)
        );
        // A copy that is in use stays as it is.
        assert_ne!(transposed(&first).bytes().as_ptr(), address);
        assert_eq!(kept.as_slice::<f32>(), [5.0, 7.0, 6.0, 8.0]);
    }
}
