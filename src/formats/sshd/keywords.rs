//! The keywords of sshd's settings.

/// The values that a keyword accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    /// One of these words, in any case.
    Words(&'static [&'static str]),
    /// The path of a program, or `none`; takes the rest of the line.
    Program,
    /// Any, but at least one.
    Any,
    /// The keyword is ignored with any value.
    Ignored,
}

/// The known facts about a keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keyword {
    /// True if it may be in a `Match` block.
    pub(super) in_match: bool,
    /// Its values.
    pub(super) values: Values,
}

const YES_NO: Values = Values::Words(&["yes", "no"]);

/// Keywords with the words that they accept; allowed in a `Match` block.
const WORDS_ANYWHERE: [(&str, &[&str]); 16] = [
    ("pubkeyauthentication", &["yes", "no"]),
    ("passwordauthentication", &["yes", "no"]),
    ("kbdinteractiveauthentication", &["yes", "no"]),
    ("challengeresponseauthentication", &["yes", "no"]),
    ("hostbasedauthentication", &["yes", "no"]),
    ("gssapiauthentication", &["yes", "no"]),
    ("permitemptypasswords", &["yes", "no"]),
    ("permittty", &["yes", "no"]),
    ("permituserrc", &["yes", "no"]),
    ("x11forwarding", &["yes", "no"]),
    ("x11uselocalhost", &["yes", "no"]),
    ("allowagentforwarding", &["yes", "no"]),
    ("disableforwarding", &["yes", "no"]),
    ("exposeauthinfo", &["yes", "no"]),
    ("refuseconnection", &["yes", "no"]),
    (
        "permitrootlogin",
        &[
            "yes",
            "no",
            "without-password",
            "prohibit-password",
            "forced-commands-only",
        ],
    ),
];

/// Keywords that accept `yes` or `no`, for all connections.
const YES_NO_GLOBAL: [&str; 6] = [
    "usepam",
    "strictmodes",
    "printmotd",
    "printlastlog",
    "tcpkeepalive",
    "ignoreuserknownhosts",
];

/// Keywords with a program.
const PROGRAMS: [&str; 2] = ["authorizedkeyscommand", "authorizedprincipalscommand"];

/// Other keywords that may be in a `Match` block.
const ANYWHERE: [&str; 64] = [
    "acceptenv",
    "allowgroups",
    "allowstreamlocalforwarding",
    "allowtcpforwarding",
    "allowusers",
    "authenticationmethods",
    "authorizedkeyscommandrunas",
    "authorizedkeyscommanduser",
    "authorizedkeysfile",
    "authorizedkeysfile2",
    "authorizedprincipalscommanduser",
    "authorizedprincipalsfile",
    "banner",
    "casignaturealgorithms",
    "channeltimeout",
    "chrootdirectory",
    "clientalivecountmax",
    "clientaliveinterval",
    "denygroups",
    "denyusers",
    "exposeauthenticationmethods",
    "forcecommand",
    "gatewayports",
    "gssapienablek5users",
    "gssapiindicators",
    "hostbasedacceptedalgorithms",
    "hostbasedacceptedkeytypes",
    "hostbasedusesnamefrompacketonly",
    "ignorerhosts",
    "include",
    "ipqos",
    "kerberosauthentication",
    "kerberosusekuserok",
    "loglevel",
    "logverbose",
    "match",
    "maxauthtries",
    "maxsessions",
    "pamservicename",
    "permitlisten",
    "permitopen",
    "permittunnel",
    "permituserenvironment",
    "pubkeyacceptedalgorithms",
    "pubkeyacceptedkeytypes",
    "pubkeyauthoptions",
    "rdomain",
    "rekeylimit",
    "requiredrsasize",
    "revokedkeys",
    "rhostsrsaauthentication",
    "rsaauthentication",
    "rsaminsize",
    "setenv",
    "skeyauthentication",
    "streamlocalbindmask",
    "streamlocalbindunlink",
    "subsystem",
    "trustedusercakeys",
    "unusedconnectiontimeout",
    "x11displayoffset",
    "x11maxdisplays",
    "hpndisabled",
    "noneenabled",
];

