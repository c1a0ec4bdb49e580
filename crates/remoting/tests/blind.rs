//! Why a descriptor that is reused is compared with what the program sets, and why one that lives is not handed out:
//! without that, results are wrong. Needs the feature `blind`, which leaves both out.
#![cfg(feature = "blind")]

use std::sync::atomic::AtomicU64;

use vgpu_remoting::contents::{self, Seen};
use vgpu_remoting::counters;
use vgpu_remoting::cudnn::Version;
use vgpu_remoting::cudnn::tensor::{self, Tensor};
use vgpu_remoting::descriptor::Content;
use vgpu_remoting::reuse::{Reuse, Thread};
use vgpu_remoting::sync::Region;

const V: Version = Version::V9;

/// A program that trains, and what its worker sees.
struct Program {
    reuse: Reuse<'static>,
    thread: Thread<'static>,
    seen: Seen<'static>,
}

impl Program {
    fn new() -> Self {
        let zeros = |words| -> Region<'static> { Box::leak((0..words).map(|_| AtomicU64::new(0)).collect()) };
        let table = zeros(contents::words(64));
        let reuse = Reuse::new(16, table, zeros(counters::WORDS));
        let thread = reuse.enter();
        Self { reuse, thread, seen: Seen::new(table) }
    }

    fn tensor(&mut self, batch: i32) -> usize {
        let t = self.reuse.create::<Tensor>(&mut self.thread, V).unwrap();
        self.reuse.change(V, t, |v, t: &mut Tensor| tensor::set_4d(v, t, 0, 0, batch, 3, 8, 8)).unwrap();
        t
    }

    /// The batch of which a compute with it would be.
    fn used(&mut self, t: usize) -> i32 {
        let id = self.reuse.id::<Tensor>(&mut self.thread, V, t).unwrap();
        Tensor::from_words(&self.seen.content(id).unwrap().1).dims()[0]
    }

    fn end(&mut self, t: usize) {
        self.reuse.destroy::<Tensor>(&mut self.thread, V, t).unwrap();
    }

    /// An iteration of one layer: what it was computed on.
    fn iterate(&mut self, batch: i32) -> i32 {
        let t = self.tensor(batch);
        let used = self.used(t);
        self.reuse.forward(&mut self.thread, 1);
        self.reuse.backward(&mut self.thread, [1]);
        self.end(t);
        used
    }
}

/// A last batch that is smaller than the others: the backend is told to compute on data that is not there.
#[test]
fn blind_reuse_computes_on_the_shape_of_the_last_iteration() {
    let mut program = Program::new();
    assert_eq!([64, 64, 64, 10].map(|batch| program.iterate(batch)), [64, 64, 64, 64], "of 10 there were");
}

/// A program that has one descriptor at a time, and then three: the third is the first, which still lives.
#[test]
fn a_queue_that_only_turns_hands_out_what_lives() {
    let mut program = Program::new();
    assert_eq!([64, 32].map(|batch| program.iterate(batch)), [64, 32], "nothing is reused yet");
    let all = [64, 32, 16].map(|batch| program.tensor(batch));
    assert_eq!(all[0], all[2], "two at the same place");
    assert_eq!(all.map(|t| program.used(t)), [64, 32, 64], "of 16 there were");
    program.end(all[0]);
    let next = [8, 4].map(|batch| program.tensor(batch));
    assert_eq!(next[1], all[2], "which lives");
}
