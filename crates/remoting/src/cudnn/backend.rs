//! What does the computing: a trait with a method for each row that computes, and the way there from a record. Touches
//! nothing.
//!
//! A backend sees contents, never handles: which descriptor of the client's it was, and how its content was found,
//! makes no difference to it. So the same calls with reuse and without are the same calls of the backend.

use super::activation::Activation;
use super::algorithms::Performances;
use super::convolution::Convolution;
use super::dropout::Dropout;
use super::filter::Filter;
use super::forwarded::Forwarded;
use super::normalization::Normalization;
use super::pooling::Pooling;
use super::reduction::Reduction;
use super::table::Function;
use super::tensor::Tensor;
use super::{Result, Status};
use crate::api::{Handle, Read, Scalar, Update, Write};
use crate::contents::{Id, Seen};
use crate::cudnn_functions;
use crate::descriptor::Content;
use crate::wire::{Malformed, Reader, Value, Words};

/// Where the contents are that a record's words stand for.
pub trait Descriptors {
    /// The content that this word stands for; `BadParam` where that has ended meanwhile.
    ///
    /// # Errors
    /// `Malformed` where no client that keeps to the rules would send it.
    fn content<C: Content>(&mut self, word: u64) -> std::result::Result<Result<C>, Malformed>;
}

/// With reuse, a record has ids.
impl Descriptors for Seen<'_> {
    fn content<C: Content>(&mut self, word: u64) -> std::result::Result<Result<C>, Malformed> {
        let (_, words) =
            Seen::content(self, Id(word)).filter(|(sort, _)| sort.kind == C::KIND).ok_or(Malformed)?;
        Some(C::from_words(&words)).filter(Content::is_sound).ok_or(Malformed).map(Ok)
    }
}

/// Without, it has handles, of which another thread may have sent the end before.
impl Descriptors for Forwarded {
    fn content<C: Content>(&mut self, word: u64) -> std::result::Result<Result<C>, Malformed> {
        Ok(self.get(word))
    }
}

/// An argument of a compute.
trait Argument: Sized {
    fn read(
        reader: &mut Reader<'_>,
        descriptors: &mut impl Descriptors,
    ) -> std::result::Result<Result<Self>, Malformed>;
}

impl<C: Content> Argument for C {
    fn read(
        reader: &mut Reader<'_>,
        descriptors: &mut impl Descriptors,
    ) -> std::result::Result<Result<Self>, Malformed> {
        descriptors.content(reader.word())
    }
}

macro_rules! argument {
    ($($type:ty = $read:expr;)*) => {
        $(impl Argument for $type {
            fn read(reader: &mut Reader<'_>, _: &mut impl Descriptors) -> std::result::Result<Result<Self>, Malformed> {
                Ok(Ok($read(reader)))
            }
        })*
    };
}

argument! {
    i32 = Value::read;
    u64 = Value::read;
    Handle = |reader: &mut Reader<'_>| Handle(reader.word());
    Scalar = |reader: &mut Reader<'_>| Scalar(Value::read(reader));
    Read = Value::read;
    Write = Value::read;
    Update = Value::read;
}

macro_rules! backend {
    ($($class:ident $name:ident ($($argument:ident: $type:ty),*) $(-> ($($result:ident: $of:ty),*))?
        $(= $rule:path)?;)*) => {
        /// Computes. A method that a backend does not have is not supported by it. It is to check that the memory
        /// that it reads and writes is the client's: pointers and contents come from there.
        #[allow(non_snake_case, unused_variables, reason = "the names are the library's")]
        pub trait Backend {
            $(method!($class $name($($argument: $type),*) ($($($of),*)?));)*
        }

        /// Has a compute done, of a record's function and words. What the backend says is the answer; the results of a
        /// query are appended to `results`.
        ///
        /// # Errors
        /// `Malformed` where the words are none of that function, or it does not compute.
        pub fn compute(
            function: Function,
            arguments: &[u64],
            descriptors: &mut impl Descriptors,
            backend: &mut impl Backend,
            results: &mut Words,
        ) -> std::result::Result<Result, Malformed> {
            let mut reader = Reader::new(arguments);
            match function {
                $(Function::$name => done!($class $name reader descriptors backend results ($($argument: $type),*)
                    ($($($result),*)?)),)*
            }
        }
    };
}

macro_rules! method {
    ($class:ident $name:ident ($($argument:ident: $type:ty),*) ($($of:ty),*)) => {
        method! { @ $class
            #[doc = concat!("`", stringify!($name), "`")]
            ///
            /// # Errors
            /// What the library says.
            fn $name(&mut self, $($argument: $type),*) -> Result<($($of,)*)> {
                Err(Status::NotSupported)
            }
        }
    };
    (@ query $($method:tt)*) => { $($method)* };
    (@ forward $($method:tt)*) => { $($method)* };
    (@ backward $($method:tt)*) => { $($method)* };
    (@ compute $($method:tt)*) => { $($method)* };
    (@ $class:ident $($method:tt)*) => {};
}

macro_rules! done {
    (@ $name:ident $reader:ident $descriptors:ident $backend:ident ($($argument:ident: $type:ty),*)) => {{
        $(let $argument = <$type as Argument>::read(&mut $reader, $descriptors)?;)*
        $reader.finish()?;
        let mut compute = || {
            $(let $argument = $argument?;)*
            $backend.$name($($argument),*)
        };
        compute()
    }};
    (query $name:ident $reader:ident $descriptors:ident $backend:ident $results:ident ($($arguments:tt)*)
        ($($result:ident),*)) => {
        Ok(done!(@ $name $reader $descriptors $backend ($($arguments)*)).map(|($($result,)*)| {
            $($result.put($results);)*
        }))
    };
    (forward $name:ident $reader:ident $descriptors:ident $backend:ident $results:ident ($($arguments:tt)*) ()) => {
        Ok(done!(@ $name $reader $descriptors $backend ($($arguments)*)))
    };
    (backward $name:ident $reader:ident $descriptors:ident $backend:ident $results:ident ($($arguments:tt)*) ()) => {
        Ok(done!(@ $name $reader $descriptors $backend ($($arguments)*)))
    };
    (compute $name:ident $reader:ident $descriptors:ident $backend:ident $results:ident ($($arguments:tt)*) ()) => {
        Ok(done!(@ $name $reader $descriptors $backend ($($arguments)*)))
    };
    ($class:ident $($rest:tt)*) => { Err(Malformed) };
}

cudnn_functions!(backend);
