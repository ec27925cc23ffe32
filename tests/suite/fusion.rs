//! Fusion: the report, the kernels, and their results, which do not depend on the number of threads.

use crate::support::{Dir, fxc, snapshot_in};
use fxc::internals::driver::text::Artifact;
use fxc::internals::driver::{Request, Session, Stage, compile};
use fxc::internals::tensor::Tensor;
use fxc::interp;
use fxc::types::{DType, Val};

const SOFTMAX: &str = "
graph rows_in_stages {
    %x : f32[128, 128] = placeholder x
    %y : f32[128, 128] = placeholder y
    %sum = call_function torch.add(%x, %y)
    %soft = call_function torch.softmax(%sum, -1)
    %t = call_method transpose(%soft, 0, 1)
    %twice = call_function torch.mul(%t, 2.0)
    output %twice
}
";

const BESIDE: &str = "
graph independent {
    %x : f32[4, 64] = placeholder x
    %y : f32[4, 64] = placeholder y
    %z : f32[64, 4] = placeholder z
    %a = call_function torch.relu(%x)
    %b = call_function torch.sigmoid(%y)
    %c = call_function torch.neg(%z)
    output (%a, %b, %c)
}
";

const SHARES: &str = "
graph one_reading {
    %x : f32[512, 512] = placeholder x
    %y : f32[512, 512] = placeholder y
    %z : f32[512, 512] = placeholder z
    %a = call_function torch.add(%x, %y)
    %b = call_function torch.mul(%x, %z)
    output (%a, %b)
}
";

/// The mean of squared differences: one long row of a length that is not divisible.
const LOSS: &str = "
graph loss {
    %x : f32[1000003] = placeholder x
    %y : f32[1000003] = placeholder y
    %d = call_function torch.sub(%x, %y)
    %s = call_function torch.mul(%d, %d)
    %mean = call_function torch.mean(%s)
    output %mean
}
";

/// Sums of few columns, and operations on them.
const COLUMNS: &str = "
graph columns {
    %x : f32[40000, 8] = placeholder x
    %mean = call_function torch.mean(%x, 0, True)
    %var = call_function torch.var(%x, 0, unbiased=False)
    %c = call_function torch.sub(%x, %mean)
    %top = call_function torch.amax(%c, 0)
    output (%var, %top)
}
";

/// Softmax of two long rows: kernels pass exponentials to other kernels.
const LONG_ROWS: &str = "
graph long_rows {
    %x : f32[2, 150001] = placeholder x
    %y = call_function torch.softmax(%x, -1)
    output %y
}
";

const SHORT_ROWS: &str = "
graph short_rows {
    %x : f32[100, 8] = placeholder x
    %y : f32[100, 49] = placeholder y
    %a = call_function torch.softmax(%x, -1)
    %b = call_function torch.sum(%y, -1)
    output (%a, %b)
}
";

/// Operations that can be fused with products, and operations that cannot.
const PRODUCTS: &str = "
graph products {
    %x : f32[64, 96] = placeholder x
    %w : f32[96, 96] = placeholder w
    %a = call_function torch.nn.functional.linear(%x, %w)
    %gelu = call_function torch.nn.functional.gelu(%a)
    %b = call_function torch.matmul(%gelu, %w)
    %relu = call_function torch.relu(%b)
    %c = call_function torch.matmul(%relu, %w)
    %soft = call_function torch.softmax(%c, -1)
    %d = call_function torch.matmul(%soft, %w)
    %t = call_method transpose(%d, 0, 1)
    %sum = call_function torch.add(%t, 1.0)
    %e = call_function torch.matmul(%sum, %x)
    %neg = call_function torch.neg(%e)
    output (%neg, %e)
}
";

