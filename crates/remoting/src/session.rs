//! A client process's calls, from descriptors to records: all that a C function of the client has left to do is to read
//! its arguments and to write its results. Touches nothing else than the channel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::api::{Class, Handle, Read, Scalar, Update, Write};
use crate::channel::{Client, Unanswered};
use crate::contents::Id;
use crate::counters::Counter;
use crate::cublas::Handles;
use crate::cudnn::activation::Activation;
use crate::cudnn::algorithms::Performances;
use crate::cudnn::convolution::Convolution;
use crate::cudnn::dropout::Dropout;
use crate::cudnn::filter::Filter;
use crate::cudnn::handle;
use crate::cudnn::normalization::Normalization;
use crate::cudnn::pooling::Pooling;
use crate::cudnn::reduction::Reduction;
use crate::cudnn::table::Function;
use crate::cudnn::tensor::Tensor;
use crate::cudnn::{
    self, Got, Status, Version, activation, convolution, dropout, filter, normalization, pooling, reduction,
    tensor,
};
use crate::cudnn_functions;
use crate::descriptor::{Content, Ints};
use crate::memo::{self, Memo};
use crate::pinned::Pinned;
use crate::reuse::{Reuse, Thread, Unresolved};
use crate::ring::Gone;
use crate::sync::Region;
use crate::wire::{Reader, Value, Words};
use crate::worker::{FORWARD, SEED, SYNCHRONISE};

/// What happens with descriptor calls. They are answered by the same rules in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They are answered here, and nothing is sent.
    Reuse,
    /// They are sent to the worker too (`VGPU_REUSE=off`).
    Forward,
    /// And waited for (`VGPU_REUSE=off,waiting`), as the systems before this one do.
    ForwardAndWait,
}

/// The calls of a process.
#[derive(Debug)]
pub struct Session<'a> {
    mode: Mode,
    /// Each compute is waited for.
    pub(crate) blocking: bool,
    reuse: Reuse<'a>,
    client: Client<'a>,
    memo: Mutex<Memo>,
    blas: Handles,
    /// The worker was told that descriptor calls come too.
    forwards: AtomicBool,
    /// For one copy at a time.
    staging: Mutex<Region<'a>>,
    pinned: Pinned,
}

/// Why a compute was not sent.
#[derive(Debug)]
pub enum Unsent {
    /// A descriptor has no id.
    Unresolved(Unresolved),
    /// An argument is wrong.
    Status(Status),
}

