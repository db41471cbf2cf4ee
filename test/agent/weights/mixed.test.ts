/** Blobs with pieces of several origins: lying nodes, previous processes, sources that change meanwhile. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { AwsClient } from 'aws4fetch';
import { afterEach, expect, it } from 'vitest';
import { openSource } from '../../../agent/weights/sources/open-source.ts';
import { atEnd, endAll } from '../../support/processes.ts';
import { BUCKET, NO_S3_SERVER, S3_SERVER, S3Server } from '../../support/s3-server.ts';
import { Cluster, hubFolder, type Node, PIECE, plainFolder, sha256, way } from './cluster.ts';
import { startHub } from './mock-hub.ts';

afterEach(endAll);

const SIZE = PIECE * 4 + 100;
const WEIGHTS = randomBytes(SIZE);
const NAME = 'model.safetensors';

/** Other bytes, split into pieces with valid digests. */
function lie() {
  const bytes = Buffer.from(WEIGHTS);
  bytes[0] = (bytes[0] ?? 0) ^ 1;
  const digests: Buffer[] = [];
  for (let at = 0; at < SIZE; at += PIECE) digests.push(Buffer.from(sha256(bytes.subarray(at, at + PIECE)), 'hex'));
  return { bytes, digests: Buffer.concat(digests) };
}

async function expectWhole(node: Node, source: string) {
  const { path, status } = await node.weights.pull(source);
  expect((await readFile(join(path, NAME))).equals(WEIGHTS)).toBe(true);
  return status;
}

it('a node that lied and died before the end costs its pieces: they are not taken for the source’s', async () => {
  const cluster = new Cluster();
  const [liar, second] = [await cluster.add(), await cluster.add()];
  const source = `dir:${await hubFolder({ [NAME]: WEIGHTS })}`;
  await liar.weights.pull(source);
  const { path, digestsPath } = liar.weights.store.placeOf(sha256(WEIGHTS));
  const { bytes, digests } = lie();
  await writeFile(path, bytes);
  await writeFile(digestsPath, digests);
  cluster.line = (_from, to, port) =>
    to === liar
      ? way(port, async (chunk, near, seen) => {
          if (seen < PIECE * 2.5) return void near.write(chunk);
          near.destroy();
          if (cluster.nodes.includes(liar)) cluster.remove(liar);
        })
      : port;
  const status = await expectWhole(second, source);
  expect(second.log.join('\n')).toMatch(/from .* has the wrong SHA-256; starting again/);
  expect(status.from_source).toBeGreaterThanOrEqual(SIZE);
});

it('wrong pieces that a killed process left are found out, and the next pull has the blob', async () => {
  const node = await new Cluster().add();
  const source = `dir:${await hubFolder({ [NAME]: WEIGHTS })}`;
  const { partPath, digestsPath } = node.weights.store.placeOf(sha256(WEIGHTS));
  const { bytes, digests } = lie();
  await writeFile(partPath, bytes);
  await writeFile(digestsPath, digests);
  expect(await expectWhole(node, source)).toMatchObject({ from_source: SIZE });
});

it('a source that is not what it says leaves nothing that a later pull stumbles over', async () => {
  const node = await new Cluster().add();
  const folder = await hubFolder({ [NAME]: WEIGHTS });
  await writeFile(join(folder, 'blobs', sha256(WEIGHTS)), lie().bytes);
  await expect(node.weights.pull(`dir:${folder}`)).rejects.toMatchObject({ code: 'wrong' });
  await writeFile(join(folder, 'blobs', sha256(WEIGHTS)), WEIGHTS);
  await expectWhole(node, `dir:${folder}`);
});

it('a blob that lost its digests is pulled again, and then served to others', async () => {
  const cluster = new Cluster();
  const [first, second] = [await cluster.add(), await cluster.add()];
  const folder = await hubFolder({ [NAME]: WEIGHTS });
  await first.weights.pull(`dir:${folder}`);
  await rm(first.weights.store.placeOf(sha256(WEIGHTS)).digestsPath);
  await expectWhole(first, `dir:${folder}`);
  await rm(folder, { recursive: true });
  expect(await expectWhole(second, `dir:${folder}`)).toMatchObject({ from_source: 0 });
});

/** Like after an interrupted eviction: the list exists, but no blob. */
async function loseBlobs(node: Node): Promise<void> {
  const blobs = join(node.directory, '.otela', 'blobs');
  for (const name of await readdir(blobs)) await rm(join(blobs, name));
}

