/** A bucket that is unavailable, refuses, is full, or breaks off: nothing is stored half, and other work continues. */
import { createHash } from 'node:crypto';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { S3Client } from '../../../gateway/hosts/node/s3/s3-client.ts';
import { readS3Config } from '../../../gateway/hosts/node/s3/s3-config.ts';
import { S3FileStore } from '../../../gateway/hosts/node/s3/s3-file-store.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { type FaultyProxy, faultyProxy } from '../../support/faulty-proxy.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { BUCKET, NO_S3_SERVER, S3_SERVER, S3Server } from '../../support/s3-server.ts';

if (S3_SERVER === undefined) console.log(`skipped: buckets: ${NO_S3_SERVER}`);

const MIB = 1024 * 1024;
const ID = (at: number) => `file-${String(at).padStart(24, '0')}`;

async function* pieces(count: number, before?: (at: number) => Promise<void>): AsyncGenerator<Uint8Array> {
  for (let i = 0; i < count; i++) {
    await before?.(i);
    yield new Uint8Array(MIB).fill(i % 251);
  }
}
async function* few(): AsyncGenerator<Uint8Array> {
  yield new Uint8Array(1024);
}

async function sha256(content: AsyncIterable<Uint8Array> | undefined): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of content ?? []) hash.update(piece);
  return hash.digest('hex');
}

afterAll(endAll);

describe.skipIf(S3_SERVER === undefined)('a bucket', () => {
  let server: S3Server;
  let proxy: FaultyProxy;
  let store: S3FileStore;
  beforeAll(async () => {
    server = await S3Server.start();
    proxy = await faultyProxy(server.url);
    store = new S3FileStore(new S3Client(readS3Config(`s3://${BUCKET}`, server.env(proxy.url)), 5_000), {
      stallMs: 500,
    });
  });

  it('that is away while a part comes has the whole file when it is back within seconds', async () => {
    const away = async (at: number) => {
      if (at === 10) await server.stop();
      if (at === 10) setTimeout(() => neverRejects(server.run()), 300);
    };
    await store.put(ID(1), pieces(20, away), 100 * MIB);
    expect(await sha256(await store.read(ID(1)))).toBe(await sha256(pieces(20)));
  });

  it('that stays away is an error, and nothing is there when it is back', async () => {
    proxy.fault = ({ path }) => (path.includes('partNumber=2') ? { kind: 'lose' } : undefined);
    const startedAt = performance.now();
    await expect(store.put(ID(2), pieces(20), 100 * MIB)).rejects.toMatchObject({ code: 'unavailable' });
    expect(performance.now() - startedAt).toBeLessThan(60_000);
    proxy.fault = () => undefined;
    expect(await store.read(ID(2))).toBeUndefined();
    expect(await store.dropUnfinished(Date.now() + 60_000)).toBe(0);
  });

  it('that has completed an upload, and whose answer was lost, has the file', async () => {
    let lost = 0;
    proxy.fault = ({ method, path }) =>
      method === 'POST' && path.includes('uploadId=') && lost++ === 0 ? { kind: 'lose' } : undefined;
    expect(await store.put(ID(3), pieces(9), 100 * MIB)).toEqual({ bytes: 9 * MIB });
    expect(lost).toBeGreaterThan(0);
    proxy.fault = () => undefined;
    expect(await sha256(await store.read(ID(3)))).toBe(await sha256(pieces(9)));
  });

  it('that says 200 and an error in its body has not completed an upload', async () => {
    const body = '<?xml version="1.0"?><Error><Code>InternalError</Code><Message>no</Message></Error>';
    proxy.fault = ({ method, path }) =>
      method === 'POST' && path.includes('uploadId=') ? { kind: 'answer', status: 200, body } : undefined;
    await expect(store.put(ID(4), pieces(9), 100 * MIB)).rejects.toThrow(/did not complete the upload: InternalError/);
    proxy.fault = () => undefined;
    expect(await store.read(ID(4))).toBeUndefined();
  });

  it.each(['cut', 'stall'] as const)('whose answers break off (%s) gives the whole file all the same', async (kind) => {
    await store.put(ID(5), pieces(3), 100 * MIB);
    let broken = 0;
    proxy.fault = ({ method }) => (method === 'GET' && broken++ < 2 ? { kind, afterBytes: 700_000 } : undefined);
    expect(await sha256(await store.read(ID(5)))).toBe(await sha256(pieces(3)));
    expect(broken).toBe(3);
    proxy.fault = () => undefined;
  });

  it('whose answers always break off without a byte is an error, not an endless read', async () => {
    await store.put(ID(6), pieces(1), 100 * MIB);
    proxy.fault = ({ method }) => (method === 'GET' ? { kind: 'cut', afterBytes: 0 } : undefined);
    await expect(sha256(await store.read(ID(6)))).rejects.toMatchObject({ code: 'unavailable' });
    proxy.fault = () => undefined;
  });

  it('that refuses the key is asked once, and the error says 403 and no secret', async () => {
    const env = server.env(proxy.url, 'another-secret');
    const refused = new S3FileStore(new S3Client(readS3Config(`s3://${BUCKET}`, env)));
    proxy.asked.length = 0;
    // The body is short: if a server refuses a long one, it closes the connection during the upload, and its response
    // may be lost.
    const error: Error = (await refused.put(ID(7), few(), 100 * MIB).catch((one: Error) => one)) as Error;
    expect(error).toMatchObject({ code: 'unavailable', message: expect.stringMatching(/403 SignatureDoesNotMatch/) });
    expect(JSON.stringify([error.message, error.stack])).not.toContain('another-secret');
    expect(proxy.asked).toHaveLength(1);
  });

  it('that does not exist is unavailable: its files are not taken for deleted', async () => {
    const none = new S3FileStore(new S3Client(readS3Config('s3://no-such-bucket', server.env())));
    await expect(none.put(ID(8), pieces(1), 100 * MIB)).rejects.toThrow(/404 NoSuchBucket/);
    await expect(none.list().next()).rejects.toThrow(/404 NoSuchBucket/);
  });

  it('whose proxy answers 404 has not lost a file', async () => {
    await store.put(ID(9), few(), MIB);
    proxy.fault = () => ({ kind: 'answer', status: 404, body: '<html>no backend</html>' });
    await expect(store.read(ID(9))).rejects.toThrow(/404/);
    await expect(store.delete(ID(9))).rejects.toThrow(/404/);
    proxy.fault = () => undefined;
    expect(await sha256(await store.read(ID(9)))).toBe(await sha256(few()));
    await store.delete(ID(9));
    expect(await store.read(ID(9))).toBeUndefined();
    await store.delete(ID(9));
  });

  it.each([
    [507, 'InsufficientStorage'],
    [403, 'QuotaExceeded'],
  ])('that takes no more (a stand-in’s %i %s) is full, and is not asked again', async (status, code) => {
    proxy.fault = ({ method }) =>
      method === 'PUT' ? { kind: 'answer', status, body: `<Error><Code>${code}</Code></Error>` } : undefined;
    proxy.asked.length = 0;
    await expect(store.put(ID(9), pieces(1), 100 * MIB)).rejects.toMatchObject({ code: 'full' });
    expect(proxy.asked).toHaveLength(1);
    proxy.fault = () => undefined;
  });

  it('has its abandoned uploads dropped when they are old enough', async () => {
    // The gateway is killed during the upload, so it cannot clean up.
    const left = await fetchUpload(store, proxy);
    expect(left).toBe(true);
    expect(await store.dropUnfinished(Date.now() - 3_600_000)).toBe(0);
    expect(await store.dropUnfinished(Date.now() + 60_000)).toBe(1);
    expect(await store.dropUnfinished(Date.now() + 60_000)).toBe(0);
  });
});

