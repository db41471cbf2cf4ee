import { randomBytes } from 'node:crypto';
import { readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { contentDigest } from '../../../agent/weights/sources/source-listing.ts';
import { PULL_LIMITS } from '../../../agent/weights/weights-config.ts';
import { weightsManifestSchema } from '../../../shared/weights/weights-manifest.ts';
import { endAll } from '../../support/processes.ts';
import { Cluster, hubFolder, type Node, PIECE, plainFolder, QUICK, sha256, way } from './cluster.ts';

afterEach(endAll);

const SIZE = PIECE * 6 + 100;
const WEIGHTS = randomBytes(SIZE);
const MODEL = { 'model.safetensors': WEIGHTS };

async function holder(cluster: Cluster, folder = hubFolder): Promise<{ first: Node; source: string; folder: string }> {
  const first = await cluster.add();
  const made = await folder(MODEL);
  await first.weights.pull(`dir:${made}`);
  return { first, source: `dir:${made}`, folder: made };
}

async function expectWhole(node: Node, source: string) {
  const { path, status } = await node.weights.pull(source);
  expect((await readFile(join(path, 'model.safetensors'))).equals(WEIGHTS)).toBe(true);
  return status;
}

it('a corrupt piece is thrown away, its sender left out, and what is missing read from the source', async () => {
  const cluster = new Cluster();
  const { first, source } = await holder(cluster);
  const second = await cluster.add();
  cluster.line = (_from, to, port) =>
    to === first
      ? way(port, async (chunk, near, seen) => {
          // In the third piece of the long response.
          const at = PIECE * 2.5 - seen;
          if (at >= 0 && at < chunk.length) chunk[at] = (chunk[at] ?? 0) ^ 0xff;
          near.write(chunk);
        })
      : port;
  const status = await expectWhole(second, source);
  expect(second.log.join('\n')).toMatch(/piece 2 of .* has the wrong digest/);
  expect(status.from_source).toBe(SIZE - 2 * PIECE);
});

it('a sender whose own file was cut off does not make others believe in it', async () => {
  const cluster = new Cluster();
  const { first, source } = await holder(cluster);
  await truncate(first.weights.store.placeOf(sha256(WEIGHTS)).path, PIECE * 2);
  const second = await cluster.add();
  await expectWhole(second, source);
  expect(second.read).toBe(SIZE);
});

it('a node whose sender is killed in the middle of a piece goes on with another, from the piece that it needs', async () => {
  const cluster = new Cluster();
  const { first, source } = await holder(cluster);
  const [other, third] = await cluster.of(2);
  await expectWhole(other as Node, source);
  cluster.line = (from, to, port) =>
    from === third && to === first
      ? way(port, async (chunk, near, seen) => {
          if (seen > PIECE * 3.2) {
            near.destroy();
            cluster.remove(first);
            await first.close();
          } else near.write(chunk);
        })
      : port;
  const status = await expectWhole(third as Node, source);
  expect(status.from_source).toBe(0);
  // Only the bytes of the piece that broke off arrived twice.
  expect(status.from_peers).toBeLessThanOrEqual(SIZE + PIECE);
});

it('a sender of 1 KB/s is left', async () => {
  const cluster = new Cluster();
  const { first, source } = await holder(cluster);
  const second = await cluster.add({ weights: { limits: QUICK } });
  let slowly = 0;
  cluster.line = (_from, to, port) =>
    to === first
      ? way(port, async (chunk, near) => {
          // Questions are small and pass; a blob gets a thousand bytes a second.
          for (let at = 0; at < chunk.length && !near.destroyed; at += 100) {
            near.write(chunk.subarray(at, at + 100));
            if (chunk.length < 1000) continue;
            slowly += 100;
            await delay(100);
          }
        })
      : port;
  await expectWhole(second, source);
  // Part of it arrived that way, but not the missing rest.
  expect(slowly).toBeGreaterThan(0);
  expect(slowly).toBeLessThan(SIZE / 4);
  expect(second.log.join('\n')).toMatch(/too slow/);
});

it('with 1 of 64 nodes that no other reaches, all get the model, and it as well', async () => {
  const cluster = new Cluster();
  // All on one machine, so the same patience as in the agent.
  const nodes = await cluster.of(64, { weights: { limits: PULL_LIMITS } });
  const hidden = nodes[17];
  cluster.line = (_from, to, port) => {
    if (to === hidden) throw new Error('no route to host');
    return port;
  };
  const source = `dir:${await hubFolder({ 'model.safetensors': WEIGHTS.subarray(0, PIECE * 2) })}`;
  const pulled = await Promise.all(nodes.map((node) => node.weights.pull(source)));
  for (const { path } of pulled) expect((await stat(join(path, 'model.safetensors'))).size).toBe(PIECE * 2);
  const read = nodes.reduce((sum, node) => sum + node.read, 0);
  // The others may have been sent to the unreachable node.
  expect(read).toBeLessThanOrEqual(2 * PIECE * 2);
});

it('a model that does not fit is refused, and what is in use stays; what was not used for longest goes', async () => {
  const cluster = new Cluster();
  const node = await cluster.add({ config: { limitBytes: SIZE + PIECE } });
  const small = randomBytes(PIECE / 2);
  const [old, used, large] = [
    `dir:${await hubFolder({ a: small })}`,
    `dir:${await hubFolder({ b: randomBytes(PIECE / 2) })}`,
    `dir:${await hubFolder(MODEL)}`,
  ];
  await node.weights.pull(old);
  await node.weights.pull(used, true);
  await node.weights.pull(large);
  expect((await node.weights.held()).map(({ source }) => source).sort()).toEqual([used, large].sort());
  const more = `dir:${await hubFolder({ c: randomBytes(SIZE + PIECE) })}`;
  await expect(node.weights.pull(more)).rejects.toMatchObject({ code: 'full' });
  expect((await node.weights.held()).map(({ source }) => source)).toEqual(expect.arrayContaining([used, large]));
});

it('two models that share a blob have it once, and it comes once', async () => {
  const cluster = new Cluster();
  const [node] = await cluster.of(1);
  if (node === undefined) return expect.unreachable();
  const one = `dir:${await hubFolder({ ...MODEL, 'config.json': Buffer.from('1') })}`;
  const two = `dir:${await hubFolder({ ...MODEL, 'config.json': Buffer.from('2') })}`;
  await node.weights.pull(one);
  const { status } = await node.weights.pull(two);
  expect(status.from_source).toBe(1);
  await node.weights.remove(one);
  expect(await node.weights.store.has({ key: sha256(WEIGHTS), size: SIZE })).toBe(true);
  await node.weights.remove(two);
  expect(await node.weights.store.used()).toBe(0);
});

it('a node of another provider gets no private blob, one of another cluster no connection', async () => {
  const cluster = new Cluster();
  const { first, source, folder } = await holder(cluster);
  const stranger = await cluster.add({ provider: 'rival', weights: { limits: { ...QUICK, giveUpMs: 1_000 } } });
  const far = await cluster.add({ cluster: 'elsewhere' });
  const blob = { key: sha256(WEIGHTS), size: SIZE, piece: PIECE, from: 0 };
  const { signal } = new AbortController();
  const { client } = stranger.weights.parts;
  await expect(client.blob(first.name.session, blob, signal)).rejects.toMatchObject({ code: 'refused' });
  await expect(client.held(first.name.session, signal)).rejects.toMatchObject({ code: 'refused' });
  await expect(client.manifest(first.name.session, contentDigest(source), signal)).rejects.toMatchObject({
    code: 'refused',
  });
  await expect(far.weights.parts.client.blob(first.name.session, blob, signal)).rejects.toMatchObject({
    code: 'unavailable',
  });
  expect(first.weights.uploads.bytes).toBe(0);
  await rm(folder, { recursive: true });
  await expect(stranger.weights.pull(source)).rejects.toThrow();
});

it('a cluster that the operator names gets it', async () => {
  const cluster = new Cluster();
  const options = { config: { clusters: ['alps', 'elsewhere'] } };
  const [first] = await cluster.of(1, options);
  const source = `dir:${await hubFolder(MODEL)}`;
  await first?.weights.pull(source);
  const far = await cluster.add({ cluster: 'elsewhere', ...options });
  const status = await expectWhole(far, source);
  expect(status).toMatchObject({ from_source: 0, from_peers: SIZE });
});

it.each([
  ['a folder of a Hugging Face cache', hubFolder],
  ['a plain directory', plainFolder],
])('a source that is gone after the first copy is missed by none: %s', async (_what, make) => {
  const cluster = new Cluster();
  const { source, folder } = await holder(cluster, make);
  await rm(folder, { recursive: true });
  const [second, third] = await cluster.of(2);
  expect(await expectWhole(second as Node, source)).toMatchObject({ from_source: 0 });
  expect(await expectWhole(third as Node, source)).toMatchObject({ from_source: 0 });
});

const HOSTILE: [string, object][] = [
  ['..', { path: '../../evil' }],
  ['.. within', { path: 'a/../../evil' }],
  ['an absolute path', { path: '/tmp/evil' }],
  ['a backslash', { path: 'a\\..\\evil' }],
  ['a line break', { path: 'a\nb' }],
  ['a name that no disk has', { path: `a/${'ä'.repeat(128)}` }],
  ['a name that is another on a disk', { path: 'a\ud800' }],
  ['folders without end', { path: `${'a/'.repeat(32)}b` }],
  ['a symlink', { path: 'evil', link: '/etc' }],
];
it.each(HOSTILE)('a manifest with %s is refused, and nothing of it is written', async (_what, file) => {
  const cluster = new Cluster();
  const { first, source } = await holder(cluster);
  const second = await cluster.add();
  const id = contentDigest(source);
  const path = join(first.directory, '.otela', 'manifests', `${id}.json`);
  const kept = JSON.parse(await readFile(path, 'utf8'));
  const hostile = { ...kept.manifest, files: [{ ...kept.manifest.files[0], ...file }] };
  expect(weightsManifestSchema.safeParse(hostile).success).toBe(false);
  // The sender is an agent that does not check its own list.
  first.weights.store.manifests.get = async () => ({
    id,
    manifest: hostile,
    readAt: Date.now(),
    usedAt: 0,
    pinned: false,
  });
  const { client } = second.weights.parts;
  const asked = client.manifest(first.name.session, id, new AbortController().signal);
  await expect(asked).rejects.toMatchObject({ code: 'wrong' });
  expect(await readdir(second.directory)).toEqual(['.otela']);
});

it('two paths are refused where one is a folder of the other: a symlink would be followed', () => {
  const file = { size: 1, key: 'a'.repeat(64), exact: true };
  const manifest = (...paths: string[]) => ({
    v: 1,
    source: 'dir:/x',
    revision: 'r',
    public: false,
    files: paths.map((path) => ({ ...file, path })),
  });
  expect(weightsManifestSchema.safeParse(manifest('a', 'b/c')).success).toBe(true);
  expect(weightsManifestSchema.safeParse(manifest('a', 'a/c')).success).toBe(false);
  expect(weightsManifestSchema.safeParse(manifest('a', 'a')).success).toBe(false);
  expect(weightsManifestSchema.safeParse(manifest('a', 'a b', 'a-b', 'a/b')).success).toBe(false);
  expect(weightsManifestSchema.safeParse(manifest('a/b/c', 'ab', 'a.b', 'a/b')).success).toBe(false);
  expect(weightsManifestSchema.safeParse(manifest('a b', 'a-b', 'a/b', 'ab/c')).success).toBe(true);
});

it('a sender that invents pieces with matching digests is detected at the end, and avoided', async () => {
  const cluster = new Cluster();
  const { first, source } = await holder(cluster);
  const place = first.weights.store.placeOf(sha256(WEIGHTS));
  const wrong = Buffer.from(WEIGHTS);
  wrong[0] = (wrong[0] ?? 0) ^ 1;
  await writeFile(place.path, wrong);
  const digests = await readFile(place.digestsPath);
  digests.set(Buffer.from(sha256(wrong.subarray(0, PIECE)), 'hex'));
  await writeFile(place.digestsPath, digests);
  const second = await cluster.add();
  await expectWhole(second, source);
  expect(second.log.join('\n')).toMatch(/wrong SHA-256/);
});
