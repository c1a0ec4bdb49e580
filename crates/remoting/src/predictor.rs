//! Guesses at the contents that descriptors will have, made when they are created. Touches nothing.
//!
//! A *lane* is what one thread creates of one sort while it computes on one stream. It has the ids of the previous
//! iteration, in the order of the creates: the *i*-th create of an iteration will have the content of the *i*-th of the
//! last one, whose place its own id takes (B6: the queue's head becomes its tail). Where an iteration ends, what was
//! created since the thread's last compute belongs to the next one already: a framework creates its descriptors before it
//! computes with them.
//!
//! A guess can only cost time. So lanes are a thread's own, and need no lock; a ticket that another thread redeems, or
//! that is too old, is lost.

use crate::contents::{Id, Sort};
use crate::descriptor::Kind;

/// How many creates of a lane without an end of an iteration make up one. A program that only infers has no ends.
const LONGEST: u32 = 1 << 16;

/// How many lanes a thread has; a stream beyond has no guesses.
const MAX_LANES: usize = 256;

const SEQUENCE_BITS: u32 = 32;
const LANE_BITS: u32 = 8;
const THREAD_BITS: u32 = u64::BITS - SEQUENCE_BITS - LANE_BITS;

/// The lanes of a thread.
#[derive(Debug)]
pub struct Lanes {
    /// The thread's number, of no other thread that there is.
    thread: u32,
    stream: u64,
    lanes: Vec<Lane>,
    /// Where among these the last one of each kind was found.
    last: [u8; KINDS],
    /// The iteration that the thread knows of.
    iteration: u64,
}

/// How many numbers of kinds there are, from 0.
const KINDS: usize = Kind::Handle as usize + 1;

#[derive(Debug)]
struct Lane {
    /// [`Sort::number`]
    sort: u64,
    stream: u64,
    /// Its tickets but for the sequence number: the thread's number, and the lane's. A ticket has with them how many
    /// creates the lane had before.
    ticket: u64,
    /// The ids of this iteration's creates so far, and from there on those of the last one.
    ids: Vec<Id>,
    /// How many creates this iteration has had.
    created: u32,
    /// And had had when the thread last computed.
    computed: u32,
    /// How many the last one had; 0 if there was none.
    last: u32,
    /// The sequence number of this iteration's first.
    base: u32,
}

impl Lanes {
    /// None yet.
    #[must_use]
    pub fn new(thread: u32) -> Self {
        Self {
            thread: thread % (1 << THREAD_BITS),
            stream: 0,
            lanes: Vec::new(),
            last: [0; KINDS],
            iteration: 0,
        }
    }

    /// The stream of the handle that the thread used last: creates say none themselves.
    pub fn on_stream(&mut self, stream: u64) {
        self.stream = stream;
    }

    /// A guess at what will be the content of a descriptor that is created now, and the ticket with which the content
    /// is to be told.
    #[inline(always)]
    pub fn create(&mut self, iteration: u64, sort: Sort) -> (Id, u64) {
        self.turn(iteration);
        match self.lanes.get_mut(usize::from(self.last[sort.kind as usize])) {
            Some(lane) if lane.is(sort, self.stream) => lane.create(),
            _ => self.create_elsewhere(sort),
        }
    }

    /// In another lane than the last of its kind, which is opened if there is none.
    #[cold]
    fn create_elsewhere(&mut self, sort: Sort) -> (Id, u64) {
        let found = self.lanes.iter().position(|lane| lane.is(sort, self.stream));
        let Some(number) = found.or_else(|| self.open(sort)) else { return (Id::NONE, 0) };
        self.last[sort.kind as usize] = number as u8;
        self.lanes[number].create()
    }

    fn open(&mut self, sort: Sort) -> Option<usize> {
        let number = self.lanes.len();
        if number == MAX_LANES {
            return None;
        }
        let thread = u64::from(self.thread) << (SEQUENCE_BITS + LANE_BITS);
        self.lanes.push(Lane {
            sort: sort.number(),
            stream: self.stream,
            ticket: thread | (number as u64) << SEQUENCE_BITS,
            ids: Vec::new(),
            created: 0,
            computed: 0,
            last: 0,
            base: 0,
        });
        Some(number)
    }

    /// Tells the content of what was created with this ticket.
    #[inline]
    pub fn tell(&mut self, ticket: u64, id: Id) {
        let number = (ticket >> SEQUENCE_BITS) as usize & (MAX_LANES - 1);
        if let Some(lane) = self.lanes.get_mut(number)
            && (lane.ticket ^ ticket) >> SEQUENCE_BITS == 0
        {
            lane.tell(ticket as u32, id);
        }
    }

    /// The thread computes, in this iteration.
    #[inline]
    pub fn compute(&mut self, iteration: u64) {
        self.turn(iteration);
        self.lanes.iter_mut().for_each(|lane| lane.computed = lane.created);
    }

    #[inline(always)]
    fn turn(&mut self, iteration: u64) {
        if self.iteration != iteration {
            self.begin(iteration);
        }
    }

    #[cold]
    fn begin(&mut self, iteration: u64) {
        self.iteration = iteration;
        self.lanes.iter_mut().for_each(Lane::turn);
    }
}

impl Lane {
    #[inline]
    fn is(&self, sort: Sort, stream: u64) -> bool {
        self.sort == sort.number() && self.stream == stream
    }

    #[inline(always)]
    fn create(&mut self) -> (Id, u64) {
        let guess = match self.ids.get(self.created as usize) {
            Some(guess) => *guess,
            None => self.lengthen(),
        };
        let sequence = self.base.wrapping_add(self.created);
        self.created += 1;
        (guess, self.ticket | u64::from(sequence))
    }

