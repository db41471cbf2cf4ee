import { createHash } from 'node:crypto';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { parseListPage, readS3Account, s3Signer } from '../../node/s3.ts';
import { temporaryDirectory } from '../support/processes.ts';

const KEY = { AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'secret' };

it('the account is that of AWS’ own programs', async () => {
  expect(readS3Account({ ...KEY, AWS_REGION: 'eu-central-2' })).toEqual({
    endpoint: 'https://s3.eu-central-2.amazonaws.com',
    region: 'eu-central-2',
    accessKeyId: 'id',
    secretAccessKey: 'secret',
  });
  const file = join(await temporaryDirectory('otela-key'), 'credentials');
  await writeFile(file, '[default]\naws_access_key_id = one\naws_secret_access_key=s/+=\n', { mode: 0o600 });
  const env = { AWS_SHARED_CREDENTIALS_FILE: file, AWS_ENDPOINT_URL_S3: 'https://minio.example/s3/' };
  expect(readS3Account(env)).toMatchObject({
    endpoint: 'https://minio.example/s3',
    accessKeyId: 'one',
    secretAccessKey: 's/+=',
  });
  await chmod(file, 0o640);
  expect(() => readS3Account(env)).toThrow(
    `AWS_SHARED_CREDENTIALS_FILE ${file}: other users can read it: chmod 600 ${file}`,
  );
});

it.each([
  [{}, /needs AWS_ACCESS_KEY_ID/],
  [{ ...KEY, AWS_ACCESS_KEY_ID: '' }, /needs AWS_ACCESS_KEY_ID/],
  [{ ...KEY, AWS_ENDPOINT_URL_S3: 'minio:9000' }, /not an http or https/],
])('%j is no account', (env, reason) => {
  expect(() => readS3Account(env)).toThrow(reason);
});

it('a request is addressed by path, and its signature covers the body', async () => {
  const sign = s3Signer(readS3Account({ ...KEY, AWS_ENDPOINT_URL_S3: 'http://minio:9000' }), 'bucket');
  const body = new TextEncoder().encode('hello');
  const { url, headers } = await sign({ method: 'PUT', key: 'a b/c+d', query: { uploadId: '1' }, body });
  expect(url).toBe('http://minio:9000/bucket/a%20b/c%2Bd?uploadId=1');
  expect(headers.get('x-amz-content-sha256')).toBe(createHash('sha256').update(body).digest('hex'));
  expect(headers.get('authorization')).toMatch(/^AWS4-HMAC-SHA256 .*SignedHeaders=[^,]*x-amz-content-sha256/);
  expect((await sign({ method: 'GET', key: '' })).url).toBe('http://minio:9000/bucket');
});

it('an object without a tag does not get the tag of the next', () => {
  const row = (key: string, tag: string) =>
    `<Contents><Key>${key}</Key><LastModified>2026-01-02T03:04:05Z</LastModified>${tag}<Size>7</Size></Contents>`;
  const rest = '<IsTruncated>true</IsTruncated><NextContinuationToken>n&amp;m</NextContinuationToken>';
  const { objects, next } = parseListPage(row('a', '') + row('b', '<ETag>&quot;e&quot;</ETag>') + rest);
  expect(objects.map(({ key, etag, size }) => [key, etag, size])).toEqual([
    ['a', '', 7],
    ['b', '"e"', 7],
  ]);
  expect(next).toBe('n&m');
});
