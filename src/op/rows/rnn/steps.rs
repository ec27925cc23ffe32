//! The loops of recurrent networks: the inputs of the whole sequence are projected first, then the steps run one by
//! one.

use super::gates;
use super::products::project_rows;
use super::{has_dropout, kind_of};
use crate::op::rows::dense::zeros;
use crate::op::{Call, OpError, OpResult, random};
use crate::tensor::{Element, Tensor};
use crate::types::{DType, Val};

/// The kind of cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::op::rows) enum CellKind {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// The float types of the computation.
pub(super) trait CellReal:
    Element + Default + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> + std::ops::Sub<Output = Self>
{
    /// Replaces each element by its sigmoid.
    fn sigmoid_each(x: &mut [Self]);
    /// Replaces each element by its tanh.
    fn tanh_each(x: &mut [Self]);
    fn relu(self) -> Self;
    /// `1 / x`.
    fn inverse(x: f64) -> Self;
}

macro_rules! reals {
    ($($t:ty: $sigmoid:expr, $tanh:expr;)*) => { $(impl CellReal for $t {
        fn sigmoid_each(x: &mut [$t]) { $sigmoid(x) }
        fn tanh_each(x: &mut [$t]) { $tanh(x) }
        fn relu(self) -> $t { if self < 0.0 { 0.0 } else { self } }
        fn inverse(x: f64) -> $t { 1.0 / x as $t }
    })* };
}
reals! {
    f32: |x: &mut [f32]| x.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp())),
        |x: &mut [f32]| x.iter_mut().for_each(|x| *x = x.tanh());
    f64: gates::sigmoid_each, gates::tanh_each;
}

/// The weights of one layer in one direction: row-major `[gates * hidden, input]` and `[gates * hidden, width]`.
struct LayerWeights<'a, T> {
    input: &'a [T],
    hidden: &'a [T],
    /// The biases added to the projection of the input and to that of the state.
    biases: Option<[&'a [T]; 2]>,
    /// `[width, hidden]`: the projection of an LSTM's output.
    out: Option<&'a [T]>,
}

/// Sizes of one layer.
struct LayerSizes {
    time: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    width: usize,
}

/// The entry point for sequences through recurrent layers.
pub(in crate::op::rows) struct Sequence;

impl Sequence {
    /// The routine of `lstm`, `gru`, `rnn_tanh` and `rnn_relu`.
    pub(in crate::op::rows) fn run(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
        match c.leaf("input")?.dtype() {
            DType::F64 => run_layers::<f64>(c),
            _ => run_layers::<f32>(c),
        }
    }
}

/// Transposes `[a, b, n]` to `[b, a, n]`.
fn swap_outer_dims<T: CellReal>(x: &[T], a: usize, b: usize, n: usize) -> Vec<T> {
    let mut out = Vec::with_capacity(x.len());
    for j in 0..b {
        for i in 0..a {
            out.extend_from_slice(&x[(i * b + j) * n..(i * b + j + 1) * n]);
        }
    }
    out
}

fn run_layers<T: CellReal>(c: &Call<Tensor>) -> OpResult<Val<Tensor>> {
    let x = c.leaf("input")?;
    let batch_first = c.bool("batch_first")?;
    let [a, b, mut features] = x.shape()[..] else {
        return Err(OpError::shape("a recurrent network expects sequences of vectors"));
    };
    let (time, batch) = if batch_first { (b, a) } else { (a, b) };
    let input = x.to(T::DTYPE);
    let mut layer: Vec<T> = match batch_first {
        true => swap_outer_dims(input.as_slice::<T>(), batch, time, features),
        false => input.as_slice::<T>().to_vec(),
    };
    let mut network = RecurrentNetwork::<T>::from_call(c)?;
    for l in 0..network.layers {
        let sizes = LayerSizes {
            time,
            batch,
            input: features,
            hidden: network.hidden,
            width: network.width,
        };
        layer = network.run_layer(l, &sizes, &layer)?;
        features = network.width * network.directions;
        if l + 1 < network.layers {
            pass_on(c, x.dtype(), &mut layer)?;
        }
    }
    let mut shape = vec![time, batch, features];
    if batch_first {
        layer = swap_outer_dims(&layer, time, batch, features);
        shape.swap(0, 1);
    }
    zeros(T::DTYPE, &shape)?;
    let mut results = vec![Val::Leaf(Tensor::from_slice(&shape, &layer).to(x.dtype()))];
    let last = network.last.iter().zip(&network.states);
    results.extend(last.map(|(v, s)| Val::Leaf(Tensor::from_slice(s.shape(), v).to(x.dtype()))));
    Ok(Val::Tuple(results))
}

