//! zipl, which OSTree runs only where it is told to.

use super::Lab;

const CONFIG: &str = "sysroot/ostree/repo/config";

#[test]
fn a_machine_of_zipl_whose_repository_does_not_name_it_takes_no_image() {
    let lab = Lab::healthy();
    lab.node.write("boot/bootmap", "blocks");
    assert_eq!(
        lab.short(),
        ["boot-entries unknown zipl"],
        "the repository has no configuration"
    );
    for config in [
        "[core]\nmode=bare\n[sysroot]\nreadonly=true\n",
        "[sysroot]\nbootloader=none\n",
        "[core]\nbootloader=zipl\n",
    ] {
        lab.node.write(CONFIG, config);
        assert_eq!(lab.short(), ["boot-entries inhibitor zipl"], "{config}");
        let text = &lab.findings()[0].text;
        for words in [
            "ostree config set sysroot.bootloader zipl",
            "/boot/bootmap",
            "never boot",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    lab.node
        .write(CONFIG, "[core]\nmode=bare\n[sysroot]\nbootloader=zipl\n");
    assert_eq!(lab.short(), Vec::<String>::new());
    // Any other machine has another boot loader.
    lab.node.remove("boot/bootmap");
    lab.node.write(CONFIG, "[sysroot]\nbootloader=none\n");
    assert_eq!(lab.short(), Vec::<String>::new());
}
