/** `otela-gateway serve`: starts the gateway in this process, with all data in one directory. */

import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { createSecureContext } from 'node:tls';
import manifest from '../../../../package.json' with { type: 'json' };
import { isSwitchOn } from '../../../../shared/release/release-manifest.ts';
import { PolicyFileError, readPolicyFile } from '../../../../shared/routing/policies/operator-policies.ts';
import type { Policy } from '../../../../shared/routing/routing-policy.ts';
import { listenError } from '../../../../shared/terminal/listen-error.ts';
import { errorText } from '../../../../shared/text/error-text.ts';
import { neverRejects } from '../../../../shared/timing/in-background.ts';
import { sha256Hex } from '../../../accounts/secrets.ts';
import { CommandError } from '../../../command-error.ts';
import { checkEnvironment, ENVIRONMENT_NAMES } from '../../../environment-checks.ts';
import { storageHealth } from '../../../platform/storage/storage-health.ts';
import { telemetrySink } from '../../../platform/telemetry-sink.ts';
import { nowS } from '../../../platform/unix-time.ts';
import { type AccountsStore, openAccountsFile } from '../accounts-store.ts';
import type { ClusterFlags } from '../cluster/open-cluster.ts';
import { type DataDirectory, openDataDirectory } from '../data/data-directory.ts';
import { rethrowDiskError } from '../data/disk-error.ts';
import { refuseDamaged } from '../data/refuse-damaged.ts';
import type { TlsMaterial } from '../http-server.ts';
import { openIssuer, workerSecrets } from '../issuer/issuer-files.ts';
import { NodeGateway, type NodeGatewayOptions } from '../node-gateway.ts';
import { fileStoreProblem, openFileStore } from '../open-file-store.ts';
import { refuseBound } from '../postgresql/database-binding.ts';
import { checkReady } from './check-ready.ts';
import type { DirectoryProcess } from './process-count.ts';
import { loadProgramFiles, type ProgramFiles } from './program-files.ts';
import { ReleaseDirectory } from './release-directory.ts';
import { StorageProbe } from './storage-probe.ts';

export interface ServeOptions {
  port: number;
  host: string;
  data: string;
  /** File store: a directory or `s3://BUCKET[/PREFIX]`; absent: `files` in the data directory. */
  files?: string;
  /** Paths of PEM files. */
  tls?: { cert: string; key: string };
  /** URL of this gateway; absent: the address at which it listens. */
  url?: string;
  /** TypeScript or JavaScript file with the operator's own routing policies. */
  policy?: string;
  /** URL of the PostgreSQL database with the accounts; absent: a file in the data directory. */
  database?: string;
  /** This process shares the database with other processes. */
  cluster?: ClusterFlags;
  /** This process shares its data directory with other processes. */
  member?: DirectoryProcess;
  /** Directory with a release, from which agents are installed; absent: `release` in the data directory. */
  release?: string;
  /** Path below which a proxy shows this gateway. */
  basePath?: string;
  /** How long known keys are served without PostgreSQL. Milliseconds; default: a day. */
  maxStaleMs?: number;
}

const MAX_STALE_MS = 86_400_000;
/** Exit status if another process has taken the database. */
const EXIT_LOST = 1;

interface RunningGateway {
  /** URL of the gateway with its actual port, as printed. */
  url: string;
  /** Reloads the TLS files. Rejects and keeps the old ones if certificate and key do not match. Absent without TLS. */
  reloadTls?: () => Promise<void>;
  /** Lets running responses finish for at most `drainMs`, then ends everything. Idempotent. */
  stop(drainMs: number): Promise<void>;
}

/**
 * Unless its environment says otherwise, a released gateway admits only agents of a signed release. A clone has no
 * release keys, so it cannot check releases.
 */
function releaseSettings({ releaseKeys }: ProgramFiles): NodeJS.ProcessEnv {
  return releaseKeys === undefined ? {} : { REQUIRE_SIGNED_AGENT: 'on', RELEASE_KEYS: releaseKeys.join(',') };
}

