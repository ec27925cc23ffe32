//! Benchmarks of matrix products and convolutions: GFLOP/s, and the fraction of the machine's multiply-add peak
//! measured in the same run, on one thread and on all. `cargo bench --bench contractions --
//! [matmul|conv|attention|expansion] [substring]`.

mod timing;

use fxc::internals::math::contract::*;
use fxc::internals::math::native_library;
use fxc::internals::parallel::Pool;
#[cfg(target_arch = "x86_64")]
use fxc::internals::target::Isa;
use fxc::internals::target::Target;
use fxc::types::DType;
use timing::time;

/// Measures the peak GFLOP/s of one core with ten independent chains of fused multiply-adds on full vectors.
#[cfg(target_arch = "x86_64")]
fn peak() -> f64 {
    use std::arch::x86_64::*;
    use std::hint::black_box;
    const STEPS: usize = 20_000;
    #[target_feature(enable = "avx512f")]
    fn wide() -> f32 {
        let (a, b) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(1.0)));
        let mut x = [_mm512_set1_ps(1.0); 10];
        for _ in 0..STEPS {
            for x in &mut x {
                *x = _mm512_fmadd_ps(*x, a, b);
            }
        }
        x.iter().map(|&x| _mm512_reduce_add_ps(x)).sum()
    }
    #[target_feature(enable = "avx2,fma")]
    fn narrow() -> f32 {
        let (a, b) = (_mm256_set1_ps(black_box(0.5)), _mm256_set1_ps(black_box(1.0)));
        let mut x = [_mm256_set1_ps(1.0); 10];
        for _ in 0..STEPS {
            for x in &mut x {
                *x = _mm256_fmadd_ps(*x, a, b);
            }
        }
        x.iter().map(|&x| _mm256_cvtss_f32(x)).sum()
    }
    let flops = |lanes: usize| 2.0 * 10.0 * lanes as f64 * STEPS as f64 / 1e9;
    let (lanes, chains): (usize, unsafe fn() -> f32) = match Target::native().isa() {
        Isa::Avx512 => (16, wide),
        Isa::Avx2 => (8, narrow),
        Isa::Portable => return f64::NAN,
    };
    let run = || {
        // SAFETY: the machine supports the level.
        black_box(unsafe { chains() });
    };
    flops(lanes) / time(run)[1]
}

/// The peak is unknown on other machines.
#[cfg(not(target_arch = "x86_64"))]
fn peak() -> f64 {
    f64::NAN
}

fn data(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919) % 1013) as f32 * 0.002 - 1.0).collect()
}

fn bytes(v: &[f32]) -> &[u8] {
    // SAFETY: any f32 is four bytes.
    unsafe { std::slice::from_raw_parts(v.as_ptr().cast(), v.len() * 4) }
}

struct Bench {
    pools: Vec<Pool>,
    peak: f64,
    filter: Vec<String>,
}

impl Bench {
    fn wanted(&self, name: &str) -> bool {
        self.filter.iter().all(|f| name.contains(f.as_str()))
    }

    fn row(&self, name: &str, flops: f64, f: impl FnMut(&Pool)) {
        self.row_on(&self.pools, name, flops, f);
    }

    fn row_on(&self, pools: &[Pool], name: &str, flops: f64, mut f: impl FnMut(&Pool)) {
        print!("{name:<44}");
        for pool in pools {
            let [median, least] = time(|| f(pool));
            let (rate, peak) = (flops / least / 1e9, self.peak * pool.threads() as f64);
            print!(
                " | {:>9.1} {:>9.1} {rate:>7.1} {:>4.0}",
                median * 1e6,
                least * 1e6,
                100.0 * rate / peak
            );
        }
        println!();
    }

