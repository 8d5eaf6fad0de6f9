//! Tests that programs in C and C++ compile without a warning, find their symbols, and work against
//! a server, also under the compiler's sanitizers.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::time::SystemTime;

use tempfile::TempDir;

use crate::server::Server;

/// The library as it is installed: `libnearflash.so.0` and its name for linkers.
static LIBRARY: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let script = home("nearflash.map");
    let shared = folder.path().join("libnearflash.so.0");
    let mut link = Command::new("cc");
    link.args(["-shared", "-o"]).arg(&shared).arg("-Wl,-soname,libnearflash.so.0");
    link.arg(format!("-Wl,--version-script={}", script.display()));
    link.args(["-Wl,--gc-sections", "-Wl,--whole-archive"]).arg(archive());
    link.args(["-Wl,--no-whole-archive", "-lgcc_s", "-lm", "-lpthread", "-ldl"]);
    succeed(&mut link);
    std::os::unix::fs::symlink("libnearflash.so.0", folder.path().join("libnearflash.so")).unwrap();
    folder
});

fn home(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the library's archive, which Cargo has just put beside this program.
fn archive() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let files = std::fs::read_dir(program.parent().unwrap()).unwrap();
    let is_it = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libnearflash_capi") && name.ends_with(".a")
    };
    let made = |path: &PathBuf| {
        path.metadata().and_then(|it| it.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let archives = files.filter_map(|file| Some(file.ok()?.path())).filter(is_it);
    archives.max_by_key(made).expect("the library is built before its tests")
}

fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{out}{err}");
    out.into_owned()
}

/// Compiles a program and returns where it is.
fn compile(source: &str, folder: &TempDir) -> PathBuf {
    compile_with(source, folder, &[])
}

fn compile_with(source: &str, folder: &TempDir, options: &[&str]) -> PathBuf {
    let (compiler, standard) =
        if source.ends_with(".cpp") { ("c++", "-std=c++11") } else { ("cc", "-std=c11") };
    let program = folder.path().join("program");
    let mut compile = Command::new(compiler);
    compile.args(options);
    compile.args([standard, "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]);
    compile.arg(home("include")).arg("-D_POSIX_C_SOURCE=200809L").arg(home(source));
    compile.arg("-o").arg(&program).arg("-L").arg(LIBRARY.path());
    compile.args(["-lnearflash", "-lpthread"]);
    succeed(&mut compile);
    program
}

/// Returns the command that starts a program and lets it find the library.
fn start(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", LIBRARY.path());
    command
}

fn run(source: &str) -> String {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    succeed(start(compile(source, &folder)).arg(server.url()))
}

#[test]
fn the_examples_run() {
    assert!(run("examples/blocking.c").contains("is now ours"));
    assert_eq!(run("examples/queue.c"), "10000 reads of 4 KiB\n");
    assert_eq!(run("examples/volume.cpp"), "4 KiB written and read\n");
}

#[test]
fn every_function_works_and_refuses() {
    assert_eq!(run("tests/c/everything.c"), "everything works\n");
}

#[test]
fn symbols_have_a_version_and_nothing_else_is_seen() {
    let shared = LIBRARY.path().join("libnearflash.so.0");
    let listed = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(&shared));
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let (ours, others): (Vec<&str>, Vec<&str>) =
        names.iter().partition(|name| name.starts_with("nf_"));
    assert!(ours.len() > 20 && ours.iter().all(|name| name.ends_with("@@NEARFLASH_1")), "{ours:?}");
    assert_eq!(others, ["NEARFLASH_1"]);
    let dynamic = succeed(Command::new("readelf").arg("-d").arg(&shared));
    assert!(dynamic.contains("[libnearflash.so.0]"), "{dynamic}");
}

#[test]
fn no_memory_is_used_wrongly() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let sanitized = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let program = compile_with("tests/c/everything.c", &folder, &sanitized);
    let mut checked = start(program);
    // Leaks are looked for by a tracer, which containers forbid.
    checked.env("ASAN_OPTIONS", "detect_leaks=0");
    assert_eq!(succeed(checked.arg(server.url())), "everything works\n");
}
