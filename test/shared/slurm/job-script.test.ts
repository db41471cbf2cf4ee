import { spawnSync } from 'node:child_process';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { type JobRequest, jobScript } from '../../../shared/slurm/job-script.ts';

const JOB: JobRequest = {
  gateway: 'https://gw.example.org',
  model: 'Qwen/Qwen3-8B',
  engine: 'vllm',
  gpus: 4,
  partition: 'normal',
  time: '04:00:00',
  container: 'none',
  image: '',
};

/**
 * The arguments with which the script would start the agent, from a bash in which the agent is a mock that prints them.
 */
function argumentsIn(script: string): string[] {
  const stand =
    'otela-agent() { printf "%s\\n" "$@"; }; exec() { "$@"; }; mkdir() { :; }; SLURM_JOB_ID=7 SLURM_CPUS_ON_NODE=72 HF_HOME=/hub\n';
  const { status, stdout } = spawnSync('bash', ['--norc'], { input: stand + script, encoding: 'utf8' });
  expect(status).toBe(0);
  return stdout.trimEnd().split('\n');
}

/** The agent's environment. */
function environmentIn(script: string): Record<string, string> {
  const stand = 'otela-agent() { env; }; exec() { "$@"; }; SLURM_JOB_ID=7\n';
  const { stdout } = spawnSync('bash', ['--norc'], { input: stand + script, encoding: 'utf8' });
  return Object.fromEntries(
    stdout.split('\n').map((line) => [line.split('=', 1)[0], line.slice(line.indexOf('=') + 1)]),
  );
}

it('serves the model behind an agent, on a port of the job’s own', () => {
  const script = jobScript(JOB);
  expect(script.split('\n').slice(0, 7)).toEqual([
    '#!/bin/bash',
    '#SBATCH --job-name=otela',
    '#SBATCH --nodes=1',
    '#SBATCH --gpus-per-node=4',
    '#SBATCH --partition=normal',
    '#SBATCH --time=04:00:00',
    '#SBATCH --signal=B:USR1@120',
  ]);
  const words = 'start -- vllm serve Qwen/Qwen3-8B --tensor-parallel-size 4 --host 127.0.0.1 --port 20007';
  expect(argumentsIn(script)).toEqual(words.split(' '));
});

it('gives vLLM a key of the job’s own, which the agent and a container get too', () => {
  const [key, again] = [1, 2].map(() => environmentIn(jobScript(JOB)));
  expect(key?.VLLM_API_KEY).toMatch(/^[0-9a-f]{48}$/);
  expect(key?.OTELA_ENGINE_KEY).toBe(key?.VLLM_API_KEY);
  expect(again?.VLLM_API_KEY).toMatch(/^[0-9a-f]{48}$/);
  expect(again?.VLLM_API_KEY).not.toBe(key?.VLLM_API_KEY);
  const words = 'start -- enroot start --env VLLM_API_KEY --env HF_HOME --mount /hub:/hub vllm.sqsh vllm serve';
  expect(argumentsIn(jobScript({ ...JOB, container: 'enroot' })).slice(0, 13)).toEqual(words.split(' '));
});

it('lets through to SGLang in a container of Enroot’s what the agent tells it', () => {
  const script = jobScript({ ...JOB, engine: 'sglang', container: 'enroot', image: 'x.sqsh' });
  const words =
    'start -- enroot start --env SGLANG_REQUEST_STATE_WAIT_TIMEOUT --env HF_HOME --mount /hub:/hub x.sqsh python3';
  expect(argumentsIn(script).slice(0, 12)).toEqual(words.split(' '));
});

it('knows SGLang and containers', () => {
  const script = jobScript({ ...JOB, engine: 'sglang', container: 'apptainer', image: 'my image.sif' });
  const words = ['start', '--', 'apptainer', 'exec', '--nv', '--bind', '/hub', 'my image.sif', 'python3', '-m'];
  expect(argumentsIn(script).slice(0, 10)).toEqual(words);
});

it('starts CSCS’s container by a step of the job, with all cores of the job', () => {
  const step = ['start', '--', 'srun', '--ntasks=1', '--unbuffered', '--cpus-per-task=72'];
  expect(argumentsIn(jobScript({ ...JOB, container: 'edf' })).slice(0, 9)).toEqual([
    ...step,
    '--environment=vllm',
    'vllm',
    'serve',
  ]);
  const own = jobScript({ ...JOB, container: 'edf', image: '/capstor/my $env.toml', cpusPerTask: 8 });
  expect(argumentsIn(`SLURM_CPUS_PER_TASK=8\n${own}`).slice(5, 7)).toEqual([
    '--cpus-per-task=8',
    '--environment=/capstor/my $env.toml',
  ]);
});

it('any input stays one argument, and nothing in it is executed by Slurm or the shell', () => {
  const text = fc.string({ unit: 'binary', maxLength: 40 }).map((one) => one.replace(/[\0\n]/g, ' ').trim());
  fc.assert(
    fc.property(text, text, text, (model, partition, time) => {
      fc.pre(model !== '');
      const place = { partition, account: partition, constraint: time, sbatchOptions: [`x${partition}`, time] };
      const script = jobScript({ ...JOB, ...place, model: `m${model}`, time, engineArguments: [model, 'end'] });
      const slurm = script.split('\n').filter((line) => line.startsWith('#SBATCH'));
      expect(slurm.length).toBeLessThanOrEqual(10);
      for (const line of slurm) expect(line).toMatch(/^#SBATCH --[^\s"'#\\$`;]+$/);
      const words = argumentsIn(script);
      expect(words[4]).toBe(`m${model}`);
      expect(words.slice(-2)).toEqual([model, 'end']);
    }),
    { numRuns: 40 },
  );
});
