//! `x[…]` and `x[…] = y` on tensors: basic indices become views, the rest `index` and `index_put`.

use crate::diag::words::with_article;
use crate::op::emit::call_of;
use crate::op::emit::dims_val;
use crate::op::layout::Layout;
use crate::op::rows::arrange::joining::constant_indices;
use crate::op::sharing::is_expanded;
use crate::op::view::write_through;
use crate::op::{Build, Call, Op, OpBuilder, OpError, OpId, OpResult, Traced};
use crate::types::{DType, Dim, TensorType, Val};

pub(super) fn rows() -> Vec<Op> {
    vec![
        Op::composite("getitem(Tensor self, Any index) -> Tensor", |b, c| {
            let x = c.leaf("self")?.clone();
            let mut picked = apply_basic_index(b, x, c.get("index"))?;
            let x = picked.last().clone();
            let out = match picked.indices.is_empty() {
                true => x,
                false => b.index(x, Val::List(std::mem::take(&mut picked.indices)))?,
            };
            Ok(out.into())
        })
        .same_elements()
        .doc("x[index]: ints, slices, None, Ellipsis, index tensors, masks, lists")
        .spelled("operator.@ Tensor.__getitem__")
        .aliasing(),
        Op::composite("setitem(Tensor self, Any index, Any value) -> Tensor", setitem)
            .doc("a copy with x[index] = value")
            .inplace("operator.@ Tensor.__setitem__")
            .shared_writes(assigns_shared),
    ]
}

/// A tensor after basic indexing, the views applied so far, and the remaining index tensors.
struct Picked {
    base: Traced,
    /// Each view's call with its result.
    views: Vec<(Call<Traced>, Traced)>,
    /// For `index`: one entry per dim, up to the last index tensor. Empty if there are no index tensors.
    indices: Vec<Val<Traced>>,
}

impl Picked {
    fn last(&self) -> &Traced {
        self.views.last().map_or(&self.base, |(_, t)| t)
    }

    fn push_view(&mut self, b: &mut dyn Build, op: OpId, mut args: Vec<Val<Traced>>) -> OpResult<()> {
        args.insert(0, self.last().into());
        let call = call_of(op.op(), args);
        let out = b.op(op, call.args.clone())?;
        self.views.push((call, out));
        Ok(())
    }
}

/// Converts a list that stands for an index tensor (Python writes a sequence of indices as a tuple). `size` is the size
/// of the indexed dim.
fn list_tensor(b: &mut dyn Build, v: &[Val<Traced>], size: &Dim) -> OpResult<Traced> {
    if !v.is_empty() && v.iter().all(|x| matches!(x, Val::Bool(_))) {
        let on: Vec<i64> = (0..)
            .zip(v)
            .filter(|(_, x)| x.as_int() == Some(1))
            .map(|(i, _)| i)
            .collect();
        let mask = Dim::Const(v.len() as i64);
        if size.sub(&mask).as_const().is_some_and(|d| d != 0) {
            return Err(OpError::shape(format!(
                "The shape of the mask [{mask}] does not match the shape of the indexed tensor, whose dim has size {size}"
            )));
        }
        return constant_indices(b, &on);
    }
    // torch makes an int tensor of the list, so floats are truncated.
    let int = |v: &Val<Traced>| match v {
        Val::Float(x) => Some(*x as i64),
        v => v.as_int(),
    };
    if let Some(ints) = v.iter().map(int).collect::<Option<Vec<_>>>() {
        return constant_indices(b, &ints);
    }
    // Nested lists, sizes and 0-dim tensors are stacked.
    let rows = v.iter().map(|x| match x {
        Val::List(v) | Val::Tuple(v) => list_tensor(b, v, &Dim::Unknown),
        Val::Leaf(t) => Ok(t.clone()),
        Val::Int(d) => b.full(&[], Val::Int(d.clone()), DType::I64),
        v => Err(OpError::arg(
            "index",
            format!("a list of indices cannot contain {}", with_article(v.kind_name())),
        )),
    });
    let rows = rows.collect::<OpResult<Vec<_>>>()?;
    b.op(OpId::Stack, [crate::op::emit::list_val(&rows), Val::int(0)])
}

