
# The words behind the command of memfit run, and names of schemes, devices, costs and codecs.
_memfit_names() {
    local cur="${COMP_WORDS[COMP_CWORD]}" option="${COMP_WORDS[COMP_CWORD-1]}" names="" i command="" equals=""
    if [[ "${COMP_WORDS[1]}" == run ]]; then
        for ((i = 2; i < COMP_CWORD; i++)); do
            case "${COMP_WORDS[i]}" in
                --) command=$((i + 1)); break ;;
                @VALUED@) [[ "${COMP_WORDS[i+1]}" == "=" ]] || ((i++)) ;;
                =) ((i++)) ;;
                -*) ;;
                *) command=$i; break ;;
            esac
        done
        if [[ -n "$command" ]]; then
            if declare -F _command_offset >/dev/null; then
                _command_offset "$command"
            else
                COMPREPLY=()
            fi
            return 0
        fi
    fi
    # Bash makes a word of = alone.
    if [[ "$cur" == "=" ]]; then
        cur="" equals=1
    elif [[ "$option" == "=" ]]; then
        option="${COMP_WORDS[COMP_CWORD-2]}" equals=1
    fi
    case "${COMP_WORDS[1]} $option" in
        "sim -s" | "sim --scheme") names="@SCHEMES@ lru optimal" ;;
        "run -s" | "run --scheme" | "advise -s" | "advise --scheme") names="@SCHEMES@" ;;
        "trace -s" | "trace --scheme") names="@SCHEMES@" ;;
        "sim --device" | "advise --device") names="@DEVICES@" ;;
        "sim --costs" | "advise --costs") names="@COSTS@" ;;
        "run --record-contents") [[ -z "$equals" ]] || names="all @CODECS@" ;;
    esac
    if [[ -z "$names" ]]; then
        _memfit "$@"
        return
    fi
    # The last of several names.
    local before="${cur%"${cur##*,}"}"
    COMPREPLY=($(compgen -P "$before" -W "$names" -- "${cur##*,}"))
    if [[ "$option" != --record-contents ]]; then
        COMPREPLY+=($(compgen -f -- "$cur"))
    fi
}

complete -F _memfit_names -o bashdefault -o default memfit
