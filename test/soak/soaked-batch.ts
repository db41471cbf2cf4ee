/** A batch that runs while gateways and PostgreSQL fail: each of its lines must have one result. */
import { eventually } from '../support/processes.ts';
import { MODEL } from '../support/test-cluster.ts';

const DONE_MS = 180_000;
/** Of each line. */
const STAND_IN = { tokens: 5, tokensPerSecond: 5 };

/** True if an engine got the request for a line. */
export function isLine({ bodyStart }: { bodyStart: string }): boolean {
  return bodyStart.includes(JSON.stringify(STAND_IN));
}

interface SoakedBatchOptions {
  addresses: readonly { url: string }[];
  key: string;
  lines: number;
}

export class SoakedBatch {
  readonly #options: SoakedBatchOptions;
  readonly #id: string;

  private constructor(options: SoakedBatchOptions, id: string) {
    this.#options = options;
    this.#id = id;
  }

  static async start(options: SoakedBatchOptions): Promise<SoakedBatch> {
    const body = { model: MODEL, messages: [{ role: 'user', content: 'x' }], stand_in: STAND_IN };
    const line = (n: number) =>
      JSON.stringify({ custom_id: `line-${n}`, method: 'POST', url: '/v1/chat/completions', body });
    const lines = Array.from({ length: options.lines }, (_, n) => line(n));
    const form = new FormData();
    form.set('purpose', 'batch');
    form.set('file', new Blob([lines.join('\n')]), 'lines.jsonl');
    const { id } = await ask(options, 'files', { method: 'POST', body: form });
    const input = { input_file_id: id, endpoint: '/v1/chat/completions', completion_window: '24h' };
    const headers = { 'content-type': 'application/json' };
    const batch = await ask(options, 'batches', { method: 'POST', headers, body: JSON.stringify(input) });
    return new SoakedBatch(options, String(batch.id));
  }

  /** Waits until the batch is done. */
  async results(): Promise<{ lines: number; missed: string[] }> {
    const options = this.#options;
    let last: Record<string, unknown> | undefined;
    try {
      await eventually('the batch', DONE_MS, async () => {
        last = await ask(options, `batches/${this.#id}`);
        return last.status === 'completed' ? true : undefined;
      });
    } catch {
      return { lines: 0, missed: [`the batch is not done: ${JSON.stringify(last)}`] };
    }
    const { addresses, key } = options;
    const url = `${addresses[0]?.url}/v1/files/${last?.output_file_id}/content`;
    const text = await (await fetch(url, { headers: { authorization: `Bearer ${key}` } })).text();
    const ids = text
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => (JSON.parse(line) as { custom_id: string }).custom_id);
    const different = new Set(ids).size;
    const isWhole = ids.length === options.lines && different === options.lines;
    const missed = isWhole ? [] : [`of ${options.lines} lines ${ids.length} have results, ${different} different ones`];
    return { lines: ids.length, missed };
  }
}

async function ask({ addresses, key }: SoakedBatchOptions, path: string, init: RequestInit = {}) {
  const headers = { authorization: `Bearer ${key}`, ...Object.fromEntries(new Headers(init.headers)) };
  const response = await fetch(`${addresses[0]?.url}/v1/${path}`, { ...init, headers });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return (await response.json()) as Record<string, unknown>;
}
