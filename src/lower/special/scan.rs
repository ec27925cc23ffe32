//! Running sums and products along a dim.
//!
//! torch carries those of f32 in f64. Here rows of f32 are summed in blocks: first the running sums within each block;
//! then the sum before each block as two f32 numbers, a sum and its rounding error; finally both are added in vectors.

use super::kernels::{affine_vars, element_index, loop_over};
use crate::kernel::{Affine, Buf, KernelBuilder, Value};
use crate::lower::ir::ScanOp;
use crate::lower::ir::access::Access;
use crate::scalar::{Binary, Compare};
use crate::tensor::Scalar;
use crate::types::DType;

/// The number of elements of a row that are summed sequentially.
const BLOCK: usize = 32;
/// The number of blocks per chunk: their sums stay in L1.
const BLOCKS: usize = 32;
/// The number of blocks that are summed in parallel, to hide the latency of additions.
const SIDE: usize = 4;

/// The most columns that are carried in f64 though f32 vectors would have twice the lanes.
const FEW_COLUMNS: usize = 16;

/// How the running result is carried: a plain f32 carry would add a rounding error at every element.
#[derive(Clone, Copy, PartialEq)]
enum ScanCarry {
    /// In the result's dtype: integers, and f64.
    Plain,
    /// In f64, for f32 results.
    Wide,
    /// As an f32 sum and its rounding error, where sums are computed side by side in vectors.
    Compensated,
}

impl ScanCarry {
    /// The carry of a scan. `along`: whether it runs along the last dim.
    /// `columns`: how many results are computed side by side.
    fn choose(op: ScanOp, is_f32: bool, along: bool, columns: usize) -> ScanCarry {
        match op {
            _ if !is_f32 => ScanCarry::Plain,
            // Each operation of a compensated sum waits for the one before it, which only many columns hide.
            ScanOp::Sum if !along && columns > FEW_COLUMNS => ScanCarry::Compensated,
            _ => ScanCarry::Wide,
        }
    }
}

/// The kernel of a running sum or product along `dim`.
pub(super) fn write_scan(
    k: &mut KernelBuilder,
    x: &(Buf, Access),
    out: &(Buf, Access),
    shape: &[usize],
    dim: usize,
    op: ScanOp,
) {
    let (shape, dim, [x, out]) = merge_dims(shape, dim, [x, out]);
    let (shape, x, out) = (&shape[..], &x, &out);
    let scan = ScanKernel { x, out, dim, op };
    let mut others: Vec<usize> = (0..shape.len()).filter(|&d| d != dim).map(|d| shape[d]).collect();
    let (n, along) = (shape[dim], dim + 1 == shape.len());
    let is_f32 = scan.dtype(k) == DType::F32;
    let columns = others.last().copied().unwrap_or(1);
    let carry = ScanCarry::choose(op, is_f32, along, columns);
    if is_f32 && along && op == ScanOp::Sum && n >= 4 * BLOCK {
        return match others.is_empty() {
            true => scan.emit_long_row(k, &[], n),
            false => k.parallel(&others, |k, v| scan.emit_long_row(k, &affine_vars(v), n)),
        };
    }
    let Some(last) = others.last_mut() else {
        return scan.emit_plain(k, &[vec![]], n, carry);
    };
    if !along {
        // Along another dim, the sums of a row are adjacent.
        return loop_over(k, &others, |k, v| scan.emit_plain(k, &[v.to_vec()], n, carry));
    }
    // Integers and f64 hardly wait for each other, and one row at a time is what processors prefetch.
    let together = match carry {
        ScanCarry::Plain => 1,
        _ => interleaved_rows(*last, n),
    };
    *last /= together;
    k.parallel(&others, |k, v| {
        scan.emit_plain(k, &neighbours(&affine_vars(v), together), n, carry)
    });
}