it('files of a plain directory that changed since they were listed are listed anew, not taken for the old ones', async () => {
  const node = await new Cluster().add();
  const folder = await plainFolder({ [NAME]: randomBytes(SIZE), gone: randomBytes(10) });
  const before = await node.weights.pull(`dir:${folder}`);
  await loseBlobs(node);
  await writeFile(join(folder, NAME), WEIGHTS);
  await rm(join(folder, 'gone'));
  const { path, manifest } = await node.weights.pull(`dir:${folder}`);
  expect((await readFile(join(path, NAME))).equals(WEIGHTS)).toBe(true);
  expect(manifest.revision).not.toBe(before.manifest.revision);
  expect(await node.weights.held()).toMatchObject([{ revision: manifest.revision }]);
});

it('what was listed by another node is read as that node saw it, or not at all', async () => {
  const cluster = new Cluster();
  const [first, second] = [await cluster.add(), await cluster.add()];
  const folder = await plainFolder({ [NAME]: randomBytes(SIZE) });
  const old = await first.weights.pull(`dir:${folder}`);
  await loseBlobs(first);
  await writeFile(join(folder, NAME), WEIGHTS);
  const { path, manifest } = await second.weights.pull(`dir:${folder}`);
  expect((await readFile(join(path, NAME))).equals(WEIGHTS)).toBe(true);
  expect(manifest.files[0]?.key).not.toBe(old.manifest.files[0]?.key);
});

it('a source that changed is listed anew although other nodes have its old list, which is good enough where it is gone', async () => {
  const cluster = new Cluster();
  let now = Date.now();
  const options = { weights: { now: () => now } };
  const before = randomBytes(SIZE);
  const folder = await plainFolder({ [NAME]: before });
  const first = await cluster.add(options);
  await first.weights.pull(`dir:${folder}`);
  await writeFile(join(folder, NAME), WEIGHTS);
  now += 3_600_000;
  await expectWhole(await cluster.add(options), `dir:${folder}`);
  await rm(folder, { recursive: true });
  now += 3_600_000;
  const { path, status } = await (await cluster.add(options)).weights.pull(`dir:${folder}`);
  expect(status).toMatchObject({ from_source: 0 });
  // If the source is gone, the list of any node will do: the model is complete, in one of its versions.
  const after = await readFile(join(path, NAME));
  expect([before, WEIGHTS].some((bytes) => bytes.equals(after))).toBe(true);
});

it('a repository whose branch moved since it was listed is read at the commit that was listed', async () => {
  const config = Buffer.from('{"a":1}');
  const hub = await startHub({ repository: 'lab/model', files: { [NAME]: WEIGHTS, 'config.json': config } });
  const env = { HF_ENDPOINT: hub.url };
  const node = await new Cluster().add({ weights: { env, openSource: (source) => openSource(source, env) } });
  await node.weights.pull('hub:lab/model');
  await loseBlobs(node);
  hub.move('e'.repeat(40), { [NAME]: lie().bytes, 'config.json': Buffer.from('{"a":2}') });
  const { path } = await node.weights.pull('hub:lab/model');
  expect((await readFile(join(path, NAME))).equals(WEIGHTS)).toBe(true);
  expect(await readFile(join(path, 'config.json'), 'utf8')).toBe('{"a":1}');
});

it('an object of a bucket that was replaced since it was listed is listed anew', async ({ skip }) => {
  if (S3_SERVER === undefined) return skip(NO_S3_SERVER);
  const server = await S3Server.start();
  const env = server.env();
  const node = await new Cluster().add({ weights: { env, openSource: (source) => openSource(source, env) } });
  const { AWS_ACCESS_KEY_ID: accessKeyId = '', AWS_SECRET_ACCESS_KEY: secretAccessKey = '' } = env;
  const aws = new AwsClient({ accessKeyId, secretAccessKey, service: 's3', region: 'us-east-1' });
  const put = async (body: Buffer) => {
    const url = `${server.url}/${BUCKET}/${NAME}`;
    expect((await aws.fetch(url, { method: 'PUT', body: new Uint8Array(body) })).status).toBe(200);
  };
  await put(randomBytes(SIZE));
  await node.weights.pull(`s3://${BUCKET}`);
  await loseBlobs(node);
  await put(WEIGHTS);
  await expectWhole(node, `s3://${BUCKET}`);
  expect(node.log.join('\n')).toContain('has changed since it was listed');
  await server.stop();
});

it('a node that stops after the head of its answer is one that does not answer', async () => {
  const cluster = new Cluster();
  const [asking, stopped] = [await cluster.add(), await cluster.add()];
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n['));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(() => void server.close());
  cluster.line = () => (server.address() as AddressInfo).port;
  const { client } = asking.weights.parts;
  const asked = client.coordinate(stopped.name.session, [], false, new AbortController().signal);
  await expect(asked).rejects.toMatchObject({ code: 'unavailable' });
});
