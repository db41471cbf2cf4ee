/** A database belongs to one data directory, and one process uses it. */
import { cpSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { KEY_PREFIX, newSecret } from '../../../gateway/accounts/secrets.ts';
import { DatabaseBinding } from '../../../gateway/hosts/node/postgresql/database-binding.ts';
import { migratePostgres } from '../../../gateway/hosts/node/postgresql/migrate-postgres.ts';
import { PostgresPool } from '../../../gateway/hosts/node/postgresql/postgres-pool.ts';
import { readAllMigrations } from '../../../gateway/hosts/node/serve/program-files.ts';
import { NO_POSTGRES } from '../../support/abilities.ts';
import { Gateway } from '../../support/gateway.ts';
import { PostgresServer } from '../../support/postgres.ts';
import { endAll, eventually, freePort, Managed, temporaryDirectory } from '../../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

let server: PostgresServer;
let pool: PostgresPool;

describe.skipIf(NO_POSTGRES !== undefined)(`a database of accounts${NO_POSTGRES ? ` (${NO_POSTGRES})` : ''}`, () => {
  beforeAll(async () => {
    server = await PostgresServer.start(`${await temporaryDirectory()}-postgres`);
    pool = new PostgresPool({ url: await server.database('binding'), name: 'test' });
    await migratePostgres(pool, (await readAllMigrations()).postgresMigrations);
  });

  afterAll(async () => {
    await pool.close();
    await endAll();
    await server.stop('SIGQUIT');
    await server.remove();
  });

  beforeEach(() => pool.query('DELETE FROM gateway_installation'));

  /** @param during what happens while the start waits for the silence of a former holder. */
  const bindingOf = (data: string, during: () => Promise<unknown> = async () => {}) => {
    const lost = vi.fn<(place: string) => void>();
    return { binding: new DatabaseBinding({ connection: pool, data, pause: during, onLost: lost }), lost };
  };

  test('the directory that used it first keeps it, also after a kill', async () => {
    const [data, other] = [await temporaryDirectory(), await temporaryDirectory()];
    await bindingOf(data).binding.take();
    await bindingOf(data).binding.take();
    await expect(bindingOf(other).binding.take()).rejects.toThrow(/belongs to the data directory .*otela-test/);
  });

  test('a directory of another database is refused, and so is one with its own accounts', async () => {
    const [data, own] = [await temporaryDirectory(), await temporaryDirectory()];
    await bindingOf(data).binding.take();
    await pool.query("UPDATE gateway_installation SET id = 'another'");
    await expect(bindingOf(data).binding.take()).rejects.toThrow(/belongs to the data directory/);
    await pool.query('DELETE FROM gateway_installation');
    await expect(bindingOf(data).binding.take()).rejects.toThrow(/belongs to another database/);
    writeFileSync(join(own, 'accounts.sqlite'), '');
    await expect(bindingOf(own).binding.take()).rejects.toThrow(/has its accounts in a file/);
    writeFileSync(join(data, 'database.json'), '{"installation": 7}');
    await expect(bindingOf(data).binding.take()).rejects.toThrow(/database\.json is damaged/);
  });

  test('a start that was interrupted before it wrote the directory’s file is continued', async () => {
    const data = await temporaryDirectory();
    await bindingOf(data).binding.take();
    rmSync(join(data, 'database.json'));
    await bindingOf(data).binding.take();
  });

  test('a copy of the directory takes the database only after its holder was silent or has left', async () => {
    const [data, copy] = [await temporaryDirectory(), await temporaryDirectory()];
    const first = bindingOf(data);
    await first.binding.take();
    cpSync(join(data, 'database.json'), join(copy, 'database.json'));
    const beats = () => pool.query('UPDATE gateway_installation SET beat = beat + 1');
    await expect(bindingOf(copy, beats).binding.take()).rejects.toThrow(/is used by the gateway/);
    expect(first.lost).not.toHaveBeenCalled();
    const second = bindingOf(copy);
    await second.binding.take();
    await vi.waitFor(() => expect(first.lost).toHaveBeenCalledTimes(1), 10_000);
    await second.binding.release();
    const waits = vi.fn<() => Promise<void>>(async () => {});
    await bindingOf(data, waits).binding.take();
    expect(waits).not.toHaveBeenCalled();
  });

  test('a second gateway is refused with the reason; without PostgreSQL, known keys continue', async () => {
    const url = await server.database('gateway');
    const gateway = await Gateway.start({ args: ['--database', url] });
    const key = await gateway.createKey('k');
    const other = await temporaryDirectory();
    const args = ['serve', '--data', other, '--port', String(await freePort()), '--database', url];
    const second = new Managed([NODE, GATEWAY_MAIN, ...args]);
    expect((await second.end(60_000)).code).not.toBe(0);
    expect(second.output).toContain(`belongs to the data directory`);
    expect(second.output).not.toContain('    at ');
    const status = async (secret: string) =>
      (await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${secret}` } })).status;
    expect([await status(key), await status(newSecret(KEY_PREFIX).plaintext)]).toEqual([200, 401]);
    await server.stop('SIGQUIT');
    expect([await status(key), await status(newSecret(KEY_PREFIX).plaintext)]).toEqual([200, 503]);
    expect(await adminStatus(gateway, 'POST')).toBe(503);
    expect((await fetch(`${gateway.url}/readyz`)).status).toBe(503);
    await server.run();
    await eventually('a change', 10_000, async () => ((await adminStatus(gateway, 'POST')) === 201 ? true : undefined));
    // A gateway with the same directory, but without the database, would have no accounts.
    await gateway.stop();
    const without = new Managed([NODE, GATEWAY_MAIN, 'serve', '--data', gateway.data, '--port', '0']);
    expect((await without.end(60_000)).code).not.toBe(0);
    expect(without.output).toContain('Give its URL with --database');
    const backup = new Managed([
      NODE,
      GATEWAY_MAIN,
      'backup',
      '--data',
      gateway.data,
      '--out',
      join(other, 'b.tar.gz'),
    ]);
    expect((await backup.end(60_000)).code).not.toBe(0);
    expect(backup.output).toContain('docs/postgresql.md');
    const doctor = new Managed([NODE, GATEWAY_MAIN, 'doctor', '--data', gateway.data, '--database', url, '--json']);
    await doctor.exited;
    expect(doctor.output).toMatch(/PostgreSQL \d+.*\d{4}_\w+\.sql/);
  });
});

async function adminStatus(gateway: Gateway, method: string): Promise<number> {
  const headers = { authorization: `Bearer ${gateway.adminKey}`, 'content-type': 'application/json' };
  const body = JSON.stringify({ name: 'k', role: 'consumer' });
  return (await fetch(`${gateway.url}/admin/keys`, { method, headers, body })).status;
}
