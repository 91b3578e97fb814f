//! A real browser, without a network and with a home of its own: what it complains about, and what it lays out.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Lacks, is_root, skip};

/// Window of a phone.
pub(super) const PHONE: u32 = 390;
/// Window of a desk.
pub(super) const DESK: u32 = 1280;

/// What a browser made of a page.
#[derive(Debug)]
pub(super) struct Seen {
    /// The lines of its console; violations of the policy are among them.
    pub(super) console: Vec<String>,
    /// The text that a person sees.
    pub(super) text: String,
    /// Pixels by which the page is wider than the window.
    pub(super) overflow: i64,
    /// Elements that reach beyond the window, outside of boxes that scroll by themselves.
    pub(super) outside: Vec<String>,
    /// Tables that do not fit into their boxes, which scroll.
    pub(super) scrolled: Vec<String>,
    /// Rules of the style that are in force.
    pub(super) rules: i64,
    /// Elements that could run or load something.
    pub(super) active: i64,
}

/// Measures the page in a frame of this width, after what a person does.
const HARNESS: &str = r#"<!doctype html><meta charset="utf-8"><body style="margin:0">
<iframe id="f" src="PAGE" style="width:WIDTHpx;height:844px;border:0"></iframe>
<pre id="out"></pre>
<script>
addEventListener('load', () => {
  const d = document.getElementById('f').contentDocument, e = d.documentElement;
  ACTION
  const own = (x) => x.closest('.box') || x.closest('pre.diff');
  const outside = [...d.querySelectorAll('body *')]
    .filter((x) => !own(x) && x.getBoundingClientRect().right > WIDTH + 0.5)
    .map((x) => x.tagName + '.' + x.className);
  const all = {
    scrolled: [...d.querySelectorAll('.box')].filter((x) => x.scrollWidth > x.clientWidth).map((x) => x.innerText),
    text: d.body.innerText, overflow: e.scrollWidth - WIDTH, outside,
    rules: [...d.styleSheets].reduce((n, s) => n + s.cssRules.length, 0),
    active: d.querySelectorAll('script,img,iframe,link,object,embed,form,svg,video,audio').length,
  };
  document.getElementById('out').textContent = btoa(unescape(encodeURIComponent(JSON.stringify(all))));
});
</script>"#;

/// Shows a page; nothing where there is no browser.
pub(super) fn shown(page: &str, width: u32) -> Option<Seen> {
    shown_after(page, width, "")
}

/// Shows a page after a script has acted on its document `d`, as a person would.
pub(super) fn shown_after(page: &str, width: u32, action: &str) -> Option<Seen> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("page.html"), page).unwrap();
    let harness = HARNESS.replace("PAGE", "page.html");
    let harness = harness.replace("WIDTH", &width.to_string());
    let harness = harness.replace("ACTION", action);
    let file = dir.path().join("harness.html");
    fs::write(&file, harness).unwrap();
    let output = browse(dir.path(), &file, width)?;
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let packed = dom.split("<pre id=\"out\">").nth(1);
    let packed = packed.and_then(|rest| rest.split("</pre>").next());
    let packed = packed.filter(|text| !text.is_empty());
    let packed = packed.unwrap_or_else(|| panic!("no measurement: {dom}\n{errors}"));
    let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, packed).unwrap();
    let all: Value = serde_json::from_slice(&bytes).unwrap();
    let console = errors.lines().filter(|line| line.contains("CONSOLE"));
    Some(Seen {
        console: console.map(str::to_owned).collect(),
        text: all["text"].as_str().unwrap().to_owned(),
        overflow: all["overflow"].as_i64().unwrap(),
        outside: serde_json::from_value(all["outside"].clone()).unwrap(),
        scrolled: serde_json::from_value(all["scrolled"].clone()).unwrap(),
        rules: all["rules"].as_i64().unwrap(),
        active: all["active"].as_i64().unwrap(),
    })
}

fn browse(home: &Path, file: &Path, width: u32) -> Option<std::process::Output> {
    let program = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| {
            let mut command = Command::new(name);
            let command = command.arg("--version").stdin(Stdio::null());
            command.output().is_ok_and(|output| output.status.success())
        });
    let Some(program) = program else {
        skip(
            Lacks::Setup,
            "no browser looks at the pages (Debian: chromium)",
        );
        return None;
    };
    // Without any network, where that can be had; else without names.
    let mut command = if is_root() {
        Command::new("unshare")
    } else {
        Command::new(program)
    };
    if is_root() {
        command.args(["-n", program]);
    }
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--disable-background-networking", "--no-first-run"])
        .args(["--disable-dev-shm-usage", "--hide-scrollbars"])
        .args(["--allow-file-access-from-files", "--enable-logging=stderr"])
        .args([
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--virtual-time-budget=5000",
        ])
        .arg(format!("--window-size={width},844"))
        .arg(format!(
            "--user-data-dir={}",
            home.join("profile").display()
        ))
        .arg(format!("file://{}", file.display()))
        .env("HOME", home)
        .stdin(Stdio::null());
    Some(command.output().unwrap())
}

impl Seen {
    /// Nothing is refused, nothing runs, the style is in force, and nobody has to scroll sideways.
    #[track_caller]
    pub(super) fn is_well(&self) {
        assert_eq!(self.console, Vec::<String>::new());
        assert_eq!(self.active, 0);
        assert!(self.rules > 50, "{}", self.rules);
        assert!(self.overflow <= 0, "{self:?}");
        assert_eq!(self.outside, Vec::<String>::new());
    }

    /// All of these are visible.
    #[track_caller]
    pub(super) fn says(&self, all: &[&str]) {
        for one in all {
            assert!(self.text.contains(one), "no {one:?} in {}", self.text);
        }
    }
}

#[test]
fn the_harness_notices_what_is_wrong_with_a_page() {
    let page = crate::pages::node::page_of_a_sick_node();
    let with = |more: &str| page.replacen("<main", &format!("{more}<main"), 1);
    let Some(script) = shown(&with("<script>document.title='x'</script>"), PHONE) else {
        return;
    };
    assert!(
        script
            .console
            .iter()
            .any(|line| line.contains("Content Security Policy")),
        "{script:?}"
    );
    assert_eq!(script.active, 1);
    let image = shown(&with("<img src=\"http://192.0.2.1/x.png\">"), PHONE).unwrap();
    assert!(!image.console.is_empty(), "{image:?}");
    let wide = format!(
        "<div><span class=\"badge\">{}</span></div>",
        "x".repeat(400)
    );
    let wide = shown(&with(&wide), PHONE).unwrap();
    assert!(wide.overflow > 0 && !wide.outside.is_empty(), "{wide:?}");
    let style = page.replacen("</style>", "a{color:red}</style>", 1);
    let style = shown(&style, PHONE).unwrap();
    assert_eq!(style.rules, 0);
}
