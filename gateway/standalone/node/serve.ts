/** `otela-gateway serve`: the Worker on plain workerd, behind a socket of our own, with everything in one directory. */
import { readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSecureContext } from 'node:tls';
import { isOn } from '../../../shared/release/release.ts';
import { listenError } from '../../../shared/terminal/listen-error.ts';
import { NodeGateway, type NodeGatewayOptions } from '../../hosts/node/node-gateway.ts';
import { storageHealth } from '../../storage/health.ts';
import { workerdConfig } from '../config.ts';
import { checkReady } from './check.ts';
import { CommandError } from './command.ts';
import { refuseDamaged } from './damage.ts';
import { type DataDirectory, openDataDirectory, type Runtime } from './data-directory.ts';
import { nameDisk } from './disk-error.ts';
import { Inlet } from './inlet.ts';
import { environment, openIssuer } from './issuer-files.ts';
import { Outlets } from './outlet.ts';
import { PublicSocket, type TlsMaterial } from './public-socket.ts';
import { StorageProbe } from './storage-probe.ts';
import { storageTeller } from './tell-storage.ts';
import { loadWorkerBundle, type WorkerBundle } from './worker-bundle.ts';
import { Workerd } from './workerd.ts';

export interface ServeOptions {
  port: number;
  host: string;
  data: string;
  /** Default: workerd. */
  runtime?: Runtime;
  /** PEM files; both or none. */
  tls?: { cert: string; key: string };
}

interface RunningGateway {
  /** As it is printed, with the port that was really taken. */
  url: string;
  /** Reads the TLS files again; rejects and keeps the old ones when they are no pair. Absent without TLS. */
  reloadTls?: () => Promise<void>;
  /** Lets running answers finish for `drainMs` at most, then ends everything. Idempotent. */
  stop(drainMs: number): Promise<void>;
}

/** Settings of the Worker that its environment may carry; see gateway/env.ts. */
const WORKER_SETTINGS = [
  'BODY_BUDGET_BYTES',
  'BODY_LIMIT_BYTES',
  'BODY_STALL_MS',
  'BODY_UPLOADS_BYTES',
  'REGISTRY_ACCESS',
  'DEFAULT_TRUST',
  'OIDC_CLIENT_SECRETS',
  'USAGE_KEPT_DAYS',
  'REQUIRE_SIGNED_AGENT',
  'RELEASE_KEYS',
  'OLDEST_AGENT',
  'OTELA_METRICS_TOKEN',
  'REQUEST_LOG',
];
/** `sun_path` has 108 bytes, one of them for the end. */
const SOCKET_PATH_MAX_BYTES = 107;

/** Resolves when the gateway answers through its public socket. Whatever fails, nothing is left running. */
export async function serve(options: ServeOptions, log: (line: string) => void): Promise<RunningGateway> {
  if (options.runtime === 'node') return serveNode(options, log).catch((error) => nameDisk(options.data, error));
  const bundle = await loadWorkerBundle();
  // What workerd and SQLite create, sockets included, is for this user alone.
  process.umask(0o077);
  const tls = options.tls === undefined ? undefined : await readTls(options.tls);
  const known = bundle.migrations.map(({ name }) => name);
  const data = await openDataDirectory(options.data, known);
  const path = socketPath(data, 'workerd');
  const outlets = new Outlets();
  const outlet = { path: socketPath(data, 'outlet'), secret: outlets.secret };
  const inlet = isOn(process.env.OTELA_INLET ?? 'on') ? new Inlet({ path, outlets }) : undefined;
  const publicSocket = new PublicSocket({ path, tls, inlet, outlets });
  const { signedAgents, ...configured } = await configure(bundle, data, path, outlet);
  const workerd = new Workerd({ ...configured, log });
  const teller = storageTeller(path, outlet.secret);
  const probe = new StorageProbe({ directory: data.path, tell: teller.tell });
  const stop = once(async (drainMs: number) => {
    probe.close();
    teller.close();
    await publicSocket.close(drainMs);
    inlet?.close();
    await workerd.stop();
    await outlets.close();
    await rm(path, { force: true });
    data.release();
  });
  try {
    // Before workerd, so that a taken port is told at once; who comes early is answered 503.
    const port = await publicSocket.listen(options.port, options.host).catch((cause: unknown) => {
      throw new CommandError(listenError(cause, options).message, { cause });
    });
    await outlets.listen(outlet.path);
    await workerd.start();
    await inlet?.connect();
    void probe.start();
    const url = `${tls === undefined ? 'http' : 'https'}://${bracketed(options.host)}:${port}`;
    await checkReady(url, data.adminKey);
    if (!signedAgents) log('agents need no signed release here: whoever has a join token may run any program as one');
    const files = options.tls;
    if (files === undefined) return { url, stop };
    return { url, stop, reloadTls: async () => publicSocket.reload(await readTls(files)) };
  } catch (error) {
    await stop(0);
    if (!(error instanceof CommandError)) refuseDamaged(data.path);
    throw error;
  }
}

