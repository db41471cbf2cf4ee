/**
 * Inputs and outputs of the gossip core. `step` (index.ts) takes one event and returns the actions that its driver must
 * carry out, in order; nothing else happens in between. It has three drivers: an agent's mesh, a gateway's registry
 * object, and the simulator of test/sim.
 */
import type { Crypto, Signer } from '../lattice/crypto-interface.ts';
import type { RegistryReplica } from '../lattice/registry-replica.ts';
import type { Update } from '../lattice/registry-update.ts';
import type { TunableOptions } from './failure-detection-settings.ts';
import type { GossipOptions } from './gossip-options.ts';

/** A session id, or `gw:` and the gateway's key in lower-case base32. */
export type PeerId = string;

/** What one path found out about a session. `unknown`: the path could not be tried, which proves nothing. */
export type PathVerdict = 'alive' | 'silent' | 'unknown';

/**
 * Not part of the lattice: each replica judges for itself.
 * - `alive`: nothing speaks against it
 * - `unreachable`: this node does not reach it, others do. Not routed to from here, never evicted for it
 * - `suspected`: no path reaches it. No node routes to it until its owner refutes
 */
export type Liveness = 'alive' | 'unreachable' | 'suspected';

/** An observer's signed statement that no path reached `target` at this incarnation. */
export interface Suspicion {
  target: string;
  incarnation: number;
  observer: string;
  signature: Uint8Array;
  /** The target's signature for its incarnation, so that no other node can raise it; none for 0. */
  proof: Uint8Array | undefined;
}

/** The target's signed statement that it is alive. */
export interface Refutation {
  session: string;
  incarnation: number;
  signature: Uint8Array;
}

export type GossipSelf =
  | {
      kind: 'agent';
      session: string;
      cluster: string;
      /** Name of the machine: probes through the same machine are not independent. */
      host: string;
    }
  /** `id` is `gw:…`. `issuer`: the issuer it signs for; it evicts only that issuer's sessions. */
  | { kind: 'gateway'; id: PeerId; issuer: string };

export interface GossipSetup {
  self: GossipSelf;
  replica: RegistryReplica;
  crypto: Crypto;
  /** The session's signer, for its own refutations and its suspicions of others. A gateway signs nothing here. */
  signer?: Signer;
  options?: Partial<GossipOptions>;
  /** Of a gateway's object that hibernated: the result of `remember`. */
  memory?: GossipMemory;
}

/** The `now` passed with an event is in ms, monotonic, and has no other meaning. */
export type GossipEvent =
  /** The first event. The result names the first timer. */
  | { type: 'start' }
  /** The time requested by the last `timer` action has come. Early, late or twice is harmless. */
  | { type: 'timer' }
  /**
   * An authenticated channel is open. `resumed`: the driver hibernated while the channel stayed open; nothing is sent
   * on it now.
   */
  | { type: 'opened'; peer: PeerId; inbound: boolean; resumed?: boolean }
  /** Not sent for a channel that another channel to the same peer has replaced. */
  | { type: 'closed'; peer: PeerId }
  | { type: 'dialFailed'; peer: PeerId }
  | { type: 'message'; peer: PeerId; bytes: Uint8Array }
  /**
   * Updates that arrived by another path than gossip and must be passed on. At an agent: its own new record. At a
   * gateway: a record that came up a tunnel, or an update that its issuer signed. The driver may have merged them into
   * the replica already.
   */
  | { type: 'local'; updates: readonly Update[] }
  /** Reply to `askRelay`. Late replies are ignored. */
  | { type: 'relayed'; target: string; verdict: PathVerdict }
  /**
   * Agent only: all gateways that have accepted this session on a tunnel. Sent again whenever a tunnel to one of them
   * opens.
   */
  | { type: 'gateways'; gateways: readonly PeerId[] }
  /**
   * Gateway only: a session's tunnel to this gateway opened or closed. Open, again: the session spoke on it after a
   * silence.
   */
  | { type: 'tunnel'; session: string; open: boolean }
  /** A request to this session got no answer in time: judge it now, not at its turn. */
  | { type: 'doubt'; session: string }
  /** The driver changed the replica itself, e.g. by another list of issuers. */
  | { type: 'replaced'; sessions: readonly string[] }
  /** The operator changed the times. They apply to running timers, too. */
  | { type: 'tuned'; options: TunableOptions };

export type GossipAction =
  | { type: 'send'; peer: PeerId; bytes: Uint8Array }
  /**
   * Open a channel unless there is one. `addresses` are host:port as published, none for a gateway. Reply: `opened` or
   * `dialFailed`.
   */
  | { type: 'dial'; peer: PeerId; addresses: readonly string[] }
  /** Close the channel and reply with `closed`. `banMs`: accept none from this peer for this long. */
  | { type: 'hangUp'; peer: PeerId; reason: HangUpReason; banMs: number }
  /** One timer per state; this one replaces the previous. Never in one batch with another. */
  | { type: 'timer'; at: number }
  /** Entries of the replica that changed, or were removed by a floor or a revocation. */
  | { type: 'changed'; sessions: readonly string[] }
  | { type: 'liveness'; session: string; liveness: Liveness }
  /**
   * Agent: ask through the own tunnels whether the target answers. Gateway: ask the target's tunnel object. Reply:
   * `relayed`.
   */
  | { type: 'askRelay'; target: string }
  /** Gateway only: the session's grace is over. The driver signs the eviction and passes it as `local`. */
  | { type: 'evict'; session: string }
  /**
   * Agent only: this session is over and cannot come back; start a new one. `evicted`: its issuer said so, or its floor
   * passed it. `cloned`: another process signs with this session's key: publish LEFT.
   */
  | { type: 'ended'; reason: 'evicted' | 'cloned' }
  /** For the log and for operators; nothing depends on it. */
  | { type: 'notice'; notice: GossipNotice };

export type HangUpReason =
  /** The channel is one of many and not needed now. */
  | 'spare'
  /** A rule of the protocol was broken: undecodable bytes, an invalid signature. */
  | 'broken'
  /** The peer sent more than its share: see the limits in gossip-options.ts. */
  | 'flood'
  /** The peer was banned and came back too early. */
  | 'banned'
  /** The session is LEFT or its ticket is no longer valid. */
  | 'left';

export type GossipNotice =
  /** Too many sessions of one cluster became suspects together: this gateway evicts none of them until `until`. */
  | { what: 'frozen'; cluster: string; until: number }
  | { what: 'thawed'; cluster: string }
  /** One owner signed two records of the same rank. */
  | { what: 'equivocation'; session: string; records: readonly Uint8Array[] }
  | { what: 'rejected'; peer: PeerId; code: string };

/** What a gateway must keep while its object hibernates. Structured-cloneable. */
export interface GossipMemory {
  words: readonly (Suspicion | Refutation)[];
  suspects: readonly { session: string; since: number; lonely: boolean }[];
  /** Sessions whose tunnel is closed, and since when. */
  absent: readonly (readonly [session: string, since: number])[];
  frozen: readonly (readonly [cluster: string, until: number])[];
}
