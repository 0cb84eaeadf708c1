#compdef runner
# Completes the command `runner` in zsh. Add to ~/.zshrc, after compinit:
#   source <(runner completion zsh)

_runner() {
    local line text
    local -a whole begun
    for line in "${(@f)$($words[1] completion --words "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        # _describe expects name:description, or a name alone.
        text=${${line%%$'\t'*}//:/\\:}
        [[ $line == *$'\t' ]] || text+=:${line#*$'\t'}
        # A candidate that ends like this is the beginning of a word.
        if [[ ${line%%$'\t'*} == *[=./] ]]; then
            begun+=("$text")
        else
            whole+=("$text")
        fi
    done
    local found=1
    (( $#whole )) && _describe -t values value whole && found=0
    (( $#begun )) && _describe -t values value begun -S '' && found=0
    return found
}

if [[ $funcstack[1] == _runner ]]; then
    _runner "$@"
else
    compdef _runner runner
fi
