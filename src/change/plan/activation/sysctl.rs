//! Lines of `sysctl.d`.

/// Returns the settings in a file as paths below `/proc/sys`. A name may be a pattern.
pub(super) fn read_names(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.starts_with(['#', ';']));
    let names = lines.filter_map(|line| {
        let (name, _) = line.split_once('=')?;
        let name = name.trim().trim_start_matches('-').trim();
        let path = as_path(name);
        let inside =
            !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        inside.then_some(path)
    });
    names.collect()
}

/// Converts a setting's name to a path. The first separator determines the notation; in the one with dots, a slash means a dot.
fn as_path(name: &str) -> String {
    match name.find(['.', '/']).and_then(|at| name.get(at..=at)) {
        Some(".") => {
            let swap = |letter| match letter {
                '.' => '/',
                '/' => '.',
                other => other,
            };
            name.chars().map(swap).collect()
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_separators_are_read_as_systemd_reads_them() {
        let text = "# a comment\n; another\nnet.ipv4.ip_forward = 1\n-net/ipv4/conf/eth0.5/rp_filter=2\n\
                    net.ipv4.conf.eth0/5.forwarding=0\n-net.ipv4.conf.all.x\nnet.ipv4.conf.*.rp_filter=2\n\
                    ../../etc/passwd=1\n=3\nvm.swappiness=10\n";
        assert_eq!(
            read_names(text),
            [
                "net/ipv4/ip_forward",
                "net/ipv4/conf/eth0.5/rp_filter",
                "net/ipv4/conf/eth0.5/forwarding",
                "net/ipv4/conf/*/rp_filter",
                "vm/swappiness"
            ]
        );
    }
}
