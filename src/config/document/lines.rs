//! Values that become part of a line in a file: a value that would break the line is refused, with its path.
//!
//! Public keys are exempt: the daemon writes an entry with a line break as several lines, and so does a plan.

use super::ignition::{Group, Unit, User};
use super::machine_config::MachineConfig;
use super::unsupported::Unsupported;
use crate::base::kargs::Kargs;

/// Returns every value of a config that would break a line; `prefix` precedes the paths of its Ignition part.
pub(super) fn refused_values(config: &MachineConfig, prefix: &str) -> Vec<Unsupported> {
    let mut found = LineChecker {
        config,
        prefix,
        all: Vec::new(),
    };
    let ignition = &config.ignition;
    for (index, user) in ignition.passwd.users.iter().enumerate() {
        found.check_user(&format!("passwd.users[{index}]"), user);
    }
    for (index, group) in ignition.passwd.groups.iter().enumerate() {
        found.check_group(&format!("passwd.groups[{index}]"), group);
    }
    for (index, unit) in ignition.systemd.units.iter().enumerate() {
        found.check_unit(&format!("systemd.units[{index}]"), unit);
    }
    found.check_os_requests();
    found.all
}

struct LineChecker<'a> {
    config: &'a MachineConfig,
    prefix: &'a str,
    all: Vec<Unsupported>,
}

impl LineChecker<'_> {
    fn check_user(&mut self, at: &str, user: &User) {
        self.check_hash(at, user.password_hash.as_deref());
        // The daemon applies nothing else of a user.
        if !self.config.bare {
            return;
        }
        let name = Some(user.name.as_str());
        self.check_account(&format!("{at}.name"), name, is_name);
        let home = user.home_dir.as_deref();
        self.check_account(&format!("{at}.gecos"), user.gecos.as_deref(), is_field);
        self.check_account(&format!("{at}.homeDir"), home, is_field);
        self.check_account(&format!("{at}.shell"), user.shell.as_deref(), is_field);
        let group = user.primary_group.as_deref();
        self.check_account(&format!("{at}.primaryGroup"), group, is_name);
        for (index, group) in user.groups.iter().enumerate() {
            self.check_account(&format!("{at}.groups[{index}]"), Some(group), is_name);
        }
    }

    fn check_group(&mut self, at: &str, group: &Group) {
        self.check_hash(at, group.password_hash.as_deref());
        if self.config.bare {
            self.check_account(&format!("{at}.name"), Some(&group.name), is_name);
        }
    }

    /// Checks a hash. It is a secret and is never repeated in a message.
    fn check_hash(&mut self, at: &str, hash: Option<&str>) {
        let message = "is not a password hash: a colon, a line break or another control character is in it. Make one with \
                       `mkpasswd`, and write it on the line of its key: in YAML, `|` and `>` add a line break";
        if hash.is_some_and(|hash| !is_field(hash)) {
            self.refuse_ignition(&format!("{at}.passwordHash"), message);
        }
    }

    fn check_account(&mut self, at: &str, value: Option<&str>, is_right: fn(&str) -> bool) {
        if let Some(value) = value.filter(|value| !is_right(value)) {
            let message = format!(
                "{value:?} does not fit into a line of the account files: a colon, a control character, or a comma in \
                 a name would break it. Write it without"
            );
            self.refuse_ignition(at, &message);
        }
    }

    /// Checks a unit name. Names are written to preset lines, which are split at blanks, and systemd loads no unit with a blank
    /// in its name.
    fn check_unit(&mut self, at: &str, unit: &Unit) {
        if unit
            .name
            .contains(|c: char| c.is_control() || c.is_whitespace())
        {
            let message = format!(
                "{:?} is not a unit name: it has a blank or a control character; remove it",
                unit.name
            );
            self.refuse_ignition(&format!("{at}.name"), &message);
        }
        for (index, dropin) in unit.dropins.iter().enumerate() {
            if dropin.name.contains(|c: char| c.is_control() && c != '\t') {
                let message = format!(
                    "{:?} is not a drop-in name: it has a control character; remove it",
                    dropin.name
                );
                self.refuse_ignition(&format!("{at}.dropins[{index}].name"), &message);
            }
        }
    }

    /// Checks kernel arguments and the image: they are written to a line in a boot loader entry and to the origin of a
    /// deployment.
    fn check_os_requests(&mut self) {
        let config = self.config;
        for (index, entry) in config.kernel_arguments.iter().enumerate() {
            let arguments = Kargs::parse(entry);
            // Within quotes, the kernel accepts a tab.
            let breaks = |c: char| c.is_control() && c != '\t';
            let broken = arguments.tokens().iter().find(|one| one.contains(breaks));
            if let Some(broken) = broken {
                let message = format!(
                    "{broken:?} does not fit into a line of a boot loader entry: a line break or another control \
                     character is in it. Write it without"
                );
                self.add_refusal(format!("spec.kernelArguments[{index}]"), &message);
            }
        }
        for (index, name) in config.extensions.iter().enumerate() {
            self.check_word(format!("spec.extensions[{index}]"), name, "extension");
        }
        let (image, extensions) = (&config.os_image_url, &config.extensions_image);
        self.check_word("spec.osImageURL".to_owned(), image, "image");
        let at = "spec.baseOSExtensionsContainerImage".to_owned();
        self.check_word(at, extensions, "image");
    }

    fn check_word(&mut self, at: String, value: &str, what: &str) {
        if value.contains(|c: char| c.is_control() || c.is_whitespace()) {
            let message = format!(
                "{value:?} names no {what}: a blank or a control character is in it. Write it without"
            );
            self.add_refusal(at, &message);
        }
    }

    /// Refuses a value of the Ignition part.
    fn refuse_ignition(&mut self, at: &str, message: &str) {
        let place = self.config.original_place(format!("{}{at}", self.prefix));
        self.add_refusal(place, message);
    }

    fn add_refusal(&mut self, path: String, message: &str) {
        self.all.push(Unsupported {
            path,
            message: message.to_owned(),
            skippable: false,
        });
    }
}

/// Returns true if a value can be a field between colons.
fn is_field(value: &str) -> bool {
    !value.contains(|c: char| c.is_control() || c == ':')
}

/// Returns true if a value can be a name, which may also be in comma-separated lists.
fn is_name(value: &str) -> bool {
    is_field(value) && !value.contains(',')
}
