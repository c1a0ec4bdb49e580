//! Of cuBLAS what the CPU computes: in single and double precision, and products of numbers of 16 bits. Touches nothing
//! but its client's memory.

use half::{bf16, f16};
use vgpu_kernels::blas::{self, Part, Vector};
use vgpu_kernels::{self as kernels, Blend, Real};

use super::{At, Cpu};
use crate::api::{Read, Update, Write};
use crate::cublas::backend::Blas;
use crate::cublas::rule::Stored;
use crate::cublas::{Factor, Outcome, State, Sums, rule};
use crate::cudnn::{Result, Status};
use crate::memory::{Memory, Number};

/// How many numbers of a product are there in single precision beside those that are stored in 16 bits: 64 MiB of what a
/// worker has beyond its device memory.
const WIDENED: usize = 16 << 20;

impl Cpu {
    fn number<T: Real + Number>(&self, factor: Factor) -> Result<T> {
        match factor {
            Factor::Host(number) => Ok(T::nearest(number)),
            Factor::Device(address) => Ok(self.memory.all()[self.memory.range_of::<T>(address, 1)?][0]),
        }
    }

    fn blend<T: Real + Number>(&self, [alpha, beta]: [Factor; 2]) -> Result<Blend<T>> {
        Ok(Blend { alpha: self.number(alpha)?, beta: self.number(beta)? })
    }

    /// A product as often as is said, with matrices so many numbers apart.
    fn products(
        &mut self,
        p: rule::Product,
        factors: [Factor; 2],
        [a, b, c]: [u64; 3],
        strides: [u64; 3],
        count: i32,
    ) -> Answer {
        // Of nothing there is nothing to do, however often.
        let count = if p.gemm.c().span() == 0 { 0 } else { count };
        let [a_step, b_step, c_step] =
            [(strides[0], p.factors), (strides[1], p.factors), (strides[2], p.result)]
                .map(|(stride, stored)| stride.wrapping_mul(stored.size()));
        for i in 0..count.cast_unsigned().into() {
            let at = |base: u64, step: u64| base.wrapping_add(step.wrapping_mul(i));
            self.product(p, factors, [at(a, a_step), at(b, b_step), at(c, c_step)])?;
        }
        Ok(None)
    }

    fn product(&mut self, p: rule::Product, factors: [Factor; 2], [a, b, c]: [u64; 3]) -> Result {
        let g = p.gemm;
        let (inputs, output) = ([(g.a().span(), a), (g.b().span(), b)], (g.c().span(), c));
        match p {
            rule::Product { factors: Stored::Double, .. } => {
                let blend = self.blend(factors)?;
                self.run(inputs, output, |[a, b], c| g.run_double(blend, a, b, c))
            }
            rule::Product { factors: Stored::Single, .. } => {
                let blend = self.blend(factors)?;
                self.run(inputs, output, |[a, b], c| g.run(blend, a, b, c))
            }
            // What is stored in 16 bits is computed in single precision.
            rule::Product { factors: stored, result, .. } => {
                let blend = self.blend(factors)?;
                let end = |(span, at): At, stored: Stored| at.saturating_add(span as u64 * stored.size());
                let (_, c) = output;
                let overlaps = |input: At| input.1 < end(output, result) && c < end(input, stored);
                // As if the factors had been read before anything is written.
                let most = if inputs.into_iter().any(overlaps) { usize::MAX } else { WIDENED };
                for (part, slices) in g.parts(most) {
                    let (mut numbers, mut blend) = (self.widened(result, output, part)?, blend);
                    for (g, [a, b]) in slices {
                        let (a, b) =
                            (self.widened(stored, inputs[0], a)?, self.widened(stored, inputs[1], b)?);
                        g.run(blend, &a, &b, &mut numbers)?;
                        blend.beta = 1.0;
                    }
                    self.narrow(result, output, part, &numbers)?;
                }
                Ok(())
            }
        }
    }

    /// Numbers in single precision, without gaps.
    fn widened(&self, stored: Stored, (span, address): At, part: Part) -> Result<Vec<f32>> {
        fn wide<T: Number + Into<f32>>(memory: &Memory, (span, address): At, part: Part) -> Result<Vec<f32>> {
            let numbers = &memory.all::<T>()[memory.readable::<T>(address, span)?];
            Ok(part.columns().flat_map(|column| &numbers[column]).map(|number| (*number).into()).collect())
        }
        match stored {
            Stored::Half => wide::<f16>(&self.memory, (span, address), part),
            Stored::Brain => wide::<bf16>(&self.memory, (span, address), part),
            Stored::Single => wide::<f32>(&self.memory, (span, address), part),
            Stored::Double => Err(Status::InternalError),
        }
    }

