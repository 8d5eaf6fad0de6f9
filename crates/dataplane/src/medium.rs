//! A volume that does not serve yet, or not any more: its pages by calls that wait.

use std::sync::Arc;
use std::time::Duration;

use contigfs::{Image, Pages, Settings};
use contract::{
    BLOCK_BYTES, Buf, COMMIT_PAGE_BYTES, Command, Completion, Device, REQUEST_BYTES_MAX, Range,
    SizeClass, SlotTable, Status, Submission,
};
use flash::{Decorated, Source, Spec};
use io::{Clock, Owner, Reactor, Ring, carve};

use crate::files::Files;
use crate::volumes::{AnyDevice, Through, Volume};

/// Bytes of a page.
const PAGE_BYTES: usize = COMMIT_PAGE_BYTES;

/// Pages of the largest discard.
const DISCARD_PAGES_MAX: u64 = 1 << 18;

/// The number of the volume among the devices of the ring.
const DEVICE: usize = 0;

/// An opened volume, with the one queue to it.
pub struct Medium {
    volume: Volume,
    device: Decorated<AnyDevice>,
    ring: Ring,
    clock: Clock,
    buf: Option<Buf>,
    slots: SlotTable<()>,
}

impl Medium {
    /// Opens the volume of a spec.
    ///
    /// # Errors
    /// Says what is wrong with the volume, and what to do.
    pub fn open(spec: &Spec) -> Result<Medium, String> {
        Medium::of(Volume::open(spec)?)
    }

    /// Opens the queue to a volume that serves nobody.
    ///
    /// # Errors
    /// Says what the volume lacks, and what to do. The volume is closed.
    pub fn of(volume: Volume) -> Result<Medium, String> {
        let ring = Ring::new().map_err(|error| error.to_string())?;
        let device = volume.open_queue(&Through::Ring(&ring), DEVICE, 0)?;
        if device.geometry().commit_pages_max == 0 {
            return Err(
                "the device cannot write scattered pages all or none, which a file system \
                        needs; name a volume of flash translation, ftl:file:PATH"
                    .to_owned(),
            );
        }
        let class = SizeClass { bytes: REQUEST_BYTES_MAX, count: 1 };
        let buf = carve(&[class]).map_err(|error| error.to_string())?.bufs.pop();
        Ok(Medium { volume, device, ring, clock: Clock::start(), buf, slots: SlotTable::new(1) })
    }

    /// Returns an owner of completions of the ring that is not the volume.
    pub fn other_owner() -> Owner {
        Owner::device(DEVICE + 1)
    }

    /// Returns the maximum number of pages of a commit.
    pub fn commit_pages_max(&self) -> usize {
        usize::from(self.device.geometry().commit_pages_max)
    }

    /// Returns the volume and its queue, to serve.
    pub fn into_parts(self) -> (Volume, Decorated<AnyDevice>, Ring, Clock) {
        (self.volume, self.device, self.ring, self.clock)
    }

