//! Pages for a browser: a single file without any external resource. Only the page of errors has a script, which searches.
//!
//! Values in, a string out. `Html` is the only writer: every text passes through `Html::text`, which escapes it. The page's own
//! `Content-Security-Policy` forbids everything except its style and script, which are identified by their digests.

pub mod errors;
pub mod fleet;
pub mod node;
mod timeline;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::base::invocation::PrintedCommand;
use crate::base::text::make_printable;
use crate::diagnose::fleet::NodeVerdict;

/// The style of all pages.
const STYLE: &str = include_str!("style.css");
/// The beginning of every page of this program.
const BEGINNING: &str =
    "<!doctype html>\n<html lang=\"en\">\n<meta name=\"generator\" content=\"mco-rescue\">\n";

/// Returns true if a file begins like a page of this program, so that a newer page may replace it.
pub fn is_page(beginning: &[u8]) -> bool {
    beginning.starts_with(BEGINNING.as_bytes())
}

/// A page in progress. Names of elements and classes are constants of this program; everything else is a text.
#[derive(Debug, Default)]
struct Html {
    out: String,
}

impl Html {
    /// Begins an element.
    fn open(&mut self, element: &'static str, class: &str) -> &mut Self {
        self.out.push('<');
        self.out.push_str(element);
        if !class.is_empty() {
            self.attribute("class", class);
        }
        self.out.push('>');
        self
    }

    /// Opens an element with an attribute other than a class.
    fn open_with(&mut self, element: &'static str, name: &'static str, value: &str) -> &mut Self {
        self.out.push('<');
        self.out.push_str(element);
        self.attribute(name, value);
        self.out.push('>');
        self
    }

    fn attribute(&mut self, name: &'static str, value: &str) {
        self.out.push(' ');
        self.out.push_str(name);
        self.out.push_str("=\"");
        self.text(value);
        self.out.push('"');
    }

    /// Ends an element.
    fn close(&mut self, element: &'static str) -> &mut Self {
        self.out.push_str("</");
        self.out.push_str(element);
        self.out.push('>');
        self
    }

    /// Closes a block, and ends its line in the source.
    fn end(&mut self, element: &'static str) -> &mut Self {
        self.close(element);
        self.out.push('\n');
        self
    }

    /// Adds a text. Characters that have a meaning in HTML, or that hide or reverse text, are escaped.
    fn text(&mut self, text: &str) -> &mut Self {
        for c in make_printable(text).chars() {
            match c {
                '&' => self.out.push_str("&amp;"),
                '<' => self.out.push_str("&lt;"),
                '>' => self.out.push_str("&gt;"),
                '"' => self.out.push_str("&quot;"),
                '\'' => self.out.push_str("&#39;"),
                c => self.out.push(c),
            }
        }
        self
    }

    /// Adds an element that contains only a text.
    fn put(&mut self, element: &'static str, class: &str, text: &str) -> &mut Self {
        self.open(element, class).text(text).close(element)
    }

    /// Adds such an element on its own line.
    fn line(&mut self, element: &'static str, class: &str, text: &str) -> &mut Self {
        self.put(element, class, text);
        self.out.push('\n');
        self
    }

    /// Adds a heading with an anchor for links of this page.
    fn heading(&mut self, id: &str, text: &str) -> &mut Self {
        self.open_with("h2", "id", id).text(text).end("h2")
    }

    /// Adds the links to headings.
    fn links(&mut self, all: &[(&str, &str)]) {
        self.open("nav", "");
        for (id, text) in all {
            self.open_with("a", "href", &format!("#{id}"))
                .text(text)
                .close("a");
        }
        self.end("nav");
    }

    /// Opens a table in its own box, which scrolls in a narrow window.
    fn table(&mut self, class: &str, columns: &[&str]) {
        // With focus, the arrow keys scroll it.
        self.out.push_str("<div class=\"box\" tabindex=\"0\">");
        self.open("table", class);
        if !columns.is_empty() {
            self.open("thead", "").open("tr", "");
            for column in columns {
                self.put("th", "", column);
            }
            self.close("tr").end("thead");
        }
        self.open("tbody", "").out.push('\n');
    }

