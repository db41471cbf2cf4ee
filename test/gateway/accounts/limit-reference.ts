/**
 * A list of requests that is summed again for each question, with which the limiter is compared. It has only plain
 * facts: which key asked when, what each attempt used and reported, and the sums of the months.
 */
import type { MeterTime } from '../../../gateway/accounts/limits/limit-meter.ts';
import type { Reservation } from '../../../gateway/accounts/limits/limiter.ts';
import { TokenEstimator } from '../../../gateway/accounts/limits/token-estimator.ts';
import { type Limits, limitsConcurrency } from '../../../gateway/settings/limits-schema.ts';

export const MINUTE_MS = 60_000;
/** As documented for the limiter. */
const [LEASE_MS, REPORTS_MS, RELEASE_MS] = [60 * MINUTE_MS, 5 * MINUTE_MS, MINUTE_MS];

export interface Request {
  name: string;
  keyId: string;
  at: number;
  forecast: Pick<Reservation, 'counts' | 'bodyBytes' | 'maxTokens'>;
  reserved: number;
  uses: Map<number, { tokens: number; booked: number }>;
  expected: number | undefined;
  whole: boolean;
  running: boolean;
  since: number | undefined;
  gone: boolean;
}

interface ToldUse {
  attempt: number;
  prompt: number;
  completion: number;
  isComplete: boolean;
  isBooked: boolean;
}

/** The reference: a list with sums that follow the documentation of limits in the simplest form. */
export class LimitReference {
  readonly requests: Request[] = [];
  /** Tokens of a key, or of the project (''), by the time at which a minute counts them. */
  readonly tokens: { at: number; id: string; count: number }[] = [];
  readonly months = new Map<string, number>();
  readonly #estimators = new Map<string, TokenEstimator>();
  readonly #concurrent: boolean;
  #sweptAt = 0;

  constructor(limits: readonly Limits[]) {
    this.#concurrent = limitsConcurrency(limits);
  }

  estimator(id: string): TokenEstimator {
    const estimator = this.#estimators.get(id) ?? new TokenEstimator();
    this.#estimators.set(id, estimator);
    return estimator;
  }

  estimate(asked: Reservation): number {
    const [own, project] = [this.estimator(asked.keyId), this.estimator('')];
    const tightest = Math.min(asked.key?.tokens_per_minute ?? Infinity, asked.project?.tokens_per_minute ?? Infinity);
    const estimator = !own.believed && project.believed ? project : own;
    return estimator.estimate(asked, Number.isFinite(tightest) ? tightest : 0);
  }

  fits(asked: Reservation, { ms, month }: MeterTime): boolean {
    this.#sweep(ms);
    const wanted = this.estimate(asked);
    return [asked.project, asked.key].every((limits, index) => {
      const mine = ({ keyId }: { keyId: string }) => index === 0 || keyId === asked.keyId;
      const requests = this.requests.filter(mine);
      const id = index === 0 ? '' : asked.keyId;
      const minute = this.tokens.filter((one) => one.id === id && one.at + MINUTE_MS > ms);
      const used = minute.reduce((sum, { count }) => sum + count, 0);
      const tpm = limits?.tokens_per_minute ?? Infinity;
      const unbooked = requests.reduce((sum, one) => sum + countedOf(one) - bookedOf(one), 0);
      const booked = this.months.get(`${id} ${month}`) ?? 0;
      return (
        requests.filter(({ at }) => at + MINUTE_MS > ms).length < (limits?.requests_per_minute ?? Infinity) &&
        (wanted === 0 || used + Math.min(wanted, tpm) <= tpm) &&
        (asked.counts === 'nothing' || (asked.maxTokens ?? 0) <= tpm) &&
        booked + unbooked < (limits?.tokens_per_month ?? Infinity) &&
        requests.filter(({ running }) => running).length < (limits?.concurrent_requests ?? Infinity)
      );
    });
  }

