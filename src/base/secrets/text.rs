//! Secrets in a file's text: settings in all common formats, line by line.

use std::ops::Range;

use super::names::{NameKind, kind_of};
use super::values::is_secret_value;
use super::{Secret, arguments, marks, url};

const WHY: &str = "it has a setting that looks like a password";
/// Longer lines are program data, in which no prose is searched.
const MAX_PROSE: usize = 4096;

/// Returns the secrets of a text, sorted and without overlaps. Runs in linear time.
pub fn find_secrets(text: &str) -> Vec<Secret> {
    let mut all = Vec::new();
    marks::find_blocks(text, &mut all);
    let mut scan = Scan::for_text(text);
    let mut start = 0;
    for whole in text.split_inclusive('\n') {
        let line = whole.trim_end_matches(['\n', '\r']);
        let mut found = Vec::new();
        marks::find_marks(line, 0, &mut found);
        found.extend(url::find_logins(line).map(|at| Secret {
            at,
            why: marks::WHY_LOGIN,
        }));
        scan.scan_line(line, &mut found);
        all.extend(found.into_iter().map(|one| Secret {
            at: start + one.at.start..start + one.at.end,
            why: one.why,
        }));
        start += whole.len();
    }
    let is_hidden = |one: &Secret| {
        text.get(one.at.start..)
            .is_some_and(|text| text.starts_with("(secret"))
    };
    all.retain(|one| !is_hidden(one));
    marks::in_order(all)
}

/// What earlier lines imply for the next one.
#[derive(Debug, Default)]
struct Scan {
    /// Lines indented more than this belong to a secret value.
    block: Option<Block>,
    /// The name of a variable indicates a secret: its value follows.
    is_named: bool,
    /// A list item was an option such as `--password`: its value is the next item.
    is_option: bool,
    /// The text is a Kubernetes `Secret`.
    is_object: bool,
}

/// Lines below a key.
#[derive(Debug, Clone, Copy)]
struct Block {
    indent: usize,
    /// Each line has its own key, which is kept.
    has_keys: bool,
}

/// A name in a line, with its surroundings.
#[derive(Debug, Clone, Copy)]
struct Name<'a> {
    line: &'a str,
    /// Start of the name, including the dashes of an option.
    start: usize,
    end: usize,
    name: &'a str,
    is_option: bool,
    is_comment: bool,
}

impl Scan {
    fn for_text(text: &str) -> Self {
        let small = |form: &str| text.contains(form);
        let is_object = small("kind: Secret\n")
            || small("\"kind\":\"Secret\"")
            || small("\"kind\": \"Secret\"")
            || text.ends_with("kind: Secret");
        Self {
            is_object,
            ..Self::default()
        }
    }

    fn scan_line(&mut self, line: &str, all: &mut Vec<Secret>) {
        let body = line.trim_start();
        let indent = line.len() - body.len();
        if let Some(block) = self.block {
            if body.is_empty() {
                return;
            }
            if indent > block.indent {
                all.extend(of_block(line, indent, block).map(secret_at));
                return;
            }
            self.block = None;
        }
        if std::mem::take(&mut self.is_option) && body.starts_with(['-', '"', '\'']) {
            all.extend(of_item(line).map(secret_at));
            return;
        }
        if line.len() <= MAX_PROSE {
            all.extend(of_command(line).map(secret_at));
        }
        all.extend(arguments::of_scheme(line).map(secret_at));
        self.scan_names(line, indent, all);
        let item = body
            .trim_start_matches("- ")
            .trim_matches(['"', '\'', ',', ' ']);
        let is_option = item.starts_with('-') && kind_of(item) == Some(NameKind::Secret);
        self.is_option = is_option && !item.contains([' ', '=', ':']);
    }

