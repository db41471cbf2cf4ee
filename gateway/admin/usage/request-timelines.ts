/**
 * The timeline of one request: what the gateway, the queue, each attempt and the nodes recorded, and a list of missing
 * facts.
 */
import * as z from 'zod';
import { departureCause } from '../../../shared/lattice/departure-cause.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { REQUEST_ID_PATTERN } from '../../../shared/openai/forwarded-headers.ts';
import { queryOrUnavailable } from '../../accounts/database.ts';
import { readGatewaySettings } from '../../accounts/gateway-settings.ts';
import { modelLifecycle } from '../../accounts/model-access.ts';
import { storiesOf } from '../../observe/other-processes.ts';
import { metricsReporter } from '../../observe/request-log.ts';
import type { RequestTimeline } from '../../observe/request-timeline.ts';
import { NO_SESSION, shardsBetween, type UsageRow } from '../../usage/usage-row.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { listSchema } from '../field-schemas.ts';
import { listPage, rfc3339 } from '../pagination.ts';
import { askRegistry } from '../session-param.ts';
import { RecordSearchLimit } from './record-search-limit.ts';

const HOUR_MS = 3_600_000;
/** Maximum hours that are searched. Each hour is an object that must be called. */
const HOURS_MAX = 48;
/** A usage record arrives with its node's report, at most this long after the request's end. */
const RECORD_LATE_MS = HOUR_MS;
/** Events of a node are included up to this long after the request, because the loss of a node is detected late. */
const NODE_EVENTS_MS = 10 * 60_000;
const NODE_EVENTS_MAX = 20;
/** Maximum nodes for which events are read. */
const NODES_MAX = 8;

const querySchema = z.strictObject({
  /** How many hours of records are searched if no timeline shows when the request was. */
  hours: z.coerce.number().int().min(1).max(HOURS_MAX).default(24),
  /** The end of these hours; absent: now. */
  to: z.iso.datetime({ offset: true }).optional(),
});

const PLACES = ['gateway', 'queue', 'attempt', 'record', 'node'] as const;
const stepSchema = z.object({ at: z.iso.datetime(), where: z.enum(PLACES), text: z.string() });
type TimelineStepJson = z.infer<typeof stepSchema>;
const storySchema = z.object({
  object: z.literal('request_story'),
  request_id: z.string(),
  /** The request's internal id, which `/admin/usage`, the trace and nodes' errors contain. */
  usage_id: z.string(),
  steps: z.array(stepSchema),
  /** Facts about the request that were not recorded anywhere. */
  not_known: z.array(z.string()),
});

export const requestRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/requests/:id',
    params: {
      id: z
        .string()
        .regex(REQUEST_ID_PATTERN, 'This is not a request id.')
        .meta({ examples: ['0b6a2c9e'] }),
    },
    summary:
      'Return the timeline of a request by its x-request-id: waits, attempts, tokens, its end, and the fate of its nodes. If clients used one id for several requests, it has several timelines. Operators see all requests, other users only their own.',
    query: querySchema,
    answer: listSchema(storySchema),
    run: readStory,
  }),
];

const searches = new RecordSearchLimit();

async function readStory(call: AdminCall<unknown, z.infer<typeof querySchema>>): Promise<object> {
  const { env, now, query, account } = call;
  const id = call.param('id');
  await metricsReporter.flush(env);
  const whose = account.role === 'operator' ? undefined : { key: account.keyId, user: account.userId };
  const { stories, isWhole } = await queryOrUnavailable(storiesOf(env, id, whose));
  const timelines = await Promise.all(
    stories.map(async (timeline) => {
      const rows = await rowsOf(
        call,
        timeline.name,
        timeline.at,
        Math.min(now, timeline.at + timeline.totalMs + RECORD_LATE_MS),
      );
      return timelineAnswer(call, timeline.name, { timeline, rows, isWhole });
    }),
  );
  if (timelines.length === 0) {
    const end = whose === undefined ? () => {} : searches.begin(whose.user ?? whose.key, now);
    const to = query.to === undefined ? now : Math.min(now, Date.parse(query.to));
    const found = await rowsOf(call, id, to - (query.hours - 1) * HOUR_MS, to).finally(end);
    const rows = found.filter(
      ({ key, user }) => whose === undefined || key === whose.key || (user !== '' && user === whose.user),
    );
    if (rows.length > 0) timelines.push(await timelineAnswer(call, id, { timeline: undefined, rows, isWhole }));
  }
  if (timelines.length === 0)
    throw new ApiError(
      'not_found',
      `There is no record of request ${id} in the ${query.hours} hours before ${query.to ?? 'now'}. ${whereElse(isWhole)}`,
    );
  return listPage(timelines, { limit: timelines.length });
}

