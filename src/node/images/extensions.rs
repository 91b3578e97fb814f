//! The extensions image: the commands that fetch its content, and the file that adds it to rpm-ostree's repositories
//! (docs/develop/agreement.md: Packages). Words in, values out.

use std::time::Duration;

use crate::host::sys::privileges::Capability;
use crate::node::command::CommandLine;

/// Directory of the packages in the image.
pub const REPOSITORY: &str = "usr/share/rpm-ostree/extensions";
/// File that makes a directory an RPM repository.
pub const METADATA: &str = "repodata/repomd.xml";
/// The daemon's repository file, by which the packages are found. The daemon also removes a stale one.
pub const REPO_FILE: &str = "/etc/yum.repos.d/coreos-extensions.repo";

/// Time limit of a pull, which depends on the network.
const PULL: Duration = Duration::from_secs(1800);
const COPY: Duration = Duration::from_secs(900);
const QUICK: Duration = Duration::from_secs(120);

/// Returns the repository file for rpm-ostree, byte for byte as the daemon writes it.
pub fn repo_file(repository: &str) -> String {
    let lines = [
        "[coreos-extensions]".to_owned(),
        "enabled=1".to_owned(),
        "metadata_expire=1m".to_owned(),
        format!("baseurl={repository}/"),
        "gpgcheck=0".to_owned(),
        "skip_if_unavailable=False".to_owned(),
    ];
    lines.map(|line| line + "\n").concat()
}

/// Returns the command line that pulls the image if it is not in containers-storage. `auth` is the pull secret.
pub fn pull_image(image: &str, auth: Option<&str>) -> CommandLine {
    let mut args = vec!["pull".to_owned(), "-q".to_owned()];
    args.extend(
        auth.into_iter()
            .flat_map(|file| ["--authfile".to_owned(), file.to_owned()]),
    );
    args.push(image.to_owned());
    podman_line(args, PULL)
}

/// Returns the command line that creates a container from the image. The container never runs.
pub fn create_container(image: &str, name: &str) -> CommandLine {
    let args = [
        "create",
        "--net=none",
        "--annotation=org.openshift.machineconfigoperator.pivot=true",
        "--name",
        name,
        image,
    ];
    // podman requires a program name, but an image of nothing but files has none.
    podman_line(
        args.into_iter().chain(["-"]).map(str::to_owned).collect(),
        QUICK,
    )
}

/// Returns the command line that copies the container's files to a directory of the node.
pub fn copy_content(name: &str, directory: &str) -> CommandLine {
    let args = ["cp".to_owned(), format!("{name}:/"), directory.to_owned()];
    podman_line(args.to_vec(), COPY)
}

/// Returns the command line that labels the copied files so that rpm-ostreed may read them.
pub fn label_directory(directory: &str) -> CommandLine {
    let args = ["-R", "-t", "var_run_t", directory];
    CommandLine::new("chcon", args, QUICK)
        .with_capabilities(&[Capability::CAP_SYS_ADMIN, Capability::CAP_FOWNER])
}

/// Removes the container.
pub fn remove_container(name: &str) -> CommandLine {
    podman_line(["rm", "-f", name].map(str::to_owned).to_vec(), QUICK)
}

fn podman_line(args: Vec<String>, timeout: Duration) -> CommandLine {
    CommandLine::new("podman", args, timeout).with_capabilities(&super::storage::CAPABILITIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_reported_in_the_daemons_bytes() {
        assert_eq!(
            repo_file("/run/mco-extensions/a/usr/share/rpm-ostree/extensions"),
            "[coreos-extensions]\nenabled=1\nmetadata_expire=1m\n\
             baseurl=/run/mco-extensions/a/usr/share/rpm-ostree/extensions/\ngpgcheck=0\nskip_if_unavailable=False\n"
        );
    }

    #[test]
    fn the_container_is_made_as_the_daemon_makes_it() {
        let line = |line: CommandLine| format!("{} {}", line.program, line.args.join(" "));
        assert_eq!(
            line(pull_image("q/e@sha256:1", Some("/s"))),
            "podman pull -q --authfile /s q/e@sha256:1"
        );
        assert_eq!(line(pull_image("q/e", None)), "podman pull -q q/e");
        assert!(line(create_container("q/e", "n")).starts_with(
            "podman create --net=none --annotation=org.openshift.machineconfigoperator.pivot=true --name n q/e"
        ));
        assert_eq!(line(copy_content("n", "/run/d")), "podman cp n:/ /run/d");
        assert_eq!(
            line(label_directory("/run/d")),
            "chcon -R -t var_run_t /run/d"
        );
    }
}
