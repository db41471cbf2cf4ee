/** LIMITS of one of several gateways: the primary counts for all while they are in contact. */
import type { LimitVerdict, Reservation } from '../../../accounts/limits/limiter.ts';
import type { Limits } from '../../../accounts/limits/limits.ts';
import type { AttemptSettlement, LimitsObject } from '../../../accounts/limits/limits-object.ts';
import { GPU_METER_PREFIX, meterIds } from '../../../accounts/limits/parties.ts';
import type { ObjectNamespace, ObjectStub } from '../../../platform/object-context.ts';
import { type QuotaShare, type RemoteUsage, shareReservation } from './quota-shares.ts';

type LimitsObjects = ObjectNamespace<LimitsObject>;
type LimitsStub = ObjectStub<LimitsObject>;
/** Methods of the primary's object that a follower calls directly. */
const FORWARDED_METHODS = ['reserve', 'release', 'correct', 'uses', 'used'] as const;
type ForwardedMethod = (typeof FORWARDED_METHODS)[number];

const NO_PART_WAIT_MS = 60_000;
/**
 * How long to wait for a primary that is connected but too slow; then the request is refused (503). A dead primary is
 * noticed before that.
 */
const PRIMARY_TIMEOUT_MS = 30_000;
const PAUSE_MS = 100;

/**
 * The primary's own requests: the whole limit, or what silent followers leave. `note` is called before usage of a
 * subject is recorded.
 */
export function primaryLimits(
  own: LimitsObjects,
  part: () => QuotaShare | undefined,
  note: (subject: string) => void,
): LimitsObjects {
  return overriding(own, (subject, stub) => ({
    settle: (...asked) => {
      note(subject);
      return stub.settle(...asked);
    },
    reserve: (asked) => {
      const now = part();
      return now === undefined ? stub.reserve(asked) : withPart(stub, asked, now);
    },
  }));
}

interface FollowersLimits {
  /** Calls the primary's object. Rejects if the primary is away. Repeated with the same `once` it takes effect once. */
  ask(subject: string, method: ForwardedMethod, args: unknown[], once?: string): Promise<unknown>;
  /**
   * Resolves to true when the primary has certainly noticed the silence, immediately if it has already. False: the
   * connection is back.
   */
  alone(): Promise<boolean>;
  part(): QuotaShare;
  /** A unique name for a call. */
  nonce(): string;
  pause(ms: number): Promise<void>;
  /** Milliseconds of a monotonic clock. */
  now(): number;
  /** Resolves when usage recorded here as the primary was handed over; later usage waits for that. */
  settled(): Promise<void>;
  note(subject: string): void;
  /** Stores the items on disk, for the primary. */
  handOver(
    subject: string,
    source: string,
    items: readonly { position: number; settlement: AttemptSettlement }[],
  ): void;
}

/** A follower's requests: counted by the primary, or by this gateway against its share if the primary is away. */
export function followerLimits(own: LimitsObjects, options: FollowersLimits): LimitsObjects {
  return overriding(own, (subject, stub) => ({
    reserve: async (asked): Promise<LimitVerdict> => {
      const once = options.nonce();
      const from = options.now();
      for (;;) {
        try {
          return (await options.ask(subject, 'reserve', [asked], once)) as LimitVerdict;
        } catch (error) {
          if (await options.alone()) return withPart(stub, asked, options.part());
          // The primary counts for all while it hears this gateway. Using a local share as well would exceed the limit.
          if (options.now() - from > PRIMARY_TIMEOUT_MS) {
            // It may have been granted there, and would hold that place for an hour.
            options.ask(subject, 'release', [asked.name, 0]).catch(() => {});
            throw error;
          }
          await options.pause(PAUSE_MS);
        }
      }
    },
    release: async (name, attempts) => {
      // One of the two granted it, and the other does not know the name. If this is lost, the settlement or the end of
      // the lease frees the place.
      await stub.release(name, attempts);
      await options.ask(subject, 'release', [name, attempts]).catch(() => {});
    },
    correct: async (items) => {
      await stub.correct(items);
      await options.ask(subject, 'correct', [items]).catch(() => {});
    },
    settle: async (source, items) => {
      await options.settled();
      options.note(subject);
      await stub.settle(source, items);
      options.handOver(subject, source, items);
    },
    uses: (asked) =>
      options
        .ask(subject, 'uses', [asked])
        // A primary of an earlier version has no limits of persons.
        .then((uses) => ({
          project: [],
          user: [],
          key: [],
          ...(uses as Partial<Awaited<ReturnType<LimitsStub['uses']>>>),
        }))
        .catch(() => stub.uses(asked)),
    used: (month) =>
      options.ask(subject, 'used', [month]).catch(() => stub.used(month)) as ReturnType<LimitsStub['used']>,
  }));
}

/** What other gateways recorded this month, as far as known: this gateway's share is added, up to the limit. */
async function elsewhere(stub: LimitsStub, asked: Reservation): Promise<RemoteUsage | undefined> {
  const { key, user, project } = asked;
  const sets = [key, user, project].flatMap((set) =>
    set === undefined ? [] : [set, ...Object.values(set.models ?? {})],
  );
  const monthly = sets.some((set: Limits) => (set.tokens_per_month ?? set.gpu_seconds_per_month) !== undefined);
  if (!monthly) return undefined;
  // By name: a project with many keys and models has tens of thousands.
  const ids = meterIds(asked).flatMap((id) => [id, `${GPU_METER_PREFIX}${id}`]);
  const counts = await stub.counts(new Date().toISOString().slice(0, 7), ids);
  return (id) => counts.reduce((sum, count) => sum + (count.id === id && count.origin !== '' ? count.tokens : 0), 0);
}

async function withPart(
  stub: LimitsStub,
  asked: Parameters<LimitsStub['reserve']>[0],
  part: QuotaShare,
): Promise<LimitVerdict> {
  const mine = shareReservation(asked, part, part.of === 'first' ? undefined : await elsewhere(stub, asked));
  if (!mine.nothing) return stub.reserve(mine.asked);
  const limit =
    asked.key?.requests_per_minute ?? asked.user?.requests_per_minute ?? asked.project?.requests_per_minute ?? 1;
  return {
    granted: false,
    scope: asked.key === undefined ? (asked.user === undefined ? 'project' : 'user') : 'key',
    shortage: { kind: 'requests', limit, waitMs: NO_PART_WAIT_MS, running: false },
    waitMs: NO_PART_WAIT_MS,
    soon: false,
    headers: {},
  };
}

/** `own`, with some methods of each object replaced. */
function overriding(
  own: LimitsObjects,
  methods: (name: string, stub: LimitsStub) => Partial<LimitsStub>,
): LimitsObjects {
  return {
    getByName: (name) => {
      const stub = own.getByName(name);
      return Object.assign(Object.create(stub) as LimitsStub, methods(name, stub));
    },
  };
}