/// The items of an index as written.
fn written_items(index: &Val<Traced>) -> Vec<Val<Traced>> {
    match index {
        Val::Tuple(v) => v.clone(),
        // torch treats a short list as a tuple if it contains items that a tensor cannot.
        Val::List(v) if v.len() < 32 && v.iter().any(|v| matches!(v, Val::None | Val::Slice(_) | Val::Ellipsis)) => {
            v.clone()
        }
        v => vec![v.clone()],
    }
}

/// The number of dims that an item indexes.
fn count_indexed_dims(item: &Val<Traced>) -> OpResult<usize> {
    match item {
        Val::Int(_) | Val::Slice(_) | Val::Any(_) => Ok(1),
        Val::Leaf(t) if is_mask(t) => t.rank(),
        Val::Leaf(_) => Ok(1),
        Val::None | Val::Ellipsis | Val::Bool(_) => Ok(0),
        Val::Unknown => Err(OpError::arg("index", "the index is unknown")),
        v => Err(OpError::arg(
            "index",
            format!(
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {})",
                v.kind_name()
            ),
        )),
    }
}

/// The index as a sequence of items. Lists become tensors, and an ellipsis becomes full slices.
fn index_items(b: &mut dyn Build, x: &Traced, index: &Val<Traced>) -> OpResult<Vec<Val<Traced>>> {
    let mut out = vec![];
    let mut taken = 0;
    // After `...` the indexed dim is not known here.
    let mut ellipsis = false;
    for v in written_items(index) {
        let v = match v {
            Val::List(v) | Val::Tuple(v) => {
                let size = x.shape()?.get(taken).filter(|_| !ellipsis);
                let size = size.cloned().unwrap_or(Dim::Unknown);
                Val::Leaf(list_tensor(b, &v, &size)?)
            }
            Val::Range(_) => {
                return Err(OpError::arg(
                    "index",
                    "a range is not a valid index; write a slice or a list",
                ));
            }
            v => v,
        };
        ellipsis |= matches!(v, Val::Ellipsis);
        taken += count_indexed_dims(&v)?;
        out.push(v);
    }
    expand_ellipsis(out, x.rank()?, taken)
}

/// Replaces the ellipsis, or the end of an index without one, by full slices for the dims that are not indexed.
fn expand_ellipsis(mut out: Vec<Val<Traced>>, rank: usize, taken: usize) -> OpResult<Vec<Val<Traced>>> {
    if rank == 0 && out.iter().any(|v| matches!(v, Val::Int(_))) {
        return Err(OpError::shape(
            "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim \
             tensor to a number",
        ));
    }
    if taken > rank {
        return Err(OpError::shape(format!(
            "too many indices for tensor of dimension {rank}"
        )));
    }
    match out.iter().filter(|v| matches!(v, Val::Ellipsis)).count() {
        0 => out.push(Val::Ellipsis),
        1 => {}
        _ => {
            return Err(OpError::arg(
                "index",
                "an index can only have a single ellipsis ('...')",
            ));
        }
    }
    let position = out.iter().position(|v| matches!(v, Val::Ellipsis)).unwrap_or(0);
    let full = Val::Slice(Box::new([Val::None, Val::None, Val::None]));
    out.splice(position..=position, vec![full; rank - taken]);
    Ok(out)
}

fn is_mask(t: &Traced) -> bool {
    matches!(t.dtype(), DType::B8 | DType::U8)
}

fn size_of(v: &Val<Traced>, role: &str) -> OpResult<Option<Dim>> {
    match v {
        Val::None => Ok(None),
        Val::Int(d) => Ok(Some(d.clone())),
        Val::Bool(b) => Ok(Some(Dim::Const(*b as i64))),
        Val::Any(_) => Ok(Some(Dim::Unknown)),
        v => Err(OpError::arg(
            "index",
            format!(
                "slice indices must be integers or None, but the {role} is {}",
                with_article(v.kind_name())
            ),
        )),
    }
}

