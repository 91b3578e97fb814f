//! Trees by hand, what is done to them, and what must come of it.

use super::harness::Agreement;

/// One tree and operation; see `Root::with` and `Operation::parse` for the notation.
pub struct Case {
    pub name: &'static str,
    pub tree: &'static [(&'static str, &'static str)],
    pub run: &'static str,
    /// See `Root::summary`.
    pub expect: &'static str,
    pub agreement: Agreement,
}

/// A case in which systemctl does the same.
const fn case(
    name: &'static str,
    run: &'static str,
    tree: &'static [(&'static str, &'static str)],
    expect: &'static str,
) -> Case {
    Case {
        name,
        tree,
        run,
        expect,
        agreement: Agreement::Full,
    }
}

/// A case in which systemctl deliberately does something else.
const fn differs(
    agreement: Agreement,
    name: &'static str,
    run: &'static str,
    tree: &'static [(&'static str, &'static str)],
    expect: &'static str,
) -> Case {
    Case {
        name,
        tree,
        run,
        expect,
        agreement,
    }
}

/// The wanting that most cases are about.
const WANTED: &str = "[Install]\nWantedBy=multi-user.target\n";
const TEMPLATE: &str = "[Install]\nWantedBy=multi-user.target\nDefaultInstance=d\n";
const VENDOR: (&str, &str) = ("usr:a.service", WANTED);
const ENABLED: (&str, &str) = (
    "etc:multi-user.target.wants/a.service",
    "-> /usr/lib/systemd/system/a.service",
);

