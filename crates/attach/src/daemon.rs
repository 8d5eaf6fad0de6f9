//! The process that serves a device: it makes the device, or takes it over from a predecessor.

use std::fs::File;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use client::block::{BlockForm, RANGE_BLOCKS_MAX, Terms};
use contract::{NamespaceId, REQUEST_BYTES_MAX};
use io::ublk::{BlockQueue, ControlDevice, guard_memory, is_there};
use wire::ublk::{
    ANY_DEVICE, Basic, DeviceInfo, Discard, Parameters, attribute, feature, parameter, state,
};
use zerocopy::FromZeros;

use crate::device_threads::{CUT, DeviceThreads, QueuePlan, WatchEnd};
use crate::notify;
use crate::options::AttachOptions;
use crate::record::{Record, ServiceLock, Volume};
use crate::survey::{Server, identity};
use crate::usage;

/// The features of the kernel's driver that are required, each with its name.
const NEEDED: [(u64, &str); 4] = [
    (feature::NEED_GET_DATA, "NEED_GET_DATA"),
    (feature::USER_RECOVERY, "USER_RECOVERY"),
    (feature::USER_RECOVERY_REISSUE, "USER_RECOVERY_REISSUE"),
    (feature::IOCTL_ENCODING, "CMD_IOCTL_ENCODE"),
];

/// Maximum time until the kernel has noticed the end of a predecessor. If all of its requests were
/// in flight, the kernel notices the end once they have been in flight for 30 seconds.
const END_MAX: Duration = Duration::from_secs(90);

/// The error number `EBUSY`: a process has the device's file open.
const BUSY: i32 = 16;

/// The pause between two attempts, while a change in the kernel is awaited.
const STEP: Duration = Duration::from_millis(20);

/// The longest time from the kernel's cancelling of commands until the device is stopped.
const STOP_MAX: Duration = Duration::from_secs(2);

/// The time that each queue of a new device has to get a connection.
const CONNECT_MAX: Duration = Duration::from_secs(30);

/// Returns the path of the block device with this number: `/dev/ublkbN`.
pub(crate) fn path(device: u32) -> PathBuf {
    format!("/dev/ublkb{device}").into()
}

/// Opens the driver's control device, and loads the driver if that is needed.
///
/// # Errors
/// Says in a sentence that the kernel has no such driver, or that only root may use it.
pub(crate) fn open_control() -> Result<ControlDevice, String> {
    if !is_there() {
        // Whether that was of use is seen below.
        let _ = Command::new("modprobe").arg("ublk_drv").output();
    }
    if !is_there() {
        return Err("this kernel has no ublk driver (`modprobe ublk_drv` brings no \
                    /dev/ublk-control): mount the volume over NVMe/TCP (`nearflash connect`) or \
                    over NBD (`nbd-client`) instead"
            .to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Err("only root may attach volumes: the kernel takes over from a process that has \
                    ended for root's devices only, so use sudo"
            .to_owned());
    }
    ControlDevice::open().map_err(|e| e.to_string())
}

/// Attaches a volume and serves it. If the volume is attached already, takes over its device.
pub(crate) fn attach(
    folder: &Path,
    asked: &AttachOptions,
    print: &dyn Fn(&str),
) -> Result<(), String> {
    let mut control = open_control()?;
    check_features(&mut control)?;
    let volume = asked.volume();
    if let Some(record) = abandoned(&mut control, folder, &volume, asked.device)? {
        if record.volume.read_only != volume.read_only {
            let device = name(record.device);
            return Err(format!(
                "{device} waits for a process and was attached with another --read-only: take it over \
                 as it is (`attach recover {}`), or give up what waits (`attach detach --force {}`)",
                record.device, record.device
            ));
        }
        return take_over(control, folder, Record { volume, ..record }, print);
    }
    let server = Server::find(&volume)?;
    let info = server.survey(volume.namespace)?;
    let form = BlockForm::of(&info, volume.read_only).map_err(|e| format!("{e}: no reads"))?;
    let queues = server.queues(asked.queues)?;
    let made = add(&mut control, asked, queues)?;
    let device = made.device.get();
    let right = ServiceLock::await_free(folder, device)?;
    let served = match &right {
        Some(_) => make(&mut control, folder, &made, &volume, server, form, print),
        None => Err(format!("another process locks {}", name(device))),
    };
    if served.is_err() && control.info(device).is_ok_and(|info| info.state.get() == state::DEAD) {
        // What was not started is ours, and of use to nobody.
        if right.is_some() {
            Record::remove(folder, device);
        }
        let _ = control.delete_later(device);
    }
    served
}

/// Takes a device over whose process has ended.
pub(crate) fn recover(folder: &Path, device: u32, print: &dyn Fn(&str)) -> Result<(), String> {
    let control = open_control()?;
    let record = Record::read(folder, device)?;
    let record = record.ok_or_else(|| format!("nothing was attached as {}", name(device)))?;
    take_over(control, folder, record, print)
}

fn name(device: u32) -> String {
    path(device).display().to_string()
}

fn check_features(control: &mut ControlDevice) -> Result<(), String> {
    let features = control.features().map_err(|e| format!("cannot ask the ublk driver: {e}"))?;
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(flag, _)| features & flag == 0).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(format!("this kernel's ublk driver lacks {missing} (Linux 6.8 or later has them)"))
}

