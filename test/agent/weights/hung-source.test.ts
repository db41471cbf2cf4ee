/** Sources that hang, as a shared file system may for hours. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { openSource } from '../../../agent/weights/sources/open-source.ts';
import { onSource } from '../../../agent/weights/sources/remote-file-operations.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { Cluster, hubFolder, PIECE, plainFolder, QUICK } from './cluster.ts';

/** True if opening the file with that path hangs. */
const disk = vi.hoisted(() => ({ hangs: (_path: string): boolean => false }));
vi.mock('node:fs/promises', async (original) => {
  const real = await original<typeof import('node:fs/promises')>();
  const open: typeof real.open = (path, ...more) =>
    disk.hangs(String(path)) ? new Promise(() => {}) : real.open(path, ...more);
  return { ...real, open };
});

afterEach(async () => {
  disk.hangs = () => false;
  await endAll();
});

it('operations that hang are two at the most, and their callers go on: the other threads are for the own disk', async () => {
  const begun: (() => void)[] = [];
  const stop = new AbortController();
  const never = () => onSource(() => new Promise<void>((resolve) => void begun.push(resolve)), stop.signal);
  const callers = Array.from({ length: 5 }, never);
  await eventually('two have begun', 5_000, () => begun.length === 2 || undefined);
  stop.abort(new Error('given up'));
  for (const one of await Promise.allSettled(callers)) expect(one).toMatchObject({ reason: { message: 'given up' } });
  expect(begun.length).toBe(2);
  const other = onSource(async () => 'read', new AbortController().signal);
  for (const end of begun) end();
  expect(await other).toBe('read');
});

it('a list that hangs on one node is read by another', async () => {
  const cluster = new Cluster();
  const source = `dir:${await plainFolder({ a: randomBytes(PIECE) })}`;
  const asked = Promise.withResolvers<void>();
  const hanging: typeof openSource = (one, env) => ({
    ...openSource(one, env),
    list: (signal) => {
      asked.resolve();
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    },
  });
  const first = await cluster.add({ weights: { openSource: hanging, limits: { ...QUICK, listWithinMs: 300 } } });
  const second = await cluster.add();
  const pulled = first.weights.pull(source);
  await asked.promise;
  await second.weights.pull(source);
  expect((await pulled).status.state).toBe('done');
  expect(second.lists).toBe(1);
});

it('a node whose file system hangs takes a blob from one that could read it', async () => {
  const cluster = new Cluster();
  const bytes = randomBytes(4 * PIECE);
  const source = `dir:${await hubFolder({ model: bytes })}`;
  // Both nodes are in this process, so a call carries the node that made it. The first one's calls always hang.
  const node = new AsyncLocalStorage<'second'>();
  let isHanging = false;
  disk.hangs = (path) => {
    if (!path.endsWith('/model') || node.getStore() === 'second') return false;
    isHanging = true;
    return true;
  };
  const [first, second] = await cluster.of(2, { weights: { limits: QUICK } });
  if (first === undefined || second === undefined) return expect.unreachable();
  const pulled = first.weights.pull(source);
  await eventually('it hangs', 10_000, () => isHanging || undefined);
  await node.run('second', () => second.weights.pull(source));
  const { path, status } = await pulled;
  expect((await readFile(join(path, 'model'))).equals(bytes)).toBe(true);
  expect(status).toMatchObject({ from_source: 0, from_peers: bytes.length });
});

it('a node alone whose file system hangs says so in the end', async () => {
  const source = `dir:${await hubFolder({ model: randomBytes(PIECE) })}`;
  disk.hangs = (path) => path.endsWith('/model');
  const node = await new Cluster().add({ weights: { limits: { ...QUICK, giveUpMs: 3_000 } } });
  await expect(node.weights.pull(source)).rejects.toThrow('its source sends nothing more');
});
