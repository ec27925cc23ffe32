//! Random convolutional graphs, compiled against interpreted: which values lie channels last must not show.

use fxc::internals::driver::{Request, Session, compile};
use fxc::internals::tensor::Tensor;
use fxc::interp;
use fxc::types::Val;
use std::fmt::Write;

/// A stream of numbers that determines a graph.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn roll(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn pick(&mut self, of: &[usize]) -> usize {
        of[self.roll(of.len())]
    }

    /// In [-1, 1).
    fn number(&mut self) -> f32 {
        self.roll(4096) as f32 / 2048.0 - 1.0
    }

    fn tensor(&mut self, shape: &[usize]) -> Tensor {
        let data: Vec<f32> = (0..shape.iter().product()).map(|_| self.number()).collect();
        Tensor::from_slice(shape, &data)
    }
}

/// A graph under construction: its text, its values of rank 4, and its inputs.
struct Writer {
    dice: Dice,
    constants: String,
    placeholders: String,
    body: String,
    values: Vec<(String, [usize; 4])>,
    inputs: Vec<Tensor>,
    count: usize,
}

impl Writer {
    fn name(&mut self) -> String {
        self.count += 1;
        format!("v{}", self.count)
    }

    fn call(&mut self, text: &str) -> String {
        let name = self.name();
        let _ = writeln!(self.body, "    %{name} = {text}");
        name
    }

    fn value(&mut self, text: &str, shape: [usize; 4]) {
        let name = self.call(text);
        self.values.push((name, shape));
    }

    /// An input, or a literal with all elements if `constant`.
    fn parameter(&mut self, shape: &[usize], constant: bool) -> String {
        let name = self.name();
        let t = self.dice.tensor(shape);
        let dims: Vec<String> = shape.iter().map(|d| d.to_string()).collect();
        let dims = dims.join(", ");
        if constant {
            let text = literal(t.as_slice::<f32>(), shape);
            let _ = writeln!(self.constants, "const c.{name} : f32[{dims}] = {text}");
            let _ = writeln!(self.placeholders, "    %{name} = get_attr c.{name}");
        } else {
            let _ = writeln!(self.placeholders, "    %{name} : f32[{dims}] = placeholder {name}");
            self.inputs.push(t);
        }
        name
    }

    /// One of the latest values.
    fn some(&mut self) -> (String, [usize; 4]) {
        let n = self.values.len();
        self.values[n - 1 - self.dice.roll(n.min(4))].clone()
    }

    fn convolution(&mut self) {
        let (x, [n, c, h, w]) = self.some();
        let k = self.dice.pick(&[1, 1, 3, 3, 2]);
        let (stride, padding) = (self.dice.pick(&[1, 1, 2]), self.dice.pick(&[0, 1]));
        if h + 2 * padding < k || w + 2 * padding < k {
            return;
        }
        let depthwise = self.dice.roll(4) == 0;
        let (o, groups) = if depthwise {
            (c, c)
        } else {
            (self.dice.pick(&[1, 5, 16, 20]), 1)
        };
        let constant = o * c <= 320 && self.dice.roll(3) > 0;
        let weight = self.parameter(&[o, c / groups, k, k], constant);
        let bias = match self.dice.roll(2) {
            0 => "None".to_string(),
            _ => format!("%{}", self.parameter(&[o], true)),
        };
        let size = |d: usize| (d + 2 * padding - k) / stride + 1;
        let text = format!(
            "call_function torch.conv2d(%{x}, %{weight}, {bias}, ({stride}, {stride}), ({padding}, {padding}), (1, 1), {groups})"
        );
        self.value(&text, [n, o, size(h), size(w)]);
    }

    fn pool(&mut self) {
        let (x, [n, c, h, w]) = self.some();
        let (k, stride, padding) = (self.dice.pick(&[2, 3]), self.dice.pick(&[1, 2]), self.dice.roll(2));
        if h + 2 * padding < k || w + 2 * padding < k {
            return;
        }
        let op = ["max_pool2d", "avg_pool2d"][self.dice.roll(2)];
        let size = |d: usize| (d + 2 * padding - k) / stride + 1;
        let text = format!("call_function torch.nn.functional.{op}(%{x}, {k}, {stride}, {padding})");
        self.value(&text, [n, c, size(h), size(w)]);
    }