    /// Stores numbers of single precision that have no gaps, those that are not there already.
    fn narrow(&mut self, stored: Stored, (span, address): At, part: Part, numbers: &[f32]) -> Result {
        fn put<T: Number + Into<f32>>(
            memory: &mut Memory,
            (span, address): At,
            part: Part,
            numbers: &[f32],
            narrow: fn(f32) -> T,
        ) -> Result {
            let range = memory.range_of::<T>(address, span)?;
            let all = &mut memory.all_mut::<T>()[range];
            for (to, number) in part.columns().flatten().zip(numbers) {
                let before: f32 = all[to].into();
                if before.to_bits() != number.to_bits() {
                    all[to] = narrow(*number);
                }
            }
            Ok(())
        }
        let at = (span, address);
        match stored {
            Stored::Half => put(&mut self.memory, at, part, numbers, f16::from_f32),
            Stored::Brain => put(&mut self.memory, at, part, numbers, bf16::from_f32),
            Stored::Single => put(&mut self.memory, at, part, numbers, |number| number),
            Stored::Double => Err(Status::InternalError),
        }
    }

    fn gemv<T: Real + Number>(
        &mut self,
        g: blas::Gemv,
        factors: [Factor; 2],
        a: Read,
        x: Read,
        y: Update,
    ) -> Answer {
        let blend = self.blend::<T>(factors)?;
        let inputs = [(g.a().span(), a.0), (g.x().span(), x.0)];
        self.run(inputs, (g.y().span(), y.0), |[a, x], y| g.run(blend, a, x, y)).map(|()| None)
    }

    fn axpy<T: Real + Number>(&mut self, [xv, yv]: [Vector; 2], alpha: Factor, x: Read, y: Update) -> Answer {
        let alpha = self.number::<T>(alpha)?;
        self.run([(xv.span(), x.0)], (yv.span(), y.0), |[x], y| blas::axpy(alpha, xv, x, yv, y))
            .map(|()| None)
    }

    fn scal<T: Real + Number>(&mut self, v: Vector, alpha: Factor, x: Update) -> Answer {
        let alpha = self.number::<T>(alpha)?;
        self.run([], (v.span(), x.0), |[], x| blas::scal(alpha, v, x)).map(|()| None)
    }

    /// A result of one number goes where it is to.
    fn outcome<T: Real + Number, const N: usize>(
        &mut self,
        inputs: [At; N],
        to: Outcome,
        compute: impl FnOnce([&[T]; N]) -> kernels::Result<T>,
    ) -> Answer {
        let ranges = self.ranges::<T, N>(inputs)?;
        let numbers = self.memory.all::<T>();
        let number = compute(ranges.map(|range| &numbers[range]))?;
        match to {
            Outcome::Host => Ok(Some(number.into())),
            Outcome::Device(address) => {
                let range = self.memory.range_of::<T>(address, 1)?;
                self.memory.all_mut()[range].fill(number);
                Ok(None)
            }
        }
    }
}

/// What a method of [`Blas`] answers.
type Answer = Result<Option<f64>>;

