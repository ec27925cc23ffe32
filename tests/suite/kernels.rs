//! Kernels survive printing and parsing: those of every example, and of every archive among the fixtures.

use crate::support::{Dir, examples, fxc, root};
use fxc::internals::driver::{Dims, Request, Session, Stage, compile};
use fxc::internals::kernel::Kernel;

#[test]
fn every_kernel_comes_back_from_its_text() {
    let data = std::fs::read_dir(root().join("tests/data")).unwrap();
    let archives = data
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "pt2"));
    let examples = examples().into_iter().map(|e| root().join(e));
    let mut kernels = 0;
    for path in examples.chain(archives) {
        for kernel in kernels_of(&path.display().to_string()) {
            let text = kernel.to_string();
            let again = Kernel::parse(&text).unwrap_or_else(|e| panic!("{}: {e}\n{text}", path.display()));
            assert_eq!(again.to_string(), text, "{}", path.display());
            assert!(again == kernel || text.contains("NaN"), "{}\n{text}", path.display());
            kernels += 1;
        }
    }
    assert!(kernels > 50, "{kernels} kernels");
}

/// The kernels of a model; none if it cannot be compiled without types of inputs.
fn kernels_of(path: &str) -> Vec<Kernel> {
    let mut s = Session::new();
    let Ok(model) = s.load(path) else { return vec![] };
    let request = Request {
        dims: Dims::from([("N".to_string(), 4)]),
        threads: 1,
        until: Some(Stage::Lower),
        ..Request::default()
    };
    let made = compile(&mut s, model, &request);
    made.ok().and_then(|m| m.program).map_or(vec![], |p| p.kernels)
}

/// Tiles with rests, mirrored dims and batches, of elements of every size.
#[test]
fn transposed_maps_agree_with_the_interpreter() {
    let dir = Dir::new("transposed-maps");
    for (dtype, call) in [
        ("f32[100, 96]", "torch.t(%x)"),
        ("f32[96, 100]", "torch.rot90(%x, 1, [0, 1])"),
        ("f32[100, 96]", "torch.rot90(%x, -1, [0, 1])"),
        ("f64[3, 72, 80]", "torch.transpose(%x, 1, 2)"),
        ("bf16[2, 40, 3, 70]", "torch.permute(%x, [0, 3, 2, 1])"),
        ("u8[130, 128]", "torch.t(%x)"),
    ] {
        let text = format!(
            "graph main {{\n%x : {dtype} = placeholder x\n%t = call_function {call}\n\
             %c = call_function aten.clone.default(%t, memory_format=torch.contiguous_format)\n\
             %y = call_function torch.neg(%t)\noutput (%c, %y)\n}}\n"
        );
        let file = dir.file("t.fxir", text);
        let ran = fxc(&["run", &file, "x=rand:1", "--check"]);
        assert!(
            ran.code == 0 && format!("{}{}", ran.out, ran.err).contains("maximum difference 0.0e0"),
            "{dtype} {call}: {}{}",
            ran.out,
            ran.err
        );
    }
}

/// Adaptive maxima over windows of one size are kernels if their indices are unused.
#[test]
fn adaptive_pools_of_equal_windows_are_kernels() {
    let dir = Dir::new("adaptive-pools");
    for (shape, call) in [
        ("f32[2, 3, 12]", "aten.adaptive_max_pool1d.default(%x, [1])"),
        ("f32[2, 3, 12]", "aten.adaptive_max_pool1d.default(%x, [4])"),
        ("bf16[2, 3, 8, 6]", "aten.adaptive_max_pool2d.default(%x, [1, 1])"),
        ("f64[3, 8, 6]", "aten.adaptive_max_pool2d.default(%x, [2, 6])"),
        ("f32[1, 2, 4, 4, 6]", "aten.adaptive_max_pool3d.default(%x, [2, 1, 3])"),
    ] {
        let text = format!(
            "graph main {{\n%x : {shape} = placeholder x\n%both = call_function {call}\n\
             %y = call_function operator.getitem(%both, 0)\n\
             %unused = call_function operator.getitem(%both, 1)\noutput %y\n}}\n"
        );
        let file = dir.file("pool.fxir", text);
        assert!(!kernels_of(&file).is_empty(), "{shape} {call}");
        let ran = fxc(&["run", &file, "x=randn:1", "--check"]);
        assert!(
            ran.code == 0 && format!("{}{}", ran.out, ran.err).contains("maximum difference 0.0e0"),
            "{shape} {call}: {}{}",
            ran.out,
            ran.err
        );
    }
}

