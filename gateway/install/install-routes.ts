/** `/install` and below: the installer of the agent, and the files of the release that it downloads. */
import { type Context, Hono } from 'hono';
import { ApiError } from '../../shared/openai/api-errors.ts';
import {
  MANIFEST_FILE,
  PLATFORMS,
  type Platform,
  SIGNATURE_FILE,
  singleFileName,
} from '../../shared/release/release-manifest.ts';
import type { Env } from '../env.ts';
import { basePathOf } from '../http/base-path.ts';
import { isolateSnapshot } from '../registry/isolate-snapshot.ts';
import { type InstallableFile, installScript, ORIGIN } from './install-script.ts';

/** The public key of a signed release, in PEM. `otela-agent update` accepts only releases that it signed. */
export const RELEASE_KEY_FILE = 'release.pub';
/** Names below `/install/`. */
export const INSTALL_FILES: readonly string[] = [
  ...PLATFORMS.map(singleFileName),
  MANIFEST_FILE,
  SIGNATURE_FILE,
  RELEASE_KEY_FILE,
];

/** Files of a release that agents install. */
export interface ReleaseFiles {
  /** Undefined if the release does not have the file. */
  describe(name: string): Promise<InstallableFile | undefined>;
  /** @throws Error if the file cannot be read */
  open(name: string): ReadableStream<Uint8Array>;
}

/**
 * Maximum downloads at the same time. Each holds about 100 KB, and needs no key, so a client could otherwise use all
 * file descriptors.
 */
const DOWNLOADS_MAX = 64;
/** A download ends after this time, so that slow clients do not keep the places of others: 120 MB at 1 Mbit/s. */
const DOWNLOAD_MS = 20 * 60_000;
let downloads = 0;

type InstallContext = Context<{ Bindings: Env }>;

export const installRoutes = new Hono<{ Bindings: Env }>();

installRoutes.get('/install', async (c) => {
  const release = releaseOf(c);
  const agents = new Map<Platform, InstallableFile>();
  for (const platform of PLATFORMS) {
    const file = await release.describe(singleFileName(platform));
    if (file !== undefined) agents.set(platform, file);
  }
  if (agents.size === 0) throw noRelease();
  const proofs = [MANIFEST_FILE, SIGNATURE_FILE, RELEASE_KEY_FILE];
  const signed = (await Promise.all(proofs.map((name) => release.describe(name)))).every((file) => file !== undefined);
  const script = installScript({ gateway: await gatewayUrl(c), agents, proofs: signed ? proofs : [] });
  return c.body(script, 200, { 'content-type': 'text/x-shellscript; charset=utf-8', 'cache-control': 'no-store' });
});

installRoutes.get('/install/:name', async (c) => {
  const name = c.req.param('name');
  const release = releaseOf(c);
  const file = INSTALL_FILES.includes(name) ? await release.describe(name) : undefined;
  if (file === undefined) throw new ApiError('not_found', 'The release of this gateway has no such file.');
  const headers = {
    'content-type': 'application/octet-stream',
    'content-length': String(file.bytes),
    'cache-control': 'no-cache',
    'x-content-type-options': 'nosniff',
  };
  if (c.req.method === 'HEAD') return c.body(null, 200, headers);
  if (downloads >= DOWNLOADS_MAX)
    throw new ApiError('server_is_overloaded', 'Too many downloads are running; try again shortly.');
  return c.body(counted(release.open(name)), 200, headers);
});

function counted(file: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
  downloads++;
  const late = AbortSignal.timeout(DOWNLOAD_MS);
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  // The rejection says that the client disconnected, or that the time is over.
  const ended = () => {
    downloads--;
  };
  file.pipeTo(writable, { signal: late }).then(ended, ended);
  return readable;
}

function releaseOf({ env }: InstallContext): ReleaseFiles {
  if (env.RELEASE === undefined) throw noRelease();
  return env.RELEASE;
}

function noRelease(): ApiError {
  const message = 'This gateway has no release to install from. Its operator starts it with --release DIRECTORY.';
  return new ApiError('not_found', message);
}

/** The gateway's public URL if its operator set one, otherwise the URL of the request. A proxy that ends TLS says so. */
async function gatewayUrl({ env, req, executionCtx }: InstallContext): Promise<string> {
  const { settings } = await isolateSnapshot.get(env, executionCtx, Date.now(), () => true);
  const url = new URL(req.url);
  if (req.header('x-forwarded-proto') === 'https') url.protocol = 'https:';
  const origin = settings.publicUrl?.replace(/\/$/, '') ?? url.origin + basePathOf(req.raw);
  if (ORIGIN.test(origin)) return origin;
  throw new ApiError('invalid_request', 'The host name of this request cannot be written into a script.');
}
