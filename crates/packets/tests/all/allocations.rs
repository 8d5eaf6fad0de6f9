//! Messages cost no allocation at either end once an association is up.

use nearflash_packets::Settings;

use crate::pair::{Arena, Pair, SMALL, sealed};

#[test]
fn nothing_is_allocated_after_the_start() {
    let seen = allocation_counter::measure(|| drop(std::hint::black_box(vec![1u8; 10])));
    assert_eq!(seen.count_total, 1, "the counter counts");
    for sealed in [None, sealed(1000)] {
        allocates_nothing(&Settings { sealed, ..SMALL });
    }
}

fn allocates_nothing(settings: &Settings) {
    let mut arena = Arena::default();
    let mut pair = Pair::new(settings, &mut arena);
    pair.echoes = true;
    for _ in 0..32 {
        let conn = pair.conn;
        pair.send(0, conn, 4096, &mut arena);
    }
    let mut turns = |pair: &mut Pair, count| (0..count).for_each(|_| pair.settle(&mut arena));
    turns(&mut pair, 20);
    let before = pair.messages;
    let used = allocation_counter::measure(|| turns(&mut pair, 200));
    assert_eq!(used.count_total, 0);
    assert!(pair.messages - before > 10_000, "it worked all the while: {}", pair.messages);
}
