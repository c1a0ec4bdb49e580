//! What cuBLAS computes: matrices in column order, vectors with increments. Touches nothing but the slices
//! it is given and scratch memory of a fixed size.
//!
//! A slice begins at the pointer that the caller of cuBLAS passes, which is that of the lowest address even
//! where an increment is negative (the reference BLAS starts at `(1 - n) * inc` then).

use std::ops::Range;

use crate::check::{operand, output, positive, size};
use crate::error::{Error, Result};
use crate::gather::{Gather, Spread, Tap};
use crate::multiply::{DEPTH, Product, blocks, multiply};
use crate::{Blend, Real};

/// How many elements of a matrix-vector product, and of a product in double precision, are summed at once.
const BLOCK: usize = 64;

/// Whether a matrix is taken as it is (`cublasOperation_t`; for real numbers, the conjugate transpose is
/// the transpose).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// As it is.
    None,
    /// Rows for columns.
    Transpose,
}

/// A matrix in column order: element (i, j) at `i + j * ld`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    rows: usize,
    columns: usize,
    ld: usize,
    span: usize,
}

impl Matrix {
    /// A matrix of `rows` by `columns`, one column every `ld` elements.
    ///
    /// # Errors
    /// [`Error::Invalid`] for negative sizes and for an `ld` below `rows` or 1.
    pub fn new(rows: impl Into<i64>, columns: impl Into<i64>, ld: impl Into<i64>) -> Result<Self> {
        let (rows, columns, ld) = (size(rows)?, size(columns)?, positive(ld)?);
        if ld < rows {
            return Err(Error::Invalid("a leading dimension is smaller than a column"));
        }
        // Two sizes below 2^31: no overflow.
        let span = if rows == 0 || columns == 0 { 0 } else { (columns - 1) * ld + rows };
        Ok(Self { rows, columns, ld, span })
    }

    /// How many elements a slice must have to hold it.
    #[must_use]
    pub fn span(&self) -> usize {
        self.span
    }

    /// One without gaps.
    fn dense(rows: usize, columns: usize) -> Self {
        Self { rows, columns, ld: rows.max(1), span: rows * columns }
    }

    fn part(&self, rows: &Range<usize>, columns: &Range<usize>) -> Part {
        let start = rows.start + columns.start * self.ld;
        Part { start, rows: rows.len(), columns: columns.len(), ld: self.ld }
    }

    /// `op` of it as an operand: by row, over columns.
    fn gather<'a>(&self, op: Op, data: &'a [f32]) -> Gather<'a> {
        let (row, column) = ((self.rows, 1), (self.columns, self.ld));
        let (lead, depth) = if op == Op::None { (row, column) } else { (column, row) };
        Gather {
            data,
            base: 0,
            lead: [lead.0, 1, 1, 1],
            depth: [depth.0, 1, 1, 1],
            lead_step: lead.1,
            depth_step: depth.1,
            taps: [Tap::NONE; 3],
        }
    }
}

/// Some rows of some columns of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    start: usize,
    rows: usize,
    columns: usize,
    ld: usize,
}

impl Part {
    /// Where its elements are, column by column.
    pub fn columns(self) -> impl Iterator<Item = Range<usize>> {
        // Columns of nothing are nowhere: there may be no room for where they would begin.
        let columns = if self.rows == 0 { 0 } else { self.columns };
        (0..columns).map(move |column| {
            let start = self.start + column * self.ld;
            start..start + self.rows
        })
    }
}

/// A vector: element i at `i * inc`, or counted from the end where `inc` is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector {
    len: usize,
    inc: i64,
    span: usize,
}

impl Vector {
    /// A vector of `len` elements; negative ones are none at all, as in BLAS's first level.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for sizes beyond 32 bits.
    pub fn new(len: impl Into<i64>, inc: impl Into<i64>) -> Result<Self> {
        let (len, inc) = (size(len.into().max(0))?, inc.into());
        // An increment's size is below 2^31, or refused; so is the length: no overflow.
        let step = size(inc.saturating_abs())?;
        let span = if len == 0 { 0 } else { (len - 1) * step + 1 };
        Ok(Self { len, inc, span })
    }

    /// How many elements a slice must have to hold it.
    #[must_use]
    pub fn span(&self) -> usize {
        self.span
    }

    /// Where its elements are.
    fn places(self) -> impl Iterator<Item = usize> {
        let step = self.inc.unsigned_abs() as usize;
        let len = self.len;
        (0..len).map(move |i| if self.inc < 0 { (len - 1 - i) * step } else { i * step })
    }

