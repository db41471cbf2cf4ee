/**
 * A cold model on three nodes of a real Slurm: 64 MiB of random bytes as weights, and a mock engine that loads them.
 */
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { endAll, eventually } from '../support/processes.ts';
import { MODEL } from '../support/test-cluster.ts';
import type { Job } from './cluster.ts';
import { openPlace } from './place.ts';

afterEach(endAll);

const BYTES = 64 * 1024 * 1024;
/** It took 18 s on two cores with other work. */
const WITHIN_MS = 60_000;

it('three nodes start a cold model with one read of its source', async () => {
  const { house, cluster, token } = await openPlace();
  await house.agents[0]?.stop();
  const source = join(cluster.directory, 'model');
  await mkdir(source);
  const weights = randomBytes(BYTES);
  await writeFile(join(source, 'model.safetensors'), weights);
  await chmod(source, 0o755);
  const disks = join(cluster.directory, 'disks');
  await mkdir(disks);
  await chmod(disks, 0o777);
  // All nodes of this Slurm are one machine: each has a separate disk directory under its name.
  const flags = `--weights dir:${source} --weights-dir ${disks}/$SLURMD_NODENAME`;
  const jobs: Job[] = [];
  const begun = performance.now();
  for (const node of ['n1', 'n2', 'n3'])
    jobs.push(
      await cluster.submit({
        sbatch: [`-w ${node}`],
        script: await cluster.agentLine('exec', house.gateway.url, token, MODEL, flags),
      }),
    );
  const outputs = () => Promise.all(jobs.map((job) => job.output()));
  try {
    await eventually('all three serve', WITHIN_MS, async () => {
      const nodes = await house.gateway.nodes();
      const mine = nodes.filter(({ state, job }) => state === 'SERVING' && jobs.some(({ id }) => id === job?.id));
      return mine.length === 3 ? true : undefined;
    });
  } catch (cause) {
    throw new Error(`${String(cause)}\n${(await outputs()).join('\n')}`, { cause });
  }
  console.log(`three nodes served after ${((performance.now() - begun) / 1000).toFixed(1)} s`);
  const told = (await outputs()).map((text) => /(\d+) bytes from the source, (\d+) from other nodes/.exec(text));
  expect(told.reduce((sum, match) => sum + Number(match?.[1]), 0)).toBe(BYTES);
  expect(told.reduce((sum, match) => sum + Number(match?.[2]), 0)).toBe(2 * BYTES);
  for (const node of ['n1', 'n2', 'n3']) {
    const kept = join(disks, node, '.otela', 'blobs');
    const [name = ''] = (await readdir(kept)).filter((one) => !one.includes('.'));
    expect((await readFile(join(kept, name))).equals(weights), node).toBe(true);
  }
});
