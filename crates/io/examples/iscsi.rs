//! The time that a 4 KiB request takes over user-space iSCSI, with one in flight: an initiator of
//! `libiscsi`, as the system has it installed, against any target. It stands beside the program in
//! the table of unloaded latencies.
//!
//! `libiscsi` is looked for when this runs, so that nobody needs it to build.

// UNSAFETY: calls into a C library that is loaded at run time.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "a load generator reads the clock")]

use std::ffi::{CString, c_char, c_int, c_uchar, c_void};
use std::time::{Duration, Instant};

use clap::Parser;

/// The library's name since its version 1.19.
const LIBRARY: &str = "libiscsi.so.7";

/// Value of `ISCSI_SESSION_NORMAL` in `libiscsi`.
const NORMAL_SESSION: c_int = 2;

const REQUEST_BYTES: u32 = 4096;
const SECTOR_BYTES: c_int = 512;
const SECTORS: u32 = REQUEST_BYTES / SECTOR_BYTES as u32;

/// Measures reads, then writes.
#[derive(Parser)]
struct Options {
    /// The target's address, such as 127.0.0.1:3260
    portal: String,
    /// The target's name
    target: String,
    /// The logical unit
    #[arg(long, default_value_t = 1)]
    lun: c_int,
    /// Bytes that addresses range over
    #[arg(long, default_value_t = 64 << 20)]
    span: u64,
    /// Seconds of reads, and again of writes
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

type Context = *mut c_void;
/// A pointer to `struct scsi_task`, which begins with the status, an `int`.
type Task = *mut c_int;
// SAFETY: declared so in the headers of libiscsi 1.19; whoever calls keeps what they ask for.
type Create = unsafe extern "C" fn(*const c_char) -> Context;
// SAFETY: declared so in the headers of libiscsi 1.19; whoever calls keeps what they ask for.
type SetText = unsafe extern "C" fn(Context, *const c_char) -> c_int;
// SAFETY: declared so in the headers of libiscsi 1.19; whoever calls keeps what they ask for.
type SetNumber = unsafe extern "C" fn(Context, c_int) -> c_int;
// SAFETY: declared so in the headers of libiscsi 1.19; whoever calls keeps what they ask for.
type Connect = unsafe extern "C" fn(Context, *const c_char, c_int) -> c_int;
// SAFETY: declared so in the headers of libiscsi 1.19; whoever calls keeps what they ask for.
type GetError = unsafe extern "C" fn(Context) -> *const c_char;
// SAFETY: declared so in the headers of libiscsi 1.19; whoever calls keeps what they ask for.
type Read = unsafe extern "C" fn(
    Context,
    c_int,
    u32,
    u32,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
) -> Task;
// SAFETY: declared so in the headers of libiscsi 1.19; whoever calls keeps what they ask for.
type Write = unsafe extern "C" fn(
    Context,
    c_int,
    u32,
    *mut c_uchar,
    u32,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
) -> Task;
// SAFETY: declared so in the headers of libiscsi 1.19; whoever calls keeps what they ask for.
type Free = unsafe extern "C" fn(Task);

/// A connection to an iSCSI logical unit, and the functions of `libiscsi` that it needs.
struct Unit {
    context: Context,
    lun: c_int,
    read: Read,
    write: Write,
    free: Free,
    error: GetError,
}

fn main() {
    let options = Options::parse();
    let unit = Unit::connect(&options).unwrap_or_else(|error| {
        eprintln!("iscsi: {error}");
        std::process::exit(1);
    });
    for name in ["read", "write"] {
        match measure(&unit, &options, name == "write") {
            Ok((mean, p95)) => println!("{name} {mean:.3} {p95:.3}"),
            Err(error) => {
                eprintln!("iscsi: {error}");
                std::process::exit(1);
            }
        }
    }
}

/// Sends random reads or writes, one at a time. Returns the mean and the 95th percentile of their
/// latencies, in microseconds.
fn measure(unit: &Unit, options: &Options, writes: bool) -> Result<(f64, f64), String> {
    let places = options.span / u64::from(REQUEST_BYTES);
    let mut payload = [0x5a; REQUEST_BYTES as usize];
    let mut chance: u64 = 1;
    let mut latencies: Vec<Duration> = Vec::new();
    let end = Instant::now() + Duration::from_secs_f64(options.seconds);
    loop {
        chance =
            chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let lba = (chance >> 33) % places * u64::from(SECTORS);
        let began = Instant::now();
        if began >= end {
            break;
        }
        unit.request(lba as u32, writes.then_some(&mut payload))?;
        latencies.push(began.elapsed());
    }
    latencies.sort_unstable();
    if latencies.is_empty() {
        return Err("no request ended".to_owned());
    }
    let mean = latencies.iter().sum::<Duration>().as_secs_f64() / latencies.len() as f64;
    let p95 = latencies[(latencies.len() * 95).div_ceil(100) - 1];
    Ok((mean * 1e6, p95.as_secs_f64() * 1e6))
}

impl Unit {
    fn connect(options: &Options) -> Result<Unit, String> {
        let library = CString::new(LIBRARY).expect("no zero in it");
        // SAFETY: the name is a string; the library is never closed.
        let library = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(format!("{LIBRARY} is not installed"));
        }
        let find = |name: &str| {
            let text = CString::new(name).expect("no zero in it");
            // SAFETY: the library is open, and the name is a string.
            let found = unsafe { libc::dlsym(library, text.as_ptr()) };
            if found.is_null() { Err(format!("{LIBRARY} has no {name}")) } else { Ok(found) }
        };
        // SAFETY: each symbol is the function that libiscsi 1.19's headers declare so.
        let (create, set_name, set_session, connect, unit) = unsafe {
            let create: Create = std::mem::transmute(find("iscsi_create_context")?);
            let set_name: SetText = std::mem::transmute(find("iscsi_set_targetname")?);
            let set_session: SetNumber = std::mem::transmute(find("iscsi_set_session_type")?);
            let connect: Connect = std::mem::transmute(find("iscsi_full_connect_sync")?);
            let read: Read = std::mem::transmute(find("iscsi_read10_sync")?);
            let write: Write = std::mem::transmute(find("iscsi_write10_sync")?);
            let free: Free = std::mem::transmute(find("scsi_free_scsi_task")?);
            let error: GetError = std::mem::transmute(find("iscsi_get_error")?);
            let context = std::ptr::null_mut();
            let unit = Unit { context, lun: options.lun, read, write, free, error };
            (create, set_name, set_session, connect, unit)
        };
        let text = |text: &str| CString::new(text).map_err(|_| format!("{text:?} has a zero"));
        let initiator = text("iqn.2026-11.nearflash:initiator")?;
        let (target, portal) = (text(&options.target)?, text(&options.portal)?);
        // SAFETY: all arguments are strings that live until the calls return, which copy them.
        unsafe {
            let context = create(initiator.as_ptr());
            if context.is_null() {
                return Err("out of memory".to_owned());
            }
            let unit = Unit { context, ..unit };
            set_name(context, target.as_ptr());
            set_session(context, NORMAL_SESSION);
            match connect(context, portal.as_ptr(), options.lun) {
                0 => Ok(unit),
                _ => Err(unit.last_error()),
            }
        }
    }

