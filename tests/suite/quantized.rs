//! Weights that graphs compute from integers: compiled products read the integers, and agree with the interpreter.

use fxc::internals::driver::{Request, Session, compile};
use fxc::internals::target::{PairUnit, Target};
use fxc::internals::tensor::{SplitMix, Tensor};
use fxc::interp;
use fxc::pass::PassOptions;
use fxc::types::Val;

/// The sizes of the weight, which is stored as `[N, K]`.
const N: usize = 72;
const K: usize = 128;

/// A constant with random values from `least` on, of which there are `count`, divided by `divisor`.
fn constant(name: &str, ty: &str, sizes: &[usize], [least, count]: [i64; 2], divisor: f64) -> String {
    let mut random = SplitMix::new(name.len() as u64 + 1);
    let mut number = || (least + random.next_below(count as usize) as i64) as f64 / divisor;
    let shown = |x: f64| {
        if ty.starts_with('f') {
            format!("{x:?}")
        } else {
            format!("{x}")
        }
    };
    let rank = sizes.len();
    let row = sizes[rank - 1];
    let rows: Vec<String> = (0..sizes.iter().product::<usize>() / row)
        .map(|_| {
            let items: Vec<String> = (0..row).map(|_| shown(number())).collect();
            format!("[{}]", items.join(", "))
        })
        .collect();
    let value = if rank == 1 {
        rows[0].clone()
    } else {
        format!("[{}]", rows.join(", "))
    };
    format!("const {name} : {ty}{sizes:?} = {value}\n")
}

/// Runs a graph of `%x : f32[m, K]` that computes `%y`, compiled and interpreted. Returns how its products are computed.
fn methods(body: &str, m: usize) -> Vec<String> {
    methods_for(body, m, Target::native())
}

/// [`methods`] for a target.
fn methods_for(body: &str, m: usize, target: Target) -> Vec<String> {
    let groups = K / 32;
    let constants = [
        constant("w", "i8", &[N, K], [-8, 16], 1.0),
        constant("wide", "i8", &[N, K], [-128, 256], 1.0),
        constant("bytes", "u8", &[N, K], [0, 256], 1.0),
        constant("row", "f32", &[N, 1], [1, 100], 64.0),
        constant("zero", "i64", &[N, 1], [-8, 16], 1.0),
        constant("gscale", "f32", &[N, groups], [1, 100], 64.0),
        constant("gzero", "i32", &[N, groups], [-8, 16], 1.0),
        constant("scales", "f32", &[N], [1, 100], 64.0),
        constant("small", "f32", &[N], [1, 100], 16384.0),
    ];
    let text = format!(
        "{}graph main {{\n    %x : f32[{m}, {K}] = placeholder x\n{body}\n    output %y\n}}\n",
        constants.concat()
    );
    let used: Vec<String> = text.lines().map(str::to_string).collect();
    let mut gets = String::new();
    for name in [
        "w", "wide", "bytes", "row", "zero", "gscale", "gzero", "scales", "small",
    ] {
        if body.contains(&format!("%{name}")) {
            gets += &format!("    %{name} = get_attr {name}\n");
        }
    }
    let place = used
        .iter()
        .position(|l| l.contains("placeholder"))
        .expect("a placeholder");
    let text = [&used[..=place], &[gets.trim_end().to_string()], &used[place + 1..]]
        .concat()
        .join("\n");
    let mut random = SplitMix::new(5);
    let data: Vec<f32> = (0..m * K).map(|_| random.next_below(64) as f32 / 16.0 - 2.0).collect();
    let x = Tensor::from_slice(&[m, K], &data);
    let mut session = Session::new();
    session.target = Some(target);
    let mut model = session
        .load_text("quantized.fxir", &text)
        .unwrap_or_else(|_| panic!("{:?}", session.diagnostics));
    let types = [Val::Leaf(x.ty())];
    session
        .check(&mut model.module, &types)
        .unwrap_or_else(|_| panic!("{:?}", session.diagnostics));
    let want = interp::run(&model.module, vec![Val::Leaf(x.clone())]).unwrap_or_else(|d| panic!("{}", d.title));
    let mut passes = PassOptions::default();
    // Larger weights are not folded; these are small.
    passes.fold_limit = 0;
    let request = Request {
        passes,
        ..Request::default()
    };
    let made = compile(&mut session, model, &request).unwrap_or_else(|_| panic!("{:?}", session.diagnostics));
    let mut executable = made.ready.and_then(|r| r.into_executable()).expect("an executable");
    executable.start_profile();
    let got = executable.run(&[x]).unwrap_or_else(|d| panic!("{}", d.title));
    let (want, got) = (want.leaves()[0].clone(), got.leaves()[0].clone());
    for (a, b) in want
        .to(fxc::types::DType::F32)
        .as_slice::<f32>()
        .iter()
        .zip(got.to(fxc::types::DType::F32).as_slice::<f32>())
    {
        let most = if want.dtype() == fxc::types::DType::F32 {
            1e-3
        } else {
            2e-2 * a.abs().max(100.0)
        };
        assert!((a - b).abs() <= most, "{a} and {b}\n{body}");
    }
    let steps = executable.profile().rows.into_iter().map(|r| r.name);
    steps
        .filter(|name| name.contains("matmul") || name.contains("conv"))
        .collect()
}

fn reads_integers(body: &str) {
    for m in [1, 3, 20] {
        let found = methods(body, m);
        assert!(
            found.iter().all(|f| f.contains("integers")) && !found.is_empty(),
            "{found:?}\n{body}"
        );
    }
}

