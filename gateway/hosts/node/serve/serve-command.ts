/** `otela-gateway serve`: runs a gateway until a signal ends it. */

import { join } from 'node:path';
import {
  type Command,
  EXIT_DONE,
  type Flags,
  JSON_FLAG,
  type ParsedFlags,
  parseLine,
  UsageError,
} from '../../../../shared/command-line/index.ts';
import { durationMs } from '../../../../shared/text/duration.ts';
import { errorText } from '../../../../shared/text/error-text.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import { isBasePath } from '../../../http/base-path.ts';
import type { ClusterFlags } from '../cluster/open-cluster.ts';
import { DOMAIN_FLAGS, domainOptions, withDomain } from './domain-flags.ts';
import { directoryProcess, processCount, REUSE_PORT } from './process-count.ts';
import type { ServeOptions } from './serve.ts';

const DRAIN_MS = 5_000;

/** Flags for the data directory and the address of a gateway. `doctor` uses them too. */
export const SERVE_FLAGS = {
  data: {
    default: './data',
    value: 'DIR',
    takes: 'directory',
    help: 'data directory; created at the first start',
  },
  host: { default: '127.0.0.1', value: 'ADDRESS', help: 'address to listen on; 0.0.0.0: all addresses' },
  port: { default: '8787', value: 'PORT', help: 'port to listen on; 0: a free port' },
  files: { value: 'DIR|s3://BUCKET', help: 'storage for uploaded files; default: DATA/files' },
  'tls-cert': { value: 'FILE', takes: 'file', help: 'PEM file with the certificate, followed by its chain' },
  'tls-key': { value: 'FILE', takes: 'file', help: 'PEM file with the private key of the certificate' },
  ...DOMAIN_FLAGS,
  url: { value: 'URL', help: 'URL at which agents reach this process, if several share the database' },
  release: {
    value: 'DIR',
    takes: 'directory',
    help: 'directory of a release, from which `curl -fsSL URL/install | sh` installs agents; default: DATA/release',
  },
  policy: { value: 'FILE.ts', takes: 'file', help: 'file with your own routing policies: docs/routing.md' },
  database: {
    value: 'postgres://…',
    help: 'PostgreSQL database for the accounts; default: a file in DATA. PGPASSWORD: its password',
  },
  processes: {
    default: '1',
    value: 'N|auto',
    help: 'number of processes on this host, which share the port and the data; auto: one for each core',
  },
  'cluster-key': {
    value: 'FILE',
    takes: 'file',
    help: 'key of several processes that share the database; keeps their objects there, too',
  },
  'cluster-address': {
    value: 'HOST:PORT',
    help: 'address at which this process listens for the other processes',
  },
  'base-path': {
    value: 'PATH',
    help: 'path below which a proxy shows the page and the API; default: the X-Forwarded-Prefix of each request',
  },
  'max-stale': {
    default: '24h',
    value: 'TIME',
    help: 'how long keys that a process knows are served without PostgreSQL',
  },
  ...JSON_FLAG,
} as const satisfies Flags;

export const SERVE_COMMAND: Command = {
  summary: 'run a gateway on this machine',
  examples: `[--data DIR] [--host ADDRESS] [--port PORT] [--files DIR|s3://BUCKET] [--tls-cert FILE --tls-key FILE]

  otela-gateway serve --data ./data                            for a trial: HTTP, only on this machine
  otela-gateway serve --data /var/lib/otela/data --host 0.0.0.0 --port 443 --tls-cert chain.pem --tls-key key.pem
  otela-gateway serve --data /var/lib/otela/data --domain gw.example.org    with its own certificate; ports 443 and 80
  otela-gateway serve --files s3://otela/files                 a bucket; AWS_ENDPOINT_URL_S3, AWS_REGION, AWS_ACCESS_KEY_ID …
  otela-gateway serve --data ./data --processes auto           a process for each core

Prints "otela-gateway ready URL" as soon as it accepts requests. The first start creates DATA/admin.key, the key of the first operator.
SIGTERM and SIGINT refuse requests that wait for a node, wait at most 5 s for running responses, then exit with 0; a second signal exits immediately.
A request without a response gets 503 and retry-after. SIGHUP reloads the TLS files.
Other settings are environment variables: docs/deploy.md. To check for problems first: \`otela-gateway doctor\`.`,
  flags: SERVE_FLAGS,
  run: serveCommand,
};

