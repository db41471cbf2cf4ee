import { spawn } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { open, rm } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Gateway } from '../../test/support/gateway.ts';
import { freePort, temporaryDirectory } from '../../test/support/processes.ts';
import { NODE, ROOT } from '../../test/support/where.ts';
import { median } from '../stats.ts';
import type { Options, Row } from './main.ts';
import { memoryDuring } from './setup.ts';

const BYTES = 199_000_000;
const BOUNDARY = 'otela-bench';
const HEAD = `--${BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n`;
const TAIL = `\r\n--${BOUNDARY}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--${BOUNDARY}--\r\n`;

/**
 * Measures the upload and validation of 199 MB, whose form has `purpose` after the file. Compares them with the minimum
 * work of a server.
 */
export async function uploads({ lines, rounds }: Options): Promise<Row[]> {
  const directory = await temporaryDirectory('otela-upload');
  const file = join(directory, 'in.jsonl');
  await writeInput(file, lines, BYTES);
  const gateway = await Gateway.start({ port: await freePort() });
  const key = await gateway.createKey('bench');
  const plain = await startPlain();
  const times: { plain: number[]; gateway: number[] } = { plain: [], gateway: [] };
  const { before, most } = await memoryDuring(gateway, async () => {
    for (let round = 0; round < rounds; round++) {
      times.plain.push(await timed(() => send(`${plain.url}/`, file, {}, ['', ''])));
      times.gateway.push(await timed(() => uploadAndCheck(gateway, key, file)));
    }
  });
  plain.stop();
  await writeInput(file, lines, 201_000_000);
  const { status } = await send(`${gateway.url}/v1/files`, file, formHeaders(key), [HEAD, TAIL]);
  await rm(file);
  const [ours, theirs] = [median(times.gateway), median(times.plain)];
  return [
    {
      what: `${BYTES / 1e6} MB, ${lines} lines: upload and check, of a plain node:http upload with SHA-256 and JSON.parse`,
      value: `${(ours / 1_000).toFixed(1)} s, ${(theirs / 1_000).toFixed(1)} s: ${(ours / theirs).toFixed(2)}`,
      required: '≤ 2',
      holds: ours / theirs <= 2,
    },
    {
      what: 'memory of the gateway',
      value: `${before.toFixed(0)} MiB before, ${most.toFixed(0)} at most`,
      required: '≤ +150 MiB',
      holds: most - before <= 150,
    },
    { what: '201 MB', value: String(status), required: '413', holds: status === 413 },
  ];
}

/** Measures from the first byte to the state `in_progress`. Then cancels the batch, before a node runs it. */
async function uploadAndCheck(gateway: Gateway, key: string, file: string): Promise<void> {
  const { status, text } = await send(`${gateway.url}/v1/files`, file, formHeaders(key), [HEAD, TAIL]);
  if (status !== 200) throw new Error(`${status} ${text}`);
  const ask = async (method: string, path: string, body?: object) => {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const answer = await fetch(`${gateway.url}/v1${path}`, {
      method,
      headers,
      ...(body && { body: JSON.stringify(body) }),
    });
    return (await answer.json()) as { id: string; status: string; errors: unknown };
  };
  const { id: input } = JSON.parse(text) as { id: string };
  const wanted = { input_file_id: input, endpoint: '/v1/chat/completions', completion_window: '24h' };
  const { id } = await ask('POST', '/batches', wanted);
  for (;;) {
    const batch = await ask('GET', `/batches/${id}`);
    if (batch.status === 'in_progress') break;
    if (batch.status === 'failed') throw new Error(JSON.stringify(batch.errors));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await ask('POST', `/batches/${id}/cancel`);
  await ask('DELETE', `/files/${input}`);
}

const formHeaders = (key: string) => ({
  authorization: `Bearer ${key}`,
  'content-type': `multipart/form-data; boundary=${BOUNDARY}`,
});

/** Sends the file chunked and without a length, as OpenAI's Node client sends a stream. */
function send(url: string, file: string, headers: Record<string, string>, [head, tail]: [string, string]) {
  return new Promise<{ status: number; text: string }>((resolve, reject) => {
    const asked = request(
      url,
      { method: 'POST', headers: { ...headers, 'transfer-encoding': 'chunked' } },
      (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (piece: string) => {
          text += piece;
        });
        answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text }));
      },
    );
    // If the server refuses the upload, it answers before it has read the whole body, which may break the connection.
    asked.on('error', reject);
    if (head !== '') asked.write(head);
    createReadStream(file, { highWaterMark: 256 * 1024 })
      .on('end', () => asked.end(tail))
      .pipe(asked, { end: false });
  });
}

async function timed(run: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await run();
  return performance.now() - startedAt;
}

/**
 * Starts the server with the minimum work: a separate process that writes the body to a file, hashes it, and parses
 * each line.
 */
async function startPlain(): Promise<{ url: string; stop(): void }> {
  const child = spawn(NODE, [join(ROOT, 'bench/batch/plain-upload.ts'), tmpdir()], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const url = await new Promise<string>((resolve) =>
    child.stdout.once('data', (line: Buffer) => resolve(String(line).trim())),
  );
  return { url, stop: () => void child.kill() };
}

async function writeInput(path: string, lines: number, bytes: number): Promise<void> {
  const content = (i: number, padding: number) =>
    `${JSON.stringify({
      custom_id: `line-${i}`,
      method: 'POST',
      url: '/v1/chat/completions',
      body: { model: 'bench', messages: [{ role: 'user', content: 'x'.repeat(padding) }] },
    })}\n`;
  const padding = Math.floor(bytes / lines) - content(lines, 0).length;
  const handle = await open(path, 'w');
  for (let i = 0; i < lines; i += 1_000)
    await handle.write(Array.from({ length: Math.min(1_000, lines - i) }, (_, j) => content(i + j, padding)).join(''));
  const { size } = await handle.stat();
  if (size < bytes) await handle.write(`${' '.repeat(bytes - size - 1)}\n`);
  await handle.close();
}
