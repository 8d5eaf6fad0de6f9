//! A mounted file system through the kernel of this machine: what programs do with files, and the
//! same beside a folder of another file system.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags, RenameFlags};

use super::volume::FileVolume;
use crate::support::{Launch, Rng, V2, pattern};

#[test]
fn programs_use_files_as_ever() {
    let Some(mut volume) = FileVolume::new() else { return };
    volume.mount();
    let at = |name: &str| volume.path(name);
    fs::write(at("file"), "hello, world").unwrap();
    assert_eq!(fs::read_to_string(at("file")).unwrap(), "hello, world");
    fs::rename(at("file"), at("other")).unwrap();
    fs::hard_link(at("other"), at("link")).unwrap();
    assert_eq!(fs::metadata(at("link")).unwrap().nlink(), 2);
    symlink("other", at("symlink")).unwrap();
    assert_eq!(fs::read_link(at("symlink")).unwrap(), Path::new("other"));
    assert_eq!(fs::read(at("symlink")).unwrap(), b"hello, world");
    fs::create_dir_all(at("a/b/c")).unwrap();
    fs::write(at("a/b/c/deep"), [7; 10_000]).unwrap();
    assert!(fs::remove_dir(at("a")).is_err(), "it is not empty");
    fs::set_permissions(at("other"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(at("link")).unwrap().mode(), 0o100_640);
    // By another process: what this one opens is open in each child that another test starts now,
    // and what is open for writing is not run.
    let copied = std::process::Command::new("cp").arg("/bin/echo").arg(at("program")).status();
    assert!(copied.unwrap().success());
    let ran = std::process::Command::new(at("program")).arg("ran").output().unwrap();
    assert_eq!(ran.stdout, b"ran\n", "a program is mapped into memory");
    std::os::unix::fs::chown(at("other"), Some(1000), Some(100)).unwrap();
    assert_eq!(fs::metadata(at("other")).unwrap().uid(), 1000);
    let mut open = OpenOptions::new().read(true).append(true).open(at("other")).unwrap();
    fs::remove_file(at("other")).unwrap();
    fs::remove_file(at("link")).unwrap();
    open.write_all(b"!").unwrap();
    open.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello, world!", "an open file outlives its names");
    drop(open);
    volume.unmount();
    volume.mount_with(&["--read-only"]);
    assert_eq!(fs::read(volume.path("a/b/c/deep")).unwrap(), [7; 10_000]);
    assert!(!volume.path("other").exists());
    let refused = fs::write(volume.path("a/new"), "").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    volume.unmount();
}

#[test]
fn a_folder_lists_two_thousand_files() {
    let Some(mut volume) = FileVolume::new() else { return };
    volume.mount();
    fs::create_dir(volume.path("many")).unwrap();
    // The volume has room for about as many files: each has a place of 4 MiB of its space.
    let name = |n: u32| volume.path("many").join(format!("file-{n}"));
    for n in 0..1_500 {
        fs::write(name(n), n.to_string()).unwrap();
    }
    for n in 0..500 {
        symlink(n.to_string(), name(1_500 + n)).unwrap();
    }
    let listed: Vec<OsString> = fs::read_dir(volume.path("many"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(listed.len(), 2_000);
    for n in (0..1_500).step_by(100) {
        assert_eq!(fs::read_to_string(name(n)).unwrap(), n.to_string());
    }
    fs::remove_dir_all(volume.path("many")).unwrap();
    assert_eq!(fs::read_dir(volume.folder()).unwrap().count(), 0);
    volume.unmount();
}

#[test]
fn holes_sizes_and_direct_writes_are_kept() {
    let Some(mut volume) = FileVolume::new() else { return };
    volume.mount();
    let path = volume.path("file");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(&[1; 100_000], 50_000).unwrap();
    file.set_len(120_000).unwrap();
    file.set_len(200_000).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 200_000);
    assert!(bytes[..50_000].iter().all(|byte| *byte == 0));
    assert!(bytes[50_000..120_000].iter().all(|byte| *byte == 1));
    assert!(bytes[120_000..].iter().all(|byte| *byte == 0), "what was cut off is gone");
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, hole, 60_001, 30_000).unwrap();
    bytes[60_001..90_001].fill(0);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let mut direct = OpenOptions::new();
    let direct = direct.read(true).write(true).custom_flags(OFlags::DIRECT.bits() as i32);
    let direct = direct.open(&path).unwrap();
    let mut memory = vec![9; 3 * 4096];
    let skip = memory.as_ptr().align_offset(4096);
    direct.write_all_at(&memory[skip..skip + 4096], 8192).unwrap();
    bytes[8192..12_288].fill(9);
    assert_eq!(fs::read(&path).unwrap(), bytes, "the kernel keeps no old page");
    direct.read_exact_at(&mut memory[skip..skip + 4096], 49_152).unwrap();
    assert_eq!(memory[skip..skip + 4096], bytes[49_152..53_248]);
    drop((file, direct));
    volume.unmount();
    volume.mount();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    volume.unmount();
}

#[test]
fn a_file_grows_beyond_its_first_place() {
    let Some(mut volume) = FileVolume::new() else { return };
    volume.mount();
    // Neighbours take the space behind each, so that growing moves them.
    let part = |n: u8, round: u8| vec![n * 16 + round; 3 << 20];
    for round in 0..4 {
        for n in 0..4 {
            let path = volume.path(&n.to_string());
            let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
            file.write_all(&part(n, round)).unwrap();
        }
    }
    for n in 0..4 {
        let wanted: Vec<u8> = (0..4).flat_map(|round| part(n, round)).collect();
        assert!(fs::read(volume.path(&n.to_string())).unwrap() == wanted, "file {n}");
    }
    volume.unmount();
}

/// The names of a folder and what they name: the type, and the content.
fn tree(folder: &Path) -> BTreeMap<OsString, (char, Vec<u8>)> {
    let named = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        let found = if kind.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap();
            ('l', target.into_os_string().into_encoded_bytes())
        } else if kind.is_dir() {
            ('d', Vec::new())
        } else {
            ('f', fs::read(entry.path()).unwrap())
        };
        (entry.file_name(), found)
    };
    fs::read_dir(folder).unwrap().map(named).collect()
}

