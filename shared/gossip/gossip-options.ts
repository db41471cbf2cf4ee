/**
 * Every time and size of the core, with its reason. Tests and the simulator override some. The two ends of a channel
 * need not agree.
 */
export interface GossipOptions {
  /**
   * Number of members on each side of the ring to which a channel is kept. With 3, two neighbors share 4 helpers for an
   * indirect probe.
   */
  ringReach: number;
  /**
   * Number of channels dialed to random members. Together with inbound ones there are about twice as many. They carry
   * updates across the ring.
   */
  randomLinks: number;
  /**
   * One random channel is replaced per interval, so that no set of peers surrounds a node forever. A handshake costs 3
   * KB.
   */
  rotateMs: number;
  /** A cluster of at most this size is fully connected. */
  fullMesh: number;
  /**
   * How long a channel stays open after it is no longer needed. A ring that is still growing needs many such channels
   * again.
   */
  spareMs: number;
  /**
   * Suspicions, refutations and statements about keys go to the two ring neighbors and this many random peers: they are
   * rare and urgent.
   */
  fanout: number;
  /**
   * After this time the next ring neighbor is asked whether it has an update, and after twice this time the previous
   * neighbor is asked. Longer than a broadcast takes.
   */
  lazyMs: number;
  /**
   * In clusters up to this size the owner of an update informs all members, and the others only ask each other whether
   * it arrived.
   */
  tellAll: number;
  /**
   * Interval between probes. Every other probe goes to the next member on the ring, so each member is probed at least
   * once in twice this time.
   */
  probeMs: number;
  /** The random part of an interval, as a fraction, so that nodes that started together do not stay synchronous. */
  jitter: number;
  /**
   * Time limit of a direct probe. Grows up to `healthMax` times if this node finds targets silent that others reach
   * (Lifeguard, arXiv 1707.00788), or if peers answer late (RFC 6298).
   */
  directMs: number;
  healthMax: number;
  /** Time limit for helpers' verdicts. */
  indirectMs: number;
  /** Time limit of the gateways' verdict. A gateway may have to wake an object first. */
  gatewayProbeMs: number;
  /** How long a helper waits for the target. Less than `indirectMs`, otherwise its verdict would arrive too late. */
  helperMs: number;
  /** Number of helpers. While gateways are asked about the target, the same number of other helpers is asked, too. */
  helpers: number;
  /**
   * A timer that is late by more than this means that this process was paused. Answers may wait unread, so no peer is
   * blamed yet.
   */
  lateMs: number;
  /**
   * Interval between attempts to reach a suspected peer. Without them two halves of a cluster would never reconnect.
   */
  suspectMs: number;
  /**
   * Grace period between suspicion and eviction: from graceMinMs × graceMaxFactor down to graceMinMs as observers
   * agree.
   */
  graceMinMs: number;
  graceMaxFactor: number;
  /** The longest grace period is multiplied by this if only the gateway's own path was tried. */
  graceLonelyFactor: number;
  /** How long a closed tunnel may take to reconnect before peers are asked about its node. */
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
   * A session that is suspected again within `flapWindowMs` is held back for `flapMs` after it answered, so that the
   * routing does not change with each loss. Much shorter than requests wait, because it may be the only node of a model.
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
   * If there are no differences, all delegates together send a gateway one message per this interval. This default
   * sends 10 of the 12 messages a minute that a gateway allows.
   */
  gatewayPaceMs: number;
  /** Bounds of the interval between one delegate's messages to a gateway. */
  gatewayPaceMinMs: number;
  gatewayPaceMaxMs: number;
  /** An unanswered ping of a gateway is repeated after this time, then after twice that, and so on. */
  gatewayRetryMs: number;
  /** How long after a push a delegate checks that the gateway has its cluster's updates. */
  gatewayCheckMs: number;
  /**
   * A bucket that a push touched more recently is not compared, because the difference is being sent. Each bucket has
   * its own time. With one time for all buckets, a busy cluster would never compare.
   */
  quietMs: number;
  /** A pull without results for this long is given up, so that one dead peer does not stop the repair. */
  pullMs: number;
  /** Minimum interval at which peers are made to compare after a repair. */
  cascadeMs: number;
  /** A node that has had no peer for this long joins a gateway until it has one. */
  lonelyMs: number;
  /** Interval at which a member checks whether its cluster may be split. */
  islandMs: number;
  /**
   * If at least this share of a member's neighbors, and at least two of them, are missing, the cluster may be split.
   */
  islandShare: number;
  /** Number of checks between two draws of volunteers, which join the gateways. */
  islandRounds: number;
  /** Expected number of volunteers per cluster in one draw. */
  volunteers: number;
  /** Failed dials are repeated after this time, doubled each time up to `redialMaxMs`. */
  redialMs: number;
  redialMaxMs: number;
  /** Maximum number of concurrent dials. */
  dialsMax: number;
  /** One of two neighbors dials. If it could not, the other neighbor dials after this time. */
  yieldMs: number;
  /** Maximum number of open channels. Above it, inbound channels that this node does not want are refused. */
  peersMax: number;
  /**
   * Token bucket per peer for unrequested bytes. If 1,000 members of a cluster start together, each sends less than a
   * tenth of this.
   */
  peerBytesPerSecond: number;
  peerBurstBytes: number;
  /** Token bucket per peer for requested bytes. The burst is enough for a replica of 20,000 sessions. */
  askedBytesPerSecond: number;
  askedBurstBytes: number;
  /** Entries that a peer's digests may make this node request. The peer's answers are not charged to it. */
  wantsPerSecond: number;
  burstWants: number;
  /** Signature checks and probes that a peer may cause without being asked. */
  peerChecksPerSecond: number;
  peerBurstChecks: number;
  /**
   * Updates of one session that are passed on. Further updates are stored but not passed on, and other members find
   * them by comparing digests. Otherwise a session that floods would get its peers banned.
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
