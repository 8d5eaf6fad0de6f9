//! Compares the field tables of docs/reference/protocols with the structs: fields, offsets, sizes
//! and order must match.

use std::mem::offset_of;

use nearflash_wire::packets::{
    AcceptBody, AddressBody, PacketHead, PacketHelloBody, ProbeBody, RecordHead, RefuseBody,
    ResetBody, RetryBody,
};
use nearflash_wire::reflex_v1::MessageHead;
use nearflash_wire::reflex_v2::{
    HelloBody, HelloHead, InfoBody, RenegotiateBody, ReplyHead, RequestHead, SloBody, TenantBody,
};
use zerocopy::FromZeros;

const PACKETS: &str = include_str!("../../../../docs/reference/protocols/packets.md");
const REFLEX_V1: &str = include_str!("../../../../docs/reference/protocols/reflex-v1.md");
const REFLEX_V2: &str = include_str!("../../../../docs/reference/protocols/reflex-v2.md");

/// The offset, size in bytes and name of each field.
type Fields = Vec<(usize, usize, String)>;

/// Returns the fields of a struct. The macro does not compile if a field of the struct is missing.
macro_rules! fields {
    ($layout:ident: $($field:ident)+) => {{
        let zeroed = $layout::new_zeroed();
        let $layout { $($field: _),+ } = zeroed;
        let fields: Fields = vec![$((
            offset_of!($layout, $field),
            size_of_val(&zeroed.$field),
            stringify!($field).to_owned(),
        )),+];
        (stringify!($layout), size_of::<$layout>(), fields)
    }};
}

/// Returns the rows of the first table with offsets after the first mention of `layout`.
fn documented(document: &str, layout: &str) -> Fields {
    let from = document.find(&format!("`{layout}`, ")).expect("the struct is documented");
    let table = document[from..].find("| offset | bytes | field |").expect("its table follows");
    let rows = document[from + table..].lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let number = |cell: &str| cell.parse().expect("a number");
        (number(cells[1]), number(cells[2]), cells[3].trim_matches('`').to_owned())
    })
    .collect()
}

#[test]
fn tables_of_the_documents_are_the_structs() {
    let version_1 = fields!(MessageHead: magic opcode handle lba lba_count);
    let version_2 = [
        fields!(HelloHead: magic version_min version_max tag client connection queue_depth features
            token_bytes tenant_bytes reserved),
        fields!(RequestHead: opcode flags stream reserved payload_bytes tag lba blocks namespace
            tenant payload_crc32c reserved_tail),
        fields!(ReplyHead: opcode flags status body_bytes tag body_crc32c reserved),
        fields!(HelloBody: version namespaces namespace reserved queue_depth request_bytes_max
            features storage_epoch),
        fields!(InfoBody: blocks physical_block_bytes atomic_blocks_max namespace rights flags
            reserved),
        fields!(SloBody: latency_us iops request_bytes percentile_tenths read_percent name_bytes),
        fields!(TenantBody: tokens_needed tokens_free tenant limited_by limit_latency_us),
        fields!(RenegotiateBody: iops tenant read_percent reserved),
    ];
    let packets = [
        fields!(PacketHead: version_kind flags bytes association cookie number highest before
            held_us credits crc32c),
        fields!(RecordHead: channel kind flags message behind bytes offset),
        fields!(PacketHelloBody: association packet_bytes reserved cookie token),
        fields!(RetryBody: minute proof),
        fields!(AcceptBody: association packet_bytes addresses cookie),
        fields!(RefuseBody: reason reserved),
        fields!(ResetBody: cookie association reserved proof),
        fields!(ProbeBody: challenge echo),
        fields!(AddressBody: kind reserved port zero address),
    ];
    let version_2 = version_2.into_iter().map(|fields| (REFLEX_V2, fields));
    let all = version_2.chain(packets.into_iter().map(|fields| (PACKETS, fields)));
    for (document, (layout, bytes, fields)) in all.chain([(REFLEX_V1, version_1)]) {
        assert_eq!(documented(document, layout), fields, "{layout}");
        let is_aligned = |(at, bytes, _): &(usize, usize, String)| at % bytes == 0;
        assert!(document != REFLEX_V2 || fields.iter().all(is_aligned), "{layout}");
        assert!(document.contains(&format!("`{layout}`, {bytes} bytes")), "size of {layout}");
    }
}
