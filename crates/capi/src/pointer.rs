//! Pointers of the caller, checked for NULL and alignment before they are followed.

use std::ffi::{CStr, c_char};
use std::mem::size_of;

use crate::status::{
    Failure, Fallible, TILED_STATUS_BUFFER_TOO_SMALL, TILED_STATUS_NULL_POINTER, TILED_STATUS_UNSUPPORTED,
};

/// A value that the caller lends.
///
/// # Safety
/// `pointer` is NULL, misaligned, or valid for reads of a `T` for as long as the result is used.
pub(crate) unsafe fn input<'a, T>(pointer: *const T, name: &str) -> Fallible<&'a T> {
    check(pointer, name)?;
    // SAFETY: not NULL and aligned, which was checked; valid by the caller's promise
    Ok(unsafe { &*pointer })
}

/// An array that the caller lends; its pointer may be NULL where `len` is zero.
///
/// # Safety
/// `pointer` is NULL, misaligned, or valid for reads of `len` values for as long as the result is used.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, len: usize, name: &str) -> Fallible<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    check(pointer, name)?;
    check_len::<T>(len, name)?;
    // SAFETY: not NULL, aligned and of a size that fits, which was checked; valid by the caller's promise
    Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// An array that the caller lends to be written.
///
/// # Safety
/// `pointer` is NULL, misaligned, or valid for reads and writes of `len` values, and nothing else refers to them.
pub(crate) unsafe fn array_mut<'a, T>(pointer: *mut T, len: usize, name: &str) -> Fallible<&'a mut [T]> {
    if len == 0 {
        return Ok(&mut []);
    }
    check(pointer, name)?;
    check_len::<T>(len, name)?;
    // SAFETY: as in `array`, and nothing else refers to them by the caller's promise
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, len) })
}

/// A text of the caller, ended by a NUL.
///
/// # Safety
/// `pointer` is NULL or points to a text ended by a NUL that stays for as long as the result is used.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Fallible<&'a str> {
    check(pointer, name)?;
    // SAFETY: not NULL, which was checked; ended by a NUL by the caller's promise
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::invalid(format!("{name} is not UTF-8")))
}

/// Where a result goes, once there is one.
#[derive(Debug)]
pub(crate) struct Output<T>(*mut T);

impl<T> Output<T> {
    /// A place for one result.
    ///
    /// # Safety
    /// `pointer` is NULL, misaligned, or valid for a write of a `T` until the call returns.
    pub(crate) unsafe fn new(pointer: *mut T, name: &str) -> Fallible<Self> {
        check(pointer, name)?;
        Ok(Self(pointer))
    }

    /// Writes the result.
    pub(crate) fn set(self, value: T) {
        // SAFETY: not NULL and aligned, which `new` checked; valid for a write by the promise made there
        unsafe { self.0.write(value) }
    }
}

/// Where a text goes: a buffer of the caller and the text's length.
#[derive(Debug)]
pub(crate) struct TextOutput {
    buffer: *mut c_char,
    capacity: usize,
    length: Output<usize>,
}

impl TextOutput {
    /// A buffer of `capacity` bytes, NULL where it is zero, and a place for the length.
    ///
    /// # Safety
    /// `buffer` is NULL or valid for writes of `capacity` bytes, and `length` as in [`Output::new`].
    pub(crate) unsafe fn new(buffer: *mut c_char, capacity: usize, length: *mut usize) -> Fallible<Self> {
        if capacity > 0 {
            check(buffer, "buffer")?;
        }
        // SAFETY: the caller's promise
        Ok(Self { buffer, capacity, length: unsafe { Output::new(length, "length")? } })
    }

    /// Writes the text and its length; the length alone where the capacity is zero.
    pub(crate) fn set(self, text: &str) -> Fallible {
        if self.capacity > 0 {
            if text.len() >= self.capacity {
                let (wanted, got) = (text.len() + 1, self.capacity);
                let message = format!("buffer has {got} bytes, the text and its NUL take {wanted}");
                return Err(Failure::new(TILED_STATUS_BUFFER_TOO_SMALL, message));
            }
            // SAFETY: `capacity` bytes can be written by the promise of `new`, and the text with its NUL is not
            // longer; the text is the library's own, so the two do not overlap
            unsafe {
                std::ptr::copy_nonoverlapping(text.as_ptr(), self.buffer.cast::<u8>(), text.len());
                self.buffer.add(text.len()).write(0);
            }
        }
        self.length.set(text.len());
        Ok(())
    }
}

