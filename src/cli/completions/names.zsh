# Names that only the program knows: checks, configs of the cache, pools.
_mco_rescue_names() {
    local -a root all
    [[ $BUFFER =~ ' --root[ =]([^ ]+)' ]] && root=(--root $match[1])
    all=(${(f)"$(mco-rescue $root names $1 2>/dev/null)"})
    compadd -a all
}
_mco_rescue_checks() { _mco_rescue_names checks }
_mco_rescue_cached() { _mco_rescue_names cached }
_mco_rescue_pools() { _mco_rescue_names pools }
_mco_rescue_configs() { _mco_rescue_names configs; _files }