    /// `batch` products. `side` is the constant operand: A, B, or X for none.
    fn matmul(&self, batch: usize, m: usize, k: usize, n: usize, side: char) {
        let name = format!("matmul {batch}x {m}x{k}x{n} {side}");
        if !self.wanted(&name) {
            return;
        }
        let mut d = match side {
            'B' | 'T' => MatMul::linear(DType::F32, m, n, k),
            _ => MatMul::new(DType::F32, m, n, k),
        };
        d.batch = vec![BatchDim {
            size: batch,
            a: m * k,
            b: k * n,
            c: m * n,
            addend: 0,
        }];
        let (a, b, mut c) = (data(batch * m * k), data(batch * k * n), vec![0f32; batch * m * n]);
        let constants = MatMulConstants {
            a: (side == 'A').then_some(bytes(&a).into()),
            b: (side == 'B').then_some(bytes(&b).into()),
        };
        let plan = native_library().plan_matmul(&d, constants).expect("a plan");
        let args = MatMulArgs {
            a: a.as_ptr().cast(),
            b: b.as_ptr().cast(),
            addend: std::ptr::null(),
            c: c.as_mut_ptr().cast(),
            tail: None,
        };
        let flops = 2.0 * (batch * m * n * k) as f64;
        // SAFETY: the operands hold the descriptor's extents.
        self.row(&name, flops, |pool| unsafe { plan.run(pool, &args) });
        if self.filter.iter().any(|f| f == "matmul") && batch == 1 {
            self.row_on(&self.pools[..1], "   the gemm crate", flops, |_| {
                let s = |x: usize| x as isize;
                // SAFETY: as above. This computes the transposed product, whose columns are contiguous.
                unsafe {
                    gemm_f32::gemm::f32::get_gemm_fn()(
                        n,
                        m,
                        k,
                        c.as_mut_ptr(),
                        s(n),
                        1,
                        false,
                        b.as_ptr(),
                        s(d.b[0]),
                        s(d.b[1]),
                        a.as_ptr(),
                        s(d.a[0]),
                        s(d.a[1]),
                        0.0,
                        1.0,
                        false,
                        false,
                        false,
                        gemm_common::Parallelism::None,
                    );
                }
            });
        }
    }
}

impl Bench {
    /// One image, with `[in, out, size, kernel, stride, groups]` and padding `kernel / 2`.
    fn conv(&self, [c, o, size, kernel, stride, groups]: [usize; 6], layout: ConvLayout) {
        let last = if layout == ConvLayout::ChannelsLast {
            " last"
        } else {
            ""
        };
        let name = format!("conv {c}->{o} k{kernel}s{stride}g{groups} @{size}{last}");
        if !self.wanted(&name) {
            return;
        }
        let conv = Conv {
            groups,
            stride: [1, stride, stride],
            padding: [0, kernel / 2, kernel / 2],
            bias: true,
            activation: Activation::Relu,
            input_layout: layout,
            output_layout: layout,
            ..Conv::new2d(c, o, [size, size], [kernel, kernel])
        };
        let [nx, nw, nb, ny] = conv.extents().expect("a legal convolution");
        let (x, w, b, mut y) = (data(nx), data(nw), data(nb), vec![0f32; ny]);
        let constants = ConvConstants {
            weight: Some(bytes(&w).into()),
            bias: Some(bytes(&b).into()),
        };
        let plan = native_library().plan_conv(&conv, constants).expect("a plan");
        let args = ConvArgs {
            x: x.as_ptr().cast(),
            weight: std::ptr::null(),
            bias: std::ptr::null(),
            y: y.as_mut_ptr().cast(),
            tail: None,
        };
        // SAFETY: the operands hold the descriptor's extents.
        self.row(&name, 2.0 * conv.macs(), |pool| unsafe { plan.run(pool, &args) });
    }
}

