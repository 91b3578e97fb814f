# Names that only the program knows: checks, configs of the cache, pools, runs.
_mco_rescue_names() {
    local -a root all
    [[ $BUFFER =~ ' --root[ =]([^ ]+)' ]] && root=(--root $match[1])
    all=(${(f)"$(mco-rescue $root names $1 2>/dev/null)"})
    compadd -a all
}
_mco_rescue_checks() { _mco_rescue_names checks }
_mco_rescue_cached() { _mco_rescue_names cached }
_mco_rescue_runs() { _mco_rescue_names runs }
_mco_rescue_snapshots() { _mco_rescue_names snapshots }
_mco_rescue_risks() { _mco_rescue_names risks }
_mco_rescue_shown() { _mco_rescue_names shown; _files }
_mco_rescue_pools() { _mco_rescue_names pools }
_mco_rescue_configs() { _mco_rescue_names configs; _files }