/** Writes workerd's configuration; what it needs to be told comes back. */
async function configure(
  bundle: WorkerBundle,
  data: DataDirectory,
  path: string,
  outlet: { path: string; secret: string },
) {
  const given: NodeJS.ProcessEnv = { ...releaseSettings(bundle), ...process.env };
  const settings = WORKER_SETTINGS.filter((name) => given[name] !== undefined);
  const issuer = environment(await openIssuer(data.issuer, Math.floor(Date.now() / 1000)));
  const config = join(data.run, 'workerd.capnp');
  const text = workerdConfig({
    ...bundle,
    address: `unix:${path}`,
    outlet: `unix:${outlet.path}`,
    objectsDir: data.objects,
    d1Dir: data.d1,
    fromEnvironment: ['ADMIN_KEY_SHA256', 'OUTLET_SECRET', ...Object.keys(issuer), ...settings],
  });
  await writeFile(config, text);
  const env = { ...given, ...issuer, ADMIN_KEY_SHA256: data.adminKeyHash, OUTLET_SECRET: outlet.secret };
  const signedAgents = isOn(given.REQUIRE_SIGNED_AGENT);
  return { config, socket: path, pidFile: join(data.run, 'workerd.pid'), env, signedAgents };
}

/** A gateway of a release asks agents for one, unless its environment says otherwise; in a clone there is none to ask for. */
function releaseSettings({ releaseKeys }: WorkerBundle): NodeJS.ProcessEnv {
  return releaseKeys === undefined ? {} : { REQUIRE_SIGNED_AGENT: 'on', RELEASE_KEYS: releaseKeys.join(',') };
}

/** The whole gateway in this process. */
async function serveNode(options: ServeOptions, log: (line: string) => void): Promise<RunningGateway> {
  const bundle = await loadWorkerBundle();
  process.umask(0o077);
  const tls = options.tls === undefined ? undefined : await readTls(options.tls);
  const known = bundle.migrations.map(({ name }) => name);
  const data = await openDataDirectory(options.data, known, 'node');
  // What throws outside every object and request is told; the others go on.
  process.on('uncaughtException', (error) => log(`not caught: ${error.stack ?? error.message}`));
  const given: NodeJS.ProcessEnv = { ...releaseSettings(bundle), ...process.env };
  const issuer = environment(await openIssuer(data.issuer, Math.floor(Date.now() / 1000)));
  const settings = Object.fromEntries(
    WORKER_SETTINGS.filter((name) => given[name] !== undefined).map((name) => [name, given[name]]),
  );
  const probe = new StorageProbe({
    directory: data.path,
    tell: async (failure) => storageHealth.tell(failure, Date.now()),
  });
  // Before anything is opened: what a full disk allows depends on how files are opened.
  await probe.start();
  const gateway = await opened(data, {
    objects: data.objects,
    files: join(data.path, 'files'),
    accounts: data.accounts,
    assets: bundle.assetsDir,
    migrations: bundle.migrations,
    settings: { ...settings, ...issuer, ADMIN_KEY_SHA256: data.adminKeyHash },
    tls,
    log,
  });
  const stop = once(async (drainMs: number) => {
    probe.close();
    await gateway.close(drainMs);
    data.release();
  });
  try {
    const port = await gateway.listen(options.port, options.host).catch((cause: unknown) => {
      throw new CommandError(listenError(cause, options).message, { cause });
    });
    const url = `${tls === undefined ? 'http' : 'https'}://${bracketed(options.host)}:${port}`;
    await checkReady(url, data.adminKey);
    if (!isOn(given.REQUIRE_SIGNED_AGENT))
      log('agents need no signed release here: whoever has a join token may run any program as one');
    const files = options.tls;
    if (files === undefined) return { url, stop };
    return { url, stop, reloadTls: async () => gateway.reload(await readTls(files)) };
  } catch (error) {
    await stop(0);
    if (!(error instanceof CommandError)) refuseDamaged(data.path);
    throw error;
  }
}

/** A database that cannot be used is named. */
async function opened(data: DataDirectory, options: NodeGatewayOptions): Promise<NodeGateway> {
  try {
    return await NodeGateway.open(options);
  } catch (error) {
    data.release();
    refuseDamaged(data.path);
    throw error;
  }
}

/** In the data directory; where its path is too long for a socket, in the temporary one, under a name that only we know. */
function socketPath(data: DataDirectory, name: 'workerd' | 'outlet'): string {
  const path = join(data.run, `${name}.sock`);
  if (Buffer.byteLength(path) <= SOCKET_PATH_MAX_BYTES) return path;
  return join(tmpdir(), `otela-${data.adminKeyHash.slice(0, 24)}-${name}.sock`);
}

/** @throws CommandError where they do not fit together: before a first start has made anything */
async function readTls(files: { cert: string; key: string }): Promise<TlsMaterial> {
  const [cert, key] = await Promise.all([readFile(files.cert), readFile(files.key)]);
  try {
    createSecureContext({ cert, key });
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new CommandError(`${files.cert} and ${files.key} are no certificate and its key: ${reason}`, { cause });
  }
  return { cert, key };
}

function bracketed(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}

function once<A>(run: (argument: A) => Promise<void>): (argument: A) => Promise<void> {
  let ran: Promise<void> | undefined;
  return (argument) => {
    ran ??= run(argument);
    return ran;
  };
}
