//! Butane's own rules on the input, before it is translated.

use serde_json::Value;

use super::report::{Path, Report};
use super::schema::{ButaneKind, CONFIG, RecordSchema};
use super::sugar::template_of;
use super::version::{ButaneVersion, SchemaLevel};
use crate::config::document::modes;

const CEX_ARGUMENT: &str = "rd.luks.key=/etc/luks/cex.key";
const ROLE: &str = "machineconfiguration.openshift.io/role";
const QUADLETS: [&str; 8] = [
    ".container",
    ".volume",
    ".network",
    ".kube",
    ".image",
    ".build",
    ".pod",
    ".artifact",
];

/// Checks the input; outer values are reported before inner ones.
pub(super) fn check_source(input: &Value, version: ButaneVersion) -> Report {
    let mut checker = Checker {
        version,
        report: Report::default(),
    };
    checker.check_record(&CONFIG, Some(input), &Path::default());
    checker.report
}

struct Checker {
    version: ButaneVersion,
    report: Report,
}

fn text_at<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

fn is_true(value: Option<&Value>) -> bool {
    value == Some(&Value::Bool(true))
}

impl Checker {
    /// Checks a mapping, which may be missing, and everything in it.
    fn check_record(&mut self, record: &'static RecordSchema, value: Option<&Value>, at: &Path) {
        let nothing = Value::Null;
        let value = value.unwrap_or(&nothing);
        self.check_rules(record, value, at);
        for field in record.fields_at(self.version.level) {
            let below = value.get(field.name);
            let at = at.with_key(field.name);
            match field.kind {
                // A mapping is checked even if it is missing: Go then has an empty struct.
                ButaneKind::Record(record) => self.check_record(record, below, &at),
                ButaneKind::Records(record) => {
                    let items = below.and_then(Value::as_array);
                    for (index, item) in items.into_iter().flatten().enumerate() {
                        self.check_record(record, Some(item), &at.with_index(index));
                    }
                }
                _ => {}
            }
        }
    }

    fn check_rules(&mut self, record: &RecordSchema, value: &Value, at: &Path) {
        match record.name {
            "Config" => self.check_cex(value, at),
            "Metadata" => self.check_metadata(value, at),
            "OpenShift" => {
                let known = ["", "default", "realtime"];
                if text_at(value, "kernel_type").is_some_and(|kind| !known.contains(&kind)) {
                    let message = "must be empty, \"default\", or \"realtime\"";
                    self.report.add_error(at.with_key("kernel_type"), message);
                }
            }
            "Resource" => self.check_resource(value, at),
            "File" => self.check_mode(value, at, false),
            "Directory" => self.check_mode(value, at, true),
            "Filesystem" => self.check_mount_unit(value, at),
            "Tree" if text_at(value, "local").unwrap_or_default().is_empty() => {
                self.report.add_error(at.clone(), "local is required");
            }
            "Unit" | "Dropin" => self.check_contents(value, at),
            "Quadlet" => self.check_quadlet(value, at),
            "BootDevice" => self.check_boot_device(value, at),
            "BootDeviceMirror" => self.check_mirror(Some(value), at),
            "GrubUser" => {
                for key in ["name", "password_hash"] {
                    if text_at(value, key).unwrap_or_default().is_empty() {
                        self.report
                            .add_error(at.with_key(key), format!("field \"{key}\" is required"));
                    }
                }
            }
            _ => {}
        }
    }

    fn check_metadata(&mut self, value: &Value, at: &Path) {
        if text_at(value, "name").unwrap_or_default().is_empty() {
            self.report
                .add_error(at.with_key("name"), "metadata.name is required");
        }
        let role = value.get("labels").and_then(|labels| text_at(labels, ROLE));
        if role.unwrap_or_default().is_empty() {
            self.report
                .add_error(at.with_key("labels"), format!("{ROLE} label is required"));
        }
    }

    /// Checks that the kernel gets the key of a crypto card.
    fn check_cex(&mut self, value: &Value, at: &Path) {
        if self.version.level < SchemaLevel::V6 {
            return;
        }
        let arguments = value
            .pointer("/openshift/kernel_arguments")
            .and_then(Value::as_array);
        if arguments.is_some_and(|list| list.iter().any(|one| one == CEX_ARGUMENT)) {
            return;
        }
        let volumes = value.pointer("/storage/luks").and_then(Value::as_array);
        let of_root = volumes.into_iter().flatten().any(|volume| {
            is_true(volume.pointer("/cex/enabled")) && text_at(volume, "name") == Some("root")
        });
        let of_boot = is_true(value.pointer("/boot_device/luks/cex/enabled"));
        for _ in [of_boot, of_root].iter().filter(|wanted| **wanted) {
            let place = at.with_key("openshift").with_key("kernel_arguments");
            self.report.add_error(
                place,
                format!("'{CEX_ARGUMENT}' must be set as kernel argument when CEX is enabled for the boot device"),
            );
        }
    }

