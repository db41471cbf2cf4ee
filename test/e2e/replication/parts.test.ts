/** Rules of replication, without processes: shares of limits, signatures, changes in order, epochs. */
import { EventEmitter } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { migrateDatabase } from '../../../gateway/hosts/node/d1.ts';
import { AccountsReplica } from '../../../gateway/hosts/node/replication/accounts-replica.ts';
import { ChangeFeed } from '../../../gateway/hosts/node/replication/change-feed.ts';
import { readEpoch, signEpoch } from '../../../gateway/hosts/node/replication/epoch-statement.ts';
import { epochAnswerSchema } from '../../../gateway/hosts/node/replication/messages.ts';
import { PrimaryServer } from '../../../gateway/hosts/node/replication/primary-server.ts';
import { shareOfLimit, shareReservation } from '../../../gateway/hosts/node/replication/quota-shares.ts';
import { REPLICATED_TABLES } from '../../../gateway/hosts/node/replication/replicated-tables.ts';
import { resolveRole } from '../../../gateway/hosts/node/replication/resolve-role.ts';
import { readRole, writeRole } from '../../../gateway/hosts/node/replication/role-file.ts';
import { SignedGatewayClient } from '../../../gateway/hosts/node/replication/signed-gateway-client.ts';
import {
  type GatewayIdentity,
  SIGNED_HEADER,
  signRequest,
  verifyRequest,
} from '../../../gateway/hosts/node/replication/signed-request.ts';
import { readMigrations } from '../../../gateway/hosts/node/serve/program-files.ts';
import { Database } from '../../../gateway/hosts/node/sqlite.ts';
import { workerdSigner } from '../../../gateway/issuer/ed25519.ts';
import { certifyKey, GatewayIssuer } from '../../../gateway/issuer/issuer.ts';
import { nowS } from '../../../gateway/platform/unix-time.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { atEnd, endAll, temporaryDirectory } from '../../support/processes.ts';
import { ROOT } from '../../support/where.ts';

afterEach(endAll);

const NOW_S = 1_800_000_000;
const seed = (n: number) => toBase64url(new Uint8Array(32).fill(n));

function identity(root: number, key: number, revoked: string[] = []): GatewayIdentity {
  const own = certifyKey(seed(root), seed(key), NOW_S);
  return { key: own, certificate: new GatewayIssuer(own).certificate, revoked: new Set(revoked) };
}

describe('parts of a limit', () => {
  it('never add up to more than the limit, whichever followers are away', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 1_000_000 }),
        fc.integer({ min: 1, max: 8 }),
        fc.nat(8),
        (limit, followers, n) => {
          const away = Math.min(n, followers);
          const first = shareOfLimit(limit, { of: 'first', followersAway: away, followers });
          const each = shareOfLimit(limit, { of: 'follower', followers });
          expect(first + away * each).toBe(limit);
          expect(Math.min(first, each)).toBeGreaterThanOrEqual(0);
        },
      ),
    );
  });
});

describe('a part of all that holds for a request', () => {
  it('is of the person, the model and the GPU time, too; months have on top what others booked', () => {
    const user = {
      requests_per_minute: 10,
      gpu_seconds_per_month: 100,
      models: { big: { tokens_per_month: 1_000 }, other: { requests_per_minute: 1 } },
    };
    const forecast = { bodyBytes: 1, maxTokens: undefined, counts: 'prompt' } as const;
    const request = { ...forecast, name: 'r', keyId: 'k', key: undefined, project: undefined };
    const booked: Record<string, number> = { 'gpu\nuser:ada': 7_900, 'user:ada\nbig': 50 };
    const asked = { ...request, user, userId: 'ada', model: 'big' };
    const part = shareReservation(asked, { of: 'follower', followers: 1 }, (id) => booked[id] ?? 0);
    expect(part.nothing).toBe(false);
    expect(part.asked.user).toEqual({
      requests_per_minute: 5,
      gpu_seconds_per_month: 57,
      models: { big: { tokens_per_month: 550 } },
    });
    // A disconnected follower allows no request of a limit of one request per minute.
    expect(shareReservation({ ...asked, model: 'other' }, { of: 'follower', followers: 1 }).nothing).toBe(true);
  });
});

