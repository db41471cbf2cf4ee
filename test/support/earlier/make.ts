/**
 * Made `gateway.tar.gz` and `expected.json` beside this file: the data directory of a gateway of 65d6b46 (20 November 2026, three
 * migrations), which that version wrote itself while an agent of its own served a stand-in engine. To make it again:
 *
 *     git worktree add --detach /tmp/earlier 65d6b46 && ln -s $PWD/node_modules /tmp/earlier/node_modules
 *     node test/support/earlier/make.ts /tmp/earlier
 *
 * Its keys open nothing else. It must not be made by another version: that this one reads it is what the test is about.
 */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { z } from 'zod';

const HERE = import.meta.dirname;
const REQUESTS = 5;

/** What is used of that version's own test/support; its types are not here. */
interface Earlier {
  openHouse(): Promise<{
    gateway: {
      data: string;
      admin(method: string, path: string, body?: unknown): Promise<unknown>;
      stop(): Promise<void>;
    };
    token: string;
    ask(path: string, body: unknown, init?: RequestInit): Promise<Response>;
  }>;
  chatBody(standIn: object): Record<string, unknown>;
}

const idSchema = z.object({ id: z.string() });
const keySchema = idSchema.extend({ key: z.string() });
const usageSchema = z.object({ data: z.array(z.object({ requests: z.number() })) });

async function main(checkout: string): Promise<void> {
  const part = (name: string) => import(pathToFileURL(join(checkout, 'test/support', name)).href);
  const { openHouse, chatBody }: Earlier = await part('house.ts');
  const { endAll }: { endAll(): Promise<void> } = await part('processes.ts');
  const { gateway, token, ask } = await openHouse();
  const project = idSchema.parse(await gateway.admin('POST', 'projects', { name: 'Physics', trace: true })).id;
  const user = idSchema.parse(await gateway.admin('POST', 'users', { name: 'Ada', project_id: project })).id;
  const made = { name: 'of old', user_id: user, project_id: project, limits: { tokens_per_month: 1_000_000 } };
  const { id, key } = keySchema.parse(await gateway.admin('POST', 'keys', made));
  const headers = { authorization: `Bearer ${key}` };
  for (let n = 0; n < REQUESTS; n++) {
    const answer = await ask('/v1/chat/completions', chatBody({ tokens: 7 }), { headers });
    if (answer.status !== 200) throw new Error(`${answer.status} ${await answer.text()}`);
    await answer.text();
  }
  for (let requests = 0; requests < REQUESTS; ) {
    const { data } = usageSchema.parse(await gateway.admin('GET', `usage?project=${project}`));
    requests = data.reduce((sum, row) => sum + row.requests, 0);
  }
  await gateway.stop();
  const left = ['--exclude=./run', '--sort=name', '--owner=0', '--group=0'];
  execFileSync('tar', ['-C', gateway.data, ...left, '-czf', join(HERE, 'gateway.tar.gz'), '.']);
  const commit = execFileSync('git', ['-C', checkout, 'rev-parse', 'HEAD'], { encoding: 'utf8' }).trim();
  const expected = {
    commit,
    key,
    key_id: id,
    user,
    project,
    token,
    requests: REQUESTS,
    completion_tokens: 7 * REQUESTS,
  };
  writeFileSync(join(HERE, 'expected.json'), `${JSON.stringify(expected, null, 2)}\n`);
  await endAll();
}

const [checkout] = process.argv.slice(2);
if (checkout === undefined) throw new Error('make.ts CHECKOUT');
await main(checkout);
