import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { EXIT_DONE, type Flags, parseLine, UsageError } from '../../shared/command-line/index.ts';
import { PLAN_ORIGINS_MAX } from '../../shared/routing/region-shares.ts';
import type { Io } from '../../shared/terminal/command-io.ts';
import type { HardwareCatalogue } from '../catalogue/catalogue.ts';
import { findGpu } from '../catalogue/catalogue.ts';
import { SchedulerError } from '../errors.ts';
import { GatewayRefusal, gatewayFrom, type PlannerGateway } from '../live/planner-gateway.ts';
import type { RegionFacts } from '../live/region-facts.ts';
import type { ChampionChallenger } from '../regions/live/champion-challenger.ts';
import { readEvidence, writeEvidence } from '../regions/live/evidence-file.ts';
import { GatewayObserver } from '../regions/live/gateway-observer.ts';
import type { OriginView } from '../regions/live/merge-origins.ts';
import { PlanPublisher } from '../regions/live/plan-publisher.ts';
import { readPriceTable } from '../regions/live/price-file.ts';
import type { LivePlan } from '../regions/live/region-planner.ts';
import { writeWarm } from '../regions/live/warm-plan-files.ts';
import { CATALOGUE_FLAGS, catalogueFrom, numberFlag, requiredFlag, textFlag } from './flags.ts';
import { policiesFrom, SMOOTHNESS_MIN } from './region-policies.ts';
import { regionsText } from './regions-text.ts';

export const REGIONS_FLAGS = {
  gpus: CATALOGUE_FLAGS.gpus,
  gateway: { value: 'URL', help: 'URL of the gateway; with several processes: of one of them' },
  origin: {
    value: 'URL',
    repeat: true,
    help: 'URL of another process of the gateway, with its own shares if it has a GATEWAY_REGION; repeat',
  },
  'key-file': { value: 'FILE', takes: 'file', help: "file with an operator's API key" },
  every: { value: 'S', otherwise: '45', help: 'seconds per slot' },
  apply: { help: 'send the shares to the gateway, not only print them' },
  warm: {
    value: 'DIR',
    takes: 'file',
    help: 'with --apply: write REGION.json here, a plan for the otela-factory of each region',
  },
  prices: {
    value: 'FILE',
    takes: 'file',
    help: 'with --apply: price table to send to the gateway, also after each change of the file',
  },
  model: { value: 'MODEL', repeat: true, help: 'plan only these models; others are routed by their policies' },
  planner: { value: 'NAME', help: 'name of this planner; default: a random name' },
  'usd-worth': { value: 'S', otherwise: '10000', help: 'seconds of response time that equal one saved US dollar' },
  smoothness: { value: 'S', otherwise: '0.5', help: 'penalty for changing the shares' },
  concurrency: {
    value: 'N',
    otherwise: '16',
    help: 'concurrent requests of a node, until a node with a queue is observed',
  },
  forecast: {
    value: 'smoothing|best',
    otherwise: 'smoothing',
    help: 'forecast of requests; best: the method that a backtest on the recent slots chooses',
  },
  challenger: {
    value: 'POLICY',
    repeat: true,
    help: 'a policy that plans in shadow, and live while it is cheaper: forecast=best, forecast=smoothing, smoothness=S, or policy=FILE with a learned policy; repeat',
  },
  evidence: {
    value: 'FILE',
    takes: 'file',
    help: 'with --challenger: keep the evidence in this file, and continue with it after a restart',
  },
  slots: { value: 'N', help: 'exit after this many plans' },
} as const satisfies Flags;

type RegionsFlags = ReturnType<typeof parseLine<typeof REGIONS_FLAGS>>['values'];

/**
 * Number of slots for which a plan is valid if no newer plan replaces it. After that, the gateway routes by its policy
 * again.
 */
const HOLDS_SLOTS = 4;
const HOLDS_MIN_MS = 10_000;
/** Assumed power of a GPU that is not in the catalogue, and of a node without a GPU, watts. */
const WATTS_GUESS = 400;

/** Access to the outside, which tests replace. */
interface RegionsOutside {
  fetch?: typeof fetch;
  now?: () => number;
  signal?: AbortSignal;
  /** Waits this many ms, or throws when the command ends. */
  wait?: (ms: number, signal: AbortSignal) => Promise<unknown>;
}

