//! f64 attention, row by row.

use crate::math::contract::{Attention, AttentionArgs, AttentionPlan};
use crate::math::scratch::{self, SharedPtr};
use crate::parallel::Pool;
use crate::types::DType;

/// A plan of an f64 attention.
pub(super) struct Plain {
    desc: Attention,
}

impl Plain {
    /// Plans `desc`, whose extents were already checked.
    pub(super) fn new(desc: &Attention) -> Plain {
        Plain { desc: desc.clone() }
    }

    /// Computes one query.
    ///
    /// # Safety
    /// `args` is as for [`AttentionPlan::run`]; no other thread writes the row.
    unsafe fn attend_row(&self, args: &AttentionArgs, batch: usize, head: usize, row: usize, p: &mut [f64]) {
        let d = &self.desc;
        let kv = d.kv_head(head);
        let head_offset = |s: &[usize; 3], h: usize| batch * s[0] + h * s[1];
        // SAFETY: every index lies within the extents.
        unsafe {
            let q = args.q.cast::<f64>().add(head_offset(&d.q, head) + row * d.q[2]);
            let k = args.k.cast::<f64>().add(head_offset(&d.k, kv));
            let v = args.v.cast::<f64>().add(head_offset(&d.v, kv));
            let out = args.out.cast::<f64>().add(head_offset(&d.out, head) + row * d.out[2]);
            let seen = d.visible_keys(row);
            for (j, p) in p.iter_mut().enumerate().take(seen) {
                let dot: f64 = (0..d.size).map(|i| *q.add(i) * *k.add(j * d.k[2] + i)).sum();
                *p = dot * d.scale;
                for (m, data) in [(d.bias, args.bias), (d.mask, args.mask)] {
                    let Some(m) = m else { continue };
                    let offset = m.row_offset(batch, head, row) + j * m.strides[3];
                    match m.dtype {
                        DType::B8 if *data.add(offset) == 0 => *p = f64::NEG_INFINITY,
                        DType::B8 => {}
                        _ => *p += *data.cast::<f64>().add(offset),
                    }
                }
            }
            let p = &mut p[..seen];
            let max = p.iter().fold(f64::NEG_INFINITY, |a, &b| if b > a { b } else { a });
            let shift = if max == f64::NEG_INFINITY { 0.0 } else { max };
            p.iter_mut().for_each(|x| *x = (*x - shift).exp());
            let sum: f64 = p.iter().sum();
            for i in 0..d.value_size {
                let y: f64 = p.iter().enumerate().map(|(j, p)| p * *v.add(j * d.v[2] + i)).sum();
                *out.add(i) = if sum == 0.0 { d.of_masked() } else { y / sum };
            }
        }
    }
}

impl AttentionPlan for Plain {
    unsafe fn run(&self, pool: &Pool, args: &AttentionArgs) {
        let d = &self.desc;
        let shared = SharedPtr(args as *const AttentionArgs as *mut AttentionArgs);
        pool.run(d.batch * d.heads, |i| {
            let mut buffer = scratch::take_buffer(2 * d.keys);
            // SAFETY: the buffer is 64-byte aligned and holds `keys` f64.
            let p = unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast::<f64>(), d.keys) };
            for row in 0..d.queries {
                // SAFETY: guaranteed by the caller; chunks own disjoint heads.
                unsafe { self.attend_row(&*shared.get(), i / d.heads, i % d.heads, row, p) };
            }
        });
    }

    fn describe(&self) -> String {
        "attention f64 rows".into()
    }
}
