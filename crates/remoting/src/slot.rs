//! A descriptor's place in the client's memory: its content, and what is known of the content's id. Touches nothing.
//!
//! All of it is atomics, so that a program that uses a descriptor on two threads at once, which the library forbids, sees
//! one content or the other, or a mixture, as with the library. Where two threads set it at once and it is used meanwhile,
//! one of the two changes may go uncounted, and computes have the one content while getters show the other, until the next
//! change.

use crate::contents::{Id, Sort};
use crate::descriptor::{Content, WORDS};
use crate::sync::{AtomicU64, Ordering};

/// A descriptor, or room for one. Two lines of the processor's cache, which it loads and takes away together: so threads
/// whose descriptors are neighbours do not disturb each other.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C, align(128))]
pub struct Slot {
    /// [`Sort::number`] of the descriptor that lives here; 0 if none does.
    sort: AtomicU64,
    /// Counts the changes of the content.
    changes: AtomicU64,
    /// An id that was found, and above it how many changes there had been then: it is the content's if there was none
    /// since. So an id that is found for a content that changes meanwhile is not taken for the new one's. Else a guess.
    id: AtomicU64,
    /// Where in its lane's queue the first id is wanted; see [`crate::predictor`].
    ticket: AtomicU64,
    words: [AtomicU64; WORDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 128);

/// What a slot knows of its content's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    changes: u64,
    id: u64,
}

impl Identity {
    /// The id, if it is known.
    #[inline]
    #[must_use]
    pub fn id(self) -> Option<Id> {
        (self.id == found(self.changes, self.guess())).then(|| self.guess())
    }

    /// The id, or a guess at it.
    #[inline]
    #[must_use]
    pub fn guess(self) -> Id {
        Id(self.id & ((1 << Id::BITS) - 1))
    }
}

/// An id that was found after so many changes. Of these it keeps the last bits: enough for one who has found an id to be
/// late.
#[inline]
fn found(changes: u64, Id(id): Id) -> u64 {
    (changes << 1 | 1) << Id::BITS | id
}

impl Slot {
    /// A descriptor of this sort lives here from now on, with the content that new ones have.
    #[inline]
    pub fn begin<C: Content>(&self, sort: Sort, guess: Id, ticket: u64) {
        self.put(&C::FRESH.to_words()[..C::LEN]);
        self.changed(guess);
        self.ticket.store(ticket, Ordering::Relaxed);
        self.sort.store(sort.number(), Ordering::Release);
    }

