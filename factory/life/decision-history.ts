/**
 * Keeps the latest decisions and the points of the last day's chart, both bounded. After a restart it continues with
 * the contents of the status file.
 */
import * as z from 'zod';
import {
  DAY_POINTS_MAX,
  type DayPoint,
  DECISIONS_MAX,
  type DecisionReport,
  TEXT_MAX,
} from '../../shared/factory/factory-exchange.ts';
import type { DecisionNote } from '../decisions/factory-world.ts';

const POINT_MS = 300_000;
/** If the same sentence is noted again within this time, no new entry is added. */
const REPEATED_MS = 600_000;

const savedSchema = z.object({
  decisions: z.array(z.object({ at: z.string(), model: z.string().optional(), text: z.string() })).max(DECISIONS_MAX),
  day: z
    .array(
      z.object({
        at: z.string(),
        running: z.number(),
        ready: z.number(),
        pending: z.number(),
        idle: z.number().optional(),
        waiting: z.number(),
      }),
    )
    .max(DAY_POINTS_MAX),
});

export class DecisionHistory {
  decisions: DecisionReport[] = [];
  day: DayPoint[] = [];
  readonly #log: (line: string) => void;

  constructor(log: (line: string) => void) {
    this.#log = log;
  }

  /** Restores the history of a previous process; malformed content is ignored. */
  restore(value: unknown): void {
    const read = savedSchema.safeParse(value);
    if (!read.success) return;
    this.decisions = read.data.decisions.map(({ model, ...rest }) => ({
      ...rest,
      ...(model === undefined ? {} : { model }),
    }));
    this.day = read.data.day.map(({ idle, ...rest }) => ({ ...rest, ...(idle === undefined ? {} : { idle }) }));
  }

  note({ model, text }: DecisionNote, now: number): void {
    const cut = text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX - 1)}…` : text;
    const last = this.decisions.findLast((one) => one.model === model);
    if (last?.text === cut && now - Date.parse(last.at) < REPEATED_MS) return;
    this.decisions.push({ at: new Date(now).toISOString(), ...(model === undefined ? {} : { model }), text: cut });
    if (this.decisions.length > DECISIONS_MAX) this.decisions.shift();
    this.#log(`${model === undefined ? '' : `${model}: `}${cut}`);
  }

  /**
   * Adds a point of the day's chart. Returns true if the point begins a new interval, and false if it was merged into
   * the last point.
   */
  point(point: DayPoint): boolean {
    const slot = (at: string) => Math.floor(Date.parse(at) / POINT_MS);
    const last = this.day.at(-1);
    if (last !== undefined && slot(last.at) === slot(point.at)) {
      // Keeps the newest job counts, and the highest number of waiting requests.
      this.day[this.day.length - 1] = { ...point, at: last.at, waiting: Math.max(last.waiting, point.waiting) };
      return false;
    }
    this.day.push(point);
    if (this.day.length > DAY_POINTS_MAX) this.day.shift();
    return true;
  }
}