/// A 1x1 convolution and the depthwise one after it: worth merging on a large image, but not on a small one.
const BANDS: &str = "
graph bands {
    %x : f32[1, 16, 40, 40] = placeholder x
    %s : f32[1, 16, 8, 8] = placeholder s
    %q : f32[16, 16, 1, 1] = placeholder q
    %w : f32[96, 16, 1, 1] = placeholder w
    %k : f32[96, 1, 3, 3] = placeholder k
    %p : f32[16, 96, 1, 1] = placeholder p
    %first = call_function torch.conv2d(%x, %q)
    %wide = call_function torch.conv2d(%first, %w)
    %six = call_function torch.nn.functional.relu6(%wide)
    %deep = call_function torch.conv2d(%six, %k, None, 1, 1, 1, 96)
    %narrow = call_function torch.conv2d(%deep, %p)
    %first_s = call_function torch.conv2d(%s, %q)
    %wide_s = call_function torch.conv2d(%first_s, %w)
    %six_s = call_function torch.nn.functional.relu6(%wide_s)
    %deep_s = call_function torch.conv2d(%six_s, %k, None, 1, 1, 1, 96)
    %narrow_s = call_function torch.conv2d(%deep_s, %p)
    output (%narrow, %narrow_s)
}
";

/// Attention within shifted windows, decomposed: scores with a bias per head and a mask per window, which one step
/// keeps in cache. Where a plain softmax yields NaN, so does the step.
const WINDOWS: &str = "
graph windows {
    %x : f32[1, 6, 6, 16] = placeholder x
    %bias : f32[2, 9, 9] = placeholder bias
    %mask : f32[4, 9, 9] = placeholder mask
    %rolled = call_function torch.roll(%x, [-1, -1], [1, 2])
    %split = call_method view(%rolled, [1, 2, 3, 2, 3, 16])
    %parts = call_method permute(%split, 0, 1, 3, 2, 4, 5)
    %rows = call_method reshape(%parts, 4, 9, 2, 8)
    %q = call_method transpose(%rows, 1, 2)
    %small = call_function torch.mul(%q, 0.35)
    %kt = call_method transpose(%q, -2, -1)
    %dot = call_function torch.matmul(%small, %kt)
    %biased = call_function torch.add(%dot, %bias)
    %wide = call_method view(%biased, [1, 4, 2, 9, 9])
    %a = call_method unsqueeze(%mask, 1)
    %b = call_method unsqueeze(%a, 0)
    %masked = call_function torch.add(%wide, %b)
    %scores = call_method view(%masked, [-1, 2, 9, 9])
    %p = call_function torch.softmax(%scores, -1)
    %y = call_function torch.matmul(%p, %q)
    %turned = call_method transpose(%y, 1, 2)
    %out = call_method reshape(%turned, 4, 9, 16)
    %last = call_function torch.mul(%out, 2.0)
    output %last
}
";

/// Consecutive kernels that are not merged, each pair for a different reason.
const NEIGHBOURS: &str = "
graph neighbours {
    %x : f32[4, 64] = placeholder x
    %y : f32[8, 64] = placeholder y
    %z : f32[64, 4] = placeholder z
    %w : f32[64, 64] = placeholder w
    %large : f32[512, 512] = placeholder large
    %a = call_function torch.sum(%x, 0)
    %b = call_function torch.sum(%x, 1)
    %c = call_function torch.relu(%x)
    %zt = call_method transpose(%z, 0, 1)
    %d = call_function torch.neg(%zt)
    %e = call_function torch.relu(%y)
    %f = call_function torch.sigmoid(%large)
    %s = call_function torch.amax(%b)
    %g = call_function torch.mul(%large, %s)
    %p = call_function torch.matmul(%x, %w)
    %h = call_function torch.amax(%p, 1)
    %m = call_function torch.cumsum(%e, 0)
    %i = call_function torch.neg(%m)
    output (%a, %b, %c, %d, %e, %f, %g, %h, %i)
}
";

