/**
 * `npm run bench:laptop`: seconds from the command to the first token on a real Slurm by ssh, for `otela up` and for the
 * usual script (sbatch, squeue, ssh -L, curl), alternately; then milliseconds of a request through each, and at the
 * engine's port. Needs root, sshd and Slurm, as test/slurm does.
 */
import { spawnSync } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Laptop, MODEL, type Served, served } from '../test/slurm/laptop.ts';
import { endAll, eventually, freePort, Managed } from '../test/support/processes.ts';
import { ROOT } from '../test/support/where.ts';
import { repeated } from './stats.ts';

const ASK = JSON.stringify({ model: MODEL, max_tokens: 1, messages: [{ role: 'user', content: 'Hello' }] });

/** A script as users write it: it asks for the queue and the engine every two seconds. */
const usualScript = (port: number) => `set -e
job=$(ssh cluster "bash -lc 'cat >job.sh; sbatch --parsable job.sh'" <"$HOME/job.sh")
until node=$(ssh cluster "bash -lc 'squeue -h -t R -j $job -o %N'") && [ -n "$node" ]; do sleep 2; done
address=$(ssh cluster "bash -lc 'scontrol show node -o $node'" | grep -o 'NodeAddr=[^ ]*' | cut -d= -f2)
ssh -N -L ${port}:$address:${port + 1} cluster &
until curl -sf -o /dev/null http://127.0.0.1:${port}/v1/models; do sleep 2; done
curl -sf http://127.0.0.1:${port}/v1/chat/completions -H 'content-type: application/json' -d '${ASK}' >/dev/null
echo "first token"
until [ -e "$HOME/measured" ]; do sleep 0.1; done
ssh cluster "bash -lc 'scancel $job'"
kill %1`;

/** Requests one after another that measure latency, and those before that are not counted. */
const REQUESTS = 200;
const WARM_UP = 20;

/** Milliseconds of requests for one token, over one connection. */
async function latencies({ url, key }: Served): Promise<number[]> {
  const found: number[] = [];
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  for (let n = 0; n < WARM_UP + REQUESTS; n++) {
    const from = performance.now();
    const response = await fetch(`${url}/chat/completions`, { method: 'POST', headers, body: ASK });
    await response.arrayBuffer();
    if (!response.ok) throw new Error(`${url} answered ${response.status}`);
    if (n >= WARM_UP) found.push(performance.now() - from);
  }
  return found;
}

/** Milliseconds of requests, by their way to the engine. */
const byWay = new Map<string, number[]>();
async function measure(way: string, access: Served): Promise<void> {
  byWay.set(way, [...(byWay.get(way) ?? []), ...(await latencies(access))]);
}

async function usual(laptop: Laptop): Promise<number> {
  await rm(join(laptop.home, 'measured'), { force: true });
  const port = await freePort();
  const job = `#!/bin/bash\n#SBATCH --gpus-per-node=1\n#SBATCH --time=10\nexec vllm --host 0.0.0.0 --port ${port + 1}\n`;
  await writeFile(join(laptop.home, 'job.sh'), job);
  const from = performance.now();
  const script = new Managed(['bash', '-c', usualScript(port)], { label: 'script', env: laptop.env, cwd: ROOT });
  await script.line(/first token/, 120_000);
  const seconds = (performance.now() - from) / 1_000;
  const engine = (at: number) => ({ url: `http://127.0.0.1:${at}/v1`, key: '' });
  await measure("the engine's port", engine(port + 1));
  await measure('ssh -L', engine(port));
  await writeFile(join(laptop.home, 'measured'), '');
  await script.end(60_000);
  return seconds;
}

async function otelaUp(laptop: Laptop): Promise<number> {
  const from = performance.now();
  const up = laptop.up('--time', '10');
  const access = await served(up);
  const seconds = (performance.now() - from) / 1_000;
  await measure('otela up', access);
  await laptop.ran('down');
  await up.end(30_000);
  return seconds;
}

/** Waits until no job is in the queue, so that the next turn finds the cluster as the first one did. */
async function emptyQueue({ cluster }: Laptop): Promise<void> {
  await eventually('an empty queue', 60_000, () => cluster.command('squeue', '-h').trim() === '' || undefined);
}

const { values } = parseArgs({ options: { turns: { type: 'string', default: '5' } } });
try {
  const laptop = await Laptop.open();
  // Installs the agent and makes the gateway's data, and fills the caches of both.
  await otelaUp(laptop);
  await emptyQueue(laptop);
  await usual(laptop);
  byWay.clear();
  const seconds: [string, (laptop: Laptop) => Promise<number>, number[]][] = [
    ['usual script', usual, []],
    ['otela up', otelaUp, []],
  ];
  for (let turn = 0; turn < Number(values.turns); turn++)
    for (const [, run, found] of seconds) {
      await emptyQueue(laptop);
      found.push(await run(laptop));
    }
  const load = spawnSync('cat', ['/proc/loadavg'], { encoding: 'utf8' }).stdout.split(' ')[0];
  console.log(`Seconds from the command to the first token; load of this machine ${load}\n`);
  console.log('| way | median | least | most |\n| --- | ---: | ---: | ---: |');
  for (const [name, , found] of seconds) {
    const { median, least, most } = repeated(found);
    console.log(`| ${name} | ${median.toFixed(1)} | ${least.toFixed(1)} | ${most.toFixed(1)} |`);
  }
  console.log('\nMilliseconds of a request for one token, one after another\n');
  console.log('| way | median | 95 % | number |\n| --- | ---: | ---: | ---: |');
  for (const [way, found] of byWay) {
    const sorted = found.toSorted((a, b) => a - b);
    const at = (share: number) => (sorted[Math.floor(share * (sorted.length - 1))] ?? 0).toFixed(1);
    console.log(`| ${way} | ${at(0.5)} | ${at(0.95)} | ${sorted.length} |`);
  }
} finally {
  await endAll();
}