impl Bench {
    /// A 1x1 convolution followed by a depthwise one, separately and fused: `[in, between, size, kernel, stride]`.
    fn expansion(&self, [c, between, size, kernel, stride]: [usize; 5]) {
        let name = format!("expansion {c}->{between} k{kernel}s{stride} @{size}");
        if !self.wanted(&name) {
            return;
        }
        let e = Expansion::new2d(c, between, size, kernel, stride);
        let [nx, nw, nb, nm] = e.first.extents().expect("a legal convolution");
        let [_, nw2, _, ny] = e.second.extents().expect("a legal convolution");
        let (x, w, b, w2) = (data(nx), data(nw), data(nb), data(nw2));
        let (mut middle, mut y) = (vec![0f32; nm], vec![0f32; ny]);
        let constants = |w, b| ConvConstants {
            weight: Some(bytes(w).into()),
            bias: Some(bytes(b).into()),
        };
        let (one, two) = (constants(&w, &b), constants(&w2, &b));
        let (p1, p2) = (
            native_library().plan_conv(&e.first, one),
            native_library().plan_conv(&e.second, two),
        );
        let (p1, p2) = (p1.expect("a plan"), p2.expect("a plan"));
        let args = |x: *const f32, y: *mut f32| ConvArgs {
            x: x.cast(),
            weight: std::ptr::null(),
            bias: std::ptr::null(),
            y: y.cast(),
            tail: None,
        };
        let flops = 2.0 * e.macs();
        self.row(&format!("{name}, one by one"), flops, |pool| {
            // SAFETY: the operands hold the descriptors' extents.
            unsafe {
                p1.run(pool, &args(x.as_ptr(), middle.as_mut_ptr()));
                p2.run(pool, &args(middle.as_ptr(), y.as_mut_ptr()));
            }
        });
        let plan = native_library().plan_expansion(&e, [one, two]).expect("a plan");
        let args = ExpansionArgs {
            x: x.as_ptr().cast(),
            weights: [std::ptr::null(); 2],
            biases: [std::ptr::null(); 2],
            y: y.as_mut_ptr().cast(),
            middle: None,
            tail: None,
        };
        // SAFETY: as above.
        self.row(&format!("{name}, as one"), flops, |pool| unsafe {
            plan.run(pool, &args)
        });
    }
}

impl Bench {
    /// `[batch, heads, queries, keys, size]`; causal if `causal`.
    fn attention(&self, [b, h, l, s, e]: [usize; 5], causal: bool) {
        let name = format!("attention {b}x{h} {l}x{s}x{e}{}", if causal { " causal" } else { "" });
        if !self.wanted(&name) {
            return;
        }
        let d = Attention {
            causal,
            ..Attention::new(b, h, l, s, e)
        };
        let [nq, nk, nv, _, _, no] = d.extents().expect("legal sizes");
        let (q, k, v, mut out) = (data(nq), data(nk), data(nv), vec![0f32; no]);
        let plan = native_library().plan_attention(&d).expect("a plan");
        let args = AttentionArgs {
            q: q.as_ptr().cast(),
            k: k.as_ptr().cast(),
            v: v.as_ptr().cast(),
            bias: std::ptr::null(),
            mask: std::ptr::null(),
            out: out.as_mut_ptr().cast(),
        };
        let flops = 4.0 * (b * h * l * s * e) as f64 / if causal { 2.0 } else { 1.0 };
        // SAFETY: the operands hold the descriptor's extents.
        self.row(&name, flops, |pool| unsafe { plan.run(pool, &args) });
    }
}

/// Attentions that occur in models: `[batch, heads, queries, keys, size]`.
const ATTENTIONS: &[[usize; 5]] = &[
    [1, 12, 128, 128, 64],
    [1, 12, 197, 197, 64],
    [1, 12, 512, 512, 64],
    [1, 12, 1024, 1024, 64],
    [1, 2, 1024, 1024, 64],
    [1, 12, 1, 1024, 64],
    [8, 8, 64, 64, 32],
];

/// Inverted residuals that occur in models: `[in, between, size, kernel, stride]`.
const EXPANSIONS: &[[usize; 5]] = &[
    [16, 96, 112, 3, 2],
    [24, 144, 56, 3, 1],
    [24, 144, 56, 3, 2],
    [24, 144, 56, 5, 2],
    [32, 192, 28, 3, 1],
    [40, 240, 28, 5, 1],
    [64, 384, 14, 3, 1],
    [96, 576, 14, 3, 1],
    [112, 672, 14, 5, 1],
    [160, 960, 7, 3, 1],
];

