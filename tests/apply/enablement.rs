//! Our enablement of units against that of the real `systemctl --root`, on the same
//! trees. Cases by hand also state their expected result, so they run without systemctl.

mod cases;
mod generate;
mod harness;

use crate::support;
use harness::{Agreement, Operation, Root, Systemctl};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

const GENERATED_TREES: u32 = 400;

#[test]
fn cases_by_hand_give_the_expected_links_and_those_of_systemctl() {
    let systemctl = Systemctl::find();
    let mut failures = Vec::new();
    for case in cases::CASES {
        let root = Root::with(case.tree.iter().copied());
        let operation = Operation::parse(case.run);
        let ours = root.predict(&operation);
        let summary = root.summary(&ours);
        if summary != case.expect {
            failures.push(format!(
                "{}: expected {:?}, got {summary:?} ({ours:?})",
                case.name, case.expect
            ));
        }
        if let Some(systemctl) = &systemctl {
            let agreement = systemctl.compare(&root, &operation, &ours);
            if agreement != case.agreement {
                failures.push(format!(
                    "{}: {agreement:?} instead of {:?}",
                    case.name, case.agreement
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    if systemctl.is_some() {
        support::say(&format!(
            "enablement: {} cases by hand compared with systemctl",
            cases::CASES.len()
        ));
    }
}

#[test]
fn a_chain_of_links_is_too_long_where_it_is_for_systemctl() {
    let systemctl = Systemctl::find();
    for (links, fits) in [(31, true), (32, false)] {
        let chain: Vec<(String, String)> = (0..links)
            .map(|n| (format!("etc:{n}.service"), format!("-> {}.service", n + 1)))
            .collect();
        let root = Root::with(
            chain
                .iter()
                .map(|(path, node)| (path.as_str(), node.as_str())),
        );
        let operation = Operation::parse("disable a.service");
        let ours = root.predict(&operation);
        assert_eq!(root.summary(&ours), if fits { "" } else { "FAIL" });
        if let Some(systemctl) = &systemctl {
            assert_eq!(systemctl.compare(&root, &operation, &ours), Agreement::Full);
        }
    }
}

#[test]
fn generated_trees_get_the_links_of_systemctl() {
    let Some(systemctl) = Systemctl::find() else {
        return;
    };
    let config = Config {
        cases: GENERATED_TREES,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let compared = std::cell::Cell::new([0usize; 3]);
    TestRunner::new_with_rng(config, rng)
        .run(&generate::scenario(), |(tree, operations)| {
            let root = Root::with(
                tree.iter()
                    .map(|(path, node)| (path.as_str(), node.as_str())),
            );
            for operation in &operations {
                let ours = root.predict(operation);
                let agreement = systemctl.compare(&root, operation, &ours);
                let mut counts = compared.get();
                match &agreement {
                    Agreement::Full => counts[0] += 1,
                    Agreement::LinksToAliasKept => counts[1] += 1,
                    _ => {
                        let message = format!("{operation:?}: {agreement:?}, ours {ours:?}");
                        return Err(TestCaseError::fail(message));
                    }
                }
                counts[2] += usize::from(ours.changes_anything());
                compared.set(counts);
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let [full, kept, changing] = compared.get();
    support::say(&format!(
        "enablement: {} generated operations on {GENERATED_TREES} trees compared with systemctl, \
         {changing} of them with changes, {kept} with the documented difference",
        full + kept
    ));
    assert!(
        changing > full / 10,
        "too few operations change anything: {changing}"
    );
}
