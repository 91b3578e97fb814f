//! The attack table: none of these sticks is read.

use std::fs::{self, File};
use std::os::unix::fs::symlink;

use super::keys::{NAME, Stick, config_text, make_key, sign};

/// Does something to a stick; then nothing may be read from it.
fn attack(words: &str, change: impl Fn(&Stick)) {
    let Some(stick) = Stick::new() else { return };
    change(&stick);
    stick.refuses(words);
}

fn list(stick: &Stick) -> String {
    fs::read_to_string(stick.path("capsule.json")).unwrap()
}

#[test]
fn a_list_that_was_changed_is_not_read() {
    for change in [
        |text: &str| text[..text.len() / 2].to_owned(),
        |text: &str| format!("{text}\n"),
        |text: &str| format!("{text}{{}}"),
        |text: &str| text.replace("\"sequence\": 7", "\"sequence\": 8"),
        |text: &str| {
            text.replacen(
                "\"pools\": [],\n  \"nodes\": [],",
                "\"nodes\": [],\n  \"pools\": [],",
                1,
            )
        },
    ] {
        attack("does not match", |stick| {
            let text = list(stick);
            let changed = change(&text);
            assert_ne!(changed, text);
            stick.put("capsule.json", &changed);
        });
    }
}

#[test]
fn a_list_of_another_form_is_not_read_even_if_it_is_signed() {
    for (from, to) in [
        ("\"version\": 1", "\"version\": 2"),
        ("\"version\": 1", "\"version\": 1, \"version\": 1"),
        ("\"sequence\": 7", "\"sequence\": 7, \"other\": 1"),
        ("configs/one.json", "../configs/one.json"),
        ("configs/one.json", "/configs/one.json"),
        ("configs/one.json", "configs//one.json"),
        ("configs/one.json", "configs/./one.json"),
        (
            "\"files\": [",
            "\"files\": [{\"path\": \"configs/one.json\", \"size\": 1, \"sha256\": \"\"},",
        ),
    ] {
        attack("capsule.json", |stick| stick.change(from, to));
    }
    // Two files of one name, of names that differ in case, and of two normal forms.
    for second in [
        "configs/one.json",
        "configs/One.json",
        "configs/on\u{e9}.json",
        "configs/one\u{301}.json",
    ] {
        attack("capsule.json", |stick| {
            let text = list(stick);
            let start = text.find("    {\n      \"path\"").unwrap();
            let end = text[start..].find('}').unwrap() + start + 1;
            let entry = &text[start..end];
            let twice = format!("{entry},\n{}", entry.replace("configs/one.json", second));
            stick.change(entry, &twice);
        });
    }
}

#[test]
fn a_signature_that_is_not_this_one_is_not_accepted() {
    attack("the signature of", |stick| {
        fs::remove_file(stick.path("capsule.json.sig")).unwrap()
    });
    attack("the signature of", |stick| {
        let signature = fs::read_to_string(stick.path("capsule.json.sig")).unwrap();
        stick.put("capsule.json.sig", &signature[..signature.len() - 40]);
    });
    attack("follows its last line", |stick| {
        let signature = fs::read_to_string(stick.path("capsule.json.sig")).unwrap();
        stick.put("capsule.json.sig", &signature.repeat(2));
    });
    attack("namespace", |stick| stick.sign_as(&stick.key.file, "file"));
    attack("namespace", |stick| stick.sign_as(&stick.key.file, "git"));
    attack("may not sign for the namespace", |stick| {
        stick.allow("namespaces=\"git\"")
    });
    attack("was valid until", |stick| {
        stick.allow("valid-before=\"20200101\"")
    });
    attack("valid only from", |stick| {
        stick.allow("valid-after=\"20990101\"")
    });
    attack("not allowed to sign", |stick| stick.allow("cert-authority"));
    attack("not allowed to sign", |stick| {
        let keys = tempfile::tempdir().unwrap();
        let other = make_key(keys.path(), "other", &["ed25519"]).unwrap();
        stick.sign_as(&other.file, "mco-rescue-capsule");
    });
    // Of another capsule, by the right key.
    attack("does not match", |stick| {
        let first = fs::read(stick.path("capsule.json.sig")).unwrap();
        stick.make(&["--sequence", "8"]);
        fs::write(stick.path("capsule.json.sig"), first).unwrap();
    });
    attack("no /etc/mco-rescue/allowed_signers", |stick| {
        stick.root.remove("etc/mco-rescue/allowed_signers");
    });
}

#[test]
fn a_certificate_is_refused_by_name() {
    attack("certificate", |stick| {
        let keys = tempfile::tempdir().unwrap();
        make_key(keys.path(), "user", &["ed25519"]).unwrap();
        let mut command = std::process::Command::new("ssh-keygen");
        command.args(["-q", "-s"]).arg(&stick.key.file).args([
            "-I",
            "a",
            "-n",
            "alice@example.com",
        ]);
        assert!(
            command
                .arg(keys.path().join("user.pub"))
                .status()
                .unwrap()
                .success()
        );
        stick.allow("cert-authority");
        let list = stick.stick.path().join("capsule.json");
        let signature = sign(
            &keys.path().join("user-cert.pub"),
            "mco-rescue-capsule",
            &list,
            &[],
        );
        fs::write(stick.path("capsule.json.sig"), signature).unwrap();
    });
}

