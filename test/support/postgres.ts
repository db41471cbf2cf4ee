/**
 * A PostgreSQL server in a directory, for tests: it listens only on a Unix socket there, and every local user may
 * connect. PostgreSQL refuses to run as root, so root starts it as `nobody`.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, mkdirSync, realpathSync, rmSync } from 'node:fs';
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

/** Default port, which is part of the name of the Unix socket. */
const PORT = 5432;

/** Fewer resources than the defaults, and no fsync: a test's machine does not lose power. */
const SETTINGS = ['fsync=off', 'shared_buffers=16MB', 'max_connections=80', 'autovacuum=off', 'listen_addresses='];

export class PostgresServer {
  readonly #directory: string;
  readonly #settings: readonly string[];
  #process: ChildProcess | undefined;

  private constructor(directory: string) {
    this.#directory = directory;
    this.#settings = [...SETTINGS, `unix_socket_directories=${directory}`];
  }

  /** Path of the Unix socket at which it listens. */
  get socket(): string {
    return join(this.#directory, `.s.PGSQL.${PORT}`);
  }

  /** Starts a copy of this server in `directory` that receives every change. */
  async startReplica(directory: string): Promise<PostgresServer> {
    // By default the primary spreads the checkpoint that begins a copy over minutes.
    const fast = ['--checkpoint=fast', '--no-sync'];
    const args = ['-D', directory, '-h', this.#directory, '-U', USER, '--write-recovery-conf', ...fast];
    const { uid } = runAs();
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    if (uid !== undefined) chownSync(directory, uid, uid);
    const made = spawnSync(programBeside('pg_basebackup'), args, { encoding: 'utf8', ...runAs() });
    if (made.status !== 0) throw new Error(`pg_basebackup failed: ${made.stderr}`);
    const replica = new PostgresServer(directory);
    // The copy has the lock of the other server's socket, which keeps a server from starting.
    rmSync(`${replica.socket}.lock`, { force: true });
    await replica.run();
    return replica;
  }

  /** Waits for each commit until a replica has it. The setting is not copied to replicas that exist already. */
  async requireReplica(): Promise<void> {
    await this.#ask("ALTER SYSTEM SET synchronous_standby_names = '*'");
    await this.#ask('SELECT pg_reload_conf()');
  }

  /** Makes a replica a primary. */
  async promote(): Promise<void> {
    await this.#ask('SELECT pg_promote()');
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
      const made = spawnSync(programBeside('initdb'), args, { encoding: 'utf8', ...runAs() });
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
    const settings = this.#settings.flatMap((one) => ['-c', one]);
    const until = Date.now() + patience(STARTED_MS);
    while ((await this.#ask('SELECT 1').catch(() => undefined)) === undefined) {
      if (Date.now() > until) throw new Error('PostgreSQL does not answer');
      if (this.#process === undefined || this.#process.exitCode !== null || this.#process.signalCode !== null)
        this.#process = spawn(POSTGRES ?? '', ['-D', this.#directory, ...settings], { stdio: 'ignore', ...runAs() });
      await delay(POLL_MS);
    }
  }

  get pid(): number {
    return this.#process?.pid ?? -1;
  }

  /** URL of a database, which is created if it does not exist. */
  async database(name: string): Promise<string> {
    const known = await this.#ask(`SELECT 1 FROM pg_database WHERE datname = '${name}'`);
    if (known.rowCount === 0) await this.#ask(`CREATE DATABASE ${name}`);
    return this.url(name);
  }

  /** Writes a backup of a database, as an operator does while gateways run. */
  dump(name: string, file: string): void {
    this.#run('pg_dump', '--format', 'custom', '--file', file, name);
  }

  /** Replaces a database by a backup. */
  restore(name: string, file: string): void {
    this.#run('pg_restore', '--clean', '--if-exists', '--exit-on-error', '--dbname', name, file);
  }

  #run(program: string, ...args: string[]): void {
    const where = ['--host', this.#directory, '--username', USER];
    const { status, stderr } = spawnSync(programBeside(program), [...where, ...args], { encoding: 'utf8' });
    if (status !== 0) throw new Error(`${program} failed: ${stderr}`);
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

/** Debian has the other programs of the server only in its own directory. */
function programBeside(name: string): string {
  return join(dirname(realpathSync(POSTGRES ?? '')), name);
}

function runAs(): { uid?: number; gid?: number } {
  return process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};
}
