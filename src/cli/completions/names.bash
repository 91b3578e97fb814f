
# Names that only the program knows: checks, configs of the cache, pools, runs.
_mco_rescue_names() {
    local program=$1 kind=$2 root=() i
    shift 2
    for ((i = 2; i <= $#; i++)); do
        case ${!i} in
            --root) ((i++)); root=(--root "${!i}") ;;
            --root=*) root=("${!i}") ;;
        esac
    done
    "$program" "${root[@]}" names "$kind" 2>/dev/null
}

# The same as the generated function, and these names where they fit.
_mco_rescue_named() {
    _mco__rescue "$@"
    [[ -n $COMP_LINE ]] || return 0
    local line=${COMP_LINE:0:COMP_POINT} word="" kind="" command="" below="" strip="" before name i
    # Words are split at colons, too, which stand in names.
    [[ $line == *[[:space:]] ]] || word=${line##*[[:space:]]}
    read -ra before <<<"${line%"$word"}"
    for ((i = 1; i < ${#before[@]}; i++)); do
        case ${before[i]} in
            --root | --output) ((i++)) ;;
            -*) ;;
            *) if [[ -z $command ]]; then command=${before[i]}; else below+=${before[i]}; fi ;;
        esac
    done
    name=${before[${#before[@]} - 1]}
    case $name in
        --pool) kind=pools ;;
        --desired | --object) kind=cached ;;
        --to) kind=runs ;;
        --accept-risk) kind=risks ;;
        -*) [[ " @FLAGS@ " == *" $name "* ]] && kind=position ;;
        *) kind=position ;;
    esac
    [[ $word != -* ]] || return 0
    case $kind:$command:$below in
        position:doctor:) kind=checks ;;
        position:apply: | position:plan: | position:verify:) kind=configs ;;
        position:show:*) kind=shown ;;
        position:diff:*) kind=snapshots ;;
        position:cache:export | position:cache:forget) kind=cached ;;
        position:render:) kind=pools ;;
        position:*) return 0 ;;
    esac
    [[ -n $kind ]] || return 0
    if [[ $COMP_WORDBREAKS == *:* && $word == *:* ]]; then strip=${word%"${word##*:}"}; fi
    COMPREPLY=()
    while read -r name; do
        if [[ $name == "$word"* ]]; then COMPREPLY+=("${name#"$strip"}"); fi
    done < <(_mco_rescue_names "$1" "$kind" "${before[@]}")
    # A file is a config as well; where no name fits, bash offers files by itself.
    if [[ ( $kind == configs || $kind == shown ) && -n ${COMPREPLY[*]} && $word != *:* ]]; then
        while read -r name; do COMPREPLY+=("$name"); done < <(compgen -f -- "$word")
    fi
}
