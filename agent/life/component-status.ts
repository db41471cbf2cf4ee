import { AGENT_VERSION } from '../host/agent-version.ts';
import type { AgentStatus } from '../host/control-protocol.ts';
import type { Mesh } from '../mesh/mesh.ts';
import type { AgentParts } from './agent-parts.ts';

/** The part of `otela-agent status` that describes the components that exist so far. */
export function componentStatus({
  engine,
  sessions,
  requests,
  weights,
}: AgentParts): Omit<AgentStatus, 'session' | 'started_at' | 'job'> {
  const { current, facts } = sessions ?? {};
  const ingress = requests?.status();
  return {
    pid: process.pid,
    admitted: current !== undefined,
    ...(current ? { provider: current.ticket.provider, cluster: current.ticket.cluster } : {}),
    agent_version: AGENT_VERSION,
    state: current?.record.state ?? 'JOIN',
    gateways: current?.gatewayStatus() ?? [],
    ...(current?.mesh ? { mesh: meshStatus(current.mesh) } : {}),
    ...(ingress ? { ingress } : {}),
    ...(weights === undefined ? {} : { weights: weights.status() }),
    models: current?.record.models ?? [],
    ...(facts ? { hardware: facts.hardware } : {}),
    ...(engine?.target ? { engine: engineStatus(engine, engine.target) } : {}),
  };
}

function meshStatus({ addresses, channels, circuits }: Mesh): AgentStatus['mesh'] {
  const relayed = [...channels].filter(({ through }) => through !== undefined).length;
  const { open: relaying = 0, reserved = 0 } = circuits.relay ?? {};
  return { addresses, channels: channels.size, relayed, relaying, reserved };
}

function engineStatus(engine: NonNullable<AgentParts['engine']>, target: { origin: string; pathPrefix: string }) {
  const { pid, health, waitingMs } = engine;
  const [lastLine] = waitingMs === undefined ? [] : engine.lastLines(1);
  return {
    url: `${target.origin}${target.pathPrefix}`,
    answering: health.answering,
    ...(pid === undefined ? {} : { pid }),
    ...(health.trouble === undefined || health.answering ? {} : { trouble: health.trouble }),
    ...(waitingMs === undefined ? {} : { waiting_s: Math.round(waitingMs / 1000) }),
    ...(lastLine === undefined ? {} : { last_line: lastLine }),
  };
}
