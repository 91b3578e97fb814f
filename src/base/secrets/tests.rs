//! Tests the policy against two tables: forms of secrets, none of which may be visible, and ordinary lines, which must stay.

use super::*;

/// The tables, shared with the program's tests.
#[path = "../../../tests/support/secret_forms.rs"]
#[allow(unreachable_pub)]
mod forms;

use forms::{ARGUMENTS, MARK, ORDINARY, SECRETS};

fn is_hidden(text: &str) -> bool {
    !text.contains("Zq7x") && !text.contains("OfSecret9")
}

#[test]
fn no_form_of_a_secret_is_seen() {
    assert!(SECRETS.len() > 100, "{}", SECRETS.len());
    let mut seen = Vec::new();
    for form in SECRETS {
        let text = form.replace('§', MARK);
        for text in [text.clone(), format!("first\n{text}\nlast\n")] {
            let shown = redact_secrets(&text);
            if !is_hidden(&shown) || !shown.contains("(secret, ") {
                seen.push(format!("{form}\n    -> {shown}"));
            }
            let lines = redacted_lines(&text);
            assert_eq!(lines.len(), text.lines().count());
            let joined: String = lines.iter().map(|(_, shown)| shown.as_ref()).collect();
            if !is_hidden(&joined) {
                seen.push(format!("by line: {form}\n    -> {joined}"));
            }
            let is_open = text.contains("BEGIN") && !text.contains("-----END ");
            let is_kept = shown.contains("last") == text.contains("last");
            assert!(is_kept || is_open, "{shown}");
        }
    }
    assert!(
        seen.is_empty(),
        "{} are seen:\n{}",
        seen.len(),
        seen.join("\n")
    );
}

#[test]
fn no_kernel_argument_shows_its_secret() {
    let mut seen = Vec::new();
    for form in ARGUMENTS {
        let argument = form.replace('§', MARK);
        let line = redacted_arguments(&format!("root=UUID=1 {argument} quiet"));
        let one = redacted_argument(&argument, &|_| "#".to_owned());
        let name = form.trim_matches('"').split('=').next().unwrap();
        let is_whole =
            line.starts_with("root=UUID=1 ") && line.ends_with(" quiet") && line.contains(name);
        if !is_hidden(&line) || !is_hidden(&one) || !has_secret_argument(&argument) || !is_whole {
            seen.push(format!("{form}\n    -> {line} | {one}"));
        }
        let sentence = format!("the argument {argument} is missing");
        let shown = redacted_words(&sentence);
        if !is_hidden(&shown) && !form.contains('?') {
            seen.push(format!("{form}\n    -> {shown}"));
        }
    }
    assert!(seen.is_empty(), "{}", seen.join("\n"));
}

#[test]
fn ordinary_lines_stay_as_they_are() {
    assert!(ORDINARY.len() > 50);
    let mut hidden = Vec::new();
    for line in ORDINARY {
        for text in [(*line).to_owned(), format!("a\n{line}\nb\n")] {
            if redact_secrets(&text) != text {
                hidden.push(redact_secrets(&text).into_owned());
            }
        }
    }
    assert!(
        hidden.is_empty(),
        "{} are hidden:\n{}",
        hidden.len(),
        hidden.join("\n")
    );
}

#[test]
fn ordinary_arguments_and_sentences_stay() {
    let line = "BOOT_IMAGE=(hd0,gpt3)/ostree/vmlinuz rd.luks.name=1=root rd.luks.options=discard rd.neednet=1 ip=dhcp,dhcp6 \
         ignition.platform.id=metal $ignition_firstboot ostree=/ostree/boot.1/rhcos/ab/0 root=UUID=1 rw rootflags=prjquota \
         systemd.unified_cgroup_hierarchy=1 console=ttyS0,115200n8 psi=0 intel_iommu=on hugepagesz=1G hugepages=4 \
         mitigations=auto,nosmt audit=1 keymap=us vconsole.keymap=de coreos.inst.ignition_url=http://host/a.ign \
         netroot=iscsi:192.0.2.1::3260:1:iqn.2001-04.com.example:x rd.iscsi.username=user rd.luks.key=/etc/luks/a.key";
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(redacted_arguments(line), words.join(" "));
    for sentence in [
        "the password of core differs: its hash is not that of the config",
        "take passwordHash out of the MachineConfig that brings it",
        "the pull secret: quay.io is missing",
        "Password: none. The token = a word",
        "--token is missing",
    ] {
        assert_eq!(redacted_words(sentence), sentence);
    }
}

