//! Files of a file system as namespaces: what clients write is in the file, and nowhere else. What
//! cannot be a namespace is refused with advice.

use contract::{Command, Range, Status};
use control::admin::{NamespacePatch, Namespaces, NewNamespace};

use crate::support::{
    Launch, PATIENCE, Server, ServerFolder, V2, complaint, nearflash, pattern, wait_until,
};

/// The namespace of the file in the configurations below, and that of the range beside it.
const FILE: u16 = 1;
const BESIDE: u16 = 2;

/// A volume with a file system.
struct Files {
    _folder: tempfile::TempDir,
    spec: String,
}

impl Files {
    fn new() -> Files {
        let folder = tempfile::tempdir().unwrap();
        let spec = format!("ftl:file:{}", folder.path().join("files").display());
        let files = Files { _folder: folder, spec };
        ran(&["ftl", "create", &format!("{}?size=256MiB", files.spec)]).unwrap();
        files.fs("create", &[]).unwrap();
        files
    }

    /// Runs `nearflash fs` on the volume. Returns its output, or its complaint.
    fn fs(&self, command: &str, more: &[&str]) -> Result<String, String> {
        ran(&[&["fs", command, &self.spec], more].concat())
    }

    /// Returns a line of `nearflash fs list`: the size and the first byte of a file.
    fn listed(&self, path: &str) -> (u64, u64) {
        let all = self.fs("list", &[]).unwrap();
        let line = all.lines().find(|line| line.ends_with(&format!("\t{path}")));
        let line = line.unwrap_or_else(|| panic!("no {path} in {all}"));
        let fields: Vec<&str> = line.split('\t').collect();
        (fields[0].parse().unwrap(), fields[1].parse().unwrap())
    }

    /// Returns the configuration of a namespace with these keys, and of what `more` says.
    fn config(&self, keys: &str, more: &str) -> String {
        let (spec, device) = (&self.spec, "device = \"d\"");
        format!(
            "[[device]]\nname = \"d\"\nspec = \"{spec}\"\n[[namespace]]\n{device}\n{keys}\n{more}"
        )
    }

    /// Launches a server of the device, whose spec has these options too.
    fn launch_all(&self, options: &str, more: &str) -> Launch {
        Launch::config(&format!(
            "[[device]]\nname = \"d\"\nspec = \"{}{options}\"\n{more}",
            self.spec
        ))
    }

    fn launch(&self, keys: &str, more: &str) -> Launch {
        Launch::config(&self.config(keys, more))
    }

    fn refused(&self, keys: &str, more: &str) -> String {
        let (code, said) = self.launch(keys, more).fail();
        assert_eq!(code, 1, "{said}");
        said
    }
}

/// Runs `nearflash` with these words. Returns its output, or its complaint.
fn ran(words: &[&str]) -> Result<String, String> {
    let ran = nearflash(words).output().unwrap();
    match ran.status.success() {
        true => Ok(String::from_utf8(ran.stdout).unwrap()),
        false => Err(complaint(&ran)),
    }
}

fn stop(mut server: Server) {
    server.terminate();
    assert!(server.wait().success());
}

