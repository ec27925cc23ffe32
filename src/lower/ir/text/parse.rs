//! Parses tensor IR from text.

use super::print::combine_name;
use super::special::parse_special;
use crate::kernel::IrTextError;
use crate::lower::ir::{Def, SpatialWindow, Tir, ValueId};
use crate::math::contract::Activation;
use crate::op::{AffineIndex, Combine, Contraction, Convolution, IndexMap, MatrixProduct, Reduction, SoftmaxPart};
use crate::scalar::ScalarExpr;
use crate::scalar::text::parse_expr;
use crate::tensor::{Tensor, byte_len, is_available};
use crate::types::{DType, TensorType, Val};
use std::collections::HashMap;
use std::sync::Arc;

pub(super) type ParseResult<T> = Result<T, String>;

impl Tir {
    /// Parses what `Display` writes, except for calls. Constants become zeros.
    pub fn parse(text: &str) -> Result<Tir, IrTextError> {
        let mut reader = TirParser::default();
        for (i, line) in text.lines().enumerate() {
            let line = line.split("//").next().unwrap_or_default().trim();
            if !line.is_empty() {
                reader
                    .parse_line(line)
                    .map_err(|message| IrTextError { line: i + 1, message })?;
            }
        }
        Ok(reader.tir)
    }
}

#[derive(Default)]
struct TirParser {
    tir: Tir,
    names: HashMap<String, ValueId>,
}

/// The right side of a line: `head(%a, %b) key=value key { expression }`.
pub(super) struct RightSide<'a> {
    pub head: &'a str,
    /// The number after a head without operands.
    number: Option<usize>,
    pub args: Vec<ValueId>,
    attributes: HashMap<&'a str, &'a str>,
    /// The expressions by the key before them. The key of an expression without one is empty.
    blocks: HashMap<&'a str, &'a str>,
}

impl<'a> RightSide<'a> {
    pub(super) fn parse_attribute<T>(&self, key: &str, read: impl Fn(&str) -> Option<T>) -> ParseResult<Option<T>> {
        let read = |text: &&str| read(text).ok_or_else(|| format!("invalid value in `{key}={text}`"));
        self.attributes.get(key).map(read).transpose()
    }

    pub(super) fn number<T: std::str::FromStr>(&self, key: &str) -> ParseResult<Option<T>> {
        self.parse_attribute(key, |t| t.parse().ok())
    }

    pub(super) fn required_attribute<T>(&self, key: &str, read: impl Fn(&str) -> Option<T>) -> ParseResult<T> {
        let value = self.parse_attribute(key, read)?;
        value.ok_or_else(|| format!("`{}` needs `{key}=`", self.head))
    }

    pub(super) fn required_number<T: std::str::FromStr>(&self, key: &str) -> ParseResult<T> {
        self.required_attribute(key, |t| t.parse().ok())
    }

    pub(super) fn flag(&self, key: &str) -> ParseResult<bool> {
        Ok(self.number::<u8>(key)?.unwrap_or(0) != 0)
    }

    pub(super) fn list<T: std::str::FromStr>(&self, key: &str) -> ParseResult<Vec<T>> {
        let items = self.parse_attribute(key, |t| {
            split_items(t)?.map(|i| i.parse().ok()).collect::<Option<Vec<T>>>()
        })?;
        items.ok_or_else(|| format!("`{}` needs `{key}=[…]`", self.head))
    }

    pub(super) fn arg(&self, i: usize) -> ParseResult<ValueId> {
        let operand = self.args.get(i).copied();
        operand.ok_or_else(|| format!("`{}` needs {} operands", self.head, i + 1))
    }

    pub(super) fn window(&self) -> ParseResult<SpatialWindow> {
        Ok(SpatialWindow {
            first: self.required_number("first")?,
            kernel: self.list("kernel")?,
            stride: self.list("stride")?,
            padding: self.list("padding")?,
            dilation: self.list("dilation")?,
        })
    }
}

/// The items of `[a, b]`.
fn split_items(text: &str) -> Option<impl Iterator<Item = &str>> {
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    Some(inside.split(',').map(str::trim).filter(|t| !t.is_empty()))
}

impl TirParser {
    fn parse_line(&mut self, line: &str) -> ParseResult<()> {
        if let Some(result) = line.strip_prefix("return ") {
            self.tir.output = Some(self.parse_result(result)?);
            return Ok(());
        }
        let (name, rest) = line.split_once(": ").ok_or("expected `%name: type = …`")?;
        let (ty, right) = rest.split_once(" = ").ok_or("expected `= …` after the type")?;
        let (dtype, shape) = type_of(ty)?;
        let right = self.parse_right_side(right)?;
        let def = self.parse_definition(&right, dtype, &shape)?;
        let node = name.strip_prefix('%').ok_or("a value's name must start with `%`")?;
        self.tir.name = node.split('#').next().unwrap_or_default().into();
        let v = self.tir.push(dtype, &shape, def).map_err(|e| e.title)?;
        if right.head == "input" {
            self.tir.inputs.push((self.tir.name.clone(), Val::Leaf(v)));
        }
        self.side_tables(&right, v)?;
        match self.names.insert(name.into(), v) {
            None => Ok(()),
            Some(_) => Err(format!("`{name}` is defined twice")),
        }
    }