    fn pointwise(&mut self) {
        let (x, shape) = self.some();
        let [_, c, ..] = shape;
        let text = match self.dice.roll(6) {
            0 => format!("call_function torch.relu(%{x})"),
            1 => format!("call_function torch.sigmoid(%{x})"),
            2 => {
                let p = self.parameter(&[c, 1, 1], true);
                format!("call_function torch.mul(%{x}, %{p})")
            }
            3 => {
                let m = self.call(&format!("call_function torch.mean(%{x}, (2, 3), True)"));
                format!("call_function torch.mul(%{x}, %{m})")
            }
            _ => {
                let same: Vec<_> = self
                    .values
                    .iter()
                    .filter(|v| v.1 == shape)
                    .map(|v| v.0.clone())
                    .collect();
                let y = &same[self.dice.roll(same.len())];
                format!("call_function torch.add(%{x}, %{y})")
            }
        };
        self.value(&text, shape);
    }

    fn join(&mut self) {
        let (x, [n, c, h, w]) = self.some();
        let fits: Vec<_> = self
            .values
            .iter()
            .filter(|v| [v.1[0], v.1[2], v.1[3]] == [n, h, w])
            .cloned()
            .collect();
        let (y, other) = fits[self.dice.roll(fits.len())].clone();
        self.value(
            &format!("call_function torch.cat((%{x}, %{y}), 1)"),
            [n, c + other[1], h, w],
        );
    }

    /// Detours through other dim orders, and borders.
    fn detour(&mut self) {
        let (x, [n, c, h, w]) = self.some();
        match self.dice.roll(4) {
            0 => {
                let p = self.call(&format!("call_method permute(%{x}, 0, 2, 3, 1)"));
                let s = self.call(&format!("call_function torch.softmax(%{p}, -1)"));
                self.value(&format!("call_method permute(%{s}, 0, 3, 1, 2)"), [n, c, h, w]);
            }
            1 => {
                let f = self.call(&format!("call_function torch.flatten(%{x}, 2)"));
                let t = self.call(&format!("call_method transpose(%{f}, 1, 2)"));
                let s = self.call(&format!("call_function torch.softmax(%{t}, -1)"));
                let b = self.call(&format!("call_method transpose(%{s}, 1, 2)"));
                self.value(
                    &format!("call_function torch.reshape(%{b}, [{n}, {c}, {h}, {w}])"),
                    [n, c, h, w],
                );
            }
            2 => {
                let text = format!("call_function torch.nn.functional.pad(%{x}, (1, 0, 2, 1), \"constant\", 0.5)");
                self.value(&text, [n, c, h + 3, w + 1]);
            }
            _ => {
                let r = self.call(&format!("call_function torch.reshape(%{x}, [{n}, {}])", c * h * w));
                let s = self.call(&format!("call_function torch.tanh(%{r})"));
                self.value(
                    &format!("call_function torch.reshape(%{s}, [{n}, {c}, {h}, {w}])"),
                    [n, c, h, w],
                );
            }
        }
    }
}

/// Numbers as a nested list.
fn literal(data: &[f32], shape: &[usize]) -> String {
    match shape {
        [] => format!("{:?}", data[0]),
        [n, rest @ ..] => {
            let items: Vec<String> = data.chunks(data.len() / n).map(|d| literal(d, rest)).collect();
            format!("[{}]", items.join(", "))
        }
    }
}

/// A graph's text and its inputs.
fn random(seed: u64) -> (String, Vec<Tensor>) {
    let mut w = Writer {
        dice: Dice(seed),
        constants: String::new(),
        placeholders: String::new(),
        body: String::new(),
        values: vec![],
        inputs: vec![],
        count: 0,
    };
    w.dice.next();
    let shape = [
        w.dice.pick(&[1, 2]),
        w.dice.pick(&[1, 3, 16]),
        w.dice.pick(&[1, 5, 12]),
        w.dice.pick(&[4, 9, 12]),
    ];
    let x = w.parameter(&shape, false);
    w.values.push((x, shape));
    w.convolution();
    for _ in 0..3 + w.dice.roll(8) {
        match w.dice.roll(9) {
            0..=2 => w.convolution(),
            3 => w.pool(),
            4 | 5 => w.pointwise(),
            6 => w.join(),
            _ => w.detour(),
        }
    }
    let n = w.values.len();
    let outputs = format!("(%{}, %{})", w.values[n - 1].0, w.values[w.dice.roll(n)].0);
    let text = format!(
        "{}graph g {{\n{}{}    output {outputs}\n}}\n",
        w.constants, w.placeholders, w.body
    );
    (text, w.inputs)
}

