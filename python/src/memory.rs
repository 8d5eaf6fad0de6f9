//! The memory of requests: buffers of Python objects, exported until the request has ended.

// UNSAFETY: lends the memory of Python objects to the library, and nothing else.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use nearflash::Buf;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Memory that is not moved or freed while the value lives.
pub(crate) enum Memory {
    /// A buffer that its object exports: the object neither moves nor frees it meanwhile.
    Exported(PyUntypedBuffer),
    /// A new object that no Python code has seen yet.
    Fresh(Py<PyBytes>, usize),
    /// Bytes of our own.
    Owned(Box<[u8]>),
}

impl Memory {
    /// Exports the buffer of an object whose bytes are to be sent.
    pub(crate) fn to_send(object: &Bound<'_, PyAny>) -> PyResult<Memory> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer is not contiguous"));
        }
        Ok(Memory::Exported(buffer))
    }

    /// Exports the buffer of an object that is to be filled.
    pub(crate) fn to_fill(object: &Bound<'_, PyAny>) -> PyResult<Memory> {
        let memory = Memory::to_send(object)?;
        if matches!(&memory, Memory::Exported(buffer) if buffer.readonly()) {
            return Err(PyTypeError::new_err("the buffer to read into is read-only"));
        }
        Ok(memory)
    }

    /// Creates an object for the bytes of a read.
    pub(crate) fn fresh(py: Python<'_>, bytes: usize) -> PyResult<Memory> {
        let object = PyBytes::new_with(py, bytes, |_| Ok(()))?;
        Ok(Memory::Fresh(object.unbind(), bytes))
    }

    /// Copies two buffers of the same length, one after the other.
    pub(crate) fn joined(py: Python<'_>, first: &Memory, second: &Memory) -> PyResult<Memory> {
        let mut both = vec![0; first.bytes() + second.bytes()].into_boxed_slice();
        let (left, right) = both.split_at_mut(first.bytes());
        for (part, from) in [(left, first), (right, second)] {
            if let Memory::Exported(buffer) = from {
                copy(py, buffer, part);
            }
        }
        Ok(Memory::Owned(both))
    }

    /// Returns the length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Memory::Exported(buffer) => buffer.len_bytes(),
            Memory::Fresh(_, bytes) => *bytes,
            Memory::Owned(bytes) => bytes.len(),
        }
    }

    fn start(&self) -> *mut u8 {
        match self {
            Memory::Exported(buffer) => buffer.buf_ptr().cast(),
            // SAFETY: the reference is there, and a `bytes` object always knows where its bytes are.
            Memory::Fresh(object, _) => unsafe {
                pyo3::ffi::PyBytes_AsString(object.as_ptr()).cast()
            },
            Memory::Owned(bytes) => bytes.as_ptr().cast_mut(),
        }
    }

    /// Lends `bytes` bytes from byte `from` on as the buffer of a request.
    ///
    /// # Safety
    /// The value lives until the request has ended. Python code leaves the bytes of a request alone
    /// until then, as the documentation asks.
    ///
    /// # Panics
    /// If the memory has fewer bytes.
    pub(crate) unsafe fn lend(&self, from: usize, bytes: usize, number: u32) -> Buf {
        assert!(from.checked_add(bytes).is_some_and(|end| end <= self.bytes()), "too few bytes");
        // SAFETY: the bytes lie within the memory, as was just checked.
        let start = unsafe { self.start().add(from) };
        let start = NonNull::new(start).expect("bytes have an address");
        // SAFETY: the caller promised that the memory stays. Exported memory is initialised.
        unsafe { io::lend(start, bytes, number) }
    }
}

/// Copies a contiguous buffer.
fn copy(_py: Python<'_>, buffer: &PyUntypedBuffer, to: &mut [u8]) {
    let bytes = to.len().min(buffer.len_bytes());
    if bytes > 0 {
        // SAFETY: the export holds so many bytes in place, and this thread is attached.
        unsafe { to.as_mut_ptr().copy_from(buffer.buf_ptr().cast(), bytes) };
    }
}
