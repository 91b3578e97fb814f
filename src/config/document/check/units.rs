//! Units and drop-ins: V18 to V22.

use std::fmt::Arguments;

use super::Checker;
use crate::config::document::ignition::{Dropin, Unit};
use crate::formats::systemd::unit_file::{self, UnitOption};
use crate::formats::systemd::unit_name::{has_ignition_suffix, template_of};

impl Checker<'_> {
    pub(super) fn check_units(&mut self, units: &[Unit]) {
        for (i, unit) in units.iter().enumerate() {
            self.check_unit_entry(i, unit);
            self.check_instance(format_args!("systemd.units[{i}]"), unit, units);
        }
    }

    /// Checks one entry of the list on its own.
    pub(super) fn check_unit_entry(&mut self, index: usize, unit: &Unit) {
        let at = format_args!("systemd.units[{index}]");
        self.check_unit(at, unit);
        for (j, dropin) in unit.dropins.iter().enumerate() {
            self.check_dropin(format_args!("{at}.dropins[{j}]"), dropin);
        }
    }

    fn check_unit(&mut self, at: Arguments<'_>, unit: &Unit) {
        let name = &unit.name;
        let name_at = format_args!("{at}.name");
        self.check_file_name(name_at, name);
        if !has_ignition_suffix(name) {
            self.add_error(
                name_at,
                format!("{name:?} has no known unit suffix such as .service; add it"),
            );
        }
        let options = self.read_unit_text(format_args!("{at}.contents"), unit.contents.as_deref());
        if unit.enabled == Some(true) && unit.text().is_some() && lacks_install(&options) {
            let message = format!(
                "{name} is to be enabled but has no [Install] section; say there what wants it"
            );
            self.add_warning(at, message);
        }
    }

    fn check_dropin(&mut self, at: Arguments<'_>, dropin: &Dropin) {
        let name_at = format_args!("{at}.name");
        self.check_file_name(name_at, &dropin.name);
        if !dropin.name.ends_with(".conf") {
            self.add_error(
                name_at,
                format!("{:?} does not end in .conf; rename it", dropin.name),
            );
        }
        self.read_unit_text(format_args!("{at}.contents"), dropin.contents.as_deref());
    }

    /// Checks V22: an instance is enabled through the [Install] section of its template.
    fn check_instance(&mut self, at: Arguments<'_>, unit: &Unit, units: &[Unit]) {
        let template = template_of(&unit.name)
            .filter(|_| unit.enabled == Some(true) && unit.name.ends_with(".service"));
        let template = template.and_then(|name| {
            units
                .iter()
                .find(|other| other.name == name && other.name != unit.name)
        });
        if let Some(template) = template.filter(|t| t.text().is_some_and(has_no_install)) {
            let message = format!(
                "{} is to be enabled but {} has no [Install] section; say there what wants it",
                unit.name, template.name
            );
            self.add_warning(at, message);
        }
    }

    /// Refuses slashes: Ignition joins such names as paths, and a name that leaves its directory is never intended.
    fn check_file_name(&mut self, at: Arguments<'_>, name: &str) {
        if name.contains('/') || name.contains('\0') {
            self.add_error(at, format!("{name:?} must be a file name without slashes"));
        }
    }

    /// Returns the options in a unit file or drop-in; empty if it is missing, or malformed, which is reported.
    fn read_unit_text(&mut self, at: Arguments<'_>, contents: Option<&str>) -> Vec<UnitOption> {
        let read = contents.map_or(Ok(Vec::new()), unit_file::parse_options);
        read.unwrap_or_else(|error| {
            self.add_error(at, format!("not a systemd unit file: {error}"));
            Vec::new()
        })
    }
}

fn has_no_install(contents: &str) -> bool {
    lacks_install(&unit_file::parse_options(contents).unwrap_or_default())
}

fn lacks_install(options: &[UnitOption]) -> bool {
    !options.iter().any(|option| option.section == "Install")
}
