//! The blocking client, for programs without futures.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::{Error, Info, Notice, Options, Registered, Slo};

/// A handle to a server's namespace whose methods block until the answer. Cheap to clone; several
/// threads may use clones, or one handle, at the same time.
///
/// Units and errors are those of [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client {
    inner: crate::Client,
}

impl Client {
    /// Connects to a server, like [`crate::Client::connect`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::connect`] does.
    pub fn connect(url: &str, options: Options) -> Result<Client, Error> {
        Ok(Client { inner: block_on(crate::Client::connect(url, options))? })
    }

    /// Reads bytes, like [`crate::Client::read`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::read`] does.
    pub fn read(&self, lba: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        block_on(self.inner.read(lba, bytes))
    }

    /// Reads into a slice, like [`crate::Client::read_into`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::read_into`] does.
    pub fn read_into(&self, lba: u64, into: &mut [u8]) -> Result<(), Error> {
        block_on(self.inner.read_into(lba, into))
    }

    /// Writes data, like [`crate::Client::write`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::write`] does.
    pub fn write(&self, lba: u64, data: &[u8]) -> Result<(), Error> {
        block_on(self.inner.write(lba, data))
    }

    /// Writes data durably, like [`crate::Client::write_durable`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::write_durable`] does.
    pub fn write_durable(&self, lba: u64, data: &[u8]) -> Result<(), Error> {
        block_on(self.inner.write_durable(lba, data))
    }

    /// Makes acknowledged writes durable, like [`crate::Client::flush`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::flush`] does.
    pub fn flush(&self) -> Result<(), Error> {
        block_on(self.inner.flush())
    }

    /// Discards blocks, like [`crate::Client::discard`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::discard`] does.
    pub fn discard(&self, lba: u64, blocks: u64) -> Result<(), Error> {
        block_on(self.inner.discard(lba, blocks))
    }

    /// Writes zeroes, like [`crate::Client::write_zeroes`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::write_zeroes`] does.
    pub fn write_zeroes(&self, lba: u64, blocks: u64) -> Result<(), Error> {
        block_on(self.inner.write_zeroes(lba, blocks))
    }

    /// Compares and writes, like [`crate::Client::compare_and_write`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::compare_and_write`] does.
    pub fn compare_and_write(&self, lba: u64, expected: &[u8], new: &[u8]) -> Result<(), Error> {
        block_on(self.inner.compare_and_write(lba, expected, new))
    }

    /// Writes data atomically, like [`crate::Client::write_atomic`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::write_atomic`] does.
    pub fn write_atomic(&self, lba: u64, data: &[u8]) -> Result<(), Error> {
        block_on(self.inner.write_atomic(lba, data))
    }

    /// Returns the namespace's properties, like [`crate::Client::info`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::info`] does.
    pub fn info(&self) -> Result<Info, Error> {
        block_on(self.inner.info())
    }

    /// Registers a tenant, like [`crate::Client::register`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::register`] does.
    pub fn register(&self, name: &str, slo: Slo) -> Result<Registered, Error> {
        block_on(self.inner.register(name, slo))
    }

    /// Changes the tenant's SLO, like [`crate::Client::renegotiate`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::renegotiate`] does.
    pub fn renegotiate(&self, slo: Slo) -> Result<Registered, Error> {
        block_on(self.inner.renegotiate(slo))
    }

    /// Unregisters the tenant, like [`crate::Client::unregister`].
    ///
    /// # Errors
    /// Fails as [`crate::Client::unregister`] does.
    pub fn unregister(&self) -> Result<(), Error> {
        block_on(self.inner.unregister())
    }

    /// Returns the server's notices about the tenant since the last call, like
    /// [`crate::Client::notices`].
    pub fn notices(&self) -> Vec<Notice> {
        self.inner.notices()
    }

    /// Returns the asynchronous client behind this client.
    pub fn asynchronous(&self) -> &crate::Client {
        &self.inner
    }
}

/// Runs a future to completion on this thread: an executor for simple programs.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(ThreadWaker(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Wakes a thread that waits in [`block_on`].
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