    /// Finds the names in a line, and adds the values of those that are secret.
    fn scan_names(&mut self, line: &str, indent: usize, all: &mut Vec<Secret>) {
        let body = line.trim_start();
        let is_comment = body.starts_with(['#', ';']) || body.starts_with("//");
        let bytes = line.as_bytes();
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            if !is_letter(*byte) {
                at += 1;
                continue;
            }
            let length = bytes
                .get(at..)
                .unwrap_or_default()
                .iter()
                .take_while(|byte| is_letter(**byte))
                .count();
            let end = at + length;
            let whole = line.get(at..end).unwrap_or_default();
            let bare = whole.trim_start_matches(['-', '.']);
            let name = Name {
                line,
                start: at,
                end,
                name: bare,
                is_option: whole.starts_with('-') && bare.len() < whole.len(),
                is_comment,
            };
            at = self.scan_name(name, indent, all).unwrap_or(end).max(end);
        }
    }

    /// Adds the value of a name. Returns where the next name may begin.
    fn scan_name(&mut self, name: Name<'_>, indent: usize, all: &mut Vec<Secret>) -> Option<usize> {
        let kind = self.kind_of_name(name);
        if kind.is_none() && !is_known(name.name) {
            return None;
        }
        if let Some(kind) = kind
            && let Some(value) = name.element_value()
        {
            let text = name.line.get(value.clone())?;
            if is_secret_value(kind, text, true) {
                all.push(secret_at(value.clone()));
            }
            return Some(value.end);
        }
        let Some(value) = name.value() else {
            let value = kind.and_then(|kind| name.next_word(kind))?;
            all.push(secret_at(value.clone()));
            return Some(value.end);
        };
        let text = name.line.get(value.at.clone())?;
        if self.is_object && matches!(name.name, "data" | "stringData") {
            return self.scan_object(name, value.at.start, indent, all);
        }
        if arguments::is_credential(name.name) {
            let found = arguments::of_credential(text)?;
            let at = value.at.start + found.start..value.at.start + found.end;
            all.push(secret_at(at));
            return Some(value.at.end);
        }
        if matches!(name.name, "name" | "key") && kind.is_none() {
            let is_word = !text.contains(char::is_whitespace);
            self.is_named = is_word && kind_of(text) == Some(NameKind::Secret);
            return None;
        }
        if matches!(name.name, "user" | "username") {
            let (user, word) = text.split_once('%')?;
            let at = value.at.end - word.len()..value.at.end;
            (!user.is_empty() && word.len() > 2).then(|| all.push(secret_at(at)));
            return None;
        }
        let kind = kind?;
        if text.starts_with(['|', '>']) && text.len() < 4 {
            self.block = Some(Block {
                indent,
                has_keys: false,
            });
            return None;
        }
        if name.is_list_of_names(text) {
            return None;
        }
        if is_secret_value(kind, text, value.quoted) {
            all.push(secret_at(value.at.clone()));
            return Some(value.at.end);
        }
        value.quoted.then_some(value.at.end)
    }

    /// Adds the data of a `Secret`: on the same line, or on the lines below.
    fn scan_object(
        &mut self,
        name: Name<'_>,
        start: usize,
        indent: usize,
        all: &mut Vec<Secret>,
    ) -> Option<usize> {
        let rest = name.rest(start);
        if rest.trim_matches(['{', ' ']).is_empty() {
            self.block = Some(Block {
                indent,
                has_keys: true,
            });
            return None;
        }
        let mut depth = 0;
        let end = rest.find(|c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0
        });
        let end = start + end.map_or(rest.len(), |end| end + 1);
        (!rest.starts_with("(secret")).then(|| all.push(secret_at(start..end)));
        Some(end)
    }

    fn kind_of_name(&mut self, name: Name<'_>) -> Option<NameKind> {
        if name.name == "value" && std::mem::take(&mut self.is_named) {
            return Some(NameKind::Secret);
        }
        kind_of(name.name).filter(|_| !name.is_reference())
    }
}

fn secret_at(at: Range<usize>) -> Secret {
    Secret { at, why: WHY }
}

/// Returns true for names that are not secret themselves, but lead to a secret.
fn is_known(name: &str) -> bool {
    matches!(
        name,
        "name" | "key" | "data" | "stringData" | "user" | "username"
    ) || arguments::is_credential(name)
}

/// A value in a line.
#[derive(Debug, Clone)]
struct Value {
    at: Range<usize>,
    quoted: bool,
}