    fn values<T: Copy>(self, data: &[T]) -> impl Iterator<Item = T> {
        self.places().map(|at| data[at])
    }
}

/// `C = alpha * op(A) * op(B) + beta * C` (`cublasSgemm`, and `cublasGemmEx` in single precision).
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    ops: [Op; 2],
    a: Matrix,
    b: Matrix,
    c: Matrix,
}

impl Gemm {
    /// A product of `m` by `k` and `k` by `n`. Where C is empty nothing is read, so A and B span nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for negative sizes and leading dimensions that are too small.
    pub fn new<T: Copy + Into<i64>>(
        ops: [Op; 2],
        [m, n, k]: [T; 3],
        [lda, ldb, ldc]: [T; 3],
    ) -> Result<Self> {
        let stored = |op, rows, columns, ld| match op {
            Op::None => Matrix::new(rows, columns, ld),
            Op::Transpose => Matrix::new(columns, rows, ld),
        };
        let (mut a, mut b) = (stored(ops[0], m, k, lda)?, stored(ops[1], k, n, ldb)?);
        let c = Matrix::new(m, n, ldc)?;
        if c.span == 0 {
            (a.span, b.span) = (0, 0);
        }
        Ok(Self { ops, a, b, c })
    }

    /// A as it is stored.
    #[must_use]
    pub fn a(&self) -> &Matrix {
        &self.a
    }

    /// B as it is stored.
    #[must_use]
    pub fn b(&self) -> &Matrix {
        &self.b
    }

    /// C.
    #[must_use]
    pub fn c(&self) -> &Matrix {
        &self.c
    }

    /// It as products of parts, for which A, B and C together have no more than so many elements, or as few as they can:
    /// of each part of C the products that are summed to it, one after the other, with what they are of A and B, without
    /// the gaps between columns. The first has the factors that the whole has, to the others what is there is added. It
    /// comes to the same, bit for bit.
    pub fn parts(
        &self,
        most: usize,
    ) -> impl Iterator<Item = (Part, impl Iterator<Item = (Self, [Part; 2])>)> {
        let ([m, n], k) = ([self.c.rows, self.c.columns], self.depth());
        let fits = |rows: usize, columns: usize| {
            let (factors, product) = (rows as u128 + columns as u128, rows as u128 * columns as u128);
            factors * k.min(DEPTH) as u128 + product <= most as u128
        };
        let (mut rows, mut columns) = (m.max(1), n.max(1));
        while !fits(rows, columns) && rows.max(columns) > 1 {
            if rows < columns { columns = columns.div_ceil(2) } else { rows = rows.div_ceil(2) }
        }
        // As long as sums are in any case, or a multiple of that.
        let left = most.saturating_sub(rows.saturating_mul(columns)) / rows.saturating_add(columns);
        let depth = (left / DEPTH).max(1).saturating_mul(DEPTH);
        let gemm = *self;
        blocks(n, columns).flat_map(move |across| {
            blocks(m, rows).map(move |down| {
                let c = gemm.c.part(&down, &across);
                // Of none there is one, which has the factors.
                let depths = blocks(k.max(1), depth).map(move |depths| depths.start..depths.end.min(k));
                let across = across.clone();
                (c, depths.map(move |depths| gemm.part(&down, &across, &depths)))
            })
        })
    }

    fn part(&self, down: &Range<usize>, across: &Range<usize>, depths: &Range<usize>) -> (Self, [Part; 2]) {
        let a = if self.ops[0] == Op::None { self.a.part(down, depths) } else { self.a.part(depths, down) };
        let b =
            if self.ops[1] == Op::None { self.b.part(depths, across) } else { self.b.part(across, depths) };
        let [dense_a, dense_b] = [a, b].map(|part| Matrix::dense(part.rows, part.columns));
        let c = Matrix::dense(down.len(), across.len());
        (Self { ops: self.ops, a: dense_a, b: dense_b, c }, [a, b])
    }

    /// How many products are summed for an element.
    fn depth(&self) -> usize {
        if self.ops[0] == Op::None { self.a.columns } else { self.a.rows }
    }

    /// The product. With `alpha` zero, A and B are not read.
    ///
    /// # Errors
    /// Where a slice is too short.
    pub fn run(&self, blend: Blend, a: &[f32], b: &[f32], c: &mut [f32]) -> Result<()> {
        let (a, b) = (operand(a, self.a.span)?, operand(b, self.b.span)?);
        let c = output(c, self.c.span)?;
        // The transposed product, whose rows are C's columns, so that tiles are stored along memory.
        let turned = |op| if op == Op::None { Op::Transpose } else { Op::None };
        let left = self.b.gather(turned(self.ops[1]), b);
        let right = self.a.gather(self.ops[0], a);
        let product = &mut Product {
            data: c,
            rows: Spread { base: 0, sizes: [self.c.columns, 1, 1, 1], steps: [self.c.ld, 0, 0, 0] },
            columns: Spread { base: 0, sizes: [self.c.rows, 1, 1, 1], steps: [1, 0, 0, 0] },
        };
        multiply(blend, &left, &right, product);
        Ok(())
    }

