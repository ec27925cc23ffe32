//! Tensor IR survives printing and parsing.

use crate::lower::ir::Tir;

const ALL: &str = "\
%x: f32[4, 64] = input 0
%w: f32[64, 64] = constant
%max: f32[4, 1] = max(%x) dims=[1] in=f32
%sub: f32[4, 64] = map(%x, %max) { t0 = sub(a0, a1); mul(t0, exp(t0)) }
%e: f32[4, 64] = map(%sub) { exp(a0) } softmax=exponential
%sum: f32[4, 1] = sum(%e) dims=[1] in=f32
%share: f32[4, 64] = map(%e, %sum) { div(a0, a1) } softmax=share
%mean: f32[4, 1] = sum(%sub) dims=[1] in=f64 before { f64.cast(a0) } after { f32.cast(div(a0, f64(64.0))) }
%t: f32[64, 4] = affine(%sub) at=[d1, 63+-1*d0]
%flat: f32[256] = reshape(%sub)
%some: f32[2, 2] = strided(%x) offset=3 strides=[64, 2]
%mm: f32[4, 64] = matmul(%sub, %w, %x) transpose_b=1 alpha=0.5
%relu: f32[4, 64] = map(%mm) { max(a0, f32(0.0)) } activation=relu
%clamp: f32[4, 64] = map(%mm) { min(a0, f32(6.0)) } activation=[0.0, 6.0]
%image: f32[1, 8, 8, 8] = input 1
%kernel: f32[8, 2, 3, 3] = constant
%conv: f32[1, 8, 8, 8] = conv(%image, %kernel) stride=[1, 1] padding=[1, 1] dilation=[1, 1] groups=4 channels_last=[0, 1]
%pool: f32[1, 8, 4, 4] = max_pool(%conv) first=2 kernel=[2, 2] stride=[2, 2] padding=[0, 0] dilation=[1, 1]
%both: f32[8, 64] = concat(%relu, %clamp) dim=0
%pad: f32[10, 64] = pad(%both) before=[1, 0] value=f32(-inf)
%sums: f32[10, 64] = cumsum(%pad) dim=1
return (%sums, %pool)
";

#[test]
fn texts_come_back() {
    let tir = Tir::parse(ALL).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(tir.to_string(), ALL);
}

#[test]
fn mistakes_name_their_line() {
    let error = |text: &str| Tir::parse(text).map(|t| t.to_string()).map_err(|e| e.to_string());
    let undefined = "%x: f32[2] = input 0\n%y: f32[2] = map(%z) { a0 }";
    assert_eq!(error(undefined), Err("line 2: `%z` is not defined above".into()));
    let no_type = "%x: q8[2] = input 0";
    assert_eq!(
        error(no_type),
        Err("line 1: `q8[2]` is not a type like `f32[2, 3]`".into())
    );
    let no_dims = "%x: f32[2] = input 0\n%y: f32[1] = sum(%x)";
    assert_eq!(error(no_dims), Err("line 2: `sum` needs `dims=[…]`".into()));
    let unknown = "%x: f32[2] = input 0\n%y: f32[2] = sort(%x)";
    let message = "line 2: `sort` is not a readable operation of the tensor IR";
    assert_eq!(error(unknown), Err(message.into()));
}
