//! The asynchronous client: a handle whose methods are `async` and may be called from any task.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use client::Address;
use contract::{BLOCK_BYTES, Command, REQUEST_BYTES_MAX, Range, Status};

use crate::answer::{AnswerFuture, answer};
use crate::line::RequestQueue;
use crate::options::Options;
use crate::slo::Registered;
use crate::tenancy::{Notice, TenantRequest};
use crate::thread::{self, Notices, QueueCloser, Request, Route};
use crate::{Error, Info, Slo};

/// Number of streams of a connection. Stream 0 is common to all handles; [`Client::stream`] hands
/// out the others.
const STREAMS: u8 = 8;

/// Maximum size in bytes of the range of one discard or write of zeroes.
const RANGE_BYTES_MAX: usize = 1 << 30;

/// Maximum number of discards, or of writes of zeroes, that one call has in progress at the same
/// time.
const RANGES_MAX: usize = 4;

/// A handle to a server's namespace. A handle is cheap to clone, and all clones share the
/// connections. The client works under any executor. Its connections live on a thread of their own,
/// which ends with the last handle.
///
/// Addresses (`lba`) and counts of blocks are in blocks of 512 bytes. Data is in bytes, in
/// multiples of 512. Reads and writes of any length are cut into requests of at most 1 MiB,
/// discards and writes of zeroes into requests of at most 1 GiB; they are carried out in any order.
///
/// A request is under way once its future was first polled. Dropping the future gives up the
/// answer, not the request.
///
/// When a connection is lost, the client connects again and repeats the requests that are safe to
/// repeat. Other requests end as [`Error::ConnectionLost`].
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    route: Route,
}

#[derive(Debug)]
struct Shared {
    line: Arc<RequestQueue<Request>>,
    _closing: QueueCloser,
    waker: io::Waker,
    notices: Arc<Notices>,
    /// The routes of streams that no [`Stream`] has at present, over all connections.
    free: Mutex<Vec<Route>>,
}

impl Drop for Shared {
    /// Closes the line of requests, which ends the client's thread.
    fn drop(&mut self) {
        self.line.close();
        self.waker.wake();
    }
}

impl Client {
    /// Connects to the server at `url`: `reflex://HOST:PORT`, `reflexs://HOST:PORT` over TLS,
    /// `reflex+udp://HOST:PORT` in packets, or `reflex+unix:PATH` for a Unix socket of this
    /// machine. `?v=1` selects version 1 of the protocol (reads and writes only).
    ///
    /// # Errors
    /// [`Error::Address`] for an invalid or unknown address, [`Error::Connect`] if the server
    /// cannot be reached now, or [`Error::System`].
    ///
    /// # Panics
    /// If the options ask for no connection or no request in flight.
    pub async fn connect(url: &str, options: Options) -> Result<Client, Error> {
        options.check();
        let address: Address = url.parse().map_err(|e| Error::Address(format!("`{url}`: {e}")))?;
        let line = Arc::new(RequestQueue::new(options.in_flight_max));
        let (promise, opened) = answer();
        let free = (0..options.connections)
            .flat_map(|link| (1..STREAMS).map(move |stream| Route { link: Some(link), stream }))
            .collect();
        let thread_line = line.clone();
        let notices = Arc::new(Notices::default());
        let thread_notices = notices.clone();
        std::thread::Builder::new()
            .name(options.thread_name.clone())
            .spawn(move || thread::run(&address, &options, &thread_line, &thread_notices, promise))
            .map_err(|e| Error::System(format!("cannot start a thread: {e}")))?;
        // Dropping this value ends the thread, here or when the caller stops waiting.
        let closing = QueueCloser(line.clone());
        let waker = opened.await?;
        let shared = Shared { line, _closing: closing, waker, notices, free: Mutex::new(free) };
        Ok(Client { shared: Arc::new(shared), route: Route::default() })
    }

