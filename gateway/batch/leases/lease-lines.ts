/** Decides from which batch a node gets lines: first the filters of a request, then the shares between batches. */

import type { LineRequirements } from '../../../shared/batch/batch-input-check.ts';
import {
  FUNCTIONS_ENDPOINT,
  FUNCTIONS_MODEL,
  type NodeContexts,
  readFunctionName,
} from '../../../shared/batch/function-context.ts';
import type { GrantedLease } from '../../../shared/batch/granted-lease.ts';
import { leaseDelayMs } from '../../../shared/batch/node-lease-rank.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { parseRequirements, RequirementError, satisfies } from '../../../shared/routing/requirements.ts';
import { isTrusted, readProviderList } from '../../../shared/routing/trusted-providers.ts';
import { type Account, mayCall, mayUseModel } from '../../accounts/account.ts';
import { hasAccess, isRetired } from '../../accounts/model-access.ts';
import { lineReasoningBudget, mayHaveLines } from '../../accounts/reasoning-budget.ts';
import { trustOf } from '../../accounts/trusted-providers.ts';
import type { Env } from '../../env.ts';
import { startTimer } from '../../platform/start-timer.ts';
import type { RegistrySnapshot } from '../../registry/isolate-snapshot.ts';
import type { BatchAdmission } from './open-lease.ts';

/** Maximum batches that are tried for one lease request. */
const TRIED_MAX = 8;
/**
 * Maximum wait of a node that asks for a model which the registry does not list for it yet. Then the node asks again.
 */
const UNKNOWN_WAIT_MS = 2_000;
/** Returns the name of the queue in which a batch offers its lines of this model. */
export function queueOf(endpoint: string, model: string): string {
  return endpoint === FUNCTIONS_ENDPOINT ? FUNCTIONS_MODEL : model;
}

interface LeasingNode {
  entry: RegistryEntry;
  view: RegistrySnapshot;
}

/** The lease request of a node that runs functions. */
export interface FunctionLeaseRequest {
  /** Owners whose functions the node runs; undefined: all. */
  owners: readonly string[] | undefined;
  held: NodeContexts;
}

/** Batches with lines that a node may not run, as its last request found. At most TRIED_MAX. */
export type ForbiddenBatches = Set<string>;

export async function leaseOfModels(
  env: Env,
  node: LeasingNode,
  models: readonly string[],
  prefix: number | undefined,
): Promise<GrantedLease | undefined> {
  const { entry, view } = node;
  if (entry.state !== 'SERVING' || entry.leaving !== undefined) return undefined;
  for (const model of models) {
    if (!entry.models.some((served) => served.id === model && served.state === 'ready')) continue;
    const queue = env.BATCH_QUEUE.getByName(model);
    const tried: string[] = [];
    for (let i = 0; i < TRIED_MAX; i++) {
      const batch = await queue.next(tried);
      if (batch === null) break;
      if (i === 0) await pause(leaseDelayMs(entry, view.model(model)?.ready ?? []));
      tried.push(batch);
      const lease = await granted(env, node, batch, (one) => one.model === model, prefix);
      if (lease === undefined || lease === 'forbidden') continue;
      await queue.leased(batch, lease.open.length, entry.session);
      return lease;
    }
  }
  return undefined;
}

/**
 * A node without an engine is in state JOIN and serves no model, but it runs functions.
 * @param forbidden gets the batches with lines that the node may not run
 */
export async function leaseOfFunctions(
  env: Env,
  node: LeasingNode,
  ask: FunctionLeaseRequest,
  forbidden: ForbiddenBatches = new Set(),
): Promise<GrantedLease | undefined> {
  const { entry } = node;
  if ((entry.state !== 'SERVING' && entry.state !== 'JOIN') || entry.leaving !== undefined) return undefined;
  const queue = env.BATCH_QUEUE.getByName(FUNCTIONS_MODEL);
  const tried: string[] = [];
  for (let i = 0; i < TRIED_MAX; i++) {
    const batch = await queue.nextFunction(tried, ask, entry.session);
    if (batch === null) return undefined;
    tried.push(batch);
    const lease = await granted(env, node, batch, () => true, undefined, ask.held.ready);
    if (lease === 'forbidden') forbidden.add(batch);
    if (lease === undefined || lease === 'forbidden' || lease.function === undefined) continue;
    await queue.leased(batch, lease.open.length, entry.session);
    return lease;
  }
  return undefined;
}

