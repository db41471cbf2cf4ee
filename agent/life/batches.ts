/** Lines of batches beside requests. */
import { BatchRunner } from '../batch/runner.ts';
import type { StartConfig } from '../config/start-config.ts';
import type { EngineTarget } from '../engine/address.ts';
import type { LoadMeter } from '../engine/load.ts';
import type { Network } from './network.ts';
import type { Parts } from './shutdown.ts';

/** Sequences that vLLM runs at once where its command does not say otherwise (`--max-num-seqs`). */
const SLOTS = 256;

interface BatchesOptions {
  config: Pick<StartConfig, 'gateways' | 'limits'>;
  parts: Parts;
  network: Pick<Network, 'proxy'>;
  engine(): EngineTarget | undefined;
  load: LoadMeter;
  log(line: string): void;
}

export function openBatches({ config, parts, network, engine, load, log }: BatchesOptions): BatchRunner {
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
      return { running, waiting, ...(kvUse === undefined ? {} : { kvUsed: kvUse }) };
    },
    interactive: () => (parts.sessions?.inFlight ?? 0) + (parts.requests?.inFlight ?? 0),
    slots: config.limits?.maxRunning ?? SLOTS,
    log,
  });
  load.leaveOut(() => runner.running);
  return runner;
}
