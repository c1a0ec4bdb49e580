//! What a worker does with a client's records. Touches nothing but its backend.
//!
//! An error of a compute that nobody waits for is kept, as CUDA keeps such: no later compute is done, and each
//! answer is that error.

use crate::contents::Seen;
use crate::cudnn::backend::{Backend, compute};
use crate::cudnn::forwarded::Forwarded;
use crate::cudnn::table::Function;
use crate::cudnn::{Result, Status, Version};
use crate::sync::Region;
use crate::wire::{Head, Malformed, Reader, Words};

/// The number of a record that is answered when all before it are done, with the error that is kept, if any.
pub const SYNCHRONISE: u16 = u16::MAX;

/// Of one client process.
#[derive(Debug)]
pub struct Worker<'a, B> {
    descriptors: Descriptors<'a>,
    backend: B,
    kept: Result,
}

#[derive(Debug)]
enum Descriptors<'a> {
    Reused(Seen<'a>),
    Forwarded(Forwarded),
}

impl<'a, B: Backend> Worker<'a, B> {
    /// For a client that answers descriptor calls itself, with its table of contents.
    #[must_use]
    pub fn new(contents: Region<'a>, backend: B) -> Self {
        Self { descriptors: Descriptors::Reused(Seen::new(contents)), backend, kept: Ok(()) }
    }

    /// For one that forwards them, of a program of this version.
    #[must_use]
    pub fn forwarded(version: Version, backend: B) -> Self {
        Self { descriptors: Descriptors::Forwarded(Forwarded::new(version)), backend, kept: Ok(()) }
    }

    /// Does what a record says. The first word of the answer is [`Status::to_wire`]; results come after it.
    ///
    /// # Errors
    /// `Malformed` for one that no client that keeps to the rules would send: it is not to be served any more.
    pub fn record(
        &mut self,
        head: Head,
        arguments: &[u64],
        answer: &mut Words,
    ) -> std::result::Result<(), Malformed> {
        answer.push(0);
        let result = if head.function == SYNCHRONISE {
            self.kept
        } else {
            let function = Function::from_number(head.function).ok_or(Malformed)?;
            if function.signature().class.computes() {
                let result = self.compute(function, arguments)?;
                self.kept = if head.place.is_none() { result } else { self.kept };
                result
            } else {
                self.descriptor(function, arguments, answer)?
            }
        };
        answer[0] = Status::to_wire(result);
        Ok(())
    }

    fn compute(&mut self, function: Function, arguments: &[u64]) -> std::result::Result<Result, Malformed> {
        if self.kept.is_err() {
            return Ok(self.kept);
        }
        match &mut self.descriptors {
            Descriptors::Reused(seen) => compute(function, arguments, seen, &mut self.backend),
            Descriptors::Forwarded(forwarded) => compute(function, arguments, forwarded, &mut self.backend),
        }
    }

    fn descriptor(
        &mut self,
        function: Function,
        arguments: &[u64],
        answer: &mut Words,
    ) -> std::result::Result<Result, Malformed> {
        let Descriptors::Forwarded(forwarded) = &mut self.descriptors else { return Err(Malformed) };
        let mut reader = Reader::new(arguments);
        let result = forwarded.call(function, &mut reader, answer);
        // A call that fails may leave some of its words unread.
        if result.is_ok() { reader.finish().map(|()| result) } else { Ok(result) }
    }
}