/**
 * `otela-plan regions`: observes and plans each slot and, with --apply, publishes the plan. After it ends, the last
 * plan stays until it expires.
 */
export async function regionsCommand(argv: readonly string[], io: Io, outside: RegionsOutside = {}): Promise<number> {
  const flags = parseLine(argv, REGIONS_FLAGS).values;
  const slotS = numberFlag(flags, 'every', 45, { min: 1, max: 3_600 });
  const slots = numberFlag(flags, 'slots', Number.POSITIVE_INFINITY, { min: 1 });
  const keyFile = textFlag(flags, 'key-file');
  const gateway = gatewayFrom(requiredFlag(flags, 'gateway'), keyFile, outside.fetch);
  if (flags.origin.length >= PLAN_ORIGINS_MAX)
    throw new UsageError(`--origin: at most ${PLAN_ORIGINS_MAX - 1} other gateways are allowed`);
  const only = flags.model.length === 0 ? undefined : new Set(flags.model);
  const observed = {
    only,
    slotS,
    concurrency: numberFlag(flags, 'concurrency', 16, { min: 1, max: 100_000 }),
    watts: wattsOf(catalogueFrom(flags), io),
  };
  const others = flags.origin.map((url) => gatewayFrom(url, keyFile, outside.fetch));
  const loop = new Loop({
    gateway,
    io,
    apply: flags.apply === true,
    warm: textFlag(flags, 'warm'),
    prices: textFlag(flags, 'prices'),
    now: outside.now ?? Date.now,
    first: new GatewayObserver({ gateway, ...observed }),
    others: others.map((one) => new GatewayObserver({ gateway: one, ...observed })),
    policies: contestFrom(flags, slotS, io),
    evidence: textFlag(flags, 'evidence'),
    publisher: new PlanPublisher({
      gateway,
      planner: textFlag(flags, 'planner') ?? randomUUID().slice(0, 8),
      holdsMs: Math.max(HOLDS_MIN_MS, HOLDS_SLOTS * slotS * 1e3),
    }),
  });
  const over = new AbortController();
  const end = () => over.abort();
  if (outside.signal) outside.signal.addEventListener('abort', end);
  else for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, end);
  const wait = outside.wait ?? ((ms, signal) => sleep(ms, undefined, { signal }));
  try {
    for (let planned = 0; !over.signal.aborted && outside.signal?.aborted !== true; ) {
      if (await loop.look()) planned++;
      if (planned >= slots) break;
      await wait(slotS * 1e3, over.signal).catch(() => over.abort());
    }
    return EXIT_DONE;
  } finally {
    process.removeListener('SIGINT', end);
    process.removeListener('SIGTERM', end);
  }
}

/** @throws UsageError; SchedulerError for a broken file */
function contestFrom(flags: RegionsFlags, slotS: number, io: Io): ChampionChallenger {
  const evidence = textFlag(flags, 'evidence');
  if (evidence !== undefined && flags.challenger.length === 0)
    throw new UsageError('--evidence needs at least one --challenger');
  const policies = policiesFrom(
    {
      slotS,
      secondsPerUsd: numberFlag(flags, 'usd-worth', 10_000),
      smoothness: numberFlag(flags, 'smoothness', 0.5, { min: SMOOTHNESS_MIN }),
    },
    textFlag(flags, 'forecast'),
    flags.challenger,
  );
  for (const line of evidence === undefined ? [] : policies.restore(readEvidence(evidence))) io.log(line);
  return policies;
}

function wattsOf(catalogue: HardwareCatalogue, io: Io): (gpu: string | null) => number {
  const known = new Map<string, number>();
  return (gpu) => {
    if (gpu === null) return WATTS_GUESS;
    let watts = known.get(gpu);
    if (watts === undefined) {
      watts = wattsIn(catalogue, gpu);
      if (watts === undefined)
        io.log(`the catalogue does not know ${gpu}: assuming ${WATTS_GUESS} W (add it with --gpus)`);
      watts ??= WATTS_GUESS;
      known.set(gpu, watts);
    }
    return watts;
  };
}

function wattsIn(catalogue: HardwareCatalogue, gpu: string): number | undefined {
  try {
    return findGpu(catalogue, gpu).watts;
  } catch (error) {
    if (error instanceof SchedulerError) return undefined;
    throw error;
  }
}

