//! Names of the MachineConfig.

/// What is wrong with a name, or worth knowing about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameProblem {
    /// It cannot be used.
    Refused(String),
    /// It can be used, but other MachineConfigs may override it.
    MayLose(String),
}

/// Returns the default name.
pub fn default_name(pool: &str) -> String {
    format!("99-{pool}-zz-kept")
}

/// Judges a name for a MachineConfig of a pool.
pub fn check_name(name: &str, pool: &str) -> Option<NameProblem> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let has_ends = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    let parts_fit = name
        .split('.')
        .all(|part| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-'));
    if name.is_empty() || name.len() > 253 || !name.chars().all(is_plain) || !has_ends || !parts_fit
    {
        return Some(NameProblem::Refused(format!(
            "{name:?} is not an object name: small letters, digits, `-` and `.`, at most 253; such as {}",
            default_name(pool)
        )));
    }
    let is_generated = name.contains("-generated-") || name.starts_with("rendered-");
    let is_template = [format!("00-{pool}"), format!("01-{pool}-")];
    if is_generated
        || is_template
            .iter()
            .any(|start| name.starts_with(start.as_str()))
    {
        return Some(NameProblem::Refused(format!(
            "{name} is a name of the operator's own MachineConfigs, which it overwrites or deletes; give another, such as {}",
            default_name(pool)
        )));
    }
    let least = format!("99-{pool}-zz");
    (name < least.as_str()).then(|| {
        NameProblem::MayLose(format!(
            "{name} comes before {least}, and of two MachineConfigs with one path the later name wins: one of yours, such as \
             99-{pool}-ssh, may win over it. `oc get mc` shows the names"
        ))
    })
}
