/**
 * The tutorial as a whole: an ordinary user installs a release, runs a gateway, and gets an answer from a real Slurm
 * job.
 */
import { afterEach, expect, it } from 'vitest';
import { follow } from '../docs/reader.ts';
import { release } from '../docs/release.ts';
import { endAll, freePort } from '../support/processes.ts';
import { Cluster } from './cluster.ts';
import { readerOn } from './page-reader.ts';

const MODEL = 'Qwen/Qwen3-0.6B';

afterEach(endAll);

it('docs/tutorial.md, every command of it', async () => {
  const [cluster, address] = [await Cluster.up(), await release()];
  const place = await readerOn(cluster, {
    model: MODEL,
    env: { OTELA_RELEASE: address },
    yours: { MODEL, PORT: String(await freePort()), HOST: '127.0.0.1' },
  });
  const read = await follow('docs/tutorial.md', place);
  expect(read.skipped).toEqual([]);
});
