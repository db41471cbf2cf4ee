/**
 * Every time limit and size of the core, with its reason. Tests and the simulator replace some of them. The two ends of
 * a channel may use different options.
 */
export interface GossipOptions {
  /**
   * Number of members on each side of the ring with which a channel is kept open. With 3, two neighbors have channels
   * to 4 common members, which help with an indirect probe.
   */
  ringReach: number;
  /**
   * Number of channels that this node dials to random members. Other members dial about as many to this node. These
   * channels carry updates across the ring.
   */
  randomLinks: number;
  /**
   * One random channel is replaced per interval, so that no set of peers surrounds a node forever. A handshake costs 3
   * KB.
   */
  rotateMs: number;
  /** In a cluster of at most this size each member has a channel to every other member. */
  fullMesh: number;
  /**
   * How long a channel stays open after it was opened, even if it is no longer needed. While a ring grows, many such
   * channels are needed again.
   */
  spareMs: number;
  /**
   * Suspicions, refutations and statements about keys go to the two ring neighbors and this many random peers, because
   * they are rare and urgent. In clusters up to `tellAll` the first member sends them to all.
   */
  fanout: number;
  /**
   * After this time a node asks the next member on the ring whether it has an update. After twice this time it asks the
   * previous member. Longer than a broadcast takes.
   */
  lazyMs: number;
  /**
   * In clusters up to this size the first member that has an update sends it to all others. The others only ask the
   * next member whether the update arrived.
   */
  tellAll: number;
  /**
   * Interval between probes. Every second probe goes to the next member on the ring. So each member is probed at least
   * once in twice this time.
   */
  probeMs: number;
  /** The random part of an interval, as a fraction, so that nodes that started together do not stay synchronous. */
  jitter: number;
  /**
   * Time limit of a direct probe. It grows up to `healthMax` times if this node finds members silent that other members
   * reach (Lifeguard, arXiv 1707.00788), or if peers answer late (RFC 6298).
   */
  directMs: number;
  healthMax: number;
  /** Minimum time limit for the helpers' verdicts. */
  indirectMs: number;
  /** Time limit for the gateways' verdict. A gateway may first have to wake an object. */
  gatewayProbeMs: number;
  /**
   * Minimum time that a helper waits for the target. Less than `indirectMs`; otherwise the helper's verdict would
   * arrive too late.
   */
  helperMs: number;
  /**
   * Number of helpers per indirect probe. While gateways are asked about the target, the same number of further helpers
   * is asked.
   */
  helpers: number;
  /**
   * If a timer is late by more than this, this process was paused. Answers may be in its buffers, so no peer is
   * considered silent yet.
   */
  lateMs: number;
  /**
   * Average interval between attempts to reach suspected or unreachable members, one member at a time. Without these
   * attempts two halves of a cluster would never reconnect.
   */
  suspectMs: number;
  /**
   * Grace period between suspicion and eviction: graceMinMs × graceMaxFactor with one observer, down to graceMinMs if
   * more observers agree. In very large clusters the minimum is longer.
   */
  graceMinMs: number;
  graceMaxFactor: number;
  /** The longest grace period is multiplied by this if only the gateway's own path to the session failed. */
  graceLonelyFactor: number;
  /** Time in which a node can reopen a closed tunnel before its peers are asked about it. */
  reconnectMs: number;
  /**
   * Evictions stop for `freezeMs` if more than this share of a cluster, and at least `freezeMin` sessions, become
   * suspected within `freezeWindowMs`.
   */
  freezeShare: number;
  freezeMin: number;
  freezeWindowMs: number;
  freezeMs: number;
  /**
   * If a session is suspected again within `flapWindowMs`, it gets no requests for `flapMs` after it has answered, so
   * that the routing does not change at each lost message. Much shorter than requests wait in a queue, because the
   * session may be the only node of a model.
   */
  flapMs: number;
  flapWindowMs: number;
  /** Minimum time between two suspicions by one observer of one target. */
  accuseMs: number;
  /**
   * Number of delegates per cluster and gateway. With one instead of three, a lost message delays updates of other
   * clusters by seconds.
   */
  delegates: number;
  /**
   * If replicas do not differ, all delegates together send a gateway one message per this interval. The default is 10
   * messages a minute; a gateway allows 12.
   */
  gatewayPaceMs: number;
  /** Bounds of the interval between one delegate's messages to a gateway. */
  gatewayPaceMinMs: number;
  gatewayPaceMaxMs: number;
  /** An unanswered ping of a gateway is repeated after this time, then after twice that, and so on. */
  gatewayRetryMs: number;
  /** How long after a broadcast a delegate checks that the gateway has its cluster's updates. */
  gatewayCheckMs: number;
  /**
   * A bucket that a broadcast changed less than this time ago is not compared, because the change is still being sent.
   * The time counts for each bucket separately. Otherwise a busy cluster would never compare.
   */
  quietMs: number;
  /** A pull that got no answer for this long is given up, so that one dead peer does not stop repairs. */
  pullMs: number;
  /**
   * Minimum interval between two cascades. In a cascade this node makes other peers compare, after a repair brought it
   * new updates.
   */
  cascadeMs: number;
  /**
   * An agent that has had no agent as peer for one to two times this long opens channels to its gateways until it has
   * one.
   */
  lonelyMs: number;
  /** Interval at which an agent checks whether its cluster may be split. */
  islandMs: number;
  /**
   * If at least this share of an agent's neighbors, and at least two of them, are missing, the cluster may be split.
   */
  islandShare: number;
  /** Number of checks between two draws of volunteers. A volunteer opens channels to its gateways. */
  islandRounds: number;
  /** Expected number of volunteers per cluster in one draw. */
  volunteers: number;
  /**
   * A failed dial is repeated after this time, and each further one after twice the previous time, up to `redialMaxMs`.
   */
  redialMs: number;
  redialMaxMs: number;
  /** Maximum number of concurrent dials. */
  dialsMax: number;
  /**
   * Of two ring neighbors, the one with the lower id dials. If no channel has opened after this time, the other
   * neighbor dials.
   */
  yieldMs: number;
  /**
   * Maximum number of an agent's open channels. Above it, inbound channels that this agent does not want are closed.
   */
  peersMax: number;
  /**
   * Token bucket per peer for unrequested bytes. If 1,000 members of a cluster start together, each of them sends less
   * than a tenth of this.
   */
  peerBytesPerSecond: number;
  peerBurstBytes: number;
  /** Token bucket per peer for requested bytes. The burst suffices for a replica of 20,000 sessions. */
  askedBytesPerSecond: number;
  askedBurstBytes: number;
  /**
   * Token bucket per peer for the entries that this node requests because of that peer's digests. The bytes of its
   * answers count in `askedBytesPerSecond`.
   */
  wantsPerSecond: number;
  burstWants: number;
  /** Token bucket per peer for the signature checks and probes that it causes without being asked. */
  peerChecksPerSecond: number;
  peerBurstChecks: number;
  /**
   * Token bucket per session for passing on its updates. Further updates are stored but not passed on; other members
   * find them by comparing digests. Otherwise the peers that pass on the updates of a flooding session would be banned.
   */
  passPerSecond: number;
  passBurst: number;
  /** How long a peer that broke a rule is banned. */
  banMs: number;
}

