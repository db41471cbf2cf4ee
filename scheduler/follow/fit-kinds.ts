/**
 * Fits the kinds of one model's requests to its gateway's records, and keeps earlier kinds while they describe the
 * records.
 */
import { KIND_NAME_MAX_CHARS, nearestKind, type RequestKind } from '../../shared/routing/kinds/request-kind.ts';
import type { KindCount } from '../live/kind-counts.ts';
import { type FittedKind, fitKinds, type KindLengths } from '../workload/request-kinds.ts';

/** Maximum number of kinds that are tried. More kinds split requests that cost about the same. */
const KINDS_TRIED = 5;
/** Requests that a fit needs; with fewer the gateway's kinds stay. */
const REQUESTS_MIN = 50;
/** Maximum number of requests that a fit uses. */
const SAMPLE = 4_000;
/**
 * A kind counts as unchanged if its center moved less than this, as a difference of logarithms. Each publication
 * restarts the histories, so small moves are not published.
 */
const MOVED = 0.3;

/** Kinds with the mean values from which rates are computed. */
export type FittedKinds = { kinds: readonly FittedKind[]; published: readonly RequestKind[] };

/** Returns undefined if too few requests were recorded. `before`: the kinds that the gateway counts by now. */
export function fitLiveKinds({ lengths, kinds: before }: KindCount): FittedKinds | undefined {
  const total = lengths.reduce((sum, { requests }) => sum + requests, 0);
  if (total < REQUESTS_MIN) return before.length > 0 ? described(before, []) : undefined;
  const requests = sampled(lengths, total);
  const previous = before.length > 0 ? described(before, requests).kinds : undefined;
  const fitted = fitKinds(requests, { most: KINDS_TRIED, seed: 1, ...(previous === undefined ? {} : { previous }) });
  if (before.length === fitted.length && fitted.every((kind, i) => isNear(kind, before[i])))
    return described(before, requests);
  const published = fitted.map(({ name, input, output, share }, i) => ({
    // A kind with the same number keeps its name, so that its history of counts continues.
    name: (before.length === fitted.length ? before[i]?.name : undefined) ?? name.slice(0, KIND_NAME_MAX_CHARS),
    input: Math.max(1, input),
    output: Math.max(1, output),
    share,
  }));
  return described(published, requests);
}

const GUESS: KindLengths = { input: 512, output: 256 };

/** Name of the kind if the gateway does not count by kinds. */
const ALL_REQUESTS = 'all requests';

/** Returns the kinds that a gateway counts by, described by its records: its own kinds, or all requests as one. */
export function countedKinds({ kinds, lengths }: KindCount): FittedKinds {
  const total = lengths.reduce((sum, { requests }) => sum + requests, 0);
  // The model was requested, but no response is recorded yet: assumes the lengths of a chat.
  const requests = total > 0 ? sampled(lengths, total) : [GUESS];
  if (kinds.length > 0) return described(kinds, total > 0 ? requests : []);
  const centre = (of: (one: KindLengths) => number) => Math.exp(meanOf(requests.map((one) => Math.log(of(one)))));
  const all = {
    name: ALL_REQUESTS,
    input: centre(({ input }) => input),
    output: centre(({ output }) => output),
    share: 1,
  };
  return { kinds: described([all], requests).kinds, published: [] };
}

function isNear(kind: KindLengths, other: KindLengths | undefined): boolean {
  if (other === undefined) return false;
  return Math.hypot(Math.log(kind.input / other.input), Math.log(kind.output / other.output)) < MOVED;
}

/** Samples at most `SAMPLE` requests from the gateway's grid of lengths, from each cell in proportion to its share. */
function sampled(lengths: KindCount['lengths'], total: number): KindLengths[] {
  const scale = Math.min(1, SAMPLE / total);
  return lengths.flatMap(({ input, output, requests }) =>
    Array.from({ length: Math.max(1, Math.round(requests * scale)) }, () => ({
      input: Math.max(1, input),
      output: Math.max(1, output),
    })),
  );
}

/** Describes each published kind by the recorded requests that are nearest to it. */
function described(published: readonly RequestKind[], requests: readonly KindLengths[]): FittedKinds {
  const members = new Map<RequestKind, KindLengths[]>(published.map((kind) => [kind, []]));
  for (const one of requests) {
    const kind = nearestKind(published, one);
    if (kind !== undefined) members.get(kind)?.push(one);
  }
  const kinds = published.map((kind): FittedKind => {
    const own = members.get(kind) ?? [];
    const typical = { input: Math.round(kind.input), output: Math.round(kind.output) };
    const examples = own.length > 0 ? own.slice(0, EXAMPLES) : [typical];
    const of = (name: 'input' | 'output') => ({
      mean: meanOf(examples.map((one) => one[name])),
      square: meanOf(examples.map((one) => one[name] ** 2)),
    });
    return { ...kind, moments: { input: of('input'), output: of('output') }, examples };
  });
  return { kinds, published };
}

const EXAMPLES = 400;
const meanOf = (values: readonly number[]): number =>
  values.reduce((sum, one) => sum + one, 0) / Math.max(1, values.length);
