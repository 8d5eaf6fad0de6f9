//! Files read, written and refused.

use alloc::string::{String, ToString};
use alloc::vec;

use contract::IoKind;

use super::*;
use crate::{CostModel, DeviceModel, Load, RatePoint, SizePoint};

const SAMPLE: &str = include_str!("fixtures/original-sample.devmodel");
const CLOUD: &str = include_str!("fixtures/original-cloud.devmodel");

const GOOD: &str = r#"format = 1
device = "disk of the tests"
measured = "by hand"
[prices]
write = 10
read_only_read = 0.5
[rates]
max = 1_000_000
p95 = [
    { latency_us = 500, mixed = 420_000, read_only = 850_000 },
    { latency_us = 2000, mixed = 570_000, read_only = 1_000_000 },
]
"#;

fn complaint(text: &str) -> String {
    ModelFile::parse(text).expect_err(text).to_string()
}

/// Returns the error of the parser about the good text in which `from` is replaced by `to`.
fn changed(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from} is there to be changed");
    complaint(&GOOD.replace(from, to))
}

#[test]
fn a_file_becomes_a_model() {
    let model = ModelFile::parse(GOOD).unwrap().model().unwrap();
    assert_eq!(model.rate(500, Load::Mixed), Some(42_000_000));
    assert_eq!(model.rate(1_250, Load::Mixed), Some(49_500_000));
    assert_eq!((model.cost().write(), model.cost().read_only_read()), (1_000, 50));
    assert_eq!(model.rate_max(), 100_000_000);
}

#[test]
fn what_is_written_is_read() {
    let file = ModelFile {
        device: "an \"odd\" name\\ with\ta tab\nand a line, µs".to_string(),
        measured: String::new(),
        write: 1_013,
        read_only_read: 7,
        sizes: vec![
            SizePoint { bytes: 4096, weight: 100 },
            SizePoint { bytes: 65_536, weight: 2_345 },
        ],
        rate_max: 61_000_000,
        p95: vec![
            RatePoint { latency_us: 250, mixed: 30_000_000, read_only: 40_000_000 },
            RatePoint { latency_us: 500, mixed: 42_000_000, read_only: 85_000_000 },
        ],
        p99: vec![RatePoint { latency_us: 500, mixed: 100, read_only: 200 }],
        residuals: vec![
            Residual { latency_us: 500, read_percent: 99, iops: 380_000, off_percent: -1.3 },
            Residual { latency_us: 500, read_percent: 50, iops: 75_000, off_percent: 2.0 },
        ],
    };
    assert_eq!(ModelFile::parse(&file.to_toml()), Ok(file));
}

#[test]
fn presets_round_trip() {
    for model in [DeviceModel::device_a(), DeviceModel::cloud()] {
        let text = ModelFile::of("a preset", "never", &model).to_toml();
        assert_eq!(ModelFile::parse(&text).unwrap().model(), Ok(model));
        assert!(!text.contains("sizes"), "linear costs need no curve");
    }
}

#[test]
fn a_curve_survives_at_its_powers_of_two() {
    let curve = [
        SizePoint { bytes: 4096, weight: 100 },
        SizePoint { bytes: 32 << 10, weight: 1_000 },
        SizePoint { bytes: 1 << 20, weight: 50_000 },
    ];
    let cost = CostModel::curved(1_000, 50, &curve).unwrap();
    let points = DeviceModel::device_a().points().to_vec();
    let model = DeviceModel::new(cost, points, 100_000_000).unwrap();
    let file = ModelFile::parse(&ModelFile::of("", "", &model).to_toml()).unwrap();
    let read = file.model().unwrap();
    for bytes in [4096, 8192, 32 << 10, 128 << 10, 1 << 20] {
        assert_eq!(read.cost().cost(IoKind::Read, bytes), model.cost().cost(IoKind::Read, bytes));
    }
}

#[test]
fn the_published_models_are_read() {
    let sample = ModelFile::parse(SAMPLE).unwrap();
    assert_eq!((sample.write, sample.rate_max, sample.p95.len()), (1_000, 100_000_000, 6));
    let row = |latency_us, mixed, read_only| RatePoint { latency_us, mixed, read_only };
    assert_eq!(sample.p95[0], row(500, 36_000_000, 85_000_000));
    assert_eq!(sample.p95[2], row(1_500, 52_000_000, 98_000_000));
    assert_eq!(sample.p95[5], row(3_000, 80_000_000, 100_000_000));
    assert_eq!(sample.read_only_read, 80, "no row sells more reads than it has");
    assert!(sample.model().is_ok());

    let cloud = ModelFile::parse(CLOUD).unwrap();
    assert_eq!((cloud.write, cloud.rate_max), (700, 41_000_000));
    let preset = DeviceModel::cloud();
    assert_eq!(cloud.p95, preset.points());
    assert_eq!(cloud.read_only_read.div_ceil(10) * 10, preset.cost().read_only_read());
}

