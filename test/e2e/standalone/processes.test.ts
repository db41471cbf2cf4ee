/** Several processes of one command share a data directory, without a database server. */
import { request } from 'node:http';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { type Engine, startEngine } from '../../support/engine.ts';
import { Gateway } from '../../support/gateway.ts';
import { commandOf, descendants } from '../../support/process-table.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { chatBody, MODEL } from '../../support/test-cluster.ts';

const PROCESSES = 3;
/** Each request has a new connection, which the kernel gives to any process: all of them get some. */
const ASKED = 30;

let gateway: Gateway;
let engine: Engine;
let key: string;

beforeAll(async () => {
  gateway = await Gateway.start({ args: ['--processes', String(PROCESSES)] });
  engine = await startEngine({ models: [MODEL] });
  await startAgent({ gateways: [gateway.url], token: await gateway.createJoinToken(), engineUrl: engine.url });
  await gateway.serving(1);
  key = await gateway.createKey();
});
afterAll(async () => {
  await engine?.close();
  await endAll();
});

interface Answer {
  status: number;
  text: string;
}

/** Asks on a new connection. */
function ask(path: string, secret: string, body?: object): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' };
    const method = body === undefined ? 'GET' : 'POST';
    const asked = request(`${gateway.url}${path}`, { agent: false, method, headers }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (piece: string) => {
        text += piece;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      response.on('error', reject);
    });
    asked.on('error', reject);
    asked.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

const chat = (secret: string, standIn: object = { tokens: 1 }, more: object = {}) =>
  ask('/v1/chat/completions', secret, chatBody(standIn, more));

const statuses = (answers: readonly PromiseSettledResult<Answer>[]) =>
  answers.map((one) => (one.status === 'fulfilled' ? one.value.status : 0));

/** Process ids by the number of the process; the first one has the accounts and the objects. */
function pids(): Map<number, number> {
  const of = (pid: number) => {
    const command = commandOf(pid);
    const number = /processes\/process-(\d+)/.exec(command)?.[1];
    if (number !== undefined) return Number(number);
    return command.includes(` --data ${gateway.data} `) ? 0 : undefined;
  };
  return new Map(
    descendants(gateway.process.pid).flatMap((pid) => {
      const number = of(pid);
      return number === undefined ? [] : [[number, pid] as const];
    }),
  );
}

async function restarted(number: number, pid: number): Promise<void> {
  await eventually(`process ${number}`, 30_000, () => {
    const now = pids();
    return (now.size === PROCESSES && now.get(number) !== pid) || undefined;
  });
}

test('each process answers all requests with the same bytes, streaming or not, with one agent', async () => {
  expect([...pids().keys()].toSorted()).toEqual([0, 1, 2]);
  for (const stream of [false, true]) {
    const all = Array.from({ length: ASKED }, () => chat(key, { id: 'same', tokens: 20 }, { stream }));
    const texts = new Set((await Promise.all(all)).map(({ status, text }) => `${status} ${text}`));
    expect([...texts]).toEqual([expect.stringMatching(/^200 /)]);
  }
  const metrics = await ask('/metrics', gateway.adminKey);
  expect(metrics.text).toMatch(new RegExp(`^otela_gateway_processes ${PROCESSES}$`, 'm'));
});

test('a limit holds over all processes', async () => {
  const limited = await gateway.createKey('limited', { limits: { requests_per_minute: 20 } });
  const answers = statuses(await Promise.allSettled(Array.from({ length: 3 * ASKED }, () => chat(limited))));
  expect(answers.filter((status) => status === 200 || status === 429)).toHaveLength(3 * ASKED);
  const granted = answers.filter((status) => status === 200).length;
  expect(granted).toBeLessThanOrEqual(20);
  expect(granted).toBeGreaterThan(10);
});

test('a key is known to all processes, and a revoked one to none after two seconds', async () => {
  const { id, key: revoked } = (await gateway.admin('POST', 'keys', { name: 'r' })) as { id: string; key: string };
  const all = async () =>
    new Set(statuses(await Promise.allSettled(Array.from({ length: ASKED }, () => ask('/v1/models', revoked)))));
  expect([...(await all())]).toEqual([200]);
  await gateway.admin('DELETE', `keys/${id}`);
  await eventually('refusals', 2_000, async () => {
    const seen = await all();
    return (seen.size === 1 && seen.has(401)) || undefined;
  });
});

test.each([1, 0])('process %i that is killed is started again, and requests are answered meanwhile', async (number) => {
  const pid = pids().get(number) ?? 0;
  process.kill(pid, 'SIGKILL');
  // A connection to the killed process may be refused or broken. Its client tries again.
  await eventually('an answer', 20_000, async () => (await chat(key)).status === 200 || undefined);
  await restarted(number, pid);
  await gateway.serving(1);
  await eventually('answers of all', 20_000, async () => {
    const answers = statuses(await Promise.allSettled(Array.from({ length: ASKED }, () => chat(key))));
    return answers.every((status) => status === 200) || undefined;
  });
});

test('usage is what the engine counted, and one process continues with the same directory', async () => {
  const counted = engine.requests.filter(({ url }) => url === '/v1/chat/completions').length;
  const total = async () => {
    const { data } = (await gateway.admin('GET', 'usage?group_by=provider')) as {
      data: { provider?: string | null; requests: number }[];
    };
    return data.find(({ provider }) => provider === 'lab')?.requests ?? 0;
  };
  await eventually('all records', 30_000, async () => (await total()) >= counted || undefined);
  expect(await total()).toBe(counted);
  await gateway.stop();
  expect(pids().size).toBe(0);
  const alone = await Gateway.start({ data: gateway.data, port: gateway.port });
  await alone.serving(1);
  expect((await chat(key)).status).toBe(200);
  await alone.stop();
});
