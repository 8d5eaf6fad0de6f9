//! Tests of `ftl:` devices: acknowledged writes are there after any end of the server. A member
//! that has no volume of this server is refused with advice, and stays unchanged.

use std::fs;
use std::path::PathBuf;

use crate::support::{Answer, Launch, PATIENCE, Rng, Server, V2, complaint, nearflash, pattern};
use crate::support::{NvmeQueue, SUBSYSTEM, faultless, subsystem, verifying, wait_until};
use contract::{Command, Range, Status};
use wire::nvme::{IdentifyCns, IdentifyNamespace};
use zerocopy::FromBytes;

/// Number of blocks of each request, which begins and ends within pages.
const BLOCKS: u32 = 19;

/// Number of places on the volume that the test writes.
const PLACES: u64 = 40;

/// The member of an `ftl:` device: a file in a folder of its own.
struct Member {
    folder: tempfile::TempDir,
}

impl Member {
    /// Creates a member with a volume on it.
    fn new() -> Member {
        let member = Member { folder: tempfile::tempdir().unwrap() };
        let said = member.ftl("create", "?size=64MiB&ftl.segment=256KiB").unwrap();
        assert!(said.contains("streams: 3"), "{said}");
        member
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("flash")
    }

    fn spec(&self) -> String {
        format!("ftl:file:{}", self.path().display())
    }

    fn start(&self) -> Server {
        Launch::device(&self.spec()).start()
    }

    /// Runs `nearflash ftl` with this command. Returns its output, or its error message.
    fn ftl(&self, command: &str, options: &str) -> Result<String, String> {
        let spec = format!("{}{options}", self.spec());
        let words: Vec<&str> = ["ftl"].into_iter().chain(command.split(' ')).collect();
        let ran = nearflash(&words).arg(spec).output().unwrap();
        match ran.status.success() {
            true => Ok(String::from_utf8(ran.stdout).unwrap()),
            false => Err(complaint(&ran)),
        }
    }

    /// Starts a server on the volume that must fail, and returns its message.
    fn refused(&self) -> String {
        let (code, said) = Launch::device(&self.spec()).fail();
        assert_eq!(code, 1, "{said}");
        said
    }
}

/// The versions that a test has written: for each place, the last acknowledged one and the last
/// sent one.
struct Ledger([(u8, u8); PLACES as usize]);

impl Ledger {
    fn lba(place: u64) -> u64 {
        3 + place * 37
    }

    /// Writes `count` times at random places, and ends with writes in flight.
    fn write(&mut self, server: &Server, dice: &mut Rng, count: u32) {
        let mut client = V2::connect(server.address());
        let mut ahead = 0;
        for _ in 0..count {
            let place = dice.roll(PLACES);
            let (acked, sent) = &mut self.0[place as usize];
            if *acked != *sent {
                continue;
            }
            *sent += 1;
            let lba = Ledger::lba(place);
            let range = Range::new(lba, BLOCKS);
            let command = Command::Write { range, fua: dice.roll(8) == 0 };
            client.send(place, command, &pattern(lba, BLOCKS, *sent));
            ahead += 1;
            if ahead == 8 {
                self.take(&mut client);
                ahead -= 1;
            }
        }
    }

    fn take(&mut self, client: &mut V2) {
        match client.answer() {
            Answer::Done { tag, status: Status::Ok, .. } => {
                let (acked, sent) = &mut self.0[tag as usize];
                *acked = *sent;
            }
            other => panic!("a write was answered by {other:?}"),
        }
    }

    /// Reads all places, and checks that each block has the last acknowledged version or the last
    /// sent one. Then writes a further version to each place.
    fn check(&mut self, server: &Server) {
        let mut client = V2::connect(server.address());
        for place in 0..PLACES {
            let (acked, sent) = self.0[place as usize];
            let lba = Ledger::lba(place);
            let found = client.read_blocks(lba, BLOCKS);
            // Pages of an unacknowledged write may each be old or new.
            for (block, at) in found.chunks(512).zip(lba..) {
                let is = |version| block == expected(at, version);
                assert!(is(acked) || is(sent), "block {at}: expected {acked} or {sent}");
            }
            // From here on one version counts.
            let version = sent.wrapping_add(1);
            client.write_blocks(lba, &pattern(lba, BLOCKS, version), false);
            self.0[place as usize] = (version, version);
        }
    }
}

