//! What programs pass by pointer to the driver's and the runtime's functions, which is followed here alone. Nobody but a C
//! call makes a value of these types, in whose declaration it stands: so it is NULL, or the program's own, and of the type
//! that is said there. Alignment is not asked for.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::slice;

use crate::device::Error;

/// Where a result goes.
#[repr(transparent)]
pub struct Out<T>(*mut T);

// Not derived, which would want it of `T` too.
impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Is it?
    fn is_there(self) -> bool {
        !self.0.is_null()
    }

    /// Writes the result.
    ///
    /// # Errors
    /// `INVALID_VALUE` where it is NULL.
    pub fn give(self, result: T) -> Result<(), Error> {
        if !self.is_there() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: it is not NULL, so the program's own.
        unsafe { self.0.write_unaligned(result) };
        Ok(())
    }

    /// Writes what `make` makes, and makes nothing where there is no place for it.
    ///
    /// # Errors
    /// As [`Out::give`], and `make`'s.
    pub fn fill(self, make: impl FnOnce() -> Result<T, Error>) -> Result<(), Error> {
        if self.is_there() { self.give(make()?) } else { Err(Error::INVALID_VALUE) }
    }

    /// Writes the result for whoever wants to know, who else passes NULL.
    pub fn tell(self, result: T) {
        let _ = self.give(result);
    }
}

impl Out<c_void> {
    /// As what another argument says that it is.
    ///
    /// # Safety
    /// It is NULL, or has room for one of this type.
    pub unsafe fn of<T>(self) -> Out<T> {
        Out(self.0.cast())
    }
}

impl Out<c_char> {
    /// Writes as much of a text as there is room for, and a NUL.
    ///
    /// # Errors
    /// `INVALID_VALUE` where it is NULL, or there is no room.
    pub fn give_text(self, room: i32, text: &CStr) -> Result<(), Error> {
        let room = usize::try_from(room).ok().filter(|room| *room > 0 && self.is_there());
        let room = room.ok_or(Error::INVALID_VALUE)?;
        // SAFETY: it is not NULL, so the program's own, of so many bytes.
        let to = unsafe { slice::from_raw_parts_mut(self.0.cast::<u8>(), room) };
        to.fill(0);
        let len = text.count_bytes().min(room - 1);
        to[..len].copy_from_slice(&text.to_bytes()[..len]);
        Ok(())
    }
}

/// What is read.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T> In<T> {
    /// Is it?
    pub fn is_there(self) -> bool {
        !self.0.is_null()
    }
}

impl<T: Copy> In<T> {
    /// Reads it.
    ///
    /// # Errors
    /// `INVALID_VALUE` where it is NULL.
    pub fn get(self) -> Result<T, Error> {
        // SAFETY: it is NULL, or one is there.
        unsafe { self.at(0) }
    }

    /// Reads one of an array.
    ///
    /// # Errors
    /// As [`In::get`].
    ///
    /// # Safety
    /// It is NULL, or the array has more than `index`.
    pub unsafe fn at(self, index: usize) -> Result<T, Error> {
        if !self.is_there() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: it is not NULL, so the program's own, and of so many, as the caller says.
        Ok(unsafe { self.0.add(index).read_unaligned() })
    }
}

impl In<c_void> {
    /// As what another argument says that it is.
    ///
    /// # Safety
    /// It is NULL, or one of this type is there.
    pub unsafe fn of<T>(self) -> In<T> {
        In(self.0.cast())
    }
}

impl In<c_char> {
    /// Reads a text.
    ///
    /// # Errors
    /// As [`In::get`].
    pub fn text(&self) -> Result<&CStr, Error> {
        if !self.is_there() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: it is not NULL, so the program's own, and ends with a NUL.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }
}

/// Memory of the device or the program, of so many bytes as the C call says, or NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Address(u64);

impl Address {
    /// Of the device.
    pub fn of(number: u64) -> Self {
        Self(number)
    }

    /// As a number, which may be the device's.
    pub fn number(self) -> u64 {
        self.0
    }
}
