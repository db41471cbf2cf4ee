import { SchedulerError } from '../../scheduler/errors.ts';
import { exponential, gamma, normal, type Random, seededRandom } from '../../scheduler/simulator/random.ts';
import { REQUESTS_MAX, type Requests, requestsFromRows } from '../../scheduler/simulator/request-arrivals.ts';

/** A client's arrivals in one window of ten minutes, as ServeGen (Xiang et al. 2025) publishes them. */
interface ClientWindow {
  client: number;
  /** Number of the window, from the start of the trace. */
  window: number;
  /** Requests/s. */
  rate: number;
  /** Coefficient of variation of the gaps between its requests. */
  cv: number;
  family: 'gamma' | 'weibull';
}

/** Tokens of a client's prompts and responses in six hours. */
interface ClientLengths {
  client: number;
  period: number;
  input: Quantiles;
  output: Quantiles;
}

interface Quantiles {
  mean: number;
  p50: number;
  p95: number;
}

export interface ServeGen {
  windows: readonly ClientWindow[];
  lengths: readonly ClientLengths[];
}

export interface DrawOptions {
  /** Seconds of the trace. */
  fromS: number;
  toS: number;
  /** Share of each client's requests that is drawn, as if a load balancer sent the others elsewhere. */
  share: number;
  /** Longest prompt and response, tokens: a model's context. */
  inputMax: number;
  outputMax: number;
  seed: number;
}

const WINDOW_S = 600;
const PERIOD_S = 21_600;
/** The 95th percentile of a standard normal. */
const Z95 = 1.645;

/**
 * Parses rows of CSV without their header.
 *
 * @throws SchedulerError `bad_input` with the line
 */
export function parseServeGen(trace: string, windows: string, lengths: string): ServeGen {
  return {
    windows: rows(windows).map(([client, window, rate, cv, family], i) => {
      const one = { client: Number(client), window: Number(window), rate: Number(rate), cv: Number(cv) };
      if (!Object.values(one).every(Number.isFinite) || (family !== 'g' && family !== 'w'))
        throw new SchedulerError('bad_input', `${trace}: line ${i + 2} is no window of a client`);
      return { ...one, family: family === 'g' ? 'gamma' : 'weibull' };
    }),
    lengths: rows(lengths)
      .filter(([name]) => name === trace)
      .map(([, client, period, ...values], i) => {
        const numbers = values.map(Number);
        if (numbers.length !== 6 || !numbers.every(Number.isFinite))
          throw new SchedulerError('bad_input', `${trace}: row ${i + 1} of its lengths is not complete`);
        const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = numbers;
        return {
          client: Number(client),
          period: Number(period),
          input: { mean: a, p50: b, p95: c },
          output: { mean: d, p50: e, p95: f },
        };
      }),
  };
}

const rows = (text: string): string[][] =>
  text
    .trim()
    .split('\n')
    .slice(1)
    .map((line) => line.split(','));

/**
 * Requests of the interval. Each client draws its own gaps, window by window, from its family and cv. Rates are never
 * interpolated, because that would make the next minute look like the last one. For a share `p` of a renewal process,
 * chosen at random, the gaps have cv² = 1 + p (cv² − 1). `clients[i]` is request i's client.
 */
export function drawServeGen(trace: ServeGen, options: DrawOptions): { requests: Requests; clients: Int32Array } {
  const drawn: [number, number, number, number][] = [];
  const lengths = new Map(trace.lengths.map((one) => [`${one.client}:${one.period}`, one]));
  for (const window of trace.windows) {
    const start = Math.max(options.fromS, window.window * WINDOW_S);
    const end = Math.min(options.toS, (window.window + 1) * WINDOW_S);
    if (start >= end) continue;
    const of = lengths.get(`${window.client}:${Math.floor((window.window * WINDOW_S) / PERIOD_S)}`);
    if (of === undefined) continue;
    // A separate seed for each window of each client: the draws of one client do not depend on the presence of others.
    const random = seededRandom(options.seed * 1_000_003 + window.client * 100_003 + window.window);
    const gap = gapOf(window, options.share, random);
    for (let now = start + gap() * random(); now < end; now += gap()) {
      if (drawn.length >= REQUESTS_MAX) throw new SchedulerError('bad_input', 'more requests than a trace may have');
      drawn.push([
        now - options.fromS,
        Math.min(options.inputMax, logNormal(of.input, random)),
        Math.min(options.outputMax, logNormal(of.output, random)),
        window.client,
      ]);
    }
  }
  drawn.sort((a, b) => a[0] - b[0]);
  return {
    requests: requestsFromRows(drawn.map(([at, input, output]) => [at, input, output] as const)),
    clients: Int32Array.from(drawn, ([, , , client]) => client),
  };
}

function gapOf({ rate, cv, family }: ClientWindow, share: number, random: Random): () => number {
  if (!(rate > 0)) return () => Number.POSITIVE_INFINITY;
  const mean = 1 / (rate * share);
  const thinned = Math.sqrt(Math.max(0.01, 1 + share * (cv * cv - 1)));
  if (Math.abs(thinned - 1) < 0.02) return () => exponential(random, mean);
  if (family === 'gamma') {
    const shape = 1 / thinned ** 2;
    return () => gamma(random, shape, mean / shape);
  }
  const shape = weibullShape(thinned);
  const scale = mean / gammaFunction(1 + 1 / shape);
  return () => scale * (-Math.log(1 - random())) ** (1 / shape);
}

/** The Weibull shape with the coefficient of variation `cv`, by bisection: it falls as the shape grows. */
export function weibullShape(cv: number): number {
  let [low, high] = [0.1, 20];
  for (let i = 0; i < 50; i++) {
    const middle = (low + high) / 2;
    const found = Math.sqrt(Math.max(0, gammaFunction(1 + 2 / middle) / gammaFunction(1 + 1 / middle) ** 2 - 1));
    if (found > cv) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

/** Lanczos (1964), g = 7, n = 9: 15 digits for positive arguments. */
function gammaFunction(x: number): number {
  const terms = [
    0.9999999999998099, 676.5203681218851, -1259.1392167224028, 771.3234287776531, -176.6150291621406,
    12.507343278686905, -0.13857109526572012, 9.984369578019572e-6, 1.5056327351493116e-7,
  ];
  const z = x - 1;
  let sum = terms[0] ?? 1;
  for (let i = 1; i < terms.length; i++) sum += (terms[i] ?? 0) / (z + i);
  const t = z + 7.5;
  return Math.sqrt(2 * Math.PI) * t ** (z + 0.5) * Math.exp(-t) * sum;
}

/** Log-normal through the median and the 95th percentile; the median if a client's lengths do not vary. */
function logNormal({ p50, p95 }: Quantiles, random: Random): number {
  const sigma = Math.log(Math.max(1, p95) / Math.max(1, p50)) / Z95;
  return Math.max(1, Math.round(Math.max(1, p50) * Math.exp(Math.max(0, sigma) * normal(random))));
}