    /// Closes the volume in order.
    pub fn close(self) {
        let (volume, device, ..) = self.into_parts();
        drop(device);
        volume.close();
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// The status of the volume.
    pub fn flush(&mut self) -> Result<(), Status> {
        self.run(Command::Flush, |_| ())?;
        Ok(())
    }

    /// Carries a command out and waits for its end. `fill` writes the payload.
    fn run(&mut self, command: Command, fill: impl FnOnce(&mut Buf)) -> Result<(), Status> {
        let bytes = command.buffer_bytes();
        let buf = (bytes > 0).then(|| {
            let mut buf = self.buf.take().expect("one command is under way at a time");
            fill(&mut buf);
            buf
        });
        let slot = self.slots.insert(()).expect("one command is under way at a time");
        self.device.submit(self.clock.now(), Submission { slot, command, buf });
        let mut done: Vec<Completion> = Vec::with_capacity(1);
        loop {
            let now = self.clock.now();
            self.device.kick(now);
            self.device.poll(now, &mut done);
            if let Some(ended) = done.pop() {
                self.slots.remove(ended.slot);
                self.buf = ended.buf.or(self.buf.take());
                return if ended.status.is_ok() { Ok(()) } else { Err(ended.status) };
            }
            let wait = match self.device.wake_at() {
                Some(at) if at <= now => None,
                Some(at) => Some(Some(at.since(now))),
                None => Some(Some(Duration::from_millis(100))),
            };
            self.ring.enter(wait);
        }
    }
}

/// Reads the file system on a device if namespaces are files of it. No worker may have the device
/// open. Without a file system, the reason is kept for whoever asks for a file.
///
/// # Errors
/// The device cannot be read at all. It is closed.
pub fn read_files(volume: Volume, are_wanted: bool) -> Result<Volume, String> {
    if !are_wanted {
        return Ok(volume);
    }
    if !matches!(volume.spec().source, Source::Ftl { .. }) {
        let why = "its device can have no file system of contiguous files; name an `ftl:` device, or \
                   give the namespace `offset` and `size`";
        return Ok(volume.with_files(Files::Unread(why.to_owned())));
    }
    let mut seed = [0; 8];
    io::random(&mut seed);
    let mut medium = Medium::of(volume)?;
    let settings = Settings {
        commit_pages_max: medium.commit_pages_max(),
        seed: u64::from_ne_bytes(seed),
        read_only: true,
    };
    let files = match contigfs::mount(&mut medium, &settings) {
        Ok(system) => Files::Read(Arc::new(system)),
        Err(contigfs::Error::Nothing) => Files::Unread(
            "the volume of its device has no file system; make one with `nearflash fs create`, or \
             give the namespace `offset` and `size`"
                .to_owned(),
        ),
        Err(error) => Files::Unread(error.to_string()),
    };
    let (volume, device, ..) = medium.into_parts();
    drop(device);
    Ok(volume.with_files(files))
}

/// Returns the blocks of pages.
fn blocks(page: u64, pages: u64) -> Range {
    let per_page = (PAGE_BYTES / BLOCK_BYTES) as u64;
    Range::new(page * per_page, (pages * per_page) as u32)
}

impl Pages for Medium {
    fn pages(&self) -> u64 {
        self.device.geometry().blocks * BLOCK_BYTES as u64 / PAGE_BYTES as u64
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Status> {
        let mut page = at;
        for part in into.chunks_mut(REQUEST_BYTES_MAX) {
            let pages = (part.len() / PAGE_BYTES) as u64;
            self.run(Command::Read(blocks(page, pages)), |_| ())?;
            let buf = self.buf.as_ref().expect("the read has ended");
            part.copy_from_slice(&buf.bytes()[..part.len()]);
            page += pages;
        }
        Ok(())
    }

    fn commit(&mut self, pages: &[(u64, Image)]) -> Result<(), Status> {
        let command = Command::Commit { pages: pages.len() as u16 };
        self.run(command, |buf| fill_commit(buf, pages))
    }

    fn discard(&mut self, at: u64, pages: u64) -> Result<(), Status> {
        let end = at + pages;
        for start in (at..end).step_by(DISCARD_PAGES_MAX as usize) {
            let range = blocks(start, (end - start).min(DISCARD_PAGES_MAX));
            self.run(Command::Discard(range), |_| ())?;
        }
        Ok(())
    }
}

/// Writes the payload of a commit: the numbers of its pages, and their contents.
pub fn fill_commit(buf: &mut Buf, pages: &[(u64, Image)]) {
    let bytes = buf.prefix_mut((1 + pages.len()) * PAGE_BYTES);
    let (numbers, images) = bytes.split_at_mut(PAGE_BYTES);
    numbers.fill(0);
    let places = numbers.chunks_mut(size_of::<u64>()).zip(images.chunks_mut(PAGE_BYTES));
    for ((page, image), (number, place)) in pages.iter().zip(places) {
        number.copy_from_slice(&page.to_le_bytes());
        place.copy_from_slice(&image[..]);
    }
}
