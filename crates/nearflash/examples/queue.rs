//! Drives requests by polls, without a thread or an executor: `cargo run --example queue --
//! reflex://127.0.0.1:7420`. The example only reads.

use std::time::Duration;

use nearflash::{Command, Error, Op, Options, Queue, Range, SizeClass, Wait, memory};

/// Requests in flight at the same time.
const DEPTH: usize = 32;

fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "reflex://127.0.0.1:7420".to_owned());
    let mut queue = Queue::connect(&url, &Options::default())?;
    let mut pool = memory(&[SizeClass { bytes: 4096, count: DEPTH }])?;
    let mut done = Vec::with_capacity(DEPTH);
    let (mut next, mut ended) = (0, 0);
    while ended < 10_000 {
        // Each free buffer is a request that may be in flight.
        while let Some(buf) = pool.take(4096) {
            let read = Command::Read(Range::new(next % 1024 * 8, 8));
            queue.submit(Op::new(read, Some(buf))).expect("a queue has room for 256");
            next += 1;
        }
        // Sends what was submitted, and waits for the first answer.
        ended += queue.poll(&mut done, Wait::Sleep(Duration::from_secs(1)));
        for request in done.drain(..) {
            if !request.status.is_ok() {
                return Err(Error::Failed(request.status));
            }
            pool.give(request.buf.expect("memory comes back with its request"));
        }
    }
    println!("{ended} reads of 4 KiB");
    Ok(())
}
