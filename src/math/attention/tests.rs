//! Compares random attentions of every dtype, mask and layout with the reference.

use super::super::contract::*;
use super::super::reference::attention_ref;
use super::plan;
use crate::math::pairs::{PairKernels, tests::all_kernels};
use crate::parallel::Pool;
use crate::tensor::{Scalar, Tensor};
use crate::types::DType;
use proptest::prelude::*;

/// The number of random cases; more if the kernels are optimised.
const CASES: u32 = if cfg!(debug_assertions) { 20 } else { 200 };

#[derive(Clone, Debug)]
struct Case {
    desc: Attention,
    /// For bias and mask: whether it is b8, and which dimensions are not broadcast. `None` if absent.
    masks: [Option<(bool, [bool; 4])>; 2],
    /// Whether heads are interleaved within rows: `[batch, rows, heads, size]`.
    interleaved: bool,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let dtype =
        prop_oneof![6 => Just(DType::F32), 1 => Just(DType::F64), 1 => Just(DType::F16), 1 => Just(DType::BF16)];
    let rows = || prop_oneof![2 => 1..6usize, 3 => 1..70usize, 1 => 250..300usize];
    let mask = prop_oneof![Just(None), (any::<bool>(), any::<[bool; 4]>()).prop_map(Some)];
    (
        (dtype, 1..3usize, 1..4usize, 1..4usize, rows(), rows()),
        (
            1..70usize,
            1..70usize,
            [mask.clone(), mask],
            any::<[bool; 2]>(),
            any::<u64>(),
        ),
    )
        .prop_map(
            |((dtype, batch, kv_heads, times, l, s), (e, ev, masks, [causal, interleaved], seed))| {
                let heads = kv_heads * times;
                let strides = |heads: usize, rows: usize, size: usize| match interleaved {
                    false => [heads * rows * size, rows * size, size],
                    true => [heads * rows * size, size, heads * size],
                };
                let desc = Attention {
                    dtype,
                    batch,
                    heads,
                    kv_heads,
                    queries: l,
                    keys: s,
                    size: e,
                    value_size: ev,
                    q: strides(heads, l, e),
                    k: strides(kv_heads, s, e),
                    v: strides(kv_heads, s, ev),
                    out: strides(heads, l, ev),
                    bias: None,
                    mask: None,
                    safe: true,
                    causal,
                    scale: 1.0 / (e as f64).sqrt(),
                    skips_hidden: seed % 2 == 0,
                };
                Case {
                    desc,
                    masks,
                    interleaved,
                    seed,
                }
            },
        )
}

fn fill(dtype: DType, shape: &[usize], seed: &mut u64) -> Tensor {
    Tensor::from_fn(dtype, shape, |_| {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        Scalar::F64(((*seed >> 40) % 33) as f64 * 0.125 - 2.0)
    })
}

/// Permutes `[b, h, r, c]` to `[b, r, h, c]` (and back, if the sizes are swapped).
fn interleave(t: &Tensor) -> Tensor {
    let &[b, h, r, c] = t.shape() else {
        panic!("four dimensions")
    };
    Tensor::from_fn(t.dtype(), &[b, r, h, c], |i| {
        let (bi, ri, hi, ci) = (i / (r * h * c), i / (h * c) % r, i / c % h, i % c);
        t.get(((bi * h + hi) * r + ri) * c + ci)
    })
}

fn run(
    c: &Case,
    desc: &Attention,
    isa: PairKernels,
    pool: &Pool,
    [q, k, v]: [&Tensor; 3],
    masks: [Option<&Tensor>; 2],
) -> Tensor {
    let laid = |t: &Tensor| if c.interleaved { interleave(t) } else { t.clone() };
    let (q, k, v) = (laid(q), laid(k), laid(v));
    let d = desc;
    let shape = match c.interleaved {
        false => [d.batch, d.heads, d.queries, d.value_size],
        true => [d.batch, d.queries, d.heads, d.value_size],
    };
    let mut out = Tensor::from_fn(d.dtype, &shape, |_| Scalar::F64(77.0));
    let [bias, mask] = masks.map(|m| m.map_or(std::ptr::null(), |m| m.bytes().as_ptr()));
    let args = AttentionArgs {
        q: q.bytes().as_ptr(),
        k: k.bytes().as_ptr(),
        v: v.bytes().as_ptr(),
        bias,
        mask,
        out: out.bytes_mut().as_mut_ptr(),
    };
    // SAFETY: the operands hold the descriptor's extents.
    unsafe { plan(isa, d).expect("a plan").run(pool, &args) };
    if c.interleaved { interleave(&out) } else { out }
}

/// A mask for `d` that is not broadcast along the dimensions `own`, with its strides.
fn mask(d: &Attention, b8: bool, own: [bool; 4], seed: &mut u64) -> (Tensor, AttentionMask) {
    let full = [d.batch, d.heads, d.queries, d.keys];
    let shape: Vec<usize> = (0..4).map(|i| if own[i] { full[i] } else { 1 }).collect();
    let strides = crate::tensor::contiguous_strides(&shape);
    let mask = fill(d.dtype, &shape, seed);
    let mask = match b8 {
        true => Tensor::from_fn(DType::B8, &shape, |i| Scalar::Bool(mask.get(i).to_f64() > -0.3)),
        // Some keys masked with minus infinity.
        false => Tensor::from_fn(d.dtype, &shape, |i| match mask.get(i).to_f64() {
            x if x < -1.0 => Scalar::F64(f64::NEG_INFINITY),
            x => Scalar::F64(x),
        }),
    };
    let how = AttentionMask {
        dtype: mask.dtype(),
        strides: std::array::from_fn(|i| if own[i] { strides[i] } else { 0 }),
    };
    (mask, how)
}

