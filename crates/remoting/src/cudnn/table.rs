//! The table of cuDNN's functions, and its rows as data. Touches nothing.

use super::activation::Activation;
use super::algorithms::Performances;
use super::convolution::Convolution;
use super::dropout::Dropout;
use super::filter::Filter;
use super::normalization::Normalization;
use super::pooling::Pooling;
use super::reduction::Reduction;
use super::tensor::Tensor;
use crate::api::{Class, Handle, Parameter, Read, Scalar, Signature, Typed, Update, Write};
use crate::descriptor::Ints;

/// The rows, given to the macro `$with`; [`crate::api`] says how to read them. Both versions have all of them.
#[macro_export]
macro_rules! cudnn_functions {
    ($with:ident) => {
        $with! {
            create  cudnnCreateTensorDescriptor() -> (t: Tensor);
            set     cudnnSetTensor4dDescriptor(t: Tensor, format: i32, data_type: i32, n: i32, c: i32, h: i32,
                        w: i32) = tensor::set_4d;
            set     cudnnSetTensor4dDescriptorEx(t: Tensor, data_type: i32, n: i32, c: i32, h: i32, w: i32,
                        n_stride: i32, c_stride: i32, h_stride: i32, w_stride: i32) = tensor::set_4d_ex;
            set     cudnnSetTensorNdDescriptor(t: Tensor, data_type: i32, count: i32, dims: Ints, strides: Ints)
                        = tensor::set_nd;
            set     cudnnSetTensorNdDescriptorEx(t: Tensor, format: i32, data_type: i32, count: i32, dims: Ints)
                        = tensor::set_nd_ex;
            get     cudnnGetTensor4dDescriptor(t: Tensor) -> (data_type: i32, n: i32, c: i32, h: i32, w: i32,
                        n_stride: i32, c_stride: i32, h_stride: i32, w_stride: i32) = tensor::get_4d;
            get     cudnnGetTensorNdDescriptor(t: Tensor, requested: i32)
                        -> (data_type: i32, count: i32, dims: Ints, strides: Ints) = tensor::get_nd;
            get     cudnnGetTensorSizeInBytes(t: Tensor) -> (size: u64) = tensor::size;
            get     cudnnDropoutGetReserveSpaceSize(x: Tensor) -> (size: u64) = tensor::reserve_size;
            destroy cudnnDestroyTensorDescriptor(t: Tensor);

            create  cudnnCreateFilterDescriptor() -> (f: Filter);
            set     cudnnSetFilter4dDescriptor(f: Filter, data_type: i32, format: i32, k: i32, c: i32, h: i32,
                        w: i32) = filter::set_4d;
            set     cudnnSetFilterNdDescriptor(f: Filter, data_type: i32, format: i32, count: i32, dims: Ints)
                        = filter::set_nd;
            get     cudnnGetFilter4dDescriptor(f: Filter) -> (data_type: i32, format: i32, k: i32, c: i32, h: i32,
                        w: i32) = filter::get_4d;
            get     cudnnGetFilterNdDescriptor(f: Filter, requested: i32)
                        -> (data_type: i32, format: i32, count: i32, dims: Ints) = filter::get_nd;
            get     cudnnGetFilterSizeInBytes(f: Option<Filter>) -> (size: u64) = filter::size;
            destroy cudnnDestroyFilterDescriptor(f: Filter);

            create  cudnnCreateConvolutionDescriptor() -> (conv: Convolution);
            set     cudnnSetConvolution2dDescriptor(conv: Convolution, pad_h: i32, pad_w: i32, stride_h: i32,
                        stride_w: i32, dilation_h: i32, dilation_w: i32, mode: i32, compute_type: i32)
                        = convolution::set_2d;
            set     cudnnSetConvolutionNdDescriptor(conv: Convolution, count: i32, padding: Ints, stride: Ints,
                        dilation: Ints, mode: i32, compute_type: i32) = convolution::set_nd;
            set     cudnnSetConvolutionGroupCount(conv: Convolution, groups: i32) = convolution::set_groups;
            set     cudnnSetConvolutionMathType(conv: Convolution, math_type: i32) = convolution::set_math_type;
            set     cudnnSetConvolutionReorderType(conv: Convolution, reorder: i32) = convolution::set_reorder;
            get     cudnnGetConvolution2dDescriptor(conv: Convolution) -> (pad_h: i32, pad_w: i32, stride_h: i32,
                        stride_w: i32, dilation_h: i32, dilation_w: i32, mode: i32, compute_type: i32)
                        = convolution::get_2d;
            get     cudnnGetConvolutionNdDescriptor(conv: Convolution, requested: i32) -> (count: i32,
                        padding: Ints, stride: Ints, dilation: Ints, mode: i32, compute_type: i32)
                        = convolution::get_nd;
            get     cudnnGetConvolutionGroupCount(conv: Convolution) -> (groups: i32) = convolution::get_groups;
            get     cudnnGetConvolutionMathType(conv: Convolution) -> (math_type: i32)
                        = convolution::get_math_type;
            get     cudnnGetConvolutionReorderType(conv: Convolution) -> (reorder: i32)
                        = convolution::get_reorder;
            get     cudnnGetConvolution2dForwardOutputDim(conv: Option<Convolution>, x: Option<Tensor>,
                        f: Option<Filter>) -> (n: i32, c: i32, h: i32, w: i32) = convolution::output_2d;
            get     cudnnGetConvolutionNdForwardOutputDim(conv: Convolution, x: Tensor, w: Filter, count: i32)
                        -> (dims: Ints) = convolution::output_nd;
            destroy cudnnDestroyConvolutionDescriptor(conv: Convolution);

            create  cudnnCreatePoolingDescriptor() -> (pool: Pooling);
            set     cudnnSetPooling2dDescriptor(pool: Pooling, mode: i32, nan: i32, window_h: i32, window_w: i32,
                        pad_h: i32, pad_w: i32, stride_h: i32, stride_w: i32) = pooling::set_2d;
            set     cudnnSetPoolingNdDescriptor(pool: Pooling, mode: i32, nan: i32, count: i32, window: Ints,
                        padding: Ints, stride: Ints) = pooling::set_nd;
            get     cudnnGetPooling2dDescriptor(pool: Pooling) -> (mode: i32, nan: i32, window_h: i32,
                        window_w: i32, pad_h: i32, pad_w: i32, stride_h: i32, stride_w: i32) = pooling::get_2d;
            get     cudnnGetPoolingNdDescriptor(pool: Pooling, requested: i32)
                        -> (mode: i32, nan: i32, count: i32, window: Ints, padding: Ints, stride: Ints)
                        = pooling::get_nd;
            get     cudnnGetPooling2dForwardOutputDim(pool: Option<Pooling>, x: Option<Tensor>)
                        -> (n: i32, c: i32, h: i32, w: i32) = pooling::output_2d;
            get     cudnnGetPoolingNdForwardOutputDim(pool: Pooling, x: Tensor, count: i32) -> (dims: Ints)
                        = pooling::output_nd;
            destroy cudnnDestroyPoolingDescriptor(pool: Pooling);

            create  cudnnCreateActivationDescriptor() -> (a: Activation);
            set     cudnnSetActivationDescriptor(a: Activation, mode: i32, nan: i32, coefficient: f64)
                        = activation::set;
            set     cudnnSetActivationDescriptorSwishBeta(a: Activation, beta: f64) = activation::set_swish_beta;
            get     cudnnGetActivationDescriptor(a: Activation) -> (mode: i32, nan: i32, coefficient: f64)
                        = activation::get;
            get     cudnnGetActivationDescriptorSwishBeta(a: Activation) -> (beta: f64)
                        = activation::get_swish_beta;
            destroy cudnnDestroyActivationDescriptor(a: Activation);

            create  cudnnCreateDropoutDescriptor() -> (d: Dropout);
            seed    cudnnSetDropoutDescriptor(d: Dropout, handle: Handle, dropout: f32, states: u64, size: u64,
                        seed: u64);
            set     cudnnRestoreDropoutDescriptor(d: Dropout, handle: Handle, dropout: f32, states: u64,
                        size: u64, seed: u64) = dropout::restore;
            get     cudnnGetDropoutDescriptor(d: Dropout, handle: Handle)
                        -> (dropout: f32, states: u64, seed: u64) = dropout::get;
            destroy cudnnDestroyDropoutDescriptor(d: Dropout);

            create  cudnnCreateLRNDescriptor() -> (norm: Normalization);
            set     cudnnSetLRNDescriptor(norm: Normalization, n: i32, alpha: f64, beta: f64, k: f64)
                        = normalization::set;
            get     cudnnGetLRNDescriptor(norm: Normalization) -> (n: i32, alpha: f64, beta: f64, k: f64)
                        = normalization::get;
            destroy cudnnDestroyLRNDescriptor(norm: Normalization);

            create  cudnnCreateReduceTensorDescriptor() -> (r: Reduction);
            set     cudnnSetReduceTensorDescriptor(r: Reduction, operation: i32, compute_type: i32, nan: i32,
                        indices: i32, indices_type: i32) = reduction::set;
            get     cudnnGetReduceTensorDescriptor(r: Reduction) -> (operation: i32, compute_type: i32, nan: i32,
                        indices: i32, indices_type: i32) = reduction::get;
            destroy cudnnDestroyReduceTensorDescriptor(r: Reduction);

            query   cudnnGetConvolutionForwardAlgorithmMaxCount(handle: Handle) -> (count: i32);
            query   cudnnGetConvolutionForwardAlgorithm_v7(handle: Handle, x: Tensor, w: Filter, conv: Convolution, y: Tensor, requested: i32)
                        -> (returned: i32, performances: Performances);
            query   cudnnFindConvolutionForwardAlgorithm(handle: Handle, x: Tensor, w: Filter, conv: Convolution, y: Tensor, requested: i32)
                        -> (returned: i32, performances: Performances);
            query   cudnnGetConvolutionForwardWorkspaceSize(handle: Handle, x: Tensor, w: Filter, conv: Convolution, y: Tensor, algorithm: i32)
                        -> (size: u64);
            query   cudnnGetConvolutionBackwardDataAlgorithmMaxCount(handle: Handle) -> (count: i32);
            query   cudnnGetConvolutionBackwardDataAlgorithm_v7(handle: Handle, w: Filter, dy: Tensor, conv: Convolution, dx: Tensor, requested: i32)
                        -> (returned: i32, performances: Performances);
            query   cudnnFindConvolutionBackwardDataAlgorithm(handle: Handle, w: Filter, dy: Tensor, conv: Convolution, dx: Tensor, requested: i32)
                        -> (returned: i32, performances: Performances);
            query   cudnnGetConvolutionBackwardDataWorkspaceSize(handle: Handle, w: Filter, dy: Tensor, conv: Convolution, dx: Tensor, algorithm: i32)
                        -> (size: u64);
            query   cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(handle: Handle) -> (count: i32);
            query   cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle: Handle, x: Tensor, dy: Tensor, conv: Convolution, dw: Filter, requested: i32)
                        -> (returned: i32, performances: Performances);
            query   cudnnFindConvolutionBackwardFilterAlgorithm(handle: Handle, x: Tensor, dy: Tensor, conv: Convolution, dw: Filter, requested: i32)
                        -> (returned: i32, performances: Performances);
            query   cudnnGetConvolutionBackwardFilterWorkspaceSize(handle: Handle, x: Tensor, dy: Tensor, conv: Convolution, dw: Filter, algorithm: i32)
                        -> (size: u64);
            query   cudnnDropoutGetStatesSize(handle: Handle) -> (size: u64);
            query   cudnnGetReductionIndicesSize(handle: Handle, r: Reduction, a: Tensor, c: Tensor) -> (size: u64);
            query   cudnnGetReductionWorkspaceSize(handle: Handle, r: Reduction, a: Tensor, c: Tensor) -> (size: u64);

            forward  cudnnConvolutionForward(handle: Handle, alpha: Scalar, x: Tensor, x_data: Read, w: Filter,
                        w_data: Read, conv: Convolution, algorithm: i32, workspace: Write, workspace_size: u64,
                        beta: Scalar, y: Tensor, y_data: Update);
            forward  cudnnConvolutionBiasActivationForward(handle: Handle, alpha1: Scalar, x: Tensor, x_data: Read,
                        w: Filter, w_data: Read, conv: Convolution, algorithm: i32, workspace: Write,
                        workspace_size: u64, alpha2: Scalar, z: Tensor, z_data: Read, bias: Tensor,
                        bias_data: Read, a: Activation, y: Tensor, y_data: Update);
            backward cudnnConvolutionBackwardData(handle: Handle, alpha: Scalar, w: Filter, w_data: Read,
                        dy: Tensor, dy_data: Read, conv: Convolution, algorithm: i32, workspace: Write,
                        workspace_size: u64, beta: Scalar, dx: Tensor, dx_data: Update);
            backward cudnnConvolutionBackwardFilter(handle: Handle, alpha: Scalar, x: Tensor, x_data: Read,
                        dy: Tensor, dy_data: Read, conv: Convolution, algorithm: i32, workspace: Write,
                        workspace_size: u64, beta: Scalar, dw: Filter, dw_data: Update);
            backward cudnnConvolutionBackwardBias(handle: Handle, alpha: Scalar, dy: Tensor, dy_data: Read,
                        beta: Scalar, db: Tensor, db_data: Update);
            forward  cudnnActivationForward(handle: Handle, a: Activation, alpha: Scalar, x: Tensor, x_data: Read,
                        beta: Scalar, y: Tensor, y_data: Update);
            backward cudnnActivationBackward(handle: Handle, a: Activation, alpha: Scalar, y: Tensor,
                        y_data: Read, dy: Tensor, dy_data: Read, x: Tensor, x_data: Read, beta: Scalar,
                        dx: Tensor, dx_data: Update);
            forward  cudnnPoolingForward(handle: Handle, pool: Pooling, alpha: Scalar, x: Tensor, x_data: Read,
                        beta: Scalar, y: Tensor, y_data: Update);
            backward cudnnPoolingBackward(handle: Handle, pool: Pooling, alpha: Scalar, y: Tensor, y_data: Read,
                        dy: Tensor, dy_data: Read, x: Tensor, x_data: Read, beta: Scalar, dx: Tensor,
                        dx_data: Update);
            forward  cudnnSoftmaxForward(handle: Handle, algorithm: i32, mode: i32, alpha: Scalar, x: Tensor,
                        x_data: Read, beta: Scalar, y: Tensor, y_data: Update);
            backward cudnnSoftmaxBackward(handle: Handle, algorithm: i32, mode: i32, alpha: Scalar, y: Tensor,
                        y_data: Read, dy: Tensor, dy_data: Read, beta: Scalar, dx: Tensor, dx_data: Update);
            forward  cudnnLRNCrossChannelForward(handle: Handle, norm: Normalization, mode: i32, alpha: Scalar,
                        x: Tensor, x_data: Read, beta: Scalar, y: Tensor, y_data: Update);
            backward cudnnLRNCrossChannelBackward(handle: Handle, norm: Normalization, mode: i32, alpha: Scalar,
                        y: Tensor, y_data: Read, dy: Tensor, dy_data: Read, x: Tensor, x_data: Read,
                        beta: Scalar, dx: Tensor, dx_data: Update);
            forward  cudnnDropoutForward(handle: Handle, d: Dropout, x: Tensor, x_data: Read, y: Tensor,
                        y_data: Write, reserve: Write, reserve_size: u64);
            backward cudnnDropoutBackward(handle: Handle, d: Dropout, dy: Tensor, dy_data: Read, dx: Tensor,
                        dx_data: Write, reserve: Read, reserve_size: u64);
            compute  cudnnAddTensor(handle: Handle, alpha: Scalar, a: Tensor, a_data: Read, beta: Scalar,
                        c: Tensor, c_data: Update);
            compute  cudnnReduceTensor(handle: Handle, r: Reduction, indices: Write, indices_size: u64,
                        workspace: Write, workspace_size: u64, alpha: Scalar, a: Tensor, a_data: Read,
                        beta: Scalar, c: Tensor, c_data: Update);
            compute  cudnnScaleTensor(handle: Handle, y: Tensor, y_data: Update, alpha: Scalar);
            compute  cudnnSetTensor(handle: Handle, y: Tensor, y_data: Update, value: Scalar);
            compute  cudnnTransformTensor(handle: Handle, alpha: Scalar, x: Tensor, x_data: Read, beta: Scalar,
                        y: Tensor, y_data: Update);
        }
    };
}

