/** Values of one measure, one per plan. A plan with NaN has no value, and is never the best. */
export interface Bars {
  title: string;
  unit: string;
  values: { name: string; value: number }[];
  /** True if larger values are better. The best bar is filled. */
  more: boolean;
}

const COLOURS = ['#2563a8', '#b0563b', '#7a7a7a', '#4b8f5a', '#8a63a8'];
const [WIDTH, PANEL, HEIGHT, TOP] = [200, 230, 220, 40];

const escaped = (text: string) => text.replace(/[<>&"]/g, (one) => `&#${one.charCodeAt(0)};`);

/** Draws bars as SVG, with the panels next to each other. */
export function barsSvg(panels: readonly Bars[]): string {
  const body = panels.map((panel, i) => panelSvg(panel, i * PANEL + 20)).join('');
  const width = panels.length * PANEL + 20;
  // The names are in a legend, because they would overlap below bars that are 40 pixels wide.
  const names = panels[0]?.values.map(({ name }) => name) ?? [];
  const each = (width - 40) / Math.max(1, names.length);
  const legend = names.map((name, i) => {
    const x = 20 + i * each;
    return `<rect x="${x.toFixed(1)}" y="${HEIGHT + 44}" width="12" height="12" fill="${COLOURS[i % COLOURS.length]}"/><text x="${(x + 18).toFixed(1)}" y="${HEIGHT + 54}">${escaped(name)}</text>\n`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${HEIGHT + 70}" font-family="sans-serif" font-size="12">\n<title>${escaped(panels.map(({ title }) => title).join(', '))}</title>\n<rect width="100%" height="100%" fill="white"/>\n${body}${legend.join('')}</svg>\n`;
}

const figure = (value: number, digits: number) => (Number.isFinite(value) ? value.toPrecision(digits) : '-');

function panelSvg({ title, unit, values, more }: Bars, x: number): string {
  const known = values.map(({ value }) => value).filter(Number.isFinite);
  const most = Math.max(...known, 1e-12);
  const best = more ? most : Math.min(...known);
  const step = WIDTH / Math.max(1, values.length);
  const bars = values.map(({ name, value }, i) => {
    const height = Number.isFinite(value) ? (value / most) * (HEIGHT - TOP) : 0;
    const [left, y] = [x + i * step + step * 0.15, HEIGHT - height];
    const middle = left + step * 0.35;
    return (
      `<rect x="${left.toFixed(1)}" y="${y.toFixed(1)}" width="${(step * 0.7).toFixed(1)}" height="${height.toFixed(1)}" fill="${COLOURS[i % COLOURS.length]}"><title>${escaped(name)}</title></rect>` +
      `<text x="${middle.toFixed(1)}" y="${(y - 5).toFixed(1)}" text-anchor="middle"${value === best ? ' font-weight="bold"' : ''}>${value >= 100 ? value.toFixed(0) : figure(value, 3)}</text>\n`
    );
  });
  const label = `<text x="${x}" y="20" font-weight="bold">${escaped(title)}</text><text x="${x}" y="${HEIGHT + 20}" fill="#666">${escaped(unit)}, ${more ? 'more' : 'less'} is better</text>\n`;
  return `${label}<line x1="${x}" y1="${HEIGHT}" x2="${x + WIDTH}" y2="${HEIGHT}" stroke="#444"/>\n${bars.join('')}`;
}

/** Draws the same bars as text for a terminal. */
export function barsText(panels: readonly Bars[]): string {
  return panels
    .map(({ title, unit, values }) => {
      const most = Math.max(...values.map(({ value }) => value).filter(Number.isFinite), 1e-12);
      const width = Math.max(...values.map(({ name }) => name.length));
      const lines = values.map(
        ({ name, value }) =>
          `  ${name.padEnd(width)}  ${'█'.repeat(Number.isFinite(value) ? Math.max(1, Math.round((value / most) * 40)) : 0)} ${figure(value, 4)}`,
      );
      return `${title} (${unit})\n${lines.join('\n')}`;
    })
    .join('\n');
}