/** Resolves when lines may be available for this node, or after `waitMs`. */
export async function waitForOffer(
  env: Env,
  { entry }: LeasingNode,
  models: readonly string[],
  functions: (FunctionLeaseRequest & { forbidden?: ForbiddenBatches }) | undefined,
  waitMs: number,
): Promise<void> {
  const served = models.filter((name) => entry.models.some(({ id }) => id === name));
  const queues = functions === undefined ? served : [FUNCTIONS_MODEL];
  const { held = null, owners = null, forbidden = [] } = functions ?? {};
  const waits = queues.map((name) =>
    env.BATCH_QUEUE.getByName(name).wait(waitMs, entry.tier, held, owners, [...forbidden]),
  );
  // Only queues of models that the registry lists for this node are called: a node may name any model, and each name
  // would create a queue object. If a named model is not listed, the wait is short, because the registry may list the
  // model soon.
  if (functions === undefined && served.length < models.length) waits.push(pause(Math.min(waitMs, UNKNOWN_WAIT_MS)));
  await Promise.race(waits);
}

/** Returns a lease, or 'forbidden' if the node may run no line of the batch, or undefined if no line is free now. */
async function granted(
  env: Env,
  { entry, view }: LeasingNode,
  batch: string,
  wanted: (demands: LineRequirements) => boolean,
  prefix: number | undefined,
  ready: readonly string[] = [],
): Promise<GrantedLease | 'forbidden' | undefined> {
  const stub = env.BATCH.getByName(batch);
  const admission = await stub.admission();
  if (admission === null) return undefined;
  const allowed = allowedDemands(admission, entry, view, wanted);
  if (allowed.length === 0) return 'forbidden';
  const lease = await stub.grant(entry.session, allowed, prefix, ready);
  if (lease === null) return undefined;
  const reasoningTokens = lineReasoningBudget(admission.account, admission.endpoint, entry);
  return { ...lease, ...(reasoningTokens !== undefined && { reasoningTokens }) };
}

/** Returns the indexes of the batch's demands that this node meets. */
function allowedDemands(
  { account, endpoint, demands }: BatchAdmission,
  entry: RegistryEntry,
  view: RegistrySnapshot,
  wanted: (demands: LineRequirements) => boolean,
): number[] {
  if (!mayHaveLines(account, endpoint, entry)) return [];
  // A batch may run for days, and the key's list of endpoints may have changed since its creation.
  if (!mayCall(account, { path: endpoint })) return [];
  return demands.flatMap((one, index) => (wanted(one) && meets(one, account, entry, view) ? [index] : []));
}

function meets(
  { model, require, trustedProviders }: LineRequirements,
  account: Account,
  entry: RegistryEntry,
  view: RegistrySnapshot,
): boolean {
  // A batch may run for days. Since its creation the model may have got an access list, or may have been retired.
  if (!isAllowed(account, model, view)) return false;
  const list = trustedProviders === undefined ? undefined : readProviderList(trustedProviders);
  if (trustedProviders !== undefined && list === undefined) return false;
  if (!isTrusted(trustOf(account, list === undefined ? [] : [list], view.settings), entry)) return false;
  try {
    // A function is not a served model, so the requirements of its lines are checked against the node and any of its
    // models.
    const served = readFunctionName(model) === undefined ? model : undefined;
    return require === undefined || satisfies(entry, parseRequirements(require), served, Date.now());
  } catch (error) {
    if (error instanceof RequirementError) return false;
    throw error;
  }
}

function isAllowed(account: Account, model: string, { settings }: RegistrySnapshot): boolean {
  return mayUseModel(account, model) && hasAccess(settings, account, model) && !isRetired(settings, model, Date.now());
}

function pause(ms: number): Promise<void> {
  return ms === 0 ? Promise.resolve() : new Promise((resolve) => void startTimer(ms, resolve));
}
