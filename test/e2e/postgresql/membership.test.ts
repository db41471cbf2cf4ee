/** Which of several processes own the objects, decided by rows in PostgreSQL. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Membership } from '../../../gateway/hosts/node/cluster/membership.ts';
import { migratePostgres } from '../../../gateway/hosts/node/postgresql/migrate-postgres.ts';
import { PostgresPool } from '../../../gateway/hosts/node/postgresql/postgres-pool.ts';
import { readAllMigrations } from '../../../gateway/hosts/node/serve/program-files.ts';
import { NO_POSTGRES } from '../../support/abilities.ts';
import { PostgresServer } from '../../support/postgres.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';

const SLOTS = 256;
/** More rounds than two processes need for equal shares. */
const ROUNDS_MAX = 30;

describe.skipIf(NO_POSTGRES !== undefined)(`membership${NO_POSTGRES ? ` (${NO_POSTGRES})` : ''}`, () => {
  let server: PostgresServer;
  const pools: PostgresPool[] = [];
  const members: Membership[] = [];
  /** Numbers of the processes that cannot write to their disks. */
  const full = new Set<number>();

  beforeAll(async () => {
    server = await PostgresServer.start(`${await temporaryDirectory()}-postgres`);
    const url = await server.database('members');
    for (const process of [0, 1]) {
      const connection = new PostgresPool({ url, name: 'test', most: 1 });
      pools.push(connection);
      if (process === 0) await migratePostgres(connection, (await readAllMigrations()).postgresMigrations);
      const me = { incarnation: `i${process}`, process, address: `127.0.0.1:${process}`, url: undefined, version: '0' };
      const events = { onProcesses() {}, onAlarms() {}, onLost() {}, async release() {}, log() {} };
      members.push(new Membership({ connection, me, events, stores: () => !full.has(process) }));
    }
    for (const member of members) await member.join();
  });

  afterAll(async () => {
    for (const member of members) await member.close();
    for (const pool of pools) await pool.close();
    await server.stop('SIGQUIT');
    await server.remove();
    await endAll();
  });

  /** A whole round of each process, in this order. The first call may share a round that had begun. */
  const round = async (...order: number[]) => {
    for (const n of order) {
      await members[n]?.now();
      await members[n]?.now();
    }
    return members.map(({ owned }) => owned);
  };

  test('two processes get equal shares', async () => {
    let owned = await round(0, 1);
    for (let n = 0; n < ROUNDS_MAX && owned[1] !== SLOTS / 2; n++) owned = await round(0, 1);
    expect(owned).toEqual([SLOTS / 2, SLOTS / 2]);
  });

  test('a process with a full disk gives all to the other one in one round', async () => {
    full.add(0);
    expect(await round(0, 1)).toEqual([0, SLOTS]);
    expect(await round(0, 1)).toEqual([0, SLOTS]);
  });

  test('if all disks are full, the processes share the objects', async () => {
    full.add(1);
    const [first = 0, second = 0] = await round(1, 0);
    expect(first).toBeGreaterThan(0);
    expect(first + second).toBe(SLOTS);
  });

  test('the first process that can write again owns all', async () => {
    full.delete(0);
    expect(await round(0, 1, 0)).toEqual([SLOTS, 0]);
  });

  test('a proof of an end moves all slots, although the process sent a heartbeat since it was read', async () => {
    full.add(0);
    full.delete(1);
    // The first process reads that the second one can write, and then gives all back.
    expect(await round(1, 0, 1)).toEqual([0, SLOTS]);
    full.delete(0);
    await round(1);
    await members[0]?.prove('i1');
    expect(members[0]?.owned).toBe(SLOTS);
  });
});
