//! Descriptor calls that a client forwards (`VGPU_REUSE=off`, the way of older systems), answered by the same
//! rules. Touches nothing.
//!
//! The client chooses the handle, so that a create need not wait for an answer.

use std::collections::HashMap;

use super::table::Function;
use super::{
    Got, Result, Status, Version, activation, convolution, dropout, filter, normalization, pooling,
    reduction, tensor,
};
use crate::api::Handle;
use crate::cudnn::{
    activation::Activation, convolution::Convolution, dropout::Dropout, filter::Filter,
    normalization::Normalization, pooling::Pooling, reduction::Reduction, tensor::Tensor,
};
use crate::cudnn_functions;
use crate::descriptor::{self, Content, Ints, Kind};
use crate::wire::{Reader, Value, Words};

/// How many descriptors a client can have, so that it cannot fill the worker's memory.
pub const MAX_DESCRIPTORS: usize = 1 << 20;

/// The descriptors of one client.
#[derive(Debug)]
pub struct Forwarded {
    version: Version,
    descriptors: HashMap<u64, (Kind, descriptor::Words)>,
}

impl Forwarded {
    /// None yet, in a program of this version.
    #[must_use]
    pub fn new(version: Version) -> Self {
        Self { version, descriptors: HashMap::new() }
    }

    fn create<C: Content>(&mut self, handle: u64) -> Result {
        if handle == 0 || self.descriptors.len() >= MAX_DESCRIPTORS {
            return Err(Status::AllocFailed);
        }
        self.descriptors.insert(handle, (C::KIND, C::FRESH.to_words()));
        Ok(())
    }

    fn destroy<C: Content>(&mut self, handle: u64) -> Result {
        if handle == 0 {
            return Ok(());
        }
        self.get::<C>(handle)?;
        self.descriptors.remove(&handle);
        Ok(())
    }

    /// The content of a descriptor.
    ///
    /// # Errors
    /// `BadParam` where there is none of that kind.
    pub fn get<C: Content>(&self, handle: u64) -> Result<C> {
        match self.descriptors.get(&handle) {
            Some((kind, words)) if *kind == C::KIND => Ok(C::from_words(words)),
            _ => Err(Status::BadParam),
        }
    }

    fn change<C: Content>(&mut self, handle: u64, rule: impl FnOnce(Version, &mut C) -> Result) -> Result {
        let mut content: C = self.get(handle)?;
        let result = rule(self.version, &mut content);
        self.descriptors.insert(handle, (C::KIND, content.to_words()));
        result
    }
}

/// An argument, of which a descriptor is read by its handle.
trait Argument: Sized {
    fn read(reader: &mut Reader<'_>, descriptors: &Forwarded) -> Result<Self>;
}

impl<C: Content> Argument for C {
    fn read(reader: &mut Reader<'_>, descriptors: &Forwarded) -> Result<Self> {
        descriptors.get(reader.word())
    }
}

impl<C: Content> Argument for Option<C> {
    fn read(reader: &mut Reader<'_>, descriptors: &Forwarded) -> Result<Self> {
        match reader.word() {
            0 => Ok(None),
            handle => descriptors.get(handle).map(Some),
        }
    }
}

impl Argument for Handle {
    fn read(reader: &mut Reader<'_>, _: &Forwarded) -> Result<Self> {
        match reader.word() {
            0 => Err(Status::BadParam),
            handle => Ok(Self(handle)),
        }
    }
}

macro_rules! argument {
    ($($type:ty),*) => {
        $(impl Argument for $type {
            fn read(reader: &mut Reader<'_>, _: &Forwarded) -> Result<Self> {
                Ok(Value::read(reader))
            }
        })*
    };
}
argument!(i32, u64, f32, f64, Ints);

macro_rules! dispatch {
    ($($class:ident $name:ident ($($argument:ident: $type:ty),*) $(-> ($($result:ident: $of:ty),*))?
        $(= $rule:path)?;)*) => {
        impl Forwarded {
            /// Answers a call with these words: what is wrong with it, and else its results, in `results`.
            ///
            /// # Errors
            /// As the function's rule; `BadParam` for a handle that is none.
            pub fn call(&mut self, function: Function, arguments: &mut Reader<'_>, results: &mut Words) -> Result {
                match function {
                    $(Function::$name => row!($class self arguments results ($($argument: $type),*)
                        ($($($result: $of),*)?) $($rule)?),)*
                }
            }
        }
    };
}

/// A row that computes is [`super::backend`]'s.
macro_rules! row {
    (create $self:ident $in:ident $out:ident () ($result:ident: $kind:ty)) => {
        $self.create::<$kind>($in.word())
    };
    (destroy $self:ident $in:ident $out:ident ($argument:ident: $kind:ty) ()) => {
        $self.destroy::<$kind>($in.word())
    };
    (set $self:ident $in:ident $out:ident ($d:ident: $kind:ty $(, $argument:ident: $type:ty)*) () $rule:path) => {{
        let handle = $in.word();
        $(let $argument = <$type as Argument>::read($in, $self)?;)*
        $self.change(handle, |version, content: &mut $kind| $rule(version, content $(, $argument)*))
    }};
    (get $self:ident $in:ident $out:ident ($($argument:ident: $type:ty),*) ($($result:ident: $of:ty),*)
        $rule:path) => {{
        $(let $argument = <$type as Argument>::read($in, $self)?;)*
        let got: Got<($($of,)*)> = $rule($self.version $(, $argument)*).into();
        if let Some(($($result,)*)) = got.results {
            let results: &[&dyn Value] = &[$(&$result),*];
            results.iter().take(got.written).for_each(|result| result.put($out));
        }
        got.status
    }};
    ($compute:ident $($rest:tt)*) => {
        Err(Status::NotSupported)
    };
}

cudnn_functions!(dispatch);
