//! Keyfiles that NetworkManager does not load: the line, and what is wrong with it.

/// Returns the line of a keyfile, counted from 1, because of which NetworkManager does not load it, and what is wrong with it.
pub fn find_keyfile_fault(text: &str) -> Option<(usize, String)> {
    let bad_line = find_bad_line(text).map(|(line, said)| (line, said.to_owned()));
    bad_line.or_else(|| find_bad_setting(text))
}

/// The methods of each address family that NetworkManager knows.
const METHODS: [(&str, &[&str]); 2] = [
    (
        "ipv4",
        &["auto", "manual", "link-local", "shared", "disabled"],
    ),
    (
        "ipv6",
        &[
            "auto",
            "dhcp",
            "manual",
            "link-local",
            "shared",
            "ignore",
            "disabled",
        ],
    ),
];

/// Returns the line with a value that makes a connection invalid, and why.
fn find_bad_setting(text: &str) -> Option<(usize, String)> {
    let mut section = "";
    let mut all: Vec<(usize, &str, &str, &str)> = Vec::new();
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if let Some(name) = group_of(line) {
            section = name;
        } else if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            all.push((index + 1, section, key.trim(), value.trim()));
        }
    }
    let last = |section: &str, key: &str| {
        let mut found = all.iter().filter(|one| (one.1, one.2) == (section, key));
        found.next_back().map(|one| (one.0, one.3))
    };
    let is_ovs = last("connection", "type").is_some_and(|(_, kind)| kind.starts_with("ovs-"));
    if let Some((line, name)) = last("connection", "interface-name")
        && !is_ovs
        && !is_interface_name(name)
    {
        return Some((
            line,
            format!("{name:?} is not a valid interface name (at most 15 letters)"),
        ));
    }
    // A port needs no addresses. NetworkManager 1.42 refuses the manual method without addresses, which is not judged.
    let is_port = ["master", "controller"]
        .iter()
        .any(|key| last("connection", key).is_some());
    METHODS
        .iter()
        .filter(|_| !is_port)
        .find_map(|(family, methods)| {
            let (line, method) = last(family, "method")?;
            if !methods.contains(&method) {
                return Some((line, format!("{method:?} is not a method of {family}")));
            }
            let mut addresses = all
                .iter()
                .filter(|one| one.1 == *family && one.2.starts_with("address"));
            let has_address = addresses.any(|one| has_address(one.3, *family == "ipv4"));
            (method == "manual" && !has_address).then(|| {
                (
                    line,
                    format!("{family} is manual, and has no address ADDRESS/PREFIX"),
                )
            })
        })
}

/// Returns the first line of a key file that GLib rejects, counted from 1, and what is wrong with it.
pub fn find_bad_line(text: &str) -> Option<(usize, &'static str)> {
    let mut has_group = false;
    for (index, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let line = line.trim_start_matches([' ', '\t', '\r', '\n', '\u{b}', '\u{c}']);
        let said = if line.is_empty() || line.starts_with('#') {
            continue;
        } else if let Some(name) = group_of(line) {
            has_group = true;
            let is_name = !name.is_empty() && !name.contains(|c: char| c == '[' || c.is_control());
            if is_name {
                continue;
            }
            "not a name of a group"
        } else if !line.contains('=') || line.starts_with('=') {
            "neither a group, a key with a value, nor a comment"
        } else if !has_group {
            "a key before the first group"
        } else if !is_key(line) {
            "not a name of a key"
        } else {
            continue;
        };
        return Some((index + 1, said));
    }
    None
}

/// Returns the name in a line `[NAME]`.
fn group_of(line: &str) -> Option<&str> {
    let (name, rest) = line.strip_prefix('[')?.split_once(']')?;
    rest.trim_matches([' ', '\t']).is_empty().then_some(name)
}

/// Returns true if the part before `=` is a valid key, with or without a locale in brackets.
fn is_key(line: &str) -> bool {
    let key = line.split_once('=').map_or(line, |(key, _)| key);
    let key = key.trim_end_matches([' ', '\t', '\u{b}', '\u{c}', '\r']);
    match key.split_once('[') {
        None => !key.is_empty() && !key.contains(']'),
        Some((name, language)) => {
            let is_language = |c: char| c.is_alphanumeric() || "-_.@".contains(c);
            let language = language.strip_suffix(']');
            !name.is_empty()
                && !name.contains(']')
                && language.is_some_and(|language| language.chars().all(is_language))
        }
    }
}

