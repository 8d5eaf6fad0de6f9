//! Tests of devices of the device mapper: one that has a range of errors, is suspended and is mended;
//! one that fails or forgets writes for a while; one whose pool of space is full, and grows.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::reflex_v2::Opcode;

use super::guest::{Backing, Controller, Disk, Guest, Machine, SOON};
use super::port::free_port;
use super::power_cut::await_device;
use super::reflex::{Connection, Request};
use super::{Context, Verdict};

const PAGE: usize = 4096;

/// The bytes of a block of the thin pool: 128 sectors.
const POOL_BLOCK: usize = 64 << 10;

/// The number of blocks that the thin pool has at first, and after it has grown.
const POOL_BLOCKS: [usize; 2] = [128, 256];

/// The first byte of the range of errors.
const BAD: usize = 8 << 20;

/// The table of the device: a linear mapping of the disk, with errors from 8 to 16 MiB.
const BROKEN: &str = "0 16384 linear /dev/nvme0n1 0\\n16384 16384 error\\n\
                      32768 98304 linear /dev/nvme0n1 32768\\n";

/// The table without errors.
const WHOLE: &str = "0 131072 linear /dev/nvme0n1 0\\n";

/// The status of a request that the media failed (`contract::Status::MediaError`).
const MEDIA_ERROR: u16 = 11;

/// The status of a write for which the device has no space (`contract::Status::NoSpace`).
const NO_SPACE: u16 = 12;

/// Serves the device beside memory, by one worker. Errors are those of their requests alone, a
/// suspended device holds nobody else up, and a mended one is served on, over the same connections.
pub(super) fn mapped(context: &Context) -> Result<Verdict, String> {
    let ports = [free_port()?, free_port()?];
    let mut guest = boot(context, ports)?;
    let map = format!("modprobe dm-mod && printf '{BROKEN}' | dmsetup create half");
    guest.must(&mapper(&map), SOON)?;
    guest.serve(&serve(context), SOON)?;
    let open = |port: u16| Connection::open(&format!("127.0.0.1:{port}"), SOON);
    let (mut disk, mut other) = (open(ports[0])?, open(ports[1])?);
    for opcode in [Opcode::WRITE, Opcode::READ] {
        beside_errors(&mut disk, opcode)?;
        other.read(0, PAGE)?;
    }
    expect(&mut disk, request(Opcode::FLUSH, 0, 0), &[], 0)?;

    guest.must(&mapper("dmsetup suspend half"), SOON)?;
    let waits = send(&mut disk, request(Opcode::READ, 0, PAGE), &[])?;
    for offset in [0, PAGE] {
        other.read(offset, PAGE)?;
    }
    // Whoever is suspended does not answer, however long one waits.
    let early = disk.receive(Duration::from_millis(200)).map_err(|error| error.to_string())?;
    if early.is_some() {
        return Err("a suspended device has answered".to_owned());
    }
    let mend = format!("printf '{WHOLE}' | dmsetup load half && dmsetup resume half");
    guest.must(&mapper(&mend), SOON)?;
    let reply = disk.receive(SOON).map_err(|error| error.to_string())?.ok_or("no answer")?;
    if (reply.tag, reply.status, reply.body) != (waits, 0, contents(0)) {
        return Err(format!("what waited for the device ended with {}", reply.status));
    }
    for offset in [BAD, BAD + PAGE] {
        write_and_read(&mut disk, offset, &contents(offset))?;
    }
    guest.stop()?;
    Ok(Verdict::Passed("errors, a pause and a mended table, over one connection".to_owned()))
}

/// Writes a page, and checks that it is read as it was written.
fn write_and_read(disk: &mut Connection, offset: usize, data: &[u8]) -> Result<(), String> {
    expect(disk, request(Opcode::WRITE, offset, PAGE), data, 0)?;
    match disk.read(offset, PAGE)? == data {
        true => Ok(()),
        false => Err(format!("{offset}: other data than was written")),
    }
}

