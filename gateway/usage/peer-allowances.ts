/** What peer institutions may use now: their limits, compared with their usage of this month. */
import { and, gte, inArray, lte, sql } from 'drizzle-orm';
import { errorText } from '../../shared/text/error-text.ts';
import { MONTHLY_AMOUNTS, type MonthlyAmount, type PeerAllowances } from '../../shared/usage/peer-allowance.ts';
import { reportDatabase } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import type { PeerLimits } from '../settings/peer-limits.ts';
import { peerKey } from './usage-row.ts';
import { usageTotals } from './usage-tables.ts';

/** Time for which sums are kept. Each agent asks every half minute, and a month's rows may be many. */
const KEPT_MS = 20_000;
/** Maximum number of sums that are read: projects of all peer institutions. */
const SUMS_MAX = 10_000;

/** Usage of a project of a peer institution in a month. */
interface PeerSum extends Record<MonthlyAmount, number> {
  key: string;
  /** `PROJECT@PEER`; empty: unknown. */
  project: string;
}

/** Compares limits with usage. Pure. */
export function allowancesOf(limits: PeerLimits, sums: readonly PeerSum[]): PeerAllowances {
  const allowances: PeerAllowances = {};
  for (const [peer, { share, priority, projects = {}, ...monthly }] of Object.entries(limits)) {
    const own = sums.filter(({ key }) => key === peerKey(peer));
    const over = reached(monthly, own);
    const projectsOver: Record<string, MonthlyAmount> = {};
    const projectShares: Record<string, number> = {};
    for (const [project, { share: part, ...limit }] of Object.entries(projects)) {
      if (part !== undefined) projectShares[project] = part;
      const used = own.filter((one) => one.project === `${project}@${peer}`);
      const reason = reached(limit, used);
      if (reason !== undefined) projectsOver[project] = reason;
    }
    allowances[peer] = {
      ...(share !== undefined && { share }),
      ...(Object.keys(projectShares).length > 0 && { project_shares: projectShares }),
      ...(priority !== undefined && { priority }),
      ...(over !== undefined && { over }),
      ...(Object.keys(projectsOver).length > 0 && { projects: projectsOver }),
    };
  }
  return allowances;
}

type Monthly = { [name in MonthlyAmount]?: number | undefined };

function reached(limits: Monthly, used: readonly PeerSum[]): MonthlyAmount | undefined {
  return MONTHLY_AMOUNTS.find((name) => {
    const limit = limits[name];
    return limit !== undefined && used.reduce((sum, one) => sum + one[name], 0) >= limit;
  });
}

/** The sums of this month, read at most once in KEPT_MS. */
export class MonthlyPeerUsage {
  /** The result and not a promise, because on Workers only the request that created a promise may await it. */
  #known: { at: number; sums: readonly PeerSum[] } | undefined;

  /**
   * Returns what peer institutions may use. If the database does not answer, their shares still apply, and the last
   * known sums. Never rejects.
   */
  async allowances(env: Pick<Env, 'DB'>, limits: PeerLimits, now: number): Promise<PeerAllowances> {
    const limited = Object.entries(limits).filter(([, one]) => isMonthly(one));
    if (limited.length === 0) return allowancesOf(limits, []);
    const known = this.#known;
    if (known === undefined || Math.abs(now - known.at) >= KEPT_MS) {
      // While this request reads, others use the former sums. Without former sums, each reads itself.
      if (known !== undefined) this.#known = { ...known, at: now };
      const keys = limited.map(([peer]) => peerKey(peer));
      try {
        this.#known = { at: now, sums: await readSums(env, keys, now) };
      } catch (error) {
        console.error(`cannot read the usage of peer institutions: ${errorText(error)}`);
        this.#known ??= { at: now, sums: [] };
      }
    }
    return allowancesOf(limits, this.#known?.sums ?? []);
  }
}

function isMonthly({ projects = {}, ...limits }: PeerLimits[string]): boolean {
  return [limits, ...Object.values(projects)].some((one: Monthly) =>
    MONTHLY_AMOUNTS.some((name) => one[name] !== undefined),
  );
}

async function readSums(env: Pick<Env, 'DB'>, keys: readonly string[], now: number): Promise<PeerSum[]> {
  const month = new Date(now).toISOString().slice(0, 7);
  const { day, key, project, requests, prompt, completion, gpuMs } = usageTotals;
  const rows = await reportDatabase(env)
    .select({
      key,
      project,
      requests_per_month: sql<number>`sum(${requests})`,
      tokens_per_month: sql<number>`sum(${prompt}) + sum(${completion})`,
      gpu_seconds_per_month: sql<number>`sum(${gpuMs}) / 1000`,
    })
    .from(usageTotals)
    .where(and(gte(day, `${month}-01`), lte(day, `${month}-31`), inArray(key, [...keys])))
    .groupBy(key, project)
    .limit(SUMS_MAX);
  // PostgreSQL returns sums as text.
  return rows.map((row) => ({
    key: row.key,
    project: row.project,
    requests_per_month: Number(row.requests_per_month),
    tokens_per_month: Number(row.tokens_per_month),
    gpu_seconds_per_month: Number(row.gpu_seconds_per_month),
  }));
}
