//! Constant operands, and their packed forms, which plans share.

use crate::math::convert::widen_bytes;
use crate::tensor::{AlignedBytes, BytesId, Life, Quantized, Tensor};
use crate::types::DType;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// A constant operand.
///
/// Plans pack constants into the order in which they read them. If the constant is a tensor and a [`Packer`] is given,
/// plans that need the same order share one packed copy. A weight is then packed only once for all batch sizes, and
/// bytes that a tensor computes lazily are computed only for that copy.
#[derive(Clone, Copy)]
pub struct Constant<'a> {
    /// The bytes, if they are available.
    bytes: Option<&'a [u8]>,
    shared: Option<(&'a Packer<'a>, &'a Tensor)>,
    /// The offset of the first byte.
    at: usize,
    /// The dtype of the tensor's elements, f16, bf16 or i8, if they are to be widened to f32.
    narrow: Option<DType>,
    /// Whether a plan may keep a form that is larger than the constant.
    room: bool,
}

impl<'a> From<&'a [u8]> for Constant<'a> {
    fn from(bytes: &'a [u8]) -> Constant<'a> {
        Constant::from_bytes(bytes)
    }
}

impl<'a> Constant<'a> {
    /// A constant given by its bytes. Its packed forms are not shared.
    pub fn from_bytes(bytes: &'a [u8]) -> Constant<'a> {
        Constant {
            bytes: Some(bytes),
            shared: None,
            at: 0,
            narrow: None,
            room: false,
        }
    }

    /// A constant given by a tensor. Its packed forms are shared through `packer`.
    pub fn from_tensor(tensor: &'a Tensor, packer: &'a Packer<'a>) -> Constant<'a> {
        Constant {
            bytes: None,
            shared: Some((packer, tensor)),
            at: 0,
            narrow: None,
            room: false,
        }
    }

    /// The constant widened to f32. Its elements have dtype `dtype` (f16, bf16 or i8).
    pub fn widen_from(self, dtype: DType) -> Constant<'a> {
        let wide = Constant {
            narrow: Some(dtype),
            ..self
        };
        Constant {
            at: wide.growth() * self.at,
            ..wide
        }
    }

    /// How many times as many bytes the constant has as the tensor.
    fn growth(&self) -> usize {
        self.narrow.map_or(1, |d| DType::F32.size() / d.size())
    }

    /// Allows a plan to keep a form of the constant that is larger than the constant; see
    /// [`Library::extra_weight_bytes`](super::Library::extra_weight_bytes).
    pub fn with_room(self) -> Constant<'a> {
        Constant { room: true, ..self }
    }

    /// Whether a plan may keep a larger form.
    pub fn has_room(&self) -> bool {
        self.room
    }

