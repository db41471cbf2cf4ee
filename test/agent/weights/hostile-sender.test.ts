/** Senders that keep only to the protocol's form: each is left, and the blob is read from its source. */
import { randomBytes } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { HEAD_BYTES, PieceStreamReader, pieceHead, WAITS_MAX } from '../../../agent/weights/piece-stream.ts';
import { pieceCount } from '../../../shared/weights/blob-pieces.ts';
import { endAll } from '../../support/processes.ts';
import { Cluster, hubFolder, PIECE, QUICK, way } from './cluster.ts';

afterEach(endAll);

const SIZE = PIECE * 4 + 100;
const WEIGHTS = randomBytes(SIZE);

/** The sender's changes to its blob. */
const SENDERS: [string, { size?: number; pieceBytes?: number; piece?: () => Promise<boolean> }][] = [
  ['pieces of another size', { pieceBytes: PIECE / 2 }],
  ['more pieces than there are', { size: SIZE + 8 * PIECE }],
  ['fewer', { size: SIZE - 2 * PIECE }],
  [
    'words that it waits, and never a piece',
    { piece: () => new Promise((resolve) => setTimeout(resolve, 100, false)) },
  ],
];
it.each(SENDERS)('a sender of %s is left', async (_what, { size = SIZE, pieceBytes = PIECE, piece }) => {
  const cluster = new Cluster();
  const first = await cluster.add();
  const source = `dir:${await hubFolder({ 'model.safetensors': WEIGHTS })}`;
  await first.weights.pull(source);
  const { store } = first.weights;
  const real = store.read.bind(store);
  let asked = 0;
  store.read = async (file) => {
    const blob = await real(file);
    if (blob === undefined) return undefined;
    asked++;
    Object.defineProperties(blob, {
      size: { value: size },
      pieceBytes: { value: pieceBytes },
      pieces: { value: pieceCount({ size, pieceBytes }) },
      // It has bytes for any size that it claims.
      read: { value: async (target: Uint8Array) => target.length },
      ...(piece === undefined ? {} : { piece: { value: piece } }),
    });
    return blob;
  };
  const second = await cluster.add({ weights: { limits: QUICK } });
  const { path } = await second.weights.pull(source);
  expect((await readFile(join(path, 'model.safetensors'))).equals(WEIGHTS)).toBe(true);
  expect(asked).toBeGreaterThan(0);
  expect(second.read).toBe(SIZE);
});

it('an only sender that sends just enough is kept where the source has it no more, and left for one that is faster', async () => {
  const cluster = new Cluster();
  const first = await cluster.add();
  const held = async (pieces: number) => {
    const bytes = randomBytes(pieces * PIECE);
    const folder = await hubFolder({ a: bytes });
    await first.weights.pull(`dir:${folder}`);
    return { bytes, folder };
  };
  const [large, small] = [await held(60), await held(12)];
  // Three pieces a second.
  cluster.line = (_from, to, port) =>
    to === first
      ? way(port, async (chunk, near) => {
          for (let at = 0; at < chunk.length && !near.destroyed; at += 4_000) {
            near.write(chunk.subarray(at, at + 4_000));
            if (chunk.length > 4_000) await delay(20);
          }
        })
      : port;
  const limits = { ...QUICK, slowBytesPerS: 1, slowAfterMs: 2_000, tryAfterMs: 500, restMs: 2_000 };
  const second = await cluster.add({ weights: { limits } });
  // This model's source file is gone, which is not a reason to stop receiving the blob.
  await rm(join(small.folder, 'snapshots', 'c'.repeat(40), 'a'));
  expect((await second.weights.pull(`dir:${small.folder}`)).status).toMatchObject({ state: 'done', from_source: 0 });
  expect(second.log.join()).toContain('has changed since it was listed');
  const { path, status } = await second.weights.pull(`dir:${large.folder}`);
  expect((await readFile(join(path, 'a'))).equals(large.bytes)).toBe(true);
  expect(status.from_source).toBeGreaterThan(30 * PIECE);
  expect(status.from_peers).toBeGreaterThan(0);
});

it('a sender that says without end that it waits is left: each word costs time', async () => {
  const reader = new PieceStreamReader(() => PIECE, {
    onProgress: () => {},
    memory: async () => new SharedArrayBuffer(PIECE),
    onPiece: async () => {},
  });
  const word = pieceHead(0, Buffer.alloc(HEAD_BYTES - 4));
  for (let said = 0; said < WAITS_MAX; said++) await reader.push(word);
  await expect(reader.push(word)).rejects.toMatchObject({ code: 'wrong' });
});

it('a list from a node whose clock is years ahead is read anew when it is old by the own clock', async () => {
  const cluster = new Cluster();
  let now = Date.now();
  const source = `dir:${await hubFolder({ a: Buffer.from('a') })}`;
  const ahead = await cluster.add({ weights: { now: () => now + 1e12 } });
  await ahead.weights.pull(source);
  const node = await cluster.add({ weights: { now: () => now } });
  await node.weights.pull(source);
  expect(node.lists).toBe(0);
  cluster.remove(ahead);
  now += 3_600_000;
  await node.weights.pull(source);
  expect(node.lists).toBe(1);
  // The node's own clock is set back.
  now -= 7_200_000;
  await node.weights.pull(source);
  expect(node.lists).toBe(2);
});
