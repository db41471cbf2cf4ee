/**
 * The contract of every host of the gateway's objects: see gateway/platform/object-context.ts. Each host is a process,
 * so that it can be killed.
 */
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { z } from 'zod';
import { endAll, eventually, Managed, temporaryDirectory } from '../../support/processes.ts';
import { NODE, ROOT } from '../../support/where.ts';

afterAll(endAll);

const answerSchema = z.union([z.object({ result: z.unknown() }).strict(), z.object({ error: z.string() }).strict()]);
const alarmsSchema = z.tuple([z.number(), z.number(), z.string(), z.number()]);

/** Time limit of a start: wrangler first bundles the Worker. */
const READY_MS = 40_000;
const QUIET = { CI: 'true', WRANGLER_SEND_METRICS: 'false', WRANGLER_HIDE_BANNER: 'true', NO_COLOR: '1' };

class Door {
  readonly #command: string[];
  #process: Managed | undefined;
  #port = '';

  constructor(command: string[]) {
    this.#command = command;
  }

  async open(): Promise<void> {
    this.#process = new Managed(this.#command, { label: 'door', cwd: ROOT, env: QUIET });
    [, this.#port = ''] = await this.#process.line(/(?:door |Ready on http:\/\/127\.0\.0\.1:)(\d+)/, READY_MS);
  }

  async kill9(): Promise<void> {
    this.#process?.signal('SIGKILL', 'group');
    await this.#process?.end(5_000);
  }

  async call(name: string, method: string, ...args: unknown[]): Promise<unknown> {
    const body = JSON.stringify({ name, method, args });
    const response = await fetch(`http://127.0.0.1:${this.#port}/call`, { method: 'POST', body });
    const answer = answerSchema.parse(await response.json());
    if ('error' in answer) throw new Error(answer.error);
    return answer.result;
  }

  async socket(name: string): Promise<WebSocket> {
    const socket = new WebSocket(`ws://127.0.0.1:${this.#port}/socket?name=${name}`);
    socket.on('error', () => {});
    await once(socket, 'open');
    return socket;
  }
}

/** `wrangler dev`, which runs Cloudflare's own runtime. */
async function workerDoor(directory: string): Promise<string[]> {
  const config = join(directory, 'wrangler.json');
  const objects = { bindings: [{ name: 'TUNNEL', class_name: 'TunnelObject' }] };
  const worker = {
    name: 'contract',
    main: join(ROOT, 'test/gateway/hosts/contract-worker.ts'),
    compatibility_date: '2026-11-02',
    durable_objects: objects,
    migrations: [{ tag: 'v1', new_sqlite_classes: ['TunnelObject'] }],
  };
  await writeFile(config, JSON.stringify(worker));
  const wrangler = [NODE, join(ROOT, 'node_modules/wrangler/bin/wrangler.js'), 'dev', '--config', config];
  return [
    ...wrangler,
    '--ip',
    '127.0.0.1',
    '--port',
    '0',
    '--inspector-port',
    '0',
    '--persist-to',
    join(directory, 'data'),
  ];
}

const DOORS = {
  worker: workerDoor,
  node: async (directory: string) => [NODE, join(ROOT, 'test/support/objects/node-door.ts'), join(directory, 'data')],
};

describe.each(['worker', 'node'] as const)('objects on the %s host', (host) => {
  let door: Door;

  beforeAll(async () => {
    door = new Door(await DOORS[host](await temporaryDirectory()));
    await door.open();
  });

  test('a statement that fails does not undo the others of its turn', async () => {
    expect(await door.call('turns', 'write', 1, 2)).toBe(2);
    await expect(door.call('turns', 'write', 3, 1)).rejects.toThrow(/UNIQUE/);
    expect(await door.call('turns', 'rows')).toEqual([1, 2, 3]);
  });

  test('arguments and results are copies', async () => {
    expect(await door.call('caller', 'copies', 'called')).toEqual(['given', 'kept']);
  });

  test('an exception reaches the caller, and the object goes on', async () => {
    const before = await door.call('throws', 'instance');
    await expect(door.call('throws', 'fail')).rejects.toThrow('as asked');
    expect(await door.call('throws', 'instance')).toBe(before);
  });

  test('an object that cannot be made fails its caller, and is made anew for the next', async () => {
    await expect(door.call('fails-once', 'rows')).rejects.toThrow('not this time');
    expect(await door.call('fails-once', 'rows')).toEqual([]);
  });

  test('keys and values come back as they were put', async () => {
    expect(await door.call('keys', 'keys')).toEqual(['b/1', 'b/2', '2', 'undefined', 'true', 'false']);
    expect(await door.call('keys', 'values')).toEqual(['2', 0.5, 'null']);
  });

  test('deleteAll leaves no table, no key and no alarm', async () => {
    expect(await door.call('deleted', 'deleteAll')).toEqual([0, 'undefined', 'null']);
  });

  test('names that look alike to a file system are different objects', async () => {
    const names = ['..', '.', 'a/b', 'a%2fb', 'A', 'a', 'x'.repeat(500), `${'x'.repeat(499)}y`, '☃'];
    for (const [n, name] of names.entries()) await door.call(name, 'write', n);
    for (const [n, name] of names.entries()) expect(await door.call(name, 'rows')).toEqual([n]);
  });

  test('what was said is stored: a frame or a result that arrived outlives a kill -9', async () => {
    for (let round = 0; round < 3; round++) {
      const socket = await door.socket('told');
      const told = once(socket, 'message');
      socket.send(String(10 + round));
      expect(String((await told)[0])).toBe(`stored ${10 + round}`);
      await door.call('told', 'write', 20 + round);
      await door.kill9();
      await door.open();
    }
    expect(await door.call('told', 'rows')).toEqual([10, 11, 12, 20, 21, 22]);
  });

  test('writes of a turn that did not end are not stored', async () => {
    await door.call('spins', 'write', 1);
    const spinning = door.call('spins', 'spin', 2);
    const lost = expect(spinning).rejects.toThrow();
    await delay(1_000); // a turn is not visible from outside
    await door.kill9();
    await lost;
    await door.open();
    expect(await door.call('spins', 'rows')).toEqual([1]);
  });

  test('an alarm rings once, is none while it rings, and needs no caller after a kill -9', async () => {
    const at = Date.now() + 1_500;
    await door.call('alarm', 'setAlarm', 1_500);
    await door.kill9();
    await door.open();
    await delay(Math.max(0, at - Date.now()) + 2_000);
    const lookedAt = Date.now();
    const [rang, rangAt, armed, next] = alarmsSchema.parse(await door.call('alarm', 'alarms'));
    expect([rang, armed, next]).toEqual([1, 'false', 0]);
    expect(rangAt).toBeGreaterThanOrEqual(at - 100);
    expect(rangAt).toBeLessThan(lookedAt - 500);
  });

  test('an alarm whose handler fails rings again', async () => {
    await door.call('again', 'setAlarm', 10, 1);
    const rang = await eventually('a second ring', 15_000, async () => {
      const [times] = alarmsSchema.parse(await door.call('again', 'alarms'));
      return times >= 2 ? times : undefined;
    });
    expect(rang).toBe(2);
  });
});
