/** Several equal gateway processes on one database. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { REGISTRY_OBJECT_NAME } from '../../../gateway/platform/registry-object-name.ts';
import { NO_POSTGRES } from '../../support/abilities.ts';
import { startAgent } from '../../support/agent.ts';
import { type Engine, startEngine } from '../../support/engine.ts';
import { mountFileSystem } from '../../support/file-system.ts';
import { Gateway } from '../../support/gateway.ts';
import { GatewayProcesses } from '../../support/gateway-processes.ts';
import { commandOf, descendants } from '../../support/process-table.ts';
import { endAll, eventually } from '../../support/processes.ts';

const MODEL = 'shared-model';

describe.skipIf(NO_POSTGRES !== undefined)(`gateway processes${NO_POSTGRES ? ` (${NO_POSTGRES})` : ''}`, () => {
  let processes: GatewayProcesses;
  let first: Gateway;
  let second: Gateway;
  let engine: Engine;
  let key: string;
  let agent: Awaited<ReturnType<typeof startAgent>>;

  beforeAll(async () => {
    processes = await GatewayProcesses.start(2);
    [first, second] = processes.gateways as [Gateway, Gateway];
    engine = await startEngine({ models: [MODEL] });
    const token = await second.createJoinToken();
    agent = await startAgent({ gateways: [first.url], token, engineUrl: engine.url });
    // The agent learns the address of the other process.
    await agent.line(new RegExp(`gateway 127.0.0.1:${second.port}: connected`), 30_000);
    await first.serving(1);
    key = await second.createKey('k', { limits: { requests_per_minute: 1_000 } });
  });

  afterAll(async () => {
    await engine?.close();
    await endAll();
  });

  const ask = (gateway: Gateway, body: object, signal?: AbortSignal) =>
    fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      ...(signal && { signal }),
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'hello' }], ...body }),
    });

  test('a request to either process is answered, whole or streaming, with the same bytes', async () => {
    const stand_in = { id: 'same', tokens: 20 };
    for (const stream of [false, true]) {
      const [here, there] = [await ask(first, { stream, stand_in }), await ask(second, { stream, stand_in })];
      expect([here.status, there.status]).toEqual([200, 200]);
      expect(await there.text()).toBe(await here.text());
    }
  });

  test('a stream that another process forwards goes on, byte for byte, if the process with the agent’s socket is killed', async () => {
    const third = await processes.add(false);
    const tokens = 100;
    const whole = await (await ask(third, { stream: true, stand_in: { id: 'same', tokens } })).text();
    const before = engine.requests.length;
    // The third process forwards to the process with the lowest number.
    const asked = await ask(third, { stream: true, stand_in: { id: 'same', tokens, tokensPerSecond: 20 } });
    const text = asked.text();
    const connections = () => agent.output.split(`gateway 127.0.0.1:${first.port}: connected`).length;
    const connected = connections();
    await first.kill9();
    expect(await text).toBe(whole);
    expect(engine.requests.length).toBe(before + 1);
    await first.restart();
    await eventually('the agent’s socket', 30_000, () => connections() > connected || undefined);
    await first.serving(1);
    await third.stop();
  });

  test('a key that one process revokes is refused by the other within two seconds', async () => {
    const { id, key: revoked } = (await first.admin('POST', 'keys', { name: 'r', role: 'consumer' })) as {
      id: string;
      key: string;
    };
    const status = async () =>
      (await fetch(`${second.url}/v1/models`, { headers: { authorization: `Bearer ${revoked}` } })).status;
    expect(await status()).toBe(200);
    await first.admin('DELETE', `keys/${id}`);
    await eventually('a refusal', 2_000, async () => ((await status()) === 401 ? true : undefined));
  });

  test('a revoked key is refused within two seconds while the owner of the registry hangs', async () => {
    const third = await processes.add(false);
    const owner = await processes.ownerOf(`REGISTRY/${REGISTRY_OBJECT_NAME}`);
    const [one, other] = [first, second, third].filter((gateway) => gateway !== owner) as [Gateway, Gateway];
    const { id, key: revoked } = (await one.admin('POST', 'keys', { name: 'r', role: 'consumer' })) as {
      id: string;
      key: string;
    };
    const status = async () =>
      (await fetch(`${other.url}/v1/models`, { headers: { authorization: `Bearer ${revoked}` } })).status;
    expect(await status()).toBe(200);
    owner.process.signal('SIGSTOP');
    const revoking = one.admin('DELETE', `keys/${id}`).catch(() => undefined);
    await eventually('a refusal', 2_000, async () => ((await status()) === 401 ? true : undefined));
    owner.process.signal('SIGCONT');
    await revoking;
    await third.stop();
  });

  test('a slow stream that another process forwards arrives whole, and a client that leaves ends the work', async () => {
    const third = await processes.add(false);
    const slow = { stream: true, stand_in: { id: 'same', tokens: 20, tokensPerSecond: 20 } };
    const here = await (await ask(first, slow)).text();
    expect(await (await ask(third, slow)).text()).toBe(here);
    const leaving = new AbortController();
    const asked = ask(third, { stream: true, stand_in: { tokens: 500, tokensPerSecond: 20 } }, leaving.signal);
    await (await asked).body?.getReader().read();
    expect(engine.running()).toBe(1);
    leaving.abort();
    await eventually('the end of the work', 5_000, async () => (engine.running() === 0 ? true : undefined));
    await third.stop();
  });

  test('a process with a full disk gives its objects to the others until it can write again', async ({ skip }) => {
    const disk = mountFileSystem({ sizeMiB: 64 });
    if (typeof disk === 'string') return skip(disk);
    const third = await processes.add(false, join(disk.path, 'data'));
    const owns = (isWanted: (slots: number) => boolean) =>
      eventually('the slots', 20_000, async () => (isWanted(await processes.slotsOf(third)) ? true : undefined));
    await owns((slots) => slots > 0);
    disk.fill(0);
    await owns((slots) => slots === 0);
    await eventually('other owners', 10_000, async () => {
      const slots = await Promise.all([first, second].map((gateway) => processes.slotsOf(gateway)));
      return slots.reduce((all, own) => all + own, 0) === 256 ? true : undefined;
    });
    expect(await first.createKey('at a full disk')).toMatch(/^sk-otela-/);
    expect((await ask(third, { stand_in: { tokens: 1 } })).status).toBe(200);
    disk.empty();
    await owns((slots) => slots > 0);
    await third.stop();
  });

  test('after kill -9 of one process, each request to the other one is answered, and it takes over all objects', async () => {
    const limited = await second.createKey('one at once', { limits: { concurrent_requests: 1 } });
    const one = (gateway: Gateway, standIn: object) =>
      fetch(`${gateway.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${limited}`, 'content-type': 'application/json' },
        body: JSON.stringify({ model: MODEL, messages: [], stream: true, stand_in: standIn }),
      });
    const cut = await one(first, { tokens: 500, tokensPerSecond: 20 });
    expect([cut.status, (await one(second, { tokens: 1 })).status]).toEqual([200, 429]);
    await first.kill9();
    await expect(cut.text()).rejects.toThrow();
    for (let n = 0; n < 20; n++) expect((await ask(second, { stand_in: { tokens: 1 } })).status).toBe(200);
    const created = await eventually('a change', 10_000, () => second.createKey('after').catch(() => undefined));
    expect(created).toMatch(/^sk-otela-/);
    await second.serving(1);
    await eventually('the place of the request that was cut', 20_000, async () =>
      (await one(second, { tokens: 1 })).status === 200 ? true : undefined,
    );
  });

  test('the process that was killed starts again and serves', async () => {
    await first.restart();
    expect((await ask(first, { stand_in: { tokens: 1 } })).status).toBe(200);
  });

  test('while PostgreSQL is away, requests with known keys go on, and changes are refused', async () => {
    await processes.server.stop('SIGQUIT');
    for (const gateway of [first, second]) {
      for (let n = 0; n < 5; n++) expect((await ask(gateway, { stand_in: { tokens: 1 } })).status).toBe(200);
      await expect(gateway.createKey('refused')).rejects.toThrow(/503/);
      const ready = await fetch(`${gateway.url}/readyz`);
      expect([ready.status, await ready.json()]).toMatchObject([200, { checks: { database: false } }]);
    }
    await processes.server.run();
    await eventually('a change', 20_000, () => first.createKey('later').catch(() => undefined));
    for (const gateway of [first, second]) expect((await ask(gateway, { stand_in: { tokens: 1 } })).status).toBe(200);
  });

  test('after all kills, usage is what the engine counted', async () => {
    const counted = engine.requests.filter(({ url }) => url === '/v1/chat/completions').length;
    const query = "SELECT count(*) FROM usage_records WHERE session <> ''";
    const stored = () => processes.rows(query).then(([row]) => Number(row?.[0]));
    await eventually('all records', 20_000, async () => ((await stored()) >= counted ? true : undefined));
    expect(await stored()).toBe(counted);
    const [total] = await processes.rows(
      'SELECT sum(requests) - (SELECT sum(times) FROM usage_records) FROM usage_totals',
    );
    expect(Number(total?.[0])).toBe(0);
  });

  test('the metrics show what each process owns, and for how long PostgreSQL has not answered', async () => {
    const read = async (gateway: Gateway, name: string) => {
      const headers = { authorization: `Bearer ${gateway.adminKey}` };
      const page = await (await fetch(`${gateway.url}/metrics`, { headers })).text();
      return [...page.matchAll(new RegExp(`^otela_${name}(\\{.*\\})? (\\S+)$`, 'gm'))].map(([, , value]) =>
        Number(value),
      );
    };
    await eventually('all slots have owners', 30_000, async () => {
      const slots = await Promise.all([first, second].map((gateway) => read(gateway, 'gateway_slots')));
      return slots.flat().reduce((all, own) => all + own, 0) === 256 ? true : undefined;
    });
    expect(await read(first, 'gateway_processes')).toEqual([2]);
    // Connections for heartbeats, accounts, objects and reports, each busy or idle.
    expect((await read(first, 'database_connections')).length).toBeGreaterThanOrEqual(8);
    const [silence = Number.NaN] = await read(first, 'database_silence_seconds');
    expect(silence).toBeLessThan(10);
    await processes.server.stop('SIGQUIT');
    await eventually('the silence', 30_000, async () => {
      const [now = 0] = await read(first, 'database_silence_seconds');
      return now > 10 ? true : undefined;
    });
    await processes.server.run();
    await eventually('an answer', 20_000, async () => {
      const [now = 60] = await read(first, 'database_silence_seconds');
      return now < 10 ? true : undefined;
    });
  });

  test('processes of one command share a port; a killed one is started again', async () => {
    const database = await processes.server.database('one_host');
    const gateway = await Gateway.start({ args: ['--database', database, '--processes', '2'] });
    const pids = () => descendants(gateway.process.pid).filter((pid) => commandOf(pid).includes('process-'));
    const [one] = pids();
    expect(pids()).toHaveLength(2);
    const own = await gateway.createKey('k');
    const status = () =>
      fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${own}`, connection: 'close' } }).then(
        (response) => response.status,
        () => undefined,
      );
    for (let n = 0; n < 10; n++) expect(await status()).toBe(200);
    process.kill(one ?? 0, 'SIGKILL');
    await eventually('two processes', 20_000, async () =>
      pids().length === 2 && !pids().includes(one ?? 0) ? true : undefined,
    );
    await eventually('answers', 20_000, async () => ((await status()) === 200 ? true : undefined));
    await gateway.stop();
    expect(pids()).toEqual([]);
  });
});
