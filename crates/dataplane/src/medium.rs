//! A volume that does not serve yet, or not any more: its pages by calls that wait.

use std::sync::Arc;
use std::time::Duration;

use contigfs::{Image, Pages};
use contract::{
    BLOCK_BYTES, Buf, COMMIT_PAGE_BYTES, Chores, Command, Completion, Device, REQUEST_BYTES_MAX,
    Range, SizeClass, SlotTable, Status, Submission,
};
use flash::{DecoratedDevice, Spec};
use io::{Clock, Owner, Reactor, Ring, SpinPolicy, carve, run};

use crate::files;
use crate::volumes::{AnyDevice, FileBackend, Volume, rest};

/// Bytes of a page.
const PAGE_BYTES: usize = COMMIT_PAGE_BYTES;

/// Pages of the largest discard.
const DISCARD_PAGES_MAX: u64 = 1 << 18;

/// The number of the volume among the devices of the ring.
const DEVICE: usize = 0;

/// A volume that is open but served by no worker, with the only queue to it.
pub struct OfflineVolume {
    volume: Volume,
    device: DecoratedDevice<AnyDevice>,
    ring: Ring,
    clock: Clock,
    buf: Option<Buf>,
    slots: SlotTable<()>,
}

impl OfflineVolume {
    /// Opens the volume of a spec.
    ///
    /// # Errors
    /// Says what is wrong with the volume, and what to do.
    pub fn open(spec: &Spec) -> Result<OfflineVolume, String> {
        OfflineVolume::of(Volume::open(spec)?)
    }

    /// Opens the queue to a volume that is not exported.
    ///
    /// # Errors
    /// Says what the volume lacks, and what to do. The volume is closed.
    pub fn of(volume: Volume) -> Result<OfflineVolume, String> {
        let ring = Ring::new().map_err(|error| error.to_string())?;
        let device = volume.open_queue(&FileBackend::Ring(&ring), DEVICE, 0)?;
        if device.geometry().commit_pages_max == 0 {
            return Err(
                "the device cannot write scattered pages all or none, which a file system \
                        needs; name a volume of flash translation, ftl:file:PATH"
                    .to_owned(),
            );
        }
        let class = SizeClass { bytes: REQUEST_BYTES_MAX, count: 1 };
        let buf = carve(&[class]).map_err(|error| error.to_string())?.bufs.pop();
        Ok(OfflineVolume {
            volume,
            device,
            ring,
            clock: Clock::start(),
            buf,
            slots: SlotTable::new(1),
        })
    }

    /// Returns an owner of completions of the ring that is not the volume.
    pub fn other_owner() -> Owner {
        Owner::device(DEVICE + 1)
    }

    /// Returns the maximum number of pages of a commit.
    pub fn commit_pages_max(&self) -> usize {
        usize::from(self.device.geometry().commit_pages_max)
    }

    /// Returns the background work of the volume, such as garbage collection, with its statistics;
    /// `None` if the volume does none.
    pub fn chores(&self) -> Option<Arc<dyn Chores>> {
        self.volume.chores()
    }

    /// Returns the volume and its queue, to serve.
    pub fn into_parts(self) -> (Volume, DecoratedDevice<AnyDevice>, Ring, Clock) {
        (self.volume, self.device, self.ring, self.clock)
    }

