/**
 * `npm run bench:functions [-- runs parsl] [--device cuda] [--slurm]`: a real PyTorch model that is loaded in each call,
 * once on a node, or once in a process, while half of the nodes are preempted; and the same function with Parsl. With
 * --slurm (root), the nodes are jobs of a real Slurm, which other jobs preempt. run.py has all options. This file finds
 * a Python with PyTorch, or makes one outside the repository.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { Cluster } from '../../test/slurm/cluster.ts';
import { endAll } from '../../test/support/processes.ts';
import { NODE, ROOT } from '../../test/support/where.ts';

/** Another version may be named by OTELA_BENCH_PYTHON. */
const PARSL = 'parsl==2026.10.26';
/** Jobs of any other partition preempt these without grace. They start again afterwards. */
const SPOT = 'PartitionName=spot Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 MaxTime=60 DefaultTime=60';
const VENV = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'opentela/bench-functions');

function has(python: string, ...modules: string[]): boolean {
  return spawnSync(python, ['-c', `import ${modules.join(', ')}`], { stdio: 'ignore' }).status === 0;
}

/**
 * Debian's python3-torch is the smallest PyTorch without CUDA. PyPI's wheels for x86-64 contain CUDA and need 5 GB of
 * disk.
 */
function pythonWithTorch(): string {
  const own = join(VENV, 'bin/python');
  const named = process.env.OTELA_BENCH_PYTHON;
  if (named !== undefined) return named;
  if (has(own, 'torch', 'parsl')) return own;
  const base = ['/usr/bin/python3', 'python3'].find((python) => has(python, 'torch')) ?? 'python3';
  execFileSync(base, ['-m', 'venv', '--system-site-packages', VENV], { stdio: 'inherit' });
  const packages = has(own, 'torch') ? [PARSL] : [PARSL, 'torch==2.11.0', 'numpy'];
  execFileSync(own, ['-m', 'pip', 'install', '--quiet', ...packages], { stdio: 'inherit' });
  return own;
}

const args = [join(ROOT, 'bench/functions/run.py'), '--node', NODE, ...process.argv.slice(2)];

try {
  const env = args.includes('--slurm') ? { ...process.env, ...(await Cluster.up(SPOT)).userEnv } : process.env;
  process.exitCode = spawnSync(pythonWithTorch(), args, { stdio: 'inherit', env }).status ?? 1;
} finally {
  await endAll();
}
