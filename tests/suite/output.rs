//! The output of fxc can be run: optimised FXIR with its weights, Python of graphs with numbers among their inputs,
//! functions with nested arguments. The machine code that is shown is the code that runs.

use crate::support::{Dir, fxc};
use fxc::internals::import::write_tensors;
use fxc::internals::tensor::Tensor;

/// A convolution and a batch normalisation as torch modules.
pub const CONV_BN: &str = "module conv = Conv2d(3, 8, kernel_size=(3, 3))
module bn = BatchNorm2d(8)
graph main {
    %x : f32[1, 3, 8, 8] = placeholder x
    %c = call_module conv(%x)
    %b = call_module bn(%c)
    output %b
}
";

/// Writes the weights of [`CONV_BN`]. Returns their path.
pub fn weights(dir: &Dir, name: &str) -> String {
    let some = |shape: &[usize]| {
        let n = shape.iter().product();
        let values: Vec<f32> = (0..n).map(|i| 0.25 + ((i * 7 % 13) as f32) / 16.0).collect();
        Tensor::from_slice(shape, &values)
    };
    let list = [
        ("conv.weight", some(&[8, 3, 3, 3])),
        ("conv.bias", some(&[8])),
        ("bn.weight", some(&[8])),
        ("bn.bias", some(&[8])),
        ("bn.running_mean", some(&[8])),
        ("bn.running_var", some(&[8])),
    ];
    let path = dir.0.join(name);
    write_tensors(&path, list.iter().map(|(n, t)| (*n, t))).expect("weights are written");
    path.display().to_string()
}

#[track_caller]
pub fn ok(args: &[&str]) -> crate::support::Ran {
    let ran = fxc(args);
    assert_eq!(ran.code, 0, "{args:?}\n{}{}", ran.out, ran.err);
    ran
}

#[test]
fn optimised_models_run_from_their_files() {
    let dir = Dir::new("opt-output");
    let w = weights(&dir, "w.safetensors");
    let model = dir.file("m.fxir", format!("weights \"w.safetensors\"\n{CONV_BN}"));
    let want = ok(&["run", &model, "x=rand:1"]).out;
    for (name, more) in [
        ("sub/o.fxir", None),
        ("same.fxir", None),
        ("given.fxir", Some("own.safetensors")),
    ] {
        std::fs::create_dir_all(dir.0.join("sub")).unwrap();
        let out = dir.0.join(name).display().to_string();
        let own = more.map(|m| dir.0.join(m).display().to_string());
        let mut args = vec!["opt", &model, "-o", &out];
        args.extend(own.iter().flat_map(|o| ["--weights", o]));
        let ran = ok(&args);
        let text = std::fs::read_to_string(&out).unwrap();
        assert!(
            text.contains("_folded_c_weight") && !text.contains("batch_norm"),
            "{text}{}",
            ran.err
        );
        assert!(
            !text.contains("conv.weight"),
            "{name} names a weight that nothing reads\n{text}"
        );
        assert_eq!(ok(&["run", &out, "x=rand:1"]).out, want, "{name}");
    }
    // From an archive, whose weights FXIR cannot refer to. `print` and `rewrite` do the same.
    let rules = dir.file(
        "r.fxir",
        "rewrite r(%a) { %r = call_function tanh(%a) output %r } => { %r = call_function sigmoid(%a) output %r }",
    );
    let want = ok(&["run", "tests/data/mlp.pt2", "--inputs", "tests/data/mlp.safetensors"]);
    for command in [&["opt"][..], &["print"], &["rewrite", "--rules", &rules]] {
        let out = dir.0.join("a.fxir").display().to_string();
        ok(&[command, &["tests/data/mlp.pt2", "-o", &out]].concat());
        let got = ok(&["run", &out, "--inputs", "tests/data/mlp.safetensors"]);
        assert_eq!(got.out, want.out, "{command:?}");
    }
    let ran = ok(&["opt", &model, "--weights-from", &w]);
    assert!(
        ran.err.contains("does not contain the values of 1 of 1 weights"),
        "{}",
        ran.err
    );
}

