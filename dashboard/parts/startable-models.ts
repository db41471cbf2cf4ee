/** Models that no node serves and that an autoscaler starts, for the catalog and the chat. */
import { useQuery } from '@tanstack/react-query';
import * as z from 'zod/mini';
import { readGateway } from '../api/client.ts';
import { t } from '../texts/index.ts';
import { about } from './format.ts';

/** Refetch intervals while a model is starting, and while none is. */
const SOON_MS = 3_000;
const LATER_MS = 15_000;

const STATES = ['cold', 'queued', 'starting', 'loading', 'resting', 'asleep', 'on-disk'] as const;

const AT_REST: ReadonlySet<StartableView['state']> = new Set(['cold', 'resting', 'asleep', 'on-disk']);

/** True if the model changes only when a request needs it. */
export const isAtRest = (state: StartableView['state']) => AT_REST.has(state);

const modelSchema = z.object({
  id: z.string(),
  state: z.optional(z.string()),
  ready_in_ms: z.optional(z.nullable(z.number())),
  loaded_percent: z.optional(z.nullable(z.number())),
  may_start: z.optional(z.boolean()),
  architecture: z.optional(z.object({ input_modalities: z.array(z.string()), output_modalities: z.array(z.string()) })),
});

export interface StartableView {
  id: string;
  state: (typeof STATES)[number];
  /** Estimated time until the model is ready, in milliseconds; null: not known. */
  readyInMs: number | null;
  /** Loaded part of the model, in percent; null: not known. */
  loadedPercent: number | null;
  mayStart: boolean;
}

/** Models for voice that nodes serve; undefined: there is none. */
export interface VoiceModels {
  /** Turns speech into text at `/v1/audio/transcriptions`. */
  hears?: string;
  /** Turns text into speech at `/v1/audio/speech`. */
  speaks?: string;
}

interface AllModels {
  startable: readonly StartableView[];
  voice: VoiceModels;
  /** Milliseconds until a loading model is ready, estimated from earlier starts. */
  readyIn: ReadonlyMap<string, number>;
}

const NONE: AllModels = { startable: [], readyIn: new Map(), voice: {} };

/** `someAreLoading`: the registry has models that no node serves yet. */
export function useAllModels(someAreLoading: boolean): AllModels {
  const { data } = useQuery({
    queryKey: ['all-models'],
    queryFn: async ({ signal }) => {
      const { data: all } = await readGateway(z.object({ data: z.array(modelSchema) }), '/v1/models?state=all', signal);
      return {
        startable: all.flatMap(startableOf),
        voice: voiceIn(all),
        readyIn: new Map(all.flatMap(({ id, ready_in_ms: ms }) => (ms == null ? [] : [[id, ms] as const]))),
      };
    },
    refetchInterval: ({ state: { data: known } }) =>
      someAreLoading || known?.startable.some(({ state }) => !isAtRest(state)) ? SOON_MS : LATER_MS,
  });
  return data ?? NONE;
}

/** A model that also reads text is a chat model that hears: engines do not serve transcriptions with it. */
function voiceIn(models: readonly z.infer<typeof modelSchema>[]): VoiceModels {
  const served = models.filter(({ state }) => state === undefined || state === 'ready');
  const hears = served.find(({ architecture: of }) => of?.input_modalities.join() === 'audio');
  const speaks = served.find(({ architecture: of }) => of?.output_modalities.includes('audio'));
  return { ...(hears && { hears: hears.id }), ...(speaks && { speaks: speaks.id }) };
}

/** A model without `may_start` is loading on a node and is not started by an autoscaler. */
function startableOf({
  id,
  state,
  may_start,
  ready_in_ms,
  loaded_percent,
}: z.infer<typeof modelSchema>): StartableView[] {
  const known = STATES.find((one) => one === state);
  if (known === undefined || may_start === undefined) return [];
  return [
    { id, state: known, mayStart: may_start, readyInMs: ready_in_ms ?? null, loadedPercent: loaded_percent ?? null },
  ];
}

const texts = t.startable;

export function startableWords({ state, readyInMs, loadedPercent }: StartableView): string {
  const words = state === 'loading' && loadedPercent !== null ? texts.loading(loadedPercent) : texts.states[state];
  return readyInMs === null || state === 'resting' ? words : `${words}, ${texts.within(about(readyInMs))}`;
}
