//! The kernel arguments of an image: `/usr/lib/bootc/kargs.d/*.toml`. `bootc switch` applies the difference between two images;
//! rpm-ostree and plain ostree ignore them.

use std::env::consts::ARCH;

use serde::Deserialize;

use crate::base::kargs::{Kargs, KargsChange};
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};
use crate::node::images::tree::ImageTree;

/// The directory, below the root of an image.
const DIRECTORY: &str = "usr/lib/bootc/kargs.d";

/// A file in it. bootc refuses unknown keys.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ArgumentsFile {
    kargs: Vec<String>,
    #[serde(default)]
    match_architectures: Option<Vec<String>>,
}

/// Returns the arguments that the image of a root brings to this machine, in the order of the files.
///
/// # Errors
/// A file that cannot be read or that bootc refuses, in words.
pub fn read_image_arguments(root: &Root) -> Result<Kargs, Reason> {
    let directory = RootPath::fixed(DIRECTORY);
    let names = root.list(&directory).map_err(Reason::from_error)?;
    let mut names: Vec<String> = names
        .into_iter()
        .filter(|name| name.ends_with(".toml"))
        .collect();
    names.sort();
    let mut all = Vec::new();
    for name in names {
        let path = directory.join(&name).map_err(Reason::from_error)?;
        let bytes = root.read(&path).map_err(Reason::from_error)?;
        let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
        all.extend(parse_image_arguments(&text, ARCH).map_err(|why| format!("{path}: {why}"))?);
    }
    Ok(Kargs::from_entries(&all))
}

/// Returns the same for the tree of an image.
///
/// # Errors
/// A file whose content is not known or that bootc refuses, in words.
pub fn of_tree(tree: &ImageTree) -> Result<Kargs, Reason> {
    let is_file = |path: &&str| {
        let name = path.strip_prefix(DIRECTORY).unwrap_or(path);
        name.ends_with(".toml") && !name.trim_start_matches('/').contains('/')
    };
    let mut all = Vec::new();
    for path in tree.files_below(DIRECTORY).filter(is_file) {
        let text = tree
            .read_text(path)
            .map_err(|why| format!("{path}: {why}"))?;
        all.extend(
            parse_image_arguments(&text.unwrap_or_default(), ARCH)
                .map_err(|why| format!("{path}: {why}"))?,
        );
    }
    Ok(Kargs::from_entries(&all))
}

/// Returns the arguments of a node whose image is replaced, as `bootc switch` makes them: those of the running image go unless
/// the new one brings them too, and those of the new image come.
pub fn carry_over(present: &Kargs, running: &Kargs, new: &Kargs) -> Kargs {
    let gone = running.missing_from(new).into_iter();
    let gone = gone.map(|token| KargsChange::Delete(token.to_owned()));
    let come = new.missing_from(running).into_iter();
    let come = come.map(|token| KargsChange::Append(token.to_owned()));
    present.cured_by(&gone.chain(come).collect::<Vec<_>>())
}

fn parse_image_arguments(text: &str, architecture: &str) -> Result<Vec<String>, Reason> {
    let file: ArgumentsFile =
        toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())?;
    let fits = match &file.match_architectures {
        Some(all) => all.iter().any(|one| one == architecture),
        None => true,
    };
    Ok(if fits { file.kargs } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_difference_between_two_images_is_carried_over() {
        let of = |line| Kargs::parse(line);
        let carried =
            |present, running, new| carry_over(&of(present), &of(running), &of(new)).to_string();
        assert_eq!(
            carried("rw a=1 b=1 a=1", "a=1 b=1", "b=1 c=1"),
            "rw b=1 c=1"
        );
        // An argument that both bring, and that an administrator took away, stays away.
        assert_eq!(carried("rw", "b=1", "b=1"), "rw");
        assert_eq!(carried("rw c=1", "", "c=1"), "rw c=1");
    }

    #[test]
    fn arguments_of_another_architecture_do_not_come() {
        let text = "kargs = [\"quiet\", \"site.e=1\"]\nmatch-architectures = [\"x86_64\"]\n";
        let of = |architecture| parse_image_arguments(text, architecture).unwrap();
        assert_eq!(of("x86_64"), ["quiet", "site.e=1"]);
        assert_eq!(of("s390x"), Vec::<String>::new());
        assert_eq!(parse_image_arguments("kargs = []\n", ARCH), Ok(Vec::new()));
        for (text, words) in [
            ("kargs = 1\n", "invalid type"),
            ("nothing = 1\n", "unknown field `nothing`"),
            ("", "missing field `kargs`"),
        ] {
            let why = parse_image_arguments(text, ARCH).unwrap_err().to_string();
            assert!(why.contains(words), "{text}: {why}");
        }
    }
}