/// Serves a device whose writes fail for a while, and then are acknowledged and forgotten. Failed
/// writes are told; reads have what the device has; mended, it is served on, over one connection.
pub(super) fn flaky(context: &Context) -> Result<Verdict, String> {
    let ports = [free_port()?, free_port()?];
    let mut guest = boot(context, ports)?;
    if let Some(skipped) = lacks(&mut guest, "dm-flakey") {
        return Ok(skipped);
    }
    let whole = mapper(&format!("printf '{WHOLE}' | dmsetup create half"));
    guest.must(&whole, SOON)?;
    guest.serve(&serve(context), SOON)?;
    let mut disk = Connection::open(&format!("127.0.0.1:{}", ports[0]), SOON)?;
    let pages = (0..16).map(|n| n * PAGE);
    for offset in pages.clone() {
        expect(&mut disk, request(Opcode::WRITE, offset, PAGE), &contents(offset), 0)?;
    }
    let other = vec![0xee; PAGE];
    for (feature, status) in [("error_writes", MEDIA_ERROR), ("drop_writes", 0)] {
        let table = format!("0 131072 flakey /dev/nvme0n1 0 0 3600 1 {feature}\\n");
        guest.must(&mapper(&swap(&table)), SOON)?;
        for offset in pages.clone() {
            let forced = offset % (2 * PAGE) == 0;
            let write = Request { forced, ..request(Opcode::WRITE, offset, PAGE) };
            expect(&mut disk, write, &other, status)?;
            if disk.read(offset, PAGE)? != contents(offset) {
                return Err(format!("{feature}: {offset} has other data than the device"));
            }
        }
        expect(&mut disk, request(Opcode::FLUSH, 0, 0), &[], status)?;
    }
    guest.must(&mapper(&swap(WHOLE)), SOON)?;
    for offset in pages {
        write_and_read(&mut disk, offset, &other)?;
    }
    guest.stop()?;
    Ok(Verdict::Passed("failed and forgotten writes, over one connection".to_owned()))
}

/// Serves a thin device of 32 MiB whose pool has 8. Writes beyond that are refused for lack of space,
/// what is there is read and written over, and a pool that has grown takes more, over one connection.
pub(super) fn thin(context: &Context) -> Result<Verdict, String> {
    let ports = [free_port()?, free_port()?];
    let mut guest = boot(context, ports)?;
    if let Some(skipped) = lacks(&mut guest, "dm-thin-pool") {
        return Ok(skipped);
    }
    let [before, after] = POOL_BLOCKS.map(|blocks| blocks * (POOL_BLOCK / 512));
    let pool = |sectors: usize| {
        format!(
            "0 {sectors} thin-pool /dev/mapper/meta /dev/mapper/data 128 0 1 error_if_no_space\\n"
        )
    };
    let data = |sectors: usize| format!("0 {sectors} linear /dev/nvme0n1 32768\\n");
    let made = format!(
        "printf '0 8192 linear /dev/nvme0n1 0\\n' | dmsetup create meta\n\
         printf '{}' | dmsetup create data\n\
         printf '{}' | dmsetup create pool\n\
         dmsetup message pool 0 'create_thin 0'\n\
         printf '0 65536 thin /dev/mapper/pool 0\\n' | dmsetup create half",
        data(before),
        pool(before)
    );
    guest.must(&mapper(&made), SOON)?;
    guest.serve(&serve(context), SOON)?;
    let mut disk = Connection::open(&format!("127.0.0.1:{}", ports[0]), SOON)?;
    let write = |disk: &mut Connection, block: usize, status: u16| {
        let offset = block * POOL_BLOCK;
        expect(disk, request(Opcode::WRITE, offset, PAGE), &contents(offset), status)
    };
    for block in 0..POOL_BLOCKS[0] {
        write(&mut disk, block, 0)?;
    }
    for block in POOL_BLOCKS[0]..POOL_BLOCKS[0] + 8 {
        write(&mut disk, block, NO_SPACE)?;
        write(&mut disk, block - POOL_BLOCKS[0], 0)?;
    }
    let grown = format!(
        "dmsetup suspend pool\n\
         printf '{}' | dmsetup load data && dmsetup resume data\n\
         printf '{}' | dmsetup load pool && dmsetup resume pool",
        data(after),
        pool(after)
    );
    guest.must(&mapper(&grown), SOON)?;
    for block in POOL_BLOCKS[0]..POOL_BLOCKS[1] {
        write(&mut disk, block, 0)?;
    }
    for block in 0..POOL_BLOCKS[1] {
        let offset = block * POOL_BLOCK;
        if disk.read(offset, PAGE)? != contents(offset) {
            return Err(format!("{offset}: other data than was written"));
        }
    }
    guest.stop()?;
    Ok(Verdict::Passed("a full pool, and one that has grown, over one connection".to_owned()))
}

