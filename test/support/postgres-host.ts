/**
 * `otela-gateway serve` with its accounts in a PostgreSQL server that it starts in DATA-postgres, as a host of the
 * tests: see host.ts.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { YOUNG_GENERATION_FLAG } from '../../gateway/hosts/node/serve/young-generation.ts';
import { PostgresServer } from './postgres.ts';
import { GATEWAY_MAIN, NODE } from './where.ts';

const args = process.argv.slice(2);
const data = args[args.indexOf('--data') + 1];
if (data === undefined) throw new Error('--data is missing');

let stopping: NodeJS.Signals | undefined;
let stop = (signal: NodeJS.Signals) => {
  stopping = signal;
};
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => stop(signal));

const server = await PostgresServer.start(`${data}-postgres`);
const url = await server.database('otela');
const gateway = spawn(NODE, [YOUNG_GENERATION_FLAG, GATEWAY_MAIN, ...args, '--database', url], { stdio: 'inherit' });
stop = (signal) => gateway.kill(signal);
if (stopping !== undefined) stop(stopping);
const [code] = await once(gateway, 'exit');
await server.stop();
process.exit(code ?? 1);
