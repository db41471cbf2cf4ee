/**
 * A run as a picture: (A) replicas, faults and responses over time; (B) tokens per second next to the serving replicas.
 */
import type { Run } from './result.ts';

const WIDTH = 860;
const LEFT = 116;
const RIGHT = 14;
const INNER = WIDTH - LEFT - RIGHT;
const BLUE = '#2563a8';
const GREY = '#7a7a7a';
const RED = '#c0392b';
const COLORS = ['#b0563b', '#8e44ad', '#d9a400', '#16838b', '#4b8f5a', '#2c3e50', '#d35400', '#7f8c8d', '#c2186b'];

interface Scale {
  x(value: number): number;
  y(value: number): number;
}

interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
  /** The largest value on each axis; both begin at 0. */
  xMost: number;
  yMost: number;
}

const n = (value: number) => value.toFixed(1);
const text = (x: number, y: number, words: string, more = '') =>
  `<text x="${n(x)}" y="${n(y)}" ${more}>${words.replaceAll('&', '&amp;').replaceAll('<', '&lt;')}</text>`;

function scaleOf({ left, top, width, height, xMost, yMost }: Frame): Scale {
  return { x: (value) => left + (value / xMost) * width, y: (value) => top + height - (value / yMost) * height };
}

/** A step that gives about five ticks. */
function step(most: number): number {
  const rough = most / 5;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  return ([1, 2, 5, 10].find((factor) => factor * magnitude >= rough) ?? 10) * magnitude;
}

function axes(frame: Frame, xName: string, yName: string): string {
  const { x, y } = scaleOf(frame);
  const lines = [
    `<path d="M${n(frame.left)} ${n(frame.top)} V${n(y(0))} H${n(frame.left + frame.width)}" fill="none" stroke="#444"/>`,
  ];
  for (let value = 0; value <= frame.yMost; value += step(frame.yMost)) {
    lines.push(`<path d="M${n(frame.left)} ${n(y(value))} h${n(frame.width)}" stroke="#e4e4e4"/>`);
    lines.push(text(frame.left - 6, y(value) + 4, String(value), 'text-anchor="end" fill="#444"'));
  }
  for (let value = 0; value <= frame.xMost; value += step(frame.xMost))
    lines.push(text(x(value), y(0) + 15, String(value), 'text-anchor="middle" fill="#444"'));
  lines.push(text(frame.left + frame.width, y(0) + 29, xName, 'text-anchor="end" fill="#666"'));
  lines.push(text(frame.left, frame.top - 6, yName, 'fill="#666"'));
  return lines.join('\n');
}

function path(points: readonly (readonly [number, number])[], { x, y }: Scale, more: string): string {
  const d = points.map(([at, value], index) => `${index === 0 ? 'M' : 'L'}${n(x(at))} ${n(y(value))}`).join('');
  return `<path d="${d}" fill="none" ${more}/>`;
}