/// Loads a module of the device mapper. Returns the verdict of a kernel that does not have it.
fn lacks(guest: &mut Guest, module: &str) -> Option<Verdict> {
    let found = guest.must(&format!("modprobe dm-mod && modprobe {module}"), SOON);
    found.err().map(|_| Verdict::Skipped(format!("the guest's kernel has no {module}")))
}

/// Returns the commands that give the device another table.
fn swap(table: &str) -> String {
    format!("printf '{table}' | dmsetup load half && dmsetup suspend half && dmsetup resume half")
}

/// Sends requests in and out of the range of errors, all in flight together, and checks each reply.
fn beside_errors(disk: &mut Connection, opcode: Opcode) -> Result<(), String> {
    let mut wanted = BTreeMap::new();
    for n in 0..16 {
        let is_bad = n % 4 == 3;
        let offset = if is_bad { BAD } else { 0 } + n * PAGE;
        let payload = if opcode == Opcode::WRITE { contents(offset) } else { Vec::new() };
        let forced = opcode == Opcode::WRITE && n % 8 >= 6;
        let tag = send(disk, Request { forced, ..request(opcode, offset, PAGE) }, &payload)?;
        wanted.insert(tag, (offset, if is_bad { MEDIA_ERROR } else { 0 }));
    }
    while !wanted.is_empty() {
        let reply = disk.receive(SOON).map_err(|error| error.to_string())?;
        let reply = reply.ok_or("a request was not answered")?;
        let (offset, status) = wanted.remove(&reply.tag).ok_or("a reply to nothing")?;
        if reply.status != status {
            return Err(format!("{opcode:?} at {offset}: status {}, not {status}", reply.status));
        }
        if opcode == Opcode::READ && status == 0 && reply.body != contents(offset) {
            return Err(format!("{offset}: other data than was written"));
        }
    }
    Ok(())
}

/// Returns the data of the page at an offset.
fn contents(offset: usize) -> Vec<u8> {
    vec![(offset / PAGE) as u8 ^ 0x5a; PAGE]
}

fn request(opcode: Opcode, offset: usize, bytes: usize) -> Request {
    Request { opcode, offset, bytes, forced: false }
}

fn send(to: &mut Connection, request: Request, payload: &[u8]) -> Result<u64, String> {
    to.send(request, payload).map_err(|error| format!("{request:?}: {error}"))
}

/// Sends a request alone, and checks the status of its reply.
fn expect(to: &mut Connection, what: Request, payload: &[u8], status: u16) -> Result<(), String> {
    let tag = send(to, what, payload)?;
    match to.receive(SOON).map_err(|error| format!("{what:?}: {error}"))? {
        Some(reply) if (reply.tag, reply.status) == (tag, status) => Ok(()),
        Some(reply) => Err(format!("{what:?}: status {}, not {status}", reply.status)),
        None => Err(format!("{what:?}: no answer")),
    }
}

/// Returns a script with commands for the device mapper, in a guest without udev.
fn mapper(script: &str) -> String {
    format!("export DM_DISABLE_UDEV=1\n{script}")
}

/// Returns the script that starts the server.
fn serve(context: &Context) -> String {
    let program = context.nearflash.display();
    format!(
        "cat >/run/server.toml <<END\n\
         [[device]]\nname = \"half\"\nspec = \"file:/dev/mapper/half\"\n\
         [[device]]\nname = \"memory\"\nspec = \"mem:16MiB\"\n\
         [[listen]]\nurl = \"reflex://0.0.0.0:7420\"\n\
         [[listen]]\nurl = \"reflex://0.0.0.0:7421?namespace=2\"\n\
         END\n\
         exec {program} serve --insecure --workers 1 --config /run/server.toml"
    )
}

/// Boots a guest with an NVMe disk of 64 MiB.
fn boot(context: &Context, [disk_port, other_port]: [u16; 2]) -> Result<Guest, String> {
    let image = context.folder.join("disk.image");
    let made = std::fs::File::create(&image).and_then(|file| file.set_len(64 << 20));
    made.map_err(|error| format!("{}: {error}", image.display()))?;
    let disks = vec![Disk { controller: Controller::Nvme, backing: Backing::Image(image) }];
    let (qemu, kernel) = context.tools()?;
    let (share, forwards) = (&context.folder, vec![(disk_port, 7420), (other_port, 7421)]);
    let mut guest = Machine { qemu, kernel, share, disks, forwards }.boot("boot")?;
    guest.must(&await_device("/dev/nvme0n1"), Duration::from_secs(60))?;
    Ok(guest)
}
