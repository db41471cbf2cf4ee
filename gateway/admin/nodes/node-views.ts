/**
 * Sessions as operators and their providers see them: the registry's entry, and live state that is valid for seconds
 * only.
 */
import * as z from 'zod';
import { DEPARTURE_CAUSES, departureCause } from '../../../shared/lattice/departure-cause.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { breakerAt, type LiveState, LOAD_KNOWN_MS } from '../../../shared/routing/node-load.ts';
import type { TunnelStatus } from '../../tunnel/tunnel-object.ts';
import type { AdminCall } from '../admin-route.ts';
import { rfc3339 } from '../pagination.ts';
import { askRegistry, sessionOf } from '../session-param.ts';
import { DRAIN_FRAMES_MIN } from './drain-node.ts';

const count = z.number().int().min(0);

export const nodeSchema = z.looseObject({
  object: z.literal('node'),
  session: z.string(),
  state: z.string(),
  suspected: z.boolean(),
  connected: z.boolean(),
  /** For a session that has left: the category of its reason. */
  cause: z.enum(DEPARTURE_CAUSES).nullable(),
  /** Why the session ends, as reported by its agent or this gateway; absent: it does not end. */
  leaving: z.string().optional(),
  provider: z.string(),
  cluster: z.string(),
  /** Weights that are on the node's disk or being copied to it; absent: none. */
  weights: z.array(z.object({ name: z.string(), percent: z.number() })).optional(),
  /** Requests of this gateway that run on the node; null: no report within the last 5 s. Idle nodes send no reports. */
  in_flight: count.nullable(),
  /** The engine's load as last reported; null: the report is older than 5 s. */
  load: z
    .object({
      running: count,
      waiting: count,
      kv_use: z.number().nullable(),
      /** Tokens per second that the engine generates for all clients; null: the engine does not report it. */
      tokens_per_second: z.number().nullable(),
      age_ms: count,
    })
    .nullable(),
  breaker: z.object({
    state: z.enum(['closed', 'open', 'half-open']),
    since: z.iso.datetime().nullable(),
    /** True if the circuit breaker excluded the node because its engine accepted requests and answered none. */
    hangs: z.boolean(),
  }),
});
export const oneNodeSchema = nodeSchema.extend({
  /**
   * State of the node's tunnel to this gateway; null: the tunnel is not open, or its tunnel object cannot be called.
   */
  tunnel: z
    .object({
      connected_at: z.iso.datetime(),
      /** Time of the last frame or heartbeat on the tunnel; agents send one at least every 30 s. */
      heard_at: z.iso.datetime(),
      /** True if the node's agent obeys `POST /admin/nodes/{session}/drain`. */
      drains: z.boolean(),
      /** Usage records that wait to be passed on to the usage objects. */
      outbox: count,
    })
    .nullable(),
  /** Errors since the tunnel object woke, newest first, at most 20. */
  last_errors: z.array(
    z.object({ at: z.iso.datetime(), code: z.string(), status: z.number(), request_id: z.string() }),
  ),
});

export const querySchema = z.strictObject({
  state: z.enum(['JOIN', 'SERVING', 'DOWN', 'LEFT']).optional(),
  model: z.string().min(1).max(256).optional(),
  limit: z.coerce.number().int().min(1).max(1_000).default(100),
  /** Session of the last entry of the previous page. */
  after: z.string().max(64).optional(),
});

/** Lists sessions, ordered by id: all for operators, otherwise those of the caller's provider. */
export async function listNodes(call: AdminCall<unknown, z.infer<typeof querySchema>>): Promise<object> {
  const { env, now, query, account } = call;
  const provider = account.role === 'operator' ? undefined : (account.provider ?? '');
  const { nodes, more } = await askRegistry(env, (registry) => registry.look({ ...query, provider }));
  return { object: 'list', data: nodes.map(({ entry, live }) => view(entry, live, now)), has_more: more };
}

export async function readNode(call: AdminCall): Promise<object> {
  const { env, now, account } = call;
  const session = sessionOf(call);
  const { nodes } = await askRegistry(env, (registry) => registry.look({ session, limit: 1 }));
  const [found] = nodes;
  // For a node of another provider, the response is the same as for a node that does not exist.
  if (found === undefined || (account.role !== 'operator' && found.entry.provider !== account.provider))
    throw new ApiError('not_found', `This gateway does not know session ${session}.`);
  const shown = view(found.entry, found.live, now);
  // Only the tunnel object of a connected agent is called, because a call with any other name would create an object.
  const status = found.entry.connected ? await statusOf(env, session) : undefined;
  return {
    ...shown,
    in_flight: status?.open ?? shown.in_flight,
    tunnel: status && {
      connected_at: rfc3339(status.connectedAt),
      heard_at: rfc3339(status.heardAt),
      drains: status.reads >= DRAIN_FRAMES_MIN,
      outbox: status.outbox,
    },
    ...(status === undefined ? { tunnel: null } : {}),
    last_errors: (status?.errors ?? []).map(({ at, code, status, request }) => {
      return { at: rfc3339(at), code, status, request_id: request };
    }),
  };
}

async function statusOf(env: AdminCall['env'], session: string): Promise<TunnelStatus | undefined> {
  try {
    return (await env.TUNNEL.getByName(session).status()) ?? undefined;
  } catch {
    return undefined;
  }
}

function view(entry: RegistryEntry, { load: said, breaker }: LiveState, now: number): z.infer<typeof nodeSchema> {
  const known = said !== undefined && now - said.at <= LOAD_KNOWN_MS ? said : undefined;
  const { running = 0, waiting = 0, kvUse, tokensPerSecond, at = now } = known ?? {};
  const load = {
    running,
    waiting,
    kv_use: kvUse ?? null,
    tokens_per_second: tokensPerSecond ?? null,
    age_ms: Math.max(0, now - at),
  };
  return {
    object: 'node',
    ...entry,
    cause: entry.state === 'LEFT' ? departureCause(entry.leaving) : null,
    in_flight: known?.open ?? null,
    load: known === undefined ? null : load,
    breaker: {
      state: breakerAt(breaker, now),
      since: breaker === undefined ? null : rfc3339(breaker.since),
      hangs: breaker?.hangs === true,
    },
  };
}