    /// Reads `bytes` bytes from block `lba`.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Failed`] or [`Error::ConnectionLost`].
    pub async fn read(&self, lba: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        let mut answers = Vec::new();
        for range in pieces(lba, bytes)? {
            answers.push(self.send(Command::Read(range), Vec::new()).await?);
        }
        let mut data = Vec::new();
        for answer in answers {
            let piece = answer.await?;
            if data.is_empty() {
                data = piece;
            } else {
                data.extend_from_slice(&piece);
            }
        }
        Ok(data)
    }

    /// Fills `into` from block `lba`.
    ///
    /// # Errors
    /// As for [`read`](Client::read); `into` is then unchanged.
    pub async fn read_into(&self, lba: u64, into: &mut [u8]) -> Result<(), Error> {
        into.copy_from_slice(&self.read(lba, into.len()).await?);
        Ok(())
    }

    /// Writes `data` to block `lba`. When the call returns, every reader sees the data. The data is
    /// durable after a [`flush`](Client::flush).
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Failed`] or [`Error::ConnectionLost`].
    pub async fn write(&self, lba: u64, data: &[u8]) -> Result<(), Error> {
        self.write_pieces(lba, data, false).await
    }

    /// Writes `data` to block `lba`. The data is durable when the call returns (forced unit
    /// access).
    ///
    /// # Errors
    /// Fails as [`write`](Client::write) does.
    pub async fn write_durable(&self, lba: u64, data: &[u8]) -> Result<(), Error> {
        self.write_pieces(lba, data, true).await
    }

    async fn write_pieces(&self, lba: u64, data: &[u8], fua: bool) -> Result<(), Error> {
        let mut answers = Vec::new();
        let parts = data.chunks(REQUEST_BYTES_MAX);
        for (range, part) in pieces(lba, data.len())?.zip(parts) {
            answers.push(self.send(Command::Write { range, fua }, part.to_vec()).await?);
        }
        wait_for_all(answers).await
    }

    /// Makes all previously acknowledged writes of the client durable.
    ///
    /// # Errors
    /// [`Error::Failed`] or [`Error::ConnectionLost`]. `Failed(Status::WritesLost)`, once, if the
    /// server's machine started anew and lost some of them.
    pub async fn flush(&self) -> Result<(), Error> {
        self.send(Command::Flush, Vec::new()).await?.await.map(drop)
    }

    /// Discards `blocks` blocks from `lba`: their contents are no longer needed, and they read as
    /// zeroes from then on.
    ///
    /// # Errors
    /// [`Error::Length`] for no blocks, [`Error::Failed`] or [`Error::ConnectionLost`].
    pub async fn discard(&self, lba: u64, blocks: u64) -> Result<(), Error> {
        self.on_ranges(lba, blocks, Command::Discard).await
    }

    /// Writes zeroes to `blocks` blocks from `lba`.
    ///
    /// # Errors
    /// [`Error::Length`] for no blocks, [`Error::Failed`] or [`Error::ConnectionLost`].
    pub async fn write_zeroes(&self, lba: u64, blocks: u64) -> Result<(), Error> {
        self.on_ranges(lba, blocks, |range| Command::WriteZeroes { range, fua: false }).await
    }

    async fn on_ranges(
        &self,
        lba: u64,
        blocks: u64,
        command: impl Fn(Range) -> Command,
    ) -> Result<(), Error> {
        let bytes = usize::try_from(blocks).ok().and_then(|n| n.checked_mul(BLOCK_BYTES));
        let bytes = bytes.ok_or(Error::TooLarge { bytes_max: usize::MAX })?;
        match self.on_pieces(pieces_of(RANGE_BYTES_MAX, lba, bytes)?, &command).await {
            // An older server takes ranges of at most 1 MiB.
            Err(Error::Failed(Status::BadLength)) => {
                self.on_pieces(pieces(lba, bytes)?, &command).await
            }
            done => done,
        }
    }

    async fn on_pieces(
        &self,
        pieces: impl Iterator<Item = Range>,
        command: &impl Fn(Range) -> Command,
    ) -> Result<(), Error> {
        let mut answers = Vec::new();
        for range in pieces {
            answers.push(self.send(command(range), Vec::new()).await?);
            // Few, so that a server that has few tokens for them answers one before long.
            if answers.len() == RANGES_MAX {
                wait_for_all(std::mem::take(&mut answers)).await?;
            }
        }
        wait_for_all(answers).await
    }

    /// Writes `new` to block `lba` if the stored data equals `expected`, as one atomic step. Both
    /// slices have the same length, at most 1 MiB.
    ///
    /// # Errors
    /// [`Error::CompareFailed`] if the stored data differs; [`Error::Length`], [`Error::TooLarge`],
    /// [`Error::Failed`] or [`Error::ConnectionLost`].
    ///
    /// # Panics
    /// If the lengths differ.
    pub async fn compare_and_write(
        &self,
        lba: u64,
        expected: &[u8],
        new: &[u8],
    ) -> Result<(), Error> {
        assert_eq!(expected.len(), new.len(), "both have the same length");
        let range = one_piece(lba, new.len())?;
        let payload = [expected, new].concat();
        self.send(Command::CompareAndWrite(range), payload).await?.await.map(drop)
    }

    /// Writes `data` to block `lba` so that a reader, and a crash, sees all of it or nothing. The
    /// data is durable when the call returns. [`Info::atomic_bytes_max`] is the device's limit.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::TooLarge`], [`Error::Failed`] or [`Error::ConnectionLost`].
    pub async fn write_atomic(&self, lba: u64, data: &[u8]) -> Result<(), Error> {
        let range = one_piece(lba, data.len())?;
        self.send(Command::WriteAtomic(range), data.to_vec()).await?.await.map(drop)
    }

    /// Returns the namespace's properties.
    ///
    /// # Errors
    /// [`Error::Failed`] (version 1 has no such request) or [`Error::ConnectionLost`].
    pub async fn info(&self) -> Result<Info, Error> {
        let (promise, answer) = answer();
        self.push(Request::Info(promise)).await?;
        answer.await
    }

    /// Registers a tenant by its name and SLO, or joins a tenant that is registered already, whose
    /// SLO then stands. `Slo::default()` is best effort.
    ///
    /// From then on, this client's requests are charged to the tenant, on all its connections and
    /// on later ones. If the server does not admit the client again on a later connection, requests
    /// on that connection are charged to the tenant of the client's access rule.
    ///
    /// # Errors
    /// [`Error::Refused`] with the missing capacity; [`Error::Failed`] with `Denied` if no access
    /// rule lets the client register, or the name belongs to another client;
    /// [`Error::ConnectionLost`].
    pub async fn register(&self, name: &str, slo: Slo) -> Result<Registered, Error> {
        self.wish(TenantRequest::Register { name: name.to_owned(), slo }).await
    }

    /// Changes the SLO of the registered tenant, for all clients that share it: the response to a
    /// [`Notice`].
    ///
    /// # Errors
    /// As for [`register`](Client::register), and then the old SLO stands; [`Error::Failed`] with
    /// `NoTenant` if none is registered.
    pub async fn renegotiate(&self, slo: Slo) -> Result<Registered, Error> {
        self.wish(TenantRequest::Renegotiate { slo }).await
    }

    /// Unregisters the tenant. A tenant ends with the last client that registered it.
    ///
    /// # Errors
    /// [`Error::Failed`] with `NoTenant` if none is registered; [`Error::ConnectionLost`].
    pub async fn unregister(&self) -> Result<(), Error> {
        self.wish(TenantRequest::Unregister).await.map(drop)
    }

    /// Returns the notices since the last call, at most the newest 16. A notice says that the
    /// tenant demands more than its SLO.
    pub fn notices(&self) -> Vec<Notice> {
        self.shared.notices.lock().expect("no holder panics").drain(..).collect()
    }

    async fn wish(&self, wish: TenantRequest) -> Result<Registered, Error> {
        let (promise, answer) = answer();
        self.push(Request::Tenant { wish, promise }).await?;
        answer.await
    }

    /// Returns a stream of requests that barriers can order.
    ///
    /// # Errors
    /// [`Error::NoStreams`] if all streams are in use: 7 of each connection.
    pub fn stream(&self) -> Result<Stream, Error> {
        let route = self.shared.free.lock().expect("no holder panics").pop();
        let route = route.ok_or(Error::NoStreams)?;
        Ok(Stream { client: Client { shared: self.shared.clone(), route } })
    }

    async fn send(
        &self,
        command: Command,
        payload: Vec<u8>,
    ) -> Result<AnswerFuture<Vec<u8>>, Error> {
        let (promise, answer) = answer();
        self.push(Request::Data { command, route: self.route, payload, promise }).await?;
        Ok(answer)
    }

    async fn push(&self, request: Request) -> Result<(), Error> {
        self.shared.line.push(request).await?;
        self.shared.waker.wake();
        Ok(())
    }
}