/// Layers that occur in models: `[in, out, size, kernel, stride, groups]`.
const CONVS: &[[usize; 6]] = &[
    [3, 64, 224, 7, 2, 1],
    [64, 64, 56, 3, 1, 1],
    [64, 256, 56, 1, 1, 1],
    [64, 128, 56, 3, 2, 1],
    [64, 128, 56, 1, 2, 1],
    [128, 128, 28, 3, 1, 1],
    [256, 256, 14, 3, 1, 1],
    [512, 512, 7, 3, 1, 1],
    [1024, 256, 14, 1, 1, 1],
    [512, 2048, 7, 1, 1, 1],
    [16, 96, 112, 1, 1, 1],
    [96, 24, 56, 1, 1, 1],
    [320, 1280, 7, 1, 1, 1],
    [3, 32, 224, 3, 2, 1],
    [32, 32, 112, 3, 1, 32],
    [96, 96, 112, 3, 2, 96],
    [144, 144, 56, 3, 1, 144],
    [144, 144, 56, 3, 2, 144],
    [384, 384, 14, 3, 1, 384],
    [576, 576, 14, 3, 1, 576],
    [960, 960, 7, 3, 1, 960],
    [120, 120, 28, 5, 1, 120],
    [672, 672, 14, 5, 2, 672],
    [672, 672, 14, 5, 1, 672],
    [1152, 1152, 7, 5, 1, 1152],
    [384, 384, 14, 7, 1, 384],
    [128, 128, 56, 3, 1, 32],
    [104, 104, 28, 3, 1, 13],
    [48, 48, 56, 3, 2, 6],
    [440, 440, 7, 3, 1, 55],
];

/// Products that occur in models: `(batch, m, k, n, constant operand)`.
const MATMULS: &[(usize, usize, usize, usize, char)] = &[
    (1, 32, 27, 12544, 'A'),
    (1, 256, 64, 3136, 'A'),
    (1, 64, 576, 3136, 'A'),
    (1, 512, 4608, 49, 'A'),
    (1, 1, 768, 768, 'B'),
    (1, 4, 768, 768, 'B'),
    (1, 1, 4096, 4096, 'B'),
    (1, 16, 768, 3072, 'B'),
    (1, 64, 768, 768, 'B'),
    (1, 4, 4096, 4096, 'B'),
    (1, 128, 768, 768, 'B'),
    (1, 512, 512, 512, 'B'),
    (1, 128, 768, 3072, 'B'),
    (1, 128, 3072, 768, 'B'),
    (1, 197, 768, 3072, 'B'),
    (1, 1024, 1024, 1024, 'B'),
    (1, 2048, 2048, 2048, 'B'),
    (12, 128, 64, 128, 'X'),
    (12, 128, 128, 64, 'X'),
    (12, 128, 64, 128, 'T'),
    (1, 1024, 1024, 1024, 'X'),
    (1, 512, 512, 512, 'X'),
    (1, 1, 4096, 4096, 'T'),
    (1, 1, 4096, 4096, 'X'),
];

fn main() {
    let filter: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let all = std::thread::available_parallelism().map_or(1, |n| n.get());
    let pools = vec![Pool::new(1), Pool::new(all)];
    let b = Bench {
        pools,
        peak: peak(),
        filter,
    };
    println!(
        "{} lanes ({}), peak {:.0} GFLOP/s a core, {all} cores",
        Target::native().isa().lanes(),
        Target::native().isa(),
        b.peak
    );
    println!("per thread count: median us, least us, GFLOP/s and % of peak of the least");
    for &(batch, m, k, n, side) in MATMULS {
        b.matmul(batch, m, k, n, side);
    }
    for &sizes in ATTENTIONS {
        b.attention(sizes, false);
        b.attention(sizes, true);
    }
    for &sizes in EXPANSIONS {
        b.expansion(sizes);
    }
    for &layer in CONVS {
        b.conv(layer, ConvLayout::ChannelsFirst);
        b.conv(layer, ConvLayout::ChannelsLast);
    }
}
