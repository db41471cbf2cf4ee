/** The gateway on this machine's loopback address, as a child process. Several runs share one. */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync, renameSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';
import { GatewayClient } from '../../node/gateway-client.ts';
import { readKeyFile, readPrivateFile, writePrivateFile } from '../../node/private-file.ts';
import { JOB_LABEL } from '../../shared/factory/factory-exchange.ts';
import { parseJson } from '../../shared/text/parse-json.ts';
import { buildPage, cacheDirectory, gatewayCommand } from '../install/program-files.ts';
import { type RunLock, takeRunLock } from '../state/run-lock.ts';
import { UpError } from '../up-error.ts';
import { isOwnListener } from './own-listener.ts';

/** The first choice; another port if a program uses it. */
const PORT = 8787;
/** A slow machine needs minutes to start a gateway. */
const STARTS_MS = 5 * 60_000;
/** How long a gateway that runs may give no answer. */
const STALLS_MS = 30_000;
const POLL_MS = 50;
/** It ends running requests first, for 5 s. */
const STOPS_MS = 15_000;
/** The last part of the log that an error shows. */
const LOG_TAIL_CHARS = 1_000;
/** The provider of this user's nodes. */
const PROVIDER = 'me';

/** Requests wait up to an hour for a model that starts. */
const KEY = { name: 'otela up', start_wait_ms: 3_600_000 };

const fileSchema = z.object({
  port: z.number().int(),
  /** Of the process that serves, or served. */
  pid: z.number().int().optional(),
  key: z.string().optional(),
});

interface GatewayNode {
  session: string;
  state: string;
  models: { id: string; state: string }[];
  labels: Record<string, string>;
}
const nodesSchema = z.object({
  data: z.array(
    z.object({
      session: z.string(),
      state: z.string(),
      models: z.array(z.object({ id: z.string(), state: z.string() })),
      labels: z.record(z.string(), z.string()),
    }),
  ),
});

const keysSchema = z.object({
  data: z.array(z.object({ id: z.string(), name: z.string(), revoked_at: z.string().nullable() })),
  has_more: z.boolean(),
});
const KEYS_PER_PAGE = 100;
/** Each `otela share` creates a key, and keys that ended stay in the list. */
const KEY_PAGES_MAX = 100;

export interface SharedKey {
  /** Name of the colleague. */
  name: string;
  /** Tokens per month; undefined: no limit. */
  tokens: number | undefined;
  endsAt: Date;
}

const sharedName = (name: string): string => `shared with ${name}`;