/// A struct of the header that may grow: it starts with its size, so that old callers and new libraries, and the
/// other way round, agree on what they both know.
///
/// # Safety
/// The type is `repr(C)`, its first field is `struct_size: u32`, and every bit pattern is a valid value.
pub(crate) unsafe trait Extensible: Copy {
    /// Its name in messages.
    const NAME: &'static str;
    /// Its size in the first version.
    const FIRST_SIZE: usize;

    /// What `_init` writes, with the full size.
    fn initial() -> Self;
}

/// Reads a struct that may grow. What the caller does not know is as `_init` leaves it; what the caller knows and
/// this library does not must be zero.
///
/// # Safety
/// `pointer` is NULL, misaligned, or valid for reads of as many bytes as its first field says.
pub(crate) unsafe fn extensible<S: Extensible>(pointer: *const S, name: &str) -> Fallible<S> {
    check(pointer, name)?;
    // SAFETY: not NULL and aligned, which was checked; the first field can be read by the caller's promise
    let size = unsafe { pointer.cast::<u32>().read() } as usize;
    check_size::<S>(size)?;
    let known = size.min(size_of::<S>());
    let mut value = S::initial();
    // SAFETY: `size` bytes can be read by the caller's promise and `known` is not more; `value` has at least
    // `known` bytes, and every bit pattern of it is valid
    let rest = unsafe {
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut value).cast::<u8>(), known);
        std::slice::from_raw_parts(pointer.cast::<u8>().add(known), size - known)
    };
    if rest.iter().any(|byte| *byte != 0) {
        let message = format!("{name} uses fields of `{}` that this version does not know", S::NAME);
        return Err(Failure::new(TILED_STATUS_UNSUPPORTED, message));
    }
    Ok(value)
}

/// The same where NULL stands for what `_init` writes.
///
/// # Safety
/// As [`extensible`].
pub(crate) unsafe fn extensible_or_initial<S: Extensible>(pointer: *const S, name: &str) -> Fallible<S> {
    if pointer.is_null() {
        return Ok(S::initial());
    }
    // SAFETY: the caller's promise
    unsafe { extensible(pointer, name) }
}

/// Writes as much of a struct that may grow as the caller has room for.
///
/// # Safety
/// `pointer` is NULL, misaligned, or valid for writes of `size` bytes.
pub(crate) unsafe fn write_extensible<S: Extensible>(
    pointer: *mut S,
    size: u32,
    name: &str,
    value: &S,
) -> Fallible {
    check(pointer, name)?;
    let size = size as usize;
    check_size::<S>(size)?;
    let known = size.min(size_of::<S>());
    let header = u32::try_from(size).map_err(|_| Failure::range("struct_size overflows"))?;
    // SAFETY: `size` bytes can be written by the caller's promise, and `known` is not more; `value` has at least
    // `known` bytes; the first field is the size
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), pointer.cast::<u8>(), known);
        std::ptr::write_bytes(pointer.cast::<u8>().add(known), 0, size - known);
        pointer.cast::<u32>().write(header);
    }
    Ok(())
}

/// Checks the first field of a struct that may grow.
pub(crate) fn check_size<S: Extensible>(size: usize) -> Fallible {
    if (S::FIRST_SIZE..=MAX_STRUCT_SIZE).contains(&size) {
        return Ok(());
    }
    let least = S::FIRST_SIZE;
    let message =
        format!("struct_size of `{}` is {size}, at least {least} is wanted: was it initialised?", S::NAME);
    Err(Failure::invalid(message))
}

/// Far more than any struct will have, so that a field that was never set is told.
const MAX_STRUCT_SIZE: usize = 4096;

fn check<T>(pointer: *const T, name: &str) -> Fallible {
    if pointer.is_null() {
        return Err(Failure::new(TILED_STATUS_NULL_POINTER, format!("{name} is NULL")));
    }
    if !pointer.is_aligned() {
        return Err(Failure::invalid(format!("{name} is not aligned to {} bytes", align_of::<T>())));
    }
    Ok(())
}

fn check_len<T>(len: usize, name: &str) -> Fallible {
    let bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| isize::try_from(bytes).ok());
    bytes
        .map(drop)
        .ok_or_else(|| Failure::range(format!("{name} has {len} elements, more than fit in memory")))
}
