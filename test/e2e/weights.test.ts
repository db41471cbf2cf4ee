import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import { engineCommand, startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { endAll, eventually, freePort, temporaryDirectory } from '../support/processes.ts';
import { AGENT_MAIN, NODE } from '../support/where.ts';

afterEach(endAll);

const run = promisify(execFile);
const pulledSchema = z.object({ path: z.string(), from_source: z.number(), from_peers: z.number(), state: z.string() });

const knownSchema = z.object({ elsewhere: z.array(z.object({ session: z.string() })) });

/** Starts an agent with a directory for weights. Returns it with its command line. */
async function keeper(gateway: Gateway, token: string, args: string[] = []) {
  const state = await temporaryDirectory('otela-state');
  const directory = await temporaryDirectory('otela-weights');
  const start = () =>
    startAgent({
      gateways: [gateway.url],
      token,
      args: ['--weights-dir', directory, ...args],
      env: { XDG_RUNTIME_DIR: state },
    });
  const agent = await start();
  const weights = async (...words: string[]) => {
    const { stdout } = await run(NODE, [AGENT_MAIN, 'weights', ...words], {
      env: { ...process.env, XDG_RUNTIME_DIR: state },
    });
    return stdout;
  };
  return { agent, start, directory, weights };
}

type Keeper = Awaited<ReturnType<typeof keeper>>;

async function meet(...nodes: Keeper[]): Promise<void> {
  for (const node of nodes)
    await eventually('it knows the others', 60_000, async () => {
      const listed = await node.weights('ls', '--json').catch(() => '{}');
      const known = knownSchema.safeParse(JSON.parse(listed)).data?.elsewhere;
      return known?.length === nodes.length - 1 ? true : undefined;
    });
}

it('the second node of a cluster takes a model from the first, also when its source has gone', async () => {
  const gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  const source = join(await temporaryDirectory('otela-source'), 'model');
  await mkdir(source);
  const bytes = randomBytes(40 * 1024 * 1024 + 5);
  await writeFile(join(source, 'model.safetensors'), bytes);
  await writeFile(join(source, 'config.json'), '{}');
  const [first, second] = [await keeper(gateway, token), await keeper(gateway, token)];
  await meet(first, second);
  const a = pulledSchema.parse(JSON.parse(await first.weights('pull', source, '--json')));
  expect(a).toMatchObject({ state: 'done', from_source: bytes.length + 2, from_peers: 0 });
  await rm(source, { recursive: true });
  const b = pulledSchema.parse(JSON.parse(await second.weights('pull', source, '--from', 'dir', '--json')));
  expect(b).toMatchObject({ state: 'done', from_source: 0, from_peers: bytes.length + 2 });
  expect((await readFile(join(b.path, 'model.safetensors'))).equals(bytes)).toBe(true);
  const listed = await first.weights('ls');
  expect(listed.match(/100 % of 41\.9 MB/g)).toHaveLength(2);
});

const PIECE = 16 * 1024 * 1024;

it('a node that is killed in the middle of a pull has lost one piece at the most', async () => {
  const gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  const source = await temporaryDirectory('otela-source');
  const bytes = randomBytes(6 * PIECE);
  await writeFile(join(source, 'model.safetensors'), bytes);
  const [first, second] = [await keeper(gateway, token, ['--weights-rate', '16MB']), await keeper(gateway, token)];
  await meet(first, second);
  await first.weights('pull', source);
  const cut = second.weights('pull', source).catch(() => 'cut off');
  const blobs = join(second.directory, '.otela', 'blobs');
  const pieces = await eventually('two pieces are there', 60_000, async () => {
    const [name] = (await readdir(blobs).catch(() => [])).filter((one) => one.endsWith('.digests'));
    const { size } = name === undefined ? { size: 0 } : await stat(join(blobs, name));
    return size >= 64 ? size / 32 : undefined;
  });
  process.kill(second.agent.pid, 'SIGKILL');
  await second.agent.exited;
  expect(await cut).toBe('cut off');
  await second.start();
  await meet(first, second);
  const again = pulledSchema.parse(JSON.parse(await second.weights('pull', source, '--json')));
  expect(again.state).toBe('done');
  expect(again.from_source).toBe(0);
  // Blobs on the disk are not fetched again.
  expect(again.from_peers).toBeLessThanOrEqual(bytes.length - pieces * PIECE);
  expect((await readFile(join(again.path, 'model.safetensors'))).equals(bytes)).toBe(true);
});

it('each rank of an engine over two nodes has its weights before its part begins, with one read of the source', async () => {
  const gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  const source = await temporaryDirectory('otela-source');
  const bytes = randomBytes(PIECE + 5);
  await writeFile(join(source, 'model.safetensors'), bytes);
  const port = await freePort();
  const part = `console.log('rank 1 reads ' + process.argv[1]); setInterval(() => {}, 60_000)`;
  const commands = [engineCommand(port), [NODE, '-e', part, '{{weights}}']];
  const ranks = await Promise.all(
    commands.map(async (command, rank) => {
      const directory = await temporaryDirectory('otela-weights');
      return startAgent({
        gateways: [gateway.url],
        token,
        args: ['--span-nodes', '--drain-timeout', '200ms', '--weights', `dir:${source}`, '--weights-dir', directory],
        env: { SLURM_PROCID: String(rank), SLURM_STEP_NUM_NODES: '2' },
        command,
      });
    }),
  );
  const [, path = ''] = (await ranks[1]?.line(/rank 1 reads (.*)/, 120_000)) ?? [];
  expect((await readFile(join(path, 'model.safetensors'))).equals(bytes)).toBe(true);
  const [node] = await gateway.serving(1, 120_000);
  const told = await Promise.all(
    ranks.map((rank) => rank.line(/(\d+) bytes from the source, (\d+) from other/, 60_000)),
  );
  expect(told.reduce((sum, [, read]) => sum + Number(read), 0)).toBe(bytes.length);
  const other = (await gateway.nodes()).find(({ session }) => session !== node?.session);
  expect(other).toMatchObject({ models: [], hardware: { gpus: [], cpus: 0 } });
  // Rank 1's process of the engine ends with its agent.
  ranks[1]?.signal('SIGTERM');
  await ranks[1]?.end(60_000);
  await eventually('its session has left', 60_000, async () => {
    const now = (await gateway.nodes()).find(({ session }) => session === other?.session);
    return now === undefined || now.state === 'LEFT' ? true : undefined;
  });
});
