//! This program's lines in `custom.cfg` or `user.cfg`. The rest of the file is preserved byte for byte.

use super::commands;

/// The first of our lines.
const BEGIN: &str = "# BEGIN mco-rescue trial";
/// Appended to it if the line before ours has no line break.
const UNENDED: &str = " (the line before has no end)";
/// Appended to it if the file was created for our lines.
const NEW_FILE: &str = " (new file)";
/// The last of our lines.
const END: &str = "# END mco-rescue trial";

/// The decision at a start of GRUB.
///
/// `armed` becomes `fired` on the disk before a kernel is started. If GRUB cannot write that, the old entry is taken at once:
/// the same entry would be tried forever. The last value is in memory alone: a configuration may run the file twice. Nothing is
/// done once the entries are others than those of the arming: the first one is what was made the default since.
const LINES: &str = r#"# The next start takes the old boot entry, unless the trial is confirmed.
if [ -f ${prefix}/../loader/mco-rescue-trial ]; then
  if [ "${mco_rescue_trial}" = "armed" ]; then
    set mco_rescue_trial="fired"
    if save_env mco_rescue_trial; then
      set fallback="${mco_rescue_trial_entry}"
    else
      set default="${mco_rescue_trial_entry}"
    fi
    set mco_rescue_trial="started"
  elif [ "${mco_rescue_trial}" = "fired" ]; then
    set default="${mco_rescue_trial_entry}"
  fi
fi
"#;

/// The reason why our lines cannot be in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// Text appended to it would belong to its last command.
    #[error("it ends within quotes, a block or a command that goes on")]
    Open,
    /// The end of our lines is missing.
    #[error(
        "it has the line \"{BEGIN}\" without \"{END}\". Remove the lines of mco-rescue from it by hand"
    )]
    Damaged,
    /// It is not text.
    #[error("it has bytes that are not text")]
    NoText,
}

/// The rest of a file without our lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remainder {
    /// Our lines were not in it.
    Unchanged,
    /// Bytes of the file.
    Bytes(Vec<u8>),
    /// Nothing: the file was created for our lines.
    Nothing,
}

/// Returns a file with our lines at the end; `old` is `None` if there is no file.
///
/// # Errors
/// GRUB would not run our lines there.
pub fn insert_script(old: Option<&[u8]>) -> Result<Vec<u8>, ScriptError> {
    let (old, is_new) = match old.map(|old| Ok((remove_script(old)?, old))).transpose()? {
        None | Some((Remainder::Nothing, _)) => (Vec::new(), true),
        Some((Remainder::Unchanged, old)) => (old.to_vec(), false),
        Some((Remainder::Bytes(bytes), _)) => (bytes, false),
    };
    let text = std::str::from_utf8(&old).map_err(|_| ScriptError::NoText)?;
    if text.contains('\0') {
        return Err(ScriptError::NoText);
    }
    if !commands::parse_commands(text).is_whole {
        return Err(ScriptError::Open);
    }
    let is_ended = text.is_empty() || text.ends_with('\n');
    let (before, note) = match (is_new, is_ended) {
        (true, _) => ("", NEW_FILE),
        (false, true) => ("", ""),
        (false, false) => ("\n", UNENDED),
    };
    Ok(format!("{text}{before}{BEGIN}{note}\n{LINES}{END}\n").into_bytes())
}