/// Does one thing at random in a folder, and returns how it ended.
fn step(folder: &Path, dice: &mut Rng) -> Result<u64, i32> {
    let name = |dice: &mut Rng| folder.join(format!("name-{}", dice.roll(12)));
    let (one, two) = (name(dice), name(dice));
    let (offset, bytes, fill) = (dice.roll(40_000), dice.roll(20_000), dice.roll(256) as u8);
    let write = OpenOptions::new().write(true).create(true).truncate(false).to_owned();
    let done = match dice.roll(12) {
        0..3 => write
            .open(&one)
            .and_then(|file| file.write_all_at(&vec![fill; bytes as usize], offset))
            .map(|()| bytes),
        3 => write.open(&one).and_then(|file| file.set_len(offset)).map(|()| offset),
        4 => fs::rename(&one, &two).map(|()| 0),
        5 => fs::hard_link(&one, &two).map(|()| 0),
        6 => fs::remove_file(&one).map(|()| 0),
        7 => fs::create_dir(&one).map(|()| 0),
        8 => fs::remove_dir(&one).map(|()| 0),
        9 => symlink(two.file_name().unwrap(), &one).map(|()| 0),
        10 => rustix::fs::renameat_with(
            rustix::fs::CWD,
            &one,
            rustix::fs::CWD,
            &two,
            RenameFlags::EXCHANGE,
        )
        .map(|()| 0)
        .map_err(Into::into),
        _ => fs::metadata(&one).map(|found| if found.is_dir() { 0 } else { found.len() }),
    };
    done.map_err(|error| error.raw_os_error().unwrap_or(-1))
}

#[test]
fn a_folder_is_like_one_of_another_file_system() {
    let Some(mut volume) = FileVolume::new() else { return };
    // Of tmpfs, which can exchange names as well.
    let model = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut ours = Rng::of(0x5eed);
    let mut theirs = Rng::of(0x5eed);
    for round in 0..4 {
        volume.mount();
        for n in 0..500 {
            let (found, wanted) =
                (step(&volume.folder(), &mut ours), step(model.path(), &mut theirs));
            assert_eq!(found, wanted, "round {round}, step {n}");
        }
        assert!(tree(&volume.folder()) == tree(model.path()), "round {round}");
        volume.unmount();
    }
}

