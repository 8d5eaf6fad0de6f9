//! The blocking client of C: `nf_client_open` to `nf_client_close`.

// UNSAFETY: takes pointers of the caller.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use nearflash::blocking;

use crate::abi::{NF_FUA, Options, Promise, Properties, Slo};
use crate::failure::{Failure, told};
use crate::guard::{DEAD, Process, borrow, caught, options, place, text};
use crate::queue::promised;

/// Size of a block in bytes.
const BLOCK_BYTES: u64 = 512;

/// A client behind a C handle.
#[derive(Debug)]
pub struct Client {
    process: Process,
    is_dead: AtomicBool,
    inner: blocking::Client,
}

/// Calls `f` with the client, if the client is alive and belongs to this process.
///
/// # Safety
/// The handle is null, or came from `nf_client_open` and was not closed.
unsafe fn on(
    handle: *const Client,
    f: impl FnOnce(&blocking::Client) -> Result<(), Failure>,
) -> c_int {
    // SAFETY: the caller promised a live handle, which is only shared.
    let found = unsafe { borrow(handle) };
    let call = |client: &Client| {
        client.process.check()?;
        if client.is_dead.load(Ordering::Relaxed) {
            return Err(DEAD);
        }
        let bury = || client.is_dead.store(true, Ordering::Relaxed);
        caught(|| f(&client.inner).map(|()| 0), bury)
    };
    told(found.and_then(call))
}

/// Returns the block at an offset in bytes; fails if the offset is not a multiple of 512.
fn block_at(offset: u64) -> Result<u64, Failure> {
    if !offset.is_multiple_of(BLOCK_BYTES) {
        return Err(Failure::invalid(c"the offset is not a multiple of 512 bytes"));
    }
    Ok(offset / BLOCK_BYTES)
}

/// Returns the number of blocks of a size in bytes; fails if the size is zero or not a multiple of
/// 512.
fn blocks_of(bytes: u64) -> Result<u64, Failure> {
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(Failure::invalid(c"the size is not a whole number of blocks of 512 bytes"));
    }
    Ok(bytes / BLOCK_BYTES)
}

/// Returns the `bytes` bytes of the caller's memory at `data`; fails for a null pointer.
///
/// # Safety
/// The pointer is null, or leads to so many bytes that nobody changes during `'a`.
unsafe fn bytes_of<'a>(data: *const c_void, bytes: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller promised it.
    unsafe { borrow(data.cast::<u8>()).map(|first| slice::from_raw_parts(first, bytes)) }
}

/// Opens a client of the server at `url`.
///
/// # Safety
/// The pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_client_open(
    url: *const c_char,
    options: *const Options,
    client: *mut *mut Client,
) -> c_int {
    let open = || {
        // SAFETY: the caller promised it.
        let (url, wanted, client) =
            unsafe { (text(url)?, self::options(options)?, place(client)?) };
        let process = Process::this();
        let inner = blocking::Client::connect(url, wanted)?;
        let is_dead = AtomicBool::new(false);
        *client = Box::into_raw(Box::new(Client { process, is_dead, inner }));
        Ok(0)
    };
    told(caught(open, || {}))
}

/// Reads `bytes` bytes at `offset` into `data`.
///
/// # Safety
/// The handle is null or open; `data` is null or has room for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_pread(
    client: *mut Client,
    data: *mut c_void,
    bytes: usize,
    offset: u64,
) -> c_int {
    let read = |client: &blocking::Client| {
        // SAFETY: the caller promised so many bytes, which nobody else uses during the call.
        let into = unsafe {
            place(data.cast::<u8>()).map(|first| slice::from_raw_parts_mut(first, bytes))
        }?;
        Ok(client.read_into(block_at(offset)?, into)?)
    };
    // SAFETY: the caller promised an open handle.
    unsafe { on(client, read) }
}

/// Writes `bytes` bytes at `offset`, durably with the flag `NF_FUA`.
///
/// # Safety
/// The handle is null or open; `data` is null or has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_pwrite(
    client: *mut Client,
    data: *const c_void,
    bytes: usize,
    offset: u64,
    flags: u32,
) -> c_int {
    let write = |client: &blocking::Client| {
        // SAFETY: the caller promised so many bytes.
        let (data, lba) = (unsafe { bytes_of(data, bytes) }?, block_at(offset)?);
        match flags {
            0 => Ok(client.write(lba, data)?),
            flags if flags == u32::from(NF_FUA) => Ok(client.write_durable(lba, data)?),
            _ => Err(Failure::invalid(c"unknown flag of a write")),
        }
    };
    // SAFETY: the caller promised an open handle.
    unsafe { on(client, write) }
}

