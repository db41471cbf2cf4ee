/** One line of a chart: points in order of x. */
export interface Series {
  name: string;
  points: readonly (readonly [number, number])[];
}

export interface Chart {
  title: string;
  x: string;
  y: string;
  series: readonly Series[];
  /** The axes that are logarithmic; absent: none. */
  log?: 'x' | 'xy';
}

const COLORS = ['#2563a8', '#b0563b', '#4b8f5a', '#8a63a8', '#7a7a7a', '#b08a2e', '#2f8f8f'];
const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP, GAP] = [360, 220, 64, 40, 30, 30];
/** Maximum number of points that are drawn per line. More points could not be distinguished at this width. */
const POINTS_MAX = 300;

/**
 * Characters that XML 1.0 cannot represent. A single one makes the whole picture invalid:
 * https://www.w3.org/TR/xml/#charsets
 */
const NO_XML = /[^\t\n\r -\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu;

const escaped = (text: string) => text.replace(NO_XML, '\uFFFD').replace(/[<>&"]/g, (one) => `&#${one.charCodeAt(0)};`);

/** Draws the charts side by side as one SVG, each with a legend. */
export function chartsSvg(charts: readonly Chart[]): string {
  const each = LEFT + WIDTH + GAP;
  const legend = Math.max(...charts.map(({ series }) => series.length)) * 16;
  const height = TOP + HEIGHT + BOTTOM + legend + 10;
  const body = charts.map((chart, i) => chartSvg(chart, i * each + LEFT)).join('');
  const title = escaped(charts.map((chart) => chart.title).join('; '));
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${charts.length * each} ${height}" font-family="sans-serif" font-size="12">\n<title>${title}</title>\n<rect width="100%" height="100%" fill="white"/>\n${body}</svg>\n`;
}

function chartSvg({ title, x, y, series, log }: Chart, left: number): string {
  const all = series.flatMap(({ points }) => points);
  const across = scale(
    all.map(([at]) => at),
    log !== undefined,
    0,
    WIDTH,
  );
  const up = scale(
    all.map(([, at]) => at),
    log === 'xy',
    HEIGHT,
    0,
  );
  const place = ([a, b]: readonly [number, number]) =>
    `${(left + across.at(a)).toFixed(1)},${(TOP + up.at(b)).toFixed(1)}`;
  const lines = series.map(({ name, points }, i) => {
    const color = COLORS[i % COLORS.length];
    const every = Math.max(1, Math.ceil(points.length / POINTS_MAX));
    const drawn = points.filter((_, n) => n % every === 0 || n === points.length - 1);
    const yLegend = TOP + HEIGHT + BOTTOM + 12 + i * 16;
    const legend = `<rect x="${left}" y="${yLegend - 9}" width="12" height="4" fill="${color}"/><text x="${left + 18}" y="${yLegend - 3}">${escaped(name)}</text>`;
    // A line with a single point would be invisible, so it is drawn as a dot.
    const dot = drawn.length === 1 && drawn[0] !== undefined ? place(drawn[0]).split(',') : undefined;
    const line =
      dot === undefined
        ? `<polyline fill="none" stroke="${color}" stroke-width="1.6" points="${drawn.map(place).join(' ')}"/>`
        : `<circle cx="${dot[0]}" cy="${dot[1]}" r="3" fill="${color}"/>`;
    return `${line}${legend}\n`;
  });
  const marksX = across.marks.map(
    (at) =>
      `<text x="${(left + across.at(at)).toFixed(1)}" y="${TOP + HEIGHT + 15}" text-anchor="middle">${short(at)}</text>`,
  );
  const marksY = up.marks.map(
    (at) =>
      `<line x1="${left}" x2="${left + WIDTH}" y1="${(TOP + up.at(at)).toFixed(1)}" y2="${(TOP + up.at(at)).toFixed(1)}" stroke="#ddd"/><text x="${left - 6}" y="${(TOP + up.at(at) + 4).toFixed(1)}" text-anchor="end">${short(at)}</text>`,
  );
  return (
    `<text x="${left}" y="18" font-weight="bold">${escaped(title)}</text>\n${marksY.join('')}${marksX.join('')}` +
    `<text x="${left + WIDTH / 2}" y="${TOP + HEIGHT + 32}" text-anchor="middle" fill="#555">${escaped(x)}; up: ${escaped(y)}</text>\n` +
    `<rect x="${left}" y="${TOP}" width="${WIDTH}" height="${HEIGHT}" fill="none" stroke="#444"/>\n${lines.join('')}`
  );
}

/** Maps values to pixels, and chooses three to six round tick marks. A linear axis begins at zero. */
function scale(values: readonly number[], log: boolean, from: number, to: number) {
  // A loop instead of `Math.max(...values)`, because two years of minutes are more values than a function call accepts
  // as arguments.
  let [most, least] = [Number.MIN_VALUE, log ? Number.POSITIVE_INFINITY : 0];
  for (const one of values) {
    if (!Number.isFinite(one) || (log && one <= 0)) continue;
    most = Math.max(most, one);
    least = Math.min(least, one);
  }
  const part = log
    ? // Values without a logarithm are drawn at the edge, because a browser does not draw a line that contains an infinite point.
      (at: number) => (most === least ? 0.5 : at <= least ? 0 : Math.log(at / least) / Math.log(most / least))
    : (at: number) => (most === least ? 0.5 : (at - least) / (most - least));
  return {
    at: (value: number) => from + part(value) * (to - from),
    marks: log ? decades(least, most) : round(least, most),
  };
}

/** Tick marks of a logarithmic axis: powers of ten. If these are few, also their double and fivefold. */
function decades(least: number, most: number): number[] {
  const from = Math.floor(Math.log10(least));
  const powers = Array.from(
    { length: Math.max(0, Math.ceil(Math.log10(most)) - from + 1) },
    (_, n) => 10 ** (from + n),
  );
  const within = (marks: readonly number[]) => marks.filter((at) => at >= least * 0.999 && at <= most * 1.001);
  const marks = within(powers);
  return marks.length >= 3
    ? marks
    : within(powers.flatMap((at) => [at, 2 * at, 5 * at])).map((at) => Number(at.toPrecision(6)));
}

function round(least: number, most: number): number[] {
  const rough = (most - least) / 4;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * unit).find((one) => one >= rough) ?? rough;
  const marks: number[] = [];
  for (let at = Math.ceil(least / step) * step; at <= most * 1.001; at += step) marks.push(Number(at.toPrecision(6)));
  return marks;
}

const short = (value: number) =>
  Math.abs(value) >= 1e6 ? `${value / 1e6}M` : Math.abs(value) >= 1e4 ? `${value / 1e3}k` : String(value);
