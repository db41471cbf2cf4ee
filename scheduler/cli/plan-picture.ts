import type { Plan } from '../planner/types.ts';
import type { SimulationResult } from '../simulator/simulate.ts';
import { countText, durationText } from './format-quantities.ts';

/** Maximum width of a pool's row in a terminal, characters. */
const COLUMNS = 48;
/** Letters for models; models after the last letter share it. */
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const COLOURS = ['#2563a8', '#b0563b', '#4b8f5a', '#8a63a8', '#b58a1f', '#3a8f9c', '#a8456b', '#6b7280'];
const FREE = '#e5e7eb';

interface Row {
  pool: string;
  gpu: string;
  gpus: number;
  used: number;
  /** Number of GPUs of each model, in the plan's order. */
  parts: { model: number; gpus: number }[];
}

const letter = (model: number) => LETTERS[Math.min(model, LETTERS.length - 1)] ?? '?';

function rowsOf(plan: Plan): Row[] {
  return plan.pools.map(({ pool, gpu, gpus, used }) => {
    const parts = plan.models.map(({ model }, m) => ({
      model: m,
      gpus: plan.placements
        .filter((one) => one.model === model && one.pool === pool)
        .reduce((sum, one) => sum + one.replicas * (one.gpus ?? one.tp), 0),
    }));
    return { pool, gpu, gpus, used, parts: parts.filter((part) => part.gpus > 0) };
  });
}

/**
 * Draws which GPUs a plan gives to which model, as text: one letter per GPU, or per group of GPUs if there are many.
 */
export function planPicture(plan: Plan): string {
  const rows = rowsOf(plan);
  const each = Math.max(1, Math.ceil(Math.max(1, ...rows.map(({ gpus }) => gpus)) / COLUMNS));
  const names = rows.map(({ pool, gpu }) => (pool === gpu ? pool : `${pool} (${gpu})`));
  const width = Math.max(0, ...names.map(({ length }) => length));
  const lines = rows.map((row, i) => {
    const cells = row.parts
      .map(({ model, gpus }) => letter(model).repeat(Math.max(1, Math.round(gpus / each))))
      .join('');
    const free = '·'.repeat(Math.max(0, Math.round(row.gpus / each) - cells.length));
    return `${(names[i] ?? '').padEnd(width)}  ${cells}${free}  ${countText(row.used)} of ${countText(row.gpus)}`;
  });
  const shown = plan.models.flatMap(({ model }, m) =>
    rows.some(({ parts }) => parts.some((part) => part.model === m)) ? [`${letter(m)} ${model}`] : [],
  );
  const scale = each === 1 ? 'a letter is a GPU' : `a letter is ${each} GPUs`;
  return [...lines, '', `${shown.join('   ')}   · free; ${scale}`].join('\n');
}

