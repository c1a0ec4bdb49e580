//! Somebody who changes files in a tight loop while something else is looking at them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Does the same again and again, until it is dropped.
pub struct Meddler {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Meddler {
    /// Exchanges two names, which must both exist; in the end they are what they were at first.
    pub fn exchanging(one: &Path, other: &Path) -> Self {
        let (one, other) = (one.to_owned(), other.to_owned());
        Self::doing(move || {
            for _ in 0..2 {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("exchange");
            }
        })
    }

    /// Returns once `round` has been done a few times; the last one is done to its end.
    pub fn doing(mut round: impl FnMut() + Send + 'static) -> Self {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = std::thread::spawn({
            let (stop, rounds) = (stop.clone(), rounds.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    round();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        while rounds.load(Ordering::Relaxed) < 3 {
            assert!(!thread.is_finished(), "a round failed");
            std::thread::yield_now();
        }
        Self { stop, rounds, thread: Some(thread) }
    }
}

impl Drop for Meddler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("running").join();
        if !std::thread::panicking() {
            ended.expect("every round");
            assert!(self.rounds.load(Ordering::Relaxed) > 3, "nothing was done meanwhile");
        }
    }
}
