//! Writes and reads a block of a server: `cargo run --example blocking -- reflex://127.0.0.1:7420`.
//! The example overwrites the first 4 KiB.

use nearflash::{Error, Options, blocking::Client};

fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "reflex://127.0.0.1:7420".to_owned());
    let client = Client::connect(&url, Options::default())?;
    let info = client.info()?;
    println!("namespace {} has {} MiB", info.namespace, info.bytes >> 20);

    let data: Vec<u8> = (0..4096).map(|n| n as u8).collect();
    client.write_durable(0, &data)?;
    assert!(client.read(0, data.len())? == data);

    // If many clients try this at the same time, exactly one of them succeeds.
    match client.compare_and_write(0, &data[..512], &[1; 512]) {
        Ok(()) => println!("the first block was as expected and is now ours"),
        Err(Error::CompareFailed) => println!("somebody else was faster"),
        Err(error) => return Err(error),
    }
    Ok(())
}