#[test]
fn a_tenant_writes_a_file_and_nothing_beside_it() {
    let files = Files::new();
    for (path, size) in [("/vm/before.img", "4MiB"), ("/vm/disk.img", "6MiB"), ("/next", "4MiB")] {
        files.fs("allocate", &[path, size]).unwrap();
    }
    let (bytes, at) = files.listed("/vm/disk.img");
    assert_eq!(bytes, 6 << 20);
    let blocks = bytes / 512;
    let tenant = "[[tenant]]\nname = \"guest\"\nweight = 1\n[[access]]\nfrom = \"anyone\"\n\
                  tenant = \"guest\"\nnamespaces = [1]\nrights = \"read-write\"\n";
    let server = files.launch("file = \"/vm/disk.img\"", tenant).start();
    let mut client = V2::connect(server.address());
    assert_eq!(client.info(FILE).unwrap().blocks, blocks);
    assert!(client.read_blocks(blocks - 8, 8).iter().all(|byte| *byte == 0), "never written");
    for (lba, count) in [(0, 3), (1000, 32), (blocks - 1, 1)] {
        client.write_blocks(lba, &pattern(lba, count, 9), true);
    }
    let (status, _) = client.call(Command::Read(Range::new(blocks, 1)), &[]);
    assert_ne!(status, Status::Ok, "the namespace ends where the file ends");
    let said = files.fs("list", &[]).unwrap_err();
    assert!(said.contains("is in use"), "{said}");
    stop(server);
    assert!(files.fs("check", &[]).unwrap().contains("faults: 0"));
    assert_eq!(files.listed("/vm/disk.img"), (bytes, at), "it has not moved");
    let all = "[[namespace]]\ndevice = \"d\"\nread_only = true\n";
    let server = files.launch("file = \"/vm/disk.img\"", all).start();
    let mut client = V2::connect(server.address());
    let mut read = |namespace, lba, count| {
        let (status, data) = client.call_in(namespace, Command::Read(Range::new(lba, count)), &[]);
        assert_eq!(status, Status::Ok, "block {lba}");
        data
    };
    for (lba, count) in [(0, 3), (1000, 32), (blocks - 1, 1)] {
        assert_eq!(read(FILE, lba, count), pattern(lba, count, 9), "block {lba}");
        assert_eq!(read(BESIDE, at / 512 + lba, count), pattern(lba, count, 9), "block {lba}");
    }
    for beside in [at / 512 - 8, at / 512 + blocks] {
        assert!(read(BESIDE, beside, 8).iter().all(|byte| *byte == 0), "block {beside} is written");
    }
    stop(server);
}

#[test]
fn what_cannot_be_a_namespace_is_refused_with_advice() {
    let files = Files::new();
    files.fs("allocate", &["/vm/disk.img", "1MiB"]).unwrap();
    files.fs("allocate", &["/odd", "1024B"]).unwrap();
    for (path, advice) in [
        ("vm/disk.img", "from the root"),
        ("/vm/../vm/disk.img", "from the root"),
        ("/vm/other.img", "there is no /vm/other.img"),
        ("/none/disk.img", "there is no /none;"),
        ("/vm", "is a directory"),
        ("/odd/disk.img", "/odd is no directory"),
    ] {
        let said = files.refused(&format!("file = \"{path}\""), "");
        assert!(said.contains(advice), "{path}: {said}");
    }
    let file = "file = \"/vm/disk.img\"";
    let said = files.refused(&format!("{file}\nsize = \"1MiB\""), "");
    assert!(said.contains("leave `size` out"), "{said}");
    let said = files.refused(file, "[[namespace]]\ndevice = \"d\"\nsize = \"1MiB\"\n");
    assert!(said.contains("could overwrite"), "{said}");
    let said = files.fs("allocate", &["/vm/disk.img", "1MiB"]).unwrap_err();
    assert!(said.contains("already"), "{said}");
    files.fs("allocate", &["/a", "512B"]).unwrap();
    let all = files.fs("list", &[]).unwrap();
    let paths: Vec<_> = all.lines().filter_map(|line| line.rsplit('\t').next()).collect();
    assert_eq!(paths, ["/a", "/odd", "/vm/disk.img"]);
    let said = files.fs("allocate", &["/vm/large.img", "1TiB"]).unwrap_err();
    assert!(said.contains("no place"), "{said}");
    let said = files.fs("allocate", &["large.img", "1MiB"]).unwrap_err();
    assert!(said.contains("from the root"), "{said}");
    assert!(!files.fs("list", &[]).unwrap().contains("large"), "nothing of it is left");
    let memory = "[[device]]\nname = \"d\"\nspec = \"mem:16MiB\"\n[[namespace]]\ndevice = \"d\"\n";
    let (_, said) = Launch::config(&format!("{memory}{file}\n")).fail();
    assert!(said.contains("name an `ftl:` device"), "{said}");
    let flash = memory.replace("mem:16MiB", "ftl:mem:64MiB");
    let (_, said) = Launch::config(&format!("{flash}{file}\n")).fail();
    assert!(said.contains("nearflash fs create"), "{said}");
    stop(files.launch(file, "").start());
}