const [LEFT, BAR, HEIGHT, GAP] = [220, 480, 22, 12];
const escaped = (text: string) => text.replace(/[<>&"]/g, (one) => `&#${one.charCodeAt(0)};`);

/** Draws the same as SVG: one bar per pool. A bar's length is proportional to the pool's number of GPUs. */
export function planSvg(plan: Plan): string {
  const rows = rowsOf(plan);
  const most = Math.max(1, ...rows.map(({ gpus }) => gpus));
  const bars = rows.map(({ pool, gpu, gpus, used, parts }, i) => {
    const y = 40 + i * (HEIGHT + GAP);
    let x = LEFT;
    const cells = parts.map((part) => {
      const wide = (part.gpus / most) * BAR;
      const cell = `<rect x="${x.toFixed(1)}" y="${y}" width="${wide.toFixed(1)}" height="${HEIGHT}" fill="${COLOURS[part.model % COLOURS.length]}"><title>${escaped(plan.models[part.model]?.model ?? '')}: ${part.gpus} GPUs</title></rect>`;
      x += wide;
      return cell;
    });
    const free = `<rect x="${LEFT}" y="${y}" width="${((gpus / most) * BAR).toFixed(1)}" height="${HEIGHT}" fill="${FREE}"/>`;
    const name = `<text x="12" y="${y + 15}">${escaped(pool === gpu ? pool : `${pool} (${gpu})`)}</text>`;
    const end = `<text x="${(LEFT + (gpus / most) * BAR + 8).toFixed(1)}" y="${y + 15}" fill="#444">${used} of ${gpus}</text>`;
    return `${name}${free}${cells.join('')}${end}`;
  });
  const top = 56 + rows.length * (HEIGHT + GAP);
  const legend = plan.models.map(({ model }, m) => {
    const y = top + m * 20;
    return `<rect x="12" y="${y}" width="12" height="12" fill="${COLOURS[m % COLOURS.length]}"/><text x="30" y="${y + 11}">${escaped(model)}</text>`;
  });
  return svg(LEFT + BAR + 100, top + plan.models.length * 20 + 12, 'GPUs by model', [...bars, ...legend]);
}

/** Histogram of response times, with the 50th and 95th percentiles. */
export function latencySvg(result: SimulationResult): string {
  const times = result.latencies.slice().sort();
  if (times.length === 0) return svg(640, 60, 'No request succeeded', []);
  const longest = Math.max(result.latency.p99, 1e-9);
  const [width, height] = [640, 240];
  const points = Array.from({ length: 101 }, (_, i) => {
    const at = times[Math.min(times.length - 1, Math.floor((i / 100) * (times.length - 1)))] ?? 0;
    const x = 50 + (Math.min(at, longest) / longest) * (width - 80);
    return `${x.toFixed(1)},${(height - 40 - (i / 100) * (height - 80)).toFixed(1)}`;
  });
  const mark = (share: number, value: number) => {
    const x = 50 + (Math.min(value, longest) / longest) * (width - 80);
    const y = height - 40 - share * (height - 80);
    return `<circle cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="4" fill="${COLOURS[1]}"/><text x="${(x + 8).toFixed(1)}" y="${(y + 14).toFixed(1)}">${Math.round(share * 100)} of 100 within ${durationText(value)}</text>`;
  };
  return svg(width, height, 'Share of responses by latency', [
    `<line x1="50" y1="${height - 40}" x2="${width - 30}" y2="${height - 40}" stroke="#444"/><line x1="50" y1="40" x2="50" y2="${height - 40}" stroke="#444"/>`,
    `<polyline points="${points.join(' ')}" fill="none" stroke="${COLOURS[0]}" stroke-width="2"/>`,
    mark(0.5, result.latency.p50),
    mark(0.95, result.latency.p95),
    `<text x="50" y="${height - 20}" fill="#444">0</text><text x="${width - 30}" y="${height - 20}" text-anchor="end" fill="#444">${durationText(longest)}</text>`,
  ]);
}

function svg(width: number, height: number, title: string, body: readonly string[]): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">\n<title>${escaped(title)}</title>\n<rect width="100%" height="100%" fill="white"/>\n<text x="12" y="22" font-weight="bold">${escaped(title)}</text>\n${body.join('\n')}\n</svg>\n`;
}

/** Histogram of response times for a terminal, in ten steps up to the 99th percentile. */
export function latencyPicture(result: SimulationResult): string {
  const STEPS = 10;
  if (result.latencies.length === 0) return 'no request succeeded';
  const longest = Math.max(result.latency.p99, 1e-9);
  const counts = new Array<number>(STEPS).fill(0);
  for (const value of result.latencies) {
    const at = Math.min(STEPS - 1, Math.floor((value / longest) * STEPS));
    counts[at] = (counts[at] ?? 0) + 1;
  }
  const most = Math.max(1, ...counts);
  const lines = counts.map((many, i) => {
    const until = durationText(((i + 1) / STEPS) * longest);
    return (
      `${i === STEPS - 1 ? 'longer' : `up to ${until}`}`.padEnd(14) +
      `${'█'.repeat(Math.round((many / most) * 40))} ${countText(many)}`.trimStart()
    );
  });
  return ['responses by latency', ...lines].join('\n');
}
