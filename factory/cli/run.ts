/** `otela-factory run`: until it is told to end. Its jobs run on. */
import { readConfig } from '../config/read.ts';
import { GatewayExchange } from '../demand/gateway-exchange.ts';
import { FactoryError } from '../errors.ts';
import { Factory } from '../life/factory.ts';
import { EXIT_DONE, EXIT_GATEWAY } from './exit.ts';
import type { Io } from './io.ts';

export async function runCommand(configPath: string, io: Io): Promise<number> {
  const config = readConfig(configPath);
  let refusal: string | undefined;
  const log = (line: string) => io.log(`${new Date().toISOString()} ${line}`);
  const gateway = new GatewayExchange({
    gateway: config.gateway,
    tokenFile: config.token_file,
    ...(config.ca_file === undefined ? {} : { caFile: config.ca_file }),
    now: Date.now,
    // A token may come back; what serves goes on, and nothing begins without demand.
    refused: (why) => {
      if (refusal === undefined) log(why);
      refusal = why;
    },
  });
  const factory = new Factory({ configPath, config, gateway, log });
  const stop = () => factory.stop();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, stop);
  const ended = await factory.run();
  if (ended === 'replaced')
    throw new FactoryError('busy', 'another factory took over: this one ends, and its jobs run on');
  return refusal === undefined ? EXIT_DONE : EXIT_GATEWAY;
}