describe('a signed message', () => {
  const about = 'POST /gateway/follow';
  const body = Buffer.from('{}');

  it('is good at another gateway of the same root, and nowhere else', () => {
    const { header, nonce } = signRequest(identity(1, 2), { about, body }, NOW_S);
    expect(verifyRequest(identity(1, 3), header, { about, body }, NOW_S + 600)).toMatchObject({ nonce });
    expect(() => verifyRequest(identity(9, 3), header, { about, body }, NOW_S)).toThrow(/another institution/);
    expect(() => verifyRequest(identity(1, 3), header, { about: 'POST /gateway/limits', body }, NOW_S)).toThrow(
      /signature is not valid/,
    );
    expect(() => verifyRequest(identity(1, 3), header, { about, body: Buffer.from('{ }') }, NOW_S)).toThrow(
      /signature is not valid/,
    );
    expect(() => verifyRequest(identity(1, 3), header, { about, body }, NOW_S + 7200)).toThrow(/clocks/);
    expect(() => verifyRequest(identity(1, 3), undefined, { about, body }, NOW_S)).toThrow(/missing/);
    expect(() => verifyRequest(identity(1, 3), 'a.b.c.d', { about, body }, NOW_S)).toThrow(/malformed/);
    const revoked = identity(1, 2).certificate.keyName;
    expect(() => verifyRequest(identity(1, 3, [revoked]), header, { about, body }, NOW_S)).toThrow(/revoked/);
  });

  it('is bad with any byte of it changed', () => {
    const { header } = signRequest(identity(1, 2), { about, body }, NOW_S);
    for (let at = 0; at < header.length; at += 7) {
      const changed = `${header.slice(0, at)}${header[at] === 'A' ? 'B' : 'A'}${header.slice(at + 1)}`;
      expect(() => verifyRequest(identity(1, 3), changed, { about, body }, NOW_S)).toThrow();
    }
  });
});

