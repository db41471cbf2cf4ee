/** Calculates the share of a model's requests that each node gets, from rules or from the node's GPUs. */
import type { Candidate } from '../candidates.ts';
import type { RoutedRequest } from '../routing-policy.ts';

/** A request's class, for rules that do not apply to all requests: its priority, or the length of its prompt. */
export const REQUEST_CLASSES = ['interactive', 'batch', 'short', 'long'] as const;
type RequestClass = (typeof REQUEST_CLASSES)[number];

/** Prompts with more estimated tokens than this count as long. */
const LONG_INPUT_TOKENS = 2_048;

/**
 * Sets the weight of each node that matches all fields that are set. A node that no rule matches has the weight 0, so
 * it gets requests only if no node has a weight.
 */
export interface WeightRule {
  session?: string | undefined;
  cluster?: string | undefined;
  /** GPU class (shared/hardware). */
  gpu?: string | undefined;
  region?: string | undefined;
  class?: RequestClass | undefined;
  /** Name of one of the model's kinds. */
  kind?: string | undefined;
  weight: number;
}

/** Rules that were prepared for fast lookup, one object per list of rules. */
export interface NodeWeightTable {
  /** True if a request's class or kind can change the weights. */
  readonly classed: boolean;
  of(candidate: Candidate, request: RoutedRequest): number;
}

/**
 * The most specific matching rule counts. A rule with a session is more specific than any rule without one. After that,
 * a rule is more specific if it has a cluster, a GPU class, a region, a kind or a class, in this order. If two rules
 * are equally specific, the later one counts.
 */
export function nodeWeightTable(rules: readonly WeightRule[]): NodeWeightTable {
  const sorted = rules
    .map((rule, at) => ({ rule, rank: rank(rule), at }))
    .sort((a, b) => b.rank - a.rank || b.at - a.at);
  const bySession = new Map<string, WeightRule[]>();
  const others: WeightRule[] = [];
  for (const { rule } of sorted) {
    if (rule.session === undefined) others.push(rule);
    else bySession.set(rule.session, [...(bySession.get(rule.session) ?? []), rule]);
  }
  return {
    classed: rules.some((rule) => rule.class !== undefined || rule.kind !== undefined),
    of(candidate, request) {
      const own = bySession.get(candidate.session)?.find((rule) => fits(rule, candidate, request));
      return (own ?? others.find((rule) => fits(rule, candidate, request)))?.weight ?? 0;
    },
  };
}

function rank({ session, cluster, gpu, region, kind, class: only }: WeightRule): number {
  const named = (value: unknown, worth: number) => (value === undefined ? 0 : worth);
  return named(session, 32) + named(cluster, 16) + named(gpu, 8) + named(region, 4) + named(kind, 2) + named(only, 1);
}

function fits(
  { cluster, gpu, region, kind, class: only }: WeightRule,
  candidate: Candidate,
  request: RoutedRequest,
): boolean {
  if (cluster !== undefined && cluster !== candidate.cluster) return false;
  if (gpu !== undefined && gpu !== candidate.gpu) return false;
  if (region !== undefined && region !== candidate.region) return false;
  if (kind !== undefined && kind !== request.kind) return false;
  return only === undefined || isOfClass(only, request);
}

function isOfClass(only: RequestClass, { priority, inputTokens }: RoutedRequest): boolean {
  switch (only) {
    case 'short':
      return inputTokens <= LONG_INPUT_TOKENS;
    case 'long':
      return inputTokens > LONG_INPUT_TOKENS;
    default:
      return only === priority;
  }
}

/**
 * Memory bandwidth in TB/s, from data sheets. Decoding reads all weights for each token, so tokens per second grow with
 * it. A class that is not listed counts as 1.
 */
const BANDWIDTH: Readonly<Record<string, number>> = {
  GB300: 8,
  GB200: 8,
  GH200: 4,
  GB10: 0.27,
  B300: 8,
  B200: 8,
  H200: 4.8,
  H100: 3.35,
  H800: 3.35,
  H20: 4,
  A100: 2,
  A800: 2,
  A40: 0.7,
  A30: 0.93,
  A16: 0.2,
  A10G: 0.6,
  A10: 0.6,
  A2: 0.2,
  L40S: 0.86,
  L40: 0.86,
  L20: 0.86,
  L4: 0.3,
  T4: 0.32,
  V100: 0.9,
  P100: 0.73,
  RTXPRO6000: 1.8,
  RTX6000ADA: 0.96,
  RTXA6000: 0.77,
  RTXA5000: 0.77,
  RTX5090: 1.8,
  RTX4090: 1,
  RTX3090: 0.94,
  RTX2080TI: 0.62,
  MI355X: 8,
  MI350X: 8,
  MI325X: 6,
  MI300X: 5.3,
  MI300A: 5.3,
  MI250X: 1.6,
  MI250: 1.6,
  MI210: 1.6,
  MI100: 1.2,
  MAX1550: 3.2,
};

/** Used if there are no rules: a node's weight is its GPUs' memory bandwidth times their number. */
export const GPU_WEIGHTS: NodeWeightTable = {
  classed: false,
  of: ({ gpu, gpus = 1 }) => (gpu === undefined ? 1 : (BANDWIDTH[gpu] ?? 1) * gpus),
};
