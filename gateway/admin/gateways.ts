/** Gateways of this institution: the primary and its followers. */
import * as z from 'zod';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { requirePrimary } from '../accounts/database.ts';
import { type AdminRoute, route } from './admin-route.ts';

const gatewaysSchema = z.object({
  object: z.literal('gateways'),
  role: z.enum(['first', 'follower', 'alone']),
  epoch: z.number().int().optional(),
  /** The followers; only in the primary's answer. */
  followers: z
    .array(
      z.object({
        key: z.string(),
        url: z.string(),
        version: z.string(),
        seen_at: z.iso.datetime(),
        connected: z.boolean(),
        waiting_records: z.number().int(),
      }),
    )
    .optional(),
  /** The primary's address; only in a follower's answer. */
  first: z.string().optional(),
  connected: z.boolean().optional(),
  synced_at: z.iso.datetime().nullable().optional(),
  waiting_records: z.number().int().optional(),
  error: z.string().optional(),
});

export const gatewayRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'get',
    path: '/gateways',
    summary: 'Return whether this gateway is the primary of its institution, and list its followers.',
    answer: gatewaysSchema,
    run: async ({ env }) => ({ object: 'gateways', ...(env.INSTITUTION?.status() ?? { role: 'alone' }) }),
  }),
  route({
    role: 'operator',
    method: 'delete',
    path: '/gateways/:key',
    summary:
      'Remove a follower that no longer runs. The primary gets its share of the limits back, and agents disconnect from it.',
    answer: z.object({ object: z.literal('gateway'), key: z.string(), deleted: z.boolean() }),
    run: async ({ env, param }) => {
      requirePrimary(env);
      if (env.INSTITUTION === undefined) throw new ApiError('not_found', 'A gateway on this host has no followers.');
      return { object: 'gateway', key: param('key'), deleted: env.INSTITUTION.remove(param('key')) };
    },
  }),
];
