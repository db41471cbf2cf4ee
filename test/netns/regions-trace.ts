/** Recorded traces for three regions, at 60 times their speed, and the prices of their electricity. */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { z } from 'zod';
import { ROOT } from '../support/where.ts';

export const SPEED = 60;
/** Milliseconds of a response: of the first token, and per token. */
const [FIRST_MS, TOKEN_MS] = [100, 1.5];
const TOKENS_MAX = 1_000;

interface TraceRequest {
  afterMs: number;
  delayMs: number;
}

/** One list of requests for each of three origins. */
export type Trace = readonly TraceRequest[][];

const unpack = (name: string) =>
  gunzipSync(readFileSync(join(ROOT, `research/papers/traces/${name}.csv.gz`))).toString();

const request = (seconds: number, tokens: number): TraceRequest => ({
  afterMs: (1e3 * seconds) / SPEED,
  delayMs: FIRST_MS + TOKEN_MS * Math.min(TOKENS_MAX, tokens),
});

/** At 60 times its speed Azure's hour has 474 requests/s: one in this number is sent. */
const ONE_IN = 80;

/** Azure 2023: an hour of code and conversation. Each request belongs to an origin by its number. */
export function azureHour(): Trace {
  const rows = unpack('azure-2023')
    .trim()
    .split('\n')
    .slice(1)
    .filter((_, index) => index % ONE_IN === 0);
  return [0, 1, 2].map((origin) =>
    rows
      .filter((_, index) => index % 3 === origin)
      .map((line) => {
        const [at = '0', , output = '1'] = line.split(',');
        return request(Number(at), Number(output));
      }),
  );
}

/** The trace has fourteen days. */
export const HOURS_MAX = 14 * 24;
const listed = z.array(z.array(z.tuple([z.number(), z.number()])).max(100_000)).length(3);

/** ServeGen m-mid: hours of production load with days and nights. Each client belongs to one origin by its number. */
export function serveGenHours(hours: number): Trace {
  const command = [join(ROOT, 'research/regions/replay-trace.ts'), String(hours), String(SPEED)];
  const text = execFileSync(process.execPath, command, { encoding: 'utf8', maxBuffer: 64 << 20 });
  return listed.parse(JSON.parse(text)).map((own) => own.map(([seconds, tokens]) => request(seconds, tokens)));
}