/// Returns the contents of a block in a version; version 0 is zeroes.
fn expected(lba: u64, version: u8) -> Vec<u8> {
    if version == 0 { vec![0; 512] } else { pattern(lba, 1, version) }
}

#[test]
fn what_was_acknowledged_survives_kills_and_stops() {
    let member = Member::new();
    let mut ledger = Ledger([(0, 0); PLACES as usize]);
    let mut dice = Rng::of(17);
    for round in 0..4 {
        let mut server = member.start();
        ledger.check(&server);
        ledger.write(&server, &mut dice, 300);
        if round % 2 == 0 {
            server.kill();
            let said = member.ftl("show", "").unwrap();
            assert!(said.contains("stopped: not in order"), "{said}");
        } else {
            server.terminate();
            assert!(server.wait().success());
            let said = member.ftl("show", "").unwrap();
            assert!(said.contains("stopped: in order"), "{said}");
        }
        let said = member.ftl("check", "").unwrap();
        assert!(said.contains("pages damaged: 0"), "{said}");
    }
    ledger.check(&member.start());
}

#[test]
fn a_load_that_overwrites_the_volume_many_times_is_verified() {
    let server = Launch::device("ftl:mem:32MiB?ftl.spare=20%").start();
    let url = format!("reflex://{}", server.address());
    let load = verifying(&url, "--connections 2 --queue-depth 16 --block-size 4096");
    let mut client = V2::connect(server.address());
    let (status, _) = client.call(Command::Discard(Range::new(1, 3)), &[]);
    assert_eq!(status, Status::Ok);
    std::thread::sleep(std::time::Duration::from_secs(4));
    faultless(load);
    assert_eq!(client.call(Command::Flush, &[]).0, Status::Ok);
}

#[test]
fn hosts_are_told_how_large_a_write_stays_whole() {
    let told = |device: &str| {
        let another = format!("{SUBSYSTEM}-2");
        let text = format!(
            "[[device]]\nname = \"d\"\nspec = \"{device}\"\n\
             [[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n{}{}",
            subsystem(),
            subsystem().replace(SUBSYSTEM, &another)
        );
        let server = Launch::config(&text).start();
        let by = |subsystem: &str| {
            let mut host = NvmeQueue::admin(server.listener(0), 1, subsystem).unwrap();
            let data = host.identify(IdentifyCns::NAMESPACE, 1).unwrap();
            let (namespace, _) = IdentifyNamespace::read_from_prefix(&data).unwrap();
            assert_eq!(namespace.features & 1 << 1, 1 << 1, "the namespace has units of its own");
            let boundaries = (namespace.atomic_boundary, namespace.atomic_boundary_power_fail);
            assert_eq!((boundaries.0.get(), boundaries.1.get()), (0, 0));
            let controller = host.identify(IdentifyCns::CONTROLLER, 0).unwrap();
            assert_eq!(controller[526..530], [0; 4], "AWUN and AWUPF hold for all namespaces");
            (namespace.atomic_blocks.get(), namespace.atomic_blocks_power_fail.get())
        };
        let told = by(SUBSYSTEM);
        assert_eq!(by(&another), told, "the namespace is the same in every subsystem");
        told
    };
    // Zero-based: 255 pages and a block, wherever they begin.
    assert_eq!(told("ftl:mem:1GiB"), (255 * 8, 255 * 8));
    // A batch of a segment of 64 pages has 62.
    assert_eq!(told("ftl:mem:64MiB?ftl.segment=256KiB"), (61 * 8, 61 * 8));
    assert_eq!(told("mem:64MiB"), (0, 0));
}

