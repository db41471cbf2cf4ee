/**
 * A moving picture of a recorded terminal session, as an SVG without scripts. It knows the control codes that our
 * programs write: line feed, carriage return, and the codes that erase a line. It drops all others.
 */

export interface TerminalRecording {
  columns: number;
  /** What the terminal got, and when, in seconds since the start. */
  events: readonly (readonly [seconds: number, text: string])[];
}

/** One text in one row of the picture, and when it is shown, in seconds. */
interface Shown {
  row: number;
  text: string;
  from: number;
  /** Undefined: until the end. */
  to: number | undefined;
}

/** Further rows and events are left out. */
const ROWS_MAX = 120;
const EVENTS_MAX = 20_000;
/** Longer pauses of the recording are shortened to this. */
const PAUSE_MAX_S = 1.5;
/** How long the last picture stays before the first one comes again. */
const LAST_S = 6;
/** Size of a character, for the usual monospaced fonts, in units of the picture. */
const [CHAR_WIDTH, ROW_HEIGHT, MARGIN, FONT_SIZE] = [7.25, 17, 14, 12];
/** An escape sequence (ECMA-48, 5.4), or a single control character. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: control codes are what this reads.
const CODES = /(\x1b\[[0-?]*[ -/]*[@-~]|\x1b[^[]|[\x00-\x1f\x7f])/;

// biome-ignore lint/suspicious/noControlCharactersInRegex: the same.
const ERASE = /^\x1b\[[0-2]?K$/;

const escaped = (text: string) => text.replace(/[<>&"]/g, (one) => `&#${one.charCodeAt(0)};`);

export function terminalSvg({ columns, events }: TerminalRecording): string {
  const { shown, endS } = replay(columns, events.slice(0, EVENTS_MAX));
  const durationS = endS + LAST_S;
  const rows = Math.max(1, ...shown.map(({ row }) => row + 1));
  const [width, height] = [Math.ceil(columns * CHAR_WIDTH) + 2 * MARGIN, rows * ROW_HEIGHT + 2 * MARGIN];
  const body = shown.map((one) => textElement(one, durationS)).join('\n');
  const font = `font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="${FONT_SIZE}"`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" ${font} fill="#d8dee6">
<title>A recorded terminal session</title>
<rect width="100%" height="100%" rx="6" fill="#16191d"/>
${body}
</svg>
`;
}

/** Programs that show no animations see the last picture. */
function textElement({ row, text, from, to }: Shown, durationS: number): string {
  const y = MARGIN + (row + 0.75) * ROW_HEIGHT;
  const part = (seconds: number) => (seconds / durationS).toFixed(4);
  const [values, times] = to === undefined ? ['0;1', `0;${part(from)}`] : ['0;1;0', `0;${part(from)};${part(to)}`];
  const animate = `<animate attributeName="opacity" calcMode="discrete" dur="${durationS.toFixed(2)}s" repeatCount="indefinite" values="${values}" keyTimes="${times}"/>`;
  const still = to === undefined ? '' : ' opacity="0"';
  return `<text x="${MARGIN}" y="${y}" xml:space="preserve"${still}>${escaped(text)}${animate}</text>`;
}

function replay(columns: number, events: TerminalRecording['events']): { shown: Shown[]; endS: number } {
  const screen = new Screen(columns);
  const shown: Shown[] = [];
  const open = new Map<number, Shown>();
  let [atS, lastS] = [0, 0];
  for (const [seconds, text] of events) {
    atS += Math.min(PAUSE_MAX_S, Math.max(0, seconds - lastS));
    lastS = seconds;
    screen.write(text);
    for (const [row, line] of screen.rows.entries()) {
      const before = open.get(row);
      if ((before?.text ?? '') === line) continue;
      if (before !== undefined) before.to = atS;
      open.delete(row);
      if (line === '') continue;
      const next: Shown = { row, text: line, from: atS, to: undefined };
      open.set(row, next);
      shown.push(next);
    }
  }
  // A text that is replaced in the same moment was never seen.
  return { shown: shown.filter(({ from, to }) => from !== to), endS: atS };
}

class Screen {
  readonly #columns: number;
  readonly #rows: string[][] = [[]];
  #column = 0;

  constructor(columns: number) {
    this.#columns = columns;
  }

  get rows(): string[] {
    return this.#rows.map((cells) => cells.join('').trimEnd());
  }

  write(text: string): void {
    for (const piece of text.split(CODES)) {
      if (piece === '\n') this.#newRow();
      else if (piece === '\r') this.#column = 0;
      else if (ERASE.test(piece)) this.#erase(piece);
      else if (!CODES.test(piece)) for (const char of piece) this.#put(char);
    }
  }

  #put(char: string): void {
    if (this.#column >= this.#columns) this.#newRow();
    const cells = this.#rows.at(-1) ?? [];
    while (cells.length < this.#column) cells.push(' ');
    cells[this.#column++] = char;
  }

  #newRow(): void {
    this.#column = 0;
    if (this.#rows.length < ROWS_MAX) this.#rows.push([]);
  }

  /** ECMA-48, 8.3.41: 2 erases the row, 1 its begin, otherwise its end. */
  #erase(code: string): void {
    const cells = this.#rows.at(-1) ?? [];
    if (code.includes('2')) cells.length = 0;
    else if (code.includes('1')) cells.fill(' ', 0, this.#column + 1);
    else cells.length = Math.min(cells.length, this.#column);
  }
}