  take(asked: Reservation, { ms }: MeterTime): Request {
    const { name, keyId, counts, bodyBytes, maxTokens } = asked;
    const reserved = this.estimate(asked);
    const forecast = { counts, bodyBytes, maxTokens };
    const more = { uses: new Map(), expected: undefined, whole: false, running: true, since: undefined, gone: false };
    const request: Request = { name, keyId, at: ms, forecast, reserved, ...more };
    this.requests.push(request);
    for (const id of ['', keyId]) this.#slotNow(id, ms).count += reserved;
    return request;
  }

  correct(request: Request, { attempt, prompt, completion, isComplete, isBooked }: ToldUse, ms: number): void {
    if (request.gone) return;
    if (request.uses.size === 0)
      for (const id of ['', request.keyId]) this.estimator(id).learn(request.forecast, { prompt, completion });
    this.change(request, ms, () => {
      const tokens = prompt + completion;
      request.uses.set(attempt, { tokens, booked: isBooked ? tokens : (request.uses.get(attempt)?.booked ?? 0) });
      if (isComplete) Object.assign(request, { whole: true, since: request.since ?? ms });
    });
  }

  book(keyId: string, tokens: number, month: string): void {
    for (const id of ['', keyId]) {
      const name = `${id} ${month}`;
      this.months.set(name, Math.max(0, (this.months.get(name) ?? 0) + tokens));
    }
  }

  /**
   * Applies `change`, and counts the difference at the request's time if that minute still has it, otherwise from now
   * on.
   */
  change(request: Request, ms: number, change: () => void): void {
    const before = countedOf(request);
    change();
    this.addTokens(request.keyId, countedOf(request) - before, request.at, ms);
    const settled = [...request.uses.values()].every(({ tokens, booked }) => tokens === booked);
    if (isOver(request) && settled && !(request.running && this.#concurrent)) this.forget(request, ms);
  }

  addTokens(keyId: string, more: number, then: number, ms: number): void {
    for (const id of ['', keyId]) {
      const known = this.#slotAt(id, then, ms);
      if (known !== undefined) known.count += more;
      else if (more > 0) this.#slotNow(id, ms).count += more;
    }
  }

  #slotAt(id: string, at: number, ms: number) {
    return this.tokens.find((one) => one.at === at && one.id === id && at + MINUTE_MS > ms);
  }

  #slotNow(id: string, ms: number) {
    const known = this.#slotAt(id, ms, ms);
    if (known !== undefined) return known;
    const slot = { at: ms, id, count: 0 };
    this.tokens.push(slot);
    return slot;
  }

  forget(request: Request, ms: number): void {
    if (request.gone) return;
    request.running = false;
    this.change(request, ms, () => {
      Object.assign(request, { gone: true, reserved: 0 });
      for (const [attempt, { booked }] of request.uses) request.uses.set(attempt, { tokens: booked, booked });
    });
  }

  #sweep(ms: number): void {
    if (ms - this.#sweptAt < MINUTE_MS) return;
    this.#sweptAt = ms;
    for (const request of this.requests) {
      if (request.gone) continue;
      const { at, running, since } = request;
      const sinceMs = since === undefined ? 0 : ms - since;
      if (ms - at >= LEASE_MS || (!running && sinceMs >= REPORTS_MS)) this.forget(request, ms);
      else if (isOver(request) && sinceMs >= RELEASE_MS) {
        request.running = false;
        this.change(request, ms, () => {});
      }
    }
  }

  /** The object forgot when it swept last. */
  reopened(): void {
    this.#sweptAt = 0;
  }
}

function isOver({ whole, expected, uses }: Request): boolean {
  return whole || (expected !== undefined && uses.size >= expected);
}

function bookedOf({ uses }: Request): number {
  return [...uses.values()].reduce((sum, { booked }) => sum + booked, 0);
}

function countedOf(request: Request): number {
  const used = [...request.uses.values()].reduce((sum, { tokens }) => sum + tokens, 0);
  return isOver(request) || request.gone ? used : Math.max(request.reserved, used);
}