/// `together` rows that are neighbours: those of group `group`, the last of the indices.
fn neighbours(group: &[Affine], together: usize) -> Vec<Vec<Affine>> {
    let row = |n: i64| {
        let mut o = group.to_vec();
        if let Some(x) = o.last_mut() {
            *x = x.clone() * together as i64 + n;
        }
        o
    };
    (0..together as i64).map(row).collect()
}

/// The shape, the scanned dim and the operands with neighbouring dims merged that are one dim in both: more rows lie side by side.
fn merge_dims(shape: &[usize], dim: usize, operands: [&(Buf, Access); 2]) -> (Vec<usize>, usize, [(Buf, Access); 2]) {
    let (mut sizes, mut dim_now) = (shape.to_vec(), dim);
    let mut operands = operands.map(Clone::clone);
    for d in (1..shape.len()).rev() {
        let inner = sizes[d] as i64;
        let is_one = |(_, a): &(Buf, Access)| a.strides[d - 1] == a.strides[d].saturating_mul(inner);
        if d == dim || d - 1 == dim || !operands.iter().all(is_one) {
            continue;
        }
        sizes[d - 1] = sizes[d - 1].saturating_mul(sizes.remove(d));
        for (_, a) in &mut operands {
            a.strides.remove(d - 1);
        }
        dim_now -= (d < dim) as usize;
    }
    (sizes, dim_now, operands)
}

/// The number of rows of length `n` that are scanned together, out of `rows` adjacent ones. Interleaving rows hides the
/// latency of an addition. More than two long rows would map to the same set of the L1 cache if their length is a power
/// of two.
fn interleaved_rows(rows: usize, n: usize) -> usize {
    let choices: &[usize] = if n < 4 * BLOCK { &[4, 2] } else { &[2] };
    let fits = |t: &&usize| rows > 0 && rows.is_multiple_of(**t);
    choices.iter().find(fits).copied().unwrap_or(1)
}

/// The input and the output.
struct ScanKernel<'a> {
    x: &'a (Buf, Access),
    out: &'a (Buf, Access),
    dim: usize,
    op: ScanOp,
}

/// Scratch memory for the row of one thread.
struct ScanScratch {
    /// The running sum of each element's block.
    within: Buf,
    /// The sum of each block.
    sums: Buf,
    /// The sum before each block, and its rounding error.
    before: [Buf; 2],
}

