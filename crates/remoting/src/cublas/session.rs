//! A program's calls of cuBLAS. Touches nothing else than the channel.

use super::table::Function;
use super::{Factor, Outcome, State, Sums, rule};
use crate::api::{Read, Update, Write};
use crate::cublas_functions;
use crate::cudnn::{Result, Status};
use crate::session::Session;
use crate::wire::{Value, Words};

impl Session<'_> {
    /// Sends a compute whose arguments are right. Only for a number that comes back is it waited for, or if all are.
    fn blas(&self, function: Function, words: &Words, waits: bool) -> Result<Option<f64>> {
        if !waits && !self.blocking {
            let sent = self.client().send(function.number(), words);
            return Ok(sent.map(|()| None)?);
        }
        let answer = self.client().call(function.number(), words)?;
        Status::from_wire(answer.first().copied().unwrap_or_default())?;
        Ok(answer.get(1).map(|word| f64::from_bits(*word)))
    }
}

/// An argument of a compute, as it is sent.
trait Argument: Value {
    /// Is its answer waited for?
    fn waits(&self) -> bool {
        false
    }
}

impl Argument for i32 {}
impl Argument for u64 {}
impl Argument for Sums {}
impl Argument for Factor {}
impl Argument for Read {}
impl Argument for Write {}
impl Argument for Update {}
impl Argument for Outcome {
    fn waits(&self) -> bool {
        *self == Self::Host
    }
}

macro_rules! calls {
    ($($class:ident $name:ident ($($argument:ident: $type:ty),*) $(-> ($($result:ident: $of:ty),*))?
        $(= $rule:path)?;)*) => {
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the names are the library's")]
        impl Session<'_> {
            $(call!($class $name ($($argument: $type),*) ($($($of),*)?) $($rule)?);)*
        }
    };
}

macro_rules! call {
    (create $name:ident () ($of:ty)) => {
        call! { @ $name () -> Result<u64> = |session| session.handles().create() }
    };
    (destroy $name:ident ($handle:ident: $of_handle:ty) ()) => {
        call! { @ $name (handle: u64) -> Result = |session| session.handles().destroy(handle) }
    };
    (set $name:ident ($handle:ident: $of_handle:ty, $argument:ident: $type:ty) () $rule:path) => {
        call! { @ $name (handle: u64, $argument: $type) -> Result = |session| {
            session.handles().change(handle, |state| $rule(state, $argument))
        } }
    };
    (get $name:ident ($handle:ident: $of_handle:ty) ($of:ty) $rule:path) => {
        call! { @ $name (handle: u64) -> Result<$of> = |session| session.handles().get(handle).map($rule) }
    };
    (compute $name:ident ($handle:ident: $of_handle:ty $(, $argument:ident: $type:ty)*) () $rule:path) => {
        call! { @ $name (handle: u64 $(, $argument: $type)*) -> Result<Option<f64>> = |session| {
            let state: State = session.handles().get(handle)?;
            $rule($($argument),*)?;
            let mut words = Words::new();
            state.put(&mut words);
            $($argument.put(&mut words);)*
            session.blas(Function::$name, &words, false $(|| $argument.waits())*)
        } }
    };
    (@ $name:ident ($($argument:ident: $type:ty),*) -> $answer:ty = |$session:ident| $body:expr) => {
        #[doc = concat!("`", stringify!($name), "`")]
        ///
        /// # Errors
        /// What the library says.
        pub fn $name(&self $(, $argument: $type)*) -> $answer {
            let $session = self;
            $body
        }
    };
}

cublas_functions!(calls);