    /// It lives no more. The flag tells whether one of this sort did; of two threads that end it, one is told so.
    #[inline]
    pub fn end(&self, sort: Sort) -> bool {
        self.sort.compare_exchange(sort.number(), 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Does a descriptor of this sort live here?
    #[inline]
    pub fn is(&self, sort: Sort) -> bool {
        self.sort.load(Ordering::Acquire) == sort.number()
    }

    /// Its content.
    #[inline]
    pub fn content<C: Content>(&self) -> C {
        let mut words = [0; WORDS];
        words.iter_mut().zip(self.read::<C>()).for_each(|(to, word)| *to = word);
        C::from_words(&words)
    }

    /// What it knows of its content's id. For [`Slot::resolve`] it is to be asked before the content is read.
    #[inline]
    pub fn identity(&self) -> Identity {
        Identity { changes: self.changes.load(Ordering::Acquire), id: self.id.load(Ordering::Acquire) }
    }

    /// The words of its content, each read when it comes.
    #[inline]
    pub fn read<C: Content>(&self) -> impl Iterator<Item = u64> {
        self.words[..C::LEN].iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Changes its content to this one. The id that it had is the guess at the new one's: programs set what they set
    /// before.
    #[inline]
    pub fn change<C: Content>(&self, content: &C) {
        let words = content.to_words();
        if !self.read::<C>().eq(words[..C::LEN].iter().copied()) {
            self.put(&words[..C::LEN]);
            // After the last word: an id that somebody found for a mixture is of before.
            self.changed(self.identity().guess());
        }
    }

    #[inline]
    fn changed(&self, guess: Id) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store(changes.wrapping_add(1), Ordering::Release);
        self.id.store(guess.0, Ordering::Relaxed);
    }

    #[inline]
    fn put(&self, words: &[u64]) {
        self.words.iter().zip(words).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
    }

    /// Keeps the id of the content that was read after `identity`; it is the content's if that does not change any more.
    /// Who is told it sees what the content was written to, and so does the worker of whoever sends it.
    #[inline]
    pub fn resolve(&self, identity: Identity, id: Id) {
        self.id.store(found(identity.changes, id), Ordering::Release);
    }

    /// The ticket, once.
    #[inline]
    pub fn take_ticket(&self) -> u64 {
        let ticket = self.ticket.load(Ordering::Relaxed);
        self.ticket.store(0, Ordering::Relaxed);
        ticket
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::cudnn::Version;
    use crate::cudnn::tensor::Tensor;
    use crate::descriptor::Kind;

    const TENSOR: Sort = Sort { kind: Kind::Tensor, version: Version::V9 };

    #[test]
    fn an_id_is_that_of_the_content_it_was_found_for() {
        let slot = Slot::default();
        let set = |count| {
            let mut content = Tensor::FRESH;
            content.count = count;
            slot.change(&content);
        };
        slot.begin::<Tensor>(TENSOR, Id(7), 0);
        let identity = slot.identity();
        assert_eq!((identity.id(), identity.guess()), (None, Id(7)));
        set(1);
        slot.resolve(identity, Id(8));
        assert_eq!(slot.identity().id(), None, "it has changed since");
        slot.resolve(slot.identity(), Id(9));
        assert_eq!(slot.identity().id(), Some(Id(9)));
        set(1);
        assert_eq!(slot.identity().id(), Some(Id(9)), "the same again");
        set(2);
        let identity = slot.identity();
        assert_eq!((identity.id(), identity.guess()), (None, Id(9)));
        slot.resolve(identity, Id(10));
        assert!(slot.end(TENSOR) && !slot.end(TENSOR));
        slot.begin::<Tensor>(TENSOR, Id(7), 0);
        assert_eq!(slot.identity().id(), None, "another life");
    }

    #[test]
    fn an_id_is_of_before_when_the_count_of_changes_comes_round() {
        let slot = Slot::default();
        slot.begin::<Tensor>(TENSOR, Id(7), 0);
        slot.resolve(slot.identity(), Id(7));
        let changes = slot.changes.load(Ordering::Relaxed);
        let round = 1 << (u64::BITS - Id::BITS - 1);
        slot.changes.store(changes + round, Ordering::Relaxed);
        assert_eq!(slot.identity().id(), Some(Id(7)), "as far as it is kept");
        slot.changes.store(changes + round - 1, Ordering::Relaxed);
        let mut content = Tensor::FRESH;
        content.count = 1;
        slot.change(&content);
        assert_eq!(slot.identity().id(), None);
    }

    #[test]
    fn a_ticket_is_had_once() {
        let slot = Slot::default();
        slot.begin::<Tensor>(TENSOR, Id(7), 5);
        assert_eq!([slot.take_ticket(), slot.take_ticket()], [5, 0]);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::cudnn::Version;
    use crate::cudnn::handle::State;
    use crate::descriptor::Kind;

    const SORT: Sort = Sort { kind: Kind::Handle, version: Version::V9 };

    /// Runs both at once, as threads of their own: of what the model's first thread does, `loom` does not try all orders.
    fn both<T: Send + Sync + 'static>(shared: T, one: fn(&T), other: fn(&T)) -> Arc<T> {
        let shared = Arc::new(shared);
        let threads = [one, other].map(|run| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || run(&shared))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        shared
    }

    fn fresh() -> Slot {
        let slot = Slot::default();
        slot.begin::<State>(SORT, Id(99), 0);
        slot
    }

    fn id_of(slot: &Slot) -> Id {
        Id(10 + slot.content::<State>().stream)
    }

    /// While one thread changes the content, another finds an id for what it sees: that is not taken for the other's,
    /// and nobody is told a guess, which nobody has compared.
    #[test]
    fn an_id_is_never_another_contents() {
        loom::model(|| {
            let find = |slot: &Slot| {
                let identity = slot.identity();
                assert_eq!(identity.id(), None);
                slot.resolve(identity, id_of(slot));
            };
            let slot = both(fresh(), |slot| slot.change(&State { stream: 1 }), find);
            assert!(slot.identity().id().is_none_or(|told| told == id_of(&slot)));
        });
    }

    /// Of a content that was written to the table: to whoever sends an id that another thread has found, too.
    #[test]
    fn who_is_told_an_id_sees_what_was_written_before_it_was_found() {
        loom::model(|| {
            let find = |(slot, table): &(Slot, AtomicU64)| {
                let identity = slot.identity();
                table.store(1, Ordering::Relaxed);
                slot.resolve(identity, Id(10));
            };
            let told = |(slot, table): &(Slot, AtomicU64)| {
                if slot.identity().id().is_some() {
                    assert_eq!(table.load(Ordering::Relaxed), 1);
                }
            };
            both((fresh(), AtomicU64::new(0)), find, told);
        });
    }
}
