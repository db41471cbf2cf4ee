/** What shells offer after `source <(otela-… completion SHELL)`, tested in the real shells. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { SHELLS, type Shell } from '../../shared/command-line/shell-completion.ts';
import { which } from '../support/abilities.ts';
import { patience } from '../support/patience.ts';
import { AGENT_MAIN, FACTORY_MAIN, GATEWAY_MAIN, NODE, PLAN_MAIN } from '../support/where.ts';

const MAINS = {
  'otela-agent': AGENT_MAIN,
  'otela-gateway': GATEWAY_MAIN,
  'otela-plan': PLAN_MAIN,
  'otela-factory': FACTORY_MAIN,
} as const;
type Program = keyof typeof MAINS;
const PROGRAMS = Object.keys(MAINS) as Program[];

const directory = mkdtempSync(join(tmpdir(), 'otela-completion-'));
afterAll(() => rmSync(directory, { recursive: true }));
writeFileSync(join(directory, 'a-file.pem'), '');
mkdirSync(join(directory, 'a-directory'));

function run(file: string, ...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(file, args, {
    encoding: 'utf8',
    cwd: directory,
    timeout: patience(30_000),
  });
  if (status !== 0) throw new Error(`${file} ${args.join(' ')}: ${status} ${stderr}`);
  // A message on stderr means that the shell did not understand the script.
  if (stderr !== '') throw new Error(stderr);
  return stdout;
}

const scripts = new Map<string, string>();
function scriptOf(program: Program, shell: Shell): string {
  const file = join(directory, `${program}.${shell}`);
  if (!scripts.has(file)) {
    scripts.set(file, file);
    writeFileSync(file, run(NODE, MAINS[program], 'completion', shell));
  }
  return file;
}

/** Returns what the shell offers for the last word, as if the user were typing it. */
function offered(program: Program, ...words: string[]): string[] {
  const typed = [program, ...words].map((word) => `'${word}'`).join(' ');
  const ask = `source ${scriptOf(program, 'bash')}; COMP_WORDS=(${typed}); COMP_CWORD=${words.length}
    ${program === 'otela-plan' ? '_otela_plan' : `_${program.replace('-', '_')}`}; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return run('bash', '--norc', '--noprofile', '-c', ask)
    .split('\n')
    .filter((word) => word !== '')
    .sort();
}

it('bash offers commands, and the flags of the command that stands there', () => {
  expect(offered('otela-gateway', 're')).toEqual(['restore']);
  expect(offered('otela-agent', 's')).toEqual(expect.arrayContaining(['sbatch', 'start', 'status']));
  expect(offered('otela-gateway', 'keys', '--exp')).toEqual(['--expires']);
  expect(offered('otela-gateway', 'usage', '--exp')).toEqual([]);
  expect(offered('otela-plan', 'plan', '--obj')).toEqual(['--objective']);
});

it('bash offers verbs, the values that a flag may have, files and directories', () => {
  expect(offered('otela-gateway', 'ke')).toEqual(['keys']);
  expect(offered('otela-gateway', 'keys', 'r')).toEqual(['revoke', 'rotate']);
  expect(offered('otela-gateway', 'keys', 'create', '--role', '')).toEqual(['consumer', 'operator', 'provider']);
  expect(offered('otela-gateway', 'keys', 'create', '--role', '=', 'op')).toEqual(['operator']);
  expect(offered('otela-gateway', 'keys', 'create', '--na')).toEqual(['--name']);
  expect(offered('otela-gateway', 'keys', 'create', '--name', '')).toEqual([]);
  expect(offered('otela-gateway', 'serve', '--tls-cert', 'a-f')).toEqual(['a-file.pem']);
  expect(offered('otela-gateway', 'serve', '--data', 'a-')).toEqual(['a-directory']);
  expect(offered('otela-gateway', 'restore', 'a-f')).toEqual(['a-file.pem']);
  expect(offered('otela-agent', 'start', '--tier', '')).toEqual(['stable', 'volatile']);
  expect(offered('otela-agent', 'sbatch', '--engine', 's')).toEqual(['sglang']);
  expect(offered('otela-agent', 'completion', '')).toEqual([...SHELLS].sort());
  expect(offered('otela-plan', 'plan', '--objective', '')).toEqual(['cost', 'gpus', 'latency', 'throughput']);
});

it('behind -- stands another program: bash offers commands, then files, and no flags of ours', () => {
  expect(offered('otela-agent', 'start', '--tier', 'stable', '--', 'mkte')).toContain('mktemp');
  expect(offered('otela-agent', 'start', '--', 'vllm', 'a-f')).toEqual(['a-file.pem']);
  expect(offered('otela-agent', 'start', '--', 'vllm', '--')).toEqual([]);
});

const [zsh, fish] = [which('zsh'), which('fish')];

it.for(PROGRAMS)('zsh takes the script of %s and knows the program by it', (program, { skip }) => {
  skip(zsh === undefined, 'zsh is not installed');
  const script = scriptOf(program, 'zsh');
  run('zsh', '-f', '-n', script);
  const ask = `autoload -Uz compinit; compinit -D -u; source ${script}; print -r -- $_comps[${program}]`;
  expect(run('zsh', '-f', '-c', ask).trim()).toBe(`_${program.replace('-', '_')}`);
});

it.for([
  ['otela-gateway', 'keys ro', 'rotate'],
  ['otela-gateway', 'keys create --role op', 'operator'],
  ['otela-gateway', 'doctor --pub', '--public-url'],
  ['otela-agent', 'start --ti', '--tier'],
  ['otela-plan', 'plan --objective th', 'throughput'],
] as const)('fish completes %s %s', ([program, typed, expected], { skip }) => {
  skip(fish === undefined, 'fish is not installed');
  const ask = `source ${scriptOf(program, 'fish')}; complete -C '${program} ${typed}'`;
  const { stdout, stderr } = spawnSync('fish', ['--no-config', '-c', ask], {
    encoding: 'utf8',
    cwd: directory,
    env: { ...process.env, HOME: directory },
  });
  expect(stderr).toBe('');
  expect(stdout.split('\n').map((line) => line.split('\t')[0])).toContain(expected);
});

it.each(PROGRAMS)('%s says which shells there are', (program) => {
  const { status, stderr } = spawnSync(NODE, [MAINS[program], 'completion', 'tcsh'], { encoding: 'utf8' });
  expect([status, stderr]).toEqual([2, expect.stringContaining('bash|zsh|fish')]);
});
