//! Products of groups of rows, each with its own matrix.
//!
//! A constant B is packed once, as the B of a batch of products. Each group is then one product of the kernels that a batch uses, with as
//! many rows as the group has, and the chunks of all groups are handed out together. Only matrices of groups with rows are read: a
//! mixture of experts has many, and a token chooses few.

mod groups;

use super::grid::Grid;
use super::native::F32MatMulPlan;
use super::pairs::PairMatMulPlan;
use super::tiled::TiledProduct;
use crate::math::contract::{
    BatchDim, Constant, Grouped, GroupedArgs, GroupedPlan, InvalidGroups, MatMul, MatMulArgs, MatMulConstants,
    PlanError, Precision,
};
use crate::math::pairs::PairKernels;
use crate::math::scratch;
use crate::parallel::Pool;
use crate::types::DType;
use groups::{Group, RowGroups};

/// Plans `desc` for the instruction sets of `pairs`, which the machine must support. `b` are the matrices, if they are constant.
pub(in crate::math) fn plan(
    pairs: PairKernels,
    precision: Precision,
    desc: &Grouped,
    b: Option<Constant>,
) -> Result<Box<dyn GroupedPlan>, PlanError> {
    if !matches!(desc.dtype, DType::F32 | DType::BF16 | DType::F16) {
        return Err(PlanError::Dtype(desc.dtype));
    }
    if !matches!(desc.integers, DType::I32 | DType::I64) {
        return Err(PlanError::Dtype(desc.integers));
    }
    let need = desc.b_extent().ok_or(PlanError::Size)? * desc.dtype.size();
    if let Some(got) = b.map(|b| b.len()).filter(|&got| got < need) {
        return Err(PlanError::Constant { need, got });
    }
    let packed = b.filter(|_| desc.packs_constants());
    let products: Box<dyn GroupProducts> = match packed {
        None => Box::new(DynamicProducts { pairs, precision }),
        Some(_) => {
            let (batch, constants) = (batch_of(desc), MatMulConstants { a: None, b: packed });
            match desc.dtype == DType::BF16 || precision == Precision::Bf16 {
                true => Box::new(PackedProducts(PairMatMulPlan::new(pairs, &batch, constants))),
                false => Box::new(PackedProducts(F32MatMulPlan::new(pairs.isa, &batch, constants))),
            }
        }
    };
    let desc = desc.clone();
    Ok(Box::new(Plan { desc, products }))
}

/// One row times each matrix, as a batch: all packed matrices, in the form for any number of rows.
fn batch_of(desc: &Grouped) -> MatMul {
    let dim = BatchDim {
        size: desc.groups,
        a: 0,
        b: desc.b[0],
        c: desc.n,
        addend: 0,
    };
    MatMul {
        batch: vec![dim],
        ..desc.product(1)
    }
}

/// The operands of a group's product. `b` are all matrices, which are not read if they are packed.
fn group_args(desc: &Grouped, args: &GroupedArgs, group: &Group) -> MatMulArgs {
    let (size, row) = (desc.dtype.size(), group.rows.start);
    MatMulArgs {
        a: args.a.wrapping_add(row * desc.k * size),
        b: args.b.wrapping_add(group.matrix * desc.b[0] * size),
        addend: std::ptr::null(),
        c: args.c.wrapping_add(row * desc.n * size),
        tail: None,
    }
}

/// How the products of groups are computed.
trait GroupProducts: Send + Sync {
    /// Computes the products of `groups`, whose rows are consecutive.
    ///
    /// # Safety
    /// As for [`GroupedPlan::run`].
    unsafe fn run(&self, desc: &Grouped, pool: &Pool, groups: &[Group], args: &GroupedArgs);
    /// A description of the method, for reports.
    fn describe(&self, desc: &Grouped) -> String;
}

/// A plan.
struct Plan {
    desc: Grouped,
    products: Box<dyn GroupProducts>,
}

