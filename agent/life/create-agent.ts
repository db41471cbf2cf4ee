/** Creates the parts of an agent and connects them. Nothing starts before `AgentRun.run`. */
import { hostname } from 'node:os';
import type { Writable } from 'node:stream';
import { DeploymentError } from '../../shared/deployment/deployment-error.ts';
import { formatDuration } from '../config/duration.ts';
import type { StartConfig } from '../config/start-config.ts';
import { OrderReceiver } from '../deploy/order-receiver.ts';
import { AdapterDirectory } from '../engine/adapter-directory.ts';
import { LoadMeter } from '../engine/engine-load.ts';
import { ModelControl } from '../engine/model-control.ts';
import { AGENT_VERSION } from '../host/agent-version.ts';
import { GpuUseReader } from '../host/gpu-utilization.ts';
import { nodeCrypto } from '../host/node-crypto.ts';
import { requireInstalled } from '../host/own-executable.ts';
import { redactor } from '../host/redact-secrets.ts';
import { toolRunner } from '../host/run-tool.ts';
import { AgentSealing } from '../seal/agent-sealing.ts';
import type { AgentParts } from './agent-parts.ts';
import { acceptDeployments } from './deployed-engine.ts';
import { AgentEnding } from './ending/agent-ending.ts';
import { EngineStart } from './engine-start.ts';
import { GpuMonitor } from './gpu-monitor.ts';
import { HangRestart } from './hang-restart.ts';
import { JobWatch } from './job-watch.ts';
import { MeshMembership } from './mesh-membership.ts';
import { RemoteLogs } from './remote-logs.ts';
import type { JoinOptions } from './session/join.ts';
import { SessionHealth } from './session/session-health.ts';

export interface AgentOptions extends JoinOptions {
  config: StartConfig;
  stdout: Writable;
  stderr: Writable;
  /** Time after which an engine that this agent did not start counts as stopped. Default: 30 s. */
  engineGoneMs?: number;
}

type AgentBase = ReturnType<typeof createBase>;
export type Agent = ReturnType<typeof createAgent>;

export function createAgent(options: AgentOptions) {
  const base = createBase(options);
  const engine = createEngineParts(base);
  // Only rank 0 takes orders. An order to drain another rank would end that rank's part of the engine while rank 0
  // still has requests.
  if (base.registers) base.parts.orders = createOrders(base);
  return { ...base, ...engine };
}

/** Creates the parts that do not depend on the engine. */
function createBase(options: AgentOptions) {
  const { config, env } = options;
  const parts: AgentParts = {};
  const log = (line: string): void => {
    logs.line(line);
    options.log(line);
  };
  const seals = new AgentSealing(() => Date.now(), config.delegate, config.evidence, log);
  const logs = new RemoteLogs({
    engine: () => parts.engine,
    allowed: config.remoteLogs,
    sealed: () => seals.opener.used,
    redact: redactor([config.token, config.engine?.key], env),
    directory: config.logDirectory,
    log,
  });
  const registers = config.span.role === 'register';
  const run = toolRunner(env);
  const job = new JobWatch({
    config,
    env,
    run,
    onChange: () => parts.sessions?.change(jobRecord()),
    onDue: (leftMs) => life.end({ kind: 'drain', cause: 'job-end', why: `the job ends in ${formatDuration(leftMs)}` }),
    log,
  });
  /** Only rank 0 publishes the job: the autoscaler treats each node that shows a job as a serving one. */
  const jobRecord = () => (registers ? job.record() : {});
  const host = job.node ?? hostname().slice(0, 255);
  const network = new MeshMembership({ config, env, host, log });
  const life = new AgentEnding({ parts, job, logs, registers, stderr: options.stderr, log });
  const gpuUse = new GpuUseReader(run, env, () => performance.now());
  const gpus = new GpuMonitor({
    reader: gpuUse,
    publish: (state) => parts.sessions?.change({ gpu_state: state }),
    now: () => performance.now(),
  });
  const common = { options: { ...options, log }, log, parts, registers, run, seals, logs };
  return { ...common, job, jobRecord, host, network, life, gpuUse, gpus };
}

function createEngineParts({ options, parts, network, job, life, log }: AgentBase) {
  const { config, engineGoneMs } = options;
  const { ending } = life;
  const onHealth: SessionHealth['see'] = (seen) => health.see(seen);
  const load: LoadMeter = new LoadMeter(() => engineStart.target, config.limits);
  load.onLost(() => parts.engine?.lookSoon());
  const modelsChanged = () => parts.engine && health.see(parts.engine.health);
  const adapters =
    config.loraDir === undefined
      ? undefined
      : new AdapterDirectory({ directory: config.loraDir, changed: modelsChanged, log });
  parts.models = new ModelControl({
    engine: () => parts.engine,
    adapters,
    running: () => load.waiting,
    changed: modelsChanged,
    now: () => performance.now(),
    log,
  });
  const deployed =
    config.templates &&
    acceptDeployments({
      ...options,
      templates: config.templates,
      parts,
      onHealth,
      ending,
      graceMs: () => job.plan('signal').graceMs,
    });
  const health = new SessionHealth({
    config,
    parts,
    ending,
    deployed: () => deployed,
    ...(engineGoneMs === undefined ? {} : { goneMs: engineGoneMs }),
    log,
  });
  const engineStart: EngineStart = new EngineStart({
    ...options,
    parts,
    network,
    life,
    onHealth,
    onStarted: (engine) => hangs.watch(engine),
  });
  const hangs = new HangRestart({
    config,
    parts,
    load,
    ending,
    start: () => engineStart.start(),
    giveUp: (sign) => life.end({ kind: 'fatal', sign }),
    log,
  });
  return { load, deployed, health, engineStart, hangs, adapters };
}

function createOrders({ options, parts, logs, network, life, gpuUse, log }: AgentBase): OrderReceiver {
  return new OrderReceiver({
    deployments: () => parts.deployments,
    changeModel: (request) => {
      const { models } = parts;
      if (models === undefined) throw new DeploymentError('nothing_deployed', 'no engine answers here');
      return request.action === 'load' ? models.load(request) : models.unload(request);
    },
    drain: (why) => life.end({ kind: 'drain', cause: 'request', why }),
    restart: async (version) => {
      await requireInstalled(version, options.env);
      const why = `an order from its gateway to restart as ${version}`;
      const act = () => life.end({ kind: 'drain', cause: 'request', why, restart: true });
      return { from: AGENT_VERSION, act };
    },
    inspect: () => logs.inspect(gpuUse),
    inFlight: () => life.inFlight,
    crypto: nodeCrypto,
    now: () => Date.now(),
    revoked: (issuer, key) => network.replica.revocations(issuer).some(({ keyName }) => keyName === key),
    log,
  });
}