#[test]
fn what_is_changed_live_stays_a_file_and_further_files_come_by_a_reload() {
    let files = Files::new();
    for path in ["/one", "/two"] {
        files.fs("allocate", &[path, "1MiB"]).unwrap();
    }
    let place = ServerFolder::new();
    let configure = |more: &str| {
        let listen = "[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n";
        let one = "name = \"one\"\nfile = \"/one\"";
        place.write_configuration(&files.config(one, &format!("{listen}{more}")));
    };
    let second = |file: &str| {
        configure(&format!("[[namespace]]\nname = \"two\"\ndevice = \"d\"\nfile = \"{file}\"\n"));
    };
    configure("");
    let (server, mut client) = (place.configured().start(), place.client());
    let larger = NamespacePatch { bytes: Some(2 << 20), ..NamespacePatch::default() };
    let said = client.send_to("one", &larger).unwrap_err().to_string();
    assert!(said.contains("the file /one") && said.contains("truncate"), "{said}");
    let range = NewNamespace {
        name: "range".to_owned(),
        bytes: 1 << 20,
        device: Some("d".to_owned()),
        read_only: false,
        uuid: None,
        subsystems: None,
    };
    let said = client.send(&range).unwrap_err().to_string();
    assert!(said.contains("could overwrite"), "{said}");
    let renamed = NamespacePatch { name: Some("first".to_owned()), ..NamespacePatch::default() };
    client.send_to("one", &renamed).unwrap();
    second("/three");
    server.hang_up();
    server.await_log("there is no /three");
    second("/two");
    server.hang_up();
    let is_there = || place.client().read::<Namespaces>().unwrap().namespaces.len() == 2;
    wait_until("the second file", PATIENCE, is_there);
    stop(server);
    let places = [files.listed("/one"), files.listed("/two")];
    let server = place.configured().start();
    let told = place.client().read::<Namespaces>().unwrap().namespaces;
    let told: Vec<_> = told.iter().map(|one| (&*one.name, (one.bytes, one.offset))).collect();
    assert_eq!(told, [("first", places[0]), ("two", places[1])]);
    stop(server);
}

/// The steps of an operator who stops exporting: the namespace of the file goes, and with it all
/// namespaces of the configuration, so that the whole volume would take its number.
#[test]
fn a_volume_of_files_is_not_exported_for_writing_unless_that_is_said() {
    let files = Files::new();
    files.fs("allocate", &["/disk.img", "1MiB"]).unwrap();
    stop(files.launch("file = \"/disk.img\"", "").start());
    let range = "[[namespace]]\ndevice = \"d\"\nsize = \"1MiB\"\n";
    for more in ["", range] {
        let (code, said) = files.launch_all("", more).fail();
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("has a file system") && said.contains("ftl.files=ignore"), "{said}");
    }
    stop(files.launch_all("", &format!("{range}read_only = true\n")).start());
    let (_, said) = Launch::device(&files.spec).fail();
    assert!(said.contains("has a file system"), "{said}");
    let server = files.launch_all("?ftl.files=ignore", "").start();
    V2::connect(server.address()).write_blocks(0, &pattern(0, 32, 9), true);
    stop(server);
    let said = files.fs("check", &[]).unwrap_err();
    assert!(said.contains("has no file system"), "{said}");
    stop(files.launch_all("", "").start());
}

/// The configuration says which file a namespace is, also if another namespace of its device was
/// changed while the server ran.
#[test]
fn a_live_change_does_not_keep_the_paths_of_other_namespaces() {
    let files = Files::new();
    for path in ["/one", "/two", "/three"] {
        files.fs("allocate", &[path, "1MiB"]).unwrap();
    }
    let place = ServerFolder::new();
    let configure = |two: &str| {
        let listen = "[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n";
        let two =
            format!("{listen}[[namespace]]\nname = \"two\"\ndevice = \"d\"\nfile = \"{two}\"\n");
        place.write_configuration(&files.config("name = \"one\"\nfile = \"/one\"", &two));
    };
    configure("/two");
    let (server, mut client) = (place.configured().start(), place.client());
    let renamed = NamespacePatch { name: Some("first".to_owned()), ..NamespacePatch::default() };
    client.send_to("one", &renamed).unwrap();
    stop(server);
    configure("/three");
    let places = [files.listed("/one").1, files.listed("/three").1];
    let server = place.configured().start();
    let told = place.client().read::<Namespaces>().unwrap().namespaces;
    let told: Vec<_> = told.iter().map(|one| (&*one.name, one.offset)).collect();
    assert_eq!(told, [("first", places[0]), ("two", places[1])]);
    stop(server);
}