/// Writes a file at random through calls of different kinds, beside a model in memory.
fn exercise(file: &File, direct: &File, model: &mut Vec<u8>, dice: &mut Rng) {
    const PAGE: u64 = 4096;
    let mut memory = vec![0; 70 << 10];
    let skip = memory.as_ptr().align_offset(PAGE as usize);
    let (offset, bytes) = (dice.roll(500_000), 1 + dice.roll(60_000));
    let (whole, pages) = (offset / PAGE * PAGE, bytes.next_multiple_of(PAGE));
    let put = |model: &mut Vec<u8>, at: u64, data: &[u8]| {
        let end = at as usize + data.len();
        model.resize(model.len().max(end), 0);
        model[at as usize..end].copy_from_slice(data);
    };
    let fill = dice.roll(256) as u8;
    match dice.roll(8) {
        0 | 1 => {
            let data = vec![fill; bytes as usize];
            file.write_all_at(&data, offset).unwrap();
            put(model, offset, &data);
        }
        2 => {
            let data = &mut memory[skip..skip + pages as usize];
            data.fill(fill);
            direct.write_all_at(data, whole).unwrap();
            put(model, whole, data);
        }
        3 => {
            file.set_len(offset).unwrap();
            model.resize(offset as usize, 0);
        }
        4 => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, flags, offset, bytes).unwrap();
            let end = (offset + bytes).min(model.len() as u64) as usize;
            model[(offset as usize).min(end)..end].fill(0);
        }
        5 => {
            let data = &mut memory[skip..skip + pages as usize];
            let found = direct.read_at(data, whole).unwrap();
            let start = (whole as usize).min(model.len());
            let end = (start + pages as usize).min(model.len());
            assert!(data[..found] == model[start..end], "direct: {whole}+{pages}");
        }
        _ => {
            let mut data = vec![0; bytes as usize];
            let found = file.read_at(&mut data, offset).unwrap();
            let start = (offset as usize).min(model.len());
            let end = (start + bytes as usize).min(model.len());
            assert!(data[..found] == model[start..end], "{offset}+{bytes}");
        }
    }
}

#[test]
fn a_file_is_what_calls_of_all_kinds_made_it() {
    let Some(mut volume) = FileVolume::new() else { return };
    volume.mount();
    let path = volume.path("file");
    let mut open = OpenOptions::new();
    let open = open.read(true).write(true).create(true).truncate(false);
    let (mut model, mut dice) = (Vec::new(), Rng::of(0xf5));
    for round in 0..5 {
        let file = open.open(&path).unwrap();
        let direct = open.clone().custom_flags(OFlags::DIRECT.bits() as i32).open(&path).unwrap();
        for _ in 0..400 {
            exercise(&file, &direct, &mut model, &mut dice);
        }
        drop((file, direct));
        assert!(fs::read(&path).unwrap() == model, "round {round}");
        volume.unmount();
        volume.mount();
        assert!(fs::read(&path).unwrap() == model, "round {round}, mounted again");
    }
    volume.unmount();
}

/// A file is written by programs, then by clients of a server, then read by programs.
#[test]
fn programs_and_clients_of_a_server_have_the_same_file() {
    let Some(mut volume) = FileVolume::new() else { return };
    volume.mount();
    let blocks = 4096;
    let own = pattern(0, blocks, 1);
    fs::create_dir(volume.path("vm")).unwrap();
    fs::write(volume.path("vm/disk"), &own).unwrap();
    fs::write(volume.path("odd"), [1; 1000]).unwrap();
    fs::write(volume.path("empty"), "").unwrap();
    File::open(volume.path("vm/disk")).unwrap().sync_all().unwrap();
    volume.unmount();
    let launch = |file: &str| {
        Launch::config(&format!(
            "[[device]]\nname = \"d\"\nspec = \"{}\"\n\
             [[namespace]]\ndevice = \"d\"\nfile = \"{file}\"\n",
            volume.spec()
        ))
    };
    for (file, advice) in [("/odd", "truncate --size 1024"), ("/empty", "the file is empty")] {
        let (_, said) = launch(file).fail();
        assert!(said.contains(advice), "{file}: {said}");
    }
    let mut server = launch("/vm/disk").start();
    let mut client = V2::connect(server.address());
    assert!(client.read_blocks(0, 1024) == own[..1024 * 512], "what programs wrote");
    let theirs = pattern(77, 100, 2);
    client.write_blocks(77, &theirs, true);
    let said = volume.refused(&["mount", volume.spec(), &volume.folder().display().to_string()]);
    assert!(said.contains("is in use"), "{said}");
    server.terminate();
    assert!(server.wait().success());
    volume.mount();
    let mut expected = own;
    expected[77 * 512..][..theirs.len()].copy_from_slice(&theirs);
    assert!(fs::read(volume.path("vm/disk")).unwrap() == expected, "what clients wrote");
    volume.unmount();
}
