//! Tests of `choice`.

use super::*;
use crate::change::source::identity::Witness;
use crate::config::document;
use crate::host::root::RootPath;
use crate::judge::daemon::pod_log::Line;

fn config(name: &str) -> Box<MachineConfig> {
    with_file(name, "/etc/x")
}

fn with_file(name: &str, path: &str) -> Box<MachineConfig> {
    let text = format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}},
                "storage":{{"files":[{{"path":"{path}"}}]}}}}}}}}"#
    );
    Box::new(document::parse_document(text.as_bytes(), "test").unwrap())
}

/// Returns what a first boot leaves: the name without its Ignition part.
fn emptied(name: &str) -> Recorded {
    let text = format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"config":{{"ignition":{{"version":"3.4.0"}}}}}}}}"#
    );
    let config = document::parse_document(text.as_bytes(), "test").unwrap();
    assert!(config.emptied);
    Recorded::Present(Box::new(config))
}

fn present(name: &str) -> Recorded {
    Recorded::Present(config(name))
}

fn records(current_config: Recorded, written: u64) -> Records {
    Records {
        current_config,
        reader: RecordReader::Same,
        written: Some(written),
        current_image: None,
        mcs_content: Recorded::Missing,
        node_annotations: false,
        first_boot_over: false,
        encapsulated: false,
    }
}

/// Returns an entry that is intact, or whose contents do not match its name.
fn cached(name: &str, intact: bool) -> Cached {
    let path = if intact { "/etc/x" } else { "/etc/other" };
    let config = with_file(name, path);
    let mut entry = CacheEntry::new(&config, config.record.to_string(), "a server".into(), 5);
    entry.name_matches = Some(intact);
    Cached::Whole(Box::new(entry))
}

fn damaged() -> Cached {
    Cached::Damaged(RootPath::fixed("var/lib/x.json"), "is cut short".into())
}

fn desired((current, desired): (&str, &str)) -> Annotations {
    let current = Some(current.to_owned()).filter(|current| !current.is_empty());
    Annotations::new("n", 7, current, Some(desired.into()), None)
}

/// Returns a log with an update from one config to another.
fn logged((from, name): (&str, &str)) -> DaemonLog {
    let trace = LogTrace {
        name: name.into(),
        from: Some(from.into()),
        at: 9,
        file: "/0.log".into(),
        line: Line::Starting,
    };
    DaemonLog::from_traces([trace], 9).unwrap()
}

/// One situation: the sources, the chosen config and why, and why each other one was not chosen.
struct Row {
    what: &'static str,
    record: Recorded,
    /// Time of the record; the annotations are of second 7, the log of second 9.
    written: u64,
    /// The annotations' current and desired.
    desired: Option<(&'static str, &'static str)>,
    /// The last update in the log, from and to.
    logged: Option<(&'static str, &'static str)>,
    cache: Vec<Cached>,
    chosen: Result<(&'static str, &'static str), &'static str>,
    others: &'static [(&'static str, &'static str)],
}

const RECORDED: &str = "the recorded config of this node";
const WANTED: &str = "the cluster's last desired config for this node, from the cache";
const BY_LOG: &str = "from the daemon's log of 1970-01-01T00:00:09Z";
const SINCE: &str = "recorded, but the cluster desired another one later";
const UNASKED: &str = "in the cache, not requested";
const NOT_INTACT: &str = "last desired by the cluster, but the cache has no intact copy";
const PAST: &str = "desired by the cluster earlier, but the node has moved on";
const A: &str = "rendered-worker-a";
const B: &str = "rendered-worker-b";
const C: &str = "rendered-worker-c";

fn row(what: &'static str, record: Recorded) -> Row {
    Row {
        what,
        record,
        written: 100,
        desired: None,
        logged: None,
        cache: Vec::new(),
        chosen: Ok((A, RECORDED)),
        others: &[],
    }
}

/// Nothing is wanted, or what is recorded.
fn recorded_rows() -> Vec<Row> {
    vec![
        row("only a record", present(A)),
        Row {
            cache: vec![cached(A, true)],
            ..row("the record, and the same in the cache", present(A))
        },
        Row {
            desired: Some((A, A)),
            ..row("the cluster wants what is recorded", present(A))
        },
        Row {
            cache: vec![cached(B, true), damaged()],
            others: &[(B, UNASKED), ("x.json", "damaged: is cut short")],
            ..row(
                "something newer was fetched, and no document asks for it",
                present(A),
            )
        },
        Row {
            cache: vec![cached(A, false)],
            others: &[(A, "with the same name but other contents")],
            ..row("a cached config that borrows the recorded name", present(A))
        },
    ]
}