/// Other keywords for all connections.
const GLOBAL: [&str; 62] = [
    "addressfamily",
    "afstokenpassing",
    "checkmail",
    "ciphers",
    "compression",
    "debianbanner",
    "dsaauthentication",
    "fingerprinthash",
    "gssapicleanupcredentials",
    "gssapicleanupcreds",
    "gssapikexalgorithms",
    "gssapikeyexchange",
    "gssapistorecredentialsonrekey",
    "gssapistrictacceptorcheck",
    "gssapiusesessioncredcache",
    "gssusesessionccache",
    "hostcertificate",
    "hostdsakey",
    "hostkey",
    "hostkeyagent",
    "hostkeyalgorithms",
    "kbdinteractivedevices",
    "keepalive",
    "kerberosgetafstoken",
    "kerberosorlocalpasswd",
    "kerberostgtpassing",
    "kerberosticketcleanup",
    "kerberosuniqueccache",
    "kexalgorithms",
    "listenaddress",
    "logingracetime",
    "macs",
    "maxstartups",
    "modulifile",
    "pamauthenticationviakbdint",
    "persourcemaxstartups",
    "persourcenetblocksize",
    "persourcepenalties",
    "persourcepenaltyexemptlist",
    "pidfile",
    "port",
    "reversemappingcheck",
    "securitykeyprovider",
    "showpatchlevel",
    "sshdauthpath",
    "sshdsessionpath",
    "syslogfacility",
    "usedns",
    "verifyreversemapping",
    "versionaddendum",
    "xauthlocation",
    "hpnbuffersize",
    "keyregenerationinterval",
    "protocol",
    "rhostsauthentication",
    "serverkeybits",
    "uselogin",
    "useprivilegeseparation",
    "logsftp",
    "tcprcvbufpoll",
    "nonemacenabled",
    "disableusagereporting",
];

/// Keywords that sshd no longer has, and ignores.
const IGNORED: [&str; 13] = [
    "authorizedkeysfile2",
    "checkmail",
    "keyregenerationinterval",
    "pamauthenticationviakbdint",
    "protocol",
    "reversemappingcheck",
    "rhostsauthentication",
    "rhostsrsaauthentication",
    "rsaauthentication",
    "serverkeybits",
    "uselogin",
    "useprivilegeseparation",
    "verifyreversemapping",
];

/// Returns the facts about a keyword in lower case; `None` if no sshd has it.
pub(super) fn find_keyword(name: &str) -> Option<Keyword> {
    let words = WORDS_ANYWHERE.iter().find(|(known, _)| *known == name);
    let (in_match, values) = if let Some((_, words)) = words {
        (true, Values::Words(words))
    } else if YES_NO_GLOBAL.contains(&name) {
        (false, YES_NO)
    } else if PROGRAMS.contains(&name) {
        (true, Values::Program)
    } else if ANYWHERE.contains(&name) {
        (true, Values::Any)
    } else if GLOBAL.contains(&name) {
        (false, Values::Any)
    } else {
        return None;
    };
    let values = if IGNORED.contains(&name) {
        Values::Ignored
    } else {
        values
    };
    Some(Keyword { in_match, values })
}

/// Returns the keyword that an older name stands for.
pub(super) fn of_alias(name: &str) -> &str {
    match name {
        "dsaauthentication" => "pubkeyauthentication",
        "challengeresponseauthentication" | "skeyauthentication" => "kbdinteractiveauthentication",
        "pubkeyacceptedkeytypes" => "pubkeyacceptedalgorithms",
        "rsaminsize" => "requiredrsasize",
        "hostdsakey" => "hostkey",
        other => other,
    }
}