/// A stream of requests on one connection. All requests before a [`barrier`](Stream::barrier) end
/// before any request after it starts. A stream has all methods of a [`Client`].
///
/// The order is the one in which the futures are first polled. With an executor's `join!`, the
/// requests are in flight together and the order still holds.
///
/// ```no_run
/// # async fn example(client: nearflash::Client) -> Result<(), nearflash::Error> {
/// let stream = client.stream()?;
/// stream.write(8, &[1; 512]).await?;
/// stream.barrier().await?;
/// stream.write(0, &[2; 512]).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Stream {
    client: Client,
}

impl Stream {
    /// Orders the stream: every earlier request of the stream ends before any later request starts.
    ///
    /// # Errors
    /// [`Error::Failed`] or [`Error::ConnectionLost`].
    pub async fn barrier(&self) -> Result<(), Error> {
        self.client.send(Command::Barrier, Vec::new()).await?.await.map(drop)
    }
}

impl Deref for Stream {
    type Target = Client;

    /// Returns the client that sends on the stream. A clone of this client is on the stream only
    /// until the stream is dropped; afterwards another handle may use the stream.
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut free = self.client.shared.free.lock().expect("no holder panics");
        free.push(self.client.route);
    }
}

async fn wait_for_all(answers: Vec<AnswerFuture<Vec<u8>>>) -> Result<(), Error> {
    let mut result = Ok(());
    for answer in answers {
        // Waits for every answer, so that nothing is under way when this function returns.
        let ended = answer.await.map(drop);
        result = result.and(ended);
    }
    result
}

