//! The settings of `[[device]]` that may change while the device serves.

use control::admin::{Automatic, DeviceSettings, SetDevice};

use super::{DeviceConfig, Recalibrate};

impl DeviceConfig {
    /// Returns the settings as the admin API shows them.
    pub(crate) fn settings(&self) -> DeviceSettings {
        DeviceSettings {
            name: self.name.clone(),
            spec: self.spec.clone(),
            model: self.model.clone(),
            correct_online: self.correct_online,
            bound_depth: self.bound_depth,
            fail_fast: self.fail_fast,
            recalibrate: match self.recalibrate {
                Recalibrate::Off => Automatic::Off,
                Recalibrate::Idle => Automatic::Idle,
            },
            recalibrate_idle_seconds: self.idle_after().as_secs() as u32,
            recalibrate_scratch: self.recalibrate_scratch.clone(),
        }
    }

    /// Returns the device with the settings of `to`; absent settings stay as they are.
    pub(crate) fn set(&self, to: &SetDevice) -> DeviceConfig {
        let recalibrate = to.recalibrate.map(|when| match when {
            Automatic::Off => Recalibrate::Off,
            Automatic::Idle => Recalibrate::Idle,
        });
        let scratch = match to.recalibrate_scratch.as_deref() {
            None => self.recalibrate_scratch.clone(),
            Some("") => None,
            Some(name) => Some(name.to_owned()),
        };
        DeviceConfig {
            model: to.model.clone().or_else(|| self.model.clone()),
            correct_online: to.correct_online.unwrap_or(self.correct_online),
            bound_depth: to.bound_depth.unwrap_or(self.bound_depth),
            fail_fast: to.fail_fast.unwrap_or(self.fail_fast),
            recalibrate: recalibrate.unwrap_or(self.recalibrate),
            recalibrate_idle_seconds: to.recalibrate_idle_seconds.or(self.recalibrate_idle_seconds),
            recalibrate_scratch: scratch,
            ..self.clone()
        }
    }

    /// Returns `true` if both have the same name, spec and model. Other settings may differ.
    pub(crate) fn is_same_device(&self, other: &DeviceConfig) -> bool {
        (&self.name, &self.spec, &self.model) == (&other.name, &other.spec, &other.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_stays() {
        let text = "[[device]]\nname = \"d\"\nspec = \"null:1MiB\"\nmodel = \"a\"\nfail_fast = true\n\
                    recalibrate_scratch = \"x\"\n";
        let device = super::super::Config::parse(text).unwrap().device.remove(0);
        assert_eq!(device.set(&SetDevice::default()), device);
        let to = SetDevice {
            correct_online: Some(true),
            recalibrate: Some(Automatic::Idle),
            recalibrate_scratch: Some(String::new()),
            ..SetDevice::default()
        };
        let set = device.set(&to);
        assert!(set.is_same_device(&device) && set != device);
        let shown = set.settings();
        assert!(shown.correct_online && shown.fail_fast && !shown.bound_depth);
        assert_eq!((shown.recalibrate, shown.recalibrate_idle_seconds), (Automatic::Idle, 60));
        assert_eq!((shown.recalibrate_scratch, shown.model.as_deref()), (None, Some("a")));
        let other = device.set(&SetDevice { model: Some("cloud".to_owned()), ..to });
        assert!(!other.is_same_device(&device));
    }
}
