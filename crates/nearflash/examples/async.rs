//! Keeps many requests in flight: `cargo run --example async -- reflex://127.0.0.1:7420`. The
//! example overwrites the first 4 MiB.
//!
//! `block_on` is the library's own executor. Under tokio or smol, `await` the same calls.

use nearflash::{Client, Error, Options, blocking::block_on};

/// Blocks of 512 bytes in a record of 4 KiB.
const RECORD_BLOCKS: u64 = 8;

fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "reflex://127.0.0.1:7420".to_owned());
    block_on(run(&url))
}

async fn run(url: &str) -> Result<(), Error> {
    let options = Options { connections: 2, ..Options::default() };
    let client = Client::connect(url, options).await?;

    // One call of 4 MiB becomes four requests that are in flight together.
    let data: Vec<u8> = (0..4usize << 20).map(|n| (n / 4096) as u8).collect();
    client.write(0, &data).await?;
    client.flush().await?;
    for record in [0, 17, 1023] {
        let read = client.read(record * RECORD_BLOCKS, 4096).await?;
        assert!(read.iter().all(|&byte| byte == record as u8));
    }

    // A stream orders requests: the commit record is written only when the data before it has
    // ended.
    let stream = client.stream()?;
    stream.write(RECORD_BLOCKS, &[0xda; 4096]).await?;
    stream.barrier().await?;
    stream.write_durable(0, &[0xc0; 4096]).await?;
    println!("4 MiB written and read, and a record committed");
    Ok(())
}
