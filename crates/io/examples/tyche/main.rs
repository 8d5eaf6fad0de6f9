//! The protocol of the Tyche paper (MSST 2015) as a yardstick, in user space: where the time of one
//! request goes, and how often its threads give up the processor.
//!
//! Both ends are in this process and talk by UDP over loopback, with one request outstanding. The
//! variants are the paper's: `base` has a network thread, a block thread and a work queue, `rec` one
//! thread for the whole receive path, `nowq` also replies from the completion. `turn` and `parked`
//! are nearflash's own sockets over packets, one thread an end, spinning and sleeping.
//!
//! The last lines of the output are a component and its median in µs each, then the voluntary
//! context switches of a request, by the kernel's counters of all threads.

#[path = "../yardstick/mod.rs"]
mod yardstick;

mod base;
mod datagram;
mod stamps;
mod turn;

use clap::{Parser, ValueEnum};
use stamps::{Record, switches};

/// Bytes of the memory that stands for the drive.
const DISK_BYTES: usize = 64 << 20;

/// A way to organise the threads of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Variant {
    /// Network thread, block thread and work queue
    Base,
    /// Receive by a single thread
    Rec,
    /// Receive by a single thread, which also replies
    Nowq,
    /// Use nearflash's packets and a spinning thread at each end
    Turn,
    /// Use nearflash's packets and a sleeping thread at each end
    Parked,
}

/// Measures the path of single requests.
#[derive(Clone, Debug, Parser)]
struct Options {
    #[arg(value_enum)]
    variant: Variant,
    /// Bytes of a request: a multiple of 512, at most 1 MiB
    #[arg(long, default_value_t = 4096)]
    bytes: usize,
    /// Write instead of read
    #[arg(long)]
    write: bool,
    /// Requests that are measured
    #[arg(long, default_value_t = 10_000)]
    requests: u32,
    /// The cores of the initiator's and the target's threads
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
}

impl Options {
    /// Returns the number of requests before the measured ones.
    fn warmup(&self) -> u32 {
        self.requests / 10 + 1
    }

    /// Keeps the calling thread on the core of the initiator (0) or the target (1).
    fn pin(&self, end: usize) -> std::io::Result<()> {
        yardstick::pin(self.cpus.get(end).copied())
    }

    /// Returns the place of a request in the memory of the drive.
    fn place(&self, request: u32) -> u64 {
        let places = (DISK_BYTES / self.bytes) as u64;
        u64::from(request).wrapping_mul(2_654_435_761) % places * self.bytes as u64
    }
}

/// Notes the switches before the first measured request, and adds the stamps of measured ones.
struct Measured {
    options: Options,
    record: Record,
    switched: u64,
    done: u32,
}

impl Measured {
    fn new(options: &Options) -> Measured {
        let record = Record::new(options.requests as usize);
        Measured { options: options.clone(), record, switched: 0, done: 0 }
    }

    /// Ends a request. Returns `false` after the last one.
    fn end(&mut self) -> bool {
        self.done += 1;
        let warmup = self.options.warmup();
        if self.done == warmup {
            self.switched = switches();
        }
        if self.done > warmup {
            self.record.add();
        }
        self.done < warmup + self.options.requests
    }

    fn print(&self) {
        let switched = switches() - self.switched;
        self.record.print();
        println!("switches {:.3}", switched as f64 / f64::from(self.options.requests));
    }
}

fn measure(options: &Options) -> std::io::Result<Measured> {
    match options.variant {
        Variant::Base | Variant::Rec | Variant::Nowq => base::run(options),
        Variant::Turn | Variant::Parked => turn::run(options),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    if options.bytes == 0 || !options.bytes.is_multiple_of(512) || options.bytes > 1 << 20 {
        return Err("--bytes is a multiple of 512 up to 1 MiB".into());
    }
    measure(&options)?.print();
    // The other threads wait for requests.
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_measures_every_request_from_end_to_end() {
        for variant in Variant::value_variants() {
            for (bytes, write) in [(512, false), (512, true), (20_480, false), (20_480, true)] {
                let (variant, cpus) = (*variant, Vec::new());
                let options = Options { variant, bytes, write, requests: 20, cpus };
                let measured = measure(&options).unwrap();
                assert_eq!(measured.record.whole(), 20, "{options:?}");
            }
        }
    }

    #[test]
    fn requests_lie_on_the_drive() {
        let options = Options::parse_from(["tyche", "rec", "--bytes", "131072"]);
        for request in 0..10_000 {
            let place = options.place(request) as usize;
            assert!(place.is_multiple_of(512) && place + options.bytes <= DISK_BYTES);
        }
    }
}
