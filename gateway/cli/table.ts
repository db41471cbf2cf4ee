import { printable } from '../../shared/terminal/printable.ts';

/** Rows that wait for each other, so that their columns have one width; the next ones may be wider. */
const TOGETHER = 100;
const GAP = '  ';

/** A list for people: a head, and columns below it. Cells may be what strangers said. */
export class Table {
  readonly #widths: number[];
  #rows: (readonly string[])[];
  readonly #print: (line: string) => void;

  /** `head`: a name for each column, with the unit where cells do not have it. */
  constructor(head: readonly string[], print: (line: string) => void = console.log) {
    this.#print = print;
    this.#widths = head.map(() => 0);
    this.#rows = [head];
  }

  add(cells: readonly string[]): void {
    this.#rows.push(cells);
    if (this.#rows.length > TOGETHER) this.flush();
  }

  /** Prints what waits; of an empty list the head. */
  flush(): void {
    const rows = this.#rows.map((cells) => cells.map(printable));
    this.#rows = [];
    for (const cells of rows)
      for (const [n, cell] of cells.entries()) this.#widths[n] = Math.max(this.#widths[n] ?? 0, cell.length);
    for (const cells of rows) {
      const line = cells.map((cell, n) => cell.padEnd(this.#widths[n] ?? 0)).join(GAP);
      this.#print(line.trimEnd());
    }
  }
}