/** Maximum wait for the telemetry collector at the end: an unreachable one must not delay a restart. */
const TELEMETRY_CLOSE_MS = 2_000;

/** Starts telemetry if the environment names a collector. The SDK is loaded only then. */
async function openTelemetry(): Promise<() => Promise<void>> {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_SDK_DISABLED: disabled } = process.env;
  if (endpoint === undefined || endpoint === '' || disabled === 'true') return async () => {};
  const { Otlp } = await import('../telemetry/otlp.ts');
  const otlp = new Otlp(manifest.version);
  telemetrySink.sink = otlp;
  return async () => {
    telemetrySink.sink = undefined;
    await Promise.race([otlp.close(), new Promise((done) => setTimeout(done, TELEMETRY_CLOSE_MS).unref())]);
  };
}

/** Resolves when the gateway answers at its address. If a step fails, nothing is left running. */
export function serve(options: ServeOptions, log: (line: string) => void): Promise<RunningGateway> {
  return start(options, log).catch((error: unknown) => rethrowDiskError(options.data, error));
}

async function start(options: ServeOptions, log: (line: string) => void): Promise<RunningGateway> {
  checkEnvironment(process.env);
  const policies = options.policy === undefined ? [] : policiesOf(options.policy);
  const program = await loadProgramFiles();
  // Files that SQLite creates are accessible only to this user.
  process.umask(0o077);
  const tls = options.tls === undefined ? undefined : await readTls(options.tls);
  const known = program.migrations.map(({ name }) => name);
  const data = await openDataDirectory(options.data, known);
  // An error outside of every object and request is logged, and the gateway continues.
  process.on('uncaughtException', (error) => log(`uncaught error: ${error.stack ?? error.message}`));
  const given: NodeJS.ProcessEnv = { ...releaseSettings(program), ...process.env };
  const installation = await openInstallation(options, data, program).catch((error: unknown) => {
    data.release();
    throw error;
  });
  const settings = Object.fromEntries(
    ENVIRONMENT_NAMES.filter((name) => given[name] !== undefined).map((name) => [name, given[name]]),
  );
  const probe = new StorageProbe({
    directory: data.path,
    tell: (failure) => storageHealth.setFailure(failure, Date.now()),
  });
  // The probe starts before any file is opened: how files are opened depends on whether the disk is full.
  await probe.start();
  const files = openFileStore(options.files ?? join(data.path, 'files'), process.env);
  neverRejects(
    fileStoreProblem(files).then((problem) => {
      if (problem !== undefined) log(`files and batches are not available: ${problem}`);
    }),
  );
  const gateway = await opened(data, async () => installation.accounts ?? openAccounts(options, data, program, log), {
    objects: data.objects,
    files,
    release: new ReleaseDirectory(resolve(options.release ?? join(data.path, 'release'))),
    assets: program.assetsDir,
    settings: {
      ...settings,
      ...installation.issuer,
      ADMIN_KEY_SHA256: sha256Hex(installation.adminKey),
      ...(options.basePath !== undefined && { BASE_PATH: options.basePath }),
    },
    tls,
    policies,
    maxStaleMs: options.maxStaleMs ?? MAX_STALE_MS,
    cluster: installation.share,
    log,
  });
  const closeTelemetry = await openTelemetry();
  const stop = once(async (drainMs: number) => {
    probe.close();
    await gateway.close(drainMs);
    await closeTelemetry();
    data.release();
  });
  try {
    const port = await gateway.listen(options.port, options.host).catch((cause: unknown) => {
      throw new CommandError(listenError(cause, options).message, { cause });
    });
    const url = `${tls === undefined ? 'http' : 'https'}://${bracketed(options.host)}:${port}`;
    await checkReady(url, installation.adminKey, log);
    if (!isSwitchOn(given.REQUIRE_SIGNED_AGENT))
      log('agents need no signed release: anyone with a join token can run any program as an agent');
    const pem = options.tls;
    if (pem === undefined) return { url, stop };
    return { url, stop, reloadTls: async () => gateway.reload(await readTls(pem)) };
  } catch (error) {
    await stop(0);
    if (!(error instanceof CommandError)) refuseDamaged(data.path);
    throw error;
  }
}