/// Returns the requests of at most 1 MiB that cover `bytes` bytes from `lba`.
fn pieces(lba: u64, bytes: usize) -> Result<impl Iterator<Item = Range>, Error> {
    pieces_of(REQUEST_BYTES_MAX, lba, bytes)
}

/// Returns the requests of at most `most` bytes that cover `bytes` bytes from `lba`.
fn pieces_of(most: usize, lba: u64, bytes: usize) -> Result<impl Iterator<Item = Range>, Error> {
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(Error::Length { bytes });
    }
    let blocks = (bytes / BLOCK_BYTES) as u64;
    if lba.checked_add(blocks).is_none() {
        return Err(Error::Failed(Status::OutOfRange));
    }
    let step = (most / BLOCK_BYTES) as u64;
    Ok((0..blocks.div_ceil(step)).map(move |n| {
        let first = n * step;
        Range::new(lba + first, (blocks - first).min(step) as u32)
    }))
}

fn one_piece(lba: u64, bytes: usize) -> Result<Range, Error> {
    if bytes > REQUEST_BYTES_MAX {
        return Err(Error::TooLarge { bytes_max: REQUEST_BYTES_MAX });
    }
    Ok(pieces(lba, bytes)?.next().expect("there is a piece"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_requests_are_cut_and_odd_ones_refused() {
        let all: Vec<Range> = pieces(10, (2 << 20) + 512).unwrap().collect();
        assert_eq!(all, [Range::new(10, 2048), Range::new(2058, 2048), Range::new(4106, 1)]);
        assert_eq!(pieces(0, 100).err(), Some(Error::Length { bytes: 100 }));
        assert_eq!(pieces(0, 0).err(), Some(Error::Length { bytes: 0 }));
        assert!(pieces(u64::MAX, 512).is_err());
        assert_eq!(one_piece(3, 1024), Ok(Range::new(3, 2)));
        assert_eq!(one_piece(3, 2 << 20), Err(Error::TooLarge { bytes_max: 1 << 20 }));
    }
}