fn check(seed: u64) {
    let (text, inputs) = random(seed);
    agrees(&format!("seed {seed}"), &text, &inputs, 1 + seed as usize % 2);
}

/// Compiles a graph and compares its results with the interpreter's. Returns the program as text.
fn agrees(what: &str, text: &str, inputs: &[Tensor], threads: usize) -> String {
    let mut session = Session::new();
    let model = session.load_text("islands.fxir", text);
    let mut model = model.unwrap_or_else(|_| panic!("{:?}\n{text}", session.diagnostics));
    let types: Vec<_> = inputs.iter().map(|t| Val::Leaf(t.ty())).collect();
    session
        .check(&mut model.module, &types)
        .unwrap_or_else(|_| panic!("{:?}\n{text}", session.diagnostics));
    let want = interp::run(&model.module, inputs.iter().map(|t| Val::Leaf(t.clone())).collect());
    let want = want.unwrap_or_else(|d| panic!("{}\n{text}", d.title));
    let request = Request {
        threads,
        ..Request::default()
    };
    let made = compile(&mut session, model, &request).unwrap_or_else(|_| panic!("{:?}\n{text}", session.diagnostics));
    let mut executable = made.ready.and_then(|r| r.into_executable()).expect("an executable");
    let got = executable.run(inputs).unwrap_or_else(|d| panic!("{}\n{text}", d.title));
    for (w, g) in want.leaves().into_iter().zip(got.leaves()) {
        assert_eq!(w.shape(), g.shape(), "{text}");
        for (a, b) in w.as_slice::<f32>().iter().zip(g.as_slice::<f32>()) {
            assert!((a - b).abs() <= 2e-4 * a.abs().max(1.0), "{what}: {a} and {b}\n{text}");
        }
    }
    executable.program().to_string()
}

/// A 1x1 convolution, `between`, a depthwise convolution, `after`, with and without other readers of the first result:
/// compiled as one step if there are none.
#[test]
fn expansions_are_one_step() {
    let expansion = |between: &str, after: &str, output: &str| {
        format!(
            "graph g {{
    %i : f32[1, 3, 50, 48] = placeholder i
    %k : f32[16, 3, 3, 3] = placeholder k
    %w : f32[72, 16, 1, 1] = placeholder w
    %b : f32[72] = placeholder b
    %d : f32[72, 1, 3, 3] = placeholder d
    %x = call_function torch.conv2d(%i, %k)
    %e = call_function torch.conv2d(%x, %w, %b)
    %m = {between}
    %y = call_function torch.conv2d(%m, %d, None, (2, 2), (1, 1), (1, 1), 72)
    %z = {after}
    %p = call_function torch.mean(%z, (2, 3), True)
    output {output}
}}
"
        )
    };
    let relu6 = "call_function torch.nn.functional.relu6(%e)";
    let (silu, none) = (
        "call_function torch.nn.functional.silu(%e)",
        "call_function torch.neg(%e)",
    );
    let after = "call_function torch.nn.functional.silu(%y)";
    let mut dice = Dice(5);
    let shapes: [&[usize]; 5] = [&[1, 3, 50, 48], &[16, 3, 3, 3], &[72, 16, 1, 1], &[72], &[72, 1, 3, 3]];
    let inputs: Vec<Tensor> = shapes.iter().map(|s| dice.tensor(s)).collect();
    for threads in [1, 2] {
        for between in [relu6, silu, none] {
            for after in [after, "call_function torch.relu(%y)", "call_function torch.mul(%y, %y)"] {
                let program = agrees(between, &expansion(between, after, "%p"), &inputs, threads);
                assert!(program.contains("expansion "), "{program}");
            }
        }
        // Another op reads the intermediate result.
        for output in ["(%p, %m)", "(%p, %e)"] {
            let program = agrees(output, &expansion(relu6, after, output), &inputs, threads);
            assert!(!program.contains("expansion "), "{program}");
        }
    }
}

#[test]
fn compiled_islands_agree_with_the_interpreter() {
    (0..150).for_each(check);
}
