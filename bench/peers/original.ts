/**
 * OpenTela's first implementation, in Go: a head to which clients connect and a worker next to the engine, started as
 * its documentation says. Its program is neither fetched nor built here: `OTELA_GO` gives its path.
 */
import { accessSync, constants } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { eventually, freePort, Managed, temporaryDirectory } from '../../test/support/processes.ts';
import { PATH, request } from '../bench-cluster.ts';
import type { Target } from '../client.ts';
import { versionOf } from '../programs.ts';
import type { Peer } from './peer.ts';

const HOW =
  'OTELA_GO is to name the program of github.com/opentela-ai/OpenTela: Go 1.26, `go build -o otela ./entry` in its src/';
/** A worker waits 10 s for a relay before it is listed. */
const LISTED_MS = 60_000;
const SERVICE = 'llm';

const bootstrapsSchema = z.object({ bootstraps: z.array(z.string()).min(1) });
const tableSchema = z.record(z.string(), z.object({ service: z.array(z.object({ name: z.string() })).nullable() }));

export interface Original {
  target: Target;
  head: Managed;
  worker: Managed;
}

function program(): string {
  const path = process.env.OTELA_GO;
  if (path === undefined || path === '') throw new Error(HOW);
  try {
    accessSync(path, constants.X_OK);
  } catch (error) {
    throw new Error(`OTELA_GO=${path} cannot be run. ${HOW}`, { cause: error });
  }
  return path;
}

async function start(
  label: string,
  flags: (ports: { tcp: number; udp: number }) => string[],
  more: Record<string, string> = {},
) {
  const home = await temporaryDirectory(`otela-peer-${label}`);
  await mkdir(join(home, 'config'));
  const [port, tcp, udp] = [await freePort(), await freePort(), await freePort()];
  // A build from source is unsigned, and a head removes unsigned workers.
  const env = {
    HOME: home,
    OF_PORT: String(port),
    OF_SECURITY_REQUIRE_SIGNED_BINARY: 'false',
    OF_LOGLEVEL: 'warn',
    ...more,
  };
  const places = ['--config-dir', join(home, 'config'), '--tcpport', String(tcp), '--udpport', String(udp)];
  const process = new Managed([program(), 'start', ...places, ...flags({ tcp, udp })], { label, env, cwd: home });
  return { process, url: `http://127.0.0.1:${port}` };
}

async function told(url: string, process: Managed): Promise<unknown> {
  if (!process.running) throw process.failure('ended');
  const response = await fetch(url, { signal: AbortSignal.timeout(2_000) });
  return response.json();
}

/**
 * Head and worker before the engine at `engine`; `endAll` ends both. `env`: of the head. @throws Error that says how to
 * get the program
 */
export async function startOriginal(engine: string, env: Record<string, string> = {}): Promise<Original> {
  const flags = ['--mode', 'standalone', '--role', 'head', '--public-addr', '127.0.0.1'];
  const head = await start('original-head', () => flags, env);
  const bootstrap = await eventually('the head of the original', LISTED_MS, async () => {
    const { bootstraps } = bootstrapsSchema.parse(await told(`${head.url}/v1/dnt/bootstraps`, head.process));
    return bootstraps[0];
  });
  const service = ['--service.name', SERVICE, '--service.port', new URL(engine).port];
  const worker = await start('original-worker', () => ['--bootstrap.addr', bootstrap, ...service]);
  await eventually('the worker of the original', LISTED_MS, async () => {
    if (!worker.process.running) throw worker.process.failure('ended');
    const table = tableSchema.parse(await told(`${head.url}/v1/dnt/table`, head.process));
    return Object.values(table).some((node) => node.service?.some(({ name }) => name === SERVICE)) || undefined;
  });
  const target = { url: `${head.url}/v1/service/${SERVICE}` };
  await eventually('an answer through the original', LISTED_MS, async () => {
    const { body } = asked(target);
    const response = await fetch(`${target.url}${PATH}`, {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/json' },
    });
    await response.arrayBuffer();
    return response.status === 200 || undefined;
  });
  return { target, head: head.process, worker: worker.process };
}

function asked(target: Target): { body: string } {
  const text = request(target, 'unary').toString();
  return { body: text.slice(text.indexOf('\r\n\r\n') + 4) };
}

export const original: Peer = {
  name: 'OpenTela in Go',
  does: { keys: false, usage: false, tunnel: true },
  install: () => Promise.resolve().then(() => versionOf([program(), 'version'], /version (\S+)/, HOW)),
  start: (engine) => startOriginal(engine).then(({ target }) => target),
};