impl ScanKernel<'_> {
    fn dtype(&self, k: &KernelBuilder) -> DType {
        k.buffer_dtype(self.out.0)
    }

    /// The index of element `j` of the scanned dim.
    fn index_at(&self, outer: &[Affine], j: Affine) -> Vec<Affine> {
        let mut i = outer.to_vec();
        i.insert(self.dim, j);
        i
    }

    fn load(&self, k: &mut KernelBuilder, outer: &[Affine], j: Affine) -> Value {
        k.load(self.x.0, element_index(&self.x.1, &self.index_at(outer, j)))
    }

    fn store(&self, k: &mut KernelBuilder, outer: &[Affine], j: Affine, v: Value) {
        k.store(self.out.0, element_index(&self.out.1, &self.index_at(outer, j)), v);
    }

    /// Emits a sequential scan of some interleaved rows, each with its own chain of additions.
    fn emit_plain(&self, k: &mut KernelBuilder, outers: &[Vec<Affine>], n: usize, carry: ScanCarry) {
        let start = self.initial_carry(k, carry);
        let each = start.len();
        k.scan(n, &start.repeat(outers.len()), |k, j, carried| {
            // Loads first, so that none waits for a store that appears to alias it.
            let values: Vec<_> = outers.iter().map(|o| self.load(k, o, j.into())).collect();
            let mut next = vec![];
            for ((outer, carried), v) in outers.iter().zip(carried.chunks(each)).zip(values) {
                let (carried, result) = self.add_to_carry(k, carry, carried, v);
                self.store(k, outer, j.into(), result);
                next.extend(carried);
            }
            next
        });
    }

    fn initial_carry(&self, k: &mut KernelBuilder, carry: ScanCarry) -> Vec<Value> {
        let dtype = match carry {
            ScanCarry::Wide => DType::F64,
            _ => self.dtype(k),
        };
        let start = k.constant(Scalar::from_i64(dtype, (self.op == ScanOp::Product) as i64));
        vec![start; if carry == ScanCarry::Compensated { 2 } else { 1 }]
    }

    /// Returns the carry after adding `v`, and the result.
    fn add_to_carry(
        &self,
        k: &mut KernelBuilder,
        carry: ScanCarry,
        carried: &[Value],
        v: Value,
    ) -> (Vec<Value>, Value) {
        let op = match self.op {
            ScanOp::Sum => Binary::Add,
            ScanOp::Product => Binary::Mul,
        };
        match carry {
            ScanCarry::Plain => {
                let next = k.binary(op, carried[0], v);
                (vec![next], next)
            }
            ScanCarry::Wide => {
                let (dtype, v) = (k.dtype(v), k.cast(DType::F64, v));
                let next = k.binary(op, carried[0], v);
                (vec![next], k.cast(dtype, next))
            }
            ScanCarry::Compensated => {
                let (sum, lost) = (carried[0], carried[1]);
                let v = k.binary(Binary::Sub, v, lost);
                let next = k.binary(Binary::Add, sum, v);
                let gained = k.binary(Binary::Sub, next, sum);
                let lost = k.binary(Binary::Sub, gained, v);
                (vec![next, number_or_zero(k, lost)], next)
            }
        }
    }

    /// Emits the scan of a long f32 row.
    fn emit_long_row(&self, k: &mut KernelBuilder, outer: &[Affine], n: usize) {
        let scratch = ScanScratch {
            within: k.local("within", DType::F32, &[BLOCKS * BLOCK]),
            sums: k.local("sums", DType::F32, &[BLOCKS]),
            before: ["sum", "lost"].map(|name| k.local(name, DType::F32, &[BLOCKS])),
        };
        let zero = k.constant(Scalar::F32(0.0));
        let chunk = BLOCKS * BLOCK;
        let mut carried = k.scan(n / chunk, &[zero, zero], |k, c, carried| {
            self.chunk(k, &scratch, outer, Affine::from(c) * chunk as i64, BLOCKS, carried)
        });
        let (done, blocks) = (n / chunk * chunk, n % chunk / BLOCK);
        if blocks > 0 {
            carried = self.chunk(k, &scratch, outer, Affine::from(done as i64), blocks, &carried);
        }
        let mut sum: Option<Value> = None;
        for j in done + blocks * BLOCK..n {
            let v = self.load(k, outer, Affine::from(j as i64));
            let within = sum.map_or(v, |s| k.binary(Binary::Add, s, v));
            let small = k.binary(Binary::Add, within, carried[1]);
            let result = k.binary(Binary::Add, carried[0], small);
            self.store(k, outer, Affine::from(j as i64), result);
            sum = Some(within);
        }
    }

    /// Scans `blocks` blocks of a row starting at `from`. Returns the carry after them.
    fn chunk(
        &self,
        k: &mut KernelBuilder,
        scratch: &ScanScratch,
        outer: &[Affine],
        from: Affine,
        blocks: usize,
        carried: &[Value],
    ) -> Vec<Value> {
        let together = blocks / SIDE * SIDE;
        k.serial(together / SIDE, |k, b| {
            self.blocks(k, scratch, outer, &from, Affine::from(b) * SIDE as i64, SIDE);
        });
        for b in together..blocks {
            self.blocks(k, scratch, outer, &from, Affine::from(b as i64), 1);
        }
        let carried = k.scan(blocks, carried, |k, b, carried| {
            for (&part, &v) in scratch.before.iter().zip(carried) {
                k.store(part, Affine::from(b), v);
            }
            let v = k.load(scratch.sums, Affine::from(b));
            two_sum(k, carried, v)
        });
        k.serial(blocks, |k, b| {
            let b = Affine::from(b);
            let [sum, lost] = scratch.before.map(|part| k.load(part, b.clone()));
            k.vector(BLOCK, |k, j| {
                let within = k.load(scratch.within, block_element(&b, j.into()));
                let small = k.binary(Binary::Add, within, lost);
                let result = k.binary(Binary::Add, sum, small);
                self.store(k, outer, from.clone() + block_element(&b, j.into()), result);
            });
        });
        carried
    }

    /// Computes the running sums within `count` blocks starting at block `first`, and the sum of each block.
    fn blocks(
        &self,
        k: &mut KernelBuilder,
        scratch: &ScanScratch,
        outer: &[Affine],
        from: &Affine,
        first: Affine,
        count: usize,
    ) {
        let zero = k.constant(Scalar::F32(0.0));
        let sums = k.scan(BLOCK, &vec![zero; count], |k, j, sums| {
            let place = |b: usize| block_element(&(first.clone() + b as i64), j.into());
            // Loads first, so that none waits for a store that appears to alias it.
            let values: Vec<_> = (0..count)
                .map(|b| self.load(k, outer, from.clone() + place(b)))
                .collect();
            let next: Vec<_> = sums
                .iter()
                .zip(values)
                .map(|(&s, v)| k.binary(Binary::Add, s, v))
                .collect();
            for (b, &sum) in next.iter().enumerate() {
                k.store(scratch.within, place(b), sum);
            }
            next
        });
        for (b, sum) in sums.into_iter().enumerate() {
            k.store(scratch.sums, first.clone() + b as i64, sum);
        }
    }
}

