//! Stock Debian kernels and the emulator that boots them, unpacked into a cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use super::apt::{self, Apt};
use super::archive::Archive;

/// A kernel series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Series {
    /// The oldest series that nearflash supports.
    #[value(name = "6.1")]
    V6_1,
    /// The newest series that Debian's stable releases share.
    #[value(name = "6.12")]
    V6_12,
    /// The newest kernel that Debian has for its stable release.
    #[value(name = "7")]
    V7,
}

/// A stock kernel that is unpacked and ready to boot.
pub(crate) struct Kernel {
    /// The path of the kernel image.
    pub(super) image: PathBuf,
    /// The release that `uname -r` prints.
    pub(super) release: String,
    /// The folder of the kernel's modules.
    pub(super) modules: PathBuf,
    /// The path of the archive that the kernel unpacks as its first file system.
    pub(super) initramfs: PathBuf,
}

/// The emulator: its program and the folders of its data.
pub(crate) struct Qemu {
    pub(super) program: PathBuf,
    /// The folders of the emulator's firmware; empty for an installed emulator, which knows its
    /// own.
    pub(super) data: Vec<PathBuf>,
}

/// The modules that a guest loads before it can mount the host's root file system.
const BOOT_MODULES: [&str; 5] = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"];

/// The beginning of the loader's path, which only a dynamically linked program contains.
const LOADER: &[u8] = b"/lib64/ld-linux";

/// The oldest QEMU whose emulated NVMe controller works with a single virtual processor. Version
/// 7.2 loses doorbells there.
const QEMU_MAJOR_MIN: u32 = 8;

const QEMU_PACKAGES: [&str; 4] =
    ["qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios"];

impl Series {
    /// Returns the series as people write it, such as `6.12`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Series::V6_1 => "6.1",
            Series::V6_12 => "6.12",
            Series::V7 => "7",
        }
    }
}

impl Kernel {
    /// Returns the kernel of a series from the cache, and downloads it first if it is missing.
    pub(crate) fn prepare(series: Series, cache: &Path) -> Result<Kernel, String> {
        let folder = cache.join(format!("linux-{}", series.name()));
        if !folder.is_dir() {
            fetch(series, cache, &folder)?;
        }
        let modules = modules_in(&folder)?;
        let release = modules.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !modules.join("modules.dep").is_file() {
            let base = modules.ancestors().nth(3).expect("it has three names");
            apt::run(Command::new("depmod").arg("-b").arg(base).arg(&release))?;
        }
        let initramfs = folder.join("initramfs");
        let beside = modules.join("vmlinuz");
        let image = match beside.is_file() {
            true => beside,
            false => folder.join("boot").join(format!("vmlinuz-{release}")),
        };
        // Write to a new file and rename it, because another run may be booting from the old one.
        let fresh = folder.join(format!("initramfs.{}", std::process::id()));
        fs::write(&fresh, first_file_system(&modules)?)
            .and_then(|()| fs::rename(&fresh, &initramfs))
            .map_err(|error| format!("{}: {error}", initramfs.display()))?;
        Ok(Kernel { image, release, modules, initramfs })
    }

    /// Returns `true` if the kernel has one of these options, built in or as a module.
    pub(super) fn has_option(&self, options: &[&str]) -> bool {
        let names = [format!("config-{}", self.release), "config".to_owned()];
        let places = names.map(|name| self.image.with_file_name(name));
        let read = places.iter().find_map(|place| fs::read_to_string(place).ok());
        let text = read.unwrap_or_default();
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.any(|(name, value)| options.contains(&name) && matches!(value, "y" | "m"))
    }
}

/// Returns the only folder of kernel modules below `folder`, whose name is the kernel's release.
fn modules_in(folder: &Path) -> Result<PathBuf, String> {
    let places = ["lib/modules", "usr/lib/modules"].map(|place| folder.join(place));
    let found = places.iter().filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
    let found = found.map(|entry| entry.path()).find(|path| path.is_dir());
    found.ok_or_else(|| format!("no modules in {}", folder.display()))
}

fn fetch(series: Series, cache: &Path, folder: &Path) -> Result<(), String> {
    let wanted = format!("linux-image-{}.", series.name());
    for apt in [Apt::of_system, Apt::of_backports, Apt::of_newest_backports] {
        let apt = apt(cache)?;
        let images = apt.dependencies("linux-image-amd64")?;
        let Some(image) = images.iter().find(|name| name.starts_with(&wanted)) else { continue };
        // Newer packages have the kernel and its modules apart, each in a package of its own.
        let parts = apt.dependencies(image)?;
        let has_kernel = ["linux-binary-", "linux-modules-"];
        let parts =
            parts.iter().filter(|name| has_kernel.iter().any(|part| name.starts_with(part)));
        let parts: Vec<&str> = parts.chain([image]).map(String::as_str).collect();
        return apt.unpack(&parts, folder);
    }
    Err(format!("this Debian and its backports have no kernel {}", series.name()))
}