/// Returns the record of the device that the volume has already, even if the device's process has
/// ended; `None` if it has none. A device whose process ended before there was a block device is
/// removed.
///
/// # Errors
/// Says that the device with the number belongs to another volume or program.
fn abandoned(
    control: &mut ControlDevice,
    folder: &Path,
    volume: &Volume,
    device: Option<u32>,
) -> Result<Option<Record>, String> {
    let mut state_of = |device| control.info(device).ok().map(|info| info.state.get());
    let Some(device) = device else {
        let records = Record::all(folder)?.into_iter();
        let mut ours = records.filter(|record| record.volume.is_same(volume));
        return Ok(ours.find(|record| {
            matches!(state_of(record.device), Some(state::LIVE | state::QUIESCED))
        }));
    };
    let Some(state) = state_of(device) else { return Ok(None) };
    let record = match Record::read(folder, device)? {
        Some(record) if record.volume.is_same(volume) => record,
        Some(record) => {
            return Err(format!("{} is the volume of {} already", name(device), record.volume.url));
        }
        None => return Err(format!("{} was made by another program", name(device))),
    };
    if state == state::DEAD && ServiceLock::await_free(folder, device)?.is_some() {
        // Its process has ended before there was a block device.
        control.delete(device).map_err(|e| format!("{} is not removed: {e}", name(device)))?;
        return Ok(None);
    }
    Ok(Some(record))
}

/// Makes the device in the driver, without a block device.
fn add(
    control: &mut ControlDevice,
    asked: &AttachOptions,
    queues: u16,
) -> Result<DeviceInfo, String> {
    let mut info = DeviceInfo::new_zeroed();
    info.queues = queues.into();
    info.queue_depth = asked.depth.into();
    info.request_bytes_max = (REQUEST_BYTES_MAX as u32).into();
    info.device = asked.device.unwrap_or(ANY_DEVICE).into();
    info.flags = NEEDED.iter().fold(0, |flags, (flag, _)| flags | flag).into();
    control.add(&mut info).map_err(|error| match (error.kind(), asked.device) {
        (ErrorKind::AlreadyExists, Some(device)) => format!("there is a {} already", name(device)),
        _ => format!("the kernel makes no ublk device: {error}"),
    })?;
    Ok(info)
}

/// Creates the block device of a device that was just added, and serves it.
fn make(
    control: &mut ControlDevice,
    folder: &Path,
    made: &DeviceInfo,
    volume: &Volume,
    server: Server,
    form: BlockForm,
    print: &dyn Fn(&str),
) -> Result<(), String> {
    let device = made.device.get();
    let client = identity();
    let record = Record {
        device,
        process: std::process::id(),
        client: format!("{client:032x}"),
        storage_epoch: None,
        volume: volume.clone(),
    };
    record.write(folder)?;
    let parameters = parameters(form);
    let refused = |error: Error| format!("the kernel refuses the device: {error}");
    control.set_parameters(device, &parameters).map_err(refused)?;
    let plan = plan(made, server, client, volume, form.is_read_only);
    let (mut crew, file) = crew(&plan, device)?;
    // The start reads the partition table, and the kernel's driver waits for that with its lock
    // held.
    if !crew.await_connections(CONNECT_MAX)? {
        return Err(format!("the server does not answer each queue within {CONNECT_MAX:?}"));
    }
    control.start(device).map_err(refused)?;
    print(&format!("ready: {}", name(device)));
    serve(control, folder, device, crew, file, &plan.server)
}

