//! The kernel arguments of an image: `/usr/lib/bootc/kargs.d/*.toml`. `bootc switch` applies the difference between two images;
//! rpm-ostree and plain ostree ignore them.

use serde::Deserialize;

use crate::base::kargs::Kargs;
use crate::host::root::{Root, RootPath};

/// The directory, below the root of an image.
const DIRECTORY: &str = "usr/lib/bootc/kargs.d";

/// A file in it. bootc refuses unknown keys.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ArgumentsFile {
    kargs: Vec<String>,
    #[serde(default)]
    match_architectures: Option<Vec<String>>,
}

/// Returns the arguments that a root's image sets on a machine of this architecture, in the order of the files.
///
/// # Errors
/// A file cannot be read; in words.
pub fn read_image_arguments(root: &Root, architecture: Option<&str>) -> Result<Kargs, String> {
    let directory = RootPath::fixed(DIRECTORY);
    let names = root.list(&directory).map_err(|error| error.to_string())?;
    let mut names: Vec<String> = names
        .into_iter()
        .filter(|name| name.ends_with(".toml"))
        .collect();
    names.sort();
    let mut all = Vec::new();
    for name in names {
        let path = directory.join(&name).map_err(|error| error.to_string())?;
        let bytes = root.read(&path).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
        all.extend(
            parse_image_arguments(&text, architecture).map_err(|why| format!("{path}: {why}"))?,
        );
    }
    Ok(Kargs::from_entries(&all))
}

fn parse_image_arguments(text: &str, architecture: Option<&str>) -> Result<Vec<String>, String> {
    let file: ArgumentsFile =
        toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())?;
    let fits = match (&file.match_architectures, architecture) {
        (Some(all), Some(architecture)) => all.iter().any(|one| one == architecture),
        _ => true,
    };
    Ok(if fits { file.kargs } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_another_architecture_do_not_come() {
        let text = "kargs = [\"quiet\", \"site.e=1\"]\nmatch-architectures = [\"x86_64\"]\n";
        let of = |architecture| parse_image_arguments(text, architecture).unwrap();
        assert_eq!(of(Some("x86_64")), ["quiet", "site.e=1"]);
        assert_eq!(of(Some("s390x")), Vec::<String>::new());
        assert_eq!(of(None).len(), 2);
        assert_eq!(parse_image_arguments("kargs = []\n", None), Ok(Vec::new()));
        assert!(
            parse_image_arguments("kargs = 1\n", None)
                .unwrap_err()
                .contains("invalid type")
        );
        assert!(
            parse_image_arguments("nothing = 1\n", None)
                .unwrap_err()
                .contains("kargs")
        );
    }
}
