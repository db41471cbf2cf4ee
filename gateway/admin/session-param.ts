/** The session parameter of routes, and calls of the registry object. */
import * as z from 'zod';
import { SESSION_PATTERN } from '../../shared/lattice/node-record.ts';
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { Env } from '../env.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import type { AdminCall } from './admin-route.ts';

export const SESSION_PARAM = {
  session: z
    .string()
    .regex(SESSION_PATTERN, 'This is not a session id.')
    .meta({ examples: ['mfrggzdfmztwq2lkmfrggzdfmz'] }),
};

/** Returns the session in the path of a route with SESSION_PARAM. */
export function sessionOf(call: Pick<AdminCall, 'param'>): string {
  return call.param('session');
}

type Registry = ReturnType<Env['REGISTRY']['getByName']>;

/** @throws ApiError 503 */
export async function askRegistry<T>(env: Env, ask: (registry: Registry) => Promise<T>): Promise<T> {
  try {
    return await ask(env.REGISTRY.getByName(REGISTRY_OBJECT_NAME));
  } catch (cause) {
    throw new ApiError('server_is_overloaded', 'The registry cannot be reached. Try again shortly.', { cause });
  }
}
