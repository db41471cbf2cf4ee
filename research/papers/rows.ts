/** One claim of a paper beside what our program computes. */
export interface Row {
  claim: string;
  /** Absent: the paper prints no figure. */
  paper?: number | undefined;
  ours: number;
  unit: string;
  /** The range that `ours` must lie in; absent: reported only. */
  band?: readonly [number, number] | undefined;
  holds: boolean;
}

/** A row that must lie within `share` of the paper's figure, or within `band` where that is given. */
export function row(
  claim: string,
  unit: string,
  ours: number,
  { paper, share, band }: { paper?: number; share?: number; band?: readonly [number, number] } = {},
): Row {
  const range =
    band ??
    (paper !== undefined && share !== undefined ? ([paper * (1 - share), paper * (1 + share)] as const) : undefined);
  const holds = range === undefined || (ours >= range[0] && ours <= range[1]);
  return {
    claim,
    ...(paper === undefined ? {} : { paper }),
    ours,
    unit,
    ...(range === undefined ? {} : { band: range }),
    holds,
  };
}

/** A statement that is true or false, as a row. */
export function statement(claim: string, holds: boolean): Row {
  return { claim, ours: holds ? 1 : 0, unit: 'yes = 1', band: [1, 1], holds };
}

export function rowsText(rows: readonly Row[]): string {
  const cells = rows.map(({ claim, paper, ours, unit, band, holds }) => [
    band === undefined ? 'shown' : holds ? 'holds' : 'FAILS',
    claim,
    paper === undefined ? '' : figure(paper),
    figure(ours),
    band === undefined ? '' : `${figure(band[0])} to ${figure(band[1])}`,
    unit,
  ]);
  const head = ['', 'claim', 'paper', 'ours', 'allowed', 'unit'];
  const widths = head.map((name, i) => Math.max(name.length, ...cells.map((line) => line[i]?.length ?? 0)));
  return [head, ...cells]
    .map((line) =>
      line
        .map((cell, i) => cell.padEnd(widths[i] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

function figure(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString('en-US') : String(Number(value.toPrecision(3)));
}
