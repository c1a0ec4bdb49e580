//! What does cuBLAS's computing: a trait with a method for each row that computes, and the way there from a record.
//! Touches nothing.

use super::table::Function;
use super::{Factor, Outcome, State, Sums};
use crate::api::{Read, Update, Write};
use crate::cublas_functions;
use crate::cudnn::{Result, Status};
use crate::wire::{Malformed, Reader, Value};

macro_rules! backend {
    ($($class:ident $name:ident ($($argument:ident: $type:ty),*) $(-> ($($result:ident: $of:ty),*))?
        $(= $rule:path)?;)*) => {
        /// Computes, as [`crate::cudnn::backend::Backend`] does. Arguments are not yet checked. What a method answers is
        /// the number of an [`Outcome::Host`].
        #[allow(non_snake_case, unused_variables, reason = "the names are the library's")]
        pub trait Blas {
            $(method!($class $name($($argument: $type),*));)*
        }

        /// Has a compute done, of a record's function and words.
        ///
        /// # Errors
        /// `Malformed` where the words are none of that function, or it does not compute.
        pub fn compute(
            function: Function,
            arguments: &[u64],
            backend: &mut impl Blas,
        ) -> std::result::Result<Result<Option<f64>>, Malformed> {
            let mut reader = Reader::new(arguments);
            match function {
                $(Function::$name => done!($class $name reader backend ($($argument: $type),*)),)*
            }
        }
    };
}

macro_rules! method {
    (compute $name:ident ($handle:ident: $of_handle:ty $(, $argument:ident: $type:ty)*)) => {
        #[doc = concat!("`", stringify!($name), "`")]
        ///
        /// # Errors
        /// What the library says.
        fn $name(&mut self, state: State $(, $argument: $type)*) -> Result<Option<f64>> {
            Err(Status::NotSupported)
        }
    };
    ($class:ident $($rest:tt)*) => {};
}

macro_rules! done {
    (compute $name:ident $reader:ident $backend:ident ($handle:ident: $of_handle:ty $(, $argument:ident: $type:ty)*)) => {{
        let state = State::read(&mut $reader);
        $(let $argument = <$type as Value>::read(&mut $reader);)*
        $reader.finish()?;
        Ok($backend.$name(state $(, $argument)*))
    }};
    ($class:ident $($rest:tt)*) => { Err(Malformed) };
}

cublas_functions!(backend);
