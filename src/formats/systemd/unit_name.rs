//! Unit names: validity, templates and instances, and the specifiers in `[Install]` settings.
//!
//! Names are text here; this module does not know which units exist.

/// The longest valid unit name, in bytes.
const NAME_MAX: usize = 255;

const SUFFIXES: [&str; 11] = [
    "service",
    "socket",
    "target",
    "device",
    "mount",
    "automount",
    "swap",
    "timer",
    "path",
    "slice",
    "scope",
];

/// The three forms of a unit name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitNameKind {
    /// `foo.service`
    Plain,
    /// `foo@.service`
    Template,
    /// `foo@bar.service`
    Instance,
}

/// A valid unit name, split into its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitName<'n> {
    /// The name as a whole.
    pub full: &'n str,
    /// The part before the first `@`, or before the suffix.
    pub prefix: &'n str,
    /// The part between the first `@` and the suffix: empty for a template, `None` for a plain name.
    pub instance: Option<&'n str>,
    /// The unit type, without the dot.
    pub suffix: &'n str,
}

/// The reason why a setting could not be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecifierError {
    /// The value depends on the host: its name, machine ID, kernel and the like.
    #[error("%{0} depends on the host and is not supported")]
    Unsupported(char),
    /// The result is longer than a unit name may be.
    #[error("the expanded name is too long")]
    TooLong,
}

/// Returns true if a name ends in a dot and a type that systemd knows. Ignores the rest of the name.
pub fn has_unit_suffix(name: &str) -> bool {
    name.rsplit_once('.')
        .is_some_and(|(_, suffix)| SUFFIXES.contains(&suffix))
}

/// Returns true if Ignition accepts a name as a unit's: it still knows the type `snapshot`, which systemd dropped.
pub fn has_ignition_suffix(name: &str) -> bool {
    has_unit_suffix(name) || name.ends_with(".snapshot")
}

impl<'n> UnitName<'n> {
    /// Parses a name; `None` if it is not a valid unit name.
    pub fn parse(full: &'n str) -> Option<Self> {
        let (stem, suffix) = full.rsplit_once('.')?;
        if full.len() > NAME_MAX || stem.is_empty() || !SUFFIXES.contains(&suffix) {
            return None;
        }
        let (prefix, instance) = match stem.split_once('@') {
            Some((prefix, instance)) => (prefix, Some(instance)),
            None => (stem, None),
        };
        let valid = !prefix.is_empty() && stem.bytes().all(is_name_byte);
        valid.then_some(UnitName {
            full,
            prefix,
            instance,
            suffix,
        })
    }

    /// Returns the form of the name.
    pub fn kind(&self) -> UnitNameKind {
        match self.instance {
            None => UnitNameKind::Plain,
            Some("") => UnitNameKind::Template,
            Some(_) => UnitNameKind::Instance,
        }
    }

    /// Returns the template of an instance or template: `foo@.service`.
    pub fn template(&self) -> Option<String> {
        self.instance
            .map(|_| format!("{}@.{}", self.prefix, self.suffix))
    }

    /// Returns this instance or template with another instance; `None` for plain names and
    /// instances that are not valid.
    pub fn with_instance(&self, instance: &str) -> Option<String> {
        let valid = self.instance.is_some() && is_valid_instance(instance);
        valid.then(|| format!("{}@{instance}.{}", self.prefix, self.suffix))
    }

    /// Returns everything before the suffix.
    pub fn prefix_and_instance(&self) -> &'n str {
        self.full
            .rsplit_once('.')
            .map_or(self.full, |(stem, _)| stem)
    }

    /// Returns true if units of this type may have other names.
    pub fn may_alias(&self) -> bool {
        matches!(
            self.suffix,
            "service" | "socket" | "target" | "device" | "timer" | "path"
        )
    }

    /// Returns true if units of this type may be templates.
    pub fn may_template(&self) -> bool {
        matches!(
            self.suffix,
            "service" | "socket" | "target" | "timer" | "path"
        )
    }
}

