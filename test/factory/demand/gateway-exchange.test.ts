/** The autoscaler's side of `POST /factory/exchange`, against gateways with invalid responses. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { GatewayExchange } from '../../../factory/demand/gateway-exchange.ts';
import type { ExchangeAnswer, FactoryReport } from '../../../shared/factory/factory-exchange.ts';
import { MockExchange, TOKEN } from '../../support/factory/mock-exchange.ts';
import { endAll, eventually } from '../../support/processes.ts';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
  await endAll();
});

const REPORT: FactoryReport = {
  version: 1,
  factory: 'pool',
  config_revision: 'a',
  wait_ms: 0,
  models: [],
  jobs: [],
  clusters: [],
  decisions: [],
  drain: [],
};
const ANSWER: ExchangeAnswer = { version: 1, revision: '1', demand: [], nodes: [] };

const UNASKED = 'no exchange has succeeded yet';

interface Opened {
  exchange: GatewayExchange;
  asked(): number;
  news(): number;
  refusals: string[];
}

function tokenFile(token: string): string {
  const directory = mkdtempSync(join(tmpdir(), 'otela-exchange-'));
  ends.push(() => rmSync(directory, { recursive: true }));
  const path = join(directory, 'token');
  writeFileSync(path, `${token}\n`, { mode: 0o600 });
  return path;
}

async function open(answer: (response: ServerResponse, count: number) => void): Promise<Opened> {
  let [asked, news] = [0, 0];
  const server: Server = createServer((request, response) => {
    asked += 1;
    request.resume().on('end', () => answer(response, asked));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  ends.push(() => {
    server.close();
    server.closeAllConnections();
  });
  const address = server.address();
  const refusals: string[] = [];
  const exchange = new GatewayExchange({
    gateway: `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`,
    tokenFile: tokenFile(TOKEN),
    now: Date.now,
    refused: (why) => void refusals.push(why),
  });
  ends.push(() => exchange.close());
  exchange.open(() => {
    news += 1;
  });
  exchange.report(REPORT);
  return { exchange, asked: () => asked, news: () => news, refusals };
}

const say = (response: ServerResponse, body: unknown, status = 200) => {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(typeof body === 'string' ? body : JSON.stringify(body));
};

const BROKEN: Record<string, (response: ServerResponse) => void> = {
  'a page of a proxy': (response) => say(response, '<html>504</html>'),
  'half an answer': (response) => say(response, '{"version":1,'),
  'another version': (response) => say(response, { ...ANSWER, version: 2 }),
  'counts below 0': (response) =>
    say(response, { ...ANSWER, demand: [{ model: 'm', waiting: -1, oldest_wait_ms: 0, queued: 0, in_flight: 0 }] }),
  'more nodes than there may be': (response) =>
    say(response, {
      ...ANSWER,
      nodes: Array.from({ length: 2_001 }, (_, n) => ({ session: `${n}`, state: 'ready', in_flight: 0, idle_ms: 0 })),
    }),
  'its own nodes as far as the list reaches': (response) =>
    say(response, {
      ...ANSWER,
      nodes: Array.from({ length: 2_000 }, (_, n) => ({
        session: `${n}`,
        state: 'ready',
        in_flight: 0,
        idle_ms: 0,
        labels: { factory: 'pool' },
      })),
    }),
  'a body without end': (response) => {
    response.writeHead(200);
    const more = () => {
      while (!response.destroyed && response.write('x'.repeat(65_536)));
    };
    response.on('drain', more);
    more();
  },
  'a way elsewhere': (response) => {
    response.writeHead(307, { location: 'http://127.0.0.1:9/' });
    response.end();
  },
  'a broken connection': (response) => void response.destroy(),
};

it('broken answers are faults that are shown and asked again ever more rarely, and no demand', async () => {
  const all = await Promise.all(
    Object.entries(BROKEN).map(async ([name, answer]) => ({ name, ...(await open(answer)) })),
  );
  for (const { name, exchange } of all)
    await eventually(`a fault of ${name}`, 10_000, () => (exchange.fault() === UNASKED ? undefined : true));
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  for (const { name, exchange, asked } of all) {
    expect(exchange.latest(Date.now()), name).toEqual({ demand: new Map(), nodes: undefined });
    expect(asked(), name).toBeLessThanOrEqual(3);
    expect(exchange.fault()?.length, name).toBeLessThan(1_000);
  }
});

it('after a broken answer the former one counts for as long as it is fresh', async () => {
  const demand = [{ model: 'm', waiting: 1, oldest_wait_ms: 0, queued: 0, in_flight: 0, busy: 0, ready_replicas: 0 }];
  const { exchange } = await open((response, count) => say(response, count === 1 ? { ...ANSWER, demand } : 'nonsense'));
  await eventually('the first answer', 10_000, () =>
    exchange.latest(Date.now()).demand.size === 1 ? true : undefined,
  );
  await eventually('a fault', 10_000, () => exchange.fault());
  expect(exchange.latest(Date.now())).toMatchObject({ nodes: [] });
  expect(exchange.latest(Date.now() + 120_000).nodes).toBeUndefined();
});

it('a gateway that answers at once, always with news, is asked twice a second at most', async () => {
  const { asked, news } = await open((response, count) => say(response, { ...ANSWER, revision: String(count) }));
  await eventually('an answer', 10_000, () => (news() > 0 ? true : undefined));
  const [from, before] = [Date.now(), asked()];
  await eventually('five more', 20_000, () => (asked() - before >= 5 ? true : undefined));
  // The same number in a shorter time would be more than two a second.
  expect(Date.now() - from).toBeGreaterThanOrEqual(1_900);
});

it('a refusal is told, and is no demand', async () => {
  const { exchange, refusals } = await open((response) => say(response, { error: { message: 'no such token' } }, 401));
  await eventually('the refusal', 10_000, () => refusals[0]);
  expect(refusals[0]).toContain('401');
  expect(exchange.latest(Date.now()).nodes).toBeUndefined();
});

it('a token that is replaced while the factory runs needs no restart', async () => {
  const gateway = await MockExchange.open();
  const path = tokenFile(`otf_${'o'.repeat(43)}`);
  const refusals: string[] = [];
  const exchange = new GatewayExchange({
    gateway: gateway.url,
    tokenFile: path,
    now: Date.now,
    refused: (why) => void refusals.push(why),
  });
  ends.push(() => exchange.close());
  exchange.open(() => {});
  exchange.report(REPORT);
  await eventually('the refusal of the former token', 10_000, () => refusals[0]);
  writeFileSync(path, `${TOKEN}\n`);
  await eventually('an answer', 20_000, () => (exchange.fault() === undefined ? true : undefined));
});

it('reports that interrupt each held answer do not keep it from hearing how long nodes are idle', async () => {
  const gateway = await MockExchange.open();
  const node = { session: 's', state: 'ready' as const, in_flight: 0, idle_ms: 0 };
  gateway.nodes(node);
  const exchange = new GatewayExchange({
    gateway: gateway.url,
    tokenFile: tokenFile(TOKEN),
    now: Date.now,
    refused: () => {},
  });
  ends.push(() => exchange.close());
  exchange.open(() => {});
  let n = 0;
  const say = () => exchange.report({ ...REPORT, wait_ms: 25_000, config_revision: `${n++}` });
  say();
  const busy = setInterval(say, 1_100);
  ends.push(() => clearInterval(busy));
  await eventually('a node', 10_000, () => exchange.latest(Date.now()).nodes?.[0]);
  // Its growth does not count as news.
  node.idle_ms = 60_000;
  await eventually('its idle time', 10_000, () =>
    exchange.latest(Date.now()).nodes?.[0]?.idle_ms === 60_000 ? true : undefined,
  );
});
