//! Checks that the page about the controller lists every status by its number and name, and no
//! other.

use std::collections::BTreeMap;

use wire::nvme::Status;

const PAGE: &str = include_str!("../../../../docs/reference/protocols/nvme.md");

#[test]
fn the_page_lists_every_status() {
    let (_, table) = PAGE.split_once("## Every status").unwrap();
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let number = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((u16::from_str_radix(number, 16).ok()?, cells.next()?))
    });
    let listed: BTreeMap<u16, &str> = rows.collect();
    let known = (0..0x800).filter_map(|code| Some((code, Status(code).name()?)));
    assert_eq!(listed, known.collect());
}
