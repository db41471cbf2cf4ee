/** The admin REST API through the Worker's entry point. */
import { exports } from 'cloudflare:workers';
import { expect } from 'vitest';
import { z } from 'zod';

export function knock(
  method: string,
  path: string,
  { body, key, headers = {} }: { body?: unknown; key?: string | undefined; headers?: Record<string, string> } = {},
): Promise<Response> {
  const all = new Headers(headers);
  if (key !== undefined) all.set('authorization', `Bearer ${key}`);
  const init: RequestInit = { method, headers: all, redirect: 'manual' };
  if (body !== undefined) init.body = typeof body === 'string' ? body : JSON.stringify(body);
  return exports.default.fetch(new Request(`https://gateway.test${path}`, init));
}

const envelope = z.object({ error: z.object({ message: z.string(), code: z.string(), param: z.string().nullable() }) });

export async function refusal(answer: Response | Promise<Response>, status: number, code: string) {
  const response = await answer;
  expect(response.status).toBe(status);
  const { error } = envelope.parse(await response.json());
  expect(error.code).toBe(code);
  return error;
}

/** Reads a successful response and parses it with `schema`. */
export async function good<T>(answer: Promise<Response>, schema: z.ZodType<T>): Promise<T> {
  const response = await answer;
  const text = await response.text();
  expect(response.status, text).toBeLessThan(300);
  return schema.parse(JSON.parse(text));
}
