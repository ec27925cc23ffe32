//! Kernels survive printing and parsing.

use crate::kernel::Kernel;

const ALL: &str = "\
kernel everything
in x: f32[4, 8]
in ids: i64[4]
in table: f32[100, 8] streams
out y: f32[4, 8]
inout z: f32[4]
local row: f32[8]
parallel for i0 in 4 {
    v0: f32 = f32(-inf)
    vector for i1 in 8 {
        v1: f32 @max = x[8 * i0 + i1]
        reduce max v1 from v0 to v2: f32 @max
    }
    v3: i64 = ids[i0]
    v4: i64 = bounded(v3, 100, wrap)
    v5: f32 = f32(0.0)
    vector for i2 in 8 {
        v6: f32 = table[i2 + 8 * v4]
        v7: f32 = x[8 * i0 + i2 - 1] where 0 <= i2 - 1 < 8 and 0 <= i0 < 4 else f32(0.5)
        v8: f32 = sub(v7, v2)
        v9: f32 @softmax = exp(v8) share
        v10: f32 = fma(v9, v6, v5)
        v11: b8 = lt(v10, v5)
        v12: f32 = select(v11, v5, v10)
        row[i2] = v12
        reduce add v12 from v5 to v13: f32
    }
    v14: i64 = i64(-1)
    for i3 in 8 {
        carry v15: f32 from v13 by v18 to v19: f32
        v16: f32 = row[7 - i3]
        v17: i64 = index -i3 + 7
        v18: f32 = max(v15, v16)
        v20: f64 = f64.cast(v18)
        v21: f32 = f32.cast(v20)
        y[8 * i0 + i3] = v21
        reduce argmax v16, v17 from v0, v14 to v22: f32, v23: i64
    }
    z[i0] = v19
}
";

#[test]
fn texts_come_back() {
    let canonical = ALL.replace("row[7 - i3]", "row[-i3 + 7]");
    let kernel = Kernel::parse(ALL).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(kernel.to_string(), canonical);
    assert_eq!(Kernel::parse(&canonical), Ok(kernel));
}

#[test]
fn mistakes_name_their_line() {
    let error = |body: &str| {
        let text = format!("kernel k\nin x: f32[8]\nout y: f32[8]\nvector for i0 in 8 {{\n{body}\n}}\n");
        Kernel::parse(&text).map(|k| k.to_string()).map_err(|e| e.to_string())
    };
    for (body, message) in [
        ("v0: f32 = x[i0", "line 5: expected `]` before ``"),
        ("v0: q8 = x[i0]", "line 5: `q8` is not a dtype"),
        ("v0: f32 = frob(v0)", "line 5: `frob` does not accept 1 operand"),
        ("v0: f32 = x[i0] y", "line 5: unexpected `y` after the statement"),
        ("v0: f32 = x[i0]\nv0: f32 = x[i0]", "line 6: `v0` is defined twice"),
        ("w[i0] = v0", "line 5: expected `v` followed by a number, found `w`"),
        ("v1: f32 = x[i0]", "`v0` is missing: value numbers must be consecutive"),
        ("}\n}", "line 6: unmatched `}`"),
        ("for i1 in 8 {", "missing `}` of a loop"),
        (
            "v4000000000: f32 = x[i0]",
            "line 5: expected `v` followed by a number, found `v4000000000`",
        ),
        ("v0: f32 = f32(x)", "line 5: `f32(x)` is not a constant"),
    ] {
        assert_eq!(error(body), Err(message.into()), "{body}");
    }
    // The parser verifies the kernels that it reads.
    let outside = error("v0: f32 = x[i0 + 1]\ny[i0] = v0");
    assert_eq!(outside, Err("kernel k: x[i0 + 1] reaches 1..=8 of 8 elements".into()));
}