/// Applies the basic items one after another. Dims are counted in the intermediate result.
fn apply_basic_index(b: &mut dyn Build, x: Traced, index: &Val<Traced>) -> OpResult<Picked> {
    let list = index_items(b, &x, index)?;
    let mut p = Picked {
        base: x,
        views: vec![],
        indices: vec![],
    };
    let mut dim = 0;
    let mut tensors: Vec<(usize, Traced)> = vec![];
    // The dim as in error messages: counted in the indexed tensor.
    let mut source_dim = 0;
    for item in &list {
        match item {
            Val::Slice(s) => {
                slice_item(b, &mut p, dim, s)?;
                (dim, source_dim) = (dim + 1, source_dim + 1);
            }
            Val::None | Val::Bool(_) => {
                let is_empty = matches!(item, Val::Bool(false));
                p.push_view(b, OpId::Unsqueeze, vec![Val::int(dim as i64)])?;
                if is_empty {
                    p.push_view(b, OpId::Slice, vec![Val::int(dim as i64), Val::int(0), Val::int(0)])?;
                }
                dim += 1;
            }
            Val::Leaf(t) => {
                let n = if is_mask(t) { t.rank()? } else { 1 };
                tensors.push((dim, t.clone()));
                (dim, source_dim) = (dim + n, source_dim + n);
            }
            v => {
                select_item(b, &mut p, [dim, source_dim], v)?;
                source_dim += 1;
            }
        }
    }
    push_tensor_indices(&mut p, tensors)?;
    Ok(p)
}

/// Selects the element at an int index. Dim `source_dim` of the indexed tensor is dim `dim` of the intermediate result.
fn select_item(b: &mut dyn Build, p: &mut Picked, [dim, source_dim]: [usize; 2], index: &Val<Traced>) -> OpResult<()> {
    let size = p.last().shape()?[dim].clone();
    let i = size_of(index, "index")?.unwrap_or(Dim::Unknown);
    if let (Some(i), Some(n)) = (i.as_const(), size.as_const())
        && !(-n..n).contains(&i)
    {
        return Err(OpError::shape(format!(
            "index {i} is out of bounds for dimension {source_dim} with size {n}"
        )));
    }
    p.push_view(b, OpId::Select, vec![Val::int(dim as i64), Val::Int(i)])
}

/// Adds the tensors among the items as indices of their dims.
fn push_tensor_indices(p: &mut Picked, tensors: Vec<(usize, Traced)>) -> OpResult<()> {
    for (dim, t) in tensors {
        p.indices.resize(dim.max(p.indices.len()), Val::None);
        // A mask is a single item but covers all its dims.
        let further = if is_mask(&t) { t.rank()?.saturating_sub(1) } else { 0 };
        p.indices.push(t.into());
        p.indices.extend(std::iter::repeat_n(MASK_TAIL, further));
    }
    p.indices.retain(|v| !matches!(v, Val::Ellipsis));
    Ok(())
}

/// Placeholder for the further dims of a mask while positions are counted.
const MASK_TAIL: Val<Traced> = Val::Ellipsis;

fn slice_item(b: &mut dyn Build, p: &mut Picked, dim: usize, s: &[Val<Traced>; 3]) -> OpResult<()> {
    let (start, end) = (size_of(&s[0], "start")?, size_of(&s[1], "end")?);
    let step = match size_of(&s[2], "step")? {
        None => 1,
        Some(d) => d
            .as_const()
            .ok_or_else(|| OpError::arg("index", "the step of a slice must be a constant"))?,
    };
    if step <= 0 {
        return Err(OpError::arg("index", "step must be greater than zero").help("use `flip` to reverse a dim"));
    }
    let whole = start.as_ref().is_none_or(|d| *d == Dim::Const(0)) && end.is_none() && step == 1;
    if whole {
        return Ok(());
    }
    let bound = |d: Option<Dim>| d.map_or(Val::None, Val::Int);
    p.push_view(
        b,
        OpId::Slice,
        vec![Val::int(dim as i64), bound(start), bound(end), Val::int(step)],
    )
}

