//! A process that does not outlive its test.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;

/// A process that is killed when this value is dropped.
pub(crate) struct KilledOnDrop(pub(crate) Child);

impl KilledOnDrop {
    /// Waits until the process, a server, says that it is ready.
    pub(crate) fn await_ready(&mut self) {
        let mut line = String::new();
        let out = self.0.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready "), "{line}");
    }

    /// Asks the process to stop, and returns its standard error.
    pub(crate) fn end(&mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.0.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
