//! Descriptor calls, answered from what there is: slots, contents and guesses, put together. Touches nothing else.
//!
//! Create, set, get and destroy take no lock and send nothing. When a descriptor is first used after a change, its
//! content's id is found: by a compare where the guess was right (*predicted*), else by a lookup (*known*; also where it
//! was never set, as few are that are used), else it is given one (*new*), and the worker finds the content in shared
//! memory.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::contents::{Contents, Epoch, Full, Id, Sort, Writer};
use crate::counters::{Block, Counter, Counters};
use crate::cudnn::{Status, Version};
use crate::descriptor::{Content, Words};
use crate::iteration::Watch;
use crate::memo::Worked;
use crate::predictor::Lanes;
use crate::slot::{Identity, Slot};
use crate::slots::{Magazine, Slots};
use crate::sync::Region;

/// The descriptors of a process.
#[derive(Debug)]
pub struct Reuse<'a> {
    slots: Slots,
    contents: Contents<'a>,
    /// The epoch of the contents.
    epoch: AtomicU64,
    writer: Mutex<Writer>,
    watch: Watch,
    threads: AtomicU32,
    counters: Counters<'a>,
    #[cfg(feature = "blind")]
    queue: blind::Queue,
}

/// What a thread keeps for itself.
#[derive(Debug)]
pub struct Thread<'a> {
    magazine: Magazine,
    lanes: Lanes,
    counts: Option<&'a Block>,
    /// What it knows of the computes that have worked.
    pub(crate) worked: Worked,
}

/// How ids were found, since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// By a compare.
    pub predicted: u64,
    /// By a lookup.
    pub known: u64,
    /// Not; they were given one.
    pub new: u64,
}

/// Why a descriptor has no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// It is no descriptor of that sort.
    NoSuch,
    /// The table of contents is full: synchronise, call [`Reuse::next_epoch`], find all ids of the record again.
    Full,
}

impl<'a> Thread<'a> {
    /// Where it counts for itself.
    #[must_use]
    pub fn counts(&self) -> Option<&'a Block> {
        self.counts
    }
}

impl<'a> Reuse<'a> {
    /// None yet, with room for so many descriptors, and for the contents that `table` can hold; it counts in `counters`.
    /// Both are zero.
    #[must_use]
    pub fn new(slots: usize, table: Region<'a>, counters: Region<'a>) -> Self {
        let (contents, writer) = Contents::new(table);
        Self {
            slots: Slots::new(slots),
            contents,
            epoch: AtomicU64::new(0),
            writer: Mutex::new(writer),
            watch: Watch::default(),
            threads: AtomicU32::new(0),
            counters: Counters::new(counters),
            #[cfg(feature = "blind")]
            queue: blind::Queue::default(),
        }
    }

