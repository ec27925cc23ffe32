//! Tests the recognition rules and their alternatives against the interpreter.

use super::simplify::recognition_rules;
use crate::graph::GraphModule;
use crate::infer::{InferOptions, infer};
use crate::pass::tests::alike;
use crate::rewrite::{RewriteOptions, rewrite};
use crate::source::FileId;

fn module(text: &str) -> GraphModule {
    let (file, d) = crate::syntax::parse_text(FileId(0), text);
    assert!(!d.has_errors(), "{text}\n{d:?}");
    let (mut m, d) = crate::graph::build(&file, "g");
    assert!(!d.has_errors(), "{text}\n{d:?}");
    let d = infer(&mut m, &InferOptions::default());
    assert!(d.is_empty(), "{text}\n{d:?}");
    m
}

/// Applies the rules and checks that the results stay the same up to rounding. Returns the targets of the remaining
/// calls.
fn targets(text: &str) -> Vec<String> {
    let m = module(text);
    let after = alike(m, 2e-5, |m| {
        rewrite(m, recognition_rules(), &RewriteOptions::default()).unwrap_or_else(|d| panic!("{text}\n{d:?}"));
    });
    let g = &after.graphs["g"];
    let calls = g.iter().filter(|&n| g[n].op().is_call() && g[n].users().len() > 0);
    calls.map(|n| g[n].target().to_string()).collect()
}

/// Writes statements with generated names.
#[derive(Default)]
struct Text(String, usize);

impl Text {
    fn call(&mut self, call: String) -> String {
        self.1 += 1;
        let name = format!("%n{}", self.1);
        self.0 += &format!("{name} = call_function {call}\n");
        name
    }

    /// `x`, or `x` multiplied or divided by a number.
    fn scaled(&mut self, x: String, how: usize) -> String {
        match how {
            1 => self.call(format!("mul({x}, 0.5)")),
            2 => self.call(format!("div({x}, 4.0)")),
            _ => x,
        }
    }

    fn product(&mut self, a: String, b: String, flat: bool, shapes: [&str; 3]) -> String {
        if !flat {
            return self.call(format!("matmul({a}, {b})"));
        }
        let a = self.call(format!("view({a}, {})", shapes[0]));
        let b = self.call(format!("reshape({b}, {})", shapes[1]));
        let p = self.call(format!("bmm({a}, {b})"));
        self.call(format!("view({p}, {})", shapes[2]))
    }

    fn softmax(&mut self, s: &str, how: usize) -> String {
        match how {
            0 => return self.call(format!("softmax({s}, 3)")),
            1 => return self.call(format!("_softmax({s}, -1, False)")),
            2 => return self.call(format!("_safe_softmax({s}, -1)")),
            _ => {}
        }
        let p = self.call(format!("_softmax({s}, -1, False)"));
        let zero = self.call(format!("full_like({p}, 0)"));
        if how == 3 {
            let eq = self.call(format!("eq({s}, -inf)"));
            let kept = self.call(format!("logical_not({eq})"));
            let any = self.call(format!("any({kept}, -1, True)"));
            let none = self.call(format!("logical_not({any})"));
            return self.call(format!("where({none}, {zero}, {p})"));
        }
        let kept = self.call(format!("ne({s}, -inf)"));
        let any = self.call(format!("any({kept}, [-1], True)"));
        self.call(format!("where({any}, {p}, {zero})"))
    }
}

/// Decomposed attention, and the op that it should become. `pick` takes the number of choices and returns one of them.
fn attention(mut pick: impl FnMut(usize) -> usize) -> (String, &'static str) {
    let mut t = Text::default();
    let q = t.scaled("%q".into(), pick(3));
    let k = t.scaled("%k".into(), pick(3));
    let turn = ["permute({}, [0, 1, 3, 2])", "transpose({}, -1, 2)"][pick(2)];
    let k = t.call(turn.replace("{}", &k));
    let k = t.scaled(k, pick(3));
    let mut s = t.product(q, k, pick(2) == 1, ["[6, 5, 4]", "[6, 4, 7]", "[2, 3, 5, 7]"]);
    s = t.scaled(s, pick(3));
    let masks = pick(3);
    for mask in &["%mask", "%bias"][..masks] {
        s = t.call(match pick(2) {
            0 => format!("add({s}, {mask})"),
            _ => format!("add({mask}, {s})"),
        });
    }
    let windows = masks < 2 && pick(3) == 1;
    if windows {
        let wide = t.call(format!("view({s}, [1, 2, 3, 5, 7])"));
        let masked = t.call(format!("add({wide}, %windows)"));
        s = t.call(format!("reshape({masked}, [-1, 3, 5, 7])"));
    }
    let how = pick(if windows { 2 } else { 5 });
    let p = t.softmax(&s, how);
    let r = t.product(p, "%v".into(), pick(2) == 1, ["[6, 5, 7]", "[6, 7, 8]", "[2, 3, 5, 8]"]);
    let text = format!(
        "graph g {{
            %q : f32[2, 3, 5, 4] = placeholder q
            %k : f32[2, 3, 7, 4] = placeholder k
            %v : f32[2, 3, 7, 8] = placeholder v
            %mask : f32[2, 1, 5, 7] = placeholder mask
            %bias : f32[3, 5, 7] = placeholder bias
            %windows : f32[1, 2, 1, 5, 7] = placeholder windows
            {}output {r}
        }}",
        t.0
    );
    let op = match (masks + windows as usize, how) {
        (0, _) | (1, 2..) => "scaled_dot_product_attention",
        _ => "biased_attention",
    };
    (text, op)
}