/// Returns a file without our lines.
///
/// # Errors
/// Our lines have no end.
pub fn remove_script(text: &[u8]) -> Result<Remainder, ScriptError> {
    let mut rest: Vec<u8> = Vec::new();
    let (mut inside, mut found, mut is_new, mut unended) = (false, false, false, false);
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let bare = line.strip_suffix(b"\n").unwrap_or(line);
        if inside {
            inside = bare != END.as_bytes();
            continue;
        }
        match bare.strip_prefix(BEGIN.as_bytes()) {
            Some(note)
                if [NEW_FILE, UNENDED, ""]
                    .iter()
                    .any(|known| known.as_bytes() == note) =>
            {
                (inside, found) = (true, true);
                is_new |= note == NEW_FILE.as_bytes();
                unended = note == UNENDED.as_bytes();
            }
            _ => {
                // Later lines keep the line break before them.
                unended = false;
                rest.extend_from_slice(line);
            }
        }
    }
    if inside {
        return Err(ScriptError::Damaged);
    }
    if unended {
        rest.pop();
    }
    Ok(match found {
        false => Remainder::Unchanged,
        true if is_new && rest.is_empty() => Remainder::Nothing,
        true => Remainder::Bytes(rest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOREIGN: [&str; 7] = [
        "",
        "\n",
        "GRUB2_PASSWORD=grub.pbkdf2.sha512.10000.AB.CD\n",
        "set a=b",
        "# a comment without an end",
        "if [ -f x ]; then\r\n  set a=b\r\nfi\r\n",
        "set a=\"two\nlines\"\n\n\n",
    ];

    #[test]
    fn foreign_bytes_come_back_and_a_second_insertion_changes_nothing() {
        for old in FOREIGN {
            let once = insert_script(Some(old.as_bytes())).unwrap();
            assert!(once.starts_with(old.as_bytes()), "{old:?}");
            assert_eq!(insert_script(Some(&once)).unwrap(), once, "{old:?}");
            assert_eq!(
                remove_script(&once),
                Ok(Remainder::Bytes(old.into())),
                "{old:?}"
            );
            assert_eq!(remove_script(old.as_bytes()), Ok(Remainder::Unchanged));
        }
        let new = insert_script(None).unwrap();
        assert_eq!(insert_script(Some(&new)).unwrap(), new);
        assert_eq!(remove_script(&new), Ok(Remainder::Nothing));
    }

    #[test]
    fn lines_that_were_added_later_stay() {
        let both = |old: Option<&str>| {
            [
                insert_script(old.map(str::as_bytes)).unwrap(),
                b"set c=d\n".to_vec(),
            ]
            .concat()
        };
        let rest = |text: &[u8]| match remove_script(text) {
            Ok(Remainder::Bytes(rest)) => String::from_utf8(rest).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(rest(&both(Some("set a=b"))), "set a=b\nset c=d\n");
        assert_eq!(rest(&both(Some("set a=b\n"))), "set a=b\nset c=d\n");
        assert_eq!(rest(&both(None)), "set c=d\n");
        // Our lines are the last ones again.
        let again = insert_script(Some(&both(Some("set a=b\n")))).unwrap();
        assert!(again.ends_with(b"# END mco-rescue trial\n"));
        assert_eq!(rest(&again), "set a=b\nset c=d\n");
    }

    #[test]
    fn a_file_in_which_our_lines_would_not_run_is_refused() {
        for open in [
            "if [ a ]; then\n",
            "set a=\"b\n",
            "set a \\",
            "menuentry x {\n",
        ] {
            assert_eq!(
                insert_script(Some(open.as_bytes())),
                Err(ScriptError::Open),
                "{open}"
            );
        }
        assert_eq!(insert_script(Some(b"\xff\n")), Err(ScriptError::NoText));
        assert_eq!(insert_script(Some(b"a\0b\n")), Err(ScriptError::NoText));
        let whole = insert_script(Some(b"set a=b\n")).unwrap();
        let cut = &whole[..whole.len() - 4];
        assert_eq!(insert_script(Some(cut)), Err(ScriptError::Damaged));
        assert_eq!(remove_script(cut), Err(ScriptError::Damaged));
    }

    #[test]
    fn the_names_in_the_lines_are_those_of_the_environment() {
        use super::super::{ARMED, ENTRIES_MARK, ENTRY_VARIABLE, FIRED, STATE_VARIABLE};
        assert!(LINES.contains(&format!("[ -f ${{prefix}}/../loader/{ENTRIES_MARK} ]")));
        assert!(LINES.contains(&format!("[ \"${{{STATE_VARIABLE}}}\" = \"{ARMED}\" ]")));
        assert!(LINES.contains(&format!("[ \"${{{STATE_VARIABLE}}}\" = \"{FIRED}\" ]")));
        assert!(LINES.contains(&format!("save_env {STATE_VARIABLE};")));
        assert!(LINES.contains(&format!("set default=\"${{{ENTRY_VARIABLE}}}\"")));
    }
}
