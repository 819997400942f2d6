"""`bushel completion`: a shell script that completes commands and options."""

from typing import Any

from bushel.cli.command import add_command

_SHELLS = ("bash", "zsh", "fish")
_HELP = """\
examples:
  bushel completion bash > ~/.local/share/bash-completion/completions/bushel
  bushel completion zsh > "${fpath[1]}/_bushel"
  bushel completion fish > ~/.config/fish/completions/bushel.fish
"""


def add_commands(commands: Any) -> None:
    """Adds it to the commands of `bushel`."""
    words = "a script that completes commands and options in a shell"
    command = add_command(
        commands,
        "completion",
        lambda options: print(_script(options.shell, commands)),
        words,
        _HELP,
    )
    command.add_argument("shell", choices=_SHELLS)


def _script(shell: str, commands: Any) -> str:
    helps = {action.dest: action.help or "" for action in commands._choices_actions}
    options = {
        name: [
            (text, action.help or "")
            for action in parser._actions
            for text in action.option_strings
            if text.startswith("--")
        ]
        for name, parser in commands.choices.items()
    }
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](helps, options)


_Helps = dict[str, str]
_Options = dict[str, list[tuple[str, str]]]


def _bash(helps: _Helps, options: _Options) -> str:
    cases = "\n".join(
        f'    {name}) words="{" ".join(text for text, _ in found)}" ;;'
        for name, found in options.items()
    )
    return f"""\
_bushel() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "{" ".join(helps)}" -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  if [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _bushel bushel"""


def _zsh(helps: _Helps, options: _Options) -> str:
    described = "\n".join(f"    '{name}:{_quoted(words)}'" for name, words in helps.items())
    cases = "\n".join(
        f"    {name}) _arguments {' '.join(text for text, _ in found)} '*:file:_files' ;;"
        for name, found in options.items()
    )
    return f"""\
#compdef bushel
_bushel() {{
  local -a commands=(
{described}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  case "$words[2]" in
{cases}
  esac
}}
_bushel "$@"\n"""


def _fish(helps: _Helps, options: _Options) -> str:
    lines = [
        f"complete -c bushel -n __fish_use_subcommand -f -a {name} -d '{_quoted(words)}'"
        for name, words in helps.items()
    ]
    lines += [
        f"complete -c bushel -n '__fish_seen_subcommand_from {name}' -l {text[2:]} "
        f"-d '{_quoted(words)}'"
        for name, found in options.items()
        for text, words in found
    ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return text.replace("%%", "%").replace("'", "").replace(":", "")