impl Qemu {
    /// Returns the installed emulator if it is new enough, and otherwise that of Debian's
    /// backports.
    pub(crate) fn prepare(cache: &Path) -> Result<Qemu, String> {
        let installed = Qemu { program: "qemu-system-x86_64".into(), data: Vec::new() };
        let version = apt::run(Command::new(&installed.program).arg("--version"))?;
        if major(&version).is_some_and(|major| major >= QEMU_MAJOR_MIN) {
            return Ok(installed);
        }
        let folder = cache.join("qemu");
        if !folder.is_dir() {
            Apt::of_backports(cache)?.unpack(&QEMU_PACKAGES, &folder)?;
        }
        let program = folder.join("usr/bin/qemu-system-x86_64");
        apt::run(Command::new(&program).arg("--version"))?;
        let data = ["seabios", "qemu"].map(|name| folder.join("usr/share").join(name)).to_vec();
        Ok(Qemu { program, data })
    }
}

/// Returns the major version number in text like `QEMU emulator version 10.0.2 (Debian …)`.
fn major(version: &str) -> Option<u32> {
    let (_, rest) = version.split_once("version ")?;
    rest.split('.').next()?.parse().ok()
}

/// Returns the archive of a guest's first file system: busybox, the modules of [`BOOT_MODULES`],
/// and the guest's two programs.
fn first_file_system(modules: &Path) -> Result<Vec<u8>, String> {
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "modules"] {
        archive.folder(folder);
    }
    archive.device("dev/console", 5, 1);
    let busybox = read(Path::new("/bin/busybox"))?;
    if busybox.windows(LOADER.len()).any(|bytes| bytes == LOADER) {
        return Err("busybox needs libraries (Debian: busybox-static does not)".to_owned());
    }
    archive.file("bin/busybox", &busybox);
    archive.file("init", include_bytes!("guest/init.sh"));
    archive.file("agent.sh", include_bytes!("guest/agent.sh"));
    let dependencies =
        fs::read_to_string(modules.join("modules.dep")).map_err(|e| e.to_string())?;
    let mut order = String::new();
    for place in load_order(&dependencies, &BOOT_MODULES) {
        let path = modules.join(place);
        let name = module_name(place);
        let bytes = match path.extension().is_some_and(|extension| extension == "xz") {
            true => decompress(&path)?,
            false => read(&path)?,
        };
        archive.file(&format!("modules/{name}.ko"), &bytes);
        order.push_str(&format!("{name}.ko\n"));
    }
    archive.file("modules/order", order.as_bytes());
    Ok(archive.finish())
}

fn decompress(path: &Path) -> Result<Vec<u8>, String> {
    let output = Command::new("xz").arg("-dc").arg(path).output();
    let output = output.map_err(|error| format!("xz: {error}"))?;
    if output.status.success() { Ok(output.stdout) } else { Err(format!("xz: {}", path.display())) }
}

/// Returns the kernel's name for the module in this file: `a-b.ko.xz` is `a_b`.
fn module_name(place: &str) -> String {
    let file = place.rsplit('/').next().unwrap_or(place);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

/// Returns the files of the wanted modules, each behind its dependencies. A module that
/// `dependencies` does not list is built into the kernel.
fn load_order<'a>(dependencies: &'a str, wanted: &[&str]) -> Vec<&'a str> {
    let mut order = Vec::new();
    for name in wanted {
        let line = dependencies.lines().filter_map(|line| line.split_once(':'));
        let found = line.into_iter().find(|(place, _)| module_name(place) == *name);
        let Some((place, before)) = found else { continue };
        // The last module of a dependency list depends on none of those before it.
        for place in before.split_whitespace().rev().chain([place]) {
            if !order.contains(&place) {
                order.push(place);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_those_they_need() {
        let text = "net/9p/9pnet.ko:\nfs/9p/9p.ko.xz: fs/cache.ko net/9p/9pnet.ko\nfs/cache.ko:\n\
                    net/9p/9pnet-virtio.ko: net/9p/9pnet.ko\n";
        assert_eq!(
            load_order(text, &["9pnet_virtio", "built_in", "9p"]),
            ["net/9p/9pnet.ko", "net/9p/9pnet-virtio.ko", "fs/cache.ko", "fs/9p/9p.ko.xz"]
        );
        assert_eq!(module_name("net/9p/9pnet-virtio.ko.xz"), "9pnet_virtio");
    }

    #[test]
    fn the_emulator_says_its_version() {
        assert_eq!(major("QEMU emulator version 10.0.2 (Debian 1:10.0.2)\n"), Some(10));
        assert_eq!(major("something else"), None);
    }
}
