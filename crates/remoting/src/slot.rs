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
    /// Counts the changes of the content. Odd while it is what new ones have, whatever the words say: they are those of
    /// the descriptor before, so that nothing is written that the first set writes again.
    changes: AtomicU64,
    /// An id that was found, and above it how many changes there had been then: it is the content's if there was none
    /// since. So an id that is found for a content that changes meanwhile is not taken for the new one's. Else a guess.
    id: AtomicU64,
    /// With what its lane is to be told the first id; see [`crate::predictor`].
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
/// late. The lowest of them tells that it is no guess: a count that is odd was never the even one below it.
#[inline]
fn found(changes: u64, Id(id): Id) -> u64 {
    (changes | 1) << Id::BITS | id
}

#[inline]
fn is_fresh(changes: u64) -> bool {
    changes % 2 == 1
}

/// The content of these words.
#[inline]
fn of<C: Content>(words: impl Iterator<Item = u64>) -> C {
    let mut all = [0; WORDS];
    all.iter_mut().zip(words).for_each(|(to, word)| *to = word);
    C::from_words(&all)
}

impl Slot {
    /// A descriptor of this sort lives here from now on, with the content that new ones have.
    #[inline]
    pub fn begin(&self, sort: Sort, guess: Id, ticket: u64) {
        let changes = self.changes.load(Ordering::Relaxed);
        self.changes.store((changes | 1).wrapping_add(2), Ordering::Relaxed);
        self.id.store(guess.0, Ordering::Relaxed);
        self.ticket.store(ticket, Ordering::Relaxed);
        self.sort.store(sort.number(), Ordering::Release);
    }

    /// Nothing lives here any more.
    #[inline]
    pub fn end(&self) {
        self.sort.store(0, Ordering::Release);
    }

    /// Does nothing live here?
    #[inline]
    pub fn is_free(&self) -> bool {
        self.sort.load(Ordering::Relaxed) == 0
    }

    /// Does a descriptor of this sort live here?
    #[inline]
    pub fn is(&self, sort: Sort) -> bool {
        self.sort.load(Ordering::Acquire) == sort.number()
    }

    /// Its content.
    #[inline]
    pub fn content<C: Content>(&self) -> C {
        self.words::<C>().map_or(C::FRESH, of)
    }

    /// What it knows of its content's id. For [`Slot::resolve`] it is to be asked before the content is read.
    #[inline]
    pub fn identity(&self) -> Identity {
        Identity { changes: self.changes.load(Ordering::Relaxed), id: self.id.load(Ordering::Acquire) }
    }

    /// The words of its content, each read when it comes; none where it has what new ones have.
    #[inline]
    pub fn words<C: Content>(&self) -> Option<impl Iterator<Item = u64>> {
        (!is_fresh(self.changes.load(Ordering::Acquire))).then(|| self.read::<C>())
    }

    #[inline]
    fn read<C: Content>(&self) -> impl Iterator<Item = u64> {
        self.words[..C::LEN].iter().map(|word| word.load(Ordering::Relaxed))
    }

    /// Changes its content as the rule does. The id that it had is the guess at the new one's: programs set what they
    /// set before.
    #[inline(always)]
    pub fn change<C: Content, R>(&self, rule: impl FnOnce(&mut C) -> R) -> R {
        let changes = self.changes.load(Ordering::Relaxed);
        if !is_fresh(changes) {
            // Made a value here, so that it need not lie in memory where it is not called for.
            return self.change_again(move |content: &mut C| rule(content));
        }
        // The compiler knows what the rule begins with.
        let mut content = C::FRESH;
        let result = rule(&mut content);
        self.put(&content);
        self.changed(changes);
        result
    }