#[test]
fn a_file_that_is_not_the_signed_one_is_not_read() {
    // The same size.
    attack("is not the file of the capsule", |stick| {
        stick.put("configs/one.json", &config_text(NAME, "2\n"));
    });
    attack("is not the file of the capsule", |stick| {
        stick.put("configs/one.json", &(config_text(NAME, "1\n") + "\n"));
    });
    attack("is not the file of the capsule", |stick| {
        let file = File::options().write(true).open(stick.config()).unwrap();
        file.set_len(2 << 30).unwrap();
    });
    attack("is not the file of the capsule", |stick| {
        let (config, other) = (stick.config(), stick.path("other"));
        fs::rename(&config, &other).unwrap();
        symlink(&other, &config).unwrap();
    });
    attack("configs", |stick| {
        fs::rename(stick.path("configs"), stick.path("real")).unwrap();
        symlink("real", stick.path("configs")).unwrap();
    });
    attack("is not the file of the capsule", |stick| {
        let (config, other) = (stick.config(), stick.path("other"));
        fs::write(&other, config_text(NAME, "2\n")).unwrap();
        fs::remove_file(&config).unwrap();
        fs::hard_link(&other, &config).unwrap();
    });
}

#[test]
fn a_file_that_is_not_listed_is_not_read() {
    let Some(stick) = Stick::new() else { return };
    stick.put("configs/two.json", &config_text(NAME, "1\n"));
    fs::hard_link(stick.config(), stick.path("configs/hard.json")).unwrap();
    symlink("one.json", stick.path("configs/soft.json")).unwrap();
    for name in ["two.json", "hard.json", "soft.json"] {
        let run = stick
            .root
            .run(&["apply", "--yes", &stick.path(&format!("configs/{name}"))]);
        assert_eq!(run.code(), 1, "{name}");
        assert!(run.err().contains("is not in the capsule"), "{}", run.err());
    }
    // The listed one is still read.
    let fetched = stick.root.run(&["fetch", &stick.path("configs")]);
    assert_eq!(fetched.code(), 0, "{}", fetched.err());
    assert_eq!(
        fetched.out().matches("is not in the capsule").count(),
        3,
        "{}",
        fetched.out()
    );
}

#[test]
fn an_older_capsule_is_not_accepted_again() {
    let Some(stick) = Stick::new() else { return };
    let old = [
        list(&stick),
        fs::read_to_string(stick.path("capsule.json.sig")).unwrap(),
    ];
    stick.put("configs/one.json", &config_text(NAME, "2\n"));
    stick.make(&["--sequence", "8"]);
    assert_eq!(stick.apply().code(), 0);
    stick.put("configs/one.json", &config_text(NAME, "1\n"));
    stick.put("capsule.json", &old[0]);
    stick.put("capsule.json.sig", &old[1]);
    stick.refuses("is older than what this node has seen");
    stick.make(&["--sequence", "8", "--not-after", "2099-01-01T00:00:00Z"]);
    stick.refuses("has the number 8 of another capsule");
    // What is remembered cannot be read: then it is not known what is old.
    stick.make(&["--sequence", "9"]);
    let text = stick.root.read("var/lib/mco-rescue/capsules.json");
    stick.root.write(
        "var/lib/mco-rescue/capsules.json",
        &text.replace("\"sequence\": 8", "\"sequence\": 1"),
    );
    stick.refuses("damaged");
    stick.root.write("var/lib/mco-rescue/capsules.json", &text);
    assert_eq!(stick.apply().code(), 0);
}

#[test]
fn a_capsule_for_others_or_out_of_date_is_not_accepted() {
    let Some(stick) = Stick::new() else { return };
    stick.root.write("etc/hostname", "worker-0\n");
    stick.root.write(
        "etc/kubernetes/apiserver-url.env",
        "KUBERNETES_SERVICE_HOST='api-int.one.example.com'\n",
    );
    stick.make(&["--sequence", "8", "--node", "worker-1"]);
    stick.refuses("is for node worker-1, and this node is worker-0");
    stick.make(&["--sequence", "8", "--cluster", "two.example.com"]);
    stick.refuses("is for cluster two.example.com, and this node is of one.example.com");
    stick.make(&["--sequence", "8", "--pool", "infra"]);
    stick.refuses(
        "it is unknown which one this node is. Ask for a capsule that was made without --pool",
    );
    stick.make(&["--sequence", "8", "--not-after", "2020-01-01T00:00:00Z"]);
    stick.refuses("was valid until 2020-01-01T00:00:00Z");
    let fits = [
        "--node",
        "worker-1",
        "--node",
        "WORKER-0.example.com",
        "--cluster",
        "one.example.com",
    ];
    stick.make(&[&["--sequence", "9", "--not-after", "2099-01-01"], &fits[..]].concat());
    let run = stick.apply();
    assert_eq!(run.code(), 0, "{}", run.err());
}

#[test]
fn the_clock_cannot_be_set_back_before_what_the_node_can_prove() {
    let Some(stick) = Stick::new() else { return };
    let marker = "mco-rescue state directory\n";
    stick.root.write("var/lib/mco-rescue/marker", marker);
    // A server said this; the clock of the test is earlier.
    let clock = serde_json::json!({"version": 1, "url": "https://api-int:22623", "date": 4_102_444_800_u64, "seen": null});
    stick
        .root
        .write("var/lib/mco-rescue/server-clock.json", &clock.to_string());
    stick.make(&["--sequence", "8", "--not-after", "2099-01-01T00:00:00Z"]);
    stick.refuses("later than the clock");
}

#[test]
fn a_list_or_a_signature_that_is_no_file_is_said_to_be_so() {
    for name in ["capsule.json", "capsule.json.sig"] {
        let Some(stick) = Stick::new() else { return };
        fs::remove_file(stick.path(name)).unwrap();
        fs::create_dir(stick.path(name)).unwrap();
        stick.refuses(&format!("{name} is not a plain file"));
        fs::remove_dir(stick.path(name)).unwrap();
        stick.refuses("is missing");
    }
}
