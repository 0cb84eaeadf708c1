# Completes the command `runner` in fish. Run once:
#   runner completion fish > ~/.config/fish/completions/runner.fish

function __orbit_runner_candidates
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -l current (commandline --current-token --cut-at-cursor)
    $words[1] completion --words $words[2..-1] "$current" 2>/dev/null
end

complete --command runner --no-files --arguments '(__orbit_runner_candidates)'
