//! Prints the write amplification of the flash translation layer over spare space, skew and policy:
//! `cargo run --example flashnet_wa [PAGES [SEGMENT_PAGES [OVERWRITES [SPARE]]]]`.

use nearflash_ftl::Policy;
use nearflash_ftl::amplification::{Case, Skew, measure};

fn main() {
    let given: Vec<u32> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let number = |index: usize, default| given.get(index).copied().unwrap_or(default);
    let (pages, segment_pages, overwrites) = (number(0, 131_072), number(1, 64), number(2, 4));
    println!("| spare | skew | greedy 10 % | greedy 2 % | Heat(3) | Heat(6) | Heat(3) less |");
    println!("|---|---|---|---|---|---|---|");
    let skews =
        [("80/20", Skew::Zipf(0.8)), ("95/20", Skew::Zipf(0.95)), ("uniform", Skew::Uniform)];
    let all = [200, 100, 70, 50];
    let spares = all.into_iter().filter(|spare| given.get(3).is_none_or(|only| only == spare));
    for spare_per_mille in spares {
        for (name, skew) in skews {
            let [base, narrow, three, six] =
                [Policy::baseline(10), Policy::baseline(2), Policy::HEAT3, Policy::HEAT6].map(
                    |policy| {
                        let depth = 128;
                        let case = Case {
                            pages,
                            segment_pages,
                            spare_per_mille,
                            skew,
                            policy,
                            depth,
                            overwrites,
                        };
                        measure(&case).amplification()
                    },
                );
            let less = 100.0 * (1.0 - three / base);
            println!(
                "| {} % | {name} | {base:.2} | {narrow:.2} | {three:.2} | {six:.2} | {less:.1} % |",
                spare_per_mille / 10
            );
        }
    }
}
