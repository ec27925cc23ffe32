//! Weights scaled by output channel, now or when they are read.

use crate::op::{Op, OpId};
use crate::tensor::{AlignedBytes, Scalar, Storage, Tensor};
use crate::types::DType;
use std::sync::Arc;

/// f32 weights of at least this many bytes are scaled when they are read rather than now.
const LATER: usize = 16 << 10;

/// Pages of the source weights are released each time this many bytes were read.
const RELEASED: usize = 1 << 20;

/// Maps the elements of weights to output channels. The channel is constant over runs of elements.
#[derive(Clone)]
pub(super) struct WeightChannels {
    /// With the weights' shape, this determines the other fields: the op's rule and the groups.
    rule: [u64; 2],
    /// The number of elements of a run.
    run: usize,
    /// The channel of each run.
    pub(super) of_run: Arc<[usize]>,
}

impl WeightChannels {
    pub(super) fn from_weights(op: &Op, w: &Tensor, transposed: bool, groups: usize) -> WeightChannels {
        let shape = w.shape();
        let inner = |from: usize| shape[from.min(shape.len())..].iter().product::<usize>().max(1);
        let (run, channel): (usize, Box<dyn Fn(usize) -> usize>) = match op.id() {
            Some(OpId::Addmm) => (1, Box::new(move |i| i % inner(1))),
            _ if transposed && shape.len() > 1 => {
                // `[C, O / groups, …]`: the group of an input channel is that of its output channels.
                let per_group = (shape[0] / groups).max(1);
                (
                    inner(2),
                    Box::new(move |i| i / shape[1] / per_group * shape[1] + i % shape[1]),
                )
            }
            _ => (inner(1), Box::new(|i| i)),
        };
        let rule = match op.id() {
            Some(OpId::Addmm) => 1,
            _ if transposed => 2,
            _ => 3,
        };
        WeightChannels {
            rule: [rule, groups as u64],
            run,
            of_run: (0..w.numel() / run).map(channel).collect(),
        }
    }

    /// [`WeightChannels::scale_weights`], now or when the result is read.
    pub(super) fn scale_or_defer(&self, w: &Tensor, scale: &[f64]) -> Tensor {
        let len = w.numel() * w.dtype().size();
        if w.dtype() != DType::F32 || len < LATER {
            return self.scale_weights(w, scale);
        }
        let (channels, scale): (WeightChannels, Vec<f64>) = (self.clone(), scale.to_vec());
        let shape = w.shape().iter().map(|&d| d as u64);
        let identity = self.rule.into_iter().chain([w.rank() as u64]).chain(shape);
        let identity = identity.chain(scale.iter().map(|s| s.to_bits())).collect();
        let storage = Storage::deferred(w.clone(), identity, len, move |w| channels.scale_f32(w, &scale));
        Tensor::from_storage(DType::F32, w.shape(), storage)
    }

    /// The weights, each element times its channel's scale, computed in f64 and rounded once.
    fn scale_weights(&self, w: &Tensor, scale: &[f64]) -> Tensor {
        if w.dtype() != DType::F32 {
            let scaled = |i: usize| Scalar::F64(w.get(i).to_f64() * scale[self.of_run[i / self.run]]);
            return Tensor::from_fn(w.dtype(), w.shape(), scaled);
        }
        Tensor::from_storage(DType::F32, w.shape(), Storage::Owned(self.scale_f32(w, scale)))
    }

    /// [`WeightChannels::scale_weights`] for f32.
    fn scale_f32(&self, w: &Tensor, scale: &[f64]) -> AlignedBytes {
        let mut out = AlignedBytes::zeroed(4 * w.numel());
        let runs = out.as_mut_slice::<f32>().chunks_exact_mut(self.run);
        let (mut read, mut released) = (0, 0);
        for ((to, from), &c) in runs.zip(w.as_slice::<f32>().chunks_exact(self.run)).zip(&*self.of_run) {
            // Release a file's pages once they are read, so that memory does not hold the weights twice.
            read += 4 * self.run;
            if read - released > RELEASED {
                w.release_part(released..read - 4 * self.run);
                released = read - 4 * self.run;
            }
            let scale = scale[c];
            for (to, from) in to.iter_mut().zip(from) {
                *to = (*from as f64 * scale) as f32;
            }
        }
        out
    }
}