#[test]
fn weights_can_be_given_to_every_command() {
    let dir = Dir::new("weights-from");
    let w = weights(&dir, "w.safetensors");
    let bare = dir.file("bare.fxir", CONV_BN);
    let named = dir.file("named.fxir", format!("weights \"w.safetensors\"\n{CONV_BN}"));
    let want = ok(&["run", &named, "x=rand:1"]).out;
    let ran = fxc(&["run", &bare, "x=rand:1"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("`--weights-from FILE`"), "{}", ran.err);
    for option in ["--weights-from", "--weights"] {
        assert_eq!(ok(&["run", &bare, "x=rand:1", option, &w]).out, want);
        assert_eq!(ok(&["run", &bare, "x=rand:1", "--interpret", option, &w]).out, want);
        for command in ["check", "compile", "bisect"] {
            ok(&[command, &bare, option, &w]);
        }
        ok(&["bench", &bare, "x=ones", "--seconds", "0", option, &w]);
    }
    for command in [
        &["opt"][..],
        &["print"],
        &["emit-code"],
        &["emit-code", "--stage", "kernels"],
    ] {
        ok(&[command, &[&bare, "--weights-from", &w]].concat());
    }
    // Given weights override those of a model, and are never ignored.
    let given = ok(&[
        "run",
        "tests/data/mlp.pt2",
        "--inputs",
        "tests/data/mlp.safetensors",
        "--weights",
        &w,
    ]);
    assert!(given.err.contains("never used"), "{}", given.err);
    let ran = fxc(&["run", &bare, "x=ones", "--weights", "no/such/file.safetensors"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("E0407"), "{}", ran.err);
}

/// torch's trace of `x * n + s` with `concrete_args={"flag": False}`, where checks come before parameters.
const CONCRETE: &str = "graph():
    %x : [num_users=1] = placeholder[target=x]
    %flag_1 : [num_users=1] = placeholder[target=flag_1]
    %eq : [num_users=1] = call_function[target=operator.eq](args = (%flag_1, False), kwargs = {})
    %_assert : [num_users=0] = call_function[target=torch._assert](args = (%eq, flag has been specialized), kwargs = {})
    %n : [num_users=1] = placeholder[target=n](default=3)
    %mul : [num_users=1] = call_function[target=operator.mul](args = (%x, %n), kwargs = {})
    return mul
";

#[test]
fn checks_of_concrete_arguments_stay() {
    let dir = Dir::new("concrete");
    let model = dir.file("m.txt", CONCRETE);
    let out = dir.0.join("o.fxir").display().to_string();
    ok(&["opt", &model, "-o", &out]);
    for m in [&model, &out] {
        assert!(ok(&["run", m, "x:f32[2]=ones", "flag_1=False"]).out.contains("3 3"));
        let ran = fxc(&["run", m, "x:f32[2]=ones", "flag_1=True"]);
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains("flag has been specialized"), "{}", ran.err);
        for stage in ["graph", "optimized"] {
            let code = ok(&["emit-code", m, "--stage", stage]).out;
            for line in [
                "def forward(self, x, flag_1, n",
                "eq = flag_1 == False",
                "torch._assert(eq, ",
                "mul = x * n",
            ] {
                assert!(code.contains(line), "{m} {stage}: no `{line}` in\n{code}");
            }
        }
    }
}

/// Numbers of every kind, with and without types.
const NUMBERS: &str = "graph main {
    %x : f32[N, 4] = placeholder x
    %flag : bool = placeholder flag
    %n : int = placeholder n
    %s : float = placeholder s = 2.5
    %rows = call_method size(%x, 0)
    %eq = call_function operator.eq(%flag, True)
    %a = call_function operator.add(%n, 3)
    %b = call_function operator.truediv(%rows, 2)
    %lt = call_function operator.lt(%x, %n)
    %c = call_function torch.add(%x, %n, alpha=2)
    %d = call_function operator.mul(%s, %c)
    %root = call_function math.sqrt(%s)
    output (%eq, %a, %b, %lt, %d, %root)
}
";

#[test]
fn python_of_numbers_gives_numbers() {
    let dir = Dir::new("numbers");
    let typed = dir.file("typed.fxir", NUMBERS);
    let bare: String = NUMBERS
        .lines()
        .map(|l| {
            let (head, rest) = l.split_once(" : ").map_or((l, None), |(h, r)| (h, r.split_once(" = ")));
            rest.map_or(format!("{l}\n"), |(_, r)| format!("{head} = {r}\n"))
        })
        .collect();
    let bare = dir.file("bare.fxir", bare);
    for model in [&typed, &bare] {
        let out = dir.0.join("o.fxir").display().to_string();
        ok(&["opt", model, "-o", &out]);
        for (m, stage) in [(model, "optimized"), (&out, "graph"), (&out, "optimized")] {
            let code = ok(&["emit-code", m, "--stage", stage]).out;
            for line in [
                "def forward(self, x, flag, n, s",
                "= 2.5):",
                "eq = flag == True",
                "a = n + 3",
                "b = rows / 2",
                "lt = x < n",
                "d = s * ",
                "root = math_sqrt(s)",
            ] {
                assert!(code.contains(line), "{m} {stage}: no `{line}` in\n{code}");
            }
        }
    }
}

