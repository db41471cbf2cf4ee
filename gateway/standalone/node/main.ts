#!/usr/bin/env node
/** `otela-gateway`. */
import { parseArgs } from 'node:util';
import { IssuerError } from '../../issuer/issuer.ts';
import { ClientError, CONNECTION_USAGE, UsageError } from './client.ts';
import { DataDirectoryError } from './data-directory.ts';
import { ISSUER_USAGE, issuerCommand } from './issuer-command.ts';
import { NODES_USAGE, nodesCommand } from './nodes-command.ts';
import { PEERS_USAGE, peersCommand } from './peers-command.ts';
import { serve } from './serve.ts';
import { SETTINGS_USAGE, settingsCommand } from './settings-command.ts';
import { THINGS, THINGS_USAGE, thingCommand } from './things.ts';
import { auditCommand, traceCommand, USAGE_USAGE, usageCommand } from './usage-command.ts';

const DRAIN_MS = 5_000;
const [DONE, FAILED, WRONG_USE] = [0, 1, 2];

const USAGE = `otela-gateway serve [--port 8787] [--host 127.0.0.1] [--data ./data] [--tls-cert FILE --tls-key FILE]
${THINGS_USAGE}
${USAGE_USAGE}
${SETTINGS_USAGE}
${NODES_USAGE}
${PEERS_USAGE}
${CONNECTION_USAGE}
${ISSUER_USAGE}`;

async function serveCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      port: { type: 'string', default: '8787' },
      host: { type: 'string', default: '127.0.0.1' },
      data: { type: 'string', default: './data' },
      'tls-cert': { type: 'string' },
      'tls-key': { type: 'string' },
    },
  });
  const port = Number(values.port);
  if (!/^\d{1,5}$/.test(values.port) || port > 65_535) throw new UsageError(`--port ${values.port} is no port`);
  const [cert, key] = [values['tls-cert'], values['tls-key']];
  if ((cert === undefined) !== (key === undefined)) throw new UsageError('--tls-cert and --tls-key go together');
  const tls = cert === undefined || key === undefined ? {} : { tls: { cert, key } };
  const stopped = Promise.withResolvers<number>();
  let stop = () => stopped.resolve(DONE);
  // From the first moment: an interrupted start must not leave a workerd behind.
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop());
  let hangUp = () => stop();
  process.on('SIGHUP', () => hangUp());

  const starting = serve({ port, host: values.host, data: values.data, ...tls }, (line) => console.error(line));
  const gateway = await Promise.race([starting, stopped.promise]);
  if (typeof gateway === 'number') return starting.then((late) => late.stop(0)).then(() => DONE);
  const { reloadTls } = gateway;
  // Without TLS there is nothing to read again, and SIGHUP means what a terminal means by it.
  hangUp = () => {
    if (reloadTls === undefined) return stop();
    reloadTls().then(
      () => console.error('TLS files read again'),
      (error: unknown) => console.error(`TLS files not taken, the old ones stay: ${messageOf(error)}`),
    );
  };
  stop = () => {
    // A second signal: now.
    stop = () => process.exit(DONE);
    void gateway.stop(DRAIN_MS).then(() => stopped.resolve(DONE));
  };
  console.log(`otela-gateway ready ${gateway.url}`);
  const code = await stopped.promise;
  // Half-open handshakes would keep the process for seconds more.
  process.exit(code);
}

async function main([command, ...args]: string[]): Promise<number> {
  const thing = command === undefined || !Object.hasOwn(THINGS, command) ? undefined : THINGS[command];
  if (command !== undefined && thing !== undefined) return thingCommand(command, thing, args);
  switch (command) {
    case 'serve':
      return serveCommand(args);
    case 'usage':
      return usageCommand(args);
    case 'trace':
      return traceCommand(args);
    case 'settings':
      return settingsCommand(args);
    case 'audit':
      return auditCommand(args);
    case 'nodes':
      return nodesCommand(args);
    case 'peers':
      return peersCommand(args);
    case 'issuer':
      return issuerCommand(args);
    case 'help':
    case '--help':
    case '-h':
      console.log(USAGE);
      return DONE;
    default:
      throw new UsageError(command === undefined ? 'a command is missing' : `there is no command "${command}"`);
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function isWrongUse(error: unknown): boolean {
  if (error instanceof UsageError) return true;
  return error instanceof TypeError && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS');
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  const wrongUse = isWrongUse(error);
  console.error(`otela-gateway: ${messageOf(error)}${wrongUse ? `\n\n${USAGE}` : ''}`);
  const expected = error instanceof DataDirectoryError || error instanceof ClientError || error instanceof IssuerError;
  if (!wrongUse && !expected && process.env.DEBUG !== undefined) console.error(error);
  process.exitCode = wrongUse ? WRONG_USE : FAILED;
}
