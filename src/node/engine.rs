//! The program that stages the operating system of a root.

pub use crate::node::command::engine::Engine;

use crate::host::root::{Root, RootError, RootPath};

/// Returns the engine that is installed on a root: rpm-ostree, or bootc if that is missing.
///
/// # Errors
/// The directories of programs cannot be read.
pub fn installed_engine(root: &Root) -> Result<Engine, RootError> {
    let has = |paths: [&'static str; 2]| -> Result<bool, RootError> {
        let [one, other] = paths.map(RootPath::fixed);
        Ok(root.exists(&one)? || root.exists(&other)?)
    };
    let is_bootc = !has(["usr/bin/rpm-ostree", "usr/sbin/rpm-ostree"])?
        && has(["usr/bin/bootc", "usr/sbin/bootc"])?;
    Ok(if is_bootc {
        Engine::Bootc
    } else {
        Engine::RpmOstree
    })
}

/// Translates a text about rpm-ostree for the engine of this root; unchanged if the engine cannot be determined.
pub fn translate_for_engine(root: &Root, text: &str) -> String {
    match installed_engine(root) {
        Ok(engine) => engine.spell(text),
        Err(error) => {
            log::info!("{error}");
            text.to_owned()
        }
    }
}
