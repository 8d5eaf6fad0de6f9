//! The control device: creates, starts, stops and removes block devices.

// UNSAFETY: a submission entry carries a pointer to a buffer of the caller's, who waits.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use wire::ublk::{
    ANY_DEVICE, CONTROL_PATH, ControlCode, ControlCommand, DeviceInfo, NO_QUEUE, Parameters,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::{Error, probe};

/// Returns `true` if `ublk_drv`, the kernel's driver of block devices served by programs, is
/// loaded.
pub fn is_there() -> bool {
    Path::new(CONTROL_PATH).exists()
}

/// The control device. Each method waits for the driver, which may in turn wait for the program's
/// own queues.
pub struct ControlDevice {
    file: File,
}

impl ControlDevice {
    /// Opens the control device.
    ///
    /// # Errors
    /// Fails if the driver is missing or this process may not use it, or if io_uring cannot be
    /// used.
    pub fn open() -> Result<ControlDevice, Error> {
        let file = File::options().read(true).write(true).open(CONTROL_PATH);
        let file = file.map_err(|e| Error::system(format!("cannot open {CONTROL_PATH}"), e))?;
        drop(ring().map_err(probe::explain_setup)?);
        Ok(ControlDevice { file })
    }

    /// Returns the driver's features as a set of bits, which is zero if the driver cannot report
    /// them.
    ///
    /// # Errors
    /// Fails if the program lacks a right.
    pub fn features(&mut self) -> io::Result<u64> {
        let mut features = [0; 8];
        let command = blank(ANY_DEVICE);
        match self.exchange(ControlCode::GET_FEATURES, command, &mut features) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(0),
            asked => asked.map(|()| u64::from_ne_bytes(features)),
        }
    }

    /// Creates a device with the number of queues, depth, size of requests and flags of `info`. The
    /// driver changes `info` to the actual values.
    ///
    /// # Errors
    /// Fails with `EEXIST` if the number is taken.
    pub fn add(&mut self, info: &mut DeviceInfo) -> io::Result<()> {
        let command = blank(info.device.get());
        self.exchange(ControlCode::ADD_DEVICE, command, info.as_mut_bytes())
    }

    /// Returns the properties of a device.
    ///
    /// # Errors
    /// Fails with `ENODEV` if there is none.
    pub fn info(&mut self, device: u32) -> io::Result<DeviceInfo> {
        let mut info = DeviceInfo::new_zeroed();
        self.exchange(ControlCode::GET_DEVICE_INFO, blank(device), info.as_mut_bytes())?;
        Ok(info)
    }

    /// Sets the parameters of a device that was not started.
    ///
    /// # Errors
    /// Fails if the driver refuses them.
    pub fn set_parameters(&mut self, device: u32, parameters: &Parameters) -> io::Result<()> {
        let mut parameters = *parameters;
        parameters.len = (size_of::<Parameters>() as u32).into();
        self.exchange(ControlCode::SET_PARAMETERS, blank(device), parameters.as_mut_bytes())
    }

    /// Returns the parameters of a device.
    ///
    /// # Errors
    /// Fails with `ENODEV` if there is no device.
    pub fn parameters(&mut self, device: u32) -> io::Result<Parameters> {
        let mut parameters = Parameters::new_zeroed();
        parameters.len = (size_of::<Parameters>() as u32).into();
        self.exchange(ControlCode::GET_PARAMETERS, blank(device), parameters.as_mut_bytes())?;
        Ok(parameters)
    }

    /// Creates the block device, `/dev/ublkbN`, of a device whose queues this process serves. The
    /// kernel reads its partition table meanwhile.
    ///
    /// # Errors
    /// Fails if the driver refuses to start the device.
    pub fn start(&mut self, device: u32) -> io::Result<()> {
        self.tell(ControlCode::START_DEVICE, device, u64::from(std::process::id()))
    }

    /// Removes the block device, even if it is open, after its requests have ended.
    ///
    /// # Errors
    /// Fails with `ENODEV` if there is none.
    pub fn stop(&mut self, device: u32) -> io::Result<()> {
        self.tell(ControlCode::STOP_DEVICE, device, 0)
    }

    /// Deletes a device, and waits until every process has closed it.
    ///
    /// # Errors
    /// Fails with `ENODEV` if there is none.
    pub fn delete(&mut self, device: u32) -> io::Result<()> {
        self.tell(ControlCode::DELETE_DEVICE, device, 0)
    }

    /// Deletes a device that this process may still have open, without waiting.
    ///
    /// # Errors
    /// Fails with `ENODEV` if there is none.
    pub fn delete_later(&mut self, device: u32) -> io::Result<()> {
        self.tell(ControlCode::DELETE_DEVICE_LATER, device, 0)
    }

    /// Prepares a device, whose former server has ended, to be served by this process.
    ///
    /// # Errors
    /// Fails with `EBUSY` until the kernel has noticed the predecessor's end.
    pub fn start_recovery(&mut self, device: u32) -> io::Result<()> {
        self.tell(ControlCode::START_RECOVERY, device, 0)
    }

    /// Makes the driver pass the requests of a recovered device to the queues of this process.
    ///
    /// # Errors
    /// Fails if the device does not wait for a new server.
    pub fn end_recovery(&mut self, device: u32) -> io::Result<()> {
        self.tell(ControlCode::END_RECOVERY, device, u64::from(std::process::id()))
    }

    /// Changes the size of a device that serves, in sectors.
    ///
    /// # Errors
    /// Fails if the driver cannot do it.
    pub fn resize(&mut self, device: u32, sectors: u64) -> io::Result<()> {
        self.tell(ControlCode::UPDATE_SIZE, device, sectors)
    }

    fn tell(&mut self, code: ControlCode, device: u32, data: u64) -> io::Result<()> {
        let command = ControlCommand { data: data.into(), ..blank(device) };
        self.exchange(code, command, &mut [])
    }

    /// Runs a command in a thread of its own and waits for its end, since the driver may use the
    /// buffer until then.
    fn exchange(
        &mut self,
        code: ControlCode,
        mut command: ControlCommand,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        if !buffer.is_empty() {
            command.address = (buffer.as_mut_ptr().addr() as u64).into();
            command.len = u16::try_from(buffer.len()).expect("a structure is small").into();
        }
        // The kernel gives a thread whose commands wait a worker, which wakes again and again until
        // the thread ends.
        let file = &self.file;
        let carried_out =
            std::thread::scope(|scope| scope.spawn(move || carry_out(file, code, &command)).join());
        carried_out.expect("a command of the control device does not panic")
    }
}

fn ring() -> io::Result<IoUring<squeue::Entry128, cqueue::Entry>> {
    IoUring::builder().build(4)
}

/// Runs a command and waits for its end even through signals; the caller keeps the buffer
/// meanwhile.
fn carry_out(file: &File, code: ControlCode, command: &ControlCommand) -> io::Result<()> {
    let mut ring = ring()?;
    let mut bytes = [0; 80];
    bytes[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
    let entry = opcode::UringCmd80::new(types::Fd(file.as_raw_fd()), code.0).cmd(bytes).build();
    // SAFETY: the caller keeps the buffer, and this function does not return before the completion.
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
    loop {
        match ring.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => panic!("io_uring_enter failed: {error}"),
        }
        if let Some(done) = ring.completion().next() {
            return match done.result() {
                0.. => Ok(()),
                failed => Err(io::Error::from_raw_os_error(-failed)),
            };
        }
    }
}

fn blank(device: u32) -> ControlCommand {
    let mut command = ControlCommand::new_zeroed();
    command.device = device.into();
    command.queue = NO_QUEUE.into();
    command
}
