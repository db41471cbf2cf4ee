/** Formats a table with columns as wide as their widest cell. Numbers are right-aligned. */
export function table(header: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const cells = [header, ...rows.map((row) => row.map(String))];
  const widths = header.map((_, i) => Math.max(...cells.map((row) => width(row[i] ?? ''))));
  const line = (row: readonly string[]) =>
    row
      .map((cell, i) => pad(cell, widths[i] ?? 0, i > 0 && /^[-+−]?[\d.,]+( ?[%×a-zA-Z/]+)?$/.test(cell)))
      .join('  ')
      .trimEnd();
  return [line(header), widths.map((w) => '-'.repeat(w)).join('  '), ...rows.map((row) => line(row.map(String)))].join(
    '\n',
  );
}

const width = (text: string) => [...text].length;

function pad(text: string, to: number, right: boolean): string {
  const blanks = ' '.repeat(Math.max(0, to - width(text)));
  return right ? blanks + text : text + blanks;
}

export const percent = (share: number, digits = 1) => `${(share * 100).toFixed(digits)} %`;
export const signed = (share: number, digits = 1) => `${share >= 0 ? '+' : ''}${(share * 100).toFixed(digits)} %`;
