//! The io_uring instance of one thread, shared by the thread's sockets and devices.

// UNSAFETY: submission entries carry raw pointers; `push` passes on its caller's promise about
// them.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

use io_uring::{Builder, IoUring, cqueue, opcode, squeue, types};
use packets::LANES_MAX;
use rustix::event::{EventfdFlags, eventfd};

use crate::reactor::ReadyDescriptor;
use crate::{Arena, Error, Reactor, Waker, probe};

/// The owner of a completion. Each owner has an inbox of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u8);

/// Number of possible owners of completions on one ring.
const OWNERS: usize = Owner::BEFORE_DEVICES + Owner::DEVICES_MAX;

/// Completions that a ring holds. Memory for more than were ever there is not touched.
pub(crate) const COMPLETIONS_MAX: usize = 16_384;

impl Owner {
    /// Maximum number of devices on one ring.
    pub const DEVICES_MAX: usize = contract::DEVICES_MAX;

    /// The number of owners before the sockets: the ring itself, whose completions have the number
    /// 0.
    const BEFORE_SOCKETS: usize = 1;
    /// The owner of completions of stream sockets.
    pub const SOCKETS: Owner = Owner(Owner::BEFORE_SOCKETS as u8);
    const BEFORE_DEVICES: usize = Owner::BEFORE_SOCKETS + 1 + LANES_MAX;

    /// Returns the owner of the completions of lane `n`, below [`LANES_MAX`].
    pub(crate) const fn lane(n: usize) -> Owner {
        assert!(n < LANES_MAX);
        Owner((Owner::BEFORE_SOCKETS + 1 + n) as u8)
    }

    /// Returns the owner of the `n`-th device's completions.
    ///
    /// # Panics
    /// Panics if there are not so many devices.
    pub fn device(n: usize) -> Owner {
        assert!(n < Owner::DEVICES_MAX, "at most {} devices", Owner::DEVICES_MAX);
        Owner((Owner::BEFORE_DEVICES + n) as u8)
    }

