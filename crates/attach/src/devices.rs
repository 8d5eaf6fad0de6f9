//! The commands about devices that are attached: list, show, resize and detach.

use std::path::Path;
use std::time::Duration;

use io::ublk::ControlDevice;
use wire::ublk::{feature, state};

use crate::daemon::{open_control, path};
use crate::record::{Record, ServiceLock};
use crate::survey::Server;
use crate::usage;

/// The longest time for the process of a stopped device to end.
const STOP_MAX: Duration = Duration::from_secs(30);

/// Prints a line for each attached volume.
pub(crate) fn list(folder: &Path, print: &dyn Fn(&str)) -> Result<(), String> {
    let records = Record::all(folder)?;
    if records.is_empty() {
        print("no volume is attached");
        return Ok(());
    }
    let mut control = open_control()?;
    for record in records {
        let place = path(record.device);
        let state = state_of(&mut control, record.device);
        print(&format!("{}  {state}  {}", place.display(), record.volume.url));
    }
    Ok(())
}

/// Prints the properties of an attached volume.
pub(crate) fn show(folder: &Path, device: u32, print: &dyn Fn(&str)) -> Result<(), String> {
    let record = read(folder, device)?;
    let mut control = open_control()?;
    let volume = &record.volume;
    let line = |name: &str, value: String| print(&format!("{name:<12} {value}"));
    line("device", path(device).display().to_string());
    line("state", state_of(&mut control, device).to_owned());
    line("server", volume.url.clone());
    let namespace = volume.namespace.map_or("the server's default".to_owned(), |n| n.to_string());
    line("namespace", namespace);
    if !volume.tenant.is_empty() {
        line("tenant", volume.tenant.clone());
    }
    line("process", record.process.to_string());
    line("fail after", format!("{} s", volume.fail_after));
    let (Ok(info), Ok(parameters)) = (control.info(device), control.parameters(device)) else {
        return Ok(());
    };
    line("queues", format!("{} of {} requests", info.queues, info.queue_depth));
    let sectors = parameters.basic.sectors.get();
    line("size", format!("{} bytes", sectors * 512));
    let surveyed = Server::find(volume).and_then(|server| server.survey(volume.namespace));
    match surveyed {
        Ok(info) if info.blocks > sectors => {
            line("grown", format!("{} bytes: see `attach resize`", info.blocks * 512));
        }
        Ok(info) if info.blocks < sectors => {
            line("shrunk", format!("{} bytes: requests beyond fail", info.blocks * 512));
        }
        Ok(_) => {}
        Err(error) => line("server says", error),
    }
    Ok(())
}

/// Resizes a device to the size of its namespace.
pub(crate) fn resize(folder: &Path, device: u32, print: &dyn Fn(&str)) -> Result<(), String> {
    let record = read(folder, device)?;
    let mut control = open_control()?;
    let features = control.features().map_err(|e| format!("cannot ask the ublk driver: {e}"))?;
    if features & feature::UPDATE_SIZE == 0 {
        return Err(format!(
            "this kernel's ublk driver cannot change the size of a device (Linux 6.16 or later \
             can): detach {} and attach it again",
            path(device).display()
        ));
    }
    let info = Server::find(&record.volume)?.survey(record.volume.namespace)?;
    let refused = |e| format!("the kernel does not resize {}: {e}", path(device).display());
    control.resize(device, info.blocks).map_err(refused)?;
    print(&format!("{} has {} bytes", path(device).display(), info.blocks * 512));
    Ok(())
}

/// Detaches a device, unless it is in use. The users of a device without a serving process are
/// unknown, so that case needs `force`.
pub(crate) fn detach(
    folder: &Path,
    device: u32,
    force: bool,
    print: &dyn Fn(&str),
) -> Result<(), String> {
    let mut control = open_control()?;
    let place = path(device);
    let place = place.display();
    let found = control.info(device);
    let found = found.map_err(|error| format!("there is no {place}: {error}"))?;
    if !force && Record::read(folder, device)?.is_none() {
        return Err(format!(
            "{place} was made by another program; --force takes it off nevertheless"
        ));
    }
    if found.state.get() == state::LIVE {
        stop(&mut control, device)?;
        // The process that serves the device removes it.
        let right = ServiceLock::await_for(folder, device, STOP_MAX)?;
        let _right = right.ok_or_else(|| format!("the process of {place} does not end"))?;
        if Record::read(folder, device)?.is_some() {
            // The process has ended before it could.
            Record::remove(folder, device);
            control.delete(device).map_err(|error| format!("{place} is not removed: {error}"))?;
        }
    } else if found.state.get() == state::QUIESCED && !force {
        return Err(format!(
            "{place} waits for a process: serve it again (`attach recover {device}`), or give up \
             what waits (`attach detach --force {device}`)"
        ));
    } else {
        let right = ServiceLock::await_free(folder, device)?;
        let _right = right.ok_or_else(|| format!("a process is about to serve {place}"))?;
        Record::remove(folder, device);
        control.delete(device).map_err(|error| format!("{place} is not removed: {error}"))?;
    }
    print(&format!("detached: {place}"));
    Ok(())
}

/// Stops a device in the kernel's driver, unless somebody uses it.
fn stop(control: &mut ControlDevice, device: u32) -> Result<(), String> {
    let place = path(device);
    let hold = usage::hold(device)?;
    let stopped = control.stop(device);
    drop(hold);
    stopped.map_err(|error| format!("{} does not stop: {error}", place.display()))
}

fn read(folder: &Path, device: u32) -> Result<Record, String> {
    let record = Record::read(folder, device)?;
    record.ok_or_else(|| format!("nothing is attached as {}", path(device).display()))
}

fn state_of(control: &mut ControlDevice, device: u32) -> &'static str {
    match control.info(device).map(|info| info.state.get()) {
        Ok(state::LIVE) => "serving",
        Ok(state::QUIESCED) => "waiting for a process: see `attach recover`",
        Ok(_) => "stopped",
        Err(_) => "gone",
    }
}