impl<'a> Name<'a> {
    fn rest(&self, from: usize) -> &'a str {
        self.line.get(from..).unwrap_or_default()
    }

    fn before(&self) -> &'a str {
        self.line.get(..self.start).unwrap_or_default()
    }

    /// Returns true for a path or a variable with this name.
    fn is_reference(&self) -> bool {
        let is_assigned = self.rest(self.end).starts_with('=');
        let before = self.before();
        before.ends_with(['$', '@'])
            || before.ends_with("${")
            || before.ends_with('/') && !is_assigned
    }

    /// Returns the value of an XML element.
    fn element_value(&self) -> Option<Range<usize>> {
        let before = self
            .before()
            .trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == ':');
        before.strip_suffix('<')?;
        let rest = self.rest(self.end);
        let open = rest.find('>')?;
        let has_value = rest.get(..open)?.contains("value=");
        let from = self.end + open + 1;
        let value = self.rest(from);
        let end = value.find('<').unwrap_or(value.len());
        (!has_value && end > 0).then_some(from..from + end)
    }

    /// Returns the value after an equals sign or a colon.
    fn value(&self) -> Option<Value> {
        let (quote, mut at) = self.closing_quote();
        at += count_blanks(self.rest(at));
        let rest = self.rest(at);
        let sign = [":=", "=>", "=", ":"]
            .into_iter()
            .find(|sign| rest.starts_with(sign));
        let sign = sign.or_else(|| {
            (self.is_option && quote.is_some() && rest.starts_with(',')).then_some(",")
        })?;
        if rest.starts_with("==") || rest.starts_with("=~") || rest.starts_with("::") {
            return None;
        }
        at += sign.len();
        at += count_blanks(self.rest(at));
        let is_first = self.is_first_of_line();
        let rest = self.rest(at);
        for quote in ["\\\"", "\"", "'"] {
            if let Some(body) = rest.strip_prefix(quote) {
                let end = end_of_quoted(body, quote, is_first);
                let start = at + quote.len();
                return Some(Value {
                    at: start..start + end,
                    quoted: true,
                });
            }
        }
        let end = self.end_of_bare(rest, sign, quote.is_some(), is_first);
        let text = rest.get(..end).unwrap_or_default();
        let scheme = [
            "Bearer ", "Basic ", "Token ", "Digest ", "bearer ", "basic ",
        ];
        let skipped = scheme.iter().find(|scheme| text.starts_with(**scheme));
        let start = at + skipped.map_or(0, |scheme| scheme.len());
        let kept = text.trim_end_matches([',', ';', ' ', '\t']).len();
        Some(Value {
            at: start..(at + kept).max(start),
            quoted: false,
        })
    }

    /// Returns where an unquoted value ends.
    fn end_of_bare(&self, rest: &str, sign: &str, is_quoted: bool, is_first: bool) -> usize {
        let find = |ends: &[char]| rest.find(|c: char| ends.contains(&c)).unwrap_or(rest.len());
        let before = self.before();
        let opened = before
            .chars()
            .next_back()
            .filter(|c| matches!(c, '"' | '\'' | '`'));
        if let Some(quote) = opened.filter(|_| !is_quoted) {
            return end_of_quoted(rest, quote.encode_utf8(&mut [0; 4]), false);
        }
        if before.ends_with(['?', '&']) {
            return find(&['&', '#', ' ', '\t', '"', '\'', '<', '>', '`']);
        }
        if is_first {
            return without_comment(rest).len();
        }
        if sign == ":" && before.len() <= MAX_PROSE && before.contains('{') {
            return find(&[',', '}']);
        }
        if rest.starts_with("Bearer ")
            || rest.starts_with("Basic ")
            || self.name.eq_ignore_ascii_case("cookie")
        {
            return find(&['"', '\'', '`']);
        }
        find(&[
            ',', ' ', '\t', '"', '\'', '<', '>', '`', '}', ']', ')', '\\',
        ])
    }

    /// Returns the quote that closes a quoted name, and the end of the name including it.
    fn closing_quote(&self) -> (Option<&'static str>, usize) {
        let rest = self.rest(self.end);
        let quotes = ["\\\"", "\"", "'"];
        let found = quotes
            .into_iter()
            .find(|quote| rest.starts_with(quote) && self.before().ends_with(quote));
        (found, self.end + found.map_or(0, str::len))
    }

    /// Returns true for the first name of a line, so that the rest of the line is its value.
    fn is_first_of_line(&self) -> bool {
        let marks = |c: char| c.is_whitespace() || "-#;/*!\"'".contains(c);
        let before = self.before();
        if before.len() > 200 || self.is_option {
            return false;
        }
        let before = before.trim_matches(marks);
        matches!(
            before,
            "" | "export" | "set" | "setenv" | "local" | "readonly" | "declare -x" | "env" | "var"
        )
    }

    /// Returns true for the sources of `passwd` in nsswitch.conf, and for prose in a comment.
    fn is_list_of_names(&self, value: &str) -> bool {
        let sources = [
            "files",
            "sss",
            "systemd",
            "altfiles",
            "compat",
            "ldap",
            "nis",
            "db",
            "winbind",
            "extrausers",
        ];
        let first = value.split_whitespace().next().unwrap_or_default();
        let is_prose =
            || self.rest(self.end).starts_with(':') && value.split_whitespace().count() > 2;
        self.name == "passwd" && sources.contains(&first) || self.is_comment && is_prose()
    }

    /// Returns the secret that follows a name after a blank: of an option, in netrc, or of a quoted word.
    fn next_word(&self, kind: NameKind) -> Option<Range<usize>> {
        let gap = count_blanks(self.rest(self.end));
        if gap == 0 || !matches!(kind, NameKind::Secret | NameKind::Pass) {
            return None;
        }
        if let Some(word) = self.third_word() {
            return Some(word);
        }
        let at = self.end + gap;
        let rest = self.rest(at);
        let quoted = rest.starts_with(['"', '\'']);
        let value = match rest.chars().next().filter(|_| quoted) {
            Some(quote) => {
                let end = end_of_quoted(rest.get(1..)?, quote.encode_utf8(&mut [0; 4]), false);
                at + 1..at + 1 + end
            }
            None => {
                let end = rest
                    .find(|c: char| c.is_whitespace() || "\"'`<>".contains(c))
                    .unwrap_or(rest.len());
                let word = rest.get(..end)?.trim_end_matches([';', ',', ')', ']', '}']);
                at..at + word.len()
            }
        };
        let text = self.line.get(value.clone())?;
        let is_variable = text.strip_prefix('$').is_some_and(|name| {
            name.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        });
        let is_taken = if self.is_option {
            !text.starts_with(['-', '=', ':', '|', '&'])
        } else {
            self.leads_to(text, quoted)
        };
        (is_taken && !is_variable && is_secret_value(kind, text, quoted)).then_some(value)
    }

    /// Returns the last word of `password root WORD` and `rootpw --plaintext WORD`.
    fn third_word(&self) -> Option<Range<usize>> {
        if !matches!(self.name, "password" | "rootpw") || self.line.len() > MAX_PROSE {
            return None;
        }
        let words: Vec<&str> = self.line.split_whitespace().collect();
        let [first, second, last] = words.as_slice() else {
            return None;
        };
        let is_pam = is_control(Some(second)) || last.contains("pam_");
        let is_one = *first == self.name && !is_pam;
        let end = self.line.trim_end().len();
        let is_secret = is_secret_value(NameKind::Secret, last, false);
        (is_one && is_secret).then_some(end - last.len()..end)
    }

    /// Returns true if the line has a format in which blanks separate names and values.
    fn leads_to(&self, value: &str, quoted: bool) -> bool {
        let name = self.name.to_ascii_lowercase();
        let is_name = matches!(
            name.as_str(),
            "password"
                | "passwd"
                | "passphrase"
                | "secret"
                | "psk"
                | "token"
                | "pass"
                | "auth_pass"
                | "bindpw"
                | "rootbindpw"
                | "rootpw"
                | "requirepass"
                | "rocommunity"
                | "rwcommunity"
                | "insecure-password"
                | "ldap_default_authtok"
                | "authorization"
                | "credential"
        );
        if !is_name || self.line.len() > MAX_PROSE {
            return false;
        }
        if quoted && value.len() > 1 {
            return !value.contains(char::is_whitespace) || name == "psk" || name == "secret";
        }
        let words: Vec<&str> = self.line.split_whitespace().collect();
        let (first, last) = (words.first().copied(), words.last().copied());
        let is_last = last.is_some_and(|word| word.trim_end_matches(';') == value);
        let is_pam = words
            .iter()
            .skip(1)
            .any(|word| word.contains("pam_") || word.ends_with("-auth"));
        let has = |all: &[&str]| words.iter().any(|word| all.contains(word));
        let of_login =
            has(&["machine", "login", "neighbor", "account", "default"]) || first == Some("user");
        let is_alone = first == Some(self.name)
            && is_last
            && words.len() <= 3
            && !is_control(words.get(1).copied());
        !self.is_comment
            && !is_pam
            && (of_login && words.len() <= 12 || is_alone && self.name == name)
    }
}