/// Makes acknowledged writes durable. Fails once with `EIO` if the server's machine has lost some.
///
/// # Safety
/// The handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_flush(client: *mut Client) -> c_int {
    // SAFETY: the caller promised an open handle.
    unsafe { on(client, |client| Ok(client.flush()?)) }
}

/// Discards `bytes` bytes at `offset`.
///
/// # Safety
/// The handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_discard(client: *mut Client, offset: u64, bytes: u64) -> c_int {
    let discard =
        |client: &blocking::Client| Ok(client.discard(block_at(offset)?, blocks_of(bytes)?)?);
    // SAFETY: the caller promised an open handle.
    unsafe { on(client, discard) }
}

/// Writes zeroes to `bytes` bytes at `offset`.
///
/// # Safety
/// The handle is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_write_zeroes(client: *mut Client, offset: u64, bytes: u64) -> c_int {
    let zero =
        |client: &blocking::Client| Ok(client.write_zeroes(block_at(offset)?, blocks_of(bytes)?)?);
    // SAFETY: the caller promised an open handle.
    unsafe { on(client, zero) }
}

/// Compares `bytes` bytes at `offset` with `expected`, and writes `desired` if they are equal.
///
/// # Safety
/// The handle is null or open; `expected` and `desired` are null or have so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_compare_and_write(
    client: *mut Client,
    expected: *const c_void,
    desired: *const c_void,
    bytes: usize,
    offset: u64,
) -> c_int {
    let exchange = |client: &blocking::Client| {
        // SAFETY: the caller promised so many bytes.
        let (expected, desired) =
            unsafe { (bytes_of(expected, bytes)?, bytes_of(desired, bytes)?) };
        Ok(client.compare_and_write(block_at(offset)?, expected, desired)?)
    };
    // SAFETY: the caller promised an open handle.
    unsafe { on(client, exchange) }
}

/// Writes `bytes` bytes at `offset` so that a reader, and a crash, sees all of them or none.
///
/// # Safety
/// The handle is null or open; `data` is null or has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_write_atomic(
    client: *mut Client,
    data: *const c_void,
    bytes: usize,
    offset: u64,
) -> c_int {
    let write = |client: &blocking::Client| {
        // SAFETY: the caller promised so many bytes.
        let data = unsafe { bytes_of(data, bytes) }?;
        Ok(client.write_atomic(block_at(offset)?, data)?)
    };
    // SAFETY: the caller promised an open handle.
    unsafe { on(client, write) }
}

/// Asks the server for the namespace's properties, and stores them.
///
/// # Safety
/// The handle is null or open; `properties` is null or a place for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_client_info(client: *mut Client, properties: *mut Properties) -> c_int {
    let ask = |client: &blocking::Client| {
        // SAFETY: the caller promised it.
        let properties = unsafe { place(properties) }?;
        *properties = client.info()?.into();
        Ok(())
    };
    // SAFETY: the caller promised an open handle.
    unsafe { on(client, ask) }
}

/// Registers a tenant at the server and charges the client's requests to it. Returns zero, or minus
/// an error number.
///
/// # Safety
/// The handle is null or open; the other pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_client_register_tenant(
    client: *mut Client,
    name: *const c_char,
    slo: *const Slo,
    promise: *mut Promise,
) -> c_int {
    let register = |client: &blocking::Client| {
        // SAFETY: the caller promised it.
        let (name, slo, promise) = unsafe { (text(name)?, *borrow(slo)?, promise.as_mut()) };
        promised(client.register(name, slo.into()), promise).map(drop)
    };
    // SAFETY: the caller promised an open handle.
    unsafe { on(client, register) }
}

/// Changes the SLO of the tenant that the client has registered. Returns zero, or minus an error
/// number.
///
/// # Safety
/// The handle is null or open; the other pointers are null or lead to what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_client_renegotiate(
    client: *mut Client,
    slo: *const Slo,
    promise: *mut Promise,
) -> c_int {
    let change = |client: &blocking::Client| {
        // SAFETY: the caller promised it.
        let (slo, promise) = unsafe { (*borrow(slo)?, promise.as_mut()) };
        promised(client.renegotiate(slo.into()), promise).map(drop)
    };
    // SAFETY: the caller promised an open handle.
    unsafe { on(client, change) }
}

/// Closes the client and frees its handle.
///
/// # Safety
/// The handle is null or open, and nobody uses it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nf_client_close(client: *mut Client) -> c_int {
    if client.is_null() {
        return 0;
    }
    // SAFETY: the handle came from a box, and nobody uses it again.
    let Client { process, inner, .. } = *unsafe { Box::from_raw(client) };
    let close = || {
        match process.check() {
            Ok(()) => drop(inner),
            // The thread and its connections are the parent's.
            Err(_) => std::mem::forget(inner),
        }
        Ok(0)
    };
    told(caught(close, || {}))
}