/// The methods of one precision, by their names.
macro_rules! precision {
    ($type:ty, $stored:ident: $gemm:ident $gemm_batched:ident $gemv:ident $axpy:ident $scal:ident $copy:ident $dot:ident
        $nrm2:ident $asum:ident) => {
        fn $gemm(
            &mut self,
            _: State,
            op_a: i32,
            op_b: i32,
            m: i32,
            n: i32,
            k: i32,
            alpha: Factor,
            a: Read,
            lda: i32,
            b: Read,
            ldb: i32,
            beta: Factor,
            c: Update,
            ldc: i32,
        ) -> Answer {
            let gemm = rule::gemm(op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)?;
            let p = rule::Product { gemm, factors: Stored::$stored, result: Stored::$stored };
            self.product(p, [alpha, beta], [a.0, b.0, c.0]).map(|()| None)
        }

        fn $gemm_batched(
            &mut self,
            _: State,
            op_a: i32,
            op_b: i32,
            m: i32,
            n: i32,
            k: i32,
            alpha: Factor,
            a: Read,
            lda: i32,
            stride_a: u64,
            b: Read,
            ldb: i32,
            stride_b: u64,
            beta: Factor,
            c: Update,
            ldc: i32,
            stride_c: u64,
            count: i32,
        ) -> Answer {
            let strides = [stride_a, stride_b, stride_c];
            let gemm = rule::gemm_batched(
                op_a, op_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c, count,
            )?;
            let p = rule::Product { gemm, factors: Stored::$stored, result: Stored::$stored };
            self.products(p, [alpha, beta], [a.0, b.0, c.0], strides, count)
        }

        fn $gemv(
            &mut self,
            _: State,
            op: i32,
            m: i32,
            n: i32,
            alpha: Factor,
            a: Read,
            lda: i32,
            x: Read,
            incx: i32,
            beta: Factor,
            y: Update,
            incy: i32,
        ) -> Answer {
            let g = rule::gemv(op, m, n, alpha, a, lda, x, incx, beta, y, incy)?;
            self.gemv::<$type>(g, [alpha, beta], a, x, y)
        }

        fn $axpy(
            &mut self,
            _: State,
            n: i32,
            alpha: Factor,
            x: Read,
            incx: i32,
            y: Update,
            incy: i32,
        ) -> Answer {
            self.axpy::<$type>(rule::axpy(n, alpha, x, incx, y, incy)?, alpha, x, y)
        }

        fn $scal(&mut self, _: State, n: i32, alpha: Factor, x: Update, incx: i32) -> Answer {
            self.scal::<$type>(rule::scal(n, alpha, x, incx)?, alpha, x)
        }

        fn $copy(&mut self, _: State, n: i32, x: Read, incx: i32, y: Write, incy: i32) -> Answer {
            let [xv, yv] = rule::copy(n, x, incx, y, incy)?;
            self.run::<$type, 1>([(xv.span(), x.0)], (yv.span(), y.0), |[x], y| blas::copy(xv, x, yv, y))
                .map(|()| None)
        }

        fn $dot(
            &mut self,
            _: State,
            n: i32,
            x: Read,
            incx: i32,
            y: Read,
            incy: i32,
            result: Outcome,
        ) -> Answer {
            let [xv, yv] = rule::dot(n, x, incx, y, incy, result)?;
            let inputs = [(xv.span(), x.0), (yv.span(), y.0)];
            self.outcome::<$type, 2>(inputs, result, |[x, y]| blas::dot(xv, x, yv, y))
        }

        fn $nrm2(&mut self, _: State, n: i32, x: Read, incx: i32, result: Outcome) -> Answer {
            let v = rule::one(n, x, incx, result)?;
            self.outcome::<$type, 1>([(v.span(), x.0)], result, |[x]| blas::nrm2(v, x))
        }

        fn $asum(&mut self, _: State, n: i32, x: Read, incx: i32, result: Outcome) -> Answer {
            let v = rule::one(n, x, incx, result)?;
            self.outcome::<$type, 1>([(v.span(), x.0)], result, |[x]| blas::asum(v, x))
        }
    };
}

impl Blas for Cpu {
    precision! {
        f32, Single: cublasSgemm_v2 cublasSgemmStridedBatched cublasSgemv_v2 cublasSaxpy_v2 cublasSscal_v2 cublasScopy_v2
        cublasSdot_v2 cublasSnrm2_v2 cublasSasum_v2
    }
    precision! {
        f64, Double: cublasDgemm_v2 cublasDgemmStridedBatched cublasDgemv_v2 cublasDaxpy_v2 cublasDscal_v2 cublasDcopy_v2
        cublasDdot_v2 cublasDnrm2_v2 cublasDasum_v2
    }

    fn cublasGemmEx(
        &mut self,
        _: State,
        op_a: i32,
        op_b: i32,
        m: i32,
        n: i32,
        k: i32,
        alpha: Factor,
        a: Read,
        a_type: i32,
        lda: i32,
        b: Read,
        b_type: i32,
        ldb: i32,
        beta: Factor,
        c: Update,
        c_type: i32,
        ldc: i32,
        sums: Sums,
        algorithm: i32,
    ) -> Answer {
        let p = rule::gemm_ex(
            op_a, op_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, sums, algorithm,
        )?;
        self.product(p, [alpha, beta], [a.0, b.0, c.0]).map(|()| None)
    }

    fn cublasGemmStridedBatchedEx(
        &mut self,
        _: State,
        op_a: i32,
        op_b: i32,
        m: i32,
        n: i32,
        k: i32,
        alpha: Factor,
        a: Read,
        a_type: i32,
        lda: i32,
        stride_a: u64,
        b: Read,
        b_type: i32,
        ldb: i32,
        stride_b: u64,
        beta: Factor,
        c: Update,
        c_type: i32,
        ldc: i32,
        stride_c: u64,
        count: i32,
        sums: Sums,
        algorithm: i32,
    ) -> Answer {
        let strides = [stride_a, stride_b, stride_c];
        let p = rule::gemm_batched_ex(
            op_a, op_b, m, n, k, alpha, a, a_type, lda, stride_a, b, b_type, ldb, stride_b, beta, c, c_type,
            ldc, stride_c, count, sums, algorithm,
        )?;
        self.products(p, [alpha, beta], [a.0, b.0, c.0], strides, count)
    }
}