/// Returns true for a PAM control, which decides what happens if a module fails.
fn is_control(word: Option<&str>) -> bool {
    let controls = [
        "required",
        "requisite",
        "sufficient",
        "optional",
        "include",
        "substack",
    ];
    word.is_some_and(|word| controls.contains(&word) || word.starts_with('['))
}

fn count_blanks(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t']).len()
}

/// Returns a text without a comment that follows a blank.
fn without_comment(text: &str) -> &str {
    let end = text.find(" #").unwrap_or(text.len());
    let kept = text.get(..end).unwrap_or(text).trim_end();
    if kept.is_empty() { text } else { kept }
}

/// Returns the length of a quoted text. At the end of a line, quotes inside it belong to it.
fn end_of_quoted(body: &str, quote: &str, is_first: bool) -> usize {
    let mut from = 0;
    let first = loop {
        let Some(at) = body.get(from..).and_then(|rest| rest.find(quote)) else {
            return body.len();
        };
        let at = from + at;
        let before = body.get(..at).unwrap_or_default();
        let slashes = before.len() - before.trim_end_matches('\\').len();
        if quote == "'" || slashes % 2 == 0 {
            break at;
        }
        from = at + quote.len();
    };
    let after = body
        .get(first + quote.len()..)
        .unwrap_or_default()
        .trim_start();
    let is_end =
        after.is_empty() || after.starts_with([',', ';', '#', '}', ']', '\\', ')', '/', ':']);
    if is_first && !is_end {
        body.rfind(quote).unwrap_or(first)
    } else {
        first
    }
}