    /// The product in double precision (`cublasDgemm`), as plain as can be.
    ///
    /// # Errors
    /// As [`Gemm::run`].
    pub fn run_double(&self, blend: Blend<f64>, a: &[f64], b: &[f64], c: &mut [f64]) -> Result<()> {
        let (a, b) = (operand(a, self.a.span)?, operand(b, self.b.span)?);
        let c = output(c, self.c.span)?;
        // How far rows and columns of the operands are apart, as `ops` has them.
        let steps = |op, ld| if op == Op::None { (1, ld) } else { (ld, 1) };
        let ((down, along), (into, across)) = (steps(self.ops[0], self.a.ld), steps(self.ops[1], self.b.ld));
        let depth = if blend.alpha == 0.0 { 0 } else { self.depth() };
        let columns = if self.c.span == 0 { 0 } else { self.c.columns };
        for column in 0..columns {
            let c = &mut c[column * self.c.ld..][..self.c.rows];
            for (c, first) in c.chunks_mut(BLOCK).zip((0..).step_by(BLOCK)) {
                let mut sums = [0.0; BLOCK];
                for k in 0..depth {
                    let b = b[k * into + column * across];
                    let a = (first..).take(c.len()).map(|row| a[row * down + k * along]);
                    sums.iter_mut().zip(a).for_each(|(sum, a)| *sum += a * b);
                }
                c.iter_mut().zip(sums).for_each(|(c, sum)| blend.store(sum, c));
            }
        }
        Ok(())
    }
}

/// `y = alpha * op(A) * x + beta * y` (`cublasSgemv`).
#[derive(Clone, Copy, Debug)]
pub struct Gemv {
    op: Op,
    a: Matrix,
    x: Vector,
    y: Vector,
}

impl Gemv {
    /// A product of A, `m` by `n`, or its transpose, with a vector. Where A is empty nothing happens, as in
    /// the reference BLAS, so the vectors span nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for negative sizes, a leading dimension that is too small and increments of zero.
    pub fn new<T: Copy + Into<i64>>(op: Op, [m, n]: [T; 2], lda: T, [incx, incy]: [T; 2]) -> Result<Self> {
        let a = Matrix::new(m, n, lda)?;
        if incx.into() == 0 || incy.into() == 0 {
            return Err(Error::Invalid("an increment is zero"));
        }
        let (xlen, ylen) = if op == Op::None { (n, m) } else { (m, n) };
        let (mut x, mut y) = (Vector::new(xlen, incx)?, Vector::new(ylen, incy)?);
        if a.span == 0 {
            (x.span, y.span) = (0, 0);
        }
        Ok(Self { op, a, x, y })
    }

    /// A as it is stored.
    #[must_use]
    pub fn a(&self) -> &Matrix {
        &self.a
    }

    /// The vector that is multiplied.
    #[must_use]
    pub fn x(&self) -> &Vector {
        &self.x
    }

    /// The result.
    #[must_use]
    pub fn y(&self) -> &Vector {
        &self.y
    }

    /// The product. With `alpha` zero, A and x are not read.
    ///
    /// # Errors
    /// Where a slice is too short.
    pub fn run<T: Real>(&self, blend: Blend<T>, a: &[T], x: &[T], y: &mut [T]) -> Result<()> {
        let (a, x) = (operand(a, self.a.span)?, operand(x, self.x.span)?);
        let y = output(y, self.y.span)?;
        if self.a.span == 0 {
            return Ok(());
        }
        if blend.alpha == T::default() {
            self.y.places().for_each(|at| blend.fade(&mut y[at]));
            return Ok(());
        }
        match self.op {
            Op::None => self.by_column(blend, a, x, y),
            Op::Transpose => self.by_row(blend, a, x, y),
        }
        Ok(())
    }

