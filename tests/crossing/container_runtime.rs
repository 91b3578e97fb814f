//! The container runtime that CRI-O starts.

use serde_json::json;

use super::Lab;
use crate::support::RECORD;

const RUNC: &str = "[crio]\n  [crio.runtime]\n    default_runtime = \"runc\"\n";

#[test]
fn a_default_that_the_image_lacks_is_an_inhibitor_with_file_and_line() {
    let lab = Lab::healthy();
    lab.node.write("etc/crio/crio.conf.d/99-runc", RUNC);
    let found = lab.findings();
    assert_eq!(lab.short(), ["container-runtime inhibitor runc"]);
    for words in [
        "/etc/crio/crio.conf.d/99-runc:3",
        r#"\"runc\" not found in $PATH"#,
        "mv /etc/crio/crio.conf.d/99-runc /etc/crio/99-runc.mco-rescue-",
    ] {
        assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
    }
}

#[test]
fn a_file_of_the_config_is_changed_in_the_cluster() {
    let lab = Lab::healthy();
    let path = "etc/crio/crio.conf.d/01-ctrcfg-defaultRuntime";
    lab.node.write(path, RUNC);
    let record =
        json!({"spec": {"config": {"storage": {"files": [{"path": format!("/{path}")}]}}}});
    lab.node.write(RECORD, &record.to_string());
    let found = lab.findings();
    assert_eq!(lab.short(), ["container-runtime inhibitor runc"]);
    assert!(
        found[0]
            .text
            .contains("delete the ContainerRuntimeConfig that sets defaultRuntime to runc")
    );
}

#[test]
fn the_last_file_wins_whatever_its_ending_and_directory() {
    for (path, found) in [
        ("99-x.rpmsave", true),
        ("99-x.d/deep", true),
        ("00-a", false),
        // A directory is walked where its name stands.
        ("00-a.d/zz", false),
    ] {
        let lab = Lab::healthy();
        lab.node
            .write(&format!("etc/crio/crio.conf.d/{path}"), RUNC);
        assert_eq!(!lab.short().is_empty(), found, "{path}");
    }
    let lab = Lab::healthy();
    lab.node.write("etc/crio/crio.conf", RUNC);
    assert_eq!(lab.short(), [""; 0], "drop-ins come after crio.conf");
}

#[test]
fn only_the_program_of_the_default_has_to_be_there() {
    let lab = Lab::healthy();
    lab.node.write(
        "etc/crio/crio.conf.d/50-tables",
        "[crio.runtime.runtimes.runc]\nruntime_path = \"/usr/bin/runc\"\n\
         [crio.runtime.runtimes.crun]\nruntime_path = \"/bin/crun\"\n",
    );
    assert_eq!(lab.short(), [""; 0]);
    lab.node.write(
        "etc/crio/crio.conf.d/60-path",
        "[crio.runtime.runtimes.crun]\nruntime_path = \"/usr/libexec/crio/crun\"\n",
    );
    let found = lab.findings();
    assert_eq!(lab.short(), ["container-runtime inhibitor crun"]);
    assert!(
        found[0]
            .text
            .contains("invalid runtime_path for runtime 'crun'")
    );
    lab.target.write("usr/libexec/crio/crun", "");
    assert_eq!(lab.short(), [""; 0]);
}

#[test]
fn a_program_of_the_node_itself_stays() {
    let lab = Lab::healthy();
    lab.node.write("etc/crio/crio.conf.d/99-runc", RUNC);
    lab.node.link("usr/local", "../var/usrlocal");
    lab.node.write("var/usrlocal/bin/runc", "");
    assert_eq!(lab.short(), [""; 0]);
}

#[test]
fn a_file_that_the_node_never_changed_becomes_the_images() {
    let lab = Lab::healthy();
    for place in ["etc", "usr/etc"] {
        let path = format!("{place}/crio/crio.conf.d/99-image");
        lab.node.write(&path, RUNC);
    }
    assert_eq!(lab.short(), [""; 0], "the image does not have it any more");
    lab.target.write("usr/etc/crio/crio.conf.d/99-image", "");
    assert_eq!(lab.short(), [""; 0]);
    lab.node.write(
        "etc/crio/crio.conf.d/99-image",
        &format!("{RUNC}log_level = \"debug\"\n"),
    );
    let found = lab.findings();
    assert!(found[0].text.contains("sed -i 3d"), "{}", found[0].text);
}

#[test]
fn an_option_of_the_service_wins() {
    let lab = Lab::healthy();
    lab.node.write(
        "etc/systemd/system/crio.service.d/10-x.conf",
        "[Service]\nEnvironment=\"CONTAINER_DEFAULT_RUNTIME=runc\"\n",
    );
    let found = lab.findings();
    assert_eq!(lab.short(), ["container-runtime inhibitor runc"]);
    assert!(
        found[0]
            .text
            .contains("/etc/systemd/system/crio.service.d/10-x.conf:2")
    );
}

#[test]
fn a_default_without_a_table_and_a_damaged_file_stop_crio() {
    let lab = Lab::healthy();
    lab.node.write(
        "etc/crio/crio.conf.d/99-kata",
        "[crio.runtime]\ndefault_runtime = \"kata\"\n",
    );
    lab.node
        .write("etc/crio/crio.conf.d/.old.swp", "b0VIM 9.0\u{0}\u{1}");
    let found = lab.findings();
    assert_eq!(
        lab.short(),
        [
            "container-runtime inhibitor /etc/crio/crio.conf.d/.old.swp",
            "container-runtime inhibitor kata"
        ]
    );
    assert!(
        found[1]
            .text
            .contains("but no runtime entry table [crio.runtime.runtimes.kata] was found")
    );
}

#[test]
fn an_image_whose_programs_are_not_known_is_not_judged() {
    let lab = Lab::healthy();
    std::fs::remove_dir_all(lab.target.path("usr/bin")).unwrap();
    let mut short = lab.short();
    short.retain(|one| one.starts_with("container-runtime"));
    assert_eq!(short, ["container-runtime unknown crun"]);
}
