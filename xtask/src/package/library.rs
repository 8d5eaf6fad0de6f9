//! The Debian packages of the C library: `libnearflash0` for programs that use it, and
//! `libnearflash-dev` for compiling them.
//!
//! Cargo makes an archive. The shared library is linked from it, with symbol versions
//! (`docs/adr/0030-c-library.md`). Deliberately not here: the library in the portable archive,
//! since a shared library depends on one C library.

use std::env::consts::ARCH;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::debian::{self, Control, NamedPackage};
use super::files::{LIMIT, checked, create_above, install, say};
use super::manual;
use xtask::shell;

/// The folder of the C library's sources, from the root of the repository.
const HOME: &str = "crates/capi";

/// The name by which programs load the library.
const SONAME: &str = "libnearflash.so.0";

/// The names of the two packages: for programs that use the library, and for compiling them.
pub(super) const RUNTIME: &str = "libnearflash0";
pub(super) const DEVELOPMENT: &str = "libnearflash-dev";

/// The examples of the library, which its package for developers contains as documents.
const EXAMPLES: [&str; 3] = ["blocking.c", "queue.c", "volume.cpp"];

/// The linker options for the system libraries that the shared library needs, as in `nearflash.pc`.
const PRIVATE: [&str; 4] = ["-lgcc_s", "-lm", "-lpthread", "-ldl"];

/// The script that tries the packages on a copy of a machine.
const TRIAL: &str = include_str!("debian/library.sh");

/// Returns the folder of this architecture's libraries, without the slash at its beginning.
fn libraries() -> String {
    format!("usr/lib/{ARCH}-linux-gnu")
}

/// Returns the folder in which the files of the package `package` are laid out, below `out`.
fn tree(out: &Path, package: &str) -> PathBuf {
    out.join("library").join(package)
}

/// Makes both packages of the library from its archive, in the folder `out`. Returns their paths.
pub(super) fn build(
    out: &Path,
    archive: &Path,
    version: &str,
    compression: &str,
) -> Result<Vec<PathBuf>, String> {
    let shared = lay_out_runtime(out, archive, version)?;
    lay_out_development(out, archive, version)?;
    let runtime = Control {
        name: RUNTIME,
        version,
        fields: format!(
            "Section: libs\nMulti-Arch: same\nDepends: {}\n\
             Description: remote flash at close to local speed (shared library)\n \
             A queue that keeps many requests in flight, and a client with calls that block,\n \
             for volumes of nearflash servers.\n",
            depends(&shared)?
        ),
        files: vec![
            ("shlibs", format!("libnearflash 0 {RUNTIME} (>= {version})\n"), 0o644),
            ("triggers", "activate-noawait ldconfig\n".to_owned(), 0o644),
        ],
    };
    let development = Control {
        name: DEVELOPMENT,
        version,
        fields: format!(
            "Section: libdevel\nMulti-Arch: same\nDepends: {RUNTIME} (= {version})\n\
             Description: remote flash at close to local speed (development files)\n \
             Header, archive, manual page and examples of the library for C and C++.\n"
        ),
        files: Vec::new(),
    };
    let pack =
        |control: &Control| debian::pack(out, &tree(out, control.name), control, compression);
    Ok(vec![pack(&runtime)?, pack(&development)?])
}

/// Puts the files of `libnearflash0` into their places, and returns the path of the shared library.
fn lay_out_runtime(out: &Path, archive: &Path, version: &str) -> Result<PathBuf, String> {
    let tree = tree(out, RUNTIME);
    let shared = tree.join(libraries()).join(format!("libnearflash.so.{version}"));
    create_above(&shared)?;
    let mut link = Command::new("cc");
    link.args(["-shared", "-o"]).arg(&shared).arg(format!("-Wl,-soname,{SONAME}"));
    let map = shell::root().join(HOME).join("nearflash.map");
    link.arg(format!("-Wl,--version-script={}", map.display()));
    link.args(["-Wl,--gc-sections", "-Wl,-z,defs,-z,relro,-z,now", "-Wl,--whole-archive"]);
    link.arg(archive).arg("-Wl,--no-whole-archive").args(PRIVATE);
    checked(&mut link)?;
    checked(Command::new("strip").arg("--strip-unneeded").arg(&shared))?;
    // Libraries are not executed.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(&shared, mode).map_err(|e| say(&shared, e))?;
    let place = shared.with_file_name(SONAME);
    symlink(format!("libnearflash.so.{version}"), &place).map_err(|e| say(&place, e))?;
    documents(&tree, RUNTIME)?;
    Ok(shared)
}