    /// Returns the high bits of the user data of this owner's entries.
    pub(crate) const fn bits(self) -> u64 {
        (self.0 as u64) << DATA_BITS
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A completion queue entry, delivered to the owner of the operation.
#[derive(Clone, Copy, Debug)]
pub struct RingEvent {
    /// The low 56 bits of the entry's user data.
    pub data: u64,
    /// The result: not negative, or a negated error number.
    pub result: i32,
    /// The completion's flags, `IORING_CQE_F_…`.
    pub flags: u32,
}

const DATA_BITS: u32 = 56;

/// A file descriptor whose readiness ends a wait of the thread in the kernel. The readiness is not
/// reported otherwise.
struct Watch {
    fd: i32,
    /// The ring has an entry that watches.
    is_armed: bool,
}

/// The numbers of the ring's own completions: of the waker, of the end of a watch, and of the
/// watched descriptor of the first lane. Those of further lanes follow.
const OF_WAKER: u64 = 0;
const OF_UNWATCH: u64 = 1;
const OF_WATCH: u64 = 2;

/// A handle to the thread's ring; clones refer to the same ring.
#[derive(Clone)]
pub struct Ring {
    inner: Rc<RefCell<Inner>>,
    waker: Waker,
}

struct Inner {
    uring: IoUring,
    inboxes: [Vec<RingEvent>; OWNERS],
    waker_armed: bool,
    /// The watched descriptor of each lane.
    watches: [Option<Watch>; LANES_MAX],
    /// `true` if an external event loop waits for one of the ring's descriptors, so that the ring
    /// must watch its descriptor all the time and not only while the thread parks.
    has_bell: bool,
    /// The address range of the registered memory; empty if none is registered.
    registered: std::ops::Range<usize>,
    /// The index of the first device's file among the registered files; `None` before the table of
    /// registered files exists.
    device_files: Option<u32>,
    /// The number of the process that made the ring. A forked child shares the ring's queues.
    process: u32,
}

impl Ring {
    /// Returns a ring for the calling thread only.
    ///
    /// # Errors
    /// Names the kernel feature that is missing, or what forbids io_uring.
    pub fn new() -> Result<Ring, Error> {
        Ring::of(IoUring::builder().setup_defer_taskrun().setup_taskrun_flag())
    }

    /// Returns a ring for the calling thread and a queue of a block device
    /// (docs/adr/0034-attach.md). The kernel interrupts the thread to process completions.
    ///
    /// # Errors
    /// Fails as [`Ring::new`] does.
    pub fn for_block_device() -> Result<Ring, Error> {
        Ring::of(&mut IoUring::builder())
    }

    fn of(builder: &mut Builder) -> Result<Ring, Error> {
        let mut uring = builder
            .setup_single_issuer()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS_MAX as u32)
            .build(2048)
            .map_err(probe::explain_setup)?;
        probe::check(&mut uring)?;
        let inner = Inner {
            uring,
            inboxes: std::array::from_fn(|owner| match owner < Owner::BEFORE_DEVICES {
                true => Vec::with_capacity(COMPLETIONS_MAX),
                false => Vec::new(),
            }),
            waker_armed: false,
            watches: [const { None }; LANES_MAX],
            has_bell: false,
            registered: 0..0,
            device_files: None,
            process: std::process::id(),
        };
        Ok(Ring { inner: Rc::new(RefCell::new(inner)), waker: Waker::new()? })
    }

    /// Queues an entry; its completion goes to `owner` with `data` (at most 56 bits). Enters the
    /// kernel only where the submission queue is full.
    ///
    /// # Safety
    /// What the entry points to stays valid, and is not touched otherwise, until its last
    /// completion.
    pub(crate) unsafe fn push(&self, owner: Owner, data: u64, entry: squeue::Entry) {
        debug_assert!(data >> DATA_BITS == 0);
        let entry = entry.user_data(owner.bits() | data);
        self.inner.borrow_mut().push(&entry);
    }

    /// Reserves memory for up to `most` completions of `owner` in its inbox, so that none of them
    /// allocates on arrival. The inboxes of sockets and packets are reserved with the ring.
    pub(crate) fn expect(&self, owner: Owner, most: usize) {
        self.inner.borrow_mut().inboxes[owner.index()].reserve(most);
    }

    /// Makes events of the descriptor end a park (a blocking wait). While the thread polls without
    /// blocking, such events cost nothing. There is one descriptor for each lane.
    pub(crate) fn watch(&self, lane: usize, fd: BorrowedFd<'_>) {
        let watch = Watch { fd: fd.as_raw_fd(), is_armed: false };
        self.inner.borrow_mut().watches[lane] = Some(watch);
    }

    /// Ends the watch of a lane, so that the ring lets go of the descriptor. In a forked child,
    /// leaves the parent's ring as it is.
    pub(crate) fn unwatch(&self, lane: usize) {
        let mut inner = self.inner.borrow_mut();
        let is_armed = inner.watches[lane].take().is_some_and(|watch| watch.is_armed);
        if is_armed && inner.process == std::process::id() {
            let watch = OF_WATCH + lane as u64;
            let entry = opcode::PollRemove::new(watch).build().user_data(OF_UNWATCH);
            inner.push(&entry);
        }
    }

    /// Moves `owner`'s completions to the end of `events`.
    pub(crate) fn drain(&self, owner: Owner, events: &mut Vec<RingEvent>) {
        events.append(&mut self.inner.borrow_mut().inboxes[owner.index()]);
    }

    /// Returns whether `owner` has completions in its inbox.
    pub(crate) fn has_events(&self, owner: Owner) -> bool {
        !self.inner.borrow().inboxes[owner.index()].is_empty()
    }

    /// Returns whether the kernel has taken every queued entry.
    pub(crate) fn has_submitted_all(&self) -> bool {
        self.inner.borrow_mut().uring.submission().is_empty()
    }

    /// Registers the memory of `arena`, so that fixed reads and writes need no page look-up.
    ///
    /// # Errors
    /// Says what is lost and which limit to raise.
    pub fn register_buffers(&self, arena: &Arena) -> Result<(), Error> {
        let whole = libc::iovec { iov_base: arena.base.cast(), iov_len: arena.len };
        let mut inner = self.inner.borrow_mut();
        // SAFETY: the arena's mapping lives as long as the process.
        unsafe { inner.uring.submitter().register_buffers(&[whole]) }.map_err(|e| {
            Error::system(
                format!(
                    "buffers are not registered, which costs a little speed (raise the locked \
                     memory limit, `ulimit -l`, above {} KiB a worker)",
                    arena.len / 1024
                ),
                e,
            )
        })?;
        inner.registered = arena.base.addr()..arena.base.addr() + arena.len;
        Ok(())
    }

    /// Returns whether `bytes` lies in the registered memory, so that a fixed read or write may use
    /// it.
    pub(crate) fn has_registered(&self, bytes: &[u8]) -> bool {
        let addresses = bytes.as_ptr_range();
        let registered = &self.inner.borrow().registered;
        registered.start <= addresses.start.addr() && addresses.end.addr() <= registered.end
    }

    /// Creates a table of registered files with `places` empty places, and some more for devices,
    /// unless the process's limit of descriptors forbids it. Called once per ring.
    pub(crate) fn register_files(&self, places: u32) -> std::io::Result<()> {
        let mut inner = self.inner.borrow_mut();
        let all = places + Owner::DEVICES_MAX as u32;
        match inner.uring.submitter().register_files_sparse(all) {
            Ok(()) => inner.device_files = Some(places),
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                inner.uring.submitter().register_files_sparse(places)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Sets or clears a device's file in its place of the table; returns `None` without a table.
    pub(crate) fn register_device_file(
        &self,
        owner: Owner,
        file: Option<BorrowedFd<'_>>,
    ) -> Option<u32> {
        let inner = self.inner.borrow();
        let place = inner.device_files? + (owner.index() - Owner::BEFORE_DEVICES) as u32;
        let file = file.map_or(-1, |file| file.as_raw_fd());
        inner.uring.submitter().register_files_update(place, &[file]).ok()?;
        Some(place)
    }

    /// Calls `f` with the ring's submitter, for registrations.
    pub(crate) fn with_submitter<R>(&self, f: impl FnOnce(&io_uring::Submitter<'_>) -> R) -> R {
        f(&self.inner.borrow().uring.submitter())
    }
}

impl Reactor for Ring {
    fn new() -> Result<Self, Error> {
        Ring::new()
    }

    /// Enters the kernel once: submits queued entries, runs deferred work, and sorts the
    /// completions into their owners' inboxes. Without `wait`, and without work for the kernel,
    /// this makes no system call.
    fn enter(&self, wait: Option<Option<Duration>>) -> bool {
        let mut inner = self.inner.borrow_mut();
        inner.arm_waker(&self.waker);
        if wait.is_some() || inner.has_bell {
            inner.arm_watches();
        }
        inner.enter(wait);
        inner.sort_completions(&self.waker)
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Returns an eventfd that signals completions. With deferred task work, the ring's own
    /// descriptor would become readable only after the work is run.
    fn bell(&self) -> Result<ReadyDescriptor, Error> {
        let fail = |e| Error::system("cannot make a descriptor that tells of events", e);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags).map_err(|e| fail(std::io::Error::from(e)))?;
        let registered = self.with_submitter(|s| s.register_eventfd(fd.as_raw_fd()));
        registered.map_err(fail)?;
        self.inner.borrow_mut().has_bell = true;
        Ok(ReadyDescriptor { fd, is_counter: true })
    }
}

impl Inner {
    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the caller of `Ring::push` promised what the entry needs.
            if unsafe { self.uring.submission().push(entry) }.is_ok() {
                return;
            }
            self.enter(None);
        }
    }

    /// Begins to poll the waker's descriptor; each wake ends the poll, which is then begun again.
    fn arm_waker(&mut self, waker: &Waker) {
        if !self.waker_armed {
            let fd = types::Fd(waker.fd().as_raw_fd());
            self.push(&opcode::PollAdd::new(fd, libc::POLLIN as u32).build().user_data(0));
            self.waker_armed = true;
        }
    }

    /// Starts to poll each watched descriptor of which no event is pending. If one is pending, the
    /// next wait of the thread ends at once.
    fn arm_watches(&mut self) {
        for lane in 0..LANES_MAX {
            let Some(watch) = &mut self.watches[lane] else { continue };
            if !std::mem::replace(&mut watch.is_armed, true) {
                let entry = opcode::PollAdd::new(types::Fd(watch.fd), libc::POLLIN as u32).build();
                self.push(&entry.user_data(OF_WATCH + lane as u64));
            }
        }
    }

    fn enter(&mut self, wait: Option<Option<Duration>>) {
        /// `IORING_ENTER_GETEVENTS`, which also runs deferred task work.
        const GETEVENTS: u32 = 1;
        let (queued, taskrun) = {
            let queue = self.uring.submission();
            (queue.len() as u32, queue.taskrun() || queue.cq_overflow())
        };
        let result = match wait {
            None if queued == 0 && !taskrun => return,
            // SAFETY: no argument is passed.
            None => unsafe {
                self.uring.submitter().enter::<libc::sigset_t>(queued, 0, GETEVENTS, None)
            },
            Some(None) => self.uring.submitter().submit_and_wait(1),
            Some(Some(limit)) => {
                let limit = types::Timespec::from(limit);
                let args = types::SubmitArgs::new().timespec(&limit);
                self.uring.submitter().submit_with_args(1, &args)
            }
        };
        match result.map_err(|e| e.raw_os_error().unwrap_or(0)) {
            Ok(_) | Err(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => {}
            Err(errno) => panic!("io_uring_enter failed with error {errno}"),
        }
    }

    fn sort_completions(&mut self, waker: &Waker) -> bool {
        let mut any = false;
        let mut woken = false;
        for entry in self.uring.completion() {
            any = true;
            let data = entry.user_data();
            match (data >> DATA_BITS) as usize {
                0 if data == OF_WAKER => woken = true,
                0 => {
                    let lane = data.checked_sub(OF_WATCH).map(|lane| lane as usize);
                    let watch = lane.and_then(|lane| self.watches.get_mut(lane)?.as_mut());
                    watch.into_iter().for_each(|watch| watch.is_armed = false);
                }
                owner => self.inboxes[owner].push(event(&entry)),
            }
        }
        if woken {
            waker.clear();
            self.waker_armed = false;
        }
        any
    }
}

fn event(entry: &cqueue::Entry) -> RingEvent {
    RingEvent {
        data: entry.user_data() & ((1 << DATA_BITS) - 1),
        result: entry.result(),
        flags: entry.flags(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use io_uring::opcode;

    use super::*;

    /// Tests that a forked child which lets go of a lane queues nothing in its parent's ring.
    #[test]
    fn a_forked_child_leaves_its_parents_ring_alone() {
        let ring = Ring::new().unwrap();
        let watched = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        ring.watch(1, watched.as_fd());
        ring.enter(Some(Some(Duration::ZERO)));
        assert!(ring.has_submitted_all());
        // The child shares the table of descriptors, so that it keeps none of other tests open.
        let flags = libc::CLONE_FILES | libc::SIGCHLD;
        // SAFETY: the child has a copy of the memory, calls what is under test, which takes no
        // lock, and ends.
        unsafe {
            let child = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) as libc::pid_t;
            assert!(child >= 0);
            if child == 0 {
                ring.unwatch(1);
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0);
        }
        assert!(ring.has_submitted_all(), "the child has written to the ring");
        ring.unwatch(1);
        assert!(!ring.has_submitted_all(), "the parent ends its watch");
    }

    #[test]
    fn a_burst_of_completions_allocates_nothing() {
        let ring = Ring::new().unwrap();
        let device = Owner::device(0);
        ring.expect(device, 256);
        let mut events = Vec::with_capacity(COMPLETIONS_MAX);
        for (owner, burst) in [(Owner::SOCKETS, 1000), (Owner::lane(0), 1000), (device, 256)] {
            let used = allocation_counter::measure(|| {
                for number in 0..burst {
                    // SAFETY: the entry points to nothing.
                    unsafe { ring.push(owner, number, opcode::Nop::new().build()) };
                }
                while events.len() < burst as usize {
                    ring.enter(None);
                    ring.drain(owner, &mut events);
                }
            });
            assert_eq!((used.count_total, events.len() as u64), (0, burst));
            events.clear();
        }
    }
}