#[test]
fn what_is_hidden_once_is_not_hidden_again() {
    for form in SECRETS {
        let once = redact_secrets(&form.replace('§', MARK)).into_owned();
        assert_eq!(redact_secrets(&once), once, "{form}");
    }
}

#[test]
fn a_whole_file_is_secret_by_its_path_and_mode() {
    for (path, mode) in [
        ("etc/shadow", None),
        ("etc/a.key", Some(0o644)),
        ("etc/ssh/ssh_host_rsa_key", Some(0o644)),
        ("etc/pki/tls/private/a.pem", Some(0o644)),
        ("etc/a.conf", Some(0o640)),
        ("root/.netrc", None),
        ("etc/cryptsetup-keys.d/luks-root", None),
    ] {
        assert!(reason_of_file(path, mode).is_some(), "{path}");
    }
    for path in [
        "etc/fstab",
        "etc/ssh/sshd_config",
        "etc/ssh/ssh_host_rsa_key.pub",
        "etc/pki/ca-trust/a.pem",
        "etc/kubernetes/kubelet.conf",
        "etc/authselect/password-auth",
        "etc/passwd",
    ] {
        assert_eq!(reason_of_file(path, Some(0o644)), None, "{path}");
    }
}

#[test]
fn a_long_line_takes_a_short_time() {
    let mut text = String::from("{");
    for number in 0..40_000 {
        text.push_str(&format!(
            "\"password\": \"$FOO\", \"a{number}\": \"password x token=\\\"y "
        ));
    }
    let started = std::time::Instant::now();
    let shown = redact_secrets(&text);
    assert!(
        !shown.is_empty() && started.elapsed().as_secs() < 20,
        "{:?}",
        started.elapsed()
    );
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in ".{0,80}", odd in "[a-z:/?#@.\\[\\]%0-9=\"'{}<>$ é\\\\\n-]{0,60}") {
        for text in [text, odd.clone(), format!("password{odd}"), format!("-----BEGIN PRIVATE KEY-----{odd}"), format!("http://{odd}")] {
            let secrets = find_secrets(&text);
            proptest::prop_assert!(secrets.iter().all(|one| text.get(one.at.clone()).is_some()));
            proptest::prop_assert!(secrets.windows(2).all(|two| two[0].at.end <= two[1].at.start));
            redacted_words(&text);
            redacted_lines(&text);
            redacted_arguments(&text);
        }
    }
}

#[test]
fn an_address_in_a_message_has_no_login() {
    for (url, shown) in [
        (
            "http://user:word@proxy.example:3128",
            "http://proxy.example:3128",
        ),
        (
            "http://user:wo/rd@proxy.example:3128/a",
            "http://proxy.example:3128/a",
        ),
        ("http://user:w@rd@proxy.example", "http://proxy.example"),
        ("http://user:w#rd@proxy.example", "http://proxy.example"),
        ("https://[::1]:8443/a@b", "https://[::1]:8443/a@b"),
        (
            "https://host:443/a@sha256:12?b=c",
            "https://host:443/a@sha256:12?...",
        ),
    ] {
        assert_eq!(redacted_url(url), shown);
        let sentence = format!("by way of the proxy {url}: refused");
        assert!(!redacted_words(&sentence).contains("rd@"), "{url}");
    }
}