/// Serves a device whose process has ended. Its requests go to the server again under the identity
/// that they had, and only when the server has ended those of the lost connections.
fn take_over(
    mut control: ControlDevice,
    folder: &Path,
    record: Record,
    print: &dyn Fn(&str),
) -> Result<(), String> {
    let device = record.device;
    let Some(_right) = ServiceLock::await_free(folder, device)? else {
        let process = record.process;
        return Err(format!("process {process} serves {}; a device has one", name(device)));
    };
    let info = control.info(device).map_err(|e| format!("there is no {}: {e}", name(device)))?;
    let parameters = control.parameters(device);
    let parameters = parameters.map_err(|e| format!("cannot ask for {}: {e}", name(device)))?;
    let is_read_only = parameters.basic.attributes.get() & attribute::READ_ONLY != 0;
    let server = Server::find(&record.volume)?.after(record.storage_epoch);
    let plan = plan(&info, server, record.identity()?, &record.volume, is_read_only);
    start_recovery(&mut control, device)?;
    let (mut crew, file) = crew(&plan, device)?;
    Record { process: std::process::id(), ..record }.write(folder)?;
    if !crew.await_connections(plan.terms.fail_after)? {
        tracing::warn!("the server is away: requests will fail until it is back");
    }
    let refused = |e: Error| format!("the kernel does not hand {} over: {e}", name(device));
    control.end_recovery(device).map_err(refused)?;
    print(&format!("ready: {} (taken over)", name(device)));
    serve(&mut control, folder, device, crew, file, &plan.server)
}

/// Begins the recovery of a device, once the kernel has noticed the end of the predecessor.
fn start_recovery(control: &mut ControlDevice, device: u32) -> Result<(), String> {
    let mut waited = Duration::ZERO;
    loop {
        match control.start_recovery(device) {
            Ok(()) => return Ok(()),
            // A successor that ended before its queues had fetched has left the device prepared.
            Err(error)
                if error.kind() == ErrorKind::InvalidInput
                    && control.info(device).is_ok_and(|i| i.state.get() == state::QUIESCED) =>
            {
                return Ok(());
            }
            Err(error) if error.kind() != ErrorKind::ResourceBusy || waited >= END_MAX => {
                return Err(format!("{} cannot be taken over: {error}", name(device)));
            }
            Err(_) => {
                std::thread::sleep(STEP);
                waited += STEP;
            }
        }
    }
}

fn plan(
    info: &DeviceInfo,
    server: Server,
    identity: u128,
    volume: &Volume,
    is_read_only: bool,
) -> QueuePlan {
    QueuePlan {
        queues: info.queues.get(),
        depth: info.queue_depth.get(),
        identity,
        server,
        terms: Terms {
            namespace: volume.namespace.map(NamespaceId),
            is_read_only,
            fail_after: Duration::from_secs(volume.fail_after),
        },
        spin: Duration::from_micros(volume.spin_micros),
    }
}

/// Starts the threads of a device, and opens its file. Before that, guards the process's memory,
/// since the process must not wait for memory that the kernel frees by writing to this device.
fn crew(plan: &QueuePlan, device: u32) -> Result<(DeviceThreads, Arc<File>), String> {
    if let Err(error) = guard_memory() {
        tracing::warn!("a shortage of memory may stop the device: {error}");
    }
    let file = open_file(device)?;
    Ok((DeviceThreads::start(plan, &file)?, file))
}

/// Opens the file of a device, once the kernel has closed that of a predecessor.
fn open_file(device: u32) -> Result<Arc<File>, String> {
    let mut waited = Duration::ZERO;
    loop {
        match BlockQueue::file(device) {
            Err(error) if error.errno() == Some(BUSY) && waited < END_MAX => {
                std::thread::sleep(STEP);
                waited += STEP;
            }
            opened => return opened.map_err(|e| e.to_string()),
        }
    }
}

