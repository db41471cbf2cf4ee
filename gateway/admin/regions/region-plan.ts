/** The plan of a planner: the share of each model's requests that each region gets while the plan is valid. */
import { eq, sql } from 'drizzle-orm';
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { PLAN_HOLDS_MAX_MS } from '../../../shared/routing/region-shares.ts';
import { settings } from '../../accounts/account-tables.ts';
import { database, queryOrUnavailable, requireWritable } from '../../accounts/database.ts';
import { planBodySchema, type StoredPlan, storedPlanSchema } from '../../settings/region-settings.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { applyChange, notifyIsolates, recordIntent } from '../apply-change.ts';
import { rfc3339 } from '../pagination.ts';

const ROW = 'region_plan';

const planSchema = planBodySchema.extend({
  object: z.literal('region_plan'),
  /** Name of the planner and number of its plan; empty and 0 if there is no plan. */
  planner: z.string(),
  sequence: z.int().min(0),
  holds_ms: z.int().min(0),
  taken_at: z.iso.datetime().nullable(),
  expires_at: z.iso.datetime().nullable(),
  /** True if the plan is valid. False: it has expired, and requests are routed without a plan. */
  holds: z.boolean(),
});

const NO_PLAN: z.infer<typeof planSchema> = {
  object: 'region_plan',
  planner: '',
  sequence: 0,
  holds_ms: 0,
  models: {},
  warm: [],
  notes: [],
  taken_at: null,
  expires_at: null,
  holds: false,
};

export const regionPlanRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'get',
    path: '/regions/plan',
    summary: 'Return the shares of requests by region that a planner set last.',
    answer: planSchema,
    run: async (call) => {
      const stored = await readPlan(call);
      return stored === undefined ? NO_PLAN : planView(stored, call.now);
    },
  }),
  route({
    role: 'operator',
    method: 'put',
    path: '/regions/plan',
    summary:
      'Set the shares of requests by region. Trust and requirements of requests still apply. Takes effect everywhere within 5 s. 409: the plan of another planner is valid, or the sequence is not newer.',
    body: planBodySchema,
    answer: planSchema,
    run: put,
  }),
  route({
    role: 'operator',
    method: 'delete',
    path: '/regions/plan',
    summary: 'Delete the shares by region. Requests are then routed by policy. Repeating is safe.',
    answer: z.object({ object: z.literal('region_plan'), deleted: z.boolean() }),
    run: remove,
  }),
];

/**
 * Until a plan expires, only plans of the same planner are accepted: two planners have different data, and requests
 * would alternate between their plans. The database decides, so that only one of two concurrent plans is accepted.
 */
async function put(call: AdminCall<z.infer<typeof planBodySchema>>): Promise<object> {
  requireWritable();
  const { body, now } = call;
  const before = await readPlan(call);
  const refusal = before === undefined ? undefined : refused(before, body, now);
  if (refusal !== undefined) throw refusal;
  // Only changes of the planner and its policy are logged: an entry for a plan every 45 s would hide what people did.
  if (before?.planner !== body.planner || before.policy !== body.policy)
    await recordIntent(call, {
      action: 'regions.plan',
      object: 'region_plan',
      before: before && makerOf(before),
      after: makerOf(body),
    });
  const value: StoredPlan = { ...body, taken_at: now, expires_at: now + body.holds_ms };
  const expiresAt = sql`cast(${settings.value} ->> 'expires_at' AS bigint)`;
  const sequence = sql`cast(${settings.value} ->> 'sequence' AS bigint)`;
  const mayTake = sql`${expiresAt} <= ${now} OR ${expiresAt} > ${now + PLAN_HOLDS_MAX_MS}
    OR (${settings.value} ->> 'planner' = ${body.planner} AND ${sequence} < ${body.sequence})`;
  const set = { value, updatedAt: now };
  const taken = await queryOrUnavailable(
    database(call.env)
      .insert(settings)
      .values({ name: ROW, ...set })
      .onConflictDoUpdate({ target: settings.name, set, setWhere: mayTake })
      .returning({ name: settings.name }),
  );
  if (taken.length === 0) throw conflict('Another plan was accepted at the same time.');
  await notifyIsolates(call.env);
  return planView(value, now);
}

function refused(before: StoredPlan, { planner, sequence }: { planner: string; sequence: number }, now: number) {
  if (!holds(before, now)) return undefined;
  if (before.planner !== planner)
    return conflict(`The plan of "${before.planner}" is valid until ${rfc3339(before.expires_at)}.`);
  if (before.sequence >= sequence) return conflict(`Plan ${before.sequence} of "${planner}" was already accepted.`);
  return undefined;
}

const makerOf = ({ planner, policy }: { planner: string; policy?: string | undefined }) =>
  policy === undefined ? { planner } : { planner, policy };

function conflict(message: string): ApiError {
  return new ApiError('conflict', message);
}

async function remove(call: AdminCall): Promise<object> {
  const before = await readPlan(call);
  if (before === undefined) await notifyIsolates(call.env);
  else {
    const write = database(call.env).delete(settings).where(eq(settings.name, ROW));
    const what = { action: 'regions.plan', object: ROW, before: { planner: before.planner } };
    await applyChange(call, [write], what);
  }
  return { object: 'region_plan', deleted: before !== undefined };
}

/** Undefined if no plan is stored, or if this version does not understand it. */
async function readPlan(call: Pick<AdminCall<unknown, unknown>, 'env'>): Promise<StoredPlan | undefined> {
  const [row] = await queryOrUnavailable(database(call.env).select().from(settings).where(eq(settings.name, ROW)));
  return storedPlanSchema.safeParse(row?.value).data;
}

/**
 * True if the plan is valid. If the expiry is too far ahead, the clock was set back after the plan was stored, and the
 * plan is not valid.
 */
function holds({ expires_at }: StoredPlan, now: number): boolean {
  return now < expires_at && expires_at - now <= PLAN_HOLDS_MAX_MS;
}

function planView({ taken_at, expires_at, ...plan }: StoredPlan, now: number): z.infer<typeof planSchema> {
  return {
    object: 'region_plan',
    ...plan,
    taken_at: rfc3339(taken_at),
    expires_at: rfc3339(expires_at),
    holds: holds({ taken_at, expires_at, ...plan }, now),
  };
}