/// The annotations name a config that is at hand.
fn wanted_rows() -> Vec<Row> {
    vec![
        Row {
            desired: Some((A, B)),
            cache: vec![cached(B, true), cached(C, true)],
            chosen: Ok((B, WANTED)),
            others: &[(A, SINCE), (C, UNASKED)],
            ..row("wanted, and intact in the cache", present(A))
        },
        Row {
            desired: Some((A, B)),
            cache: vec![cached(B, true), cached(A, true)],
            chosen: Ok((B, WANTED)),
            others: &[(A, SINCE)],
            ..row(
                "the recorded one is told once, though it is cached too",
                present(A),
            )
        },
        Row {
            desired: Some((A, B)),
            cache: vec![cached(B, false), cached(B, true)],
            chosen: Ok((B, WANTED)),
            others: &[(A, SINCE), (B, "with the same name but other contents")],
            ..row("wanted, intact, and borrowed by another one", present(A))
        },
        Row {
            desired: Some(("", B)),
            cache: vec![cached(B, true)],
            chosen: Ok((B, WANTED)),
            others: &[(A, SINCE)],
            ..row("wanted, by annotations without a current one", present(A))
        },
    ]
}

/// The node has gone on since the API or the log named a config.
fn outdated_rows() -> Vec<Row> {
    vec![
        Row {
            desired: Some((B, C)),
            cache: vec![cached(C, true)],
            others: &[(C, PAST)],
            ..row("the node has gone on since the API was asked", present(A))
        },
        Row {
            desired: Some((B, C)),
            written: 7,
            cache: vec![cached(C, true)],
            chosen: Ok((C, WANTED)),
            others: &[(A, SINCE)],
            ..row("the API was asked after the record was written", present(A))
        },
        Row {
            logged: Some((B, C)),
            cache: vec![cached(C, true)],
            others: &[(C, PAST)],
            ..row("the node has gone on since the log was written", present(A))
        },
        Row {
            logged: Some((B, B)),
            cache: vec![cached(B, true)],
            others: &[(B, PAST)],
            ..row(
                "an update that was completed before the recorded one",
                present(A),
            )
        },
    ]
}

/// The annotations name a config that is not at hand.
fn lost_rows() -> Vec<Row> {
    vec![
        Row {
            desired: Some((A, B)),
            others: &[(B, NOT_INTACT)],
            ..row("wanted, but nowhere", present(A))
        },
        Row {
            desired: Some((A, B)),
            cache: vec![cached(B, false)],
            others: &[(B, "copy: the hash in its name does not match its contents")],
            ..row(
                "wanted, but what is cached is not what its name says",
                present(A),
            )
        },
        Row {
            desired: Some((A, B)),
            cache: vec![damaged()],
            others: &[(B, NOT_INTACT), ("x.json", "damaged")],
            ..row("wanted, but what is cached is damaged", present(A))
        },
    ]
}

/// The daemon's log names a config.
fn log_rows() -> Vec<Row> {
    vec![
        Row {
            logged: Some((A, B)),
            cache: vec![cached(B, true)],
            chosen: Ok((B, BY_LOG)),
            others: &[(A, SINCE)],
            ..row(
                "no annotations, but the log names one that is intact",
                present(A),
            )
        },
        Row {
            logged: Some((A, B)),
            others: &[(
                B,
                "last desired according to the daemon's log, but the cache has no intact copy",
            )],
            ..row(
                "no annotations, and what the log names is nowhere",
                present(A),
            )
        },
        Row {
            logged: Some((A, A)),
            ..row("the log names what is recorded", present(A))
        },
    ]
}

/// Both the daemon's log and the annotations name a config.
fn log_and_annotation_rows() -> Vec<Row> {
    vec![
        Row {
            desired: Some((A, A)),
            logged: Some((A, B)),
            cache: vec![cached(B, true)],
            others: &[(
                B,
                "the node's annotations name rendered-worker-a, and they take precedence",
            )],
            ..row("the log contradicts the annotations", present(A))
        },
        Row {
            desired: Some((A, B)),
            logged: Some((A, C)),
            cache: vec![cached(C, true)],
            others: &[
                (B, NOT_INTACT),
                (C, "name rendered-worker-b, and they take precedence"),
            ],
            ..row(
                "the log does not stand in for a wanted config that is missing",
                present(A),
            )
        },
        Row {
            desired: Some((A, B)),
            logged: Some((A, B)),
            cache: vec![cached(B, true)],
            chosen: Ok((B, WANTED)),
            others: &[(A, SINCE)],
            ..row("the log says the same as the annotations", present(A))
        },
    ]
}

/// There is no whole record, but another config is at hand.
fn unrecorded_rows() -> Vec<Row> {
    vec![
        Row {
            desired: Some((A, B)),
            cache: vec![cached(B, true)],
            chosen: Ok((B, WANTED)),
            ..row(
                "nothing recorded, but the wanted one is available",
                Recorded::Missing,
            )
        },
        Row {
            desired: Some((A, B)),
            cache: vec![cached(B, true)],
            chosen: Ok((B, WANTED)),
            others: &[("currentconfig", "cannot be used: cut short")],
            ..row(
                "a broken record, but the wanted one is available",
                Recorded::Broken("cut short".into()),
            )
        },
        Row {
            cache: vec![cached(A, true)],
            chosen: Ok((A, "the full config of the recorded name, from the cache")),
            ..row(
                "a first boot left an empty record, the cache has all of it",
                emptied(A),
            )
        },
        Row {
            cache: vec![cached(A, false)],
            chosen: Err("empty Ignition part"),
            ..row("the same, but what is cached is something else", emptied(A))
        },
    ]
}

