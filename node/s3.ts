/** What every client of S3 needs: the account in the environment, signed requests, and pages of lists. */
import { createHash } from 'node:crypto';
import { AwsClient } from 'aws4fetch';
import { errorText } from '../shared/text/error-text.ts';
import { xmlTag } from '../shared/text/xml-tags.ts';
import { readPrivateFile } from './private-file.ts';

type Env = Readonly<Record<string, string | undefined>>;

export interface S3Account {
  /** URL with http or https, without a slash at its end. */
  endpoint: string;
  region: string;
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string;
}

const DEFAULT_REGION = 'us-east-1';

/**
 * Reads the variables and the files of AWS' own programs.
 *
 * @throws Error with the variable's name
 */
export function readS3Account(env: Env): S3Account {
  const region = env.AWS_REGION ?? env.AWS_DEFAULT_REGION ?? DEFAULT_REGION;
  const endpoint = env.AWS_ENDPOINT_URL_S3 ?? env.AWS_ENDPOINT_URL ?? `https://s3.${region}.amazonaws.com`;
  if (!/^https?:$/.test(URL.parse(endpoint)?.protocol ?? ''))
    throw new Error('AWS_ENDPOINT_URL_S3 is not an http or https URL');
  const file = env.AWS_SHARED_CREDENTIALS_FILE;
  const from = env.AWS_ACCESS_KEY_ID === undefined && file !== undefined ? readProfile(file, env.AWS_PROFILE) : env;
  const value = (name: string) => from[name] ?? from[name.toLowerCase()];
  const accessKeyId = value('AWS_ACCESS_KEY_ID');
  const secretAccessKey = value('AWS_SECRET_ACCESS_KEY');
  const sessionToken = value('AWS_SESSION_TOKEN');
  if (!accessKeyId || !secretAccessKey)
    throw new Error(
      's3://… needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SHARED_CREDENTIALS_FILE, in the environment',
    );
  const keys = { accessKeyId, secretAccessKey, ...(sessionToken ? { sessionToken } : {}) };
  return { endpoint: endpoint.replace(/\/+$/, ''), region, ...keys };
}

/** The lines of one profile. https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html */
function readProfile(file: string, profile = 'default'): Record<string, string | undefined> {
  let text: string;
  try {
    text = readPrivateFile(file);
  } catch (cause) {
    throw new Error(`AWS_SHARED_CREDENTIALS_FILE ${file}: ${errorText(cause)}`, { cause });
  }
  const found: Record<string, string> = {};
  let section = '';
  for (const line of text.split('\n')) {
    const [, name] = /^\s*\[\s*(.+?)\s*\]/.exec(line) ?? [];
    const [, key, value] = /^\s*([a-z_]+)\s*=\s*(\S+)\s*$/.exec(line) ?? [];
    if (name !== undefined) section = name;
    else if (section === profile && key !== undefined && value !== undefined) found[key] = value;
  }
  return found;
}

export interface S3Request {
  method: 'GET' | 'PUT' | 'POST' | 'DELETE' | 'HEAD';
  /** Key of the object; empty: the request is for the bucket itself. */
  key: string;
  query?: Record<string, string>;
  headers?: Record<string, string>;
  body?: Uint8Array<ArrayBuffer>;
}

export type SignS3Request = (request: S3Request) => Promise<{ url: string; headers: Headers }>;

/**
 * Returns a function that signs requests to one bucket. The bucket's name is part of the URL's path. The caller sends
 * the signed request, with its body.
 */
export function s3Signer({ endpoint, ...account }: S3Account, bucket: string): SignS3Request {
  const aws = new AwsClient({ ...account, service: 's3' });
  return ({ method, key, query = {}, headers = {}, body = new Uint8Array() }) => {
    const path = key.split('/').map(encodeURIComponent).join('/');
    const url = new URL(`${endpoint}/${bucket}${key === '' ? '' : `/${path}`}`);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    // With this digest, the store refuses a body that was modified on its way.
    const sha256 = createHash('sha256').update(body).digest('hex');
    return aws.sign(url, { method, headers: { ...headers, 'x-amz-content-sha256': sha256 } });
  };
}

export interface ListedObject {
  key: string;
  size: number;
  /** Entity tag; empty if the server omitted it. */
  etag: string;
  /** Time of the last change, as the server writes it. */
  modified: string;
}

/** `next`: the `continuation-token` of the next page. */
export function parseListPage(page: string): { objects: ListedObject[]; next: string | undefined } {
  // Each object is parsed separately, because a server may omit some tags of an object.
  const objects = page
    .split('<Contents>')
    .slice(1)
    .map((text) => ({
      key: xmlTag(text, 'Key') ?? '',
      size: Number(xmlTag(text, 'Size')),
      etag: xmlTag(text, 'ETag') ?? '',
      modified: xmlTag(text, 'LastModified') ?? '',
    }));
  return {
    objects,
    next: xmlTag(page, 'IsTruncated') === 'true' ? xmlTag(page, 'NextContinuationToken') : undefined,
  };
}
