/** LIMITS of a gateway that is one of several: the first counts for all while they hear each other. */
import type { Verdict } from '../../../accounts/limits/limiter.ts';
import type { LimitsObject, Settlement } from '../../../accounts/limits/limits-object.ts';
import type { ObjectNamespace, ObjectStub } from '../../../object-context.ts';
import { type Part, shared } from './shares.ts';

type Limits = ObjectNamespace<LimitsObject>;
type LimitsStub = ObjectStub<LimitsObject>;
/** What a follower asks of the first's object at once. */
export const ASKED_METHODS = ['reserve', 'release', 'correct', 'uses', 'used'] as const;
export type AskedMethod = (typeof ASKED_METHODS)[number];

const NO_PART_WAIT_MS = 60_000;

/** The first's own requests: the whole, or what silent followers leave. */
export function limitsOfFirst(own: Limits, part: () => Part | undefined): Limits {
  return overriding(own, (_, stub) => ({
    reserve: (asked) => {
      const now = part();
      return now === undefined ? stub.reserve(asked) : withPart(stub, asked, now);
    },
  }));
}

interface FollowersLimits {
  /** Asks the first's object. Rejects where the first is away. */
  ask(subject: string, method: AskedMethod, args: unknown[]): Promise<unknown>;
  /** Resolves when the first has surely noticed that it is not heard, or at once where that is so. False: it is heard again. */
  alone(): Promise<boolean>;
  part(): Part;
  /** On disk, for the first. */
  handOver(subject: string, source: string, items: readonly { position: number; settlement: Settlement }[]): void;
}

/** A follower's requests: counted by the first; where that is away, by this gateway against its part. */
export function limitsOfFollower(own: Limits, options: FollowersLimits): Limits {
  return overriding(own, (subject, stub) => ({
    reserve: async (asked): Promise<Verdict> => {
      for (let tries = 0; tries < 3; tries++) {
        try {
          return (await options.ask(subject, 'reserve', [asked])) as Verdict;
        } catch {
          if (await options.alone()) break;
        }
      }
      return withPart(stub, asked, options.part());
    },
    release: async (name, used) => {
      // One of the two granted it; the other does not know the name. Unheard, its settlement or its lease frees the place too.
      await stub.release(name, used);
      await options.ask(subject, 'release', [name, used]).catch(() => {});
    },
    correct: async (items) => {
      await stub.correct(items);
      await options.ask(subject, 'correct', [items]).catch(() => {});
    },
    settle: async (source, items) => {
      await stub.settle(source, items);
      options.handOver(subject, source, items);
    },
    uses: (asked) =>
      options.ask(subject, 'uses', [asked]).catch(() => stub.uses(asked)) as ReturnType<LimitsStub['uses']>,
    used: (month) =>
      options.ask(subject, 'used', [month]).catch(() => stub.used(month)) as ReturnType<LimitsStub['used']>,
  }));
}

async function withPart(stub: LimitsStub, asked: Parameters<LimitsStub['reserve']>[0], part: Part): Promise<Verdict> {
  const mine = shared(asked, part);
  if (!mine.nothing) return stub.reserve(mine.asked);
  const limit = asked.key?.requests_per_minute ?? asked.project?.requests_per_minute ?? 1;
  return {
    granted: false,
    scope: asked.key === undefined ? 'project' : 'key',
    shortage: { kind: 'requests', limit, waitMs: NO_PART_WAIT_MS, running: false },
    waitMs: NO_PART_WAIT_MS,
    soon: false,
    headers: {},
  };
}

/** `own`, with some methods of each object in the place of its own. */
function overriding(own: Limits, methods: (name: string, stub: LimitsStub) => Partial<LimitsStub>): Limits {
  return {
    getByName: (name) => {
      const stub = own.getByName(name);
      return Object.assign(Object.create(stub) as LimitsStub, methods(name, stub));
    },
  };
}
