//! The client for programs without futures.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::{Error, Info, Notice, Options, Registered, Slo};

/// A handle to a server's namespace whose methods wait for their answers. Cheap to clone; several
/// threads may use clones, or one, at the same time.
///
/// Units and errors are those of [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client {
    inner: crate::Client,
}

impl Client {
    /// As [`crate::Client::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(url: &str, options: Options) -> Result<Client, Error> {
        Ok(Client { inner: block_on(crate::Client::connect(url, options))? })
    }

    /// As [`crate::Client::read`].
    ///
    /// # Errors
    /// As there.
    pub fn read(&self, lba: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        block_on(self.inner.read(lba, bytes))
    }

    /// As [`crate::Client::read_into`].
    ///
    /// # Errors
    /// As there.
    pub fn read_into(&self, lba: u64, into: &mut [u8]) -> Result<(), Error> {
        block_on(self.inner.read_into(lba, into))
    }

    /// As [`crate::Client::write`].
    ///
    /// # Errors
    /// As there.
    pub fn write(&self, lba: u64, data: &[u8]) -> Result<(), Error> {
        block_on(self.inner.write(lba, data))
    }

    /// As [`crate::Client::write_durable`].
    ///
    /// # Errors
    /// As there.
    pub fn write_durable(&self, lba: u64, data: &[u8]) -> Result<(), Error> {
        block_on(self.inner.write_durable(lba, data))
    }

    /// As [`crate::Client::flush`].
    ///
    /// # Errors
    /// As there.
    pub fn flush(&self) -> Result<(), Error> {
        block_on(self.inner.flush())
    }

    /// As [`crate::Client::discard`].
    ///
    /// # Errors
    /// As there.
    pub fn discard(&self, lba: u64, blocks: u64) -> Result<(), Error> {
        block_on(self.inner.discard(lba, blocks))
    }

    /// As [`crate::Client::write_zeroes`].
    ///
    /// # Errors
    /// As there.
    pub fn write_zeroes(&self, lba: u64, blocks: u64) -> Result<(), Error> {
        block_on(self.inner.write_zeroes(lba, blocks))
    }

    /// As [`crate::Client::compare_and_write`].
    ///
    /// # Errors
    /// As there.
    pub fn compare_and_write(&self, lba: u64, expected: &[u8], new: &[u8]) -> Result<(), Error> {
        block_on(self.inner.compare_and_write(lba, expected, new))
    }

    /// As [`crate::Client::write_atomic`].
    ///
    /// # Errors
    /// As there.
    pub fn write_atomic(&self, lba: u64, data: &[u8]) -> Result<(), Error> {
        block_on(self.inner.write_atomic(lba, data))
    }

    /// As [`crate::Client::info`].
    ///
    /// # Errors
    /// As there.
    pub fn info(&self) -> Result<Info, Error> {
        block_on(self.inner.info())
    }

    /// As [`crate::Client::register`].
    ///
    /// # Errors
    /// As there.
    pub fn register(&self, name: &str, slo: Slo) -> Result<Registered, Error> {
        block_on(self.inner.register(name, slo))
    }

    /// As [`crate::Client::renegotiate`].
    ///
    /// # Errors
    /// As there.
    pub fn renegotiate(&self, slo: Slo) -> Result<Registered, Error> {
        block_on(self.inner.renegotiate(slo))
    }

    /// As [`crate::Client::unregister`].
    ///
    /// # Errors
    /// As there.
    pub fn unregister(&self) -> Result<(), Error> {
        block_on(self.inner.unregister())
    }

    /// As [`crate::Client::notices`].
    pub fn notices(&self) -> Vec<Notice> {
        self.inner.notices()
    }

    /// The asynchronous client behind this one.
    pub fn asynchronous(&self) -> &crate::Client {
        &self.inner
    }
}

/// Waits for a future on this thread: all that the simplest program needs of an executor.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Wakes a thread that waits in [`block_on`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