/// Puts the files of `libnearflash-dev` into their places.
fn lay_out_development(out: &Path, archive: &Path, version: &str) -> Result<(), String> {
    let (home, tree) = (shell::root().join(HOME), tree(out, DEVELOPMENT));
    let (libraries, header) = (libraries(), home.join("include/nearflash.h"));
    install(&header, &tree.join("usr/include/nearflash.h"), 0o644)?;
    let place = tree.join(&libraries).join("libnearflash.a");
    install(archive, &place, 0o644)?;
    checked(Command::new("strip").arg("--strip-debug").arg(&place))?;
    let link = place.with_file_name("libnearflash.so");
    symlink(SONAME, &link).map_err(|e| say(&link, e))?;
    let description = read(&home.join("nearflash.pc"))?;
    if !description.contains(&format!("Version: {version}\n")) {
        return Err(format!("nearflash.pc has another version than {version}"));
    }
    let libdir = libraries.replace("usr/", "libdir=${prefix}/");
    let description = description.replace("libdir=${prefix}/lib\n", &format!("{libdir}\n"));
    write(&tree.join(&libraries).join("pkgconfig/nearflash.pc"), &description)?;
    let manuals = tree.join("usr/share/man/man3");
    let (page, names) = manual::page(&read(&header)?, version)?;
    write(&manuals.join("nearflash.3"), &page)?;
    for name in names {
        write(&manuals.join(format!("{name}.3")), ".so man3/nearflash.3\n")?;
    }
    for example in EXAMPLES {
        let to = tree.join("usr/share/doc").join(DEVELOPMENT).join("examples").join(example);
        install(&home.join("examples").join(example), &to, 0o644)?;
    }
    documents(&tree, DEVELOPMENT)
}

/// Puts the documents that both packages have into their places in `tree`.
fn documents(tree: &Path, package: &str) -> Result<(), String> {
    let (root, folder) = (shell::root(), tree.join("usr/share/doc").join(package));
    install(&root.join("CHANGELOG.md"), &folder.join("changelog"), 0o644)?;
    install(&root.join("packaging/debian/copyright"), &folder.join("copyright"), 0o644)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| say(path, e))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    create_above(path)?;
    fs::write(path, text).map_err(|e| say(path, e))
}

/// Returns the dependencies of a shared library for a control file: packages with the newest
/// version whose symbols the library uses.
fn depends(shared: &Path) -> Result<String, String> {
    let said = checked(Command::new("readelf").args(["--version-info", "--wide"]).arg(shared))?;
    let newest = |prefix: &str| {
        let names = said.split_whitespace().filter_map(|word| word.strip_prefix(prefix));
        let version = |name: &str| name.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>();
        names.filter_map(|name| version(name).ok()).max()
    };
    let dotted = |version: Vec<u32>| {
        let two = version.iter().take(2).map(u32::to_string);
        two.collect::<Vec<_>>().join(".")
    };
    match (newest("GLIBC_"), newest("GCC_")) {
        (Some(libc), Some(gcc)) => {
            let (libc, gcc) = (dotted(libc), dotted(gcc));
            Ok(format!("libc6 (>= {libc}), libgcc-s1 (>= {gcc})"))
        }
        _ => Err(format!("the library names no versions of its system libraries:\n{said}")),
    }
}

