/** Requests over real channels: sessions with tickets, TLS and gossip, and without any gateway. */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import OpenAI from 'openai';
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import { nodeCrypto } from '../../../agent/host/node-crypto.ts';
import type { IngressConfig } from '../../../agent/ingress/request-service.ts';
import { RequestService } from '../../../agent/ingress/request-service.ts';
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { type Engine, startEngine } from '../../support/engine.ts';
import { TestIssuer } from '../../support/mesh/issuer.ts';
import { Member } from '../../support/mesh/member.ts';
import { promise } from '../../support/patience.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { chatBody, envelopeOf } from '../../support/test-cluster.ts';

afterEach(endAll);

/** Every member claims to serve it. */
const MODEL = 'swiss-ai/Apertus-70B-Instruct-2509';

interface Agent {
  service: RequestService;
  member: Member;
  engine: Engine;
  log: string[];
  ask(path: string, body?: unknown, headers?: Record<string, string>): Promise<Response>;
  url: string;
  key: string;
  close(): Promise<void>;
}

interface AgentOptions extends Partial<IngressConfig> {
  provider?: string;
  peers?: string[];
}

async function startAgent(issuer: TestIssuer, { provider, peers, ...config }: AgentOptions = {}): Promise<Agent> {
  const engine = await startEngine({ models: [MODEL] });
  const seed = randomBytes(32);
  const { publicKey } = createSessionKey(seed);
  const ticket = issuer.ticket(publicKey, provider === undefined ? {} : { provider });
  const replica = new RegistryReplica({ crypto: nodeCrypto, accepts: (id) => id === issuer.issuer });
  const directory = await temporaryDirectory('otela-service');
  const log: string[] = [];
  const service = new RequestService({
    config: {
      listen: { host: '127.0.0.1', port: 0 },
      trust: undefined,
      serveTo: undefined,
      policy: undefined,
      ...config,
    },
    replica,
    issuerName: () => undefined,
    retentionMs: () => 86_400_000,
    engine: () => ({ origin: engine.url, pathPrefix: '' }),
    directory: () => directory,
    usageDirectory: undefined,
    log: (line) => log.push(line),
  });
  const member = new Member({
    issuer: issuer.issuer,
    ticket: ticket.bytes,
    seed,
    listen: { host: '127.0.0.1', port: 0 },
    peers: peers ?? [],
    replica,
    more: { requests: service.requests },
  });
  await service.open();
  await member.open();
  service.join(member.mesh, { session: ticket.session, provider: ticket.provider });
  const { url = '', key_file = '' } = service.status() ?? {};
  const key = readFileSync(key_file, 'utf8').trim();
  let closed: Promise<void> | undefined;
  const agent: Agent = {
    service,
    member,
    engine,
    log,
    url,
    key,
    ask: (path, body, headers = {}) =>
      fetch(`${url}${path}`, {
        method: body === undefined ? 'GET' : 'POST',
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
      }),
    close: () => {
      closed ??= (async () => {
        await service.close();
        member.close();
        await engine.close();
      })();
      return closed;
    },
  };
  atEnd(() => agent.close());
  return agent;
}

const nodesSchema = z.object({ data: z.array(z.object({ session: z.string() })) });

/** Waits until `agent` knows of `nodes` serving nodes. */
async function knows(agent: Agent, nodes: number): Promise<void> {
  await eventually(`${nodes} nodes`, 5_000, async () => {
    const body = nodesSchema.parse(await (await agent.ask('/registry/nodes?state=SERVING')).json());
    return body.data.length === nodes ? true : undefined;
  });
}

const chat = (standIn: object = {}, more: object = {}) => ({ ...chatBody(standIn, more), model: MODEL });

async function threeAgents(): Promise<[Agent, Agent, Agent]> {
  const issuer = new TestIssuer();
  const first = await startAgent(issuer);
  const peers = first.member.mesh.addresses;
  const agents: [Agent, Agent, Agent] = [
    first,
    await startAgent(issuer, { peers }),
    await startAgent(issuer, { peers }),
  ];
  await Promise.all(agents.map((agent) => knows(agent, 3)));
  return agents;
}

it('any agent answers with any agent’s engine, for the OpenAI client, with no gateway', async () => {
  const [first, second, third] = await threeAgents();
  const client = new OpenAI({ baseURL: first.url, apiKey: first.key, maxRetries: 0 });
  const messages = [{ role: 'user' as const, content: 'Say something.' }];
  for (let n = 0; n < 12; n++) {
    const unary = await client.chat.completions.create({ model: MODEL, messages });
    const stream = await client.chat.completions.create({ model: MODEL, messages, stream: true });
    let text = '';
    for await (const event of stream) text += event.choices[0]?.delta.content ?? '';
    expect(text).toBe(unary.choices[0]?.message.content);
  }
  for (const { engine } of [first, second, third]) expect(engine.requests.length).toBeGreaterThan(0);
  await eventually('the counts', 5_000, () => (first.service.status()?.usage_waiting === 24 ? true : undefined));
});

