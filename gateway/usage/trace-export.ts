/**
 * Exports the workload trace: one line per request of the projects that enabled it, oldest hour first, read at the pace
 * of the reader.
 */
import type { Env } from '../env.ts';
import { csvHead, type TraceQuestion } from './trace-line.ts';
import { shardsBetween } from './usage-row.ts';

const PAGE = 500;

const encoder = new TextEncoder();

export function traceStream(env: Pick<Env, 'USAGE'>, question: TraceQuestion): ReadableStream<Uint8Array> {
  const shards = shardsBetween(question.from, question.to - 1);
  let after = 0;
  let head = question.format === 'csv' ? csvHead(question) : '';
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        for (;;) {
          const [shard] = shards;
          if (shard === undefined) {
            if (head !== '') controller.enqueue(encoder.encode(head));
            return controller.close();
          }
          const page = await env.USAGE.getByName(shard).traceLines(after, PAGE, question);
          after = page.after ?? 0;
          if (page.after === undefined) shards.shift();
          if (page.text === '') continue;
          controller.enqueue(encoder.encode(head + page.text));
          head = '';
          return;
        }
      },
    },
    { highWaterMark: 0 },
  );
}