/** @throws UsageError if flags contradict each other */
export function serveOptions(values: ParsedFlags<Omit<typeof SERVE_FLAGS, 'json'>>): ServeOptions {
  const port = Number(values.port);
  if (!/^\d{1,5}$/.test(values.port) || port > 65_535)
    throw new UsageError(`--port ${values.port} is not a port number from 0 to 65535`);
  if (values.host === '') throw new UsageError('--host is empty');
  const [cert, key] = [values['tls-cert'], values['tls-key']];
  if ((cert === undefined) !== (key === undefined))
    throw new UsageError('--tls-cert and --tls-key must be given together');
  const tls = cert === undefined || key === undefined ? {} : { tls: { cert, key } };
  const files = values.files === undefined ? {} : { files: values.files };
  const url = values.url === undefined ? {} : { url: httpUrl('--url', values.url) };
  const database = values.database === undefined ? {} : { database: postgresUrl(values.database) };
  const cluster = clusterFlags(values);
  const release = values.release === undefined ? {} : { release: values.release };
  const policy = values.policy === undefined ? {} : { policy: values.policy };
  const basePath = values['base-path'] === undefined ? {} : { basePath: basePathFlag(values['base-path']) };
  const maxStaleMs = staleMs(values['max-stale']);
  return {
    port,
    host: values.host,
    data: values.data,
    maxStaleMs,
    ...files,
    ...tls,
    ...url,
    ...policy,
    ...release,
    ...database,
    ...cluster,
    ...basePath,
  };
}

/** @throws UsageError */
function basePathFlag(text: string): string {
  const path = text.replace(/\/$/, '');
  if (isBasePath(path)) return path;
  throw new UsageError(`--base-path ${text} is not a path such as /otela`);
}

function clusterFlags(values: ParsedFlags<Omit<typeof SERVE_FLAGS, 'json'>>): Pick<ServeOptions, 'cluster'> {
  const { 'cluster-key': keyFile, 'cluster-address': address, database, files } = values;
  if (keyFile === undefined && address === undefined) return {};
  if (values.processes !== '1' && database !== undefined && address !== undefined)
    return { cluster: clusterAddress(keyFile ?? join(values.data, 'cluster.key'), address, values.url) };
  if (keyFile === undefined || address === undefined || database === undefined || files === undefined)
    throw new UsageError(
      '--cluster-key, --cluster-address, --database and --files must be given together; ' +
        '--files: a bucket, or a directory that all processes share',
    );
  return { cluster: clusterAddress(keyFile, address, values.url) };
}

function clusterAddress(keyFile: string, address: string, url: string | undefined): ClusterFlags {
  const parsed = URL.parse(`tcp://${address}`);
  if (parsed === null || parsed.port === '' || parsed.host !== address)
    throw new UsageError(`--cluster-address ${address} is not an address such as 10.0.0.5:8788`);
  const host = parsed.hostname.replace(/^\[|\]$/g, '');
  return { keyFile, host, port: Number(parsed.port), url: url === undefined ? undefined : httpUrl('--url', url) };
}

function httpUrl(flag: string, text: string): string {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== '' || url.search !== '' || url.hash !== '')
    throw new UsageError(`${flag} ${text} is not an http or https URL`);
  return url.href.replace(/\/$/, '');
}

/** The error does not contain the URL, which may contain a password. */
export function postgresUrl(text: string, flag = '--database'): string {
  if (!/^postgres(?:ql)?:\/\/\S+$/.test(text))
    throw new UsageError(`${flag} is not a URL such as postgres://USER@HOST/NAME`);
  return text;
}

function staleMs(text: string): number {
  const ms = durationMs(text);
  if (ms === undefined) throw new UsageError(`--max-stale ${text} is not a duration such as 90m or 24h`);
  return ms;
}