it('an agent that ends without a word is passed over', async () => {
  const [first, second] = await threeAgents();
  await second.close();
  const attempts: string[] = [];
  for (let n = 0; n < 12; n++) {
    const response = await first.ask('/chat/completions', chat());
    expect(response.status).toBe(200);
    expect(response.headers.get('x-otela-node')).not.toBe(second.member.session);
    attempts.push(response.headers.get('x-otela-attempts') ?? '');
  }
  // An attempt at it waits for its timeout: one request notices, for all that follow.
  expect(attempts.filter((one) => one !== '1').length).toBeLessThanOrEqual(1);
});

it('what an agent had begun when it was killed is asked of another one at once', async () => {
  const [first, second, third] = await threeAgents();
  await first.engine.close();
  for (const { engine } of [second, third]) engine.control({ delayMs: 2_000 });
  const asked = Array.from({ length: 6 }, () => first.ask('/chat/completions', chat({ tokens: 3 })));
  const killed = await Promise.race([second, third].map((one) => one.engine.when(() => true, 5_000).then(() => one)));
  const at = Date.now();
  await killed.close();
  for (const { engine } of [second, third]) engine.control({});
  for (const answer of await Promise.all(asked)) expect(answer.status).toBe(200);
  expect(Date.now() - at).toBeLessThan(promise(9_000));
});

it('providers that do not serve each other keep to themselves', async () => {
  const issuer = new TestIssuer();
  const lab = await startAgent(issuer, { trust: ['other'] });
  const other = await startAgent(issuer, {
    provider: 'other',
    peers: lab.member.mesh.addresses,
    trust: ['lab', 'other'],
  });
  const open = await startAgent(issuer, {
    provider: 'open',
    peers: lab.member.mesh.addresses,
    serveTo: ['open', 'lab'],
  });
  await Promise.all([lab, other, open].map((agent) => knows(agent, 3)));
  const refused = await lab.ask('/chat/completions', chat());
  expect((await envelopeOf(refused)).code).toBe('no_capacity');
  expect(other.engine.requests.length).toBe(0);
  const toOpen = await lab.ask('/chat/completions', chat(), { 'x-otela-trusted-providers': 'open' });
  expect(toOpen.status).toBe(403);
  for (let n = 0; n < 5; n++) {
    const own = await other.ask('/chat/completions', chat());
    expect(own.headers.get('x-otela-provider')).toBe('other'); // lab is trusted, and refuses
  }
  expect(lab.engine.requests.length).toBe(0);
});

it('an agent that drains lets its ingress finish what others answer for it, and takes nothing new', async () => {
  const [first, second, third] = await threeAgents();
  await first.engine.close();
  const begun = await first.ask('/chat/completions', chat({ tokens: 30, tokensPerSecond: 30 }, { stream: true }));
  expect([second, third].map(({ member }) => member.session)).toContain(begun.headers.get('x-otela-node'));
  expect(first.service.inFlight).toBe(1);
  const drained = first.service.drain();
  const late = await first.ask('/chat/completions', chat());
  expect([late.status, (await envelopeOf(late)).code]).toEqual([503, 'no_capacity']);
  expect(await begun.text()).toMatch(/\[DONE\]\n\n$/);
  await drained;
  expect(first.service.inFlight).toBe(0);
});

it('large answers and large prompts go both ways over one channel at once', async () => {
  const [first, second] = await threeAgents();
  const bytes = 4 * 1024 * 1024;
  const text = 'x'.repeat(3 * 1024 * 1024);
  const answers = await Promise.all(
    Array.from({ length: 8 }, async (_, n) => {
      const response = await (n % 2 === 0 ? first : second).ask('/chat/completions', chat({ bytes }, { text }));
      return (await response.arrayBuffer()).byteLength;
    }),
  );
  expect(answers).toEqual(Array(8).fill(bytes));
});

it('a node that is not admitted yet serves its own ingress', async () => {
  const issuer = new TestIssuer();
  const engine = await startEngine({ models: [MODEL] });
  const directory = await temporaryDirectory('otela-service');
  const service = new RequestService({
    config: { listen: { host: '127.0.0.1', port: 0 }, trust: undefined, serveTo: undefined, policy: undefined },
    replica: new RegistryReplica({ crypto: nodeCrypto, accepts: (id) => id === issuer.issuer }),
    issuerName: () => undefined,
    retentionMs: () => 86_400_000,
    engine: () => ({ origin: engine.url, pathPrefix: '' }),
    directory: () => directory,
    usageDirectory: undefined,
    log: () => {},
  });
  atEnd(async () => {
    await service.close();
    await engine.close();
  });
  await service.open();
  service.unadmitted({
    tier: 'stable',
    labels: {},
    models: [{ id: MODEL, state: 'ready' }],
    hardware: { gpus: [], cpus: 1, memory_mib: 1 },
    agent_version: 'test',
  });
  const { url = '', key_file = '' } = service.status() ?? {};
  const response = await fetch(`${url}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${readFileSync(key_file, 'utf8').trim()}`, 'content-type': 'application/json' },
    body: JSON.stringify(chat()),
  });
  expect(response.status).toBe(200);
});