/// Name, text, and the minimal magnitude to which errors are relative.
const ALL: [(&str, &str, f32); 11] = [
    ("softmax", SOFTMAX, 1e-3),
    ("beside", BESIDE, 1.0),
    ("shares", SHARES, 1.0),
    ("loss", LOSS, 1.0),
    ("columns", COLUMNS, 1.0),
    ("long_rows", LONG_ROWS, 1e-5),
    ("short_rows", SHORT_ROWS, 1.0),
    ("products", PRODUCTS, 1e3),
    ("bands", BANDS, 1e3),
    ("windows", WINDOWS, 1.0),
    ("neighbours", NEIGHBOURS, 1.0),
];

#[test]
fn reports_and_kernels() {
    for (name, text, _) in ALL {
        let mut s = Session::new();
        let model = s.load_text("fusion.fxir", text);
        let model = model.unwrap_or_else(|_| panic!("{:?}", s.diagnostics));
        let request = Request {
            artifacts: vec![Artifact::Fusion],
            until: Some(Stage::Lower),
            threads: 1,
            ..Request::default()
        };
        let made = compile(&mut s, model, &request).unwrap_or_else(|_| panic!("{:?}", s.diagnostics));
        let program = made.program.expect("a program");
        let kernels: String = program
            .kernels
            .iter()
            .map(|k| format!("\n{}", fxc::internals::kernel::python::print_function(k)))
            .collect();
        let report = &made.texts[0].1;
        snapshot_in(
            "fusion",
            name,
            &format!(
                "{}\n=== fusion ===\n{report}\n=== kernels ===\n{program}{kernels}",
                text.trim()
            ),
        );
    }
}

fn input(shape: &[usize]) -> Tensor {
    let numel: usize = shape.iter().product();
    let data: Vec<f32> = (0..numel).map(|i| ((i * 7919) % 2003) as f32 / 500.0 - 2.0).collect();
    Tensor::from_slice(shape, &data)
}

/// The results of a graph on `threads` threads.
fn run(text: &str, threads: usize) -> (Val<Tensor>, Vec<Tensor>) {
    let mut s = Session::new();
    let model = s.load_text("fusion.fxir", text);
    let model = model.unwrap_or_else(|_| panic!("{:?}", s.diagnostics));
    let made = compile(
        &mut s,
        model,
        &Request {
            threads,
            ..Request::default()
        },
    );
    let made = made.unwrap_or_else(|_| panic!("{:?}", s.diagnostics));
    let mut e = made.ready.and_then(|r| r.into_executable()).expect("an executable");
    let inputs: Vec<Tensor> = e
        .program()
        .inputs
        .iter()
        .filter_map(|i| Some(input(&i.ty.as_ref()?.1)))
        .collect();
    (e.run(&inputs).unwrap_or_else(|d| panic!("{}", d.title)), inputs)
}

#[test]
fn results_are_the_interpreter_s_and_the_same_bits_on_any_number_of_threads() {
    for (name, text, least) in ALL {
        let (one, inputs) = run(text, 1);
        for threads in [2, 3, 8] {
            let (more, _) = run(text, threads);
            for (a, b) in one.leaves().into_iter().zip(more.leaves()) {
                assert_eq!(a.bytes(), b.bytes(), "{name} on {threads} threads");
            }
        }
        let mut s = Session::new();
        let mut model = s
            .load_text("fusion.fxir", text)
            .unwrap_or_else(|_| panic!("{:?}", s.diagnostics));
        let types: Vec<_> = inputs.iter().map(|t| Val::Leaf(t.ty())).collect();
        s.check(&mut model.module, &types)
            .unwrap_or_else(|_| panic!("{:?}", s.diagnostics));
        let want = interp::run(&model.module, inputs.into_iter().map(Val::Leaf).collect());
        let want = want.unwrap_or_else(|d| panic!("{}", d.title));
        for (w, g) in want.leaves().into_iter().zip(one.leaves()) {
            assert_eq!((w.shape(), w.dtype()), (g.shape(), DType::F32), "{name}");
            for (a, b) in w.as_slice::<f32>().iter().zip(g.as_slice::<f32>()) {
                assert!((a - b).abs() <= 3e-6 * a.abs().max(least), "{name}: {a} and {b}");
            }
        }
    }
}