    #[inline(never)]
    fn change_again<C: Content, R>(&self, rule: impl FnOnce(&mut C) -> R) -> R {
        let mut content = of(self.read::<C>());
        let result = rule(&mut content);
        if !self.read::<C>().eq(content.to_words()[..C::LEN].iter().copied()) {
            self.put(&content);
            self.changed(self.changes.load(Ordering::Relaxed));
            // For when the count of changes has come round.
            self.id.store(self.identity().guess().0, Ordering::Relaxed);
        }
        result
    }

    /// After the last word: an id that somebody found for a mixture is of before.
    #[inline]
    fn changed(&self, changes: u64) {
        self.changes.store((changes | 1).wrapping_add(1), Ordering::Release);
    }

    #[inline]
    fn put<C: Content>(&self, content: &C) {
        let words = &content.to_words()[..C::LEN];
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
        let set = |count| slot.change(|content: &mut Tensor| content.count = count);
        slot.begin(TENSOR, Id(7), 0);
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
        slot.end();
        slot.begin(TENSOR, Id(7), 0);
        assert_eq!(slot.identity().id(), None, "another life");
        slot.resolve(identity, Id(10));
        assert_eq!(slot.identity().id(), None, "of one who comes late");
    }

    #[test]
    fn an_id_is_of_before_when_the_count_of_changes_comes_round() {
        let slot = Slot::default();
        let set = |count| slot.change(|content: &mut Tensor| content.count = count);
        slot.begin(TENSOR, Id(7), 0);
        set(1);
        slot.resolve(slot.identity(), Id(7));
        let changes = slot.changes.load(Ordering::Relaxed);
        let round = 1 << (u64::BITS - Id::BITS);
        slot.changes.store(changes + round, Ordering::Relaxed);
        assert_eq!(slot.identity().id(), Some(Id(7)), "as far as it is kept");
        slot.changes.store(changes + round - 2, Ordering::Relaxed);
        set(2);
        assert_eq!(slot.identity().id(), None);
        slot.changes.store(round - 2, Ordering::Relaxed);
        set(3);
        assert_eq!(slot.identity().id(), None, "a guess is none");
    }

    #[test]
    fn new_ones_have_nothing_of_the_one_before() {
        let slot = Slot::default();
        slot.begin(TENSOR, Id(7), 0);
        slot.resolve(slot.identity(), Id(7));
        assert_eq!(slot.identity().id(), Some(Id(7)), "of the content that new ones have");
        slot.change(|content: &mut Tensor| content.count = 1);
        assert_eq!((slot.identity().id(), slot.content::<Tensor>().count), (None, 1));
        slot.end();
        slot.begin(TENSOR, Id(8), 0);
        assert_eq!(slot.content::<Tensor>(), Tensor::FRESH);
        assert!(slot.words::<Tensor>().is_none());
        slot.change(|content: &mut Tensor| content.data_type = 2);
        let Tensor { count, data_type, .. } = slot.content();
        assert_eq!((count, data_type), (Tensor::FRESH.count, 2));
    }

    #[test]
    fn a_ticket_is_had_once() {
        let slot = Slot::default();
        slot.begin(TENSOR, Id(7), 5);
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
        slot.begin(SORT, Id(99), 0);
        slot
    }

    fn id_of(slot: &Slot) -> Id {
        Id(10 + slot.content::<State>().stream)
    }

    /// While one thread changes the content, another finds an id for what it sees: that is not taken for the other's,
    /// and nobody is told a guess, which nobody has compared.
    #[test]
    fn an_id_is_never_another_contents() {
        an_id_is_this_contents(fresh);
        an_id_is_this_contents(|| {
            let slot = fresh();
            slot.change(|state: &mut State| state.stream = 2);
            slot
        });
    }

    fn an_id_is_this_contents(before: fn() -> Slot) {
        loom::model(move || {
            let find = |slot: &Slot| {
                let identity = slot.identity();
                assert_eq!(identity.id(), None);
                slot.resolve(identity, id_of(slot));
            };
            let set = |slot: &Slot| slot.change(|state: &mut State| state.stream = 1);
            let slot = both(before(), set, find);
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
