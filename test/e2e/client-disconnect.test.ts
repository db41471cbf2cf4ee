/** Clients that disconnect, in every phase of a request: the engine stops, and no state of the request remains. */
import { connect, type Socket } from 'node:net';
import { beforeAll, describe, expect, it } from 'vitest';
import { NO_USAGE } from '../../shared/wire/reported-usage.ts';
import { startAgent } from '../support/agent.ts';
import { type EngineRequest, startEngine } from '../support/engine.ts';
import { promise } from '../support/patience.ts';
import { eventually } from '../support/processes.ts';
import { chatBody, openTestCluster, type TestCluster } from '../support/test-cluster.ts';
import { HandAgent } from '../support/tunnel/hand-agent.ts';
import { OwnNode } from '../support/tunnel/own-node.ts';
import { Path } from '../support/tunnel/path.ts';

const MIB = 1024 * 1024;

const EVENTS: [string, string][] = [['content-type', 'text/event-stream']];

const own = new OwnNode();

const unary = (standIn: object, more: object = {}) => chatBody(standIn, { model: own.model, ...more });

/** A client that resets its connection, because Cloudflare's local runtime does not see a FIN. */
class Client {
  readonly socket: Socket;
  received = 0;

  readonly #url: URL;
  readonly #key: string;

  constructor(url: URL | string = own.shop.url, key = own.shop.key) {
    this.#url = new URL(url);
    this.#key = key;
    this.socket = connect({ host: this.#url.hostname, port: Number(this.#url.port) });
    this.socket
      .on('error', () => undefined)
      .on('data', (chunk: Buffer) => {
        this.received += chunk.length;
      });
  }

  head(length: number): this {
    this.socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: ${this.#url.host}\r\nauthorization: Bearer ${this.#key}\r\n` +
        `content-type: application/json\r\ncontent-length: ${length}\r\n\r\n`,
    );
    return this;
  }

  ask(body: object): this {
    const text = JSON.stringify(body);
    this.head(Buffer.byteLength(text)).socket.write(text);
    return this;
  }

  leave(): void {
    this.socket.resetAndDestroy();
  }
}

/** Nothing is open in the object (otherwise it could not be evicted), at the agent, or at the engine. */
async function nothingLeft(): Promise<void> {
  await eventually('the engine is free', 3_000, () => (own.bench.engine.running() === 0 ? true : undefined));
  await eventually('the agent is free', 3_000, () => (own.bench.tunnel.inFlight === 0 ? true : undefined));
  await own.shop.rest(own.bench);
  const response = await own.shop.ask('/v1/chat/completions', unary({ tokens: 3 }));
  expect(response.status, await response.text()).toBe(200);
}

describe('a client that leaves', () => {
  const phases: Record<string, [body: () => object, until: (client: Client) => boolean]> = {
    'in mid-stream': [
      () => unary({ tokens: 100_000, tokensPerSecond: 50 }, { stream: true }),
      (client) => client.received > 3_000,
    ],
    'in the middle of a large unary answer that it does not read': [
      () => unary({ bytes: 60 * MIB }),
      (client) => client.received > 0,
    ],
  };

  it.each(Object.entries(phases))('%s: the engine is let go within a second', async (_phase, [body, until]) => {
    const client = new Client().ask(body());
    await eventually('the phase', 10_000, () => (until(client) ? true : undefined));
    if (client.received > 0) client.socket.pause();
    const leftAt = Date.now();
    client.leave();
    const { abortedAt = Number.NaN } = await own.bench.engine.when((one) => one.abortedAt !== undefined, 3_000);
    expect(abortedAt - leftAt).toBeLessThan(promise(1_000));
    const [record] = await own.shop.settled(own.bench, 1);
    expect(record).toMatchObject({ aborted: true, complete: false });
    await nothingLeft();
    expect(own.bench.path.connections).toBe(1);
  });

  it('just as the answer comes, at any moment around it, leaves nothing behind', async () => {
    for (let delayMs = 0; delayMs < 60; delayMs += 3) {
      const seen = own.bench.engine.requests.length;
      const client = new Client().ask(unary({ delayMs: 30, tokens: 5 }, delayMs % 2 === 0 ? { stream: true } : {}));
      await eventually('asked', 3_000, () => (own.bench.engine.requests.length > seen ? true : undefined));
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      client.leave();
    }
    await nothingLeft();
    expect(own.bench.path.connections).toBe(1);
  });
});

describe('a client that leaves as its node’s socket is lost', () => {
  /** The node learns of the disconnect, and its socket is lost before it reports the usage. */
  async function left(model: string) {
    const agent = await new HandAgent(own.shop).join([model]);
    await own.shop.refreshed();
    const client = new AbortController();
    const body = chatBody({}, { model, stream: true });
    const asked = own.shop.askStraight('/v1/chat/completions', body, client.signal);
    const { stream, ...open } = await agent.opening();
    const head = { type: 'head', stream, status: 200, engineTenths: 10, headers: EVENTS } as const;
    const bytes = new TextEncoder().encode('data: {"choices":[{"delta":{"content":"a"}}]}\n\n');
    agent.send({ type: 'accept', stream, bodyOffset: 0, bodyDone: true }, head);
    let offset = 0;
    const say = () => {
      agent.send({ type: 'data', stream, offset, bytes });
      offset += bytes.length;
    };
    say();
    const reader = (await asked).body?.getReader();
    expect((await reader?.read())?.value?.length).toBeGreaterThan(0);
    client.abort();
    await eventually('the node is told', 5_000, () => (agent.all('reset').length > 0 ? true : say()));
    agent.socket.terminate();
    const again = new HandAgent(own.shop, agent.identity);
    return { again, stream, open, session: agent.identity.session };
  }

  it('is in the books once, as the node counted it', async () => {
    const { again, stream, open, session } = await left('lost/report');
    await again.join(['lost/report'], 2);
    const usage = { ...NO_USAGE, prompt: 5, completion: 7, aborted: true };
    const { requestId, attempt, receipt } = open;
    again.send({ type: 'report', stream, usage, name: { requestId, attempt, receipt } });
    // The agent receives the end of the attempt that it may have missed. It has forgotten the attempt since.
    again.send({ type: 'reset', stream: (await again.when('open')).stream, code: 'unknown', message: '' });
    await again.when('settled');
    await own.shop.restOf(session);
    expect(await own.shop.usage({ session })).toEqual([expect.objectContaining({ requestId, completion: 7 })]);
  });

  it('is in the books by estimate as soon as the node says that it knows nothing of it', async () => {
    const { again, open, session } = await left('lost/all');
    await again.join(['lost/all'], 2);
    again.send({ type: 'reset', stream: (await again.when('open')).stream, code: 'unknown', message: '' });
    const books = await own.shop.settled({ session }, 1, 5_000);
    expect(books).toEqual([expect.objectContaining({ requestId: open.requestId, estimated: true, aborted: true })]);
  });
});

describe('a client that leaves a gateway of one’s own', () => {
  let cluster: TestCluster;
  beforeAll(async () => {
    cluster = await openTestCluster({ gateway: { env: { BODY_BUDGET_BYTES: String(12 * MIB) } } });
  });
  const pad = 'p'.repeat(5 * MIB);

  async function roomAgain(): Promise<void> {
    await eventually('the engine is free', 3_000, () => (cluster.engine.running() === 0 ? true : undefined));
    await eventually('there is room again', 5_000, async () => {
      const response = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 3 }, { pad }));
      const text = await response.text();
      return response.status === 200 ? true : Promise.reject(new Error(text));
    });
  }

