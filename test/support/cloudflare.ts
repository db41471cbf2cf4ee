/**
 * A mock of the part of Cloudflare's API that wrangler uses for a deployment: one account, its D1 databases (in SQLite,
 * so that migrations really run), and Workers with their secrets. `fail` makes the next matching request fail, as in an
 * outage.
 */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { DatabaseSync } from 'node:sqlite';
import { z } from 'zod';
import { errorText } from '../../shared/text/error-text.ts';

interface StandInWorker {
  /** Values of the secrets, by name. Cloudflare never returns them. */
  secrets: Map<string, string>;
  vars: Record<string, string>;
  databases: string[];
  migrationTag: string | undefined;
  deployments: number;
}

export class Cloudflare {
  readonly workers = new Map<string, StandInWorker>();
  readonly databases = new Map<string, { name: string; sqlite: DatabaseSync }>();
  /** Jurisdiction of each bucket, by name. */
  readonly buckets = new Map<string, string>();
  /** All requests as `METHOD path`, in order. */
  readonly asked: string[] = [];
  #failing: { pattern: RegExp; after: number } | undefined;
  readonly #server = createServer((request, response) => {
    this.#answer(request, response).catch((error: unknown) => send(response, 500, undefined, 10_000, String(error)));
  });

  static async open(): Promise<Cloudflare> {
    const cloudflare = new Cloudflare();
    await new Promise<void>((resolve) => cloudflare.#server.listen(0, '127.0.0.1', resolve));
    return cloudflare;
  }

  close(): void {
    this.#server.close().closeAllConnections();
    for (const { sqlite } of this.databases.values()) sqlite.close();
  }

  get url(): string {
    const address = this.#server.address();
    return `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
  }

  /** Environment with which wrangler uses this mock. */
  get env(): Record<string, string> {
    return {
      CLOUDFLARE_API_BASE_URL: this.url,
      CLOUDFLARE_API_TOKEN: 'stand-in-token',
      CLOUDFLARE_ACCOUNT_ID: ACCOUNT,
      WRANGLER_SEND_METRICS: 'false',
    };
  }

  /** Skips `after` requests with a matching `METHOD path` and answers the next one with 400, once. */
  fail(pattern: RegExp, after = 0): void {
    this.#failing = { pattern, after };
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname: path, searchParams: query } = new URL(request.url ?? '', this.url);
    const asked = `${request.method} ${path}`;
    this.asked.push(asked);
    const body = await bodyOf(request);
    if (this.#failing?.pattern.test(asked) && this.#failing.after-- === 0) {
      this.#failing = undefined;
      return send(response, 400, undefined, 10_001, 'An outage of the stand-in.');
    }
    // The deployed Worker itself.
    if (path === '/readyz') return send(response, this.workers.size > 0 ? 200 : 503, { status: 'ok' });
    const parts = path.replace(`/accounts/${ACCOUNT}/`, '').split('/');
    const answer =
      this.#d1(request.method ?? '', parts, body, query) ??
      this.#r2(request, parts, body) ??
      (await this.#script(request, parts, body));
    if (answer === undefined) return send(response, 404, undefined, 7_000, `The stand-in knows no ${asked}.`);
    send(response, answer.status ?? 200, answer.result, answer.code, answer.message, answer.info);
  }

  #d1(method: string, [room, kind, id, verb]: string[], body: Buffer, query: URLSearchParams): Answer | undefined {
    if (room !== 'd1' || kind !== 'database') return undefined;
    const shown = ([uuid, { name }]: [string, { name: string }]) => ({ uuid, name, version: 'production' });
    if (id === undefined && method === 'GET') {
      const page = Number(query.get('page') ?? 1);
      const all = page === 1 ? [...this.databases].map(shown) : [];
      return { result: all, info: { count: all.length, page, per_page: 10, total_count: this.databases.size } };
    }
    if (id === undefined && method === 'POST') {
      const { name } = z.looseObject({ name: z.string() }).parse(JSON.parse(body.toString()));
      if ([...this.databases.values()].some((one) => one.name === name))
        return { status: 400, code: 7_502, message: `database "${name}" already exists` };
      const made: [string, { name: string; sqlite: DatabaseSync }] = [
        randomUUID(),
        { name, sqlite: new DatabaseSync(':memory:') },
      ];
      this.databases.set(...made);
      return { result: shown(made) };
    }
    const database = this.databases.get(id ?? '');
    if (database === undefined) return { status: 404, code: 7_404, message: 'no such database' };
    if (verb === undefined) return { result: { ...shown([id ?? '', database]), num_tables: 0, file_size: 0 } };
    if (verb === 'query' && method === 'POST') return run(database.sqlite, body);
    return undefined;
  }

  #r2({ method, headers }: IncomingMessage, [room, kind]: string[], body: Buffer): Answer | undefined {
    if (room !== 'r2' || kind !== 'buckets') return undefined;
    const jurisdiction = String(headers['cf-r2-jurisdiction'] ?? 'default');
    if (method === 'GET') {
      const mine = [...this.buckets].filter(([, of]) => of === jurisdiction);
      return { result: { buckets: mine.map(([name]) => ({ name, creation_date: '2026-01-01T00:00:00Z' })) } };
    }
    const { name } = z.looseObject({ name: z.string() }).parse(JSON.parse(body.toString()));
    this.buckets.set(name, jurisdiction);
    return { result: {} };
  }

  async #script(request: IncomingMessage, parts: string[], body: Buffer): Promise<Answer | undefined> {
    const [room, kind, name = '', verb] = parts;
    if (room !== 'workers') return undefined;
    const worker = this.workers.get(name);
    const method = request.method ?? '';
    const unknown = { status: 404, code: 10_007, message: 'This Worker does not exist on your account.' };
    if (kind === 'subdomain') return { result: { subdomain: 'stand-in' } };
    if (kind === 'services')
      return worker === undefined ? { ...unknown, code: 10_090 } : { result: serviceOf(name, worker) };
    const enabled = { enabled: true, previews_enabled: false };
    if (kind === 'workers')
      return worker === undefined ? unknown : { result: { id: name, name, tags: [], subdomain: enabled } };
    if (kind !== 'scripts') return undefined;
    if (verb === 'secrets' && method === 'GET') {
      if (worker === undefined) return unknown;
      return { result: [...worker.secrets.keys()].map((one) => ({ name: one, type: 'secret_text' })) };
    }
    if (verb === 'deployments') {
      if (worker === undefined) return unknown;
      return method === 'POST' ? { result: { id: randomUUID() } } : { result: { deployments: [] } };
    }
    if (verb === 'versions' && method === 'POST')
      return this.#upload(name, body, request.headers['content-type'] ?? '');
    if (verb === 'assets-upload-session') return { result: { jwt: 'all-are-here', buckets: [] } };
    if (verb === 'subdomain') return { result: enabled };
    if (verb === 'settings' || verb === 'script-settings')
      return { result: { bindings: [], tags: [], logpush: false } };
    if (verb === undefined && method === 'PUT') return this.#upload(name, body, request.headers['content-type'] ?? '');
    return undefined;
  }

  async #upload(name: string, body: Buffer, type: string): Promise<Answer> {
    const form = await new Response(new Uint8Array(body), { headers: { 'content-type': type } }).formData();
    const metadata = metadataSchema.parse(JSON.parse(String(form.get('metadata'))));
    const before = this.workers.get(name);
    const of = (kind: string) => metadata.bindings.filter((one) => one.type === kind);
    const keeps = metadata.keep_bindings?.includes('secret_text') === true;
    const secrets = new Map(keeps ? before?.secrets : []);
    for (const { name: secret, text } of of('secret_text')) secrets.set(secret, text ?? '');
    this.workers.set(name, {
      secrets,
      vars: Object.fromEntries(of('plain_text').map((one) => [one.name, one.text ?? ''])),
      databases: of('d1').map((one) => one.id ?? ''),
      migrationTag: metadata.migrations?.new_tag ?? before?.migrationTag,
      deployments: (before?.deployments ?? 0) + 1,
    });
    return {
      result: {
        id: randomUUID(),
        etag: 'x',
        deployment_id: randomUUID(),
        metadata: {},
        resources: { script: { etag: 'x' } },
        startup_time_ms: 1,
        entry_point: 'index.js',
      },
    };
  }
}

const metadataSchema = z.looseObject({
  bindings: z.array(
    z.looseObject({ name: z.string(), type: z.string(), text: z.string().optional(), id: z.string().optional() }),
  ),
  keep_bindings: z.array(z.string()).optional(),
  migrations: z.looseObject({ new_tag: z.string() }).optional(),
});

function serviceOf(name: string, { migrationTag }: StandInWorker) {
  const script = { id: name, migration_tag: migrationTag, last_deployed_from: 'wrangler' };
  return { id: name, default_environment: { environment: 'production', script } };
}

interface Answer {
  status?: number;
  result?: unknown;
  code?: number;
  message?: string;
  /** Only in answers that are one page of a list. */
  info?: unknown;
}

/** Like D1: executes one statement after the other, all or none, and returns the rows of each. */
function run(sqlite: DatabaseSync, body: Buffer): Answer {
  const { sql, params = [] } = z
    .object({ sql: z.string(), params: z.array(z.union([z.string(), z.number(), z.null()])).optional() })
    .parse(JSON.parse(body.toString()));
  try {
    sqlite.exec('BEGIN');
    const results = /^\s*(select|pragma)/i.test(sql) ? sqlite.prepare(sql).all(...params) : [];
    if (results.length === 0) sqlite.exec(sql);
    sqlite.exec('COMMIT');
    return { result: [{ results, success: true, meta: { duration: 1, changes: 0, rows_read: 0, rows_written: 0 } }] };
  } catch (error) {
    sqlite.exec('ROLLBACK');
    return { status: 400, code: 7_500, message: errorText(error) };
  }
}

const ACCOUNT = '0123456789abcdef0123456789abcdef';

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece);
  return Buffer.concat(pieces);
}

function send(response: ServerResponse, status: number, result: unknown, code = 0, message = '', info?: unknown): void {
  const errors = code === 0 ? [] : [{ code, message }];
  response.writeHead(status, { 'content-type': 'application/json' });
  const pages = info === undefined ? {} : { result_info: info };
  response.end(JSON.stringify({ success: code === 0, errors, messages: [], result: result ?? null, ...pages }));
}