/// Returns the value of a line below a key.
fn of_block(line: &str, indent: usize, block: Block) -> Option<Range<usize>> {
    let body = line.get(indent..)?;
    let key = if block.has_keys {
        body.find(": ")
            .or_else(|| body.find("\":"))
            .map_or(0, |at| at + 2)
    } else {
        0
    };
    let start = indent + key;
    let value = line.get(start..)?;
    let is_mark = |c: char| c.is_whitespace() || "\"',{}|".contains(c);
    let kept = value.trim_end_matches(is_mark).len();
    let skipped = value.len() - value.trim_start_matches(is_mark).len();
    let is_hidden = value
        .get(skipped..)
        .is_some_and(|value| value.starts_with("(secret"));
    (skipped < kept && !is_hidden).then_some(start + skipped..start + kept)
}

/// Returns a list item.
fn of_item(line: &str) -> Option<Range<usize>> {
    let is_mark = |c: char| c.is_whitespace() || "\"',".contains(c);
    let start = line.len()
        - line
            .trim_start()
            .trim_start_matches("- ")
            .trim_start_matches(is_mark)
            .len();
    let end = line.trim_end_matches(is_mark).len();
    let value = line.get(start..end)?;
    (!value.starts_with('-') && is_secret_value(NameKind::Secret, value, true))
        .then_some(start..end)
}

/// Returns the secret of a command, or of a file without names.
fn of_command(line: &str) -> Option<Range<usize>> {
    of_curl(line)
        .or_else(|| of_pipe(line))
        .or_else(|| of_words(line))
        .or_else(|| of_pgpass(line))
        .or_else(|| of_chrony(line))
        .or_else(|| of_bearer(line))
}

/// Returns the secret of `curl -u user:word`.
fn of_curl(line: &str) -> Option<Range<usize>> {
    line.find("curl")?;
    for option in [
        " -u ",
        " -u",
        " --user ",
        " --user=",
        " -U ",
        " --proxy-user ",
        " --proxy-user=",
    ] {
        let Some(at) = line.find(option) else {
            continue;
        };
        let rest = line.get(at + option.len()..)?;
        let open = rest.len() - rest.trim_start_matches(['"', '\'']).len();
        let end = rest
            .get(open..)?
            .find(|c: char| c.is_whitespace() || "\"'".contains(c));
        let word = rest.get(open..end.map_or(rest.len(), |end| open + end))?;
        let (user, word_of) = word.split_once(':')?;
        let start = at + option.len() + open + user.len() + 1;
        if is_secret_value(NameKind::Secret, word_of, false) {
            return Some(start..start + word_of.len());
        }
    }
    None
}

