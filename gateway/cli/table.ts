import { printable } from '../../shared/terminal/printable.ts';

/**
 * Rows that are collected before they are printed, so that their columns get the same width. Later rows may be wider.
 */
const ROWS_PER_LAYOUT = 100;
const GAP = '  ';

/** A table for people: a head, and rows below it. Cells may contain untrusted text. */
export class Table {
  readonly #widths: number[];
  #rows: (readonly string[])[];
  readonly #print: (line: string) => void;

  /** @param head a name for each column, with the unit if the cells lack it */
  constructor(head: readonly string[], print: (line: string) => void = console.log) {
    this.#print = print;
    this.#widths = head.map(() => 0);
    this.#rows = [head];
  }

  add(cells: readonly string[]): void {
    this.#rows.push(cells);
    if (this.#rows.length > ROWS_PER_LAYOUT) this.flush();
  }

  /** Prints the collected rows. For an empty list only the head is printed. */
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
