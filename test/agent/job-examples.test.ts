/**
 * The job scripts for batch systems other than Slurm, run with a mock of otela-agent; and that the agent detects such a
 * job.
 */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { detectBatchJob } from '../../node/batch-systems/detect.ts';
import { ROOT } from '../support/where.ts';
import { fakeTool, scratch, userEnv } from './support/harness.ts';

const JOBS = join(ROOT, 'examples/jobs');
const hasShellcheck = spawnSync('shellcheck', ['--version']).status === 0;

interface System {
  system: string;
  /** Marks the script's directive lines. */
  directive: RegExp;
  environment: Record<string, string>;
}
const SYSTEMS: Record<string, System> = {
  'vllm.pbs': {
    system: 'PBS',
    directive: /^#PBS -l walltime=/m,
    environment: { PBS_JOBID: '4711.pbs.example.org' },
  },
  'vllm.lsf': { system: 'LSF', directive: /^#BSUB -W /m, environment: { LSB_JOBID: '4711' } },
  'vllm-flux.sh': {
    system: 'Flux',
    directive: /flux submit .*\n.*--time-limit/,
    environment: { FLUX_JOB_ID: 'ƒ2vYJ' },
  },
  'vllm.sge': {
    system: 'Grid Engine',
    directive: /^#\$ -l h_rt=/m,
    environment: { JOB_ID: '4711', SGE_ROOT: '/opt/sge' },
  },
  'vllm-htcondor.sh': { system: 'HTCondor', directive: /condor_submit/, environment: { _CONDOR_JOB_AD: 'job.ad' } },
};

it('each script has its system here, and each submit file its script', () => {
  expect(readdirSync(JOBS).filter((name) => !name.endsWith('.sub'))).toEqual(Object.keys(SYSTEMS).toSorted());
  const submit = readFileSync(join(JOBS, 'vllm-htcondor.sub'), 'utf8');
  expect(submit).toMatch(/^executable += vllm-htcondor\.sh$/m);
  expect(submit).toMatch(/^allowed_execute_duration = \d+$/m);
});

it.for(Object.entries(SYSTEMS))(
  '%s starts an agent that knows its job',
  ([name, { system, directive, environment }]) => {
    const script = join(JOBS, name);
    const text = readFileSync(script, 'utf8');
    expect(text).toMatch(directive);
    expect(readFileSync(join(ROOT, 'examples/README.md'), 'utf8')).toContain(name);
    const directory = scratch();
    fakeTool(directory, 'otela-agent', 'echo "key $OTELA_ENGINE_KEY"; for a; do echo "[$a]"; done');
    const ad = join(directory, 'job.ad');
    writeFileSync(ad, 'ClusterId = 4711\nProcId = 0\n');
    const own = '_CONDOR_JOB_AD' in environment ? { _CONDOR_JOB_AD: ad } : environment;
    const env = userEnv(directory, { ...own, OTELA_GATEWAY: 'https://gw.example.org', GPUS: '4' });
    const { status, stdout, stderr } = spawnSync('bash', [script, '--max-model-len', '32768'], {
      env,
      encoding: 'utf8',
    });
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    const words = [...stdout.matchAll(/^\[(.*)\]$/gm)].map(([, word]) => word);
    expect(words.slice(0, 6)).toEqual(['start', '--drain-before', '120s', '--', 'vllm', 'serve']);
    expect(words[words.indexOf('--port') + 1]).toMatch(/^2\d{4}$/);
    expect(words.slice(-2)).toEqual(['--max-model-len', '32768']);
    // Each job has a new key, and no command line contains it.
    const [, key = ''] = /^key ([0-9a-f]{48})$/m.exec(stdout) ?? [];
    expect(key).toHaveLength(48);
    expect(words.join(' ')).not.toContain(key);
    expect(detectBatchJob(own)).toMatchObject({ system });
    const without = spawnSync('bash', [script], { env: { ...env, OTELA_GATEWAY: '' }, encoding: 'utf8' });
    expect(without.status).not.toBe(0);
    expect(without.stderr).toContain('the address of the gateway');
  },
);

it.for(Object.keys(SYSTEMS))('%s pleases ShellCheck', (name, { skip }) => {
  skip(!hasShellcheck, 'shellcheck is not installed');
  expect(spawnSync('shellcheck', ['--shell', 'bash', join(JOBS, name)], { encoding: 'utf8' }).stdout).toBe('');
});