/** The keys of the installation to which this process belongs. */
interface Installation {
  /** The operator's first key. */
  adminKey: string;
  /** Settings with the issuer's keys. */
  issuer: Record<string, string>;
  /** Opens the objects that this process shares with others. Undefined: it is the only process. */
  share: NodeGatewayOptions['cluster'];
  /** The accounts, if another process of this host has them. */
  accounts?: AccountsStore | undefined;
}

/** @throws CommandError, IssuerError */
async function openInstallation(
  options: ServeOptions,
  data: DataDirectory,
  program: ProgramFiles,
): Promise<Installation> {
  const { cluster: flags, database, member } = options;
  if (flags !== undefined && database !== undefined) {
    // Imported here, so that a single gateway does not load it.
    const { openCluster } = await import('../cluster/open-cluster.ts');
    const { OwnedNamespaces } = await import('../cluster/owned-namespaces.ts');
    const parts = await openCluster(database, data, flags, program.postgresMigrations);
    return { ...parts.secrets, share: (context) => new OwnedNamespaces({ ...context, parts }) };
  }
  if (member !== undefined) {
    const { openDirectoryProcess } = await import('./directory-process.ts');
    return openDirectoryProcess(member, data);
  }
  const issuer = workerSecrets(await openIssuer(data.issuer, nowS()));
  return { adminKey: data.adminKey, issuer, share: undefined };
}

/** @throws CommandError if the database cannot be used, or belongs to another data directory */
async function openAccounts(
  { database, cluster }: ServeOptions,
  data: DataDirectory,
  program: ProgramFiles,
  log: (line: string) => void,
): Promise<NodeGatewayOptions['accounts']> {
  if (database === undefined) {
    refuseBound(data.path, 'Give its URL with --database.');
    return openAccountsFile(data.accounts, program.migrations);
  }
  // Imported here, so that a gateway without PostgreSQL does not load its driver.
  const { openPostgresAccounts } = await import('../postgresql/postgres-accounts.ts');
  return openPostgresAccounts({
    url: database,
    data: data.path,
    migrations: program.postgresMigrations,
    ...(cluster === undefined && {
      onLost: (place: string) => {
        log(`the gateway with the data directory ${place} has taken the database; this process ends`);
        process.exit(EXIT_LOST);
      },
    }),
  });
}

/** @throws CommandError with the file and line of the error */
function policiesOf(file: string): Policy[] {
  try {
    return readPolicyFile(resolve(file), createRequire(import.meta.url));
  } catch (error) {
    if (error instanceof PolicyFileError) throw new CommandError(`--policy ${error.message}`, { cause: error });
    throw error;
  }
}

/** Opens the gateway. If a database cannot be used, the error names it. */
async function opened(
  data: DataDirectory,
  accounts: () => Promise<NodeGatewayOptions['accounts']>,
  options: Omit<NodeGatewayOptions, 'accounts'>,
): Promise<NodeGateway> {
  try {
    return await NodeGateway.open({ ...options, accounts: await accounts() });
  } catch (error) {
    data.release();
    refuseDamaged(data.path);
    throw error;
  }
}

/** @throws CommandError if certificate and key do not match, before a first start has created anything */
async function readTls(files: { cert: string; key: string }): Promise<TlsMaterial> {
  const [cert, key] = await Promise.all([readFile(files.cert), readFile(files.key)]);
  try {
    createSecureContext({ cert, key });
  } catch (cause) {
    const reason = errorText(cause);
    throw new CommandError(`${files.cert} and ${files.key} are not a certificate and its key: ${reason}`, { cause });
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