/// Makes the output of a layer the input of the next: rounded to the dtype of the operands, as in torch, and with dropout.
fn pass_on<T: CellReal>(c: &Call<Tensor>, dtype: DType, x: &mut Vec<T>) -> OpResult<()> {
    if dtype != T::DTYPE {
        let rounded = Tensor::from_slice(&[x.len()], x).to(dtype).to(T::DTYPE);
        *x = rounded.as_slice::<T>().to_vec();
    }
    if has_dropout(c)? {
        drop_some(c.f64("dropout")?, dtype, x);
    }
    Ok(())
}

/// Dropout between two layers. The numbers are drawn in row-major order, as in torch.
fn drop_some<T: CellReal>(p: f64, dtype: DType, x: &mut [T]) {
    let scale = match p {
        1.0 => T::default(),
        p => Tensor::from_slice(&[1], &[T::inverse(1.0 - p)])
            .to(dtype)
            .to(T::DTYPE)
            .as_slice::<T>()[0],
    };
    random::with_stream(|g| {
        for v in x {
            let factor = if p < 1.0 && g.bernoulli(1.0 - p) {
                scale
            } else {
                T::default()
            };
            *v = *v * factor;
        }
    });
}

/// A recurrent network with its weights, and its state while a sequence is processed.
struct RecurrentNetwork<T> {
    kind: CellKind,
    layers: usize,
    directions: usize,
    has_biases: bool,
    /// The weights of all layers and directions, one after another.
    params: Vec<Tensor>,
    /// The initial states, `[layers * directions, batch, size]` each, the hidden state first.
    states: Vec<Tensor>,
    /// The final states that have been computed so far.
    last: Vec<Vec<T>>,
    /// The size of a result, which is that of the hidden state. An LSTM may project it.
    width: usize,
    /// The size of the cell state.
    hidden: usize,
}

impl<T: CellReal> RecurrentNetwork<T> {
    fn from_call(c: &Call<Tensor>) -> OpResult<RecurrentNetwork<T>> {
        let kind = kind_of(c.op.name);
        let states: Vec<Tensor> = match kind {
            CellKind::Lstm => c.leaves("hx")?.into_iter().map(|t| t.to(T::DTYPE)).collect(),
            _ => vec![c.leaf("hx")?.to(T::DTYPE)],
        };
        Ok(RecurrentNetwork {
            kind,
            layers: c.int("num_layers")?.max(1) as usize,
            directions: 1 + c.bool("bidirectional")? as usize,
            has_biases: c.bool("has_biases")?,
            params: c.leaves("params")?.into_iter().map(|t| t.to(T::DTYPE)).collect(),
            last: states.iter().map(|s| s.as_slice::<T>().to_vec()).collect(),
            width: states[0].shape()[2],
            hidden: states.last().map_or(0, |s| s.shape()[2]),
            states,
        })
    }

    /// The output of layer `l` for input `x`, with the directions concatenated.
    fn run_layer(&mut self, l: usize, sizes: &LayerSizes, x: &[T]) -> OpResult<Vec<T>> {
        let per_set = self.params.len() / (self.layers * self.directions);
        let mut out = vec![T::default(); sizes.time * sizes.batch * self.width * self.directions];
        for d in 0..self.directions {
            let set = l * self.directions + d;
            let params = &self.params[set * per_set..(set + 1) * per_set];
            let w = layer_weights::<T>(params, self.has_biases, self.kind, sizes)?;
            let of_set = |s: &Tensor| {
                let n = sizes.batch * s.shape()[2];
                set * n..(set + 1) * n
            };
            let last = self.last.iter_mut().zip(&self.states);
            let mut carried: Vec<&mut [T]> = last.map(|(v, s)| &mut v[of_set(s)]).collect();
            let mut state: Vec<Vec<T>> = carried.iter().map(|v| v.to_vec()).collect();
            run_direction(self.kind, &w, sizes, x, &mut state, &mut out, d, self.directions);
            for (v, new) in carried.iter_mut().zip(&state) {
                v.copy_from_slice(new);
            }
        }
        Ok(out)
    }
}

fn check_weight(t: &Tensor, shape: &[usize]) -> OpResult<()> {
    if t.shape() == shape {
        return Ok(());
    }
    Err(OpError::shape(format!(
        "a recurrent weight has shape {:?}, expected {shape:?}",
        t.shape()
    )))
}