/// Returns the secret of `echo word | passwd --stdin`, `chpasswd <<< user:word`.
fn of_pipe(line: &str) -> Option<Range<usize>> {
    let reads = [
        "passwd --stdin",
        "--password-stdin",
        "chpasswd",
        "cryptsetup",
        "--passphrase-fd",
        "sudo -S",
    ];
    reads.iter().find_map(|program| line.find(program))?;
    let here = line.find("<<<").map(|at| at + 3);
    let echo = ["echo ", "printf "]
        .iter()
        .find_map(|word| Some(line.find(word)? + word.len()));
    let start = here.or(echo)?;
    let rest = line.get(start..)?;
    let end = match here {
        Some(_) => rest.len(),
        None => rest.find('|')?,
    };
    let mut words = rest.get(..end)?.trim();
    let mut start = start + count_blanks(rest);
    while words.starts_with('-') {
        let after = words.find(' ')? + 1;
        words = words.get(after..)?;
        start += after;
    }
    let open = words.len() - words.trim_start_matches(['"', '\'']).len();
    let kept = words.trim_matches(['"', '\'']);
    let user = if line.contains("chpasswd") {
        kept.find(':').map_or(0, |at| at + 1)
    } else {
        0
    };
    let kept = kept.get(user..)?;
    let start = start + open + user;
    is_secret_value(NameKind::Secret, kept, false).then_some(start..start + kept.len())
}

/// Returns the secret of `IDENTIFIED BY 'word'`, `sshpass -p word`, `createUser name SHA word AES word`, `stats auth name:word`.
fn of_words(line: &str) -> Option<Range<usize>> {
    let small = line.to_ascii_lowercase();
    let forms = [
        ("identified by ", false),
        ("sshpass -p ", false),
        ("sshpass -p", false),
        ("createuser ", true),
        ("stats auth ", true),
    ];
    let (form, is_rest) = forms.into_iter().find(|(form, _)| small.contains(form))?;
    let start = small.find(form)? + form.len();
    let rest = line.get(start..)?;
    let open = rest.len() - rest.trim_start_matches(['"', '\'']).len();
    let name = if is_rest {
        rest.find([' ', ':']).map_or(0, |at| at + 1)
    } else {
        open
    };
    let value = rest.get(name..)?;
    let end = if is_rest {
        value.len()
    } else {
        value
            .find(|c: char| c.is_whitespace() || "\"';".contains(c))
            .unwrap_or(value.len())
    };
    let value = value.get(..end)?;
    let start = start + name;
    is_secret_value(NameKind::Secret, value, false).then_some(start..start + end)
}

/// Returns the secret of `host:port:database:user:word`.
fn of_pgpass(line: &str) -> Option<Range<usize>> {
    let mut parts = line.splitn(5, ':');
    let (host, port, base, user, word) = (
        parts.next()?,
        parts.next()?,
        parts.next()?,
        parts.next()?,
        parts.next()?,
    );
    let is_port = port == "*" || port.len() >= 4 && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = |text: &str| {
        text == "*"
            || text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    let is_host =
        (is_name(host) || host.contains('.')) && !host.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_one = is_host && is_port && is_name(base) && is_name(user);
    (is_one && !word.is_empty() && !word.contains([' ', ':']))
        .then_some(line.len() - word.len()..line.len())
}

/// Returns the secret of `1 SHA256 HEX:...` in a file with keys of time servers.
fn of_chrony(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_whitespace();
    let (number, kind_of, key) = (words.next()?, words.next()?, words.next()?);
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let is_kind = ["MD5", "SHA", "AES", "M"]
        .iter()
        .any(|name| kind_of.starts_with(name));
    let is_end = words.next().is_none() && line.ends_with(key);
    let is_key = key.starts_with("HEX:") || key.starts_with("ASCII:") || key.len() >= 16;
    (is_number && is_kind && is_end && is_key).then_some(line.len() - key.len()..line.len())
}

/// Returns the secret of `Bearer TOKEN`, unless it is a word of a sentence.
fn of_bearer(line: &str) -> Option<Range<usize>> {
    let start = line.find("Bearer ").or_else(|| line.find("bearer "))? + "Bearer ".len();
    let rest = line.get(start..)?;
    let is_token = |c: char| c.is_ascii_alphanumeric() || "_-.~+/=".contains(c);
    let word = rest.get(..rest.find(|c: char| !is_token(c)).unwrap_or(rest.len()))?;
    let is_word = word
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte == b'.');
    (word.len() >= 8 && (!is_word || word.len() > 15)).then_some(start..start + word.len())
}
