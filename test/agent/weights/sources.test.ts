import { randomBytes } from 'node:crypto';
import { link, mkdir, readdir, readFile, readlink, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { openSource } from '../../../agent/weights/sources/open-source.ts';
import { pieceCount } from '../../../shared/weights/blob-pieces.ts';
import { endAll } from '../../support/processes.ts';
import { BUCKET, NO_S3_SERVER, S3_SERVER, S3Server } from '../../support/s3-server.ts';
import { Cluster, PIECE, plainFolder, sha256 } from './cluster.ts';
import { COMMIT, gitDigest, startHub } from './mock-hub.ts';

afterEach(endAll);

const WEIGHTS = randomBytes(PIECE * 3 + 5);
const CONFIG = Buffer.from('{"model_type":"x"}');
const REPOSITORY = 'lab/model';
const FILES = { 'config.json': CONFIG, 'parts/model.safetensors': WEIGHTS };

const nodes = (count: number, env: Record<string, string>) =>
  new Cluster().of(count, { weights: { env, openSource: (source) => openSource(source, env) } });

it('of two nodes one reads the hub: a redirect’s storage sees no token, and the layout is that of its own library', async () => {
  const token = 'hf_secret';
  const hub = await startHub({ repository: REPOSITORY, files: FILES, token, gated: true });
  const both = await nodes(2, { HF_ENDPOINT: hub.url, HF_TOKEN: token });
  const pulled = await Promise.all(both.map((node) => node.weights.pull(`hub:${REPOSITORY}`)));
  for (const { path, manifest, status } of pulled) {
    expect(path.endsWith(`models--lab--model/snapshots/${COMMIT}`)).toBe(true);
    expect((await readFile(join(path, 'parts/model.safetensors'))).equals(WEIGHTS)).toBe(true);
    expect((await readFile(join(path, 'config.json'))).equals(CONFIG)).toBe(true);
    expect(await readlink(join(path, 'config.json'))).toBe(`../../blobs/${gitDigest(CONFIG)}`);
    expect(await readlink(join(path, 'parts/model.safetensors'))).toBe(`../../../blobs/${sha256(WEIGHTS)}`);
    // Gated: other providers' nodes do not get it.
    expect(manifest.public).toBe(false);
    expect(status.state).toBe('done');
  }
  expect(hub.seen).toHaveLength(4);
  expect(hub.seen.filter((line) => line.includes('/signed'))).toEqual(['GET /signed?file=parts/model.safetensors - -']);
});

it('a read of the hub that breaks off goes on at the next piece', async () => {
  const hub = await startHub({ repository: REPOSITORY, files: FILES, breakAt: PIECE * 2 + 100 });
  const [node] = await nodes(1, { HF_ENDPOINT: hub.url });
  const { path } = (await node?.weights.pull(`hub:${REPOSITORY}`)) ?? {};
  expect((await readFile(join(path ?? '', 'parts/model.safetensors'))).equals(WEIGHTS)).toBe(true);
  expect(hub.seen.some((line) => line.includes(`/signed?file=parts/model.safetensors bytes=${PIECE * 2}-`))).toBe(true);
});

it('a storage that answers to the request for the rest with the whole is read from where a read broke off', async () => {
  const hub = await startHub({ repository: REPOSITORY, files: FILES, breakAt: PIECE * 2 + 100, ranges: 'whole' });
  const [node] = await nodes(1, { HF_ENDPOINT: hub.url });
  const { path, status } = (await node?.weights.pull(`hub:${REPOSITORY}`)) ?? {};
  expect((await readFile(join(path ?? '', 'parts/model.safetensors'))).equals(WEIGHTS)).toBe(true);
  expect(status?.state).toBe('done');
});

it('an answer that begins elsewhere than asked for is not taken for the rest', async () => {
  const hub = await startHub({ repository: REPOSITORY, files: FILES, ranges: 'later' });
  const reader = openSource({ kind: 'hub', repository: REPOSITORY, revision: 'main' }, { HF_ENDPOINT: hub.url });
  const { signal } = new AbortController();
  const { revision, files } = await reader.list(signal);
  const [file] = files.filter(({ path }) => path.endsWith('.safetensors'));
  if (file === undefined) return expect.unreachable();
  const read = async () => {
    for await (const _chunk of reader.read(file, { revision, offset: PIECE }, signal));
  };
  await expect(read()).rejects.toThrow('does not resume');
});

it('a repository with safetensors is taken without the same weights in older formats', async () => {
  const repeats = [
    'original/consolidated.00.pth',
    'original/params.json',
    'pytorch_model-00001-of-00002.bin',
    'tf_model.h5',
  ];
  const stay = ['1_Dense/pytorch_model.bin', 'adapter_model.bin', 'config.json', 'model.safetensors'];
  const named = (paths: string[]) => Object.fromEntries(paths.map((path) => [path, Buffer.from(path)]));
  const listed = async (paths: string[]) => {
    const hub = await startHub({ repository: REPOSITORY, files: named(paths) });
    const [node] = await nodes(1, { HF_ENDPOINT: hub.url });
    const pulled = await node?.weights.pull(`hub:${REPOSITORY}`);
    return pulled?.manifest.files.map(({ path }) => path).sort();
  };
  expect(await listed([...repeats, ...stay])).toEqual(stay);
  // Without those files, these are the weights.
  const old = [...repeats, 'config.json', 'adapter.safetensors'].sort();
  expect(await listed(old)).toEqual(old);
});

it('the files that a list had before, and has no more of the same commit, go with all their bytes', async () => {
  const hub = await startHub({ repository: REPOSITORY, files: { 'model.safetensors': WEIGHTS } });
  let now = Date.now();
  const options = { env: { HF_ENDPOINT: hub.url }, now: () => now };
  const node = await new Cluster().add({
    weights: { ...options, openSource: (source) => openSource(source, options.env) },
  });
  const { path } = await node.weights.pull(`hub:${REPOSITORY}`);
  // A list as an older version left it, which took all files.
  const [name = ''] = await readdir(join(node.directory, '.otela', 'manifests'));
  const written = join(node.directory, '.otela', 'manifests', name);
  const kept = JSON.parse(await readFile(written, 'utf8'));
  const more = Buffer.from('the same weights');
  kept.manifest.files.push({ path: 'pytorch_model.bin', size: more.length, key: sha256(more), exact: true });
  const { path: blob, digestsPath } = node.weights.store.placeOf(sha256(more));
  await writeFile(blob, more);
  await writeFile(digestsPath, Buffer.from(sha256(more), 'hex'));
  await link(blob, join(path, '../../blobs', sha256(more)));
  await symlink(`../../blobs/${sha256(more)}`, join(path, 'pytorch_model.bin'));
  await writeFile(written, JSON.stringify(kept));
  now += 3_600_000;
  await node.weights.pull(`hub:${REPOSITORY}`);
  expect(await readdir(path)).toEqual(['model.safetensors']);
  expect(await readdir(join(path, '../../blobs'))).toEqual([sha256(WEIGHTS)]);
  expect(await node.weights.store.used()).toBe(
    WEIGHTS.length + pieceCount({ size: WEIGHTS.length, pieceBytes: PIECE }) * 32,
  );
  expect(await node.weights.held()).toHaveLength(1);
});

it('the token is read from the place of its library, and an empty variable is ignored', async () => {
  const token = 'hf_kept';
  const hub = await startHub({ repository: REPOSITORY, files: FILES, token });
  const cache = await plainFolder({ 'huggingface/token': Buffer.from(`${token}\n`) });
  const env = { HF_ENDPOINT: hub.url, HF_TOKEN: '', XDG_CACHE_HOME: cache };
  const [node] = await nodes(1, env);
  expect((await node?.weights.pull(`hub:${REPOSITORY}`))?.status.state).toBe('done');
});

it('a hub that refuses says so', async () => {
  const hub = await startHub({ repository: REPOSITORY, files: FILES, token: 'another' });
  const [node] = await nodes(1, { HF_ENDPOINT: hub.url, HF_TOKEN: 'hf_wrong' });
  await expect(node?.weights.pull(`hub:${REPOSITORY}`)).rejects.toMatchObject({
    code: 'refused',
    message: expect.stringContaining(`answers 401: Access to ${REPOSITORY} is restricted.`),
  });
});

it('of two nodes one reads a bucket, with names that have to be escaped', async ({ skip }) => {
  if (S3_SERVER === undefined) return skip(NO_S3_SERVER);
  const server = await S3Server.start();
  const place = join(server.bucket, 'models/a model+1');
  await mkdir(place, { recursive: true });
  await writeFile(join(place, 'model.safetensors'), WEIGHTS);
  await writeFile(join(place, 'config & more.json'), CONFIG);
  const both = await nodes(2, server.env());
  const source = `s3://${BUCKET}/models/a model+1`;
  const pulled = await Promise.all(both.map((node) => node.weights.pull(source)));
  for (const { path } of pulled) {
    expect((await readFile(join(path, 'model.safetensors'))).equals(WEIGHTS)).toBe(true);
    expect((await readFile(join(path, 'config & more.json'))).equals(CONFIG)).toBe(true);
  }
  const total = WEIGHTS.length + CONFIG.length;
  expect(pulled.reduce((sum, { status }) => sum + status.from_source, 0)).toBe(total);
  await server.stop();
});

it('a bucket without its key, or that has nothing there, says so', async ({ skip }) => {
  if (S3_SERVER === undefined) return skip(NO_S3_SERVER);
  const server = await S3Server.start();
  const [wrong] = await nodes(1, server.env(server.url, 'wrong'));
  await expect(wrong?.weights.pull(`s3://${BUCKET}/models`)).rejects.toMatchObject({ code: 'refused' });
  const [node] = await nodes(1, server.env());
  await expect(node?.weights.pull(`s3://${BUCKET}/none`)).rejects.toThrow(/contains no objects/);
});

it('a file that is written anew with its old size is not mixed with what was read of it before', async () => {
  const bytes = 3 * 1024 * 1024;
  const folder = await plainFolder({ a: randomBytes(bytes) });
  const reader = openSource({ kind: 'dir', path: folder }, {});
  const { signal } = new AbortController();
  const { revision, files } = await reader.list(signal);
  const [file] = files;
  if (file === undefined) return expect.unreachable();
  const write = () => writeFile(join(folder, 'a'), randomBytes(bytes));
  let came = 0;
  const read = async (offset: number, meanwhile = async () => {}) => {
    came = 0;
    for await (const chunk of reader.read(file, { revision, offset }, signal)) {
      came += chunk.length;
      await meanwhile();
    }
  };
  await read(0);
  expect(came).toBe(bytes);
  await expect(read(0, write)).rejects.toMatchObject({ code: 'changed' });
  // Before the last piece is complete.
  expect(came).toBeLessThan(bytes);
  await expect(read(2 * PIECE)).rejects.toMatchObject({ code: 'changed' });
  expect(came).toBe(0);
  const node = await new Cluster().add({
    weights: {
      openSource: (source, env) => {
        const real = openSource(source, env);
        return {
          list: (within) => real.list(within),
          async *read(...args) {
            for await (const chunk of real.read(...args)) {
              yield chunk;
              await write();
            }
          },
        };
      },
    },
  });
  await expect(node.weights.pull(`dir:${folder}`)).rejects.toMatchObject({ code: 'changed' });
  expect(await node.weights.held()).toMatchObject([{ here: 0 }]);
});
