/** The example scripts run with mocks of otela-agent, srun and scontrol, which print how they were called. */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { MANIFEST_FILE, PLATFORMS, SIGNATURE_FILE } from '../../shared/release/release-manifest.ts';
import { fakeTool, scratch, userEnv } from './support/harness.ts';

const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url));
const scripts = readdirSync(join(EXAMPLES, 'slurm')).map((name) => join(EXAMPLES, 'slurm', name));
const hasShellcheck = spawnSync('shellcheck', ['--version']).status === 0;

const JOB = {
  SLURM_JOB_ID: '4711',
  SLURM_GPUS_ON_NODE: '4',
  SLURM_CPUS_PER_TASK: '8',
  SLURM_NNODES: '2',
  SLURM_NODEID: '1',
  SLURM_JOB_NODELIST: 'n[1-2]',
  OTELA_GATEWAY: 'https://gw.example.org',
};

function run(script: string, more: Record<string, string> = {}) {
  const directory = scratch();
  fakeTool(
    directory,
    'otela-agent',
    'echo "pid $$ engine key $OTELA_ENGINE_KEY file $OTELA_TOKEN_FILE"; for a; do echo "[$a]"; done',
  );
  // Runs the command that follows its options.
  fakeTool(directory, 'srun', 'while :; do case "$1" in -*) shift ;; *) break ;; esac; done; exec "$@"');
  fakeTool(directory, 'scontrol', 'echo n1; echo n2');
  const env = userEnv(directory, { ...JOB, ...more });
  const shell = spawnSync('bash', [script, '--max-model-len', '32768'], { env, encoding: 'utf8' });
  const words = shell.stdout
    .split('\n')
    .filter((line) => line.startsWith('['))
    .map((line) => line.slice(1, -1));
  return { ...shell, words };
}

describe.each(scripts)('%s', (script) => {
  const name = basename(script);
  const text = readFileSync(script, 'utf8');

  it('is correct bash', () => {
    expect(spawnSync('bash', ['-n', script], { encoding: 'utf8' })).toMatchObject({ status: 0, stderr: '' });
  });

  it('pleases ShellCheck', ({ skip }) => {
    skip(!hasShellcheck, 'shellcheck is not installed');
    expect(spawnSync('shellcheck', [script], { encoding: 'utf8' }).stdout).toBe('');
  });

  it('starts the agent with the engine as its command, and passes further arguments to the engine', () => {
    const { status, stderr, words } = run(script);
    expect(stderr).toBe('');
    expect(status).toBe(0);
    expect(words.slice(0, 2)).toEqual(['start', '--']);
    expect(words).toContain(name.startsWith('vllm') ? 'vllm' : 'sglang.launch_server');
    expect(words[words.indexOf('--port') + 1]).toMatch(/^2\d{4}$/);
    expect(words[words.indexOf('--host') + 1]).toBe('127.0.0.1');
    expect(words.slice(-2)).toEqual(['--max-model-len', '32768']);
  });

  it('says what is missing when there is no gateway', () => {
    const { status, stderr } = run(script, { OTELA_GATEWAY: '' });
    expect(status).not.toBe(0);
    expect(stderr).toContain('the address of the gateway');
  });

  it('asks Slurm to warn the batch shell, and hears it', () => {
    expect(text).toMatch(/^#SBATCH --signal=B:USR1@\d+$/m);
    // `exec`, or a trap and a background step: anything else receives signals too late.
    expect(text).toMatch(/^exec otela-agent start|^trap drain USR1$[\s\S]*&\n/m);
  });

  it('stands in the table', () => {
    expect(readFileSync(join(EXAMPLES, 'README.md'), 'utf8')).toContain(`slurm/${name}`);
  });
});

describe('secrets of the examples', () => {
  it('keep strangers on the node from vLLM: a new key for each job, known to the agent, in no command line', () => {
    const script = join(EXAMPLES, 'slurm/vllm.sbatch');
    const keys = [run(script), run(script)].map(({ stdout, words }) => {
      const key = /engine key ([0-9a-f]{48}) /.exec(stdout)?.[1] ?? '';
      expect(words.join(' ')).not.toContain(key || 'no key');
      return key;
    });
    expect(keys[0]).toHaveLength(48);
    expect(keys[0]).not.toBe(keys[1]);
  });
});

describe('one engine over several nodes', () => {
  const script = join(EXAMPLES, 'slurm/vllm-multinode.sbatch');

  it('has one server: the other ranks are headless', () => {
    expect(run(script, { SLURM_NODEID: '0' }).words).not.toContain('--headless');
    const { words } = run(script, { SLURM_NODEID: '1' });
    expect(words).toContain('--headless');
    expect(words[words.indexOf('--node-rank') + 1]).toBe('1');
    expect(words[words.indexOf('--master-addr') + 1]).toBe('n1');
  });
});

it('the image of a release copies what a release brings, and keeps the manifest beside the program', () => {
  const lines = readFileSync(join(EXAMPLES, 'kubernetes/Dockerfile.release'), 'utf8').split('\n');
  const platform = /^ARG PLATFORM=(.*)$/m.exec(lines.join('\n'))?.[1] ?? '';
  expect(PLATFORMS).toContain(platform);
  const copied = lines.filter((line) => line.startsWith('COPY ')).map((line) => line.split(' ').slice(2));
  const named = copied.flatMap((words) => words.slice(0, -1)).map((word) => word.replace(/\$\{PLATFORM\}/, platform));
  expect(named).toEqual(['otela-agent-linux-x64', MANIFEST_FILE, SIGNATURE_FILE]);
  expect(new Set(copied.map((words) => dirname(words.at(-1)?.replace(/\/$/, '/x') ?? '')))).toEqual(
    new Set(['/opt/otela']),
  );
});
