//! Text that is part of a document and shares the document's memory.
//!
//! Nearly all of a rendered config is the contents of its files. They stay where they were read: neither the model nor the
//! record nor the plan has a copy.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

thread_local! {
    /// The document that is being parsed, for values that are created where nothing can be passed down.
    static WHOLE: RefCell<Option<Arc<String>>> = const { RefCell::new(None) };
}

/// A string, or a part of a document. The whole document is kept as long as one of its parts exists.
#[derive(Clone, Default)]
pub struct Text {
    whole: Arc<String>,
    at: Range<usize>,
}

impl Text {
    /// Shares `part` without a copy if it belongs to the document that is being parsed; otherwise copies it.
    pub fn from_part(part: &str) -> Self {
        let shared = WHOLE.with_borrow(|whole| {
            let whole = whole.as_ref()?;
            let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
            let at = start..start.checked_add(part.len())?;
            let found = whole.get(at.clone())?;
            std::ptr::eq(found, part).then(|| Self {
                whole: Arc::clone(whole),
                at,
            })
        });
        shared.unwrap_or_else(|| part.to_owned().into())
    }

    /// Returns true if this is all of `document`, apart from surrounding blanks, and shares its memory.
    pub fn is_all_of(&self, document: &Self) -> bool {
        Arc::ptr_eq(&self.whole, &document.whole) && self.trim().len() == document.trim().len()
    }

    /// Parses a document: while `read` runs, each [`Text`] created from a part of `self` shares its memory.
    pub fn read_shared<T>(&self, read: impl FnOnce(&str) -> T) -> T {
        let before = WHOLE.replace(Some(Arc::clone(&self.whole)));
        let _again = Again(before);
        read(self)
    }
}

/// Restores the document that was being parsed before, even if a parser panics.
struct Again(Option<Arc<String>>);

impl Drop for Again {
    fn drop(&mut self) {
        WHOLE.set(self.0.take());
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        let at = 0..text.len();
        Self {
            whole: Arc::new(text),
            at,
        }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.whole.get(self.at.clone()).unwrap_or_default()
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text {}

/// Shows only the length, because the text may be a secret.
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.len())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Parts)
    }
}

struct Parts;

impl<'de> Visitor<'de> for Parts {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Text, E> {
        Ok(Text::from_part(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(text.to_owned().into())
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Text, E> {
        Ok(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(document: &Text) -> Vec<Text> {
        document
            .read_shared(|text| serde_json::from_str(text))
            .unwrap()
    }

    #[test]
    fn parts_share_the_memory_of_their_document_and_outlive_it() {
        let document = Text::from(r#"["plain", "with \"quotes\""]"#.to_owned());
        let all = parts(&document);
        assert!(Arc::ptr_eq(&all[0].whole, &document.whole));
        assert!(!Arc::ptr_eq(&all[1].whole, &document.whole));
        assert!(!all[0].is_all_of(&document) && !all[1].is_all_of(&document));
        drop(document);
        assert_eq!((&*all[0], &*all[1]), ("plain", "with \"quotes\""));
    }

    #[test]
    fn nothing_else_is_taken_for_a_part() {
        let document = Text::from(r#"["inner"]"#.to_owned());
        let other = String::from("inner");
        let text = document.read_shared(|_| Text::from_part(&other));
        assert!(!Arc::ptr_eq(&text.whole, &document.whole));
        assert_eq!(&*text, "inner");
        let later = Text::from_part(&document);
        assert!(!Arc::ptr_eq(&later.whole, &document.whole));
    }

    #[test]
    fn a_document_inside_another_is_read_by_itself() {
        let outer = Text::from(r#"["a"]"#.to_owned());
        let inner = Text::from(r#"["b"]"#.to_owned());
        outer.read_shared(|text| {
            let of_inner = parts(&inner);
            assert!(Arc::ptr_eq(&of_inner[0].whole, &inner.whole));
            let own: Vec<Text> = serde_json::from_str(text).unwrap();
            assert!(Arc::ptr_eq(&own[0].whole, &outer.whole));
        });
    }
}