    /// The part starting at byte `at`.
    pub fn skip_bytes(self, at: usize) -> Constant<'a> {
        Constant {
            at: self.at + at,
            ..self
        }
    }

    /// Declares that bytes `range` were packed and will not be read again. The pages of a mapped file can then leave
    /// memory while the rest is packed.
    pub fn release(&self, range: std::ops::Range<usize>) {
        if let (Some((_, t)), None) = (self.shared, self.narrow) {
            t.release_part(self.at + range.start..self.at + range.end);
        }
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        let whole = match (self.bytes, self.shared) {
            (Some(b), _) => b.len(),
            (None, Some((_, t))) => t.byte_count(),
            (None, None) => 0,
        };
        (self.growth() * whole).saturating_sub(self.at)
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` with the bytes.
    pub fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        let part = |b: &[u8]| match self.narrow {
            Some(d) => f(&widen_to_f32_bytes(d, &b[self.at / self.growth()..])),
            None => f(&b[self.at..]),
        };
        match (self.bytes, self.shared) {
            (Some(b), _) => part(b),
            (None, Some((_, t))) => t.with_bytes(part),
            (None, None) => part(&[]),
        }
    }

    /// Calls `f` with the same constant and its bytes loaded, so that parts of it do not compute them again.
    pub fn with_loaded<R>(&self, f: impl FnOnce(Constant) -> R) -> R {
        match (self.bytes, self.shared) {
            (None, Some((_, t))) => t.with_bytes(|b| {
                f(Constant {
                    bytes: Some(b),
                    ..*self
                })
            }),
            _ => f(*self),
        }
    }

    /// A copy of the bytes, aligned.
    pub fn aligned_bytes(&self) -> Arc<AlignedBytes> {
        self.get_or_pack(&[5], AlignedBytes::from_slice)
    }

    /// The packed form named `key`. Calls `make` with the bytes unless the form exists. Equal keys must mean equal
    /// forms of equal bytes.
    pub fn get_or_pack(&self, key: &[usize], make: impl FnOnce(&[u8]) -> AlignedBytes) -> Arc<AlignedBytes> {
        let make = || self.with_bytes(make);
        match self.shared {
            None => Arc::new(make()),
            Some((packer, tensor)) => {
                let narrow = self.narrow.map(|d| d as usize);
                let key = key.iter().copied().chain(narrow).collect();
                packer.find_or_pack(tensor, self.at, key, make)
            }
        }
    }
}

impl Constant<'_> {
    /// [`Constant::get_or_pack`] for the integers and scales of a tensor that is computed from them
    /// ([`Tensor::quantized`]). Its elements are not computed. `None` if the form does not exist and the tensor has no
    /// integers.
    pub fn get_or_pack_quantized(
        &self,
        key: &[usize],
        make: impl FnOnce(&Quantized) -> AlignedBytes,
    ) -> Option<Arc<AlignedBytes>> {
        let (packer, tensor) = self.shared.filter(|_| self.at == 0)?;
        if let Some(q) = tensor.quantized() {
            let pack = || {
                let packed = make(q);
                tensor.release_pages();
                packed
            };
            return Some(packer.find_or_pack(tensor, 0, key.to_vec(), pack));
        }
        packer.find(tensor, key)
    }
}

/// Converts bytes of f16, bf16 or i8 elements to bytes of f32 elements.
fn widen_to_f32_bytes(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    if dtype == DType::I8 {
        return bytes.iter().flat_map(|&x| f32::from(x as i8).to_ne_bytes()).collect();
    }
    let mut v = vec![0f32; bytes.len() / 2];
    widen_bytes(dtype, &bytes[..2 * v.len()], &mut v);
    v.iter().flat_map(|x| x.to_ne_bytes()).collect()
}

/// A constant in a form that plans read.
#[derive(Clone)]
pub struct Pack {
    /// Identifies the constant's bytes.
    pub constant: BytesId,
    /// The first byte that is packed.
    pub at: usize,
    /// Identifies the form.
    pub key: Vec<usize>,
    /// The form.
    pub bytes: Arc<AlignedBytes>,
}

/// Packs constants for plans that are made together, and records the forms that they use.
pub struct Packer<'a> {
    packs: &'a Packs,
    taken: Mutex<Vec<Pack>>,
    has_packed: AtomicBool,
}

impl<'a> Packer<'a> {
    /// A packer that looks up packed forms in `packs` and adds new ones to it.
    pub fn new(packs: &'a Packs) -> Packer<'a> {
        Packer {
            packs,
            taken: Mutex::default(),
            has_packed: AtomicBool::new(false),
        }
    }

    /// Whether constants were packed, rather than only forms found that exist.
    pub fn has_packed(&self) -> bool {
        self.has_packed.load(Ordering::Relaxed)
    }

    /// The form `key` of the whole tensor, if it exists.
    fn find(&self, tensor: &Tensor, key: &[usize]) -> Option<Arc<AlignedBytes>> {
        let life = tensor.life();
        let bytes = self.packs.get(&(life.bytes_id().clone(), 0, key.to_vec()))?;
        self.record(tensor, 0, key.to_vec(), &bytes);
        Some(bytes)
    }

    fn find_or_pack(
        &self,
        tensor: &Tensor,
        at: usize,
        key: Vec<usize>,
        make: impl FnOnce() -> AlignedBytes,
    ) -> Arc<AlignedBytes> {
        let make = || {
            self.has_packed.store(true, Ordering::Relaxed);
            make()
        };
        let bytes = self.packs.get_or_make(tensor, at, key.clone(), make);
        self.record(tensor, at, key, &bytes);
        bytes
    }

    /// Records that a plan uses a form.
    fn record(&self, tensor: &Tensor, at: usize, key: Vec<usize>, bytes: &Arc<AlignedBytes>) {
        if let Ok(mut taken) = self.taken.lock()
            && !taken.iter().any(|t| Arc::ptr_eq(&t.bytes, bytes))
        {
            let (constant, bytes) = (tensor.life().bytes_id().clone(), bytes.clone());
            taken.push(Pack {
                constant,
                at,
                key,
                bytes,
            });
        }
    }

    /// The forms that the plans use, each once.
    pub fn into_packed(self) -> Vec<Pack> {
        self.taken.into_inner().unwrap_or_default()
    }
}

/// The constant's memory, the byte offset in it, and the packing.
type PackKey = (BytesId, usize, Vec<usize>);

/// The packed forms that plans currently hold, keyed by the constant's memory. That memory does not change while its
/// tensor is alive. A form is freed with the last plan that uses it.
#[derive(Default)]
pub struct Packs {
    known: Mutex<HashMap<PackKey, (Life, Weak<AlignedBytes>)>>,
}

impl Packs {
    fn get_or_make(
        &self,
        tensor: &Tensor,
        at: usize,
        key: Vec<usize>,
        make: impl FnOnce() -> AlignedBytes,
    ) -> Arc<AlignedBytes> {
        // While the `Life` is kept, no other tensor can have the same id.
        let life = tensor.life();
        let key = (life.bytes_id().clone(), at, key);
        if let Some(packed) = self.get(&key) {
            return packed;
        }
        let packed = Arc::new(make());
        self.insert(key, life, &packed);
        packed
    }

    fn get(&self, key: &PackKey) -> Option<Arc<AlignedBytes>> {
        let known = self.known.lock().ok()?;
        let (life, packed) = known.get(key)?;
        packed.upgrade().filter(|_| life.is_alive())
    }

    /// Gives the packed form `key` of a constant from byte `at` on, for as long as somebody holds it.
    pub fn provide(&self, tensor: &Tensor, at: usize, key: Vec<usize>, packed: &Arc<AlignedBytes>) {
        let life = tensor.life();
        self.insert((life.bytes_id().clone(), at, key), life, packed);
    }

    fn insert(&self, key: PackKey, life: Life, packed: &Arc<AlignedBytes>) {
        let Ok(mut known) = self.known.lock() else { return };
        if known.len() >= 2 * known.capacity() / 3 {
            known.retain(|_, (life, packed)| life.is_alive() && packed.strong_count() > 0);
        }
        known.insert(key, (life, Arc::downgrade(packed)));
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
            Constant::from_tensor(t, &Packer::new(&packs)).get_or_pack(key, |bytes| {
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
        let given = Arc::new(AlignedBytes::from_slice(&[9]));
        packs.provide(&t, 0, vec![3], &given);
        assert!(Arc::ptr_eq(&pack(&t, &[3]), &given) && made.get() == 3);
    }

    #[test]
    fn a_tensor_that_is_written_is_another_constant() {
        let packs = Packs::default();
        let mut t = Tensor::from_slice(&[1], &[1.0f32]);
        let pack =
            |t: &Tensor| Constant::from_tensor(t, &Packer::new(&packs)).get_or_pack(&[], AlignedBytes::from_slice);
        let a = pack(&t);
        t.as_mut_slice::<f32>()[0] = 2.0;
        let b = pack(&t);
        assert_eq!(a.bytes(), 1f32.to_le_bytes());
        assert_eq!(b.bytes(), 2f32.to_le_bytes());
    }
}
