//! Compares fxc's kernels with the same kernels hand-written with AVX-512 intrinsics, and with the machine's copy
//! bandwidth: `cargo bench --bench avx512 -- [substring]`.
//!
//! Both sides run alternately in this process on the same memory. The minimum time over the rounds counts for each. The
//! ratio is fxc's time over the hand-written kernel's: below 1, fxc is faster. A call of fxc is a call of a whole
//! compiled graph. For matrices that do not fit the caches, the bytes read and written per second are also given,
//! relative to those of a copy.

#[cfg(target_arch = "x86_64")]
mod hand;
#[path = "../timing/mod.rs"]
mod timing;

#[cfg(target_arch = "x86_64")]
mod compared {
    use super::hand::{self, Args, Hand};
    use super::timing::race;
    use fxc::internals::driver::{Request, Session, compile};
    use fxc::internals::runtime::Executable;
    use fxc::internals::tensor::{AlignedBytes, Scalar, Tensor};
    use fxc::types::DType::F32;

    /// One kernel: its graph over `x`, `r` (matrices `[R, C]`), `w` and `b` (rows `[C]`), and its hand-written form.
    struct Case {
        name: &'static str,
        /// The inputs, by these letters.
        inputs: &'static str,
        body: &'static str,
        /// The number of results that have one element per row; 0 if the result is one matrix.
        row_results: usize,
        hand: Hand,
    }

    const CASES: [Case; 10] = [
        Case {
            name: "bias_relu_add",
            inputs: "xrb",
            body: "%s = call_function torch.add(%x, %b)\n%t = call_function torch.relu(%s)\n%y = call_function torch.add(%t, %r)\noutput %y",
            row_results: 0,
            hand: hand::bias_relu_add,
        },
        Case {
            name: "gelu_erf",
            inputs: "x",
            body: "%y = call_function torch.nn.functional.gelu(%x)\noutput %y",
            row_results: 0,
            hand: hand::gelu_erf,
        },
        Case {
            name: "gelu_tanh",
            inputs: "x",
            body: "%y = call_function torch.nn.functional.gelu(%x, approximate=\"tanh\")\noutput %y",
            row_results: 0,
            hand: hand::gelu_tanh,
        },
        Case {
            name: "silu",
            inputs: "x",
            body: "%y = call_function torch.nn.functional.silu(%x)\noutput %y",
            row_results: 0,
            hand: hand::silu,
        },
        Case {
            name: "softmax",
            inputs: "x",
            body: "%y = call_function torch.softmax(%x, -1)\noutput %y",
            row_results: 0,
            hand: hand::softmax,
        },
        Case {
            name: "layer_norm",
            inputs: "xwb",
            body: "%y = call_function torch.nn.functional.layer_norm(%x, [COLS], %w, %b)\noutput %y",
            row_results: 0,
            hand: hand::layer_norm,
        },
        Case {
            name: "rms_norm",
            inputs: "xw",
            body: "%s = call_function torch.mul(%x, %x)\n%m = call_function torch.mean(%s, -1, keepdim=True)\n%e = call_function torch.add(%m, 1e-6)\n%q = call_function torch.rsqrt(%e)\n%v = call_function torch.mul(%x, %q)\n%y = call_function torch.mul(%v, %w)\noutput %y",
            row_results: 0,
            hand: hand::rms_norm,
        },
        Case {
            name: "mean_var",
            inputs: "x",
            body: "%m = call_function torch.mean(%x, -1)\n%v = call_function torch.var(%x, -1, unbiased=False)\noutput (%m, %v)",
            row_results: 2,
            hand: hand::mean_var,
        },
        Case {
            name: "sum",
            inputs: "x",
            body: "%m = call_function torch.sum(%x, -1)\noutput %m",
            row_results: 1,
            hand: hand::sum,
        },
        Case {
            name: "cumsum",
            inputs: "x",
            body: "%y = call_function torch.cumsum(%x, -1)\noutput %y",
            row_results: 0,
            hand: hand::cumsum,
        },
    ];

    /// Rows and columns of matrices in the L1 and L2 caches, with short rows, in the L3 cache, and beyond.
    const SIZES: [[usize; 2]; 5] = [[8, 512], [64, 1024], [1024, 64], [1024, 1024], [16384, 2048]];

    fn graph(c: &Case, rows: usize, cols: usize) -> String {
        let placeholder = |letter: char| {
            let shape = match letter {
                'x' | 'r' => format!("{rows}, {cols}"),
                _ => cols.to_string(),
            };
            format!("%{letter} : f32[{shape}] = placeholder {letter}\n")
        };
        let inputs: String = c.inputs.chars().map(placeholder).collect();
        format!("graph g {{\n{inputs}{}\n}}", c.body.replace("COLS", &cols.to_string()))
    }

    fn executable(text: &str, threads: usize) -> Executable {
        let mut session = Session::new();
        let model = session.load_text("bench.fxir", text);
        let model = model.unwrap_or_else(|_| panic!("{:?}", session.diagnostics));
        let request = Request {
            threads,
            ..Request::default()
        };
        let made = compile(&mut session, model, &request).unwrap_or_else(|_| panic!("{:?}", session.diagnostics));
        made.ready.and_then(|r| r.into_executable()).expect("an executable")
    }

    fn input(letter: char, rows: usize, cols: usize) -> Tensor {
        let shape: Vec<usize> = match letter {
            'x' | 'r' => vec![rows, cols],
            _ => vec![cols],
        };
        let mut t = Tensor::zeros(F32, &shape);
        let n = t.numel();
        let data = t.bytes_mut();
        for i in 0..n {
            let x = ((i * 2_654_435_761) % 6001) as f32 / 1000.0 - 3.0;
            Scalar::F32(x).write(data, i);
        }
        t
    }

