//! What waits for the next boot: a deployment that was staged together with files (design.md section 4), and what
//! that boot turned out to be. Values only; `cli/complete` looks and acts.

use serde::{Deserialize, Serialize};

use crate::transaction::journal::ConfigRef;
use crate::transaction::order;

/// Which way a node is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Into a deployment that was staged, whose files are in place already.
    Forward,
    /// Back to the deployment before; its files are put back when it runs.
    Back,
}

/// A boot that is awaited; kept in `/var/lib/mco-rescue/awaited.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// Version of the file.
    pub version: u32,
    /// Forward or back.
    pub way: Way,
    /// The config whose files are in place, or are to be taken back.
    pub config: ConfigRef,
    /// The run of the files: what `rollback` takes back.
    pub run: Option<String>,
    /// While the files are still to come: the newest run of the history until then, empty where there is none. The
    /// power can fail after they are in place and before `run` is known; a newer run of the config is theirs.
    #[serde(default)]
    pub files_after: Option<String>,
    /// The boot in which this was written (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// `CHECKSUM.SERIAL` of the deployment that ran then.
    pub from: String,
    /// The image that is to be booted, byte for byte as the daemon compares it; `None`: it does not change.
    pub image: Option<String>,
    /// Words that the kernel command line must have.
    pub kernel_arguments: Vec<String>,
    /// Seconds since 1970.
    pub since: u64,
    /// What became of it, where the wanted deployment did not come up.
    pub failed: Option<String>,
}

/// Version of the file.
pub const VERSION: u32 = 1;

/// Runs that changed the operating system too; kept in `/var/lib/mco-rescue/os-runs.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsRuns {
    /// Version of the file.
    pub version: u32,
    /// The oldest first.
    pub runs: Vec<OsRun>,
}

/// A run that led from one deployment to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsRun {
    /// The run of the files.
    pub run: String,
    /// `CHECKSUM.SERIAL` of the deployment that ran before: `rollback` goes back there.
    pub from: String,
}

/// What booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booted {
    /// The boot.
    pub boot: String,
    /// `CHECKSUM.SERIAL`.
    pub deployment: Option<String>,
    /// Its image.
    pub image: Option<String>,
    /// The words of the kernel command line.
    pub kernel_arguments: Vec<String>,
}

/// What that means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// The node has not been booted since.
    NotYet,
    /// What was awaited runs.
    Arrived,
    /// The deployment from before came up: its files have to be as before too.
    Stayed,
    /// Something else runs; nothing is touched. In words: what is not as awaited.
    Elsewhere(String),
}

impl Awaited {
    /// Judges a boot.
    pub fn judge(&self, booted: &Booted) -> Arrival {
        if booted.boot == self.boot {
            return Arrival::NotYet;
        }
        let stayed = booted.deployment.as_deref() == Some(self.from.as_str());
        match self.way {
            Way::Back if stayed => Arrival::Stayed,
            Way::Back => Arrival::Arrived,
            Way::Forward if stayed => Arrival::Stayed,
            Way::Forward => self
                .missing(booted)
                .map_or(Arrival::Arrived, Arrival::Elsewhere),
        }
    }

    /// Whether a run of the history brought the files.
    pub fn is_its_run(&self, id: &str, config: &str) -> bool {
        match (&self.run, &self.files_after) {
            (Some(run), _) => run == id,
            (None, Some(before)) => config == self.config.name && order(id) > order(before),
            (None, None) => false,
        }
    }

