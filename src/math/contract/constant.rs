//! Constant operands, and the packed forms that plans share.

use crate::tensor::{AlignedBytes, Life, Tensor};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// A constant operand.
///
/// Plans pack constants into the order in which they read them. If the constant is a tensor and a [`Packs`] is given, plans
/// that want the same order share one packed copy: a weight is packed once for all sizes of a batch. Bytes that the tensor computes late
/// are computed for that copy only.
#[derive(Clone, Copy)]
pub struct Constant<'a> {
    bytes: Option<&'a [u8]>,
    shared: Option<(&'a Packs, &'a Tensor)>,
    /// First byte.
    at: usize,
}

impl<'a> From<&'a [u8]> for Constant<'a> {
    fn from(bytes: &'a [u8]) -> Constant<'a> {
        Constant::bytes(bytes)
    }
}

impl<'a> Constant<'a> {
    /// Bytes whose packed forms are not shared.
    pub fn bytes(bytes: &'a [u8]) -> Constant<'a> {
        Constant {
            bytes: Some(bytes),
            shared: None,
            at: 0,
        }
    }

    /// A tensor whose packed forms are shared through `packs`.
    pub fn of(tensor: &'a Tensor, packs: &'a Packs) -> Constant<'a> {
        Constant {
            bytes: None,
            shared: Some((packs, tensor)),
            at: 0,
        }
    }

    /// The part from byte `at` on.
    pub fn after(self, at: usize) -> Constant<'a> {
        Constant {
            at: self.at + at,
            ..self
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        let whole = match (self.bytes, self.shared) {
            (Some(b), _) => b.len(),
            (None, Some((_, t))) => t.byte_count(),
            (None, None) => 0,
        };
        whole.saturating_sub(self.at)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `f` of the bytes.
    pub fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        match (self.bytes, self.shared) {
            (Some(b), _) => f(&b[self.at..]),
            (None, Some((_, t))) => t.with_bytes(|b| f(&b[self.at..])),
            (None, None) => f(&[]),
        }
    }

    /// `f` of the same constant with its bytes at hand: parts of it do not compute them again.
    pub fn read<R>(&self, f: impl FnOnce(Constant) -> R) -> R {
        match (self.bytes, self.shared) {
            (None, Some((packs, t))) => t.with_bytes(|b| {
                f(Constant {
                    bytes: Some(b),
                    shared: Some((packs, t)),
                    at: self.at,
                })
            }),
            _ => f(*self),
        }
    }

    /// The packed form that `key` names, made of the bytes unless it is there. Equal keys must mean equal forms of equal bytes.
    pub fn packed(&self, key: &[usize], make: impl FnOnce(&[u8]) -> AlignedBytes) -> Arc<AlignedBytes> {
        let make = || self.with_bytes(make);
        match self.shared {
            None => Arc::new(make()),
            Some((packs, tensor)) => packs.get(tensor, self.at, key, make),
        }
    }
}

/// Which memory, from which byte on, and how it is packed.
type Key = (usize, usize, Vec<usize>);

/// The packed forms that plans hold now. They are found by the constant's memory, whose contents do not change while its tensor
/// lives, and go with the last plan that has them.
#[derive(Default)]
pub struct Packs {
    known: Mutex<HashMap<Key, (Life, Weak<AlignedBytes>)>>,
}

impl Packs {
    fn get(&self, tensor: &Tensor, at: usize, key: &[usize], make: impl FnOnce() -> AlignedBytes) -> Arc<AlignedBytes> {
        // While a `Life` is kept, no other tensor gets its place.
        let key = (tensor.life().place(), at, key.to_vec());
        if let Ok(known) = self.known.lock()
            && let Some((life, packed)) = known.get(&key)
            && life.lasts()
            && let Some(packed) = packed.upgrade()
        {
            return packed;
        }
        let packed = Arc::new(make());
        if let Ok(mut known) = self.known.lock() {
            if known.len() >= 2 * known.capacity() / 3 {
                known.retain(|_, (life, packed)| life.lasts() && packed.strong_count() > 0);
            }
            known.insert(key, (tensor.life(), Arc::downgrade(&packed)));
        }
        packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_form_of_one_tensor_is_packed_once() {
        let packs = Packs::default();
        let t = Tensor::from_slice(&[2], &[1.0f32, 2.0]);
        let made = std::cell::Cell::new(0);
        let pack = |t: &Tensor, key: &[usize]| {
            Constant::of(t, &packs).packed(key, |bytes| {
                made.set(made.get() + 1);
                AlignedBytes::from_slice(bytes)
            })
        };
        let (a, b) = (pack(&t, &[1]), pack(&t, &[1]));
        assert!(Arc::ptr_eq(&a, &b) && made.get() == 1);
        let c = pack(&t, &[2]);
        assert!(!Arc::ptr_eq(&a, &c) && made.get() == 2);
        drop((a, b));
        pack(&t, &[1]);
        assert_eq!(made.get(), 3, "nobody held the form");
    }

    #[test]
    fn a_tensor_that_is_written_is_another_constant() {
        let packs = Packs::default();
        let mut t = Tensor::from_slice(&[1], &[1.0f32]);
        let pack = |t: &Tensor| Constant::of(t, &packs).packed(&[], AlignedBytes::from_slice);
        let a = pack(&t);
        t.as_mut_slice::<f32>()[0] = 2.0;
        let b = pack(&t);
        assert_eq!(a.bytes(), 1f32.to_le_bytes());
        assert_eq!(b.bytes(), 2f32.to_le_bytes());
    }
}