    /// A block of y at a time, so that A is read along its columns. Sums are in double precision.
    fn by_column<T: Real>(&self, blend: Blend<T>, a: &[T], x: &[T], y: &mut [T]) {
        let mut places = self.y.places();
        for first in (0..self.a.rows).step_by(BLOCK) {
            let mut sums = [0.0_f64; BLOCK];
            let sums = &mut sums[..BLOCK.min(self.a.rows - first)];
            for (column, x) in self.x.values(x).enumerate() {
                let a = &a[column * self.a.ld + first..][..sums.len()];
                sums.iter_mut().zip(a).for_each(|(sum, &a)| *sum += a.into() * x.into());
            }
            // Sums first: where they end, no place is lost.
            for (&mut sum, at) in sums.iter_mut().zip(&mut places) {
                blend.store(T::nearest(sum), &mut y[at]);
            }
        }
    }

    /// A column of A, which is a row of its transpose, for each element of y.
    fn by_row<T: Real>(&self, blend: Blend<T>, a: &[T], x: &[T], y: &mut [T]) {
        for (a, at) in a.chunks(self.a.ld).zip(self.y.places()) {
            let products = a.iter().zip(self.x.values(x)).map(|(&a, x)| a.into() * x.into());
            blend.store(T::nearest(products.sum()), &mut y[at]);
        }
    }
}

/// `y = alpha * x + y` (`cublasSaxpy`). Nothing is read where `alpha` is zero (reference BLAS).
///
/// # Errors
/// Where the vectors differ in length, or a slice is too short.
pub fn axpy<T: Real>(alpha: T, xv: Vector, x: &[T], yv: Vector, y: &mut [T]) -> Result<()> {
    let (x, y) = (pair(xv, x, yv)?, output(y, yv.span)?);
    if alpha != T::default() {
        yv.places().zip(xv.values(x)).for_each(|(at, x)| y[at] = y[at] + alpha * x);
    }
    Ok(())
}

/// `y = x` (`cublasScopy`).
///
/// # Errors
/// Where the vectors differ in length, or a slice is too short.
pub fn copy<T: Copy>(xv: Vector, x: &[T], yv: Vector, y: &mut [T]) -> Result<()> {
    let (x, y) = (pair(xv, x, yv)?, output(y, yv.span)?);
    yv.places().zip(xv.values(x)).for_each(|(at, x)| y[at] = x);
    Ok(())
}

/// `x = alpha * x` (`cublasSscal`). Nothing happens where the increment is not positive (reference BLAS).
///
/// # Errors
/// Where the slice is too short.
pub fn scal<T: Real>(alpha: T, xv: Vector, x: &mut [T]) -> Result<()> {
    let x = output(x, xv.span)?;
    if xv.inc > 0 {
        xv.places().for_each(|at| x[at] = x[at] * alpha);
    }
    Ok(())
}

/// The sum of the products (`cublasSdot`), taken in double precision.
///
/// # Errors
/// Where the vectors differ in length, or a slice is too short.
pub fn dot<T: Real>(xv: Vector, x: &[T], yv: Vector, y: &[T]) -> Result<T> {
    let (x, y) = (pair(xv, x, yv)?, operand(y, yv.span)?);
    let products = xv.values(x).zip(yv.values(y)).map(|(x, y)| x.into() * y.into());
    Ok(T::nearest(products.sum()))
}

/// The square root of the sum of squares (`cublasSnrm2`: 0 where the increment is not positive), taken in
/// double precision. Its range holds the square of every number of single precision; of double precision the
/// greatest is taken off first.
///
/// # Errors
/// Where the slice is too short.
pub fn nrm2<T: Real>(xv: Vector, x: &[T]) -> Result<T> {
    let x = operand(x, xv.span)?;
    let sizes = || xv.values(x).map(|x| x.into().abs()).take(if xv.inc > 0 { usize::MAX } else { 0 });
    let sum = |scale: f64| sizes().map(|size| (size / scale) * (size / scale)).sum::<f64>();
    let plain = sum(1.0);
    // Beyond the range of squares, or where most of their digits are lost below it.
    if plain.is_finite() && plain > f64::MIN_POSITIVE / f64::EPSILON {
        return Ok(T::nearest(plain.sqrt()));
    }
    let greatest = sizes().fold(0.0, f64::max);
    let scaled = if greatest > 0.0 && greatest.is_finite() { greatest * sum(greatest).sqrt() } else { plain };
    Ok(T::nearest(scaled))
}

/// The sum of the sizes (`cublasSasum`: 0 where the increment is not positive), taken in double precision.
///
/// # Errors
/// Where the slice is too short.
pub fn asum<T: Real>(xv: Vector, x: &[T]) -> Result<T> {
    let x = operand(x, xv.span)?;
    let sizes = xv.values(x).map(|x| x.into().abs()).take(if xv.inc > 0 { usize::MAX } else { 0 });
    Ok(T::nearest(sizes.sum()))
}

