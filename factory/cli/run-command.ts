/** `otela-factory run`: runs the autoscaler until it is stopped. Its jobs continue to run. */
import * as z from 'zod';
import { EXIT_DONE, EXIT_UNAVAILABLE } from '../../shared/command-line/index.ts';
import { parseExchangeAnswer } from '../../shared/factory/factory-exchange.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import { readFactoryConfig } from '../config/read-config.ts';
import type { FactoryConfig } from '../config/schema.ts';
import type { DemandReading, GatewaySource } from '../demand/demand-source.ts';
import { GatewayExchange } from '../demand/gateway-exchange.ts';
import { FactoryError } from '../factory-error.ts';
import { Factory } from '../life/factory.ts';
import { StateFiles } from '../life/state-files.ts';

/** Maximum age of a current status. A running factory writes one in every round. */
const STATUS_MAX_AGE_MS = 120_000;

function exchangeOf(config: FactoryConfig, refused: (why: string) => void): GatewayExchange {
  return new GatewayExchange({
    gateway: config.gateway,
    tokenFile: config.token_file,
    ...(config.ca_file === undefined ? {} : { caFile: config.ca_file }),
    now: Date.now,
    refused,
  });
}

export async function runCommand(configPath: string, io: Io): Promise<number> {
  const config = readFactoryConfig(configPath);
  let refusal: string | undefined;
  const log = (line: string) => io.log(`${new Date().toISOString()} ${line}`);
  // If the gateway refuses the token, continue, because it may accept the token again later. Until then, jobs that
  // serve continue, and no job starts without demand.
  const gateway = exchangeOf(config, (why) => {
    if (refusal !== why) log(why);
    refusal = why;
  });
  const factory = new Factory({ configPath, config, gateway, log });
  const stop = () => factory.stop();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, stop);
  const ended = await factory.run();
  if (ended === 'replaced')
    throw new FactoryError(
      'busy',
      'another factory took over, or may have, because the lease cannot be read: this factory ends, and its jobs continue',
    );
  return refusal === undefined ? EXIT_DONE : EXIT_UNAVAILABLE;
}

/**
 * Runs one round that queries the clusters and changes nothing. Uses the demand that the running factory received last.
 * It must not ask the gateway, because a second exchange would end the running factory's exchange.
 */
export async function dryRun(configPath: string, io: Io): Promise<number> {
  const config = readFactoryConfig(configPath);
  const heard = readLastDemand(config);
  if (heard.nodes === undefined)
    io.out(
      'no factory runs with this state directory, so the demand is unknown: nothing would be ended, and only minimum replicas would start',
    );
  const gateway: GatewaySource = {
    open: () => {},
    report: () => {},
    fault: () => undefined,
    latest: () => heard,
    close: async () => {},
  };
  const factory = new Factory({ configPath, config, gateway, log: (line) => io.log(line) });
  for (const line of await factory.rehearse()) io.out(line);
  return EXIT_DONE;
}

function readLastDemand(config: FactoryConfig): DemandReading {
  const value = new StateFiles(config.state).read('status.json');
  const read = z
    .object({ at: z.iso.datetime(), heard: z.object({ demand: z.unknown(), nodes: z.unknown() }) })
    .safeParse(value);
  const nothing: DemandReading = { demand: new Map(), nodes: undefined };
  if (!read.success || Date.now() - Date.parse(read.data.at) > STATUS_MAX_AGE_MS || read.data.heard.nodes === undefined)
    return nothing;
  const { demand, nodes } = parseExchangeAnswer({ version: 1, revision: 'dry-run', ...read.data.heard });
  return { demand: new Map(demand.map((one) => [one.model, one])), nodes };
}