/** Flags that `--processes` replaces for each process. */
const OF_EACH_PROCESS: ReadonlySet<string> = new Set([
  'processes',
  'data',
  'files',
  'json',
  'cluster-key',
  'cluster-address',
  ...Object.keys(DOMAIN_FLAGS),
]);

async function serveProcesses(
  count: number,
  values: ParsedFlags<typeof SERVE_FLAGS>,
  onReady: () => Promise<void>,
): Promise<number> {
  const { runProcesses } = await import('./run-processes.ts');
  const flags = Object.entries(values).flatMap(([name, value]) =>
    OF_EACH_PROCESS.has(name) || typeof value !== 'string' ? [] : [`--${name}`, value],
  );
  return runProcesses({
    count,
    options: serveOptions(values),
    flags,
    onReady: (url) => {
      printReady(values.json, url);
      neverRejects(onReady());
    },
    log: (line) => console.error(line),
  });
}

function printReady(json: boolean, url: string): void {
  console.log(json ? JSON.stringify({ ready: url }) : `otela-gateway ready ${url}`);
}

async function serveCommand(args: readonly string[]): Promise<number> {
  const { values: flags, given } = parseLine(args, SERVE_FLAGS);
  if (flags.domain.length === 0) return serveWith(flags, async () => {});
  const values = withDomain(flags, given);
  const domain = domainOptions(values);
  // Before the certificate is ordered, so that a wrong flag does not use up one of the authority's orders.
  serveOptions(values);
  // Imported here, so that a gateway without --domain does not load the client.
  const { AutomaticCertificate } = await import('../acme/automatic-certificate.ts');
  const certificate = await AutomaticCertificate.open({ ...domain, log: (line) => console.error(line) });
  const { file } = certificate;
  return serveWith({ ...values, 'tls-cert': file, 'tls-key': file }, async (reload) => certificate.keepRenewed(reload));
}

type Reload = () => Promise<void>;

/** @param onReady gets a function that makes the gateway read its TLS files again */
async function serveWith(
  values: ParsedFlags<typeof SERVE_FLAGS>,
  onReady: (reload: Reload) => Promise<void>,
): Promise<number> {
  const count = processCount(values.processes);
  if (count > 1) {
    // The processes read the files again when this process passes the signal on.
    const reload = async () => void process.kill(process.pid, 'SIGHUP');
    return serveProcesses(count, values, () => onReady(reload));
  }
  const member = directoryProcess(process.env);
  const options = { ...serveOptions(values), ...(member && { member }) };
  const stopped = Promise.withResolvers<number>();
  let stop = () => stopped.resolve(EXIT_DONE);
  // Signal handlers are installed first, so that an interrupted start ends like an interrupted gateway.
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop());
  if (process.env[REUSE_PORT] !== undefined) process.stdin.on('end', () => stop()).resume();
  let hangUp = () => stop();
  process.on('SIGHUP', () => hangUp());

  // Imported here, so that other commands do not load the whole gateway.
  const starting = import('./serve.ts').then(({ serve }) => serve(options, (line) => console.error(line)));
  const gateway = await Promise.race([starting, stopped.promise]);
  if (typeof gateway === 'number') return starting.then((late) => late.stop(0)).then(() => EXIT_DONE);
  const { reloadTls } = gateway;
  // Without TLS there is nothing to reload, so SIGHUP keeps its usual meaning.
  hangUp = () => {
    if (reloadTls === undefined) return stop();
    reloadTls().then(
      () => console.error('TLS files read again'),
      (error: unknown) =>
        console.error(`cannot use the new TLS files, so the old ones remain in use: ${errorText(error)}`),
    );
  };
  stop = () => {
    // The second signal ends the process immediately.
    stop = () => process.exit(EXIT_DONE);
    gateway.stop(DRAIN_MS).then(() => stopped.resolve(EXIT_DONE), stopped.reject);
  };
  printReady(values.json, values.domain.length === 0 ? gateway.url : (options.url ?? gateway.url));
  if (reloadTls !== undefined) await onReady(reloadTls);
  const code = await stopped.promise;
  // Without this, half-open handshakes would keep the process alive for seconds.
  process.exit(code);
}
