//! The settings of `login.defs` and useradd's defaults for a home, by the rules of useradd 4.

/// The settings with which useradd creates homes and mailboxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defaults {
    /// Permission bits of a new home.
    pub home_mode: u32,
    /// Absolute path of the directory whose contents a new home gets.
    pub skeleton: String,
    /// Absolute path of the directory in which a new user gets a mailbox; `None` for no mailbox.
    pub mailboxes: Option<String>,
    /// Absolute path of the directory of all mailboxes.
    pub mail: String,
}

impl Defaults {
    /// Parses `etc/login.defs` and `etc/default/useradd`.
    pub fn parse_files(login_defs: &str, useradd: &str) -> Self {
        let number = |name| find_setting(login_defs, name, is_blank).and_then(parse_octal);
        let umask = number("UMASK").unwrap_or(0o022);
        let mail = find_setting(login_defs, "MAIL_DIR", is_blank).unwrap_or("/var/mail");
        let wanted = find_setting(useradd, "CREATE_MAIL_SPOOL", |c| c == '=')
            .is_some_and(|said| said.eq_ignore_ascii_case("yes"));
        let skeleton = find_setting(useradd, "SKEL", |c| c == '=').unwrap_or("/etc/skel");
        Self {
            home_mode: number("HOME_MODE").unwrap_or(0o777 & !umask),
            skeleton: skeleton.to_owned(),
            mailboxes: wanted.then(|| mail.to_owned()),
            mail: mail.to_owned(),
        }
    }
}

fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace()
}

/// Returns the value of a name; the last line wins, as for the tools.
fn find_setting<'t>(text: &'t str, name: &str, separator: fn(char) -> bool) -> Option<&'t str> {
    let value = |line: &'t str| {
        let rest = line.trim_start().strip_prefix(name)?;
        let rest = rest.strip_prefix(separator)?;
        let value = rest.trim().trim_matches('"');
        (!value.is_empty()).then_some(value)
    };
    text.lines().filter_map(value).next_back()
}

/// Parses a number as C does: octal with a leading zero, hexadecimal with 0x, else decimal.
fn parse_octal(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if text.starts_with('0') => u32::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_of_a_home_is_given_or_comes_from_the_umask() {
        let mode = |text: &str| Defaults::parse_files(text, "").home_mode;
        assert_eq!(mode(""), 0o755);
        assert_eq!(mode("# UMASK 000\nUMASK\t\t077\n"), 0o700);
        assert_eq!(mode("UMASK 022\nHOME_MODE 0750\n"), 0o750);
    }

    #[test]
    fn mailboxes_are_made_only_where_useradd_is_told_to() {
        let of = |text| Defaults::parse_files("MAIL_DIR /var/spool/mail\n", text);
        assert_eq!(of("CREATE_MAIL_SPOOL=no\n").mailboxes, None);
        let told = of("SHELL=/bin/sh\nCREATE_MAIL_SPOOL=yes\nSKEL=/usr/skel\n");
        assert_eq!(told.mailboxes.as_deref(), Some("/var/spool/mail"));
        assert_eq!(told.skeleton, "/usr/skel");
    }
}