interface LoopOptions {
  gateway: PlannerGateway;
  io: Io;
  apply: boolean;
  warm: string | undefined;
  prices: string | undefined;
  now: () => number;
  first: GatewayObserver;
  others: readonly GatewayObserver[];
  policies: ChampionChallenger;
  /** The file with the evidence of challengers. */
  evidence: string | undefined;
  publisher: PlanPublisher;
}

class Loop {
  readonly #options: LoopOptions;
  /** The last printed text, so that it is not printed twice. */
  #lastText = '';
  #lastProblem = '';
  #prices = '';

  constructor(options: LoopOptions) {
    this.#options = options;
  }

  /**
   * Runs one slot. Resolves to true if there is a plan. A failure of the gateway is logged once and retried; a
   * configuration error ends the command.
   */
  async look(): Promise<boolean> {
    const { first, policies, now, io } = this.#options;
    try {
      await this.#sendPrices();
      const { facts, view } = await first.look(now());
      const { views, notes } = await this.#lookAtOthers();
      if (view === undefined) {
        this.#print('measuring: the first plan comes after the next slot');
        return false;
      }
      const { plan, changes } = policies.plan([view, ...views], facts);
      for (const change of changes) io.log(`${stamp(now())} ${change}`);
      plan.notes.push(...notes, ...this.#saveEvidence());
      const state = await this.#publish(plan, facts);
      this.#lastProblem = '';
      const { head, body } = regionsText(plan, state);
      if (body !== this.#lastText) io.out(`${stamp(now())} ${head}\n${body}`);
      this.#lastText = body;
      return true;
    } catch (error) {
      if (!(error instanceof SchedulerError) || error.code === 'usage' || error.code === 'bad_input') throw error;
      this.#print(`${error.message}; the gateway uses its current plan until it expires`);
      return false;
    }
  }

  /** Returns what failed. */
  #saveEvidence(): string[] {
    const { evidence, policies } = this.#options;
    const failed = evidence === undefined ? undefined : writeEvidence(evidence, policies.save());
    return failed === undefined ? [] : [failed];
  }

  /**
   * Looks at the other gateways. A gateway that does not answer has no row in this plan, and uses the mean of the rows.
   */
  async #lookAtOthers(): Promise<{ views: OriginView[]; notes: string[] }> {
    const { others, now } = this.#options;
    const looks = await Promise.allSettled(others.map((one) => one.look(now())));
    const notes = looks.flatMap((look, at) => {
      if (look.status === 'fulfilled') return [];
      if (!(look.reason instanceof SchedulerError)) throw look.reason;
      return [`${others[at]?.url ?? ''} was not observed: ${look.reason.message}`];
    });
    return { notes, views: looks.flatMap((look) => (look.status === 'fulfilled' ? (look.value.view ?? []) : [])) };
  }

  async #publish(plan: LivePlan, facts: readonly RegionFacts[]): Promise<string> {
    const { apply, publisher, warm, io } = this.#options;
    if (!apply) return 'shadow';
    try {
      const sequence = await publisher.send(plan);
      if (sequence === undefined) return 'no shares to send';
      const faults = warm === undefined ? [] : writeWarm(warm, plan, facts);
      if (faults.length > 0) plan.notes.push(...faults);
      return `plan ${sequence}`;
    } catch (error) {
      if (!(error instanceof GatewayRefusal) || error.status !== 409) throw error;
      io.log(`${error.message} Until then this planner sends nothing.`);
      return 'shadow';
    }
  }

  async #sendPrices(): Promise<void> {
    const { prices, apply, gateway, io } = this.#options;
    if (prices === undefined || !apply) return;
    try {
      const table = readPriceTable(prices);
      const body = JSON.stringify(table);
      if (body === this.#prices) return;
      await gateway.put('/admin/regions/prices', table);
      this.#prices = body;
      io.log(`sent the prices of ${table.as_of} from ${prices} to the gateway`);
    } catch (error) {
      // After the first successful read, a price file that is just being written does not end the command: the gateway
      // still has the previous table.
      if (this.#prices === '' || !(error instanceof SchedulerError) || error.code !== 'bad_input') throw error;
      this.#print(error.message);
    }
  }

  #print(text: string): void {
    if (text === this.#lastProblem) return;
    this.#lastProblem = text;
    this.#options.io.log(`${stamp(this.#options.now())} ${text}`);
  }
}

const stamp = (now: number) => `${new Date(now).toISOString().slice(0, 19)}Z`;
