/** Limits at one of several gateways. The primary counts for all gateways that have contact with it. */

import { GPU_METER_PREFIX, meterIds } from '../../../accounts/limits/limit-subjects.ts';
import type { LimitVerdict, Reservation } from '../../../accounts/limits/limiter.ts';
import type { AttemptSettlement, LimitsObject } from '../../../accounts/limits/limits-object.ts';
import type { ObjectNamespace, ObjectStub } from '../../../platform/object-context.ts';
import type { Limits } from '../../../settings/limits-schema.ts';
import { type QuotaShare, type RemoteUsage, shareReservation } from './quota-shares.ts';

type LimitsObjects = ObjectNamespace<LimitsObject>;
type LimitsStub = ObjectStub<LimitsObject>;
/** Methods of the primary's limits object that a follower calls directly. */
const FORWARDED_METHODS = ['reserve', 'release', 'correct', 'uses', 'used'] as const;
type ForwardedMethod = (typeof FORWARDED_METHODS)[number];

const NO_PART_WAIT_MS = 60_000;
/**
 * Maximum wait for a primary that has contact but is too slow. Then the request is refused (503). A dead primary is
 * noticed earlier.
 */
const PRIMARY_TIMEOUT_MS = 30_000;
const PAUSE_MS = 100;

/**
 * Limits for the primary's own requests: the whole limit, or what followers without contact leave. `note` is called
 * before usage of a subject is recorded.
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
  /**
   * Calls the primary's limits object. Rejects if the primary cannot be reached. If repeated with the same `once`, it
   * takes effect once.
   */
  ask(subject: string, method: ForwardedMethod, args: unknown[], once?: string): Promise<unknown>;
  /**
   * Resolves to true when the primary has certainly noticed the lost contact, immediately if it already has. False:
   * contact is back.
   */
  alone(): Promise<boolean>;
  part(): QuotaShare;
  /** Returns a unique name for a call. */
  nonce(): string;
  pause(ms: number): Promise<void>;
  /** Returns milliseconds of a monotonic clock. */
  now(): number;
  /**
   * Resolves when the usage that this gateway recorded while it was the primary was sent to the new primary. Later
   * usage waits for it.
   */
  settled(): Promise<void>;
  note(subject: string): void;
  /** Stores items on disk, to be sent to the primary. */
  handOver(
    subject: string,
    source: string,
    items: readonly { position: number; settlement: AttemptSettlement }[],
  ): void;
}

/**
 * Limits for a follower's requests: counted by the primary, or by this gateway against its share while the primary
 * cannot be reached.
 */
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
          // The primary still counts this gateway as connected, and grants the whole limit. If this gateway already
          // used its share, the limit would be exceeded, so it asks the primary again.
          if (options.now() - from > PRIMARY_TIMEOUT_MS) {
            // The primary may have granted the request. Without this release it would count the request for an hour.
            options.ask(subject, 'release', [asked.name, 0]).catch(() => {});
            throw error;
          }
          await options.pause(PAUSE_MS);
        }
      }
    },
    release: async (name, attempts) => {
      // One of the two gateways granted the request, and the other does not know its name. If this call is lost, the
      // settlement or the end of the lease releases the request.
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
        // A primary of an earlier version has no limits of users.
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

/**
 * Returns what other gateways recorded this month, as far as this gateway knows. This gateway's share is added to that,
 * up to the limit.
 */
async function elsewhere(stub: LimitsStub, asked: Reservation): Promise<RemoteUsage | undefined> {
  const { key, user, project } = asked;
  const sets = [key, user, project].flatMap((set) =>
    set === undefined ? [] : [set, ...Object.values(set.models ?? {})],
  );
  const monthly = sets.some((set: Limits) => (set.tokens_per_month ?? set.gpu_seconds_per_month) !== undefined);
  if (!monthly) return undefined;
  // Only the needed meters are requested, because a project with many keys and models has tens of thousands of meters.
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

/** Maximum number of remembered stubs, about as many as the subjects that send requests in the same minutes. */
const STUBS_MAX = 4_096;

/**
 * Returns `own` with some methods of each object replaced. Stubs are remembered, because V8 optimizes no call of an
 * object with a new prototype.
 */
function overriding(
  own: LimitsObjects,
  methods: (name: string, stub: LimitsStub) => Partial<LimitsStub>,
): LimitsObjects {
  const stubs = new Map<string, LimitsStub>();
  return {
    getByName: (name) => {
      const known = stubs.get(name);
      if (known !== undefined) return known;
      const stub = own.getByName(name);
      const made = Object.assign(Object.create(stub) as LimitsStub, methods(name, stub));
      if (stubs.size >= STUBS_MAX) stubs.clear();
      stubs.set(name, made);
      return made;
    },
  };
}