    /// Closes the volume in order.
    pub fn close(self) {
        let (volume, device, ring, clock) = self.into_parts();
        close(&volume, device, &ring, &clock);
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
/// open. If reading fails, the reason is stored and returned to requests for a file.
///
/// # Errors
/// There is no memory for a buffer.
pub fn read_files(volume: Volume, are_wanted: bool) -> Result<Volume, String> {
    if !are_wanted || !volume.files_on_it().are_there() {
        return Ok(volume);
    }
    let commit_pages_max = usize::from(volume.geometry().commit_pages_max);
    let found = volume.still()?.map(|pages| files::read(pages, commit_pages_max));
    Ok(match found {
        Some(found) => volume.with_files(found),
        None => volume,
    })
}

/// Closes a device cleanly, after the queue of this thread has finished its background operations.
/// No request may be in flight.
pub fn close(volume: &Volume, queue: DecoratedDevice<AnyDevice>, ring: &Ring, clock: &Clock) {
    end(queue, ring, clock);
    volume.close();
}

fn end(mut queue: DecoratedDevice<AnyDevice>, ring: &Ring, clock: &Clock) {
    run(ring, clock, SpinPolicy { spin: Duration::ZERO }, |now| {
        rest([&mut queue].into_iter(), now)
    });
}

/// Returns the blocks of pages.
fn blocks(page: u64, pages: u64) -> Range {
    let per_page = (PAGE_BYTES / BLOCK_BYTES) as u64;
    Range::new(page * per_page, (pages * per_page) as u32)
}

impl Pages for OfflineVolume {
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

    fn flush(&mut self) -> Result<(), Status> {
        OfflineVolume::flush(self)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::{FileMedia, member_options, open_member};
    use flash::{FtlOptions, Rng};

    /// Pages of the member: 64 MiB.
    const MEMBER_PAGES: u64 = 16_384;

    /// Makes a volume on a file, and returns its spec.
    fn made(folder: &tempfile::TempDir) -> Spec {
        let path = folder.path().join("volume").display().to_string();
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(MEMBER_PAGES * PAGE_BYTES as u64).unwrap();
        let mut media = FileMedia::of(&open_member(&path, member_options(false)).unwrap()).unwrap();
        let shape = crate::volumes::shape(&FtlOptions::default(), MEMBER_PAGES);
        ftl::create(&mut media, &shape).unwrap();
        format!("ftl:file:{path}").parse().unwrap()
    }

    fn is_clean(spec: &Spec) -> bool {
        let path = spec.source.path().unwrap();
        let file = open_member(path, member_options(true)).unwrap();
        ftl::describe(&mut FileMedia::of(&file).unwrap()).unwrap().clean
    }

    /// A queue that ends with work of its device under way loses the volume. Who wants another
    /// queue is told that, and the next opening recovers.
    #[test]
    fn a_lost_volume_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let spec = made(&folder);
        let mut medium = OfflineVolume::open(&spec).unwrap();
        let slot = medium.slots.insert(()).unwrap();
        medium
            .device
            .submit(medium.clock.now(), Submission { slot, command: Command::Flush, buf: None });
        let (volume, queue, ring, _) = medium.into_parts();
        drop(queue);
        let again = volume.open_queue(&FileBackend::Ring(&ring), DEVICE, 0).map(drop);
        assert!(again.unwrap_err().contains("start the server anew"));
        drop(volume);
        assert!(!is_clean(&spec));
        OfflineVolume::open(&spec).unwrap().close();
        assert!(is_clean(&spec));
    }

    /// Writes all pages, and then as many again, each as likely as any other.
    fn write_evenly(medium: &mut OfflineVolume) {
        let image = || Box::new([7; PAGE_BYTES]);
        let (pages, most) = (medium.pages(), 16);
        let mut chance = Rng::new(1);
        for first in (0..pages).step_by(most as usize) {
            let batch: Vec<_> =
                (first..pages.min(first + most)).map(|page| (page, image())).collect();
            medium.commit(&batch).unwrap();
        }
        for _ in 0..pages / most {
            let mut batch: Vec<_> = (0..most).map(|_| chance.within(0..=pages - 1)).collect();
            batch.sort_unstable();
            batch.dedup();
            let batch: Vec<_> = batch.into_iter().map(|page| (page, image())).collect();
            medium.commit(&batch).unwrap();
        }
    }

    /// A volume that is short of free segments collects from its first turn on. It is closed in
    /// order all the same, and given back to the next queue.
    #[test]
    fn a_volume_that_collects_is_closed_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let spec = made(&folder);
        let mut medium = OfflineVolume::open(&spec).unwrap();
        write_evenly(&mut medium);
        medium.close();
        assert!(is_clean(&spec), "after writes");
        let mut page = vec![0; PAGE_BYTES];
        for round in 0..4 {
            let mut medium = OfflineVolume::open(&spec).unwrap();
            for at in 0..=round {
                medium.read(at, &mut page).unwrap();
            }
            assert_eq!(page[77], 7);
            medium.close();
            assert!(is_clean(&spec), "round {round}");
        }
        let volume = read_files(Volume::open(&spec).unwrap(), true).unwrap();
        let mut medium = OfflineVolume::of(volume).unwrap();
        medium.read(1, &mut page).unwrap();
        let (volume, queue, ring, clock) = medium.into_parts();
        end(queue, &ring, &clock);
        let again = OfflineVolume::of(volume).unwrap();
        again.close();
        assert!(is_clean(&spec));
    }
}