describe('a first that is asked', () => {
  const certified = (root: number, key: number): GatewayIdentity => {
    const own = certifyKey(seed(root), seed(key), nowS());
    return { key: own, certificate: new GatewayIssuer(own).certificate, revoked: new Set() };
  };
  const asked = new EventEmitter();
  /** Makes a primary that answers with the epoch that it learned. */
  async function first() {
    const options = {
      identity: certified(1, 2),
      role: () => ({ statement: 's' }),
      acceptStatement: () => 7,
      log: () => {},
    };
    const primary = new PrimaryServer(options as unknown as ConstructorParameters<typeof PrimaryServer>[0]);
    const server = createServer((message, response) => {
      neverRejects(primary.handle(message, response));
      asked.emit('asked');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    atEnd(() => {
      server.close();
      server.closeAllConnections();
    });
    const address = server.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }
  const asks = async (port: number, who: GatewayIdentity) => {
    const link = new SignedGatewayClient(who);
    atEnd(() => link.close());
    const { answer } = await link.ask(
      new URL(`http://127.0.0.1:${port}`),
      '/gateway/epoch',
      { statement: 's' },
      epochAnswerSchema,
      10_000,
    );
    return answer.epoch;
  };
  /**
   * Begins a body that it never ends. Resolves with the status of the response, or with undefined once the primary has
   * begun to read.
   */
  const begins = (port: number, header: string) => {
    const socket = connect(port, '127.0.0.1').on('error', () => {});
    atEnd(() => void socket.destroy());
    const status = new Promise<string | undefined>((resolve) => {
      socket.on('data', (data) => resolve(/^HTTP\/1.1 (\d+)/.exec(String(data))?.[1]));
      asked.once('asked', () => setImmediate(resolve, undefined));
    });
    socket.write(
      `POST /gateway/epoch HTTP/1.1\r\nhost: a\r\n${SIGNED_HEADER}: ${header}\r\ncontent-length: 999\r\n\r\n{`,
    );
    return status;
  };
  const about = 'POST /gateway/epoch';
  const signed = (who: GatewayIdentity) =>
    signRequest(who, { about, body: Buffer.from('{"statement":"s"}') }, nowS()).header;

  it('answers its followers, however many strangers begin bodies that they never end', async () => {
    const port = await first();
    const [stranger, follower] = [certified(9, 3), certified(1, 4)];
    const strangers = Array.from({ length: 12 }, (_, i) => (i % 2 === 0 ? signed(stranger) : 'a.1.b.c'));
    for (const header of strangers) await begins(port, header);
    expect(await asks(port, follower)).toBe(7);
  });

  it('answers a follower while another one holds all of its own places', async () => {
    const port = await first();
    const [slow, follower] = [certified(1, 3), certified(1, 4)];
    for (let i = 0; i < 8; i++) await begins(port, signed(slow));
    await expect(asks(port, slow)).rejects.toThrow('503');
    expect(await asks(port, follower)).toBe(7);
  });

  it('takes no other body than the one that was signed, and still one of an earlier version, which signs no digest', async () => {
    const port = await first();
    const header = signed(certified(1, 4));
    const said = async (header: string, body: string) => {
      const url = `http://127.0.0.1:${port}/gateway/epoch`;
      return (await fetch(url, { method: 'POST', headers: { [SIGNED_HEADER]: header }, body })).status;
    };
    expect(await said(header, '{"statement":"t"}')).toBe(403);
    const earlier = header.split('.').slice(0, 4).join('.');
    expect(await said(earlier, '{"statement":"s"}')).toBe(200);
    expect(await said(earlier, '{"statement":"t"}')).toBe(403);
  });
});

describe('the role of a data directory', () => {
  it('is the flag’s in an empty one, and stays where accounts are its own', async () => {
    const [empty, used] = [await temporaryDirectory('otela-role'), await temporaryDirectory('otela-role')];
    resolveRole(empty, 'https://gw1.example');
    expect(readRole(empty)).toEqual({ role: 'follower', epoch: 0, follow: 'https://gw1.example' });
    resolveRole(empty, 'https://gw3.example');
    expect(readRole(empty)).toMatchObject({ follow: 'https://gw3.example' });
    await writeFile(join(used, 'accounts.sqlite'), '');
    expect(() => resolveRole(used, 'https://gw1.example')).toThrow(/already contains accounts/);
    expect(readRole(used)).toEqual({ role: 'first', epoch: 0 });
  });

  it('of a promoted first is not taken back by the flag', async () => {
    const data = await temporaryDirectory('otela-role');
    writeRole(data, { role: 'first', epoch: 1, statement: 'x' });
    expect(() => resolveRole(data, 'https://gw1.example')).toThrow(/promoted/);
  });
});

describe('an epoch', () => {
  const statement = { epoch: 2, first: 'a'.repeat(52), url: 'https://gw2.example', since: 7, feed: 'f' };

  it('is believed from the root alone', () => {
    const root = workerdSigner(new Uint8Array(32).fill(1));
    const text = signEpoch(statement, root);
    expect(readEpoch(text, root.publicKey)).toEqual(statement);
    expect(readEpoch(text, workerdSigner(new Uint8Array(32).fill(2)).publicKey)).toBeUndefined();
    expect(readEpoch(`${text.slice(0, 10)}x${text.slice(11)}`, root.publicKey)).toBeUndefined();
    expect(readEpoch('', root.publicKey)).toBeUndefined();
  });
});

describe('a copy of the accounts', () => {
  async function database(name: string): Promise<Database> {
    const made = new Database(join(await temporaryDirectory('otela-copy'), `${name}.sqlite`));
    migrateDatabase(made, await readMigrations(join(ROOT, 'migrations')));
    return made;
  }
  const provider = (id: string, name = id) =>
    [
      'INSERT INTO providers (id, name, created_at) VALUES (?, ?, 0) ON CONFLICT (id) DO UPDATE SET name = excluded.name',
      [id, name] as const,
    ] as const;

  it('equals what it is of after any changes, cut into any pages', async () => {
    const [first, second] = [await database('first'), await database('second')];
    const feed = new ChangeFeed(first);
    const copy = new AccountsReplica(second);
    let seq = 0;
    let random = 12345;
    const next = (n: number) => {
      random = (random * 1103515245 + 12345) % 2147483648;
      return random % n;
    };
    for (let step = 0; step < 400; step++) {
      const id = `p${next(30)}`;
      if (next(4) === 0) first.rows('DELETE FROM providers WHERE id = ?', [id]);
      else first.rows(...provider(id, `name ${step}`));
      if (next(10) > 0) continue;
      for (let page = feed.since(seq); ; page = feed.since(seq)) {
        copy.apply(page.rows, false);
        seq = page.seq;
        if (!page.more) break;
      }
      const all = (one: Database) => one.rows('SELECT * FROM providers ORDER BY id', []);
      expect(all(second)).toEqual(all(first));
    }
    for (const one of [first, second]) one.close();
  });

  it('takes a value that only one row may have from the row that had it, whichever of the two changed last', async () => {
    const [first, second] = [await database('first'), await database('second')];
    const feed = new ChangeFeed(first);
    const copy = new AccountsReplica(second);
    let seq = 0;
    const copied = () => {
      const page = feed.since(seq);
      seq = page.seq;
      copy.apply(page.rows, false);
      const roots = 'SELECT name, root FROM peers ORDER BY name';
      expect(second.rows(roots, [])).toEqual(first.rows(roots, []));
    };
    const peer = (name: string, root: string) => {
      first.rows('DELETE FROM peers WHERE name = ?', [name]);
      first.rows('INSERT INTO peers (name, root, created_at) VALUES (?, ?, 0)', [name, root]);
    };
    peer('eth', 'R');
    copied();
    first.rows("DELETE FROM peers WHERE name = 'eth'", []);
    peer('ethz', 'R');
    peer('eth', 'R2');
    copied();
    // Each of the two peers gets the root of the other peer.
    first.rows("UPDATE peers SET root = 'R3' WHERE name = 'eth'", []);
    first.rows("UPDATE peers SET root = 'R2' WHERE name = 'ethz'", []);
    first.rows("UPDATE peers SET root = 'R' WHERE name = 'eth'", []);
    copied();
    for (const one of [first, second]) one.close();
  });

  it('of everything takes away what the first does not have, and leaves the secret that is its own', async () => {
    const [first, second] = [await database('first'), await database('second')];
    first.rows(...provider('eth'));
    second.rows(...provider('gone'));
    second.rows(
      "INSERT INTO settings (name, value, updated_at) VALUES ('installation_secret', '\"s\"', 0), ('queue', '{}', 0)",
      [],
    );
    const feed = new ChangeFeed(first);
    const copy = new AccountsReplica(second);
    copy.begin();
    copy.apply(feed.since(0).rows, true);
    copy.complete();
    expect(second.rows('SELECT id FROM providers', [])).toEqual([{ id: 'eth' }]);
    expect(second.rows('SELECT name FROM settings', [])).toEqual([{ name: 'installation_secret' }]);
    for (const one of [first, second]) one.close();
  });

  it('hears of every column but those that change with each use', async () => {
    const first = await database('first');
    const feed = new ChangeFeed(first);
    first.rows(
      "INSERT INTO api_keys (id, hash, prefix, name, role, created_at) VALUES ('key_1', 'h', 'otk', 'n', 'consumer', 0)",
      [],
    );
    const { seq } = feed.since(0);
    first.rows("UPDATE api_keys SET last_used_at = 5 WHERE id = 'key_1'", []);
    expect(feed.since(seq).rows).toEqual([]);
    first.rows("UPDATE api_keys SET revoked_at = 5 WHERE id = 'key_1'", []);
    expect(feed.since(seq).rows).toMatchObject([{ table: 'api_keys', key: 'key_1', row: { revoked_at: 5 } }]);
    expect(REPLICATED_TABLES.at(-1)?.table).toBe('audit_log');
    first.close();
  });

  it('has every table of accounts but those that each gateway keeps for itself', async () => {
    const first = await database('first');
    const query =
      "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name NOT LIKE 'follow%'";
    const tables = first.rows(query, []).map(({ name }) => String(name));
    const copied = REPLICATED_TABLES.map(({ table }) => table);
    const own = [
      'batches',
      'd1_migrations',
      'deleted_files',
      'device_logins',
      'files',
      'function_secrets',
      'idempotency',
      'sessions',
      'upload_parts',
      'uploads',
    ];
    const told = ['usage_batches', 'usage_totals'];
    expect(tables.toSorted()).toEqual([...copied, ...own, ...told].toSorted());
    first.close();
  });

  it('is watched over without a write where all is there', async () => {
    const first = await database('first');
    const { id } = new ChangeFeed(first);
    const { total } = first.counters();
    expect(new ChangeFeed(first).id).toBe(id);
    expect(first.counters().total).toBe(total);
    first.close();
  });

  it('of a newer first passes over tables and columns that it does not know', async () => {
    const second = await database('second');
    const copy = new AccountsReplica(second);
    copy.apply(
      [
        { table: 'of_tomorrow', key: 'x', row: { id: 'x' } },
        { table: 'providers', key: 'eth', row: { id: 'eth', name: 'eth', created_at: 0, of_tomorrow: 'x' } },
      ],
      false,
    );
    expect(second.rows('SELECT id FROM providers', [])).toEqual([{ id: 'eth' }]);
    second.close();
  });
});
