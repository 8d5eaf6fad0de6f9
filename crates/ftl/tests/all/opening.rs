//! Tests of the pages that the opening of a volume reads.

use contract::BLOCK_BYTES;
use flash::MemVolume;
use flash::conformance::leak_buf;
use nearflash_ftl::layout::PAGE_BYTES;
use nearflash_ftl::{DeviceMedia, Policy, Settings, Shape, close, create, open};

/// After an orderly end, opening reads the superblocks and the checkpoint: five bytes for each
/// logical page, and a little for each segment.
#[test]
fn opening_after_an_orderly_end_reads_at_most_a_500th_of_the_pages() {
    let policy = Policy::HEAT3;
    let shape = Shape {
        uuid: [7; 16],
        segment_pages: 512,
        spare_per_mille: 20,
        policy,
        virtual_pages: None,
    };
    let pages: u64 = 1 << 20;
    let memory = MemVolume::new(pages * (PAGE_BYTES / BLOCK_BYTES) as u64);
    let mut media = DeviceMedia::new(vec![memory.open_queue_of(1)], leak_buf(1 << 16, 0));
    create(&mut media, &shape).expect("the member is empty");
    let (volume, _) = open(&mut media, Settings::new(policy)).expect("it was created");
    assert!(close(&mut media, volume).expect("the member does not fail"));
    let (_, opened) = open(&mut media, Settings::new(policy)).expect("it was closed");
    assert!(opened.clean);
    println!("opening read {} of {pages} pages", opened.read_pages);
    assert!(opened.read_pages > pages / 1_000 && opened.read_pages <= pages / 500, "{opened:?}");
}
