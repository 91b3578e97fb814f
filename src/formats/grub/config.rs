//! How a node's `grub.cfg` uses this program's files: three generations of it are in the field, and updates of the operating
//! system replace none of them (docs/develop/boot-counter.md).

use super::commands;

/// The file from which GRUB runs this program's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptFile {
    /// `custom.cfg`, which runs last.
    Custom,
    /// `user.cfg`, which may contain GRUB's password.
    User,
}

impl ScriptFile {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Custom => "custom.cfg",
            Self::User => "user.cfg",
        }
    }
}

/// The properties of a `grub.cfg` that matter for a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrubConfig {
    /// True if `ostree` or `grub2-mkconfig` rewrites it for each deployment.
    pub is_dynamic: bool,
    /// True if it loads all variables of the environment block.
    pub loads_environment: bool,
    /// The file that it runs afterwards; `None` if it runs none.
    pub runs: Option<ScriptFile>,
    /// True if it sets the default entry after running that file.
    pub sets_default_later: bool,
    /// True if it selects the default entry by `saved_entry` or `next_entry`.
    pub uses_saved_entry: bool,
}

/// Judges the text, and the target of the link if `grub.cfg` is one.
pub fn judge_config(link: Option<&str>, text: &str) -> GrubConfig {
    let all = commands::parse_commands(text).all;
    let loaded = all.iter().position(|words| loads_all(words));
    let run_last = |file: ScriptFile| {
        let runs = |words: &Vec<String>| runs_file(words, file);
        let at = all.iter().rposition(runs)?;
        // Before the variables are loaded, the script sees none.
        loaded
            .is_some_and(|loaded| loaded < at)
            .then_some((file, at))
    };
    let runs = run_last(ScriptFile::Custom).or_else(|| run_last(ScriptFile::User));
    let after = runs.map_or(0, |(_, at)| at + 1);
    let later = all.get(after..).unwrap_or_default();
    let names_saved = |words: &Vec<String>| {
        let saved = ["saved_entry", "next_entry"];
        words
            .iter()
            .any(|word| saved.iter().any(|name| word.contains(name)))
    };
    GrubConfig {
        is_dynamic: link.is_some_and(|target| target.ends_with("loader/grub.cfg")),
        loads_environment: loaded.is_some(),
        runs: runs.map(|(file, _)| file),
        sets_default_later: runs.is_some() && later.iter().any(|words| sets_default(words)),
        uses_saved_entry: all.iter().any(names_saved),
    }
}

/// Returns true for `load_env` without names, which loads every variable.
fn loads_all(words: &[String]) -> bool {
    let mut words = words.iter().map(String::as_str);
    if words.next() != Some("load_env") {
        return false;
    }
    while let Some(word) = words.next() {
        match word {
            "-f" | "--file" => {
                words.next();
            }
            option if option.starts_with('-') => {}
            _ => return false,
        }
    }
    true
}

fn runs_file(words: &[String], file: ScriptFile) -> bool {
    let [command, path, ..] = words else {
        return false;
    };
    let Some((directory, name)) = path.rsplit_once('/') else {
        return false;
    };
    let own = [
        "$prefix",
        "${prefix}",
        "$config_directory",
        "${config_directory}",
    ];
    matches!(command.as_str(), "source" | ".") && name == file.name() && own.contains(&directory)
}

fn sets_default(words: &[String]) -> bool {
    let is_it = |word: &String| word.starts_with("default=");
    match words {
        [command, rest @ ..] if command == "set" => rest.iter().any(is_it),
        [first, ..] => is_it(first),
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: &str = "set pager=1\nif [ -f ${config_directory}/grubenv ]; then\n  load_env -f ${config_directory}/grubenv\n\
                        elif [ -s $prefix/grubenv ]; then\n  load_env\nfi\n";
    const USER: &str = "if [ -f ${prefix}/user.cfg ]; then\n  source ${prefix}/user.cfg\nfi\n";
    const CUSTOM: &str = "if [ -f $prefix/custom.cfg ]; then\n  source $prefix/custom.cfg\nfi\n";

    fn runs(text: &str) -> Option<ScriptFile> {
        judge_config(None, text).runs
    }

    #[test]
    fn each_generation_is_reported() {
        let blscfg = "set timeout=1\nblscfg\n";
        assert_eq!(runs(&[LOAD, blscfg].concat()), None);
        assert_eq!(runs(&[LOAD, USER, blscfg].concat()), Some(ScriptFile::User));
        let new = [LOAD, USER, blscfg, CUSTOM, USER].concat();
        let judged = judge_config(None, &new);
        assert_eq!(judged.runs, Some(ScriptFile::Custom));
        assert!(judged.loads_environment && !judged.is_dynamic);
        assert!(!judged.sets_default_later && !judged.uses_saved_entry);
        assert!(judge_config(Some("../loader/grub.cfg"), &new).is_dynamic);
        assert!(!judge_config(Some("grub.cfg.real"), &new).is_dynamic);
        let debian = "if [ -f  ${config_directory}/custom.cfg ]; then\n  source ${config_directory}/custom.cfg\n\
                      elif [ -z \"${config_directory}\" -a -f  $prefix/custom.cfg ]; then\n  source $prefix/custom.cfg\nfi\n";
        assert_eq!(runs(&[LOAD, debian].concat()), Some(ScriptFile::Custom));
    }

    #[test]
    fn lines_that_only_look_like_it_do_not_count() {
        for line in [
            "# source $prefix/custom.cfg\n",
            "echo source $prefix/custom.cfg\n",
            "source $prefix/my-custom.cfg\n",
            "source (hd0,1)/grub2/custom.cfg\n",
            "source custom.cfg\n",
            "if [ -f $prefix/custom.cfg ]; then true; fi\n",
        ] {
            assert_eq!(runs(&[LOAD, line].concat()), None, "{line}");
        }
    }

    #[test]
    fn variables_have_to_be_loaded_before_and_all_of_them() {
        assert_eq!(runs(CUSTOM), None);
        assert_eq!(runs(&[CUSTOM, LOAD].concat()), None);
        for line in [
            "load_env boot_success\n",
            "load_env -f $prefix/grubenv boot_success\n",
            "echo load_env\n",
        ] {
            assert!(
                !judge_config(None, &[line, CUSTOM].concat()).loads_environment,
                "{line}"
            );
        }
        for line in [
            "load_env\n",
            "load_env --skip-sig\n",
            "load_env --file $prefix/grubenv\n",
            "load_env --file=x -s\n",
        ] {
            assert_eq!(
                runs(&[line, CUSTOM].concat()),
                Some(ScriptFile::Custom),
                "{line}"
            );
        }
        // A first run without variables has no effect; the second one counts.
        assert_eq!(runs(&[USER, LOAD, USER].concat()), Some(ScriptFile::User));
    }

    #[test]
    fn a_later_default_is_seen() {
        for line in [
            "set default=0\n",
            "set default=\"1\"\n",
            "default=0\n",
            "if true; then set default=0; fi\n",
        ] {
            assert!(
                judge_config(None, &[LOAD, CUSTOM, line].concat()).sets_default_later,
                "{line}"
            );
            assert!(
                !judge_config(None, &[LOAD, line, CUSTOM].concat()).sets_default_later,
                "{line}"
            );
        }
        let saved = "if [ \"${next_entry}\" ] ; then\n  set default=\"${next_entry}\"\nfi\n";
        assert!(judge_config(None, &[LOAD, saved, CUSTOM].concat()).uses_saved_entry);
    }
}
