/** Every time and size of the core, with its reason. Tests and the simulator override some; both ends of a channel need not agree. */
export interface GossipOptions {
  /** Members on each side of the ring that a channel is kept to. 3: two neighbours share 4 helpers for an indirect probe. */
  ringReach: number;
  /** Channels dialled to random members. With those that others dial here about twice as many: they carry news across the ring. */
  randomLinks: number;
  /** One random channel is replaced so often, so that no set of peers surrounds a node for ever. A handshake costs 3 KB. */
  rotateMs: number;
  /** A cluster of so few is connected in full. */
  fullMesh: number;
  /** Channels that are not needed any more are closed after this: a ring that is still growing needs many of them again. */
  spareMs: number;
  /** Suspicions, refutations and words about keys go to the two ring neighbours and so many random peers: they are rare, and hurried. */
  fanout: number;
  /** One ring neighbour that may lack some news is asked about it after this, the other after twice this: longer than a wave takes. */
  lazyMs: number;
  /** In clusters of so few, the owner tells all and the others only ask each other whether it arrived. */
  tellAll: number;
  /** Between probes; every other one goes to the next on the ring, so that each member is probed at least every 2 probeMs. */
  probeMs: number;
  /** Part of an interval that is random, so that nodes started together do not stay in step. */
  jitter: number;
  /** A direct probe's answer. Grows up to `healthMax` times while this node errs (Lifeguard, arXiv 1707.00788) or peers answer late (RFC 6298). */
  directMs: number;
  healthMax: number;
  /** For helpers' verdicts. */
  indirectMs: number;
  /** For the relay's, which may have to wake an object first. */
  relayMs: number;
  /** How long a helper waits for the target; less than `indirectMs`, or its word would come too late. */
  helperMs: number;
  /** Helpers asked; as many again where no relay could tell. */
  helpers: number;
  /** A timer this late says that this process stood still. Answers may wait unread, so no peer is blamed yet. */
  lateMs: number;
  /** Between attempts to reach a suspected peer: without them two halves of a cluster would never meet again. */
  suspectMs: number;
  /** Grace between suspicion and eviction: from graceMin × graceMaxFactor down to graceMin as observers agree. */
  graceMinMs: number;
  graceMaxFactor: number;
  /** Factor on the longest grace if only the gateway's own path was tried. */
  graceLonelyFactor: number;
  /** A tunnel that closes has so long to come back before peers are asked about it. */
  reconnectMs: number;
  /** Evictions stop for `freezeMs` if more than this share of a cluster, at least `freezeMin`, turns suspect within `freezeWindowMs`. */
  freezeShare: number;
  freezeMin: number;
  freezeWindowMs: number;
  freezeMs: number;
  /** A session that is suspected again within `flapMaxMs` × 2 is trusted again after `flapMs`, then twice that, at most `flapMaxMs`. */
  flapMs: number;
  flapMaxMs: number;
  /** Least time between two suspicions of one observer against one target. */
  accuseMs: number;
  /** Per cluster and gateway. One instead of three loses foreign news for seconds when one message is lost. */
  delegates: number;
  /** All delegates together send a settled gateway one message in this time: 12 a minute are allowed, 10 are sent. */
  gatewayPaceMs: number;
  /** Of the pace of one delegate. */
  gatewayPaceMinMs: number;
  gatewayPaceMaxMs: number;
  /** A ping of a gateway that is not answered is repeated after this, then twice that, … */
  gatewayRetryMs: number;
  /** A delegate checks that the gateway has the news of its cluster after this. */
  gatewayCheckMs: number;
  /** A bucket that a push touched more recently is not compared: the difference is on its way. Per bucket: one guard for all starves. */
  quietMs: number;
  /** A pull that brings nothing for so long is given up, so that one dead peer does not stop repair. */
  pullMs: number;
  /** After a repair, peers are told at once that there is news, at most this often. */
  cascadeMs: number;
  /** A node that has no peer for so long, after its start or its last peer's end, joins a gateway until it has one. */
  lonelyMs: number;
  /** Islands: how often looked for, from which share of missing neighbours on, rounds between two lots, members drawn per cluster. */
  islandMs: number;
  islandShare: number;
  islandRounds: number;
  volunteers: number;
  /** Dials that fail are repeated after this, doubled each time up to `redialMaxMs`. */
  redialMs: number;
  redialMaxMs: number;
  /** At once. */
  dialsMax: number;
  /** Of two neighbours one is to dial. The other dials after this, in case the first cannot. */
  yieldMs: number;
  /** Open channels. Above this number, inbound channels that this node does not want are refused. */
  peersMax: number;
  /** Token bucket per peer: bytes that were not asked for. A cluster of 1,000 that starts at once stays below a tenth. */
  peerBytesPerSecond: number;
  peerBurstBytes: number;
  /** The same for what was asked for: replicas of 20,000 sessions at once. */
  askedBytesPerSecond: number;
  askedBurstBytes: number;
  /** Entries that a peer's digests may make this node ask for. The peer's answers are not charged to it. */
  wantsPerSecond: number;
  burstWants: number;
  /** Signatures that a peer may make this node check without being asked, and probes on its behalf. */
  peerChecksPerSecond: number;
  peerBurstChecks: number;
  /** News of one session that is passed on. More is kept here and found by digests: else a flooding session would have its peers banned. */
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
  relayMs: 600,
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
  flapMaxMs: 60_000,
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