/// Nothing can be chosen.
fn refused_rows() -> Vec<Row> {
    vec![
        Row {
            chosen: Err("the node has no currentconfig"),
            ..row("nothing at all", Recorded::Missing)
        },
        Row {
            cache: vec![cached(B, true)],
            chosen: Err("The newest in the cache is rendered-worker-b: `mco-rescue plan cached:"),
            ..row(
                "nothing recorded, and a config that no document asks for",
                Recorded::Missing,
            )
        },
        Row {
            desired: Some((A, B)),
            chosen: Err(
                "The cluster's last desired config is rendered-worker-b by the node's annotations",
            ),
            ..row(
                "nothing recorded, and the wanted one is nowhere",
                Recorded::Missing,
            )
        },
        Row {
            logged: Some((A, B)),
            chosen: Err("desired config is rendered-worker-b by the daemon's log (/0.log)"),
            ..row(
                "a broken record, and the log names one that is nowhere",
                Recorded::Broken("cut short".into()),
            )
        },
    ]
}

fn table() -> Vec<Row> {
    let tables = [
        recorded_rows(),
        wanted_rows(),
        outdated_rows(),
        lost_rows(),
        log_rows(),
        log_and_annotation_rows(),
        unrecorded_rows(),
        refused_rows(),
    ];
    tables.into_iter().flatten().collect()
}

#[test]
fn every_situation_has_its_choice_and_its_reasons() {
    for row in table() {
        let (annotations, log) = (row.desired.map(desired), row.logged.map(logged));
        let records = records(row.record, row.written);
        let kept = KnownSources {
            records: &records,
            cache: &row.cache,
            annotations: annotations.as_ref(),
            log: log.as_ref(),
            node: &NodeIdentity::default(),
        };
        match (by_itself(&kept), row.chosen) {
            (Ok(choice), Ok((name, why))) => {
                assert_eq!(choice.pick.name(), name, "{}", row.what);
                assert!(choice.why.contains(why), "{}: {}", row.what, choice.why);
                let told: Vec<_> = choice.others.iter().map(|o| o.name.as_str()).collect();
                let wanted: Vec<_> = row.others.iter().map(|(name, _)| *name).collect();
                assert_eq!(told, wanted, "{}", row.what);
                for (other, (_, why)) in choice.others.iter().zip(row.others) {
                    assert!(other.why.contains(why), "{}: {}", row.what, other.why);
                }
            }
            (Err(said), Err(words)) => {
                assert!(said.to_string().contains(words), "{}: {said}", row.what)
            }
            (choice, wanted) => panic!("{}: {choice:?}, not {wanted:?}", row.what),
        }
    }
}

#[test]
fn what_is_taken_from_the_record_is_the_record() {
    let records = records(present(A), 1);
    let kept = KnownSources {
        records: &records,
        cache: &[cached(A, true)],
        annotations: None,
        log: None,
        node: &NodeIdentity::default(),
    };
    assert!(matches!(by_itself(&kept).unwrap().pick, Pick::Record(_)));
}

#[test]
fn before_the_first_record_there_is_the_config_of_the_first_boot() {
    let mut records = records(Recorded::Missing, 0);
    records.mcs_content = Recorded::Present(config("rendered-worker-a"));
    let kept = KnownSources {
        records: &records,
        cache: &[],
        annotations: None,
        log: None,
        node: &NodeIdentity::default(),
    };
    let choice = by_itself(&kept).unwrap();
    assert_eq!(choice.pick.name(), "rendered-worker-a");
    assert!(choice.why.contains("first boot"), "{}", choice.why);
}

#[test]
fn the_newest_is_of_the_nodes_pool_or_of_the_only_one() {
    let records = records(Recorded::Missing, 0);
    let of = |name: &str, at: u64| {
        let config = config(name);
        Cached::Whole(Box::new(CacheEntry::new(
            &config,
            config.record.to_string(),
            "x".into(),
            at,
        )))
    };
    let (worker, master) = (of("rendered-worker-a", 1), of("rendered-master-b", 2));
    let both = [master.clone(), worker.clone()];
    let node = |pools: &[&str]| NodeIdentity {
        pools: pools.iter().map(|pool| Witness::new(*pool, "x")).collect(),
        ..NodeIdentity::default()
    };
    let none: Vec<String> = Vec::new();
    let two = vec!["master".to_owned(), "worker".to_owned()];
    for (cache, pools, find_wanted) in [
        (&both[..], &["worker"][..], Ok("rendered-worker-a")),
        (&both[..], &["master"], Ok("rendered-master-b")),
        (&both[..], &["infra"], Err(none.clone())),
        (&both[..], &[], Err(two)),
        (&both[1..], &[], Ok("rendered-worker-a")),
        (&both[..0], &["worker"], Err(none)),
    ] {
        let node = node(pools);
        let kept = KnownSources {
            records: &records,
            cache,
            annotations: None,
            log: None,
            node: &node,
        };
        let found = find_newest(&kept, |_| true).map(|entry| entry.name.as_str());
        assert_eq!(found, find_wanted, "{pools:?}");
    }
}
