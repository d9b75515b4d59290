"""`fleet completion`: the script with which a shell completes `fleet`."""

from __future__ import annotations

import click

from kakeya_fleet.node.cli.asking.options import json_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

EXAMPLE = """\b
Example:
  fleet completion bash > ~/.local/share/bash-completion/completions/fleet
  fleet completion zsh > "${fpath[1]}/_fleet"
  fleet completion fish > ~/.config/fish/completions/fleet.fish

\b
For the shell that runs, until it ends:
  source <(fleet completion bash)      (bash or zsh)
  fleet completion fish | source
"""

_BASH = r"""_fleet_completion() {
    local kind value
    COMPREPLY=()
    while IFS=$'\t' read -r kind value _; do
        case $kind in
            plain) COMPREPLY+=("$value") ;;
            file | dir)
                type compopt >/dev/null 2>&1 && compopt -o filenames
                local flag=-f path
                [ "$kind" = dir ] && flag=-d
                while IFS= read -r path; do
                    COMPREPLY+=("$path")
                done < <(compgen "$flag" -- "${COMP_WORDS[COMP_CWORD]}")
                ;;
        esac
    done < <(_FLEET_COMPLETE=bash "$1" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    case ${COMPREPLY[0]-} in
        *= | *@) type compopt >/dev/null 2>&1 && compopt -o nospace ;;
    esac
}
complete -F _fleet_completion fleet
"""

_ZSH = r"""#compdef fleet
_fleet() {
    local kind value help
    local -a found
    while IFS=$'\t' read -r kind value help; do
        case $kind in
            plain) found+=("${value//:/\\:}${help:+:$help}") ;;
            file) _files ;;
            dir) _files -/ ;;
        esac
    done < <(_FLEET_COMPLETE=zsh "${words[1]}" "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    (( $#found )) && _describe -V fleet found
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _fleet "$@"
else
    compdef _fleet fleet
fi
"""

_FISH = r"""function __fleet_complete
    set -lx _FLEET_COMPLETE fish
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] $words[2..-1] "$current" 2>/dev/null)
        set -l parts (string split \t -- $line)
        switch $parts[1]
            case plain
                printf '%s\t%s\n' $parts[2] "$parts[3]"
            case file
                __fish_complete_path "$current"
            case dir
                __fish_complete_directories "$current"
        end
    end
end
complete --command fleet --no-files --arguments '(__fleet_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@click.command("completion", epilog=EXAMPLE)
@click.argument("shell", type=click.Choice(list(SCRIPTS)), metavar="SHELL")
@json_option
def command(shell: str, *, as_json: bool) -> int:
    """Print the script with which SHELL completes `fleet`.

    Completes commands, options and their values; names of nodes, models and sessions
    are those of the agents on this machine, where they answer within 0.3 seconds.
    """
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    if as_json:
        write_json({"shell": shell, "script": SCRIPTS[shell]})
    else:
        say(SCRIPTS[shell].rstrip("\n"))
    return ExitCode.OK
