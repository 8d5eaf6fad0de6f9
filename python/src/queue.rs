//! The Python class of a queue: jobs are started, and then awaited or polled.

use std::time::Duration;

use nearflash::{Info, Options};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::failure::Failure;
use crate::inner::{Ended, Inner};
use crate::job::{Action, BLOCK_BYTES, Job, Segment};
use crate::local::{self, Key};
use crate::memory::Memory;

/// The most connections of a queue.
const CONNECTIONS_MAX: usize = 1024;

/// The most requests in flight of a queue.
const IN_FLIGHT_MAX: usize = 65_536;

/// Requests in flight to a namespace, for the thread that made the queue.
#[pyclass(frozen, module = "nearflash._native")]
pub(crate) struct Queue {
    key: Key,
}

impl Drop for Queue {
    fn drop(&mut self) {
        drop(self.key.close());
    }
}

impl Queue {
    fn start_job(&self, action: Action, segments: Vec<Segment>) -> PyResult<u64> {
        Ok(self.key.on(|inner| inner.start(Job::new(action, segments)))?)
    }
}

#[pymethods]
impl Queue {
    /// Begins to connect. Job 0 stands for the connection.
    #[new]
    #[pyo3(signature = (url, *, tenant, token, namespace, connections, in_flight_max, outage, spin,
                        checksums))]
    #[expect(clippy::too_many_arguments, reason = "Python gives them by name")]
    fn new(
        py: Python<'_>,
        url: &str,
        tenant: String,
        token: Vec<u8>,
        namespace: Option<u16>,
        connections: usize,
        in_flight_max: usize,
        outage: f64,
        spin: f64,
        checksums: bool,
    ) -> PyResult<Queue> {
        if !(1..=CONNECTIONS_MAX).contains(&connections) {
            return Err(PyValueError::new_err("connections: 1 to 1024"));
        }
        if !(1..=IN_FLIGHT_MAX).contains(&in_flight_max) {
            return Err(PyValueError::new_err("in_flight_max: 1 to 65536"));
        }
        let seconds = |name: &str, value: f64| {
            let wrong = |_| PyValueError::new_err(format!("{name}: a time in seconds"));
            Duration::try_from_secs_f64(value).map_err(wrong)
        };
        let options = Options {
            connections,
            in_flight_max,
            namespace,
            token,
            tenant,
            checksums,
            outage_max: seconds("outage", outage)?,
            spin: seconds("spin", spin)?,
            ..Options::default()
        };
        drop(local::sweep());
        let keep = || Inner::connect(url, &options).map(Key::keep);
        let key = py.detach(keep).map_err(Failure::from)?;
        Ok(Queue { key })
    }

    /// Returns the descriptor for event loops.
    fn fileno(&self) -> PyResult<i32> {
        use std::os::fd::AsRawFd;
        let fd = self.key.on(|inner| inner.queue.fd().map(|fd| fd.as_raw_fd()))?;
        Ok(fd.map_err(Failure::from)?)
    }

    /// Starts to read `nbytes` bytes into a new object, which is the job's value.
    fn start_read(&self, py: Python<'_>, lba: u64, nbytes: usize) -> PyResult<u64> {
        let memory = Memory::fresh(py, nbytes)?;
        self.start_job(Action::Read, vec![Segment::of(Action::Read, lba, memory)?])
    }

    /// Starts to read into buffers, each from its block on.
    fn start_fill(&self, requests: Vec<(u64, Bound<'_, PyAny>)>) -> PyResult<u64> {
        let fill = |(lba, object): &(u64, Bound<'_, PyAny>)| {
            Ok(Segment::of(Action::Read, *lba, Memory::to_fill(object)?)?)
        };
        let segments = requests.iter().map(fill).collect::<PyResult<Vec<_>>>()?;
        self.start_job(Action::Read, segments)
    }

    /// Starts to write buffers, each to its block on.
    fn start_write(&self, requests: Vec<(u64, Bound<'_, PyAny>)>, durable: bool) -> PyResult<u64> {
        let action = Action::Write { durable };
        let send = |(lba, object): &(u64, Bound<'_, PyAny>)| {
            Ok(Segment::of(action, *lba, Memory::to_send(object)?)?)
        };
        let segments = requests.iter().map(send).collect::<PyResult<Vec<_>>>()?;
        self.start_job(action, segments)
    }

    /// Starts to write a buffer all or nothing.
    fn start_write_atomic(&self, lba: u64, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        let segment = Segment::of(Action::WriteAtomic, lba, Memory::to_send(data)?)?;
        self.start_job(Action::WriteAtomic, vec![segment])
    }

    /// Starts to write `new` if the stored data equals `expected`.
    fn start_compare_and_write(
        &self,
        py: Python<'_>,
        lba: u64,
        expected: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let (expected, new) = (Memory::to_send(expected)?, Memory::to_send(new)?);
        if expected.bytes() != new.bytes() {
            let text = "what is expected and what is new have different lengths";
            return Err(Failure::new("LengthError", text).into());
        }
        let both = Memory::joined(py, &expected, &new)?;
        let segment = Segment::of(Action::CompareAndWrite, lba, both)?;
        self.start_job(Action::CompareAndWrite, vec![segment])
    }

    /// Starts to discard blocks.
    fn start_discard(&self, lba: u64, blocks: u64) -> PyResult<u64> {
        self.start_job(Action::Discard, vec![Segment::bare(lba, blocks)?])
    }

    /// Starts to write zeroes.
    fn start_write_zeroes(&self, lba: u64, blocks: u64, durable: bool) -> PyResult<u64> {
        self.start_job(Action::WriteZeroes { durable }, vec![Segment::bare(lba, blocks)?])
    }

    /// Starts to make acknowledged writes durable.
    fn start_flush(&self) -> PyResult<u64> {
        Ok(self.key.on(|inner| inner.start(Job::flush()))?)
    }

    /// Waits for a job, and returns its value or raises its failure. If a signal raises an
    /// exception, the job continues.
    fn wait(&self, py: Python<'_>, job: u64) -> PyResult<Py<PyAny>> {
        let key = &self.key;
        let look = || {
            key.on(|inner| {
                inner.poll(true);
                (inner.take(job), std::mem::take(&mut inner.left))
            })
        };
        loop {
            let (ended, _left) = py.detach(look)?;
            if let Some(ended) = ended {
                return value(py, ended);
            }
            if let Err(signal) = py.check_signals() {
                key.on(|inner| inner.abandon(job))?;
                return Err(signal);
            }
        }
    }

    /// Sends the started requests, and returns the jobs that have ended: their numbers, whether
    /// they succeeded, and their values or exceptions.
    fn poll(&self, py: Python<'_>) -> PyResult<Vec<(u64, bool, Py<PyAny>)>> {
        let look = |inner: &mut Inner| {
            inner.poll(false);
            (inner.take_all(), std::mem::take(&mut inner.left))
        };
        let (ended, _left) = self.key.on(look)?;
        let told = |(job, ended)| match value(py, ended) {
            Ok(value) => (job, true, value),
            Err(error) => (job, false, error.into_value(py).into_any()),
        };
        Ok(ended.into_iter().map(told).collect())
    }

    /// Sends the started requests.
    fn kick(&self) -> PyResult<()> {
        Ok(self.key.on(|inner| inner.queue.kick())?)
    }

    /// Gives up a job's answer. Its buffers stay exported until it has ended.
    fn abandon(&self, job: u64) -> PyResult<()> {
        Ok(self.key.on(|inner| inner.abandon(job))?)
    }

    /// Closes the queue; at once in its own thread.
    fn close(&self, py: Python<'_>) {
        let key = &self.key;
        drop(py.detach(|| key.close()));
    }
}

/// Returns the value of a job that has ended, or raises its failure.
fn value(py: Python<'_>, ended: Ended) -> PyResult<Py<PyAny>> {
    match ended {
        Ended::Failed(failure) => Err(failure.into()),
        Ended::Opened(None) => Ok(py.None()),
        Ended::Opened(Some(info)) => Ok(properties(py, &info)?.into_any().unbind()),
        Ended::Job(job) => {
            if let Some(failure) = job.failure() {
                return Err(failure.into());
            }
            let memory = job.segments.into_iter().next().and_then(|segment| segment.memory);
            match memory {
                Some(Memory::Fresh(object, _)) => Ok(object.into_any()),
                _ => Ok(py.None()),
            }
        }
    }
}

/// Returns the fields of `nearflash.Info`.
fn properties<'py>(py: Python<'py>, info: &Info) -> PyResult<Bound<'py, PyTuple>> {
    let sizes = (info.bytes, BLOCK_BYTES, info.physical_block_bytes, info.atomic_bytes_max);
    let (size, block, physical, atomic) = sizes;
    let rights = (info.may_read, info.may_write, info.needs_flush);
    (info.namespace, size, block, physical, atomic, rights.0, rights.1, rights.2).into_pyobject(py)
}