export const DEFAULT_OPTIONS: GossipOptions = {
  ringReach: 3,
  randomLinks: 2,
  rotateMs: 300_000,
  fullMesh: 17,
  spareMs: 10_000,
  fanout: 2,
  lazyMs: 20,
  tellAll: 10,
  probeMs: 1000,
  jitter: 0.1,
  directMs: 200,
  healthMax: 8,
  indirectMs: 350,
  gatewayProbeMs: 600,
  helperMs: 250,
  helpers: 3,
  lateMs: 50,
  suspectMs: 2000,
  graceMinMs: 20_000,
  graceMaxFactor: 3,
  graceLonelyFactor: 4,
  reconnectMs: 10_000,
  freezeShare: 0.15,
  freezeMin: 3,
  freezeWindowMs: 30_000,
  freezeMs: 600_000,
  flapMs: 10_000,
  flapWindowMs: 120_000,
  accuseMs: 5000,
  delegates: 3,
  gatewayPaceMs: 6000,
  gatewayPaceMinMs: 15_000,
  gatewayPaceMaxMs: 300_000,
  gatewayRetryMs: 3000,
  gatewayCheckMs: 1000,
  quietMs: 100,
  pullMs: 1000,
  cascadeMs: 250,
  lonelyMs: 1000,
  islandMs: 5000,
  islandShare: 0.2,
  islandRounds: 12,
  volunteers: 6,
  redialMs: 1000,
  redialMaxMs: 60_000,
  dialsMax: 16,
  yieldMs: 300,
  peersMax: 64,
  peerBytesPerSecond: 256 * 1024,
  peerBurstBytes: 4 * 1024 * 1024,
  askedBytesPerSecond: 2 * 1024 * 1024,
  askedBurstBytes: 16 * 1024 * 1024,
  wantsPerSecond: 400,
  burstWants: 8192,
  peerChecksPerSecond: 200,
  peerBurstChecks: 4000,
  passPerSecond: 1,
  passBurst: 20,
  banMs: 600_000,
};
