/** Shell completion for bash, zsh and fish, generated from the tables that also parse a program's flags. */

import { type AcceptedValues, type CommandDescription, restFlag } from './parse-flags.ts';

interface CompletedCommand {
  name: string;
  summary: string;
  /** The kind of words that may follow the command's name. */
  takes: AcceptedValues | undefined;
  /** Flags without their dashes. If `takes` is undefined, the flag is a switch. */
  flags: readonly { name: string; takes: AcceptedValues | undefined; help: string }[];
  /** True if another program with its arguments may follow after `--`. */
  runs: boolean;
}

interface CompletedProgram {
  name: string;
  commands: readonly CompletedCommand[];
}

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

export function isShell(word: string | undefined): word is Shell {
  return SHELLS.some((shell) => shell === word);
}

/** The script that a shell sources. */
export function completionScript(
  shell: Shell,
  name: string,
  commands: Readonly<Record<string, CommandDescription>>,
): string {
  const program = { name, commands: Object.entries(commands).map(completed) };
  switch (shell) {
    case 'bash':
      return bash(program);
    case 'zsh':
      return zsh(program);
    case 'fish':
      return fish(program);
  }
}

function completed([name, { summary, verbs, takes, flags }]: [string, CommandDescription]): CompletedCommand {
  const known = Object.entries(flags).map(([flag, { value, takes: offered = 'word', help }]) => ({
    name: flag,
    takes: value === undefined ? undefined : offered,
    help,
  }));
  const help = { name: 'help', takes: undefined, help: 'prints more details' };
  return { name, summary, takes: verbs ?? takes, flags: [...known, help], runs: restFlag(flags) !== undefined };
}

/** Makes a valid name for a shell function. */
const identifier = (name: string) => `_${name.replace(/[^a-z0-9]/gi, '_')}`;
/** Quotes a text in single quotes for a POSIX shell. */
const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

function bashOffer(takes: AcceptedValues): string {
  switch (takes) {
    case 'word':
      return 'COMPREPLY=()';
    case 'file':
      return 'compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur")';
    case 'directory':
      return 'compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$cur")';
    case 'command':
      return 'mapfile -t COMPREPLY < <(compgen -c -- "$cur")';
    default:
      return `mapfile -t COMPREPLY < <(compgen -W ${quoted(takes.join(' '))} -- "$cur")`;
  }
}

function bash({ name, commands }: CompletedProgram): string {
  const run = identifier(name);
  const valued = commands.flatMap((command) =>
    command.flags.flatMap(({ name: flag, takes }) =>
      takes === undefined ? [] : [`    ${command.name}:--${flag}) ${bashOffer(takes)}; return ;;`],
    ),
  );
  const words = commands.flatMap(({ name: command, takes, flags }) => [
    `    ${command}:--*|${command}:-*) ${bashOffer(flags.map((flag) => `--${flag.name}`))} ;;`,
    ...(takes === undefined || takes === 'word' ? [] : [`    ${command}:1) ${bashOffer(takes)} ;;`]),
  ]);
  const runners = commands.filter(({ runs }) => runs).map((command) => command.name);
  return `# bash completion of ${name}:  source <(${name} completion bash)
${run}() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD-1]} command=\${COMP_WORDS[1]} at
  COMPREPLY=()
  if (( COMP_CWORD == 1 )); then
    ${bashOffer(commands.map((command) => command.name))}
    return
  fi${runners.length === 0 ? '' : bashRunner(runners)}
  # --flag=value comes in three words where = is among COMP_WORDBREAKS.
  if [[ $cur == '=' ]]; then cur=''; elif [[ $prev == '=' ]]; then prev=\${COMP_WORDS[COMP_CWORD-2]}; fi
  case $command:$prev in
${valued.join('\n')}
  esac
  local place=$cur
  if [[ $cur != -* ]]; then if (( COMP_CWORD == 2 )); then place=1; else place=more; fi; fi
  case $command:$place in
${words.join('\n')}
  esac
}
complete -F ${run} ${name}
`;
}

/** After `--` the other program's own completion applies. */
function bashRunner(runners: readonly string[]): string {
  return `
  if [[ " ${runners.join(' ')} " == *" $command "* ]]; then
    for (( at = 2; at < COMP_CWORD; at++ )); do
      [[ \${COMP_WORDS[at]} == '--' ]] || continue
      if (( at == COMP_CWORD - 1 )); then ${bashOffer('command')}; else ${bashOffer('file')}; fi
      return
    done
  fi`;
}

/** The form in which zsh describes a value: `:message:action`. */
function zshValue(takes: AcceptedValues): string {
  switch (takes) {
    case 'word':
      return ':value: ';
    case 'file':
      return ':file:_files';
    case 'directory':
      return ':directory:_files -/';
    case 'command':
      return ':command:_command_names -e';
    default:
      return `:value:(${takes.join(' ')})`;
  }
}

/** Escapes brackets and colons, which are special in a zsh specification. */
const zshText = (text: string) => text.replace(/[[\]:\\]/g, (char) => `\\${char}`);

function zsh({ name, commands }: CompletedProgram): string {
  const run = identifier(name);
  const cases = commands.map(({ name: command, takes, flags, runs }) => {
    const specs = flags.map(
      (flag) =>
        `*--${flag.name}${flag.takes === undefined ? '' : '='}[${zshText(flag.help)}]${flag.takes === undefined ? '' : zshValue(flag.takes)}`,
    );
    if (takes !== undefined && takes !== 'word') specs.push(`1${zshValue(takes)}`);
    if (runs) specs.push('*::command:_normal');
    return `    ${command}) _arguments ${specs.map(quoted).join(' ')} ;;`;
  });
  const named = commands.map(({ name: command, summary }) => quoted(`${command}:${zshText(summary)}`));
  return `#compdef ${name}
# zsh completion of ${name}:  source <(${name} completion zsh)
${run}() {
  local -a commands=(${named.join(' ')})
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
${cases.join('\n')}
  esac
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef ${run} ${name}
`;
}

function fish({ name, commands }: CompletedProgram): string {
  const lines = commands.flatMap(({ name: command, summary, takes, flags }) => [
    `complete -c ${name} -n __fish_use_subcommand -a ${command} -d ${fishQuoted(summary)}`,
    ...(takes === undefined || takes === 'word'
      ? []
      : [`complete -c ${name} -n '__fish_seen_subcommand_from ${command}' ${fishValue(takes)}`]),
    ...flags.map(({ name: flag, takes: value, help }) => {
      const takesOne = value === undefined ? '' : value === 'file' ? ' -r -F' : ` -x ${fishValue(value)}`;
      return `complete -c ${name} -n '__fish_seen_subcommand_from ${command}' -l ${flag}${takesOne} -d ${fishQuoted(help)}`;
    }),
  ]);
  return `# fish completion of ${name}:  ${name} completion fish | source\ncomplete -c ${name} -f\n${lines.join('\n')}\n`;
}

/** Inside single quotes fish knows two escapes. */
const fishQuoted = (text: string) => `'${text.replace(/['\\]/g, (char) => `\\${char}`)}'`;

function fishValue(takes: AcceptedValues): string {
  switch (takes) {
    case 'word':
      return '';
    case 'file':
      return '-F';
    case 'directory':
      return "-a '(__fish_complete_directories)'";
    case 'command':
      return "-a '(__fish_complete_command)'";
    default:
      return `-a ${fishQuoted(takes.join(' '))}`;
  }
}
