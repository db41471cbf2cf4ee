/** One claim of a paper next to our program's result. */
export interface Row {
  claim: string;
  /** absent: the paper prints no figure. */
  paper?: number | undefined;
  ours: number;
  unit: string;
  /** The range that must contain `ours`; absent: only reported. */
  band?: Band | undefined;
  /** Why `ours` misses the paper's claim, if the reason is known and `ours` is in the range of the miss. */
  missed?: string | undefined;
  holds: boolean;
}

export type Band = readonly [least: number, most: number];

/**
 * A figure of the paper needs a range, or a reason for none: a command that misses its headline must fail, or give the
 * reason.
 */
export type Allowed =
  | { paper?: undefined; band?: Band; miss?: Miss }
  | { paper: number; share: number; miss?: Miss }
  | { paper: number; band: Band; miss?: Miss }
  | { paper: number; reported: string };

/** A claim that ours is known to miss, with the range of ours. Outside both ranges the row fails. */
export interface Miss {
  band: Band;
  reason: string;
}

/** Makes a row that must be within `share` of the paper's figure, or within `band`, or is a known miss. */
export function row(claim: string, unit: string, ours: number, allowed: Allowed = {}): Row {
  const band = bandOf(allowed);
  const miss = 'miss' in allowed ? allowed.miss : undefined;
  const reached = band === undefined || within(ours, band);
  const missed = !reached && miss !== undefined && within(ours, miss.band);
  return {
    claim,
    ...(allowed.paper === undefined ? {} : { paper: allowed.paper }),
    ours,
    unit,
    ...(band === undefined ? {} : { band: reached || !missed ? band : miss.band }),
    ...(missed ? { missed: miss.reason } : {}),
    holds: reached || missed,
  };
}

function bandOf(allowed: Allowed): Band | undefined {
  if ('band' in allowed) return allowed.band;
  if ('share' in allowed) return [allowed.paper * (1 - allowed.share), allowed.paper * (1 + allowed.share)];
  return undefined;
}

const within = (value: number, [least, most]: Band) => value >= least && value <= most;

/** A statement that is true or false, as a row. */
export function statement(claim: string, holds: boolean): Row {
  return { claim, ours: holds ? 1 : 0, unit: 'yes = 1', band: [1, 1], holds };
}

export function rowsText(rows: readonly Row[]): string {
  const cells = rows.map(({ claim, paper, ours, unit, band, missed, holds }) => [
    band === undefined ? 'shown' : missed !== undefined ? 'MISSES' : holds ? 'holds' : 'FAILS',
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

/** Lists each missed claim with its reason; empty if there is none. */
export function missesText(rows: readonly Row[]): string {
  return rows
    .flatMap(({ claim, paper, ours, unit, missed }) =>
      missed === undefined
        ? []
        : [
            `misses: ${claim}: ${figure(ours)} ${unit}${paper === undefined ? '' : `, paper ${figure(paper)}`}. ${missed}`,
          ],
    )
    .join('\n');
}

function figure(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString('en-US') : String(Number(value.toPrecision(3)));
}