impl GroupedPlan for Plan {
    unsafe fn run(&self, pool: &Pool, args: &GroupedArgs) -> Result<(), InvalidGroups> {
        let d = &self.desc;
        let (size, row) = (d.dtype.size(), d.n * d.dtype.size());
        // SAFETY: guaranteed by the caller; the rows are those of A and C, and the buffers have as many.
        unsafe {
            let RowGroups { groups, used, order } = groups::read(d, args.integers)?;
            args.c.add(used * row).write_bytes(0, (d.rows - used) * row);
            let Some(order) = order else {
                self.products.run(d, pool, &groups, args);
                return Ok(());
            };
            let mut a = scratch::take_buffer((d.rows * d.k * size).div_ceil(4));
            let mut c = scratch::take_buffer((d.rows * row).div_ceil(4));
            groups::gather_rows(pool, &order, d.k * size, args.a, a.as_mut_ptr().cast());
            let sorted = GroupedArgs {
                a: a.as_ptr().cast(),
                c: c.as_mut_ptr().cast(),
                ..*args
            };
            self.products.run(d, pool, &groups, &sorted);
            groups::scatter_rows(pool, &order, row, sorted.c, args.c);
        }
        Ok(())
    }

    fn describe(&self) -> String {
        format!("grouped {}", self.products.describe(&self.desc))
    }
}

/// A plan of a batch of products with a packed B, whose matrices can be multiplied with any number of rows.
pub(super) trait PackedProduct: TiledProduct + Sized {
    /// The product of `rows` rows and matrix `matrix` of the batch.
    fn for_rows(&self, matrix: usize, rows: usize) -> Self;
}

/// Products with a packed B.
struct PackedProducts<P>(P);

/// The product of a group, and how it is split.
struct GroupProduct<P> {
    product: P,
    args: MatMulArgs,
    grid: Grid,
    /// The number of its first chunk.
    first: usize,
}

// SAFETY: the addresses are those of a plan's run, whose chunks read the operands and write disjoint parts of C.
unsafe impl<P: Sync> Sync for GroupProduct<P> {}

impl<P: PackedProduct> PackedProducts<P> {
    /// The products of the groups, and the number of their chunks.
    fn split(
        &self,
        desc: &Grouped,
        groups: &[Group],
        threads: usize,
        args: &GroupedArgs,
    ) -> (Vec<GroupProduct<P>>, usize) {
        let mut chunks = 0;
        let product = |g: &Group| {
            let product = self.0.for_rows(g.matrix, g.rows.len());
            let (grid, first) = (product.choose_grid(threads, groups.len()), chunks);
            chunks += grid.chunks();
            GroupProduct {
                args: group_args(desc, args, g),
                product,
                grid,
                first,
            }
        };
        let products = groups.iter().map(product).collect();
        (products, chunks)
    }
}

impl<P: PackedProduct> GroupProducts for PackedProducts<P> {
    unsafe fn run(&self, desc: &Grouped, pool: &Pool, groups: &[Group], args: &GroupedArgs) {
        let (products, chunks) = self.split(desc, groups, pool.threads(), args);
        pool.run(chunks, |i| {
            let p = &products[products.partition_point(|p| p.first <= i) - 1];
            let (tiles, panels) = p.grid.chunk(i - p.first);
            // SAFETY: guaranteed by the caller; chunks own disjoint parts of C.
            unsafe { p.product.run_part(&p.args, 0, tiles, panels) };
        });
    }

    fn describe(&self, _: &Grouped) -> String {
        self.0.method()
    }
}

/// Products with matrices that are read where they are.
struct DynamicProducts {
    pairs: PairKernels,
    precision: Precision,
}

impl GroupProducts for DynamicProducts {
    unsafe fn run(&self, desc: &Grouped, pool: &Pool, groups: &[Group], args: &GroupedArgs) {
        for group in groups {
            let product = desc.product(group.rows.len());
            let plan = super::plan(self.pairs, self.precision, &product, MatMulConstants::default());
            let plan = plan.expect("all rows together fit the address space");
            // SAFETY: guaranteed by the caller; the rows and the matrix lie in the operands.
            unsafe { plan.run(pool, &group_args(desc, args, group)) };
        }
    }

    fn describe(&self, desc: &Grouped) -> String {
        format!("matmul {} dynamic", desc.dtype)
    }
}

#[cfg(test)]
mod tests;
