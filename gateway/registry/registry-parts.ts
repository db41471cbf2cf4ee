/** Creates the parts of a registry object and connects them. The parts do nothing before the first event of gossip. */
import { tunedOptions } from '../../shared/gossip/index.ts';
import type { ProbeVerdict } from '../../shared/wire/frames.ts';
import type { GatewaySettings } from '../accounts/gateway-settings.ts';
import type { Env } from '../env.ts';
import type { ObjectContext } from '../platform/object-context.ts';
import { steadyNow } from '../platform/steady-clock.ts';
import { nowS } from '../platform/unix-time.ts';
import { Admissions } from './admissions.ts';
import { GatewayGossipDriver } from './gossip/gossip-driver.ts';
import { GossipSockets } from './gossip/gossip-sockets.ts';
import { StoredGossip } from './gossip/stored-gossip.ts';
import { GossipTuning } from './gossip-tuning.ts';
import { IssuerAuthority } from './issuer-authority.ts';
import { RegistryMeta } from './registry-meta.ts';
import { SessionReachability } from './session-reachability.ts';
import { SessionRegistry } from './session-registry.ts';
import { SharedAlarm } from './shared-alarm.ts';
import { SnapshotSettings } from './snapshot-settings.ts';
import { LogTails } from './views/engine-log-tails.ts';
import { NodeEventLog } from './views/node-event-log.ts';

/** Events that other objects must receive. */
interface RegistryEvents {
  ended(session: string, reason: string): void;
  onSettings(settings: GatewaySettings): void;
  probe(session: string): Promise<ProbeVerdict>;
}

type StoredParts = ReturnType<typeof createStored>;

export function createRegistryParts(ctx: ObjectContext, env: Env, on: RegistryEvents) {
  const stored = createStored(ctx, env);
  const { authority, history } = stored;
  const members: SessionRegistry = new SessionRegistry(
    ctx,
    { authority, admissions: new Admissions(ctx.storage), history },
    {
      local: (updates) => gossip.handle({ type: 'local', updates }),
      opened: (session) => paths.present(session),
      ended: (session, reason) => on.ended(session, reason),
    },
  );
  members.sessions.store.set({ issuers: authority.listed, gateway: authority.issuer.id });
  members.sessions.retentionMs = stored.tuning.current.retention_ms;
  const settings = new SnapshotSettings(env, members.sessions.store, authority, {
    onIssuers: () => gossip.handle({ type: 'replaced', sessions: members.relist() }),
    onSettings: (read) => on.onSettings(read),
  });
  const sockets: GossipSockets = new GossipSockets(ctx.sockets, authority.issuer.id, {
    opened: (session) => gossip.handle({ type: 'opened', peer: session, inbound: true }),
    closed: (session) => gossip.handle({ type: 'closed', peer: session }),
    message: (session, bytes) => gossip.handle({ type: 'message', peer: session, bytes }),
  });
  const { gossip, paths } = createGossipParts(ctx, { stored, members, sockets }, on);
  return { ...stored, members, settings, sockets, gossip, paths };
}

/** Creates the parts that read the object's storage. */
function createStored({ storage, clock }: ObjectContext, env: Env) {
  const meta = new RegistryMeta(storage);
  return {
    logs: new LogTails(storage),
    history: new NodeEventLog(storage),
    clock: new SharedAlarm(storage),
    memory: new StoredGossip(storage, clock),
    authority: new IssuerAuthority(env, meta, nowS()),
    tuning: new GossipTuning(meta),
  };
}

function createGossipParts(
  ctx: ObjectContext,
  { stored, members, sockets }: { stored: StoredParts; members: SessionRegistry; sockets: GossipSockets },
  on: RegistryEvents,
) {
  const { authority, tuning, clock, memory } = stored;
  const remember = () => memory.changed(() => gossip.memory);
  const gossip: GatewayGossipDriver = new GatewayGossipDriver({
    clock: ctx.clock,
    id: authority.issuer.id,
    issuer: authority.issuer.issuer,
    replica: members.replica,
    options: tunedOptions(tuning.current),
    memory: memory.read(sockets.sessions.length > 0, members.sessions.open(), steadyNow()),
    send: (session, bytes) => sockets.send(session, bytes),
    hangUp: (session, reason, bannedUntil) => sockets.hangUp(session, reason, bannedUntil),
    changed: (sessions) => members.changed(sessions),
    liveness: (session, liveness) => paths.onLiveness(session, liveness),
    probe: (session) => on.probe(session),
    evict: (session) => members.signEviction(session),
    wakeAt: (at) => ctx.waitUntil(clock.wakeAt(at)),
    remembered: remember,
    waitUntil: (work) => ctx.waitUntil(work),
  });
  const paths: SessionReachability = new SessionReachability(members, gossip, remember);
  return { gossip, paths };
}