/// Returns true for a name that systemd accepts.
pub fn is_valid(name: &str) -> bool {
    UnitName::parse(name).is_some()
}

/// Returns true if this may be between `@` and the suffix.
pub fn is_valid_instance(instance: &str) -> bool {
    !instance.is_empty() && instance.bytes().all(is_name_byte)
}

/// Returns the template `foo@.service` of `foo@bar.service` or of itself.
pub fn template_of(name: &str) -> Option<String> {
    UnitName::parse(name)?.template()
}

/// Returns the part of a unit's name that represents a path, such as `var-log` for `/var/log`. The path is absolute and
/// normalized.
pub fn from_path(path: &str) -> String {
    let below = path.trim_start_matches('/');
    if below.is_empty() {
        return "-".to_owned();
    }
    let mut name = String::new();
    for (at, byte) in below.bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if at > 0 => name.push('.'),
            b':' | b'_' => name.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => name.push(char::from(byte)),
            byte => name.push_str(&format!("\\x{byte:02x}")),
        }
    }
    name
}

/// Returns the path that this part of a unit's name represents; `None` if it represents none.
pub fn path_of(name: &str) -> Option<String> {
    if name == "-" {
        return Some("/".to_owned());
    }
    let mut path = vec![b'/'];
    let mut rest = name.as_bytes();
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'-', _) => {
                path.push(b'/');
                after
            }
            (b'\\', [b'x', high, low, after @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).ok()?;
                path.push(u8::from_str_radix(digits, 16).ok()?);
                after
            }
            (byte, _) => {
                path.push(*byte);
                after
            }
        };
    }
    String::from_utf8(path).ok()
}

/// Returns the path that a mount or automount unit of this name is for.
pub fn mount_point_of(name: &str) -> Option<String> {
    let prefix = [".mount", ".automount"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))?;
    path_of(prefix)
}

/// Returns the name that systemctl uses instead of an invalid one: with other bytes escaped, and a suffix added.
pub fn escape_unit_name(name: &str) -> String {
    if is_valid(name) {
        return name.to_owned();
    }
    let mut escaped = String::new();
    for byte in name.bytes() {
        match byte {
            b'/' => escaped.push('-'),
            byte if is_name_byte(byte) => escaped.push(char::from(byte)),
            byte => escaped.push_str(&format!("\\x{byte:02x}")),
        }
    }
    if !has_unit_suffix(&escaped) {
        escaped.push_str(".service");
    }
    escaped
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte)
}

/// Expands the specifiers of an `[Install]` setting of the unit `name`.
///
/// Only those that systemd expands there: `%n %N %p %i %j %u %U %g %G %%`, with root as the user. Those that depend on the host
/// are an error, and a `%` before anything else is kept, as in systemd.
pub fn expand_specifiers(
    format: &str,
    name: &UnitName<'_>,
    default_instance: Option<&str>,
) -> Result<String, SpecifierError> {
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match (c, chars.clone().next()) {
            ('%', Some(specifier)) => {
                chars.next();
                push_specifier(&mut out, specifier, name, default_instance)?;
            }
            _ => out.push(c),
        }
    }
    if out.len() > NAME_MAX {
        Err(SpecifierError::TooLong)
    } else {
        Ok(out)
    }
}