pub const CASES: &[Case] = &[
    case(
        "a wanted unit gets a link below the target",
        "enable a.service",
        &[VENDOR],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "required_by makes links in requires",
        "enable a.service",
        &[(
            "usr:a.service",
            "[Install]\nRequiredBy=x.target y.service\n",
        )],
        "+x.target.requires/a.service -> /usr/lib/systemd/system/a.service\n+y.service.requires/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a unit in etc is linked to from etc",
        "enable a.service",
        &[("etc:a.service", WANTED)],
        "+multi-user.target.wants/a.service -> /etc/systemd/system/a.service",
    ),
    case(
        "a unit in run is linked to from etc",
        "enable a.service",
        &[("run:a.service", WANTED)],
        "+multi-user.target.wants/a.service -> /run/systemd/system/a.service",
    ),
    case(
        "a unit in usr local counts before usr",
        "enable a.service",
        &[VENDOR, ("loc:a.service", "[Install]\nWantedBy=x.target\n")],
        "+x.target.wants/a.service -> /usr/local/lib/systemd/system/a.service",
    ),
    case(
        "a unit in system control counts first",
        "enable a.service",
        &[
            ("etc:a.service", "[Install]\nWantedBy=x.target\n"),
            ("etc/systemd/system.control/a.service", WANTED),
        ],
        "+multi-user.target.wants/a.service -> /etc/systemd/system.control/a.service",
    ),
    case(
        "two units are enabled in order",
        "enable b.service a.service",
        &[VENDOR, ("usr:b.service", WANTED)],
        "+multi-user.target.wants/b.service -> /usr/lib/systemd/system/b.service\n+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a unit already enabled changes nothing",
        "enable a.service",
        &[VENDOR, ENABLED],
        "",
    ),
    case(
        "a relative link to the unit is good enough",
        "enable a.service",
        &[
            VENDOR,
            (
                "etc:multi-user.target.wants/a.service",
                "-> ../../../../usr/lib/systemd/system/a.service",
            ),
        ],
        "",
    ),
    case(
        "a link to another place for the same name is good enough",
        "enable a.service",
        &[
            VENDOR,
            (
                "etc:multi-user.target.wants/a.service",
                "-> /etc/systemd/system/a.service",
            ),
        ],
        "",
    ),
    case(
        "a link to another unit in wants is replaced",
        "enable a.service",
        &[
            VENDOR,
            (
                "etc:multi-user.target.wants/a.service",
                "-> /usr/lib/systemd/system/b.service",
            ),
        ],
        "-multi-user.target.wants/a.service\n+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a link out of the search path in wants is replaced",
        "enable a.service",
        &[
            VENDOR,
            ("etc:multi-user.target.wants/a.service", "-> /opt/a.service"),
        ],
        "-multi-user.target.wants/a.service\n+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a file in wants is in the way",
        "enable a.service",
        &[VENDOR, ("etc:multi-user.target.wants/a.service", "x")],
        "FAIL",
    ),
    case(
        "a file instead of the wants directory is in the way",
        "enable a.service",
        &[VENDOR, ("etc:multi-user.target.wants", "x")],
        "FAIL",
    ),
    differs(
        Agreement::OnlyWeRefuse,
        "a link to a directory of the vendor instead of the wants directory is refused",
        "enable a.service",
        &[
            VENDOR,
            (
                "etc:multi-user.target.wants",
                "-> ../../../usr/lib/systemd/system/multi-user.target.wants",
            ),
            ("usr:multi-user.target.wants", "/"),
        ],
        "FAIL",
    ),
    case(
        "a link to another wants directory is written through",
        "enable a.service",
        &[
            VENDOR,
            ("etc:multi-user.target.wants", "-> y.target.wants"),
            ("etc:y.target.wants", "/"),
        ],
        "+y.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a link behind a link to another wants directory is seen",
        "is-enabled a.service",
        &[
            VENDOR,
            ("etc:multi-user.target.wants", "-> y.target.wants"),
            (
                "etc:y.target.wants/a.service",
                "-> /usr/lib/systemd/system/a.service",
            ),
        ],
        "enabled",
    ),
    case(
        "a link in a directory out of the search path is not enablement",
        "is-enabled a.service",
        &[
            VENDOR,
            ("etc:multi-user.target.wants", "-> ../../../opt/wants"),
            (
                "opt/wants/a.service",
                "-> /usr/lib/systemd/system/a.service",
            ),
        ],
        "disabled",
    ),
    case(
        "a link in a directory out of the search path is not removed",
        "disable a.service",
        &[
            VENDOR,
            ("etc:multi-user.target.wants", "-> ../../../opt/wants"),
            (
                "opt/wants/a.service",
                "-> /usr/lib/systemd/system/a.service",
            ),
        ],
        "",
    ),
    case(
        "a dangling link instead of the wants directory is in the way",
        "enable a.service",
        &[VENDOR, ("etc:multi-user.target.wants", "-> nowhere")],
        "FAIL",
    ),
    case(
        "a circle instead of the wants directory is in the way",
        "enable a.service",
        &[
            VENDOR,
            ("etc:multi-user.target.wants", "-> multi-user.target.wants"),
        ],
        "FAIL",
    ),
    case(
        "a link to a file instead of the wants directory is in the way",
        "enable a.service",
        &[
            VENDOR,
            ("etc:multi-user.target.wants", "-> f"),
            ("etc:f", "x"),
        ],
        "FAIL",
    ),
    case(
        "a drop-in behind a link to a directory out of the search path counts",
        "enable a.service",
        &[
            ("usr:a.service", "[Service]\nExecStart=/bin/true\n"),
            ("etc:a.service.d", "-> ../../../opt/d"),
            ("opt/d/10.conf", WANTED),
        ],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a static unit enables to nothing",
        "enable a.service",
        &[("usr:a.service", "[Unit]\nDescription=x\n")],
        "",
    ),
    case(
        "a missing unit cannot be enabled",
        "enable a.service",
        &[("usr:b.service", WANTED)],
        "FAIL",
    ),
    case(
        "one missing unit keeps the others from being enabled",
        "enable a.service missing.service",
        &[VENDOR],
        "FAIL",
    ),
    case(
        "a directory is not a unit",
        "enable a.service",
        &[("usr:a.service", "/")],
        "FAIL",
    ),
    case(
        "a unit masked by dev null cannot be enabled",
        "enable a.service",
        &[VENDOR, ("etc:a.service", "-> /dev/null")],
        "FAIL",
    ),
    case(
        "a unit masked by an empty file cannot be enabled",
        "enable a.service",
        &[VENDOR, ("etc:a.service", "")],
        "FAIL",
    ),
    case(
        "a link through a file is not a unit",
        "enable a.service",
        &[
            ("etc:a.service", "-> /opt/file/a.service"),
            ("opt/file", "x"),
        ],
        "FAIL",
    ),
    case(
        "a link through a file hides no unit",
        "enable a.service",
        &[
            VENDOR,
            ("etc:a.service", "-> /opt/file/a.service"),
            ("opt/file", "x"),
        ],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a link through a file keeps others from being disabled well",
        "disable a.service",
        &[
            VENDOR,
            ENABLED,
            ("etc:z.service", "-> /opt/file/z.service"),
            ("opt/file", "x"),
        ],
        "-multi-user.target.wants/a.service\nFAIL",
    ),
    case(
        "a link that climbs from a file does the same",
        "disable a.service",
        &[
            VENDOR,
            ("etc:x.target.wants/z.service", "-> /opt/file/.."),
            ("opt/file", "x"),
        ],
        "FAIL",
    ),
    case(
        "a link with a slash behind a file leads to the file",
        "disable a.service",
        &[
            VENDOR,
            ENABLED,
            ("etc:z.service", "-> /opt/file/"),
            ("opt/file", "x"),
        ],
        "-multi-user.target.wants/a.service",
    ),
    case(
        "a link in wants through a file is replaced",
        "enable a.service",
        &[
            VENDOR,
            ("etc:multi-user.target.wants/a.service", "-> /opt/file/x"),
            ("opt/file", "x"),
        ],
        "-multi-user.target.wants/a.service\n+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a drop-in that links through a file spoils the unit",
        "enable a.service",
        &[
            VENDOR,
            ("etc:a.service.d/x.conf", "-> /opt/file/x"),
            ("opt/file", "x"),
        ],
        "FAIL",
    ),
    case(
        "a drop-in directory that links through a file is none",
        "enable a.service",
        &[
            VENDOR,
            ("etc:a.service.d", "-> /opt/file/x"),
            ("opt/file", "x"),
        ],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a drop-in directory that links to itself is none",
        "enable a.service",
        &[VENDOR, ("etc:a.service.d", "-> a.service.d")],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a unit that links through a file does not exist",
        "is-enabled a.service",
        &[
            ("etc:a.service", "-> /opt/file/a.service"),
            ("opt/file", "x"),
        ],
        "not-found",
    ),
    case(
        "a relative link to dev null masks",
        "is-enabled a.service",
        &[VENDOR, ("etc:a.service", "-> ../../../dev/null")],
        "masked",
    ),
    case(
        "a unit that links to an empty file is masked",
        "enable a.service",
        &[
            ("etc:a.service", "-> /opt/a.service"),
            ("opt/a.service", ""),
        ],
        "FAIL",
    ),
    case(
        "a masked unit in also is skipped",
        "enable a.service",
        &[
            (
                "usr:a.service",
                "[Install]\nWantedBy=multi-user.target\nAlso=b.service\n",
            ),
            ("etc:b.service", "-> /dev/null"),
        ],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "also is followed on enable",
        "enable a.service",
        &[
            (
                "usr:a.service",
                "[Install]\nWantedBy=multi-user.target\nAlso=b.service\n",
            ),
            (
                "usr:b.service",
                "[Install]\nWantedBy=multi-user.target\nAlso=c.socket a.service\n",
            ),
            ("usr:c.socket", "[Install]\nWantedBy=sockets.target\n"),
        ],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service\n+multi-user.target.wants/b.service -> /usr/lib/systemd/system/b.service\n+sockets.target.wants/c.socket -> /usr/lib/systemd/system/c.socket",
    ),
    case(
        "also is followed on disable",
        "disable a.service",
        &[
            (
                "usr:a.service",
                "[Install]\nWantedBy=multi-user.target\nAlso=b.service\n",
            ),
            ("usr:b.service", WANTED),
            ENABLED,
            (
                "etc:multi-user.target.wants/b.service",
                "-> /usr/lib/systemd/system/b.service",
            ),
        ],
        "-multi-user.target.wants/a.service\n-multi-user.target.wants/b.service",
    ),
    case(
        "a missing unit in also is skipped",
        "enable a.service",
        &[(
            "usr:a.service",
            "[Install]\nWantedBy=multi-user.target\nAlso=b.service\n",
        )],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "an also that is not a unit name spoils the unit",
        "enable a.service",
        &[(
            "usr:a.service",
            "[Install]\nWantedBy=multi-user.target\nAlso=b\n",
        )],
        "FAIL",
    ),
    case(
        "also expands specifiers",
        "enable a-b.service",
        &[
            ("usr:a-b.service", "[Install]\nAlso=%p.socket %j.socket\n"),
            ("usr:a-b.socket", WANTED),
            ("usr:b.socket", WANTED),
        ],
        "+multi-user.target.wants/a-b.socket -> /usr/lib/systemd/system/a-b.socket\n+multi-user.target.wants/b.socket -> /usr/lib/systemd/system/b.socket",
    ),
    case(
        "an alias is a link in etc",
        "enable a.service",
        &[("usr:a.service", "[Install]\nAlias=b.service c.service\n")],
        "+b.service -> /usr/lib/systemd/system/a.service\n+c.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "an alias to another unit is in the way",
        "enable a.service",
        &[
            ("usr:a.service", "[Install]\nAlias=b.service\n"),
            ("etc:b.service", "-> /usr/lib/systemd/system/c.service"),
        ],
        "FAIL",
    ),
    case(
        "an alias whose name is a file is in the way",
        "enable a.service",
        &[
            ("usr:a.service", "[Install]\nAlias=b.service\n"),
            ("etc:b.service", WANTED),
        ],
        "FAIL",
    ),
    case(
        "an alias already made is kept",
        "enable a.service",
        &[
            ("usr:a.service", "[Install]\nAlias=b.service\n"),
            ("etc:b.service", "-> /usr/lib/systemd/system/a.service"),
        ],
        "",
    ),
    case(
        "an alias of another type is refused",
        "enable a.service",
        &[(
            "usr:a.service",
            "[Install]\nAlias=b.socket\nWantedBy=x.target\n",
        )],
        "+x.target.wants/a.service -> /usr/lib/systemd/system/a.service\nFAIL",
    ),
    case(
        "an alias of a mount is ignored",
        "enable a.mount",
        &[(
            "usr:a.mount",
            "[Install]\nWantedBy=multi-user.target\nAlias=b.mount\n",
        )],
        "+multi-user.target.wants/a.mount -> /usr/lib/systemd/system/a.mount",
    ),
    case(
        "an alias of its own name is ignored",
        "enable a.service",
        &[(
            "usr:a.service",
            "[Install]\nWantedBy=multi-user.target\nAlias=a.service\n",
        )],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a template alias of a plain unit is refused",
        "enable a.service",
        &[("usr:a.service", "[Install]\nAlias=b@.service\n")],
        "FAIL",
    ),
    case(
        "an alias may be a path in wants",
        "enable a.service",
        &[(
            "usr:a.service",
            "[Install]\nAlias=x.target.wants/a.service\n",
        )],
        "+x.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "an alias in wants must have the name of the unit",
        "enable a.service",
        &[(
            "usr:a.service",
            "[Install]\nAlias=x.target.wants/b.service\n",
        )],
        "FAIL",
    ),
    case(
        "after an alias was made a bad target does not fail",
        "enable a.service",
        &[(
            "usr:a.service",
            "[Install]\nAlias=b.service\nWantedBy=bad\n",
        )],
        "+b.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "without an alias a bad target fails after the good ones",
        "enable a.service",
        &[(
            "usr:a.service",
            "[Install]\nWantedBy=x.target bad y.target\n",
        )],
        "+x.target.wants/a.service -> /usr/lib/systemd/system/a.service\n+y.target.wants/a.service -> /usr/lib/systemd/system/a.service\nFAIL",
    ),
    case(
        "a template is enabled by its default instance",
        "enable t@.service",
        &[("usr:t@.service", TEMPLATE)],
        "+multi-user.target.wants/t@d.service -> /usr/lib/systemd/system/t@.service",
    ),
    case(
        "a template without default instance needs an instance",
        "enable t@.service",
        &[("usr:t@.service", WANTED)],
        "FAIL",
    ),
    case(
        "a template without default instance may be wanted by a template",
        "enable t@.service",
        &[("usr:t@.service", "[Install]\nWantedBy=g@.target\n")],
        "+g@.target.wants/t@.service -> /usr/lib/systemd/system/t@.service",
    ),
    case(
        "an instance is enabled from its template",
        "enable t@x.service",
        &[("usr:t@.service", TEMPLATE)],
        "+multi-user.target.wants/t@x.service -> /usr/lib/systemd/system/t@.service",
    ),
    case(
        "an instance in its own file counts before the template",
        "enable t@x.service",
        &[
            ("usr:t@.service", TEMPLATE),
            ("usr:t@x.service", "[Install]\nWantedBy=x.target\n"),
        ],
        "+x.target.wants/t@x.service -> /usr/lib/systemd/system/t@x.service",
    ),
    case(
        "an instance of a template in etc",
        "enable t@x.service",
        &[("etc:t@.service", WANTED)],
        "+multi-user.target.wants/t@x.service -> /etc/systemd/system/t@.service",
    ),
    case(
        "an instance passes its instance on to the target",
        "enable t@x.service",
        &[(
            "usr:t@.service",
            "[Install]\nWantedBy=g@%i.target %p.target\n",
        )],
        "+g@x.target.wants/t@x.service -> /usr/lib/systemd/system/t@.service\n+t.target.wants/t@x.service -> /usr/lib/systemd/system/t@.service",
    ),
    case(
        "a template alias takes the instance",
        "enable t@x.service",
        &[("usr:t@.service", "[Install]\nAlias=u@.service\n")],
        "+u@x.service -> /usr/lib/systemd/system/t@.service",
    ),
    case(
        "a template has a template as alias",
        "enable t@.service",
        &[(
            "usr:t@.service",
            "[Install]\nAlias=u@.service\nWantedBy=x.target\nDefaultInstance=d\n",
        )],
        "+u@.service -> /usr/lib/systemd/system/t@.service\n+x.target.wants/t@d.service -> /usr/lib/systemd/system/t@.service",
    ),
    case(
        "an alias may name the instance of a default",
        "enable t@.service",
        &[("usr:t@.service", "[Install]\nAlias=t@one.service\n")],
        "+t@one.service -> /usr/lib/systemd/system/t@.service",
    ),
    case(
        "default instance may be expanded",
        "enable t-u@.service",
        &[(
            "usr:t-u@.service",
            "[Install]\nWantedBy=x.target\nDefaultInstance=%j\n",
        )],
        "+x.target.wants/t-u@u.service -> /usr/lib/systemd/system/t-u@.service",
    ),
    case(
        "a masked default instance cannot be enabled",
        "enable t@.service",
        &[
            ("usr:t@.service", TEMPLATE),
            ("etc:t@d.service", "-> /dev/null"),
        ],
        "FAIL",
    ),
    case(
        "a mount cannot be a template",
        "enable t@x.mount",
        &[("usr:t@.mount", WANTED)],
        "FAIL",
    ),
    case(
        "a target through a directory link is written without it",
        "enable a.service",
        &[
            ("opt", "-> var/opt"),
            ("var/opt/a.service", WANTED),
            ("run:a.service", "-> /opt/a.service"),
        ],
        "+a.service -> /var/opt/a.service\n+multi-user.target.wants/a.service -> /var/opt/a.service",
    ),
    differs(
        Agreement::OnlyWeRefuse,
        "a specifier of the host is refused",
        "enable a.service",
        &[("usr:a.service", "[Install]\nWantedBy=x-%v.target\n")],
        "FAIL",
    ),
    case(
        "capital specifiers are not expanded",
        "enable t@x.service",
        &[("usr:t@.service", "[Install]\nWantedBy=g@%I.target\n")],
        "FAIL",
    ),
    case(
        "root is the user of specifiers",
        "enable a.service",
        &[("usr:a.service", "[Install]\nWantedBy=x-%u-%U.target\n")],
        "+x-root-0.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a dropin adds to the section",
        "enable a.service",
        &[
            VENDOR,
            ("etc:a.service.d/10.conf", "[Install]\nWantedBy=x.target\n"),
        ],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service\n+x.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a dropin resets the section",
        "enable a.service",
        &[
            VENDOR,
            (
                "run:a.service.d/10.conf",
                "[Install]\nWantedBy=\nRequiredBy=x.target\n",
            ),
        ],
        "+x.target.requires/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "dropins of a type or prefix do not count",
        "enable a-b.service",
        &[
            ("usr:a-b.service", WANTED),
            ("etc:service.d/10.conf", "[Install]\nWantedBy=x.target\n"),
            ("etc:a-.service.d/10.conf", "[Install]\nWantedBy=y.target\n"),
        ],
        "+multi-user.target.wants/a-b.service -> /usr/lib/systemd/system/a-b.service",
    ),
    case(
        "dropins of the template count for an instance",
        "enable t@x.service",
        &[
            ("usr:t@.service", WANTED),
            ("etc:t@.service.d/10.conf", "[Install]\nWantedBy=x.target\n"),
            (
                "etc:t@x.service.d/20.conf",
                "[Install]\nWantedBy=y.target\n",
            ),
        ],
        "+multi-user.target.wants/t@x.service -> /usr/lib/systemd/system/t@.service\n+x.target.wants/t@x.service -> /usr/lib/systemd/system/t@.service\n+y.target.wants/t@x.service -> /usr/lib/systemd/system/t@.service",
    ),
    case(
        "a dropin hides its namesake in a later directory",
        "enable a.service",
        &[
            VENDOR,
            ("etc:a.service.d/10.conf", "[Unit]\n"),
            ("usr:a.service.d/10.conf", "[Install]\nWantedBy=x.target\n"),
        ],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "an empty dropin hides its namesake",
        "enable a.service",
        &[
            VENDOR,
            ("etc:a.service.d/10.conf", ""),
            ("usr:a.service.d/10.conf", "[Install]\nWantedBy=x.target\n"),
        ],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a dropin that leads nowhere spoils the unit",
        "enable a.service",
        &[VENDOR, ("etc:a.service.d/10.conf", "-> /opt/none")],
        "FAIL",
    ),
    case(
        "a linked dropin directory is read",
        "enable a.service",
        &[
            VENDOR,
            ("etc:a.service.d", "-> ../../d"),
            ("etc/d/10.conf", "[Install]\nWantedBy=x.target\n"),
        ],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service\n+x.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    differs(
        Agreement::OnlyWeCreate,
        "an absolute link to a dropin directory stays inside the root",
        "enable a.service",
        &[
            VENDOR,
            ("etc:a.service.d", "-> /etc/d"),
            ("etc/d/10.conf", "[Install]\nWantedBy=x.target\n"),
        ],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service\n+x.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a section header without end spoils the unit",
        "enable a.service",
        &[(
            "usr:a.service",
            "[Unit\n[Install]\nWantedBy=multi-user.target\n",
        )],
        "FAIL",
    ),
    case(
        "lines that mean nothing are skipped",
        "enable a.service",
        &[(
            "usr:a.service",
            "junk\n[Service]\nWantedBy=x.target\n[Install]\njunk\n=y\nWanted=x\nWantedBy=a.target \\\n# no\n  b.target\n;WantedBy=c.target\n",
        )],
        "+a.target.wants/a.service -> /usr/lib/systemd/system/a.service\n+b.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "windows line ends are line ends",
        "enable a.service",
        &[(
            "usr:a.service",
            "[Install]\r\nWantedBy=a.target \\\r\nb.target\r\n",
        )],
        "+a.target.wants/a.service -> /usr/lib/systemd/system/a.service\n+b.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "quotes group in wanted by",
        "enable a.service",
        &[(
            "usr:a.service",
            "[Install]\nWantedBy=\"a.target\" 'b.target' c\".\"target\n",
        )],
        "+a.target.wants/a.service -> /usr/lib/systemd/system/a.service\n+b.target.wants/a.service -> /usr/lib/systemd/system/a.service\n+c.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "words before an open quote are kept",
        "enable a.service",
        &[("usr:a.service", "[Install]\nWantedBy=a.target \"b.target\n")],
        "+a.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "backslashes vanish in also",
        "enable a.service",
        &[
            (
                "usr:a.service",
                "[Install]\nAlso=b\\\\x2dc.service bx\\.service\n",
            ),
            ("usr:b\\x2dc.service", WANTED),
            ("usr:bx.service", WANTED),
        ],
        "+multi-user.target.wants/b\\x2dc.service -> /usr/lib/systemd/system/b\\x2dc.service\n+multi-user.target.wants/bx.service -> /usr/lib/systemd/system/bx.service",
    ),
    case(
        "upheld by is not known to 252",
        "enable a.service",
        &[(
            "usr:a.service",
            "[Install]\nWantedBy=multi-user.target\nUpheldBy=x.target\n",
        )],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "a linked unit is enabled by its target",
        "enable a.service",
        &[
            ("etc:a.service", "-> /opt/a.service"),
            ("opt/a.service", WANTED),
        ],
        "+multi-user.target.wants/a.service -> /opt/a.service",
    ),
    case(
        "a linked unit of another name is linked under its own",
        "enable a.service",
        &[
            ("etc:a.service", "-> /opt/b.service"),
            ("opt/b.service", WANTED),
        ],
        "+multi-user.target.wants/a.service -> /opt/b.service",
    ),
    case(
        "a unit linked from run gets a link in etc",
        "enable a.service",
        &[
            ("run:a.service", "-> /opt/a.service"),
            ("opt/a.service", WANTED),
        ],
        "+a.service -> /opt/a.service\n+multi-user.target.wants/a.service -> /opt/a.service",
    ),
    case(
        "a chain of links out of the search path is followed",
        "enable a.service",
        &[
            ("etc:a.service", "-> /opt/a.service"),
            ("opt/a.service", "-> b.service"),
            ("opt/b.service", WANTED),
        ],
        "+multi-user.target.wants/a.service -> /opt/b.service",
    ),
    case(
        "a link to nothing is not a unit",
        "enable a.service",
        &[("etc:a.service", "-> /opt/a.service")],
        "FAIL",
    ),
    case(
        "a vendor alias enables the unit behind it",
        "enable b.service",
        &[VENDOR, ("usr:b.service", "-> a.service")],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "an alias in etc is not enabled by its name",
        "enable b.service",
        &[
            VENDOR,
            ("etc:b.service", "-> /usr/lib/systemd/system/a.service"),
        ],
        "FAIL",
    ),
    case(
        "a dangling alias cannot be enabled",
        "enable b.service",
        &[("usr:b.service", "-> a.service")],
        "FAIL",
    ),
    case(
        "a link to itself elsewhere is refused",
        "enable a.service",
        &[
            VENDOR,
            ("etc:a.service", "-> /usr/lib/systemd/system/a.service"),
        ],
        "FAIL",
    ),
    case(
        "a circle of aliases is refused",
        "enable a.service",
        &[
            ("usr:a.service", "-> b.service"),
            ("usr:b.service", "-> a.service"),
        ],
        "FAIL",
    ),
    case(
        "an alias through the lib directory is one",
        "is-enabled b.service",
        &[
            VENDOR,
            ("lib", "-> usr/lib"),
            ("usr:b.service", "-> /lib/systemd/system/a.service"),
        ],
        "alias",
    ),
    case(
        "a generated unit cannot be enabled",
        "enable a.service",
        &[("run/systemd/generator/a.service", WANTED)],
        "FAIL",
    ),
    case(
        "a transient unit cannot be enabled",
        "enable a.service",
        &[("run/systemd/transient/a.service", WANTED)],
        "FAIL",
    ),
    differs(
        Agreement::OnlyWeRefuse,
        "no valid name is completed",
        "enable a",
        &[VENDOR],
        "FAIL",
    ),
    case(
        "disable removes the link",
        "disable a.service",
        &[VENDOR, ENABLED],
        "-multi-user.target.wants/a.service",
    ),
    case(
        "disable removes links in all directories",
        "disable a.service",
        &[
            VENDOR,
            ENABLED,
            ("etc:x.target.requires/a.service", "-> ../a.service"),
            ("etc:y.d/a.service", "-> /nowhere"),
        ],
        "-multi-user.target.wants/a.service\n-x.target.requires/a.service\n-y.d/a.service",
    ),
    case(
        "disable leaves links in run and usr",
        "disable a.service",
        &[
            VENDOR,
            (
                "run:x.target.wants/a.service",
                "-> /usr/lib/systemd/system/a.service",
            ),
            ("usr:x.target.wants/a.service", "-> ../a.service"),
        ],
        "",
    ),
    case(
        "disable removes aliases by their target",
        "disable a.service",
        &[
            VENDOR,
            ENABLED,
            ("etc:b.service", "-> /usr/lib/systemd/system/a.service"),
            (
                "etc:x.target.wants/b.service",
                "-> /usr/lib/systemd/system/a.service",
            ),
        ],
        "-b.service\n-multi-user.target.wants/a.service\n-x.target.wants/b.service",
    ),
    case(
        "disable removes links of a unit that is gone",
        "disable a.service",
        &[ENABLED],
        "-multi-user.target.wants/a.service",
    ),
    case(
        "disable of nothing is a success",
        "disable a.service",
        &[("usr:b.service", WANTED)],
        "",
    ),
    case(
        "disable keeps files",
        "disable a.service",
        &[
            ("etc:a.service", WANTED),
            (
                "etc:multi-user.target.wants/a.service",
                "-> /etc/systemd/system/a.service",
            ),
        ],
        "-multi-user.target.wants/a.service",
    ),
    case(
        "disable keeps links of a masked unit",
        "disable a.service",
        &[("etc:a.service", "-> /dev/null"), ENABLED],
        "",
    ),
    case(
        "disable of a template removes its instances",
        "disable t@.service",
        &[
            ("usr:t@.service", TEMPLATE),
            (
                "etc:x.target.wants/t@a.service",
                "-> /usr/lib/systemd/system/t@.service",
            ),
            (
                "etc:x.target.wants/t@b.service",
                "-> /usr/lib/systemd/system/t@.service",
            ),
        ],
        "-x.target.wants/t@a.service\n-x.target.wants/t@b.service",
    ),
    case(
        "disable of an instance leaves the others",
        "disable t@a.service",
        &[
            ("usr:t@.service", TEMPLATE),
            (
                "etc:x.target.wants/t@a.service",
                "-> /usr/lib/systemd/system/t@.service",
            ),
            (
                "etc:x.target.wants/t@b.service",
                "-> /usr/lib/systemd/system/t@.service",
            ),
        ],
        "-x.target.wants/t@a.service",
    ),
    case(
        "disable removes the link of a linked unit",
        "disable a.service",
        &[
            ("etc:a.service", "-> /opt/a.service"),
            ("opt/a.service", WANTED),
            ("etc:multi-user.target.wants/a.service", "-> /opt/a.service"),
        ],
        "-a.service\n-multi-user.target.wants/a.service",
    ),
    case(
        "disable of an alias removes the unit's links",
        "disable b.service",
        &[
            VENDOR,
            ENABLED,
            ("etc:b.service", "-> /usr/lib/systemd/system/a.service"),
        ],
        "-b.service\n-multi-user.target.wants/a.service",
    ),
    case(
        "disable of a vendor alias",
        "disable b.service",
        &[VENDOR, ENABLED, ("usr:b.service", "-> a.service")],
        "-multi-user.target.wants/a.service",
    ),
    case(
        "disable removes dangling links to the name",
        "disable a.service",
        &[
            VENDOR,
            ("etc:x.target.wants/b.service", "-> /gone/a.service"),
        ],
        "-x.target.wants/b.service",
    ),
    case(
        "disable removes a link that cannot be an alias",
        "disable t@.service",
        &[
            VENDOR,
            ("etc:t@.service", "-> /usr/lib/systemd/system/a.service"),
        ],
        "-t@.service",
    ),
    case(
        "disable passes over links with no unit name",
        "disable a.service",
        &[
            VENDOR,
            (
                "etc:x.target.wants/readme",
                "-> /usr/lib/systemd/system/a.service",
            ),
        ],
        "",
    ),
    case(
        "disable passes over hidden and backup names",
        "disable a.service",
        &[
            VENDOR,
            (
                "etc:.x.target.wants/a.service",
                "-> /usr/lib/systemd/system/a.service",
            ),
            (
                "etc:x.target.wants~/a.service",
                "-> /usr/lib/systemd/system/a.service",
            ),
        ],
        "",
    ),
    case(
        "a circle of links makes disable fail",
        "disable a.service",
        &[
            VENDOR,
            ENABLED,
            ("etc:b.service", "-> c.service"),
            ("etc:c.service", "-> b.service"),
        ],
        "-multi-user.target.wants/a.service\nFAIL",
    ),
    differs(
        Agreement::LinksToAliasKept,
        "links to a removed alias are removed too",
        "disable a.service",
        &[
            VENDOR,
            ("etc:l1.service", "-> /etc/systemd/system/l2.service"),
            ("etc:l2.service", "-> /etc/systemd/system/l3.service"),
            ("etc:l3.service", "-> /etc/systemd/system/l4.service"),
            ("etc:l4.service", "-> /etc/systemd/system/l5.service"),
            ("etc:l5.service", "-> /etc/systemd/system/l6.service"),
            ("etc:l6.service", "-> /etc/systemd/system/l7.service"),
            ("etc:l7.service", "-> /etc/systemd/system/l8.service"),
            ("etc:l8.service", "-> /etc/systemd/system/l9.service"),
            ("etc:l9.service", "-> /etc/systemd/system/l10.service"),
            ("etc:l10.service", "-> /usr/lib/systemd/system/a.service"),
        ],
        "-l1.service\n-l10.service\n-l2.service\n-l3.service\n-l4.service\n-l5.service\n-l6.service\n-l7.service\n-l8.service\n-l9.service",
    ),
    case(
        "preset without rules enables",
        "preset a.service",
        &[VENDOR],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "preset disables by rule",
        "preset a.service",
        &[VENDOR, ENABLED, ("preset:50.preset", "disable a.*\n")],
        "-multi-user.target.wants/a.service",
    ),
    case(
        "preset enables by an earlier file",
        "preset a.service",
        &[
            VENDOR,
            ("preset:90.preset", "disable *\n"),
            (
                "usr/lib/systemd/system-preset/10.preset",
                "enable a.service\n",
            ),
        ],
        "+multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service",
    ),
    case(
        "preset files in etc hide those in usr",
        "preset a.service",
        &[
            VENDOR,
            ENABLED,
            ("preset:10.preset", "disable *\n"),
            (
                "usr/lib/systemd/system-preset/10.preset",
                "enable a.service\n",
            ),
        ],
        "-multi-user.target.wants/a.service",
    ),
    case(
        "preset of a template enables the listed instances",
        "preset t@.service",
        &[
            ("usr:t@.service", TEMPLATE),
            ("preset:50.preset", "enable t@.service x y\ndisable *\n"),
        ],
        "+multi-user.target.wants/t@x.service -> /usr/lib/systemd/system/t@.service\n+multi-user.target.wants/t@y.service -> /usr/lib/systemd/system/t@.service",
    ),
    case(
        "preset of an instance that is not listed disables",
        "preset t@z.service",
        &[
            ("usr:t@.service", TEMPLATE),
            (
                "etc:multi-user.target.wants/t@z.service",
                "-> /usr/lib/systemd/system/t@.service",
            ),
            ("preset:50.preset", "enable t@.service x y\ndisable *\n"),
        ],
        "-multi-user.target.wants/t@z.service",
    ),
    case(
        "preset passes over an alias",
        "preset b.service",
        &[VENDOR, ("usr:b.service", "-> a.service")],
        "",
    ),
    case(
        "preset fails for a masked unit",
        "preset a.service b.service",
        &[VENDOR, ("etc:b.service", "-> /dev/null")],
        "FAIL",
    ),
    case(
        "preset of a masked unit to disable changes nothing",
        "preset b.service",
        &[
            ("etc:b.service", "-> /dev/null"),
            ("preset:50.preset", "disable *\n"),
        ],
        "",
    ),
    case(
        "preset fails for a missing unit",
        "preset a.service b.service",
        &[VENDOR],
        "FAIL",
    ),
    case(
        "preset is lenient with a template without instance",
        "preset t@.service",
        &[("usr:t@.service", WANTED)],
        "",
    ),
    case(
        "preset does not follow also to disable",
        "preset a.service",
        &[
            (
                "usr:a.service",
                "[Install]\nWantedBy=multi-user.target\nAlso=b.service\n",
            ),
            ("usr:b.service", WANTED),
            ENABLED,
            (
                "etc:multi-user.target.wants/b.service",
                "-> /usr/lib/systemd/system/b.service",
            ),
            ("preset:50.preset", "disable *\n"),
        ],
        "-multi-user.target.wants/a.service",
    ),
    case(
        "preset removes before it enables",
        "preset a.service b.service",
        &[
            VENDOR,
            ENABLED,
            ("usr:b.service", "[Install]\nAlias=x.service\n"),
            ("etc:x.service", "-> /usr/lib/systemd/system/a.service"),
            ("preset:50.preset", "disable a.service\n"),
        ],
        "-multi-user.target.wants/a.service\n-x.service\n+x.service -> /usr/lib/systemd/system/b.service",
    ),
    case(
        "ignore in presets is not known to 252",
        "preset a.service",
        &[
            VENDOR,
            ENABLED,
            ("preset:50.preset", "ignore a.service\ndisable *\n"),
        ],
        "-multi-user.target.wants/a.service",
    ),
    case(
        "a unit with a link is enabled",
        "is-enabled a.service",
        &[VENDOR, ENABLED],
        "enabled",
    ),
    case(
        "a unit without links is disabled",
        "is-enabled a.service",
        &[VENDOR],
        "disabled",
    ),
    case(
        "a link in run makes it enabled for this boot",
        "is-enabled a.service",
        &[
            VENDOR,
            (
                "run:multi-user.target.wants/a.service",
                "-> /usr/lib/systemd/system/a.service",
            ),
        ],
        "enabled-runtime",
    ),
    case(
        "a link in usr alone does not enable",
        "is-enabled a.service",
        &[VENDOR, ("usr:x.target.wants/a.service", "-> ../a.service")],
        "disabled",
    ),
    case(
        "an instance with a link in usr is static",
        "is-enabled t@x.service",
        &[
            ("usr:t@.service", TEMPLATE),
            ("usr:x.target.wants/t@x.service", "-> ../t@.service"),
        ],
        "static",
    ),
    case(
        "a unit without section is static",
        "is-enabled a.service",
        &[("usr:a.service", "[Unit]\n")],
        "static",
    ),
    case(
        "a unit with only also is indirect",
        "is-enabled a.service",
        &[("usr:a.service", "[Install]\nAlso=b.service\n")],
        "indirect",
    ),
    case(
        "a unit with a foreign alias is indirect",
        "is-enabled a.service",
        &[
            VENDOR,
            ("etc:z.service", "-> /usr/lib/systemd/system/a.service"),
        ],
        "indirect",
    ),
    case(
        "a unit with its own alias is enabled",
        "is-enabled a.service",
        &[
            ("usr:a.service", "[Install]\nAlias=z.service\n"),
            ("etc:z.service", "-> /usr/lib/systemd/system/a.service"),
        ],
        "enabled",
    ),
    case(
        "an alias is an alias",
        "is-enabled b.service",
        &[VENDOR, ("usr:b.service", "-> a.service")],
        "alias",
    ),
    case(
        "a linked unit is linked",
        "is-enabled a.service",
        &[
            ("etc:a.service", "-> /opt/a.service"),
            ("opt/a.service", WANTED),
        ],
        "linked",
    ),
    case(
        "a unit linked from run is linked for this boot",
        "is-enabled a.service",
        &[
            ("run:a.service", "-> /opt/a.service"),
            ("opt/a.service", WANTED),
        ],
        "linked-runtime",
    ),
    case(
        "a masked unit is masked",
        "is-enabled a.service",
        &[VENDOR, ("etc:a.service", "-> /dev/null")],
        "masked",
    ),
    case(
        "a unit masked in run is masked for this boot",
        "is-enabled a.service",
        &[VENDOR, ("run:a.service", "-> /dev/null")],
        "masked-runtime",
    ),
    case(
        "a link below the unit file in priority has no effect",
        "is-enabled a.service",
        &[("etc:a.service", WANTED), ("run:a.service", "-> b.service")],
        "disabled",
    ),
    case(
        "a generated unit is generated",
        "is-enabled a.service",
        &[("run/systemd/generator.late/a.service", WANTED)],
        "generated",
    ),
    case(
        "a transient unit is transient",
        "is-enabled a.service",
        &[("run/systemd/transient/a.service", WANTED)],
        "transient",
    ),
    case(
        "a missing unit is not found",
        "is-enabled a.service",
        &[("usr:b.service", WANTED)],
        "not-found",
    ),
    case(
        "a template with a linked instance is enabled only for its default",
        "is-enabled t@.service",
        &[
            ("usr:t@.service", TEMPLATE),
            (
                "etc:x.target.wants/t@d.service",
                "-> /usr/lib/systemd/system/t@.service",
            ),
        ],
        "enabled",
    ),
    case(
        "a template with another instance is indirect",
        "is-enabled t@.service",
        &[
            ("usr:t@.service", TEMPLATE),
            (
                "etc:x.target.wants/t@y.service",
                "-> /usr/lib/systemd/system/t@.service",
            ),
        ],
        "indirect",
    ),
    case(
        "an alias to nothing has no state",
        "is-enabled b.service",
        &[("usr:b.service", "-> a.service")],
        "FAIL",
    ),
    case(
        "an upholds directory means nothing to 252",
        "is-enabled a.service",
        &[
            VENDOR,
            (
                "etc:x.target.upholds/a.service",
                "-> /usr/lib/systemd/system/a.service",
            ),
        ],
        "disabled",
    ),
];