/// The operand of two vectors of the same length.
fn pair<T>(xv: Vector, x: &[T], yv: Vector) -> Result<&[T]> {
    match xv.len == yv.len {
        true => operand(x, xv.span),
        false => Err(Error::Invalid("two vectors differ in length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused() {
        let short = Error::Invalid("a leading dimension is smaller than a column");
        assert_eq!(Matrix::new(4, 2, 3), Err(short));
        assert_eq!(Matrix::new(4, 2, 4).map(|matrix| matrix.span()), Ok(8));
        assert!(matches!(Matrix::new(0, 2, 0), Err(Error::Invalid(_))));
        assert!(matches!(Matrix::new(-1, 2, 4), Err(Error::Invalid(_))));
        assert!(matches!(Gemv::new(Op::None, [1, 1], 1, [0, 1]), Err(Error::Invalid(_))));
        assert!(matches!(Gemv::new(Op::None, [1, 1], 1, [1, 0]), Err(Error::Invalid(_))));
    }

    /// Which side of a product has which shape, by what its leading dimension must hold.
    #[test]
    fn shapes_of_a_product() {
        let gemm = |ops, lds| Gemm::new(ops, [2, 3, 5], lds);
        assert!(gemm([Op::None, Op::None], [2, 5, 2]).is_ok());
        assert!(gemm([Op::None, Op::None], [1, 5, 2]).is_err());
        assert!(gemm([Op::None, Op::None], [2, 4, 2]).is_err());
        assert!(gemm([Op::None, Op::None], [2, 5, 1]).is_err());
        assert!(gemm([Op::Transpose, Op::Transpose], [5, 3, 2]).is_ok());
        assert!(gemm([Op::Transpose, Op::Transpose], [4, 3, 2]).is_err());
        assert!(gemm([Op::Transpose, Op::Transpose], [5, 2, 2]).is_err());
    }

    /// Of each way to transpose, as few elements at a time as there can be, and more; and of nothing to be summed.
    #[test]
    fn a_product_by_parts_is_the_product_bit_for_bit() {
        let (m, n) = (5_usize, 7);
        let numbers = |len: usize| -> Vec<f32> { (0..len).map(|i| ((i * 37 % 101) as f32).sin()).collect() };
        let ops =
            [[Op::None, Op::None], [Op::Transpose, Op::None], [Op::None, Op::Transpose], [Op::Transpose; 2]];
        for (ops, k) in ops.into_iter().flat_map(|ops| [0, 1, 700].map(|k| (ops, k))) {
            let lda = if ops[0] == Op::None { m + 2 } else { k.max(1) };
            let ldb = if ops[1] == Op::None { k + 1 } else { n };
            let sizes = [m, n, k].map(|size| size as i64);
            let gemm = Gemm::new(ops, sizes, [lda, ldb, m + 3].map(|ld| ld as i64)).unwrap();
            let blend = Blend { alpha: 0.5, beta: 2.0 };
            let [a, b, before] = [gemm.a(), gemm.b(), gemm.c()].map(|matrix| numbers(matrix.span()));
            let mut whole = before.clone();
            gemm.run(blend, &a, &b, &mut whole).unwrap();
            for most in [0, 700, 1500, 4000, usize::MAX] {
                let (mut c, mut products) = (before.clone(), 0);
                let dense = |data: &[f32], part: Part| -> Vec<f32> {
                    part.columns().flat_map(|column| data[column].to_vec()).collect()
                };
                for (part, slices) in gemm.parts(most) {
                    let (mut sums, mut blend) = (dense(&c, part), blend);
                    for (gemm, [a_part, b_part]) in slices {
                        let (a, b) = (dense(&a, a_part), dense(&b, b_part));
                        assert!(a.len() + b.len() + sums.len() <= most.max(2 * DEPTH + 1), "{most}");
                        gemm.run(blend, &a, &b, &mut sums).unwrap();
                        blend.beta = 1.0;
                        products += 1;
                    }
                    let columns = part.columns().zip(sums.chunks(part.rows));
                    columns.for_each(|(column, sums)| c[column].copy_from_slice(sums));
                }
                assert_eq!(c, whole, "{ops:?}, {k}, {most}");
                let (least, slices) = (most == 0 && k == 700, 700_usize.div_ceil(DEPTH));
                assert!(!least || products == m * n * slices, "{products}");
                assert!(most < usize::MAX || products == 1, "{products}");
            }
        }
        assert_eq!(Gemm::new([Op::None; 2], [0, 2, 3], [1, 3, 1]).unwrap().parts(0).count(), 0);
    }
}
