//! Pages for a browser: `report.html` of a bundle, `fleet.html` of `report`, and the errors of `man --errors`. What a browser makes of them is asked of a
//! real one, where Chromium is installed.

mod browser;
mod errors;
mod fleet;
mod node;

/// The values of an attribute on a page.
fn values(page: &str, attribute: &str) -> Vec<String> {
    let begins = format!(" {attribute}=\"");
    let parts = page.split(&begins).skip(1);
    parts
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect()
}

/// Fails if a page could run or load anything, by its own text.
#[track_caller]
fn is_closed(page: &str) {
    for element in [
        "<script", "<img", "<iframe", "<link", "<object", "<form", "<base", "<svg",
    ] {
        assert!(
            !page.to_ascii_lowercase().contains(element),
            "{element}: {page}"
        );
    }
    for attribute in ["src", "style", "onclick", "onerror", "onload", "action"] {
        assert_eq!(values(page, attribute), Vec::<String>::new());
    }
    let links = values(page, "href");
    let places = values(page, "id");
    for link in links {
        let place = link.strip_prefix('#').map(str::to_owned);
        let place = place.unwrap_or_else(|| panic!("{link} leads out of the page"));
        assert!(places.contains(&place), "{link} leads nowhere: {places:?}");
    }
    // A page is kept: it has dates in UTC, and no ages.
    for age in ["just now", " ago", " days old"] {
        assert!(!page.contains(age), "{age}: {page}");
    }
    let policy = "content=\"default-src 'none'; style-src 'sha256-";
    assert_eq!(page.matches("Content-Security-Policy").count(), 1);
    assert!(page.contains(policy), "{page}");
    assert!(!page.contains("unsafe"), "{page}");
}