/// `gm.code` of a trace with `concrete_args={"d": {"a": PH, "b": PH}, "xs": [PH, PH]}`.
const NESTED: &str = "


def forward(self, d, xs, k):
    self, d_1, d_2, xs_1, xs_2, k, = fx_pytree.tree_flatten_spec([self, d, xs, k], self._in_spec)
    mul = d_2 * xs_1;  d_2 = xs_1 = None
    add = d_1 + mul;  d_1 = mul = None
    mul_1 = xs_2 * k;  xs_2 = k = None
    return pytree.tree_unflatten([add, mul_1], self._out_spec)
    ";

/// `ep.module().code` of a program that takes a dict and a keyword.
const EXPORTED: &str = "


def forward(self, d, k, m):
    d_a, d_b, k, m, = fx_pytree.tree_flatten_spec(([d, k], {'m':m}), self._in_spec)
    mul = torch.ops.aten.mul.Tensor(d_a, d_b);  d_a = d_b = None
    return pytree.tree_unflatten((mul,), self._out_spec)
    ";

#[test]
fn nested_arguments_print_back() {
    let dir = Dir::new("pytree");
    for (name, text) in [("concrete.py", NESTED), ("exported.py", EXPORTED)] {
        let model = dir.file(name, text);
        let fxir = dir.0.join(format!("{name}.fxir")).display().to_string();
        ok(&["print", &model, "-o", &fxir]);
        assert!(
            !std::fs::read_to_string(&fxir).unwrap().contains("placeholder self"),
            "`self` is not an input"
        );
        for m in [&model, &fxir] {
            assert_eq!(ok(&["print", m, "--format", "code"]).out, text, "{m}");
            assert_eq!(ok(&["emit-code", m]).out, text, "{m}");
        }
        assert_eq!(ok(&["fmt", "--check", &fxir]).code, 0);
    }
    // A graph that has lost an input can no longer be called this way.
    let ran = ok(&[
        "opt",
        &dir.0.join("concrete.py").display().to_string(),
        "--fix",
        "k=2",
        "--format",
        "code",
    ]);
    assert!(!ran.out.contains("tree_flatten_spec"), "{}", ran.out);
    let ran = ok(&[
        "run",
        &dir.0.join("concrete.py.fxir").display().to_string(),
        "d_1:f32[1]=ones",
        "d_2:f32[1]=ones",
        "xs_1:f32[1]=ones",
        "xs_2:f32[1]=ones",
        "k=5",
    ]);
    assert!(ran.out.contains("2\n") && ran.out.contains("5\n"), "{}", ran.out);
}

#[test]
fn constant_inputs_before_others_are_no_syntax_error() {
    let dir = Dir::new("defaults");
    let text = "graph main { %k : int = placeholder k = 2 %x : f32[2] = placeholder x %y = call_function operator.mul(%x, %k) output %y }
        signature (k : USER_INPUT, x : USER_INPUT) => (y : USER_OUTPUT)";
    let model = dir.file("m.fxir", text);
    let code = ok(&["emit-code", &model]).out;
    assert!(code.contains("def forward(self, k, x):"), "{code}");
}

#[test]
fn rules_stop_where_they_are_told_to() {
    let dir = Dir::new("budget");
    let model = dir.file(
        "m.fxir",
        "graph main { %x : f32[3] = placeholder x %y = call_function add(%x, 1) %z = call_function add(%y, 2) output %z }",
    );
    let relu = dir.file(
        "relu.fxir",
        "rewrite relu_after(%a, %b) { %s = call_function add(%a, %b) output %s }
         => { %s = call_function add(%a, %b) %r = call_function relu(%s) output %r }",
    );
    let count = |text: &str, what: &str| text.matches(what).count();
    let ran = ok(&["rewrite", &model, "--rules", &relu]);
    assert_eq!(
        (count(&ran.out, "relu(%"), count(&ran.out, "add(%")),
        (2, 2),
        "{}",
        ran.out
    );
    let wrap = dir.file(
        "wrap.fxir",
        "rewrite wrap(%a, %b) { %s = call_function add(%a, %b) output %s }
         => { %n = call_function neg(%a) %s = call_function add(%n, %b) output %s } where rank(%a) == 1",
    );
    let ran = fxc(&["rewrite", &model, "--rules", &wrap]);
    assert!(
        ran.code == 1 && ran.err.contains("E0804") && ran.err.contains("--budget"),
        "{}",
        ran.err
    );
    for (budget, negs) in [("0", 0), ("1", 1), ("5", 5)] {
        let ran = ok(&["rewrite", &model, "--rules", &wrap, "--budget", budget]);
        assert_eq!(count(&ran.out, "neg(%"), negs, "{}", ran.out);
        assert!(
            ran.err.contains(&format!("stopped after {budget} rewrites (--budget)")),
            "{}",
            ran.err
        );
    }
    let ran = ok(&["rewrite", &model, "--rules", &wrap, "--once"]);
    assert_eq!(count(&ran.out, "neg(%"), 2, "{}", ran.out);
    assert!(!ran.err.contains("stopped"), "{}", ran.err);
    // A rule is applied to its own results.
    let unroll = dir.file(
        "unroll.fxir",
        "rewrite unroll(%a, $n) { %m = call_function mul(%a, $n) output %m }
         => { %m = call_function mul(%a, $n - 1) %s = call_function add(%m, %a) output %s } where $n > 1",
    );
    let product = dir.file(
        "p.fxir",
        "graph main { %x : f32[3] = placeholder x %y = call_function mul(%x, 4) output %y }",
    );
    let ran = ok(&["rewrite", &product, "--rules", &unroll]);
    assert_eq!(count(&ran.out, "add(%"), 3, "{}", ran.out);
}