fn check(c: &Case) {
    let mut seed = c.seed;
    let mut d = c.desc.clone();
    let q = fill(d.dtype, &[d.batch, d.heads, d.queries, d.size], &mut seed);
    let k = fill(d.dtype, &[d.batch, d.kv_heads, d.keys, d.size], &mut seed);
    let v = fill(d.dtype, &[d.batch, d.kv_heads, d.keys, d.value_size], &mut seed);
    let masks = c.masks.map(|m| m.map(|(b8, own)| mask(&d, b8, own, &mut seed)));
    [d.bias, d.mask] = masks.each_ref().map(|m| m.as_ref().map(|m| m.1));
    let masks = masks.map(|m| m.map(|m| m.0));
    let wide = |t: &Tensor| t.to(DType::F64);
    let kept = |m: &Tensor| if m.dtype() == DType::B8 { m.clone() } else { wide(m) };
    let float: Vec<Tensor> = masks.iter().flatten().map(kept).collect();
    let float: Vec<&Tensor> = float.iter().collect();
    let want = attention_ref(&wide(&q), &wide(&k), &wide(&v), &float, d.causal, d.scale);
    let tol = match d.dtype {
        DType::F32 => 1e-5,
        DType::F64 => 1e-12,
        DType::F16 => 2e-3,
        _ => 2e-2,
    };
    let (one, two) = (Pool::new(1), Pool::new(3));
    for isa in all_kernels() {
        let got = run(c, &d, isa, &one, [&q, &k, &v], masks.each_ref().map(Option::as_ref));
        for i in 0..got.numel() {
            let (x, y) = (got.get(i).to_f64(), want.get(i).to_f64());
            assert!((x - y).abs() <= tol, "{isa} element {i}: {x} and {y}");
        }
        assert_eq!(
            got,
            run(c, &d, isa, &two, [&q, &k, &v], masks.each_ref().map(Option::as_ref)),
            "{isa}: threads change the result"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn attention_agrees_with_the_reference(c in case()) {
        check(&c);
    }

    /// A step of text generation, whose query heads share keys.
    #[test]
    fn one_query_of_several_heads_agrees_with_the_reference(mut c in case()) {
        let d = &mut c.desc;
        (d.queries, d.causal) = (1, false);
        let rows = if c.interleaved { d.heads } else { 1 };
        [d.q, d.out] = [d.size, d.value_size].map(|size| [d.heads * size, size, rows * size]);
        check(&c);
    }
}

#[test]
fn no_keys_and_masked_rows_give_zeros_and_nan_stays() {
    let q = Tensor::from_slice::<f32>(&[1, 1, 6, 1], &[1.0, 2.0, f32::NAN, 1.0, 1.0, 1.0]);
    let c = Case {
        desc: Attention::new(1, 1, 6, 6, 1),
        masks: [None; 2],
        interleaved: false,
        seed: 0,
    };
    for isa in all_kernels() {
        let pool = Pool::new(1);
        let none = Tensor::zeros(DType::F32, &[1, 1, 0, 1]);
        let got = run(
            &c,
            &Attention::new(1, 1, 6, 0, 1),
            isa,
            &pool,
            [&q, &none, &none],
            [None; 2],
        );
        assert_eq!(got.as_slice::<f32>(), &[0.0; 6]);
        let one = Tensor::from_slice::<f32>(&[1, 1, 6, 1], &[1.0; 6]);
        let mask = Tensor::from_fn(DType::B8, &[6, 6], |i| Scalar::Bool(i / 6 != 1));
        let masked = Attention {
            mask: Some(AttentionMask {
                dtype: DType::B8,
                strides: [0, 0, 6, 1],
            }),
            ..Attention::new(1, 1, 6, 6, 1)
        };
        let got = run(&c, &masked, isa, &pool, [&q, &one, &one], [None, Some(&mask)]);
        let got = got.as_slice::<f32>();
        assert_eq!((got[0], got[1], got[3]), (1.0, 0.0, 1.0));
        assert!(got[2].is_nan());
        // Keys after the last visible one are not read.
        let prefix = Tensor::from_fn(DType::B8, &[6, 6], |i| Scalar::Bool(i % 6 < 2 && i / 6 != 1));
        let unused = Tensor::from_slice::<f32>(&[1, 1, 6, 1], &[1.0, 1.0, f32::NAN, f32::NAN, f32::NAN, f32::NAN]);
        let cache = Attention {
            skips_hidden: true,
            ..masked.clone()
        };
        let got = run(&c, &cache, isa, &pool, [&q, &unused, &unused], [None, Some(&prefix)]);
        let got = got.as_slice::<f32>();
        assert_eq!((got[0], got[1], got[3]), (1.0, 0.0, 1.0));
        let plain = Attention { safe: false, ..masked };
        let got = run(&c, &plain, isa, &pool, [&q, &one, &one], [None, Some(&mask)]);
        let got = got.as_slice::<f32>();
        assert!(got[1].is_nan() && got[2].is_nan());
        assert_eq!((got[0], got[3]), (1.0, 1.0));
    }
}