    fn missing(&self, booted: &Booted) -> Option<String> {
        if let Some(image) = &self.image
            && booted.image.as_ref() != Some(image)
        {
            let runs = booted.image.as_deref().unwrap_or("no image that is known");
            return Some(format!("{image} was staged, {runs} runs"));
        }
        let mut present = booted.kernel_arguments.clone();
        let mut missing = Vec::new();
        for word in &self.kernel_arguments {
            match present.iter().position(|other| other == word) {
                Some(at) => drop(present.remove(at)),
                None => missing.push(word.as_str()),
            }
        }
        (!missing.is_empty())
            .then(|| format!("the kernel arguments {} are missing", missing.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awaited(way: Way) -> Awaited {
        Awaited {
            version: VERSION,
            way,
            config: ConfigRef {
                name: "rendered-worker-b".into(),
                digest: String::new(),
                origin: "test".into(),
            },
            run: Some("1-1".into()),
            files_after: None,
            boot: "then".into(),
            from: "aa.0".into(),
            image: Some("quay.example/os@sha256:b".into()),
            kernel_arguments: vec!["nosmt".into(), "nosmt".into()],
            since: 0,
            failed: None,
        }
    }

    fn booted(boot: &str, deployment: &str, image: &str, arguments: &[&str]) -> Booted {
        Booted {
            boot: boot.into(),
            deployment: Some(deployment.into()),
            image: Some(image.into()),
            kernel_arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    #[test]
    fn a_boot_is_judged_by_deployment_image_and_arguments() {
        let (new, old) = ("quay.example/os@sha256:b", "quay.example/os@sha256:a");
        let both = ["rw", "nosmt", "nosmt"];
        let elsewhere = |text: &str| Arrival::Elsewhere(text.to_owned());
        let forward = [
            (booted("then", "aa.0", old, &[]), Arrival::NotYet),
            (booted("now", "bb.0", new, &both), Arrival::Arrived),
            (booted("now", "aa.0", old, &["rw"]), Arrival::Stayed),
            (
                booted("now", "cc.0", old, &both),
                elsewhere("quay.example/os@sha256:b was staged, quay.example/os@sha256:a runs"),
            ),
            // Arguments are a multiset: one of two is not both.
            (
                booted("now", "bb.0", new, &["nosmt"]),
                elsewhere("the kernel arguments nosmt are missing"),
            ),
        ];
        for (booted, wanted) in forward {
            assert_eq!(awaited(Way::Forward).judge(&booted), wanted, "{booted:?}");
        }
        let back = [
            (booted("then", "aa.0", old, &[]), Arrival::NotYet),
            (booted("now", "zz.0", old, &[]), Arrival::Arrived),
            (booted("now", "aa.0", old, &[]), Arrival::Stayed),
        ];
        for (booted, wanted) in back {
            assert_eq!(awaited(Way::Back).judge(&booted), wanted, "{booted:?}");
        }
    }

    #[test]
    fn its_run_is_known_even_where_the_power_failed_before_its_name_was_kept() {
        let name = "rendered-worker-b";
        assert!(awaited(Way::Forward).is_its_run("1-1", name));
        assert!(!awaited(Way::Forward).is_its_run("2-1", name));
        let unnamed = |files_after: Option<&str>| Awaited {
            run: None,
            files_after: files_after.map(str::to_owned),
            ..awaited(Way::Forward)
        };
        assert!(unnamed(Some("9-7")).is_its_run("10-3", name));
        assert!(unnamed(Some("")).is_its_run("10-3", name));
        assert!(!unnamed(Some("9-7")).is_its_run("10-3", "rendered-worker-other"));
        // From before it was staged, or nothing but the operating system was.
        assert!(!unnamed(Some("10-3")).is_its_run("10-3", name));
        assert!(!unnamed(None).is_its_run("10-3", name));
    }

    #[test]
    fn a_change_of_arguments_alone_has_another_serial() {
        let arguments_only = Awaited {
            image: None,
            ..awaited(Way::Forward)
        };
        let again = booted("now", "aa.1", "x", &["nosmt", "nosmt"]);
        assert_eq!(arguments_only.judge(&again), Arrival::Arrived);
        let old = booted("now", "aa.0", "x", &[]);
        assert_eq!(arguments_only.judge(&old), Arrival::Stayed);
    }

    #[test]
    fn a_quoted_argument_is_found_as_it_was_asked_for() {
        use crate::kargs::Kargs;
        let words = |kargs: Kargs| kargs.tokens().to_vec();
        let asked_for = Awaited {
            kernel_arguments: words(Kargs::of_entries(&[r#"dyndbg="file x +p""#])),
            ..awaited(Way::Forward)
        };
        let runs = Booted {
            kernel_arguments: words(Kargs::parse(r#"rw dyndbg="file x +p""#)),
            ..booted("now", "bb.0", "quay.example/os@sha256:b", &[])
        };
        assert_eq!(asked_for.judge(&runs), Arrival::Arrived);
    }
}
