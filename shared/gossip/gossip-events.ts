/**
 * Inputs and outputs of the gossip core. `step` (index.ts) takes one event, and returns the actions that its driver
 * must carry out, in order, before the next event. It has three drivers: an agent's mesh, a gateway's registry object,
 * and the simulator of test/sim.
 */
import type { Crypto, Signer } from '../lattice/crypto-interface.ts';
import type { RegistryReplica } from '../lattice/registry-replica.ts';
import type { Update } from '../lattice/registry-update.ts';
import type { TunableOptions } from './failure-detection-settings.ts';
import type { GossipOptions } from './gossip-options.ts';

/** A session id, or `gw:` and the gateway's key in lower-case base32. */
export type PeerId = string;

/** The result of testing one path to a session. `unknown`: the path could not be tried, which proves nothing. */
export type PathVerdict = 'alive' | 'silent' | 'unknown';

/**
 * Liveness of a session. Not part of the lattice: each replica judges for itself.
 * - `alive`: there is no evidence against it.
 * - `unreachable`: this node does not reach it, but others do. This node does not route to it, and it is not evicted
 * for that.
 * - `suspected`: no path reaches it. No node routes to it until its owner refutes.
 */
export type Liveness = 'alive' | 'unreachable' | 'suspected';

/** An observer's signed statement that no path reaches `target`. It is about one incarnation of the target. */
export interface Suspicion {
  target: string;
  incarnation: number;
  observer: string;
  signature: Uint8Array;
  /**
   * The target's signature for `incarnation`, which shows that no other node has raised it; undefined for incarnation
   * 0.
   */
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
      /** Name of the machine. Probes through the same machine are not independent. */
      host: string;
    }
  /** `id` is `gw:…`. `issuer`: the issuer for which the gateway signs; it evicts only that issuer's sessions. */
  | { kind: 'gateway'; id: PeerId; issuer: string };

export interface GossipSetup {
  self: GossipSelf;
  replica: RegistryReplica;
  crypto: Crypto;
  /**
   * The session's signer, for its refutations and its suspicions of others. Absent at a gateway, which signs nothing
   * here.
   */
  signer?: Signer;
  options?: Partial<GossipOptions>;
  /** The result of `saveState`, for a gateway's object that has hibernated. */
  memory?: GossipMemory;
}

/** The `now` passed with an event is in ms of a monotonic clock, and has no other meaning. */
export type GossipEvent =
  /** The first event. Its actions set the first timer. */
  | { type: 'start' }
  /** The time of the last `timer` action has come. It is harmless if this event comes early, late or twice. */
  | { type: 'timer' }
  /**
   * An authenticated channel is open. `resumed`: the channel stayed open while the driver hibernated, so no first ping
   * is sent on it.
   */
  | { type: 'opened'; peer: PeerId; inbound: boolean; resumed?: boolean }
  /** Not sent for a channel that another channel to the same peer has replaced. */
  | { type: 'closed'; peer: PeerId }
  | { type: 'dialFailed'; peer: PeerId }
  | { type: 'message'; peer: PeerId; bytes: Uint8Array }
  /**
   * Updates that did not arrive by gossip and must be passed on. At an agent: its own new record. At a gateway: a
   * record from a tunnel, or an update that its issuer signed. The driver may already have merged them into the
   * replica.
   */
  | { type: 'local'; updates: readonly Update[] }
  /** Reply to `askGateway`. Late replies are ignored. */
  | { type: 'gatewayAnswered'; target: string; verdict: PathVerdict }
  /**
   * Only at an agent: all gateways that have accepted this session on a tunnel. Sent again whenever a tunnel to one of
   * them opens.
   */
  | { type: 'gateways'; gateways: readonly PeerId[] }
  /**
   * Only at a gateway: a session's tunnel to this gateway opened or closed. `open` is true again if the session sends
   * something on its tunnel after a silence.
   */
  | { type: 'tunnel'; session: string; open: boolean }
  /** A request to this session was not answered in time: probe the session now, before its turn. */
  | { type: 'doubt'; session: string }
  /** The driver has changed the replica itself, for example after a new list of issuers. */
  | { type: 'replaced'; sessions: readonly string[] }
  /** The operator changed the times. They also apply to running timers. */
  | { type: 'tuned'; options: TunableOptions };

export type GossipAction =
  | { type: 'send'; peer: PeerId; bytes: Uint8Array }
  /**
   * Open a channel unless there is one. `addresses` are host:port as published; a gateway has none. Reply: `opened` or
   * `dialFailed`.
   */
  | { type: 'dial'; peer: PeerId; addresses: readonly string[] }
  /**
   * Close the channel and reply with `closed`. `banMs`: milliseconds during which new channels of this peer are
   * refused.
   */
  | { type: 'hangUp'; peer: PeerId; reason: HangUpReason; banMs: number }
  /** Set the only timer of the core; it replaces the previous one. At most one such action per step. */
  | { type: 'timer'; at: number }
  /** Entries of the replica that changed, or that a watermark or a revocation removed. */
  | { type: 'changed'; sessions: readonly string[] }
  | { type: 'liveness'; session: string; liveness: Liveness }
  /**
   * Agent: ask gateways through this agent's tunnels whether the target answers. Gateway: ask the target's tunnel
   * object. Reply: `gatewayAnswered`.
   */
  | { type: 'askGateway'; target: string }
  /** Only at a gateway: the session's grace period is over. The driver signs the eviction and passes it as `local`. */
  | { type: 'evict'; session: string }
  /**
   * Only at an agent: this session has ended permanently; start a new one. `evicted`: its issuer evicted it, or a
   * watermark removed it. `cloned`: another process signs with this session's key, so publish LEFT.
   */
  | { type: 'ended'; reason: 'evicted' | 'cloned' }
  /** For the log and for operators. Nothing depends on it. */
  | { type: 'notice'; notice: GossipNotice };

export type HangUpReason =
  /** The channel is not needed now. */
  | 'spare'
  /** The peer broke a rule of the protocol: undecodable bytes, or an invalid signature. */
  | 'broken'
  /** The peer sent more than its limits allow; see gossip-options.ts. */
  | 'flood'
  /** The peer was banned and came back too early. */
  | 'banned'
  /** The session is LEFT, or its ticket is no longer valid. */
  | 'left';

export type GossipNotice =
  /** Too many sessions of one cluster became suspected together. This gateway evicts none of them before `until`. */
  | { what: 'frozen'; cluster: string; until: number }
  | { what: 'thawed'; cluster: string }
  /** The owner of a session signed two different records with the same rank. */
  | { what: 'equivocation'; session: string; records: readonly Uint8Array[] }
  | { what: 'rejected'; peer: PeerId; code: string };

/** State that a gateway must keep while its object hibernates. Structured-cloneable. */
export interface GossipMemory {
  words: readonly (Suspicion | Refutation)[];
  suspects: readonly { session: string; since: number; lonely: boolean }[];
  /** Sessions without a tunnel, and since when. */
  absent: readonly (readonly [session: string, since: number])[];
  frozen: readonly (readonly [cluster: string, until: number])[];
}