    fn lookup_value(&self, name: &str) -> ParseResult<ValueId> {
        let value = self.names.get(name.trim()).copied();
        value.ok_or_else(|| format!("`{}` is not defined above", name.trim()))
    }

    fn parse_result(&self, text: &str) -> ParseResult<Val<ValueId>> {
        let inside = text.trim().strip_prefix('(').and_then(|t| t.strip_suffix(')'));
        let Some(inside) = inside else {
            return Ok(Val::Leaf(self.lookup_value(text)?));
        };
        let names = inside.split(',').filter(|t| !t.trim().is_empty());
        Ok(Val::Tuple(
            names
                .map(|n| self.lookup_value(n).map(Val::Leaf))
                .collect::<ParseResult<_>>()?,
        ))
    }

    fn parse_right_side<'a>(&self, text: &'a str) -> ParseResult<RightSide<'a>> {
        let end = text.find(['(', ' ']).unwrap_or(text.len());
        let (head, mut rest) = text.split_at(end);
        let mut line = RightSide {
            head,
            number: None,
            args: vec![],
            attributes: HashMap::new(),
            blocks: HashMap::new(),
        };
        if let Some(after) = rest.strip_prefix('(') {
            let (args, after) = after.split_once(')').ok_or("expected `)` after the operands")?;
            let args = args.split(',').filter(|a| !a.trim().is_empty());
            line.args = args.map(|a| self.lookup_value(a)).collect::<ParseResult<_>>()?;
            rest = after;
        }
        let mut key = "";
        while !rest.trim_start().is_empty() {
            rest = rest.trim_start();
            if let Some(after) = rest.strip_prefix('{') {
                let (block, after) = after.split_once('}').ok_or("expected `}`")?;
                line.blocks.insert(std::mem::take(&mut key), block);
                rest = after;
                continue;
            }
            let (word, after) = split_word(rest);
            rest = after;
            match word.split_once('=') {
                Some((k, v)) => drop(line.attributes.insert(k, v)),
                None => (line.number, key) = (word.parse().ok(), word),
            }
        }
        Ok(line)
    }

    fn parse_definition(&self, line: &RightSide, dtype: DType, shape: &[usize]) -> ParseResult<Def> {
        if let Some(c) = COMBINES.into_iter().find(|c| combine_name(*c) == line.head) {
            return self.parse_reduction(line, c, dtype, shape);
        }
        let view = |map: IndexMap| Ok(Def::View { arg: line.arg(0)?, map });
        let contract = |contraction: Contraction| {
            let args = line.args.clone();
            Ok(Def::Contract { args, contraction })
        };
        match line.head {
            "input" => Ok(Def::Input(line.number.ok_or("expected the number of the input")?)),
            "constant" => match byte_len(dtype, shape).is_some_and(is_available) {
                true => Ok(Def::Constant(Tensor::zeros(dtype, shape))),
                false => Err("the constant does not fit in memory".into()),
            },
            "map" => Ok(Def::Pointwise {
                expr: self.expression_block(line, "", &self.operand_dtypes(line))?.into(),
                args: line.args.clone(),
            }),
            "reshape" => view(IndexMap::Reshape),
            "affine" => view(IndexMap::Affine(affine_list(line)?)),
            "strided" => view(IndexMap::Strided {
                offset: line.number("offset")?,
                strides: line.list("strides")?,
            }),
            "matmul" => contract(parse_matmul(line, TensorType::with_fixed_shape(dtype, shape))?),
            "conv" => contract(parse_conv(line, TensorType::with_fixed_shape(dtype, shape))?),
            _ => Ok(Def::Special {
                special: parse_special(line)?,
                args: line.args.clone(),
            }),
        }
    }

    fn operand_dtypes(&self, line: &RightSide) -> Vec<DType> {
        line.args.iter().map(|&v| self.tir.value(v).dtype).collect()
    }

    /// The expression after `key`.
    fn expression_block(&self, line: &RightSide, key: &str, args: &[DType]) -> ParseResult<ScalarExpr> {
        let text = line.blocks.get(key).ok_or("expected an expression in braces")?;
        parse_expr(text, args)
    }

    fn parse_reduction(&self, line: &RightSide, combine: Combine, dtype: DType, shape: &[usize]) -> ParseResult<Def> {
        let arg = line.arg(0)?;
        let from = self.tir.value(arg).dtype;
        let acc = line.parse_attribute("in", DType::from_short)?.unwrap_or(dtype);
        let dims: Vec<usize> = line.list("dims")?;
        let around = |key: &str, from: DType| match line.blocks.contains_key(key) {
            true => self.expression_block(line, key, &[from]),
            false => parse_expr("a0", &[from]),
        };
        let reduction = Reduction {
            operand: 0,
            dims: dims.clone(),
            keepdim: true,
            combine,
            pre: around("before", from)?,
            post: around("after", acc)?,
            acc,
            out: TensorType::with_fixed_shape(dtype, shape),
        };
        let reduction = Arc::new(reduction);
        Ok(Def::Reduce { arg, dims, reduction })
    }

    fn side_tables(&mut self, line: &RightSide, v: ValueId) -> ParseResult<()> {
        match line.attributes.get("activation") {
            None => {}
            Some(&"relu") => drop(self.tir.activations.insert(v, Activation::Relu)),
            Some(_) => match line.list::<f32>("activation")?[..] {
                [lo, hi] => drop(self.tir.activations.insert(v, Activation::Clamp(lo, hi))),
                _ => return Err("an activation must be `relu` or `[lo, hi]`".into()),
            },
        }
        match line.attributes.get("softmax") {
            None => {}
            Some(&"exponential") => drop(self.tir.softmax.insert(v, SoftmaxPart::Exponential)),
            Some(&"share") => drop(self.tir.softmax.insert(v, SoftmaxPart::Share)),
            Some(_) => return Err("a part of a softmax must be `exponential` or `share`".into()),
        }
        if line.attributes.contains_key("channels_last") {
            match line.list::<u8>("channels_last")?[..] {
                [x, y] => drop(self.tir.channels_last.insert(v, [x != 0, y != 0])),
                _ => return Err("`channels_last` must be a list of two".into()),
            }
        }
        Ok(())
    }
}

