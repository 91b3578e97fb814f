//! What a config asks for and the architecture of the machine does not have.

use serde_json::json;

use super::meant::notices;
use crate::support::{TestRoot, file, machine_config};

/// The first bytes of a program for an architecture of this number.
fn program(number: u8) -> Vec<u8> {
    let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    bytes.resize(18, 0);
    bytes.extend([number, 0, 0, 0]);
    bytes
}

#[test]
fn a_kernel_that_the_architecture_lacks_is_named_on_any_disk() {
    let root = TestRoot::new();
    let wants = |kernel: &str| {
        let files = json!({"storage": {"files": [file("/etc/a", 0o644, "a")]}});
        let mut config = machine_config("rendered-worker-1", files);
        config["spec"]["kernelType"] = json!(kernel);
        config
    };
    let said = |kernel: &str| notices(&root, &wants(kernel)).join("\n");
    assert!(
        !said("64k-pages").contains("aarch64"),
        "the architecture is not known"
    );
    std::fs::create_dir_all(root.path("usr/lib64")).unwrap();
    for (number, name, lacks) in [(0x3e, "x86_64", "64k-pages"), (0xb7, "aarch64", "realtime")] {
        std::fs::write(root.path("usr/lib64/libc.so.6"), program(number)).unwrap();
        for kernel in ["64k-pages", "realtime", "default"] {
            let found = said(kernel);
            let words = format!("and this machine is {name}: set spec.kernelType to default");
            assert_eq!(
                found.contains(&words),
                kernel == lacks,
                "{name} {kernel}: {found}"
            );
        }
    }
}
