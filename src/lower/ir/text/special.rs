//! Parses operations with kernels of their own.

use super::parse::{ParseResult, RightSide};
use crate::lower::ir::{Attend, Groups, ScanOp, Special};
use crate::math::contract::{Grouping, RecurrentCell};
use crate::scalar::text::parse_constant;
use crate::types::DType;

pub(super) fn parse_special(line: &RightSide) -> ParseResult<Special> {
    line.arg(0)?;
    Ok(match line.head {
        "concat" => Special::Concat {
            dim: line.required_number("dim")?,
        },
        "rows" => Special::Rows {
            wrap: line.flag("wrap")?,
        },
        "gather" => Special::Gather {
            dim: line.required_number("dim")?,
        },
        "pad" => Special::Pad {
            before: line.list("before")?,
            value: line.required_attribute("value", parse_constant)?,
        },
        "max_pool" => Special::MaxPool(line.window()?),
        "avg_pool" => Special::AvgPool {
            window: line.window()?,
            count_include_pad: line.flag("count_include_pad")?,
            divisor: line.number("divisor")?,
        },
        "cumsum" | "cumprod" => Special::Scan {
            dim: line.required_number("dim")?,
            op: match line.head {
                "cumsum" => ScanOp::Sum,
                _ => ScanOp::Product,
            },
        },
        "recurrent" => Special::Recurrent {
            cell: line.required_attribute("cell", parse_cell)?,
            reverse: line.flag("reverse")?,
            projected: line.flag("projected")?,
            in_bf16: line.flag("bf16")?,
        },
        "grouped" => Special::Grouped(parse_groups(line)?),
        "attention" => Special::Attention(parse_attention(line)?),
        head => return Err(format!("`{head}` is not a readable operation of the tensor IR")),
    })
}

fn parse_groups(line: &RightSide) -> ParseResult<Groups> {
    Ok(Groups {
        integers: line.required_attribute("integers", DType::from_short)?,
        grouping: match (line.flag("names")?, line.flag("wrap")?) {
            (false, _) => Grouping::Ends,
            (true, wrap) => Grouping::Names { wrap },
        },
        transposed: line.flag("transposed")?,
    })
}

fn parse_attention(line: &RightSide) -> ParseResult<Attend> {
    Ok(Attend {
        masks: [
            line.parse_attribute("mask", parse_mask)?.flatten(),
            line.parse_attribute("bias", parse_mask)?.flatten(),
        ],
        causal: line.flag("causal")?,
        scale: line.required_number("scale")?,
        safe: line.flag("safe")?,
        rows_first: line.flag("rows_first")?,
    })
}

fn parse_mask(text: &str) -> Option<Option<DType>> {
    match text {
        "none" => Some(None),
        d => DType::from_short(d).map(Some),
    }
}

fn parse_cell(text: &str) -> Option<RecurrentCell> {
    let all = [
        RecurrentCell::Lstm,
        RecurrentCell::Gru,
        RecurrentCell::Tanh,
        RecurrentCell::Relu,
    ];
    all.into_iter().find(|c| format!("{c:?}").to_lowercase() == text)
}
