//! The way of answers from a worker to its client: for each call that waits a place of its own in shared memory, so that
//! threads wait without holding each other up.

use crate::ring::Gone;
use crate::sync::{AtomicU64, NAP, Ordering, Region, Spin, futex_wait, futex_wake};
use crate::wire::{MAX_WORDS, Malformed, Words};

/// How many calls can wait at a time.
pub const PLACES: usize = 64;

/// The words of a place: its state, how many words the answer has, and these.
const PLACE: usize = 2 + MAX_WORDS;

/// The words of all places.
pub const WORDS: usize = PLACES * PLACE;

/// The states of a place.
const PENDING: u64 = 0;
const DONE: u64 = 1;
const ASLEEP: u64 = 2;

fn place(region: Region<'_>, number: u8) -> Region<'_> {
    &region[usize::from(number) % PLACES * PLACE..][..PLACE]
}

/// The places that no call has, of the client. Under the process's lock.
#[derive(Debug)]
pub struct Free(u64);

impl Default for Free {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

impl Free {
    /// A place for a call to wait at; none where as many wait already.
    pub fn take(&mut self, region: Region<'_>) -> Option<u8> {
        let number = self.0.trailing_zeros();
        if number == u64::BITS {
            return None;
        }
        self.0 &= !(1 << number);
        let number = number as u8;
        // The record that names the place goes after it.
        place(region, number)[0].store(PENDING, Ordering::Relaxed);
        Some(number)
    }

    /// Gives a place back whose answer has come, or will never come.
    pub fn give(&mut self, number: u8) {
        self.0 |= 1 << number;
    }
}

/// Waits for the answer at a place, as long as the worker is `there`.
///
/// # Errors
/// `Gone` where it is not, or the answer is none.
pub fn wait(region: Region<'_>, number: u8, spin: &Spin, there: impl Fn() -> bool) -> Result<Words, Gone> {
    let place = place(region, number);
    let state = &place[0];
    let done = || state.load(Ordering::Acquire) == DONE;
    while !spin.until(done) {
        match state.compare_exchange(PENDING, ASLEEP, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) | Err(ASLEEP) => futex_wait(state, ASLEEP as u32, NAP),
            Err(_) => {}
        }
        if !done() && !there() {
            return Err(Gone);
        }
    }
    let len = place[1].load(Ordering::Relaxed);
    if len > MAX_WORDS as u64 {
        return Err(Gone);
    }
    Ok(place[2..][..len as usize].iter().map(|word| word.load(Ordering::Relaxed)).collect())
}

/// Answers a call, of the worker. The flag tells whether it had to wake the client.
///
/// # Errors
/// `Malformed` for a place that there is not.
pub fn answer(region: Region<'_>, number: u64, answer: &Words) -> Result<bool, Malformed> {
    if number >= PLACES as u64 {
        return Err(Malformed);
    }
    let place = place(region, number as u8);
    place[2..].iter().zip(answer).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
    place[1].store(answer.len() as u64, Ordering::Relaxed);
    let asleep = swap(&place[0], DONE) == ASLEEP;
    if asleep {
        futex_wake(&place[0]);
    }
    Ok(asleep)
}

fn swap(state: &AtomicU64, to: u64) -> u64 {
    state.swap(to, Ordering::AcqRel)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn region() -> Region<'static> {
        Box::leak((0..WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    #[test]
    fn each_call_gets_its_own_answer() {
        let region = region();
        let mut free = Free::default();
        let places: Vec<u8> = (0..PLACES).map(|_| free.take(region).unwrap()).collect();
        assert_eq!(free.take(region), None);
        std::thread::scope(|scope| {
            let waiting = if cfg!(miri) { 4 } else { PLACES };
            for number in &places[..waiting] {
                scope.spawn(|| {
                    let answer = wait(region, *number, &Spin::default(), || true).unwrap();
                    assert_eq!(answer[..], [u64::from(*number); 3]);
                });
            }
            for number in places.iter().rev() {
                answer(region, u64::from(*number), &[u64::from(*number); 3].into_iter().collect()).unwrap();
            }
        });
        free.give(places[7]);
        assert_eq!(free.take(region), Some(places[7]));
    }

    #[test]
    fn a_worker_that_is_gone_is_an_error() {
        let region = region();
        assert_eq!(wait(region, 0, &Spin::default(), || false), Err(Gone));
    }

    #[test]
    fn an_answer_that_none_can_be_is_an_error() {
        let region = region();
        region[1].store(u64::MAX, Ordering::Relaxed);
        region[0].store(DONE, Ordering::Relaxed);
        assert_eq!(wait(region, 0, &Spin::default(), || true), Err(Gone));
        for number in [PLACES as u64, u64::MAX] {
            assert_eq!(answer(region, number, &Words::new()), Err(Malformed));
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;

    #[test]
    fn a_call_gets_its_whole_answer_and_is_woken() {
        loom::model(|| {
            let region: Region<'static> = Box::leak((0..PLACE).map(|_| AtomicU64::new(0)).collect());
            let worker = thread::spawn(move || answer(region, 0, &[5, 6].into_iter().collect()).unwrap());
            let answer = wait(region, 0, &Spin::default(), || true).unwrap();
            assert_eq!(answer[..], [5, 6]);
            worker.join().unwrap();
        });
    }
}
