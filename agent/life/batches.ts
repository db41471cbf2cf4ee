/** Lines of batches beside requests: at this node's engine, and in users' functions. */
import { tmpdir } from 'node:os';
import { lineOptions } from '../batch/engine-options.ts';
import { FunctionHost } from '../batch/functions/host.ts';
import { FunctionRunner } from '../batch/functions/runner.ts';
import { BatchGateway } from '../batch/gateway-client.ts';
import { BatchRunner } from '../batch/runner.ts';
import type { StartConfig } from '../config/start-config.ts';
import type { EngineTarget } from '../engine/address.ts';
import type { LoadMeter } from '../engine/load.ts';
import type { Network } from './network.ts';
import type { Parts } from './shutdown.ts';

interface BatchesOptions {
  config: Pick<StartConfig, 'gateways' | 'limits' | 'functions'>;
  parts: Parts;
  network: Pick<Network, 'proxy'>;
  env: Readonly<Record<string, string | undefined>>;
  engine(): EngineTarget | undefined;
  /** The engine's, where this agent started it. */
  command(): readonly string[] | undefined;
  load: LoadMeter;
  log(line: string): void;
}

/** What works on lines here. */
export interface BatchWork {
  /** Begins nothing; gives leases back when what runs has ended, or at `signal`. */
  drain(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

export function openBatches(options: BatchesOptions): BatchWork {
  const lines = openLines(options);
  const functions = openFunctions(options);
  return {
    drain: async (signal) => {
      await Promise.all([lines.drain(signal), functions?.drain(signal)]);
    },
    close: async () => {
      await Promise.all([lines.close(), functions?.close()]);
    },
  };
}

function openLines({ config, parts, network, engine, command, load, log }: BatchesOptions): BatchRunner {
  const serving = () => {
    const { sessions } = parts;
    return sessions?.state === 'SERVING' ? sessions : undefined;
  };
  const runner = new BatchRunner({
    gateways: config.gateways,
    proxy: (gateway) => network.proxy?.(gateway),
    speaker: () => serving()?.current,
    engine,
    models: () => (serving()?.facts.models ?? []).filter(({ state }) => state === 'ready').map(({ id }) => id),
    reading: () => {
      load.look();
      const { running, waiting, kvUse } = load.current;
      const { preemptions } = load;
      return {
        running,
        waiting,
        firstTokenMs: load.takeFirstTokenMs(),
        ...(kvUse === undefined ? {} : { kvUsed: kvUse }),
        ...(preemptions === undefined ? {} : { preemptions }),
      };
    },
    interactive: () => (parts.sessions?.inFlight ?? 0) + (parts.requests?.inFlight ?? 0),
    lines: () => lineOptions(command(), config.limits.maxRunning),
    log,
  });
  load.leaveOut(() => runner.running);
  return runner;
}

function openFunctions({ config, parts, network, env, log }: BatchesOptions): BatchWork | undefined {
  const { functions, gateways } = config;
  if (functions === undefined) return undefined;
  const { owners, loadedMax, limits } = functions;
  const session = () => parts.sessions?.current;
  const clients = gateways.map((url) => new BatchGateway(url, session, network.proxy?.(url)));
  const host = new FunctionHost({
    limits,
    env,
    loadedMax,
    temporary: env.TMPDIR ?? tmpdir(),
    now: () => performance.now(),
    log,
  });
  const runner = new FunctionRunner({
    gateways: clients,
    host,
    owners,
    workers: loadedMax,
    admitted: () => session() !== undefined,
    log,
  });
  return {
    drain: (signal) => runner.drain(signal),
    close: async () => {
      await runner.close();
      await Promise.all(clients.map((client) => client.close()));
    },
  };
}
