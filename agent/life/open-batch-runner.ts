/** Runs lines of batches in addition to requests: at this node's engine, and in users' functions. */
import { BatchRunner } from '../batch/batch-runner.ts';
import { readLineOptions } from '../batch/line-options.ts';
import type { StartConfig } from '../config/start-config.ts';
import type { EngineTarget } from '../engine/engine-address.ts';
import type { LoadMeter } from '../engine/engine-load.ts';
import type { AgentParts, BatchService } from './agent-parts.ts';
import type { MeshMembership } from './mesh-membership.ts';
import { openFunctions } from './open-functions.ts';
import type { Session } from './session/session.ts';

interface BatchesOptions {
  config: Pick<StartConfig, 'gateways' | 'limits' | 'functions'>;
  parts: AgentParts;
  network: Pick<MeshMembership, 'proxy'>;
  env: Readonly<Record<string, string | undefined>>;
  engine(): EngineTarget | undefined;
  /** Returns the engine's command, if this agent started the engine. */
  command(): readonly string[] | undefined;
  load: LoadMeter;
  /** When this node's job ends; undefined: no end is known. */
  ends(): Date | undefined;
  /** Paths with secrets of this agent, which functions must not read. */
  secrets: readonly string[];
  log(line: string): void;
}

interface GatewaysOfOptions {
  config: Pick<StartConfig, 'gateways'>;
  parts: { sessions?: { current: Pick<Session, 'connected'> | undefined } | undefined };
}

/**
 * Gateways that may send batch work: the configured ones, and the institution's other gateways that admitted the
 * session. Gateways of peer institutions send none.
 */
export function batchGateways({ config, parts }: GatewaysOfOptions): () => readonly URL[] {
  return () => {
    const connected = parts.sessions?.current?.connected ?? [];
    return [...config.gateways, ...connected.flatMap(({ url, own }) => (own ? [url] : []))];
  };
}

export function openBatchRunner(options: BatchesOptions): BatchService {
  const lines = openLines(options);
  const { functions: config } = options.config;
  const functions = config && openFunctions({ ...functionsOptions(options), functions: config });
  return {
    drain: async (signal) => {
      await Promise.all([lines.drain(signal), functions?.drain(signal)]);
    },
    close: async () => {
      await Promise.all([lines.close(), functions?.close()]);
    },
  };
}

function openLines(options: BatchesOptions): BatchRunner {
  const { config, parts, network, engine, command, load, log } = options;
  const serving = () => {
    const { sessions } = parts;
    return sessions?.state === 'SERVING' ? sessions : undefined;
  };
  const runner = new BatchRunner({
    gateways: batchGateways(options),
    proxy: (gateway) => network.proxy?.(gateway),
    credentials: () => serving()?.current,
    engine,
    models: () => (serving()?.facts.models ?? []).filter(({ state }) => state === 'ready').map(({ id }) => id),
    reading: () => {
      load.look();
      const { running, waiting, kvUse } = load.current;
      const { preemptions } = load;
      return {
        running,
        // The engine's queue, in which lines count too, because lines should not make the queue grow.
        waiting: Math.max(waiting, load.queued),
        firstTokenMs: load.takeFirstTokenMs(),
        ...(kvUse === undefined ? {} : { kvUsed: kvUse }),
        ...(preemptions === undefined ? {} : { preemptions }),
      };
    },
    computedAt: () => (load.counts ? load.heardAt : undefined),
    interactive: () => interactiveOf(options),
    lines: () => readLineOptions(command(), config.limits.maxRunning, load.tellsQueue),
    log,
  });
  load.leaveOut(() => runner.running);
  return runner;
}

/** Number of requests at the engine that are not lines of batches. */
function interactiveOf({ parts }: BatchesOptions): number {
  return (parts.sessions?.inFlight ?? 0) + (parts.requests?.inFlight ?? 0);
}

function functionsOptions(options: BatchesOptions): Omit<Parameters<typeof openFunctions>[0], 'functions'> {
  const { parts, network, env, ends, secrets, log } = options;
  return {
    ends,
    gateways: batchGateways(options),
    proxy: (gateway) => network.proxy?.(gateway),
    session: () => parts.sessions?.current,
    interactive: () => interactiveOf(options),
    weights: () => parts.weights,
    env,
    secrets,
    log,
  };
}