/// Ops without a torch name are decomposed when the optimised graph is written for PyTorch.
#[test]
fn python_of_optimised_attention_has_torchs_names_only() {
    let dir = Dir::new("windows");
    let path = dir.file("g.fxir", WINDOWS);
    let graph = fxc(&["compile", &path, "--emit", "optimized"]);
    assert!(graph.out.contains("biased_attention"), "{}", graph.out);
    let code = fxc(&["emit-code", &path, "--stage", "optimized"]);
    assert_eq!(code.code, 0, "{}", code.err);
    assert!(!code.out.contains("biased_attention"), "{}", code.out);
    assert!(code.out.contains("torch.ops.aten.matmul"), "{}", code.out);
}

#[test]
fn the_command_line_explains() {
    let dir = Dir::new("fusion");
    let path = dir.file("g.fxir", SOFTMAX);
    let ran = fxc(&["compile", &path, "--explain-fusion"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("of memory traffic; about"), "{}", ran.out);
    assert!(ran.out.contains("at other positions than its own"), "{}", ran.out);
    let emitted = fxc(&["compile", &path, "--emit", "fusion"]);
    assert_eq!(emitted.out, ran.out);
}

/// Kernels that read one element for each column of a product or for each channel are epilogues, with any number of columns.
#[test]
fn kernels_with_a_value_for_each_column_are_epilogues() {
    let dir = Dir::new("column-epilogues");
    let linear = |dtype: &str, n: usize| {
        format!(
            "graph layer_scale {{
    %x : {dtype}[2, 37, 48] = placeholder x
    %w : {dtype}[{n}, 48] = placeholder w
    %g : {dtype}[{n}] = placeholder g
    %p : {dtype}[37, {n}] = placeholder p
    %y = call_function torch.nn.functional.linear(%x, %w)
    %s = call_function torch.mul(%y, %g)
    %t = call_function torch.add(%s, %p)
    %r = call_function torch.sigmoid(%t)
    output %r
}}"
        )
    };
    let conv = "graph channels {
    %x : f32[2, 48, 9, 9] = placeholder x
    %w : f32[96, 48, 3, 3] = placeholder w
    %v : f32[64, 96, 1, 1] = placeholder v
    %g : f32[96, 1, 1] = placeholder g
    %y = call_function torch.conv2d(%x, %w)
    %s = call_function torch.mul(%y, %g)
    %t = call_function torch.tanh(%s)
    %z = call_function torch.conv2d(%t, %v)
    output %z
}";
    let cases = [
        (linear("f32", 64), "x=randn:1 w=randn:2 g=randn:3 p=randn:4"),
        (linear("f32", 577), "x=randn:1 w=randn:2 g=randn:3 p=randn:4"),
        (linear("bf16", 96), "x=randn:1 w=randn:2 g=randn:3 p=randn:4"),
        (conv.to_string(), "x=randn:1 w=randn:2 v=randn:3 g=randn:4"),
    ];
    for (text, inputs) in cases {
        let file = dir.file("graph.fxir", &text);
        let ran = fxc(&["compile", &file, "--explain-fusion"]);
        assert!(
            format!("{}{}", ran.out, ran.err).contains("epilogue on each tile"),
            "{text}\n{}{}",
            ran.out,
            ran.err
        );
        for threads in ["1", "2"] {
            let mut args = vec![
                "run",
                &file,
                "--check",
                "--threads",
                threads,
                "--rtol",
                "1e-2",
                "--atol",
                "1e-3",
            ];
            args.extend(inputs.split(' '));
            let ran = fxc(&args);
            assert_eq!(ran.code, 0, "{text}\n{}", ran.err);
        }
    }
}