#[test]
fn the_machine_code_shown_is_what_runs() {
    let dir = Dir::new("asm");
    let model = dir.file(
        "m.fxir",
        "graph main {
            %x : f32[64, 256] = placeholder x
            %a = call_function torch.exp(%x) loc(\"net.py\":3 in forward)
            %b = call_function torch.mul(%a, 3.0) loc(\"net.py\":4 in forward)
            %i : i64[64] = placeholder i
            output %b
        }"
        .replace("            %i : i64[64] = placeholder i\n", ""),
    );
    let ran = ok(&["emit-code", &model, "--stage", "asm"]);
    let head = ran.out.lines().next().unwrap_or_default();
    assert!(head.contains(" bytes, vectors of "), "{head}");
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    assert!(ran.out.contains("%a from net.py:3"), "{}", ran.out);
    assert!(ran.out.contains("%b from net.py:4"), "{}", ran.out);
    let profile = ok(&["bench", &model, "x=ones", "--seconds", "0", "--profile"]).out;
    for (bits, register) in [(512, "zmm"), (256, "ymm")] {
        if profile.contains(&format!("[{bits} bits]")) {
            assert!(
                head.contains(&format!("vectors of {bits} bits, {register} registers")),
                "{head}"
            );
            assert!(
                ran.out.contains(&format!("vmulps {register}")) || ran.out.contains(register),
                "{}",
                ran.out
            );
        }
    }
    // For a kernel without a wide form, the reason is given.
    let narrow = dir.file(
        "n.fxir",
        "graph main { %x : f32[64, 256] = placeholder x %a = call_function torch.lgamma(%x) output %a }",
    );
    let ran = ok(&["emit-code", &narrow, "--stage", "asm"]);
    let head = ran.out.lines().next().unwrap_or_default();
    let wide = profile.contains("[512 bits]") || profile.contains("[256 bits]");
    assert_eq!(
        head.contains("not widened: Lgamma of f32 cannot be widened"),
        wide,
        "{head}"
    );
    assert!(!ran.out.contains("zmm") && !ran.out.contains("ymm"), "{}", ran.out);
}

#[test]
fn remarks_say_why_a_normalisation_is_not_folded() {
    let dir = Dir::new("bn-remarks");
    let w = weights(&dir, "w.safetensors");
    let bare = dir.file("bare.fxir", CONV_BN.replace(" : f32[1, 3, 8, 8]", ""));
    let ran = ok(&["opt", &bare, "--weights-from", &w, "--remarks"]);
    let why = "batch-norm: `%b` is not folded: `%x` has no type: write `%x : f32[…]`, or pass `x:f32[…]`";
    assert!(ran.err.contains(why), "{}", ran.err);
    let ran = ok(&["opt", &bare, "x:f32[1, 3, 8, 8]", "--weights-from", &w]);
    assert!(
        ran.out.contains("_folded_c_weight") && !ran.out.contains("batch_norm"),
        "{}",
        ran.out
    );
    let ran = ok(&["opt", &bare, "x:f32[1, 3, 8, 8]=zeros", "--weights-from", &w]);
    assert!(!ran.out.contains("batch_norm"), "{}", ran.out);
    let typed = dir.file("typed.fxir", CONV_BN);
    let ran = ok(&["opt", &typed, "--remarks"]);
    assert!(ran.err.contains("`%b` is not folded: "), "{}", ran.err);
}