const COMBINES: [Combine; 6] = [
    Combine::Sum,
    Combine::Prod,
    Combine::Max,
    Combine::Min,
    Combine::Any,
    Combine::All,
];

/// A product of the first two operands, plus the third.
fn parse_matmul(line: &RightSide, out: TensorType) -> ParseResult<Contraction> {
    line.arg(1)?;
    Ok(Contraction::MatMul(MatrixProduct {
        a: 0,
        b: 1,
        bias: (line.args.len() > 2).then_some(2),
        a_transposed: line.flag("transpose_a")?,
        b_transposed: line.flag("transpose_b")?,
        alpha: line.number("alpha")?.unwrap_or(1.0),
        beta: line.number("beta")?.unwrap_or(1.0),
        out,
    }))
}

/// A convolution of the first operand with the second; the third is the bias.
fn parse_conv(line: &RightSide, out: TensorType) -> ParseResult<Contraction> {
    line.arg(1)?;
    let transposed = line.flag("transposed")?;
    let stride: Vec<usize> = line.list("stride")?;
    Ok(Contraction::Conv(Convolution {
        input: 0,
        weight: 1,
        bias: (line.args.len() > 2).then_some(2),
        padding: line.list("padding")?,
        dilation: line.list("dilation")?,
        transposed,
        output_padding: match transposed {
            true => line.list("output_padding")?,
            false => vec![0; stride.len()],
        },
        groups: line.required_number("groups")?,
        stride,
        out,
    }))
}

fn type_of(text: &str) -> ParseResult<(DType, Vec<usize>)> {
    let wrong = || format!("`{text}` is not a type like `f32[2, 3]`");
    let bracket = text.find('[').ok_or_else(wrong)?;
    let dtype = DType::from_short(&text[..bracket]).ok_or_else(wrong)?;
    let dims = split_items(&text[bracket..]).ok_or_else(wrong)?;
    let dims = dims.map(|d| d.parse().ok()).collect::<Option<Vec<usize>>>();
    Ok((dtype, dims.ok_or_else(wrong)?))
}

/// The next word. Brackets may contain spaces.
fn split_word(text: &str) -> (&str, &str) {
    let mut depth = 0usize;
    for (i, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => return text.split_at(i),
            _ => {}
        }
    }
    (text, "")
}

fn affine_list(line: &RightSide) -> ParseResult<Vec<AffineIndex>> {
    let read = |text: &str| split_items(text)?.map(parse_affine).collect::<Option<Vec<_>>>();
    line.parse_attribute("at", read)?
        .ok_or_else(|| "`affine` needs `at=[…]`".into())
}

/// Parses an affine index such as `3+2*d0+d1`.
fn parse_affine(text: &str) -> Option<AffineIndex> {
    let mut index = AffineIndex::default();
    for part in text.split('+') {
        let (factor, dim) = part.split_once('*').unwrap_or(("1", part));
        match dim.strip_prefix('d') {
            Some(d) => index.terms.push((d.parse().ok()?, factor.parse().ok()?)),
            None => index.offset = part.parse().ok()?,
        }
    }
    Some(index)
}