function chaosPanel({ a, options }: Run, top: number): { svg: string; height: number } {
  if (a === undefined) return { svg: '', height: 0 };
  const seconds = a.samples.length;
  const frame = { left: LEFT, top: top + 40, width: INNER, height: 110, xMost: seconds, yMost: options.replicas };
  const scale = scaleOf(frame);
  const kinds = [...new Set(a.strikes.map(({ fault }) => fault))].sort();
  const rows = kinds.map((kind, row) => {
    const color = COLORS[row % COLORS.length] ?? GREY;
    const at = frame.top + frame.height + 48 + row * 14;
    const bars = a.strikes
      .filter(({ fault }) => fault === kind)
      .map((strike) => {
        const from = (strike.at - a.beginAt) / 1_000;
        const until = Math.min(seconds, strike.until === null ? seconds : (strike.until - a.beginAt) / 1_000);
        const width = Math.max(2, scale.x(until) - scale.x(from));
        return `<rect x="${n(scale.x(from))}" y="${n(at - 9)}" width="${n(width)}" height="9" fill="${color}" opacity="0.8"><title>${strike.replica}</title></rect>`;
      });
    return `${bars.join('')}${text(LEFT - 6, at - 1, kind, 'font-size="10" text-anchor="end" fill="#222"')}`;
  });
  const lower = frame.top + frame.height + 48 + kinds.length * 14 + 24;
  const most = Math.max(1, ...a.samples.map(({ ended }) => ended));
  const answers = { left: LEFT, top: lower, width: INNER, height: 80, xMost: seconds, yMost: most };
  const below = scaleOf(answers);
  const errors = a.samples.filter(({ errors }) => errors > 0);
  const svg = [
    text(LEFT, top + 14, `(A) open loop, ${n(a.perSecond)} requests/s, faults every 2 to 10 s`, 'font-weight="bold"'),
    axes(frame, 's', 'replicas that the gateway lists as serving'),
    path(
      a.samples.map(({ at, serving }) => [at, serving]),
      scale,
      `stroke="${BLUE}" stroke-width="1.5"`,
    ),
    ...rows,
    axes(answers, 's', 'answers per second (blue), errors that a client saw (red)'),
    path(
      a.samples.map(({ at, ended }) => [at, ended]),
      below,
      `stroke="${BLUE}"`,
    ),
    ...errors.map(
      ({ at, errors }) => `<circle cx="${n(below.x(at))}" cy="${n(below.y(errors))}" r="3" fill="${RED}"/>`,
    ),
  ];
  return { svg: svg.join('\n'), height: lower + 80 + 40 - top };
}

function replicasPanel({ b, options }: Run, top: number): { svg: string; height: number } {
  if (b === undefined) return { svg: '', height: 0 };
  const width = INNER * 0.6 - 30;
  const seen = Math.max(...b.windows.map(({ tokensPerSecond }) => tokensPerSecond));
  const most = Math.max(options.replicas * b.engineTokensPerSecond, seen);
  const seconds = Math.max(...b.windows.map(({ at }) => at));
  const time = { left: LEFT, top: top + 40, width, height: 170, xMost: seconds, yMost: most };
  const spread = { ...time, left: LEFT + width + 60, width: INNER * 0.4 - 30, xMost: options.replicas };
  const [scale, dots] = [scaleOf(time), scaleOf(spread)];
  const line = b.windows.map(({ at, tokensPerSecond }) => [at, tokensPerSecond] as const);
  const could = b.windows.map(({ at, serving }) => [at, serving * b.engineTokensPerSecond] as const);
  const windows = b.windows.filter(({ settled }) => settled);
  const mean = (of: (one: (typeof windows)[number]) => number) =>
    windows.reduce((sum, window) => sum + of(window), 0) / windows.length;
  const zero = mean(({ tokensPerSecond }) => tokensPerSecond) - b.tokensPerReplica * mean(({ serving }) => serving);
  const ends = [4, options.replicas].map((x) => [x, zero + b.tokensPerReplica * x] as const);
  const svg = [
    text(LEFT, top + 14, `(B) closed loop, ${b.clients} clients, replicas killed and started`, 'font-weight="bold"'),
    axes(time, 's', 'tokens/s: clients got (blue), engines of those that serve can give (grey)'),
    path(could, scale, `stroke="${GREY}" stroke-dasharray="4 3"`),
    path(line, scale, `stroke="${BLUE}" stroke-width="1.5"`),
    axes(spread, 'replicas', `tokens/s, r = ${b.pearson.toFixed(3)}`),
    path(ends, dots, `stroke="${GREY}"`),
    ...windows.map(
      ({ serving, tokensPerSecond }) =>
        `<circle cx="${n(dots.x(serving))}" cy="${n(dots.y(tokensPerSecond))}" r="2.5" fill="${BLUE}"/>`,
    ),
  ];
  return { svg: svg.join('\n'), height: 260 };
}

export function picture(run: Run): string {
  const above = chaosPanel(run, 10);
  const below = replicasPanel(run, 10 + above.height);
  const height = 10 + above.height + below.height;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${n(height)}" font-family="sans-serif" font-size="11">`,
    '<title>Chaos: replicas, faults, answers and errors over time; tokens per second against replicas</title>',
    '<rect width="100%" height="100%" fill="white"/>',
    above.svg,
    below.svg,
    '</svg>',
    '',
  ].join('\n');
}
