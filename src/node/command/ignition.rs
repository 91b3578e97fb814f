//! Ignition in an initramfs that has it: run once more to find its config.

use std::time::Duration;

use super::CommandLine;

/// Returns the command line of the stage that needs no network: it looks for the config of the image before it asks the
/// platform.
pub fn fetch_offline(platform: &str) -> CommandLine {
    CommandLine::new(
        "ignition",
        [
            "--root=/sysroot".to_owned(),
            format!("--platform={platform}"),
            "--stage=fetch-offline".to_owned(),
        ]
        .to_vec(),
        Duration::from_secs(60),
    )
}

/// Returns the platform from the environment file of Ignition's generator (`PLATFORM_ID=qemu`).
pub fn platform_id(environment: &str) -> Option<&str> {
    let line = environment
        .lines()
        .find_map(|line| line.strip_prefix("PLATFORM_ID="));
    line.map(str::trim).filter(|id| !id.is_empty())
}

/// Returns the last line of Ignition's output that describes a failure.
pub fn failure_line(stderr: &str) -> String {
    let lines = stderr
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let telling = |line: &&str| {
        line.contains("CRITICAL") || line.contains("ERROR") || line.contains("failed")
    };
    let all: Vec<&str> = lines.collect();
    let line = all.iter().rev().find(|line| telling(line)).or(all.last());
    line.map_or_else(
        || "it reported nothing".to_owned(),
        |line| (*line).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platform_is_what_the_generator_found() {
        assert_eq!(platform_id("PLATFORM_ID=metal\n"), Some("metal"));
        assert_eq!(platform_id("PLATFORM_ID=\n"), None);
        assert_eq!(platform_id(""), None);
    }

    #[test]
    fn the_last_failure_tells_why() {
        let said = "INFO : reading\nCRITICAL : failed to fetch config: unsupported config version\nINFO : bye\n";
        assert!(failure_line(said).starts_with("CRITICAL"));
        assert_eq!(failure_line(""), "it reported nothing");
    }
}
