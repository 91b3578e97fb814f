//! systemd's view of unit files, as pure functions on values.
//!
//! Contains unit names, the grammar of unit files, presets, and the effects of `systemctl enable`, `disable`, `preset` and
//! `is-enabled` on a [`UnitTree`]. Nothing here opens a file or starts a process: [`read_units`] asks its caller for the files
//! that matter, and the caller applies the [`LinkChange`]s.

pub mod changed;
mod chase;
mod evaluate;
mod fault;
pub mod install;
pub mod install_section;
mod judged;
mod lookup;
pub mod needed;
pub mod preset;
mod reading;
mod refused;
pub mod state;
mod support;
pub mod sysusers;
mod timer_value;
mod unit_entry;
pub mod unit_file;
pub mod unit_name;
pub mod unit_tree;
mod view;
mod words;

pub use evaluate::{Unresolved, eval_symlinks};
pub use fault::{Fault, Problem};
pub use install::{InstallError, InstallOutcome, disable_units, enable_units, preset_units};
pub use install_section::{InstallSection, unit_text};
pub use judged::{JudgedUnit, judge_units, units_to_judge};
pub use preset::{Presets, glob_matches};
pub use reading::read_units;
pub use refused::{Objection, judge_unit};
pub use state::{UnitFileState, unit_file_state};
pub use support::Support;
pub use unit_tree::{
    CONFIG_DIR, LINK_DIRS, LinkChange, PRESET_PATH, PresetDir, RUNTIME_CONFIG_DIR,
    UNIT_SEARCH_PATH, UnitDir, UnitEntry, UnitTree,
};
