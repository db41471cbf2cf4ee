/** The gateway's current data of a node, polled while its page is open, and kept for its plots. */
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useMemo } from 'react';
import { gateway } from '../../api/client.ts';
import type { paths } from '../../api/contract.ts';

type Json<Path extends keyof paths> = paths[Path] extends {
  get: { responses: { 200: { content: { 'application/json': infer T } } } };
}
  ? T
  : never;
export type NodeNow = Json<'/admin/nodes/{session}'>;
type Load = Json<'/admin/nodes/{session}/loads'>['data'][number];
export type Telemetry = Json<'/admin/nodes/{session}/telemetry'>;

const NOW_EVERY_MS = 2_000;
const TELEMETRY_EVERY_MS = 3_000;
/** Maximum number of samples: half an hour of polls. */
const SAMPLES_MAX = 900;

/** The gateway keeps one sample per 10 s, so a longer distance than this is a gap. */
const GAP_S = 25;

/** A node's values at one moment. A value is null if it is not known. */
export interface Sample {
  /** When the values were read, in seconds since 1970. */
  at: number;
  running: number | null;
  waiting: number | null;
  /** Used part of the KV cache, in percent. */
  kvCache: number | null;
  tokensPerSecond: number | null;
  /** Utilization in percent, as the mean of all GPUs. */
  gpuUse: number | null;
  /** Used part of the memory of all GPUs, in percent. */
  gpuMemory: number | null;
}

const NOTHING = { running: null, waiting: null, kvCache: null, tokensPerSecond: null, gpuUse: null, gpuMemory: null };

const at = (session: string) => ({ params: { path: { session } } });

export function useNodeNow(session: string) {
  return useQuery({
    queryKey: ['node', session],
    queryFn: async ({ signal }) => (await gateway.GET('/admin/nodes/{session}', { ...at(session), signal })).data,
    refetchInterval: NOW_EVERY_MS,
  });
}

/**
 * `enabled`: the node is connected. If the agent does not answer, the error gives the reason, and it is polled again.
 */
export function useTelemetry(session: string, enabled: boolean) {
  return useQuery({
    queryKey: ['telemetry', session],
    queryFn: async ({ signal }) =>
      (await gateway.GET('/admin/nodes/{session}/telemetry', { ...at(session), signal })).data,
    enabled,
    refetchInterval: TELEMETRY_EVERY_MS,
  });
}

const NONE: readonly Sample[] = [];

/** The gateway's samples from before the page was opened. Requested once. */
function useBefore(session: string): readonly Sample[] {
  const { data } = useQuery({
    queryKey: ['node-loads', session],
    queryFn: async ({ signal }) => {
      const { data } = await gateway.GET('/admin/nodes/{session}/loads', { ...at(session), signal });
      return (data?.data ?? []).map(pastSample);
    },
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
  });
  return data ?? NONE;
}

/**
 * This node's samples, including those from before the page was opened. Leaving the page leaves a gap in the values
 * that only the agent reports.
 */
export function useSamples(
  session: string,
  now: NodeNow | undefined,
  telemetry: Telemetry | undefined,
  heardAt: number,
) {
  const queries = useQueryClient();
  const queryKey = ['node-samples', session];
  const { data } = useQuery<readonly Sample[]>({
    queryKey,
    queryFn: () => NONE,
    enabled: false,
    initialData: NONE,
    staleTime: Number.POSITIVE_INFINITY,
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: one sample per response
  useEffect(() => {
    if (now === undefined) return;
    const sample = sampleOf(heardAt / 1000, now, telemetry);
    queries.setQueryData<readonly Sample[]>(queryKey, (known = NONE) => [...known, sample].slice(-SAMPLES_MAX));
  }, [heardAt]);
  const before = useBefore(session);
  return useMemo(() => {
    const from = data[0]?.at ?? Number.POSITIVE_INFINITY;
    return withGaps([...before.filter((one) => one.at < from), ...data]);
  }, [before, data]);
}

function pastSample(load: Load): Sample {
  return {
    at: Date.parse(load.at) / 1000,
    running: load.running,
    waiting: load.waiting,
    kvCache: percent(load.kv_use),
    tokensPerSecond: load.tokens_per_second,
    gpuUse: null,
    gpuMemory: null,
  };
}

/** An idle node reports nothing: the line ends there, and begins again later. */
function withGaps(samples: readonly Sample[]): readonly Sample[] {
  return samples.flatMap((sample, n) => {
    const since = samples[n - 1]?.at ?? sample.at;
    return sample.at - since > GAP_S ? [{ ...NOTHING, at: since + 1 }, sample] : [sample];
  });
}

function sampleOf(at: number, { load }: NodeNow, telemetry: Telemetry | undefined): Sample {
  const gpus = telemetry?.gpus ?? [];
  const used = gpus.flatMap(({ use }) => (use === null ? [] : [use]));
  const memory = gpus.flatMap(({ memory_used_mib: some, memory_total_mib: all }) =>
    some === null || all === null ? [] : [[some, all] as const],
  );
  const total = memory.reduce((sum, [, all]) => sum + all, 0);
  return {
    at,
    running: load?.running ?? null,
    waiting: load?.waiting ?? null,
    kvCache: percent(load?.kv_use),
    tokensPerSecond: load?.tokens_per_second ?? null,
    gpuUse: used.length === 0 ? null : percent(used.reduce((sum, one) => sum + one, 0) / used.length),
    gpuMemory: total === 0 ? null : percent(memory.reduce((sum, [some]) => sum + some, 0) / total),
  };
}

function percent(share: number | null | undefined): number | null {
  return share == null ? null : Math.round(1000 * share) / 10;
}
