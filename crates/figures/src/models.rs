//! Device models that figures use beside the published ones.

use qos::{CostModel, DeviceModel, RatePoint, SizePoint};

/// Returns device A of the paper, with requests above 4 KiB priced as they load the simulated
/// device. The paper found the cost linear in the size above 4 KiB. On the simulated device, writes
/// of 1 MiB disturb reads of 4 KiB as much as 1.3 times as many bytes in small writes, because
/// their pages reach the dies at once.
pub(crate) fn sized() -> DeviceModel {
    let point = |kib: usize, share: u32| {
        let pages = (kib / 4) as u32;
        SizePoint { bytes: kib << 10, weight: pages * share }
    };
    let curve = [point(4, 100), point(32, 100), point(128, 105), point(1024, 130)];
    let published = DeviceModel::device_a();
    let cost =
        CostModel::curved(published.cost().write(), published.cost().read_only_read(), &curve);
    let cost = cost.expect("a sound curve");
    DeviceModel::new(cost, published.points().to_vec(), published.rate_max()).expect("sound rates")
}

/// Returns `model` with its rates of mixed loads multiplied by `hundredths` / 100.
pub(crate) fn slowed(model: &DeviceModel, hundredths: u64) -> DeviceModel {
    let slow = |rate: u64| rate * hundredths / 100;
    let points =
        model.points().iter().map(|point| RatePoint { mixed: slow(point.mixed), ..*point });
    let (cost, rate_max) = (model.cost().clone(), model.rate_max());
    DeviceModel::new(cost, points.collect(), rate_max).expect("sound rates")
}

/// Returns `model` with the price of writes multiplied by `times`.
pub(crate) fn dearer(model: &DeviceModel, times: u32) -> DeviceModel {
    let cost = CostModel::linear(model.cost().write() * times, model.cost().read_only_read());
    let cost = cost.expect("a sound price");
    DeviceModel::new(cost, model.points().to_vec(), model.rate_max()).expect("sound rates")
}
