/**
 * Creates the parts of a tunnel object and connects them. The parts do nothing before the object gets a socket, a call
 * or an alarm.
 */
import type { HangSuspicion } from '../../shared/routing/hang/hang-suspicion.ts';
import { LOCAL_TAIL_BYTES } from '../../shared/wire/protocol-constants.ts';
import type { Env } from '../env.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import { waitClock } from '../platform/wait-clock.ts';
import type { AgentSocket } from './agent-socket.ts';
import { AgentSockets } from './agent-sockets.ts';
import { ControlFrames } from './control-frames.ts';
import { ForgottenAttemptReports } from './forgotten-attempt-reports.ts';
import { RegistryNotifier } from './registry-notifier.ts';
import { StoredHangState } from './stored-hang-state.ts';
import { StreamIds } from './stream-ids.ts';
import { TunnelAttempts } from './tunnel-attempts.ts';
import { TunnelUsage } from './tunnel-usage.ts';

/** Events that concern several parts. */
interface TunnelEvents {
  active(peer: AgentSocket): void;
  /** Called when the session has no socket any more. */
  gone(): void;
  /** Called if the registry cannot be reached. */
  lost(): void;
  /** Called when an attempt is open or usage must be stored. */
  busy(): void;
  /** Called if the engine answers no request, to compare it with other nodes. */
  compare(): void;
}

interface TunnelParts {
  sockets: AgentSockets;
  attempts: TunnelAttempts;
  registry: RegistryNotifier;
  usage: TunnelUsage;
  frames: ControlFrames;
}

export function createTunnelParts(ctx: ObjectContext, env: Env, on: TunnelEvents): TunnelParts {
  const session = ctx.name;
  const waitUntil = (work: Promise<unknown>) => ctx.waitUntil(work);
  const isAlone = env.OBJECTS_STAY === 'on' && env.PROCESSES === undefined;
  const sockets: AgentSockets = new AgentSockets(ctx.sockets, session, isAlone ? LOCAL_TAIL_BYTES : undefined, {
    activated: (peer) => on.active(peer),
    replaced: () => {
      frames.abandon();
      attempts.disconnect();
    },
    gone: () => on.gone(),
    idle: () => attempts.open === 0,
  });
  const registry: RegistryNotifier = new RegistryNotifier({
    session,
    env,
    waitUntil,
    close: (peer, code, reason) => sockets.close(peer, code, reason),
    lost: () => on.lost(),
  });
  const suspect = () => registry.suspect(sockets.active === undefined);
  const attempts: TunnelAttempts = createAttempts(ctx, env, { registry, suspect, load: () => frames.load }, on);
  const usage = new TunnelUsage({
    session,
    ctx,
    env,
    attempts,
    onStored: (streams) => sockets.active?.link.put({ type: 'settled', streams: [...streams] }),
  });
  const { outbox, anomalies } = usage;
  const open = () => attempts.open;
  const frames: ControlFrames = new ControlFrames({ session, ctx, registry, outbox, anomalies, waitUntil, open });
  return { sockets, attempts, registry, usage, frames };
}

type AttemptEvents = ConstructorParameters<typeof TunnelAttempts>[4];

function createAttempts(
  ctx: ObjectContext,
  env: Env,
  { registry, suspect, load }: Pick<AttemptEvents, 'suspect' | 'load'> & { registry: RegistryNotifier },
  on: TunnelEvents,
): TunnelAttempts {
  const session = ctx.name;
  const ids = new StreamIds(ctx, env.PROCESSES?.number);
  const proofs = new ForgottenAttemptReports({
    session,
    env,
    nextStream: () => ids.next(),
    running: (name) => attempts.running(name),
    waitUntil: (work) => ctx.waitUntil(work),
  });
  const hangs = new StoredHangState(ctx.storage.kv);
  const events: AttemptEvents = {
    busy: () => on.busy(),
    suspect,
    double: () => registry.double(),
    load,
    compare: () => on.compare(),
    onSuspicion: (suspicion: HangSuspicion | undefined) =>
      registry.live({ breaker: hangs.keep(suspicion, waitClock.now(), Date.now()) }),
  };
  const offloads = env.LOCAL_OFFLOADS?.of(session);
  const attempts: TunnelAttempts = new TunnelAttempts(session, ids, offloads, proofs, events, hangs.suspicion);
  return attempts;
}