  it('with a large body in the gateway’s hands gives the room for it back', async () => {
    for (let round = 0; round < 4; round++) {
      const client = new Client(cluster.gateway.url, cluster.key).ask(chatBody({ delayMs: 60_000 }, { pad }));
      await eventually('the engine computes', 10_000, () => (cluster.engine.running() === 1 ? true : undefined));
      client.leave();
      await eventually('the engine is free', 3_000, () => (cluster.engine.running() === 0 ? true : undefined));
    }
    await roomAgain();
  });

  it('after its stream was opened for want of an answer: the engine is let go within a second', async () => {
    const client = new Client(cluster.gateway.url, cluster.key).ask(chatBody({ delayMs: 60_000 }, { stream: true }));
    await eventually('the ping', 17_000, () => (client.received > 0 ? true : undefined));
    expect(cluster.engine.running()).toBe(1);
    const leftAt = Date.now();
    client.socket.end();
    const { id } = cluster.engine.requests.at(-1) ?? {};
    const aborted = (one: EngineRequest) => one.id === id && one.abortedAt !== undefined;
    const { abortedAt = Number.NaN } = await cluster.engine.when(aborted, 5_000);
    expect(abortedAt - leftAt).toBeLessThan(promise(1_000));
    client.leave();
  });

  it('while its node is cut off: the engine is let go as soon as the node is back', async () => {
    const path = await Path.open(new URL(cluster.gateway.url));
    const engine = await startEngine({ models: ['stand-in/far'] });
    await startAgent({ gateways: [path.url.origin], token: cluster.token, engineUrl: engine.url });
    await cluster.gateway.serving(2);
    const body = chatBody({ delayMs: 60_000 }, { model: 'stand-in/far', stream: true });
    const client = new Client(cluster.gateway.url, cluster.key).ask(body);
    await engine.when(({ url }) => url.includes('/chat/'), 5_000); // the agent asks for facts about the model, too
    path.down();
    const before = path.connections;
    client.leave();
    await eventually('a dial that fails', 10_000, () => (path.connections > before ? true : undefined));
    expect(engine.running()).toBe(1);
    path.mend();
    const dials = path.connections;
    await eventually('the agent is back', 10_000, () => (path.connections > dials ? true : undefined));
    const backAt = Date.now();
    const { abortedAt = Number.NaN } = await engine.when((one) => one.abortedAt !== undefined, 5_000);
    expect(abortedAt - backAt).toBeLessThan(promise(2_000));
    await Promise.all([path.close(), engine.close()]);
  });

  it('in the middle of its upload gives the room for it back', async () => {
    for (let round = 0; round < 4; round++) {
      const client = new Client(cluster.gateway.url, cluster.key);
      client.head(6 * MIB).socket.write(`{"model":"${'m'.repeat(3 * MIB)}`);
      await eventually('half is sent', 5_000, () => (client.socket.writableLength === 0 ? true : undefined));
      client.leave();
    }
    await roomAgain();
  });
});