/// Whether an assignment to a tensor with layout `layout` skips the check for elements that share memory. This holds for
/// assignments of a number, for index tensors, and if int indices cover all dims that repeat elements.
fn assigns_shared(c: &Call<TensorType>, layout: &Layout) -> bool {
    let items = match c.get("index") {
        Val::Tuple(v) => v.clone(),
        v => vec![v.clone()],
    };
    let by_tensor = |v: &Val<TensorType>| matches!(v, Val::Leaf(_) | Val::List(_) | Val::Tuple(_));
    if c.opt_leaf("value").is_none() || items.iter().any(by_tensor) {
        return true;
    }
    let Some(shape) = c.opt_leaf("self").and_then(|t| t.shape.as_ref()) else {
        return false;
    };
    let takes = |v: &&Val<TensorType>| matches!(v, Val::Int(_) | Val::Slice(_));
    let left = shape.len().saturating_sub(items.iter().filter(takes).count());
    let mut d = 0;
    let mut remains = vec![true; shape.len()];
    for v in &items {
        match v {
            Val::Ellipsis => d += left,
            Val::Int(_) => {
                if let Some(k) = remains.get_mut(d) {
                    *k = false;
                }
                d += 1;
            }
            Val::Slice(_) => d += 1,
            _ => {}
        }
    }
    let rest = |v: &[Dim]| {
        v.iter()
            .zip(&remains)
            .filter(|(_, k)| **k)
            .map(|(x, _)| x.clone())
            .collect::<Vec<_>>()
    };
    !is_expanded(&rest(shape), &rest(&layout.strides))
}

fn setitem(b: &mut dyn Build, c: &Call<Traced>) -> OpResult<Val<Traced>> {
    let x = c.leaf("self")?.clone();
    let dtype = x.dtype();
    let mut p = apply_basic_index(b, x, c.get("index"))?;
    let value = match c.get("value") {
        Val::Leaf(t) => b.to_dtype(t, dtype)?,
        v if v.as_f64().is_some() || matches!(v, Val::Int(_) | Val::Any(_)) => b.full(&[], v.clone(), dtype)?,
        v => {
            return Err(OpError::arg(
                "value",
                format!("can't assign {} to a tensor of {dtype}", with_article(v.kind_name())),
            ));
        }
    };
    let target = p.last().clone();
    let mut new = if p.indices.is_empty() {
        let shape = target.shape()?.to_vec();
        let value = without_lead(b, &value, shape.len())?;
        b.op(OpId::Expand, [value.into(), dims_val(&shape)])?
    } else {
        let indices = Val::List(std::mem::take(&mut p.indices));
        // Leading dims of size 1 are dropped. The rank of the indexing result is not known here, so all of them are
        // dropped.
        let value = without_lead(b, &value, ones_ahead(&value)?)?;
        b.index_put(target, indices, value)?
    };
    for (call, _) in p.views.iter().rev() {
        new = write_through(b, call, &new)?;
    }
    Ok(new.into())
}

/// The rank of a tensor without its leading dims of size 1.
fn ones_ahead(value: &Traced) -> OpResult<usize> {
    let shape = value.shape()?;
    Ok(shape.iter().skip_while(|d| **d == Dim::Const(1)).count())
}

/// `value` without leading dims of size 1 beyond `rank`, which assignment ignores.
fn without_lead(b: &mut dyn Build, value: &Traced, rank: usize) -> OpResult<Traced> {
    let shape = value.shape()?;
    let extra = shape.len().saturating_sub(rank);
    if extra > 0 && shape[..extra].iter().all(|d| *d == Dim::Const(1)) {
        let rest = shape[extra..].to_vec();
        return b.reshape(value, &rest);
    }
    Ok(value.clone())
}
