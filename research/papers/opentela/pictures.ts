/** The two charts that the papers' chart module lacks, as SVG: stacked bars, and a table of figures. */

const COLOURS = ['#2563a8', '#4b8f5a', '#b08a2e', '#b0563b', '#c9c9c9', '#8a63a8', '#7a7a7a'];
const escaped = (text: string) => text.replace(/[<>&"]/g, (one) => `&#${one.charCodeAt(0)};`);
const figure = (value: number) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

function svg(width: number, height: number, title: string, body: string): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">\n<title>${escaped(title)}</title>\n<rect width="100%" height="100%" fill="white"/>\n<text x="10" y="18" font-weight="bold">${escaped(title)}</text>\n${body}</svg>\n`;
}

export interface Bar {
  name: string;
  /** One per name of the legend. */
  parts: readonly number[];
}

/** Stacked horizontal bars, each with its sum. */
export function barsSvg(title: string, unit: string, legend: readonly string[], bars: readonly Bar[]): string {
  const [left, width, step] = [230, 420, 26];
  const sum = ({ parts }: Bar) => parts.reduce((all, one) => all + one, 0);
  const most = Math.max(...bars.map(sum), Number.MIN_VALUE);
  const rows = bars.map((bar, row) => {
    const y = 34 + row * step;
    let x = left;
    const parts = bar.parts.map((part, at) => {
      const w = (part / most) * width;
      const drawn = `<rect x="${x.toFixed(1)}" y="${y}" width="${w.toFixed(1)}" height="16" fill="${COLOURS[at % COLOURS.length]}"/>`;
      x += w;
      return drawn;
    });
    const text = `<text x="${left - 8}" y="${y + 12}" text-anchor="end">${escaped(bar.name)}</text>`;
    return `${text}${parts.join('')}<text x="${(x + 6).toFixed(1)}" y="${y + 12}">${figure(sum(bar))} ${escaped(unit)}</text>\n`;
  });
  const below = 34 + bars.length * step + 14;
  const keys = legend.map(
    (name, at) =>
      `<rect x="${20 + at * 96}" y="${below - 9}" width="10" height="10" fill="${COLOURS[at % COLOURS.length]}"/><text x="${34 + at * 96}" y="${below}">${escaped(name)}</text>`,
  );
  return svg(left + width + 90, below + 14, title, `${rows.join('')}${keys.join('')}\n`);
}

export interface Table {
  title: string;
  /** undefined: not measured. */
  cells: readonly (readonly (number | undefined)[])[];
}

/** Tables next to each other: the requesting site by row, the serving site by column. Darker means more. */
export function tablesSvg(title: string, sites: readonly string[], tables: readonly Table[]): string {
  const [cell, left, top] = [64, 70, 62];
  const each = left + sites.length * cell + 24;
  const body = tables.map(({ title: name, cells }, at) => {
    const x0 = at * each + left;
    const most = Math.max(...cells.flat().map((one) => one ?? 0), Number.MIN_VALUE);
    const heads = sites.map(
      (site, n) =>
        `<text x="${x0 + n * cell + cell / 2}" y="${top - 6}" text-anchor="middle">${escaped(site)}</text><text x="${x0 - 6}" y="${top + n * 30 + 19}" text-anchor="end">${escaped(site)}</text>`,
    );
    const drawn = cells.flatMap((row, r) =>
      row.map((value, c) => {
        const shade = value === undefined ? 0 : value / most;
        const box = `<rect x="${x0 + c * cell}" y="${top + r * 30}" width="${cell}" height="30" fill="#2563a8" fill-opacity="${(0.05 + 0.55 * shade).toFixed(2)}" stroke="#fff"/>`;
        return `${box}<text x="${x0 + c * cell + cell / 2}" y="${top + r * 30 + 19}" text-anchor="middle">${value === undefined ? '–' : figure(value)}</text>`;
      }),
    );
    return `<text x="${x0}" y="${top - 24}">${escaped(name)}</text>${heads.join('')}${drawn.join('')}\n`;
  });
  return svg(tables.length * each + 10, top + sites.length * 30 + 16, title, body.join(''));
}