/// Checks that a promise with writes includes the garbage collection that the writes may cause.
#[test]
fn promises_that_do_not_fit_beside_the_collection_are_refused() {
    let config = |device: &str| {
        format!(
            "[[device]]\nname = \"flash\"\nspec = \"{device}\"\nmodel = \"a\"\n\
             [[tenant]]\nname = \"gold\"\nlatency_us = 2000\niops = 20000\nread_percent = 50\n\
             [[access]]\nfrom = \"anyone\"\ntenant = \"gold\"\nrights = \"read-write\"\n"
        )
    };
    drop(Launch::config(&config("mem:32MiB")).start());
    drop(Launch::config(&config("ftl:mem:64MiB?ftl.spare=200%")).start());
    let (_, said) = Launch::config(&config("ftl:mem:32MiB?ftl.spare=20%")).fail();
    assert!(said.contains("collection") && said.contains("spare space"), "{said}");
}

#[test]
fn a_member_that_holds_no_volume_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let member = Member { folder };
    assert!(member.refused().contains("nearflash ftl create"), "it is missing");
    assert!(!member.path().exists(), "serving makes nothing");
    fs::write(member.path(), vec![7; 64 << 20]).unwrap();
    assert!(member.refused().contains("holds no volume of flash translation"));
    let said = member.ftl("create", "").unwrap_err();
    assert!(said.contains("holds other data") && said.contains("--overwrite"), "{said}");
    assert!(fs::read(member.path()).unwrap().iter().all(|byte| *byte == 7), "it was overwritten");
    member.ftl("create --overwrite", "").unwrap();
    let said = member.ftl("create", "").unwrap_err();
    assert!(said.contains("already"), "{said}");
    let said = member.ftl("create", "?ftl.spare=1%").unwrap_err();
    assert!(said.contains("from 2% to 400%"), "{said}");
    drop(member.start());
}

#[test]
fn a_volume_that_this_server_cannot_serve_is_left_as_it_is() {
    let member = Member::new();
    let good = fs::read(member.path()).unwrap();
    let wishes = Launch::device(&format!("{}?ftl.spare=50%", member.spec())).fail().1;
    assert!(wishes.contains("leave `ftl.spare` out"), "{wishes}");
    let (_, workers) = Launch::device(&member.spec()).with("--workers").with("2").fail();
    assert!(workers.contains("--workers 1"), "{workers}");
    // The version lies behind the magic; the checksum of a foreign one is sound.
    let spoil = |change: &dyn Fn(&mut Vec<u8>), words: &str| {
        let mut spoilt = good.clone();
        change(&mut spoilt);
        fs::write(member.path(), &spoilt).unwrap();
        let said = member.refused();
        assert!(said.contains(words), "{said}");
        assert!(fs::read(member.path()).unwrap() == spoilt, "{words}: it was changed");
    };
    spoil(&|bytes| bytes.truncate(48 << 20), "give it its old size back");
    spoil(
        &|bytes| {
            bytes[100] ^= 1;
            bytes[4096 + 100] ^= 1;
        },
        "both copies of the superblock",
    );
    spoil(&|bytes| bytes[2 * 4096..64 * 4096].fill(0), "of the checkpoint is damaged");
    // One damaged copy does no harm.
    let mut spoilt = good.clone();
    spoilt[100] ^= 1;
    fs::write(member.path(), &spoilt).unwrap();
    assert!(member.ftl("show", "").unwrap().contains("damaged copies of the superblock: 1"));
    let mut server = member.start();
    assert!(member.refused().contains("in use"), "two servers");
    V2::connect(server.address()).write_blocks(0, &pattern(0, 8, 1), true);
    server.terminate();
    assert!(server.wait().success());
    assert!(member.ftl("show", "").unwrap().contains("damaged copies of the superblock: 0"));
}

#[test]
fn a_take_over_of_memory_is_refused_before_anything_moves() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin");
    let device = || Launch::device("ftl:mem:32MiB?ftl.spare=20%");
    let launch = || device().with("--admin").with(socket.to_str().unwrap());
    let server = launch().start();
    let mut client = V2::connect(server.address());
    client.write_blocks(1, &pattern(1, 30, 3), false);
    let (code, said) = launch().with("--upgrade").fail();
    assert!(code == 1 && said.contains("restart it instead"), "{said}");
    assert!(client.read_blocks(1, 30) == pattern(1, 30, 3));
    wait_until("the old server goes on", PATIENCE, || {
        V2::connect(server.address()).read_blocks(1, 30) == pattern(1, 30, 3)
    });
}