#[test]
fn converted_integers() {
    reads_integers(
        "    %t = call_method t(%w)
    %f = call_method to(%t, torch.float32)
    %y = call_function torch.mm(%x, %f)",
    );
    reads_integers(
        "    %f = call_method to(%bytes, torch.float32)
    %y = call_function torch.nn.functional.linear(%x, %f)",
    );
}

#[test]
fn scales_and_zero_points_of_columns() {
    reads_integers(
        "    %f = call_method to(%wide, torch.float32)
    %z = call_function torch.sub(%f, %zero)
    %d = call_function torch.mul(%z, %row)
    %y = call_function torch.nn.functional.linear(%x, %d)",
    );
    reads_integers(
        "    %f = call_method float(%bytes)
    %z = call_function torch.sub(%f, 128)
    %d = call_function torch.mul(%row, %z)
    %y = call_function torch.nn.functional.linear(%x, %d)",
    );
    reads_integers(
        "    %d = call_function quantized_decomposed.dequantize_per_channel.default(%w, %scales, None, 0, -8, 7, torch.int8)
    %y = call_function torch.nn.functional.linear(%x, %d)",
    );
    reads_integers("    %y = call_function aten._weight_int8pack_mm.default(%x, %wide, %scales)");
}

#[test]
fn scales_and_zero_points_of_groups() {
    reads_integers(
        "    %v = call_method view(%w, 72, 4, 32)
    %i = call_method to(%v, torch.int32)
    %uz = call_method unsqueeze(%gzero, -1)
    %z = call_function torch.sub(%i, %uz)
    %us = call_method unsqueeze(%gscale, -1)
    %f = call_method float(%z)
    %m = call_function torch.mul(%f, %us)
    %d = call_method view(%m, 72, 128)
    %y = call_function torch.nn.functional.linear(%x, %d)",
    );
    reads_integers(
        "    %d = call_function torchao.dequantize_affine.default(%w, [1, 32], %gscale, %gzero, torch.int8, -8, 7)
    %y = call_function torch.nn.functional.linear(%x, %d)",
    );
}

#[test]
fn weights_of_16_bits() {
    let body = "    %h = call_method to(%x, torch.bfloat16)
    %f = call_method to(%w, torch.bfloat16)
    %b = call_method to(%row, torch.bfloat16)
    %d = call_function torch.mul(%f, %b)
    %y = call_function torch.nn.functional.linear(%h, %d)";
    for m in [1, 20] {
        assert_eq!(methods(body, m).len(), 1);
    }
}

#[test]
fn other_weights_are_computed() {
    // Something else reads the weight, or it is no difference times a scale.
    for body in [
        "    %f = call_method float(%w)
    %p = call_function torch.nn.functional.linear(%x, %f)
    %s = call_function torch.sum(%f)
    %y = call_function torch.add(%p, %s)",
        "    %f = call_method float(%w)
    %e = call_function torch.exp(%f)
    %l = call_function torch.log1p(%e)
    %y = call_function torch.nn.functional.linear(%x, %l)",
        "    %f = call_method float(%w)
    %d = call_function torch.mul(%f, %f)
    %y = call_function torch.nn.functional.linear(%x, %d)",
    ] {
        let found = methods(body, 3);
        assert!(
            found.iter().all(|f| !f.contains("integers")) && !found.is_empty(),
            "{found:?}"
        );
    }
}

/// Quantized inputs: products of integers, with units for bytes or for bf16 where the machine has them.
#[test]
fn inputs_and_weights_of_integers() {
    let input = |x: &str, scale: &str, zero: &str, form: &str| {
        let parameters = format!("{scale}, {zero}, 0, 255, torch.uint8");
        format!(
            "    %q = call_function quantized_decomposed.quantize_per_tensor.{form}(%{x}, {parameters})
    %d = call_function quantized_decomposed.dequantize_per_tensor.{form}(%q, {parameters})\n"
        )
    };
    let weight = |w: &str| {
        format!(
            "    %e = call_function quantized_decomposed.dequantize_per_channel.default(%{w}, %small, None, 0, -128, 127, torch.int8)\n"
        )
    };
    let fixed = input("x", "0.03125", "64", "default");
    let linear = "    %y = call_function torch.nn.functional.linear(%d, %e, %scales)";
    let measured = "    %p = call_function quantized_decomposed.choose_qparams.tensor(%x, 0, 255, 1e-6, torch.uint8)
    %s = call_function operator.getitem(%p, 0)
    %z = call_function operator.getitem(%p, 1)\n";
    let image = "    %i = call_method view(%x, 20, 8, 4, 4)
    %v = call_method view(%wide, 72, 8, 4, 4)\n";
    let padded = "    %y = call_function torch.nn.functional.conv2d(%d, %e, %scales, 1, 1)";
    for body in [
        format!("{fixed}{}{linear}", weight("wide")),
        format!(
            "{measured}{}{}{linear}",
            input("x", "%s", "%z", "tensor"),
            weight("wide")
        ),
        format!(
            "{image}{}{}{padded}",
            input("i", "0.03125", "64", "default"),
            weight("v")
        ),
    ] {
        let targets = ["native", "native-amx-int8-avx512vnni", "native-avx512f"];
        for target in targets.map(|t| Target::parse(t).expect("a target")) {
            check_units(&body, target);
        }
    }
}

/// Checks that a product of integers uses the units of the target.
fn check_units(body: &str, target: Target) {
    let found = methods_for(body, 20, target);
    let [bytes, pairs] = [target.byte_unit(), target.pair_unit()].map(|unit| unit != PairUnit::Widening);
    let is_of_bytes = found[0].contains("int8");
    let is_of_pairs = found[0].contains("f32 in bf16");
    assert!(
        found.len() == 1 && is_of_bytes == bytes && is_of_pairs == (pairs && !bytes),
        "{found:?}\n{body}"
    );
}
