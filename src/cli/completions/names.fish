
# Names that only the program knows: checks, configs of the cache, pools, runs.
function __mco_rescue_names
    set -l words (commandline -opc)
    set -l root
    for index in (seq (count $words))
        switch $words[$index]
            case --root
                set root --root $words[(math $index + 1)]
            case '--root=*'
                set root $words[$index]
        end
    end
    mco-rescue $root names $argv[1] 2>/dev/null
end

complete -c mco-rescue -n "__fish_seen_subcommand_from apply plan verify" -a "(__mco_rescue_names configs)"
complete -c mco-rescue -n "__fish_mco_rescue_using_subcommand show" -a "(__mco_rescue_names shown)"
complete -c mco-rescue -n "__fish_mco_rescue_using_subcommand diff" -f -a "(__mco_rescue_names snapshots)"
complete -c mco-rescue -n "__fish_mco_rescue_using_subcommand rollback" -l to -x -a "(__mco_rescue_names runs)"
complete -c mco-rescue -n "__fish_seen_subcommand_from apply plan pivot firstboot" -l accept-risk -x -a "(__mco_rescue_names risks)"
complete -c mco-rescue -n "__fish_mco_rescue_using_subcommand doctor" -f -a "(__mco_rescue_names checks)"
complete -c mco-rescue -n "__fish_mco_rescue_using_subcommand render" -a "(__mco_rescue_names pools)"
complete -c mco-rescue -n "__fish_mco_rescue_using_subcommand fetch" -l pool -x -a "(__mco_rescue_names pools)"
complete -c mco-rescue -n "__fish_seen_subcommand_from export forget" -f -a "(__mco_rescue_names cached)"
complete -c mco-rescue -n "__fish_seen_subcommand_from apply plan status" -l desired -x -a "(__mco_rescue_names cached)"
complete -c mco-rescue -n "__fish_mco_rescue_using_subcommand status" -l object -x -a "(__mco_rescue_names cached)"
