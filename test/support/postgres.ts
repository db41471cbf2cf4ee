/**
 * A PostgreSQL server in a directory, for tests: it listens only on a Unix socket there, and every local user may
 * connect. PostgreSQL refuses to run as root, so root starts it as `nobody`.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, mkdirSync, realpathSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { NO_POSTGRES, POSTGRES } from './abilities.ts';
import { patience } from './patience.ts';

const NOBODY = 65_534;
const STARTED_MS = 30_000;
const POLL_MS = 50;
const USER = 'otela';

/** Fewer resources than the defaults, and no fsync: a test's machine does not lose power. */
const SETTINGS = ['fsync=off', 'shared_buffers=16MB', 'max_connections=40', 'autovacuum=off', 'listen_addresses='];

export class PostgresServer {
  readonly #directory: string;
  #process: ChildProcess | undefined;

  private constructor(directory: string) {
    this.#directory = directory;
  }

  /** Starts a server with its data in `directory`, which is created if it does not exist. */
  static async start(directory: string): Promise<PostgresServer> {
    if (POSTGRES === undefined) throw new Error(NO_POSTGRES);
    const server = new PostgresServer(directory);
    const { uid } = runAs();
    if (!existsSync(join(directory, 'PG_VERSION'))) {
      mkdirSync(directory, { recursive: true, mode: 0o700 });
      if (uid !== undefined) chownSync(directory, uid, uid);
      // Texts are ordered as in a dictionary, as in many installations. The gateway must not depend on it.
      const locale = ['--locale=C.UTF-8', '--encoding=UTF8', '--locale-provider=icu', '--icu-locale=en'];
      const args = ['-D', directory, '-U', USER, '-A', 'trust', '--no-sync', '--no-instructions', ...locale];
      const made = spawnSync(join(dirname(realpathSync(POSTGRES)), 'initdb'), args, { encoding: 'utf8', ...runAs() });
      if (made.status !== 0) throw new Error(`initdb failed: ${made.stdout}${made.stderr}`);
    }
    await server.run();
    return server;
  }

  /**
   * Starts it again, after it ended. It refuses to start while processes of a killed server hold the shared memory, so
   * it is tried until they have ended.
   */
  async run(): Promise<void> {
    const settings = [...SETTINGS, `unix_socket_directories=${this.#directory}`].flatMap((one) => ['-c', one]);
    const until = Date.now() + patience(STARTED_MS);
    while ((await this.#ask('SELECT 1').catch(() => undefined)) === undefined) {
      if (Date.now() > until) throw new Error('PostgreSQL does not answer');
      if (this.#process === undefined || this.#process.exitCode !== null || this.#process.signalCode !== null)
        this.#process = spawn(POSTGRES ?? '', ['-D', this.#directory, ...settings], { stdio: 'ignore', ...runAs() });
      await delay(POLL_MS);
    }
  }

  /** URL of a database, which is created if it does not exist. */
  async database(name: string): Promise<string> {
    const known = await this.#ask(`SELECT 1 FROM pg_database WHERE datname = '${name}'`);
    if (known.rowCount === 0) await this.#ask(`CREATE DATABASE ${name}`);
    return this.url(name);
  }

  url(name: string): string {
    return `postgres://${USER}@/${name}?host=${this.#directory}`;
  }

  async #ask(query: string): Promise<pg.QueryResult> {
    const client = new pg.Client({ connectionString: this.url('postgres') });
    client.on('error', () => {});
    await client.connect();
    try {
      return await client.query(query);
    } finally {
      await client.end();
    }
  }

  /** Ends it without waiting for its clients. `SIGQUIT`: without writing what a crash would lose. */
  async stop(signal: 'SIGINT' | 'SIGQUIT' = 'SIGINT'): Promise<void> {
    const ended = this.#process?.exitCode === null ? once(this.#process, 'exit') : undefined;
    this.#process?.kill(signal);
    await ended;
  }

  /** Deletes its data. */
  remove(): Promise<void> {
    return rm(this.#directory, { recursive: true, force: true });
  }
}

function runAs(): { uid?: number; gid?: number } {
  return process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};
}
