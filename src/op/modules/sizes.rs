//! Computes the sizes of a module's weights from its constructor's arguments.
//!
//! A form writes them after an attribute's name: `@weight[out_channels, in_channels // groups, *kernel_size:2]`.

use crate::op::schema::Literal;
use std::collections::HashMap;
use std::sync::Arc;

/// The sizes of attributes, by name.
pub(crate) type AttributeSizes = Vec<(Arc<str>, Vec<i64>)>;

/// One size, or a list of sizes.
#[derive(Debug, Clone)]
pub(super) enum Size {
    Number(i64),
    /// `3 * hidden_size`, `in_channels // groups`.
    Param {
        factor: i64,
        param: &'static str,
        divisor: Option<&'static str>,
    },
    /// `*kernel_size:2`: the numbers of a list, or one number repeated.
    Spread {
        param: &'static str,
        count: usize,
    },
}

impl Size {
    pub(super) fn parse(text: &'static str, known: &impl Fn(&str) -> bool) -> Result<Size, String> {
        let param = |p: &'static str| match known(p) {
            true => Ok(p),
            false => Err(format!("unknown constructor parameter {p:?}")),
        };
        if let Ok(n) = text.parse() {
            return Ok(Size::Number(n));
        }
        if let Some(spread) = text.strip_prefix('*') {
            let (p, count) = spread.split_once(':').unwrap_or((spread, "1"));
            let count = count.parse().map_err(|_| format!("bad count in {text:?}"))?;
            return Ok(Size::Spread {
                param: param(p)?,
                count,
            });
        }
        let (factor, rest) = match text.split_once(" * ") {
            Some((f, rest)) => (f.parse().map_err(|_| format!("bad factor in {text:?}"))?, rest),
            None => (1, text),
        };
        let (name, divisor) = match rest.split_once(" // ") {
            Some((p, d)) => (p, Some(param(d)?)),
            None => (rest, None),
        };
        Ok(Size::Param {
            factor,
            param: param(name)?,
            divisor,
        })
    }

    /// The sizes for these constructor arguments; `None` if they cannot be computed.
    fn eval_sizes(&self, arguments: &HashMap<&str, Literal>) -> Option<Vec<i64>> {
        let int = |p: &str| arguments.get(p).and_then(Literal::as_int);
        Some(match self {
            Size::Number(n) => vec![*n],
            Size::Param { factor, param, divisor } => {
                let n = int(param)?.checked_mul(*factor)?;
                match divisor {
                    Some(d) => vec![n.checked_div(int(d)?)?],
                    None => vec![n],
                }
            }
            Size::Spread { param, count } => match arguments.get(param)?.items() {
                Some(items) => items.iter().map(Literal::as_int).collect::<Option<_>>()?,
                None => vec![int(param)?; *count],
            },
        })
    }
}

/// The shape for these constructor arguments; `None` if a size is unknown or invalid.
pub(super) fn known_shape(sizes: Option<&[Size]>, arguments: &HashMap<&str, Literal>) -> Option<Vec<i64>> {
    let sizes: Vec<Vec<i64>> = sizes?.iter().map(|s| s.eval_sizes(arguments)).collect::<Option<_>>()?;
    let shape = sizes.concat();
    let fits = shape.iter().try_fold(8i64, |n, &d| n.checked_mul(d)).is_some();
    (fits && shape.iter().all(|&d| d >= 0)).then_some(shape)
}

/// The shape, if one of its sizes is negative, which torch rejects.
pub(super) fn negative_shape(sizes: &[Size], arguments: &HashMap<&str, Literal>) -> Option<Vec<i64>> {
    let sizes: Option<Vec<Vec<i64>>> = sizes.iter().map(|s| s.eval_sizes(arguments)).collect();
    sizes.map(|s| s.concat()).filter(|s| s.iter().any(|&d| d < 0))
}

/// The shape of a recurrent layer's weight of this kind.
pub(super) fn recurrent_shape(
    class: &str,
    kind: &str,
    layer: i64,
    arguments: &HashMap<&str, Literal>,
) -> Option<Vec<i64>> {
    let int = |name: &str| arguments.get(name).and_then(Literal::as_int);
    let gates = match class {
        "LSTM" => 4,
        "GRU" => 3,
        _ => 1,
    };
    let hidden = int("hidden_size")?;
    let state = int("proj_size").filter(|&p| p > 0).unwrap_or(hidden);
    let directions = 1 + int("bidirectional").unwrap_or(0).min(1);
    let rows = hidden.checked_mul(gates)?;
    let shape = match kind {
        "weight_ih" if layer == 0 => vec![rows, int("input_size")?],
        "weight_ih" => vec![rows, state.checked_mul(directions)?],
        "weight_hh" => vec![rows, state],
        "weight_hr" => vec![state, hidden],
        _ => vec![rows],
    };
    shape.iter().all(|&d| (0..1 << 31).contains(&d)).then_some(shape)
}