fn push_specifier(
    out: &mut String,
    specifier: char,
    name: &UnitName<'_>,
    default_instance: Option<&str>,
) -> Result<(), SpecifierError> {
    let default = default_instance.filter(|_| name.kind() == UnitNameKind::Template);
    match specifier {
        '%' => out.push('%'),
        'n' => out.push_str(
            &default
                .and_then(|i| name.with_instance(i))
                .unwrap_or(name.full.to_owned()),
        ),
        'N' => {
            out.push_str(name.prefix_and_instance());
            out.push_str(default.unwrap_or_default());
        }
        'p' => out.push_str(name.prefix),
        'i' => out.push_str(
            name.instance
                .filter(|i| !i.is_empty())
                .or(default)
                .unwrap_or_default(),
        ),
        'j' => out.push_str(name.prefix.rsplit('-').next().unwrap_or_default()),
        'u' | 'g' => out.push_str("root"),
        'U' | 'G' => out.push('0'),
        'a' | 'A' | 'b' | 'B' | 'H' | 'l' | 'm' | 'M' | 'o' | 'v' | 'w' | 'W' => {
            return Err(SpecifierError::Unsupported(specifier));
        }
        other => out.extend(['%', other]),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn expanded(format: &str, name: &str, default: Option<&str>) -> Result<String, SpecifierError> {
        expand_specifiers(format, &UnitName::parse(name).unwrap(), default)
    }

    #[test]
    fn names_need_a_known_suffix_a_prefix_and_plain_characters() {
        for good in [
            "a.service",
            "a@.timer",
            "a@b@c.path",
            "a-b:c_d.e\\x20.mount",
            "1.slice",
        ] {
            assert!(is_valid(good), "{good}");
        }
        for bad in [
            "",
            "a",
            ".service",
            "@.service",
            "@b.service",
            "a.servic",
            "a b.service",
            "a/b.service",
            "ä.service",
        ] {
            assert!(!is_valid(bad), "{bad}");
        }
    }

    #[test]
    fn a_name_of_255_bytes_is_the_longest() {
        assert!(is_valid(&format!("{}.service", "a".repeat(247))));
        assert!(!is_valid(&format!("{}.service", "a".repeat(248))));
    }

    #[test]
    fn a_name_splits_at_its_first_at_sign_and_last_dot() {
        let name = UnitName::parse("a@b@c.d.service").unwrap();
        assert_eq!(
            (name.prefix, name.instance, name.suffix),
            ("a", Some("b@c.d"), "service")
        );
        assert_eq!(name.kind(), UnitNameKind::Instance);
        assert_eq!(name.template().unwrap(), "a@.service");
        assert_eq!(name.with_instance("x").unwrap(), "a@x.service");
        assert_eq!(name.with_instance("x y"), None);
    }

    #[test]
    fn specifiers_use_the_name_of_the_unit() {
        assert_eq!(
            expanded("%n|%N|%p|%i|%j|%%", "a-b@c.service", None).unwrap(),
            "a-b@c.service|a-b@c|a-b|c|b|%"
        );
        assert_eq!(
            expanded("%n|%N|%p|%i|%j", "a-b.service", None).unwrap(),
            "a-b.service|a-b|a-b||b"
        );
    }

    #[test]
    fn specifiers_of_a_template_use_its_default_instance() {
        assert_eq!(
            expanded("%n|%N|%p|%i", "a@.service", Some("d")).unwrap(),
            "a@d.service|a@d|a|d"
        );
        assert_eq!(
            expanded("%n|%N|%p|%i", "a@.service", None).unwrap(),
            "a@.service|a@|a|"
        );
    }

    #[test]
    fn unknown_specifiers_and_a_last_percent_sign_stay() {
        assert_eq!(expanded("%I%P%J%", "a@b.service", None).unwrap(), "%I%P%J%");
    }

    #[test]
    fn specifiers_of_the_host_are_named_in_the_error() {
        assert_eq!(
            expanded("x-%m.target", "a.service", None),
            Err(SpecifierError::Unsupported('m'))
        );
    }

    proptest! {
        #[test]
        fn any_text_can_be_parsed_and_expanded(name in any::<String>(), format in any::<String>()) {
            if let Some(parsed) = UnitName::parse(&name) {
                prop_assert_eq!(parsed.full, &name);
            }
            let unit = UnitName::parse("a@b.service").unwrap();
            if let Ok(text) = expand_specifiers(&format, &unit, None) {
                prop_assert!(text.len() <= NAME_MAX);
            }
        }
    }
}