/// Checks the contents of the packages: their dependencies, the manual page, and a C program that
/// is compiled with them.
pub(super) fn check(out: &Path, packages: &[PathBuf]) -> Result<(), String> {
    let installed = out.join("library/installed");
    for package in packages {
        checked(Command::new("dpkg-deb").arg("--extract").arg(package).arg(&installed))?;
    }
    let folder = installed.join(libraries());
    check_dependencies(out, &folder.join(SONAME))?;
    if shell::has_program("groff") {
        // With -z, groff prints nothing but warnings.
        let mut format = Command::new("groff");
        format.args(["-man", "-Tutf8", "-ww", "-z"]);
        let warnings = checked(format.arg(installed.join("usr/share/man/man3/nearflash.3")))?;
        if !warnings.is_empty() {
            return Err(format!("the manual page:\n{warnings}"));
        }
    }
    compile_and_run(&installed, &[], "-lnearflash")?;
    compile_and_run(&installed, &["--static"], "-l:libnearflash.a")
}

/// Compiles an example with the options that pkg-config prints for the additional options `how`,
/// and runs it. `library` replaces the option of the shared library.
fn compile_and_run(installed: &Path, how: &[&str], library: &str) -> Result<(), String> {
    let folder = installed.join(libraries());
    let mut ask = Command::new("pkg-config");
    ask.arg(format!("--define-variable=prefix={}", installed.join("usr").display()));
    ask.args(["--cflags", "--libs"]).args(how).arg("nearflash");
    let words = checked(ask.env("PKG_CONFIG_PATH", folder.join("pkgconfig")))?;
    let words = words.replace("-lnearflash", library);
    let (documents, program) = (installed.join("usr/share/doc"), installed.join("program"));
    let mut compile = Command::new("cc");
    compile.arg("-o").arg(&program).arg(documents.join(DEVELOPMENT).join("examples/blocking.c"));
    checked(compile.args(words.split_whitespace()))?;
    // No server is there, which the example has to say.
    let mut run = Command::new(&program);
    run.arg("reflex://127.0.0.1:1").env("LD_LIBRARY_PATH", &folder);
    let ran = shell::capture(&mut run, LIMIT)?;
    match !ran.ok && ran.output.starts_with("connect: ") {
        true => Ok(()),
        false => Err(format!("the example with {library} of the packages:\n{}", ran.output)),
    }
}

/// Compares the dependencies that [`depends`] returns with those that Debian's own tool finds, if
/// it is installed.
fn check_dependencies(out: &Path, shared: &Path) -> Result<(), String> {
    if !shell::has_program("dpkg-shlibdeps") {
        return Ok(());
    }
    let folder = out.join("library/shlibdeps");
    write(
        &folder.join("debian/control"),
        &format!("Source: nearflash\n\nPackage: {RUNTIME}\nArchitecture: any\n"),
    )?;
    let mut ask = Command::new("dpkg-shlibdeps");
    let said = checked(ask.arg("-O").arg(shared).current_dir(&folder))?;
    let found = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    let names = |list: &str| {
        let packages = list.split(", ").filter_map(|part| part.split(' ').next());
        packages.map(str::to_owned).collect::<Vec<_>>()
    };
    let ours = depends(shared)?;
    match found {
        Some(theirs) if names(theirs) == names(&ours) => Ok(()),
        _ => Err(format!("the library is said to need {ours}, and dpkg-shlibdeps says:\n{said}")),
    }
}

/// Installs and purges both packages on a copy of this machine, and compiles a program there.
/// Returns `None` on success, or the reason that this could not be tried.
pub(super) fn try_out(out: &Path, packages: &[PathBuf]) -> Result<Option<&'static str>, String> {
    let copied: Vec<NamedPackage> = packages
        .iter()
        .zip(["runtime.deb", "development.deb"])
        .map(|(file, name)| NamedPackage { file, name })
        .collect();
    let programs = ["cc", "ldconfig", "pkg-config"];
    if !programs.iter().all(|program| shell::has_program(program)) {
        return Ok(Some("that takes a compiler, ldconfig and pkg-config"));
    }
    debian::try_aside(out, &copied, TRIAL)
}