/** Id of the node's job, which its script gives as a label: CLUSTER/ID. */
export function jobOf({ labels }: Pick<GatewayNode, 'labels'>): string | undefined {
  return labels[JOB_LABEL]?.replace(/^.*\//, '');
}

export class LocalGateway {
  readonly #state: string;
  #port = 0;

  constructor(state: string) {
    this.#state = state;
  }

  get port(): number {
    return this.#port;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** The address of the gateway if it runs. */
  async runningUrl(): Promise<string | undefined> {
    const known = this.#read();
    if (known === undefined) return undefined;
    this.#port = known.port;
    return (await this.#answers()) ? this.url : undefined;
  }

  /** Starts the gateway unless one runs with this data. Call again if it may have ended. @throws UpError */
  async ensure(): Promise<void> {
    if ((await this.runningUrl()) !== undefined) return;
    // Two commands may start at the same time: the second waits for the gateway of the first.
    const lock = await this.#startLock();
    try {
      if ((await this.runningUrl()) === undefined) await this.#start();
    } finally {
      lock.release();
    }
  }

  /** @throws UpError */
  async #startLock(): Promise<RunLock> {
    for (const until = performance.now() + STARTS_MS; performance.now() < until; await delay(POLL_MS)) {
      const lock = await takeRunLock(join(this.#state, 'gateway.sock'), () => {});
      if (lock !== undefined) return lock;
    }
    throw new UpError(
      'Another command starts the gateway on this machine, and does not end.',
      `Its log is ${this.#logFile}.`,
    );
  }

  async #start(): Promise<void> {
    const known = this.#read();
    if (known !== undefined && (await this.#isBack(known))) return;
    this.#port = known?.port ?? (await freePort());
    await buildPage();
    const child = this.#spawn();
    this.#write({ ...known, port: this.#port, ...(child.pid === undefined ? {} : { pid: child.pid }) });
    for (const until = performance.now() + STARTS_MS; !(await this.#answers()); await delay(POLL_MS)) {
      const hasEnded = child.exitCode !== null || child.signalCode !== null;
      if (hasEnded && known !== undefined) this.#write(known);
      if (hasEnded || performance.now() > until) throw this.#failure();
    }
    // Made while the lock is held, so that two commands print the same key.
    await this.apiKey();
  }

  /**
   * Waits for a gateway that runs and does not answer, for example because the disk is slow. A second one could use
   * neither its port nor its data. @returns false if none runs @throws UpError
   */
  async #isBack({ port, pid }: z.infer<typeof fileSchema>): Promise<boolean> {
    this.#port = port;
    for (const until = performance.now() + STALLS_MS; ; await delay(POLL_MS)) {
      if (pid === undefined || !isAlive(pid) || !(await isOwnListener(port))) return false;
      if (await this.#answers()) return true;
      if (performance.now() > until)
        throw new UpError(
          `The gateway on this machine (process ${pid}) does not answer.`,
          `Its log is ${this.#logFile}. If it stays so, end the process; otela starts the gateway again.`,
        );
    }
  }

  #spawn(): ChildProcess {
    const [file = '', ...args] = gatewayCommand();
    // Each start begins a log and keeps the one before it, so that logs of earlier months do not fill the disk.
    if (existsSync(this.#logFile)) renameSync(this.#logFile, `${this.#logFile}.1`);
    const log = openSync(this.#logFile, 'a', 0o600);
    try {
      const serve = [
        'serve',
        '--host',
        '127.0.0.1',
        '--port',
        String(this.#port),
        '--data',
        join(this.#state, 'gateway'),
      ];
      const child = spawn(file, [...args, ...serve], {
        stdio: ['ignore', log, log],
        // This machine's own agents have no release, and their tokens never leave the user's accounts.
        env: {
          ...process.env,
          REQUIRE_SIGNED_AGENT: 'off',
          // Without it, each start compiles the whole program again.
          NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE ?? join(cacheDirectory(), 'compiled'),
        },
        // Other runs may use the gateway after this process has ended. The last one ends it.
        detached: true,
      });
      child.unref();
      return child;
    } finally {
      closeSync(log);
    }
  }

  get #logFile(): string {
    return join(this.#state, 'gateway.log');
  }

  #failure(): UpError {
    const tail = readFileSync(this.#logFile, 'utf8').slice(-LOG_TAIL_CHARS).trim();
    return new UpError(`The gateway on this machine did not start: ${tail}`, `Its log is ${this.#logFile}.`);
  }

  /** True if the gateway with this data answers. Another program at the port does not know its key, and must not get it. */
  async #answers(): Promise<boolean> {
    try {
      if (!(await isOwnListener(this.#port))) return false;
      await this.#client().get('/admin/me');
      return true;
    } catch {
      return false;
    }
  }

  #client(): GatewayClient {
    return new GatewayClient({ url: this.url, key: () => readKeyFile(join(this.#state, 'gateway/admin.key')) });
  }

  /** The user's API key; created at the first start. */
  async apiKey(): Promise<string> {
    const known = this.#read();
    if (known?.key !== undefined) return known.key;
    const { key } = z.object({ key: z.string() }).parse(await this.#client().post('/admin/keys', KEY));
    this.#write({ ...known, port: this.#port, key });
    return key;
  }

  /** The file of a factory token, with which `--cold` asks for the demand; made at the first call. */
  async factoryTokenFile(): Promise<string> {
    const file = join(this.#state, 'factory.token');
    if (existsSync(file)) return file;
    const created = await this.#client().post('/admin/factory-tokens', { provider: PROVIDER, name: 'otela up' });
    writePrivateFile(file, `${z.object({ token: z.string() }).parse(created).token}\n`);
    return file;
  }

  /** Creates a key for a colleague. */
  async createSharedKey({ name, tokens, endsAt }: SharedKey): Promise<string> {
    const limits = tokens === undefined ? {} : { limits: { tokens_per_month: tokens } };
    const body = { ...KEY, name: sharedName(name), expires_at: endsAt.toISOString(), ...limits };
    return z.object({ key: z.string() }).parse(await this.#client().post('/admin/keys', body)).key;
  }

  /** Ends the keys of a colleague. Resolves with their number. */
  async revokeSharedKeys(name: string): Promise<number> {
    const found = await this.#liveKeys(sharedName(name));
    for (const id of found) await this.#client().delete(`/admin/keys/${id}`);
    return found.length;
  }

  /** Ids of the keys of this name that are not revoked. */
  async #liveKeys(name: string): Promise<string[]> {
    const found: string[] = [];
    let after = '';
    for (let page = 0; page < KEY_PAGES_MAX; page += 1) {
      const path = `/admin/keys?limit=${KEYS_PER_PAGE}${after}`;
      const { data, has_more: hasMore } = keysSchema.parse(await this.#client().get(path));
      for (const key of data) if (key.name === name && key.revoked_at === null) found.push(key.id);
      const last = data.at(-1);
      if (!hasMore || last === undefined) break;
      after = `&after=${last.id}`;
    }
    return found;
  }

  async createJoinToken(cluster: string): Promise<{ id: string; token: string }> {
    const body = { provider: PROVIDER, cluster, name: 'otela up' };
    return z.object({ id: z.string(), token: z.string() }).parse(await this.#client().post('/admin/join-tokens', body));
  }

  async revokeJoinToken(id: string): Promise<void> {
    await this.#client().delete(`/admin/join-tokens/${id}`);
  }

  /** @param cluster as in `createJoinToken` */
  async nodes(cluster: string): Promise<GatewayNode[]> {
    return nodesSchema.parse(await this.#client().get(`/v1/registry/nodes?cluster=${cluster}`)).data;
  }

  /** Lets a node finish its running requests and then end. */
  async drainNode(session: string): Promise<void> {
    await this.#client().post(`/admin/nodes/${session}/drain`, {});
  }

  /** Ends the gateway, also if another process started it. */
  async stop(): Promise<void> {
    const known = this.#read();
    if (known?.pid === undefined) return;
    this.#port = known.port;
    // Only the gateway with this data knows its key, so the number is that of its process.
    if (await this.#answers()) terminate(known.pid);
    // It writes until its process ends. A number that another program has now only costs this time.
    for (const until = performance.now() + STOPS_MS; isAlive(known.pid) && performance.now() < until; )
      await delay(POLL_MS);
  }

  #read(): z.infer<typeof fileSchema> | undefined {
    try {
      return fileSchema.parse(parseJson(readPrivateFile(join(this.#state, 'gateway.json'))));
    } catch {
      return undefined; // the first start
    }
  }

  #write(content: z.infer<typeof fileSchema>): void {
    writePrivateFile(join(this.#state, 'gateway.json'), `${JSON.stringify(content)}\n`);
  }
}

function terminate(pid: number): void {
  try {
    process.kill(pid, 'SIGTERM');
  } catch {
    // It has ended meanwhile.
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** The usual port if it is free, otherwise any free port. It is kept, so that addresses in programs stay valid. */
async function freePort(): Promise<number> {
  for (const wanted of [PORT, 0]) {
    const server = createServer();
    const port = await new Promise<number | undefined>((resolve) => {
      server.once('error', () => resolve(undefined));
      server.listen(wanted, '127.0.0.1', () => {
        const address = server.address();
        resolve(typeof address === 'object' ? address?.port : undefined);
      });
    });
    server.close();
    if (port !== undefined) return port;
  }
  throw new UpError('No port of this machine is free.', 'End a program that listens at 127.0.0.1.');
}