/// The index of element `j` of a block.
fn block_element(block: &Affine, j: Affine) -> Affine {
    block.clone() * BLOCK as i64 + j
}

/// Adds `v` to a sum and its rounding error (Knuth's two-sum).
fn two_sum(k: &mut KernelBuilder, carried: &[Value], v: Value) -> Vec<Value> {
    let (sum, lost) = (carried[0], carried[1]);
    let next = k.binary(Binary::Add, sum, v);
    let of_v = k.binary(Binary::Sub, next, sum);
    let of_sum = k.binary(Binary::Sub, next, of_v);
    let missed_v = k.binary(Binary::Sub, v, of_v);
    let missed_sum = k.binary(Binary::Sub, sum, of_sum);
    let missed = k.binary(Binary::Add, missed_sum, missed_v);
    let lost = k.binary(Binary::Add, lost, missed);
    vec![next, number_or_zero(k, lost)]
}

/// `v`, or 0 if it is NaN: infinity minus infinity is not a rounding error.
fn number_or_zero(k: &mut KernelBuilder, v: Value) -> Value {
    let zero = k.constant(Scalar::from_i64(k.dtype(v), 0));
    let is_number = k.compare(Compare::Eq, v, v);
    k.select(is_number, v, zero)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::ir::ValueId;

    #[test]
    fn dims_are_merged_around_the_scanned_one() {
        let access = |strides: &[i64]| Access {
            base: ValueId(0),
            offset: 0,
            strides: strides.to_vec(),
        };
        let merged = |dim: usize, x: &[i64]| {
            let (x, out) = ((Buf(0), access(x)), (Buf(1), access(&[60, 20, 5, 1])));
            let (shape, dim, [x, out]) = merge_dims(&[2, 3, 4, 5], dim, [&x, &out]);
            (shape, dim, x.1.strides, out.1.strides)
        };
        let dense = &[60, 20, 5, 1];
        assert_eq!(merged(0, dense), (vec![2, 60], 0, vec![60, 1], vec![60, 1]));
        assert_eq!(merged(2, dense), (vec![6, 4, 5], 1, vec![20, 5, 1], vec![20, 5, 1]));
        assert_eq!(merged(3, dense), (vec![24, 5], 1, vec![5, 1], vec![5, 1]));
        let transposed = (vec![2, 3, 20], 0, vec![1, 2, 6], vec![60, 20, 1]);
        assert_eq!(merged(0, &[1, 2, 30, 6]), transposed);
    }
}