macro_rules! signatures {
    ($($class:ident $name:ident ($($argument:ident: $type:ty),*) $(-> ($($result:ident: $of:ty),*))?
        $(= $rule:path)?;)*) => {
        /// A row. Its number names it on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[allow(non_camel_case_types, missing_docs, reason = "the names are the library's")]
        pub enum Function {
            $($name,)*
        }

        impl Function {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }

        /// The rows as data, in the order of their numbers.
        pub const SIGNATURES: &[Signature] = &[$(Signature::new(
            stringify!($name),
            class!($class),
            &[$(Parameter { name: stringify!($argument), r#type: <$type as Typed>::TYPE }),*],
            &[$($(Parameter { name: stringify!($result), r#type: <$of as Typed>::TYPE }),*)?],
        )),*];
    };
}

macro_rules! class {
    (create) => {
        Class::Create
    };
    (set) => {
        Class::Set
    };
    (seed) => {
        Class::Seed
    };
    (get) => {
        Class::Get
    };
    (destroy) => {
        Class::Destroy
    };
    (query) => {
        Class::Query
    };
    (forward) => {
        Class::Forward
    };
    (backward) => {
        Class::Backward
    };
    (compute) => {
        Class::Compute
    };
}

cudnn_functions!(signatures);

impl Function {
    /// The row.
    #[must_use]
    pub const fn signature(self) -> &'static Signature {
        &SIGNATURES[self as usize]
    }

    /// The function with this number.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}
