//! The order of names in a linker cache: what glibc calls `_dl_cache_libcmp`. The loader searches by it, so entries
//! that are not sorted by it are not found. Pure.

use std::cmp::Ordering;
use std::ffi::{CStr, c_char};
use std::iter;

/// A piece of a name. Digits go after everything else, numbers by value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Token {
    /// Signed where C's `char` is, so the order of names that are not ASCII is the machine's. The
    /// last one is the NUL.
    Char(c_char),
    /// Digits. Leading zeros do not count: `libx.so.01` and `libx.so.1` are the same name.
    Number(i32),
}

/// How the loader compares `a` with `b`. No total order where numbers pass `i32::MAX`: C's `int` runs over, in the
/// sum as in the difference, and so it must here, or what `ldconfig` sorted would look unsorted.
pub(super) fn libcmp(a: &CStr, b: &CStr) -> Ordering {
    tokens(a).zip(tokens(b)).map(compare).find(|ordering| ordering.is_ne()).unwrap_or(Ordering::Equal)
}

/// The total order that agrees with [`libcmp`] wherever its numbers do not run over: one can sort by it.
pub(super) fn total(a: &CStr, b: &CStr) -> Ordering {
    tokens(a).cmp(tokens(b))
}

fn compare(pair: (Token, Token)) -> Ordering {
    match pair {
        (Token::Number(a), Token::Number(b)) => a.wrapping_sub(b).cmp(&0),
        (a, b) => a.cmp(&b),
    }
}

fn tokens(name: &CStr) -> impl Iterator<Item = Token> {
    let mut bytes = name.to_bytes_with_nul().iter().peekable();
    iter::from_fn(move || {
        let first = *bytes.next()?;
        if !first.is_ascii_digit() {
            return Some(Token::Char(first as c_char));
        }
        let mut number = digit(first);
        while let Some(next) = bytes.next_if(|byte| byte.is_ascii_digit()) {
            number = number.wrapping_mul(10).wrapping_add(digit(*next));
        }
        Some(Token::Number(number))
    })
}

fn digit(byte: u8) -> i32 {
    i32::from(byte - b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_loaders_order() {
        // Upwards; each was compared with its neighbours by the C function.
        let upwards = [
            c"",
            c"-",
            c"lib",
            c"lib.so",
            c"liba.so.1",
            c"liba.so.2",
            c"liba.so.10",
            c"liba.so.535.54.03",
            c"liba.so.535.129.03",
            c"libb",
            c"libcuda.so",
            c"libcuda.so.1",
            c"libcudadebugger.so.1",
            c"lib1.so",
            c"1",
        ];
        for (i, a) in upwards.iter().enumerate() {
            for (j, b) in upwards.iter().enumerate() {
                assert_eq!(libcmp(a, b), i.cmp(&j), "{a:?} {b:?}");
                assert_eq!(total(a, b), i.cmp(&j), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn numbers_are_compared_by_value_and_run_over() {
        assert_eq!(libcmp(c"libx.so.01", c"libx.so.1"), Ordering::Equal);
        assert_eq!(libcmp(c"x4294967297y", c"x1y"), Ordering::Equal);
        // 2^31 is i32::MIN, and i32::MAX - i32::MIN is -1.
        assert_eq!(libcmp(c"x2147483647", c"x2147483648"), Ordering::Less);
        assert_eq!(total(c"x2147483647", c"x2147483648"), Ordering::Greater);
    }

    #[test]
    fn bytes_above_ascii_are_as_the_machines_char_has_them() {
        let expected = if c_char::MIN == 0 { Ordering::Greater } else { Ordering::Less };
        assert_eq!(libcmp(c"lib\xe9", c"liba"), expected);
        assert_eq!(libcmp(c"lib\xe9", c"lib"), expected);
    }
}