/** Begins an upload that fails, and makes its abort fail too. Returns true if it failed as planned. */
async function fetchUpload(store: S3FileStore, proxy: FaultyProxy): Promise<boolean> {
  const before = proxy.fault;
  proxy.fault = ({ method }) => (method === 'DELETE' ? { kind: 'answer', status: 400, body: '' } : undefined);
  const gone = async (at: number) => {
    if (at === 9) throw new Error('killed');
  };
  const failed = await store.put(ID(10), pieces(20, gone), 100 * MIB).catch(({ message }: Error) => message);
  proxy.fault = before;
  return failed === 'killed';
}

describe('--files s3://…', () => {
  const KEY = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'secret' };

  it('takes region, endpoint and key from the variables that AWS’ own programs read', () => {
    expect(readS3Config('s3://bucket/a/b/', { ...KEY, AWS_REGION: 'eu-central-2' })).toEqual({
      endpoint: 'https://s3.eu-central-2.amazonaws.com',
      region: 'eu-central-2',
      bucket: 'bucket',
      prefix: 'a/b/',
      accessKeyId: 'id',
      secretAccessKey: 'secret',
    });
    const other = { AWS_ENDPOINT_URL_S3: 'http://[::1]:7070/', AWS_SESSION_TOKEN: 'token' };
    expect(readS3Config('s3://bucket', { ...KEY, ...other })).toMatchObject({
      endpoint: 'http://[::1]:7070',
      region: 'us-east-1',
      prefix: '',
      sessionToken: 'token',
    });
  });

  it('takes the key from a file, which others must not read', async () => {
    const file = join(await temporaryDirectory('otela-key'), 'credentials');
    const profile = (name: string, id: string) => `[${name}]\naws_access_key_id = ${id}\naws_secret_access_key=s/+=\n`;
    await writeFile(file, `${profile('default', 'one')}# more\n${profile('other', 'two')}`, { mode: 0o600 });
    const env = { AWS_SHARED_CREDENTIALS_FILE: file };
    expect(readS3Config('s3://bucket', env)).toMatchObject({ accessKeyId: 'one', secretAccessKey: 's/+=' });
    expect(readS3Config('s3://bucket', { ...env, AWS_PROFILE: 'other' })).toMatchObject({ accessKeyId: 'two' });
    await chmod(file, 0o640);
    expect(() => readS3Config('s3://bucket', env)).toThrow(/other users can read it: chmod 600/);
  });

  it.each(['s3://', 's3://B', 's3:bucket', 's3://bucket/x?y', 's3://bucket/..', 's3://bucket//a'])(
    '%s is wrong use',
    (address) => {
      expect(() => readS3Config(address, KEY)).toThrow(/is not s3:\/\/BUCKET/);
    },
  );

  it('without a key, or with an endpoint that is none, says what is missing', () => {
    expect(() => readS3Config('s3://bucket', {})).toThrow(/needs AWS_ACCESS_KEY_ID/);
    expect(() => readS3Config('s3://bucket', { ...KEY, AWS_ENDPOINT_URL_S3: 'minio:9000' })).toThrow(
      /not an http or https/,
    );
  });
});
