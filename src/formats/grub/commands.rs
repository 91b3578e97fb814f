//! GRUB scripts as simple commands: enough to find what a configuration loads, sources and sets.

/// A script.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Commands {
    /// The words of each command, without quotes and keywords. Variables are not expanded.
    pub all: Vec<Vec<String>>,
    /// False if the text ends inside quotes, a block or a continued command, so that any text appended belongs to that.
    pub is_whole: bool,
}

/// Words before a command.
const BEFORE: [&str; 8] = ["if", "then", "else", "elif", "while", "until", "do", "!"];

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word {
        text: String,
        quoted: bool,
    },
    /// End of a command.
    End,
}

/// Splits a script.
pub fn parse_commands(text: &str) -> Commands {
    let (tokens, is_closed) = split_tokens(text);
    let mut open: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    let mut words: Vec<String> = Vec::new();
    for token in tokens {
        let (text, quoted) = match token {
            Token::Word { text, quoted } => (text, quoted),
            Token::End => {
                finish_command(&mut all, &mut words);
                continue;
            }
        };
        let is_first = words.is_empty() && !quoted;
        match text.as_str() {
            "if" if is_first => open.push("fi"),
            "while" | "until" if is_first => open.push("done"),
            "for" if is_first => {
                open.push("done");
                words.push(text);
                continue;
            }
            "fi" | "done" | "}" if is_first => {
                if open.last() == Some(&text.as_str()) {
                    open.pop();
                }
                continue;
            }
            "{" if !quoted => {
                open.push("}");
                finish_command(&mut all, &mut words);
                continue;
            }

            _ => {}
        }
        if is_first && BEFORE.contains(&text.as_str()) {
            continue;
        }
        words.push(text);
    }
    finish_command(&mut all, &mut words);
    Commands {
        all,
        is_whole: is_closed && open.is_empty(),
    }
}

fn finish_command(all: &mut Vec<Vec<String>>, words: &mut Vec<String>) {
    if !words.is_empty() {
        all.push(std::mem::take(words));
    }
}

/// Returns the words, and false if the last one is incomplete.
fn split_tokens(text: &str) -> (Vec<Token>, bool) {
    let mut tokens = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(&letter) = letters.peek() {
        match letter {
            ' ' | '\t' | '\r' => {
                letters.next();
            }
            '\n' | ';' | '&' | '|' => {
                letters.next();
                tokens.push(Token::End);
            }
            '#' => while letters.next_if(|&letter| letter != '\n').is_some() {},
            _ => {
                let (token, is_closed) = read_word(&mut letters);
                tokens.extend(token);
                if !is_closed {
                    return (tokens, false);
                }
            }
        }
    }
    (tokens, true)
}

fn read_word(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> (Option<Token>, bool) {
    let (mut text, mut quoted, mut within) = (String::new(), false, None);
    while let Some(&letter) = letters.peek() {
        match (letter, within) {
            ('\\', None | Some('"')) => {
                letters.next();
                match letters.next() {
                    None => return (None, false),
                    // The line goes on.
                    Some('\n') => {}
                    Some(next) => {
                        quoted = true;
                        text.push(next);
                    }
                }
                continue;
            }
            ('"' | '\'', None) => {
                quoted = true;
                within = Some(letter);
            }
            (quote, Some(open)) if quote == open => within = None,
            (' ' | '\t' | '\r' | '\n' | ';' | '&' | '|', None) => break,
            _ => text.push(letter),
        }
        letters.next();
    }
    let is_word = quoted || !text.is_empty();
    (
        is_word.then_some(Token::Word { text, quoted }),
        within.is_none(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let all = parse_commands(text).all;
        all.iter().map(|words| words.join("|")).collect()
    }

    #[test]
    fn commands_are_found_in_blocks_conditions_and_lines() {
        let text = "# set a=1\nif [ -f ${prefix}/x ]; then source \"${prefix}/x\"\nelif ! b; then\n  c 'd e' f\\ g # h\nelse i; fi\n\
                    menuentry \"T\" --id x {\n  linux /v a=\\\n1\n}\nfor i in a b; do j $i; done; k && l";
        let expected = [
            "[|-f|${prefix}/x|]",
            "source|${prefix}/x",
            "b",
            "c|d e|f g",
            "i",
            "menuentry|T|--id|x",
            "linux|/v|a=1",
            "for|i|in|a|b",
            "j|$i",
            "k",
            "l",
        ];
        assert_eq!(shown(text), expected);
        assert!(parse_commands(text).is_whole);
    }

    #[test]
    fn a_text_that_swallows_what_follows_is_not_whole() {
        for text in [
            "if [ a ]; then\nb",
            "set a=\"b",
            "set a='b\n",
            "set a \\",
            "menuentry x {\n",
            "while a; do b",
            "for i in a; do b",
            "function f {\nif a; then b; fi\n",
        ] {
            assert!(!parse_commands(text).is_whole, "{text}");
        }
        for text in [
            "",
            "\n\n",
            "# it's",
            "set a=b",
            "echo if",
            "echo '{'",
            "fi",
            "set a=\"\"\n# \"",
            "set a=b \\\n",
        ] {
            assert!(parse_commands(text).is_whole, "{text}");
        }
    }
}