    fn check_resource(&mut self, value: &Value, at: &Path) {
        let given = ["local", "inline", "source"];
        let given: Vec<&str> = given
            .into_iter()
            .filter(|key| value.get(key).is_some())
            .collect();
        if let [_, .., last] = given.as_slice() {
            let message = "only one of the following can be set: inline, local, source";
            self.report.add_error(at.with_key(last), message);
        }
    }

    fn check_contents(&mut self, value: &Value, at: &Path) {
        if value.get("contents_local").is_some() && value.get("contents").is_some() {
            let message = "only one of the following can be set: contents, contents_local";
            self.report
                .add_error(at.with_key("contents_local"), message);
        }
    }

    fn check_mode(&mut self, value: &Value, at: &Path, is_directory: bool) {
        let mode = value.get("mode").and_then(Value::as_i64);
        if mode.is_some_and(|mode| modes::looks_decimal(mode, is_directory)) {
            let message = "unreasonable mode would be reasonable if specified in octal; remember to add a leading zero";
            self.report.add_warning(at.with_key("mode"), message);
        }
    }

    fn check_mount_unit(&mut self, value: &Value, at: &Path) {
        if !is_true(value.get("with_mount_unit")) {
            return;
        }
        let format = text_at(value, "format").unwrap_or_default();
        if format.is_empty() {
            let message = "format is required if with_mount_unit is true";
            self.report.add_error(at.with_key("format"), message);
        } else if format != "swap" && text_at(value, "path").unwrap_or_default().is_empty() {
            let message = "path is required if with_mount_unit is true and format is not swap";
            self.report.add_error(at.with_key("path"), message);
        }
    }

    fn check_quadlet(&mut self, value: &Value, at: &Path) {
        let name = text_at(value, "name").unwrap_or_default();
        if !QUADLETS.iter().any(|ending| name.ends_with(ending)) {
            let message = format!("quadlet name must end with one of {}", QUADLETS.join(", "));
            return self.report.add_error(at.with_key("name"), message);
        }
        if template_of(name).is_none() {
            return self.check_contents(value, at);
        }
        for key in ["contents", "contents_local"] {
            if value.get(key).is_some() {
                let message = "template instance cannot have contents";
                self.report.add_error(at.with_key(key), message);
            }
        }
    }

    fn check_boot_device(&mut self, value: &Value, at: &Path) {
        let mirror = value.pointer("/mirror/devices").and_then(Value::as_array);
        let is_mirrored = mirror.is_some_and(|devices| !devices.is_empty());
        if is_mirrored && text_at(value, "layout").is_none() {
            let message =
                "boot_device.layout should be specified when boot_device.mirror is specified";
            if self.version.level >= SchemaLevel::V8 {
                self.report.add_error(at.with_key("mirror"), message)
            } else {
                self.report.add_warning(at.with_key("mirror"), message)
            }
        }
        if let Some(layout) = text_at(value, "layout") {
            match layout {
                "aarch64" | "ppc64le" | "x86_64" => {}
                "s390x-eckd" | "s390x-zfcp" | "s390x-virt"
                    if self.version.level >= SchemaLevel::V6 =>
                {
                    self.check_mainframe(layout, value, &at.with_key(layout));
                }
                _ => {
                    let others = if self.version.level >= SchemaLevel::V6 {
                        "s390x-eckd, s390x-virt, s390x-zfcp, "
                    } else {
                        ""
                    };
                    let message =
                        format!("layout must be one of: aarch64, ppc64le, {others}x86_64");
                    self.report.add_error(at.with_key("layout"), message);
                }
            }
        }
        // Butane checks the mirror here, and again at its own place.
        self.check_mirror(value.get("mirror"), &at.with_key("mirror"));
    }

    fn check_mainframe(&mut self, layout: &str, value: &Value, at: &Path) {
        let device = value
            .pointer("/luks/device")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let prefix = match layout {
            "s390x-eckd" => Some("/dev/dasd"),
            "s390x-zfcp" => Some("/dev/sd"),
            _ => None,
        };
        if let Some(prefix) = prefix {
            let is_disk = device
                .find(prefix)
                .and_then(|place| device.get(place + prefix.len()..));
            let is_disk = is_disk.is_some_and(|rest| matches!(rest.as_bytes(), [b'a'..=b'z']));
            if device.is_empty() {
                let message = "device is required for layouts: s390x-eckd, s390x-zfcp";
                self.report.add_error(at.clone(), message);
            } else if !is_disk {
                let message = "device name must start with /dev/dasd on s390x-eckd layout or /dev/sd on s390x-zfcp layout";
                self.report.add_error(at.clone(), message);
            }
        }
        let mirror = value.pointer("/mirror/devices").and_then(Value::as_array);
        if mirror.is_some_and(|devices| !devices.is_empty()) {
            let message = "mirroring not supported on layouts: s390x-eckd, s390x-zfcp, s390x-virt";
            self.report.add_error(at.clone(), message);
        }
    }

    fn check_mirror(&mut self, value: Option<&Value>, at: &Path) {
        let devices = value
            .and_then(|mirror| mirror.get("devices"))
            .and_then(Value::as_array);
        if devices.is_some_and(|devices| devices.len() == 1) {
            self.report.add_error(
                at.with_key("devices"),
                "mirroring requires at least two devices",
            );
        }
    }
}