function whereElse(isWhole: boolean): string {
  const elsewhere = isWhole ? '' : ' A process of the gateway did not answer, which may have served the request.';
  return `A record is stored when the node's report arrives, a second or two after the response. To find an older request, set "to" to a time soon after it.${elsewhere}`;
}

/** Reads the records of the request. Searches the newest hour first, until an hour has records. */
async function rowsOf({ env }: AdminCall, name: string, from: number, to: number): Promise<UsageRow[]> {
  const rows: UsageRow[] = [];
  for (const shard of shardsBetween(from, to).reverse()) {
    rows.push(...(await queryOrUnavailable(env.USAGE.getByName(shard).ofRequest(name))));
    // A request that began before this hour may also have records in the previous hour, so the search then continues.
    if (rows.length > 0 && rows.every((row) => row.at - (row.totalMs ?? 0) > Date.parse(`${shard}:00:00Z`))) break;
  }
  return rows.sort((a, b) => a.at - b.at);
}

/** The timeline of a request, as far as it was found. */
interface Found {
  timeline: RequestTimeline | undefined;
  rows: readonly UsageRow[];
  /** Each process of the gateway has answered. */
  isWhole: boolean;
}

async function timelineAnswer(call: AdminCall, name: string, { timeline, rows, isWhole }: Found): Promise<object> {
  const life = timeline === undefined ? {} : modelLifecycle(await readGatewaySettings(call.env), timeline.model);
  const steps = [
    ...(timeline === undefined ? [] : ofGateway(timeline, call.account.role === 'operator', life)),
    ...rows.map(ofRecord),
  ];
  const sessions = [
    ...(timeline?.steps ?? []).flatMap((one) => (one.kind === 'attempt' ? [one.node] : [])),
    ...rows.map(({ session }) => session),
  ];
  const from = timeline?.at ?? Math.min(...rows.map((row) => row.at - (row.totalMs ?? 0)));
  const to =
    (timeline === undefined ? Math.max(...rows.map(({ at }) => at)) : timeline.at + timeline.totalMs) + NODE_EVENTS_MS;
  const nodes = [...new Set(sessions)].filter((session) => session !== NO_SESSION).slice(0, NODES_MAX);
  for (const session of nodes) steps.push(...(await ofNode(call, session, from, to)));
  return {
    object: 'request_story',
    request_id: timeline?.id ?? name,
    usage_id: name,
    steps: steps.sort((a, b) => Date.parse(a.at) - Date.parse(b.at)),
    not_known: notKnown(timeline, rows, isWhole),
  };
}

/**
 * Returns the steps that the gateway recorded. `inside`: includes the place in the gateway's code that failed, with the
 * paths of its files.
 */
function ofGateway(
  timeline: RequestTimeline,
  inside: boolean,
  life: { sunset_at?: string; successor?: string },
): TimelineStepJson[] {
  const { at, endpoint, model, served, key, status, error, failedAt, firstMs, totalMs, steps } = timeline;
  const step = (ms: number, where: TimelineStepJson['where'], text: string) => ({ at: rfc3339(at + ms), where, text });
  const asAlias = served === '' || served === model ? '' : `, served as ${served}`;
  const successor = life.successor === undefined ? '' : `, then ${life.successor}`;
  const ends = life.sunset_at === undefined ? '' : ` (ends ${life.sunset_at.slice(0, 10)}${successor})`;
  const asked = `${endpoint || 'a path that is not an endpoint'} for ${model === '' ? 'no model' : model}${ends}${asAlias}, with ${key === '' ? 'no valid key' : `key ${key}`}`;
  return [
    step(0, 'gateway', `came: ${asked}`),
    ...steps.map((one) =>
      one.kind === 'wait'
        ? step(one.at, 'queue', `waited ${one.ms} ms for a free node: ${WAITS[one.outcome] ?? one.outcome}`)
        : step(one.at, 'attempt', `node ${one.node}${tierOf(one.tier)}: ${outcomeOf(one.outcome)}`),
    ),
    ...(firstMs === undefined
      ? []
      : [step(firstMs, 'gateway', `the response began ${firstMs} ms after the request arrived`)]),
    step(
      totalMs,
      'gateway',
      `ended after ${totalMs} ms: status ${status}${error === '' ? '' : `, ${error}`}${inside && failedAt !== undefined ? `, at ${failedAt}` : ''}`,
    ),
  ];
}

