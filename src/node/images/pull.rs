//! The decisions of a pull: which locations are tried, the credentials, and the policy's ruling.

use std::fmt;

use super::ImageName;
use super::auth::{Credentials, Secrets};
use super::lookaside::{self, LookasideError};
use super::policy::{PolicyError, Ruling, SignaturePolicy};
use super::registries::{Registries, RegistriesError};
use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};

/// The decisions of a pull, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The image.
    pub image: ImageName,
    /// The prefix of the table that applies and its file; `None` if none applies.
    pub table: Option<(String, String)>,
    /// The locations that are tried, in order.
    pub sources: Vec<PullPlace>,
    /// The file of the credentials.
    pub secrets: Option<String>,
    /// The reason why the pull secret cannot be used.
    pub secrets_problem: Option<String>,
    /// The file has no entry.
    pub secrets_empty: bool,
    /// The policy's ruling.
    pub ruling: Ruling,
    /// Key files that the ruling requires but that are missing.
    pub missing_keys: Vec<String>,
}

/// One place that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullPlace {
    /// The image's name at that location.
    pub name: String,
    /// It is a mirror, not the original location.
    pub mirror: bool,
    /// TLS is not used, or any certificate is accepted.
    pub insecure: bool,
    /// The reason why it is not tried.
    pub skipped: Option<String>,
    /// The credentials for it.
    pub credentials: Credentials,
}

/// The reason why the decisions of a pull cannot be derived.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// One cannot be read.
    #[error("reading {path}: {cause}; correct it, nothing can be pulled until then", path = .0.path, cause = .0.cause)]
    Read(#[from] RootError),
    /// The registries.
    #[error(transparent)]
    Registries(#[from] RegistriesError),
    /// The places of signatures.
    #[error(transparent)]
    Lookaside(#[from] LookasideError),
    /// The policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// There is no policy, so the containers tools refuse every pull.
    #[error("/{path} is missing, and without it nothing can be pulled; bring it back: cp /usr/{path} /{path}", path = paths::POLICY)]
    NoPolicy,
}

impl Trace {
    /// Reads the files of a root and derives the decisions.
    ///
    /// # Errors
    /// Any error that would make the containers tools refuse a pull.
    pub fn read(root: &Root, image: &ImageName) -> Result<Self, TraceError> {
        let registries = Registries::parse(&Registries::read_files(root)?)?;
        lookaside::check_lookaside(&lookaside::read_lookaside_files(root)?)?;
        let secrets = Secrets::read(root)?;
        let policy = read_policy(root)?;
        let mut trace = Self::from_files(image, &registries, &secrets, &policy);
        trace.missing_keys = missing_keys(root, &trace.ruling)?;
        Ok(trace)
    }

    /// Derives the decisions from the parsed files.
    pub fn from_files(
        image: &ImageName,
        registries: &Registries,
        secrets: &Secrets,
        policy: &SignaturePolicy,
    ) -> Self {
        let table = registries.find_table(&image.to_string());
        let mut sources = Vec::new();
        for mirror in table
            .map(|table| table.mirrors.as_slice())
            .unwrap_or_default()
        {
            let name = table
                .map(|table| table.relocate_name(&mirror.location, image))
                .unwrap_or_default();
            let skipped = mirror.pull.skip_reason(image).map(str::to_owned);
            sources.push(make_source(
                name,
                mirror.insecure,
                skipped,
                registries,
                secrets,
                true,
            ));
        }
        let name = table.map_or_else(
            || image.to_string(),
            |table| table.relocate_name(&table.location, image),
        );
        let insecure = table.is_some_and(|table| table.insecure);
        sources.push(make_source(
            name, insecure, None, registries, secrets, false,
        ));
        Self {
            image: image.clone(),
            table: table.map(|table| (table.prefix.clone(), table.file.clone())),
            sources,
            secrets: secrets.file.clone(),
            secrets_problem: secrets.problem.clone(),
            secrets_empty: secrets.file.is_some() && secrets.is_empty(),
            ruling: policy.of_registry(image),
            missing_keys: Vec::new(),
        }
    }

    /// Returns the locations that are tried.
    pub fn asked_places(&self) -> impl Iterator<Item = &PullPlace> {
        self.sources
            .iter()
            .filter(|source| source.skipped.is_none())
    }

    /// Returns the reason why a pull cannot succeed, regardless of the network.
    pub fn blocked(&self) -> Option<String> {
        if self.ruling.rejects() {
            return Some(format!("the signature policy rejects it: {}", self.ruling));
        }
        if let Some(key) = self.missing_keys.first() {
            return Some(format!(
                "the signature policy needs the key {key}, which is missing: {}",
                self.ruling
            ));
        }
        let all: Vec<String> = self
            .sources
            .iter()
            .filter_map(|source| source.skipped.clone())
            .collect();
        (all.len() == self.sources.len()).then(|| format!("no place is asked: {}", all.join("; ")))
    }
}

/// Returns the key files that a ruling requires but that are missing. Relative paths are ignored.
fn missing_keys(root: &Root, ruling: &Ruling) -> Result<Vec<String>, RootError> {
    let mut missing = Vec::new();
    for key in ruling.keys() {
        if let Ok(path) = RootPath::parse(key)
            && !root.exists(&path)?
        {
            missing.push(key.to_owned());
        }
    }
    Ok(missing)
}

/// Reads the signature policy of a root. Without it nothing can be pulled or copied.
///
/// # Errors
/// It is missing or invalid.
pub fn read_policy(root: &Root) -> Result<SignaturePolicy, TraceError> {
    let policy = read_policy_text(root)?.ok_or(TraceError::NoPolicy)?;
    Ok(SignaturePolicy::parse(&String::from_utf8_lossy(&policy))?)
}

/// Returns the text of the signature policy: that of `/etc`, or else that of the image; `None` if both are missing.
///
/// # Errors
/// It cannot be read.
pub fn read_policy_text(root: &Root) -> Result<Option<Vec<u8>>, RootError> {
    let own = root.read(&RootPath::fixed(paths::POLICY))?;
    match own {
        Some(own) => Ok(Some(own)),
        None => root.read(&RootPath::fixed(paths::POLICY_OF_IMAGE)),
    }
}

/// Returns a location. Whether it is blocked depends on the table of its own name, not of the image's: a mirror of a blocked
/// registry is tried.
fn make_source(
    name: String,
    insecure: bool,
    skipped: Option<String>,
    registries: &Registries,
    secrets: &Secrets,
    mirror: bool,
) -> PullPlace {
    let table = registries.find_table(&name).filter(|table| table.blocked);
    let blocked = table.map(|table| format!("{} is blocked in {}", table.prefix, table.file));
    let repository = name.split('@').next().unwrap_or(&name);
    let repository = match repository.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => before,
        _ => repository,
    };
    PullPlace {
        credentials: secrets.credentials_for(repository),
        skipped: skipped.or(blocked),
        name,
        mirror,
        insecure,
    }
}

/// Prints one line, for a notice.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.table {
            Some((prefix, file)) => write!(f, "{}: [[registry]] {prefix} of {file}", self.image)?,
            None => write!(f, "{}: no [[registry]] names it", self.image)?,
        }
        for source in &self.sources {
            write!(f, "; {source}")?;
        }
        match (&self.secrets, &self.secrets_problem) {
            (Some(file), Some(problem)) => {
                write!(f, "; credentials: {file} cannot be used: {problem}")?;
            }
            (Some(file), None) => write!(f, "; credentials: {file}")?,
            (None, _) => f.write_str("; credentials: no file")?,
        }
        write!(f, "; policy: {}", self.ruling)
    }
}