/// Returns true for a valid interface name. An empty name is valid: the connection then fits any interface.
fn is_interface_name(name: &str) -> bool {
    let is_bad = |letter: char| letter.is_whitespace() || letter == '/' || letter == ':';
    name.is_empty() || (name.len() <= 15 && !name.contains(is_bad) && name != "." && name != "..")
}

/// Returns true if a value begins with an address of the family. An impossible prefix length is ignored.
fn has_address(value: &str, is_four: bool) -> bool {
    let first = value.split([',', ';', '/']).next().unwrap_or_default();
    let address = first.trim().parse::<std::net::IpAddr>();
    address.is_ok_and(|address| address.is_ipv4() == is_four)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_keyfile_are_judged() {
        for text in [
            "",
            "# a\n\n[connection]\nid=a\n  type = ethernet\n[ipv4]  \naddress1=192.0.2.1/24\nname[de]=b\n",
            "[a]\r\nb=c\r\n",
        ] {
            assert_eq!(find_bad_line(text), None, "{text}");
        }
        for (text, line) in [
            ("id=a\n", 1),
            ("[connection]\nid\n", 2),
            ("[connection]\n; a comment of another format\n", 2),
            ("[connection\nid=a\n", 1),
            ("[connection]\n=a\n", 2),
            ("[]\n", 1),
            ("[a]\n<<<<<<< HEAD\n", 2),
        ] {
            assert_eq!(
                find_bad_line(text).map(|(line, _)| line),
                Some(line),
                "{text}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn no_keyfile_ends_the_program(text in "[a-z\\[\\]=#; \\n\\r]{0,80}") {
            let _ = find_keyfile_fault(&text);
        }
    }

    /// STUB: only the parser is GLib's, through Python; NetworkManager itself is not installed here.
    const GLIB: &str = r#"
import ctypes, sys, json
try:
    g = ctypes.CDLL("libglib-2.0.so.0")
except OSError:
    sys.exit("no GLib")
g.g_key_file_new.restype = ctypes.c_void_p
g.g_key_file_load_from_data.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
for text in json.load(sys.stdin):
    data = text.encode()
    print(g.g_key_file_load_from_data(g.g_key_file_new(), data, len(data), 0, None))
"#;

    #[test]
    fn glib_takes_the_same_lines() {
        use std::io::Write;
        let pieces = [
            "[a]", "[a] ", " [a]", "[a]x", "[]", "[a[b]", "[a", "a]", "b=c", "b =c", " b=c", "=c",
            "b", "b[de]=c", "b[de=c", "b]=c", "[=c", "b[d e]=c", "#x", "# =", ";x", ";x=y",
            "\tb=c", "b=\u{e9}", "\u{e9}=b", "b=[x]", "[a]=c", "[a] # x", "b[]=c", "b[de]x=c",
            "[\u{1}]", "[ a ]", "b\t=c", "b c=d",
        ];
        let mut texts: Vec<String> = Vec::new();
        for one in pieces {
            texts.push(format!("{one}\n"));
            for other in pieces {
                texts.push(format!("[a]\n{one}\n{other}\n"));
            }
        }
        #[allow(clippy::disallowed_methods, reason = "a test that asks GLib")]
        let spawned = std::process::Command::new("python3")
            .args(["-c", GLIB])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn();
        let Ok(mut child) = spawned else {
            crate::skip::skip(crate::skip::Lacks::Setup, "no python3");
            return;
        };
        let json = serde_json::to_vec(&texts).unwrap();
        let _ = child.stdin.take().unwrap().write_all(&json);
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        if error.trim() == "no GLib" {
            crate::skip::skip(crate::skip::Lacks::Setup, "no GLib");
            return;
        }
        assert!(output.status.success(), "{error}");
        let said = String::from_utf8(output.stdout).unwrap();
        let mut wrong = Vec::new();
        for (text, says) in texts.iter().zip(said.lines()) {
            if find_bad_line(text).is_none() != (says == "1") {
                wrong.push((text, says));
            }
        }
        assert_eq!(said.lines().count(), texts.len());
        let taken = said.lines().filter(|says| *says == "1").count();
        assert!(taken > 100 && texts.len() - taken > 100, "{taken}");
        assert!(
            wrong.is_empty(),
            "{} of {}: {wrong:?}",
            wrong.len(),
            texts.len()
        );
    }
}
