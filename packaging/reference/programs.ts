/** A page for each program: its commands, their forms, examples and flags, as `--help` prints them. */
import { AGENT_PROGRAM as AGENT } from '../../agent/cli/commands.ts';
import { OTELA_PROGRAM as OTELA } from '../../clients/otela/main.ts';
import { FACTORY_PROGRAM as FACTORY } from '../../factory/cli/commands.ts';
import { GATEWAY_PROGRAM as GATEWAY } from '../../gateway/cli/commands.ts';
import { PLAN_PROGRAM as PLAN } from '../../scheduler/cli/commands.ts';
import type { Flags } from '../../shared/command-line/index.ts';
import { code, markdownTable } from './table.ts';

/** The part of a program that the page reads; the type of a command's `run` differs between programs. */
interface Described {
  name: string;
  about: string;
  exitCodes: string;
  commands: Readonly<Record<string, { summary: string; examples: string; flags: Flags }>>;
}

/** If two commands share more flags than this, the flags are listed once. */
const SHARED_MIN = 10;

/** Pages of all programs, by file name. */
export function programPages(): (readonly [string, string])[] {
  const programs: Described[] = [AGENT, GATEWAY, FACTORY, PLAN, OTELA];
  return programs.map((program) => [`${program.name}.md`, programPage(program)]);
}

function programPage({ name, about, exitCodes, commands }: Described): string {
  const sections = Object.entries(commands).map(([command, { summary, examples, flags }], at) => {
    const sharing = Object.entries(commands)
      .slice(0, at)
      .find(([, earlier]) => Object.keys(earlier.flags).filter((flag) => flag in flags).length > SHARED_MIN);
    const form = `${name} ${command} ${examples.replaceAll('PROGRAM', name)}`.trim();
    return [`## ${command}`, sentence(summary), fenced(form), flagsOf(flags, sharing)]
      .filter((part) => part !== '')
      .join('\n\n');
  });
  const every = 'Every program also has `help`, `version` and `completion bash|zsh|fish`.';
  return [`# ${name}`, fenced(about), `${exitCodes} ${every}`, ...sections].join('\n\n');
}

function flagsOf(flags: Flags, sharing: readonly [string, { flags: Flags }] | undefined): string {
  const own = Object.entries(flags).filter(([flag]) => sharing === undefined || !(flag in sharing[1].flags));
  const rows = own.map(([flag, { value, help, default: fallback, otherwise = fallback, repeat }]) => [
    code(`--${flag}${value === undefined ? '' : ` ${value}`}`),
    `${help}${repeat === true && !help.includes('repeat') ? '; repeat' : ''}`,
    otherwise === undefined ? '' : String(otherwise),
  ]);
  const listed = rows.length === 0 ? '' : markdownTable(['flag', 'meaning', 'otherwise'], rows);
  return sharing === undefined
    ? listed
    : [`Takes the flags of [${sharing[0]}](#${sharing[0]}) too.`, listed].filter((part) => part !== '').join('\n\n');
}

function fenced(text: string): string {
  return `\`\`\`text\n${text}\n\`\`\``;
}

function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.?!]$/.test(text) ? '' : '.'}`;
}