/// Serves a device until it is detached, or until a signal. After a signal, an unused device is
/// removed. A used device waits for a successor of this process, and the call fails.
fn serve(
    control: &mut ControlDevice,
    folder: &Path,
    device: u32,
    mut crew: DeviceThreads,
    file: Arc<File>,
    server: &Server,
) -> Result<(), String> {
    notify::ready();
    loop {
        let epoch = server.durability().settled_epoch();
        if let Err(error) = Record::keep_epoch(folder, device, epoch) {
            tracing::warn!("a successor of this process may not know what was lost: {error}");
        }
        match crew.watch()? {
            WatchEnd::Stopped => break,
            WatchEnd::Epoch => continue,
            WatchEnd::Cut => {
                await_stop(control, device)?;
                continue;
            }
            WatchEnd::Asked => {}
        }
        let hold = match usage::hold(device) {
            Ok(hold) => hold,
            // A failure, so that the service manager starts the successor.
            Err(error) => {
                return Err(format!("{error}; its requests wait for a successor of this process"));
            }
        };
        let stopped = control.stop(device);
        drop(hold);
        stopped.map_err(|e| format!("{} does not stop: {e}", name(device)))?;
    }
    crew.join();
    Record::remove(folder, device);
    // While the file is open, no other device can have the number.
    let removed = control.delete_later(device);
    drop(file);
    removed.map_err(|e| format!("{} is not removed: {e}", name(device)))
}

/// Waits until a device of which the kernel has cancelled commands is stopped.
///
/// # Errors
/// Says that it is not stopped: a successor of this process will serve all of its requests again.
fn await_stop(control: &mut ControlDevice, device: u32) -> Result<(), String> {
    let mut waited = Duration::ZERO;
    while control.info(device).is_ok_and(|info| info.state.get() == state::LIVE) {
        if waited >= STOP_MAX {
            return Err(CUT.to_owned());
        }
        std::thread::sleep(STEP);
        waited += STEP;
    }
    Ok(())
}

/// Returns the kernel's parameters of a block device of this form.
fn parameters(form: BlockForm) -> Parameters {
    let mut attributes = 0;
    if form.is_read_only {
        attributes |= attribute::READ_ONLY;
    }
    if !form.is_read_only {
        // Of what the server may serve the volume from later nothing is known.
        attributes |= attribute::VOLATILE_CACHE | attribute::FUA;
    }
    let ranges = if form.is_read_only { 0 } else { RANGE_BLOCKS_MAX };
    Parameters {
        len: 0.into(),
        kinds: (parameter::BASIC | parameter::DISCARD).into(),
        basic: Basic {
            attributes: attributes.into(),
            logical_block_shift: 9,
            physical_block_shift: form.physical_shift,
            io_best_shift: form.physical_shift,
            io_min_shift: form.physical_shift,
            sectors_max: ((REQUEST_BYTES_MAX >> 9) as u32).into(),
            chunk_sectors: 0.into(),
            sectors: form.sectors.into(),
            gap_mask: 0.into(),
        },
        discard: Discard {
            alignment: 0.into(),
            granularity: (1 << form.physical_shift).into(),
            discard_sectors_max: ranges.into(),
            write_zeroes_sectors_max: ranges.into(),
            segments_max: 1.into(),
            reserved: 0.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: BlockForm = BlockForm { sectors: 4096, physical_shift: 12, is_read_only: false };

    #[test]
    fn a_device_has_the_parameters_of_its_form() {
        let parameters = parameters(FORM);
        assert_eq!(parameters.basic.attributes, attribute::VOLATILE_CACHE | attribute::FUA);
        assert_eq!(parameters.basic.sectors, 4096);
        assert_eq!(parameters.basic.sectors_max, 2048);
        assert_eq!(parameters.discard.granularity, 4096);
        assert_eq!(parameters.discard.discard_sectors_max, RANGE_BLOCKS_MAX);
    }

    #[test]
    fn a_read_only_device_discards_nothing() {
        let parameters = parameters(BlockForm { is_read_only: true, ..FORM });
        assert_eq!(parameters.basic.attributes, attribute::READ_ONLY);
        assert_eq!(parameters.discard.discard_sectors_max, 0);
        assert_eq!(parameters.discard.write_zeroes_sectors_max, 0);
    }
}
