/** An object that demonstrates its host's guarantees: see test/e2e/standalone/object-contract.test.ts. */
import { GatewayObject, type ObjectHandlers } from '../../../gateway/platform/gateway-object.ts';
import type { ObjectContext, ObjectNamespace, ObjectSocket } from '../../../gateway/platform/object-context.ts';
import { errorText } from '../../../shared/text/error-text.ts';

type Answer = number | string | boolean | null | (number | string)[];

/** Names with a failed first construction. */
const failedOnce = new Set<string>();

export class ContractObject extends GatewayObject implements ObjectHandlers {
  readonly #list = ['kept'];
  readonly #instance = crypto.randomUUID();

  constructor(ctx: ObjectContext, env: GatewayObject['env']) {
    super(ctx, env);
    if (ctx.name.startsWith('fails-once') && !failedOnce.has(ctx.name)) {
      failedOnce.add(ctx.name);
      throw new Error('not this time');
    }
    ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS rows (n INTEGER PRIMARY KEY, text TEXT)');
  }

  #siblings(): ObjectNamespace<ContractObject> {
    return this.env.TUNNEL as unknown as ObjectNamespace<ContractObject>;
  }

  instance(): string {
    return this.#instance;
  }

  write(...numbers: number[]): number {
    for (const n of numbers) this.ctx.storage.sql.exec('INSERT INTO rows (n) VALUES (?)', n);
    return numbers.length;
  }

  rows(): number[] {
    return this.ctx.storage.sql
      .exec<{ n: number }>('SELECT n FROM rows ORDER BY n')
      .toArray()
      .map(({ n }) => n);
  }

  /** Writes, and then never ends its turn. */
  spin(n: number): void {
    this.write(n);
    for (;;) {}
  }

  fail(): void {
    throw new Error('as asked');
  }

  /** The caller's list must not change, and the caller must not change this object's list. */
  change(list: string[]): string[] {
    list.push('changed by the one that was called');
    return this.#list;
  }

  async copies(other: string): Promise<Answer> {
    const given = ['given'];
    const sibling = this.#siblings().getByName(other);
    const got = await sibling.change(given);
    got.push('changed by the caller');
    return [...given, ...(await sibling.change([]))];
  }

  keys(): Answer {
    const { kv } = this.ctx.storage;
    kv.put('b/2', { nested: [1, new Uint8Array([2])] });
    kv.put('b/1', 'one');
    kv.put('c', 0);
    const deleted = [kv.delete('c'), kv.delete('c')];
    const value = kv.get<{ nested: [number, Uint8Array] }>('b/2');
    const listed = [...kv.list({ prefix: 'b/' })].map(([key]) => key);
    return [...listed, String(value?.nested[1][0]), String(kv.get('c')), ...deleted.map(String)];
  }

  values(): Answer {
    const { sql } = this.ctx.storage;
    const blob = new Uint8Array([0, 255]).buffer;
    const row = sql
      .exec<{ a: ArrayBuffer; b: number; c: null }>('SELECT ? AS a, ? AS b, ? AS c', blob, 0.5, null)
      .one();
    return [String(row.a instanceof ArrayBuffer && row.a.byteLength), row.b, String(row.c)];
  }

  async setAlarm(ms: number, failures = 0): Promise<void> {
    this.ctx.storage.kv.put('failures', failures);
    await this.ctx.storage.setAlarm(Date.now() + ms);
  }

  async alarm(): Promise<void> {
    const { kv, storage } = { kv: this.ctx.storage.kv, storage: this.ctx.storage };
    const failures = kv.get<number>('failures') ?? 0;
    kv.put('rang', (kv.get<number>('rang') ?? 0) + 1);
    kv.put('rang-at', Date.now());
    kv.put('armed-while-ringing', (await storage.getAlarm()) !== null);
    if (failures === 0) return;
    kv.put('failures', failures - 1);
    throw new Error('the alarm fails as asked');
  }

  async alarms(): Promise<Answer> {
    const { kv } = this.ctx.storage;
    const armed = await this.ctx.storage.getAlarm();
    return [
      kv.get<number>('rang') ?? 0,
      kv.get<number>('rang-at') ?? 0,
      String(kv.get('armed-while-ringing')),
      armed ?? 0,
    ];
  }

  async deleteAll(): Promise<Answer> {
    await this.ctx.storage.setAlarm(Date.now() + 60_000);
    this.ctx.storage.kv.put('key', 1);
    await this.ctx.storage.deleteAll();
    const { sql } = this.ctx.storage;
    const tables = sql.exec<{ name: string }>("SELECT name FROM sqlite_master WHERE name = 'rows'").toArray();
    return [tables.length, String(this.ctx.storage.kv.get('key')), String(await this.ctx.storage.getAlarm())];
  }

  fetch(): Response {
    return this.ctx.sockets.accept().response;
  }

  /** Writes a row and sends a confirmation in the same turn. */
  webSocketMessage(socket: ObjectSocket, message: string | Uint8Array): void {
    const text = typeof message === 'string' ? message : new TextDecoder().decode(message);
    this.ctx.storage.sql.exec('INSERT INTO rows (n) VALUES (?)', Number(text));
    socket.send(`stored ${text}`);
  }
}

/** `POST /call` with `{name, method, args}`, and `GET /socket?name=N`: the same for all hosts. */
export async function contractDoor(request: Request, objects: ObjectNamespace<ContractObject>): Promise<Response> {
  const url = new URL(request.url);
  if (url.pathname === '/socket') return objects.getByName(url.searchParams.get('name') ?? '').fetch(request);
  const { name, method, args } = (await request.json()) as { name: string; method: string; args: unknown[] };
  const stub = objects.getByName(name) as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
  try {
    return Response.json({ result: (await stub[method]?.(...args)) ?? null });
  } catch (error) {
    return Response.json({ error: errorText(error) });
  }
}