impl From<Status> for Unsent {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// A parameter of a row: as a program passes it, and what becomes of that.
pub trait Parameter: Sized {
    /// Of a descriptor the handle.
    type Passed: Clone;
    /// What a rule is given.
    ///
    /// # Errors
    /// `BadParam` where it is nothing that a rule could be given.
    fn get(passed: Self::Passed, session: &Session<'_>, version: Version) -> cudnn::Result<Self>;
    /// What is sent of it with a descriptor call.
    fn put(passed: Self::Passed, words: &mut Words);
    /// What is sent of it with a compute, with reuse.
    ///
    /// # Errors
    /// See [`Unsent`].
    #[inline]
    fn send(
        passed: Self::Passed,
        _: (&Session<'_>, Version, &mut Thread),
        words: &mut Words,
    ) -> Result<(), Unsent> {
        Self::put(passed, words);
        Ok(())
    }
}

impl<C: Content> Parameter for C {
    type Passed = usize;

    #[inline]
    fn get(handle: usize, session: &Session<'_>, version: Version) -> cudnn::Result<Self> {
        session.reuse.get(version, handle)
    }

    fn put(handle: usize, words: &mut Words) {
        words.push(handle as u64);
    }

    #[inline]
    fn send(
        handle: usize,
        (session, version, thread): (&Session<'_>, Version, &mut Thread),
        words: &mut Words,
    ) -> Result<(), Unsent> {
        let Id(id) = session.reuse.id::<C>(thread, version, handle).map_err(Unsent::Unresolved)?;
        words.push(id);
        Ok(())
    }
}

impl<C: Content> Parameter for Option<C> {
    type Passed = usize;

    #[inline]
    fn get(handle: usize, session: &Session<'_>, version: Version) -> cudnn::Result<Self> {
        if handle == 0 { Ok(None) } else { session.reuse.get(version, handle).map(Some) }
    }

    fn put(handle: usize, words: &mut Words) {
        words.push(handle as u64);
    }
}

macro_rules! parameter {
    ($($type:ty: |$value:ident, $words:ident| $put:expr;)*) => {
        $(impl Parameter for $type {
            type Passed = Self;

            #[inline]
            fn get(passed: Self, _: &Session<'_>, _: Version) -> cudnn::Result<Self> {
                Ok(passed)
            }

            #[inline]
            fn put($value: Self, $words: &mut Words) {
                $put;
            }
        })*
    };
}

parameter! {
    i32: |value, words| Value::put(&value, words);
    u64: |value, words| Value::put(&value, words);
    f32: |value, words| Value::put(&value, words);
    f64: |value, words| Value::put(&value, words);
    Scalar: |value, words| Value::put(&value.0, words);
    Read: |value, words| words.push(value.0);
    Write: |value, words| words.push(value.0);
    Update: |value, words| words.push(value.0);
}

impl Parameter for Handle {
    type Passed = Self;

    fn get(passed: Self, _: &Session<'_>, _: Version) -> cudnn::Result<Self> {
        if passed.0 == 0 { Err(Status::BadParam) } else { Ok(passed) }
    }

    fn put(passed: Self, words: &mut Words) {
        words.push(passed.0);
    }

    fn send(
        passed: Self,
        (session, version, _): (&Session<'_>, Version, &mut Thread),
        words: &mut Words,
    ) -> Result<(), Unsent> {
        Self::put(Self::get(passed, session, version)?, words);
        Ok(())
    }
}

impl Parameter for Ints {
    type Passed = Self;

    fn get(passed: Self, _: &Session<'_>, _: Version) -> cudnn::Result<Self> {
        Ok(passed)
    }

    fn put(passed: Self, words: &mut Words) {
        Value::put(&passed, words);
    }
}

impl<'a> Session<'a> {
    /// The calls of a process, in this mode.
    #[must_use]
    pub fn new(mode: Mode, reuse: Reuse<'a>, client: Client<'a>) -> Self {
        let staging = Mutex::new(client.channel().staging());
        Self {
            mode,
            blocking: false,
            reuse,
            client,
            memo: Mutex::default(),
            forwards: AtomicBool::new(false),
            blas: Handles::default(),
            staging,
            pinned: Pinned::default(),
        }
    }

    /// Each compute is waited for (`CUDA_LAUNCH_BLOCKING=1`), so that its error is its call's.
    #[must_use]
    pub fn blocking(self) -> Self {
        Self { blocking: true, ..self }
    }

    /// What a thread needs for its calls.
    pub fn enter(&self) -> Thread<'a> {
        self.reuse.enter()
    }

    /// Takes back what a thread had that ends.
    pub fn leave(&self, thread: &mut Thread<'a>) {
        self.reuse.leave(thread);
    }

    /// Descriptors, and how they were found.
    #[must_use]
    pub fn reuse(&self) -> &Reuse<'a> {
        &self.reuse
    }

    /// The way to the worker, and what was sent.
    #[must_use]
    pub fn client(&self) -> &Client<'a> {
        &self.client
    }

    /// Counts bytes of the program's that were moved to the device, or from it.
    pub fn moved(&self, bytes: u64) {
        self.reuse.counters().add(Counter::Bytes, bytes);
    }

    /// The handles of cuBLAS, and what is set on them.
    #[must_use]
    pub fn handles(&self) -> &Handles {
        &self.blas
    }

    /// A thread is about to compute with a handle of cuDNN.
    ///
    /// # Errors
    /// `BadParam` where it is none.
    #[inline]
    pub fn using(&self, thread: &mut Thread, version: Version, handle: usize) -> cudnn::Result {
        let state: handle::State = self.reuse.get(version, handle)?;
        self.reuse.on_stream(thread, state.stream);
        Ok(())
    }

    /// Has a function of the program's run once all that was sent before is done, with the error that is kept, if any;
    /// what is sent from now on is done after it. The flag is that of [`Client::defer`], for [`Session::run`].
    ///
    /// # Errors
    /// `NotPermitted` as [`Client::defer`].
    pub fn defer(&self, function: impl FnOnce(cudnn::Result) + Send + 'static) -> cudnn::Result<bool> {
        Ok(self.client.defer(Box::new(|called| function(answer(called))))?)
    }

    /// Runs such functions until there are no more.
    pub fn run(&self) {
        self.client.run(SYNCHRONISE);
    }

    /// Waits until all that was sent is done.
    ///
    /// # Errors
    /// Of a compute that nobody waited for; `ExecutionFailed` where the worker is gone; `NotPermitted` in a function that was
    /// deferred.
    pub fn synchronise(&self) -> cudnn::Result {
        answer(self.client.call(SYNCHRONISE, &Words::new()))
    }

    /// Sends a descriptor call. The answer is known already, and is the same.
    #[cold]
    fn forward(&self, version: Version, function: Function, put: impl FnOnce(&mut Words)) -> cudnn::Result {
        // Whoever comes second may say so too: it comes before its own calls, and nobody waits for anybody.
        if !self.forwards.load(Ordering::Relaxed) {
            self.client.send(FORWARD, &[version as u64].into_iter().collect())?;
            self.forwards.store(true, Ordering::Relaxed);
        }
        let mut words = Words::new();
        put(&mut words);
        match self.mode {
            Mode::ForwardAndWait => self.client.call(function as u16, &words).map(|_| ())?,
            _ => self.client.send(function as u16, &words)?,
        }
        Ok(())
    }

    /// Sends a compute: the words with ids, that `find` makes, or where descriptor calls are forwarded those with
    /// handles, that `put` makes. It is waited for if it is the first of its like, which is by the ids in each case.
    fn compute(
        &self,
        thread: &mut Thread,
        function: Function,
        mut find: impl FnMut(&mut Thread, &mut Words) -> Result<(), Unsent>,
        put: impl Fn(&mut Words),
    ) -> cudnn::Result {
        let (mut key, mut words) = (Words::new(), Words::new());
        loop {
            if !self.find(thread, function, &mut find, &put, &mut key, &mut words)? {
                continue;
            }
            if let Some(result) = self.send(thread, function, &key, &words) {
                self.watch(function, &words, thread);
                return result;
            }
        }
    }

    /// As [`Session::compute`]; what was answered before is not asked again, if descriptor calls are not sent either.
    fn query(
        &self,
        thread: &mut Thread,
        function: Function,
        mut find: impl FnMut(&mut Thread, &mut Words) -> Result<(), Unsent>,
        put: impl Fn(&mut Words),
    ) -> cudnn::Result<Words> {
        let (mut key, mut words) = (Words::new(), Words::new());
        loop {
            if !self.find(thread, function, &mut find, &put, &mut key, &mut words)? {
                continue;
            }
            let known = self.memo().answer(&key).filter(|_| self.mode == Mode::Reuse);
            if let Some(results) = known {
                return Ok(results);
            }
            let current = || self.is_current(function, &words);
            let Some(answer) = self.client.call_if(current, function as u16, &words) else { continue };
            let answer = answer?;
            let (status, results) = answer.split_first().ok_or(Status::InternalError)?;
            Status::from_wire(*status)?;
            let results: Words = results.iter().copied().collect();
            self.memo().answered(&key, results.clone());
            return Ok(results);
        }
    }

    /// Begins random numbers, at an address where there is one.
    fn seed(&self, [states, size, seed]: [u64; 3]) -> cudnn::Result {
        if states == 0 {
            return Ok(());
        }
        answer(self.client.call(SEED, &[states, size, seed].into_iter().collect()))
    }

    /// What a call depends on, and its words, in place of what is in `key` and `words`. The flag tells that they are
    /// there; else they are to be found again.
    #[inline]
    fn find(
        &self,
        thread: &mut Thread,
        function: Function,
        find: &mut impl FnMut(&mut Thread, &mut Words) -> Result<(), Unsent>,
        put: &impl Fn(&mut Words),
        key: &mut Words,
        words: &mut Words,
    ) -> cudnn::Result<bool> {
        words.clear();
        match find(thread, words) {
            Ok(()) => {}
            Err(Unsent::Status(status)) => return Err(status),
            Err(Unsent::Unresolved(Unresolved::NoSuch)) => return Err(Status::BadParam),
            Err(Unsent::Unresolved(Unresolved::Full)) => return self.renew().map(|()| false),
        }
        memo::key(function as u16, function.signature(), words, key);
        if self.mode != Mode::Reuse {
            words.clear();
            put(words);
        }
        Ok(true)
    }

    /// Are the ids among these words, if they have ids, still of this epoch?
    #[inline]
    fn is_current(&self, function: Function, words: &Words) -> bool {
        let mut ids = function.signature().which.descriptors.of(words);
        self.mode != Mode::Reuse || ids.all(|id| self.reuse.is_current(Id(id)))
    }

    /// None where an epoch has ended since the ids were found.
    #[inline]
    fn send(
        &self,
        thread: &mut Thread,
        function: Function,
        key: &Words,
        words: &Words,
    ) -> Option<cudnn::Result> {
        let current = || self.is_current(function, words);
        if !self.blocking && (thread.worked.knows(key) || self.has_worked_elsewhere(thread, key)) {
            let sent = self.client.send_if(current, function as u16, words)?;
            return Some(sent.map_err(Status::from));
        }
        let result = answer(self.client.call_if(current, function as u16, words)?);
        if result.is_ok() {
            self.memo().worked.learn(key);
            thread.worked.learn(key);
        }
        Some(result)
    }

    /// In another thread, or in this one before it has forgotten what it knew?
    #[cold]
    fn has_worked_elsewhere(&self, thread: &mut Thread, key: &Words) -> bool {
        let worked = self.memo().worked.knows(key);
        if worked {
            thread.worked.learn(key);
        }
        worked
    }

    /// Tells the predictor what was sent.
    #[inline]
    fn watch(&self, function: Function, words: &Words, thread: &mut Thread) {
        let signature = function.signature();
        match signature.class {
            Class::Forward => signature.output(words).into_iter().for_each(|y| self.reuse.forward(thread, y)),
            Class::Backward => self.reuse.backward(thread, signature.inputs(words)),
            _ => {}
        }
    }

    /// Makes room for contents. Another thread may have done so before.
    fn renew(&self) -> cudnn::Result {
        Ok(self.client.quiesce(SYNCHRONISE, || self.reuse.next_epoch())?)
    }

    /// The memory for what is copied, for as long as the guard is held.
    ///
    /// # Errors
    /// `NotPermitted` in a function that was deferred: whoever has the memory may wait for it.
    pub(crate) fn staging(&self) -> cudnn::Result<MutexGuard<'_, Region<'a>>> {
        if self.client.runs_here() {
            return Err(Status::NotPermitted);
        }
        Ok(self.staging.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What it has of host-allocated memory.
    pub(crate) fn pinned(&self) -> &Pinned {
        &self.pinned
    }

    fn memo(&self) -> MutexGuard<'_, Memo> {
        self.memo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

macro_rules! calls {
    ($($class:ident $name:ident ($($argument:ident: $type:ty),*) $(-> ($($result:ident: $of:ty),*))?
        $(= $rule:path)?;)*) => {
        $(call!($class $name ($($argument: $type),*) ($($($result: $of),*)?) $($rule)?);)*
    };
}

macro_rules! call {
    (create $name:ident () ($result:ident: $kind:ty)) => {
        call! { @ $name [thread] (version) -> cudnn::Result<usize> = |session| {
            let handle = session.reuse.create::<$kind>(thread, version)?;
            if session.mode != Mode::Reuse {
                session.forward(version, Function::$name, move |words| words.push(handle as u64))?;
            }
            Ok(handle)
        } }
    };
    (destroy $name:ident ($handle:ident: $kind:ty) ()) => {
        call! { @ $name [thread] (version, $handle: usize) -> cudnn::Result = |session| {
            // Before the slot is free, and another thread's create of it can be sent.
            if session.mode != Mode::Reuse {
                session.forward(version, Function::$name, move |words| words.push($handle as u64))?;
            }
            session.reuse.destroy::<$kind>(thread, version, $handle)
        } }
    };
    (set $name:ident ($handle:ident: $kind:ty $(, $argument:ident: $type:ty)*) () $rule:path) => {
        call! { @ $name [] (version, $handle: usize $(, $argument: <$type as Parameter>::Passed)*)
            -> cudnn::Result = |session| {
            if session.mode != Mode::Reuse {
                // Copies, so that without this the arguments stay where they came.
                $(let $argument = $argument.clone();)*
                session.forward(version, Function::$name, move |words| {
                    words.push($handle as u64);
                    $(<$type as Parameter>::put($argument, words);)*
                })?;
            }
            $(let $argument = <$type as Parameter>::get($argument, session, version)?;)*
            // It has copies too, for the same reason.
            session.reuse.change(version, $handle, move |version, content: &mut $kind| {
                $rule(version, content $(, $argument)*)
            })
        } }
    };
    (seed $name:ident ($d:ident: $kind:ty, $handle:ident: $of:ty, $dropout:ident: $number:ty $(, $numbers:ident: $type:ty)*)
        ()) => {
        call! { @ $name [thread] (version, $d: usize, $handle: $of, $dropout: $number $(, $numbers: $type)*)
            -> cudnn::Result = |session| {
            session.reuse.get::<$kind>(version, $d)?;
            <$of as Parameter>::get($handle, session, version)?;
            session.seed([$($numbers),*])?;
            session.cudnnRestoreDropoutDescriptor(version, $d, $handle, $dropout $(, $numbers)*)
        } }
    };
    (get $name:ident ($($argument:ident: $type:ty),*) ($($result:ident: $of:ty),*) $rule:path) => {
        call! { @ $name [] (version $(, $argument: <$type as Parameter>::Passed)*)
            -> Got<($($of,)*)> = |session| {
            if session.mode != Mode::Reuse {
                let sent = session.forward(version, Function::$name, |words| {
                    $(<$type as Parameter>::put($argument.clone(), words);)*
                });
                if let Err(status) = sent {
                    return Err(status).into();
                }
            }
            $(let $argument = match <$type as Parameter>::get($argument, session, version) {
                Ok(value) => value,
                Err(status) => return Err(status).into(),
            };)*
            $rule(version $(, $argument)*).into()
        } }
    };
    (query $name:ident ($($argument:ident: $type:ty),*) ($($result:ident: $of:ty),*)) => {
        call! { @ $name [thread] (version $(, $argument: <$type as Parameter>::Passed)*)
            -> Got<($($of,)*)> = |session| {
            let answer = session.query(thread, Function::$name, |thread, words| {
                $(<$type as Parameter>::send($argument.clone(), (session, version, &mut *thread), words)?;)*
                Ok(())
            }, |words| {
                $(<$type as Parameter>::put($argument.clone(), words);)*
            });
            answer.and_then(|words| {
                let mut reader = Reader::new(&words);
                let results = ($(<$of as Value>::read(&mut reader),)*);
                reader.finish().map(|()| results).map_err(|_| Status::InternalError)
            }).into()
        } }
    };
    ($compute:ident $name:ident ($($argument:ident: $type:ty),*) ()) => {
        call! { @ $name [thread] (version $(, $argument: <$type as Parameter>::Passed)*) -> cudnn::Result = |session| {
            session.compute(thread, Function::$name, |thread, words| {
                $(<$type as Parameter>::send($argument.clone(), (session, version, &mut *thread), words)?;)*
                Ok(())
            }, |words| {
                $(<$type as Parameter>::put($argument.clone(), words);)*
            })
        } }
    };
    (@ $name:ident [$($thread:ident)?] ($version:ident $(, $argument:ident: $type:ty)*) -> $answer:ty
        = |$session:ident| $body:block) => {
        impl Session<'_> {
            #[doc = concat!("`", stringify!($name), "`, of descriptors by their handles.")]
            ///
            /// # Errors
            /// What the library says.
            #[allow(non_snake_case, unused_variables, clippy::clone_on_copy, clippy::useless_conversion,
                clippy::too_many_arguments, reason = "made of the table")]
            #[inline(always)]
            pub fn $name(&self $(, $thread: &mut Thread)?, $version: Version $(, $argument: $type)*) -> $answer {
                let $session = self;
                $body
            }
        }
    };
}

cudnn_functions!(calls);

impl From<Gone> for Status {
    fn from(Gone: Gone) -> Self {
        Self::ExecutionFailed
    }
}

impl From<Unanswered> for Status {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Gone => Self::ExecutionFailed,
            Unanswered::Deferred => Self::NotPermitted,
        }
    }
}

fn answer(called: Result<Words, impl Into<Status>>) -> cudnn::Result {
    let words = called.map_err(Into::into)?;
    Status::from_wire(words.first().copied().unwrap_or_default())
}
