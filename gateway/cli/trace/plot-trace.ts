/** `otela-gateway trace plot` and `trace sample`. */
import { createReadStream, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import * as z from 'zod';
import { chartsSvg } from '../../../shared/text/svg-chart.ts';
import { type ApiTarget, askGateway, ClientError } from '../api-client.ts';
import { isStdoutClosed } from '../closed-stdout.ts';
import { NODE_FIELDS, readNodes } from '../read-nodes.ts';
import { type ClusterSample, type NodeSample, sampleSchema } from './node-samples.ts';
import { figuresText } from './paper-figures.ts';
import { readTraceLine } from './read-trace-line.ts';
import { TraceFigures } from './trace-figures.ts';

interface PlotOptions {
  trace: Readable | undefined;
  /** Path of the output of `trace sample`; undefined: no figures of nodes. */
  nodes: string | undefined;
  /** Models whose class is `reasoning` in the operator's settings. */
  reasoning: ReadonlySet<string>;
  /** Output directory for the SVG files and the numbers. */
  out: string;
}

/**
 * Writes each figure as SVG and JSON, and prints all as text.
 *
 * @throws ClientError for a line that is not from a trace, or if there is nothing to plot
 */
export async function plotTrace({ trace, nodes, reasoning, out }: PlotOptions): Promise<void> {
  const figures = new TraceFigures(reasoning);
  if (trace !== undefined)
    await eachLine(trace, (text) => {
      const line = readTraceLine(text);
      if (line !== undefined) figures.add(line);
    });
  if (nodes !== undefined)
    await eachLine(createReadStream(nodes), (line) => figures.addSample(sampleSchema.parse(JSON.parse(line))), nodes);
  const all = figures.figures();
  if (all.length === 0)
    throw new ClientError('the trace has no line of a request or a node, so there is nothing to plot');
  mkdirSync(out, { recursive: true });
  for (const { name, charts, facts } of all) {
    // A table has no chart.
    if (charts.length > 0) writeFileSync(join(out, `${name}.svg`), chartsSvg(charts));
    writeFileSync(join(out, `${name}.json`), `${JSON.stringify({ name, facts, charts }, null, 1)}\n`);
  }
  console.log(`${figuresText(all)}\n\nThe figures are in ${out}`);
  if (figures.truncated)
    console.error('the trace is too long: later minutes, prefixes or samples are not in the figures');
}

/** @throws ClientError with the number of the line that cannot be read */
export async function eachLine(source: Readable, take: (line: string) => void, what = 'a trace'): Promise<void> {
  let number = 0;
  // If `source` fails, the loop over its lines ends without an exception, so this promise reports the error.
  const failed = new Promise<never>((_, reject) =>
    source.once('error', (error) => reject(new ClientError(error.message))),
  );
  const reading = (async () => {
    for await (const line of createInterface({ input: source, crlfDelay: Number.POSITIVE_INFINITY })) {
      number++;
      if (line.trim() === '') continue;
      try {
        take(line);
      } catch (error) {
        throw new ClientError(`line ${number} is not a line of ${what}: ${whyNot(error)}: ${line.slice(0, 80)}`);
      }
    }
  })();
  await Promise.race([reading, failed]);
}

/** Returns the name of the first column with an invalid value. */
function whyNot(error: unknown): string {
  const [issue] = error instanceof z.ZodError ? error.issues : [];
  return issue === undefined ? 'not JSON' : `${issue.path.join('.')}: ${issue.message}`;
}

const modelsSchema = z.object({
  data: z.array(
    z.looseObject({ model: z.string().optional(), id: z.string().optional(), class: z.string().optional() }),
  ),
});

/** Returns the models whose class is `reasoning` in the gateway's settings. */
export async function reasoningModels(target: ApiTarget): Promise<Set<string>> {
  const { data } = modelsSchema.parse(await askGateway({ ...target, path: '/admin/models' }, 'GET', ''));
  return new Set(data.flatMap((one) => (one.class === 'reasoning' ? [one.id ?? one.model ?? ''] : [])));
}

const nodeSchema = z.looseObject({
  ...NODE_FIELDS,
  in_flight: z.number().nullable(),
  load: z
    .looseObject({
      running: z.number(),
      kv_use: z.number().nullable(),
      tokens_per_second: z.number().nullable().optional(),
    })
    .nullable(),
  models: z.array(z.looseObject({ id: z.string() })),
  hardware: z.looseObject({ gpus: z.array(z.looseObject({ class: z.string() })) }),
});
const telemetrySchema = z.looseObject({
  gpus: z.array(z.looseObject({ power_w: z.number().nullable().optional() })).nullable(),
});
const factoriesSchema = z.object({
  data: z.array(
    z.looseObject({
      clusters: z.array(
        z.looseObject({
          id: z.string(),
          idle_gpus: z.number().optional(),
          idle_gpus_by_class: z.record(z.string(), z.number()).optional(),
        }),
      ),
    }),
  ),
});

/** Prints one line of JSON per node that serves or waits, and per cluster of a factory. Repeats if `everyMs` is set. */
export async function sampleNodes(target: ApiTarget, everyMs: number | undefined): Promise<void> {
  const nodesDoor = { ...target, path: '/admin/nodes' };
  do {
    const timestamp = new Date().toISOString();
    for (const state of ['SERVING', 'JOIN']) {
      for await (const node of readNodes(nodesDoor, new URLSearchParams({ state, limit: '1000' }), nodeSchema)) {
        const { session, provider, cluster, in_flight, load, models, hardware } = node;
        const sample: NodeSample & Record<string, unknown> = {
          timestamp,
          session,
          provider,
          cluster,
          state,
          gpus: hardware.gpus.length,
          gpu: hardware.gpus[0]?.class ?? null,
          models: models.map(({ id }) => id),
          // A node without requests reports no load, so it counts as idle.
          busy: (load?.running ?? 0) > 0 || (in_flight ?? 0) > 0,
          kv_use: load?.kv_use ?? null,
          power_w: await powerOf(nodesDoor, session),
          tokens_per_second: load?.tokens_per_second ?? null,
        };
        console.log(JSON.stringify(sample));
        if (isStdoutClosed()) return;
      }
    }
    for (const sample of await clusterSamples(target, timestamp)) console.log(JSON.stringify(sample));
    if (everyMs !== undefined) await sleep(everyMs);
  } while (everyMs !== undefined && !isStdoutClosed());
}

/** Returns the GPUs that clusters of factories report as idle, by class if the cluster knows it. */
async function clusterSamples(target: ApiTarget, timestamp: string): Promise<ClusterSample[]> {
  const { data } = factoriesSchema.parse(await askGateway({ ...target, path: '/admin/factory' }, 'GET', ''));
  return data.flatMap(({ clusters }) =>
    clusters.flatMap(({ id: cluster, idle_gpus: idle, idle_gpus_by_class: byClass }): ClusterSample[] => {
      if (byClass !== undefined)
        return Object.entries(byClass).map(([gpu, idle_gpus]) => ({ timestamp, cluster, gpu, idle_gpus }));
      return idle === undefined ? [] : [{ timestamp, cluster, gpu: null, idle_gpus: idle }];
    }),
  );
}

/** Power of all GPUs of a node in watts. Null: the agent cannot be reached, or a GPU has no value. */
async function powerOf(target: ApiTarget, session: string): Promise<number | null> {
  try {
    const { gpus } = telemetrySchema.parse(await askGateway(target, 'GET', `/${session}/telemetry`));
    if (gpus === null || gpus.length === 0) return null;
    return gpus.reduce<number | null>(
      (sum, { power_w }) => (sum === null || power_w == null ? null : sum + power_w),
      0,
    );
  } catch {
    return null;
  }
}