/// Two layers in both directions, with states and without biases: steps between conversions.
#[test]
fn recurrent_networks_of_half_types_are_steps() {
    let dir = Dir::new("half-recurrent");
    for dtype in ["bf16", "f16"] {
        for (call, gates) in [
            ("torch.lstm(%x, [%h, %c], [%a, %b, %a, %b, %d, %b, %d, %b]", 4),
            ("torch.gru(%x, %h, [%a, %b, %a, %b, %d, %b, %d, %b]", 3),
        ] {
            let rows = 16 * gates;
            let text = format!(
                "graph main {{\n%x : {dtype}[7, 3, 24] = placeholder x\n%h : {dtype}[4, 3, 16] = placeholder h\n\
                 %c : {dtype}[4, 3, 16] = placeholder c\n%a : {dtype}[{rows}, 24] = placeholder a\n\
                 %b : {dtype}[{rows}, 16] = placeholder b\n%d : {dtype}[{rows}, 32] = placeholder d\n\
                 %y = call_function {call}, False, 2, 0.0, False, True, False)\noutput %y\n}}\n"
            );
            let file = dir.file("net.fxir", text);
            let inputs = [
                "x=randn:1",
                "h=randn:2",
                "c=randn:3",
                "a=randn:4",
                "b=randn:5",
                "d=randn:6",
            ];
            // Products of bf16 round the state, as PyTorch's do, and weights of this size amplify it.
            let tolerance: &[&str] = if dtype == "bf16" {
                &["--rtol", "2e-2", "--atol", "3e-2"]
            } else {
                &[]
            };
            let ran = fxc(&[&["run", &file, "--check"][..], tolerance, &inputs].concat());
            assert!(ran.code == 0, "{dtype} {call}: {}{}", ran.out, ran.err);
            let profile = fxc(&[&["bench", &file, "--seconds", "0.01", "--profile"][..], &inputs].concat());
            let all = format!("{}{}", profile.out, profile.err);
            assert!(all.contains("[recurrent") && !all.contains("library"), "{all}");
        }
    }
}

/// A batch normalisation of 16 bits, with what follows it, after each kind of convolution and after a product.
#[test]
fn normalisations_of_16_bits_agree_with_the_interpreter() {
    let dir = Dir::new("half-norms");
    let norm = |x: &str, n: usize, c: &str| {
        format!(
            "%f{n} = call_function Tensor.to(%{x}, torch.float32)\n%m{n} = call_function torch.mul(%f{n}, %s{c})\n\
             %a{n} = call_function torch.add(%m{n}, %h{c})\n%n{n} = call_function Tensor.to(%a{n}, torch.bfloat16)\n"
        )
    };
    let text = format!(
        "graph main {{\n%x : bf16[2, 48, 9, 11] = placeholder x\n%w : bf16[80, 48, 1, 1] = placeholder w\n\
         %d : bf16[80, 1, 3, 3] = placeholder d\n%v : bf16[80, 80, 3, 3] = placeholder v\n%p : bf16[80, 80] = placeholder p\n\
         %s : f32[80, 1, 1] = placeholder s\n%h : f32[80, 1, 1] = placeholder h\n\
         %st = call_function torch.reshape(%s, [80])\n%ht = call_function torch.reshape(%h, [80])\n\
         %c1 = call_function torch.conv2d(%x, %w)\n{}%r1 = call_function torch.nn.functional.relu6(%n1)\n\
         %c2 = call_function torch.conv2d(%r1, %d, None, 1, 1, 1, 80)\n{}%r2 = call_function torch.relu(%n2)\n\
         %c3 = call_function torch.conv2d(%r2, %v, None, 1, 1)\n{}%r3 = call_function torch.add(%r1, %n3)\n\
         %r4 = call_function torch.relu(%r3)\n%t = call_function torch.mean(%r4, [2, 3])\n\
         %c5 = call_function torch.matmul(%t, %p)\n{}output (%r4, %n5)\n}}\n",
        norm("c1", 1, ""),
        norm("c2", 2, ""),
        norm("c3", 3, ""),
        norm("c5", 5, "t"),
    );
    let file = dir.file("norms.fxir", text);
    let inputs = [
        "x=randn:1",
        "w=randn:2",
        "d=randn:3",
        "v=randn:4",
        "p=randn:5",
        "s=rand:6",
        "h=randn:7",
    ];
    for threads in ["1", "2"] {
        let check = [
            "run",
            &file,
            "--check",
            "--threads",
            threads,
            "--rtol",
            "2e-2",
            "--atol",
            "2e-2",
        ];
        let ran = fxc(&[&check[..], &inputs].concat());
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    }
}
