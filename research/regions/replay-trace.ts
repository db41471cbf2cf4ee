/**
 * `node research/regions/replay-trace.ts HOURS SPEED`: prints ServeGen's first hours as three lists of [second, tokens],
 * one for each origin; a replay at this speed has two requests per second.
 */
import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';
import { drawServeGen, parseServeGen } from '../workload/servegen.ts';

/** Mean requests per second of a replay: of three models, on a machine of two cores. */
const MEAN_PER_S = 2;
const WINDOW_S = 600;
const [INPUT_MAX, OUTPUT_MAX] = [8_192, 1_000];

const unpack = (name: string) =>
  gunzipSync(readFileSync(new URL(`../papers/traces/${name}.csv.gz`, import.meta.url))).toString();

const [hours, speed] = process.argv.slice(2).map(Number);
if (hours === undefined || speed === undefined || !(hours > 0 && speed > 0))
  throw new Error('usage: replay-trace.ts HOURS SPEED');
const trace = parseServeGen('m-mid', unpack('servegen-m-mid'), unpack('servegen-lengths'));
const toS = hours * 3_600;
const windows = trace.windows.filter(({ window }) => window * WINDOW_S < toS);
const meanPerS = windows.reduce((sum, { rate }) => sum + rate * WINDOW_S, 0) / toS;
const share = MEAN_PER_S / speed / meanPerS;
const drawn = drawServeGen(trace, { fromS: 0, toS, share, inputMax: INPUT_MAX, outputMax: OUTPUT_MAX, seed: 1 });
const origins: [number, number][][] = [[], [], []];
for (const [at, client] of drawn.clients.entries())
  origins[client % 3]?.push([drawn.requests.arrival[at] ?? 0, drawn.requests.output[at] ?? 1]);
console.log(JSON.stringify(origins));