    /// The largest difference between the results of the two sides, relative to the largest magnitude.
    fn difference(ours: &[Tensor], by_hand: &[AlignedBytes]) -> f64 {
        let (mut off, mut most) = (0f64, 1e-30f64);
        for (a, b) in ours.iter().zip(by_hand) {
            for i in 0..a.numel() {
                let [x, y] = [a.bytes(), b.bytes()].map(|d| Scalar::read(F32, d, i).to_f64());
                off = off.max((x - y).abs());
                most = most.max(y.abs());
            }
        }
        off / most
    }

    /// Runs `hand` on parts of the rows, one per thread.
    fn on_threads(hand: Hand, a: &Args, matrix: [bool; 3], row_results: bool, threads: usize) {
        if threads == 1 {
            // SAFETY: the matrices have the sizes that `a` says.
            return unsafe { hand(a) };
        }
        std::thread::scope(|s| {
            for t in 0..threads {
                let part = a.part(a.rows * t / threads, a.rows * (t + 1) / threads, matrix, row_results);
                s.spawn(move || {
                    let part = part;
                    // SAFETY: as above; the rows belong to this thread alone.
                    unsafe { hand(&part) }
                });
            }
        });
    }

    fn measure(c: &Case, [rows, cols]: [usize; 2], threads: usize, copy: Option<f64>) {
        let inputs: Vec<Tensor> = c.inputs.chars().map(|l| input(l, rows, cols)).collect();
        let results = c.row_results.max(1);
        let elements = if c.row_results > 0 { rows } else { rows * cols };
        let mut by_hand: Vec<AlignedBytes> = (0..results).map(|_| AlignedBytes::zeroed(4 * elements)).collect();
        let mut args = Args {
            inputs: [std::ptr::null(); 3],
            outputs: [std::ptr::null_mut(); 2],
            rows,
            cols,
        };
        let matrix = [0, 1, 2].map(|i| c.inputs.chars().nth(i).is_some_and(|l| "xr".contains(l)));
        args.inputs
            .iter_mut()
            .zip(&inputs)
            .for_each(|(p, t)| *p = t.bytes().as_ptr().cast());
        args.outputs
            .iter_mut()
            .zip(&mut by_hand)
            .for_each(|(p, b)| *p = b.bytes_mut().as_mut_ptr().cast());
        let mut exe = executable(&graph(c, rows, cols), threads);
        let [ours, hands] = race(
            || exe.execute(&inputs).expect("runs"),
            || on_threads(c.hand, &args, matrix, c.row_results > 0, threads),
        );
        let bytes = inputs.iter().map(|t| t.numel() * 4).sum::<usize>() + results * elements * 4;
        let bandwidth = copy.map_or(String::new(), |copy| {
            let share = |s: f64| 100.0 * bytes as f64 / s / copy;
            format!("  {:>4.0} % of copy (by hand {:.0} %)", share(ours), share(hands))
        });
        println!(
            "{:14} {:>6} x {:<5} {threads} threads {:>11.3} us  hand {:>11.3} us  ratio {:.2}  differ by {:.0e}{bandwidth}",
            c.name,
            rows,
            cols,
            ours * 1e6,
            hands * 1e6,
            ours / hands,
            difference(exe.results(), &by_hand),
        );
    }

    /// Bytes read and written per second by the fastest available copy: the library's, or one with streaming stores.
    fn copy_bandwidth([rows, cols]: [usize; 2], threads: usize) -> f64 {
        let n = rows * cols;
        // Pages that were never written all map to the same physical page.
        let (mut x, mut y) = (AlignedBytes::zeroed(4 * n), AlignedBytes::zeroed(4 * n));
        x.bytes_mut().fill(1);
        y.bytes_mut().fill(2);
        let args = Args {
            inputs: [x.bytes().as_ptr().cast(), std::ptr::null(), std::ptr::null()],
            outputs: [y.bytes_mut().as_mut_ptr().cast(), std::ptr::null_mut()],
            rows,
            cols,
        };
        unsafe fn plain(a: &Args) {
            // SAFETY: two matrices of this size.
            unsafe { std::ptr::copy_nonoverlapping(a.inputs[0], a.outputs[0], a.rows * a.cols) }
        }
        let run = |f: Hand| on_threads(f, &args, [true, false, false], false, threads);
        let [past, through] = race(|| run(hand::copy), || run(plain));
        let best = 8.0 * n as f64 / past.min(through);
        println!(
            "copy of {} MiB on {threads} threads: {:.1} GB/s",
            (4 * n) >> 20,
            best / 1e9
        );
        best
    }

    pub fn main() {
        if !(is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq")) {
            println!("NOT MEASURED: this machine has no AVX-512");
            return;
        }
        let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
        for [rows, cols] in SIZES {
            let large = rows * cols > 1 << 23;
            for threads in if large { 1..=2 } else { 1..=1 } {
                let copy = large.then(|| copy_bandwidth([rows, cols], threads));
                for c in &CASES {
                    let name = format!("{}.{rows}x{cols}", c.name);
                    if wanted.is_empty() || wanted.iter().any(|w| name.contains(&**w)) {
                        measure(c, [rows, cols], threads, copy);
                    }
                }
            }
        }
    }
}

fn main() {
    #[cfg(target_arch = "x86_64")]
    compared::main();
    #[cfg(not(target_arch = "x86_64"))]
    println!("NOT MEASURED: this machine has no AVX-512");
}
