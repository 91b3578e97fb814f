//! Files of GRUB, as values: its environment block, its configuration, and this program's lines that it runs.
//!
//! GRUB decides at each start, by a variable that it changes itself before it starts a kernel. That is the only way back from a
//! crash that no user space sees (docs/develop/boot-counter.md). `tests/os/boot_counter.rs` compares this with the real tools, and
//! `vm-tests/cases/boot_counter.rs` with the real boot loader.

pub mod commands;
pub mod config;
pub mod environment;
pub mod order;
pub mod script;

use environment::{Environment, EnvironmentError};

/// Variable with the state of the counter: [`ARMED`], [`FIRED`] or [`ENDED`].
pub const STATE_VARIABLE: &str = "mco_rescue_trial";
/// Variable with the id of the old boot entry.
pub const ENTRY_VARIABLE: &str = "mco_rescue_trial_entry";
/// The next start tries the default entry.
pub const ARMED: &str = "armed";
/// The default entry was tried; from now on every start uses the old one.
pub const FIRED: &str = "fired";
/// Nothing is decided any more. It has the same length as the other two, so that it fits in their place on a full disk, and no
/// mix of its letters with theirs equals one of them.
pub const ENDED: &str = "ended";

/// A file in the directory of the boot entries while the counter is armed or has fired. ostree renumbers its entries in a new
/// directory, which does not have the file: then the id belongs to another entry.
pub const ENTRIES_MARK: &str = "mco-rescue-trial";

/// State of the counter according to the environment block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CounterState {
    /// Nothing is counted.
    Missing,
    /// The next start tries the default entry.
    Armed {
        /// Id of the old boot entry.
        entry: String,
    },
    /// The default entry was tried; from now on every start uses the old one.
    Fired {
        /// Id of the old boot entry.
        entry: String,
    },
}

impl CounterState {
    /// Reads the state from an environment block. A state without an entry has no effect.
    pub fn from_environment(environment: &Environment) -> Self {
        let entry = environment.get(ENTRY_VARIABLE).unwrap_or_default();
        match environment.get(STATE_VARIABLE).as_deref() {
            _ if entry.is_empty() => Self::Missing,
            Some(ARMED) => Self::Armed { entry },
            Some(FIRED) => Self::Fired { entry },
            _ => Self::Missing,
        }
    }
}

/// Sets the variables: the next start tries the default entry, and the one after it uses this entry.
///
/// # Errors
/// The block does not have enough space; it is left unchanged.
pub fn arm_counter(environment: &mut Environment, entry: &str) -> Result<(), EnvironmentError> {
    let mut changed = environment.clone();
    changed.set(ENTRY_VARIABLE, entry)?;
    changed.set(STATE_VARIABLE, ARMED)?;
    *environment = changed;
    Ok(())
}

/// Removes the variables. Returns true if there was one.
pub fn disarm_counter(environment: &mut Environment) -> bool {
    let had_state = environment.unset(STATE_VARIABLE);
    environment.unset(ENTRY_VARIABLE) || had_state
}

/// Returns true if GRUB finds a boot entry by this id. GRUB takes an id that begins with a digit for an index, and `>` for a
/// submenu.
pub fn is_usable_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._+~-".contains(&byte);
    let begins = id
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic());
    begins && id.len() <= MAX_ID && id.bytes().all(fits)
}

/// Maximum length of an id that is written to the environment block.
const MAX_ID: usize = 200;

#[cfg(test)]
mod tests {
    use super::environment::SIGNATURE;
    use super::*;

    #[test]
    fn an_id_that_grub_reads_as_something_else_is_refused() {
        for id in ["ostree-1", "ostree-2-rhcos", "ostree-2+3-1", "a"] {
            assert!(is_usable_id(id), "{id}");
        }
        let long = "a".repeat(201);
        let wrong = [
            "",
            "1",
            "0123abcd-6.1",
            "a>b",
            "a b",
            "a\"b",
            "$a",
            "a\\",
            "ä",
            "-a",
            &long,
        ];
        for id in wrong {
            assert!(!is_usable_id(id), "{id}");
        }
    }

    #[test]
    fn only_a_whole_state_counts() {
        let state = |lines: &str| {
            let mut block = [SIGNATURE, lines.as_bytes()].concat();
            block.resize(1024, b'#');
            CounterState::from_environment(&Environment::parse(&block).unwrap())
        };
        let entry = || "ostree-1".to_owned();
        let both = |word: &str| {
            state(&format!(
                "mco_rescue_trial={word}\nmco_rescue_trial_entry=ostree-1\n"
            ))
        };
        assert_eq!(both("armed"), CounterState::Armed { entry: entry() });
        assert_eq!(both("fired"), CounterState::Fired { entry: entry() });
        assert_eq!(both("ended"), CounterState::Missing);
        assert_eq!(state("mco_rescue_trial=armed\n"), CounterState::Missing);
        assert_eq!(state(""), CounterState::Missing);
    }

    #[test]
    fn every_torn_end_decides_nothing_or_leaves_the_state() {
        for word in [ARMED, FIRED] {
            assert_eq!(word.len(), ENDED.len());
            for at in 0..=word.len() {
                for torn in [
                    format!("{}{}", &ENDED[..at], &word[at..]),
                    format!("{}{}", &word[..at], &ENDED[at..]),
                ] {
                    let other = if word == ARMED { FIRED } else { ARMED };
                    assert_ne!(torn, other, "{word} {at}");
                }
            }
        }
    }
}
