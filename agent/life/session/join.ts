/** Creates a session of this agent: a new key, a ticket for the key, and the session's connections. */

import type { Ticket } from '../../../shared/lattice/ticket.ts';
import type { Env } from '../../config/setting.ts';
import type { StartConfig } from '../../config/start-config.ts';
import type { OrderOutcome } from '../../deploy/deployment-decider.ts';
import type { EngineTarget } from '../../engine/engine-address.ts';
import type { LoadMeter } from '../../engine/engine-load.ts';
import { ownRelease } from '../../host/own-release.ts';
import { createSessionKey } from '../../mesh/channel/session-key.ts';
import type { AgentSealing } from '../../seal/agent-sealing.ts';
import type { AdmissionOptions, GatewayAdmission } from '../../tunnel/gateway-admission.ts';
import { pollGateways } from '../../tunnel/other-gateways.ts';
import { sendLogTail } from '../../tunnel/send-log-tail.ts';
import type { Tunnel, TunnelOptions } from '../../tunnel/tunnel-types.ts';
import type { AgentParts } from '../agent-parts.ts';
import { collapseRepeats } from '../collapse-repeats.ts';
import type { JobWatch } from '../job-watch.ts';
import type { MeshMembership } from '../mesh-membership.ts';
import { Session } from './session.ts';
import type { GrantedAdmission } from './sessions.ts';

export interface JoinOptions {
  config: Pick<StartConfig, 'gateways' | 'token' | 'cluster' | 'releaseDir'>;
  env: Env;
  openTunnel(options: TunnelOptions): Tunnel;
  admit(options: AdmissionOptions): Promise<GatewayAdmission>;
  /** True if sessions join the mesh; default true. */
  joinMesh?: boolean;
  log(line: string): void;
}

/** Parts of the agent that a new session uses. */
export interface JoinContext {
  network: MeshMembership;
  job: JobWatch;
  parts: AgentParts;
  /** Returns the engine's address; undefined while no engine answers. */
  engine(): EngineTarget | undefined;
  load: LoadMeter;
  seals: AgentSealing;
}

/** Resolves when a gateway has admitted this agent. Rejects as `admit` does. */
export async function join(options: JoinOptions, around: JoinContext, signal: AbortSignal): Promise<GrantedAdmission> {
  const { config, env, log, openTunnel, admit, joinMesh = true } = options;
  const { network, job, parts, engine, load, seals } = around;
  const { token, cluster, releaseDir } = config;
  const { proxy, peerProxies, admitting: gateways, issuer } = network;
  const key = createSessionKey();
  const release = await ownRelease(releaseDir);
  const asked = {
    gateways,
    issuer,
    token,
    cluster,
    key,
    release,
    jobEndsAt: job.ends,
    proxy,
    peerProxies,
    env,
    signal,
  };
  const admission = await admit({ ...asked, log: collapseRepeats(log), random: Math.random });
  const { ticket } = admission;
  network.learn(admission);
  const accounts = parts.requests?.accounts;
  return {
    lifetimeMs: (ticket.expires - ticket.birth) * 1000,
    create: (first, { onRefused, onOver }) => {
      const session = new Session({
        ticket,
        key,
        configured: config.gateways,
        gateways: network.gateways,
        askGateway: async (gateway) => {
          const hints = await pollGateways({ gateway, ticket, region: parts.requests?.ingressRegion, proxy, env });
          if (hints === undefined) return undefined;
          network.learnHints(hints);
          parts.requests?.setShares(hints.shares);
          accounts?.setAllowances(hints.peers ?? {});
          return hints;
        },
        first,
        openTunnel,
        join: joinMesh ? (member) => network.join(member) : undefined,
        proxy,
        usage: parts.requests?.usage,
        accountOf: accounts && ((peer) => accounts.of(peer)),
        order: parts.orders && ((order) => answerOrder(parts, ticket, order)),
        leaveLogTail: (tail) => sendLogTail({ ...tail, proxy, env, log }),
        engine,
        load,
        seals,
        onMesh: (mesh) => {
          // If the session was replaced while it joined the mesh, it no longer represents this agent.
          if (parts.sessions?.current !== session) return;
          parts.requests?.join(mesh, ticket);
          parts.weights?.join(mesh, ticket);
        },
        log,
        onRefused,
        onOver,
      });
      return session;
    },
  };
}

/** A replaced session no longer represents this agent, and accepts no orders. */
async function answerOrder({ orders, sessions }: AgentParts, ticket: Ticket, order: Uint8Array): Promise<OrderOutcome> {
  if (orders !== undefined && sessions?.current?.id === ticket.session) return orders.answer(ticket, order);
  const message = `session ${ticket.session} has ended; use its successor`;
  return { answer: { kind: 'refused', code: 'wrong_session', message } };
}
