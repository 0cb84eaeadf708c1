# Completes the command `runner` in bash. Add to ~/.bashrc:
#   source <(runner completion bash)

_orbit_runner() {
    # Bash also splits words at the = and : of --flag=value. Join parts that no space separates.
    local rest=${COMP_LINE:0:COMP_POINT} word gap first=1 last prefix='' line i
    local -a words=()
    for ((i = 0; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        gap=${rest%%"$word"*}
        rest=${rest#*"$word"}
        if [[ -n $first || -n $gap ]]; then
            words+=("$word")
        else
            last=$((${#words[@]} - 1))
            words[last]+=$word
        fi
        first=
    done
    if [[ -z $rest || $rest == [[:space:]]* ]] && [[ -n $rest || $COMP_LINE == *[[:space:]] ]]; then
        words+=("${rest#"${rest%%[![:space:]]*}"}")
    else
        # Bash replaces only the part after the last = or :.
        last=$((${#words[@]} - 1))
        prefix=${words[last]}
        words[last]+=$rest
        [[ $rest == [=:]* ]] && prefix=${words[last]}
    fi

    COMPREPLY=()
    while IFS= read -r line; do
        word=${line%%$'\t'*}
        word=${word#"$prefix"}
        # Inside quotes, special characters need no escape.
        [[ ${words[*]} != *[\'\"]* && $word == *[[:space:]\'\"\\\$\`\&\;\(\)\<\>\|\*\?\!\{\}]* ]] && printf -v word %q "$word"
        COMPREPLY+=("$word")
    done < <("$1" completion --words "${words[@]:1}" 2>/dev/null)
    # A single candidate that ends like this is the beginning of a word.
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace 2>/dev/null
    return 0
}

complete -F _orbit_runner runner
