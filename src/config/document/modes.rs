//! Modes that were written in decimal but intended as octal.

/// Common modes of files and directories, in octal.
const COMMON: [i64; 16] = [
    400, 440, 444, 500, 550, 555, 600, 640, 644, 660, 664, 700, 711, 750, 755, 775,
];
/// The bits that the operator's configs can have: older releases drop the others.
const PERMISSIONS: i64 = 0o777;

/// Returns true if a mode is unusual, but would be usual if its digits were octal.
pub fn looks_decimal(mode: i64, is_directory: bool) -> bool {
    intended_mode(mode, is_directory).is_some()
}

/// Returns the mode that the digits of an unusual mode mean in octal; `None` if the mode is usual, or would still be unusual.
fn intended_mode(mode: i64, is_directory: bool) -> Option<i64> {
    if !(0..=7777).contains(&mode) || is_usual(mode, is_directory) {
        return None;
    }
    let octal = i64::from_str_radix(&mode.to_string(), 8).ok()?;
    is_usual(octal, is_directory).then_some(octal)
}

/// Explains which mode was probably intended: the number as written, and both correct ways to write it. `None` if nothing
/// suggests that its digits are octal.
pub fn octal_hint(mode: i64, is_directory: bool) -> Option<String> {
    if let Some(octal) = intended_mode(mode, is_directory) {
        return Some(format!(
            "{mode} is a decimal number; if the mode {octal:04o} is meant, write 0{mode} in YAML, or {octal} in JSON"
        ));
    }
    // The remainder of such a number after its special bits were removed.
    let is_rest = |digits: &&i64| **digits > PERMISSIONS && **digits & PERMISSIONS == mode;
    let digits = COMMON.iter().find(is_rest)?;
    if is_usual(mode, is_directory) {
        return None;
    }
    let octal = intended_mode(*digits, is_directory)?;
    Some(format!(
        "{mode} is the mode {mode:04o}; releases that take off special bits make it of the decimal number {digits}. If the mode \
         {octal:04o} is meant, write 0{digits} in YAML, or {octal} in JSON"
    ))
}

/// Returns true if a mode is one that people use.
fn is_usual(mode: i64, is_directory: bool) -> bool {
    if mode == 0 {
        return true;
    }
    let (mut reads, mut writes, mut runs) = (false, false, false);
    // Others, group, owner: each must have at least the permissions of the one before.
    for bits in [mode & 7, mode >> 3 & 7, mode >> 6 & 7] {
        let (r, w, x) = (bits & 4 != 0, bits & 2 != 0, bits & 1 != 0);
        let lacks = !r && reads || !w && writes || !x && runs;
        if lacks || x && reads && !runs || (w || x) && !r {
            return false;
        }
        reads |= r;
        writes |= w;
        runs |= x;
    }
    if !reads {
        return false;
    }
    if is_directory {
        runs && mode & 0o4000 == 0 && (mode & 0o3000 == 0 || writes)
    } else {
        let special = mode & 0o6000 != 0;
        mode & 0o1000 == 0 && (!special || runs && mode & 2 == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_without_its_leading_zero_is_noticed() {
        for mode in [644, 755, 600, 400, 4755] {
            assert!(looks_decimal(mode, false), "{mode}");
        }
        for mode in [0o644, 0o755, 0o600, 0, 0o4755, 888, 420] {
            assert!(!looks_decimal(mode, false), "{mode:o}");
        }
        assert!(looks_decimal(755, true) && !looks_decimal(644, true));
    }

    #[test]
    fn the_rest_of_a_decimal_mode_is_recognised() {
        let hint = octal_hint(0o204, false).unwrap();
        assert!(
            hint.contains("decimal number 644") && hint.contains("or 420 in JSON"),
            "{hint}"
        );
        assert!(octal_hint(755 & 0o777, true).unwrap().contains("0755"));
        for mode in COMMON.map(|digits| i64::from_str_radix(&digits.to_string(), 8).unwrap()) {
            assert_eq!(
                octal_hint(mode, false).or(octal_hint(mode, true)),
                None,
                "{mode:o}"
            );
        }
    }
}