const WAITS: Readonly<Record<string, string>> = {
  turn: 'a node became free',
  full: 'the queue was full',
  late: 'no node became free in time',
  left: 'the client disconnected',
};

/** Why a node of this tier was chosen. */
function tierOf(tier: string | undefined): string {
  if (tier === undefined) return '';
  return ` (${tier}, which ${tier === 'stable' ? 'interactive requests' : 'batches'} prefer)`;
}

function outcomeOf(outcome: string): string {
  return /^\d+$/.test(outcome) ? `its engine answered ${outcome}` : `no response from its engine: ${outcome}`;
}

function ofRecord(row: UsageRow): TimelineStepJson {
  const {
    at,
    session,
    attempt,
    status,
    prompt,
    completion,
    cached,
    reasoning,
    queueMs = 0,
    firstMs,
    totalMs,
    aborted,
    estimated,
    error,
    times = 1,
  } = row;
  if (session === NO_SESSION) {
    const others = times > 1 ? ` (${times} such requests within a second)` : '';
    return { at: rfc3339(at), where: 'record', text: `no engine received it: ${error ?? 'unknown reason'}${others}` };
  }
  const parts = [
    `attempt ${attempt} at node ${session}: ${status === null ? 'status unknown' : `status ${status}`}`,
    `${prompt} input tokens${cached > 0 ? ` (${cached} cached)` : ''}, ${completion} output tokens${reasoning > 0 ? ` (${reasoning} for reasoning)` : ''}`,
    ...(queueMs > 0 ? [`sent to the node after ${queueMs} ms`] : []),
    ...(firstMs === null ? [] : [`first token after ${firstMs} ms`]),
    ...(totalMs === null ? [] : [`ended after ${totalMs} ms`]),
    ...(aborted ? ['incomplete'] : []),
    ...(estimated ? ['estimated: its node has not reported'] : []),
  ];
  return { at: rfc3339(at), where: 'record', text: parts.join('; ') };
}

/**
 * Returns what happened to a node while it had the request, or soon after. A provider's details are confidential:
 * callers that are not operators see only the category of a loss.
 */
async function ofNode(
  { env, account }: AdminCall,
  session: string,
  from: number,
  to: number,
): Promise<TimelineStepJson[]> {
  const events = await askRegistry(env, (registry) => registry.history({ session, limit: NODE_EVENTS_MAX }));
  return events
    .filter(({ at, event }) => at >= from && at <= to && event !== 'join' && event !== 'serving')
    .map(({ at, event, reason }) => {
      const why = event === 'left' ? departureCause(reason) : account.role === 'operator' ? reason : null;
      return {
        at: rfc3339(at),
        where: 'node' as const,
        text: `node ${session}: ${event}${why === null ? '' : ` (${why})`}`,
      };
    });
}

/** @param isOneOfSeveral other processes also keep timelines, each of the requests that it answered */
function notKnown(timeline: RequestTimeline | undefined, rows: readonly UsageRow[], isWhole: boolean): string[] {
  const elsewhere = isWhole ? '' : ', or a process that did not answer has the timeline';
  const answered = `the timeline of the gateway: if the first node answers and the client chose no request id, the gateway stores only the usage record${elsewhere}`;
  return [
    ...(timeline === undefined ? [answered] : []),
    ...(rows.length === 0
      ? ['tokens: there is no usage record (not yet, or it was deleted after its retention time)']
      : []),
    ...(rows.some(({ estimated }) => estimated) ? ['exact tokens: a node has not sent its report'] : []),
    'the text of the request and response: it is never stored',
  ];
}
