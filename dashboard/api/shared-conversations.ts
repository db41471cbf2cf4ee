/** `/v1/otela/conversations/shares`: conversations that people show each other by a link. This page encrypts them. */
import * as z from 'zod/mini';
import { readGateway, send } from './client.ts';

const PATH = '/v1/otela/conversations/shares';

const listSchema = z.object({ data: z.array(z.object({ id: z.string(), bytes: z.number(), expires_at: z.string() })) });
const sharedSchema = z.object({ id: z.string(), owner: z.string(), expires_at: z.string() });

export const listShares = async (signal: AbortSignal) => (await readGateway(listSchema, PATH, signal)).data;

/** @throws Problem 429 if there is no space */
export async function addShare(id: string, box: Uint8Array<ArrayBuffer>, days: number) {
  const response = await send(`${PATH}/${id}?days=${days}`, { method: 'PUT', body: box });
  return sharedSchema.parse(await response.json());
}

export const deleteShare = async (id: string): Promise<void> =>
  void (await send(`${PATH}/${id}`, { method: 'DELETE' }));

/** @throws Problem 404 if the link has ended */
export async function readShare(owner: string, id: string): Promise<Uint8Array<ArrayBuffer>> {
  const response = await send(`${PATH}/${encodeURIComponent(owner)}/${encodeURIComponent(id)}`);
  return new Uint8Array(await response.arrayBuffer());
}
