//! Why a descriptor that is reused is compared with what the program sets: without it, results are wrong. Needs the
//! feature `blind`, which leaves the comparison out.
#![cfg(feature = "blind")]

use std::sync::atomic::AtomicU64;

use vgpu_remoting::contents::{self, Seen};
use vgpu_remoting::cudnn::Version;
use vgpu_remoting::cudnn::tensor::{self, Tensor};
use vgpu_remoting::descriptor::Content;
use vgpu_remoting::reuse::Reuse;

const V: Version = Version::V9;

/// A last batch that is smaller than the others: the backend is told to compute on data that is not there.
#[test]
fn blind_reuse_computes_on_the_shape_of_the_last_iteration() {
    let table = Box::leak((0..contents::words(64)).map(|_| AtomicU64::new(0)).collect());
    let reuse = Reuse::new(16, table);
    let (mut thread, mut seen) = (reuse.enter(), Seen::new(table));
    let mut computed_on = Vec::new();
    for batch in [64, 64, 64, 10] {
        let t = reuse.create::<Tensor>(&mut thread, V).unwrap();
        reuse.change(V, t, |v, t: &mut Tensor| tensor::set_4d(v, t, 0, 0, batch, 3, 8, 8)).unwrap();
        let id = reuse.id::<Tensor>(&mut thread, V, t).unwrap();
        computed_on.push(Tensor::from_words(&seen.content(id).unwrap().1).dims()[0]);
        reuse.forward(&mut thread, 1);
        reuse.backward(&mut thread, &[1]);
        reuse.destroy::<Tensor>(&mut thread, V, t).unwrap();
    }
    assert_eq!(computed_on, [64, 64, 64, 64], "of 10 there were");
}
