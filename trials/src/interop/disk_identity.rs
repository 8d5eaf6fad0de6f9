//! A test of a server that is started with another disk than the one that its device had before.

use std::time::Duration;

use super::guest::{Backing, Controller, Disk, Guest, Machine};
use super::power_cut::await_device;
use super::{Context, Verdict};

/// The time limit of commands in the guest.
const SOON: Duration = Duration::from_secs(60);

/// Starts a server with one disk, then with another disk as the device's, which must be refused,
/// and then with the option that the refusal names.
pub(super) fn swapped(context: &Context) -> Result<Verdict, String> {
    let mut guest = boot(context)?;
    let serves = |guest: &mut Guest, spec: &str| serves_by(guest, &serve(context, spec));
    serves(&mut guest, "file:/dev/nvme0n1")?;
    serves(&mut guest, "file:/dev/nvme0n1")?;
    let refused = guest.run(&serve(context, "file:/dev/nvme1n1"), SOON)?;
    let identity = guest.must("cat /sys/block/nvme1n1/wwid", SOON)?.trim().replace(' ', "_");
    let way_out = "`--accept-disk fast`";
    if refused.status == 0 || !refused.text.contains(way_out) || !refused.text.contains(&identity) {
        return Err(format!("no word of {way_out}: {}, {}", refused.status, refused.text));
    }
    let other = guest.run(&serve(context, "file:/dev/nvme0n1?disk=eui.1"), SOON)?;
    if other.status == 0 || !other.text.contains("asks for another") {
        return Err(format!("a disk that was not asked for is served: {}", other.text));
    }
    serves(&mut guest, &format!("file:/dev/nvme1n1?disk={identity}"))?;
    serves(&mut guest, "file:/dev/nvme1n1")?;
    let refused = guest.run(&serve(context, "file:/dev/nvme0n1"), SOON)?;
    if refused.status == 0 {
        return Err("the disk of before is served, although another one took its place".to_owned());
    }
    let accepted = serve(context, "file:/dev/nvme0n1") + " --accept-disk fast";
    serves_by(&mut guest, &accepted)?;
    serves(&mut guest, "file:/dev/nvme0n1")?;
    guest.stop()?;
    Ok(Verdict::Passed(format!("a swapped disk is refused, and served as {identity}")))
}

/// Starts a server in the guest by a script, waits until it serves, and ends it.
fn serves_by(guest: &mut Guest, script: &str) -> Result<(), String> {
    guest.serve(script, SOON)?;
    let stop = "kill -TERM $(cat /run/server) && while [ -d /proc/$(cat /run/server) ]; do \
                sleep 0.05; done";
    guest.must(stop, SOON).map(drop)
}

/// Returns the script that starts a server with `spec` as its device `fast`.
fn serve(context: &Context, spec: &str) -> String {
    let program = context.nearflash.display();
    format!(
        "echo $$ >/run/server\n\
         cat >/run/server.toml <<END\n\
         state = \"/run/server.state\"\n\
         [[device]]\nname = \"fast\"\nspec = \"{spec}\"\n\
         END\n\
         exec {program} serve --config /run/server.toml --listen reflex://127.0.0.1:7420"
    )
}

/// Boots a guest with two NVMe disks.
fn boot(context: &Context) -> Result<Guest, String> {
    let disk = |name: &str| -> Result<Disk, String> {
        let image = context.folder.join(name);
        let made = std::fs::File::create(&image).and_then(|file| file.set_len(64 << 20));
        made.map_err(|error| format!("{}: {error}", image.display()))?;
        Ok(Disk { controller: Controller::Nvme, backing: Backing::Image(image) })
    };
    let disks = vec![disk("one.image")?, disk("two.image")?];
    let (qemu, kernel) = context.tools()?;
    let share = &context.folder;
    let mut guest = Machine { qemu, kernel, share, disks, forwards: Vec::new() }.boot("boot")?;
    guest.must(&await_device("/dev/nvme0n1"), SOON)?;
    guest.must(&await_device("/dev/nvme1n1"), SOON)?;
    Ok(guest)
}
