import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import { AGENT_MAIN, startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { endAll, eventually, temporaryDirectory } from '../support/processes.ts';
import { NODE } from '../support/where.ts';

afterEach(endAll);

const run = promisify(execFile);
const pulledSchema = z.object({ path: z.string(), from_source: z.number(), from_peers: z.number(), state: z.string() });

const knownSchema = z.object({ elsewhere: z.array(z.object({ session: z.string() })) });

/** An agent with a directory for weights, and its command line. */
async function keeper(gateway: Gateway, token: string, args: string[] = []) {
  const state = await temporaryDirectory('otela-state');
  const directory = await temporaryDirectory('otela-weights');
  const agent = await startAgent({
    gateways: [gateway.url],
    token,
    args: ['--weights-dir', directory, ...args],
    env: { XDG_RUNTIME_DIR: state },
  });
  const weights = async (...words: string[]) => {
    const { stdout } = await run(NODE, [AGENT_MAIN, 'weights', ...words], {
      env: { ...process.env, XDG_RUNTIME_DIR: state },
    });
    return stdout;
  };
  return { agent, directory, weights };
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
  for (const node of [first, second])
    await eventually('it knows the other', 60_000, async () => {
      const listed = await node.weights('ls', '--json').catch(() => '{}');
      return knownSchema.safeParse(JSON.parse(listed)).data?.elsewhere.length === 1 ? true : undefined;
    });
  const a = pulledSchema.parse(JSON.parse(await first.weights('pull', source, '--json')));
  expect(a).toMatchObject({ state: 'done', from_source: bytes.length + 2, from_peers: 0 });
  await rm(source, { recursive: true });
  const b = pulledSchema.parse(JSON.parse(await second.weights('pull', source, '--from', 'dir', '--json')));
  expect(b).toMatchObject({ state: 'done', from_source: 0, from_peers: bytes.length + 2 });
  expect((await readFile(join(b.path, 'model.safetensors'))).equals(bytes)).toBe(true);
  const listed = await first.weights('ls');
  expect(listed.match(/100 % of 41\.9 MB/g)).toHaveLength(2);
});