    /// What a thread needs for its calls. [`Reuse::leave`] takes it back.
    pub fn enter(&self) -> Thread<'a> {
        // Numbers only ever come again after sixteen million threads, and then cost guesses.
        let number = self.threads.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let (magazine, worked) = (Magazine::default(), Worked::of_thread());
        Thread { magazine, lanes: Lanes::new(number), counts: self.counters.enter(), worked }
    }

    /// Takes back what a thread had that ends.
    pub fn leave(&self, thread: &mut Thread<'a>) {
        self.slots.empty(&mut thread.magazine);
        thread.counts.take().into_iter().for_each(|block| self.counters.leave(block));
    }

    /// A create call: the handle.
    ///
    /// # Errors
    /// `AllocFailed` where there is no room.
    #[inline(always)]
    pub fn create<C: Content>(&self, thread: &mut Thread, version: Version) -> Result<usize, Status> {
        let sort = Sort { kind: C::KIND, version };
        let (guess, ticket) = thread.lanes.create(self.watch.iteration(), sort);
        #[cfg(feature = "blind")]
        if let Some(head) = self.queue.rotate(sort).filter(|_| self.is_warm()) {
            return Ok(head);
        }
        let handle = self.slots.create(&mut thread.magazine, sort, guess, ticket);
        handle.ok_or(Status::AllocFailed)
    }

    /// A set call: what the rule says.
    ///
    /// # Errors
    /// The rule's; `BadParam` for a handle that is none.
    #[inline(always)]
    pub fn change<C: Content>(
        &self,
        version: Version,
        handle: usize,
        rule: impl FnOnce(Version, &mut C) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let slot = self.slot::<C>(version, handle)?;
        #[cfg(feature = "blind")]
        if self.is_warm() && self.queue.has(handle) {
            return rule(version, &mut slot.content());
        }
        slot.change(move |content| rule(version, content))
    }

    /// Has an iteration ended? As B8 says.
    #[cfg(feature = "blind")]
    fn is_warm(&self) -> bool {
        self.watch.iteration() > 0
    }

    /// The content of a descriptor, for a get call.
    ///
    /// # Errors
    /// `BadParam` for a handle that is none.
    #[inline]
    pub fn get<C: Content>(&self, version: Version, handle: usize) -> Result<C, Status> {
        Ok(self.slot::<C>(version, handle)?.content())
    }

    /// A destroy call. NULL is nothing to be destroyed.
    ///
    /// # Errors
    /// `BadParam` for a handle that is none.
    #[inline(always)]
    pub fn destroy<C: Content>(
        &self,
        thread: &mut Thread,
        version: Version,
        handle: usize,
    ) -> Result<(), Status> {
        let sort = Sort { kind: C::KIND, version };
        #[cfg(feature = "blind")]
        if self.slots.get(handle, sort).is_some() {
            self.queue.join(sort, handle);
            return Ok(());
        }
        let done = handle == 0 || self.slots.destroy(&mut thread.magazine, handle, sort);
        if done { Ok(()) } else { Err(Status::BadParam) }
    }

    #[inline(always)]
    fn slot<C: Content>(&self, version: Version, handle: usize) -> Result<&Slot, Status> {
        self.slots.get(handle, Sort { kind: C::KIND, version }).ok_or(Status::BadParam)
    }

    /// The id of a descriptor's content, for a compute record. It is good while [`Reuse::is_current`] says so, which
    /// is to be asked under the lock under which the record is sent.
    ///
    /// # Errors
    /// See [`Unresolved`].
    #[inline]
    pub fn id<C: Content>(
        &self,
        thread: &mut Thread,
        version: Version,
        handle: usize,
    ) -> Result<Id, Unresolved> {
        let slot = self.slot::<C>(version, handle).map_err(|_| Unresolved::NoSuch)?;
        let identity = slot.identity();
        match identity.id() {
            // Of this sort yet, see below.
            Some(id) if self.is_current(id) && slot.is(Sort { kind: C::KIND, version }) => Ok(id),
            _ => self.find::<C>(thread, version, slot, identity),
        }
    }

    #[inline]
    fn find<C: Content>(
        &self,
        thread: &mut Thread<'_>,
        version: Version,
        slot: &Slot,
        identity: Identity,
    ) -> Result<Id, Unresolved> {
        let sort = Sort { kind: C::KIND, version };
        let guess = identity.guess();
        let holds = |words| self.is_current(guess) && self.contents.holds(guess, sort, words);
        let (id, counter) = if slot.words::<C>().is_some_and(holds) {
            (guess, Counter::Predicted)
        } else {
            self.look_up(sort, &slot.content::<C>().to_words())?
        };
        // It may have become another's meanwhile, of another kind: then what was read is no content of either.
        if !slot.is(sort) {
            return Err(Unresolved::NoSuch);
        }
        self.counters.count(thread.counts, counter);
        slot.resolve(identity, id);
        thread.lanes.tell(slot.take_ticket(), id);
        Ok(id)
    }

    fn look_up(&self, sort: Sort, content: &Words) -> Result<(Id, Counter), Unresolved> {
        if let Some(id) = self.contents.find(self.epoch(), sort, content) {
            return Ok((id, Counter::Known));
        }
        let interned = self.contents.intern(&mut lock(&self.writer), sort, content);
        let (id, new) = interned.map_err(|Full| Unresolved::Full)?;
        Ok((id, if new { Counter::New } else { Counter::Known }))
    }

    /// Is an id of the epoch that is on?
    #[inline]
    #[must_use]
    pub fn is_current(&self, id: Id) -> bool {
        id.epoch() == self.epoch()
    }

    #[inline]
    fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// Makes room for contents. To be called under the lock under which records are sent, after the worker has done
    /// the last one.
    pub fn next_epoch(&self) {
        let mut writer = lock(&self.writer);
        let Epoch(epoch) = self.contents.next_epoch(&mut writer);
        self.epoch.store(epoch, Ordering::Release);
    }

    /// A thread uses a handle on this stream.
    pub fn on_stream(&self, thread: &mut Thread, stream: u64) {
        thread.lanes.on_stream(stream);
    }

    /// A thread computes forward, into `output`.
    #[inline]
    pub fn forward(&self, thread: &mut Thread, output: u64) {
        self.watch.forward(output);
        thread.lanes.compute(self.watch.iteration());
    }

    /// A thread computes backward, from `inputs`.
    #[inline]
    pub fn backward(&self, thread: &mut Thread, inputs: impl IntoIterator<Item = u64>) {
        self.watch.backward(inputs.into_iter());
        thread.lanes.compute(self.watch.iteration());
    }

    /// How ids were found so far.
    #[must_use]
    pub fn found(&self) -> Found {
        let counts = self.counters.counts();
        Found { predicted: counts.predicted, known: counts.known, new: counts.new }
    }

    /// All that was counted so far.
    #[must_use]
    pub fn counters(&self) -> &Counters<'a> {
        &self.counters
    }

    /// How many slots were ever used: as many as lived at a time, and what threads keep.
    #[must_use]
    pub fn slots_used(&self) -> u32 {
        self.slots.used()
    }
}

/// Nothing that is done under these locks can leave what they protect half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What B5, B6 and B7 say, word by word: descriptors that were destroyed once stay what they are, and are handed out in
/// turn, whether they live or not.
#[cfg(feature = "blind")]
mod blind {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use super::lock;
    use crate::contents::Sort;

    #[derive(Debug, Default)]
    pub struct Queue(Mutex<VecDeque<(Sort, usize)>>);

    impl Queue {
        /// The head, of this sort, which becomes the tail.
        pub fn rotate(&self, of: Sort) -> Option<usize> {
            let mut queue = lock(&self.0);
            let head = queue.iter().position(|(sort, _)| *sort == of).and_then(|at| queue.remove(at))?;
            queue.push_back(head);
            Some(head.1)
        }

        pub fn join(&self, sort: Sort, handle: usize) {
            if !self.has(handle) {
                lock(&self.0).push_back((sort, handle));
            }
        }

        pub fn has(&self, handle: usize) -> bool {
            lock(&self.0).iter().any(|(_, other)| *other == handle)
        }
    }
}
