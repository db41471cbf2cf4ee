/** Creates the sessions of one agent, with facts about the node from the machine and the command line. */
import type { StartConfig } from '../../config/start-config.ts';
import { AGENT_VERSION } from '../../host/agent-version.ts';
import { type Hardware, hardwareOf } from '../../host/hardware-inventory.ts';
import type { TunnelRefusal } from '../../tunnel/tunnel-types.ts';
import { type JoinContext, type JoinOptions, join } from './join.ts';
import type { Session } from './session.ts';
import { Sessions } from './sessions.ts';

interface NewSessionsOptions {
  joinOptions: JoinOptions & { config: StartConfig };
  around: JoinContext;
  /** The hardware of this host. */
  hardware: Hardware;
  host: string;
  /** False if another rank's agent registers the engine. This agent is then in the network only for its weights. */
  registers: boolean;
  jobRecord: ReturnType<JoinContext['job']['record']>;
  /** Called if no gateway admits this agent any more. Not called if `registers` is false. */
  onRefused(refusal: TunnelRefusal): void;
  onCurrent(session: Session): void;
}

/** Creates the object. `open()` joins the first session. */
export function createSessions(options: NewSessionsOptions): Sessions {
  const { joinOptions, around, hardware, host, registers, jobRecord, onRefused, onCurrent } = options;
  const { config, log } = joinOptions;
  const { weights, deployments } = around.parts;
  return new Sessions({
    facts: {
      tier: config.tier,
      labels: registers ? { ...config.labels, ...deployments?.labels } : {},
      models: [],
      hardware: hardwareOf(hardware, config.span.nodes),
      agent_version: AGENT_VERSION,
      host,
      addresses: [],
      ...(config.mesh.offerRelay ? { relay: true } : {}),
      ...(config.region === undefined ? {} : { region: config.region }),
      ...(weights === undefined ? {} : { weights: weights.record }),
      ...jobRecord,
    },
    admit: (signal) => join(joinOptions, around, signal),
    onCurrent,
    onIdle: () => weights?.leave(),
    onRefused: (refusal) => {
      if (registers) onRefused(refusal);
      else log('warning: weights: no gateway admits this rank, so it reads the source directly');
    },
    log,
    random: Math.random,
  });
}
