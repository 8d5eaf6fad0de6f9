//! Tests of what a namespace leaves behind, and of the UUID that an operator gives it.

use std::os::unix::fs::MetadataExt;

use crate::support::{NvmeQueue, Operator, SUBSYSTEM, ServerFolder, subsystem};

const MIB: u64 = 1 << 20;

/// The bytes that the file system has given to a file.
fn allocated(place: &ServerFolder, name: &str) -> u64 {
    std::fs::metadata(place.path(name)).unwrap().blocks() * 512
}

#[test]
fn the_space_of_a_removed_namespace_goes_back_to_the_file_if_that_is_said() {
    let place = ServerFolder::in_memory();
    place.configure_disk(&subsystem());
    let mut server = place.configured().start();
    let at = server.listener(0);
    for (name, size) in [("kept", "1MiB"), ("more", "16MiB")] {
        place.told(&["namespace", "add", name, size]);
    }
    let mut host = NvmeQueue::admin(at, 1, SUBSYSTEM).unwrap();
    let (kept, more) = (2, 3);
    assert_eq!((host.blocks(kept), host.blocks(more)), (Ok(MIB / 512), Ok(16 * MIB / 512)));
    let mut io = host.io(at, 1, SUBSYSTEM);
    io.write(kept, MIB / 512 - 1, &[1; 512]).unwrap();
    let before = allocated(&place, "disk");
    for lba in (0..16 * MIB / 512).step_by(128) {
        io.write(more, lba, &[7; 512]).unwrap();
    }
    let full = allocated(&place, "disk");
    assert!(full >= before + MIB, "{before} and {full} bytes");
    place.told(&["namespace", "rm", "more"]);
    assert_eq!(allocated(&place, "disk"), full, "nobody said that it goes");
    place.told(&["namespace", "add", "more", "16MiB"]);
    for lba in (0..16 * MIB / 512).step_by(128) {
        io.write(more + 1, lba, &[7; 512]).unwrap();
    }
    assert_eq!(allocated(&place, "disk"), full);
    place.told(&["namespace", "rm", "more", "--discard"]);
    assert_eq!(allocated(&place, "disk"), before);
    assert_eq!(io.read(kept, MIB / 512 - 1), Ok(vec![1; 512]), "others keep their data");
    server.kill();
    let _server = place.configured().start();
    assert!(!place.told(&["namespace", "list"]).contains("more"), "the removal is kept");
}

#[test]
fn space_that_another_has_too_or_that_nobody_can_give_back_stays() {
    let place = ServerFolder::in_memory();
    let of = |name: &str, device: &str, range: &str| {
        format!("[[namespace]]\nname = \"{name}\"\ndevice = \"{device}\"\n{range}")
    };
    place.configure_disk(
        &[
            "[[device]]\nname = \"sim\"\nspec = \"sim:a?size=16MiB\"\n",
            "[[device]]\nname = \"memory\"\nspec = \"mem:16MiB\"\n",
            &of("whole", "disk", "size = \"16MiB\"\n"),
            &of("part", "disk", "offset = \"8MiB\"\nsize = \"1MiB\"\n"),
            &of("simulated", "sim", ""),
            &of("volatile", "memory", ""),
        ]
        .concat(),
    );
    let _server = place.configured().start();
    for (name, why) in [("whole", "\"part\""), ("part", "\"whole\""), ("simulated", "no space")] {
        let said = place.refused(&["namespace", "rm", name, "--discard", "--force"]);
        assert!(said.contains(why), "{name}: {said}");
        assert!(place.told(&["namespace", "list"]).contains(name), "a refusal removes nothing");
    }
    place.told(&["namespace", "rm", "volatile", "--discard"]);
    place.told(&["namespace", "rm", "part"]);
    place.told(&["namespace", "rm", "whole", "--discard", "--force"]);
    assert_eq!(allocated(&place, "disk"), 0);
}

#[test]
fn hosts_know_a_namespace_by_the_uuid_that_an_operator_gives() {
    const TEXT: &str = "6f2b1a4e-0c6d-4c58-9a51-1d6f8f1f0c11";
    let place = ServerFolder::new();
    place.configure_disk(&subsystem());
    let mut server = place.configured().start();
    for (text, why) in [("12", "32 hexadecimal"), ("00000000000000000000000000000000", "zero")] {
        let said = place.refused(&["namespace", "add", "more", "1MiB", "--uuid", text]);
        assert!(said.contains(why), "{said}");
    }
    place.told(&["namespace", "add", "more", "1MiB", "--uuid", &TEXT.replace('-', "")]);
    assert!(place.told(&["namespace", "show", "more"]).contains(TEXT));
    let seen = |at| NvmeQueue::admin(at, 1, SUBSYSTEM).unwrap().uuid(2);
    let bytes = u128::from_str_radix(&TEXT.replace('-', ""), 16).unwrap().to_be_bytes();
    assert_eq!(seen(server.listener(0)), bytes);
    let derived = NvmeQueue::admin(server.listener(0), 1, SUBSYSTEM).unwrap().uuid(1);
    let derived: String = derived.iter().map(|byte| format!("{byte:02x}")).collect();
    for taken in [TEXT, &derived] {
        let said = place.refused(&["namespace", "add", "again", "1MiB", "--uuid", taken]);
        assert!(said.contains("that of another namespace"), "{said}");
    }
    server.kill();
    let server = place.configured().start();
    assert_eq!(seen(server.listener(0)), bytes, "it is kept over a restart");
}