fn layer_weights<'a, T: CellReal>(
    p: &'a [Tensor],
    biases: bool,
    kind: CellKind,
    s: &LayerSizes,
) -> OpResult<LayerWeights<'a, T>> {
    let gates = match kind {
        CellKind::Lstm => 4,
        CellKind::Gru => 3,
        _ => 1,
    };
    let rows = gates * s.hidden;
    check_weight(&p[0], &[rows, s.input])?;
    check_weight(&p[1], &[rows, s.width])?;
    let pair = if biases {
        check_weight(&p[2], &[rows])?;
        check_weight(&p[3], &[rows])?;
        Some([p[2].as_slice::<T>(), p[3].as_slice::<T>()])
    } else {
        None
    };
    let out = p.get(if biases { 4 } else { 2 });
    if let Some(t) = out {
        check_weight(t, &[s.width, s.hidden])?;
    } else if s.width != s.hidden {
        return Err(OpError::shape(
            "the hidden and cell states have different sizes, but there is no projection",
        ));
    }
    Ok(LayerWeights {
        input: p[0].as_slice::<T>(),
        hidden: p[1].as_slice::<T>(),
        biases: pair,
        out: out.map(|t| t.as_slice::<T>()),
    })
}

/// Runs one direction of one layer; `state` holds the first state, then the last.
fn run_direction<T: CellReal>(
    kind: CellKind,
    w: &LayerWeights<T>,
    s: &LayerSizes,
    x: &[T],
    state: &mut [Vec<T>],
    out: &mut [T],
    d: usize,
    directions: usize,
) {
    let rows = w.hidden.len().checked_div(s.width).unwrap_or(0);
    let mut xs = vec![T::default(); s.time * s.batch * rows];
    project_rows(x, w.input, w.biases.map(|b| b[0]), s.input, &mut xs);
    let mut hs = vec![T::default(); s.batch * rows];
    for step in 0..s.time {
        let t = if d == 0 { step } else { s.time - 1 - step };
        project_rows(&state[0], w.hidden, w.biases.map(|b| b[1]), s.width, &mut hs);
        let (h, cell) = state.split_at_mut(1);
        for n in 0..s.batch {
            let xg = &xs[(t * s.batch + n) * rows..][..rows];
            let hg = &hs[n * rows..][..rows];
            match kind {
                CellKind::Lstm => {
                    let cell = &mut cell[0][n * s.hidden..][..s.hidden];
                    lstm_step(xg, hg, cell, w.out, &mut h[0][n * s.width..][..s.width]);
                }
                CellKind::Gru => gru_step(xg, hg, &mut h[0][n * s.width..][..s.width]),
                _ => plain_step(kind, xg, hg, &mut h[0][n * s.width..][..s.width]),
            }
            let start = ((t * s.batch + n) * directions + d) * s.width;
            out[start..start + s.width].copy_from_slice(&h[0][n * s.width..][..s.width]);
        }
    }
}

/// `x + h`.
fn sums<T: CellReal>(x: &[T], h: &[T]) -> Vec<T> {
    x.iter().zip(h).map(|(&x, &h)| x + h).collect()
}

fn plain_step<T: CellReal>(kind: CellKind, x: &[T], h: &[T], out: &mut [T]) {
    out.copy_from_slice(&sums(x, h));
    match kind {
        CellKind::Tanh => T::tanh_each(out),
        _ => out.iter_mut().for_each(|v| *v = v.relu()),
    }
}

/// The gates are in torch's order: input, forget, candidate, output.
fn lstm_step<T: CellReal>(x: &[T], h: &[T], cell: &mut [T], projection: Option<&[T]>, out: &mut [T]) {
    let n = cell.len();
    let mut gates = sums(x, h);
    T::sigmoid_each(&mut gates[..2 * n]);
    T::tanh_each(&mut gates[2 * n..3 * n]);
    T::sigmoid_each(&mut gates[3 * n..]);
    for k in 0..n {
        cell[k] = gates[n + k] * cell[k] + gates[k] * gates[2 * n + k];
    }
    let mut y = cell.to_vec();
    T::tanh_each(&mut y);
    for k in 0..n {
        y[k] = gates[3 * n + k] * y[k];
    }
    match projection {
        Some(w) => project_rows(&y, w, None, n, out),
        None => out.copy_from_slice(&y),
    }
}

/// The gates are in torch's order: reset, update, candidate.
fn gru_step<T: CellReal>(x: &[T], u: &[T], h: &mut [T]) {
    let n = h.len();
    let mut gates = sums(&x[..2 * n], &u[..2 * n]);
    T::sigmoid_each(&mut gates);
    let mut new: Vec<T> = (0..n).map(|k| x[2 * n + k] + gates[k] * u[2 * n + k]).collect();
    T::tanh_each(&mut new);
    for k in 0..n {
        h[k] = (h[k] - new[k]) * gates[n + k] + new[k];
    }
}
