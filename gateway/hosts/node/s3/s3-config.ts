/**
 * Reads a bucket's address and credentials: `--files s3://BUCKET[/PREFIX]`, and the environment variables of AWS' own
 * programs.
 */
import { readPrivateFile } from '../../../../node/private-file.ts';
import { UsageError } from '../../../../shared/command-line/index.ts';
import { errorText } from '../../../../shared/text/error-text.ts';
import { CommandError } from '../../../command-error.ts';

export interface S3Config {
  /** URL with http or https, without a path. */
  endpoint: string;
  region: string;
  bucket: string;
  /** Prefix of each object's name: empty, or ends with a slash. */
  prefix: string;
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string;
}

const ADDRESS = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9_.-]+)*)\/?$/;
const DEFAULT_REGION = 'us-east-1';

export function isS3(files: string): boolean {
  return files.startsWith('s3:');
}

/**
 * @throws UsageError if the address is malformed, CommandError if credentials are missing or readable by other users
 */
export function readS3Config(address: string, env: NodeJS.ProcessEnv): S3Config {
  const [, bucket, path = ''] = ADDRESS.exec(address) ?? [];
  if (bucket === undefined) throw new UsageError(`--files ${address} is not s3://BUCKET or s3://BUCKET/PREFIX`);
  const region = env.AWS_REGION ?? env.AWS_DEFAULT_REGION ?? DEFAULT_REGION;
  const endpoint = env.AWS_ENDPOINT_URL_S3 ?? env.AWS_ENDPOINT_URL ?? `https://s3.${region}.amazonaws.com`;
  if (!URL.canParse(endpoint) || !/^https?:$/.test(new URL(endpoint).protocol))
    throw new CommandError('AWS_ENDPOINT_URL_S3 is not an http or https URL');
  return {
    endpoint: new URL(endpoint).origin,
    region,
    bucket,
    prefix: path === '' ? '' : `${path.slice(1)}/`,
    ...credentials(env),
  };
}

type Credentials = Pick<S3Config, 'accessKeyId' | 'secretAccessKey' | 'sessionToken'>;

function credentials(env: NodeJS.ProcessEnv): Credentials {
  const file = env.AWS_SHARED_CREDENTIALS_FILE;
  const from = env.AWS_ACCESS_KEY_ID === undefined && file !== undefined ? ofFile(file, env.AWS_PROFILE) : env;
  const name = (key: string) => from[key] ?? from[key.toLowerCase()];
  const [accessKeyId, secretAccessKey, sessionToken] = [
    name('AWS_ACCESS_KEY_ID'),
    name('AWS_SECRET_ACCESS_KEY'),
    name('AWS_SESSION_TOKEN'),
  ];
  if (accessKeyId === undefined || secretAccessKey === undefined)
    throw new CommandError(
      '--files s3://… needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SHARED_CREDENTIALS_FILE, in the environment',
    );
  return { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) };
}

/** Reads the lines of one profile. https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html */
function ofFile(file: string, profile = 'default'): Record<string, string | undefined> {
  let text: string;
  try {
    text = readPrivateFile(file);
  } catch (cause) {
    throw new CommandError(`AWS_SHARED_CREDENTIALS_FILE ${file}: ${errorText(cause)}`, { cause });
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
