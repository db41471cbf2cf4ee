/** The provider's quick start as a whole: an ordinary user, a real `sbatch`, `squeue` and `srun`. */
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { follow } from '../docs/reader.ts';
import { Gateway } from '../support/gateway.ts';
import { endAll, freePort } from '../support/processes.ts';
import { MODEL } from '../support/test-cluster.ts';
import { Cluster } from './cluster.ts';
import { readerOn } from './page-reader.ts';

afterEach(endAll);

it('docs/quickstart-provider.md, every command of it', async () => {
  const gateway = await Gateway.start();
  const cluster = await Cluster.up();
  // The files of a release that the page downloads.
  const release = join(cluster.directory, 'release');
  await mkdir(release, { mode: 0o755 });
  const installed = join(cluster.directory, 'bin');
  const single = join(release, `otela-agent-${process.platform}-${process.arch}`);
  await writeFile(single, `#!/bin/sh\nexec ${installed}/node ${installed}/otela-agent.mjs "$@"\n`);
  await chmod(single, 0o755);
  const place = await readerOn(cluster, {
    model: MODEL,
    files: {
      'otela-token': await gateway.createJoinToken('eth', 'alps'),
      'otela-key': await gateway.createKey('provider'),
    },
    env: { OTELA_RELEASE: `file://${release}` },
    yours: { OTELA_GATEWAY: gateway.url, MODEL, PORT: String(await freePort()) },
  });
  const read = await follow('docs/quickstart-provider.md', place);
  // e2e/standalone/installer runs the line with a release.
  expect(read.skipped.map((one) => one.split(' needs ')[1])).toEqual(['a gateway with a release']);
  expect(await read.terminals[0]?.end(5_000)).toMatchObject({ code: 0 });
});