    /// Sends a read, or a write of `payload` if there is one, at sector `lba`, and waits for its
    /// end.
    fn request(
        &self,
        lba: u32,
        payload: Option<&mut [u8; REQUEST_BYTES as usize]>,
    ) -> Result<(), String> {
        let (context, lun, bytes) = (self.context, self.lun, REQUEST_BYTES);
        // SAFETY: the context is connected; the payload is as long as is said, and the call does
        // not return before the request has ended. A task that is not null begins with its status
        // and is freed once.
        let status = unsafe {
            let task = match payload {
                None => (self.read)(context, lun, lba, bytes, SECTOR_BYTES, 0, 0, 0, 0, 0),
                Some(payload) => {
                    let data = payload.as_mut_ptr();
                    (self.write)(context, lun, lba, data, bytes, SECTOR_BYTES, 0, 0, 0, 0, 0)
                }
            };
            if task.is_null() {
                return Err(self.last_error());
            }
            let status = *task;
            (self.free)(task);
            status
        };
        if status == 0 { Ok(()) } else { Err(format!("the target answers status {status}")) }
    }

    fn last_error(&self) -> String {
        // SAFETY: the library returns a string that lives as long as the context.
        let text = unsafe { std::ffi::CStr::from_ptr((self.error)(self.context)) };
        text.to_string_lossy().into_owned()
    }
}
