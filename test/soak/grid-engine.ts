/**
 * `npm run soak -- grid-engine`: a whole autoscaler on a real Grid Engine; CI tests only the launcher's five calls
 * there.
 */
import assert from 'node:assert/strict';
import { chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { USER } from '../slurm/cluster.ts';
import { showsAt, streamed } from '../slurm/factory-page.ts';
import { GridEngine, noGridEngine } from '../slurm/grid-engine.ts';
import { installPrograms } from '../slurm/programs.ts';
import { factoryToml, startFactory } from '../slurm/real-factory.ts';
import { Gateway } from '../support/gateway.ts';
import { eventually } from '../support/processes.ts';
import { runByHand } from './by-hand.ts';

const IDLE_S = 10;
const LOAD_MS = 5_000;

/** It fails before qstat has listed it once. */
const BROKEN = `
[recipes.broken]
weights = "none"
[[recipes.broken.engines]]
gpu = ["A100"]
gpus = 1
command = ["bash", "-c", "echo torch.OutOfMemoryError: CUDA out of memory; exit 1", "{{port}}"]
[models."lab/broken"]
recipe = "broken"
min = 1
`;

async function run(): Promise<void> {
  const [gateway, engine] = [await Gateway.start(), await GridEngine.up()];
  const { directory } = engine;
  await installPrograms(directory);
  const key = await gateway.createKey();
  const joinToken = await gateway.createJoinToken('crc', 'crc');
  const made = await gateway.admin('POST', 'factory-tokens', { provider: 'crc', name: 'campus' });
  const secrets = {
    'factory-token': z.object({ token: z.string() }).parse(made).token,
    'join-token': joinToken,
  };
  for (const [name, secret] of Object.entries(secrets)) {
    await writeFile(join(directory, name), `${secret}\n`, { mode: 0o600 });
    await chown(join(directory, name), USER.uid, USER.gid);
  }
  await mkdir(join(directory, 'factory'), { mode: 0o700 });
  await chown(join(directory, 'factory'), USER.uid, USER.gid);
  const config = join(directory, 'factory.toml');
  const text = factoryToml({
    directory,
    gateway: gateway.url,
    name: 'campus',
    cluster: 'crc',
    launcher: 'grid-engine',
    tokenFile: join(directory, 'factory-token'),
    joinTokenFile: join(directory, 'join-token'),
    pool: 'name = "gpu"\ngpus_per_node = 2\ntime = "00:10:00"',
    loadMs: LOAD_MS,
    model: `max = 2\nidle = "${IDLE_S}s"`,
  });
  await writeFile(config, text);
  const start = () => startFactory(directory, config, engine.userEnv);
  let factory = start();
  const shows = showsAt.bind(undefined, gateway);

  await shows('a cold model', 30_000, ({ models }) => models.some(({ state }) => state === 'cold'));
  const { firstMs, body } = await streamed(gateway.url, key, '200');
  assert(body.includes('data: [DONE]'), body);
  console.log(`first token of a cold model: ${Math.round(firstMs)} ms, of them ${LOAD_MS} ms of loading`);

  const { jobs } = await shows('its job', 30_000, (now) => now.jobs.some(({ state }) => state === 'ready'));
  factory.signal('SIGKILL');
  await factory.end(5_000);
  factory = start();
  await shows('the same job, found again', 60_000, (now) =>
    now.jobs.some(({ id, state }) => id === jobs[0]?.id && state === 'ready'),
  );
  const killedAt = performance.now();
  await eventually('an empty queue', IDLE_S * 1_000 + 60_000, () =>
    engine.command('qstat', '-u', '*').includes(' otela-') ? undefined : true,
  );
  console.log(
    `pool: empty ${Math.round((performance.now() - killedAt) / 1_000)} s after the factory came back, idle time-out ${IDLE_S} s`,
  );

  await writeFile(config, text + BROKEN);
  const rested = await shows('a rest', 900_000, ({ models }) =>
    models.some(({ id, state }) => id === 'lab/broken' && state === 'resting'),
  );
  const tails = rested.jobs.filter(({ state }) => state === 'failed').map(({ log_tail }) => log_tail ?? '');
  assert.equal(tails.length, 3);
  for (const tail of tails) assert.match(tail, /CUDA out of memory/);
  console.log('an engine that fails at once: three starts, then a rest, with the ends of their logs');
}

await runByHand(run, noGridEngine());