#[test]
fn attention_is_found_however_it_is_written() {
    let mut state = 1u64;
    for _ in 0..150 {
        let (text, wanted) = attention(|n| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        });
        let found = targets(&text);
        let [views @ .., op] = &found[..] else { panic!("{text}") };
        assert_eq!(op, wanted, "{text}\n{found:?}");
        let only_views = views.iter().all(|v| v == "reshape" || v == "expand");
        assert!(only_views, "{text}\n{found:?}");
    }
}

#[test]
fn what_is_no_attention_stays() {
    let (text, _) = attention(|_| 0);
    assert_eq!(targets(&text).last().unwrap(), "scaled_dot_product_attention");
    for (from, to) in [
        ("softmax(%n2, 3)", "softmax(%n2, 2)"),
        ("output %n4", "output (%n4, %n3)"),
        ("matmul(%n3, %v)", "matmul(%n3, %mask2)"),
    ] {
        assert!(text.contains(from), "{text}");
        let text = text.replace(from, to).replace(
            "%mask :",
            "%mask2 : f32[4, 2, 3, 7, 8] = placeholder mask2
            %mask :",
        );
        let found = targets(&text);
        assert!(!found.iter().any(|t| t.contains("attention")), "{text}\n{found:?}");
    }
}

#[test]
fn consecutive_places_are_slices_and_rolls() {
    for (places, n, becomes) in [
        ("[2, 3, 4]", 6, "slice"),
        ("[2, 3, 0, 1]", 4, "roll"),
        ("[0, 1]", 2, "slice"),
        ("[5]", 6, "slice"),
        ("[2, 4]", 6, "index_select"),
        ("[3, 0]", 4, "index_select"),
        ("[1, 0]", 2, "roll"),
        ("[4, 2, 0]", 6, "index_select"),
    ] {
        let count = places.split(',').count();
        let text = format!(
            "const c : i64[{count}] = {places}
            graph g {{
                %x : f32[3, {n}] = placeholder x
                %c = get_attr c
                %r = call_function index_select(%x, -1, %c)
                output %r
            }}"
        );
        assert_eq!(targets(&text), [becomes], "{places} of {n}");
    }
}

#[test]
fn softmax_is_found() {
    let written = |lines: &str, dtype: &str| {
        targets(&format!(
            "graph g {{ %x : {dtype}[3, 5] = placeholder x\n{lines}\noutput %y }}"
        ))
    };
    let amax = "%m = call_function amax(%x, -1, keepdim=True)";
    let max = "%both = call_method max(%x, -1, True)\n%m = call_function operator.getitem(%both, 0)";
    let rest = "%s = call_function operator.sub(%x, %m)\n%e = call_method exp(%s)\n%sum = call_method sum(%e, -1, keepdim=True)";
    let share = "%y = call_function operator.truediv(%e, %sum)";
    let logarithm = "%l = call_function torch.log(%sum)\n%y = call_function sub(%s, %l)";
    assert_eq!(written(&[amax, rest, share].join("\n"), "f32"), ["softmax"]);
    assert_eq!(written(&[max, rest, share].join("\n"), "f32"), ["softmax"]);
    assert_eq!(written(&[amax, rest, logarithm].join("\n"), "f32"), ["log_softmax"]);
    assert_eq!(written(&[amax, rest, share].join("\n"), "f64").len(), 5);
    // A sum over another dim is not a softmax.
    let other = rest.replace("sum(%e, -1", "sum(%e, 0");
    assert_eq!(written(&[amax, &other, share].join("\n"), "f32").len(), 5);
}

/// Attention of four heads over two heads of keys and values, which are repeated along a new dim `dim`.
fn repeated_heads(dim: usize, attention: &str) -> String {
    format!(
        "graph g {{
            %q : f32[1, 4, 3, 8] = placeholder q
            %k : f32[1, 2, 6, 8] = placeholder k
            %v : f32[1, 2, 6, 8] = placeholder v
            %m : f32[1, 1, 3, 6] = placeholder m
            %k5 = call_function unsqueeze(%k, {dim})
            %ke = call_function expand(%k5, [1, 2, 2, 6, 8])
            %keys = call_function reshape(%ke, [1, 4, 6, 8])
            %v5 = call_function unsqueeze(%v, {dim})
            %ve = call_function expand(%v5, [1, 2, 2, 6, 8])
            %values = call_function view(%ve, [1, 4, 6, 8])
            %y = call_function scaled_dot_product_attention(%q, %keys, %values, {attention})
            output %y
        }}"
    )
}

#[test]
fn heads_that_are_repeated_are_shared() {
    for attention in ["%m, scale=0.25", "scale=0.25", "is_causal=True, scale=0.25"] {
        let found = targets(&repeated_heads(2, attention));
        assert_eq!(found, ["scaled_dot_product_attention"], "{attention}");
        // Repeated as a whole, the heads are in another order.
        let found = targets(&repeated_heads(1, attention));
        assert!(found.len() > 1, "{attention}: {found:?}");
    }
}