    /// Ends a table.
    fn end_table(&mut self) {
        self.close("tbody").close("table").end("div");
    }

    /// Adds the next step: a command to copy, or an instruction in words.
    fn step(&mut self, step: &str) {
        if PrintedCommand::new(step).is_instruction() {
            self.line("p", "", step)
        } else {
            self.line("pre", "command", step)
        };
    }

    /// Adds the first sentence of a page, with the next step.
    fn verdict(&mut self, verdict: &NodeVerdict) {
        self.line("p", "verdict", &verdict.sentence);
        if let Some(next) = &verdict.next {
            self.line("h4", "", "Next");
            self.step(next);
        }
    }

    /// Adds a label and its value to a list of facts.
    fn fact(&mut self, label: &str, value: &str, alarm: bool) {
        self.put("dt", "", label);
        self.line("dd", if alarm { "alarm" } else { "" }, value);
    }
}

/// Returns a complete page.
fn page(title: &str, class: &str, body: Html) -> String {
    page_with_script(title, class, body, "")
}

/// Returns a complete page with a script of this program, which the policy allows by its digest.
fn page_with_script(title: &str, class: &str, body: Html, script: &str) -> String {
    let allowed = match script {
        "" => String::new(),
        script => {
            let digest = STANDARD.encode(Sha256::digest(script.as_bytes()));
            format!("script-src 'sha256-{digest}'; ")
        }
    };
    let digest = STANDARD.encode(Sha256::digest(STYLE.as_bytes()));
    let mut html = Html {
        out: BEGINNING.to_owned(),
    };
    html.out.push_str("<meta charset=\"utf-8\">\n");
    html.out.push_str(&format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{digest}'; {allowed}\
         base-uri 'none'; form-action 'none'\">\n"
    ));
    html.out.push_str(
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n",
    );
    html.line("title", "", title);
    html.out.push_str(&format!("<style>{STYLE}</style>\n"));
    html.open("body", class).out.push('\n');
    html.out.push_str(&body.out);
    if !script.is_empty() {
        html.out.push_str(&format!("<script>{script}</script>\n"));
    }
    html.end("body").end("html");
    html.out
}

/// Shortens a text for a table by cutting out the middle of a digest.
fn short(text: &str) -> String {
    let is_digest = |part: &str| part.len() >= 32 && part.chars().all(|c| c.is_ascii_hexdigit());
    let mut out = String::new();
    let mut part = String::new();
    let flush = |part: &mut String, out: &mut String| {
        if is_digest(part) {
            out.extend(part.chars().take(12));
            out.push('\u{2026}');
        } else {
            out.push_str(part);
        }
        part.clear();
    };
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            part.push(c);
        } else {
            flush(&mut part, &mut out);
            out.push(c);
        }
    }
    flush(&mut part, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_an_element_or_leaves_its_attribute() {
        let mut html = Html::default();
        html.open_with("a", "href", "\" onclick=\"x")
            .text("<script>alert('&')</script>\u{202e}\u{1b}[31m")
            .close("a");
        assert_eq!(
            html.out,
            "<a href=\"&quot; onclick=&quot;x\">&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;\
             \\u{202e}\\u{1b}[31m</a>"
        );
    }

    #[test]
    fn the_style_is_the_one_that_the_policy_allows() {
        let page = page("t", "", Html::default());
        let style = page.split("<style>").nth(1).unwrap();
        let style = style.split("</style>").next().unwrap();
        let digest = STANDARD.encode(Sha256::digest(style.as_bytes()));
        assert!(page.contains(&format!("style-src 'sha256-{digest}'")));
        assert!(!style.contains("url(") && !style.contains("@import"));
        assert!(is_page(page.as_bytes()) && !is_page(b"<!doctype html>\n<html>"));
    }

    #[test]
    fn digests_are_shortened_and_nothing_else() {
        let digest = "0123456789abcdef0123456789abcdef";
        assert_eq!(
            short(&format!("rendered-worker-{digest}")),
            "rendered-worker-0123456789ab\u{2026}"
        );
        assert_eq!(short("quay.example/os:4.18"), "quay.example/os:4.18");
    }
}
