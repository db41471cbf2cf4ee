/**
 * A day of two institutions: users of B use nodes of A, through B's gateway and over the mesh. The gateway of each is
 * killed, and a node. In the evening their statements agree, but for requests that ran on the killed node.
 */
import { spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { IngressAgent } from '../support/ingress.ts';
import { patience } from '../support/patience.ts';
import { atEnd, endAll, eventually, type Managed, temporaryDirectory } from '../support/processes.ts';
import { chatBody, MODEL } from '../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE } from '../support/where.ts';

/** Requests that run at the same time: at most as many are lost with a node. */
const CLIENTS = 4;
/** Answers between two crashes. */
const CALM_ANSWERS = 25;
/** One request in ten leaves no record. */
const UNTRACKED_EVERY = 10;
const DAY_MS = 240_000;

let [a, b]: Gateway[] = [];
let directory = '';
const admittedSchema = z.object({ issuers: z.array(z.object({ name: z.string(), root: z.string() })) });

const gateway = (one: Gateway | undefined): Gateway => {
  if (one === undefined) throw new Error('the gateways have not started');
  return one;
};

/** The root's public key, as a gateway sends it to an agent. */
async function rootOf(of: Gateway): Promise<string> {
  const response = await fetch(`${of.url}/agent/admit`, {
    method: 'POST',
    headers: { authorization: `Bearer ${await of.createJoinToken('probe', 'probe')}` },
    body: JSON.stringify({ protocol: 2, public_key: Buffer.alloc(32, 7).toString('base64url') }),
  });
  const { issuers } = admittedSchema.parse(await response.json());
  return issuers.find(({ name }) => name === 'local')?.root ?? '';
}

beforeAll(async () => {
  directory = await temporaryDirectory();
  [a, b] = await Promise.all([Gateway.start(), Gateway.start()]);
  await gateway(b).admin('POST', 'peers', { name: 'a', root: await rootOf(gateway(a)), url: gateway(a).url });
  await gateway(a).admin('POST', 'peers', { name: 'b', root: await rootOf(gateway(b)), url: gateway(b).url });
});
afterAll(endAll);

async function startNode(state: string, engineUrl: string): Promise<Managed> {
  const token = await gateway(a).createJoinToken('lab', 'alps');
  return startAgent({ gateways: [gateway(a).url], token, engineUrl, env: { XDG_RUNTIME_DIR: state } });
}

class Clients {
  readonly answered = { tracked: 0, untracked: 0 };
  #ended = false;
  readonly #running: Promise<void>[];

  constructor(ask: (untracked: boolean) => Promise<Response>) {
    this.#running = Array.from({ length: CLIENTS }, () => this.#run(ask));
  }

  async #run(ask: (untracked: boolean) => Promise<Response>): Promise<void> {
    for (let n = 0; !this.#ended; n++) {
      const untracked = n % UNTRACKED_EVERY === UNTRACKED_EVERY - 1;
      const isAnswered = await ask(untracked).then(
        async (response) => (await response.text()) !== '' && response.status === 200,
        () => false,
      );
      // A client tries again after a while, as during the crash of its gateway.
      if (isAnswered) this.answered[untracked ? 'untracked' : 'tracked']++;
      else await sleep(200);
    }
  }

  async more(count: number): Promise<void> {
    const { tracked } = this.answered;
    await eventually(`${count} more answers`, 60_000, () =>
      this.answered.tracked >= tracked + count ? true : undefined,
    );
  }

  async stop(): Promise<void> {
    this.#ended = true;
    await Promise.all(this.#running);
  }
}

const resultSchema = z.object({
  agreed: z.number(),
  disputed: z.number(),
  untracked: z.object({ requests: z.number(), prompt: z.number(), completion: z.number(), gpu_ms: z.number() }),
});
const disputeSchema = z.looseObject({ kind: z.string(), estimated: z.boolean(), request: z.string() });

/** Fetches both statements, and compares them as an accountant does. */
async function compare() {
  const stated = async (of: Gateway, peer: string, side: string) => {
    const response = await fetch(`${of.url}/admin/peers/${peer}/statement?side=${side}`, {
      headers: { authorization: `Bearer ${of.adminKey}` },
    });
    const file = join(directory, `${side}.ndjson`);
    await writeFile(file, await response.text());
    return file;
  };
  const files = [await stated(gateway(a), 'b', 'served'), await stated(gateway(b), 'a', 'used')];
  const { stdout, stderr, status } = spawnSync(NODE, [GATEWAY_MAIN, 'statement', 'compare', ...files, '--json'], {
    encoding: 'utf8',
    timeout: patience(60_000),
  });
  const lines = stdout.trim().split('\n');
  if (stderr !== '') throw new Error(stderr);
  const result = resultSchema.parse(JSON.parse(lines.pop() ?? ''));
  return { ...result, status, disputes: lines.map((line) => disputeSchema.parse(JSON.parse(line))) };
}

it(
  'statements of both agree after the crash of each gateway, and of a node but for what ran there',
  async () => {
    const engines = await Promise.all([1, 2].map(() => startEngine({ models: [MODEL] })));
    for (const engine of engines) atEnd(() => engine.close());
    const states = await Promise.all(engines.map(() => temporaryDirectory('otela-node')));
    const nodes = await Promise.all(engines.map(({ url }, n) => startNode(states[n] ?? '', url)));
    await Promise.all([gateway(a).serving(2), gateway(b).serving(2)]);
    const project = await gateway(b).createProject('Physics');
    const key = await gateway(b).createKey('k', { trusted_providers: ['lab@a'], project_id: project, no_track: true });
    const clients = new Clients((untracked) =>
      fetch(`${gateway(b).url}/v1/chat/completions`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${key}`,
          'content-type': 'application/json',
          ...(untracked && { 'x-otela-no-track': '1' }),
        },
        body: JSON.stringify(chatBody({ tokens: 5, delayMs: 20 })),
      }),
    );
    await clients.more(CALM_ANSWERS);
    for (const one of [gateway(a), gateway(b)]) {
      await one.kill9();
      await sleep(1_000);
      await one.restart();
      await clients.more(CALM_ANSWERS);
    }
    // Everything until here agrees.
    await clients.stop();
    const { tracked, untracked } = clients.answered;
    const before = await eventually('both statements to agree', 60_000, async () => {
      const now = await compare();
      return now.disputed === 0 && now.agreed >= tracked && now.untracked.requests >= untracked ? now : undefined;
    });
    console.log(`after both gateways: ${tracked} answers, ${JSON.stringify(before)}`);
    expect(before.status).toBe(0);
    expect(before.untracked.completion).toBeGreaterThanOrEqual(5 * untracked);

    const more = new Clients(() =>
      fetch(`${gateway(b).url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: JSON.stringify(chatBody({ tokens: 20, delayMs: 20 })),
      }),
    );
    await more.more(CALM_ANSWERS);
    nodes[0]?.signal('SIGKILL', 'group');
    await more.more(CALM_ANSWERS);
    await startNode(states[0] ?? '', engines[0]?.url ?? '');
    await more.more(CALM_ANSWERS);
    await more.stop();
    const all = tracked + more.answered.tracked;
    const after = await eventually('the rest to agree', 60_000, async () => {
      const now = await compare();
      return now.disputed <= CLIENTS && now.agreed >= all ? now : undefined;
    });
    console.log(`after a node: ${all} answers, ${JSON.stringify(after)}`);
    // Only B knows what ran on the node, and says that it estimates.
    for (const dispute of after.disputes) expect(dispute).toMatchObject({ kind: 'theirs', estimated: true });
  },
  DAY_MS,
);

it('a request over the mesh is in both statements', async () => {
  const engine = await startEngine({ models: ['over/mesh'] });
  atEnd(() => engine.close());
  const token = await gateway(a).createJoinToken('lab', 'alps');
  const node = await IngressAgent.start({
    gateway: gateway(a),
    token,
    engineUrl: engine.url,
    args: ['--serve-to', 'lab,users@b'],
  });
  const asking = await IngressAgent.start({
    gateway: gateway(b),
    token: await gateway(b).createJoinToken('users', 'laptop'),
    peer: node,
    args: ['--trust', 'users,lab@a'],
  });
  const { agreed } = await compare();
  const { url, key } = await asking.door();
  await eventually('an answer over the mesh', 60_000, async () => {
    const response = await fetch(`${url}/chat/completions`, {
      signal: AbortSignal.timeout(20_000),
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(chatBody({ tokens: 3 }, { model: 'over/mesh' })),
    });
    return (await response.text()) !== '' && response.status === 200 ? true : undefined;
  });
  const now = await eventually('the request in both statements', 60_000, async () => {
    const one = await compare();
    return one.agreed > agreed ? one : undefined;
  });
  expect(now.disputes.filter(({ estimated }) => !estimated)).toEqual([]);
});
