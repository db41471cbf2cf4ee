/** `/v1/otela/conversations`: the user's conversations at the gateway, encrypted by this page. */
import * as z from 'zod/mini';
import { changeGateway, Problem, readGateway, send } from './client.ts';

const PATH = '/v1/otela/conversations';

const keySchema = z.object({ salt: z.string(), check: z.string() });
const listSchema = z.object({
  key: z.nullable(keySchema),
  revision: z.number(),
  data: z.array(z.object({ id: z.string(), revision: z.number(), deleted: z.boolean() })),
});

export const listKept = (after: number) => readGateway(listSchema, `${PATH}?after=${after}`);

/** @throws Problem 409 if there is a key */
export const beginKeeping = (key: z.infer<typeof keySchema>) => changeGateway(keySchema, 'PUT', `${PATH}/key`, key);

/** Returns undefined if it was deleted. */
export async function readKept(id: string): Promise<{ revision: number; box: Uint8Array<ArrayBuffer> } | undefined> {
  try {
    const response = await send(`${PATH}/${id}`);
    const revision = Number(response.headers.get('etag')?.replaceAll('"', ''));
    return { revision, box: new Uint8Array(await response.arrayBuffer()) };
  } catch (error) {
    if (error instanceof Problem && error.status === 404) return undefined;
    throw error;
  }
}

/**
 * Stores a conversation.
 * @param base the revision that was changed; 0: the conversation is new
 * @returns the new revision; undefined: another browser changed it
 */
export async function writeKept(id: string, base: number, box: Uint8Array<ArrayBuffer>): Promise<number | undefined> {
  const headers = base === 0 ? {} : { 'if-match': `"${base}"` };
  try {
    const response = await send(`${PATH}/${id}`, { method: 'PUT', body: box, headers });
    return z.parse(z.object({ revision: z.number() }), await response.json()).revision;
  } catch (error) {
    if (error instanceof Problem && error.status === 409) return undefined;
    throw error;
  }
}

/** Deletes a conversation, if it is there. */
export async function deleteKept(id: string): Promise<void> {
  try {
    await send(`${PATH}/${id}`, { method: 'DELETE' });
  } catch (error) {
    if (!(error instanceof Problem && error.status === 404)) throw error;
  }
}

/** Deletes all conversations at the gateway, and the key. */
export async function deleteAllKept(): Promise<void> {
  await send(PATH, { method: 'DELETE' });
}
