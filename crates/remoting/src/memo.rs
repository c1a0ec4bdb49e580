//! Which computes have worked before, and what queries were answered. Touches nothing.
//!
//! The first time that a function computes with certain contents and numbers, the client waits for its status, since
//! programs try something else where it is not supported; that is warm-up (B4). What has worked once is not waited
//! for again.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::api::Signature;
use crate::wire::Words;

/// How many a process remembers; then it begins anew, and some wait once more.
const MOST: usize = 1 << 16;

/// How many a thread does by itself.
const MOST_OF_THREAD: usize = 1 << 12;

/// How many answers are, which are larger.
const MOST_ANSWERS: usize = 1 << 12;

/// Computes that have worked.
#[derive(Debug)]
pub struct Worked {
    keys: FxHashSet<Box<[u64]>>,
    most: usize,
}

/// What queries of a process were answered.
#[derive(Debug)]
pub struct Memo {
    /// The computes of the process that have worked.
    pub worked: Worked,
    answers: FxHashMap<Box<[u64]>, Words>,
}

/// What a compute's success depends on, in place of what is in `key`: function, contents, and numbers such as the
/// algorithm; not data, nor factors.
#[inline]
pub fn key(function: u16, signature: &Signature, arguments: &[u64], key: &mut Words) {
    key.clear();
    key.push(function.into());
    key.extend(signature.which.decisive.of(arguments));
}

impl Worked {
    /// What a thread knows.
    #[must_use]
    pub fn of_thread() -> Self {
        Self { keys: FxHashSet::default(), most: MOST_OF_THREAD }
    }

    /// Has it worked?
    #[inline]
    #[must_use]
    pub fn knows(&self, key: &[u64]) -> bool {
        self.keys.contains(key)
    }

    /// It has.
    pub fn learn(&mut self, key: &[u64]) {
        if self.keys.len() == self.most {
            self.keys.clear();
        }
        self.keys.insert(key.into());
    }
}

impl Default for Memo {
    fn default() -> Self {
        let worked = Worked { keys: FxHashSet::default(), most: MOST };
        Self { worked, answers: FxHashMap::default() }
    }
}

impl Memo {
    /// What a query was answered.
    #[must_use]
    pub fn answer(&self, key: &[u64]) -> Option<Words> {
        self.answers.get(key).cloned()
    }

    /// It was answered so.
    pub fn answered(&mut self, key: &[u64], answer: Words) {
        if self.answers.len() == MOST_ANSWERS {
            self.answers.clear();
        }
        self.answers.insert(key.into(), answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cudnn::table::Function;

    #[test]
    fn success_depends_on_contents_and_algorithm_but_not_on_data() {
        let function = Function::cudnnConvolutionForward;
        let key = |changed: Option<usize>| {
            let arguments: Words = (0..13).map(|i| if changed == Some(i) { 100 } else { i as u64 }).collect();
            let mut key = Words::new();
            super::key(function as u16, function.signature(), &arguments, &mut key);
            key
        };
        let names = function.signature().arguments.iter().map(|parameter| parameter.name);
        let matter: Vec<&str> =
            names.enumerate().filter(|(i, _)| key(Some(*i)) != key(None)).map(|(_, name)| name).collect();
        assert_eq!(matter, ["x", "w", "conv", "algorithm", "workspace_size", "y"]);
    }

    #[test]
    fn it_is_bounded() {
        let mut memo = Memo::default();
        for i in 0..MOST as u64 + 10 {
            memo.worked.learn(&[i]);
        }
        assert!(memo.worked.keys.len() <= MOST && memo.worked.knows(&[MOST as u64 + 9]));
        for i in 0..MOST_ANSWERS as u64 + 10 {
            memo.answered(&[i], [i].into_iter().collect());
        }
        let last = MOST_ANSWERS as u64 + 9;
        assert!(memo.answers.len() <= MOST_ANSWERS && memo.answer(&[last]).unwrap()[..] == [last]);
    }
}