    /// The guess at one more than the last iteration had: it goes on as it began, or this is another one.
    #[cold]
    fn lengthen(&mut self) -> Id {
        if self.created >= LONGEST {
            self.computed = self.created;
            self.turn();
            return self.ids[0];
        }
        let guess = match self.last {
            0 => Id::NONE,
            last => self.ids[(self.created - last) as usize],
        };
        self.ids.push(guess);
        guess
    }

    #[inline]
    fn tell(&mut self, sequence: u32, id: Id) {
        if let Some(there) = self.ids.get_mut(sequence.wrapping_sub(self.base) as usize) {
            *there = id;
        }
    }

    /// Begins an iteration with what was created since the last compute. One in which the thread computed nothing goes
    /// on.
    fn turn(&mut self) {
        if self.computed > 0 {
            let begun = self.created - self.computed;
            self.ids.copy_within(self.computed as usize..self.created as usize, 0);
            self.ids.truncate(self.computed.max(begun) as usize);
            self.base = self.base.wrapping_add(self.computed);
            (self.last, self.created, self.computed) = (self.computed, begun, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cudnn::Version;
    use crate::descriptor::Kind;

    const SORT: Sort = Sort { kind: Kind::Tensor, version: Version::V9 };

    /// Creates one descriptor for each content and tells it; gives the guesses.
    fn pass(lanes: &mut Lanes, iteration: u64, contents: &[u64]) -> Vec<u64> {
        let create = |content: &u64| {
            let (guess, ticket) = lanes.create(iteration, SORT);
            lanes.tell(ticket, Id(*content));
            guess.0
        };
        contents.iter().map(create).collect()
    }

    #[test]
    fn an_iteration_is_guessed_to_be_as_the_last_one() {
        let mut lanes = Lanes::new(1);
        assert_eq!(pass(&mut lanes, 0, &[5, 6, 5, 7]), [0, 0, 0, 0]);
        lanes.compute(0);
        lanes.compute(1);
        assert_eq!(pass(&mut lanes, 1, &[5, 6, 5, 7]), [5, 6, 5, 7]);
    }

    #[test]
    fn what_is_created_before_the_first_compute_of_an_iteration_is_of_that_iteration() {
        let mut lanes = Lanes::new(1);
        for iteration in 0..3 {
            // The end is seen only with the first compute, after its descriptors were created.
            pass(&mut lanes, iteration.max(1) - 1, &[5]);
            lanes.compute(iteration);
            pass(&mut lanes, iteration, &[6, 7]);
            lanes.compute(iteration);
        }
        assert_eq!(pass(&mut lanes, 2, &[5]), [5], "the head becomes the tail");
        lanes.compute(3);
        assert_eq!(pass(&mut lanes, 3, &[6, 7]), [6, 7]);
        lanes.compute(3);
        pass(&mut lanes, 3, &[8]);
        lanes.compute(4);
        pass(&mut lanes, 4, &[6, 7]);
        lanes.compute(4);
        assert_eq!(pass(&mut lanes, 4, &[8]), [8], "what it was in the last iteration");
    }

    #[test]
    fn an_iteration_that_was_longer_costs_only_its_own_guesses() {
        let mut lanes = Lanes::new(1);
        for (iteration, contents, right) in [
            (0, &[5, 6, 7][..], 0),
            (1, &[5, 9, 6, 7], 1),
            (2, &[5, 9, 6, 7], 4),
            (3, &[5, 6, 7], 1),
            (4, &[5, 6, 7, 5], 4),
        ] {
            let guesses = pass(&mut lanes, iteration, contents);
            let hits = guesses.iter().zip(contents).filter(|(guess, content)| guess == content).count();
            assert_eq!(hits, right, "{iteration}");
            lanes.compute(iteration);
        }
    }

    #[test]
    fn streams_and_sorts_have_lanes_of_their_own() {
        let mut lanes = Lanes::new(1);
        let filter = Sort { kind: Kind::Filter, ..SORT };
        for (stream, content) in [(1, 5), (2, 6)] {
            lanes.on_stream(stream);
            pass(&mut lanes, 0, &[content]);
            let (_, ticket) = lanes.create(0, filter);
            lanes.tell(ticket, Id(content + 10));
        }
        lanes.compute(0);
        // In another order than they were told.
        lanes.on_stream(2);
        assert_eq!(pass(&mut lanes, 1, &[0]), [6]);
        lanes.on_stream(1);
        assert_eq!(lanes.create(1, filter).0, Id(15));
        assert_eq!(pass(&mut lanes, 1, &[0]), [5]);
    }

    #[test]
    fn tickets_of_other_threads_and_of_earlier_iterations_are_lost() {
        let (mut ours, mut theirs) = (Lanes::new(1), Lanes::new(2));
        let (_, ticket) = ours.create(0, SORT);
        theirs.create(0, SORT);
        theirs.tell(ticket, Id(5));
        theirs.compute(0);
        assert_eq!(theirs.create(1, SORT).0, Id::NONE);
        ours.compute(0);
        ours.create(1, SORT);
        ours.tell(ticket, Id(5));
        ours.tell(0, Id(6));
        ours.compute(1);
        assert_eq!(ours.create(2, SORT).0, Id::NONE);
    }

    #[test]
    fn without_ends_of_iterations_memory_is_bounded() {
        let mut lanes = Lanes::new(1);
        for i in 0..3 * u64::from(LONGEST) {
            let (guess, ticket) = lanes.create(0, SORT);
            lanes.tell(ticket, Id(1 + i % u64::from(LONGEST)));
            assert!(i < u64::from(LONGEST) || guess == Id(1 + i % u64::from(LONGEST)), "{i}");
        }
        let lane = &lanes.lanes[0];
        assert_eq!((lane.ids.len(), lane.ids.capacity()), (LONGEST as usize, LONGEST as usize));
    }
}