impl fmt::Display for PullPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.mirror { "mirror" } else { "registry" };
        write!(f, "{kind} {}", self.name)?;
        match &self.skipped {
            Some(why) => write!(f, ": not asked, {why}"),
            None if self.insecure => write!(f, ", insecure, {}", self.credentials),
            None => write!(f, ", {}", self.credentials),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(conf: &str, policy: &str, image: &str) -> Trace {
        let registries = Registries::parse(&[("r.conf".to_owned(), conf.to_owned())]).unwrap();
        let secrets = Secrets::parse("/auth.json", br#"{"auths": {"mirror.local:5000": {}}}"#);
        let policy = SignaturePolicy::parse(policy).unwrap();
        Trace::from_files(
            &ImageName::parse(image).unwrap(),
            &registries,
            &secrets,
            &policy,
        )
    }

    const ANYTHING: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
    const MIRRORED: &str = "[[registry]]\nlocation = \"quay.example\"\nblocked = true\nmirror-by-digest-only = true\n\
                            [[registry.mirror]]\nlocation = \"mirror.local:5000/q\"\n";

    #[test]
    fn mirrors_come_first_and_a_blocked_registry_leaves_them_alone() {
        let image = format!("quay.example/os@sha256:{}", "a".repeat(64));
        let trace = trace(MIRRORED, ANYTHING, &image);
        assert_eq!(trace.asked_places().count(), 1);
        assert_eq!(trace.blocked(), None);
        let text = trace.to_string();
        assert!(!text.contains('\n'), "{text}");
        let lines: Vec<&str> = text.split("; ").collect();
        assert!(
            lines[1].starts_with("mirror mirror.local:5000/q/os@sha256:aaa"),
            "{text}"
        );
        assert!(
            lines[1].ends_with("with the credentials for mirror.local:5000"),
            "{text}"
        );
        assert!(
            lines[2].contains("not asked, quay.example is blocked in r.conf"),
            "{text}"
        );
        assert_eq!(lines[3], "credentials: /auth.json");
        assert_eq!(lines[4], "policy: insecureAcceptAnything (default)");
    }

    #[test]
    fn a_tag_is_not_asked_of_a_mirror_of_digests() {
        let trace = trace(MIRRORED, ANYTHING, "quay.example/os:1");
        assert_eq!(trace.asked_places().count(), 0);
        assert!(
            trace
                .blocked()
                .unwrap()
                .contains("only names with a digest")
        );
    }

    #[test]
    fn without_a_table_the_name_itself_is_asked() {
        let trace = trace("", ANYTHING, "mirror.local:5000/os:1");
        let asked: Vec<&PullPlace> = trace.asked_places().collect();
        assert_eq!(
            (asked.len(), asked[0].name.as_str()),
            (1, "mirror.local:5000/os:1")
        );
        assert_eq!(
            asked[0].credentials,
            Credentials::Entry("mirror.local:5000".into())
        );
    }

    #[test]
    fn a_policy_that_rejects_blocks_whatever_the_network_does() {
        let reject = r#"{"default": [{"type": "reject"}]}"#;
        assert!(
            trace("", reject, "a.example/os:1")
                .blocked()
                .unwrap()
                .contains("policy rejects")
        );
    }
}