#[test]
fn another_read_cost_scales_the_published_form() {
    let text = CLOUD.replace("read_cost_4KB=100", "read_cost_4KB=50");
    let doubled = ModelFile::parse(&text).unwrap();
    assert_eq!((doubled.write, doubled.p95[0].mixed), (1_400, 48_000_000));
}

#[test]
fn complaints_name_line_value_and_what_is_expected() {
    assert_eq!(
        changed("write = 10\n", "write = -3\n"),
        "line 5: `prices.write = -3`: expected tokens, from 0.01 to 1000"
    );
    assert_eq!(
        changed("mixed = 570_000", "mixed = 300_000"),
        "line 11: `rates.p95[1].mixed = 300_000`: expected at least the 420000 of the row before: \
         more time never costs tokens"
    );
    assert_eq!(
        changed("latency_us = 2000", "latency_us = 400"),
        "line 11: `rates.p95[1].latency_us = 400`: expected more than the 500 of the row before"
    );
    assert_eq!(
        changed("max = 1_000_000\n", "max = 500_000\n"),
        "line 8: `rates.max = 500_000`: expected at least the mixed rate of the last row, 570000"
    );
    assert_eq!(
        changed("read_only_read = 0.5", "read_only = 0.5"),
        "line 6: `prices.read_only` means nothing here; expected write, read_only_read"
    );
    assert_eq!(
        changed("write = 10\n", ""),
        "line 4: `prices.write` is missing: was this measured without writes? calibrate again \
         with --allow-writes"
    );
    assert_eq!(
        changed("format = 1", "format = 2"),
        "line 1: `format = 2`: expected the version of this form, 1"
    );
    assert_eq!(
        changed("\"by hand\"", "2026"),
        "line 3: `measured = 2026`: expected words in quotes"
    );
    assert!(changed("max = 1_000_000", "max = 1e6").contains("line 8: `rates.max = 1e6`"));
    assert!(changed("write = 10\n", "write = nan\n").contains("line 5"));
    assert!(changed("[prices]", "[prices").starts_with("line 4: this is no TOML"));
    let empty = GOOD.split("p95").next().unwrap().to_string() + "p95 = []\n";
    assert!(complaint(&empty).contains("line 9: `rates.p95 = []`: expected at least one row"));
    assert_eq!(complaint(""), "line 1: `format` is missing");
    assert!(complaint(&" ".repeat(FILE_BYTES_MAX + 1)).contains("at most"));
}

#[test]
fn complaints_about_the_published_form() {
    let change = |from: &str, to: &str| {
        assert!(SAMPLE.contains(from));
        complaint(&SAMPLE.replacen(from, to, 1))
    };
    assert_eq!(
        change("write_cost_4KB=1000", "write_cost_4KB=lots"),
        "line 5: found `lots`, expected a whole number from 1 to 100000"
    );
    assert_eq!(
        change("max_rdonly_token_rate 	 : 85000000", "rdonly : 1"),
        "line 13: `rdonly` means nothing here; expected p95_latency_limit, max_token_rate or \
         max_rdonly_token_rate"
    );
    assert!(
        change("p95_latency_limit : 1000	", "").contains("line 15: `p95_latency_limit` is missing")
    );
}

#[test]
fn rows_of_the_published_form_must_rise() {
    let text = SAMPLE.replace("52000000", "49000000");
    assert!(complaint(&text).starts_with("line 16: the row of 1500 µs: expected"));
    assert!(complaint(&SAMPLE.replace(")\n", "\n")).contains("found `the end`"));
}

#[test]
fn no_text_panics() {
    for text in [GOOD, SAMPLE, CLOUD] {
        for (cut, _) in text.char_indices() {
            let _ = ModelFile::parse(&text[..cut]);
            let _ = ModelFile::parse(&[&text[..cut], "é", &text[cut..]].concat());
            let _ = ModelFile::parse(&[&text[..cut], "9999999999999999999", &text[cut..]].concat());
        }
    }
}
